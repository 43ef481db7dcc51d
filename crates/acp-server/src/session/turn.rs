//! One turn as the server sees it: the prompt is taken in, the runtime runs, the end is stored, the client is answered.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use zeroclaw_acp_protocol::{
    ContentBlock, ErrorKind, RequestId, SessionUpdate,
    result::{Meta, PromptMeta, PromptResult, PromptUsage},
};
use zeroclaw_runtime::{
    model::Message,
    turn::{Flow, Remembered, StopReason, TurnError, TurnEvent, TurnInput, TurnOutcome, TurnSink, run_turn},
};
use zeroclaw_session_store::{Batch, EventKind, MessageRecord, SessionPatch, TurnEnd, TurnStart, TurnState};

use super::{Pump, talk::Talk};
use crate::{
    agents::AgentEntry,
    client::Client,
    encode,
    error::CallError,
    prompt::{self, TakenPrompt},
    server::Shared,
    workspace::Workspace,
};

/// Bytes of a prompt that are kept with its turn, besides its events.
const MAX_KEPT_PROMPT: usize = 256 * 1024;

/// What every turn of a session shares.
#[derive(Debug)]
pub(super) struct TurnScene {
    pub(super) id: Arc<str>,
    pub(super) server: Arc<Shared>,
    pub(super) pump: Arc<Pump>,
    pub(super) entry: Arc<AgentEntry>,
    pub(super) workspace: Workspace,
    pub(super) remembered: Mutex<Remembered>,
    /// Position of the next message in the store.
    pub(super) position: AtomicU64,
    /// Whether the session has a title; the first turn gives it one.
    pub(super) titled: AtomicBool,
}

/// A prompt that waits for its answer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) client: Arc<Client>,
    pub(super) id: RequestId,
}

/// What the session knows after a turn.
#[derive(Debug)]
pub(super) struct TurnDone {
    pub(super) history: Vec<Arc<Message>>,
    /// Whether the turn's number was used.
    pub(super) began: bool,
    /// Notes that the turn did not use.
    pub(super) notes: Vec<String>,
    /// How the prompt is to be answered, once the session takes the next one: a client that has read the answer may
    /// prompt again at once.
    pub(super) answer: Result<Answer, CallError>,
}

/// What a prompt's result is made of.
#[derive(Debug)]
pub(super) struct Answer {
    outcome: TurnOutcome,
    persisted: bool,
}

