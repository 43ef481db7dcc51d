//! The closed set of things a tool can do, each resolved to exactly one effect.
//! An action carries everything that is needed to perform it, so that what was judged and shown is what runs.

use std::{path::PathBuf, sync::Arc};

use crate::RootedPath;

/// One exact, resolved effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads a file, lists a directory or searches below it.
    Read {
        /// The file or directory.
        path: RootedPath,
    },
    /// Replaces the whole content of one file.
    Write {
        /// The file.
        path: RootedPath,
        /// The bytes the file has afterwards.
        content: Arc<[u8]>,
        /// What must be there for the write to happen.
        replaces: Replaces,
        /// Where it lands, as it was found when the write was prepared.
        pins: Vec<Pin>,
    },
    /// Runs one program.
    Run {
        /// Program and arguments exactly as they are executed.
        argv: Vec<String>,
        /// The directory it starts in.
        cwd: RootedPath,
        /// The command as the model wrote it, for display only.
        shown: String,
        /// Whether it may use the network. Whoever is asked is told, and no "always" is offered.
        network: bool,
        /// What it starts in, with and from, as it was found when the command was prepared.
        pins: Vec<Pin>,
    },
    /// Calls a tool of an MCP server.
    Call {
        /// The server.
        server: String,
        /// A digest of what the server is, program and arguments or address: a name alone is anybody's.
        origin: String,
        /// The tool, by its name at the server.
        tool: String,
        /// The arguments: a JSON object.
        arguments: Arc<str>,
        /// What the server says of the tool.
        hint: CallHint,
    },
    /// Talks to the user through the client (questions, plans, notes); touches nothing else.
    Converse,
}

/// What an MCP server says of one of its tools. Servers are not trusted, so it can make a call stricter and never laxer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallHint {
    /// Nothing.
    None,
    /// It changes nothing.
    ReadOnly,
    /// It adds and destroys nothing.
    Additive,
    /// It may destroy something.
    Destructive,
}

/// Something that has to be the same when the action is performed as when it was judged and shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// What it is.
    pub what: Pinned,
    /// Its name, for whoever compares and for messages.
    pub path: PathBuf,
    /// A digest of how it was.
    pub state: [u8; 32],
}

/// What is held by a [`Pin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// The directory that a command starts in.
    Directory,
    /// A file of the session's directories that a command runs.
    Program,
    /// Where a file that is written lies when links are followed.
    Place,
    /// The variables that a command gets.
    Environment,
}

/// The state of a file that a write was prepared against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaces {
    /// The file does not exist.
    Nothing,
    /// The file has content with this SHA-256 digest.
    Content([u8; 32]),
}

impl Action {
    /// Returns the key under which "always" answers for this action are remembered:
    /// the exact program and directory, or the tool and the exact file.
    #[must_use]
    pub fn scope(&self, tool: &str) -> String {
        match self {
            Self::Read { path } => format!("{tool}\u{0}read\u{0}{}", path.absolute().display()),
            Self::Write { path, .. } => format!("{tool}\u{0}write\u{0}{}", path.absolute().display()),
            Self::Run { argv, cwd, network, .. } => {
                let tool = if *network { format!("{tool}\u{0}network") } else { tool.to_owned() };
                format!("{tool}\u{0}run\u{0}{}\u{0}{}", cwd.absolute().display(), argv.join("\u{0}"))
            }
            Self::Call { server, origin, tool: name, .. } => {
                format!("{tool}\u{0}call\u{0}{server}\u{0}{origin}\u{0}{name}")
            }
            Self::Converse => format!("{tool}\u{0}converse"),
        }
    }

    /// Reports whether the action can change anything outside the conversation.
    #[must_use]
    pub fn has_side_effect(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Converse => false,
            Self::Write { .. } | Self::Run { .. } | Self::Call { .. } => true,
        }
    }
}
