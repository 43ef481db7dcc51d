//! Sessions that live as long as the process: for when there is no disk to keep them on.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use crate::approval::{ApprovalQuery, ApprovalRecord, MAX_APPROVALS, NewApproval};
use crate::error::{ClaimError, StoreError};
use crate::record::{
    Batch, EventRecord, ListQuery, MessageRecord, NewSession, SessionPatch, SessionRecord, TurnEnd, TurnRecord,
    TurnStart, TurnState,
};
use crate::rules::{Numbers, ROW_BYTES, batch_cost, check_batch};
use crate::store::{MAX_BATCH_BYTES, MAX_PAGE_BYTES, SessionStore};

/// The bytes of all sessions together; beyond it calls fail with [`StoreError::Full`], as on a full disk.
const MAX_BYTES: usize = 512 * 1024 * 1024;

/// A [`SessionStore`] in memory.
#[derive(Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    sessions: BTreeMap<Arc<str>, Session>,
    approvals: BTreeMap<u64, NewApproval>,
    last_approval: u64,
    bytes: usize,
    closed: bool,
}

struct Session {
    record: SessionRecord,
    claimed: bool,
    numbers: Numbers,
    events: Vec<EventRecord>,
    messages: Vec<MessageRecord>,
    turns: Vec<TurnRecord>,
    bytes: usize,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    fn open(&self) -> Result<MutexGuard<'_, Inner>, StoreError> {
        // Every change is checked before it is made, so a panic elsewhere cannot have left half of one.
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.closed {
            true => Err(StoreError::Closed),
            false => Ok(inner),
        }
    }

    /// Makes a change to a claimed session that needs `bytes`.
    fn change(
        &self,
        id: &str,
        bytes: usize,
        change: impl FnOnce(&mut Session) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut inner = self.open()?;
        let total = inner.bytes.saturating_add(bytes);
        let session = inner.sessions.get_mut(id).ok_or(StoreError::NotFound)?;
        if !session.claimed {
            return Err(StoreError::NotClaimed);
        }
        if bytes > MAX_BATCH_BYTES {
            return Err(StoreError::TooLarge);
        }
        if total > MAX_BYTES {
            return Err(StoreError::Full);
        }
        change(session)?;
        session.bytes = session.bytes.saturating_add(bytes);
        inner.bytes = total;
        Ok(())
    }
}

impl Session {
    fn push(&mut self, numbers: Numbers, batch: Batch) {
        self.numbers = numbers;
        self.record.last_seq = numbers.last_seq;
        self.events.extend(batch.events);
        self.messages.extend(batch.messages);
    }

    fn snapshot(&self) -> SessionRecord {
        SessionRecord { last_turn: self.turns.last().cloned(), ..self.record.clone() }
    }

    fn summary(&self) -> SessionRecord {
        let mut record = self.snapshot();
        if let Some(turn) = &mut record.last_turn {
            turn.prompt = Bytes::new();
        }
        record
    }

    fn release(&mut self) {
        self.claimed = false;
        self.numbers.running = None;
        for turn in &mut self.turns {
            if turn.state == TurnState::Running {
                turn.state = TurnState::Interrupted;
            }
        }
    }
}

impl Debug for MemoryStore {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl SessionStore for MemoryStore {
    fn is_durable(&self) -> bool {
        false
    }

    async fn create_session(&self, new: NewSession) -> Result<(), StoreError> {
        let mut inner = self.open()?;
        if inner.sessions.contains_key(&new.id) {
            return Err(StoreError::AlreadyExists);
        }
        let bytes = ROW_BYTES.saturating_add(new.id.len());
        if inner.bytes.saturating_add(bytes) > MAX_BYTES {
            return Err(StoreError::Full);
        }
        inner.bytes = inner.bytes.saturating_add(bytes);
        let session = Session {
            record: SessionRecord {
                id: Arc::clone(&new.id),
                workspace: new.workspace,
                agent: new.agent,
                title: None,
                created_at_ms: new.created_at_ms,
                last_activity_ms: new.created_at_ms,
                additional_directories: new.additional_directories,
                last_seq: 0,
                last_turn: None,
                config: None,
            },
            claimed: true,
            numbers: Numbers::default(),
            events: Vec::new(),
            messages: Vec::new(),
            turns: Vec::new(),
            bytes,
        };
        inner.sessions.insert(new.id, session);
        Ok(())
    }

    async fn claim(&self, id: &str) -> Result<(), ClaimError> {
        let mut inner = self.open()?;
        let session = inner.sessions.get_mut(id).ok_or(ClaimError::NotFound)?;
        session.claimed = true;
        Ok(())
    }

    async fn release(&self, id: &str) -> Result<(), StoreError> {
        if let Some(session) = self.open()?.sessions.get_mut(id) {
            session.release();
        }
        Ok(())
    }

    async fn append(&self, id: &str, batch: Batch) -> Result<(), StoreError> {
        self.change(id, batch_cost(&batch), |session| {
            let mut numbers = session.numbers;
            check_batch(&mut numbers, &batch)?;
            session.push(numbers, batch);
            Ok(())
        })
    }

    async fn begin_turn(&self, id: &str, start: TurnStart) -> Result<(), StoreError> {
        let bytes = batch_cost(&start.batch).saturating_add(start.prompt.len()).saturating_add(ROW_BYTES);
        self.change(id, bytes, |session| {
            let mut numbers = session.numbers;
            numbers.begin_turn(start.turn)?;
            check_batch(&mut numbers, &start.batch)?;
            session.turns.push(TurnRecord {
                turn: start.turn,
                state: TurnState::Running,
                prompt: start.prompt,
                stop_reason: None,
                started_at_ms: start.started_at_ms,
                ended_at_ms: None,
                last_seq: None,
            });
            session.record.last_activity_ms = start.started_at_ms;
            session.push(numbers, start.batch);
            Ok(())
        })
    }

