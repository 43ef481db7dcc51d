//! How a turn fails.

use std::fmt;

use thiserror::Error;

use crate::model::{ModelError, Usage};

/// What made a turn fail.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TurnFailure {
    /// The model could not be asked or broke off.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The loop itself was left in a state it must not be in.
    #[error("internal error: {0}")]
    Internal(String),
}

/// A turn that failed. What it said and did until then is in the history and was recorded.
#[derive(Clone, Error, PartialEq, Eq)]
#[error("{error}")]
pub struct TurnError {
    /// What happened.
    #[source]
    pub error: TurnFailure,
    /// The visible text of the message that broke off; empty when nothing was said.
    pub text_so_far: String,
    /// Tokens of the calls that were counted until then.
    pub usage: Option<Usage>,
    /// The prompt is not in the history: the vendor refused it, and would refuse it again.
    pub forgotten: bool,
}

impl fmt::Debug for TurnError {
    // What the model said is a body: it stays out of every log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnError")
            .field("error", &self.error)
            .field("text_bytes", &self.text_so_far.len())
            .field("usage", &self.usage)
            .finish()
    }
}
