//! Where a file really lies that somebody else opens by its name, a client: inside the roots, without links, and judged.
//! It refuses what the jail itself would refuse. Between the look here and the other's opening lies a moment that nobody
//! guards; whoever can use it can write inside the roots already.

use std::path::{Path, PathBuf};

use zeroclaw_policy::{Replaces, RootedPath};

use crate::jail::{Files, JailError, error::io_error, mode, regular, write::Links};

impl Files<'_> {
    /// The real path of a file that does not exist yet.
    ///
    /// # Errors
    /// A way out of the root, a forbidden place, a link that leads to nothing.
    pub fn absent_place(&self, path: &RootedPath) -> Result<PathBuf, JailError> {
        let absolute = path.absolute();
        let (root, handle) = self.jail.handle(path)?;
        self.check_named(absolute)?;
        let mut missing: &Path = path.relative();
        let real = loop {
            // A link that leads to nothing would be followed by whoever makes the file.
            match handle.symlink_metadata(missing) {
                Ok(metadata) if metadata.is_symlink() => return Err(JailError::Link { path: absolute.to_owned() }),
                Ok(_) | Err(_) => {}
            }
            let parent = missing.parent().unwrap_or(Path::new(""));
            if parent.as_os_str().is_empty() {
                break root.path().to_owned();
            }
            match handle.canonicalize(parent) {
                Ok(real) => break root.path().join(real),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => missing = parent,
                Err(error) => return Err(io_error(absolute, error)),
            }
        };
        let known = missing.parent().unwrap_or(Path::new(""));
        let rest = path.relative().strip_prefix(known).map_err(|_| JailError::Outside { path: absolute.to_owned() })?;
        let place = real.join(rest);
        self.check_real(absolute, &place)?;
        Ok(place)
    }

    /// The real path of a file that is to be written. Missing directories are made.
    ///
    /// # Errors
    /// As [`Files::write_atomic`], but for the state of the file, which the caller compares.
    pub fn write_place(&self, path: &RootedPath) -> Result<PathBuf, JailError> {
        let absolute = path.absolute();
        let parent = self.landing(path, Replaces::Nothing, Links::Follow)?;
        match parent.dir.symlink_metadata(&parent.name) {
            Ok(metadata) => {
                regular(absolute, metadata.file_type())?;
                if mode(&metadata) & 0o222 == 0 {
                    return Err(JailError::Protected { path: absolute.to_owned() });
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(absolute, error)),
        }
        Ok(parent.real.join(&parent.name))
    }
}
