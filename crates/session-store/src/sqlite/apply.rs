//! One transaction: each change is checked against what is stored, then written.
//!
//! A refused change has written nothing. Events and messages are gathered and written in bulk, at the end or before a
//! statement that has to see them.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::codec::{
    INTERRUPTED, RUNNING, path_bytes, paths_column, ruling, store_error, to_column, to_number, turn_state,
};
use super::insert::Inserts;
use super::owners::{DeadOwner, Owners};
use super::writer::{Change, Done};
use crate::approval::{MAX_APPROVALS, NewApproval};
use crate::error::StoreError;
use crate::record::{Batch, EventRecord, MessageRecord, NewSession, SessionPatch, TurnEnd, TurnStart, TurnState};
use crate::rules::{Numbers, check_batch};

/// What is known of a session that this process owns. Nobody else should change these numbers while it does; after anybody
/// else has written, the writer forgets them all the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    key: i64,
    numbers: Numbers,
}

/// Why a change was not made.
pub(super) enum Fault {
    /// It does not fit, and has touched nothing: the others of the transaction go on.
    Refused(StoreError),
    /// The database failed: the transaction is lost.
    Failed(StoreError),
}

/// What a committed transaction leaves to do.
pub(super) struct Outcome {
    /// Sessions with new numbers, `None` for those no longer owned.
    pub(super) entries: HashMap<Arc<str>, Option<Entry>>,
    /// Dead owners of which nothing is left.
    pub(super) taken_over: Vec<DeadOwner>,
}

