//! The process between the server and one command: it outlives neither, and lets nothing that the command started outlive it.
//!
//! The server starts its own program again with a hidden argument, and that calls [`launch`] before it does anything else.
//! Standard input is the lifeline, a socket whose other end only the server holds: a byte on it asks the command to end,
//! its end kills whatever is left. This module refuses everything that costs start-up time: no runtime, no log, no parsing.

mod family;
mod limits;

use std::{
    collections::HashSet,
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait},
};
use signal_hook::{
    consts::{
        SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
        SIGVTALRM, SIGXCPU, SIGXFSZ,
    },
    flag,
};

use crate::sandbox::{Confine, Order};

/// The byte that asks the command's process group to end by SIGTERM.
pub(crate) const TERMINATE: u8 = b't';

/// The argument before `--` that makes the standard output of a command its standard input too.
pub(crate) const DUPLEX: &str = "--duplex";

/// Time for background processes to end by themselves after the command ended.
const LINGER: Duration = Duration::from_millis(300);

/// Time for killed processes to be gone. One that hangs in the kernel does not even follow a kill.
const KILL_LIMIT: Duration = Duration::from_millis(1500);

/// How often it is looked whether somebody is left.
const POLL: Duration = Duration::from_millis(2);

/// How often it is looked for new processes before those that are known are killed.
const LOOKS: usize = 64;

/// The signals that end or stop a process unless it catches them, apart from those that say that it is broken.
const CAUGHT: [i32; 15] = [
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGXCPU, SIGXFSZ,
];

/// The exit code of a launcher that could not do its work; what happened is in the report.
const FAILED: u8 = 125;

/// What shells add to the number of a signal to make an exit code of it.
const SIGNALLED: u8 = 128;

/// What a launcher tells the server at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command has run.
    Ended {
        /// The status as the system gave it: an exit code or a signal.
        status: i32,
        /// Whether processes that it had started were still there and were killed.
        background: bool,
    },
    /// The command had more processes than it may, and all of them were killed.
    TooMany,
    /// The command could not be started, for this reason; zero when the system gave none.
    NotStarted { errno: i32 },
    /// The command was not started, because it could not be confined.
    NotConfined { errno: i32 },
}

impl Report {
    /// Bytes of an encoded report.
    pub(crate) const SIZE: usize = 5;

    fn encode(self) -> [u8; Self::SIZE] {
        let (kind, number) = match self {
            Self::Ended { status, background: false } => (b'e', status),
            Self::Ended { status, background: true } => (b'b', status),
            Self::TooMany => (b'm', 0),
            Self::NotStarted { errno } => (b'n', errno),
            Self::NotConfined { errno } => (b'c', errno),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [kind, a, b, c, d]
    }

    /// Reads a report; `None` for anything else.
    pub(crate) fn decode(bytes: [u8; Self::SIZE]) -> Option<Self> {
        let [kind, number @ ..] = bytes;
        let number = i32::from_le_bytes(number);
        match kind {
            b'e' => Some(Self::Ended { status: number, background: false }),
            b'b' => Some(Self::Ended { status: number, background: true }),
            b'm' => Some(Self::TooMany),
            b'n' => Some(Self::NotStarted { errno: number }),
            b'c' => Some(Self::NotConfined { errno: number }),
            _ => None,
        }
    }
}

/// Runs the command `argv` and returns when nothing of it is left.
///
/// What the command may touch and use up comes over the lifeline first; without that order nothing is started.
/// The command gets the environment, the directory and the output of this process, no input, and a process group of its
/// own, so that signals to its group reach the command alone. The exit code is the command's own, or 128 and the number of
/// the signal that ended it; the server is told the exact status over the lifeline. To be called first in a process that
/// does nothing else: every child of the process is taken for the command's.
#[must_use]
pub fn launch(argv: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (report, code) = match run(argv) {
        Ok(end) => end,
        Err(NotRun::Started(error)) => (Report::NotStarted { errno: errno(&error) }, FAILED),
        Err(NotRun::Confined(error)) => (Report::NotConfined { errno: errno(&error) }, FAILED),
    };
    if let Ok(mut lifeline) = lifeline() {
        // It fails when the server is gone, and then nobody wants to know.
        let _ = lifeline.write_all(&report.encode());
    }
    ExitCode::from(code)
}

/// Why a command did not run.
enum NotRun {
    Started(io::Error),
    Confined(io::Error),
}

impl From<io::Error> for NotRun {
    fn from(error: io::Error) -> Self {
        Self::Started(error)
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_default()
}

fn run(argv: impl IntoIterator<Item = OsString>) -> Result<(Report, u8), NotRun> {
    let mut argv = argv.into_iter();
    let mut name = argv.next();
    let duplex = name.as_deref().is_some_and(|name| name == DUPLEX);
    if duplex {
        // What separates our arguments from the command.
        name = argv.next().filter(|word| word == "--").and_then(|_| argv.next());
    }
    let name = name.ok_or_else(|| io::Error::from(Errno::INVAL))?;
    hold_on()?;
    family::adopt()?;
    let order =
        Order::receive(&UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?)).map_err(NotRun::Confined)?;
    let shared = Arc::new(Shared::default());
    let (lifeline, follower) = (lifeline()?, Arc::clone(&shared));
    thread::Builder::new().name("lifeline".to_owned()).spawn(move || follow(lifeline, &follower))?;
    // The standard output of a command that is talked to is a socket.
    let stdin = if duplex { Stdio::from(io::stdout().as_fd().try_clone_to_owned()?) } else { Stdio::null() };
    if let Some(processes) = order.limits.processes {
        let watched = Arc::clone(&shared);
        thread::Builder::new().name("watch".to_owned()).spawn(move || limits::watch(&watched, processes))?;
    }
    limits::set(&order.limits).map_err(NotRun::Confined)?;
    let mut command = Command::new(name);
    command.args(argv).stdin(stdin).process_group(0);
    let command = start(command, order.confine)?;
    let status = shared.wait_for(&command)?;
    let background = shared.end();
    if shared.too_many.load(Ordering::SeqCst) {
        return Ok((Report::TooMany, FAILED));
    }
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(FAILED),
        (None, Some(signal)) => u8::try_from(signal).map_or(FAILED, |signal| SIGNALLED.saturating_add(signal)),
        (None, None) => FAILED,
    };
    Ok((Report::Ended { status: status.as_raw(), background }, code))
}

