//! Which processes are alive: one locked file for each, beside the store.
//!
//! The kernel gives a lock up when its process dies, however it dies, so a lock that can be taken proves that its owner
//! is gone. Nothing here asks for process ids, which are reused.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::StoreError;

/// How often, and after how long, a lock that somebody holds for a moment is tried again.
const OWN_LOCK_ATTEMPTS: u32 = 100;
const OWN_LOCK_PAUSE: Duration = Duration::from_millis(2);

/// The longest instance id: with its suffix it stays far below the 255 bytes of a file name.
const MAX_INSTANCE: usize = 64;

/// The directory of the lock files, and the lock of this process once it owns a session.
#[derive(Debug)]
pub(super) struct Owners {
    directory: PathBuf,
    instance: String,
    own: Mutex<Option<File>>,
}

/// Proof that an owner is dead.
///
/// While it exists no new process with the same instance id can start to own sessions.
#[derive(Debug)]
pub(super) struct DeadOwner {
    path: PathBuf,
    file: Option<File>,
}

impl Owners {
    /// `None` when the instance id cannot name a file.
    pub(super) fn new(store: &Path, instance: &str) -> Option<Owners> {
        is_file_name(instance).then(|| Owners {
            directory: directory(store),
            instance: instance.to_owned(),
            own: Mutex::new(None),
        })
    }

    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// Takes the lock of this process, once; it is kept until [`Owners::let_go`].
    pub(super) async fn hold(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.own.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Ok(());
        }
        let owners = Arc::clone(self);
        blocking(move || {
            create_private_directory(&owners.directory)?;
            let path = owners.directory.join(file_name(&owners.instance));
            let file = lock_own(&path)?;
            *owners.own.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
            Ok(())
        })
        .await
    }

    /// Whether the owner is dead; `None` while it lives.
    pub(super) async fn dead(self: &Arc<Self>, owner: &str) -> Result<Option<DeadOwner>, StoreError> {
        let path = self.directory.join(file_name(owner));
        if !is_file_name(owner) {
            // No process of ours could have taken this name: the row was written by something else.
            return Ok(Some(DeadOwner { path, file: None }));
        }
        blocking(move || {
            // Only opened for reading and locked in shared mode, so that two processes asking at once agree.
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Ok(Some(DeadOwner { path, file: None }));
                }
                Err(error) => return Err(error),
            };
            match file.try_lock_shared() {
                Ok(()) => Ok(Some(DeadOwner { path, file: Some(file) })),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(error),
            }
        })
        .await
    }

    /// Removes the lock file of this process and gives its lock up.
    pub(super) async fn let_go(self: &Arc<Self>) {
        let owners = Arc::clone(self);
        let done = blocking(move || {
            let file = owners.own.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(file) = file {
                // The name goes first: once unlocked, the file may already belong to somebody else.
                let removed = fs::remove_file(owners.directory.join(file_name(&owners.instance)));
                drop(file);
                removed?;
            }
            Ok(())
        })
        .await;
        if let Err(error) = done {
            tracing::debug!(event = "owner_lock_left", %error);
        }
    }
}

impl DeadOwner {
    /// Removes the lock file, after everything of the owner has been taken over.
    pub(super) async fn bury(self) {
        let done = blocking(move || {
            if let Some(file) = self.file {
                let removed = fs::remove_file(&self.path);
                drop(file);
                match removed {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            Ok(())
        })
        .await;
        if let Err(error) = done {
            tracing::debug!(event = "owner_lock_left", %error);
        }
    }
}

/// Where the lock files of a store are.
pub(super) fn directory(store: &Path) -> PathBuf {
    store.parent().unwrap_or(Path::new("")).join("owners")
}

/// Creates a directory, and what is missing above it, for the user alone.
pub(super) fn create_private_directory(directory: &Path) -> io::Result<()> {
    if directory.as_os_str().is_empty() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(directory)
}

/// Opens a lock file for the user alone, creating it when it is missing.
pub(super) fn open_lock_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

fn lock_own(path: &Path) -> io::Result<File> {
    for _ in 0..OWN_LOCK_ATTEMPTS {
        let file = open_lock_file(path)?;
        match file.try_lock() {
            // Between opening and locking, a process that took a dead namesake for dead may have removed the name.
            Ok(()) if is_still_named(&file, path) => return Ok(file),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => thread::sleep(OWN_LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(ErrorKind::WouldBlock, "another process uses the same instance id"))
}

#[cfg(unix)]
fn is_still_named(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(named)) => held.ino() == named.ino() && held.dev() == named.dev(),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_still_named(_file: &File, path: &Path) -> bool {
    path.exists()
}

fn is_file_name(instance: &str) -> bool {
    (1..=MAX_INSTANCE).contains(&instance.len())
        && instance.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn file_name(instance: &str) -> String {
    format!("{instance}.lock")
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(StoreError::Io(Arc::new(error))),
        // The pool drops work only while the runtime shuts down.
        Err(_) => Err(StoreError::Closed),
    }
}
