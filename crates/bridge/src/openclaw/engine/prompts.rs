//! Prompts: sent once, cancelled by the next one, stopped when asked, and always answered.

use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{
    ContentBlock, ErrorData, ErrorKind, ErrorObject, RequestId, SessionUpdate, encode_error, params::PromptParams,
    parse_prompt, result::PromptResult,
};

use super::{Ask, Engine, Outcome, Phase, ProvenanceMode, Run, Timer};
use crate::openclaw::{
    gateway::{Limit, Repeat},
    ledger,
    prompt::{self, PromptMeta},
    run::{Translator, encode},
    wire::{self, ChatAck, ChatSend, GatewayError, Provenance},
};

/// Time for the gateway to say that a run is stopped, and what its last words were.
const CANCEL_LIMIT: Duration = Duration::from_secs(1);

/// Time for the row that ends a run to come after the run's end.
const ROW_LIMIT: Duration = Duration::from_millis(400);

/// Between two tries to send a text that the gateway still takes for that of a run which is over.
const RESEND_WAIT: Duration = Duration::from_millis(100);

/// How often such a text is sent. The gateway forgets it within a second.
const MAX_RESENDS: u32 = 50;

/// Runs of the past that are remembered.
const MAX_SETTLED: usize = 1024;

/// What is said of a provenance that the gateway does not take from this device.
const NEEDS_ADMIN: &str = "system provenance fields require admin scope";

impl Engine {
    pub(super) fn take_prompt(
        &mut self,
        id: &RequestId,
        asked: &PromptParams<'_>,
        params: Option<&RawValue>,
        now: Instant,
    ) {
        let Some(session) = self.sessions.get(&asked.session_id) else {
            return self.no_session(id, &asked.session_id);
        };
        let meta = PromptMeta::of(params);
        let prefix = meta.prefix_cwd.unwrap_or(self.settings.prefix_cwd) && !session.cwd.is_empty();
        let place = prefix.then(|| prompt::shown_place(&session.cwd, self.settings.home.as_deref()));
        let parts = match parse_prompt(asked.prompt) {
            Ok(parts) => parts,
            Err(why) => return self.fail(id, ErrorKind::InvalidParams, why),
        };
        let said: Vec<ContentBlock<'static>> = parts.iter().filter_map(prompt::told).collect();
        let outgoing = match prompt::assemble(parts, place.as_deref()) {
            Ok(outgoing) => outgoing,
            Err(why) => return self.fail(id, ErrorKind::InvalidParams, format!("invalid prompt: {why}")),
        };
        if self.forsaken {
            let why = self.lost.as_ref().map_or_else(String::new, |(_, why)| format!(": {why}"));
            return self.fail(id, ErrorKind::Internal, format!("the gateway is away{why}"));
        }
        // One prompt at a time: a new one means that the old one's answer is not wanted any more.
        let (session, old) = (session.id.clone(), session.run.clone());
        if let Some(old) = old {
            self.stop_run(&old, now);
            self.settle(&old, Outcome::Cancelled);
        }
        self.record_prompt(&session, &said);
        self.name_session(&session, &said);
        let run = (self.world.uuid)();
        self.runs.insert(
            run.clone(),
            Run {
                session: session.clone(),
                request: id.clone(),
                outgoing,
                meta,
                phase: Phase::Waiting,
                translator: Translator::new(&run),
                ending: None,
                cancelled: false,
                resends: 0,
                without_provenance: false,
                catching: None,
            },
        );
        let wall = (self.world.wall)();
        if let Some(session) = self.sessions.get_mut(&session) {
            session.run = Some(run.clone());
            session.used = wall;
        }
        self.send_run(&run, now);
    }

