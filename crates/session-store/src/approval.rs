//! Answers of people that hold beyond the question: which tool of which agent in which directory may, or may not, do what.
//!
//! What a rule covers is a text here that others write and read.

use std::fmt::{self, Debug, Formatter};
use std::path::PathBuf;
use std::sync::Arc;

/// The rules of one agent in one directory; one more is refused with [`StoreError::TooMany`](crate::StoreError::TooMany).
///
/// Nobody gives so many answers; a client that does answers by itself. The oldest is not dropped for a new one, because a
/// rejection must not end without anybody saying so.
pub const MAX_APPROVALS: usize = 1_000;

/// What was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ruling {
    /// It runs without a question.
    Allow,
    /// It is rejected without a question.
    Reject,
}

/// A rule to keep.
#[derive(Clone, PartialEq, Eq)]
pub struct NewApproval {
    /// The agent it is for.
    pub agent: String,
    /// The working directory of the sessions it is for.
    pub workspace: PathBuf,
    /// The tool.
    pub tool: String,
    /// What it covers.
    pub rule: String,
    /// What was answered.
    pub ruling: Ruling,
    /// The session in which it was made; with that session it goes.
    pub session: Arc<str>,
    /// When it was made.
    pub created_at_ms: i64,
}

/// A rule that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRecord {
    /// Its number, never used twice in a store.
    pub id: u64,
    /// The rule.
    pub approval: NewApproval,
}

/// Which rules to look for; `None` for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalQuery {
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those of this directory, compared exactly.
    pub workspace: Option<PathBuf>,
}

impl NewApproval {
    /// Whether both are about the same: then the later answer replaces the earlier one.
    pub(crate) fn is_about_the_same(&self, other: &NewApproval) -> bool {
        self.is_beside(other) && self.tool == other.tool && self.rule == other.rule
    }

    /// Whether both count towards the same limit.
    pub(crate) fn is_beside(&self, other: &NewApproval) -> bool {
        self.agent == other.agent && self.workspace.as_os_str() == other.workspace.as_os_str()
    }
}

impl Debug for NewApproval {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A rule holds a command of a conversation, so it is content like the payloads.
        f.debug_struct("NewApproval")
            .field("agent", &self.agent)
            .field("tool", &self.tool)
            .field("rule_len", &self.rule.len())
            .field("ruling", &self.ruling)
            .field("session", &self.session)
            .field("created_at_ms", &self.created_at_ms)
            .finish_non_exhaustive()
    }
}
