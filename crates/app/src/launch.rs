//! How a program of this workspace becomes the launcher of a command: it is started again with an argument that no person
//! types. Everything else about launchers is in [`zeroclaw_runtime::launch`].

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use zeroclaw_runtime::{launch::launch, tool::Launcher};

/// The argument that makes a launcher of a program.
const ARGUMENT: &str = "__launch";

/// Runs a command and returns its exit code if this process was started as a launcher.
///
/// Every program that serves agents calls this first: arguments, log and runtime are not for launchers.
pub fn launched() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let asked =
        arguments.next().is_some_and(|first| first == ARGUMENT) && arguments.next().is_some_and(|next| next == "--");
    asked.then(|| launch(arguments))
}

/// This program as a launcher; `None`, with a warning, if its file cannot be named.
pub(crate) fn launcher() -> Option<Launcher> {
    match program() {
        Ok(program) => Some(Launcher { program, argument: ARGUMENT.to_owned() }),
        Err(error) => {
            tracing::warn!(%error, "this program cannot be found; commands may outlive it");
            None
        }
    }
}

/// The file of this program.
fn program() -> std::io::Result<PathBuf> {
    // Read by the process that is about to become the launcher, this is the very file that this process runs, whatever it
    // is called by now, and also when an upgrade has replaced or removed it.
    let running = Path::new("/proc/self/exe");
    if cfg!(any(target_os = "linux", target_os = "android")) && running.metadata().is_ok() {
        return Ok(running.to_owned());
    }
    std::env::current_exe()
}
