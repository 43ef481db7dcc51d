//! The two pipes that are served in the background.
//!
//! Owns the writer of stdin, so that a test which sends much while the child prints much cannot deadlock, and the
//! bounded memory of stderr. It refuses to touch stdout: that one is read on demand.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStderr, ChildStdin},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// Writes queued for stdin; beyond it the sender waits.
const QUEUE: usize = 1024;
/// Bytes of stderr kept; the newest stay.
const MAX_STDERR: usize = 1024 * 1024;
/// Bytes of stderr in a failure report.
const TAIL: usize = 8 * 1024;

enum Job {
    Write(Vec<u8>),
    Flush(oneshot::Sender<()>),
}

/// Stdin of the child. Dropping it closes the pipe after the queue has been written.
pub(super) struct Input {
    jobs: mpsc::Sender<Job>,
}

impl Input {
    pub(super) fn start(mut stdin: ChildStdin) -> Self {
        let (jobs, mut queue) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            while let Some(job) = queue.recv().await {
                match job {
                    // A child that has closed its stdin shows itself by the end of its output.
                    Job::Write(bytes) => {
                        if stdin.write_all(&bytes).await.is_err() || stdin.flush().await.is_err() {
                            return;
                        }
                    }
                    Job::Flush(done) => {
                        let _ = done.send(());
                    }
                }
            }
        });
        Self { jobs }
    }

    pub(super) async fn write(&self, bytes: Vec<u8>) {
        let _ = self.jobs.send(Job::Write(bytes)).await;
    }

    pub(super) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.jobs.send(Job::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

/// Stderr of the child, collected as it comes.
pub(super) struct Stderr {
    kept: Arc<Mutex<VecDeque<u8>>>,
    task: JoinHandle<()>,
}

impl Stderr {
    pub(super) fn start(mut stderr: ChildStderr) -> Self {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let sink = Arc::clone(&kept);
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                let mut kept = sink.lock().expect("a holder of the stderr buffer panicked");
                kept.extend(&buffer[..count]);
                let excess = kept.len().saturating_sub(MAX_STDERR);
                kept.drain(..excess);
            }
        });
        Self { kept, task }
    }

    pub(super) fn text(&self) -> String {
        let kept = self.kept.lock().expect("a holder of the stderr buffer panicked");
        let (front, back) = kept.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }

    pub(super) fn tail(&self) -> String {
        let text = self.text();
        let from = (text.len().saturating_sub(TAIL)..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text[from..].to_owned()
    }

    /// Waits for the end of the pipe, which a grandchild may hold open.
    pub(super) async fn ended(&mut self, limit: Duration) {
        if !self.task.is_finished() {
            let _ = tokio::time::timeout(limit, &mut self.task).await;
        }
    }
}
