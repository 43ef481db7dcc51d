//! Durable sessions: the event log, the messages the model saw, and the turns.
//!
//! This crate owns what is kept of a session and who may write to it.
//! It refuses to know what an event or a message means: payloads come back exactly as they went in.
//! Only that an event is a JSON object on one line is checked when it is read, because a damaged one would break what is sent after it.

mod approval;
mod error;
mod memory;
mod record;
mod rules;
mod sqlite;
mod store;

pub use approval::{ApprovalQuery, ApprovalRecord, MAX_APPROVALS, NewApproval, Ruling};
pub use error::{Cause, ClaimError, OpenError, StoreError};
pub use memory::MemoryStore;
pub use record::{
    Batch, EventKind, EventRecord, ListCursor, ListQuery, MessageRecord, NewSession, SessionPatch, SessionRecord,
    TurnEnd, TurnRecord, TurnStart, TurnState,
};
pub use sqlite::{SqliteOptions, SqliteStore, SyncMode};
pub use store::{MAX_BATCH_BYTES, MAX_PAGE_BYTES, SessionStore};
