//! What a process that a tool starts may touch, and what makes that hold: the kernel, not the command's good will.
//!
//! A [`Confiner`] turns the directories of a session, its rules and an argument vector into a [`Wrapped`] command.
//! On Linux the launcher confines what it starts (Landlock, seccomp, no new privileges); on macOS `sandbox-exec` does.
//! A configured way that is not there is an error; nothing here falls back without saying so.

pub mod layout;
#[cfg(target_os = "linux")]
pub(crate) mod linux;
pub(crate) mod order;
pub(crate) mod scratch;
mod seatbelt;

use std::{
    ffi::OsString,
    fmt::{Debug, Formatter},
    io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use thiserror::Error;
use zeroclaw_policy::Ruleset;

use crate::jail::Jail;
pub(crate) use order::{Confine, Order};

/// What may be done with a directory and everything below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading and running programs.
    Read,
    /// Everything.
    Write,
}

impl Access {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Read => b'r',
            Self::Write => b'w',
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        match code {
            b'r' => Some(Self::Read),
            b'w' => Some(Self::Write),
            _ => None,
        }
    }
}

/// Whether a process may use the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// It may not, the machine's own addresses included.
    Closed,
    /// It may.
    Open,
}

/// What a process is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A command that a model wrote: it gets the session's directories and what programs need.
    Command(Network),
    /// A tool server that a person chose: it reads what is not forbidden, wherever it is installed, and has the network; it
    /// writes where commands do.
    Server,
}

/// What a process may use up. `None` is no limit of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Seconds of processor time of one process; beyond, it is killed.
    pub cpu_secs: Option<u64>,
    /// Bytes of writable memory of one process; beyond, it gets no more.
    pub memory_bytes: Option<u64>,
    /// Bytes of one file; a process that writes beyond is killed.
    pub file_bytes: Option<u64>,
    /// Open files of one process; beyond, opening fails.
    pub open_files: Option<u64>,
    /// Processes of the whole command at once; beyond, all of them are killed.
    pub processes: Option<u64>,
}

impl Limits {
    pub(crate) const COUNT: usize = 5;

    pub(crate) fn as_array(&self) -> [Option<u64>; Self::COUNT] {
        [self.cpu_secs, self.memory_bytes, self.file_bytes, self.open_files, self.processes]
    }

    pub(crate) fn from_array(limits: [Option<u64>; Self::COUNT]) -> Self {
        let [cpu_secs, memory_bytes, file_bytes, open_files, processes] = limits;
        Self { cpu_secs, memory_bytes, file_bytes, open_files, processes }
    }
}

/// What makes the limits of a sandbox hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// What this system has; nothing, and saying so, where it has none.
    #[default]
    Auto,
    /// Landlock and seccomp, on Linux.
    Landlock,
    /// `sandbox-exec`, on macOS.
    Seatbelt,
    /// Nothing.
    None,
}

impl Backend {
    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Landlock => "landlock",
            Self::Seatbelt => "seatbelt",
            Self::None => "none",
        }
    }
}

/// Why a process cannot be confined.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SandboxError {
    /// The configured way is not there.
    #[error("the configured sandbox `{backend}` cannot be used here: {reason}")]
    Unavailable {
        /// Its name in the configuration.
        backend: &'static str,
        /// What is missing.
        reason: String,
    },
    /// The system refused something on the way.
    #[error("the sandbox could not be prepared: {0}")]
    Failed(String),
}

/// Settings of the sandbox, the same for every session of an agent.
#[derive(Clone, Debug, Default)]
pub struct SandboxSettings {
    /// What is to be used.
    pub backend: Backend,
    /// What is readable besides the session's directories; see [`layout`].
    pub readable: Vec<PathBuf>,
    /// What is writable besides the session's directories.
    pub writable: Vec<PathBuf>,
    /// What stays closed in addition to the forbidden paths of the rules.
    pub hidden: Vec<PathBuf>,
    /// Variables that move a cache, each with where the cache usually is.
    pub caches: Vec<(String, PathBuf)>,
    /// Whether sockets of the file system may be used wherever they lie: those of a desktop or a container service run
    /// whatever they are asked to, outside of the sandbox.
    pub local_sockets: bool,
    /// The limits of each process.
    pub limits: Limits,
    /// Where the private temporary directories of sessions are made.
    pub temporary: PathBuf,
}

