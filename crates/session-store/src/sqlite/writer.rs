//! The writing half: one task that owns the only writing connection of this process.
//!
//! Everything that waits is put into one transaction, so that the cost of a commit is shared. A call that is refused
//! leaves the others of its transaction alone; a transaction that the database fails is done again call by call, so
//! that only the guilty one fails.

use std::collections::HashMap;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::SyncMode;
use super::apply::{Entry, Fault, Transaction};
use super::codec::{is_lost_sync, store_error};
use super::file::{self, Identity};
use super::insert::Inserts;
use super::owners::{Owners, blocking};
use super::patience::{Patience, Since};
use crate::approval::NewApproval;
use crate::error::StoreError;
use crate::record::{Batch, NewSession, SessionPatch, TurnEnd, TurnStart};
use crate::rules::batch_cost;

/// Calls that may wait; beyond it callers wait for room.
pub(super) const QUEUE: usize = 1_024;

/// The payload after which a transaction takes no further call: long ones keep other processes waiting.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// The sessions remembered between transactions; beyond it all are forgotten and read again when they are needed.
const MAX_CACHED_SESSIONS: usize = 4_096;

/// One change.
pub(super) enum Change {
    Create(NewSession),
    Claim(Arc<str>),
    Release(Arc<str>),
    Append(Arc<str>, Batch),
    Begin(Arc<str>, TurnStart),
    End(Arc<str>, TurnEnd),
    Update(Arc<str>, SessionPatch),
    Delete(Arc<str>),
    /// Marks the running turn of a session as interrupted when its owner is dead.
    Interrupt(Arc<str>),
    Approve(NewApproval),
    Revoke(u64),
}

/// What a change has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// There was nothing to do.
    Nothing,
    /// It is made.
    Made,
    /// What was added has this number.
    Added(u64),
}

/// A change and who waits for it.
pub(super) struct Pending {
    pub(super) change: Change,
    pub(super) reply: oneshot::Sender<Result<Done, StoreError>>,
    pub(super) since: Since,
    /// Holds the room of the payload in the queue until the call is answered.
    pub(super) _room: OwnedSemaphorePermit,
}

/// What the task is told.
pub(super) enum Command {
    Change(Pending),
    Close(oneshot::Sender<Result<(), StoreError>>),
}

/// Where the database was when it was opened.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) identity: Option<Identity>,
}

/// The state of the task.
pub(super) struct Writer {
    pub(super) connection: SqliteConnection,
    pub(super) owners: Arc<Owners>,
    pub(super) sync: SyncMode,
    pub(super) patience: Patience,
    place: Place,
    inserts: Inserts,
    cache: HashMap<Arc<str>, Entry>,
    /// The state of the file that the cache was read from: it changes with every commit of another connection.
    data_version: Option<i64>,
    /// Why nothing is written any more.
    refused: Option<Arc<str>>,
}

impl Change {
    pub(super) fn cost(&self) -> usize {
        match self {
            Change::Append(_, batch) => batch_cost(batch),
            Change::Begin(_, start) => batch_cost(&start.batch).saturating_add(start.prompt.len()),
            Change::End(_, end) => batch_cost(&end.batch),
            Change::Update(_, patch) => patch.config.as_ref().map_or(0, bytes::Bytes::len),
            Change::Approve(new) => new.rule.len(),
            Change::Create(_)
            | Change::Claim(_)
            | Change::Release(_)
            | Change::Delete(_)
            | Change::Interrupt(_)
            | Change::Revoke(_) => 0,
        }
    }

    /// Whether the answer makes a caller rely on the file: that a session or a turn exists, or what a turn has led to.
    /// The many appends of a turn are vouched for by its end.
    fn relies_on_the_file(&self) -> bool {
        match self {
            Change::Create(_) | Change::Begin(..) | Change::End(..) | Change::Approve(_) | Change::Revoke(_) => true,
            Change::Claim(_)
            | Change::Release(_)
            | Change::Append(..)
            | Change::Update(..)
            | Change::Delete(_)
            | Change::Interrupt(_) => false,
        }
    }

    /// Whether this process comes to own a session by it, for which it needs its lock.
    fn takes_ownership(&self) -> bool {
        match self {
            Change::Create(_) | Change::Claim(_) => true,
            Change::Release(_)
            | Change::Append(..)
            | Change::Begin(..)
            | Change::End(..)
            | Change::Update(..)
            | Change::Delete(_)
            | Change::Interrupt(_)
            | Change::Approve(_)
            | Change::Revoke(_) => false,
        }
    }

