//! What the methods answer. Absent optional members are left out, empty results are `{}`.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ErrorObject;

/// The answer `{}`; read back, any object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// `initialize`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult<'a> {
    /// Always the integer 1.
    pub protocol_version: u16,
    /// What is wired in.
    pub agent_capabilities: AgentCapabilities,
    /// Who answers.
    pub agent_info: Implementation<'a>,
    /// How to log in; empty when nothing needs it.
    pub auth_methods: Vec<AuthMethod<'a>>,
    /// ZeroClaw's own facts.
    #[serde(rename = "_meta")]
    pub meta: Meta<InitializeMeta<'a>>,
}

/// Wraps facts as `_meta.zeroclaw`.
#[derive(Clone, Debug, Serialize)]
pub struct Meta<T> {
    /// The facts.
    pub zeroclaw: T,
}

/// `_meta.zeroclaw` of `initialize`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeMeta<'a> {
    /// Model of the agent that a `session/new` without an alias uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_model: Option<&'a str>,
    /// Active sessions at most.
    pub max_sessions: usize,
    /// Seconds until an idle session is closed and a permission counts as denied.
    pub session_timeout_secs: u64,
    /// What tells this client's prompts from those of others, for clients that asked for numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<&'a str>,
}

/// A program's name and version.
#[derive(Clone, Debug, Serialize)]
pub struct Implementation<'a> {
    /// For programs.
    pub name: &'a str,
    /// For people.
    pub title: &'a str,
    /// Semantic version.
    pub version: &'a str,
}

/// A way to log in.
#[derive(Clone, Debug, Serialize)]
pub struct AuthMethod<'a> {
    /// What `authenticate` is given.
    pub id: &'a str,
    /// For people.
    pub name: &'a str,
    /// For people.
    pub description: &'a str,
    /// `terminal` for a program that the client runs for the user; absent for what `authenticate` does.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// What a `terminal` method adds to the arguments that the agent was started with.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub args: &'a [&'a str],
}

/// What the agent can do; computed from what is wired in.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCapabilities {
    /// Sessions outlive the process.
    pub load_session: bool,
    /// Blocks a prompt may hold beyond text and links.
    pub prompt_capabilities: PromptCapabilities,
    /// MCP transports beyond stdio.
    pub mcp_capabilities: McpCapabilities,
    /// Session methods beyond the baseline.
    pub session_capabilities: SessionCapabilities,
    /// What can be done about logins; absent when nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthCapabilities>,
    /// ZeroClaw's own methods.
    #[serde(rename = "_meta")]
    pub meta: Meta<ExtensionCapabilities>,
}

/// `agentCapabilities._meta.zeroclaw`: the methods beyond the protocol, by their whole names.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ExtensionCapabilities {
    /// Requests that are served.
    pub requests: &'static [&'static str],
}

/// Methods about logins.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct AuthCapabilities {
    /// `logout`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logout: Option<Empty>,
}

/// Blocks a prompt may hold.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptCapabilities {
    /// Pictures.
    pub image: bool,
    /// Sound.
    pub audio: bool,
    /// Embedded resources.
    pub embedded_context: bool,
}

/// MCP transports.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct McpCapabilities {
    /// Streamable HTTP.
    pub http: bool,
    /// Server-sent events.
    pub sse: bool,
}

/// Session methods; a present object is a yes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionCapabilities {
    /// `session/list`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Empty>,
    /// `session/delete`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete: Option<Empty>,
    /// `session/fork`, unstable
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
    /// `systemPrompt` is honoured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<SystemPromptCapability>,
}

/// What a client's system prompt may do.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SystemPromptCapability {
    /// The modes beyond `append`.
    pub mode: SystemPromptModes,
}

/// Modes of a client's system prompt.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SystemPromptModes {
    /// It may replace the agent's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#override: Option<Empty>,
}

/// `session/new`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSessionResult<'a> {
    /// The new session.
    pub session_id: &'a str,
    /// Its directory, canonical; left out in strict mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_dir: Option<&'a Path>,
    /// What can be chosen, as modes.
    pub modes: ModeState<'a>,
    /// What can be chosen, as options.
    pub config_options: &'a [ConfigOption<'a>],
}

/// `session/load` and `session/resume`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadSessionResult<'a> {
    /// What can be chosen, as modes.
    pub modes: ModeState<'a>,
    /// What can be chosen, as options.
    pub config_options: &'a [ConfigOption<'a>],
    /// Where the client begins in the session's log, for clients that asked for numbers.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta<LogPosition>>,
}

/// A place in a session's log.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LogPosition {
    /// The number of the last update before it.
    pub seq: u64,
}

