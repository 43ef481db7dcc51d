//! The bridge: a client on standard input and output, a gateway behind a WebSocket, and nothing lost between them.
//!
//! Messages pass as they are. What the bridge knows of them is what a lost connection needs: which requests are not answered,
//! which sessions are open, and the number of the last update of each that the client has.
//! It refuses to think: no model, no tool, no store, no server.

mod discover;
mod editor;
mod ledger;
mod link;
pub mod openclaw;
mod program;
mod relay;
mod wire;

use std::{fmt, time::Duration};

pub use discover::{Arguments, DiscoverError, discover};
pub use program::run;
pub use relay::{End, serve};

/// How the gateway is reached and how long it is waited for.
#[derive(Clone)]
pub struct Options {
    /// `ws://` address of the gateway's `/acp`, with `?agent=` where one is wanted. No token is in it.
    url: String,
    token: discover::TokenSource,
    /// How long a lost gateway is looked for before every request in flight is answered with an error.
    reconnect: Duration,
    /// How long a gateway that is not there yet is waited for at start.
    wait: Duration,
    /// Makes the waits of several bridges differ.
    seed: u64,
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("reconnect", &self.reconnect)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
