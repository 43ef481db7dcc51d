//! Replaces the configuration file as a whole or not at all, one writer at a time, and readable by its owner only.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::ConfigError;

/// Holds the lock beside the configuration file; dropping it lets the next writer in.
pub(crate) struct Writer {
    target: PathBuf,
    directory: PathBuf,
    _lock: File,
}

impl Writer {
    /// Makes the directory if it is missing, and waits for any other writer.
    pub(crate) fn open(config_file: &Path) -> Result<Self, ConfigError> {
        if let Some(directory) = config_file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            create_private_directory(directory).map_err(|error| failed("create", directory, error))?;
        }
        // The lock lies beside the real file, so that writers who come through different links meet.
        let target = follow_links(config_file)?;
        let directory = match target.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory.to_path_buf(),
            Some(_) | None => PathBuf::from("."),
        };
        let path = directory.join(hidden_name(&target, "lock"));
        let lock = private_file().write(true).create(true).truncate(false).open(&path);
        let lock = lock.map_err(|error| failed("create", &path, error))?;
        lock.lock().map_err(|error| failed("lock", &path, error))?;
        Ok(Self { target, directory, _lock: lock })
    }

    /// Says whether anything is where the file would be written.
    pub(crate) fn target_exists(&self) -> bool {
        self.target.symlink_metadata().is_ok()
    }

    /// Writes the new content beside the file, forces it to the disk and moves it over the file.
    pub(crate) fn replace(&self, content: &[u8]) -> Result<(), ConfigError> {
        let temporary = self.directory.join(hidden_name(&self.target, "tmp"));
        // Whatever is there was left by a writer that died: the lock is ours.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &temporary, error));
            }
            Ok(()) | Err(_) => {}
        }
        let written = self.fill(&temporary, content).and_then(|()| fs::rename(&temporary, &self.target));
        if let Err(error) = written {
            // The first error is the one to report; a file that stays is removed by the next writer.
            let _ = fs::remove_file(&temporary);
            return Err(failed("write", &self.target, error));
        }
        sync_directory(&self.directory).map_err(|error| failed("sync", &self.directory, error))
    }

    /// The same for a file that is nobody else's to read, whatever the old one was.
    pub(crate) fn replace_private(&self, content: &[u8]) -> Result<(), ConfigError> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            match fs::set_permissions(&self.target, fs::Permissions::from_mode(0o600)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("protect", &self.target, error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        self.replace(content)
    }

    fn fill(&self, temporary: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = private_file().write(true).create_new(true).open(temporary)?;
        file.write_all(content)?;
        if let Ok(metadata) = fs::metadata(&self.target) {
            keep_owner(&file, &metadata);
            file.set_permissions(metadata.permissions())?;
        }
        file.sync_all()
    }
}

/// Finds the file at the end of a chain of links, also when that file does not exist yet.
fn follow_links(path: &Path) -> Result<PathBuf, ConfigError> {
    let mut current = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&current) {
            Ok(next) => current = current.parent().unwrap_or(Path::new("")).join(next),
            // Not a link, or nothing there: this is the file.
            Err(_) => {
                return Ok(match (current.parent().map(fs::canonicalize), current.file_name()) {
                    (Some(Ok(directory)), Some(name)) => directory.join(name),
                    (_, _) => current,
                });
            }
        }
    }
    Err(failed("follow", path, io::Error::other("too many links")))
}

fn hidden_name(target: &Path, extension: &str) -> String {
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!(".{name}.{extension}")
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> ConfigError {
    ConfigError::Io { action, path: path.to_path_buf(), source }
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
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

/// Gives the new file to the owner of the old one: an administrator who edits a user's file must not take it away. Where
/// that is not permitted the writer owns the file, as after any editor.
#[cfg(unix)]
fn keep_owner(file: &File, old: &fs::Metadata) {
    use std::os::unix::fs::{MetadataExt, fchown};
    if file.metadata().is_ok_and(|new| (new.uid(), new.gid()) != (old.uid(), old.gid())) {
        let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    }
}

#[cfg(not(unix))]
fn keep_owner(_file: &File, _old: &fs::Metadata) {}

#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// As many links as the kernel itself follows; a longer chain is a loop.
const MAX_LINKS: usize = 40;
