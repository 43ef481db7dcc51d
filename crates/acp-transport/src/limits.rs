//! The limits of a connection, each with what lies beyond it. There is no `Default`: whoever opens a connection spells them out.

/// What a connection may take up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one incoming line. A longer one is skipped without being kept and answered with an error;
    /// without this limit one line without an end takes all memory.
    pub max_line: usize,
    /// Bytes of output waiting for the peer before producers are told to wait.
    /// Small enough that a peer that stops reading costs little, large enough that writes are coalesced.
    pub outbox_high: usize,
}
