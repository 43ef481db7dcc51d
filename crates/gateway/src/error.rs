//! Why a gateway cannot be opened.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::StateError;

/// Why a gateway cannot be opened.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// Its files.
    #[error(transparent)]
    State(#[from] StateError),
    /// Where it should listen.
    #[error("cannot listen on {place}: {source}")]
    Listen {
        /// Address or path.
        place: String,
        /// What the system says.
        source: io::Error,
    },
    /// A path that something else uses.
    #[error("`{}` is there already and is no socket that nobody listens on", path.display())]
    SocketTaken {
        /// The path.
        path: PathBuf,
    },
    /// A certificate or key that cannot be used. Nothing of the key is repeated.
    #[error("the certificate in `{}` cannot be used: {why}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Strangers could come in.
    #[error(
        "{place} is not on the loopback, and without pairing anybody there could use the agents: set `gateway.require_pairing = true`"
    )]
    OpenToStrangers {
        /// The address.
        place: String,
    },
    /// Not an origin.
    #[error("`{origin}` in `gateway.allowed_origins` is no origin like `https://app.example`")]
    BadOrigin {
        /// What stands there.
        origin: String,
    },
    /// Not a path prefix.
    #[error("`gateway.path_prefix` is `{prefix}`; it starts with `/` and has letters, digits, `-`, `_`, `.` and `/`")]
    BadPrefix {
        /// What stands there.
        prefix: String,
    },
}
