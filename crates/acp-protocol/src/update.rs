//! What an agent tells about a session: the `update` object of `session/update` and the parts of a permission request.
//! Everything borrows, so that one update is written straight into a buffer.

use std::path::Path;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::ContentBlock;

/// One update that every client understands. What a client must ask for is a [`crate::GatedUpdate`].
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "sessionUpdate", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum SessionUpdate<'a> {
    /// Part of what the user said; replay and other clients only.
    UserMessageChunk {
        /// The part.
        content: ContentBlock<'a>,
        /// Same id, same message.
        message_id: &'a str,
    },
    /// Part of the answer.
    AgentMessageChunk {
        /// The part.
        content: ContentBlock<'a>,
        /// Same id, same message.
        message_id: &'a str,
    },
    /// Part of the reasoning.
    AgentThoughtChunk {
        /// The part.
        content: ContentBlock<'a>,
        /// Same id, same message.
        message_id: &'a str,
    },
    /// A tool call begins.
    ToolCall {
        /// Unique in the session.
        tool_call_id: &'a str,
        /// One line for people.
        title: &'a str,
        /// The tool's name.
        name: &'a str,
        /// How editors show it.
        kind: ToolKind,
        /// `pending` as a rule.
        status: CallStatus,
        /// The command, the diff; empty lists are left out.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        content: &'a [ToolCallContent<'a>],
        /// Absolute paths.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        locations: &'a [Location<'a>],
        /// The model's arguments.
        raw_input: &'a RawValue,
    },
    /// A tool call changed; what is absent stays, lists replace.
    ToolCallUpdate {
        /// The call.
        tool_call_id: &'a str,
        /// The tool's name.
        name: &'a str,
        /// The new status.
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<CallStatus>,
        /// The new title.
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
        /// The new content.
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<&'a [ToolCallContent<'a>]>,
        /// The new locations.
        #[serde(skip_serializing_if = "Option::is_none")]
        locations: Option<&'a [Location<'a>]>,
        /// The result's text.
        #[serde(skip_serializing_if = "Option::is_none")]
        raw_output: Option<&'a str>,
    },
    /// The plan, always complete.
    Plan {
        /// All steps.
        entries: &'a [PlanEntry<'a>],
    },
    /// The slash commands, always complete.
    AvailableCommandsUpdate {
        /// All commands.
        available_commands: &'a [AvailableCommand<'a>],
    },
    /// The mode changed.
    CurrentModeUpdate {
        /// The one in force.
        current_mode_id: &'a str,
    },
    /// The options changed; always complete.
    ConfigOptionUpdate {
        /// All options.
        config_options: &'a [crate::result::ConfigOption<'a>],
    },
    /// Tokens in the window.
    UsageUpdate {
        /// Used.
        used: u64,
        /// The window's size.
        size: u64,
        /// What the session has cost so far; absent when no prices are known.
        #[serde(skip_serializing_if = "Option::is_none")]
        cost: Option<UsageCost<'a>>,
    },
    /// The session's title.
    SessionInfoUpdate {
        /// One line.
        title: &'a str,
        /// RFC 3339.
        updated_at: &'a str,
    },
}

/// An amount of money.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct UsageCost<'a> {
    /// A JSON number. Raw, so that a decimal stays one.
    pub amount: &'a RawValue,
    /// As ISO 4217 writes it.
    pub currency: &'a str,
}

/// How an editor shows a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// Reads.
    Read,
    /// Changes files.
    Edit,
    /// Deletes files.
    Delete,
    /// Moves files.
    Move,
    /// Searches.
    Search,
    /// Runs programs.
    Execute,
    /// Thinks.
    Think,
    /// Fetches from elsewhere.
    Fetch,
    /// Anything else.
    Other,
}

/// How far a tool call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// Announced.
    Pending,
    /// Running.
    InProgress,
    /// Done.
    Completed,
    /// Not done.
    Failed,
}

/// A place a tool call touches.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Location<'a> {
    /// Absolute.
    pub path: &'a Path,
    /// From 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// Something shown with a tool call.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ToolCallContent<'a> {
    /// A content block.
    Content {
        /// The block.
        content: ContentBlock<'a>,
    },
    /// A file's change.
    Diff {
        /// Absolute.
        path: &'a Path,
        /// The whole old text; null for a new file.
        old_text: Option<&'a str>,
        /// The whole new text.
        new_text: &'a str,
    },
    /// A terminal of the client; named only while it is not released.
    Terminal {
        /// The client's own id of it.
        terminal_id: &'a str,
    },
}

/// One step of a plan.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PlanEntry<'a> {
    /// What is to be done.
    pub content: &'a str,
    /// How much it matters.
    pub priority: PlanPriority,
    /// How far it is.
    pub status: PlanStatus,
}

/// How much a step matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanPriority {
    /// First.
    High,
    /// Then.
    Medium,
    /// Last.
    Low,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    /// Not begun.
    Pending,
    /// Being done.
    InProgress,
    /// Done.
    Completed,
}

/// A slash command.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AvailableCommand<'a> {
    /// Without the slash.
    pub name: &'a str,
    /// One line.
    pub description: &'a str,
    /// What may follow; absent when nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<CommandInput<'a>>,
}

/// What may follow a slash command.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CommandInput<'a> {
    /// Shown as a placeholder.
    pub hint: &'a str,
}

/// The tool call inside a permission request: a `tool_call_update` without its tag.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionToolCall<'a> {
    /// The call that was announced before.
    pub tool_call_id: &'a str,
    /// One line.
    pub title: &'a str,
    /// The tool's name.
    pub name: &'a str,
    /// How editors show it.
    pub kind: ToolKind,
    /// Still pending.
    pub status: CallStatus,
    /// The whole command or diff.
    pub content: &'a [ToolCallContent<'a>],
    /// Absolute paths.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub locations: &'a [Location<'a>],
    /// The model's arguments, whole; absent when the announced ones say it all, as null would replace them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_input: Option<&'a RawValue>,
}

/// `session/request_permission`: may this call run?
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionRequest<'a> {
    /// The session.
    pub session_id: &'a str,
    /// The call in question.
    pub tool_call: PermissionToolCall<'a>,
    /// The answers on offer.
    pub options: &'a [PermissionOption<'a>],
}

/// `$/cancel_request` from the agent: it does not wait for an answer to its request any more.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Withdrawal<'a> {
    /// The request's id. An agent's own ids are strings.
    pub request_id: &'a str,
}

/// One answer on offer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption<'a> {
    /// What comes back.
    pub option_id: &'a str,
    /// What people read.
    pub name: &'a str,
    /// What it means.
    pub kind: PermissionOptionKind,
}

/// What an answer means. Closed: one unknown kind makes official types refuse the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionOptionKind {
    /// This once.
    AllowOnce,
    /// From now on.
    AllowAlways,
    /// Not this time.
    RejectOnce,
    /// Never.
    RejectAlways,
}