/// A way to confine a process.
pub trait Sandbox: Send + Sync + Debug {
    /// What it is, in a few words.
    fn description(&self) -> String;

    /// Whether anything is confined.
    fn confines(&self) -> bool;

    /// Changes a command so that it runs within the sandbox.
    fn wrap(&self, argv: Vec<OsString>, confine: Confined) -> Wrapped;
}

/// What a sandbox lets through. Made by a [`Confiner`].
#[derive(Debug)]
pub struct Confined {
    pub(crate) limits: Limits,
    pub(crate) confine: Confine,
    /// Directories of the session by name, for sandboxes that know no handles.
    pub(crate) roots: Vec<(PathBuf, Access)>,
    pub(crate) temporary: Option<PathBuf>,
    pub(crate) caches: Vec<(String, OsString)>,
}

/// A command as it is to be started: by a launcher that is given the order.
#[derive(Debug)]
pub struct Wrapped {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Variables that come over the command's own.
    pub env: Vec<(String, OsString)>,
    /// Whether a sandbox holds the command.
    pub confined: bool,
    pub(crate) order: Order,
}

/// Prepares commands to run in the sandbox that is configured.
pub struct Confiner {
    settings: SandboxSettings,
    /// What was found when it was first needed: looking for it is no business of a start.
    found: OnceLock<Result<Arc<dyn Sandbox>, SandboxError>>,
}

impl Confiner {
    /// Prepares nothing yet.
    #[must_use]
    pub fn new(settings: SandboxSettings) -> Self {
        Self { settings, found: OnceLock::new() }
    }

    /// A confiner that confines nothing.
    #[must_use]
    pub fn unconfined() -> Self {
        Self::new(SandboxSettings { backend: Backend::None, ..SandboxSettings::default() })
    }

    /// What it was made from.
    #[must_use]
    pub fn settings(&self) -> &SandboxSettings {
        &self.settings
    }

    /// Finds out whether a way that was asked for by name is there. Cheap where none was.
    ///
    /// # Errors
    /// It is not there.
    pub fn check(&self) -> Result<(), SandboxError> {
        match self.settings.backend {
            Backend::Auto | Backend::None => Ok(()),
            Backend::Landlock | Backend::Seatbelt => self.sandbox().map(drop),
        }
    }

    /// The sandbox; looked for once.
    ///
    /// # Errors
    /// The one that was asked for is not there.
    pub fn sandbox(&self) -> Result<&Arc<dyn Sandbox>, SandboxError> {
        let found = self.found.get_or_init(|| find(self.settings.backend));
        found.as_ref().map_err(Clone::clone)
    }

    /// Prepares a command for the directories and rules of a session. Blocks for file system work.
    ///
    /// # Errors
    /// The configured sandbox is not there, or a handle could not be made.
    pub fn wrap(
        &self,
        jail: &Jail,
        rules: &Ruleset,
        argv: Vec<OsString>,
        purpose: Purpose,
    ) -> Result<Wrapped, SandboxError> {
        let failed = |error: io::Error| SandboxError::Failed(error.to_string());
        let sandbox = self.sandbox()?;
        let mut confined = Confined {
            limits: self.settings.limits,
            confine: Confine::default(),
            roots: Vec::new(),
            temporary: None,
            caches: Vec::new(),
        };
        if sandbox.confines() {
            let scratch = jail.scratch(&self.settings.temporary).map_err(failed)?;
            confined.roots = jail.granted();
            let (network, own) = match purpose {
                Purpose::Command(network) => (network == Network::Open, None),
                Purpose::Server => (true, Some(PathBuf::from("/dev"))),
            };
            let forbidden = rules.forbidden(jail.roots());
            let hidden = forbidden.places().iter().chain(&self.settings.hidden).chain(&own);
            confined.confine = Confine {
                network,
                local_sockets: self.settings.local_sockets,
                handles: jail.grants().map_err(failed)?,
                paths: self.paths(&scratch, purpose),
                hidden: hidden.cloned().collect(),
            };
            confined.caches = self.private_caches(&scratch);
            confined.temporary = Some(scratch);
        }
        if purpose == Purpose::Server {
            // A server lives as long as its session.
            confined.limits.cpu_secs = None;
        }
        Ok(sandbox.wrap(argv, confined))
    }

