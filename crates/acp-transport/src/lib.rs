//! Framing, bounded output and the stdio transport.
//!
//! The core is sans-IO: [`LineDecoder`] turns bytes into lines, [`Outbox`] holds what is to be written.
//! The stdio adapter is a thin rim around both and the only place of the product that writes protocol to stdout.
//! This crate refuses to know any method: a connection gets lines and writes lines.

mod connection;
mod id_scan;
mod limits;
mod line;
mod outbox;
pub mod stdio;

pub use connection::{Connection, Rejected};
pub use limits::Limits;
pub use line::{Line, LineDecoder};
pub use outbox::{Flow, Outbox, OutboxReader};
