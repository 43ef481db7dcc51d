//! Which files a command gets, as rules of Landlock. A rule holds for everything below its directory and cannot be taken back
//! further down: around something hidden, every neighbour gets a rule of its own, and the directories above it get none.
//! In such a directory nothing new can be made and names cannot be listed, but everything else in it can be used.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use landlock::{ABI, Access as _, AccessFs, BitFlags};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat},
    io::Errno,
};

use crate::sandbox::{Access, Confine};

/// Rules at most. What a directory with more neighbours of something hidden holds beyond stays closed.
const MAX_RULES: usize = 20_000;

/// Directories on the way to something hidden, at most.
const MAX_DEPTH: usize = 64;

/// Devices that every program may use.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Makes the rules.
pub(super) fn grant<E>(
    confine: &Confine,
    rule: impl FnMut(BorrowedFd<'_>, BitFlags<AccessFs>) -> Result<(), E>,
) -> Result<(), E> {
    let mut granter = Granter { hidden: hidden(&confine.hidden), granted: Vec::new(), count: 0, rule };
    for device in DEVICES {
        if let Ok(handle) = open(Path::new(device), OFlags::PATH) {
            let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
            (granter.rule)(handle.as_fd(), access)?;
        }
    }
    for (handle, access) in &confine.handles {
        if let Some(real) = real_path(handle.as_fd()) {
            granter.tree(handle.as_fd(), &real, *access)?;
        }
    }
    for (path, access) in &confine.paths {
        // What is not there needs no rule. Its place in the configuration is a name, so links in it are followed.
        if let Ok(handle) = open(path, OFlags::PATH)
            && let Some(real) = real_path(handle.as_fd())
        {
            granter.tree(handle.as_fd(), &real, *access)?;
        }
    }
    Ok(())
}

struct Granter<F> {
    hidden: Vec<PathBuf>,
    /// Directories that are granted as a whole.
    granted: Vec<(PathBuf, Access)>,
    count: usize,
    rule: F,
}

impl<F, E> Granter<F>
where
    F: FnMut(BorrowedFd<'_>, BitFlags<AccessFs>) -> Result<(), E>,
{
    /// Grants a file, or a directory with everything below it but what is hidden.
    fn tree(&mut self, handle: BorrowedFd<'_>, real: &Path, access: Access) -> Result<(), E> {
        self.below(handle, real, access, 0)
    }

    fn below(&mut self, handle: BorrowedFd<'_>, real: &Path, access: Access, depth: usize) -> Result<(), E> {
        let covered =
            |(path, has): &(PathBuf, Access)| real.starts_with(path) && (*has == access || *has == Access::Write);
        if self.is_hidden(real) || self.granted.iter().any(covered) || self.count >= MAX_RULES || depth > MAX_DEPTH {
            return Ok(());
        }
        let Ok(kind) = fstat(handle).map(|stat| FileType::from_raw_mode(stat.st_mode)) else { return Ok(()) };
        let is_directory = kind == FileType::Directory;
        if is_directory && self.hides_below(real, access) {
            return self.around(handle, real, access, depth);
        }
        self.count += 1;
        if is_directory {
            self.granted.push((real.to_owned(), access));
        }
        (self.rule)(handle, rights(access, is_directory))
    }

    /// Grants what lies in a directory one by one.
    fn around(&mut self, handle: BorrowedFd<'_>, real: &Path, access: Access, depth: usize) -> Result<(), E> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A directory that cannot be listed is left out: less is granted, never more.
        let Ok(opened) = openat(handle, c".", flags, Mode::empty()) else { return Ok(()) };
        let Ok(entries) = Dir::new(opened) else { return Ok(()) };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            // A link gives nothing: what it leads to has a rule, or has none.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(child) = openat(handle, name, flags, Mode::empty()) else { continue };
            let is_link = fstat(&child).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
            if !is_link {
                let path = real.join(OsStr::from_bytes(name.to_bytes()));
                self.below(child.as_fd(), &path, access, depth + 1)?;
            }
        }
        Ok(())
    }

    fn is_hidden(&self, real: &Path) -> bool {
        self.hidden.iter().any(|hidden| real.starts_with(hidden))
    }

    /// Whether something hidden lies below, and matters. What the user cannot read anyway is not worth the detour, as long as
    /// nothing may be written there.
    fn hides_below(&self, real: &Path, access: Access) -> bool {
        let matters = |hidden: &Path| match access {
            Access::Write => true,
            Access::Read => !is_closed(hidden),
        };
        self.hidden.iter().any(|hidden| hidden.starts_with(real) && matters(hidden))
    }
}

/// Whether the user has no way to read this: it is not there, or its permissions say so.
fn is_closed(path: &Path) -> bool {
    match rustix::fs::accessat(rustix::fs::CWD, path, rustix::fs::Access::READ_OK, AtFlags::EACCESS) {
        Err(Errno::ACCESS) => statat(rustix::fs::CWD, path, AtFlags::empty())
            // Its owner can open it up again.
            .map_or(true, |stat| stat.st_uid != rustix::process::geteuid().as_raw()),
        Err(Errno::NOENT | Errno::NOTDIR) => true,
        Ok(()) | Err(_) => false,
    }
}

fn rights(access: Access, is_directory: bool) -> BitFlags<AccessFs> {
    let rights = match access {
        Access::Read => AccessFs::from_read(ABI::V9),
        // Devices are nothing that a project is made of.
        Access::Write => AccessFs::from_all(ABI::V9) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev),
    };
    if is_directory { rights } else { rights & AccessFs::from_file(ABI::V9) }
}

/// The hidden paths as named and as they really are, with the directories around them resolved where they are not there yet.
fn hidden(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = Vec::with_capacity(paths.len());
    for path in paths {
        let real = path.ancestors().find_map(|there| {
            let rest = path.strip_prefix(there).ok()?;
            Some(there.canonicalize().ok()?.join(rest))
        });
        all.extend(real.filter(|real| real != path));
        all.push(path.clone());
    }
    all
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Where an opened file really lies; the kernel is asked.
fn real_path(handle: BorrowedFd<'_>) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd())).ok()?;
    // A directory that was removed is called by its last name and a remark; nothing of it can be found by a path.
    path.is_absolute().then_some(path)
}
