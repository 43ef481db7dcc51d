//! Wire types of the Agent Client Protocol (ACP) version 1 and of its ZeroClaw dialect.
//!
//! This crate owns what the bytes mean: the JSON-RPC envelope, the method names, the parameters an agent accepts
//! (with every leniency of the dialect), the updates it sends and the error codes it answers with.
//! It refuses I/O, threads, clocks and every dependency but `serde` and `serde_json`.
//!
//! Reading one line:
//!
//! ```
//! use zeroclaw_acp_protocol::{Frame, MethodKind, params::PromptParams};
//!
//! let line = br#"{"jsonrpc":"2.0","id":"a","method":"session/prompt","params":{"session_id":"s-1","prompt":"hello"}}"#;
//! let Ok(Frame::Request { id, method, params }) = Frame::parse(line) else { panic!("a request") };
//! assert_eq!(id.as_json(), "\"a\"");
//! assert_eq!(MethodKind::from_name(&method), Some(MethodKind::SessionPrompt));
//! let params = PromptParams::parse(params).unwrap();
//! assert_eq!(params.session_id, "s-1");
//! ```
//!
//! # A client
//!
//! [`calls`] has what a client sends and [`reading`] what it gets back. A whole program:
//!
//! ```no_run
#![doc = include_str!("../examples/client.rs")]
//! ```
//!
//! # An agent
//!
//! [`params`] has what an agent is given, [`result`] and [`SessionUpdate`] what it answers. A whole program:
//!
//! ```no_run
#![doc = include_str!("../examples/agent.rs")]
//! ```

#![warn(missing_docs)]

pub mod calls;
mod content;
mod elicitation;
mod error;
mod frame;
mod gated;
pub mod lend;
mod mcp;
mod members;
mod message;
mod method;
pub mod params;
pub mod reading;
pub mod result;
mod update;

pub use content::{ContentBlock, EmbeddedResource, PromptPart, ResourceBody, parse_prompt};
pub use elicitation::{
    ElicitationAnswer, ElicitationField, ElicitationForm, ElicitationFormat, ElicitationItems, ElicitationOption,
    ElicitationProperty, ElicitationRequest, ElicitationScope, ElicitationValue,
};
pub use error::{Codes, ErrorData, ErrorKind, ErrorObject, ErrorTable};
pub use frame::{Frame, FrameError, RequestId, ResponseOutcome};
pub use gated::{
    Change, CompactionStatus, Gate, GatedUpdate, NoticeSeverity, PlanContent, SubagentCapabilities, SubagentState,
};
pub use mcp::{McpServer, NameValue};
pub use message::{UpdateFrame, encode_error, encode_notification, encode_request, encode_result};
pub use method::{EXTENSION_REQUESTS, MethodKind, client};
pub use update::{
    AvailableCommand, CallStatus, CommandInput, Location, PermissionOption, PermissionOptionKind, PermissionRequest,
    PermissionToolCall, PlanEntry, PlanPriority, PlanStatus, SessionUpdate, ToolCallContent, ToolKind, UsageCost,
    Withdrawal,
};

/// The protocol version this crate speaks: the only stable one.
pub const PROTOCOL_VERSION: u16 = 1;

#[cfg(test)]
mod tests;
