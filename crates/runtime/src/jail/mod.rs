//! Directory handles of a session's roots; the only way from a tool to the file system.
//! Every path is opened below a handle, so `..`, symbolic links and races cannot leave the root, and every opened
//! file is judged again by the path it really has. Pipes, sockets and devices are refused. Everything here blocks:
//! asynchronous callers go through `spawn_blocking`.

mod error;
mod pin;
mod place;
mod resolve;
mod write;

use std::{
    fs,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::SystemTime,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, FileType, Metadata, OpenOptions, OpenOptionsExt, PermissionsExt},
};
use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};
use zeroclaw_policy::{Forbidden, Root, RootKind, RootedPath, Roots, Ruleset};

pub use error::JailError;
pub use write::{Links, MAX_REPLACED, digest};

use crate::{
    jail::{error::io_error, resolve::resolved_path},
    sandbox::{Access, scratch::Scratch},
};

/// The opened roots of one session.
#[derive(Debug)]
pub struct Jail {
    // INVARIANT opened: one handle per root, in the order of the roots.
    roots: Roots,
    handles: Vec<Dir>,
    /// The temporary directory of the session's commands.
    scratch: Scratch,
    /// Whether it was said that commands run without a sandbox.
    told: AtomicBool,
}

impl Jail {
    /// Opens a handle on every root. The names of the roots are looked up here and never again.
    ///
    /// # Errors
    /// A root that is not an absolute canonical directory or cannot be opened.
    pub fn open(roots: Vec<Root>) -> Result<Self, JailError> {
        let mut handles = Vec::with_capacity(roots.len());
        for root in &roots {
            let handle = Dir::open_ambient_dir(root.path(), ambient_authority())
                .map_err(|error| io_error(root.path(), error))?;
            if resolved_path(&handle, &handle, root.path(), Path::new("."))? != root.path() {
                return Err(JailError::NotCanonical { path: root.path().to_owned() });
            }
            handles.push(handle);
        }
        // INVARIANT opened: the loop pushed one handle per root.
        Ok(Self { roots: Roots::new(roots), handles, scratch: Scratch::default(), told: AtomicBool::new(false) })
    }

    /// Removes files from one directory of the first root, and says which could not be removed. Neither the directory nor a
    /// file may be reached through a link: a link is removed itself. Names with a separator name nothing here.
    pub fn remove_from(&self, directory: &str, names: &[PathBuf]) -> Vec<JailError> {
        let Some((root, handle)) = self.roots.iter().zip(&self.handles).next() else { return Vec::new() };
        let fail = |path: &Path, error: Errno| io_error(&root.path().join(directory).join(path), error.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(handle, directory, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Vec::new(),
            Err(error) => return vec![fail(Path::new(""), error)],
        };
        let single = |name: &&PathBuf| name.file_name() == Some(name.as_os_str());
        let removed = names.iter().filter(single).map(|name| {
            let removed = rustix::fs::unlinkat(&opened, name, AtFlags::empty());
            removed.map_err(|error| (error, name))
        });
        let failed = removed.filter_map(Result::err).filter(|(error, _)| *error != Errno::NOENT);
        failed.map(|(error, name)| fail(name, error)).collect()
    }

    /// The roots, for finding out where a path lies and for the policy.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Handles on the roots, with what commands may do there.
    ///
    /// # Errors
    /// No handle is left to the process.
    pub(crate) fn grants(&self) -> io::Result<Vec<(OwnedFd, Access)>> {
        let handles = self.roots.iter().zip(&self.handles);
        handles.map(|(root, handle)| Ok((handle.as_fd().try_clone_to_owned()?, access(root)))).collect()
    }

    /// The names of the roots, with what commands may do there.
    pub(crate) fn granted(&self) -> Vec<(PathBuf, Access)> {
        self.roots.iter().map(|root| (root.path().to_owned(), access(root))).collect()
    }

    /// The temporary directory of this session's commands, below `base`; made when it is first asked for.
    ///
    /// # Errors
    /// It cannot be made, or the session has ended.
    pub(crate) fn scratch(&self, base: &Path) -> io::Result<PathBuf> {
        self.scratch.path(base)
    }

    /// Removes what the session's commands left in their temporary directory. Blocking; no command runs after it.
    pub fn clean_up(&self) {
        self.scratch.remove();
    }

    /// Whether this is the first time that it is asked: what is true for the whole session is said once.
    pub(crate) fn tells_first(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// Gives access to files under the rules of the moment. There is no access without rules.
    #[must_use]
    pub fn files(&self, rules: &Ruleset) -> Files<'_> {
        // A forbidden path may itself be a link or lie behind one, so its real place is forbidden as well.
        let forbidden = rules.forbidden(&self.roots).with_real(|path| fs::canonicalize(path).ok());
        Files { jail: self, forbidden }
    }

    fn handle(&self, path: &RootedPath) -> Result<(&Root, &Dir), JailError> {
        let outside = || JailError::Outside { path: path.absolute().to_owned() };
        let root = self.roots.root(path.root()).ok_or_else(outside)?;
        let handle = self.handles.get(path.root()).ok_or_else(outside)?;
        // A path of other roots would be opened somewhere else than shown.
        if root.path().join(path.relative()) != path.absolute() {
            return Err(outside());
        }
        Ok((root, handle))
    }
}

/// What something in a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; only in listings, everywhere else links are followed within the root.
    Link,
    /// A pipe, socket or device: never opened.
    Special,
}

