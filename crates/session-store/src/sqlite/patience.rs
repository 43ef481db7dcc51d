//! How many calls give up together when another process keeps the database locked.
//!
//! Whoever runs into the busy timeout ends the wait of everybody who was waiting then: each would find the same lock, one
//! after the other, and the last of them would wait for the sum. It counts failures and reads no clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the times a lock was waited for in vain; shared by a task and those who call it.
#[derive(Debug, Clone, Default)]
pub(super) struct Patience(Arc<AtomicU64>);

/// When a call began to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Since(u64);

impl Patience {
    pub(super) fn begin(&self) -> Since {
        Since(self.0.load(Ordering::Acquire))
    }

    /// Ends the wait of every call that has begun.
    pub(super) fn lose(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn is_lost(&self, since: Since) -> bool {
        self.begin() != since
    }
}
