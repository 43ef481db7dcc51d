//! What lay where when an action was worked out, and whether it still does when the action is performed: a question may stay
//! open for an hour, and somebody else may move things meanwhile. It refuses to guess: what is not the same is changed.

use std::path::Path;

use cap_std::fs::{Metadata, MetadataExt};
use sha2::{Digest, Sha256};
use zeroclaw_policy::{Pin, Pinned, RootedPath};

use crate::jail::{Files, JailError, OpenedDirectory};

impl Files<'_> {
    /// Holds a directory in which something is about to start: this one, wherever its name leads later.
    ///
    /// # Errors
    /// As [`Files::open_dir`].
    pub fn pin_directory(&self, path: &RootedPath) -> Result<Pin, JailError> {
        let state = directory(path, &self.open_dir(path)?)?;
        Ok(Pin { what: Pinned::Directory, path: path.absolute().to_owned(), state })
    }

    /// Holds a file that is about to be run: the same file, unchanged. One that is not there is held as that.
    #[must_use]
    pub fn pin_program(&self, path: &RootedPath) -> Pin {
        Pin { what: Pinned::Program, path: path.absolute().to_owned(), state: self.program(path) }
    }

    /// Holds where a file lands that is about to be written.
    ///
    /// # Errors
    /// A way out of the root, a link that leads to nothing.
    pub fn pin_place(&self, path: &RootedPath) -> Result<Pin, JailError> {
        Ok(Pin { what: Pinned::Place, path: path.absolute().to_owned(), state: self.place(path)? })
    }

    /// Compares what was held with what is there now. `start` is the directory that was opened to start in.
    ///
    /// # Errors
    /// The first that is not what it was.
    pub fn hold(&self, pins: &[Pin], start: Option<(&RootedPath, &OpenedDirectory)>) -> Result<(), JailError> {
        for pin in pins {
            let swapped = || JailError::Swapped { path: pin.path.clone() };
            let located = || pin.path.to_str().and_then(|path| self.jail.roots.locate(path).ok()).ok_or_else(swapped);
            let now = match pin.what {
                Pinned::Directory => {
                    let (path, opened) = start.ok_or_else(swapped)?;
                    directory(path, opened)?
                }
                Pinned::Program => self.program(&located()?),
                Pinned::Place => self.place(&located()?)?,
                // Not the business of files; whoever held it compares it.
                Pinned::Environment => pin.state,
            };
            if now != pin.state {
                return Err(swapped());
            }
        }
        Ok(())
    }

    fn program(&self, path: &RootedPath) -> [u8; 32] {
        let opened = match self.open_read(path) {
            Ok(opened) => opened,
            // Each reason is a state of its own, as it decides what the command comes upon.
            Err(error) => return Sha256::digest(format!("{:?}", std::mem::discriminant(&error))).into(),
        };
        match cap_std::fs::File::from_std(opened.file).metadata() {
            Ok(metadata) => state(&opened.real, &metadata, true),
            Err(_) => Sha256::digest("unknown").into(),
        }
    }

    fn place(&self, path: &RootedPath) -> Result<[u8; 32], JailError> {
        let (root, handle) = self.jail.handle(path)?;
        let real = match handle.canonicalize(super::below(path)) {
            Ok(real) => root.path().join(real),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.absent_place(path)?,
            Err(error) => return Err(super::error::io_error(path.absolute(), error)),
        };
        Ok(Sha256::digest(real.as_os_str().as_encoded_bytes()).into())
    }
}

fn directory(path: &RootedPath, opened: &OpenedDirectory) -> Result<[u8; 32], JailError> {
    let metadata = opened.dir.dir_metadata().map_err(|error| super::error::io_error(path.absolute(), error))?;
    Ok(state(&opened.real, &metadata, false))
}

/// What tells one file or directory from every other; with `content` also when it was last changed. The time of the last
/// change of a file's entry cannot be set by anybody.
fn state(real: &Path, metadata: &Metadata, content: bool) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(metadata.dev().to_be_bytes());
    digest.update(metadata.ino().to_be_bytes());
    if content {
        digest.update(metadata.size().to_be_bytes());
        for time in [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()] {
            digest.update(time.to_be_bytes());
        }
    }
    digest.update(real.as_os_str().as_encoded_bytes());
    digest.finalize().into()
}
