//! What can go wrong with a file of the jail. The texts name only paths that the caller named.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// A file operation that was refused or failed.
#[derive(Debug, Error)]
pub enum JailError {
    /// A root given as a link or with a link in its path.
    #[error("`{}` is not a canonical path", path.display())]
    NotCanonical {
        /// The root.
        path: PathBuf,
    },
    /// Nothing there.
    #[error("`{}` does not exist", path.display())]
    NotFound {
        /// The path as named.
        path: PathBuf,
    },
    /// A link or a race that leads out of the root.
    #[error("`{}` leads outside of the directories of this session", path.display())]
    Outside {
        /// The path as named.
        path: PathBuf,
    },
    /// A forbidden path, reached by name or through a link.
    #[error("`{}` is forbidden by configuration", path.display())]
    Forbidden {
        /// The path as named.
        path: PathBuf,
    },
    /// What the system shows of a process, as a file.
    #[error("`{}` shows a running process and is no file of this session", path.display())]
    Process {
        /// The path as named.
        path: PathBuf,
    },
    /// A write below a read-only root.
    #[error("`{}` lies in a read-only directory", path.display())]
    ReadOnly {
        /// The path as named.
        path: PathBuf,
    },
    /// A file without any write permission.
    #[error("`{}` is write-protected", path.display())]
    Protected {
        /// The path as named.
        path: PathBuf,
    },
    /// A directory where a file is needed.
    #[error("`{}` is a directory", path.display())]
    Directory {
        /// The path as named.
        path: PathBuf,
    },
    /// Something else where a directory is needed.
    #[error("`{}` is not a directory", path.display())]
    NotDirectory {
        /// The path as named.
        path: PathBuf,
    },
    /// A pipe, socket or device.
    #[error("`{}` is a pipe, socket or device, not a regular file", path.display())]
    NotRegular {
        /// The path as named.
        path: PathBuf,
    },
    /// A symbolic link where none may be.
    #[error("`{}` is a symbolic link, which is not followed here", path.display())]
    Link {
        /// The path as named.
        path: PathBuf,
    },
    /// Larger than the operation takes.
    #[error("`{}` has {size} bytes, more than the limit of {limit}", path.display())]
    TooLarge {
        /// The path as named.
        path: PathBuf,
        /// The size found.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The file is not what the write was prepared against.
    #[error("`{}` changed since it was read; read it again", path.display())]
    Changed {
        /// The path as named.
        path: PathBuf,
    },
    /// Something else than when it was asked about.
    #[error("`{}` is not what it was when this was asked about; nothing was done", path.display())]
    Swapped {
        /// The path as named.
        path: PathBuf,
    },
    /// Everything else the system says.
    #[error("`{}`: {source}", path.display())]
    Io {
        /// The path as named.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Names the case behind a system error.
pub(super) fn io_error(path: &Path, source: io::Error) -> JailError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => JailError::NotFound { path },
        io::ErrorKind::NotADirectory => JailError::NotDirectory { path },
        io::ErrorKind::IsADirectory => JailError::Directory { path },
        // cap-std reports a way out as a permission error that no system call made.
        io::ErrorKind::PermissionDenied if source.raw_os_error().is_none() => JailError::Outside { path },
        _ => JailError::Io { path, source },
    }
}
