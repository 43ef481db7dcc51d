//! Drives one program over its pipes: writes a line, reads lines, gives up after a deadline. It believes nothing: an
//! error answer, an early end or silence ends the benchmark with what the program said on its error output.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Longer than any turn of a benchmark; what is silent for so long hangs.
const DEADLINE: Duration = Duration::from_secs(120);
/// How a session update begins to be told from an answer without parsing it.
const UPDATE: &str = r#""method":"session/update""#;

/// A running program.
pub(super) struct Agent {
    child: Arc<Mutex<Child>>,
    pub(super) spawned: Instant,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: PathBuf,
    line: String,
    next_id: u64,
    /// Dropped when the agent is: the watchdog then lets go of the child.
    _alive: Sender<()>,
}

/// What came before an answer.
pub(super) struct Answer {
    pub(super) result: Value,
    pub(super) updates: usize,
    pub(super) took: Duration,
}

impl Agent {
    /// Starts a program with a home of its own and no other environment than a search path.
    pub(super) fn spawn<I, S>(program: &Path, arguments: I, home: &Path) -> Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let errors = home.join("stderr.log");
        let mut command = Command::new(program);
        command.args(arguments).current_dir(home).env_clear().env("HOME", home);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors)?);
        let spawned = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("no pipe for the output")?;
        let child = Arc::new(Mutex::new(child));
        let alive = watch(Arc::clone(&child));
        let output = BufReader::with_capacity(256 * 1024, output);
        Ok(Self { child, spawned, input, output, errors, line: String::new(), next_id: 1, _alive: alive })
    }

    /// Sends a request and reads until its answer, counting the updates before it.
    pub(super) fn request(&mut self, method: &str, params: &Value) -> Result<Answer> {
        let id = self.next_id;
        self.next_id += 1;
        let mut line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        line.push('\n');
        let began = Instant::now();
        let input = self.input.as_mut().context("the input is closed")?;
        if let Err(error) = input.write_all(line.as_bytes()).and_then(|()| input.flush()) {
            return Err(self.blame(&format!("does not read `{method}`: {error}")));
        }
        let mut updates = 0;
        loop {
            if !self.read_line()? {
                return Err(self.blame(&format!("ended before it answered `{method}`")));
            }
            if self.line.contains(UPDATE) {
                updates += 1;
                continue;
            }
            let took = began.elapsed();
            let mut message: Value =
                serde_json::from_str(&self.line).with_context(|| format!("not JSON: {}", self.line.trim_end()))?;
            if message["id"] == id && message.get("method").is_none() {
                if let Some(error) = message.get("error") {
                    let error = error.to_string();
                    return Err(self.blame(&format!("answered `{method}` with the error {error}")));
                }
                return Ok(Answer { result: message["result"].take(), updates, took });
            }
            if message.get("method").is_some() && message.get("id").is_some() {
                bail!("asked `{}` in the middle of a benchmark", message["method"]);
            }
        }
    }

    /// Introduces the client and opens a session; returns its id.
    pub(super) fn open_session(&mut self, project: &Path) -> Result<String> {
        self.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}))?;
        let answer = self.request("session/new", &json!({"cwd": project, "mcpServers": []}))?;
        let id = answer.result["sessionId"].as_str().context("no `sessionId` in the answer of session/new")?;
        Ok(id.to_owned())
    }

    /// Runs one prompt to its end.
    pub(super) fn prompt(&mut self, session: &str, text: &str) -> Result<Answer> {
        let prompt = json!([{"type": "text", "text": text}]);
        let answer = self.request("session/prompt", &json!({"sessionId": session, "prompt": prompt}))?;
        let reason = &answer.result["stopReason"];
        ensure!(reason == "end_turn", "the turn ended with {reason}");
        Ok(answer)
    }

    /// Resident memory in KiB, where the system tells it.
    pub(super) fn resident(&self) -> Option<u64> {
        let id = self.child.lock().unwrap_or_else(PoisonError::into_inner).id();
        resident_from(&std::fs::read_to_string(format!("/proc/{id}/status")).ok()?)
    }

    /// Closes the input and waits for the end, which has to be a good one.
    pub(super) fn finish(mut self) -> Result<()> {
        drop(self.input.take());
        while self.read_line()? {}
        let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait()?;
        if !status.success() {
            return Err(self.blame(&format!("ended with {status}")));
        }
        Ok(())
    }

    fn read_line(&mut self) -> Result<bool> {
        self.line.clear();
        Ok(self.output.read_line(&mut self.line).context("the output is not UTF-8")? > 0)
    }

    /// An error that carries the end of what the program wrote to its error output.
    fn blame(&self, what: &str) -> anyhow::Error {
        let log = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(5)..].join("\n  ");
        anyhow::anyhow!("the program {what}; its last words:\n  {tail}")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // After `finish` the child is gone and both calls do nothing.
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        drop(child.kill());
        drop(child.wait());
    }
}

/// Ends the child when its agent outlives the deadline; reading then sees the end of the output.
fn watch(child: Arc<Mutex<Child>>) -> Sender<()> {
    let (alive, dropped) = channel::<()>();
    std::thread::spawn(move || {
        if dropped.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("warning: no end after {} s, killing the program", DEADLINE.as_secs());
            drop(child.lock().unwrap_or_else(PoisonError::into_inner).kill());
        }
    });
    alive
}

/// The figure of the line `VmRSS:   1234 kB`.
pub(super) fn resident_from(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
