//! Drives one response: bytes from the network into a decoder, events out, with the idle limit.
//!
//! Promises exactly one end: a `Stop` or an error, last. An answer whose end is known but whose connection stays open
//! ends after a short grace. A connection that breaks before anything was shown is worth another try, later it is not.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream::BoxStream};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::model::{
    ModelError, ModelEvent, ModelStop, Usage,
    vendor::{ApiKey, failure},
};

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// More is to come.
    Open,
    /// The reason of the end is known; counts may follow.
    Finishing,
    /// Nothing will follow.
    Ended,
}

/// Understands one vendor's stream.
pub(super) trait Decode: Send + Unpin {
    /// Takes bytes and adds the events they complete.
    fn feed(&mut self, bytes: &[u8], events: &mut VecDeque<ModelEvent>) -> Result<Reach, ModelError>;

    /// Takes the end of the bytes. An event may lack only its end mark.
    fn close(&mut self, events: &mut VecDeque<ModelEvent>) -> Result<Reach, ModelError>;

    /// What is told at the end: calls, counts, the reason.
    fn ending(&mut self) -> Ending;
}

/// The end of an answer.
#[derive(Debug)]
pub(super) struct Ending {
    /// Tool calls that were assembled.
    pub(super) calls: Vec<crate::model::ToolCallRequest>,
    /// Thoughts that the vendor wants back.
    pub(super) signed: Vec<String>,
    /// Token counts.
    pub(super) usage: Option<Usage>,
    /// Why it ended.
    pub(super) stop: ModelStop,
}

/// The stream of one response.
pub(super) struct Answer<D> {
    /// `None` once everything needed has been read; dropping it frees the connection.
    body: Option<BoxStream<'static, reqwest::Result<Bytes>>>,
    decoder: D,
    events: VecDeque<ModelEvent>,
    /// Comes after the events that are waiting.
    failure: Option<ModelError>,
    key: Option<ApiKey>,
    idle: Duration,
    heard: Instant,
    timer: Pin<Box<Sleep>>,
    finishing: bool,
    /// Something was shown already.
    shown: bool,
}

impl<D: Decode> Answer<D> {
    /// Reads this body with this decoder.
    pub(super) fn new(
        body: BoxStream<'static, reqwest::Result<Bytes>>,
        decoder: D,
        idle: Duration,
        key: Option<ApiKey>,
    ) -> Self {
        let heard = Instant::now();
        Self {
            body: Some(body),
            decoder,
            events: VecDeque::new(),
            failure: None,
            key,
            idle,
            heard,
            timer: Box::pin(sleep_until(heard + idle)),
            finishing: false,
            shown: false,
        }
    }

    /// Takes what the decoder made of some bytes.
    fn reached(&mut self, reach: Result<Reach, ModelError>) {
        match reach {
            Ok(Reach::Open) => {}
            Ok(Reach::Finishing) => {
                if !std::mem::replace(&mut self.finishing, true) {
                    self.timer.as_mut().reset(Instant::now() + FINISH_GRACE);
                }
            }
            Ok(Reach::Ended) => self.finish(),
            Err(error) => self.fail(error),
        }
    }

    /// Reads the end of a body whose events are over, beside everything else: only then the connection is used again,
    /// and the next call of a tool loop needs no new handshake.
    fn drain(&mut self) {
        let Some(body) = self.body.take() else { return };
        tokio::spawn(async move {
            let rest = body.take(DRAIN_CHUNKS).for_each(|_| async {});
            // A connection that stays open is given up.
            let _ = timeout(DRAIN_TIME, rest).await;
        });
    }

    fn finish(&mut self) {
        self.body = None;
        let ending = self.decoder.ending();
        self.events.extend(ending.signed.into_iter().map(ModelEvent::Signed));
        self.events.extend(ending.calls.into_iter().map(ModelEvent::ToolCall));
        self.events.extend(ending.usage.map(ModelEvent::Usage));
        self.events.push_back(ModelEvent::Stop(ending.stop));
    }

    fn fail(&mut self, error: ModelError) {
        self.body = None;
        self.failure = Some(error);
    }

    /// The body has ended, well or not.
    fn broke_off(&mut self, message: String) {
        let seen = self.shown || !self.events.is_empty();
        let error =
            if seen { ModelError::Stream(message) } else { ModelError::Transient { message, retry_after: None } };
        self.fail(error);
    }

    /// The time is up: either the grace of a finished answer or the idle limit.
    fn time_up(&mut self) {
        let due = self.heard + self.idle;
        if self.finishing {
            self.finish();
        } else if Instant::now() >= due {
            self.fail(ModelError::Idle(self.idle.as_secs()));
        } else {
            // Setting the timer anew for each chunk would cost more than the chunk.
            self.timer.as_mut().reset(due);
        }
    }
}

impl<D: Decode> Stream for Answer<D> {
    type Item = Result<ModelEvent, ModelError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(event) = this.events.pop_front() {
                this.shown |= !matches!(event, ModelEvent::Usage(_));
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(body) = &mut this.body else { return Poll::Ready(this.failure.take().map(Err)) };
            match body.as_mut().poll_next(context) {
                Poll::Ready(Some(Ok(bytes))) => {
                    this.heard = Instant::now();
                    let reach = this.decoder.feed(&bytes, &mut this.events);
                    if reach == Ok(Reach::Ended) {
                        this.drain();
                    }
                    this.reached(reach);
                }
                Poll::Ready(Some(Err(_))) if this.finishing => this.finish(),
                Poll::Ready(Some(Err(error))) => {
                    let text = failure::chain(&error.without_url(), this.key.as_ref());
                    this.broke_off(text);
                }
                Poll::Ready(None) => match this.decoder.close(&mut this.events) {
                    Ok(Reach::Open) if !this.finishing => {
                        this.broke_off("the connection ended before the answer did".to_owned());
                    }
                    Ok(Reach::Open | Reach::Finishing | Reach::Ended) => this.finish(),
                    // The rest of an event that was cut.
                    Err(ModelError::Stream(message)) => this.broke_off(message),
                    Err(error) => this.fail(error),
                },
                Poll::Pending => {
                    if this.timer.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    this.time_up();
                }
            }
        }
    }
}

/// How long counts and the end mark may come after the reason of the end; vendors send them at once or never.
const FINISH_GRACE: Duration = Duration::from_millis(500);
/// How long the end of a body may come after its last event.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// How much may still come; more is not an end.
const DRAIN_CHUNKS: usize = 8;
