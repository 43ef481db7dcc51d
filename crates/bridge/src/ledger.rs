//! What the bridge remembers, and what follows from each message: a pure state machine without sockets and clocks.
//!
//! Two promises: the client gets each answer once, and each numbered update once and in order. Everything else follows:
//! after a new connection the sessions are joined again behind the last number that the client has, the answers of prompts
//! come by `turn`, and requests that never arrived are sent again.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use zeroclaw_acp_protocol::{ErrorObject, Frame, RequestId, ResponseOutcome};

use crate::wire::{self, Peek};

/// Requests of the client that are not answered, at most; the gateway has the same limit.
const MAX_IN_FLIGHT: usize = 1024;

/// Sessions that are followed, at most; far more than one client opens.
const MAX_SESSIONS: usize = 4096;

/// Where messages go.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(crate) to_client: Vec<Bytes>,
    pub(crate) to_gateway: Vec<Bytes>,
}

/// A request of the client that is not answered.
#[derive(Debug)]
struct Open {
    id: RequestId,
    kind: Kind,
    session: Option<String>,
    line: Bytes,
    /// The client has cancelled the session since.
    cancel: Option<Bytes>,
}

/// What a request is, as far as a lost connection needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Initialize,
    /// Its answer names the session that it opens.
    Opens,
    /// The same, and the whole log comes before the answer.
    Loads,
    /// Ends the session that it names.
    Closes,
    Prompt {
        accepted: bool,
    },
    Other,
}

/// A session that the client has open.
#[derive(Debug, Default)]
struct Session {
    /// The number of the last update that the client has, or has sent itself.
    last: u64,
    replay: Option<Replay>,
}

/// A load on its way: numbers begin anew.
#[derive(Debug)]
struct Replay {
    /// How far it has come, in numbers without a gap.
    reached: u64,
    /// It was begun again on a new connection: what the client has of it is left out.
    again: bool,
}

impl Session {
    /// Whether the client is to get the update with this number; it has it then.
    fn take(&mut self, number: u64) -> bool {
        let Some(replay) = &mut self.replay else {
            let news = number > self.last;
            self.last = self.last.max(number);
            return news;
        };
        if replay.again && number <= replay.reached {
            return false;
        }
        if number == replay.reached + 1 {
            replay.reached = number;
        }
        self.last = number;
        true
    }
}

/// A question of the gateway's to the client.
#[derive(Debug)]
struct Question {
    /// Its id on the connection of now; `None` until it is asked again there.
    inner: Option<RequestId>,
    session: Option<String>,
    method: String,
    tool_call: Option<String>,
    /// The client's answer. It is kept until the turn is over: it may be lost on its way, and is then asked for again.
    answer: Option<Bytes>,
}

/// A request of the bridge's own.
#[derive(Debug)]
enum Own {
    Initialize,
    Attach(String),
    /// The same after it was brought back; another failure is final.
    AttachRestored(String),
    /// Brings a session back that no process holds; then it is joined.
    Resume(String),
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The client's `initialize` as it is repeated.
    initialize: Option<(RequestId, Bytes)>,
    /// The client asked for sequence numbers itself.
    numbers: bool,
    open: VecDeque<Open>,
    sessions: HashMap<String, Session>,
    /// By the id that the client knows.
    questions: HashMap<RequestId, Question>,
    own: HashMap<RequestId, Own>,
    next_own: u64,
    /// Connections so far.
    epoch: u64,
    /// The client's input is over.
    deaf: bool,
}

impl Ledger {
    /// Whether nothing is to be waited for.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether a new connection is not where the old one was.
    pub(crate) fn is_joining(&self) -> bool {
        !self.own.is_empty()
    }

