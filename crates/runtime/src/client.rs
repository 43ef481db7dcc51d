//! What a client lends a session: its open files, with what is not saved yet, and its terminals.
//! Nothing here decides whether something may be done: that was judged before anybody asks the client.

use std::{fmt, path::Path, sync::Arc};

use async_trait::async_trait;
use thiserror::Error;

/// What the client of a turn lends; what it does not offer is absent, so that it cannot be asked for.
#[derive(Clone, Default)]
pub struct ClientMeans {
    /// Reads text files.
    pub reader: Option<Arc<dyn ClientFiles>>,
    /// Writes text files.
    pub writer: Option<Arc<dyn ClientFiles>>,
    /// Runs programs where the user sees them, outside of the sandbox.
    pub terminals: Option<Arc<dyn ClientTerminals>>,
}

impl fmt::Debug for ClientMeans {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ClientMeans")
            .field("reader", &self.reader.is_some())
            .field("writer", &self.writer.is_some())
            .field("terminals", &self.terminals.is_some())
            .finish()
    }
}

/// Why the client did not do what it was asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ClientError {
    /// It was not asked: it had gone before.
    #[error("the client is not there")]
    Absent,
    /// It says that there is no such file.
    #[error("the client knows no such file")]
    Missing,
    /// It answered with an error; its text, short.
    #[error("the client answered with an error: {0}")]
    Refused(String),
    /// It did not answer in time.
    #[error("the client did not answer in time")]
    TimedOut,
    /// It went away before it answered.
    #[error("the client is gone")]
    Gone,
    /// It answered something else than the protocol says.
    #[error("the client's answer could not be understood")]
    Unclear,
    /// Too many of our questions are not answered yet.
    #[error("the client has not answered too many questions before")]
    Busy,
}

/// A part of a file, as the client is asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The first line, from 1; `None` is the first.
    pub first: Option<u32>,
    /// How many; `None` is all.
    pub count: Option<u32>,
}

/// The files of a client. Dropping a future withdraws the question.
#[async_trait]
pub trait ClientFiles: Send + Sync {
    /// Reads a text file, unsaved changes included. The path is absolute and without links.
    ///
    /// # Errors
    /// See [`ClientError`].
    async fn read(&self, path: &Path, lines: Lines) -> Result<String, ClientError>;

    /// Replaces the text of a file. The path is absolute and without links.
    ///
    /// # Errors
    /// See [`ClientError`]; after a time-out nobody knows whether it was written.
    async fn write(&self, path: &Path, content: &str) -> Result<(), ClientError>;
}

/// What runs in a terminal.
#[derive(Clone, Copy, Debug)]
pub struct TerminalProgram<'a> {
    /// Program and arguments.
    pub argv: &'a [String],
    /// Where it starts; absolute.
    pub cwd: &'a Path,
    /// Variables on top of the client's own.
    pub env: &'a [(&'a str, &'a str)],
    /// Bytes of output that the client keeps.
    pub max_output_bytes: u64,
}

/// The terminals of a client.
#[async_trait]
pub trait ClientTerminals: Send + Sync {
    /// Starts a program in a new terminal. When the future is dropped, a terminal that is made all the same is released.
    ///
    /// # Errors
    /// See [`ClientError`].
    async fn create(&self, program: TerminalProgram<'_>) -> Result<Box<dyn ClientTerminal>, ClientError>;
}

/// How a program in a terminal ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalExit {
    /// Its exit code, unless a signal ended it.
    pub code: Option<u32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

/// What a terminal has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalText {
    /// The text.
    pub text: String,
    /// Whether its beginning was cut off.
    pub cut: bool,
}

/// A terminal of a client. Dropping it releases it, which also ends what still runs in it.
#[async_trait]
pub trait ClientTerminal: Send + Sync {
    /// What the client calls it.
    fn id(&self) -> &str;

    /// Waits for the program's end.
    ///
    /// # Errors
    /// See [`ClientError`].
    async fn exited(&self) -> Result<TerminalExit, ClientError>;

    /// Reads what it has shown so far.
    ///
    /// # Errors
    /// See [`ClientError`].
    async fn output(&self) -> Result<TerminalText, ClientError>;

    /// Asks for the program's end. Nothing depends on it: not every client can.
    fn kill(&self);
}
