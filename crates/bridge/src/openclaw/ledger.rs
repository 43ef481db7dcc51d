//! What clients were told, kept to be told again: one file for each session, a line for each update, only ever added to.
//! A session's story counts as complete while nothing of it is known to be missing; an incomplete one is told by the gateway instead.
//! It refuses to keep what holds only for a moment, such as titles in use, tokens and choices.

mod import;

use std::{
    collections::HashMap,
    fs, io,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::identity::{make_private_dir, private};

pub use import::{ImportError, Imported, import};

/// Commands that wait for the disk, at most; whoever has more waits as well.
const QUEUE: usize = 1024;

/// Bytes of one session that are written together.
const BUFFER: usize = 32 * 1024;

/// What the ledger may take up.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Sessions; those that were used longest ago go first.
    pub sessions: usize,
    /// Updates of one session; the older half of more is cut off, and the story is incomplete.
    pub events: usize,
    /// Bytes of all sessions together.
    pub bytes: u64,
}

impl Default for Caps {
    fn default() -> Self {
        Self { sessions: 200, events: 5000, bytes: 16 * 1024 * 1024 }
    }
}

/// What is to be kept or looked up.
#[derive(Debug)]
pub(super) enum Command {
    /// A session is open under this key.
    Open {
        id: String,
        key: String,
        cwd: String,
        at: u64,
    },
    /// An update, or what the user said.
    Append(String, Bytes),
    Title(String, String),
    /// Something is missing from the story.
    Incomplete(String),
    /// A turn is told to its end, at this time.
    Flush(String, u64),
    Close(String),
    /// The story is told anew from its beginning.
    Restart(String),
    Find {
        op: u64,
        id: String,
    },
    Places {
        op: u64,
    },
}

/// What was looked up.
#[derive(Debug)]
pub(super) enum Found {
    Record { op: u64, record: Option<Record> },
    Places { op: u64, places: Vec<Place> },
}

/// A session's story.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: String,
    pub(super) cwd: String,
    pub(super) complete: bool,
    pub(super) updates: Vec<Bytes>,
    /// When the last turn ended that it tells of, in milliseconds.
    pub(super) told_at: u64,
}

/// Where a session works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) key: String,
    pub(super) cwd: String,
    pub(super) title: Option<String>,
}

/// The first line of a file; a later one of this kind counts more.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    v: u32,
    id: String,
    key: String,
    cwd: String,
    created_at: u64,
}

/// Any line.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line<'a> {
    v: Option<u32>,
    #[serde(borrow)]
    u: Option<&'a RawValue>,
    title: Option<String>,
    incomplete: bool,
    end: Option<u64>,
}

/// A session's file that is being written.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    head: Head,
    title: Option<String>,
    file: Option<fs::File>,
    buffer: Vec<u8>,
    events: usize,
    bytes: u64,
    /// When it was used last, in milliseconds.
    used: u64,
}

/// The files. All its work blocks.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    caps: Caps,
    /// By session; read when it is needed first.
    logs: Option<HashMap<String, Log>>,
    /// The latest time that was told.
    clock: u64,
    /// The disk does not take anything; told once.
    failed: bool,
}

/// Runs the store on a thread of its own, which ends with the sender.
///
/// # Errors
/// The operating system refuses a thread.
pub(super) fn start(
    dir: PathBuf,
    caps: Caps,
) -> io::Result<(mpsc::Sender<Command>, mpsc::Receiver<Found>, std::thread::JoinHandle<()>)> {
    let (sender, mut commands) = mpsc::channel(QUEUE);
    let (found, results) = mpsc::channel(QUEUE);
    let thread = std::thread::Builder::new().name("acp-ledger".to_owned()).spawn(move || {
        let mut store = Store::new(dir, caps);
        while let Some(command) = commands.blocking_recv() {
            if let Some(result) = store.run(command)
                && found.blocking_send(result).is_err()
            {
                break;
            }
        }
        store.flush_all();
    })?;
    Ok((sender, results, thread))
}

impl Store {
    pub(super) fn new(dir: PathBuf, caps: Caps) -> Self {
        Self { dir, caps, logs: None, clock: 0, failed: false }
    }

    /// Does what is wanted. A disk that does not take anything is told of once; the bridge goes on without a ledger.
    pub(super) fn run(&mut self, command: Command) -> Option<Found> {
        let done = match command {
            Command::Open { id, key, cwd, at } => self.open(&id, &key, &cwd, at),
            Command::Append(id, update) => self.append(&id, &update),
            Command::Title(id, title) => {
                let line = self.line(&id, &serde_json::json!({ "title": title }));
                if let Some(log) = self.logs().get_mut(&id) {
                    log.title = Some(title);
                }
                line
            }
            Command::Incomplete(id) => self.line(&id, &serde_json::json!({ "incomplete": true })),
            Command::Flush(id, at) => {
                self.clock = self.clock.max(at);
                let now = self.clock;
                if let Some(log) = self.logs().get_mut(&id) {
                    log.used = now;
                }
                self.line(&id, &serde_json::json!({ "end": at })).and_then(|()| self.flush(&id))
            }
            Command::Close(id) => self.close(&id),
            Command::Restart(id) => self.restart(&id),
            Command::Find { op, id } => return Some(Found::Record { op, record: self.find(&id) }),
            Command::Places { op } => return Some(Found::Places { op, places: self.places() }),
        };
        if let Err(error) = done
            && !std::mem::replace(&mut self.failed, true)
        {
            tracing::warn!(%error, "the ledger cannot be written; sessions will be told by the gateway");
        }
        None
    }