impl TurnScene {
    /// Runs a prompt from the raw parameter to its stored end. Never panics: what panics inside is the turn's failure.
    pub(super) async fn run(
        self: Arc<Self>,
        turn: u64,
        raw: Box<RawValue>,
        notes: Vec<String>,
        mut history: Vec<Arc<Message>>,
        asked: Asked,
        cancel: CancellationToken,
    ) -> TurnDone {
        let taken = match self.take(raw).await {
            Ok(taken) => taken,
            Err(error) => return TurnDone { history, began: false, notes, answer: Err(error) },
        };
        let title = title(&taken.text);
        self.begin(turn, &taken, &asked);
        let before = history.clone();
        let running = self.run_model(turn, taken.text, notes, &mut history, cancel);
        let outcome = AssertUnwindSafe(running).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(session = %self.id, turn, "a turn panicked");
            Err(Broken::Panic)
        });
        if matches!(outcome, Err(Broken::Panic)) {
            history = before;
        }
        self.title(turn, title);
        let answer = self.finish(turn, outcome).await;
        TurnDone { history, began: true, notes: Vec::new(), answer }
    }

    async fn take(&self, raw: Box<RawValue>) -> Result<TakenPrompt, CallError> {
        let (jail, rules) = (Arc::clone(&self.workspace.jail), Arc::clone(&self.entry.rules));
        let task = tokio::task::spawn_blocking(move || prompt::take(prompt::check(&raw)?, &jail, &rules));
        task.await.unwrap_or_else(|_| Err(CallError::new(ErrorKind::Internal, "the prompt could not be taken in")))
    }

    /// Enters the turn and the user's words into the log.
    fn begin(&self, turn: u64, taken: &TakenPrompt, asked: &Asked) {
        let mut prompt = Vec::new();
        if let Err(error) = serde_json::to_writer(&mut prompt, &taken.blocks) {
            tracing::error!(%error, "a prompt could not be encoded");
        }
        // A large prompt is in the log anyway and need not be kept twice.
        if prompt.len() > MAX_KEPT_PROMPT {
            prompt = b"null".to_vec();
        }
        self.pump.begin_turn(TurnStart {
            turn,
            prompt: Bytes::from(prompt),
            started_at_ms: self.server.now_ms(),
            batch: Batch::default(),
        });
        let message_id = format!("u-{turn}");
        for block in &taken.blocks {
            self.pump.prompt_part(turn, &asked.client, &asked.id, |out| {
                encode::write(
                    out,
                    &SessionUpdate::UserMessageChunk { content: block.clone(), message_id: &message_id },
                );
            });
        }
    }

    async fn run_model(
        self: &Arc<Self>,
        turn: u64,
        text: String,
        notes: Vec<String>,
        history: &mut Vec<Arc<Message>>,
        cancel: CancellationToken,
    ) -> Result<TurnOutcome, Broken> {
        let scene = Arc::clone(self);
        let system = tokio::task::spawn_blocking(move || scene.workspace.system_prompt(&scene.entry)).await;
        let system = system.map_err(|_| Broken::Panic)?;
        let talk = Arc::new(Talk::new(Arc::clone(&self.server), Arc::clone(&self.id), Arc::clone(&self.pump)));
        let sink = Sink { scene: self, turn };
        // Notes stand behind the prompt, so that a prompt that is a command stays one.
        let prompt = notes.into_iter().fold(text, |prompt, note| format!("{prompt}\n\n{note}"));
        let input = TurnInput {
            turn,
            system: system.into(),
            history,
            prompt,
            jail: Arc::clone(&self.workspace.jail),
            rules: Arc::clone(&self.entry.rules),
            settings: Arc::clone(&self.entry.settings),
            sink: &sink,
            approver: talk.as_ref(),
            asker: Arc::clone(&talk) as _,
            remembered: &self.remembered,
            cancel,
        };
        run_turn(&self.entry.agent, input).await.map_err(Broken::Turn)
    }

    /// Gives a session without a title one, before the answer: several editors stop listening after it.
    fn title(&self, turn: u64, title: String) {
        if title.is_empty() || self.titled.swap(true, Ordering::Relaxed) {
            return;
        }
        let updated_at = self.server.rfc3339(self.server.now_ms());
        let update = SessionUpdate::SessionInfoUpdate { title: &title, updated_at: &updated_at };
        match self.pump.event(EventKind::Update, Some(turn), |out| encode::write(out, &update)) {
            Flow::Ready | Flow::Full => {}
        }
        self.pump.patch(SessionPatch { title: Some(Some(title)), ..SessionPatch::default() });
    }

    /// Stores the end, after every update of the turn.
    async fn finish(&self, turn: u64, outcome: Result<TurnOutcome, Broken>) -> Result<Answer, CallError> {
        let (state, stop) = match &outcome {
            Ok(outcome) if outcome.stop == StopReason::Cancelled => (TurnState::Cancelled, Some(outcome.stop)),
            Ok(outcome) => (TurnState::Completed, Some(outcome.stop)),
            Err(_) => (TurnState::Failed, None),
        };
        let end = TurnEnd {
            turn,
            state,
            stop_reason: stop.map(|stop| encode::stop_reason(stop).to_owned()),
            ended_at_ms: self.server.now_ms(),
            batch: Batch::default(),
        };
        let persisted = self.pump.end_turn(end).await;
        if !persisted {
            self.warn_unsaved(turn).await;
        }
        match outcome {
            Ok(outcome) => Ok(Answer { outcome, persisted }),
            Err(broken) => Err(broken.to_call_error()),
        }
    }

    /// Tells the user before the answer: an answer that is not on disk must not look like one that is.
    async fn warn_unsaved(&self, turn: u64) {
        let text =
            "\n\n[This turn could not be saved: the session store does not write. It may be missing after a restart.]";
        let message_id = format!("w-{turn}");
        let update = SessionUpdate::AgentMessageChunk { content: ContentBlock::text(text), message_id: &message_id };
        match self.pump.event(EventKind::Update, None, |out| encode::write(out, &update)) {
            Flow::Ready | Flow::Full => {}
        }
        // Whether this is stored does not matter any more: it says that it is not.
        let _saved = self.pump.barrier().await;
    }

    /// Answers a prompt.
    pub(super) fn answer(&self, asked: &Asked, answer: &Result<Answer, CallError>) {
        let Answer { outcome, persisted } = match answer {
            Ok(answer) => answer,
            Err(error) => return asked.client.respond::<()>(&asked.id, Err(error)),
        };
        let persisted = *persisted;
        let strict = self.server.settings.strict;
        let content = if outcome.stop == StopReason::Cancelled {
            format!("{}\n\n[turn cancelled via client]", outcome.text)
        } else {
            outcome.text.clone()
        };
        let usage = outcome.usage.map(|usage| PromptUsage {
            total_tokens: usage.input + usage.output,
            input_tokens: usage.input,
            output_tokens: usage.output,
            cached_read_tokens: usage.cached,
        });
        let result = PromptResult {
            stop_reason: encode::stop_reason(outcome.stop),
            session_id: (!strict).then_some(&*self.id),
            content: (!strict).then_some(content.as_str()),
            usage,
            meta: (!persisted).then_some(Meta { zeroclaw: PromptMeta { persisted } }),
        };
        asked.client.respond(&asked.id, Ok(&result));
    }
}

/// Why a turn has no outcome.
enum Broken {
    Turn(TurnError),
    Panic,
}

impl Broken {
    fn to_call_error(&self) -> CallError {
        match self {
            Self::Turn(error) => CallError::from_turn(error),
            Self::Panic => CallError::new(ErrorKind::Internal, "the turn failed: internal error"),
        }
    }
}

/// Writes a turn's events into the session's pump.
struct Sink<'a> {
    scene: &'a TurnScene,
    turn: u64,
}

#[async_trait]
impl TurnSink for Sink<'_> {
    fn emit(&self, event: TurnEvent<'_>) -> Flow {
        self.scene.pump.event(EventKind::Update, Some(self.turn), |out| encode::event(out, &event))
    }

    async fn drained(&self) {
        self.scene.pump.drained().await;
    }

    fn record(&self, message: &Arc<Message>) {
        match serde_json::to_vec(message.as_ref()) {
            Ok(json) => self.scene.pump.message(MessageRecord {
                position: self.scene.position.fetch_add(1, Ordering::Relaxed),
                turn: self.turn,
                payload: Bytes::from(json),
            }),
            Err(error) => tracing::error!(%error, "a message could not be encoded"),
        }
    }
}

/// The first line of a prompt, short.
fn title(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut title: String = line.chars().filter(|c| !c.is_control()).take(80).collect();
    if line.chars().count() > 80 {
        title.push('…');
    }
    title
}
