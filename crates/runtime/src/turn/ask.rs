//! One model call: its stream is passed on piece by piece, and what is worth another try before the first output is tried again.
//! It refuses to run tools; the calls of an answer are handed back.

use std::panic::AssertUnwindSafe;

use futures::{FutureExt, StreamExt};

use crate::{
    model::{ModelError, ModelEvent, ModelProvider, ModelRequest, ModelStop, ToolCallRequest, Usage},
    turn::{
        RetryPolicy, TurnEvent, TurnFailure,
        scene::Scene,
        speech::{Speech, Voice},
    },
};

/// Bytes of text, thoughts and arguments in one answer. A model that says more is not coming to an end;
/// the turn fails then, with what was said kept.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Tool calls of one answer; more fail the turn for the same reason.
const MAX_CALLS: usize = 128;

/// How a model call went. Text and thoughts are in the [`Speech`].
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) end: End,
    /// Whole tool calls that came before the end.
    pub(super) calls: Vec<ToolCallRequest>,
    /// Thoughts in the vendor's own form.
    pub(super) signed: Vec<String>,
    /// What the vendor counted, all tries together.
    pub(super) usage: Option<Usage>,
    /// What the vendor counted for the last try.
    pub(super) last: Option<Usage>,
}

/// What an answer holds besides its text.
#[derive(Default)]
struct Said {
    calls: Vec<ToolCallRequest>,
    signed: Vec<String>,
    counted: Option<Usage>,
}

/// Why a model call ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself.
    Stopped(ModelStop),
    /// The turn was cancelled.
    Cancelled,
    /// It failed for good.
    Failed(TurnFailure),
}

/// Who gets to see an answer while it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// The client.
    Client,
    /// Nobody: it is for the loop itself.
    Nobody,
}

/// Asks a model, with retries.
pub(super) async fn ask(
    scene: &Scene<'_>,
    provider: &dyn ModelProvider,
    retry: RetryPolicy,
    request: &ModelRequest,
    speech: &mut Speech,
    audience: Audience,
) -> Answer {
    let mut usage = None;
    let mut attempt = 1;
    loop {
        let mut said = Said::default();
        let end = once(scene, provider, request.clone(), speech, &mut said, audience).await;
        let Said { calls, signed, counted } = said;
        usage = total(usage, counted);
        let End::Failed(TurnFailure::Model(error)) = &end else {
            return Answer { end, calls, signed, usage, last: counted };
        };
        // What was shown cannot be taken back: another try would say it twice.
        let untouched = speech.len() == 0 && calls.is_empty();
        let Some(wait) = retry.wait(attempt, error, (scene.agent.random)()).filter(|_| untouched) else {
            return Answer { end, calls, signed, usage, last: counted };
        };
        tracing::debug!(event = "model_retry", attempt, wait_ms = wait.as_millis(), "the model call is tried again");
        tokio::select! {
            biased;
            () = scene.cancel.cancelled() => return Answer { end: End::Cancelled, calls, signed, usage, last: counted },
            () = tokio::time::sleep(wait) => {}
        }
        attempt += 1;
    }
}

/// Adds token counts up; nothing counted stays nothing.
pub(super) fn total(before: Option<Usage>, more: Option<Usage>) -> Option<Usage> {
    match (before, more) {
        (Some(a), Some(b)) => Some(Usage {
            input: a.input.saturating_add(b.input),
            output: a.output.saturating_add(b.output),
            cached: a.cached.saturating_add(b.cached),
            written: a.written.saturating_add(b.written),
        }),
        (some, None) | (None, some) => some,
    }
}

async fn once(
    scene: &Scene<'_>,
    provider: &dyn ModelProvider,
    request: ModelRequest,
    speech: &mut Speech,
    said: &mut Said,
    audience: Audience,
) -> End {
    let cancelled = scene.cancel.cancelled();
    tokio::pin!(cancelled);
    let started = tokio::select! {
        biased;
        () = &mut cancelled => return End::Cancelled,
        started = AssertUnwindSafe(provider.stream(request)).catch_unwind() => started,
    };
    let stream = match started {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return End::Failed(error.into()),
        Err(_) => return End::Failed(broke_down()),
    };
    let mut stream = AssertUnwindSafe(stream).catch_unwind();
    let mut argument_bytes = 0;
    loop {
        // A source that is always ready must not keep the thread from whoever brings the cancel.
        tokio::task::consume_budget().await;
        let next = tokio::select! {
            biased;
            () = &mut cancelled => return End::Cancelled,
            next = stream.next() => next,
        };
        let event = match next {
            Some(Ok(Ok(event))) => event,
            Some(Ok(Err(error))) => return End::Failed(error.into()),
            Some(Err(_)) => return End::Failed(broke_down()),
            None => return End::Failed(ModelError::Stream("it ended without a final event".to_owned()).into()),
        };
        match event {
            ModelEvent::Text(piece) => say(scene, speech, Voice::Text, &piece, audience).await,
            ModelEvent::Thought(piece) => say(scene, speech, Voice::Thought, &piece, audience).await,
            ModelEvent::ToolCall(call) => {
                speech.pause();
                argument_bytes += call.arguments.len();
                said.calls.push(call);
            }
            ModelEvent::Signed(thought) => {
                argument_bytes += thought.len();
                said.signed.push(thought);
            }
            ModelEvent::Usage(counted) => said.counted = Some(counted),
            ModelEvent::Stop(stop) => return End::Stopped(stop),
        }
        if speech.len() + argument_bytes > MAX_ANSWER {
            return End::Failed(ModelError::Stream(format!("it is longer than {MAX_ANSWER} bytes")).into());
        }
        if said.calls.len() > MAX_CALLS {
            return End::Failed(ModelError::Stream(format!("it has more than {MAX_CALLS} tool calls")).into());
        }
    }
}

async fn say(scene: &Scene<'_>, speech: &mut Speech, voice: Voice, piece: &str, audience: Audience) {
    if piece.is_empty() {
        return;
    }
    let message = speech.add(voice, piece, &scene.ids);
    if audience == Audience::Nobody {
        return;
    }
    scene
        .emit(match voice {
            Voice::Text => TurnEvent::Text { message, text: piece },
            Voice::Thought => TurnEvent::Thought { message, text: piece },
        })
        .await;
}

fn broke_down() -> TurnFailure {
    TurnFailure::Internal("the model provider broke down".to_owned())
}
