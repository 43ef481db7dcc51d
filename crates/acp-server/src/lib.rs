//! The ACP server: methods, live sessions, turns, replay and the permission back-channel.
//!
//! This crate owns what a client may ask of an agent and in which order it is told what happens.
//! It knows no transport kind (a [`Server`] makes [`zeroclaw_acp_transport::Connection`]s for whoever reads lines),
//! no configuration file and no concrete store, model or tool.

mod agents;
mod choices;
mod client;
mod commands;
mod connection;
mod cost;
mod encode;
mod error;
mod fit;
mod meters;
mod profile;
mod prompt;
mod server;
mod session;
mod workspace;

pub use agents::{AgentEntry, AgentSlot, AgentTable, McpSetup, ModelAccess, ModelChoice};
pub use cost::Price;
pub use profile::ClientProfile;
pub use server::{Activity, Ambient, ClientMcp, Logins, OnDisconnect, Server, ServerSettings};
