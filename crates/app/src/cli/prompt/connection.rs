//! The client's end of one ACP connection: the child process, lines, request ids, and telling messages apart.
//!
//! It knows no method; what a message means is the business of the flow.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The longest line taken from an agent; agents in the field send files inline, none of them near this.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;
/// Messages read ahead; then the agent waits for the terminal.
const MAX_QUEUED: usize = 256;
/// How much of the agent's standard error is kept to explain its death.
const MAX_STDERR_BYTES: usize = 8 * 1024;
/// How long the agent may take to end after its input ended: it commits its store in that time.
const GRACE: Duration = Duration::from_secs(5);
/// How long to wait for the rest of the standard error, which a grandchild may keep open.
const STDERR_PATIENCE: Duration = Duration::from_millis(500);

/// One message of the agent.
#[derive(Debug)]
pub(super) enum Incoming {
    Response {
        id: u64,
        result: Result<Box<RawValue>, RpcError>,
    },
    Request {
        id: Value,
        method: String,
        params: Box<RawValue>,
    },
    Notification {
        method: String,
        params: Box<RawValue>,
    },
    /// A line that is no message, or one that is too long; the beginning of it.
    Garbage(String),
}

/// An error answer, read leniently: a malformed error still ends the request it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Value,
}

impl RpcError {
    fn read(mut error: Value) -> Self {
        Self {
            code: error["code"].as_i64().unwrap_or_default(),
            message: error["message"].as_str().unwrap_or_default().to_owned(),
            data: error.get_mut("data").map(Value::take).unwrap_or_default(),
        }
    }
}

/// Two directions of messages. Dropping it ends the agent's input after everything queued is written.
pub(super) struct Connection {
    writer: mpsc::Sender<Vec<u8>>,
    incoming: mpsc::Receiver<Incoming>,
    next_id: u64,
}

/// The agent went away while something was to be sent.
#[derive(Debug, thiserror::Error)]
#[error("the agent does not read any more")]
pub(super) struct Gone;

impl Connection {
    /// Starts to read and write; needs a running runtime.
    pub(super) fn new(
        output: impl AsyncRead + Send + Unpin + 'static,
        mut input: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let (writer, mut lines) = mpsc::channel::<Vec<u8>>(MAX_QUEUED);
        let (sender, incoming) = mpsc::channel(MAX_QUEUED);
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                // An agent that closed its input has ended or will; the reading side finds out.
                if input.write_all(&line).await.is_err() || input.flush().await.is_err() {
                    break;
                }
            }
            let _ = input.shutdown().await;
        });
        tokio::spawn(async move {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            while let Ok(Some(is_whole)) = read_line(&mut reader, &mut line, MAX_LINE_BYTES).await {
                let message = if is_whole { classify(&line) } else { Some(garbage(&line)) };
                if let Some(message) = message {
                    // Without a listener it is read on and dropped: the agent must not block while it ends.
                    let _ = sender.send(message).await;
                }
            }
        });
        Self { writer, incoming, next_id: 1 }
    }

    /// Sends a request and returns the id that its response will carry.
    pub(super) async fn request(&mut self, method: &str, params: Value) -> Result<u64, Gone> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        Ok(id)
    }

    pub(super) async fn notify(&self, method: &str, params: Value) -> Result<(), Gone> {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await
    }

    pub(super) async fn answer(&self, id: &Value, result: Value) -> Result<(), Gone> {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await
    }

    pub(super) async fn refuse(&self, id: &Value, code: i64, message: &str) -> Result<(), Gone> {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})).await
    }

    /// The next message; `None` when the agent's output has ended.
    pub(super) async fn next(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }

    async fn send(&self, message: &Value) -> Result<(), Gone> {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        self.writer.send(line).await.map_err(|_| Gone)
    }
}

/// Reads one line without its line feed; `Some(false)` for one that was longer than the limit, of which only the
/// beginning is kept, `None` at the end. A last line without a line feed counts.
async fn read_line(
    reader: &mut (impl AsyncBufReadExt + Unpin),
    line: &mut Vec<u8>,
    limit: usize,
) -> io::Result<Option<bool>> {
    line.clear();
    let mut is_whole = true;
    let mut is_empty = true;
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok((!is_empty).then_some(is_whole));
        }
        is_empty = false;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let body = &chunk[..end.unwrap_or(chunk.len())];
        if line.len() + body.len() > limit {
            is_whole = false;
            line.truncate(1024);
        }
        if is_whole {
            line.extend_from_slice(body);
        }
        let used = end.map_or(chunk.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(is_whole));
        }
    }
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    jsonrpc: Value,
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present_raw")]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Value>,
}

/// Tells a member that is null from one that is absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn present_raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Tells what a line is; `None` for a blank one. Only an envelope of version 2.0 is a message: JSON that a library printed
/// must not be taken for a response.
fn classify(line: &[u8]) -> Option<Incoming> {
    let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    if text.is_empty() {
        return None;
    }
    let Ok(envelope) = serde_json::from_slice::<Envelope>(text) else { return Some(garbage(line)) };
    if envelope.jsonrpc != "2.0" {
        return Some(garbage(line));
    }
    let params = envelope.params.unwrap_or_else(|| RawValue::NULL.to_owned());
    Some(match (envelope.method, envelope.id) {
        (Some(method), Some(id)) => Incoming::Request { id, method, params },
        (Some(method), None) => Incoming::Notification { method, params },
        (None, id) => {
            // We send numbers only, so nobody waits for a response to anything else.
            let Some(id) = id.as_ref().and_then(Value::as_u64) else { return Some(garbage(line)) };
            let result = match (envelope.result, envelope.error) {
                (_, Some(error)) => Err(RpcError::read(error)),
                (Some(result), None) => Ok(result),
                (None, None) => Err(RpcError {
                    code: 0,
                    message: "the response has neither a result nor an error".to_owned(),
                    data: Value::Null,
                }),
            };
            Incoming::Response { id, result }
        }
    })
}

