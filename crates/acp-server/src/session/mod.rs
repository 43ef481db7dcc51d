//! One live session: an actor that takes its inputs in order, a pump that writes its log and its clients in order,
//! and the turn that runs between them.

pub(crate) mod actor;
mod approvals;
mod attach;
mod audience;
pub(crate) mod copy;
mod dialog;
mod lend;
pub(crate) mod live;
mod mcp;
pub(crate) mod open;
mod ops;
mod pump;
mod repair;
mod sink;
mod stored;
mod talk;
mod turn;

pub(crate) use pump::{Notice, Pump};
