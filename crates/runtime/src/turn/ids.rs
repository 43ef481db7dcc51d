//! Ids of messages and calls: deterministic, unique in a session as long as turn numbers are.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Counts the ids of one turn. Shared, because tools that run side by side may speak.
#[derive(Debug)]
pub(super) struct Ids {
    turn: u64,
    messages: AtomicU64,
    calls: AtomicU64,
}

impl Ids {
    pub(super) fn new(turn: u64) -> Self {
        Self { turn, messages: AtomicU64::new(0), calls: AtomicU64::new(0) }
    }

    pub(super) fn message(&self) -> String {
        format!("m-{}-{}", self.turn, self.messages.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn call(&self) -> Arc<str> {
        format!("call-{}-{}", self.turn, self.calls.fetch_add(1, Ordering::Relaxed) + 1).into()
    }
}
