//! What is counted of the work that is done, and its text for Prometheus. Every label has a handful of values that are
//! written down here; nothing is counted by session, client, agent or model.

use std::{
    fmt::Write as _,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use futures::Stream;
use tokio::time::Instant;
use zeroclaw_runtime::model::{ModelError, ModelEvent, ModelInfo, ModelProvider, ModelRequest, ModelStream};
use zeroclaw_session_store::TurnState;

/// Upper bounds in milliseconds: from a commit to memory to a person who went to lunch.
const BOUNDS_MS: [u64; 14] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000, 120_000, 3_600_000];

/// A number that only grows, or a number of what is there now.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, amount: usize) {
        self.0.fetch_add(amount as u64, Ordering::Relaxed);
    }

    pub(crate) fn less(&self, amount: usize) {
        self.0.fetch_sub(amount as u64, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long something took, each time.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    buckets: [Count; BOUNDS_MS.len()],
    count: Count,
    micros: AtomicU64,
}

impl Durations {
    pub(crate) fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MS.iter().position(|bound| micros <= bound * 1000);
        if let Some(bucket) = bucket.and_then(|at| self.buckets.get(at)) {
            bucket.add(1);
        }
        self.count.add(1);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn write(&self, text: &mut String, name: &str, help: &str) {
        head(text, name, "histogram", help);
        let mut so_far = 0;
        for (bound, bucket) in BOUNDS_MS.iter().zip(&self.buckets) {
            so_far += bucket.value();
            line(text, name, &format!("_bucket{{le=\"{}\"}}", seconds(*bound * 1000)), so_far);
        }
        let count = self.count.value().max(so_far);
        line(text, name, "_bucket{le=\"+Inf\"}", count);
        line(text, name, "_sum", seconds(self.micros.load(Ordering::Relaxed)));
        line(text, name, "_count", count);
    }
}

fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP zeroclaw_{name} {help}.\n# TYPE zeroclaw_{name} {kind}");
}

fn line(text: &mut String, name: &str, rest: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "zeroclaw_{name}{rest} {value}");
}

/// Everything the server counts.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) updates: Count,
    pub(crate) update_bytes: Count,
    /// Bytes of updates that nobody has begun to store and send.
    pub(crate) waiting: Count,
    completed: Count,
    cancelled: Count,
    failed: Count,
    interrupted: Count,
    pub(crate) questions_open: Count,
    pub(crate) questions: Durations,
    pub(crate) commits: Durations,
    pub(crate) commit_failures: Count,
    model_first: Durations,
    model_whole: Durations,
    model_failures: Count,
}

impl Meters {
    pub(crate) fn turn(&self, state: TurnState) {
        match state {
            TurnState::Completed => self.completed.add(1),
            TurnState::Cancelled => self.cancelled.add(1),
            TurnState::Failed => self.failed.add(1),
            TurnState::Interrupted => self.interrupted.add(1),
            TurnState::Running => {}
        }
    }

    /// Measures a question until it is dropped, however it ends.
    pub(crate) fn question(&self) -> OpenQuestion<'_> {
        self.questions_open.add(1);
        OpenQuestion { meters: self, began: Instant::now() }
    }

    pub(crate) fn write(&self, text: &mut String) {
        for (name, kind, help, value) in [
            ("updates_total", "counter", "Updates of sessions", &self.updates),
            ("update_bytes_total", "counter", "Bytes of the updates, once for all clients", &self.update_bytes),
            (
                "output_waiting_bytes",
                "gauge",
                "Bytes of updates that nobody has begun to store and send",
                &self.waiting,
            ),
            ("questions_open", "gauge", "Permissions and questions that wait for a person", &self.questions_open),
            ("store_failures_total", "counter", "Writes that the session store refused", &self.commit_failures),
            ("model_failures_total", "counter", "Calls of models that failed", &self.model_failures),
        ] {
            head(text, name, kind, help);
            line(text, name, "", value.value());
        }
        head(text, "turns_total", "counter", "Turns that ended");
        for (outcome, count) in [
            ("completed", &self.completed),
            ("cancelled", &self.cancelled),
            ("failed", &self.failed),
            ("interrupted", &self.interrupted),
        ] {
            line(text, "turns_total", &format!("{{outcome=\"{outcome}\"}}"), count.value());
        }
        self.questions.write(text, "question_wait_seconds", "How long permissions and questions waited for a person");
        self.commits.write(text, "store_commit_seconds", "How long writes to the session store took");
        self.model_first.write(text, "model_first_event_seconds", "From the call of a model to its first event");
        self.model_whole.write(text, "model_call_seconds", "From the call of a model to its end");
    }
}

/// A question that waits.
pub(crate) struct OpenQuestion<'m> {
    meters: &'m Meters,
    began: Instant,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.meters.questions_open.less(1);
        self.meters.questions.observe(self.began.elapsed());
    }
}

/// A model whose calls are measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) provider: Arc<dyn ModelProvider>,
    pub(crate) meters: Arc<Meters>,
}

#[async_trait]
impl ModelProvider for Measured {
    fn info(&self) -> &ModelInfo {
        self.provider.info()
    }

    fn writes_summaries(&self) -> bool {
        self.provider.writes_summaries()
    }

    async fn stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        let call = Call { meters: Arc::clone(&self.meters), began: Instant::now(), answered: false };
        match self.provider.stream(request).await {
            Ok(stream) => Ok(Box::pin(MeasuredStream { stream, call })),
            Err(error) => {
                self.meters.model_failures.add(1);
                Err(error)
            }
        }
    }
}

/// One call; over when it is dropped.
struct Call {
    meters: Arc<Meters>,
    began: Instant,
    answered: bool,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.meters.model_whole.observe(self.began.elapsed());
    }
}

struct MeasuredStream {
    stream: ModelStream,
    call: Call,
}

impl Stream for MeasuredStream {
    type Item = Result<ModelEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.stream.as_mut().poll_next(context);
        match &next {
            Poll::Ready(Some(Ok(_))) if !self.call.answered => {
                self.call.answered = true;
                self.call.meters.model_first.observe(self.call.began.elapsed());
            }
            Poll::Ready(Some(Err(_))) => self.call.meters.model_failures.add(1),
            Poll::Ready(Some(Ok(_)) | None) | Poll::Pending => {}
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Durations;

    #[test]
    fn durations_are_counted_up_to_their_bounds() {
        let durations = Durations::default();
        for micros in [0, 1_000, 1_001, 4_000_000_000] {
            durations.observe(Duration::from_micros(micros));
        }
        let mut text = String::new();
        durations.write(&mut text, "x_seconds", "Help");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "# HELP zeroclaw_x_seconds Help.",
                "# TYPE zeroclaw_x_seconds histogram",
                "zeroclaw_x_seconds_bucket{le=\"0.001\"} 2",
                "zeroclaw_x_seconds_bucket{le=\"0.002\"} 3",
            ]
        );
        assert_eq!(
            lines[15..],
            [
                "zeroclaw_x_seconds_bucket{le=\"3600\"} 3",
                "zeroclaw_x_seconds_bucket{le=\"+Inf\"} 4",
                "zeroclaw_x_seconds_sum 4000.002001",
                "zeroclaw_x_seconds_count 4",
            ]
        );
    }
}
