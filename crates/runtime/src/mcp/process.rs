//! The process of a server that speaks over its standard streams: started through the launcher, its complaints kept in part,
//! and ended in steps that leave nothing behind.

use std::{
    io,
    os::fd::OwnedFd,
    path::Path,
    pin::Pin,
    process::Stdio,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessSession};
use tokio::{
    io::{AsyncRead, AsyncReadExt, ReadBuf},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe::Receiver},
    },
    process::Command,
    task::JoinHandle,
    time::timeout,
};

use crate::{
    launch::Report,
    mcp::McpHost,
    sandbox::{Purpose, Wrapped},
    tool::{Launcher, output::Utf8Stream, shell::lifeline::Lifeline},
};

/// Time for a server to end after its input has ended (MCP, "Shutdown"); then it is asked by signal, then killed.
const CLOSE: Duration = Duration::from_millis(700);

/// Time for a server to end after it was asked by signal.
const GRACE: Duration = Duration::from_millis(500);

/// Time for a killed process to be gone.
const REAP: Duration = Duration::from_secs(2);

/// The longest that the end takes.
pub(super) const STOP_LIMIT: Duration = Duration::from_millis(3500);

/// Bytes of what a server complains that are kept: the last ones, where the reason of its end is.
const COMPLAINTS: usize = 2048;

/// Time for what a dead server has written to be read.
const DRAIN: Duration = Duration::from_millis(200);

const SIGTERM: i32 = 15;

/// Bytes of one line of a server, at most: room for the largest attachment that is kept, in base64. The reader behind it
/// drops a longer one without a word, and whoever waits for what is in it would wait out the call's limit; so the server
/// is ended.
pub(super) const MAX_LINE: usize = 16 * 1024 * 1024;

/// What a server writes, up to a line that is too long.
pub(super) struct Lines {
    inner: OwnedReadHalf,
    /// Bytes since the last line feed.
    length: usize,
    too_long: Arc<AtomicBool>,
}