/// Starts the command; a confined one from a thread that is confined itself and ends then. The other threads keep their rights:
/// they end what the command leaves behind, and being outside of its sandbox they are out of its reach.
fn start(mut command: Command, confine: Option<Confine>) -> Result<Child, NotRun> {
    let Some(confine) = confine else { return Ok(command.spawn()?) };
    let starter = thread::Builder::new().name("start".to_owned()).spawn(move || {
        self::confine(&confine).map_err(NotRun::Confined)?;
        // The handles of the order are closed in every program that is started; this closes them here.
        drop(confine);
        Ok(command.spawn()?)
    })?;
    starter.join().unwrap_or_else(|_| Err(NotRun::Confined(Errno::CANCELED.into())))
}

#[cfg(target_os = "linux")]
fn confine(confine: &Confine) -> io::Result<()> {
    crate::sandbox::linux::confine(confine)
}

/// Here the command itself is wrapped, and no order says otherwise.
#[cfg(not(target_os = "linux"))]
fn confine(_: &Confine) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The lifeline; the command never gets it, because the descriptor is closed when a program is started.
fn lifeline() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Takes the signals that would end this process, and does nothing with them.
///
/// What ends all programs of a name or a group is meant for servers; a launcher that died first would set its command free.
/// They are caught, not ignored or held back: a program that is started has them as they are by default.
fn hold_on() -> io::Result<()> {
    let noticed = Arc::new(AtomicBool::new(false));
    for signal in CAUGHT {
        flag::register(signal, Arc::clone(&noticed))?;
    }
    Ok(())
}

/// Does what the server asks for until the server is gone or wants everything dead.
fn follow(mut lifeline: File, shared: &Shared) {
    let mut byte = [0];
    loop {
        match lifeline.read(&mut byte) {
            Ok(0) => break,
            Ok(_) if byte == [TERMINATE] => shared.terminate(),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    shared.stopping.store(true, Ordering::SeqCst);
    let limit = Instant::now() + KILL_LIMIT;
    // The main thread ends the process as soon as nobody is left.
    while Instant::now() < limit {
        shared.kill();
        thread::sleep(POLL);
    }
    std::process::exit(FAILED.into());
}

/// What both threads know.
#[derive(Default)]
struct Shared {
    /// The command's process group; zero until it is started.
    group: AtomicI32,
    /// Whether the command was asked to end: nothing gets time to end by itself any more.
    stopping: AtomicBool,
    /// Whether there were more processes than there may be.
    too_many: AtomicBool,
}

impl Shared {
    fn group(&self) -> Option<Pid> {
        Pid::from_raw(self.group.load(Ordering::SeqCst))
    }

    fn terminate(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(group) = self.group() {
            // It fails when nobody is left, which is what is wanted.
            let _ = kill_process_group(group, Signal::TERM);
        }
    }

    /// Waits for the command itself, and reaps every orphan on the way.
    fn wait_for(&self, command: &Child) -> io::Result<WaitStatus> {
        let id = i32::try_from(command.id()).unwrap_or_default();
        self.group.store(id, Ordering::SeqCst);
        // Asked before there was anybody to be asked.
        if self.stopping.load(Ordering::SeqCst) {
            self.terminate();
        }
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == id => return Ok(status),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends what the command left behind; tells whether something had to be killed.
    fn end(&self) -> bool {
        let begin = Instant::now();
        let mut killed = None;
        while self.somebody_left() {
            if let Some(since) = killed {
                if Instant::now().duration_since(since) > KILL_LIMIT {
                    break;
                }
            } else if self.stopping.load(Ordering::SeqCst) || begin.elapsed() >= LINGER {
                killed = Some(Instant::now());
            }
            if killed.is_some() {
                self.kill();
            }
            thread::sleep(POLL);
        }
        killed.is_some()
    }

    /// Kills everything below this process. Everybody is stopped before anybody is killed, so that nobody starts others
    /// meanwhile; whoever started one before being stopped shows in the next look.
    fn kill(&self) {
        let mut stopped = HashSet::new();
        for _ in 0..LOOKS {
            let Some(descendants) = family::descendants() else {
                if let Some(group) = self.group() {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                return;
            };
            if descendants.iter().all(|process| stopped.contains(process)) {
                break;
            }
            for process in descendants {
                if stopped.insert(process) {
                    family::signal(process, Signal::STOP);
                }
            }
        }
        for process in stopped {
            family::signal(process, Signal::KILL);
        }
    }

    /// Reaps the dead and tells whether somebody lives.
    fn somebody_left(&self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                // Every orphan is handed to this process, so without a child there is no descendant.
                Err(_) if family::ADOPTS => return false,
                Err(_) => {
                    return self.group().is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