/// Facts about a file or directory.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// What it is.
    pub kind: EntryKind,
    /// Bytes of a file.
    pub size: u64,
    /// The last change, where the file system tells.
    pub modified: Option<SystemTime>,
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct DirectoryEntry {
    /// The name.
    pub name: std::ffi::OsString,
    /// What the name itself is.
    pub kind: EntryKind,
    /// Bytes of a file.
    pub size: u64,
}

/// Names in a directory.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The entries, sorted by name.
    pub entries: Vec<DirectoryEntry>,
    /// Whether the directory holds more than the limit.
    pub cut: bool,
}

/// A regular file opened for reading.
#[derive(Debug)]
pub struct OpenedFile {
    /// The file.
    pub file: fs::File,
    /// Its size when it was opened; the file may grow.
    pub size: u64,
    /// Where it really lies.
    pub real: PathBuf,
}

/// An opened directory.
#[derive(Debug)]
pub struct OpenedDirectory {
    /// The handle.
    pub dir: Dir,
    /// Where it really lies.
    pub real: PathBuf,
}

/// Access to the files of a jail under one set of rules.
///
/// Symbolic links are followed within a root and judged by where they lead. A hard link is not: it is one more name
/// of the same file, and nothing tells it from the first.
#[derive(Debug)]
pub struct Files<'a> {
    jail: &'a Jail,
    forbidden: Forbidden,
}

impl Files<'_> {
    /// Facts about what the path leads to.
    ///
    /// # Errors
    /// Nothing there, a way out of the root, a forbidden place.
    pub fn metadata(&self, path: &RootedPath) -> Result<Facts, JailError> {
        let (root, handle) = self.jail.handle(path)?;
        self.check_named(path.absolute())?;
        let relative = below(path);
        let metadata = handle.metadata(relative).map_err(|error| io_error(path.absolute(), error))?;
        // Nothing was opened, so the real place is asked for by name; reading checks it again on the opened file.
        let real = handle.canonicalize(relative).map_err(|error| io_error(path.absolute(), error))?;
        self.check_real(path.absolute(), &root.path().join(real))?;
        Ok(facts(&metadata))
    }

    /// Whether the path leads to anything.
    ///
    /// # Errors
    /// As [`Files::metadata`], except that nothing being there is an answer.
    pub fn exists(&self, path: &RootedPath) -> Result<bool, JailError> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(JailError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// As [`Files::metadata`]; a directory, pipe, socket or device.
    pub fn open_read(&self, path: &RootedPath) -> Result<OpenedFile, JailError> {
        let (root, handle) = self.jail.handle(path)?;
        self.check_named(path.absolute())?;
        let relative = below(path);
        let metadata = handle.metadata(relative).map_err(|error| io_error(path.absolute(), error))?;
        regular(path.absolute(), metadata.file_type())?;
        // The look before keeps devices closed; the flags and the look after hold when the name is swapped in between.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
        let file = handle.open_with(relative, &options).map_err(|error| io_error(path.absolute(), error))?;
        let metadata = file.metadata().map_err(|error| io_error(path.absolute(), error))?;
        regular(path.absolute(), metadata.file_type())?;
        let real = resolved_path(&file, handle, root.path(), relative)?;
        self.check_real(path.absolute(), &real)?;
        Ok(OpenedFile { file: file.into_std(), size: metadata.len(), real })
    }

    /// Reads a whole file of at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Files::open_read`]; a larger file.
    pub fn read_bounded(&self, path: &RootedPath, limit: u64) -> Result<Vec<u8>, JailError> {
        let opened = self.open_read(path)?;
        read_all(path.absolute(), opened.file, opened.size, limit)
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// As [`Files::metadata`]; not a directory.
    pub fn open_dir(&self, path: &RootedPath) -> Result<OpenedDirectory, JailError> {
        let (root, handle) = self.jail.handle(path)?;
        self.check_named(path.absolute())?;
        let relative = below(path);
        let dir = handle.open_dir(relative).map_err(|error| io_error(path.absolute(), error))?;
        let real = resolved_path(&dir, handle, root.path(), relative)?;
        self.check_real(path.absolute(), &real)?;
        Ok(OpenedDirectory { dir, real })
    }

    /// Lists at most `limit` names of a directory. Forbidden names are left out.
    ///
    /// # Errors
    /// As [`Files::open_dir`].
    pub fn read_dir(&self, path: &RootedPath, limit: usize) -> Result<Listing, JailError> {
        let opened = self.open_dir(path)?;
        self.list(&opened, limit)
    }

    /// Lists at most `limit` names of an opened directory. Forbidden names are left out.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn list(&self, opened: &OpenedDirectory, limit: usize) -> Result<Listing, JailError> {
        let fail = |error| io_error(&opened.real, error);
        let mut entries = Vec::new();
        let mut cut = false;
        for entry in opened.dir.entries().map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name();
            if self.is_forbidden(&opened.real.join(&name)) {
                continue;
            }
            if entries.len() == limit {
                cut = true;
                break;
            }
            let kind = kind(entry.file_type().map_err(fail)?);
            // A name that vanished in the meantime is still what the directory said.
            let size = if kind == EntryKind::File { entry.metadata().map_or(0, |metadata| metadata.len()) } else { 0 };
            entries.push(DirectoryEntry { name, kind, size });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(Listing { entries, cut })
    }

    /// Whether this real path is closed at every level: the rules forbid it, or it shows a process.
    #[must_use]
    pub fn is_forbidden(&self, real: &Path) -> bool {
        self.forbidden.holds(real) || is_process(real)
    }

    fn check_named(&self, path: &Path) -> Result<(), JailError> {
        self.check_real(path, path)
    }

    fn check_real(&self, path: &Path, real: &Path) -> Result<(), JailError> {
        if is_process(real) {
            return Err(JailError::Process { path: path.to_owned() });
        }
        if self.is_forbidden(real) {
            return Err(JailError::Forbidden { path: path.to_owned() });
        }
        Ok(())
    }

    /// Refuses a real path whose deepest root may not be written.
    fn check_writable(&self, path: &Path, real: &Path) -> Result<(), JailError> {
        let deepest = self
            .jail
            .roots
            .iter()
            .filter(|root| real.starts_with(root.path()))
            .max_by_key(|root| root.path().components().count());
        match deepest.map(Root::kind) {
            Some(RootKind::Session | RootKind::Additional | RootKind::Agent) => Ok(()),
            Some(RootKind::ReadOnly) => Err(JailError::ReadOnly { path: path.to_owned() }),
            None => Err(JailError::Outside { path: path.to_owned() }),
        }
    }
}

