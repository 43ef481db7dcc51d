//! Test doubles that are stricter than what they stand in for.
//!
//! Owns the scripted model vendor ([`model_server`]) and the driver for agent processes ([`process`]). It is a
//! dev-dependency only: it refuses to be linked into a product, knows no other crate of the workspace, and aborts the
//! test with everything it saw instead of returning errors nobody reads.
#![expect(clippy::expect_used, clippy::panic, reason = "a test harness aborts loudly")]

pub mod model_server;
pub mod process;
