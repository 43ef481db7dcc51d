//! Opening a session: a new one, one with its story, or one without. Which session of the gateway it is, whether it is there,
//! and what has been said in it.

use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{
    ErrorKind, RequestId, UpdateFrame,
    params::{LoadSessionParams, NewSessionParams},
    result::{ConfigOption, ModeState},
};

use super::{ANNOUNCE, Ask, Engine, MAX_SESSIONS, Session, Timer};
use crate::openclaw::{
    choices::{Choices, Levels},
    gateway::Repeat,
    history::{History, MAX_ROWS},
    ledger::{self, Record},
    prompt::{clean_title, meta_of},
    wire::{self, GatewayError, SessionRow},
};

/// What the keys of sessions begin with that this bridge makes; the gateway's own bridge uses the same.
const KEY_PREFIX: &str = "acp-bridge:";

/// Milliseconds after a turn in which the gateway still writes about it.
const AFTERMATH: u64 = 10_000;

/// Lines that wait for a session to be open, at most.
const MAX_DEFERRED: usize = 64;

/// The longest id of a session that is looked up; the gateway's keys are at most as long.
const MAX_ID: usize = 512;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    New,
    Load,
    Resume,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Find,
    Label,
    Resolve,
    Reset,
    Describe,
    Levels,
    Transcript,
}

/// A session that is being opened.
pub(super) struct Opening {
    request: RequestId,
    how: How,
    id: String,
    cwd: String,
    label: Option<String>,
    key: Option<String>,
    require: bool,
    reset: bool,
    stage: Stage,
    record: Option<Record>,
    row: Option<SessionRow>,
    deferred: Vec<Bytes>,
}

/// `_meta` of the request, as far as it says which session of the gateway is meant.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Routing {
    session_label: Option<String>,
    label: Option<String>,
    session_key: Option<String>,
    session: Option<String>,
    key: Option<String>,
    require_existing: Option<bool>,
    require_existing_session: Option<bool>,
    reset_session: Option<bool>,
    reset: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Opened<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modes: Option<ModeState<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config_options: Option<&'a [ConfigOption<'a>]>,
}

