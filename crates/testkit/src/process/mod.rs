//! A child process that speaks newline-delimited JSON-RPC on its stdio, driven by a test.
//!
//! Owns the pipes, the check of every line the child prints, the transcript, and the automatic answers to permission
//! requests. It refuses leniency: a line that is not one JSON-RPC 2.0 object, an unexpected end of output, or silence
//! beyond the limit aborts the test with everything that was seen. Output is read only while the test asks for it, so
//! a child whose client stops reading feels the full pipe.

mod message;
mod pipes;

use std::{collections::VecDeque, path::Path, process::ExitStatus, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, ChildStdout, Command},
};

use pipes::{Input, Stderr};

/// How long a message or an exit is awaited unless a test sets another limit. It bounds only tests that have failed.
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);
/// How long output is awaited after the exit of the child; only a grandchild that holds the pipe makes it matter.
const AFTER_EXIT: Duration = Duration::from_secs(5);
/// Longest line accepted from the child; twice the limit that the agent has for its own input.
const MAX_LINE: usize = 64 * 1024 * 1024;
/// Messages kept in one transcript. A test with more has a loop that does not end.
const MAX_TRANSCRIPT: usize = 2_000_000;
/// Lines and characters of each that a failure report shows.
const REPORT_LINES: usize = 60;
const REPORT_CHARS: usize = 600;

/// Who wrote a line of the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The test wrote it to the child.
    Sent,
    /// The child printed it.
    Received,
}

/// One line of the conversation.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Who wrote it.
    pub direction: Direction,
    /// The text without its line end; bytes that are not UTF-8 are replaced.
    pub line: String,
}

/// A request the test has sent and not yet seen answered.
#[derive(Clone, Debug)]
pub struct RequestHandle {
    id: Value,
}

impl RequestHandle {
    /// The id on the wire.
    #[must_use]
    pub fn id(&self) -> &Value {
        &self.id
    }
}

/// What an automatic answer to `session/request_permission` says.
#[derive(Clone, Debug)]
pub enum Permission {
    /// The option with this id.
    Select(String),
    /// The outcome `cancelled`.
    Cancelled,
    /// A JSON-RPC error.
    Error {
        /// Error code.
        code: i64,
        /// Error message.
        message: String,
    },
    /// No answer; the test gives one itself with [`AgentProcess::reply`], or never.
    Unanswered,
}

type Responder = Box<dyn FnMut(&Value) -> Permission + Send>;

