//! Replacing a file as a whole: a temporary file beside it, synchronised, then renamed over it.
//! A reader sees the old or the new content, never a mixture; a refused write leaves nothing behind.

use std::{
    ffi::{OsStr, OsString},
    io::Write,
    path::{Component, Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt};
use rustix::{
    fs::{OFlags, RenameFlags, renameat_with},
    io::Errno,
};
use sha2::{Digest, Sha256};
use zeroclaw_policy::{Replaces, RootedPath};

use crate::jail::{
    Files, JailError, below, error::io_error, is_taken, mode, read_all, regular, resolve::resolved_path,
};

/// The largest file that is replaced, because its old content is hashed in memory first.
pub const MAX_REPLACED: u64 = 64 * 1024 * 1024;

/// How often a name for the temporary file is tried; each process counts, so only leftovers of a dead one collide.
const TEMPORARY_TRIES: u32 = 16;

/// Whether symbolic links in the path are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Followed within the root.
    Follow,
    /// Any link in the path refuses the write.
    Refuse,
}

/// The directory a file is written in.
pub(super) struct Parent {
    pub(super) dir: Dir,
    pub(super) name: OsString,
    pub(super) real: PathBuf,
}

impl Files<'_> {
    /// Writes a whole file when it still is what the write was prepared against. Missing directories are made.
    /// The mode of a replaced file is kept; its other names (hard links) keep the old content.
    ///
    /// # Errors
    /// A way out of the root, forbidden and read-only places, a file that changed, anything but a regular file in the way.
    pub fn write_atomic(
        &self,
        path: &RootedPath,
        content: &[u8],
        replaces: Replaces,
        links: Links,
    ) -> Result<(), JailError> {
        let absolute = path.absolute();
        let parent = self.landing(path, replaces, links)?;
        let kept_mode = check_precondition(absolute, &parent, replaces)?;
        replace(absolute, &parent, content, kept_mode, replaces)
    }

    /// Opens the directory in which a write lands, and judges the place.
    pub(super) fn landing(&self, path: &RootedPath, replaces: Replaces, links: Links) -> Result<Parent, JailError> {
        let absolute = path.absolute();
        self.check_named(absolute)?;
        let mut parent = self.parent(path, path.relative(), replaces, links)?;
        // A link as the file itself means its target: replacing the link would break what others reach through it.
        if is_link(&parent)? {
            if links == Links::Refuse {
                return Err(JailError::Link { path: absolute.to_owned() });
            }
            let (_, handle) = self.jail.handle(path)?;
            let target = match handle.canonicalize(below(path)) {
                Ok(target) => target,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(JailError::Link { path: absolute.to_owned() });
                }
                Err(error) => return Err(io_error(absolute, error)),
            };
            parent = self.parent(path, &target, replaces, links)?;
            if is_link(&parent)? {
                return Err(JailError::Changed { path: absolute.to_owned() });
            }
        }
        let real = parent.real.join(&parent.name);
        self.check_real(absolute, &real)?;
        self.check_writable(absolute, &real)?;
        Ok(parent)
    }

    /// Opens the directory that holds `relative`, making what is missing.
    fn parent(
        &self,
        path: &RootedPath,
        relative: &Path,
        replaces: Replaces,
        links: Links,
    ) -> Result<Parent, JailError> {
        let (root, handle) = self.jail.handle(path)?;
        let absolute = path.absolute();
        let fail = |error| io_error(absolute, error);
        let name = relative.file_name().ok_or_else(|| JailError::Directory { path: absolute.to_owned() })?;
        let parts: Vec<&OsStr> = relative
            .parent()
            .unwrap_or(Path::new(""))
            .components()
            .filter_map(|part| match part {
                Component::Normal(part) => Some(part),
                Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
            })
            .collect();
        let mut there = parts.len();
        let (mut dir, mut real) = loop {
            let known: PathBuf = parts.iter().take(there).collect();
            if links == Links::Refuse && has_link(handle, &known).map_err(fail)? {
                return Err(JailError::Link { path: absolute.to_owned() });
            }
            let known = if there == 0 { PathBuf::from(".") } else { known };
            match handle.open_dir(&known) {
                Ok(dir) => {
                    let real = resolved_path(&dir, handle, root.path(), &known)?;
                    break (dir, real);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && there > 0 => there -= 1,
                Err(error) => return Err(fail(error)),
            }
        };
        // Everything is judged before the first directory is made.
        let mut planned = real.clone();
        planned.extend(parts.iter().skip(there));
        planned.push(name);
        self.check_real(absolute, &planned)?;
        self.check_writable(absolute, &planned)?;
        if there < parts.len() && replaces != Replaces::Nothing {
            return Err(JailError::Changed { path: absolute.to_owned() });
        }
        for part in parts.iter().skip(there) {
            match dir.create_dir(part) {
                Ok(()) => {}
                // Another writer may have made it; a dangling link with this name fails to open below.
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(fail(error)),
            }
            dir = dir.open_dir(part).map_err(fail)?;
            real.push(part);
        }
        if there < parts.len() {
            let made: PathBuf = parts.iter().collect();
            real = resolved_path(&dir, handle, root.path(), &made)?;
        }
        Ok(Parent { dir, name: name.to_owned(), real })
    }
}

