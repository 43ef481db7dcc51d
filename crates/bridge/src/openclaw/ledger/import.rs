//! Brings the ledger of OpenClaw's own bridge over, so that its sessions can be loaded with their story.
//! The source is only read. Its newer kind is an SQLite database, which this program does not read: it links no database.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use thiserror::Error;

use super::{Caps, Command, Store};

/// The longest file that is read: the original's limit is 16 MiB.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// Kinds of updates that tell the story; the others held for a moment only.
const STORY: &[&str] =
    &["user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"];

/// Why nothing was brought over.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("`{path}`: {error}", path = .0.display(), error = .1)]
    File(PathBuf, io::Error),
    /// It is a database.
    #[error("`{}` is an SQLite database, which this program does not read; the gateway's transcripts stand in for it", .0.display())]
    Sqlite(PathBuf),
    /// It is something else.
    #[error("`{}` is no ledger of version 1", .0.display())]
    Format(PathBuf),
}

/// What was brought over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Sessions that are in the ledger now.
    pub sessions: usize,
    /// Sessions that were there already, and were left as they are.
    pub kept: usize,
    /// Updates.
    pub events: usize,
}

#[derive(Deserialize)]
struct Ledger<'a> {
    version: u32,
    #[serde(borrow)]
    sessions: BTreeMap<String, &'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Session<'a> {
    session_key: String,
    cwd: String,
    #[serde(default)]
    complete: bool,
    #[serde(default)]
    created_at: f64,
    #[serde(default)]
    updated_at: f64,
    #[serde(borrow, default)]
    events: Vec<Event<'a>>,
}

#[derive(Deserialize)]
struct Event<'a> {
    seq: u64,
    #[serde(borrow)]
    update: &'a RawValue,
}

/// Reads the ledger in `source` into the one in `dir`. Sessions that are there already stay as they are.
///
/// # Errors
/// See [`ImportError`].
pub fn import(source: &Path, dir: &Path, caps: Caps) -> Result<Imported, ImportError> {
    let file = |error| ImportError::File(source.to_owned(), error);
    if fs::metadata(source).map_err(file)?.len() > MAX_FILE {
        return Err(file(io::Error::new(io::ErrorKind::InvalidData, "the file is too long")));
    }
    let bytes = fs::read(source).map_err(file)?;
    if bytes.starts_with(b"SQLite format 3\0") {
        return Err(ImportError::Sqlite(source.to_owned()));
    }
    let format = || ImportError::Format(source.to_owned());
    let ledger: Ledger<'_> = serde_json::from_slice(&bytes).map_err(|_| format())?;
    if ledger.version != 1 {
        return Err(format());
    }
    let mut store = Store::new(dir.to_owned(), caps);
    let mut imported = Imported::default();
    for (id, raw) in ledger.sessions {
        let Ok(mut session) = serde_json::from_str::<Session<'_>>(raw.get()) else { continue };
        if store.find(&id).is_some() {
            imported.kept += 1;
            continue;
        }
        session.events.sort_by_key(|event| event.seq);
        let at = if session.created_at.is_finite() && session.created_at > 0.0 { session.created_at as u64 } else { 0 };
        store.run(Command::Open { id: id.clone(), key: session.session_key, cwd: session.cwd, at });
        if !session.complete {
            store.run(Command::Incomplete(id.clone()));
        }
        for event in session.events.iter().filter(|event| tells_the_story(event.update)) {
            store.run(Command::Append(id.clone(), Bytes::copy_from_slice(event.update.get().as_bytes())));
            imported.events += 1;
        }
        store.run(Command::Flush(id, session.updated_at.max(0.0) as u64));
        imported.sessions += 1;
    }
    store.flush_all();
    Ok(imported)
}

fn tells_the_story(update: &RawValue) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind {
        session_update: Value,
    }
    let kind = serde_json::from_str::<Kind>(update.get()).ok();
    kind.and_then(|kind| kind.session_update.as_str().map(|kind| STORY.contains(&kind))).unwrap_or_default()
}
