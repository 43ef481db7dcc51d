//! What a running tool reports, on its way to the client.
//!
//! Output is shown as it grows, yet never again as a whole per chunk: while it is short it is sent when it has at least
//! doubled, and beyond [`TAIL`] bytes only its end is sent, once per [`STEP`] new bytes.
//! Both rules send at most twice the output in all, so the total stays below three times the output with the marks included.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::{
    tool::{PlanEntry, Progress, ToolContent},
    turn::{CallStatus, Flow, TurnEvent, scene::Scene},
};

/// Bytes of output that are kept and shown while a tool runs; the outcome shows the rest.
const TAIL: usize = 4096;
/// New bytes between two sends once the output is longer than [`TAIL`].
const STEP: usize = 2048;

/// Lines about what a tool is doing that are shown for one call: each is an update that the log keeps.
const MAX_STATUSES: usize = 256;

/// The reporter of one call.
pub(super) struct Reporter<'a> {
    scene: &'a Scene<'a>,
    call_id: &'a str,
    tool: &'a str,
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    // INVARIANT bounded: at most `2 * TAIL` bytes.
    tail: String,
    total: usize,
    sent_at: usize,
    /// The client is behind: output is held back until it has room.
    full: bool,
    sent: bool,
    /// Lines of [`Progress::status`] that were shown.
    statuses: usize,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(scene: &'a Scene<'a>, call_id: &'a str, tool: &'a str) -> Self {
        Self { scene, call_id, tool, state: Mutex::default(), filled: Notify::new() }
    }

    /// Waits for room whenever the client falls behind. Never ends; runs beside the tool.
    pub(super) async fn pump(&self) {
        loop {
            self.filled.notified().await;
            self.scene.sink.drained().await;
            self.state.lock().unwrap_or_else(PoisonError::into_inner).full = false;
        }
    }

    /// Whether output was shown, which the outcome then has to replace.
    pub(super) fn showed_output(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).sent
    }

    fn show(&self, text: String) {
        self.send(TurnEvent::CallChanged {
            id: self.call_id,
            tool: self.tool,
            status: Some(CallStatus::InProgress),
            title: None,
            content: Some(&[ToolContent::Text(text)]),
            locations: None,
            raw_output: None,
        });
    }

    fn send(&self, event: TurnEvent<'_>) {
        match self.scene.sink.emit(event) {
            Flow::Ready => {}
            Flow::Full => {
                self.state.lock().unwrap_or_else(PoisonError::into_inner).full = true;
                self.filled.notify_one();
            }
        }
    }
}

impl State {
    /// Adds output; returns what is to be shown now, if anything.
    fn add(&mut self, text: &str) -> Option<String> {
        self.total += text.len();
        // Of a long chunk only the end can ever be shown.
        let start = text.ceil_char_boundary(text.len().saturating_sub(TAIL));
        self.tail.push_str(text.get(start..).unwrap_or_default());
        if self.tail.len() > 2 * TAIL {
            // INVARIANT bounded: cut at twice the size, so that each byte is moved at most once more.
            let cut = self.tail.ceil_char_boundary(self.tail.len() - TAIL);
            self.tail.drain(..cut);
        }
        let new = self.total - self.sent_at;
        let due = if self.sent_at < TAIL { new >= self.sent_at.max(1) } else { new >= STEP };
        if !due || self.full {
            return None;
        }
        self.sent_at = self.total;
        self.sent = true;
        let shown = self.tail.get(self.tail.ceil_char_boundary(self.tail.len().saturating_sub(TAIL))..).unwrap_or("");
        let before = self.total - shown.len();
        Some(if before == 0 { shown.to_owned() } else { format!("[… {before} bytes before …]\n{shown}") })
    }
}

impl Progress for Reporter<'_> {
    fn output(&self, text: &str) {
        let due = self.state.lock().unwrap_or_else(PoisonError::into_inner).add(text);
        if let Some(shown) = due {
            self.show(shown);
        }
    }

    fn status(&self, text: &str) {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.full || state.statuses == MAX_STATUSES {
                return;
            }
            state.statuses += 1;
            state.sent = true;
        }
        self.show(text.to_owned());
    }

    fn terminal(&self, id: &str) {
        let text = "Runs in a terminal of the client.".to_owned();
        self.send(TurnEvent::CallChanged {
            id: self.call_id,
            tool: self.tool,
            status: Some(CallStatus::InProgress),
            title: None,
            content: Some(&[ToolContent::Terminal { id: id.to_owned(), text }]),
            locations: None,
            raw_output: None,
        });
    }

    fn plan(&self, entries: &[PlanEntry]) {
        self.send(TurnEvent::Plan(entries));
    }

    fn message(&self, text: &str) {
        let message = self.scene.ids.message();
        self.send(TurnEvent::Text { message: &message, text });
    }
}
