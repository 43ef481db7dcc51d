//! What a pump owes the store, in order, and how it pays: merged into few calls, kept and tried again while the store cannot write.

use std::sync::Arc;

use tokio::time::Instant;
use zeroclaw_session_store::{
    Batch, EventRecord, MessageRecord, SessionPatch, SessionStore, StoreError, TurnEnd, TurnStart,
};

use crate::meters::Meters;

/// Bytes that wait for a store that does not write, at most. Beyond it the session is given up as unsaved:
/// a full disk must not fill the memory too.
const MAX_BACKLOG: usize = 16 * 1024 * 1024;

/// Bytes after which a batch is closed and the next one begins; far below what the store takes at once.
const MAX_BATCH: usize = 8 * 1024 * 1024;

#[derive(Debug)]
enum Op {
    Begin(TurnStart),
    Append(Batch),
    End(TurnEnd),
    Patch(SessionPatch),
}

/// The writes of one session that are not in the store yet.
#[derive(Debug)]
pub(super) struct Ledger {
    store: Option<Arc<dyn SessionStore>>,
    session: Arc<str>,
    meters: Arc<Meters>,
    backlog: Vec<Op>,
    /// Bytes of the whole backlog.
    bytes: usize,
    /// Bytes of its last batch.
    batch_bytes: usize,
    /// The store did not write last time.
    failing: bool,
    /// Something was given up: nothing after it can be written either.
    lost: bool,
}

impl Ledger {
    /// `store` is `None` when nothing outlives the process: then nothing is owed.
    pub(super) fn new(store: Option<Arc<dyn SessionStore>>, session: Arc<str>, meters: Arc<Meters>) -> Self {
        Self { store, session, meters, backlog: Vec::new(), bytes: 0, batch_bytes: 0, failing: false, lost: false }
    }

    pub(super) fn begin(&mut self, start: TurnStart) {
        if self.keeps(start.prompt.len()) {
            self.batch_bytes = start.prompt.len();
            self.backlog.push(Op::Begin(start));
        }
    }

    pub(super) fn event(&mut self, event: EventRecord) {
        let bytes = event.payload.len();
        if self.keeps(bytes)
            && let Some(batch) = self.batch(bytes)
        {
            batch.events.push(event);
        }
    }

    pub(super) fn message(&mut self, message: MessageRecord) {
        let bytes = message.payload.len();
        if self.keeps(bytes)
            && let Some(batch) = self.batch(bytes)
        {
            batch.messages.push(message);
        }
    }

    pub(super) fn patch(&mut self, patch: SessionPatch) {
        if self.keeps(0) {
            self.backlog.push(Op::Patch(patch));
        }
    }

    /// Takes the end of a turn; what was appended just before it goes into the same transaction.
    pub(super) fn end(&mut self, mut end: TurnEnd) {
        if !self.keeps(0) {
            return;
        }
        match self.backlog.pop() {
            Some(Op::Append(batch)) => end.batch = batch,
            Some(other) => self.backlog.push(other),
            None => {}
        }
        self.backlog.push(Op::End(end));
    }

    fn keeps(&mut self, bytes: usize) -> bool {
        if self.store.is_none() || self.lost {
            return false;
        }
        self.bytes += bytes;
        if self.failing && self.bytes > MAX_BACKLOG {
            tracing::error!(session = %self.session, "the store does not write: this session is not saved any more");
            self.give_up();
            return false;
        }
        true
    }

    fn give_up(&mut self) {
        self.lost = true;
        self.backlog = Vec::new();
    }

    /// The batch that an event or message of this size joins.
    fn batch(&mut self, bytes: usize) -> Option<&mut Batch> {
        let open = matches!(self.backlog.last(), Some(Op::Begin(_) | Op::Append(_)));
        if !open || self.batch_bytes + bytes > MAX_BATCH {
            self.backlog.push(Op::Append(Batch::default()));
            self.batch_bytes = 0;
        }
        self.batch_bytes += bytes;
        match self.backlog.last_mut() {
            Some(Op::Begin(start)) => Some(&mut start.batch),
            Some(Op::Append(batch)) => Some(batch),
            Some(Op::End(_) | Op::Patch(_)) | None => None,
        }
    }

    /// Pays everything; false when something is still owed. What failed stays first in line.
    /// While the store fails only what is `pressing` tries again: each try may wait for a lock.
    pub(super) async fn pay(&mut self, pressing: bool) -> bool {
        let Some(store) = &self.store else { return true };
        if self.lost || (self.failing && !pressing) {
            return false;
        }
        let mut ops = std::mem::take(&mut self.backlog).into_iter();
        while let Some(op) = ops.next() {
            let began = Instant::now();
            // The store takes its values; a copy (of shared bytes) is what can be tried again.
            let result = match &op {
                Op::Begin(start) => store.begin_turn(&self.session, start.clone()).await,
                Op::Append(batch) => store.append(&self.session, batch.clone()).await,
                Op::End(end) => store.end_turn(&self.session, end.clone()).await,
                Op::Patch(patch) => store.update_session(&self.session, patch.clone()).await,
            };
            self.meters.commits.observe(began.elapsed());
            if let Err(error) = result {
                self.meters.commit_failures.add(1);
                self.failing = true;
                self.backlog.push(op);
                self.backlog.extend(ops);
                // The last batch is not joined any more: its copy may be on its way.
                self.batch_bytes = MAX_BATCH;
                self.failed(&error);
                return false;
            }
        }
        self.failing = false;
        self.bytes = 0;
        true
    }

    fn failed(&mut self, error: &StoreError) {
        // Somebody removed the session or took it over, or the store is shut for good: trying again would be wrong.
        let for_good = matches!(
            error,
            StoreError::NotFound
                | StoreError::NotClaimed
                | StoreError::HeldElsewhere
                | StoreError::Conflict { .. }
                | StoreError::TooLarge
                | StoreError::Closed
        );
        tracing::warn!(session = %self.session, %error, for_good, "the session store does not write");
        if for_good {
            self.give_up();
        }
    }
}
