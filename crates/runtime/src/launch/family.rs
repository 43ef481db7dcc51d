//! Who descends from this process. Where the system does not say, only the command's process group is known.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use linux::{ADOPTS, adopt, descendants};
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use other::{ADOPTS, adopt, descendants};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::{fs, io};

    use rustix::process::{Pid, getpid, set_child_subreaper};

    /// Whether orphans are handed to this process.
    pub(in crate::launch) const ADOPTS: bool = true;

    /// Makes this process the parent of every orphan among its descendants, and tells it apart from the server in listings.
    pub(in crate::launch) fn adopt() -> io::Result<()> {
        set_child_subreaper(Some(getpid()))?;
        // Only a name: what ends servers by their name must not end what ends their commands.
        let _ = rustix::thread::set_name(c"launch");
        Ok(())
    }

    /// Every descendant, the dead that nobody has reaped among them; `None` when the process table cannot be read.
    pub(in crate::launch) fn descendants() -> Option<Vec<Pid>> {
        let mut table = Vec::new();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // Processes that end while this reads have no file any more. A name need not be UTF-8.
            let Ok(stat) = fs::read(entry.path().join("stat")) else { continue };
            if let Some(parent) = parent_in(&String::from_utf8_lossy(&stat)) {
                table.push(Process { pid, parent });
            }
        }
        // A table without this process is another system's, or none.
        let own = getpid().as_raw_nonzero().get();
        table.iter().any(|process| process.pid == own).then(|| below(&table, own))
    }

    /// One line of the process table.
    #[derive(Clone, Copy)]
    pub(super) struct Process {
        pub(super) pid: i32,
        pub(super) parent: i32,
    }

    /// Reads one line of `/proc/<pid>/stat`: `pid (name) state parent …`, where the name may hold anything.
    ///
    /// The state says nothing: a process whose first thread has ended looks dead while others run on.
    pub(super) fn parent_in(stat: &str) -> Option<i32> {
        let (_, rest) = stat.rsplit_once(')')?;
        rest.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// What is below one process. Each process is met once, whatever the table says.
    pub(super) fn below(table: &[Process], root: i32) -> Vec<Pid> {
        let mut rest = table.to_vec();
        let mut parents = vec![root];
        let mut found = Vec::new();
        while let Some(parent) = parents.pop() {
            rest.retain(|process| {
                if process.parent != parent || process.pid == root {
                    return true;
                }
                parents.push(process.pid);
                found.extend(Pid::from_raw(process.pid));
                false
            });
        }
        found
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod other {
    use std::io;

    use rustix::process::Pid;

    /// Whether orphans are handed to this process.
    pub(in crate::launch) const ADOPTS: bool = false;

    /// Orphans go to the system's first process here.
    pub(in crate::launch) fn adopt() -> io::Result<()> {
        Ok(())
    }

    /// Nobody tells.
    pub(in crate::launch) fn descendants() -> Option<Vec<Pid>> {
        None
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::linux::{Process, below, parent_in};

    #[test]
    fn a_line_of_the_table_is_read() {
        let cases = [
            ("12 (sh) S 7 77 77 0 -1", Some(7)),
            ("12 (a) b (c)) R 1 77 77 0 -1", Some(1)),
            ("12 (sh) Z 7 77 77 0 -1", Some(7)),
            ("12 (sh) S", None),
            ("garbage", None),
        ];
        for (stat, expected) in cases {
            assert_eq!(parent_in(stat), expected, "{stat}");
        }
    }

    #[test]
    fn only_what_is_below_is_found() {
        // 10 is the root; 40 and 50 are somebody else's, in a circle.
        let table = [(1, 0), (10, 1), (20, 10), (30, 20), (31, 30), (21, 10), (40, 50), (50, 40)];
        let table = table.map(|(pid, parent)| Process { pid, parent });
        let mut found: Vec<i32> = below(&table, 10).into_iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        found.sort_unstable();
        assert_eq!(found, [20, 21, 30, 31]);
    }
}