    /// Takes a message of the client, while the gateway is there.
    pub(crate) fn client_says(&mut self, line: &[u8]) -> Moves {
        let mut moves = Moves::default();
        match Frame::parse(line) {
            Ok(Frame::Request { id, method, params }) => {
                if self.open.len() >= MAX_IN_FLIGHT || self.open.iter().any(|open| open.id == id) {
                    // The gateway says why: it must not be answered for somebody else's id.
                    moves.to_gateway.push(with_end(line));
                    return moves;
                }
                let peek = Peek::into(params);
                let session = peek.session_id.map(std::borrow::Cow::into_owned);
                let kind = kind(&method);
                let line = if kind == Kind::Initialize && self.initialize.is_none() {
                    let (line, numbers) = wire::numbered(&id, params);
                    self.numbers = numbers;
                    let line = Bytes::from(line);
                    self.initialize = Some((id.clone(), line.clone()));
                    line
                } else {
                    with_end(line)
                };
                if let (Kind::Loads, Some(session)) = (kind, &session)
                    && (self.sessions.len() < MAX_SESSIONS || self.sessions.contains_key(session))
                {
                    let replay = Some(Replay { reached: 0, again: false });
                    self.sessions.entry(session.clone()).or_default().replay = replay;
                }
                self.open.push_back(Open { id, kind, session, line: line.clone(), cancel: None });
                moves.to_gateway.push(line);
            }
            Ok(Frame::Response { id, outcome }) => self.answered(&id, &outcome, line, &mut moves),
            Ok(Frame::Notification { method, params }) => {
                let line = with_end(line);
                if method == "session/cancel" {
                    let session = Peek::into(params).session_id;
                    for open in self.open.iter_mut().filter(|open| matches!(open.kind, Kind::Prompt { .. })) {
                        if open.session.as_deref() == session.as_deref() {
                            open.cancel = Some(line.clone());
                        }
                    }
                }
                moves.to_gateway.push(line);
            }
            // The gateway will say something about it.
            Err(_) => moves.to_gateway.push(with_end(line)),
        }
        moves
    }

    /// The client answers a question.
    fn answered(&mut self, id: &RequestId, outcome: &ResponseOutcome<'_>, line: &[u8], moves: &mut Moves) {
        let Some(question) = self.questions.get_mut(id) else {
            // Late or invented: the gateway ignores it.
            moves.to_gateway.push(with_end(line));
            return;
        };
        let answer = |inner: &RequestId| {
            if inner == id {
                return with_end(line);
            }
            Bytes::from(match outcome {
                ResponseOutcome::Result(raw) => wire::answer(inner, Ok(raw)),
                ResponseOutcome::Error(error) => wire::answer(inner, Err(error)),
            })
        };
        match &question.inner {
            Some(inner) => {
                moves.to_gateway.push(answer(inner));
                question.answer = Some(with_end(line));
                if question.session.is_none() {
                    self.questions.remove(id);
                }
            }
            None => question.answer = Some(with_end(line)),
        }
    }

    /// Takes a message of the gateway.
    pub(crate) fn gateway_says(&mut self, line: &[u8]) -> Moves {
        let mut moves = Moves::default();
        match Frame::parse(line) {
            Ok(Frame::Notification { method, params }) => self.told(&method, &Peek::into(params), line, &mut moves),
            Ok(Frame::Request { id, method, params }) => self.asked(id, &method, params, line, &mut moves),
            Ok(Frame::Response { id, outcome }) => self.response(&id, &outcome, line, &mut moves),
            Err(error) => {
                tracing::warn!(why = error.message, size = line.len(), "the gateway sent something that is no message");
            }
        }
        moves
    }

    fn told(&mut self, method: &str, peek: &Peek<'_>, line: &[u8], moves: &mut Moves) {
        match (method, peek.session_id.as_deref()) {
            ("session/update", Some(session)) => {
                if self.is_news(session, peek) {
                    moves.to_client.push(with_end(line));
                }
            }
            (wire::ACCEPTED, Some(session)) => {
                let prompt = peek.prompt_id.map(|id| id.get());
                for open in self.open.iter_mut().filter(|open| Some(open.id.as_json()) == prompt) {
                    open.kind = Kind::Prompt { accepted: true };
                }
                self.reached(session, peek.seq.unwrap_or_default());
                self.pass_extension(line, moves);
            }
            (wire::TURN_ENDED, Some(session)) => {
                if let Some(prompt) = peek.prompt_id {
                    self.turn_over(session, prompt.get(), peek.result, peek.error.as_ref(), moves);
                }
                self.pass_extension(line, moves);
            }
            ("$/cancel_request", _) => {
                let inner = peek.request_id.map(|id| id.get());
                let outer = self
                    .questions
                    .iter()
                    .find(|(_, question)| question.inner.as_ref().is_some_and(|id| Some(id.as_json()) == inner));
                match outer.map(|(outer, _)| outer.clone()) {
                    Some(outer) => {
                        let question = self.questions.remove(&outer);
                        if question.is_some_and(|question| question.answer.is_none()) {
                            moves.to_client.push(Bytes::from(wire::withdrawal(&outer)));
                        }
                    }
                    None => moves.to_client.push(with_end(line)),
                }
            }
            (_, _) => moves.to_client.push(with_end(line)),
        }
    }