    /// Whether the answer promises more than to survive the process: that it is on the disk.
    fn is_for_the_disk(&self) -> bool {
        match self {
            Change::End(..) | Change::Approve(_) | Change::Revoke(_) => true,
            Change::Create(_)
            | Change::Claim(_)
            | Change::Release(_)
            | Change::Append(..)
            | Change::Begin(..)
            | Change::Update(..)
            | Change::Delete(_)
            | Change::Interrupt(_) => false,
        }
    }
}

impl Writer {
    pub(super) fn new(connection: SqliteConnection, owners: Arc<Owners>, sync: SyncMode, place: Place) -> Writer {
        Writer {
            connection,
            owners,
            sync,
            patience: Patience::default(),
            place,
            inserts: Inserts::new(),
            cache: HashMap::new(),
            data_version: None,
            refused: None,
        }
    }

    /// Makes changes until it is closed or the store is dropped.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut group = Vec::new();
        while let Some(command) = commands.recv().await {
            let mut close = None;
            let mut next = Some(command);
            let mut bytes = 0_usize;
            while let Some(command) = next.take() {
                match command {
                    Command::Change(pending) if self.patience.is_lost(pending.since) => {
                        let _ = pending.reply.send(Err(StoreError::Busy));
                    }
                    Command::Change(pending) => {
                        bytes = bytes.saturating_add(pending.change.cost());
                        group.push(pending);
                    }
                    Command::Close(reply) => {
                        close = Some(reply);
                        break;
                    }
                }
                if bytes < GROUP_BYTES && group.len() < QUEUE {
                    next = commands.try_recv().ok();
                }
            }
            self.commit(&mut group).await;
            if let Some(reply) = close {
                // What still waits was sent after the close: dropping it answers that the store is closed.
                drop(commands);
                let _ = reply.send(self.close().await);
                return;
            }
        }
        // Dropped without a close: its sessions stay marked, and the next process finds their owner dead.
        if let Err(error) = self.connection.close().await {
            tracing::debug!(event = "writer_close_failed", %error);
        }
    }

    async fn commit(&mut self, group: &mut Vec<Pending>) {
        let together = match self.transact(group).await {
            Err(error) if group.len() > 1 && self.worth_single(&error) => None,
            result => Some(result),
        };
        match together {
            Some(Ok(answers)) => {
                for (pending, answer) in group.drain(..).zip(answers) {
                    // A caller that no longer waits is no fault: its change is made.
                    let _ = pending.reply.send(answer);
                }
            }
            Some(Err(error)) => {
                self.note_busy(&error);
                for pending in group.drain(..) {
                    let _ = pending.reply.send(Err(error.clone()));
                }
            }
            None => {
                for pending in group.drain(..) {
                    let answer = if self.patience.is_lost(pending.since) {
                        Err(StoreError::Busy)
                    } else {
                        match self.transact(slice::from_ref(&pending)).await {
                            Ok(mut answers) => answers.pop().unwrap_or(Err(StoreError::Closed)),
                            Err(error) => {
                                self.note_busy(&error);
                                Err(error)
                            }
                        }
                    };
                    let _ = pending.reply.send(answer);
                }
            }
        }
    }

    /// Whoever waits while a lock could not be had has waited enough.
    fn note_busy(&self, error: &StoreError) {
        if matches!(error, StoreError::Busy) {
            self.patience.lose();
        }
    }

    /// Whether the calls of a failed transaction may fare better alone. When the lock is taken they would not, and each
    /// would wait for the whole timeout.
    fn worth_single(&self, error: &StoreError) -> bool {
        self.refused.is_none() && !matches!(error, StoreError::Busy)
    }

    /// Makes the changes of a group in one transaction: one answer for each, or an error and nothing is changed.
    async fn transact(&mut self, group: &[Pending]) -> Result<Vec<Result<Done, StoreError>>, StoreError> {
        if group.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(reason) = &self.refused {
            return Err(StoreError::ReadOnly { reason: Arc::clone(reason) });
        }
        if group.iter().any(|pending| pending.change.takes_ownership()) {
            self.owners.hold().await?;
        }
        let for_the_disk = group.iter().any(|pending| pending.change.is_for_the_disk());
        let switch = self.sync == SyncMode::Turn && for_the_disk;
        if switch {
            self.execute("PRAGMA synchronous = FULL").await.map_err(store_error)?;
        }
        let result = self.transact_begun(group, switch).await;
        if switch {
            // Left at FULL by a failure, the store is slower and no less safe.
            if let Err(error) = self.execute("PRAGMA synchronous = NORMAL").await {
                tracing::warn!(event = "store_sync_not_lowered", %error);
            }
        }
        result
    }

    async fn transact_begun(
        &mut self,
        group: &[Pending],
        full: bool,
    ) -> Result<Vec<Result<Done, StoreError>>, StoreError> {
        if let Err(error) = self.begin().await {
            self.roll_back().await;
            return Err(store_error(error));
        }
        let mut transaction = Transaction::new(&mut self.connection, &self.owners, &self.inserts, &self.cache);
        let mut answers = Vec::with_capacity(group.len());
        for pending in group {
            match transaction.apply(&pending.change).await {
                Ok(done) => answers.push(Ok(done)),
                Err(Fault::Refused(error)) => answers.push(Err(error)),
                Err(Fault::Failed(error)) => {
                    self.roll_back().await;
                    return Err(error);
                }
            }
        }
        let outcome = match transaction.finish().await {
            Ok(outcome) => outcome,
            Err(error) => {
                self.roll_back().await;
                return Err(error);
            }
        };
        if group.iter().any(|pending| pending.change.relies_on_the_file())
            && let Err(error) = self.check_place().await
        {
            self.roll_back().await;
            return Err(error);
        }
        if let Err(error) = self.execute("COMMIT").await {
            self.roll_back().await;
            let durable = full || self.sync == SyncMode::Always;
            if is_lost_sync(&error, durable) {
                tracing::error!(event = "store_sync_failed", %error);
                self.refused = Some("a commit could not be made durable".into());
            }
            return Err(store_error(error));
        }
        if self.cache.len() > MAX_CACHED_SESSIONS {
            self.cache.clear();
        }
        for (id, entry) in outcome.entries {
            match entry {
                Some(entry) => self.cache.insert(id, entry),
                None => self.cache.remove(&id),
            };
        }
        for dead in outcome.taken_over {
            dead.bury().await;
        }
        Ok(answers)
    }

    /// Begins a transaction, and forgets what is known of the sessions when somebody else has written since the last one:
    /// a session may be gone, whoever owns it. Asking each time for each session would slow down the appends.
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        let row = sqlx::query("BEGIN IMMEDIATE; PRAGMA data_version").fetch_one(&mut self.connection).await?;
        let version: i64 = row.try_get(0)?;
        if self.data_version.replace(version) != Some(version) {
            self.cache.clear();
        }
        Ok(())
    }

    /// Ends a transaction that failed. SQLite has already done so after some errors; then there is none, and the
    /// complaint about that says nothing.
    async fn roll_back(&mut self) {
        if let Err(error) = self.execute("ROLLBACK").await {
            tracing::debug!(event = "store_rolled_back_already", %error);
        }
    }

    /// Stops writing when the path no longer names the file that is open: it would go on taking everything, and be gone
    /// with this process.
    async fn check_place(&mut self) -> Result<(), StoreError> {
        let path = self.place.path.clone();
        if blocking(move || file::identity(&path)).await? == self.place.identity {
            return Ok(());
        }
        tracing::error!(event = "store_file_gone", path = %self.place.path.display());
        let reason: Arc<str> = "its file was deleted, moved or replaced".into();
        self.refused = Some(Arc::clone(&reason));
        Err(StoreError::ReadOnly { reason })
    }

    async fn close(mut self) -> Result<(), StoreError> {
        let result = match &self.refused {
            Some(reason) => Err(StoreError::ReadOnly { reason: Arc::clone(reason) }),
            None => match self.check_place().await {
                Ok(()) => self.release_all().await,
                Err(error) => Err(error),
            },
        };
        // The last connection to a file folds the log into it and removes the log.
        let closed = self.connection.close().await.map_err(store_error);
        self.owners.let_go().await;
        result.and(closed)
    }

    /// Gives up every session of this process, on the disk.
    async fn release_all(&mut self) -> Result<(), StoreError> {
        let instance = self.owners.instance();
        let owned = sqlx::query("SELECT EXISTS (SELECT 1 FROM sessions WHERE owner = ?1)")
            .bind(instance)
            .fetch_one(&mut self.connection)
            .await
            .map_err(store_error)?;
        if owned.try_get::<i64, _>(0).map_err(store_error)? == 0 {
            return Ok(());
        }
        if self.sync == SyncMode::Turn {
            self.execute("PRAGMA synchronous = FULL").await.map_err(store_error)?;
        }
        self.execute("BEGIN IMMEDIATE").await.map_err(store_error)?;
        let released = async {
            sqlx::query("UPDATE turns SET state = 4 WHERE state = 0 AND owner = ?1")
                .bind(self.owners.instance())
                .execute(&mut self.connection)
                .await?;
            sqlx::query("UPDATE sessions SET owner = NULL WHERE owner = ?1")
                .bind(self.owners.instance())
                .execute(&mut self.connection)
                .await?;
            sqlx::query("COMMIT").execute(&mut self.connection).await
        }
        .await;
        if let Err(error) = released {
            self.roll_back().await;
            return Err(store_error(error));
        }
        Ok(())
    }

    async fn execute(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query(statement).execute(&mut self.connection).await.map(drop)
    }
}