    fn logs(&mut self) -> &mut HashMap<String, Log> {
        let dir = &self.dir;
        self.logs.get_or_insert_with(|| scan(dir))
    }

    fn open(&mut self, id: &str, key: &str, cwd: &str, at: u64) -> io::Result<()> {
        let path = self.dir.join(file_name(id));
        let head = Head { v: 1, id: id.to_owned(), key: key.to_owned(), cwd: cwd.to_owned(), created_at: at };
        self.clock = self.clock.max(at);
        let now = self.clock;
        let logs = self.logs();
        let is_new = match logs.get_mut(id) {
            Some(log) => {
                let same = log.head.key == key && log.head.cwd == cwd;
                log.used = now;
                if same {
                    return Ok(());
                }
                log.head = head;
                false
            }
            None => {
                let log =
                    Log { path, head, title: None, file: None, buffer: Vec::new(), events: 0, bytes: 0, used: now };
                logs.insert(id.to_owned(), log);
                true
            }
        };
        if is_new {
            self.make_room(id);
        }
        let line = self.logs().get(id).and_then(|log| serde_json::to_string(&log.head).ok()).unwrap_or_default();
        self.write(id, line.as_bytes())?;
        self.flush(id)
    }

    fn append(&mut self, id: &str, update: &[u8]) -> io::Result<()> {
        let mut line = Vec::with_capacity(update.len() + 8);
        line.extend_from_slice(b"{\"u\":");
        line.extend_from_slice(update);
        line.push(b'}');
        self.write(id, &line)?;
        let caps = self.caps;
        let Some(log) = self.logs().get_mut(id) else { return Ok(()) };
        log.events += 1;
        if log.events > caps.events {
            self.cut(id, caps.events / 2)?;
        }
        let total: u64 = self.logs().values().map(|log| log.bytes).sum();
        if total > caps.bytes {
            self.make_room(id);
        }
        Ok(())
    }

    fn line(&mut self, id: &str, line: &serde_json::Value) -> io::Result<()> {
        self.write(id, line.to_string().as_bytes())
    }

    fn write(&mut self, id: &str, line: &[u8]) -> io::Result<()> {
        let Some(log) = self.logs().get_mut(id) else { return Ok(()) };
        log.buffer.extend_from_slice(line);
        log.buffer.push(b'\n');
        log.bytes += line.len() as u64 + 1;
        if log.buffer.len() >= BUFFER { log.flush() } else { Ok(()) }
    }

    fn flush(&mut self, id: &str) -> io::Result<()> {
        self.logs().get_mut(id).map_or(Ok(()), Log::flush)
    }

    pub(super) fn flush_all(&mut self) {
        for log in self.logs.iter_mut().flat_map(HashMap::values_mut) {
            if let Err(error) = log.flush() {
                tracing::debug!(%error, "the end of a session's story is not kept");
            }
        }
    }

    fn close(&mut self, id: &str) -> io::Result<()> {
        let Some(log) = self.logs().get_mut(id) else { return Ok(()) };
        log.flush()?;
        log.file = None;
        Ok(())
    }

    fn restart(&mut self, id: &str) -> io::Result<()> {
        let Some(log) = self.logs().get_mut(id) else { return Ok(()) };
        let mut text = serde_json::to_vec(&log.head).unwrap_or_default();
        text.push(b'\n');
        log.replace(&text)?;
        log.events = 0;
        Ok(())
    }

    /// Cuts off all but the last updates.
    fn cut(&mut self, id: &str, keep: usize) -> io::Result<()> {
        let Some(log) = self.logs().get_mut(id) else { return Ok(()) };
        log.flush()?;
        let text = fs::read_to_string(&log.path)?;
        let updates: Vec<&str> = text.lines().filter(|line| line.starts_with("{\"u\":")).collect();
        let mut out = serde_json::to_vec(&log.head).unwrap_or_default();
        out.extend_from_slice(b"\n{\"incomplete\":true}\n");
        let start = updates.len().saturating_sub(keep);
        for line in updates.get(start..).unwrap_or_default() {
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
        }
        log.replace(&out)?;
        log.events = updates.len() - start;
        Ok(())
    }