impl AsyncRead for Lines {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.too_long.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        for part in buf.filled().get(before..).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
            self.length += part.len() - usize::from(part.ends_with(b"\n"));
            if self.length > MAX_LINE {
                // Nothing of it is handed on, which is the end of the input.
                self.too_long.store(true, Ordering::Release);
                buf.set_filled(before);
                break;
            }
            if part.ends_with(b"\n") {
                self.length = 0;
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// How a process ended.
pub(super) enum Ending {
    /// It never ran; this is why.
    NotStarted(String),
    /// What it said last, as the end of a sentence; empty when it said nothing.
    Ran(String),
}

impl Ending {
    /// The end of a sentence about a server that had been there.
    pub(super) fn words(self) -> String {
        match self {
            Self::NotStarted(why) => format!(" ({why})"),
            Self::Ran(said) => said,
        }
    }
}

/// A server's process. Dropped, it is killed with everything it started.
pub(super) struct Program {
    child: Box<dyn ChildWrapper>,
    lifeline: Option<Lifeline>,
    complaints: Arc<Mutex<String>>,
    listener: JoinHandle<()>,
    alive: bool,
}

impl Program {
    /// Starts a server; its standard input and output are one socket.
    pub(super) async fn start(
        command: &Path,
        args: &[String],
        env: &[(String, String)],
        host: &McpHost,
    ) -> Result<(Self, Lines, OwnedWriteHalf), String> {
        let failed = |error: io::Error| error.to_string();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let theirs = OwnedFd::from(theirs);
        let (errors, stderr) = io::pipe().map_err(failed)?;
        let wrapped = wrap(command, args, host).await?;
        let (name, args) = wrapped.argv.split_first().ok_or("there is no program to start")?;
        let (mut program, lifeline) = match &host.launcher {
            None if wrapped.order.confine.is_some() => return Err("the sandbox needs a launcher".to_owned()),
            None => {
                let mut program = Command::new(name);
                program.stdin(theirs.try_clone().map_err(failed)?);
                (program, None)
            }
            Some(Launcher { program, argument }) => {
                let (lifeline, end) = Lifeline::new(&wrapped.order).map_err(failed)?;
                let mut launcher = Command::new(program);
                launcher.args([argument.as_str(), "--", crate::launch::DUPLEX, "--"]).arg(name).stdin(end);
                (launcher, Some(lifeline))
            }
        };
        program.args(args).env_clear().envs(host.env.iter().cloned());
        // What the server was configured with comes last.
        program.envs(wrapped.env.iter().map(|(name, value)| (name, value))).envs(env.iter().cloned());
        program.current_dir(&host.cwd).stdout(Stdio::from(theirs)).stderr(stderr);
        // The command is dropped with this statement and closes its ends: only the child's are left.
        let child = CommandWrap::from(program).wrap(ProcessSession).spawn().map_err(|error| {
            let launched = if host.launcher.is_some() { "the launcher" } else { "the program" };
            format!("{launched} cannot be run: {error}")
        })?;
        let complaints = Arc::new(Mutex::new(String::new()));
        let errors = Receiver::from_owned_fd(errors.into()).map_err(failed)?;
        let listener = tokio::spawn(listen(errors, Arc::clone(&complaints)));
        let (reader, writer) = UnixStream::from_std(ours).map_err(failed)?.into_split();
        let reader = Lines { inner: reader, length: 0, too_long: Arc::default() };
        Ok((Self { child, lifeline, complaints, listener, alive: true }, reader, writer))
    }

    /// Ends the process, whose input has ended already.
    pub(super) async fn end(mut self) -> Ending {
        if timeout(CLOSE, self.exit()).await.is_err() {
            match &self.lifeline {
                Some(lifeline) => lifeline.terminate(),
                // It fails when nobody is left, which is what is wanted.
                None => drop(self.child.signal(SIGTERM)),
            }
            let _ = timeout(GRACE, self.exit()).await;
        }
        self.kill();
        if timeout(REAP, self.exit()).await.is_err() {
            tracing::warn!(event = "mcp_process_stuck", "the process of an MCP server does not end");
        }
        self.alive = false;
        // Its last words may still be on their way.
        let _ = timeout(DRAIN, &mut self.listener).await;
        let not_started = match self.lifeline.as_ref().and_then(Lifeline::report) {
            Some(Report::NotStarted { errno }) => Some(("the program cannot be run", errno)),
            Some(Report::NotConfined { errno }) => Some(("the sandbox cannot be set up", errno)),
            Some(Report::Ended { .. } | Report::TooMany) | None => None,
        };
        if let Some((what, errno)) = not_started {
            return Ending::NotStarted(match errno {
                0 => what.to_owned(),
                errno => format!("{what}: {}", io::Error::from_raw_os_error(errno)),
            });
        }
        let complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        Ending::Ran(match complaints.trim() {
            "" => String::new(),
            said => format!(" (it said: {said})"),
        })
    }

    async fn exit(&mut self) {
        // An error means that there is nothing to wait for.
        let _ = self.child.inner_mut().wait().await;
    }

    fn kill(&mut self) {
        match &self.lifeline {
            Some(lifeline) => lifeline.end(),
            None => drop(self.child.start_kill()),
        }
    }
}

impl Lines {
    /// Set when a line was too long.
    pub(super) fn too_long(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.too_long)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.alive {
            self.kill();
        }
    }
}

/// Prepares a server for the sandbox, on a thread that may block.
async fn wrap(command: &Path, args: &[String], host: &McpHost) -> Result<Wrapped, String> {
    let argv = std::iter::once(command.into()).chain(args.iter().map(Into::into)).collect();
    let host = host.clone();
    let wrapped =
        tokio::task::spawn_blocking(move || host.sandbox.wrap(&host.jail, &host.rules, argv, Purpose::Server));
    wrapped.await.map_err(|_| "preparing the sandbox broke off".to_owned())?.map_err(|error| error.to_string())
}

/// Keeps the end of what a server writes to its standard error, which may be without end.
async fn listen(mut errors: Receiver, complaints: Arc<Mutex<String>>) {
    let mut buffer = vec![0; 4096];
    let mut decoder = Utf8Stream::default();
    loop {
        let text = match errors.read(&mut buffer).await {
            Ok(count) if count > 0 => decoder.push(buffer.get(..count).unwrap_or_default()),
            Ok(_) | Err(_) => return,
        };
        let mut kept = complaints.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_str(&text);
        if kept.len() > COMPLAINTS {
            let cut = kept.ceil_char_boundary(kept.len() - COMPLAINTS);
            kept.drain(..cut);
            // Half a word could be half a secret, which nobody would find to blank it out.
            let whole = kept.find(char::is_whitespace).unwrap_or(kept.len());
            kept.drain(..whole);
        }
    }
}
