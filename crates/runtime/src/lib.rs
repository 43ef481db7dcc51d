//! The agent itself: model providers, tools and the loop that joins them.
//!
//! This crate owns what a turn does between a prompt and a stop reason.
//! It knows no wire format, no session table and no transport: a turn's events go to a [`turn::TurnSink`],
//! questions to an [`turn::Approver`], and every side effect needs a permit of the policy crate.

pub mod client;
pub mod jail;
pub mod launch;
pub mod mcp;
pub mod model;
pub mod sandbox;
pub mod tool;
pub mod turn;
