//! The results of an agent as a client reads them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{tagged, words};
use crate::result::Empty;

/// `initialize`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InitializeResult {
    /// The version that is spoken.
    pub protocol_version: u16,
    /// What the agent can do.
    #[serde(default)]
    pub agent_capabilities: AgentCapabilities,
    /// Who answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_info: Option<Implementation>,
    /// How to log in.
    #[serde(default, deserialize_with = "super::list")]
    pub auth_methods: Vec<AuthMethod>,
    /// [`InitializeFacts`] by [`super::facts`].
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

/// `_meta.zeroclaw` of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InitializeFacts {
    /// Model of the agent that a `session/new` without an alias uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_model: Option<String>,
    /// Active sessions at most.
    pub max_sessions: u64,
    /// Seconds until an idle session is closed and a permission counts as denied.
    pub session_timeout_secs: u64,
}

/// A program's name and version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Implementation {
    /// For programs.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its version.
    pub version: String,
}

/// A way to log in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuthMethod {
    /// What `authenticate` is given.
    pub id: String,
    /// For people.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `agent` when absent; `terminal` runs the agent's program in a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// For `terminal`: further arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// For `terminal`: further environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<std::collections::BTreeMap<String, String>>,
}

/// What an agent can do; omitted means no.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct AgentCapabilities {
    /// `session/load` is served.
    pub load_session: bool,
    /// Blocks a prompt may hold beyond text and links.
    pub prompt_capabilities: PromptCapabilities,
    /// MCP transports beyond stdio.
    pub mcp_capabilities: McpCapabilities,
    /// Session methods beyond the baseline.
    pub session_capabilities: SessionCapabilities,
    /// What can be done about the login, as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Box<RawValue>>,
    /// Extensions, as they came.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

/// Blocks a prompt may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PromptCapabilities {
    /// Pictures.
    pub image: bool,
    /// Sound.
    pub audio: bool,
    /// Embedded resources.
    pub embedded_context: bool,
}

/// MCP transports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct McpCapabilities {
    /// Streamable HTTP.
    pub http: bool,
    /// Server-sent events.
    pub sse: bool,
}

/// Session methods; a present object is a yes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct SessionCapabilities {
    /// `session/list`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Empty>,
    /// `session/delete`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete: Option<Empty>,
    /// `session/fork`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork: Option<Empty>,
    /// `session/resume`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Empty>,
    /// `session/close`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close: Option<Empty>,
    /// `additionalDirectories` is honoured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_directories: Option<Empty>,
    /// `systemPrompt` is honoured; its modes, as they came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<Box<RawValue>>,
}

/// `session/new` and `session/fork`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct NewSessionResult {
    /// The new session.
    pub session_id: String,
    /// ZeroClaw: its directory, canonical.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_dir: Option<String>,
    /// What can be chosen, as modes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modes: Option<ModeState>,
    /// What can be chosen, as options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_options: Option<Vec<ConfigOption>>,
}

/// `session/load` and `session/resume`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LoadSessionResult {
    /// What can be chosen, as modes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modes: Option<ModeState>,
    /// What can be chosen, as options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_options: Option<Vec<ConfigOption>>,
}

/// The modes of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModeState {
    /// The one in force.
    pub current_mode_id: String,
    /// All.
    pub available_modes: Vec<Mode>,
}

/// One mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Mode {
    /// For programs.
    pub id: String,
    /// For people.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// `session/set_config_option`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ConfigOptionsResult {
    /// All options, each with its value now.
    pub config_options: Vec<ConfigOption>,
}

tagged! {
    /// An option of a session.
    ConfigOption by "type" {
        /// One value out of several.
        Select(SelectOption) = "select",
        /// On or off.
        Boolean(SwitchOption) = "boolean",
    }
}

/// An option with one value out of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SelectOption {
    /// For programs.
    pub id: String,
    /// For people.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A hint for the display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The value in force.
    pub current_value: String,
    /// All values.
    pub options: Vec<ConfigValues>,
}

/// A value of an option, or several under one heading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ConfigValues {
    /// A value.
    One(ConfigValue),
    /// Several.
    Group {
        /// For programs.
        group: String,
        /// For people.
        name: String,
        /// The values.
        options: Vec<ConfigValue>,
    },
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConfigValue {
    /// For programs.
    pub value: String,
    /// For people.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// An option that is on or off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SwitchOption {
    /// For programs.
    pub id: String,
    /// For people.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A hint for the display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The value in force.
    pub current_value: bool,
}

/// `session/prompt`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PromptResult {
    /// Why the turn ended.
    pub stop_reason: StopReason,
    /// ZeroClaw: the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// ZeroClaw: the final text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Tokens of the turn, when they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<PromptUsage>,
    /// [`PromptFacts`] by [`super::facts`].
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

words! {
    /// Why a turn ended.
    StopReason {
        /// The agent is done.
        EndTurn = "end_turn",
        /// The model's answer has reached its length.
        MaxTokens = "max_tokens",
        /// The turn has reached its number of model calls.
        MaxTurnRequests = "max_turn_requests",
        /// The model refuses.
        Refusal = "refusal",
        /// The client cancelled.
        Cancelled = "cancelled",
    }
}

/// Tokens of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PromptUsage {
    /// Both together.
    pub total_tokens: u64,
    /// Of the requests.
    pub input_tokens: u64,
    /// Of the answers.
    pub output_tokens: u64,
    /// Of the output, spent on thoughts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_tokens: Option<u64>,
    /// Of the input, read from the vendor's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_read_tokens: Option<u64>,
    /// Of the input, written to the vendor's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_write_tokens: Option<u64>,
}

/// `_meta.zeroclaw` of a prompt result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PromptFacts {
    /// False when the turn could not be written to the store.
    #[serde(default = "yes")]
    pub persisted: bool,
}

fn yes() -> bool {
    true
}

/// `session/stop`, ZeroClaw's own
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StopResult {
    /// The session.
    pub session_id: String,
    /// True.
    pub stopped: bool,
}

/// The answer to an injected event, ZeroClaw's own
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct EventResult {
    /// The session.
    pub session_id: String,
    /// The event's type.
    pub r#type: String,
    /// `processed`
    pub status: String,
}

/// `session/list`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListSessionsResult {
    /// One page.
    pub sessions: Vec<SessionInfo>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One session of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SessionInfo {
    /// The session.
    pub session_id: String,
    /// Its directory.
    pub cwd: String,
    /// One line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
    /// Its further directories.
    #[serde(default, deserialize_with = "super::list", skip_serializing_if = "Vec::is_empty")]
    pub additional_directories: Vec<String>,
}