/// A transaction that has begun.
pub(super) struct Transaction<'a> {
    connection: &'a mut SqliteConnection,
    owners: &'a Arc<Owners>,
    inserts: &'a Inserts,
    cache: &'a HashMap<Arc<str>, Entry>,
    entries: HashMap<Arc<str>, Option<Entry>>,
    events: Vec<(i64, &'a EventRecord)>,
    messages: Vec<(i64, &'a MessageRecord)>,
    taken_over: Vec<DeadOwner>,
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Fault {
        Fault::Failed(store_error(error))
    }
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        connection: &'a mut SqliteConnection,
        owners: &'a Arc<Owners>,
        inserts: &'a Inserts,
        cache: &'a HashMap<Arc<str>, Entry>,
    ) -> Transaction<'a> {
        Transaction {
            connection,
            owners,
            inserts,
            cache,
            entries: HashMap::new(),
            events: Vec::new(),
            messages: Vec::new(),
            taken_over: Vec::new(),
        }
    }

    /// Makes one change.
    pub(super) async fn apply(&mut self, change: &'a Change) -> Result<Done, Fault> {
        match change {
            Change::Create(new) => self.create(new).await,
            Change::Claim(id) => self.claim(id).await,
            Change::Release(id) => self.release(id).await,
            Change::Append(id, batch) => self.append(id, batch).await,
            Change::Begin(id, start) => self.begin_turn(id, start).await,
            Change::End(id, end) => self.end_turn(id, end).await,
            Change::Update(id, patch) => self.update(id, patch).await,
            Change::Delete(id) => self.delete(id).await,
            Change::Interrupt(id) => self.interrupt(id).await,
            Change::Approve(new) => self.approve(new).await,
            Change::Revoke(id) => self.revoke(*id).await,
        }
    }

    /// Writes what is gathered; only the commit is left to do.
    pub(super) async fn finish(mut self) -> Result<Outcome, StoreError> {
        self.flush().await?;
        Ok(Outcome { entries: self.entries, taken_over: self.taken_over })
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        if !self.events.is_empty() {
            self.inserts.events(self.connection, &self.events).await?;
            self.events.clear();
        }
        if !self.messages.is_empty() {
            self.inserts.messages(self.connection, &self.messages).await?;
            self.messages.clear();
        }
        Ok(())
    }

    async fn create(&mut self, new: &NewSession) -> Result<Done, Fault> {
        let workspace = path_bytes(&new.workspace).map_err(Fault::Refused)?;
        let directories = paths_column(&new.additional_directories).map_err(Fault::Refused)?;
        let inserted = sqlx::query(
            "INSERT INTO sessions (id, workspace, agent, created_at_ms, last_activity_ms,
                additional_directories, owner)
            VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6) ON CONFLICT (id) DO NOTHING",
        )
        .bind(&*new.id)
        .bind(workspace)
        .bind(&*new.agent)
        .bind(new.created_at_ms)
        .bind(directories)
        .bind(self.owners.instance())
        .execute(&mut *self.connection)
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(Fault::Refused(StoreError::AlreadyExists));
        }
        let entry = Entry { key: inserted.last_insert_rowid(), numbers: Numbers::default() };
        self.entries.insert(Arc::clone(&new.id), Some(entry));
        Ok(Done::Made)
    }

    async fn claim(&mut self, id: &Arc<str>) -> Result<Done, Fault> {
        let Some((key, owner)) = self.owner(id).await? else {
            return Err(Fault::Refused(StoreError::NotFound));
        };
        if let Some(owner) = owner {
            if owner == self.owners.instance() {
                return Ok(Done::Nothing);
            }
            let Some(dead) = self.owners.dead(&owner).await.map_err(Fault::Failed)? else {
                return Err(Fault::Refused(StoreError::HeldElsewhere));
            };
            self.interrupt_turn(key).await?;
            self.bury_when_last(&owner, key, dead).await?;
        }
        sqlx::query("UPDATE sessions SET owner = ?1 WHERE key = ?2")
            .bind(self.owners.instance())
            .bind(key)
            .execute(&mut *self.connection)
            .await?;
        Ok(Done::Made)
    }

    async fn release(&mut self, id: &Arc<str>) -> Result<Done, Fault> {
        match self.owner(id).await? {
            Some((key, Some(owner))) if owner == self.owners.instance() => {
                self.interrupt_turn(key).await?;
                sqlx::query("UPDATE sessions SET owner = NULL WHERE key = ?1")
                    .bind(key)
                    .execute(&mut *self.connection)
                    .await?;
                self.entries.insert(Arc::clone(id), None);
                Ok(Done::Made)
            }
            Some(_) | None => Ok(Done::Nothing),
        }
    }

    async fn append(&mut self, id: &Arc<str>, batch: &'a Batch) -> Result<Done, Fault> {
        let mut entry = self.entry(id).await?;
        check_batch(&mut entry.numbers, batch).map_err(Fault::Refused)?;
        self.gather(id, entry, batch);
        Ok(Done::Made)
    }

    async fn begin_turn(&mut self, id: &Arc<str>, start: &'a TurnStart) -> Result<Done, Fault> {
        let mut entry = self.entry(id).await?;
        entry.numbers.begin_turn(start.turn).map_err(Fault::Refused)?;
        check_batch(&mut entry.numbers, &start.batch).map_err(Fault::Refused)?;
        let turn = to_column(start.turn).map_err(Fault::Refused)?;
        sqlx::query(
            "INSERT INTO turns (session, turn, state, owner, prompt, started_at_ms)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .bind(entry.key)
        .bind(turn)
        .bind(RUNNING)
        .bind(self.owners.instance())
        .bind(start.prompt.as_ref())
        .bind(start.started_at_ms)
        .execute(&mut *self.connection)
        .await?;
        self.touch(entry.key, start.started_at_ms).await?;
        self.gather(id, entry, &start.batch);
        Ok(Done::Made)
    }

    async fn end_turn(&mut self, id: &Arc<str>, end: &'a TurnEnd) -> Result<Done, Fault> {
        let mut entry = self.entry(id).await?;
        if end.state == TurnState::Running {
            return Err(Fault::Refused(StoreError::TurnState));
        }
        check_batch(&mut entry.numbers, &end.batch).map_err(Fault::Refused)?;
        let turn = to_column(end.turn).map_err(Fault::Refused)?;
        let last_seq = to_column(entry.numbers.last_seq).map_err(Fault::Refused)?;
        let ended = sqlx::query(
            "UPDATE turns SET state = ?1, stop_reason = ?2, ended_at_ms = ?3, last_seq = ?4
            WHERE session = ?5 AND turn = ?6 AND last_seq IS NULL",
        )
        .bind(turn_state(end.state))
        .bind(end.stop_reason.as_deref())
        .bind(end.ended_at_ms)
        .bind(last_seq)
        .bind(entry.key)
        .bind(turn)
        .execute(&mut *self.connection)
        .await?;
        if ended.rows_affected() == 0 {
            let known = sqlx::query("SELECT 1 FROM turns WHERE session = ?1 AND turn = ?2")
                .bind(entry.key)
                .bind(turn)
                .fetch_optional(&mut *self.connection)
                .await?;
            return Err(Fault::Refused(match known {
                Some(_) => StoreError::TurnState,
                None => StoreError::NotFound,
            }));
        }
        entry.numbers.end_turn(end.turn);
        self.touch(entry.key, end.ended_at_ms).await?;
        self.gather(id, entry, &end.batch);
        Ok(Done::Made)
    }

    async fn update(&mut self, id: &str, patch: &SessionPatch) -> Result<Done, Fault> {
        let directories =
            patch.additional_directories.as_deref().map(paths_column).transpose().map_err(Fault::Refused)?;
        let updated = sqlx::query(
            "UPDATE sessions SET
                title = CASE WHEN ?2 THEN ?3 ELSE title END,
                config = COALESCE(?4, config),
                last_activity_ms = COALESCE(?5, last_activity_ms),
                additional_directories = COALESCE(?6, additional_directories)
            WHERE id = ?1",
        )
        .bind(id)
        .bind(patch.title.is_some())
        .bind(patch.title.as_ref().and_then(Option::as_deref))
        .bind(patch.config.as_deref())
        .bind(patch.last_activity_ms)
        .bind(directories)
        .execute(&mut *self.connection)
        .await?;
        match updated.rows_affected() {
            0 => Err(Fault::Refused(StoreError::NotFound)),
            _ => Ok(Done::Made),
        }
    }

    async fn delete(&mut self, id: &Arc<str>) -> Result<Done, Fault> {
        let Some((key, owner)) = self.owner(id).await? else {
            return Ok(Done::Nothing);
        };
        if let Some(owner) = owner
            && owner != self.owners.instance()
        {
            let Some(dead) = self.owners.dead(&owner).await.map_err(Fault::Failed)? else {
                return Err(Fault::Refused(StoreError::HeldElsewhere));
            };
            self.bury_when_last(&owner, key, dead).await?;
        }
        self.flush().await.map_err(Fault::Failed)?;
        for statement in [
            "DELETE FROM events WHERE session = ?1",
            "DELETE FROM messages WHERE session = ?1",
            "DELETE FROM turns WHERE session = ?1",
            "DELETE FROM sessions WHERE key = ?1",
        ] {
            sqlx::query(statement).bind(key).execute(&mut *self.connection).await?;
        }
        sqlx::query("DELETE FROM approvals WHERE session = ?1").bind(&**id).execute(&mut *self.connection).await?;
        self.entries.insert(Arc::clone(id), None);
        Ok(Done::Made)
    }

    async fn approve(&mut self, new: &NewApproval) -> Result<Done, Fault> {
        let workspace = path_bytes(&new.workspace).map_err(Fault::Refused)?;
        if new.rule.contains('\0') {
            return Err(Fault::Refused(StoreError::Invalid { what: "rule" }));
        }
        let limit = i64::try_from(MAX_APPROVALS).unwrap_or(i64::MAX);
        let added = sqlx::query(
            "INSERT INTO approvals (agent, workspace, tool, rule, ruling, session, created_at_ms)
            SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
            WHERE (SELECT COUNT(*) FROM approvals WHERE agent = ?1 AND workspace = ?2) < ?8
                OR EXISTS (SELECT 1 FROM approvals WHERE agent = ?1 AND workspace = ?2 AND tool = ?3 AND rule = ?4)
            ON CONFLICT (agent, workspace, tool, rule) DO UPDATE SET
                ruling = excluded.ruling, session = excluded.session, created_at_ms = excluded.created_at_ms
            RETURNING id",
        )
        .bind(&*new.agent)
        .bind(workspace)
        .bind(&*new.tool)
        .bind(&*new.rule)
        .bind(ruling(new.ruling))
        .bind(&*new.session)
        .bind(new.created_at_ms)
        .bind(limit)
        .fetch_optional(&mut *self.connection)
        .await?;
        match added {
            Some(row) => Ok(Done::Added(to_number(row.try_get(0)?, "id").map_err(Fault::Failed)?)),
            None => Err(Fault::Refused(StoreError::TooMany { limit: MAX_APPROVALS })),
        }
    }

    async fn revoke(&mut self, id: u64) -> Result<Done, Fault> {
        let Ok(id) = to_column(id) else { return Ok(Done::Nothing) };
        let gone = sqlx::query("DELETE FROM approvals WHERE id = ?1").bind(id).execute(&mut *self.connection).await?;
        Ok(if gone.rows_affected() == 0 { Done::Nothing } else { Done::Made })
    }

    async fn interrupt(&mut self, id: &Arc<str>) -> Result<Done, Fault> {
        let running = sqlx::query(
            "SELECT t.session, t.owner FROM turns AS t JOIN sessions AS s ON t.session = s.key
            WHERE s.id = ?1 AND t.state = ?2",
        )
        .bind(&**id)
        .bind(RUNNING)
        .fetch_optional(&mut *self.connection)
        .await?;
        let Some(row) = running else {
            return Ok(Done::Nothing);
        };
        let key: i64 = row.try_get(0)?;
        let owner: String = row.try_get(1)?;
        // Asked again under the write lock: the turn may have gone to somebody alive since the reader saw it.
        if owner == self.owners.instance() || self.owners.dead(&owner).await.map_err(Fault::Failed)?.is_none() {
            return Ok(Done::Nothing);
        }
        self.interrupt_turn(key).await?;
        Ok(Done::Made)
    }

    /// The key and the owner of a session.
    async fn owner(&mut self, id: &str) -> Result<Option<(i64, Option<String>)>, Fault> {
        let row = sqlx::query("SELECT key, owner FROM sessions WHERE id = ?1")
            .bind(id)
            .fetch_optional(&mut *self.connection)
            .await?;
        match row {
            Some(row) => Ok(Some((row.try_get(0)?, row.try_get(1)?))),
            None => Ok(None),
        }
    }

    async fn interrupt_turn(&mut self, key: i64) -> Result<(), Fault> {
        sqlx::query("UPDATE turns SET state = ?1 WHERE session = ?2 AND state = ?3")
            .bind(INTERRUPTED)
            .bind(key)
            .bind(RUNNING)
            .execute(&mut *self.connection)
            .await?;
        Ok(())
    }

    async fn touch(&mut self, key: i64, time_ms: i64) -> Result<(), Fault> {
        let touched = sqlx::query("UPDATE sessions SET last_activity_ms = ?1 WHERE key = ?2")
            .bind(time_ms)
            .bind(key)
            .execute(&mut *self.connection)
            .await?;
        match touched.rows_affected() {
            // Rows of a turn are written by now, so only giving up the transaction leaves none behind.
            0 => Err(Fault::Failed(StoreError::NotFound)),
            _ => Ok(()),
        }
    }

    /// Keeps the proof of death until the commit, when `key` was the last session of its owner.
    async fn bury_when_last(&mut self, owner: &str, key: i64, dead: DeadOwner) -> Result<(), Fault> {
        let others = sqlx::query("SELECT 1 FROM sessions WHERE owner = ?1 AND key <> ?2 LIMIT 1")
            .bind(owner)
            .bind(key)
            .fetch_optional(&mut *self.connection)
            .await?;
        if others.is_none() {
            self.taken_over.push(dead);
        }
        Ok(())
    }

    /// The numbers of a session that this process owns.
    async fn entry(&mut self, id: &Arc<str>) -> Result<Entry, Fault> {
        match self.entries.get(id) {
            Some(Some(entry)) => return Ok(*entry),
            // Given up in this very transaction, and perhaps claimed again: only the tables know.
            Some(None) => {}
            None => {
                if let Some(entry) = self.cache.get(id) {
                    return Ok(*entry);
                }
            }
        }
        self.flush().await.map_err(Fault::Failed)?;
        let row = sqlx::query(
            "SELECT s.key, s.owner,
                (SELECT MAX(seq) FROM events WHERE session = s.key),
                (SELECT MAX(position) FROM messages WHERE session = s.key),
                (SELECT MAX(turn) FROM turns WHERE session = s.key),
                (SELECT turn FROM turns WHERE session = s.key AND state = 0)
            FROM sessions AS s WHERE s.id = ?1",
        )
        .bind(&**id)
        .fetch_optional(&mut *self.connection)
        .await?;
        let Some(row) = row else {
            return Err(Fault::Refused(StoreError::NotFound));
        };
        let owner: Option<String> = row.try_get(1)?;
        if owner.as_deref() != Some(self.owners.instance()) {
            return Err(Fault::Refused(StoreError::NotClaimed));
        }
        let number = |index: usize, name| -> Result<Option<u64>, Fault> {
            let column: Option<i64> = row.try_get(index)?;
            column.map(|column| to_number(column, name)).transpose().map_err(Fault::Refused)
        };
        Ok(Entry {
            key: row.try_get(0)?,
            numbers: Numbers {
                last_seq: number(2, "seq")?.unwrap_or(0),
                last_position: number(3, "position")?,
                last_turn: number(4, "turn")?,
                running: number(5, "turn")?,
            },
        })
    }

    fn gather(&mut self, id: &Arc<str>, entry: Entry, batch: &'a Batch) {
        let key = entry.key;
        self.events.extend(batch.events.iter().map(|event| (key, event)));
        self.messages.extend(batch.messages.iter().map(|message| (key, message)));
        self.entries.insert(Arc::clone(id), Some(entry));
    }
}
