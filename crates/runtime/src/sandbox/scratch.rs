//! The private temporary directory of a session: made when a command first needs it, open to nobody else, removed with the
//! session. Refuses to use anything that is there already.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Mutex,
    sync::PoisonError,
};

/// Tries for a name that is free; names are random, so a second one is hardly ever needed.
const TRIES: u32 = 16;

/// The directory, once somebody needed it.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Unused,
    Made(PathBuf),
    /// The session has ended.
    Gone,
}

impl Scratch {
    /// The directory, below `base`.
    pub(crate) fn path(&self, base: &Path) -> io::Result<PathBuf> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Made(path) => return Ok(path.clone()),
            State::Gone => return Err(io::Error::other("the session has ended")),
            State::Unused => {}
        }
        let path = make(&base.canonicalize()?)?;
        *state = State::Made(path.clone());
        Ok(path)
    }

    /// Removes the directory. Blocking.
    pub(crate) fn remove(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Made(path) = std::mem::replace(&mut *state, State::Gone)
            && let Err(error) = remove(&path)
        {
            tracing::warn!(%error, "the temporary directory of a session could not be removed");
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}

fn make(base: &Path) -> io::Result<PathBuf> {
    let mut tries = 0;
    loop {
        let path = base.join(format!("zeroclaw-{}-{:016x}", std::process::id(), unpredictable()));
        match create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Something that another process does not know: the keys of a hash map are random. Nothing depends on it but the name, as
/// an existing directory is never used.
fn unpredictable() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn create(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Removes the tree, also where a command took its own rights away from it. Links are removed, never followed.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path)?;
            fs::remove_dir_all(path)
        }
        other => other,
    }
}

#[cfg(unix)]
fn open_up(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // Only directories, and the entry's own type: the target of a link is not ours.
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn open_up(_path: &Path) -> io::Result<()> {
    Ok(())
}
