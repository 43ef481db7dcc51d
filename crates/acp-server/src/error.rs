//! How a call fails, and the one place where failures become wire errors.

use zeroclaw_acp_protocol::{ErrorKind, ErrorObject, ErrorTable, params::ParamsError};
use zeroclaw_runtime::{
    model::ModelError,
    turn::{TurnError, TurnFailure},
};
use zeroclaw_session_store::{ClaimError, StoreError};

/// A call that cannot be answered with a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) session: Option<String>,
}

impl CallError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), session: None }
    }

    pub(crate) fn params(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidParams, message)
    }

    /// The wording is relied on: some clients look for the text "session not found".
    pub(crate) fn session_not_found(id: &str) -> Self {
        let shown: String = id.chars().take(128).collect();
        Self { kind: ErrorKind::SessionNotFound, message: "Session not found".to_owned(), session: Some(shown) }
    }

    /// What was to answer has panicked; the log says where.
    pub(crate) fn panicked() -> Self {
        Self::new(ErrorKind::Internal, "internal error")
    }

    pub(crate) fn busy(id: &str) -> Self {
        let message = "a turn is already running in this session".to_owned();
        Self { kind: ErrorKind::SessionBusy, message, session: Some(id.to_owned()) }
    }

    pub(crate) fn to_wire(&self, table: ErrorTable) -> ErrorObject {
        let error = ErrorObject::new(table, self.kind, self.message.clone());
        match &self.session {
            Some(id) => error.with_session(id),
            None => error,
        }
    }
}

impl From<ParamsError> for CallError {
    fn from(error: ParamsError) -> Self {
        Self::params(error.to_string())
    }
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        // The store's own path and the operating system's words help the operator, not the peer.
        tracing::warn!(%error, "the session store failed");
        Self::new(ErrorKind::Internal, "the session store failed; see the log")
    }
}

impl CallError {
    pub(crate) fn from_claim(error: ClaimError, id: &str) -> Self {
        match error {
            ClaimError::NotFound => Self::session_not_found(id),
            ClaimError::HeldElsewhere => Self::params("the session is active in another process; close it there first"),
            ClaimError::Store(error) => error.into(),
        }
    }

    pub(crate) fn from_turn(error: &TurnError) -> Self {
        let kind = match &error.error {
            TurnFailure::Model(ModelError::Auth(_)) => ErrorKind::AuthRequired,
            TurnFailure::Model(
                ModelError::Transient { .. }
                | ModelError::ContextOverflow(_)
                | ModelError::Idle(_)
                | ModelError::Stream(_)
                | ModelError::Request(_)
                | ModelError::Unusable(_)
                | ModelError::Config(_),
            )
            | TurnFailure::Internal(_) => ErrorKind::Internal,
        };
        Self::new(kind, format!("the turn failed: {error}"))
    }
}
