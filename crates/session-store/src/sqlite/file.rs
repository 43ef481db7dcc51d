//! The database file as a file: its lock while it is made or moved aside, its header, its companions.
//!
//! Nothing here deletes data: a file that cannot be used gets another name, with its journals.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::owners::{create_private_directory, directory, open_lock_file};
use super::schema::APPLICATION_ID;

/// What SQLite keeps beside a database. The log comes first: see [`move_aside`].
const COMPANIONS: [&str; 3] = ["-wal", "-journal", "-shm"];

/// How long to wait between two attempts to lock the creation of the file.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// The names tried for a file that is moved aside; beyond it opening fails.
/// A thousand kept files mean that something damages the store again and again, and somebody should look.
const MAX_ASIDE: u32 = 1000;

/// The device and the number of a file.
pub(super) type Identity = (u64, u64);

/// Why a file is moved aside.
#[derive(Debug, Clone, Copy)]
pub(super) enum Aside {
    Foreign,
    Damaged,
}

impl Aside {
    pub(super) fn word(self) -> &'static str {
        match self {
            Aside::Foreign => "foreign",
            Aside::Damaged => "damaged",
        }
    }
}

/// Locks the making and moving of the file against other processes; dropping the file unlocks.
///
/// `None` after `timeout`, or an error.
pub(super) fn lock_creation(store: &Path, timeout: Duration) -> io::Result<Option<File>> {
    let owners = directory(store);
    create_private_directory(&owners)?;
    // An instance id has no dot, so this name can never be that of an owner.
    let file = open_lock_file(&owners.join(".creation.lock"))?;
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if waited < timeout => {
                thread::sleep(LOCK_PAUSE);
                waited += LOCK_PAUSE;
            }
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Whether the header on the disk carries our mark.
///
/// Called only for a file that SQLite could not tell about and that this process has not opened: closing a second
/// handle of an open database would drop the locks of the first.
pub(super) fn has_our_mark(store: &Path) -> io::Result<bool> {
    let mut header = [0_u8; 100];
    let mut file = File::open(store)?;
    match file.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    }
    // The application id is a big-endian number at offset 68: <https://www.sqlite.org/fileformat2.html#the_database_header>.
    Ok(header.starts_with(b"SQLite format 3\0") && header.get(68..72) == Some(APPLICATION_ID.to_be_bytes().as_slice()))
}

/// Makes the empty file, readable by the user alone, in which a fresh database is built before it gets its name.
pub(super) fn start_fresh(store: &Path) -> io::Result<PathBuf> {
    let fresh = with_suffix(store, ".new");
    // What an interrupted start left behind was never in use.
    for path in companions(&fresh).into_iter().chain([fresh.clone()]) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(&fresh)?;
    Ok(fresh)
}

/// Gives the fresh file its name. Fails rather than replace a file that holds anything.
pub(super) fn finish_fresh(fresh: &Path, store: &Path) -> io::Result<()> {
    if size(store)?.is_some_and(|bytes| bytes > 0) {
        return Err(ErrorKind::AlreadyExists.into());
    }
    fs::rename(fresh, store)?;
    sync_directory(store)
}

/// Renames a file and its companions to the first free `<name>.<word>-<n>`.
///
/// The journals move first. The other order, interrupted, would leave a journal beside a fresh database, and SQLite
/// would play it back into that.
pub(super) fn move_aside(store: &Path, why: Aside) -> io::Result<Option<PathBuf>> {
    let present: Vec<&str> = COMPANIONS.into_iter().filter(|suffix| exists(&with_suffix(store, suffix))).collect();
    if present.is_empty() && !exists(store) {
        return Ok(None);
    }
    for number in 1..=MAX_ASIDE {
        let target = with_suffix(store, &format!(".{}-{number}", why.word()));
        // A companion without its database is what an interrupted move left: the same number reunites them.
        if exists(&target) || present.iter().any(|suffix| exists(&with_suffix(&target, suffix))) {
            continue;
        }
        for suffix in present {
            fs::rename(with_suffix(store, suffix), with_suffix(&target, suffix))?;
        }
        if exists(store) {
            fs::rename(store, &target)?;
        }
        sync_directory(store)?;
        return Ok(Some(target));
    }
    Err(io::Error::new(ErrorKind::AlreadyExists, "too many files were moved aside already"))
}

/// The size of a file, `None` when there is none.
pub(super) fn size(path: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Which file a path names, whatever its name was before; `None` when there is none.
#[cfg(unix)]
pub(super) fn identity(path: &Path) -> io::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt;
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Here the system lets nobody remove or replace a file that is open.
#[cfg(not(unix))]
pub(super) fn identity(_path: &Path) -> io::Result<Option<Identity>> {
    Ok(None)
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn companions(store: &Path) -> [PathBuf; 3] {
    COMPANIONS.map(|suffix| with_suffix(store, suffix))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(unix)]
fn sync_directory(store: &Path) -> io::Result<()> {
    match store.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        Some(_) | None => Ok(()),
    }
}

/// Directories cannot be synced here; the file system journals renames itself.
#[cfg(not(unix))]
fn sync_directory(_store: &Path) -> io::Result<()> {
    Ok(())
}