    /// What is granted by name; the widest first, as what lies within needs no rule of its own.
    fn paths(&self, scratch: &Path, purpose: Purpose) -> Vec<(PathBuf, Access)> {
        let everywhere = match purpose {
            Purpose::Command(_) => None,
            Purpose::Server => Some((PathBuf::from("/"), Access::Read)),
        };
        let readable = self.settings.readable.iter().map(|path| (path.clone(), Access::Read));
        let writable = self.settings.writable.iter().map(|path| (path.clone(), Access::Write));
        let scratch = std::iter::once((scratch.to_owned(), Access::Write));
        scratch.chain(writable).chain(everywhere).chain(readable).collect()
    }

    /// Caches that tools insist on writing, in the temporary directory unless the operator opened the usual ones.
    fn private_caches(&self, scratch: &Path) -> Vec<(String, OsString)> {
        let is_open =
            |usual: &Path| self.settings.writable.iter().any(|open| open.starts_with(usual) || usual.starts_with(open));
        let closed = self.settings.caches.iter().filter(|(_, usual)| !is_open(usual));
        closed.map(|(variable, _)| (variable.clone(), scratch.join(variable.to_lowercase()).into_os_string())).collect()
    }
}

impl Debug for Confiner {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Confiner").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Looks for what a backend stands for on this system.
///
/// # Errors
/// One that was asked for by name is not there.
pub fn find(backend: Backend) -> Result<Arc<dyn Sandbox>, SandboxError> {
    let unavailable = |reason: String| SandboxError::Unavailable { backend: backend.name(), reason };
    match backend {
        Backend::None => Ok(Arc::new(Unconfined { reason: "switched off by configuration".to_owned() })),
        Backend::Landlock => landlock().map_err(unavailable),
        Backend::Seatbelt => seatbelt::find().map_err(unavailable),
        Backend::Auto => Ok(match landlock().or_else(|missing| seatbelt::find().map_err(|_| missing)) {
            Ok(sandbox) => sandbox,
            Err(reason) => Arc::new(Unconfined { reason }),
        }),
    }
}

#[cfg(target_os = "linux")]
fn landlock() -> Result<Arc<dyn Sandbox>, String> {
    linux::find()
}

#[cfg(not(target_os = "linux"))]
fn landlock() -> Result<Arc<dyn Sandbox>, String> {
    Err("Landlock is a part of Linux".to_owned())
}

/// No sandbox: a command may do what the user may. The limits hold.
#[derive(Debug)]
struct Unconfined {
    reason: String,
}

impl Sandbox for Unconfined {
    fn description(&self) -> String {
        format!("none ({}): commands run with all your rights", self.reason)
    }

    fn confines(&self) -> bool {
        false
    }

    fn wrap(&self, argv: Vec<OsString>, confined: Confined) -> Wrapped {
        let order = Order { limits: confined.limits, confine: None };
        Wrapped { argv, env: Vec::new(), confined: false, order }
    }
}

/// The variables that name the temporary directory, and what is kept in it.
fn variables(confined: &Confined) -> Vec<(String, OsString)> {
    let Some(path) = &confined.temporary else { return Vec::new() };
    let names = ["TMPDIR", "TEMP", "TMP"].map(|name| (name.to_owned(), path.as_os_str().to_owned()));
    names.into_iter().chain(confined.caches.iter().cloned()).collect()
}

#[cfg(test)]
mod tests;
