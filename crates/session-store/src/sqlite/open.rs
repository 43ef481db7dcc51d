//! Finds, makes or moves aside the database file, and connects to it.
//!
//! A file that is ours costs two connections and three statements. Everything else, the first start included, happens under a
//! lock across processes and asks again after taking it. A file of somebody else is only read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row};

use super::codec::{self, store_error};
use super::file::{self, Aside, Identity};
use super::insert::MAX_STATEMENTS;
use super::owners::{Owners, create_private_directory};
use super::reader::identify;
use super::schema::{APPLICATION_ID, CREATE, FROM_VERSION_1, OLDEST_VERSION, SCHEMA_VERSION};
use super::{SqliteOptions, SyncMode};
use crate::error::{OpenError, StoreError};

/// The most attempts to get a usable file: one to look, one after making it, one after moving a damaged one aside.
const ATTEMPTS: u32 = 4;

/// How often a file that is there is looked at before it counts as one that cannot be opened, and the pause in between.
const LOOKS: u32 = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// The rows that may wait between SQLite's thread and the task that reads them.
const ROW_BUFFER: usize = 512;

/// The pages in the log after which it is folded into the file, 16 MB. SQLite's own thousand costs many sessions that
/// stream at once, each with a page of its own, a sync every few commits; more would make the first open after a crash slow.
const CHECKPOINT_PAGES: &str = "4000";

/// Room in the cache of the writer for the statements that are not inserts of rows; there are about thirty.
const OTHER_STATEMENTS: usize = 64;

/// What is at the path.
enum Found {
    Ours(SqliteConnection),
    /// Ours, by an older definition.
    Older(SqliteConnection),
    Missing,
    Foreign,
    Damaged,
    /// A journal has to be rolled back before a reader can look.
    NeedsRecovery,
}

/// The two connections of an open store.
pub(super) struct Connections {
    pub(super) reader: SqliteConnection,
    pub(super) writer: SqliteConnection,
    /// The file that both have open.
    pub(super) identity: Option<Identity>,
}

/// Opens the store for reading and writing.
pub(super) async fn open(options: &SqliteOptions, owners: &Arc<Owners>) -> Result<Connections, OpenError> {
    let path = &options.path;
    for _ in 0..ATTEMPTS {
        let named = blocking(path, file::identity).await?;
        let reader = match look(path, options.busy_timeout).await? {
            Found::Ours(reader) => reader,
            Found::Older(reader) => {
                let _ = reader.close().await;
                prepare(options).await?;
                continue;
            }
            Found::Missing | Found::Foreign | Found::Damaged | Found::NeedsRecovery => {
                prepare(options).await?;
                continue;
            }
        };
        match connect_writer(options, owners).await {
            Ok(writer) => {
                let identity = blocking(path, file::identity).await?;
                if identity == named && (identity.is_some() || cfg!(not(unix))) {
                    return Ok(Connections { reader, writer, identity });
                }
                // Replaced in between: the two may have different files open.
                let _ = reader.close().await;
                let _ = writer.close().await;
            }
            Err(error) if codec::is_damage(&error) => {
                let _ = reader.close().await;
                set_damaged_aside(options, owners).await?;
            }
            Err(error) => return Err(store(path, store_error(error))),
        }
    }
    Err(OpenError::Busy { path: path.clone() })
}

/// Opens the store for reading only. Changes nothing, and marks nothing.
pub(super) async fn open_read_only(path: &Path, timeout: Duration) -> Result<SqliteConnection, OpenError> {
    match look(path, timeout).await? {
        Found::Ours(reader) | Found::Older(reader) => Ok(reader),
        Found::Missing => Err(OpenError::NotFound { path: path.to_owned() }),
        Found::Foreign | Found::Damaged => Err(OpenError::NotAStore { path: path.to_owned() }),
        Found::NeedsRecovery => Err(OpenError::Busy { path: path.to_owned() }),
    }
}

