//! What can go wrong, told apart by who can do something about it.
//!
//! No variant carries a payload of a session; the only path a text may show is that of the store itself.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

/// The underlying error of a store, shared because one failed commit answers many callers.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// A failed call of a [`SessionStore`](crate::SessionStore).
///
/// Whatever the variant, the call has changed nothing.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The session, or the turn named by the call, does not exist.
    #[error("the session or turn does not exist")]
    NotFound,
    /// A session with this id exists already.
    #[error("a session with this id exists already")]
    AlreadyExists,
    /// This store has not claimed the session, or has released it.
    #[error("the session is not claimed by this process")]
    NotClaimed,
    /// Another living process owns the session.
    #[error("the session is held by another process")]
    HeldElsewhere,
    /// The call does not follow on from what is stored: the caller's fault.
    #[error("conflict in {what}: expected {expected}, got {got}")]
    Conflict {
        /// The number that does not fit: `seq`, `position` or `turn`.
        what: &'static str,
        /// What would have fitted.
        expected: u64,
        /// What the caller gave.
        got: u64,
    },
    /// The turn is in another state than the call needs, for example ended twice.
    #[error("the turn is in the wrong state for this call")]
    TurnState,
    /// The value does not fit the store: a number above `i64::MAX`, or a batch above [`MAX_BATCH_BYTES`](crate::MAX_BATCH_BYTES).
    #[error("the value is too large for the store")]
    TooLarge,
    /// The value has no stored form: a path with a zero byte, or not Unicode where paths must be.
    #[error("the {what} cannot be stored")]
    Invalid {
        /// What it is about.
        what: &'static str,
    },
    /// The agent has [`MAX_APPROVALS`](crate::MAX_APPROVALS) rules in this directory.
    #[error("there are {limit} approvals for this agent and directory, which is the limit")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// Another process holds the write lock longer than the busy timeout; trying again may succeed.
    #[error("the session store is busy")]
    Busy,
    /// The disk, or the quota, is full; the next call may succeed.
    #[error("no space is left for the session store")]
    Full,
    /// The operating system reported an I/O error.
    #[error("i/o error in the session store: {0}")]
    Io(#[source] Cause),
    /// The store takes no writes: it was opened so, or an earlier commit could not be made durable, or its file is gone
    /// from its place. Opening it again helps.
    #[error("the session store is read-only: {reason}")]
    ReadOnly {
        /// Why.
        reason: Arc<str>,
    },
    /// The store has been closed.
    #[error("the session store is closed")]
    Closed,
    /// What is stored cannot be read.
    #[error("the session store is damaged: {0}")]
    Corrupt(#[source] Cause),
    /// Anything else the database reported.
    #[error("the session store failed: {0}")]
    Database(#[source] Cause),
}

/// A failed [`claim`](crate::SessionStore::claim).
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClaimError {
    /// The session does not exist.
    #[error("the session does not exist")]
    NotFound,
    /// Another living process owns the session.
    #[error("the session is held by another process")]
    HeldElsewhere,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store that could not be opened. The file at its path is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file was written by a newer version of this program.
    #[error("`{}` has schema version {found}, newer than {supported}", path.display())]
    NewerSchema {
        /// The store.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The newest version this program reads.
        supported: u32,
    },
    /// There is no store at the path, and a read-only open creates none.
    #[error("there is no session store at `{}`", path.display())]
    NotFound {
        /// The store.
        path: PathBuf,
    },
    /// The file is not a session store, and a read-only open moves nothing aside.
    #[error("`{}` is not a session store", path.display())]
    NotAStore {
        /// The store.
        path: PathBuf,
    },
    /// The instance id cannot name a lock file: 1 to 64 characters of `A-Z a-z 0-9 _ -` are needed.
    #[error("the instance id of the session store is unusable")]
    Instance,
    /// Another process kept the store locked for longer than the busy timeout.
    #[error("`{}` is locked by another process", path.display())]
    Busy {
        /// The store.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot open the session store `{}`: {source}", path.display())]
    Io {
        /// The store.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The database refused.
    #[error("cannot open the session store `{}`: {source}", path.display())]
    Store {
        /// The store.
        path: PathBuf,
        /// What the database said.
        source: StoreError,
    },
}
