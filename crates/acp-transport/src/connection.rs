//! What a transport hands its input to.

use async_trait::async_trait;
use zeroclaw_acp_protocol::RequestId;

/// A line that is not handed on, with the request it may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Longer than the limit.
    TooLong {
        /// The id that was found in it.
        id: Option<RequestId>,
        /// Its length in bytes.
        length: u64,
    },
    /// Not UTF-8.
    InvalidUtf8 {
        /// The id that was found in it.
        id: Option<RequestId>,
    },
}

/// The receiving side of one client. Calls come one after the other, in the order of the input.
#[async_trait]
pub trait Connection: Send {
    /// Takes one line without its terminator; never blank. Must return soon: the next line waits.
    async fn line(&mut self, line: &[u8]);

    /// Learns of a line that could not be taken.
    async fn rejected(&mut self, rejected: Rejected);

    /// The input ended: finishes what is running and queues the last output.
    async fn end(self: Box<Self>);
}
