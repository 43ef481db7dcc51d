//! Who descends from this process. Where the system does not say, only the command's process group is known.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use linux::{ADOPTS, adopt, descendants, signal};
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use other::{ADOPTS, adopt, descendants, signal};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::{fs, io};

    use rustix::process::{
        Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal, set_child_subreaper,
    };

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
    pub(in crate::launch) fn descendants() -> Option<Vec<Process>> {
        let mut table = Vec::new();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            table.extend(look(pid));
        }
        // A table without this process is another system's, or none.
        let own = getpid().as_raw_nonzero().get();
        table.iter().any(|process| process.pid == own).then(|| below(&table, own))
    }

    /// Signals a process that was seen, and never another one that has its number by now.
    pub(in crate::launch) fn signal(process: Process, signal: Signal) {
        let Some(pid) = Pid::from_raw(process.pid) else { return };
        // Held, the number stays that of one process; whether it still is the one that was seen is looked at then.
        let held = pidfd_open(pid, PidfdFlags::empty());
        // Its parent may be another by now.
        if look(process.pid).is_none_or(|now| now.begin != process.begin) {
            return;
        }
        // It fails when the process is gone, which is what is wanted.
        let _ = match held {
            Ok(held) => pidfd_send_signal(held, signal),
            Err(rustix::io::Errno::NOSYS) => kill_process(pid, signal),
            Err(error) => Err(error),
        };
    }

    /// One line of the process table.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(in crate::launch) struct Process {
        pub(super) pid: i32,
        pub(super) parent: i32,
        /// When it began, in the clock of the table: with the number it is one process for ever.
        pub(super) begin: u64,
    }

    /// Reads one line of the table; `None` for a process that has ended.
    fn look(pid: i32) -> Option<Process> {
        // A name need not be UTF-8.
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let (parent, begin) = read(&String::from_utf8_lossy(&stat))?;
        Some(Process { pid, parent, begin })
    }

    /// Reads `/proc/<pid>/stat`: `pid (name) state parent …`, where the name may hold anything; the time of its begin is the
    /// 22nd field.
    ///
    /// The state says nothing: a process whose first thread has ended looks dead while others run on.
    pub(super) fn read(stat: &str) -> Option<(i32, u64)> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        Some((parent, fields.nth(17)?.parse().ok()?))
    }

    /// What is below one process. Each process is met once, whatever the table says.
    pub(super) fn below(table: &[Process], root: i32) -> Vec<Process> {
        let mut rest = table.to_vec();
        let mut parents = vec![root];
        let mut found = Vec::new();
        while let Some(parent) = parents.pop() {
            rest.retain(|process| {
                if process.parent != parent || process.pid == root {
                    return true;
                }
                parents.push(process.pid);
                found.push(*process);
                false
            });
        }
        found
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod other {
    use std::io;

    use rustix::process::Signal;

    /// A process that was seen; none ever is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(in crate::launch) enum Process {}

    /// Whether orphans are handed to this process.
    pub(in crate::launch) const ADOPTS: bool = false;

    /// Orphans go to the system's first process here.
    pub(in crate::launch) fn adopt() -> io::Result<()> {
        Ok(())
    }

    /// Nobody tells.
    pub(in crate::launch) fn descendants() -> Option<Vec<Process>> {
        None
    }

    /// There is nobody to signal.
    pub(in crate::launch) fn signal(process: Process, _: Signal) {
        match process {}
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::linux::{Process, below, read};

    #[test]
    fn a_line_of_the_table_is_read() {
        let rest = "77 77 0 -1 4194560 100 0 0 0 1 2 3 4 20 0 1 0 9876 4096 100";
        let cases = [
            (format!("12 (sh) S 7 {rest}"), Some((7, 9876))),
            (format!("12 (a) b (c)) R 1 {rest}"), Some((1, 9876))),
            (format!("12 (sh) Z 7 {rest}"), Some((7, 9876))),
            ("12 (sh) S 7 77".to_owned(), None),
            ("12 (sh) S".to_owned(), None),
            ("garbage".to_owned(), None),
        ];
        for (stat, expected) in cases {
            assert_eq!(read(&stat), expected, "{stat}");
        }
    }

    #[test]
    fn only_what_is_below_is_found() {
        // 10 is the root; 40 and 50 are somebody else's, in a circle.
        let table = [(1, 0), (10, 1), (20, 10), (30, 20), (31, 30), (21, 10), (40, 50), (50, 40)];
        let table = table.map(|(pid, parent)| Process { pid, parent, begin: 1 });
        let mut found: Vec<i32> = below(&table, 10).into_iter().map(|process| process.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [20, 21, 30, 31]);
    }
}
