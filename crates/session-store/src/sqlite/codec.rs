//! How values become columns and back, and how SQLite's error codes become ours.
//!
//! A column that does not decode is [`StoreError::Corrupt`]: nothing is guessed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::approval::{ApprovalRecord, NewApproval, Ruling};
use crate::error::StoreError;
use crate::record::{EventKind, EventRecord, MessageRecord, SessionRecord, TurnRecord, TurnState};

pub(super) const RUNNING: i64 = 0;
pub(super) const INTERRUPTED: i64 = 4;

/// Primary result codes of SQLite, <https://www.sqlite.org/rescode.html>.
const SQLITE_PERM: i32 = 3;
const SQLITE_BUSY: i32 = 5;
const SQLITE_LOCKED: i32 = 6;
const SQLITE_READONLY: i32 = 8;
const SQLITE_IOERR: i32 = 10;
const SQLITE_CORRUPT: i32 = 11;
const SQLITE_FULL: i32 = 13;
const SQLITE_CANTOPEN: i32 = 14;
const SQLITE_TOOBIG: i32 = 18;
const SQLITE_NOTADB: i32 = 26;
const SQLITE_IOERR_FSYNC: i32 = SQLITE_IOERR | (4 << 8);
const SQLITE_IOERR_DIR_FSYNC: i32 = SQLITE_IOERR | (5 << 8);

/// The extended result code, when the error is SQLite's.
pub(super) fn code(error: &sqlx::Error) -> Option<i32> {
    match error {
        sqlx::Error::Database(database) => database.code()?.parse().ok(),
        _ => None,
    }
}

pub(super) fn is_cannot_open(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code & 0xff == SQLITE_CANTOPEN)
}

pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| matches!(code & 0xff, SQLITE_BUSY | SQLITE_LOCKED))
}

/// A reader that met a journal it may not roll back.
pub(super) fn needs_recovery(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code & 0xff == SQLITE_READONLY)
}

pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| matches!(code & 0xff, SQLITE_CORRUPT | SQLITE_NOTADB))
}

/// Whether a failed commit leaves it unknown what reached the disk.
///
/// After a failed fsync the kernel may have dropped the dirty pages and report success next time, so trying again
/// would claim what is not true.
pub(super) fn is_lost_sync(error: &sqlx::Error, durable: bool) -> bool {
    match code(error) {
        Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC) => true,
        Some(code) => durable && code & 0xff == SQLITE_IOERR,
        None => false,
    }
}

