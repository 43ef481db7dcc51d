//! A model call that is known in advance, played as a stream: what `scripted` and `builtin` answer with.
//! Owns repetition, counters and delays. Repetition is lazy: a million chunks cost one step in memory.

use std::{
    fmt::Write,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use tokio::time::{Sleep, sleep};

use crate::model::{ModelError, ModelEvent, ModelStop, ToolCallRequest, Usage};

/// One step of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Visible text, so many times.
    Text(Template, u64),
    /// Reasoning text, so many times.
    Thought(Template, u64),
    /// A tool call. Without an id it gets one from the replay.
    Call {
        /// The id, where it is fixed.
        id: Option<String>,
        /// The tool.
        name: String,
        /// The text of the arguments.
        arguments: String,
    },
    /// Token counts.
    Usage(Usage),
    /// A pause.
    Delay(Duration),
    /// The end.
    Stop(ModelStop),
    /// The end, badly.
    Fail(ModelError),
}

/// A text in which each `{n}` stands for the number of the repetition, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// What stands between the counters; one piece means there is none.
    pieces: Vec<String>,
    length: usize,
}

impl Template {
    /// Takes the text apart once, so that each repetition only joins.
    pub(crate) fn new(text: &str) -> Self {
        Self { pieces: text.split("{n}").map(str::to_owned).collect(), length: text.len() }
    }

    /// Takes the text as it is, counters and all.
    pub(crate) fn literal(text: &str) -> Self {
        Self { pieces: vec![text.to_owned()], length: text.len() }
    }

    fn render(&self, number: u64) -> String {
        let Some((first, rest)) = self.pieces.split_first() else { return String::new() };
        if rest.is_empty() {
            return first.clone();
        }
        let mut text = String::with_capacity(self.length + COUNTER_SPACE);
        text.push_str(first);
        for piece in rest {
            // Writing to a string cannot fail.
            let _ = write!(text, "{number}");
            text.push_str(piece);
        }
        text
    }
}

/// A stream over the steps of one call.
#[derive(Debug)]
pub(crate) struct Replay {
    steps: Arc<[Step]>,
    at: usize,
    /// Repetitions of the current step already given.
    given: u64,
    /// Before the names of calls without an id.
    id_base: String,
    pause: Option<Pin<Box<Sleep>>>,
    since_yield: u32,
}

impl Replay {
    /// Plays these steps. Calls without an id are named `<id_base>_<n>`, n from 1 within this call.
    pub(crate) fn new(steps: Arc<[Step]>, id_base: String) -> Self {
        Self { steps, at: 0, given: 0, id_base, pause: None, since_yield: 0 }
    }

    fn advance(&mut self) {
        self.at += 1;
        self.given = 0;
    }

    /// The next repetition of a text step; `None` when the step is used up.
    fn repeated(given: &mut u64, template: &Template, times: u64) -> Option<String> {
        if *given >= times {
            return None;
        }
        *given += 1;
        Some(template.render(*given))
    }

    /// The next event, or the pause that has to pass first.
    fn next_event(&mut self) -> Played {
        loop {
            let Some(step) = self.steps.get(self.at) else { return Played::End };
            let event = match step {
                Step::Text(template, times) => match Self::repeated(&mut self.given, template, *times) {
                    Some(text) => return Played::Event(Ok(ModelEvent::Text(text))),
                    None => None,
                },
                Step::Thought(template, times) => match Self::repeated(&mut self.given, template, *times) {
                    Some(text) => return Played::Event(Ok(ModelEvent::Thought(text))),
                    None => None,
                },
                Step::Call { id, name, arguments } => {
                    let id = id.clone().unwrap_or_else(|| format!("{}_{}", self.id_base, self.at + 1));
                    let call = ToolCallRequest { id, name: name.clone(), arguments: arguments.clone() };
                    Some(Ok(ModelEvent::ToolCall(call)))
                }
                Step::Usage(usage) => Some(Ok(ModelEvent::Usage(*usage))),
                Step::Delay(time) => {
                    let time = *time;
                    self.advance();
                    return Played::Pause(time);
                }
                Step::Stop(stop) => Some(Ok(ModelEvent::Stop(*stop))),
                Step::Fail(error) => Some(Err(error.clone())),
            };
            self.advance();
            if let Some(event) = event {
                return Played::Event(event);
            }
        }
    }
}

enum Played {
    Event(Result<ModelEvent, ModelError>),
    Pause(Duration),
    End,
}

impl Stream for Replay {
    type Item = Result<ModelEvent, ModelError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.since_yield >= EVENTS_PER_POLL {
            this.since_yield = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            if let Some(pause) = &mut this.pause {
                if pause.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                this.pause = None;
            }
            match this.next_event() {
                Played::Event(event) => {
                    this.since_yield += 1;
                    return Poll::Ready(Some(event));
                }
                Played::Pause(time) => this.pause = Some(Box::pin(sleep(time))),
                Played::End => return Poll::Ready(None),
            }
        }
    }
}

/// A stream that is always ready would keep its thread from everything else, a cancel included; so it steps back
/// after this many events. Large enough to cost nothing, small enough to be a few microseconds.
const EVENTS_PER_POLL: u32 = 128;
/// Digits of the largest counter.
const COUNTER_SPACE: usize = 20;