    /// Extensions for clients with sequence numbers go to those that asked for them.
    fn pass_extension(&self, line: &[u8], moves: &mut Moves) {
        if self.numbers {
            moves.to_client.push(with_end(line));
        }
    }

    /// Whether an update is one that the client does not have; it has it now.
    fn is_news(&mut self, session: &str, peek: &Peek<'_>) -> bool {
        let Some(number) = peek.number() else { return true };
        // What the client has just said it need not be told, and on its own connection it would not be.
        let own = peek.is_user_message()
            && self
                .open
                .iter()
                .any(|open| open.kind == Kind::Prompt { accepted: false } && open.session.as_deref() == Some(session))
            && self.epoch > 1;
        let Some(known) = self.sessions.get_mut(session) else { return true };
        known.take(number) && !own
    }

    fn reached(&mut self, session: &str, number: u64) {
        if let Some(known) = self.sessions.get_mut(session) {
            known.last = known.last.max(number);
        }
    }

    /// The gateway asks something.
    fn asked(
        &mut self,
        id: RequestId,
        method: &str,
        params: Option<&serde_json::value::RawValue>,
        line: &[u8],
        moves: &mut Moves,
    ) {
        if self.deaf {
            moves.to_gateway.push(unanswered(&id, method));
            return;
        }
        let peek = Peek::into(params);
        let session = peek.session_id.as_deref().map(str::to_owned);
        let tool_call = peek.tool_call_id();
        let same = self.questions.values_mut().find(|question| {
            question.inner.is_none()
                && question.method == method
                && question.session == session
                && question.tool_call == tool_call
        });
        if let Some(question) = same {
            // The client has this question on its screen already, or has answered it.
            question.inner = Some(id.clone());
            if let Some(answer) = &question.answer
                && let Ok(Frame::Response { outcome, .. }) = Frame::parse(answer)
            {
                moves.to_gateway.push(Bytes::from(match &outcome {
                    ResponseOutcome::Result(raw) => wire::answer(&id, Ok(raw)),
                    ResponseOutcome::Error(error) => wire::answer(&id, Err(error)),
                }));
            }
            return;
        }
        // Every connection counts its questions anew, and a client must not see one id twice.
        let outer = if self.epoch <= 1 { id.clone() } else { self.own_id("ask") };
        let shown =
            if outer == id { with_end(line) } else { Bytes::from(wire::renamed_request(&outer, method, params)) };
        let question = Question { inner: Some(id), session, method: method.to_owned(), tool_call, answer: None };
        self.questions.insert(outer, question);
        moves.to_client.push(shown);
    }

    fn response(&mut self, id: &RequestId, outcome: &ResponseOutcome<'_>, line: &[u8], moves: &mut Moves) {
        if let Some(own) = self.own.remove(id) {
            return self.own_answer(own, outcome, moves);
        }
        let Some(at) = self.open.iter().position(|open| open.id == *id) else {
            // An answer to something that was no request of its own, such as a doubled id.
            moves.to_client.push(with_end(line));
            return;
        };
        let Some(open) = self.open.remove(at) else { return };
        if let (Kind::Prompt { .. }, Some(session)) = (open.kind, &open.session) {
            self.questions.retain(|_, question| question.session.as_ref() != Some(session));
        }
        if let ResponseOutcome::Result(result) = outcome {
            match open.kind {
                Kind::Opens | Kind::Loads => {
                    let peek = Peek::into(Some(result));
                    let number = peek.number();
                    let opened = peek.session_id.map(std::borrow::Cow::into_owned);
                    if let Some(session) = opened.or(open.session)
                        && (self.sessions.len() < MAX_SESSIONS || self.sessions.contains_key(&session))
                    {
                        let known = self.sessions.entry(session).or_default();
                        known.replay = None;
                        known.last = known.last.max(number.unwrap_or_default());
                    }
                }
                Kind::Closes => {
                    if let Some(session) = &open.session {
                        self.sessions.remove(session);
                    }
                }
                Kind::Initialize | Kind::Prompt { .. } | Kind::Other => {}
            }
        } else if let (Kind::Loads, Some(session)) = (open.kind, &open.session) {
            // A session that could not be loaded is not open, unless it was before.
            if let Some(known) = self.sessions.get_mut(session) {
                known.replay = None;
                if known.last == 0 {
                    self.sessions.remove(session);
                }
            }
        }
        moves.to_client.push(with_end(line));
    }

