//! Updates that a client must have asked for: official types fail on a kind of update that they do not know.
//! They are a type of their own, so that nothing of them can get into what goes to every client.

use std::path::Path;

use serde::Serialize;

use crate::{ContentBlock, PlanEntry, params::ClientCapabilities};

/// One update that a client must have asked for.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "sessionUpdate", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum GatedUpdate<'a> {
    /// One of several plans, complete; [`Gate::Plan`].
    PlanUpdate {
        /// The plan.
        plan: PlanContent<'a>,
    },
    /// A plan is gone; [`Gate::Plan`].
    PlanRemoved {
        /// The plan.
        plan_id: &'a str,
    },
    /// Something the user should know that is not the model's; live only; [`Gate::Notices`].
    Notice {
        /// How grave it is.
        severity: NoticeSeverity,
        /// One line, not empty.
        title: &'a str,
        /// More about it.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
    },
    /// The conversation is being made shorter; [`Gate::Compaction`].
    CompactionUpdate {
        /// Unique in the session.
        compaction_id: &'a str,
        /// How far it is.
        status: CompactionStatus,
        /// What stands for the conversation now.
        #[serde(skip_serializing_if = "Change::is_keep")]
        summary: Change<&'a [ContentBlock<'a>]>,
        /// Why it failed.
        #[serde(skip_serializing_if = "Change::is_keep")]
        error: Change<&'a str>,
    },
    /// Part of a summary; [`Gate::Compaction`].
    CompactionSummaryChunk {
        /// Of which compaction.
        compaction_id: &'a str,
        /// The part.
        content: ContentBlock<'a>,
    },
    /// A child session is there or has changed; comes before anything of the child; [`Gate::Subagents`].
    SubagentUpdate {
        /// The child.
        session_id: &'a str,
        /// One line.
        #[serde(skip_serializing_if = "Change::is_keep")]
        title: Change<&'a str>,
        /// What it is for.
        #[serde(skip_serializing_if = "Change::is_keep")]
        description: Change<&'a str>,
        /// What a client may do with it.
        #[serde(skip_serializing_if = "Change::is_keep")]
        capabilities: Change<SubagentCapabilities>,
        /// How it stands.
        #[serde(skip_serializing_if = "Change::is_keep")]
        state: Change<SubagentState<'a>>,
        /// Its directory, absolute.
        #[serde(skip_serializing_if = "Change::is_keep")]
        cwd: Change<&'a Path>,
        /// Its further directories, absolute.
        #[serde(skip_serializing_if = "Change::is_keep")]
        additional_directories: Change<&'a [&'a Path]>,
    },
    /// A message between sessions; [`Gate::Subagents`].
    SessionMessage {
        /// Unique in the session.
        message_id: &'a str,
        /// Whose it is.
        #[serde(skip_serializing_if = "Change::is_keep")]
        sender_session_id: Change<&'a str>,
        /// For whom it is.
        #[serde(skip_serializing_if = "Change::is_keep")]
        recipient_session_id: Change<&'a str>,
        /// Its id at the sender's.
        #[serde(skip_serializing_if = "Change::is_keep")]
        sender_message_id: Change<&'a str>,
        /// Its id at the recipient's.
        #[serde(skip_serializing_if = "Change::is_keep")]
        recipient_message_id: Change<&'a str>,
        /// What it says, whole.
        #[serde(skip_serializing_if = "Change::is_keep")]
        content: Change<&'a [ContentBlock<'a>]>,
    },
    /// Part of a message between sessions; [`Gate::Subagents`].
    SessionMessageChunk {
        /// Of which message.
        message_id: &'a str,
        /// The part.
        content: ContentBlock<'a>,
    },
}

/// What a client must have asked for before it gets certain updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `session.notices`
    Notices,
    /// `session.compaction`
    Compaction,
    /// `plan`
    Plan,
    /// `subagents`
    Subagents,
}

impl GatedUpdate<'_> {
    /// What a client must have asked for.
    #[must_use]
    pub fn gate(&self) -> Gate {
        match self {
            Self::PlanUpdate { .. } | Self::PlanRemoved { .. } => Gate::Plan,
            Self::Notice { .. } => Gate::Notices,
            Self::CompactionUpdate { .. } | Self::CompactionSummaryChunk { .. } => Gate::Compaction,
            Self::SubagentUpdate { .. } | Self::SessionMessage { .. } | Self::SessionMessageChunk { .. } => {
                Gate::Subagents
            }
        }
    }
}

impl ClientCapabilities {
    /// Whether the client understands what stands behind this gate.
    #[must_use]
    pub fn opens(&self, gate: Gate) -> bool {
        match gate {
            Gate::Notices => self.notices,
            Gate::Compaction => self.compaction,
            Gate::Plan => self.plan,
            Gate::Subagents => self.subagents,
        }
    }
}

/// A member that an update may leave as it is, clear or replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Change<T> {
    /// Not mentioned.
    #[default]
    Keep,
    /// `null`
    Clear,
    /// A new value.
    Set(T),
}

impl<T> Change<T> {
    fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }
}

/// A plan with an id.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum PlanContent<'a> {
    /// Steps.
    Items {
        /// Unique in the session.
        plan_id: &'a str,
        /// All steps.
        entries: &'a [PlanEntry<'a>],
    },
    /// Prose.
    Markdown {
        /// Unique in the session.
        plan_id: &'a str,
        /// The whole text.
        content: &'a str,
        /// The file it is kept in, absolute.
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<&'a Path>,
    },
}

/// How grave a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeSeverity {
    /// Good to know.
    Info,
    /// Something is not as it should be.
    Warning,
    /// Something failed.
    Error,
}

/// How far a compaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionStatus {
    /// Running.
    InProgress,
    /// Done.
    Completed,
    /// Not done.
    Failed,
    /// Given up.
    Cancelled,
}

/// What a client may do with a child session; a present object is a yes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SubagentCapabilities {
    /// `session/cancel`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<crate::result::Empty>,
}

/// How a child session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum SubagentState<'a> {
    /// A turn runs.
    Running,
    /// It waits for a prompt.
    Idle {
        /// How its last turn ended.
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_reason: Option<&'a str>,
    },
    /// It waits for somebody.
    RequiresAction,
    /// Nobody knows.
    Unknown,
}