/// A command that sees nothing of the caller's environment but `PATH`, and has `home` as its home.
#[must_use]
pub fn hermetic(bin: &Path, home: &Path) -> Command {
    let mut command = Command::new(bin);
    command.env_clear().env("HOME", home).env("LANG", "C.UTF-8");
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// The running child. It is killed when the value is dropped.
pub struct AgentProcess {
    child: Child,
    pid: u32,
    input: Option<Input>,
    stdout: BufReader<ChildStdout>,
    /// The line being read; kept across calls so that a read given up half-way loses nothing.
    partial: Vec<u8>,
    stderr: Stderr,
    inbox: VecDeque<Value>,
    transcript: Vec<Entry>,
    next_id: u64,
    limit: Duration,
    responder: Option<Responder>,
}

impl AgentProcess {
    /// Starts the child with pipes for its three streams; the environment is the caller's choice ([`hermetic`]).
    #[must_use]
    pub fn spawn(command: impl Into<Command>) -> Self {
        let mut command = command.into();
        let pipe = std::process::Stdio::piped;
        command.stdin(pipe()).stdout(pipe()).stderr(pipe()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        Self {
            pid: child.id().expect("a child that was not awaited has an id"),
            child,
            input: Some(Input::start(stdin)),
            stdout: BufReader::new(stdout),
            partial: Vec::new(),
            stderr: Stderr::start(stderr),
            inbox: VecDeque::new(),
            transcript: Vec::new(),
            next_id: 1,
            limit: DEFAULT_LIMIT,
            responder: None,
        }
    }

    /// Another limit for every wait of this process.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Answers each permission request with this option, as soon as it has been read.
    pub fn auto_permit(&mut self, option_id: &str) {
        let option_id = option_id.to_owned();
        self.on_permission(move |_| Permission::Select(option_id.clone()));
    }

    /// Answers each permission request with what `responder` makes of its `params`, as soon as it has been read. The
    /// request still appears in [`AgentProcess::next`], so that its place in the order can be checked.
    pub fn on_permission(&mut self, responder: impl FnMut(&Value) -> Permission + Send + 'static) {
        self.responder = Some(Box::new(responder));
    }

    /// Operating system id of the child, also after its end.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Queues one line; the line feed is added. Waits only while many lines are queued.
    pub async fn send(&mut self, line: &str) {
        self.send_raw(format!("{line}\n").as_bytes()).await;
    }

    /// Queues bytes as they are, in one write.
    pub async fn send_raw(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        self.note(Direction::Sent, text.trim_end_matches('\n').to_owned());
        let Some(input) = &self.input else { self.fail("the test writes after it closed stdin") };
        if tokio::time::timeout(self.limit, input.write(bytes.to_vec())).await.is_err() {
            self.fail("the child does not read its stdin");
        }
    }

    /// Waits until everything queued so far is in the pipe. Blocks for ever, and so fails, if the child does not read.
    pub async fn flush(&mut self) {
        let Some(input) = &self.input else { return };
        if tokio::time::timeout(self.limit, input.flush()).await.is_err() {
            self.fail("the child does not read its stdin");
        }
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await;
    }

    /// Sends a request with a fresh number as id. [`AgentProcess::response`] awaits the answer.
    pub async fn request(&mut self, method: &str, params: Value) -> RequestHandle {
        let id = Value::from(self.next_id);
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()).await;
        RequestHandle { id }
    }

    /// Awaits the answer to a request: its result, or its error object. Whatever else comes first stays in order for
    /// [`AgentProcess::next`] and [`AgentProcess::collected`].
    ///
    /// # Errors
    /// The `error` member of the answer.
    pub async fn response(&mut self, request: &RequestHandle) -> Result<Value, Value> {
        let answers = |message: &Value| message::is_response(message) && message["id"] == request.id;
        let at = match self.inbox.iter().position(answers) {
            Some(at) => at,
            None => loop {
                let message = self.read(&format!("the response to request {}", request.id)).await;
                let found = answers(&message);
                self.inbox.push_back(message);
                if found {
                    break self.inbox.len() - 1;
                }
            },
        };
        let mut message = self.inbox.remove(at).expect("the position was just found");
        match message.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(message["result"].take()),
        }
    }

    /// [`AgentProcess::request`] and [`AgentProcess::response`] in one.
    ///
    /// # Errors
    /// The `error` member of the answer.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let request = self.request(method, params).await;
        self.response(&request).await
    }

    /// Answers a request of the child with a result.
    pub async fn reply(&mut self, id: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()).await;
    }

    /// Answers a request of the child with an error.
    pub async fn reply_error(&mut self, id: &Value, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()).await;
    }

    /// The next message that no other call has handed out. Fails at the end of output.
    pub async fn next(&mut self) -> Value {
        match self.inbox.pop_front() {
            Some(message) => message,
            None => self.read("a message").await,
        }
    }

    /// The next message, or `None` at the end of output.
    pub async fn next_or_end(&mut self) -> Option<Value> {
        match self.inbox.pop_front() {
            Some(message) => Some(message),
            None => self.read_or_end("a message or the end of output").await,
        }
    }

    /// Messages up to and including the first that `pred` accepts.
    pub async fn recv_until(&mut self, mut pred: impl FnMut(&Value) -> bool) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            let message = self.next().await;
            let found = pred(&message);
            messages.push(message);
            if found {
                return messages;
            }
        }
    }

    /// Every message up to the end of output.
    pub async fn drain(&mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some(message) = self.next_or_end().await {
            messages.push(message);
        }
        messages
    }

    /// Takes the messages that were read on the way to a response and not handed out; reads nothing.
    pub fn collected(&mut self) -> Vec<Value> {
        self.inbox.drain(..).collect()
    }

    /// Everything said so far, in the order the test wrote or read it.
    #[must_use]
    pub fn transcript(&self) -> &[Entry] {
        &self.transcript
    }

    /// Every message of the child that was read so far.
    #[must_use]
    pub fn received(&self) -> Vec<Value> {
        let received = self.transcript.iter().filter(|entry| entry.direction == Direction::Received);
        received.map(|entry| serde_json::from_str(&entry.line).expect("received lines were checked")).collect()
    }

    /// The `params` of every `session/update` read so far.
    #[must_use]
    pub fn updates(&self) -> Vec<Value> {
        let updates = self.received().into_iter().filter(|message| message["method"] == "session/update");
        updates.map(|mut message| message["params"].take()).collect()
    }

    /// Closes stdin once everything queued has been written.
    pub fn close_stdin(&mut self) {
        self.input = None;
    }

    /// Awaits the end of the child while its output is read on; messages stay for [`AgentProcess::next`]. Stdin stays
    /// as it is.
    pub async fn wait(&mut self) -> ExitStatus {
        let deadline = tokio::time::Instant::now() + self.limit;
        let mut ended = false;
        let status = loop {
            tokio::select! {
                biased;
                status = self.child.wait() => break status.expect("the child can be awaited"),
                line = read_line(&mut self.stdout, &mut self.partial), if !ended => match line {
                    Some(read) => {
                        let message = self.accept(read).await;
                        self.inbox.push_back(message);
                    }
                    None => ended = true,
                },
                () = tokio::time::sleep_until(deadline) => self.fail("the child does not end"),
            }
        };
        while !ended {
            match tokio::time::timeout(AFTER_EXIT, read_line(&mut self.stdout, &mut self.partial)).await {
                Ok(Some(read)) => {
                    let message = self.accept(read).await;
                    self.inbox.push_back(message);
                }
                Ok(None) | Err(_) => ended = true,
            }
        }
        if !self.partial.is_empty() {
            self.fail("the output ends inside a line");
        }
        self.stderr.ended(AFTER_EXIT).await;
        status
    }

    /// Kills the child with no chance to clean up, and awaits its end.
    pub async fn kill9(&mut self) -> ExitStatus {
        self.child.start_kill().expect("a running child can be killed");
        let waited = tokio::time::timeout(self.limit, self.child.wait()).await;
        waited.unwrap_or_else(|_| self.fail("the child outlives SIGKILL")).expect("the child can be awaited")
    }

    /// Asks the child to end: SIGTERM.
    #[cfg(unix)]
    pub fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Interrupts the child: SIGINT.
    #[cfg(unix)]
    pub fn interrupt(&self) {
        self.signal(rustix::process::Signal::INT);
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        assert!(self.child.id().is_some(), "a signal to a child that has been awaited would hit a stranger");
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw).expect("a pid is positive");
        rustix::process::kill_process(pid, signal).expect("an own child can be signalled");
    }

    /// What the child has written to stderr so far; of very much, the last part. Complete after [`AgentProcess::wait`].
    #[must_use]
    pub fn stderr_text(&self) -> String {
        self.stderr.text()
    }

    async fn read(&mut self, what: &str) -> Value {
        match self.read_or_end(what).await {
            Some(message) => message,
            None => self.fail(&format!("the output ended while waiting for {what}")),
        }
    }

    async fn read_or_end(&mut self, what: &str) -> Option<Value> {
        match tokio::time::timeout(self.limit, read_line(&mut self.stdout, &mut self.partial)).await {
            Ok(Some(read)) => Some(self.accept(read).await),
            Ok(None) if self.partial.is_empty() => None,
            Ok(None) => self.fail("the output ends inside a line"),
            Err(_) => self.fail(&format!("waited {:?} for {what}", self.limit)),
        }
    }

    /// Checks a line, writes it down, and answers it if it is a permission request.
    async fn accept(&mut self, read: std::io::Result<Vec<u8>>) -> Value {
        let line = read.unwrap_or_else(|error| self.fail(&format!("reading stdout failed: {error}")));
        self.note(Direction::Received, String::from_utf8_lossy(&line).into_owned());
        let message = message::parse(&line).unwrap_or_else(|fault| self.fail(&format!("bad line on stdout: {fault}")));
        if message["method"] == "session/request_permission" && message.get("id").is_some() {
            self.permit(&message).await;
        }
        message
    }

    async fn permit(&mut self, request: &Value) {
        let Some(responder) = &mut self.responder else { return };
        let outcome = match responder(&request["params"]) {
            Permission::Select(option) => json!({"outcome": "selected", "optionId": option}),
            Permission::Cancelled => json!({"outcome": "cancelled"}),
            Permission::Error { code, message } => {
                self.reply_error(&request["id"], code, &message).await;
                return;
            }
            Permission::Unanswered => return,
        };
        self.reply(&request["id"], json!({"outcome": outcome})).await;
    }

    fn note(&mut self, direction: Direction, line: String) {
        assert!(self.transcript.len() < MAX_TRANSCRIPT, "more than {MAX_TRANSCRIPT} lines in a transcript");
        self.transcript.push(Entry { direction, line });
    }

    /// Ends the test with what was seen.
    fn fail(&self, what: &str) -> ! {
        let skipped = self.transcript.len().saturating_sub(REPORT_LINES);
        let mut report = format!("{what}\n--- transcript (pid {}, {skipped} earlier lines left out)\n", self.pid);
        for entry in &self.transcript[skipped..] {
            let mark = match entry.direction {
                Direction::Sent => "-->",
                Direction::Received => "<--",
            };
            report.push_str(&format!("{mark} {}\n", shorten(&entry.line)));
        }
        if !self.partial.is_empty() {
            report.push_str(&format!("<-- (no line end yet) {}\n", shorten(&String::from_utf8_lossy(&self.partial))));
        }
        report.push_str(&format!("--- stderr\n{}", self.stderr.tail()));
        panic!("{report}");
    }
}

fn shorten(line: &str) -> String {
    match line.char_indices().nth(REPORT_CHARS) {
        Some((at, _)) => format!("{}… ({} bytes)", &line[..at], line.len()),
        None => line.to_owned(),
    }
}

/// The next line without its line feed; `None` at the end, with an unfinished line left in `partial`. Safe to give up:
/// what was read so far stays in `partial`.
async fn read_line(stdout: &mut BufReader<ChildStdout>, partial: &mut Vec<u8>) -> Option<std::io::Result<Vec<u8>>> {
    let room = (MAX_LINE + 1 - partial.len()) as u64;
    if let Err(error) = stdout.take(room).read_until(b'\n', partial).await {
        return Some(Err(error));
    }
    if partial.last() == Some(&b'\n') {
        partial.pop();
        return Some(Ok(std::mem::take(partial)));
    }
    if partial.len() > MAX_LINE {
        return Some(Err(std::io::Error::other(format!("a line over {MAX_LINE} bytes"))));
    }
    None
}
