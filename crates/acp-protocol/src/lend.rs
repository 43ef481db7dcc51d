//! What an agent asks of its client's machine, files and terminals, and what comes back.
//! Requests borrow; answers are read as leniently as their meaning allows. Each needs the capability of the client.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// `fs/read_text_file`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadTextFile<'a> {
    /// The session.
    pub session_id: &'a str,
    /// Absolute.
    pub path: &'a str,
    /// The first line, from 1; absent means the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The number of lines; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// `fs/write_text_file`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteTextFile<'a> {
    /// The session.
    pub session_id: &'a str,
    /// Absolute.
    pub path: &'a str,
    /// The whole new text.
    pub content: &'a str,
}

/// `terminal/create`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateTerminal<'a> {
    /// The session.
    pub session_id: &'a str,
    /// The program.
    pub command: &'a str,
    /// Its arguments.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub args: &'a [String],
    /// Its further environment.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub env: &'a [EnvVariable<'a>],
    /// Absolute; absent means what the client chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<&'a str>,
    /// Bytes of output that are kept, the latest; absent means what the client chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_byte_limit: Option<u64>,
}

/// A variable of a terminal's program.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EnvVariable<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value.
    pub value: &'a str,
}

/// `terminal/output`, `terminal/wait_for_exit`, `terminal/kill` and `terminal/release`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalCall<'a> {
    /// The session.
    pub session_id: &'a str,
    /// The client's own id of it.
    pub terminal_id: &'a str,
}

/// The answer to `fs/read_text_file`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TextFile {
    /// The text, or the part that was asked for.
    pub content: String,
}

/// The answer to `terminal/create`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalCreated {
    /// What the client calls it.
    pub terminal_id: String,
}

/// How the program of a terminal ended; the answer to `terminal/wait_for_exit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminalExit {
    /// Its exit code; absent when a signal ended it.
    pub exit_code: Option<u32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

/// The answer to `terminal/output`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalOutput {
    /// What was printed.
    pub output: String,
    /// Whether the beginning was cut off.
    #[serde(default)]
    pub truncated: bool,
    /// How it ended; absent while it runs.
    #[serde(default)]
    pub exit_status: Option<TerminalExit>,
}

/// Reads the `result` member of an answer; `None` when it is not of the documented shape.
#[must_use]
pub fn read_answer<T: for<'de> Deserialize<'de>>(result: &RawValue) -> Option<T> {
    serde_json::from_str(result.get()).ok()
}
