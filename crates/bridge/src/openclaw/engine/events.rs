//! Events of the gateway: to which run or session each belongs.
//! Events of sessions that are not open here come too; nothing is made of them.

use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Ask, Engine, Outcome, approvals::Kind};
use crate::openclaw::{
    history::Row,
    run::{AgentEvent, ChatEvent},
    wire,
};

/// Bytes at the beginning of an event that say what it is.
const HEAD: usize = 512;

/// `session.message`, of it what is used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionMessage<'a> {
    #[serde(borrow)]
    session_key: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    message: &'a RawValue,
    #[serde(default)]
    context_tokens: Option<u64>,
}

impl Engine {
    pub(super) fn event(&mut self, name: &str, payload: Option<&RawValue>, now: Instant) {
        let Some(payload) = payload else { return };
        match name {
            "agent" | "session.tool" => {
                let Some(event) = wire::read::<AgentEvent<'_>>(payload) else { return };
                let id = event.run_id.as_ref();
                let Some(run) = self.runs.get_mut(id) else { return };
                if run.hold(name, payload, now) {
                    return;
                }
                let mut out = Vec::new();
                run.translator.agent(&event, &mut out);
                let session = run.session.clone();
                self.tell(&session, out);
            }
            "chat" => {
                if self.says_nothing_new(payload) {
                    return;
                }
                let Some(event) = wire::read::<ChatEvent<'_>>(payload) else { return };
                let id = event.run_id.as_ref();
                let Some(run) = self.runs.get_mut(id) else { return };
                if run.hold(name, payload, now) {
                    return;
                }
                let mut out = Vec::new();
                // A failed run is told of twice; the second telling finds no run any more.
                let outcome = run.translator.chat(&event, &mut out);
                let session = run.session.clone();
                self.tell(&session, out);
                if let Some(outcome) = outcome {
                    self.ended(id, outcome, now);
                }
            }
            "session.message" => self.row(payload, now),
            "exec.approval.requested" => self.requested(Kind::Exec, payload, now),
            "plugin.approval.requested" => self.requested(Kind::Plugin, payload, now),
            "exec.approval.resolved" | "plugin.approval.resolved" => self.resolved(payload),
            "shutdown" => tracing::info!("the gateway shuts down"),
            // Ticks, health, presence, and what newer gateways tell.
            _ => {}
        }
    }

    /// Whether a part of an answer is one that an `agent` event has brought already. It holds the whole answer so far, so it
    /// is not even read: only its head is looked at.
    fn says_nothing_new(&self, payload: &RawValue) -> bool {
        let text = payload.get();
        let Some((run, rest)) = text.strip_prefix("{\"runId\":\"").and_then(|rest| rest.split_once('"')) else {
            return false;
        };
        let head = rest.get(..rest.floor_char_boundary(HEAD)).unwrap_or_default();
        let head = head.split_once("\"message\"").map_or(head, |(head, _)| head);
        let is_part = head.contains("\"state\":\"delta\",\"deltaText\":");
        is_part && self.runs.get(run).is_some_and(|run| run.catching.is_none() && run.translator.has_spoken())
    }

    /// A row of an open session's transcript.
    fn row(&mut self, payload: &RawValue, now: Instant) {
        let Some(event) = wire::read::<SessionMessage<'_>>(payload) else { return };
        let Some(row) = wire::read::<Row<'_>>(event.message) else { return };
        let key = event.session_key.as_ref();
        if let Some(size) = event.context_tokens {
            for session in self.sessions.values_mut().filter(|session| session.key == key) {
                session.row.context_tokens = Some(size);
            }
        }
        // While a run's history is read it is not known whose row this is.
        let runs =
            self.sessions.values().filter(|session| session.key == key).filter_map(|session| session.run.clone());
        for id in runs.collect::<Vec<_>>() {
            if let Some(run) = self.runs.get_mut(&id)
                && run.hold("session.message", payload, now)
            {
                return;
            }
        }
        if row.role == "user" {
            match row.begins() {
                Some(run) => self.owners.insert(key.to_owned(), run.to_owned()),
                // Somebody else speaks.
                None => self.owners.remove(key),
            };
            return;
        }
        let Some(id) = self.owners.get(key).cloned() else { return };
        let Some(run) = self.runs.get_mut(&id) else { return };
        let mut out = Vec::new();
        run.translator.live_row(&row, &mut out);
        let ending = if run.translator.awaits_row() { None } else { run.ending.take() };
        let session = run.session.clone();
        self.tell(&session, out);
        if let Some(outcome) = ending {
            self.settle(&id, outcome);
        }
    }

