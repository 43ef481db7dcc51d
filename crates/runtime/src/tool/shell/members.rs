//! Whether a process group still has members that are alive. Only reads; blocks for a few milliseconds at most.

use std::fs;

/// Tells whether a process of the group is more than a dead entry in the process table. What cannot be known counts as alive.
pub(super) fn any_alive(group: i32) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let mut known = false;
    for process in processes.flatten() {
        // Processes that end while this reads have no file any more, and are not alive either.
        let Ok(stat) = fs::read_to_string(process.path().join("stat")) else { continue };
        known = true;
        if is_alive_in(&stat, group) {
            return true;
        }
    }
    !known
}

/// Reads one line of `/proc/<pid>/stat`: `pid (name) state parent group …`, where the name may hold anything.
fn is_alive_in(stat: &str, group: i32) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next();
    let member = fields.nth(1).and_then(|field| field.parse().ok()) == Some(group);
    member && !matches!(state, Some("Z" | "X"))
}

#[cfg(test)]
mod tests;