    /// Gives up sessions until the rest is within the limits; those without a story first, then those used longest ago.
    fn make_room(&mut self, but: &str) {
        let caps = self.caps;
        loop {
            let logs = self.logs();
            let total: u64 = logs.values().map(|log| log.bytes).sum();
            if logs.len() <= caps.sessions && total <= caps.bytes {
                return;
            }
            let oldest = logs
                .values()
                .filter(|log| log.head.id != but && (log.file.is_none() || logs.len() > caps.sessions))
                .min_by_key(|log| (log.events > 0 || log.bytes > 4096, log.used))
                .map(|log| log.head.id.clone());
            match oldest {
                Some(id) => {
                    if let Some(log) = logs.remove(&id)
                        && let Err(error) = fs::remove_file(&log.path)
                    {
                        tracing::debug!(%error, "an old session's story could not be removed");
                    }
                }
                None => {
                    let keep = logs.get(but).map_or(0, |log| log.events / 2);
                    if keep == 0 || self.cut(but, keep).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// The story of the session with this id, or of the gateway's session with this key.
    pub(super) fn find(&mut self, id: &str) -> Option<Record> {
        self.flush_all();
        let logs = self.logs();
        let exact = logs.get(id).and_then(read);
        if exact.as_ref().is_some_and(|record| record.complete) {
            return exact;
        }
        let key = exact.as_ref().map_or(id, |record| record.key.as_str()).to_owned();
        let mut others: Vec<&Log> = logs.values().filter(|log| log.head.key == key && log.head.id != id).collect();
        others.sort_by_key(|log| std::cmp::Reverse(log.used));
        others.into_iter().filter_map(read).find(|record| record.complete && !record.updates.is_empty()).or(exact)
    }

    fn places(&mut self) -> Vec<Place> {
        let mut logs: Vec<&Log> = self.logs().values().collect();
        logs.sort_by_key(|log| std::cmp::Reverse(log.used));
        logs.iter()
            .map(|log| Place { key: log.head.key.clone(), cwd: log.head.cwd.clone(), title: log.title.clone() })
            .collect()
    }
}

impl Log {
    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                if let Some(dir) = self.path.parent() {
                    make_private_dir(dir)?;
                }
                self.file.insert(private().append(true).create(true).open(&self.path)?)
            }
        };
        // Whole lines in one piece, so that two bridges with one session do not mix theirs.
        let written = file.write_all(&self.buffer);
        self.buffer.clear();
        written
    }

    /// Puts another text in the place of the file's.
    fn replace(&mut self, text: &[u8]) -> io::Result<()> {
        self.buffer.clear();
        self.file = None;
        if let Some(dir) = self.path.parent() {
            make_private_dir(dir)?;
        }
        let beside = self.path.with_extension(format!("new{}", std::process::id()));
        let mut file = private().create(true).truncate(true).open(&beside)?;
        file.write_all(text)?;
        drop(file);
        fs::rename(&beside, &self.path)?;
        self.bytes = text.len() as u64;
        Ok(())
    }
}

/// The file of a session. An id that is no plain word could name a path.
fn file_name(id: &str) -> String {
    let hash: String =
        digest(&SHA256, id.as_bytes()).as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{hash}.jsonl")
}

/// Reads which sessions there are. What cannot be read is left as it is.
fn scan(dir: &Path) -> HashMap<String, Log> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "jsonl"));
    files
        .filter_map(|entry| {
            let path = entry.path();
            let meta = entry.metadata().ok()?;
            let mut text = String::new();
            fs::File::open(&path).ok()?.take(MAX_SCANNED).read_to_string(&mut text).ok()?;
            let mut lines = text.lines();
            let mut head: Head = serde_json::from_str(lines.next()?).ok()?;
            let (mut events, mut title) = (0, None);
            for line in lines {
                if line.starts_with("{\"u\":") {
                    events += 1;
                } else if let Ok(later) = serde_json::from_str::<Head>(line) {
                    head = later;
                } else if line.starts_with("{\"title\":") {
                    title = serde_json::from_str::<Line<'_>>(line).ok().and_then(|line| line.title).or(title);
                }
            }
            // A line that was being written when the machine stopped must not swallow the next one.
            let buffer = if text.ends_with('\n') { Vec::new() } else { b"\n{\"incomplete\":true}\n".to_vec() };
            let used = meta.modified().ok()?.duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64);
            let log = Log { path, title, file: None, buffer, events, bytes: meta.len(), used, head };
            Some((log.head.id.clone(), log))
        })
        .collect()
}

/// Bytes of a file that are read; no file of ours is longer.
const MAX_SCANNED: u64 = 256 * 1024 * 1024;

/// Reads a story.
fn read(log: &Log) -> Option<Record> {
    let bytes = Bytes::from(fs::read(&log.path).ok()?);
    let mut record = Record {
        key: log.head.key.clone(),
        cwd: log.head.cwd.clone(),
        complete: true,
        updates: Vec::new(),
        told_at: 0,
    };
    let mut ended = true;
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else {
            record.complete = false;
            continue;
        };
        if let Some(update) = line.u {
            record.updates.push(bytes.slice_ref(update.get().as_bytes()));
            ended = false;
        } else if let Some(at) = line.end {
            ended = true;
            record.told_at = at;
        } else if line.incomplete {
            record.complete = false;
        } else if line.v.is_none() && line.title.is_none() {
            tracing::debug!("a line of the ledger says nothing that this version knows");
        }
    }
    record.complete &= ended;
    Some(record)
}

#[cfg(test)]
mod tests;
