//! What a command may use up. The system limits each process; how many there are it limits per user only, the user's editor and
//! browser included, so they are counted here as well: that also holds for the superuser, whom the system does not limit.

use std::{fs, io, sync::atomic::Ordering, thread, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Shared, family};
use crate::sandbox::Limits;

/// How often it is looked how many there are. A command that starts others as fast as it can gets to some hundreds meanwhile.
const WATCH: Duration = Duration::from_millis(20);

/// Threads that each process may have on the average: the system counts them like processes.
const THREADS: u64 = 8;

/// Seconds between the signal that says that the processor time is over, and the kill.
const CPU_GRACE: u64 = 5;

/// Limits this process and everything it starts.
pub(super) fn set(limits: &Limits) -> io::Result<()> {
    // What a process leaves when it breaks down would fill the session's directory.
    let mut wanted = vec![(Resource::Core, Some(0))];
    wanted.push((Resource::Cpu, limits.cpu_secs));
    #[cfg(target_os = "linux")]
    {
        // Not the address space: programs reserve far more of that than they ever use.
        wanted.push((Resource::Data, limits.memory_bytes.or_else(machine_memory)));
        let threads = limits.processes.map(|processes| processes.saturating_mul(THREADS));
        wanted.push((Resource::Nproc, threads.and_then(|threads| Some(threads.saturating_add(all_threads()?)))));
    }
    wanted.push((Resource::Fsize, limits.file_bytes));
    wanted.push((Resource::Nofile, limits.open_files));
    for (resource, limit) in wanted {
        let Some(limit) = limit else { continue };
        let now = getrlimit(resource);
        // A limit is never raised: the user may have set it.
        let lower = |old: Option<u64>, limit: u64| Some(old.map_or(limit, |old| old.min(limit)));
        let late = if resource == Resource::Cpu { limit.saturating_add(CPU_GRACE) } else { limit };
        setrlimit(resource, Rlimit { current: lower(now.current, limit), maximum: lower(now.maximum, late) })?;
    }
    Ok(())
}

/// All the memory there is: no single process has a use for more.
#[cfg(target_os = "linux")]
fn machine_memory() -> Option<u64> {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit.max(1));
    #[expect(clippy::useless_conversion, reason = "the type differs between processors")]
    u64::try_from(info.totalram).ok()?.checked_mul(unit).filter(|bytes| *bytes > 0)
}

/// How many threads there are on the whole machine: a bound for those of the user that costs nothing to find out.
fn all_threads() -> Option<u64> {
    // `0.20 0.18 0.12 1/80 11206`: the fourth field is the running and all.
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// Kills the command when it has more processes than it may. Never returns.
pub(super) fn watch(shared: &Shared, processes: u64) {
    let begin = all_threads();
    loop {
        thread::sleep(WATCH);
        let grown = begin.zip(all_threads()).is_none_or(|(begin, now)| now.saturating_sub(begin) > processes);
        if grown && family::descendants().is_some_and(|all| all.len() as u64 > processes) {
            shared.too_many.store(true, Ordering::SeqCst);
            shared.stopping.store(true, Ordering::SeqCst);
            shared.kill();
        }
    }
}
