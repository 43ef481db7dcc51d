//! The contract of a session store: what each call promises when it returns.
//!
//! Every implementation passes the same suite in `tests/store/contract.rs`.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::approval::{ApprovalQuery, ApprovalRecord, NewApproval};
use crate::error::{ClaimError, StoreError};
use crate::record::{
    Batch, EventRecord, ListQuery, MessageRecord, NewSession, SessionPatch, SessionRecord, TurnEnd, TurnRecord,
    TurnStart,
};

/// The most bytes in one batch, payloads and 96 for each row: more is refused with [`StoreError::TooLarge`].
///
/// A single tool result is bounded far below this by its producer; the limit keeps one caller from
/// filling the memory of the writer.
pub const MAX_BATCH_BYTES: usize = 64 * 1024 * 1024;

/// The payload bytes after which a page of events ends early.
///
/// A page holds at least one event, so a page is empty only at the end of the log.
pub const MAX_PAGE_BYTES: usize = 16 * 1024 * 1024;

/// Where sessions are kept.
///
/// A call that fails has changed nothing. A caller that stops waiting for a write does not undo it: the write is
/// made or not made as a whole.
#[async_trait]
pub trait SessionStore: Send + Sync + Debug {
    /// Whether sessions outlive this process.
    fn is_durable(&self) -> bool;

    /// Creates a session and claims it for this process; on return it survives the death of the process.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`] when the id is taken.
    async fn create_session(&self, new: NewSession) -> Result<(), StoreError>;

    /// Makes this process the owner of the session, which `append`, `begin_turn` and `end_turn` require.
    ///
    /// Claiming a session twice is no error. A session of a dead process is taken over, its running turn becomes
    /// interrupted.
    ///
    /// # Errors
    /// [`ClaimError::NotFound`], or [`ClaimError::HeldElsewhere`] while its owner lives.
    async fn claim(&self, id: &str) -> Result<(), ClaimError>;

    /// Gives the session up, so that another process can claim it; a turn still running becomes interrupted.
    ///
    /// Releasing a session that this process does not own, or that does not exist, does nothing.
    async fn release(&self, id: &str) -> Result<(), StoreError>;

    /// Appends to the log and to the messages; on return the batch survives the death of the process.
    ///
    /// Batches of all sessions that wait at the same time share one transaction, yet fail on their own.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the events do not follow on from the last one without a gap, or a message position
    /// is not above the last one.
    async fn append(&self, id: &str, batch: Batch) -> Result<(), StoreError>;

    /// Records a running turn together with its first batch.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the number is not above that of the last turn,
    /// [`StoreError::TurnState`] while another turn runs.
    async fn begin_turn(&self, id: &str, start: TurnStart) -> Result<(), StoreError>;

    /// Records the end of a turn together with its last batch, atomically and on the disk before it returns.
    ///
    /// Ends a running turn, or an interrupted one that nobody has ended yet: that is its repair.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such turn, [`StoreError::TurnState`] when it has been ended or the new state is
    /// `Running`.
    async fn end_turn(&self, id: &str, end: TurnEnd) -> Result<(), StoreError>;

    /// The session, or `None` when there is none; a running turn of a dead process becomes interrupted first.
    async fn session(&self, id: &str) -> Result<Option<SessionRecord>, StoreError>;

    /// One page of events with a `seq` above `after_seq`, in order.
    ///
    /// A page may be shorter than `limit`: it ends after [`MAX_PAGE_BYTES`]. Only an empty page means that there are no
    /// more (or no such session).
    ///
    /// Where a store finds the payload of an event damaged on the disk, no longer a JSON object on one line, it leaves the event
    /// out and says so in the log. The numbers of the others tell of the gap.
    async fn events(&self, id: &str, after_seq: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError>;

    /// All messages in order; none for an unknown session.
    async fn messages(&self, id: &str) -> Result<Vec<MessageRecord>, StoreError>;

    /// All turns in order; none for an unknown session.
    async fn turns(&self, id: &str) -> Result<Vec<TurnRecord>, StoreError>;

    /// Changes the fields that the patch names; needs no claim.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn update_session(&self, id: &str, patch: SessionPatch) -> Result<(), StoreError>;

    /// Sessions, newest activity first, equal times by ascending id.
    ///
    /// The `prompt` of the last turns is left empty: a page of prompts could be very large.
    async fn list(&self, query: ListQuery) -> Result<Vec<SessionRecord>, StoreError>;

    /// Removes a session with all that belongs to it, the approvals made in it included; `false` when there is none.
    ///
    /// # Errors
    /// [`StoreError::HeldElsewhere`] while another living process owns it.
    async fn delete(&self, id: &str) -> Result<bool, StoreError>;

    /// Keeps an approval; on return it is on the disk. One about the same tool and rule of the same agent and directory is
    /// replaced by it and keeps its number. Gives back the number.
    ///
    /// # Errors
    /// [`StoreError::TooMany`] beyond [`MAX_APPROVALS`](crate::MAX_APPROVALS).
    async fn add_approval(&self, new: NewApproval) -> Result<u64, StoreError>;

    /// The approvals that the query names, in the order of their numbers.
    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError>;

    /// Removes an approval; `false` when there is none with this number.
    async fn revoke_approval(&self, id: u64) -> Result<bool, StoreError>;

    /// Writes out what waits and releases all sessions; later calls fail with [`StoreError::Closed`].
    ///
    /// Closing twice is no error.
    async fn close(&self) -> Result<(), StoreError>;
}
