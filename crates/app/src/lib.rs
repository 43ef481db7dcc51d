//! Composition root of the ZeroClaw ACP programs: what the binaries call, and nothing that another crate could own.
//!
//! [`launched`] is what a program calls first, [`cli`] parses arguments and talks to the person at the terminal,
//! [`wiring`] puts the server together, and [`agents`]
//! decides which agent there is when nobody configured one.

pub mod agents;
pub mod cli;
mod launch;
pub mod wiring;

pub use launch::launched;
