//! Who is in a process group or a session. Only reads, but for one kill; blocks for a few milliseconds at most.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Tells whether a process of the group is more than a dead entry in the process table. What cannot be known counts as alive.
pub(super) fn any_alive(group: i32) -> bool {
    let mut known = false;
    for stat in table() {
        known = true;
        if is_alive_in(&stat, group) {
            return true;
        }
    }
    !known
}

/// Kills every process of the session.
pub(super) fn kill_session(session: i32) {
    for pid in table().filter_map(|stat| member_of(&stat, session)) {
        // It fails for those that ended meanwhile.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The lines `/proc/<pid>/stat`: `pid (name) state parent group session …`, where the name may hold anything.
fn table() -> impl Iterator<Item = String> {
    // Processes that end while this reads have no file any more, and are not alive either.
    let stats = fs::read_dir("/proc").into_iter().flatten().flatten();
    stats.filter_map(|process| {
        let stat = fs::read(process.path().join("stat")).ok()?;
        Some(String::from_utf8_lossy(&stat).into_owned())
    })
}

fn is_alive_in(stat: &str, group: i32) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next();
    let member = fields.nth(1).and_then(|field| field.parse().ok()) == Some(group);
    member && !matches!(state, Some("Z" | "X"))
}

fn member_of(stat: &str, session: i32) -> Option<Pid> {
    let (name, rest) = stat.rsplit_once(')')?;
    let of: i32 = rest.split_ascii_whitespace().nth(3)?.parse().ok()?;
    let pid = name.split_ascii_whitespace().next()?.parse().ok()?;
    Pid::from_raw(pid).filter(|_| of == session)
}

#[cfg(test)]
mod tests;
