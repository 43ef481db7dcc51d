//! The life of one child process: its own session, its output as it comes, and an end that leaves nothing behind.
//!
//! The call ends when the program itself ends, not when the last process that holds its output does. With a launcher between
//! (see [`launch`](crate::launch)), that also holds for processes that leave the session, and when this process is killed.

use std::{
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessSession};
use rustix::process::{Pid, test_kill_process_group};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    process::Command,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    jail::OpenedDirectory,
    launch::Report,
    sandbox::Wrapped,
    tool::{
        Progress, ToolContext, ToolFailure,
        output::{BoundedText, Utf8Stream},
        shell::{lifeline::Lifeline, members},
    },
};

/// Time between the request to end and the kill.
const GRACE: Duration = Duration::from_millis(500);

/// Time for the rest of the output, and for background processes to end by themselves, after the program ended.
const LINGER: Duration = Duration::from_millis(300);

/// Time for the output of killed processes; only one that left the session can keep it open longer.
const DRAIN: Duration = Duration::from_millis(200);

/// Time for a killed process to be gone.
const REAP: Duration = Duration::from_secs(2);

/// How often it is looked whether the group is empty.
const POLL: Duration = Duration::from_millis(20);

/// Bytes read at once.
const CHUNK: usize = 16 * 1024;

/// What keeps programs from waiting for a person, unless the settings say otherwise.
const DEFAULTS: [(&str, &str); 5] =
    [("EDITOR", "true"), ("GIT_EDITOR", "true"), ("GIT_PAGER", "cat"), ("PAGER", "cat"), ("TERM", "dumb")];

const SIGTERM: i32 = 15;

/// What to run.
pub(super) struct Program {
    pub(super) wrapped: Wrapped,
    pub(super) directory: OpenedDirectory,
    pub(super) timeout: Duration,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    /// It had more processes than it may.
    TooMany,
}

/// What is left of a program.
pub(super) struct Finished {
    pub(super) output: String,
    pub(super) ended: Ended,
    /// Whether processes of its group were still there and were killed.
    pub(super) background: bool,
}

/// Runs a program to its end.
pub(super) async fn run(
    program: Program,
    context: &ToolContext,
    progress: &dyn Progress,
) -> Result<Finished, ToolFailure> {
    let (mut group, reader) = spawn(&program, context)?;
    let deadline = Instant::now() + program.timeout;
    let mut output = Output::new(reader, context.settings.max_output_bytes, progress);
    let stop = tokio::select! {
        biased;
        () = context.cancel.cancelled() => Some(Stop::Cancelled),
        () = sleep_until(deadline) => Some(Stop::TimedOut),
        () = output.until_exit(&mut group) => None,
    };
    let mut left_behind = false;
    if stop.is_some() {
        group.terminate();
        tokio::select! {
            () = output.until_exit(&mut group) => {}
            () = sleep(GRACE) => {}
        }
    } else if group.lifeline.is_none() {
        left_behind = output.linger(&mut group).await;
    }
    // Members of the group may ignore the request, also when the program itself did not.
    group.kill();
    // A process that hangs in the kernel does not even follow a kill; the turn does not hang with it.
    let gone = timeout(REAP, output.until_exit(&mut group)).await;
    tokio::select! {
        () = output.until_end() => {}
        () = sleep(DRAIN) => {}
    }
    let text = output.finish();
    let end = match gone {
        Ok(()) => group.reap().await,
        Err(_) => {
            group.abandon().await;
            Err(lost("it does not end"))
        }
    };
    let (ended, background) = match stop {
        Some(Stop::Cancelled) => return Err(ToolFailure::Cancelled),
        Some(Stop::TimedOut) => (Ended::TimedOut, false),
        None => end?,
    };
    Ok(Finished { output: text, ended, background: background || left_behind })
}

#[derive(Clone, Copy)]
enum Stop {
    Cancelled,
    TimedOut,
}

