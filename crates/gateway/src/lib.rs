//! The gateway of the daemon: HTTP around ACP connections.
//!
//! It owns who may come in (tokens, pairing, origins), how a connection lives on a socket (limits, pings, close codes,
//! what happens to a client that does not read) and how it ends. What is said on a connection is none of its business:
//! it hands lines to an [`Acceptor`]'s connections and writes what these put into their outbox.

mod auth;
mod cors;
mod error;
mod guard;
mod http;
mod link;
mod listen;
mod metrics;
mod settings;
mod socket;
mod streamable;
mod tls;
mod world;

pub use auth::{NewToken, PairingCode, PairingDesk, StateError, Token, TokenRecord, TokenStore};
pub use error::GatewayError;
pub use http::{Acceptor, Gateway};
pub use listen::Listener;
pub use settings::{GatewaySettings, Periods};
pub use tls::TlsFiles;
pub use world::{Random, World};
