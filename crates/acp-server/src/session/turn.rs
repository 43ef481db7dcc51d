//! One turn as the server sees it: the prompt is taken in, the runtime runs, the end is stored, the client is answered.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::FutureExt as _;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use zeroclaw_acp_protocol::{
    CallStatus, ContentBlock, ErrorKind, NoticeSeverity, RequestId, SessionUpdate,
    params::{ClientCapabilities, OptionValue, SystemPrompt},
    result::{
        ConfigKind, ConfigOptionsResult, LoadSessionResult, LogPosition, Meta, NewSessionResult, PromptMeta,
        PromptResult, PromptUsage,
    },
};
use zeroclaw_runtime::{
    model::{Message, ModelProvider},
    turn::{Agent, Flow, Gauge, Remembered, StopReason, TurnError, TurnInput, TurnOutcome, compact, run_turn},
};
use zeroclaw_session_store::{Batch, EventKind, SessionPatch, TurnEnd, TurnStart, TurnState};

use super::{Notice, Pump, attach::Ended, lend, mcp::SessionMcp, repair::INTERRUPTED, sink::Sink, talk::Talk};
use crate::{
    agents::{AgentEntry, AgentTable},
    choices::{self, Changed, Chosen},
    client::{Client, lock},
    commands::{self, SessionCommand},
    cost::Spent,
    encode,
    error::CallError,
    meters::Measured,
    prompt::{self, TakenPrompt},
    server::Shared,
    workspace::Workspace,
};

/// Stands for a stop reason in the store where a failed turn left nothing in the conversation.
pub(super) const FORGOTTEN: &str = "forgotten";

/// Bytes of a prompt that are kept with its turn, besides its events.
const MAX_KEPT_PROMPT: usize = 256 * 1024;

/// What every turn of a session shares.
#[derive(Debug)]
pub(super) struct TurnScene {
    pub(super) id: Arc<str>,
    pub(super) server: Arc<Shared>,
    pub(super) pump: Arc<Pump>,
    /// The agents that `entry` was last compared with.
    pub(super) agents: Mutex<Arc<AgentTable>>,
    pub(super) entry: Mutex<Arc<AgentEntry>>,
    /// Mode and model in force for the next turn.
    pub(super) chosen: Mutex<Chosen>,
    /// Instructions of the client.
    pub(super) system_prompt: Option<SystemPrompt>,
    /// What all model calls since the session was made have used. Locked over what is kept of it, so that a later state
    /// is never overwritten by an earlier one.
    pub(super) spent: Mutex<Spent>,
    pub(super) workspace: Workspace,
    /// Servers that lend the session tools.
    pub(super) mcp: SessionMcp,
    /// The "always" answers that count: the session's own, and as of the last turn those of its agent and directory.
    pub(super) remembered: Mutex<Remembered>,
    /// The calls of the running turn that have no final state: id and tool.
    pub(super) open_calls: Mutex<Vec<(String, String)>>,
    /// How far the estimate of tokens is off.
    pub(super) gauge: Gauge,
    /// Position of the next message in the store.
    pub(super) position: AtomicU64,
    /// Whether the session has a title; the first turn gives it one.
    pub(super) titled: AtomicBool,
}

