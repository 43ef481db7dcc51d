//! Sessions in one SQLite file that several processes may use at the same time.
//!
//! A writing task and a reading task own one connection each; this type only hands them their work. It refuses to write to a
//! file that it did not make.

mod apply;
mod codec;
mod file;
mod insert;
mod open;
mod owners;
mod patience;
mod reader;
mod schema;
mod writer;

use std::fmt::{self, Debug, Formatter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::codec::StoredSession;
use self::owners::Owners;
use self::patience::Patience;
use self::reader::{Asked, Read};
use self::writer::{Change, Command, Done, Pending, Place, Writer};
use crate::approval::{ApprovalQuery, ApprovalRecord, NewApproval};
use crate::error::{ClaimError, OpenError, StoreError};
use crate::record::{
    Batch, EventRecord, ListQuery, MessageRecord, NewSession, SessionPatch, SessionRecord, TurnEnd, TurnRecord,
    TurnStart, TurnState,
};
use crate::store::{MAX_BATCH_BYTES, SessionStore};

/// The payload bytes that may wait for the writer; beyond it callers wait for room. One batch always fits.
const QUEUE_BYTES: usize = MAX_BATCH_BYTES;

/// How long a read-only store waits for a lock: it only ever meets one while a journal is rolled back.
const READ_ONLY_TIMEOUT: Duration = Duration::from_secs(2);

/// When a commit waits for the disk.
///
/// Every mode survives the death of the process; they differ in what a power failure may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// Never: a power failure may damage the file.
    Off,
    /// At the end of a turn: a power failure may take what came after the last one.
    #[default]
    Turn,
    /// With every commit.
    Always,
}

/// How to open a [`SqliteStore`].
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The database file. Its directory is created when it is missing, and holds the lock files of the owners.
    pub path: PathBuf,
    /// When a commit waits for the disk.
    pub sync: SyncMode,
    /// A name for this process that no other process uses: 1 to 64 characters of `A-Z a-z 0-9 _ -`.
    pub instance: String,
    /// How long to wait for another process that writes.
    pub busy_timeout: Duration,
}

/// A [`SessionStore`] in a SQLite file.
///
/// Dropping it without [`close`](SessionStore::close) is like the death of the process: nothing that was answered is lost, its
/// sessions can be claimed by others, and its running turns become interrupted.
pub struct SqliteStore {
    /// `None` when the store was opened for reading only.
    changes: Option<mpsc::Sender<Command>>,
    reads: mpsc::Sender<Asked>,
    /// For the writes and for the reads: a lock that keeps one waiting need not keep the other.
    write_patience: Patience,
    read_patience: Patience,
    owners: Arc<Owners>,
    room: Arc<Semaphore>,
}

impl SqliteStore {
    /// Opens the store, and makes it when there is none.
    ///
    /// A file that is not a session store, or that is damaged, is kept under another name beside it.
    /// Must be called within a tokio runtime, on which the two tasks of the store then run.
    ///
    /// # Errors
    /// [`OpenError`]; a file with a newer schema is left as it is.
    pub async fn open(options: SqliteOptions) -> Result<SqliteStore, OpenError> {
        let owners = Owners::new(&options.path, &options.instance).ok_or(OpenError::Instance)?;
        let owners = Arc::new(owners);
        open::ensure_directory(&options.path).await?;
        let connections = open::open(&options, &owners).await?;
        let (changes, commands) = mpsc::channel(writer::QUEUE);
        let place = Place { path: options.path, identity: connections.identity };
        let writer = Writer::new(connections.writer, Arc::clone(&owners), options.sync, place);
        let write_patience = writer.patience.clone();
        let read_patience = Patience::default();
        tokio::spawn(writer.run(commands));
        Ok(SqliteStore {
            changes: Some(changes),
            reads: spawn_reader(connections.reader, &read_patience),
            write_patience,
            read_patience,
            owners,
            room: Arc::new(Semaphore::new(QUEUE_BYTES)),
        })
    }

    /// Opens an existing store to look at it, also while another process uses it. Never changes a file: a turn whose
    /// process is dead is shown as interrupted by [`session`](SessionStore::session), and not marked.
    ///
    /// # Errors
    /// [`OpenError`], and [`OpenError::NotFound`] when there is none.
    pub async fn open_read_only(path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
        let path = path.as_ref();
        let owners = Owners::new(path, "reader").ok_or(OpenError::Instance)?;
        let reader = open::open_read_only(path, READ_ONLY_TIMEOUT).await?;
        let read_patience = Patience::default();
        Ok(SqliteStore {
            changes: None,
            reads: spawn_reader(reader, &read_patience),
            write_patience: Patience::default(),
            read_patience,
            owners: Arc::new(owners),
            room: Arc::new(Semaphore::new(QUEUE_BYTES)),
        })
    }

