//! The life of one turn: model call, tool calls, next model call, until the model is done.
//! Its events go to a [`TurnSink`]; what needs a person goes to an [`Approver`] or an [`Asker`].

mod agent;
mod ask;
mod bound;
mod calls;
mod compact;
mod error;
mod exec;
mod gauge;
mod history;
mod ids;
mod intake;
mod progress;
mod remembered;
mod retry;
mod run;
mod scene;
mod shrink;
mod speech;
mod standing;
mod system;

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use zeroclaw_policy::{Grant, Reason};

use crate::{
    model::{Message, Usage},
    tool::{Location, PlanEntry, ToolContent, ToolKind},
};

pub use agent::{Agent, Fallback, ToolSet, TurnLimits};
pub use error::{TurnError, TurnFailure};
pub use gauge::Gauge;
pub use remembered::{MAX_REMEMBERED, Remembered, Said, Standing};
pub use retry::RetryPolicy;
pub use run::{TurnInput, compact, run_turn};
pub use system::{MAX_PART, SystemParts, system_prompt};

/// How far a tool call is; the names are ACP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStatus {
    /// Announced.
    Pending,
    /// Running.
    InProgress,
    /// Done.
    Completed,
    /// Not possible, denied, cancelled or gone wrong.
    Failed,
}

/// Something a client may show while a turn runs. Borrowed: the sink encodes it at once.
#[derive(Clone, Debug)]
pub enum TurnEvent<'a> {
    /// Visible text; chunks with the same id belong to one message.
    Text {
        /// The message's id.
        message: &'a str,
        /// The text.
        text: &'a str,
    },
    /// Reasoning text.
    Thought {
        /// The message's id.
        message: &'a str,
        /// The text.
        text: &'a str,
    },
    /// A tool call begins: status pending.
    CallStarted {
        /// The call's id, unique in the session.
        id: &'a str,
        /// The tool.
        tool: &'a str,
        /// What editors show it as.
        kind: ToolKind,
        /// What it does, in one line.
        title: &'a str,
        /// The model's arguments as JSON text; valid JSON.
        raw_input: &'a str,
        /// What it touches.
        locations: &'a [Location],
        /// The whole command or diff.
        content: &'a [ToolContent],
    },
    /// A tool call changed. Lists that are present replace what was there.
    CallChanged {
        /// The call's id.
        id: &'a str,
        /// The tool.
        tool: &'a str,
        /// The new status.
        status: Option<CallStatus>,
        /// The new title.
        title: Option<&'a str>,
        /// What to show.
        content: Option<&'a [ToolContent]>,
        /// Places.
        locations: Option<&'a [Location]>,
        /// The text result, bounded.
        raw_output: Option<&'a str>,
    },
    /// The plan, complete.
    Plan(&'a [PlanEntry]),
    /// Tokens used and the window's size after a model call.
    Usage {
        /// Tokens in the window now.
        used: u64,
        /// Tokens the window holds.
        size: u64,
        /// What the vendor counted for this call, all tries together.
        counted: Usage,
        /// The fallback that was asked; `None` for the model that was chosen.
        model: Option<&'a str>,
    },
    /// The conversation that the model sees is made shorter.
    Compaction {
        /// Unique in the session.
        id: &'a str,
        /// How far it is.
        step: CompactionStep<'a>,
        /// The user said so, and is answered besides.
        ordered: bool,
    },
    /// A model could not answer and another takes over for the rest of the turn.
    Fallback {
        /// For a message about it.
        message: &'a str,
        /// The name of the one that could not.
        from: &'a str,
        /// The name of the one that takes over.
        to: &'a str,
        /// Why.
        reason: &'a str,
    },
}