fn spawn(program: &Program, context: &ToolContext) -> Result<(Group, Receiver), ToolFailure> {
    let failed = |error: std::io::Error| ToolFailure::Failed(format!("the command could not be started: {error}"));
    let (name, arguments) = program
        .wrapped
        .argv
        .split_first()
        .ok_or_else(|| ToolFailure::Failed("there is no program to run".to_owned()))?;
    let (mut command, stdin, lifeline) = match &context.settings.launcher {
        None if program.wrapped.order.confine.is_some() => {
            return Err(ToolFailure::Failed("the sandbox needs a launcher, and there is none".to_owned()));
        }
        None => (Command::new(name), Stdio::null(), None),
        Some(launcher) => {
            let (lifeline, theirs) = Lifeline::new(&program.wrapped.order).map_err(failed)?;
            let mut command = Command::new(&launcher.program);
            command.args([launcher.argument.as_str(), "--"]).arg(name);
            (command, Stdio::from(theirs), Some(lifeline))
        }
    };
    command.args(arguments).env_clear().envs(DEFAULTS).envs(context.settings.shell_env.iter().cloned());
    command.envs(program.wrapped.env.iter().map(|(name, value)| (name, value)));
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    command.stdin(stdin).stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    command.current_dir(entry(&program.directory)?);
    let reader = Receiver::from_owned_fd(reader.into()).map_err(failed)?;
    // The command is dropped with this statement and closes its ends of the pipe: only the child's are left.
    let child = CommandWrap::from(command).wrap(ProcessSession).spawn().map_err(failed)?;
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    Ok((Group { child, id, lifeline, alive: true }, reader))
}

/// The path by which the child enters its directory.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn entry(directory: &OpenedDirectory) -> Result<std::path::PathBuf, ToolFailure> {
    use std::os::fd::AsRawFd;
    // The child still has the descriptor when it changes directory, so no name is looked up and none can be swapped.
    let by_handle = std::path::PathBuf::from(format!("/proc/self/fd/{}", directory.dir.as_raw_fd()));
    if by_handle.exists() { Ok(by_handle) } else { by_name(directory) }
}

/// The path by which the child enters its directory.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn entry(directory: &OpenedDirectory) -> Result<std::path::PathBuf, ToolFailure> {
    by_name(directory)
}

/// The directory's name, when it still names the opened directory.
fn by_name(directory: &OpenedDirectory) -> Result<std::path::PathBuf, ToolFailure> {
    use std::os::unix::fs::MetadataExt;

    use cap_std::fs::MetadataExt as _;
    let moved = || ToolFailure::Failed("the working directory was moved while the command was started".to_owned());
    let opened = directory.dir.dir_metadata().map_err(|_| moved())?;
    let named = std::fs::symlink_metadata(&directory.real).map_err(|_| moved())?;
    if (opened.dev(), opened.ino()) == (MetadataExt::dev(&named), MetadataExt::ino(&named)) {
        Ok(directory.real.clone())
    } else {
        Err(moved())
    }
}

/// A child with everything it started: in its session, and with a launcher wherever it went. Dropped, it is killed.
struct Group {
    /// The launcher, or without one the program itself.
    child: Box<dyn ChildWrapper>,
    id: Option<Pid>,
    lifeline: Option<Lifeline>,
    alive: bool,
}

impl Group {
    /// Asks the program and what is in its group to end.
    fn terminate(&self) {
        match &self.lifeline {
            Some(lifeline) => lifeline.terminate(),
            // It fails when nobody is left, which is what is wanted.
            None => drop(self.child.signal(SIGTERM)),
        }
    }

    /// Kills everything. A launcher is not killed itself: it is what reaches those who left the session.
    fn kill(&mut self) {
        match &self.lifeline {
            Some(lifeline) => lifeline.end(),
            None => drop(self.child.start_kill()),
        }
    }

    /// Kills a launcher that does not end, or what one that was killed has left, as far as it is still in the session.
    async fn abandon(&self) {
        let Some(id) = self.id.filter(|_| self.lifeline.is_some()) else { return };
        let id = id.as_raw_nonzero().get();
        // It can only fail by the end of the process.
        let _ = tokio::task::spawn_blocking(move || members::kill_session(id)).await;
    }

    /// Whether a process of the group is left alive.
    async fn has_members(&mut self) -> bool {
        // Where orphans are handed to this process they stay in the group until they are reaped here.
        let _ = self.child.try_wait();
        let Some(id) = self.id else { return false };
        if test_kill_process_group(id).is_err() {
            return false;
        }
        // The dead count for the system until they are reaped, and in containers nobody may do that.
        let id = id.as_raw_nonzero().get();
        tokio::task::spawn_blocking(move || members::any_alive(id)).await.unwrap_or(true)
    }

    /// Waits for the program itself, not for what it left behind; a launcher ends when both are gone.
    async fn exit(&mut self) {
        // An error is seen again by `reap`, which reports it.
        let _ = self.child.inner_mut().wait().await;
    }

