//! How far the estimate of tokens is from what a vendor counts: four bytes a token is right for English prose, too few
//! for code and far too few for other scripts.

use std::sync::atomic::{AtomicU64, Ordering};

/// A factor in percent, learned from the last answer. Shared by the turns of a session.
#[derive(Debug)]
pub struct Gauge(AtomicU64);

impl Default for Gauge {
    fn default() -> Self {
        Self(AtomicU64::new(EVEN))
    }
}

impl Gauge {
    /// Takes what a vendor counted for a request of so many tokens by estimate.
    pub(super) fn learn(&self, estimated: u64, counted: u64) {
        if estimated >= LEAST {
            let factor = counted.saturating_mul(100) / estimated;
            // Never below: the next request may hold another kind of text.
            self.0.store(factor.clamp(EVEN, MOST), Ordering::Relaxed);
        }
    }

    /// From estimated tokens to those that the vendor will count.
    pub(super) fn counted(&self, estimated: u64) -> u64 {
        estimated.saturating_mul(self.0.load(Ordering::Relaxed)) / 100
    }

    /// From tokens as the vendor counts them to estimated ones.
    pub(super) fn estimated(&self, counted: u64) -> u64 {
        counted.saturating_mul(100) / self.0.load(Ordering::Relaxed).max(EVEN)
    }
}

/// The estimate is right.
const EVEN: u64 = 100;
/// One token for each byte; a vendor that counts more counts something else.
const MOST: u64 = 400;
/// Of a shorter request the vendor's own additions are too large a part.
const LEAST: u64 = 1_000;
