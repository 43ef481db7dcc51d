//! The loop of one turn.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tokio_util::sync::CancellationToken;
use zeroclaw_policy::{Roots, Ruleset};

use crate::{
    jail::Jail,
    model::Message,
    tool::ToolSettings,
    turn::{Agent, Approver, Asker, Remembered, TurnError, TurnFailure, TurnOutcome, TurnSink},
};

/// What one turn is given.
pub struct TurnInput<'a> {
    /// The turn's number in its session; message and call ids are made of it, so it is never used twice.
    pub turn: u64,
    /// The system prompt.
    pub system: Arc<str>,
    /// The conversation so far; grows by what this turn adds.
    pub history: &'a mut Vec<Arc<Message>>,
    /// What the user said.
    pub prompt: String,
    /// The opened roots.
    pub jail: Arc<Jail>,
    /// The same roots as `jail` was opened with, in the same order.
    pub roots: Arc<Roots>,
    /// The rules.
    pub rules: Arc<Ruleset>,
    /// Settings of the tools.
    pub settings: Arc<ToolSettings>,
    /// Where events and messages go.
    pub sink: &'a dyn TurnSink,
    /// Who is asked for permission.
    pub approver: &'a dyn Approver,
    /// Who is asked questions.
    pub asker: Arc<dyn Asker>,
    /// The "always" answers of the session. Locked for a look-up or an insertion only, never while something is awaited.
    pub remembered: &'a Mutex<Remembered>,
    /// Ends the turn early.
    pub cancel: CancellationToken,
}

impl fmt::Debug for TurnInput<'_> {
    // Prompts and histories are bodies: they stay out of every log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnInput").field("turn", &self.turn).finish_non_exhaustive()
    }
}

/// Runs one turn to its end.
///
/// # Errors
/// See [`TurnFailure`].
pub async fn run_turn(agent: &Agent, input: TurnInput<'_>) -> Result<TurnOutcome, TurnError> {
    let _ = (agent, input);
    Err(TurnError {
        error: TurnFailure::Internal("the loop is not wired in".to_owned()),
        text_so_far: String::new(),
        usage: None,
    })
}