/// Looks at the file, and again when it could not be opened and yet is there: another process may just have made it, or be
/// taking its log away as the last one to leave.
async fn look(path: &Path, timeout: Duration) -> Result<Found, OpenError> {
    for _ in 0..LOOKS {
        if let Some(found) = look_once(path, timeout).await? {
            return Ok(found);
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    Err(OpenError::Io { path: path.to_owned(), source: io::Error::other("the file cannot be opened") })
}

/// Looks at the file through a read-only connection, which never writes to it, not even when it closes. `None`: it is there
/// and could not be opened.
async fn look_once(path: &Path, timeout: Duration) -> Result<Option<Found>, OpenError> {
    let looked = async {
        let mut reader = base_options(path, timeout).read_only(true).row_buffer_size(ROW_BUFFER).connect().await?;
        let version = identify(&mut reader, APPLICATION_ID).await?;
        Ok((reader, version))
    }
    .await;
    let found = match looked {
        Ok((reader, Some(SCHEMA_VERSION))) => Found::Ours(reader),
        Ok((reader, Some(found))) if found > SCHEMA_VERSION => {
            let _ = reader.close().await;
            return Err(OpenError::NewerSchema { path: path.to_owned(), found, supported: SCHEMA_VERSION });
        }
        Ok((reader, Some(OLDEST_VERSION..))) => Found::Older(reader),
        Ok((reader, _)) => {
            let _ = reader.close().await;
            // SQLite takes an empty file for an empty database.
            match size(path).await? {
                None | Some(0) => Found::Missing,
                Some(_) => Found::Foreign,
            }
        }
        Err(error) if codec::is_damage(&error) => Found::Damaged,
        Err(error) if codec::needs_recovery(&error) => Found::NeedsRecovery,
        Err(error) if codec::is_cannot_open(&error) => match size(path).await? {
            None => Found::Missing,
            Some(_) => return Ok(None),
        },
        Err(error) => return Err(store(path, store_error(error))),
    };
    Ok(Some(found))
}

/// Makes the file usable, under the lock that keeps other processes from doing the same.
async fn prepare(options: &SqliteOptions) -> Result<(), OpenError> {
    let path = &options.path;
    let timeout = options.busy_timeout;
    let lock = lock(path, timeout).await?;
    match look(path, timeout).await? {
        // Another process was first.
        Found::Ours(reader) => {
            let _ = reader.close().await;
        }
        Found::Older(reader) => {
            let _ = reader.close().await;
            upgrade(path, timeout).await.map_err(|error| store(path, store_error(error)))?;
        }
        Found::Missing => {
            // A journal without its database would be played back into the fresh one.
            move_aside(path, Aside::Damaged).await?;
            create(path, timeout).await?;
        }
        Found::Foreign => {
            move_aside(path, Aside::Foreign).await?;
            create(path, timeout).await?;
        }
        Found::Damaged => {
            move_aside(path, Aside::Damaged).await?;
            create(path, timeout).await?;
        }
        Found::NeedsRecovery => {
            let ours = blocking(path, file::has_our_mark).await?;
            if ours {
                recover(path, timeout).await.map_err(|error| store(path, store_error(error)))?;
            } else {
                move_aside(path, Aside::Foreign).await?;
                create(path, timeout).await?;
            }
        }
    }
    drop(lock);
    Ok(())
}

/// Moves a file aside whose tables cannot be read.
async fn set_damaged_aside(options: &SqliteOptions, owners: &Arc<Owners>) -> Result<(), OpenError> {
    let path = &options.path;
    let lock = lock(path, options.busy_timeout).await?;
    // Asked again: another process may have moved it first, and be at work on the fresh one.
    match connect_writer(options, owners).await {
        Ok(writer) => {
            let _ = writer.close().await;
        }
        Err(error) if codec::is_damage(&error) => move_aside(path, Aside::Damaged).await?,
        Err(error) => return Err(store(path, store_error(error))),
    }
    drop(lock);
    Ok(())
}

async fn lock(path: &Path, timeout: Duration) -> Result<fs::File, OpenError> {
    blocking(path, move |path| file::lock_creation(path, timeout))
        .await?
        .ok_or_else(|| OpenError::Busy { path: path.to_owned() })
}

async fn move_aside(path: &Path, why: Aside) -> Result<(), OpenError> {
    let moved = blocking(path, move |path| file::move_aside(path, why)).await?;
    if let Some(moved) = moved {
        tracing::warn!(
            event = "store_moved_aside",
            reason = why.word(),
            kept_as = %moved.display(),
        );
    }
    Ok(())
}

/// Builds a fresh database beside its place and then gives it its name: nobody ever sees half of one.
async fn create(path: &Path, timeout: Duration) -> Result<(), OpenError> {
    let fresh = blocking(path, file::start_fresh).await?;
    let built = async {
        let mut connection = base_options(&fresh, timeout).connect().await?;
        sqlx::raw_sql(CREATE).execute(&mut connection).await?;
        // After the tables, so that the header on the disk carries our mark whatever the log holds later.
        write_ahead(&mut connection).await?;
        connection.close().await
    }
    .await;
    built.map_err(|error| store(path, store_error(error)))?;
    blocking(path, move |path| file::finish_fresh(&fresh, path)).await
}

/// Adds what the present definition has more, in one transaction: a process that dies meanwhile leaves the file as it was.
async fn upgrade(path: &Path, timeout: Duration) -> Result<(), sqlx::Error> {
    let mut connection = base_options(path, timeout).synchronous(SqliteSynchronous::Full).connect().await?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    // Asked again: another process may have been first.
    if identify(&mut transaction, APPLICATION_ID).await? == Some(OLDEST_VERSION) {
        sqlx::raw_sql(FROM_VERSION_1).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    connection.close().await
}

/// Lets a writing connection roll back what a dead process left in a journal.
async fn recover(path: &Path, timeout: Duration) -> Result<(), sqlx::Error> {
    let mut connection = base_options(path, timeout).connect().await?;
    identify(&mut connection, APPLICATION_ID).await?;
    connection.close().await
}

async fn connect_writer(options: &SqliteOptions, owners: &Arc<Owners>) -> Result<SqliteConnection, sqlx::Error> {
    let synchronous = match options.sync {
        SyncMode::Off => SqliteSynchronous::Off,
        SyncMode::Turn => SqliteSynchronous::Normal,
        SyncMode::Always => SqliteSynchronous::Full,
    };
    let mut writer = base_options(&options.path, options.busy_timeout)
        .statement_cache_capacity(MAX_STATEMENTS + OTHER_STATEMENTS)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .synchronous(synchronous)
        .connect()
        .await?;
    let mode = sqlx::query("PRAGMA journal_mode").fetch_one(&mut writer).await?.try_get::<String, _>(0)?;
    if mode != "wal" {
        write_ahead(&mut writer).await?;
    }
    interrupt_dead(&mut writer, owners).await?;
    Ok(writer)
}

/// Asks for a write-ahead log and takes what there is: not every file system can share memory.
async fn write_ahead(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let asked = sqlx::query("PRAGMA journal_mode = WAL").fetch_one(connection).await;
    let mode: String = match asked {
        Ok(row) => row.try_get(0)?,
        // The mode cannot change while somebody else uses the file in the old one; that works too.
        Err(error) if codec::is_busy(&error) => "unchanged".to_owned(),
        Err(error) => return Err(error),
    };
    if mode != "wal" {
        tracing::warn!(event = "store_without_wal", journal_mode = mode);
    }
    Ok(())
}

/// Marks the running turns of dead processes as interrupted. Usually there are none, and the index that holds only
/// running turns says so at once.
async fn interrupt_dead(writer: &mut SqliteConnection, owners: &Arc<Owners>) -> Result<(), sqlx::Error> {
    let rows = sqlx::query("SELECT DISTINCT owner FROM turns WHERE state = 0").fetch_all(&mut *writer).await?;
    for row in rows {
        let owner: String = row.try_get(0)?;
        match owners.dead(&owner).await {
            Ok(Some(dead)) => {
                sqlx::query("UPDATE turns SET state = 4 WHERE state = 0 AND owner = ?1")
                    .bind(owner)
                    .execute(&mut *writer)
                    .await?;
                // Its sessions still name the owner, and its file still answers for them.
                drop(dead);
            }
            Ok(None) => {}
            // Unknown is not dead: the turn stays as it is, and is asked about again when it is loaded.
            Err(error) => tracing::warn!(event = "owner_unknown", %error),
        }
    }
    Ok(())
}

fn base_options(path: &Path, timeout: Duration) -> SqliteConnectOptions {
    // There are no foreign keys in the schema: the rows of a session go in the same transaction as the session itself.
    SqliteConnectOptions::new().filename(path).busy_timeout(timeout).foreign_keys(false).disable_statement_logging()
}

async fn size(path: &Path) -> Result<Option<u64>, OpenError> {
    blocking(path, file::size).await
}

async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, OpenError> {
    let owned: PathBuf = path.to_owned();
    let done = tokio::task::spawn_blocking(move || work(&owned)).await;
    let source = match done {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(source)) => source,
        // The pool drops work only while the runtime shuts down.
        Err(_) => io::ErrorKind::Interrupted.into(),
    };
    Err(OpenError::Io { path: path.to_owned(), source })
}

fn store(path: &Path, source: StoreError) -> OpenError {
    OpenError::Store { path: path.to_owned(), source }
}

/// Creates the directory of the store for the user alone, when it is missing.
pub(super) async fn ensure_directory(path: &Path) -> Result<(), OpenError> {
    blocking(path, |path| match path.parent() {
        Some(parent) => create_private_directory(parent),
        None => Ok(()),
    })
    .await
}