    /// How the program ended, and whether the launcher had to kill background processes.
    async fn reap(&mut self) -> Result<(Ended, bool), ToolFailure> {
        let status = self.child.inner_mut().wait().await;
        let status = status.map_err(|error| lost(&format!("waiting failed: {error}")))?;
        // Everything in the group was killed, so this takes what was handed to this process and does not wait long.
        let _ = self.child.try_wait();
        self.alive = false;
        let Some(lifeline) = &self.lifeline else { return Ok((ended(status), false)) };
        match lifeline.report() {
            Some(Report::Ended { status, background }) => Ok((ended(ExitStatus::from_raw(status)), background)),
            Some(Report::TooMany) => Ok((Ended::TooMany, false)),
            Some(Report::NotConfined { errno }) => {
                let error = std::io::Error::from_raw_os_error(errno);
                Err(ToolFailure::Failed(format!(
                    "the command was not started, as its sandbox could not be set up: {error}"
                )))
            }
            Some(Report::NotStarted { errno }) => {
                let error = std::io::Error::from_raw_os_error(errno);
                Err(ToolFailure::Failed(format!("the command could not be started: {error}")))
            }
            None => {
                self.abandon().await;
                Err(lost(&format!("its launcher was lost ({status})")))
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.alive {
            self.kill();
        }
    }
}

fn ended(status: ExitStatus) -> Ended {
    match status.code() {
        Some(code) => Ended::Exited(code),
        None => Ended::Signalled(status.signal().unwrap_or_default()),
    }
}

/// A command whose end nobody knows.
fn lost(reason: &str) -> ToolFailure {
    ToolFailure::Failed(format!("how the command ended is not known: {reason}"))
}

/// What a program writes. Both streams share one pipe, so the order is the one they were written in.
struct Output<'a> {
    reader: Option<Receiver>,
    buffer: Box<[u8]>,
    decoder: Utf8Stream,
    text: BoundedText,
    streamed: usize,
    limit: usize,
    progress: &'a dyn Progress,
}

impl<'a> Output<'a> {
    fn new(reader: Receiver, limit: usize, progress: &'a dyn Progress) -> Self {
        Self {
            reader: Some(reader),
            buffer: vec![0; CHUNK].into_boxed_slice(),
            decoder: Utf8Stream::default(),
            text: BoundedText::new(limit),
            streamed: 0,
            limit,
            progress,
        }
    }

    fn ended(&self) -> bool {
        self.reader.is_none()
    }

    /// Takes the next text; never resolves once the output has ended.
    async fn step(&mut self) {
        let Some(reader) = &mut self.reader else { return std::future::pending().await };
        let text = match reader.read(&mut self.buffer).await {
            Ok(count) if count > 0 => self.decoder.push(self.buffer.get(..count).unwrap_or(&[])),
            // A pipe that cannot be read has nothing more to say.
            Ok(_) | Err(_) => {
                self.reader = None;
                std::mem::take(&mut self.decoder).finish().to_owned()
            }
        };
        self.take(&text);
    }

    fn take(&mut self, text: &str) {
        self.text.push(text);
        // The live view stops where the result's limit is; the result then shows head and tail.
        let room = self.limit.saturating_sub(self.streamed);
        let shown = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
        if !shown.is_empty() {
            self.streamed += shown.len();
            self.progress.output(shown);
        }
        if shown.len() < text.len() {
            self.streamed = self.limit;
        }
    }

    /// Collects output until the program itself has ended.
    async fn until_exit(&mut self, group: &mut Group) {
        let mut exit = std::pin::pin!(group.exit());
        loop {
            // Fair: a background process that writes without end must not hide the program's own end.
            tokio::select! {
                () = self.step(), if !self.ended() => {}
                () = &mut exit => return,
            }
        }
    }

    /// Collects output until nobody can write any more.
    async fn until_end(&mut self) {
        while !self.ended() {
            self.step().await;
        }
    }

    /// Gives what the program left behind a moment to end; tells whether something is still there.
    async fn linger(&mut self, group: &mut Group) -> bool {
        let deadline = Instant::now() + LINGER;
        loop {
            if self.ended() && !group.has_members().await {
                return false;
            }
            if Instant::now() >= deadline {
                return group.has_members().await;
            }
            tokio::select! {
                () = self.step(), if !self.ended() => {}
                () = sleep(POLL), if self.ended() => {}
                () = sleep_until(deadline) => {}
            }
        }
    }

    fn finish(mut self) -> String {
        self.text.push(self.decoder.finish());
        self.text.finish()
    }
}