    /// What was said is part of the story, without the line about the directory. The client knows it; only the ledger is told.
    fn record_prompt(&mut self, session: &str, said: &[ContentBlock<'static>]) {
        let message_id = (self.world.uuid)();
        for content in said {
            let update = SessionUpdate::UserMessageChunk { content: content.clone(), message_id: &message_id };
            self.effects.ledger.push(ledger::Command::Append(session.to_owned(), encode(&update)));
        }
    }

    /// A session is called what was said first in it.
    fn name_session(&mut self, id: &str, said: &[ContentBlock<'static>]) {
        let text = said.iter().find_map(|block| match block {
            ContentBlock::Text { text } => prompt::title_of(text),
            ContentBlock::ResourceLink { .. } | ContentBlock::Resource { .. } => None,
        });
        let Some(session) = self.sessions.get_mut(id).filter(|session| !session.titled) else { return };
        let Some(title) = text else { return };
        session.titled = true;
        let updated_at = super::list::iso((self.world.wall)());
        self.tell_state(id, &SessionUpdate::SessionInfoUpdate { title: &title, updated_at: &updated_at });
        self.effects.ledger.push(ledger::Command::Title(id.to_owned(), title));
    }

    /// Sends a run's prompt, now or as soon as the gateway is there.
    pub(super) fn send_run(&mut self, id: &str, now: Instant) {
        let Some(run) = self.runs.get_mut(id) else { return };
        run.phase = Phase::Waiting;
        if !self.core.is_up() {
            return;
        }
        run.phase = Phase::Sent;
        let session_id = run.session.clone();
        self.subscribe(&session_id, now);
        let Some(run) = self.runs.get(id) else { return };
        let Some(session) = self.sessions.get(&run.session) else { return };
        let attachments = run.outgoing.attachments();
        let with = self.admin && !run.without_provenance && self.settings.provenance != ProvenanceMode::Off;
        let receipt = (with && self.settings.provenance == ProvenanceMode::MetaAndReceipt).then(|| {
            let (host, cwd, id, key) = (&self.settings.host, &session.cwd, &session.id, &session.key);
            format!(
                "[Source Receipt]\nbridge=zeroclaw-acp-bridge\noriginHost={host}\noriginCwd={cwd}\nacpSessionId={id}\noriginSessionId={id}\ntargetSession={key}\n[/Source Receipt]"
            )
        });
        let send = ChatSend {
            session_key: &session.key,
            message: &run.outgoing.text,
            idempotency_key: id,
            attachments: &attachments,
            thinking: run.meta.thinking.as_deref(),
            deliver: run.meta.deliver,
            timeout_ms: run.meta.timeout_ms,
            system_input_provenance: with.then_some(Provenance {
                kind: "external_user",
                origin_session_id: &session.id,
                source_channel: "acp",
                source_tool: "openclaw_acp",
            }),
            system_provenance_receipt: receipt.as_deref(),
        };
        let length = serde_json::to_vec(&send).map_or(0, |bytes| bytes.len());
        if length > self.core.max_payload().saturating_sub(1024) {
            let why =
                format!("the prompt is too large: {length} bytes, and the gateway takes {}", self.core.max_payload());
            return self.settle(id, Outcome::Failed(why, None));
        }
        let asked = self.core.ask("chat.send", &send, Ask::Send(id.to_owned()), Repeat::No, Limit::None, now);
        if asked.is_err() {
            self.settle(id, Outcome::Failed("too much waits for the gateway already".to_owned(), None));
        }
    }

    /// Asks for the rows of a session, once on each connection.
    pub(super) fn subscribe(&mut self, id: &str, now: Instant) {
        let connection = self.connection;
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.subscribed != connection) else {
            return;
        };
        session.subscribed = connection;
        let key = session.key.clone();
        self.ask(
            "sessions.messages.subscribe",
            &wire::Key { key: &key },
            Ask::Subscribe(id.to_owned()),
            Repeat::No,
            now,
        );
    }

    /// The gateway's answer to a prompt: the run has begun, or why it has not.
    pub(super) fn acknowledged(&mut self, id: &str, outcome: Result<Option<&RawValue>, GatewayError>, now: Instant) {
        let Some(run) = self.runs.get_mut(id) else { return };
        let ack = match outcome {
            Ok(payload) => payload.and_then(wire::read::<ChatAck>).unwrap_or_default(),
            Err(error) if error.message.contains(NEEDS_ADMIN) && !run.without_provenance => {
                run.without_provenance = true;
                return self.send_run(id, now);
            }
            Err(error) => return self.settle(id, Outcome::Failed(error.message, None)),
        };
        match (ack.status.as_deref(), ack.run_id.as_deref()) {
            (Some("started"), _) | (Some("in_flight"), None) => run.phase = Phase::Running,
            (Some("in_flight"), Some(other)) if other == id => run.phase = Phase::Running,
            (Some("in_flight"), Some(other)) => {
                let other = other.to_owned();
                self.taken_for(id, &other, now);
            }
            (Some("ok"), _) => {
                run.phase = Phase::Running;
                self.catch_run(id, true, now);
            }
            (Some("timeout"), _) => self.settle(id, Outcome::Cancelled),
            (Some("error"), _) => {
                let why = ack.summary.unwrap_or_else(|| "the run failed before".to_owned());
                self.settle(id, Outcome::Failed(why, None));
            }
            (Some(other), _) => {
                let why = format!("the gateway answers `{}`, which this bridge does not know", other.escape_debug());
                self.settle(id, Outcome::Failed(why, None));
            }
            // A word that stops the agent has no run.
            (None, _) => {
                let words = if ack.aborted == Some(true) { "The agent was stopped." } else { "Nothing was running." };
                let mut out = Vec::new();
                run.translator.say(words, &mut out);
                let session = run.session.clone();
                self.tell(&session, out);
                self.settle(id, Outcome::Done);
            }
        }
    }

    /// The gateway takes the text for that of another run. One that is over it forgets soon; one that goes on is this prompt's too.
    fn taken_for(&mut self, id: &str, other: &str, now: Instant) {
        let is_over = self.settled.iter().any(|settled| settled == other);
        let Some(run) = self.runs.get_mut(id) else { return };
        run.resends += 1;
        if is_over && run.resends <= MAX_RESENDS {
            // Under a new id: what the gateway has made of the old one is not known.
            let fresh = (self.world.uuid)();
            self.rename(id, &fresh);
            self.timer(now + RESEND_WAIT, Timer::Resend(fresh));
            return;
        }
        run.phase = Phase::Running;
        self.rename(id, other);
        self.catch_run(other, false, now);
    }

    /// The run goes on under another id.
    fn rename(&mut self, old: &str, new: &str) {
        if self.runs.contains_key(new) {
            return self.settle(old, Outcome::Failed("the same text runs already".to_owned(), None));
        }
        let Some(run) = self.runs.remove(old) else { return };
        if let Some(session) = self.sessions.get_mut(&run.session) {
            session.run = Some(new.to_owned());
        }
        self.runs.insert(new.to_owned(), run);
    }

    /// `session/cancel`
    pub(super) fn cancel_session(&mut self, session: &str, now: Instant) {
        let Some(id) = self.sessions.get(session).and_then(|session| session.run.clone()) else { return };
        if self.runs.get(&id).is_none_or(|run| run.cancelled) {
            return;
        }
        let asked = self.stop_run(&id, now);
        if asked && self.core.is_up() {
            // The last words come before the answer.
            self.timer(now + CANCEL_LIMIT, Timer::CancelLimit(id));
        } else {
            self.settle(&id, Outcome::Cancelled);
        }
    }

    /// `$/cancel_request` for a prompt.
    pub(super) fn cancel_request(&mut self, request: &RawValue, now: Instant) {
        let run = self.runs.values().find(|run| run.request.as_json() == request.get());
        if let Some(session) = run.map(|run| run.session.clone()) {
            self.cancel_session(&session, now);
        }
    }

    /// Has the gateway stop a run; false when it has never heard of it.
    pub(super) fn stop_run(&mut self, id: &str, now: Instant) -> bool {
        let Some(run) = self.runs.get_mut(id) else { return false };
        run.cancelled = true;
        let session = run.session.clone();
        let is_known = run.phase != Phase::Waiting;
        self.deny_all(&session, now);
        if !is_known {
            return false;
        }
        let Some(key) = self.sessions.get(&session).map(|session| session.key.clone()) else { return false };
        self.abort(key, id.to_owned(), now);
        true
    }

    pub(super) fn abort(&mut self, key: String, run: String, now: Instant) {
        let abort = wire::ChatAbort { session_key: &key, run_id: &run };
        let tag = Ask::Abort { key: key.clone(), run: run.clone() };
        self.ask("chat.abort", &abort, tag, Repeat::Yes, now);
    }

    /// A run has ended, but its last row may be on its way.
    pub(super) fn ended(&mut self, id: &str, outcome: Outcome, now: Instant) {
        let Some(run) = self.runs.get_mut(id) else { return };
        let outcome = if run.cancelled { Outcome::Cancelled } else { outcome };
        if outcome == Outcome::Done || outcome == Outcome::MaxTokens {
            let subscribed =
                self.sessions.get(&run.session).is_some_and(|session| session.subscribed == self.connection);
            if run.translator.lacks_text() {
                return self.catch_run(id, true, now);
            }
            if subscribed && run.translator.awaits_row() {
                run.ending = Some(outcome);
                return self.timer(now + ROW_LIMIT, Timer::Settle(id.to_owned()));
            }
        }
        self.settle(id, outcome);
    }

    /// Answers a prompt. Everything that belongs to the turn goes before.
    pub(super) fn settle(&mut self, id: &str, outcome: Outcome) {
        let Some(mut run) = self.runs.remove(id) else { return };
        let mut out = Vec::new();
        self.deny_all(&run.session, self.now);
        run.translator.close_tools(&mut out);
        if let Outcome::Refused(words) = &outcome {
            run.translator.say(words, &mut out);
        }
        self.tell(&run.session, out);
        self.tell_usage(&run);
        if let Some(session) = self.sessions.get_mut(&run.session)
            && session.run.as_deref() == Some(id)
        {
            session.run = None;
        }
        self.settled.push_back(id.to_owned());
        if self.settled.len() > MAX_SETTLED {
            self.settled.pop_front();
        }
        let wall = (self.world.wall)();
        self.effects.ledger.push(ledger::Command::Flush(run.session.clone(), wall));
        let stop_reason = match outcome {
            Outcome::Done => "end_turn",
            Outcome::MaxTokens => "max_tokens",
            Outcome::Cancelled => "cancelled",
            Outcome::Refused(_) => "refusal",
            Outcome::Failed(why, kind) => {
                let kind = kind.unwrap_or_else(|| ErrorKind::Internal.as_str().to_owned());
                let error = ErrorObject {
                    code: zeroclaw_acp_protocol::Codes::INTERNAL,
                    message: why,
                    data: Some(ErrorData { kind: Some(kind), session_id: None }),
                };
                return encode_error(&mut self.effects.to_client, Some(&run.request), &error);
            }
        };
        let usage = run.translator.usage();
        let result = PromptResult { stop_reason, session_id: None, content: None, usage, meta: None };
        self.answer(&run.request, &result);
    }

    /// What the turn has left of the model's window.
    fn tell_usage(&mut self, run: &Run) {
        let size = self.sessions.get(&run.session).and_then(|session| session.row.context_tokens);
        if let (Some(used), Some(size)) = (run.translator.window(), size) {
            let update = SessionUpdate::UsageUpdate { used: used.min(size), size, cost: None };
            self.tell_state(&run.session, &update);
        }
    }
}
