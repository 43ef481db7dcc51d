//! Everything that can be wrong with a configuration, each with the place where it is wrong. No variant carries a value
//! of a key that may hold a secret.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::names::AliasError;

/// Says where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A place in the configuration file; line and column count from one, columns in characters.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// An environment variable.
    Variable {
        /// Its name.
        name: String,
    },
    /// The key of a request to read or change one setting.
    Request,
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(formatter, "{}:{line}:{column}", path.display()),
            Self::Variable { name } => write!(formatter, "environment variable `{name}`"),
            Self::Request => formatter.write_str("configuration"),
        }
    }
}

/// Says why a configuration could not be loaded, read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Nothing says where the configuration is.
    #[error("no configuration directory: set HOME or ZEROCLAW_CONFIG_DIR, or give --config-dir")]
    NoConfigDir,
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The configuration file is a directory, a device or a pipe.
    #[error("cannot read {}: expected a regular file, found {found}", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// The configuration file is beyond any size that one has.
    #[error("cannot read {}: expected at most {limit} bytes", path.display())]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// The file is not TOML.
    #[error("{at}: {message}")]
    Syntax {
        /// Where reading stopped.
        at: Box<Location>,
        /// What was found and expected.
        message: String,
    },
    /// The key is none of ours.
    #[error("{at}: unknown key `{key}`{}", hint(nearest.as_deref(), known))]
    UnknownKey {
        /// Where it stands.
        at: Box<Location>,
        /// The whole key.
        key: String,
        /// The known name it resembles.
        nearest: Option<String>,
        /// The names that would be known there.
        known: Vec<String>,
    },
    /// The value has the wrong type or is out of range.
    #[error("{at}: `{key}`: expected {expected}, found {found}")]
    BadValue {
        /// Where it stands.
        at: Box<Location>,
        /// The whole key.
        key: String,
        /// What would be right.
        expected: String,
        /// What it is, without the value itself unless that is harmless.
        found: String,
    },
    /// An agent, a model or a profile has a name that is not allowed.
    #[error("{at}: bad name in `{key}`: {source}")]
    BadAlias {
        /// Where it stands.
        at: Box<Location>,
        /// The whole key.
        key: String,
        /// What is wrong with the name.
        source: AliasError,
    },
    /// An agent names a profile that does not exist.
    #[error("{at}: `{key}`: no `[{section}.{name}]` is configured{}", hint(nearest.as_deref(), &[]))]
    MissingProfile {
        /// Where it stands.
        at: Box<Location>,
        /// The whole key.
        key: String,
        /// The section that should hold the profile.
        section: &'static str,
        /// The name that was given.
        name: String,
        /// The name of a profile that it resembles.
        nearest: Option<String>,
    },
    /// A configuration file exists already and is not overwritten.
    #[error("{} exists already", path.display())]
    AlreadyExists {
        /// The file.
        path: PathBuf,
    },
}

fn hint(nearest: Option<&str>, known: &[String]) -> String {
    match nearest {
        Some(name) => format!(", did you mean `{name}`?"),
        None if known.is_empty() => String::new(),
        None => format!(", expected one of {}", known.join(", ")),
    }
}
