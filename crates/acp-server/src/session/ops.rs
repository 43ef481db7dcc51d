//! What a pump owes the store, in order, and how it pays: merged into few calls, kept and tried again while the store cannot write.

use std::sync::Arc;

use zeroclaw_session_store::{Batch, EventRecord, MessageRecord, SessionStore, StoreError, TurnEnd, TurnStart};

/// Bytes that wait for a store that does not write, at most. Beyond it the session is given up as unsaved:
/// a full disk must not fill the memory too.
const MAX_BACKLOG: usize = 16 * 1024 * 1024;

#[derive(Debug)]
enum Op {
    Begin(TurnStart),
    Append(Batch),
    End(TurnEnd),
}

/// The writes of one session that are not in the store yet.
#[derive(Debug)]
pub(super) struct Ledger {
    store: Option<Arc<dyn SessionStore>>,
    session: Arc<str>,
    backlog: Vec<Op>,
    bytes: usize,
    lost: bool,
}

impl Ledger {
    /// `store` is `None` when nothing outlives the process: then nothing is owed.
    pub(super) fn new(store: Option<Arc<dyn SessionStore>>, session: Arc<str>) -> Self {
        Self { store, session, backlog: Vec::new(), bytes: 0, lost: false }
    }

    pub(super) fn store(&self) -> Option<&Arc<dyn SessionStore>> {
        self.store.as_ref()
    }

    pub(super) fn begin(&mut self, start: TurnStart) {
        if self.keeps(start.prompt.len()) {
            self.backlog.push(Op::Begin(start));
        }
    }

    pub(super) fn event(&mut self, event: EventRecord) {
        if self.keeps(event.payload.len())
            && let Some(batch) = self.batch()
        {
            batch.events.push(event);
        }
    }

    pub(super) fn message(&mut self, message: MessageRecord) {
        if self.keeps(message.payload.len())
            && let Some(batch) = self.batch()
        {
            batch.messages.push(message);
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
        if self.bytes > MAX_BACKLOG && self.backlog.len() > 1 {
            tracing::error!(session = %self.session, "the store does not write: this session is not saved any more");
            self.lost = true;
            self.backlog = Vec::new();
            return false;
        }
        true
    }

    /// The batch that events and messages join.
    fn batch(&mut self) -> Option<&mut Batch> {
        if !matches!(self.backlog.last(), Some(Op::Begin(_) | Op::Append(_))) {
            self.backlog.push(Op::Append(Batch::default()));
        }
        match self.backlog.last_mut() {
            Some(Op::Begin(start)) => Some(&mut start.batch),
            Some(Op::Append(batch)) => Some(batch),
            Some(Op::End(_)) | None => None,
        }
    }

    /// Pays everything; false when something is still owed. What failed stays first in line.
    pub(super) async fn pay(&mut self) -> bool {
        let Some(store) = &self.store else { return true };
        if self.lost {
            return false;
        }
        let mut ops = std::mem::take(&mut self.backlog).into_iter();
        while let Some(op) = ops.next() {
            // The store takes its values; a copy (of shared bytes) is what can be tried again.
            let result = match &op {
                Op::Begin(start) => store.begin_turn(&self.session, start.clone()).await,
                Op::Append(batch) => store.append(&self.session, batch.clone()).await,
                Op::End(end) => store.end_turn(&self.session, end.clone()).await,
            };
            if let Err(error) = result {
                self.failed(&error);
                if !self.lost {
                    self.backlog.push(op);
                    self.backlog.extend(ops);
                }
                return false;
            }
        }
        self.bytes = 0;
        true
    }

    fn failed(&mut self, error: &StoreError) {
        // Someone removed the session, or took it over: writing it again later would be wrong.
        let for_good = matches!(error, StoreError::NotFound | StoreError::NotClaimed | StoreError::Conflict { .. });
        tracing::warn!(session = %self.session, %error, for_good, "the session store does not write");
        self.lost |= for_good;
    }
}
