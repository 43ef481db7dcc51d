//! A named pipe that a command under test holds open: it tells when the command has started, and when nothing that it
//! started is left. It refuses to look at process tables: the kernel closes the pipe when the last holder is gone.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tokio::sync::mpsc;

/// How long an event is awaited; it bounds only tests that have failed.
const LIMIT: Duration = Duration::from_secs(30);

/// The reading side.
#[derive(Debug)]
pub struct Lifeline {
    path: PathBuf,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Lifeline {
    /// Makes the pipe. Nothing waits for a command that never starts but a thread of its own.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let made = Command::new("mkfifo").arg(path).status().expect("mkfifo can be run");
        assert!(made.success(), "mkfifo {}", path.display());
        let (sender, lines) = mpsc::unbounded_channel();
        let from = path.to_owned();
        std::thread::spawn(move || {
            let Ok(pipe) = std::fs::File::open(from) else { return };
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { path: path.to_owned(), lines }
    }

    /// What a shell command begins with to hold the pipe open, with everything that it starts, and to say so.
    #[must_use]
    pub fn held(&self) -> String {
        format!("exec 3>'{}'; echo started >&3;", self.path.display())
    }

    /// Waits until the command has started.
    pub async fn started(&mut self) {
        let line = tokio::time::timeout(LIMIT, self.lines.recv()).await.expect("the command does not start");
        assert_eq!(line.as_deref(), Some("started"));
    }

    /// Waits until every process that held the pipe is gone.
    pub async fn gone(&mut self) {
        let line = tokio::time::timeout(LIMIT, self.lines.recv()).await.expect("a process of the command lives on");
        assert_eq!(line, None);
    }
}
