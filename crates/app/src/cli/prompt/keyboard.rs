//! Lines that a person types, read from the terminal itself so that a piped standard input is never an answer.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use tokio::sync::mpsc;

/// The longest line taken as an answer; a terminal in line mode gives no longer one.
const MAX_LINE_BYTES: u64 = 4096;

/// The lines of a person, read only from the first question on.
pub(super) struct Keyboard(Source);

enum Source {
    /// A terminal that has not been needed yet.
    Unopened,
    Open {
        terminal: Option<File>,
        lines: mpsc::Receiver<String>,
    },
    /// There is nobody.
    Absent,
}

impl Keyboard {
    /// The controlling terminal of the process, opened at the first question.
    pub(super) fn terminal() -> Self {
        Self(Source::Unopened)
    }

    #[cfg(test)]
    pub(super) fn lines(lines: mpsc::Receiver<String>) -> Self {
        Self(Source::Open { terminal: None, lines })
    }

    #[cfg(test)]
    pub(super) fn absent() -> Self {
        Self(Source::Absent)
    }

    /// Gets ready for a question: whatever was typed before it was shown is no answer to it. `false` when nobody is
    /// there.
    pub(super) fn prepare(&mut self) -> bool {
        if let Source::Unopened = self.0 {
            self.0 = open();
        }
        match &mut self.0 {
            Source::Open { terminal: Some(terminal), lines } => {
                discard_input(terminal);
                while lines.try_recv().is_ok() {}
                true
            }
            Source::Open { terminal: None, .. } => true,
            Source::Unopened | Source::Absent => false,
        }
    }

    /// The next line; `None` when there will be none.
    pub(super) async fn line(&mut self) -> Option<String> {
        match &mut self.0 {
            Source::Open { lines, .. } => lines.recv().await,
            Source::Unopened | Source::Absent => None,
        }
    }
}

fn open() -> Source {
    let path = if cfg!(windows) { "CONIN$" } else { "/dev/tty" };
    let Ok(terminal) = File::open(path) else { return Source::Absent };
    let Ok(reader) = terminal.try_clone() else { return Source::Absent };
    let (sender, lines) = mpsc::channel(1);
    // Reading a terminal cannot be interrupted, so the thread is left to the end of the process.
    let reading = std::thread::Builder::new().name("terminal".to_owned()).spawn(move || {
        let mut reader = BufReader::new(reader);
        loop {
            let mut line = Vec::new();
            match reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
            if sender.blocking_send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    match reading {
        Ok(_) => Source::Open { terminal: Some(terminal), lines },
        Err(_) => Source::Absent,
    }
}

#[cfg(unix)]
fn discard_input(terminal: &File) {
    // Where this fails nothing worse happens than that an early line is taken.
    let _ = rustix::termios::tcflush(terminal, rustix::termios::QueueSelector::IFlush);
}

#[cfg(not(unix))]
fn discard_input(_terminal: &File) {}