    /// An answer of the gateway.
    pub(super) fn reply(&mut self, ask: Ask, outcome: Result<Option<&RawValue>, wire::GatewayError>, now: Instant) {
        match ask {
            Ask::Send(run) => self.acknowledged(&run, outcome, now),
            Ask::Abort { run, .. } => {
                if let Err(error) = outcome {
                    tracing::warn!(code = %error.code, "the gateway did not stop a run");
                    if self.runs.get(&run).is_some_and(|run| run.cancelled) {
                        self.settle(&run, Outcome::Cancelled);
                    }
                }
            }
            Ask::Subscribe(session) => self.subscribed(&session, outcome),
            Ask::Watch | Ask::Decide => {
                if let Err(error) = outcome {
                    tracing::debug!(code = %error.code, reason = error.detail_reason(), "the gateway declined");
                }
            }
            Ask::Wait(run) => self.waited(&run, outcome, now),
            Ask::History(run) => self.history(&run, outcome, now),
            Ask::Commands => self.commands_are(outcome.ok().flatten()),
            Ask::Agents => self.agents_are(outcome.ok().flatten(), now),
            Ask::Open(op) => self.open_reply(op, outcome, now),
            Ask::List(op) => self.list_reply(op, outcome),
            Ask::Patch(op) => self.patched(op, outcome),
            Ask::Approval(id) => self.described(&id, outcome, now),
            Ask::Approvals(kind) => self.pending(kind, outcome.ok().flatten(), now),
        }
    }

    fn subscribed(&mut self, session: &str, outcome: Result<Option<&RawValue>, wire::GatewayError>) {
        #[derive(Deserialize)]
        struct Subscribed {
            key: Option<String>,
        }
        let Some(session) = self.sessions.get_mut(session) else { return };
        match outcome {
            Ok(payload) => {
                if let Some(key) = payload.and_then(wire::read::<Subscribed>).and_then(|said| said.key) {
                    session.key = key;
                }
            }
            // Without rows there is no thinking; everything else goes on.
            Err(_) => session.subscribed = 0,
        }
    }

    /// What was asked will not be answered.
    pub(super) fn unanswered(&mut self, ask: Ask, why: &str, now: Instant) {
        let error = || wire::GatewayError { message: why.to_owned(), ..wire::GatewayError::default() };
        match ask {
            // Whether the gateway has the prompt is found out when it is there again.
            Ask::Send(run) => {
                if let Some(run) = self.runs.get_mut(&run) {
                    run.phase = super::Phase::Unsure;
                }
            }
            // The handshake begins these anew.
            Ask::Wait(_) | Ask::History(_) | Ask::Watch | Ask::Approvals(_) if !self.core.is_up() => {}
            Ask::Wait(run) | Ask::History(run) => self.read_later(&run, now),
            Ask::Subscribe(session) => {
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.subscribed = 0;
                }
            }
            Ask::Abort { run, .. } => {
                if self.runs.get(&run).is_some_and(|run| run.cancelled) {
                    self.settle(&run, Outcome::Cancelled);
                }
            }
            Ask::Commands | Ask::Watch | Ask::Decide | Ask::Approvals(_) => {}
            Ask::Agents => self.agents_are(None, now),
            Ask::Open(op) => self.open_reply(op, Err(error()), now),
            Ask::List(op) => self.list_reply(op, Err(error())),
            Ask::Patch(op) => self.patched(op, Err(error())),
            Ask::Approval(id) => {
                if self.core.is_up() {
                    self.described(&id, Err(error()), now);
                } else {
                    self.dialogs.forget(&id);
                }
            }
        }
    }
}