    async fn change(&self, change: Change) -> Result<Done, StoreError> {
        let Some(changes) = &self.changes else {
            return Err(StoreError::ReadOnly { reason: "it was opened for reading".into() });
        };
        let since = self.write_patience.begin();
        let bytes = change.cost();
        if bytes > MAX_BATCH_BYTES {
            return Err(StoreError::TooLarge);
        }
        let permits = u32::try_from(bytes).map_err(|_| StoreError::TooLarge)?;
        let room = Arc::clone(&self.room).acquire_many_owned(permits).await.map_err(|_| StoreError::Closed)?;
        let (reply, answer) = oneshot::channel();
        let pending = Pending { change, reply, since, _room: room };
        changes.send(Command::Change(pending)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn read<T>(
        &self,
        read: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Read,
    ) -> Result<T, StoreError> {
        let since = self.read_patience.begin();
        let (reply, answer) = oneshot::channel();
        self.reads.send(Asked { read: read(reply), since }).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn stored(&self, id: &str) -> Result<Option<StoredSession>, StoreError> {
        self.read(|reply| Read::Session(id.into(), reply)).await
    }

    /// Whether the last turn runs in a process that is dead.
    async fn is_orphaned(&self, stored: &StoredSession) -> Result<bool, StoreError> {
        match (&stored.record.last_turn, &stored.turn_owner) {
            (Some(turn), Some(owner)) if turn.state == TurnState::Running => {
                let own = self.changes.is_some() && owner == self.owners.instance();
                Ok(!own && self.owners.dead(owner).await?.is_some())
            }
            _ => Ok(false),
        }
    }
}

impl Debug for SqliteStore {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("instance", &self.owners.instance())
            .field("read_only", &self.changes.is_none())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl SessionStore for SqliteStore {
    fn is_durable(&self) -> bool {
        true
    }

    async fn create_session(&self, new: NewSession) -> Result<(), StoreError> {
        self.change(Change::Create(new)).await.map(drop)
    }

    async fn claim(&self, id: &str) -> Result<(), ClaimError> {
        match self.change(Change::Claim(id.into())).await {
            Ok(_) => Ok(()),
            Err(StoreError::NotFound) => Err(ClaimError::NotFound),
            Err(StoreError::HeldElsewhere) => Err(ClaimError::HeldElsewhere),
            Err(error) => Err(ClaimError::Store(error)),
        }
    }

    async fn release(&self, id: &str) -> Result<(), StoreError> {
        self.change(Change::Release(id.into())).await.map(drop)
    }

    async fn append(&self, id: &str, batch: Batch) -> Result<(), StoreError> {
        self.change(Change::Append(id.into(), batch)).await.map(drop)
    }

    async fn begin_turn(&self, id: &str, start: TurnStart) -> Result<(), StoreError> {
        self.change(Change::Begin(id.into(), start)).await.map(drop)
    }

    async fn end_turn(&self, id: &str, end: TurnEnd) -> Result<(), StoreError> {
        self.change(Change::End(id.into(), end)).await.map(drop)
    }

    async fn session(&self, id: &str) -> Result<Option<SessionRecord>, StoreError> {
        let Some(mut stored) = self.stored(id).await? else {
            return Ok(None);
        };
        if self.is_orphaned(&stored).await? {
            if self.changes.is_none() {
                if let Some(turn) = &mut stored.record.last_turn {
                    turn.state = TurnState::Interrupted;
                }
            } else {
                self.change(Change::Interrupt(id.into())).await?;
                return Ok(self.stored(id).await?.map(|stored| stored.record));
            }
        }
        Ok(Some(stored.record))
    }

    async fn events(&self, id: &str, after_seq: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        self.read(|reply| Read::Events { id: id.into(), after_seq, limit, reply }).await
    }

    async fn messages(&self, id: &str) -> Result<Vec<MessageRecord>, StoreError> {
        self.read(|reply| Read::Messages(id.into(), reply)).await
    }

    async fn turns(&self, id: &str) -> Result<Vec<TurnRecord>, StoreError> {
        self.read(|reply| Read::Turns(id.into(), reply)).await
    }

    async fn update_session(&self, id: &str, patch: SessionPatch) -> Result<(), StoreError> {
        self.change(Change::Update(id.into(), patch)).await.map(drop)
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<SessionRecord>, StoreError> {
        self.read(|reply| Read::List(query, reply)).await
    }

    async fn delete(&self, id: &str) -> Result<bool, StoreError> {
        Ok(self.change(Change::Delete(id.into())).await? == Done::Made)
    }

    async fn add_approval(&self, new: NewApproval) -> Result<u64, StoreError> {
        match self.change(Change::Approve(new)).await? {
            Done::Added(id) => Ok(id),
            // Only a task that has gone wrong answers an addition with anything else.
            Done::Nothing | Done::Made => Err(StoreError::Closed),
        }
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError> {
        self.read(|reply| Read::Approvals(query, reply)).await
    }

    async fn revoke_approval(&self, id: u64) -> Result<bool, StoreError> {
        Ok(self.change(Change::Revoke(id)).await? == Done::Made)
    }

    async fn close(&self) -> Result<(), StoreError> {
        // The reader first: the last connection folds the log into the file, and that has to be the writer.
        let (reply, answer) = oneshot::channel();
        if self.reads.send(Asked { read: Read::Close(reply), since: self.read_patience.begin() }).await.is_ok() {
            let _ = answer.await;
        }
        let Some(changes) = &self.changes else {
            return Ok(());
        };
        let (reply, answer) = oneshot::channel();
        match changes.send(Command::Close(reply)).await {
            // Without an answer another close was first.
            Ok(()) => answer.await.unwrap_or(Ok(())),
            Err(_) => Ok(()),
        }
    }
}

fn spawn_reader(connection: sqlx::sqlite::SqliteConnection, patience: &Patience) -> mpsc::Sender<Asked> {
    let (reads, queue) = mpsc::channel(reader::QUEUE);
    tokio::spawn(reader::run(connection, queue, patience.clone()));
    reads
}
