//! Small JSON files in the configuration directory: one writer at a time, replaced as a whole, readable by their owner only.
//! Blocking, so async code calls it from a blocking thread. A file that cannot be read is never replaced.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

/// A thousand tokens with long names are less than this; a larger file is not ours.
const MAX_BYTES: u64 = 1024 * 1024;

/// Why a file of tokens or codes could not be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// The file or its directory.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// What stands in it. The content is not repeated.
    #[error("`{}` is damaged at line {line}: repair it, or move it away", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// The name is taken.
    #[error("there is a token named `{name}` already")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The name cannot be used.
    #[error("a token's name has 1 to 64 characters and no control characters")]
    BadName,
    /// Nothing has this name or id.
    #[error("there is no token `{name}`")]
    NotFound {
        /// What was asked for.
        name: String,
    },
    /// No more fit.
    #[error("there are {limit} tokens, which is the limit")]
    TooMany {
        /// The limit.
        limit: usize,
    },
}

impl StateError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// One file and the lock beside it.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
}

/// Held by the one writer.
pub(crate) struct Lock(#[expect(dead_code, reason = "holding it is what it is for")] File);

impl StateFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for any other writer, in whatever process.
    pub(crate) fn lock(&self) -> Result<Lock, StateError> {
        if let Some(directory) = self.path.parent() {
            create_private_directory(directory).map_err(StateError::io("create", directory))?;
        }
        let path = self.beside("lock");
        let opened = private_file().write(true).create(true).truncate(false).open(&path);
        let lock = opened.map_err(StateError::io("create", &path))?;
        lock.lock().map_err(StateError::io("lock", &path))?;
        Ok(Lock(lock))
    }

    /// Reads the content; `None` when there is no file.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, StateError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::io("open", &self.path)(error)),
        };
        let mut text = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(StateError::io("read", &self.path))?;
        let damaged = |line| StateError::Damaged { path: self.path.clone(), line };
        if text.len() as u64 > MAX_BYTES {
            return Err(damaged(0));
        }
        serde_json::from_slice(&text).map(Some).map_err(|error| damaged(error.line()))
    }

    /// Replaces the content. The lock is the proof that nobody else does.
    pub(crate) fn write<T: Serialize>(&self, _lock: &Lock, content: &T) -> Result<(), StateError> {
        let mut text = serde_json::to_vec_pretty(content)
            .map_err(|error| StateError::io("write", &self.path)(io::Error::other(error)))?;
        text.push(b'\n');
        self.replace(&text)
    }

    /// Removes the file; one that is not there is removed already.
    pub(crate) fn remove(&self, _lock: &Lock) -> Result<(), StateError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StateError::io("remove", &self.path)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(crate) fn replace(&self, text: &[u8]) -> Result<(), StateError> {
        let temporary = self.beside("tmp");
        // Whatever is there was left by a writer that died, and might be readable by others.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StateError::io("remove", &temporary)(error));
            }
            Ok(()) | Err(_) => {}
        }
        let fill = || {
            let mut file = private_file().write(true).create_new(true).open(&temporary)?;
            file.write_all(text)?;
            file.sync_all()?;
            fs::rename(&temporary, &self.path)
        };
        fill().map_err(StateError::io("write", &self.path))
    }

    fn beside(&self, extension: &str) -> PathBuf {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.path.with_file_name(format!(".{name}.{extension}"))
    }
}

#[cfg(unix)]
fn private_file() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

#[cfg(not(unix))]
fn private_file() -> OpenOptions {
    OpenOptions::new()
}

#[cfg(unix)]
fn create_private_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).create(path)
}