/// Whether a path shows a process: its memory, its environment, what it has open. A session as wide as `/` reaches this very
/// one, whose environment holds keys, and the system lets everybody look at himself.
fn is_process(path: &Path) -> bool {
    let Ok(below) = path.strip_prefix("/proc") else { return false };
    let Some(first) = below.iter().next().and_then(|name| name.to_str()) else { return false };
    matches!(first, "self" | "thread-self") || first.bytes().all(|byte| byte.is_ascii_digit())
}

/// What commands may do in a root.
fn access(root: &Root) -> Access {
    match root.kind() {
        RootKind::Session | RootKind::Additional | RootKind::Agent => Access::Write,
        RootKind::ReadOnly => Access::Read,
    }
}

/// The path below the root's handle; the root itself is `.`.
fn below(path: &RootedPath) -> &Path {
    if path.relative().as_os_str().is_empty() { Path::new(".") } else { path.relative() }
}

fn read_all(path: &Path, file: fs::File, size: u64, limit: u64) -> Result<Vec<u8>, JailError> {
    if size > limit {
        return Err(JailError::TooLarge { path: path.to_owned(), size, limit });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // One byte more than allowed shows that the file grew while it was read.
    let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| io_error(path, error))?;
    if read as u64 > limit {
        return Err(JailError::TooLarge { path: path.to_owned(), size: read as u64, limit });
    }
    Ok(bytes)
}

fn kind(file_type: FileType) -> EntryKind {
    if file_type.is_file() {
        EntryKind::File
    } else if file_type.is_dir() {
        EntryKind::Directory
    } else if file_type.is_symlink() {
        EntryKind::Link
    } else {
        EntryKind::Special
    }
}

fn facts(metadata: &Metadata) -> Facts {
    Facts {
        kind: kind(metadata.file_type()),
        size: metadata.len(),
        modified: metadata.modified().ok().map(cap_std::time::SystemTime::into_std),
    }
}

fn regular(path: &Path, file_type: FileType) -> Result<(), JailError> {
    match kind(file_type) {
        EntryKind::File => Ok(()),
        EntryKind::Directory => Err(JailError::Directory { path: path.to_owned() }),
        EntryKind::Link | EntryKind::Special => Err(JailError::NotRegular { path: path.to_owned() }),
    }
}

/// The permission bits that are carried over to a replaced file.
fn mode(metadata: &Metadata) -> u32 {
    metadata.permissions().mode() & 0o7777
}

/// Whether the error says that a name is taken.
fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}
