//! Time and randomness, which are parameters of everything in this crate.

use std::fmt;

/// Fills a buffer with random bytes.
pub type Random = dyn Fn(&mut [u8]) + Send + Sync;

/// What comes from the world.
pub struct World {
    /// Milliseconds since the epoch.
    pub now_ms: Box<dyn Fn() -> i64 + Send + Sync>,
    /// Fills the buffer with bytes that nobody can guess.
    pub random: Box<Random>,
}

impl World {
    pub(crate) fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.random)(&mut bytes);
        bytes
    }
}

impl fmt::Debug for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("World")
    }
}