impl Engine {
    pub(super) fn open(&mut self, id: &RequestId, how: How, params: Option<&RawValue>, now: Instant) {
        let parsed = match how {
            How::New => NewSessionParams::parse(params).map(|new| (None, new.cwd, new.mcp_servers.len())),
            How::Load | How::Resume => {
                LoadSessionParams::parse(params).map(|load| (Some(load.session_id), load.cwd, load.mcp_servers.len()))
            }
        };
        let (session, cwd, servers) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return self.fail(id, ErrorKind::InvalidParams, error.to_string()),
        };
        if servers > 0 {
            tracing::warn!(servers, "an OpenClaw gateway takes no tool servers from a client; they are not used");
        }
        if let Some(session) = &session {
            if session.is_empty() || session.len() > MAX_ID || session.chars().any(char::is_control) {
                return self.no_session(id, session);
            }
            if self.sessions.get(session).is_some_and(|session| session.run.is_some()) {
                return self.fail(id, ErrorKind::InvalidRequest, "a turn is running in this session");
            }
        }
        let known = session.as_ref().is_some_and(|session| self.sessions.contains_key(session));
        if !known && let Err(seconds) = self.may_create(now) {
            let why = format!("too many sessions are being created; retry after {seconds}s");
            return self.fail(id, ErrorKind::SessionLimitReached, why);
        }
        let routing: Routing = meta_of(params);
        let opening = Opening {
            request: id.clone(),
            how,
            id: session.unwrap_or_else(|| (self.world.uuid)()),
            cwd: cwd.unwrap_or_default(),
            label: routing.session_label.or(routing.label),
            key: routing.session_key.or(routing.session).or(routing.key),
            require: routing
                .require_existing
                .or(routing.require_existing_session)
                .unwrap_or(self.settings.require_existing),
            reset: routing.reset_session.or(routing.reset).unwrap_or(self.settings.reset),
            stage: Stage::Find,
            record: None,
            row: None,
            deferred: Vec::new(),
        };
        let op = self.next_op;
        self.next_op += 1;
        let id = opening.id.clone();
        self.opening.insert(op, opening);
        match how {
            How::New => self.route(op, now),
            How::Load | How::Resume => self.effects.ledger.push(ledger::Command::Find { op, id }),
        }
    }

    /// Whether one more session may be created now, or after how many seconds.
    fn may_create(&mut self, now: Instant) -> Result<(), u64> {
        let window = self.settings.create_window;
        while self.created.front().is_some_and(|at| now.duration_since(*at) >= window) {
            self.created.pop_front();
        }
        if self.created.len() < self.settings.create_limit {
            self.created.push_back(now);
            return Ok(());
        }
        let oldest = self.created.front().map_or(window, |at| window.saturating_sub(now.duration_since(*at)));
        Err(oldest.as_secs() + 1)
    }

    /// Keeps a line that is meant for a session which is being opened; true when it is kept.
    pub(super) fn defer(&mut self, session: &str, line: &[u8]) -> bool {
        let opening = self.opening.values_mut().rev().find(|opening| opening.id == session);
        let Some(opening) = opening.filter(|opening| opening.deferred.len() < MAX_DEFERRED) else { return false };
        opening.deferred.push(Bytes::copy_from_slice(line));
        true
    }

    /// The ledger has looked.
    pub(super) fn open_found(&mut self, op: u64, record: Option<Record>, now: Instant) {
        if let Some(opening) = self.opening.get_mut(&op).filter(|opening| opening.stage == Stage::Find) {
            opening.record = record;
            self.route(op, now);
        }
    }

    /// Which session of the gateway is meant.
    fn route(&mut self, op: u64, now: Instant) {
        let Some(opening) = self.opening.get_mut(&op) else { return };
        let recorded = opening.record.as_ref().map(|record| record.key.clone());
        let label = match (&opening.label, &opening.key, &recorded) {
            (Some(label), _, _) => Some(label.clone()),
            (None, None, None) => self.settings.label.clone(),
            (None, _, _) => None,
        };
        if let Some(label) = label {
            opening.stage = Stage::Label;
            return self.ask("sessions.resolve", &wire::Label { label: &label }, Ask::Open(op), Repeat::Yes, now);
        }
        let explicit = opening.key.take().or(recorded);
        let key = explicit.or_else(|| self.settings.session.clone()).unwrap_or_else(|| match opening.how {
            How::New => format!("{KEY_PREFIX}{}", opening.id),
            How::Load | How::Resume if is_uuid(&opening.id) => format!("{KEY_PREFIX}{}", opening.id),
            How::Load | How::Resume => opening.id.clone(),
        });
        self.with_key(op, &key, now);
    }

    fn with_key(&mut self, op: u64, key: &str, now: Instant) {
        let key = self.canonical(key);
        let Some(opening) = self.opening.get_mut(&op) else { return };
        opening.key = Some(key.clone());
        if opening.require {
            opening.stage = Stage::Resolve;
            return self.ask("sessions.resolve", &wire::Key { key: &key }, Ask::Open(op), Repeat::Yes, now);
        }
        self.maybe_reset(op, now);
    }

    fn maybe_reset(&mut self, op: u64, now: Instant) {
        let admin = self.admin;
        let Some(opening) = self.opening.get_mut(&op) else { return };
        if !opening.reset {
            return self.maybe_describe(op, now);
        }
        if !admin {
            return self.refuse(
                op,
                ErrorKind::InvalidRequest,
                "only an administrator may reset a session; start the bridge with --admin",
            );
        }
        opening.stage = Stage::Reset;
        opening.record = None;
        let key = opening.key.clone().unwrap_or_default();
        self.ask("sessions.reset", &wire::Key { key: &key }, Ask::Open(op), Repeat::No, now);
    }

    fn maybe_describe(&mut self, op: u64, now: Instant) {
        let Some(opening) = self.opening.get_mut(&op) else { return };
        let key = opening.key.clone().unwrap_or_default();
        // A session that nobody has spoken in is not there yet, and there is nothing to read about it.
        if opening.how == How::New && key.ends_with(&format!("{KEY_PREFIX}{}", opening.id)) {
            return self.maybe_levels(op, now);
        }
        opening.stage = Stage::Describe;
        let describe = wire::Describe { key: &key, include_derived_titles: true };
        self.ask("sessions.describe", &describe, Ask::Open(op), Repeat::Yes, now);
    }

    fn maybe_levels(&mut self, op: u64, now: Instant) {
        let waits = self.admin && self.levels.is_none();
        let Some(opening) = self.opening.get_mut(&op) else { return };
        if waits {
            opening.stage = Stage::Levels;
            return;
        }
        // Nothing of this bridge's own may be all there is: others can have spoken in the same session, or since.
        let changed = opening.row.as_ref().and_then(|row| row.updated_at).unwrap_or_default();
        let complete = opening.record.as_ref().is_some_and(|record| {
            record.complete && !record.updates.is_empty() && changed <= record.told_at.saturating_add(AFTERMATH)
        });
        if opening.how == How::Load && !complete && opening.row.is_some() {
            opening.stage = Stage::Transcript;
            let key = opening.key.clone().unwrap_or_default();
            let get = wire::SessionsGet { key: &key, limit: MAX_ROWS };
            return self.ask("sessions.get", &get, Ask::Open(op), Repeat::Yes, now);
        }
        self.opened_session(op, None, now);
    }

    /// The levels are known now: what waited for them goes on.
    pub(super) fn levels_known(&mut self, levels: Levels, now: Instant) {
        self.levels = Some(levels);
        let waiting: Vec<u64> =
            self.opening.iter().filter(|(_, opening)| opening.stage == Stage::Levels).map(|(op, _)| *op).collect();
        for op in waiting {
            self.maybe_levels(op, now);
        }
    }

    /// The gateway's answer to a step.
    pub(super) fn open_reply(&mut self, op: u64, outcome: Result<Option<&RawValue>, GatewayError>, now: Instant) {
        #[derive(Deserialize)]
        struct Resolved {
            key: Option<String>,
        }
        #[derive(Deserialize)]
        struct Description {
            session: Option<SessionRow>,
        }
        let Some(opening) = self.opening.get_mut(&op) else { return };
        let payload = match outcome {
            Ok(payload) => payload,
            Err(error) if matches!(opening.stage, Stage::Label | Stage::Resolve) && error.code == "INVALID_REQUEST" => {
                return self.refuse(op, ErrorKind::SessionNotFound, error.message);
            }
            Err(error) => return self.refuse(op, ErrorKind::Internal, error.message),
        };
        match opening.stage {
            Stage::Label => match payload.and_then(wire::read::<Resolved>).and_then(|resolved| resolved.key) {
                Some(key) => self.with_key(op, &key, now),
                None => self.refuse(op, ErrorKind::SessionNotFound, "there is no session with this label"),
            },
            Stage::Resolve => match payload.and_then(wire::read::<Resolved>).and_then(|resolved| resolved.key) {
                Some(key) => {
                    opening.key = Some(key);
                    self.maybe_reset(op, now);
                }
                None => self.refuse(op, ErrorKind::SessionNotFound, "there is no such session"),
            },
            Stage::Reset => self.maybe_describe(op, now),
            Stage::Describe => {
                opening.row = payload.and_then(wire::read::<Description>).and_then(|said| said.session);
                let missing = opening.row.is_none() && opening.record.is_none() && opening.how != How::New;
                if missing {
                    return self.refuse(op, ErrorKind::SessionNotFound, "there is no such session");
                }
                self.maybe_levels(op, now);
            }
            Stage::Transcript => {
                let history = payload.and_then(wire::read::<History<'_>>).unwrap_or_default();
                let updates = history.replay(&opening.id);
                self.opened_session(op, Some(updates), now);
            }
            Stage::Find | Stage::Levels => {}
        }
    }

    fn refuse(&mut self, op: u64, kind: ErrorKind, why: impl Into<String>) {
        let Some(opening) = self.opening.remove(&op) else { return };
        match kind {
            ErrorKind::SessionNotFound => {
                let error = zeroclaw_acp_protocol::ErrorObject::new(zeroclaw_acp_protocol::ErrorTable::Spec, kind, why);
                let error = error.with_session(&opening.id);
                zeroclaw_acp_protocol::encode_error(&mut self.effects.to_client, Some(&opening.request), &error);
            }
            _ => self.fail(&opening.request, kind, why),
        }
        for line in opening.deferred {
            self.line(&line, self.now);
        }
    }

    /// Everything is known: the story is told, the request answered, and the session there.
    fn opened_session(&mut self, op: u64, transcript: Option<Vec<Bytes>>, now: Instant) {
        let Some(opening) = self.opening.remove(&op) else { return };
        self.make_room(now);
        let row = opening.row.unwrap_or_default();
        let key = opening.key.unwrap_or_default();
        let cwd = match (&opening.record, opening.cwd.is_empty()) {
            (Some(record), true) => record.cwd.clone(),
            (Some(_) | None, _) => opening.cwd,
        };
        let titled = row.derived_title.as_deref().and_then(clean_title).is_some()
            || opening.record.as_ref().is_some_and(|record| !record.updates.is_empty());
        let wall = (self.world.wall)();
        let session = Session {
            id: opening.id.clone(),
            key: key.clone(),
            cwd: cwd.clone(),
            row,
            frame: UpdateFrame::new(&opening.id),
            run: None,
            subscribed: 0,
            titled,
            announced: false,
            used: wall,
        };
        self.sessions.insert(opening.id.clone(), session);
        let id = opening.id;
        self.effects.ledger.push(ledger::Command::Open { id: id.clone(), key, cwd, at: wall });
        if opening.how == How::Load {
            match transcript {
                Some(updates) => {
                    self.effects.ledger.push(ledger::Command::Restart(id.clone()));
                    self.tell(&id, updates);
                    self.effects.ledger.push(ledger::Command::Flush(id.clone(), wall));
                }
                None => {
                    let updates = opening.record.map(|record| record.updates).unwrap_or_default();
                    if let Some(session) = self.sessions.get(&id) {
                        for update in updates {
                            session.frame.write(&mut self.effects.to_client, &update, None);
                        }
                    }
                }
            }
        }
        self.answer_opened(&opening.request, &id, opening.how);
        self.timer(now + ANNOUNCE, Timer::Announce(id));
        for line in opening.deferred {
            self.line(&line, now);
        }
    }

    fn answer_opened(&mut self, request: &RequestId, id: &str, how: How) {
        let session_id = (how == How::New).then_some(id);
        let Some(session) = self.sessions.get(id) else { return };
        if !self.admin {
            let opened = Opened { session_id, modes: None, config_options: None };
            return self.answer(request, &opened);
        }
        let none = Levels::default();
        let choices = Choices::new(&session.row, self.levels.as_ref().unwrap_or(&none));
        let out = &mut self.effects.to_client;
        choices.with(|modes, options| {
            let opened = Opened { session_id, modes: Some(modes), config_options: Some(options) };
            // Results of ours can be written.
            let _infallible = zeroclaw_acp_protocol::encode_result(out, request, &opened);
        });
    }

    /// Gives up the session that was used longest ago when there are too many.
    fn make_room(&mut self, now: Instant) {
        if self.sessions.len() < MAX_SESSIONS {
            return;
        }
        let idle = self.sessions.values().filter(|session| session.run.is_none()).min_by_key(|session| session.used);
        if let Some(id) = idle.map(|session| session.id.clone()) {
            self.drop_session(&id, now);
        }
    }
}

/// Whether an id is one that this bridge gives.
pub(super) fn is_uuid(id: &str) -> bool {
    id.len() == 36
        && id.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// The id of the session that the gateway knows by this key: its own where this bridge made it.
pub(super) fn id_of(key: &str) -> &str {
    match key.rsplit_once(KEY_PREFIX) {
        Some((head, id)) if is_uuid(id) && head.starts_with("agent:") && head.matches(':').count() == 2 => id,
        Some(_) | None => key,
    }
}