pub(super) fn store_error(error: sqlx::Error) -> StoreError {
    let Some(code) = code(&error) else {
        return match error {
            sqlx::Error::Io(_) => StoreError::Io(Arc::new(error)),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreError::Corrupt(Arc::new(error)),
            other => StoreError::Database(Arc::new(other)),
        };
    };
    match code & 0xff {
        SQLITE_BUSY | SQLITE_LOCKED => StoreError::Busy,
        SQLITE_FULL => StoreError::Full,
        SQLITE_TOOBIG => StoreError::TooLarge,
        SQLITE_READONLY => {
            StoreError::ReadOnly { reason: "the database file is write-protected or has been moved".into() }
        }
        SQLITE_IOERR | SQLITE_CANTOPEN | SQLITE_PERM => StoreError::Io(Arc::new(error)),
        SQLITE_CORRUPT | SQLITE_NOTADB => StoreError::Corrupt(Arc::new(error)),
        _ => StoreError::Database(Arc::new(error)),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("column `{0}` holds a value that is out of range")]
struct BadColumn(&'static str);

fn corrupt(column: &'static str) -> StoreError {
    StoreError::Corrupt(Arc::new(BadColumn(column)))
}

pub(super) fn to_column(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::TooLarge)
}

pub(super) fn to_number(column: i64, name: &'static str) -> Result<u64, StoreError> {
    u64::try_from(column).map_err(|_| corrupt(name))
}

pub(super) fn event_kind(kind: EventKind) -> i64 {
    match kind {
        EventKind::Update => 0,
        EventKind::UserPrompt => 1,
        EventKind::ClientEvent => 2,
    }
}

pub(super) fn turn_state(state: TurnState) -> i64 {
    match state {
        TurnState::Running => RUNNING,
        TurnState::Completed => 1,
        TurnState::Cancelled => 2,
        TurnState::Failed => 3,
        TurnState::Interrupted => INTERRUPTED,
    }
}

pub(super) fn ruling(ruling: Ruling) -> i64 {
    match ruling {
        Ruling::Allow => 0,
        Ruling::Reject => 1,
    }
}

/// Reads `id, agent, workspace, tool, rule, ruling, session, created_at_ms`.
pub(super) fn read_approval(row: &SqliteRow) -> Result<ApprovalRecord, StoreError> {
    let workspace: Vec<u8> = row.try_get(2).map_err(store_error)?;
    let session: String = row.try_get(6).map_err(store_error)?;
    Ok(ApprovalRecord {
        id: to_number(row.try_get(0).map_err(store_error)?, "id")?,
        approval: NewApproval {
            agent: row.try_get(1).map_err(store_error)?,
            workspace: read_path(&workspace)?,
            tool: row.try_get(3).map_err(store_error)?,
            rule: row.try_get(4).map_err(store_error)?,
            ruling: match row.try_get(5).map_err(store_error)? {
                0_i64 => Ruling::Allow,
                // Nothing runs by a row that says something else, and the other rows still count.
                _ => Ruling::Reject,
            },
            session: session.into(),
            created_at_ms: row.try_get(7).map_err(store_error)?,
        },
    })
}

fn read_turn_state(column: i64) -> Result<TurnState, StoreError> {
    match column {
        RUNNING => Ok(TurnState::Running),
        1 => Ok(TurnState::Completed),
        2 => Ok(TurnState::Cancelled),
        3 => Ok(TurnState::Failed),
        INTERRUPTED => Ok(TurnState::Interrupted),
        _ => Err(corrupt("state")),
    }
}

/// The bytes of a path. Where paths are not bytes, only those that are Unicode can be stored.
pub(super) fn path_bytes(path: &Path) -> Result<&[u8], StoreError> {
    #[cfg(unix)]
    let bytes = {
        use std::os::unix::ffi::OsStrExt;
        path.as_os_str().as_bytes()
    };
    #[cfg(not(unix))]
    let bytes = path.to_str().ok_or(StoreError::Invalid { what: "path" })?.as_bytes();
    // A zero byte separates the entries of a list of paths, and no file system has one in a name.
    if bytes.contains(&0) {
        return Err(StoreError::Invalid { what: "path" });
    }
    Ok(bytes)
}

fn read_path(bytes: &[u8]) -> Result<PathBuf, StoreError> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        Ok(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
    }
    #[cfg(not(unix))]
    {
        let text = std::str::from_utf8(bytes).map_err(|_| corrupt("path"))?;
        Ok(PathBuf::from(text))
    }
}

/// A list of paths, each followed by a zero byte.
pub(super) fn paths_column(paths: &[PathBuf]) -> Result<Vec<u8>, StoreError> {
    let mut column = Vec::new();
    for path in paths {
        column.extend_from_slice(path_bytes(path)?);
        column.push(0);
    }
    Ok(column)
}

fn read_paths(column: &[u8]) -> Result<Vec<PathBuf>, StoreError> {
    column
        .split_inclusive(|byte| *byte == 0)
        .map(|entry| {
            let path = entry.strip_suffix(&[0]).ok_or_else(|| corrupt("additional_directories"))?;
            read_path(path)
        })
        .collect()
}

fn bytes_at(row: &SqliteRow, index: usize) -> Result<Bytes, StoreError> {
    let bytes: Vec<u8> = row.try_get(index).map_err(store_error)?;
    Ok(Bytes::from(bytes))
}