    /// The connection is lost.
    pub(crate) fn lost(&mut self) {
        self.own.clear();
        for replay in self.sessions.values_mut().filter_map(|session| session.replay.as_mut()) {
            replay.again = true;
        }
        for question in self.questions.values_mut() {
            question.inner = None;
        }
    }

    /// A connection is there. What is sent first; everything else follows from the answers.
    pub(crate) fn connected(&mut self) -> Moves {
        self.epoch += 1;
        let mut moves = Moves::default();
        if self.epoch == 1 {
            return moves;
        }
        match &self.initialize {
            // The client's own `initialize` is still open: it is sent like every other request that is not answered.
            Some((id, _)) if self.open.iter().any(|open| open.id == *id) => self.send_again(&mut moves),
            Some((_, line)) => {
                let line = line.clone();
                let id = self.own_id("init");
                if let Ok(Frame::Request { params, .. }) = Frame::parse(&line) {
                    moves.to_gateway.push(Bytes::from(wire::renamed_request(&id, "initialize", params)));
                }
                self.own.insert(id, Own::Initialize);
            }
            None => self.send_again(&mut moves),
        }
        moves
    }

    fn own_answer(&mut self, own: Own, outcome: &ResponseOutcome<'_>, moves: &mut Moves) {
        match (own, outcome) {
            (Own::Initialize, ResponseOutcome::Result(_)) => {
                // One whose load is sent again is joined by that.
                let joins = self.sessions.iter().filter(|(_, session)| session.replay.is_none());
                let sessions: Vec<(String, u64)> = joins.map(|(id, session)| (id.clone(), session.last)).collect();
                for (session, last) in sessions {
                    let id = self.own_id("attach");
                    moves.to_gateway.push(Bytes::from(wire::attach(&id, &session, last)));
                    self.own.insert(id, Own::Attach(session));
                }
            }
            (Own::Initialize, ResponseOutcome::Error(error)) => {
                tracing::error!(code = error.code, "the gateway refuses the initialize that it took before");
            }
            (Own::Attach(session) | Own::AttachRestored(session), ResponseOutcome::Result(result)) => {
                let peek = Peek::into(Some(result));
                self.reached(&session, peek.seq.unwrap_or_default());
                self.joined(&session, &peek, moves);
            }
            // No process holds it any more: the daemon was started again.
            (Own::Attach(session), ResponseOutcome::Error(_)) => {
                let id = self.own_id("resume");
                moves.to_gateway.push(Bytes::from(wire::resume(&id, &session)));
                self.own.insert(id, Own::Resume(session));
            }
            (Own::Resume(session), ResponseOutcome::Result(_)) => {
                let last = self.sessions.get(&session).map_or(0, |session| session.last);
                let id = self.own_id("attach");
                moves.to_gateway.push(Bytes::from(wire::attach(&id, &session, last)));
                self.own.insert(id, Own::AttachRestored(session));
            }
            (Own::AttachRestored(session) | Own::Resume(session), ResponseOutcome::Error(error)) => {
                self.sessions.remove(&session);
                self.fail_session(&session, error, moves);
            }
        }
        if self.own.is_empty() {
            self.send_again(moves);
        }
    }

    /// A session is joined again: its prompt has ended meanwhile, still runs, or never arrived.
    fn joined(&mut self, session: &str, peek: &Peek<'_>, moves: &mut Moves) {
        let running = match &peek.turn {
            Some(turn) if turn.state == "running" => {
                let prompt = turn.prompt_id.get().to_owned();
                for open in self.open.iter_mut().filter(|open| open.id.as_json() == prompt) {
                    if open.session.as_deref() == Some(session) {
                        open.kind = Kind::Prompt { accepted: true };
                        // It may have been on its way when the connection was lost; twice does no harm.
                        moves.to_gateway.extend(open.cancel.clone());
                    }
                }
                true
            }
            Some(turn) => {
                self.turn_over(session, turn.prompt_id.get(), turn.result, turn.error.as_ref(), moves);
                false
            }
            None => false,
        };
        // A prompt that was taken and is not the turn that is told of is lost with the process that ran it.
        let interrupted: Vec<RequestId> = self
            .open
            .iter()
            .filter(|open| open.session.as_deref() == Some(session) && open.kind == Kind::Prompt { accepted: true })
            .filter(|_| !running)
            .map(|open| open.id.clone())
            .collect();
        for id in interrupted {
            self.open.retain(|open| open.id != id);
            moves
                .to_client
                .push(Bytes::from(wire::failure(&id, "the turn was interrupted: the gateway ended while it ran")));
        }
        if !running {
            self.withdraw(session, moves);
        }
    }