    async fn end_turn(&self, id: &str, end: TurnEnd) -> Result<(), StoreError> {
        self.change(id, batch_cost(&end.batch), |session| {
            let mut numbers = session.numbers;
            if end.state == TurnState::Running {
                return Err(StoreError::TurnState);
            }
            check_batch(&mut numbers, &end.batch)?;
            let turn = session.turns.iter_mut().find(|turn| turn.turn == end.turn).ok_or(StoreError::NotFound)?;
            if turn.last_seq.is_some() {
                return Err(StoreError::TurnState);
            }
            turn.state = end.state;
            turn.stop_reason = end.stop_reason;
            turn.ended_at_ms = Some(end.ended_at_ms);
            turn.last_seq = Some(numbers.last_seq);
            numbers.end_turn(end.turn);
            session.record.last_activity_ms = end.ended_at_ms;
            session.push(numbers, end.batch);
            Ok(())
        })
    }

    async fn session(&self, id: &str) -> Result<Option<SessionRecord>, StoreError> {
        Ok(self.open()?.sessions.get(id).map(Session::snapshot))
    }

    async fn events(&self, id: &str, after_seq: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        let inner = self.open()?;
        let Some(session) = inner.sessions.get(id) else {
            return Ok(Vec::new());
        };
        let first = session.events.partition_point(|event| event.seq <= after_seq);
        let mut page: Vec<EventRecord> = Vec::new();
        let mut bytes = 0_usize;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        for event in session.events.iter().skip(first).take(limit) {
            bytes = bytes.saturating_add(event.payload.len());
            if bytes > MAX_PAGE_BYTES && !page.is_empty() {
                break;
            }
            page.push(event.clone());
        }
        Ok(page)
    }

    async fn messages(&self, id: &str) -> Result<Vec<MessageRecord>, StoreError> {
        let inner = self.open()?;
        let session = inner.sessions.get(id);
        Ok(session.map_or_else(Vec::new, |session| session.messages.clone()))
    }

    async fn turns(&self, id: &str) -> Result<Vec<TurnRecord>, StoreError> {
        let inner = self.open()?;
        let session = inner.sessions.get(id);
        Ok(session.map_or_else(Vec::new, |session| session.turns.clone()))
    }

    async fn update_session(&self, id: &str, patch: SessionPatch) -> Result<(), StoreError> {
        let mut inner = self.open()?;
        let session = inner.sessions.get_mut(id).ok_or(StoreError::NotFound)?;
        if let Some(title) = patch.title {
            session.record.title = title;
        }
        if let Some(config) = patch.config {
            session.record.config = Some(config);
        }
        if let Some(time) = patch.last_activity_ms {
            session.record.last_activity_ms = time;
        }
        if let Some(directories) = patch.additional_directories {
            session.record.additional_directories = directories;
        }
        Ok(())
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<SessionRecord>, StoreError> {
        let inner = self.open()?;
        let mut found: Vec<&Session> = inner
            .sessions
            .values()
            .filter(|session| {
                let record = &session.record;
                let here = match &query.workspace {
                    Some(workspace) => workspace.as_os_str() == record.workspace.as_os_str(),
                    None => true,
                };
                let after = match &query.before {
                    Some(cursor) => {
                        record.last_activity_ms < cursor.last_activity_ms
                            || (record.last_activity_ms == cursor.last_activity_ms && record.id > cursor.id)
                    }
                    None => true,
                };
                here && after
            })
            .collect();
        // The map is in the order of the ids and the sort is stable.
        found.sort_by_key(|session| std::cmp::Reverse(session.record.last_activity_ms));
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        Ok(found.into_iter().take(limit).map(Session::summary).collect())
    }

    async fn delete(&self, id: &str) -> Result<bool, StoreError> {
        let mut inner = self.open()?;
        match inner.sessions.remove(id) {
            Some(session) => {
                inner.approvals.retain(|_, approval| &*approval.session != id);
                inner.bytes = inner.bytes.saturating_sub(session.bytes);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    async fn add_approval(&self, new: NewApproval) -> Result<u64, StoreError> {
        let mut inner = self.open()?;
        if let Some((id, known)) = inner.approvals.iter_mut().find(|(_, known)| known.is_about_the_same(&new)) {
            *known = new;
            return Ok(*id);
        }
        if inner.approvals.values().filter(|known| known.is_beside(&new)).count() >= MAX_APPROVALS {
            return Err(StoreError::TooMany { limit: MAX_APPROVALS });
        }
        inner.last_approval += 1;
        let id = inner.last_approval;
        inner.approvals.insert(id, new);
        Ok(id)
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError> {
        let inner = self.open()?;
        let wanted = |approval: &NewApproval| {
            query.agent.as_ref().is_none_or(|agent| *agent == approval.agent)
                && query.workspace.as_ref().is_none_or(|path| path.as_os_str() == approval.workspace.as_os_str())
        };
        let found = inner.approvals.iter().filter(|(_, approval)| wanted(approval));
        Ok(found.map(|(id, approval)| ApprovalRecord { id: *id, approval: approval.clone() }).collect())
    }

    async fn revoke_approval(&self, id: u64) -> Result<bool, StoreError> {
        Ok(self.open()?.approvals.remove(&id).is_some())
    }

    async fn close(&self) -> Result<(), StoreError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.closed = true;
        inner.sessions.clear();
        inner.approvals.clear();
        inner.bytes = 0;
        Ok(())
    }
}