/// How far a compaction is. Tokens are estimates, of the messages alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionStep<'a> {
    /// A summary is being written.
    Started,
    /// The model sees less from now on.
    Done {
        /// What stands for the messages that were replaced; `None` when only long tool results were cut.
        summary: Option<&'a str>,
        /// Tokens before.
        before: u64,
        /// Tokens now.
        after: u64,
    },
    /// No summary could be written.
    Failed {
        /// Why; safe to show.
        error: &'a str,
    },
    /// The turn was cancelled meanwhile.
    Cancelled,
}

/// Whether the sink can take more at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a full sink is waited for with `drained`"]
pub enum Flow {
    /// Go on.
    Ready,
    /// Wait for [`TurnSink::drained`] before the next event.
    Full,
}

/// Where a turn's events and messages go, in order.
#[async_trait]
pub trait TurnSink: Send + Sync {
    /// Takes one event. Never blocks and never loses it.
    fn emit(&self, event: TurnEvent<'_>) -> Flow;

    /// Resolves when the sink has room again.
    async fn drained(&self);

    /// Takes a finished message of the conversation, to be kept with the turn.
    fn record(&self, message: &Arc<Message>);

    /// Takes the conversation as the model sees it from now on: whoever rebuilds it from records begins with the last one of
    /// these. The last `own` messages belong to the running turn.
    fn compacted(&self, conversation: &[Arc<Message>], own: usize);
}

/// A question about one action.
#[derive(Clone, Debug)]
pub struct ApprovalRequest<'a> {
    /// The call it belongs to; announced already.
    pub call_id: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// What editors show it as.
    pub kind: ToolKind,
    /// One line that says what is done.
    pub title: &'a str,
    /// The model's arguments as JSON text; valid JSON.
    pub raw_input: &'a str,
    /// What it touches.
    pub locations: &'a [Location],
    /// The whole command or diff.
    pub content: &'a [ToolContent],
    /// Why it is asked.
    pub reasons: &'a [Reason],
    /// What "always" would mean; `None` when it is not offered.
    pub always: Option<Always<'a>>,
}

/// What an "always" answer would mean.
#[derive(Clone, Copy, Debug)]
pub struct Always<'a> {
    /// What it covers.
    pub grant: &'a Grant,
    /// The same in one line, for the option's name.
    pub covers: &'a str,
    /// Whether "always allow" may be offered: not where the operator wants every call asked about.
    pub may_allow: bool,
}

/// The answer to an [`ApprovalRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// This once.
    AllowOnce,
    /// This and the same again.
    AllowAlways,
    /// Not now.
    RejectOnce,
    /// Not now and not again.
    RejectAlways,
    /// Nobody decided: time ran out, an answer that makes no sense, no client. Counts as a rejection; the text says which.
    NoDecision(String),
}

/// Asks people for permission. A turn that is cancelled drops the future; the implementation then withdraws the question.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Asks and waits.
    async fn approve(&self, request: ApprovalRequest<'_>) -> Approval;
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The chosen text.
    Choice(String),
    /// The person declined or nobody decided; the text says which.
    None(String),
    /// The client cannot be asked in this way; the text says why.
    Unsupported(String),
}

/// Asks people questions that are not permissions.
#[async_trait]
pub trait Asker: Send + Sync {
    /// Asks and waits. With no choices the client must support free text.
    async fn ask(&self, call_id: &str, question: &str, choices: &[String]) -> Answer;
}

/// Why a turn ended without an error; the names are ACP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model was done.
    EndTurn,
    /// The model reached its output limit.
    MaxTokens,
    /// The turn reached its limit of model calls.
    MaxTurnRequests,
    /// The model declined.
    Refusal,
    /// The client cancelled.
    Cancelled,
}

/// What is left of a turn when it ended without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnOutcome {
    /// Why it ended.
    pub stop: StopReason,
    /// The visible text of the turn's last message.
    pub text: String,
    /// Tokens of all calls of the turn, when the provider counted them.
    pub usage: Option<Usage>,
    /// The fallback that answered last; `None` for the model that was chosen.
    pub model: Option<Arc<str>>,
}