    /// Questions of a session whose turn is over are taken back.
    fn withdraw(&mut self, session: &str, moves: &mut Moves) {
        self.questions.retain(|outer, question| {
            let over = question.session.as_deref() == Some(session);
            if over && question.answer.is_none() {
                moves.to_client.push(Bytes::from(wire::withdrawal(outer)));
            }
            !over
        });
    }

    /// Answers a prompt whose turn has ended on another connection than it was sent on.
    fn turn_over(
        &mut self,
        session: &str,
        prompt: &str,
        result: Option<&serde_json::value::RawValue>,
        error: Option<&ErrorObject>,
        moves: &mut Moves,
    ) {
        let found = self.open.iter().position(|open| {
            open.id.as_json() == prompt
                && open.session.as_deref() == Some(session)
                && matches!(open.kind, Kind::Prompt { .. })
        });
        let Some(open) = found.and_then(|at| self.open.remove(at)) else { return };
        moves.to_client.push(Bytes::from(match (result, error) {
            (Some(result), _) => wire::answer(&open.id, Ok(result)),
            (None, Some(error)) => wire::answer(&open.id, Err(error)),
            (None, None) => wire::failure(&open.id, "the turn was interrupted"),
        }));
        self.withdraw(session, moves);
    }

    fn fail_session(&mut self, session: &str, error: &ErrorObject, moves: &mut Moves) {
        self.open.retain(|open| {
            let hit = open.session.as_deref() == Some(session);
            if hit {
                moves.to_client.push(Bytes::from(wire::answer(&open.id, Err(error))));
            }
            !hit
        });
        self.withdraw(session, moves);
    }

    /// Sends again what the gateway has not answered and does not work on.
    fn send_again(&self, moves: &mut Moves) {
        let again = self.open.iter().filter(|open| open.kind != Kind::Prompt { accepted: true });
        moves.to_gateway.extend(again.flat_map(|open| [Some(open.line.clone()), open.cancel.clone()]).flatten());
    }

    /// The client says nothing more: nobody answers questions any more.
    pub(crate) fn input_over(&mut self) -> Moves {
        self.deaf = true;
        let mut moves = Moves::default();
        for (_, question) in std::mem::take(&mut self.questions) {
            if let Some(inner) = question.inner.as_ref().filter(|_| question.answer.is_none()) {
                moves.to_gateway.push(unanswered(inner, &question.method));
            }
        }
        moves
    }

    /// The gateway is given up: every request gets an error, every question is taken back.
    pub(crate) fn give_up(&mut self, why: &str) -> Moves {
        let mut moves = Moves::default();
        for open in std::mem::take(&mut self.open) {
            moves.to_client.push(Bytes::from(wire::failure(&open.id, why)));
        }
        for (outer, question) in std::mem::take(&mut self.questions) {
            if question.answer.is_none() {
                moves.to_client.push(Bytes::from(wire::withdrawal(&outer)));
            }
        }
        moves
    }

    fn own_id(&mut self, what: &str) -> RequestId {
        self.next_own += 1;
        RequestId::from_plain_text(&format!("zc-bridge-{what}-{}", self.next_own))
    }
}

fn kind(method: &str) -> Kind {
    match method {
        "initialize" => Kind::Initialize,
        "session/new" | "session/resume" | "session/fork" => Kind::Opens,
        "session/load" => Kind::Loads,
        "session/close" | "session/delete" | "session/stop" | "_zeroclaw/session/stop" => Kind::Closes,
        "session/prompt" => Kind::Prompt { accepted: false },
        _ => Kind::Other,
    }
}

/// The answer of a client that is gone.
fn unanswered(id: &RequestId, method: &str) -> Bytes {
    if method == zeroclaw_acp_protocol::client::REQUEST_PERMISSION {
        let cancelled = serde_json::json!({"outcome": {"outcome": "cancelled"}});
        let mut line = Vec::new();
        // Plain JSON can be written.
        let _infallible = zeroclaw_acp_protocol::encode_result(&mut line, id, &cancelled);
        return line.into();
    }
    wire::failure(id, "the client is gone").into()
}

/// The line with its terminator.
fn with_end(line: &[u8]) -> Bytes {
    let mut whole = Vec::with_capacity(line.len() + 1);
    whole.extend_from_slice(line);
    whole.push(b'\n');
    whole.into()
}

#[cfg(test)]
mod tests;