/// Which answer shows what can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presented {
    /// To `session/new`.
    New,
    /// To `session/load` and `session/resume`, behind this event.
    Again { seq: u64 },
    /// To `session/set_config_option`.
    Options,
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
    /// The session's agent.
    pub(super) fn entry(&self) -> Arc<AgentEntry> {
        Arc::clone(&lock(&self.entry))
    }

    /// Takes over what a login or logout since has changed about the models; whether there was something.
    /// Only between turns, and never from two tasks at once: the session's actor calls it.
    pub(super) fn renew(&self) -> bool {
        let now = self.server.agents();
        if Arc::ptr_eq(&std::mem::replace(&mut *lock(&self.agents), Arc::clone(&now)), &now) {
            return false;
        }
        let Some(entry) = now.renewed(&self.entry()) else { return false };
        let chosen = {
            let mut chosen = lock(&self.chosen);
            *chosen = chosen.carried_to(&entry);
            chosen.clone()
        };
        self.tell_options(&chosen, &entry, None);
        *lock(&self.entry) = Arc::new(entry);
        true
    }

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
        let (taken, command) = match self.take(raw).await {
            Ok(taken) => taken,
            Err(error) => return TurnDone { history, began: false, notes, answer: Err(error) },
        };
        let before = history.clone();
        let mut began = false;
        // A command of the session uses no notes: they wait for the model's next turn.
        let unused = if command.is_some() { notes.clone() } else { Vec::new() };
        let running = async {
            let title = title(&taken.text);
            self.begin(turn, &taken, &asked, &mut began);
            let outcome = match command {
                Some(SessionCommand::Compact(wishes)) => {
                    self.run_model(turn, (Work::Compaction, wishes), &mut history, &asked.client, cancel).await
                }
                Some(command) => Ok(self.obey(turn, &command)),
                None => {
                    // Notes stand behind the prompt, so that a prompt that is a command stays one.
                    let text = notes.into_iter().fold(taken.text, |text, note| format!("{text}\n\n{note}"));
                    self.run_model(turn, (Work::Prompt, text), &mut history, &asked.client, cancel).await
                }
            };
            self.title(turn, title);
            outcome
        };
        let outcome = AssertUnwindSafe(running).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(session = %self.id, turn, "a turn panicked");
            Err(Broken::Panic)
        });
        let open = std::mem::take(&mut *lock(&self.open_calls));
        if matches!(outcome, Err(Broken::Panic)) {
            history = before;
            self.fail_calls(turn, &open);
        }
        if !began {
            return TurnDone { history, began, notes: Vec::new(), answer: Err(CallError::panicked()) };
        }
        // A prompt that the model's vendor does not take is out of the conversation; a later load must agree.
        let forgotten = match &outcome {
            Ok(_) => false,
            Err(Broken::Turn(error)) => error.forgotten,
            Err(Broken::Interrupted) => false,
            Err(Broken::Panic) => true,
        };
        let answer = self.finish(turn, outcome, forgotten).await;
        TurnDone { history, began: true, notes: unused, answer }
    }

    async fn take(self: &Arc<Self>, raw: Box<RawValue>) -> Result<(TakenPrompt, Option<SessionCommand>), CallError> {
        let scene = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            let mut taken = prompt::take(prompt::check(&raw)?, &scene.workspace.jail, &scene.entry().rules)?;
            // What the user typed is a command of the session; what a file says never is: it must not choose the mode.
            let command = SessionCommand::parse(&taken.text);
            if command.is_none() && taken.text.starts_with('/') {
                let files = commands::read(&scene.workspace, &scene.entry(), &lock(&scene.chosen).clone());
                if let Some(text) = commands::expand(&taken.text, &files)? {
                    taken.text = text;
                }
            }
            Ok((taken, command))
        });
        task.await.unwrap_or_else(|_| Err(CallError::new(ErrorKind::Internal, "the prompt could not be taken in")))
    }

    /// Enters the turn and the user's words into the log.
    fn begin(&self, turn: u64, taken: &TakenPrompt, asked: &Asked, began: &mut bool) {
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
        *began = true;
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

    /// Ends the calls that a panic left open.
    fn fail_calls(&self, turn: u64, open: &[(String, String)]) {
        for (id, tool) in open {
            let update = SessionUpdate::ToolCallUpdate {
                tool_call_id: id,
                name: tool,
                status: Some(CallStatus::Failed),
                title: None,
                content: None,
                locations: None,
                raw_output: Some("internal error"),
            };
            match self.pump.event(EventKind::Update, Some(turn), |out| encode::write(out, &update)) {
                Flow::Ready | Flow::Full => {}
            }
        }
    }

    /// Removes what the session's commands left in their temporary directory.
    pub(super) async fn clean_up(&self) {
        let jail = Arc::clone(&self.workspace.jail);
        // It can only fail by the end of the process.
        let _ = tokio::task::spawn_blocking(move || jail.clean_up()).await;
    }

    async fn run_model(
        self: &Arc<Self>,
        turn: u64,
        (work, prompt): (Work, String),
        history: &mut Vec<Arc<Message>>,
        client: &Arc<Client>,
        cancel: CancellationToken,
    ) -> Result<TurnOutcome, Broken> {
        let scene = Arc::clone(self);
        self.recall().await;
        let entry = self.entry();
        let chosen = lock(&self.chosen).clone();
        let rules = chosen.rules(&entry);
        let agent = self.equip(turn, chosen.agent(&entry), &cancel).await;
        let system = {
            let (rules, tools, entry) = (Arc::clone(&rules), Arc::clone(&agent.tools), Arc::clone(&entry));
            tokio::task::spawn_blocking(move || {
                scene.workspace.system_prompt(&entry, &rules, &tools, scene.system_prompt.as_ref())
            })
            .await
        };
        let system = system.map_err(|_| Broken::Panic)?;
        let talk = Arc::new(Talk::new(Arc::clone(self)));
        let price = chosen.model(&entry).and_then(|model| model.price.clone());
        let thoughts = chosen.shows_thoughts();
        let sink = Sink { scene: self, client, turn, price, entry: Arc::clone(&entry), thoughts };
        let input = TurnInput {
            turn,
            system: system.into(),
            history,
            prompt,
            thinking: chosen.thinking(&entry),
            jail: Arc::clone(&self.workspace.jail),
            rules,
            settings: Arc::clone(&entry.settings),
            sink: &sink,
            approver: talk.as_ref(),
            client: lend::means(&self.server.settings, client, &self.pump),
            asker: Arc::clone(&talk) as _,
            remembered: &self.remembered,
            gauge: &self.gauge,
            cancel,
        };
        let done = match work {
            Work::Prompt => run_turn(&agent, input).await,
            Work::Compaction => compact(&agent, input).await,
        };
        done.map_err(Broken::Turn)
    }

    /// Adds the tools of the MCP servers, which the first prompt waits for: a model that is asked before they are there
    /// believes that it has none.
    async fn equip(&self, turn: u64, agent: Arc<Agent>, cancel: &CancellationToken) -> Arc<Agent> {
        let servers = self.mcp.servers();
        if !servers.is_empty() {
            tokio::select! {
                () = servers.settled() => {}
                () = cancel.cancelled() => {}
            }
        }
        for (number, what) in self.mcp.news().into_iter().enumerate() {
            let text = format!("[{what}]\n\n");
            let message_id = format!("s-{turn}-{number}");
            let update =
                SessionUpdate::AgentMessageChunk { content: ContentBlock::text(&text), message_id: &message_id };
            match self.pump.event(EventKind::Update, Some(turn), |out| encode::write(out, &update)) {
                Flow::Ready | Flow::Full => {}
            }
        }
        let lent = servers.tools();
        let tools = if lent.is_empty() { Arc::clone(&agent.tools) } else { Arc::new(agent.tools.with(lent)) };
        let measured = |provider: &Arc<dyn ModelProvider>| -> Arc<dyn ModelProvider> {
            Arc::new(Measured { provider: Arc::clone(provider), meters: Arc::clone(&self.server.meters) })
        };
        let mut agent = Agent { tools, provider: measured(&agent.provider), ..agent.as_ref().clone() };
        for fallback in &mut agent.fallbacks {
            fallback.provider = measured(&fallback.provider);
        }
        Arc::new(agent)
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

    /// Carries out a command of the session itself: no model is asked.
    fn obey(&self, turn: u64, command: &SessionCommand) -> TurnOutcome {
        let text = match command {
            SessionCommand::Mode(wanted) => self.choose(choices::MODE, wanted.as_deref()),
            SessionCommand::Model(wanted) => self.choose(choices::MODEL, wanted.as_deref()),
            SessionCommand::Usage => lock(&self.spent).to_string(),
            // It needs the model, so `run` does it.
            SessionCommand::Compact(_) => String::new(),
        };
        let message_id = format!("m-{turn}-1");
        let update = SessionUpdate::AgentMessageChunk { content: ContentBlock::text(&text), message_id: &message_id };
        match self.pump.event(EventKind::Update, Some(turn), |out| encode::write(out, &update)) {
            Flow::Ready | Flow::Full => {}
        }
        TurnOutcome { stop: StopReason::EndTurn, text, usage: None, model: None }
    }

    /// Chooses, or lists what can be chosen.
    fn choose(&self, id: &str, wanted: Option<&str>) -> String {
        let value = wanted.map(|wanted| OptionValue::Id(wanted.to_owned()));
        let changed = value.map(|value| self.change(None, |chosen, entry| chosen.set_option(entry, id, &value)));
        let (entry, chosen) = (self.entry(), lock(&self.chosen).clone());
        let options = chosen.options(&entry, ClientCapabilities::default());
        let Some(option) = options.iter().find(|option| option.id == id) else { return String::new() };
        let ConfigKind::Select { current_value, options: values } = &option.kind else { return String::new() };
        let mut text = match changed {
            Some(Ok(())) => return format!("{} is now `{current_value}`.", option.name),
            Some(Err(error)) => format!("{}.\n\n", error.message),
            None => String::new(),
        };
        text.push_str(&format!("{}:\n", option.name));
        for value in values {
            let mark = if value.value == *current_value { " (in force)" } else { "" };
            text.push_str(&format!("\n- `{}` {}{mark}", value.value, value.name));
        }
        text
    }

    /// Answers whoever opened, loaded or resumed the session with what can be chosen in it.
    pub(super) fn present(&self, client: &Client, request: &RequestId, how: Presented) {
        let (entry, chosen) = (self.entry(), lock(&self.chosen).clone());
        let modes = Chosen::modes(&entry);
        let modes = chosen.mode_state(&modes);
        let config_options = &chosen.options(&entry, client.capabilities());
        match how {
            Presented::New => {
                let workspace_dir = (!self.server.settings.strict).then_some(self.workspace.cwd.as_path());
                let session_id = &self.id;
                client.respond(request, Ok(&NewSessionResult { session_id, workspace_dir, modes, config_options }));
            }
            Presented::Again { seq } => {
                let meta = client.capabilities().seq.then_some(Meta { zeroclaw: LogPosition { seq } });
                client.respond(request, Ok(&LoadSessionResult { modes, config_options, meta }));
            }
            Presented::Options => client.respond(request, Ok(&ConfigOptionsResult { config_options })),
        }
    }

    /// Changes what is chosen, keeps it and tells the clients. `by` is told by the answer to its own request.
    pub(super) fn change(
        &self,
        by: Option<&Arc<Client>>,
        change: impl FnOnce(&mut Chosen, &AgentEntry) -> Result<Changed, CallError>,
    ) -> Result<(), CallError> {
        let entry = self.entry();
        let (chosen, changed) = {
            let mut chosen = lock(&self.chosen);
            let changed = change(&mut chosen, &entry)?;
            (chosen.clone(), changed)
        };
        self.keep(&lock(&self.spent));
        if changed == Changed::Mode {
            self.tell_mode(chosen.mode());
        }
        self.tell_options(&chosen, &entry, by);
        Ok(())
    }

    /// Stores what is chosen and what was used. Taking the lock is the caller's proof that nobody else stores meanwhile.
    pub(super) fn keep(&self, spent: &MutexGuard<'_, Spent>) {
        let config = Some(Bytes::from(lock(&self.chosen).to_json(spent)));
        self.pump.patch(SessionPatch { config, ..SessionPatch::default() });
    }

    /// Tells every client the mode in force, under the name that it reads.
    fn tell_mode(&self, mode: &str) {
        let update = SessionUpdate::CurrentModeUpdate { current_mode_id: mode };
        for client in self.pump.clients() {
            if client.wants_mode_id() {
                let mut encoded = Vec::new();
                encode::write_twice_named_mode(&mut encoded, &update, mode);
                self.pump.tell_encoded(&client, &encoded);
            } else {
                self.pump.tell(&client, &update);
            }
        }
    }

    /// Tells every client (but one) the options, as far as it understands them.
    fn tell_options(&self, chosen: &Chosen, entry: &AgentEntry, but: Option<&Arc<Client>>) {
        for client in self.pump.clients() {
            if but.is_none_or(|but| !Arc::ptr_eq(but, &client)) {
                let config_options = &chosen.options(entry, client.capabilities());
                self.pump.tell(&client, &SessionUpdate::ConfigOptionUpdate { config_options });
            }
        }
    }

    /// Tells every client (but one) something that is state of now, not history.
    pub(super) fn tell(&self, update: &SessionUpdate<'_>, but: Option<&Arc<Client>>) {
        for client in self.pump.clients() {
            if but.is_none_or(|but| !Arc::ptr_eq(but, &client)) {
                self.pump.tell(&client, update);
            }
        }
    }

    /// Stores the end, after every update of the turn.
    async fn finish(
        &self,
        turn: u64,
        outcome: Result<TurnOutcome, Broken>,
        forgotten: bool,
    ) -> Result<Answer, CallError> {
        let outcome = match outcome {
            Ok(outcome) if outcome.stop == StopReason::Cancelled && self.server.is_ending() => {
                self.mark_interrupted(turn);
                Err(Broken::Interrupted)
            }
            other => other,
        };
        let (state, stop) = match &outcome {
            Err(Broken::Interrupted) => (TurnState::Interrupted, None),
            Ok(outcome) if outcome.stop == StopReason::Cancelled => (TurnState::Cancelled, Some(outcome.stop)),
            Ok(outcome) => (TurnState::Completed, Some(outcome.stop)),
            Err(_) => (TurnState::Failed, None),
        };
        let word = stop.map(encode::stop_reason).or(forgotten.then_some(FORGOTTEN));
        let end = TurnEnd {
            turn,
            state,
            stop_reason: word.map(str::to_owned),
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

    /// Says where the turn broke off, as it is said of a process that died.
    fn mark_interrupted(&self, turn: u64) {
        let message_id = format!("i-{turn}");
        let update =
            SessionUpdate::AgentMessageChunk { content: ContentBlock::text(INTERRUPTED), message_id: &message_id };
        match self.pump.event(EventKind::Update, Some(turn), |out| encode::write(out, &update)) {
            Flow::Ready | Flow::Full => {}
        }
    }

    /// Tells the user before the answer: an answer that is not on disk must not look like one that is.
    async fn warn_unsaved(&self, turn: u64) {
        let id = format!("w-{turn}");
        self.pump.notice(&Notice {
            id: &id,
            severity: NoticeSeverity::Error,
            title: "This turn could not be saved",
            description: Some("the session store does not write. It may be missing after a restart."),
        });
        let _saved = self.pump.barrier().await;
    }

    /// Answers a prompt.
    pub(super) fn answer(&self, asked: &Asked, answer: &Result<Answer, CallError>) {
        let Answer { outcome, persisted } = match answer {
            Ok(answer) => answer,
            Err(error) => return asked.client.respond::<()>(&asked.id, Err(error)),
        };
        self.with_result(asked, outcome, *persisted, |result| asked.client.respond(&asked.id, Ok(result)));
    }

    /// How a turn ended, for clients that its prompt did not come from.
    pub(super) fn ended(&self, asked: &Asked, answer: &Result<Answer, CallError>) -> Ended {
        let raw = match answer {
            Ok(Answer { outcome, persisted }) => self
                .with_result(asked, outcome, *persisted, |result| serde_json::value::to_raw_value(result))
                .map_err(|error| {
                    tracing::error!(%error, "a result could not be encoded");
                    CallError::new(ErrorKind::Internal, "the result could not be encoded")
                }),
            Err(error) => Err(error.clone()),
        };
        match raw {
            Ok(raw) => Ended::Result(raw),
            Err(error) => Ended::Error(asked.client.wire_error(&error)),
        }
    }

    fn with_result<R>(
        &self,
        asked: &Asked,
        outcome: &TurnOutcome,
        persisted: bool,
        then: impl FnOnce(&PromptResult<'_>) -> R,
    ) -> R {
        let strict = self.server.settings.strict;
        // The rest of the answer is small.
        let room = asked.client.max_line().saturating_sub(4096);
        let content = if outcome.stop == StopReason::Cancelled {
            format!("{}\n\n[turn cancelled via client]", outcome.text)
        } else {
            outcome.text.clone()
        };
        let usage = outcome.usage.map(|usage| PromptUsage {
            total_tokens: usage.input.saturating_add(usage.output),
            input_tokens: usage.input,
            output_tokens: usage.output,
            cached_read_tokens: usage.cached,
            cached_write_tokens: Some(usage.written).filter(|written| *written > 0),
        });
        let result = PromptResult {
            stop_reason: encode::stop_reason(outcome.stop),
            session_id: (!strict).then_some(&*self.id),
            // It was told in messages already, so a client that reads no such line misses nothing.
            content: (!strict && prompt::encoded_len(&content) < room).then_some(content.as_str()),
            usage,
            meta: (!persisted || outcome.model.is_some())
                .then_some(Meta { zeroclaw: PromptMeta { persisted, model: outcome.model.as_deref() } }),
        };
        then(&result)
    }
}

/// What a model is asked for.
#[derive(Clone, Copy)]
enum Work {
    /// To answer a prompt.
    Prompt,
    /// To make the conversation shorter.
    Compaction,
}

/// Why a turn has no outcome.
enum Broken {
    Turn(TurnError),
    Panic,
    /// The server ends.
    Interrupted,
}

impl Broken {
    fn to_call_error(&self) -> CallError {
        match self {
            Self::Turn(error) => CallError::from_turn(error),
            Self::Panic => CallError::new(ErrorKind::Internal, "the turn failed: internal error"),
            Self::Interrupted => CallError::new(ErrorKind::Internal, "the turn was interrupted: the server ends"),
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
