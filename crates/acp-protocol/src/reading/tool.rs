//! Tool calls and questions about them, as a client reads them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Block, tagged, words};

/// A tool call begins. Members with a default may be absent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolCall {
    /// Unique in the session.
    pub tool_call_id: String,
    /// One line for people.
    pub title: String,
    /// The tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How to show it; `Other` when absent.
    #[serde(default = "other")]
    pub kind: ToolKind,
    /// How far it is; `Pending` when absent.
    #[serde(default = "pending")]
    pub status: CallStatus,
    /// The command, the diff.
    #[serde(default, deserialize_with = "super::list", skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ToolCallContent>,
    /// The places it touches.
    #[serde(default, deserialize_with = "super::list", skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    /// The model's arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_input: Option<Box<RawValue>>,
    /// The tool's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_output: Option<Box<RawValue>>,
}

fn other() -> ToolKind {
    ToolKind::Other
}

fn pending() -> CallStatus {
    CallStatus::Pending
}

/// A tool call changed: what is absent stays, lists replace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolCallUpdate {
    /// The call.
    pub tool_call_id: String,
    /// The new title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The new kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolKind>,
    /// The new status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<CallStatus>,
    /// The new content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Vec<ToolCallContent>>,
    /// The new places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locations: Option<Vec<Location>>,
    /// The model's arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_input: Option<Box<RawValue>>,
    /// The tool's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_output: Option<Box<RawValue>>,
}

words! {
    /// How to show a tool call.
    ToolKind {
        /// Reads.
        Read = "read",
        /// Changes files.
        Edit = "edit",
        /// Deletes files.
        Delete = "delete",
        /// Moves files.
        Move = "move",
        /// Searches.
        Search = "search",
        /// Runs programs.
        Execute = "execute",
        /// Thinks.
        Think = "think",
        /// Fetches from elsewhere.
        Fetch = "fetch",
        /// Changes the session's mode.
        SwitchMode = "switch_mode",
        /// Anything else.
        Other = "other",
    }
}

words! {
    /// How far a tool call is.
    CallStatus {
        /// Announced.
        Pending = "pending",
        /// Running.
        InProgress = "in_progress",
        /// Done.
        Completed = "completed",
        /// Not done.
        Failed = "failed",
    }
}

/// A place a tool call touches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Location {
    /// Absolute.
    pub path: String,
    /// From 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

tagged! {
    /// Something shown with a tool call.
    ToolCallContent by "type" {
        /// A content block.
        Content(Content) = "content",
        /// A file's change.
        Diff(Diff) = "diff",
        /// A terminal of the client.
        Terminal(ShownTerminal) = "terminal",
    }
}

/// A content block of a tool call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Content {
    /// The block.
    pub content: Block,
}

/// A file's change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Diff {
    /// Absolute.
    pub path: String,
    /// The whole old text; `None` for a new file.
    #[serde(default)]
    pub old_text: Option<String>,
    /// The whole new text.
    pub new_text: String,
}

/// A terminal that the client made for the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ShownTerminal {
    /// The client's own id.
    pub terminal_id: String,
}

/// The parameters of `session/request_permission`: may this call run?
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PermissionRequest {
    /// The session.
    pub session_id: String,
    /// The call in question.
    pub tool_call: ToolCallUpdate,
    /// The answers on offer.
    pub options: Vec<PermissionOption>,
}

impl PermissionRequest {
    /// The first option of a kind.
    #[must_use]
    pub fn option(&self, kind: &PermissionOptionKind) -> Option<&PermissionOption> {
        self.options.iter().find(|option| option.kind == *kind)
    }
}

/// One answer on offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PermissionOption {
    /// What goes back.
    pub option_id: String,
    /// What people read.
    pub name: String,
    /// What it means.
    pub kind: PermissionOptionKind,
}

words! {
    /// What an answer means.
    PermissionOptionKind {
        /// This once.
        AllowOnce = "allow_once",
        /// From now on.
        AllowAlways = "allow_always",
        /// Not this time.
        RejectOnce = "reject_once",
        /// Never.
        RejectAlways = "reject_always",
    }
}