/// Reads `seq, kind, turn, payload`.
pub(super) fn read_event(row: &SqliteRow) -> Result<EventRecord, StoreError> {
    let kind: i64 = row.try_get(1).map_err(store_error)?;
    let turn: Option<i64> = row.try_get(2).map_err(store_error)?;
    Ok(EventRecord {
        seq: to_number(row.try_get(0).map_err(store_error)?, "seq")?,
        kind: match kind {
            0 => EventKind::Update,
            1 => EventKind::UserPrompt,
            2 => EventKind::ClientEvent,
            _ => return Err(corrupt("kind")),
        },
        turn: turn.map(|turn| to_number(turn, "turn")).transpose()?,
        payload: bytes_at(row, 3)?,
    })
}

/// Whether a payload is what an event has to be, a JSON object on one line. It goes to clients as it is, so damage that is no
/// JSON, or more than one line, would break everything that follows it.
pub(super) fn is_event(payload: &[u8]) -> bool {
    payload.starts_with(b"{")
        && !payload.contains(&b'\n')
        && std::str::from_utf8(payload).is_ok_and(|text| serde_json::from_str::<&RawValue>(text).is_ok())
}

/// Reads `position, turn, payload`.
pub(super) fn read_message(row: &SqliteRow) -> Result<MessageRecord, StoreError> {
    Ok(MessageRecord {
        position: to_number(row.try_get(0).map_err(store_error)?, "position")?,
        turn: to_number(row.try_get(1).map_err(store_error)?, "turn")?,
        payload: bytes_at(row, 2)?,
    })
}

/// Reads `turn, state, prompt, stop_reason, started_at_ms, ended_at_ms, last_seq` from the column `first` on.
pub(super) fn read_turn(row: &SqliteRow, first: usize) -> Result<TurnRecord, StoreError> {
    let last_seq: Option<i64> = row.try_get(first + 6).map_err(store_error)?;
    Ok(TurnRecord {
        turn: to_number(row.try_get(first).map_err(store_error)?, "turn")?,
        state: read_turn_state(row.try_get(first + 1).map_err(store_error)?)?,
        prompt: bytes_at(row, first + 2)?,
        stop_reason: row.try_get(first + 3).map_err(store_error)?,
        started_at_ms: row.try_get(first + 4).map_err(store_error)?,
        ended_at_ms: row.try_get(first + 5).map_err(store_error)?,
        last_seq: last_seq.map(|seq| to_number(seq, "last_seq")).transpose()?,
    })
}

/// A session, and the owner of its last turn when there is one.
pub(super) struct StoredSession {
    pub(super) record: SessionRecord,
    pub(super) turn_owner: Option<String>,
}

/// Reads the columns that the statements in `reader.rs` select for a session.
pub(super) fn read_session(row: &SqliteRow) -> Result<StoredSession, StoreError> {
    let id: String = row.try_get(0).map_err(store_error)?;
    let workspace: Vec<u8> = row.try_get(1).map_err(store_error)?;
    let directories: Vec<u8> = row.try_get(6).map_err(store_error)?;
    let config: Option<Vec<u8>> = row.try_get(7).map_err(store_error)?;
    let last_seq: Option<i64> = row.try_get(8).map_err(store_error)?;
    let turn_owner: Option<String> = row.try_get(9).map_err(store_error)?;
    let last_turn = match turn_owner {
        Some(_) => Some(read_turn(row, 10)?),
        None => None,
    };
    Ok(StoredSession {
        record: SessionRecord {
            id: id.into(),
            workspace: read_path(&workspace)?,
            agent: row.try_get(2).map_err(store_error)?,
            title: row.try_get(3).map_err(store_error)?,
            created_at_ms: row.try_get(4).map_err(store_error)?,
            last_activity_ms: row.try_get(5).map_err(store_error)?,
            additional_directories: read_paths(&directories)?,
            last_seq: to_number(last_seq.unwrap_or(0), "seq")?,
            last_turn,
            config: config.map(Bytes::from),
        },
        turn_owner,
    })
}
