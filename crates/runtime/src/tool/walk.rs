//! Walks a directory tree below the jail's handles, skipping what `.gitignore` files name.
//! Never follows a link, never opens a pipe, and reads ignore files with a limit: a hostile tree is still only a tree.

use std::{
    io::Read,
    ops::ControlFlow,
    path::{Path, PathBuf},
    vec,
};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use rustix::fs::OFlags;
use tokio_util::sync::CancellationToken;
use zeroclaw_policy::{RootedPath, Roots};

use crate::{
    jail::{DirectoryEntry, EntryKind, Files, OpenedDirectory},
    tool::ToolFailure,
};

/// Entries looked at in one walk; a home directory has fewer.
const MAX_VISITED: usize = 1_000_000;

/// Entries of one directory.
const MAX_DIRECTORY: usize = 100_000;

/// Levels; each holds a descriptor open.
const MAX_DEPTH: usize = 64;

/// Bytes of one ignore file.
const MAX_IGNORE_FILE: u64 = 256 * 1024;

/// Directories of version control, which hold no work.
const HIDDEN: [&str; 4] = [".git", ".hg", ".svn", ".jj"];

/// One file found.
pub(super) struct Found<'a> {
    /// The absolute path below the named base.
    pub(super) path: &'a Path,
    /// The path below the base.
    pub(super) relative: &'a Path,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Everything was seen.
    Complete,
    /// The visitor had enough.
    Stopped,
    /// A limit of the walk was reached.
    Limited,
}

struct Level {
    opened: OpenedDirectory,
    /// The named path.
    path: PathBuf,
    entries: vec::IntoIter<DirectoryEntry>,
    /// How many ignore files of this level are on the stack.
    ignores: usize,
}

/// Visits every regular file below a directory, sorted by name within each directory.
///
/// # Errors
/// A base that is no directory of the session; a cancelled turn. Directories that cannot be read further down are skipped.
pub(super) fn walk(
    files: &Files<'_>,
    roots: &Roots,
    base: &RootedPath,
    cancel: &CancellationToken,
    mut visit: impl FnMut(Found<'_>) -> ControlFlow<()>,
) -> Result<End, ToolFailure> {
    let mut ignores = ancestors(files, roots, base);
    let opened = files.open_dir(base)?;
    let mut levels = Vec::new();
    let mut end = End::Complete;
    descend(files, opened, base.absolute().to_owned(), &mut ignores, &mut levels, &mut end);
    let mut visited = 0_usize;
    while let Some(level) = levels.last_mut() {
        if cancel.is_cancelled() {
            return Err(ToolFailure::Cancelled);
        }
        let Some(entry) = level.entries.next() else {
            let length = ignores.len().saturating_sub(level.ignores);
            ignores.truncate(length);
            levels.pop();
            continue;
        };
        visited += 1;
        if visited > MAX_VISITED {
            return Ok(End::Limited);
        }
        let path = level.path.join(&entry.name);
        let is_dir = entry.kind == EntryKind::Directory;
        if is_ignored(&ignores, &path, is_dir) {
            continue;
        }
        match entry.kind {
            EntryKind::Link | EntryKind::Special => {}
            EntryKind::File => {
                let relative = path.strip_prefix(base.absolute()).unwrap_or(&path);
                if visit(Found { path: &path, relative }).is_break() {
                    return Ok(End::Stopped);
                }
            }
            EntryKind::Directory => {
                if HIDDEN.iter().any(|hidden| entry.name == *hidden) {
                    continue;
                }
                if levels.len() == MAX_DEPTH {
                    end = End::Limited;
                    continue;
                }
                let Some(level) = levels.last() else { continue };
                let Some(opened) = child(files, level, &entry) else { continue };
                descend(files, opened, path, &mut ignores, &mut levels, &mut end);
            }
        }
    }
    Ok(end)
}

/// Opens a directory that a listing named, without following a link that took its place.
fn child(files: &Files<'_>, level: &Level, entry: &DirectoryEntry) -> Option<OpenedDirectory> {
    let metadata = level.opened.dir.symlink_metadata(&entry.name).ok()?;
    if !metadata.is_dir() {
        return None;
    }
    let dir = level.opened.dir.open_dir(&entry.name).ok()?;
    let real = level.opened.real.join(&entry.name);
    (!files.is_forbidden(&real)).then_some(OpenedDirectory { dir, real })
}

fn descend(
    files: &Files<'_>,
    opened: OpenedDirectory,
    path: PathBuf,
    ignores: &mut Vec<Gitignore>,
    levels: &mut Vec<Level>,
    end: &mut End,
) {
    let Ok(listing) = files.list(&opened, MAX_DIRECTORY) else { return };
    if listing.cut {
        *end = End::Limited;
    }
    let before = ignores.len();
    push_ignores(&opened.dir, &path, ignores);
    levels.push(Level { opened, path, entries: listing.entries.into_iter(), ignores: ignores.len() - before });
}

/// The ignore files of the directories between the root and the base.
fn ancestors(files: &Files<'_>, roots: &Roots, base: &RootedPath) -> Vec<Gitignore> {
    let mut ignores = Vec::new();
    let Some(root) = roots.root(base.root()) else { return ignores };
    let mut above: Vec<&Path> =
        base.absolute().ancestors().skip(1).take_while(|path| path.starts_with(root.path())).collect();
    above.reverse();
    for path in above {
        let located = path.to_str().and_then(|text| roots.locate(text).ok());
        if let Some(opened) = located.and_then(|located| files.open_dir(&located).ok()) {
            push_ignores(&opened.dir, path, &mut ignores);
        }
    }
    ignores
}

fn push_ignores(dir: &Dir, path: &Path, ignores: &mut Vec<Gitignore>) {
    // The later one counts more.
    for name in [".git/info/exclude", ".gitignore", ".ignore"] {
        let Some(text) = ignore_file(dir, name) else { continue };
        let mut builder = GitignoreBuilder::new(path);
        for line in text.lines() {
            // A line that is no pattern ignores nothing, as in git.
            let _ = builder.add_line(None, line);
        }
        if let Ok(matcher) = builder.build()
            && !matcher.is_empty()
        {
            ignores.push(matcher);
        }
    }
}

fn ignore_file(dir: &Dir, name: &str) -> Option<String> {
    if !dir.symlink_metadata(name).ok()?.is_file() {
        return None;
    }
    let mut options = OpenOptions::new();
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = dir.open_with(name, &options).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_IGNORE_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_ignored(ignores: &[Gitignore], path: &Path, is_dir: bool) -> bool {
    for matcher in ignores.iter().rev() {
        match matcher.matched(path, is_dir) {
            Match::None => {}
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
        }
    }
    false
}