fn garbage(line: &[u8]) -> Incoming {
    let beginning = line.get(..200).unwrap_or(line);
    Incoming::Garbage(String::from_utf8_lossy(beginning).into_owned())
}

/// The agent's process.
pub(super) struct Agent {
    child: Child,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    collecting: JoinHandle<()>,
}

impl Agent {
    /// Starts the agent in a process group of its own, so that a Ctrl-C at the terminal reaches only us.
    pub(super) fn start(command: &[OsString], cwd: &Path) -> anyhow::Result<(Self, Connection)> {
        let (program, arguments) = command.split_first().context("the agent's command is empty")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut child =
            command.spawn().with_context(|| format!("cannot start the agent `{}`", program.to_string_lossy()))?;
        let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            anyhow::bail!("the agent has no standard streams");
        };
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let collecting = tokio::spawn(collect(errors, Arc::clone(&stderr)));
        Ok((Self { child, stderr, collecting }, Connection::new(output, input)))
    }

    /// Waits for the process, whose input has been closed, to end by itself; after a while it is killed.
    pub(super) async fn wait(&mut self) -> Option<ExitStatus> {
        if let Ok(status) = tokio::time::timeout(GRACE, self.child.wait()).await {
            return status.ok();
        }
        self.kill().await;
        None
    }

    /// Kills the process and everything in its group.
    pub(super) async fn kill(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
            // It may have ended in between, which is what is wanted.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill().await;
    }

    /// The end of what the agent wrote to its standard error.
    pub(super) async fn stderr_tail(&mut self) -> String {
        let _ = tokio::time::timeout(STDERR_PATIENCE, &mut self.collecting).await;
        let kept = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

async fn collect(mut errors: impl AsyncRead + Unpin, kept: Arc<Mutex<VecDeque<u8>>>) {
    let mut chunk = vec![0; 4096];
    while let Ok(count @ 1..) = errors.read(&mut chunk).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&chunk[..count]);
        let surplus = kept.len().saturating_sub(MAX_STDERR_BYTES);
        kept.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> String {
        match classify(line.as_bytes()) {
            None => "blank".to_owned(),
            Some(Incoming::Response { id, result: Ok(result) }) => format!("result {id} {}", result.get()),
            Some(Incoming::Response { id, result: Err(error) }) => format!("error {id} {}", error.code),
            Some(Incoming::Request { id, method, .. }) => format!("request {id} {method}"),
            Some(Incoming::Notification { method, .. }) => format!("notification {method}"),
            Some(Incoming::Garbage(_)) => "garbage".to_owned(),
        }
    }

    #[test]
    fn lines_are_told_apart_by_their_members() {
        for (line, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "result 1 {}"),
            (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "result 1 null"),
            (r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"m"}}"#, "error 2 -32000"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, "request null m"),
            (
                r#"{"jsonrpc":"2.0","id":"zc-out-0","method":"session\/x","result":{}}"#,
                "request \"zc-out-0\" session/x",
            ),
            (r#"{"jsonrpc":"2.0","method":"session/update","params":{}}"#, "notification session/update"),
            (r#"{"id":1,"level":"info"}"#, "garbage"),
            (r#"{"id":1,"result":{}}"#, "garbage"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "error 1 0"),
            (r#"{"jsonrpc":"2.0","id":1,"error":"odd"}"#, "error 1 0"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#, "result 1 {}"),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#, "garbage"),
            (r#"{"jsonrpc":"2.0","id":"1","result":{}}"#, "garbage"),
            (r#"[1]"#, "garbage"),
            ("starting up...", "garbage"),
            ("  \r", "blank"),
            ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":1}\r", "result 3 1"),
        ] {
            assert_eq!(kind(line), expected, "{line}");
        }
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_skipped_and_the_next_one_is_read() {
        let text: &[u8] = b"0123456789\nshort\nlast";
        let mut reader = BufReader::with_capacity(3, text);
        let mut line = Vec::new();
        assert_eq!(read_line(&mut reader, &mut line, 8).await.unwrap(), Some(false));
        assert_eq!(read_line(&mut reader, &mut line, 8).await.unwrap(), Some(true));
        assert_eq!(line, b"short");
        assert_eq!(read_line(&mut reader, &mut line, 8).await.unwrap(), Some(true));
        assert_eq!(line, b"last");
        assert_eq!(read_line(&mut reader, &mut line, 8).await.unwrap(), None);
    }

    #[tokio::test]
    async fn only_the_tail_of_the_errors_is_kept() {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let mut text = vec![b'x'; MAX_STDERR_BYTES * 3];
        text.extend_from_slice(b"the end");
        collect(text.as_slice(), Arc::clone(&kept)).await;
        let kept: Vec<u8> = kept.lock().unwrap().iter().copied().collect();
        assert_eq!(kept.len(), MAX_STDERR_BYTES);
        assert!(kept.ends_with(b"the end"));
    }
}
