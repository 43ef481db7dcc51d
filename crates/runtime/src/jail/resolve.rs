//! Where an opened file really lies, so that rules about paths cannot be passed through a link.

use std::{
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use cap_std::fs::Dir;

use crate::jail::{JailError, error::io_error};

/// The canonical path of an opened file or directory.
///
/// The kernel is asked about the descriptor itself. Without `/proc` the name is resolved below the root's handle instead,
/// which a swap at that very moment could deceive about rules inside the root, though never about the root.
pub(super) fn resolved_path(
    opened: &impl AsRawFd,
    handle: &Dir,
    root: &Path,
    relative: &Path,
) -> Result<PathBuf, JailError> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())) {
        return Ok(path);
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = opened;
    if relative == Path::new(".") {
        return std::fs::canonicalize(root).map_err(|error| io_error(root, error));
    }
    let below = handle.canonicalize(relative).map_err(|error| io_error(&root.join(relative), error))?;
    Ok(root.join(below))
}
