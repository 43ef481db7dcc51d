//! `session/update` as a client reads it.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{ConfigOption, ToolCall, ToolCallUpdate, tagged, words};

/// The parameters of `session/update`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SessionNotification {
    /// The session.
    pub session_id: String,
    /// What happened.
    pub update: Update,
    /// [`UpdateFacts`] by [`super::facts`], for clients that asked for them.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

/// `_meta.zeroclaw` of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct UpdateFacts {
    /// Its number in the session: from 1, without gaps.
    pub seq: u64,
}

tagged! {
    /// One update.
    Update by "sessionUpdate" {
        /// Part of what the user said; in a replay.
        UserMessageChunk(MessageChunk) = "user_message_chunk",
        /// Part of the answer.
        AgentMessageChunk(MessageChunk) = "agent_message_chunk",
        /// Part of the reasoning.
        AgentThoughtChunk(MessageChunk) = "agent_thought_chunk",
        /// A tool call begins.
        ToolCall(ToolCall) = "tool_call",
        /// A tool call changed; what is absent stays.
        ToolCallUpdate(ToolCallUpdate) = "tool_call_update",
        /// The plan, always complete.
        Plan(Plan) = "plan",
        /// The slash commands, always complete.
        AvailableCommandsUpdate(AvailableCommands) = "available_commands_update",
        /// The mode changed.
        CurrentModeUpdate(CurrentMode) = "current_mode_update",
        /// The options changed; always complete.
        ConfigOptionUpdate(ConfigOptions) = "config_option_update",
        /// Tokens in the window.
        UsageUpdate(Usage) = "usage_update",
        /// The session's title.
        SessionInfoUpdate(SessionTitle) = "session_info_update",
        /// Something the user should know; only for clients that asked for it.
        Notice(Notice) = "notice",
    }
}

/// Part of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MessageChunk {
    /// The part.
    pub content: Block,
    /// Same id, same message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

impl MessageChunk {
    /// The text, when it is text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Block::Text(block) => Some(&block.text),
            Block::ResourceLink(_) | Block::Resource(_) | Block::Image(_) | Block::Audio(_) | Block::Unknown(_) => None,
        }
    }
}

tagged! {
    /// A content block.
    Block by "type" {
        /// Text.
        Text(TextBlock) = "text",
        /// A resource by name.
        ResourceLink(Link) = "resource_link",
        /// A resource with its content.
        Resource(ResourceBlock) = "resource",
        /// A picture.
        Image(Media) = "image",
        /// Sound.
        Audio(Media) = "audio",
    }
}

/// Text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TextBlock {
    /// Markdown.
    pub text: String,
}

/// A resource by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Link {
    /// Where it is.
    pub uri: String,
    /// What it is called.
    pub name: String,
    /// Its media type, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// A resource with its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResourceBlock {
    /// The content.
    pub resource: Resource,
}

/// The content of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Resource {
    /// Where it is.
    pub uri: String,
    /// Its media type, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its bytes in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// A picture or sound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Media {
    /// Base64.
    pub data: String,
    /// Its media type.
    pub mime_type: String,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// All steps.
    pub entries: Vec<PlanEntry>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// How much it matters.
    pub priority: PlanPriority,
    /// How far it is.
    pub status: PlanStatus,
}

words! {
    /// How much a step matters.
    PlanPriority {
        /// First.
        High = "high",
        /// Then.
        Medium = "medium",
        /// Last.
        Low = "low",
    }
}

words! {
    /// How far a step is.
    PlanStatus {
        /// Not begun.
        Pending = "pending",
        /// Being done.
        InProgress = "in_progress",
        /// Done.
        Completed = "completed",
    }
}

/// The slash commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AvailableCommands {
    /// All commands.
    pub available_commands: Vec<AvailableCommand>,
}

/// A slash command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AvailableCommand {
    /// Without the slash.
    pub name: String,
    /// One line.
    pub description: String,
    /// What may follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<CommandInput>,
}

/// What may follow a slash command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CommandInput {
    /// To be shown as a placeholder.
    pub hint: String,
}

/// The mode in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CurrentMode {
    /// One of the modes on offer.
    pub current_mode_id: String,
}

/// The options of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ConfigOptions {
    /// All options.
    pub config_options: Vec<ConfigOption>,
}

/// Tokens in the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// Used.
    pub used: u64,
    /// The window's size.
    pub size: u64,
    /// What the session has cost, when prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cost {
    /// How much.
    pub amount: f64,
    /// ISO 4217 as a rule.
    pub currency: String,
}

/// The session's title and its time. Absent keeps, `null` clears.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SessionTitle {
    /// One line.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub title: Option<Option<String>>,
    /// RFC 3339.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Option<String>>,
}

/// Tells an absent member from `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

/// Something the user should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Notice {
    /// How bad it is.
    pub severity: Severity,
    /// One line.
    pub title: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

words! {
    /// How bad a notice is.
    Severity {
        /// For information.
        Info = "info",
        /// Something may be wrong.
        Warning = "warning",
        /// Something is wrong.
        Error = "error",
        /// None of these.
        Other = "other",
    }
}