/// `session/set_config_option`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigOptionsResult<'a> {
    /// All options, each with its value now.
    pub config_options: &'a [ConfigOption<'a>],
}

/// The modes of a session.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeState<'a> {
    /// The one in force.
    pub current_mode_id: &'a str,
    /// All.
    pub available_modes: &'a [Choice<'a>],
}

/// A mode, under the names that modes have.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Choice<'a> {
    /// For programs.
    pub id: &'a str,
    /// For people.
    pub name: &'a str,
    /// For people.
    pub description: &'a str,
}

/// An option of a session.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigOption<'a> {
    /// For programs.
    pub id: &'a str,
    /// For people.
    pub name: &'a str,
    /// For people; absent when the name says it all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'a str>,
    /// `mode`, `model`, …: a hint for the client's display.
    pub category: &'a str,
    /// What can be chosen, and what is.
    #[serde(flatten)]
    pub kind: ConfigKind<'a>,
}

/// What can be chosen with an option.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ConfigKind<'a> {
    /// One value out of several.
    Select {
        /// The value in force.
        current_value: &'a str,
        /// All values.
        options: Vec<ConfigValue<'a>>,
    },
    /// On or off; only for clients with `session.configOptions.boolean`.
    Boolean {
        /// Whether it is on.
        current_value: bool,
    },
}

/// A value of an option.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ConfigValue<'a> {
    /// For programs.
    pub value: &'a str,
    /// For people.
    pub name: &'a str,
    /// For people; absent when the name says it all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'a str>,
}

/// `session/prompt`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptResult<'a> {
    /// Why the turn ended: an ACP stop reason.
    pub stop_reason: &'a str,
    /// The session; left out in strict mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<&'a str>,
    /// The final text; left out in strict mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<&'a str>,
    /// Tokens of the turn, when they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<PromptUsage>,
    /// ZeroClaw's own facts; only when there are some.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta<PromptMeta<'a>>>,
}

/// Tokens of a turn.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptUsage {
    /// Both together.
    pub total_tokens: u64,
    /// Of the requests.
    pub input_tokens: u64,
    /// Of the answers.
    pub output_tokens: u64,
    /// Of the input, read from the vendor's cache.
    pub cached_read_tokens: u64,
    /// Of the input, written to the vendor's cache, where the vendor counts them apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_write_tokens: Option<u64>,
}

/// `_meta.zeroclaw` of a prompt result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PromptMeta<'a> {
    /// False when the turn could not be written to the store.
    pub persisted: bool,
    /// The fallback that answered; absent for the model that was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'a str>,
}

/// `session/stop`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StopResult<'a> {
    /// The session.
    pub session_id: &'a str,
    /// True.
    pub stopped: bool,
}

/// `_zeroclaw/session/attach`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachResult<'a> {
    /// The session.
    pub session_id: &'a str,
    /// The number of the last update that was sent before this.
    pub seq: u64,
    /// The last prompt, where there was one.
    pub turn: Option<TurnStatus<'a>>,
}

/// A prompt of a session, for clients that it may not have come from.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnStatus<'a> {
    /// The id it had on its connection.
    pub prompt_id: &'a RawValue,
    /// The client that sent it, as its `initialize` was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<&'a str>,
    /// `running` or `ended`.
    pub state: &'a str,
    /// How it was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<&'a RawValue>,
    /// How it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a ErrorObject>,
}

/// `_zeroclaw/status`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusResult<'a> {
    /// The program's version.
    pub version: &'a str,
    /// Active sessions of the process.
    pub active_sessions: usize,
    /// Active sessions at most.
    pub max_sessions: usize,
    /// Whether sessions outlive the process.
    pub durable: bool,
    /// The active sessions of the client that asks.
    pub sessions: Vec<SessionStatus>,
}

/// One active session.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStatus {
    /// The session.
    pub session_id: String,
    /// Prompts that are not answered yet: a turn runs or is about to.
    pub open_prompts: usize,
}

/// The answer to an injected event.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventResult<'a> {
    /// The session.
    pub session_id: &'a str,
    /// The event's type.
    pub r#type: &'a str,
    /// `processed`
    pub status: &'a str,
}

/// `session/list`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListSessionsResult {
    /// One page, the latest activity first.
    pub sessions: Vec<SessionInfo>,
    /// Present when there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One session of a list.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    /// The session.
    pub session_id: String,
    /// Its directory.
    pub cwd: String,
    /// One line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// RFC 3339.
    pub updated_at: String,
    /// Its further directories.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_directories: Vec<String>,
}