fn has_link(handle: &Dir, relative: &Path) -> std::io::Result<bool> {
    let mut prefix = PathBuf::new();
    for part in relative.components() {
        prefix.push(part);
        match handle.symlink_metadata(&prefix) {
            Ok(metadata) if metadata.is_symlink() => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn is_link(parent: &Parent) -> Result<bool, JailError> {
    match parent.dir.symlink_metadata(&parent.name) {
        Ok(metadata) => Ok(metadata.is_symlink()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io_error(&parent.real.join(&parent.name), error)),
    }
}

/// Compares what is there with what the write expects; returns the mode to keep.
fn check_precondition(absolute: &Path, parent: &Parent, replaces: Replaces) -> Result<Option<u32>, JailError> {
    let changed = || JailError::Changed { path: absolute.to_owned() };
    let metadata = match parent.dir.symlink_metadata(&parent.name) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return match replaces {
                Replaces::Nothing => Ok(None),
                Replaces::Content(_) => Err(changed()),
            };
        }
        Err(error) => return Err(io_error(absolute, error)),
    };
    regular(absolute, metadata.file_type())?;
    let Replaces::Content(expected) = replaces else {
        return Err(changed());
    };
    let mut options = OpenOptions::new();
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = parent.dir.open_with(&parent.name, &options).map_err(|error| io_error(absolute, error))?;
    let metadata = file.metadata().map_err(|error| io_error(absolute, error))?;
    regular(absolute, metadata.file_type())?;
    if mode(&metadata) & 0o222 == 0 {
        return Err(JailError::Protected { path: absolute.to_owned() });
    }
    let old = read_all(absolute, file.into_std(), metadata.len(), MAX_REPLACED)?;
    if Sha256::digest(&old)[..] != expected {
        return Err(changed());
    }
    Ok(Some(mode(&metadata)))
}

fn replace(
    absolute: &Path,
    parent: &Parent,
    content: &[u8],
    kept_mode: Option<u32>,
    replaces: Replaces,
) -> Result<(), JailError> {
    let fail = |error| io_error(absolute, error);
    let (temporary, file) = temporary(parent, kept_mode).map_err(fail)?;
    let written = fill(file, content, kept_mode).map_err(fail).and_then(|()| match replaces {
        Replaces::Nothing => rename_new(absolute, parent, &temporary),
        Replaces::Content(_) => parent.dir.rename(&temporary, &parent.dir, &parent.name).map_err(fail),
    });
    if let Err(error) = written {
        // The write already failed; a leftover temporary file changes nothing about what is reported.
        let _ = parent.dir.remove_file(&temporary);
        return Err(error);
    }
    sync_directory(&parent.dir).map_err(fail)
}

/// Makes the temporary file. A new file gets the usual mode, a replacement stays private until it has the old one's.
fn temporary(parent: &Parent, kept_mode: Option<u32>) -> std::io::Result<(OsString, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(if kept_mode.is_some() { 0o600 } else { 0o666 });
    let mut tries = 0;
    loop {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".zeroclaw-{}-{count}.tmp", std::process::id()));
        match parent.dir.open_with(&name, &options) {
            Ok(file) => return Ok((name, file)),
            Err(error) if is_taken(&error) && tries < TEMPORARY_TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

fn fill(mut file: File, content: &[u8], kept_mode: Option<u32>) -> std::io::Result<()> {
    file.write_all(content)?;
    if let Some(mode) = kept_mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.sync_all()
}

/// Renames without replacing: a file that appeared in the meantime is kept.
fn rename_new(absolute: &Path, parent: &Parent, temporary: &OsStr) -> Result<(), JailError> {
    match renameat_with(&parent.dir, temporary, &parent.dir, parent.name.as_os_str(), RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(JailError::Changed { path: absolute.to_owned() }),
        // Some file systems cannot; a hard link does not replace either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            match parent.dir.hard_link(temporary, &parent.dir, &parent.name) {
                Ok(()) => parent.dir.remove_file(temporary).map_err(|error| io_error(absolute, error)),
                Err(error) if is_taken(&error) => Err(JailError::Changed { path: absolute.to_owned() }),
                Err(error) => Err(io_error(absolute, error)),
            }
        }
        Err(error) => Err(io_error(absolute, error.into())),
    }
}

/// Makes the rename durable. File systems that cannot sync a directory have nothing to make durable.
fn sync_directory(dir: &Dir) -> std::io::Result<()> {
    let opened = dir.open(".")?;
    match opened.sync_all() {
        Err(error) if matches!(error.raw_os_error(), Some(code) if code == Errno::INVAL.raw_os_error()) => Ok(()),
        other => other,
    }
}

/// The digest that [`Replaces::Content`] compares.
#[must_use]
pub fn digest(content: &[u8]) -> [u8; 32] {
    Sha256::digest(content).into()
}
