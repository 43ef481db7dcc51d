//! One gateway over many connections, without I/O: what is sent when, what is waited for and for how long.
//! Nothing but the handshake is sent before the gateway has said hello; what is asked meanwhile waits in line.
//! It refuses to know what a request is for: whoever asks leaves a tag and gets it back with the answer.

mod refusal;

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    time::{Duration, Instant},
};

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    identity::{Identity, ROLE, Signed},
    wire::{self, Auth, Challenge, Client, Connect, Device, GatewayError, Hello, Incoming},
};

pub(super) use refusal::{Refusal, judge, shown};

/// Time for the gateway's challenge, and for its hello after the answer: its own limit for both together is 15 seconds.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// Time for an answer.
const ANSWER: Duration = Duration::from_secs(30);

/// The interval of ticks when the gateway does not name one.
const TICKS: Duration = Duration::from_secs(30);

/// The longest silence that is taken for life, whatever the gateway says about its ticks.
const MAX_QUIET: Duration = Duration::from_secs(600);

/// Requests that wait for an answer or for a connection, at most. Each of a client's requests causes a handful, and
/// further ones are refused at once: without a limit a client that asks while the gateway is away could fill the memory.
const MAX_WAITING: usize = 4096;

/// What opens the door: read anew for each connection, as tokens change.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) token: Option<String>,
    pub(super) password: Option<String>,
    pub(super) scopes: Vec<String>,
    /// The token is the device's own.
    pub(super) is_device_token: bool,
}

/// Whether a request may be made again on another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It only reads, or says the same twice: a lost connection does not fail it.
    Yes,
    /// Whoever asked decides.
    No,
}

/// What a frame meant.
#[derive(Debug)]
pub(super) enum Heard<'a, T> {
    /// Nothing that concerns anybody.
    Nothing,
    /// The connection is up.
    Hello(Box<Hello>),
    /// The gateway does not let the bridge in.
    Refused(GatewayError),
    /// An answer.
    Reply(T, Result<Option<&'a RawValue>, GatewayError>),
    /// An event.
    Event(std::borrow::Cow<'a, str>, Option<&'a RawValue>),
    /// An event, and some before it are lost.
    AfterGap(std::borrow::Cow<'a, str>, Option<&'a RawValue>),
    /// It cannot be a frame of the gateway; the connection is of no use any more.
    Broken(&'static str),
}

/// What time has brought.
#[derive(Debug)]
pub(super) enum Late<T> {
    /// No answer in time.
    Unanswered(T),
    /// The gateway is silent: the connection is of no use any more.
    Silent(&'static str),
}

#[derive(Debug)]
enum State {
    Down,
    Opened { until: Instant },
    Greeted { id: u64, until: Instant },
    Up { heard: Instant, seq: Option<u64>, quiet: Duration },
}

#[derive(Debug)]
struct Pending<T> {
    tag: T,
    until: Option<Instant>,
    /// Its method and parameters, where it may be made again.
    again: Option<(&'static str, String)>,
}

#[derive(Debug)]
struct Queued<T> {
    tag: T,
    method: &'static str,
    params: String,
    repeat: Repeat,
    limit: Limit,
}

/// How long an answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Usual,
    /// As long as the connection lives.
    None,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Core<T> {
    state: State,
    credentials: Credentials,
    next_id: u64,
    pending: BTreeMap<u64, Pending<T>>,
    queue: VecDeque<Queued<T>>,
    out: Vec<String>,
    max_payload: usize,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Credentials").field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

impl<T> Core<T> {
    pub(super) fn new() -> Self {
        Self {
            state: State::Down,
            credentials: Credentials::default(),
            next_id: 1,
            pending: BTreeMap::new(),
            queue: VecDeque::new(),
            out: Vec::new(),
            max_payload: wire::MAX_FRAME,
        }
    }

    /// Whether requests are sent at once.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// The longest frame that the gateway takes.
    pub(super) fn max_payload(&self) -> usize {
        self.max_payload
    }

    /// The longest frame that is taken from the gateway now.
    pub(super) fn max_frame(&self) -> usize {
        if self.is_up() { wire::MAX_FRAME } else { wire::MAX_EARLY_FRAME }
    }

    /// A connection is open; the gateway speaks first.
    pub(super) fn opened(&mut self, credentials: Credentials, now: Instant) {
        self.credentials = credentials;
        self.out.clear();
        self.state = State::Opened { until: now + HANDSHAKE };
    }

    /// The connection is gone. Gives back what will not be answered.
    pub(super) fn closed(&mut self) -> Vec<T> {
        self.state = State::Down;
        self.out.clear();
        let mut lost = Vec::new();
        let mut again = VecDeque::new();
        for pending in mem::take(&mut self.pending).into_values() {
            match pending.again {
                Some((method, params)) => {
                    let limit = if pending.until.is_some() { Limit::Usual } else { Limit::None };
                    again.push_back(Queued { tag: pending.tag, method, params, repeat: Repeat::Yes, limit });
                }
                None => lost.push(pending.tag),
            }
        }
        // They were asked before what waits already.
        again.append(&mut self.queue);
        self.queue = again;
        lost
    }

    /// Gives up everything that waits for a connection.
    pub(super) fn give_up(&mut self) -> Vec<T> {
        self.queue.drain(..).map(|queued| queued.tag).collect()
    }

    /// Asks the gateway, now or when it is there.
    ///
    /// # Errors
    /// Too much waits already: gives the tag back.
    pub(super) fn ask<P: Serialize>(
        &mut self,
        method: &'static str,
        params: &P,
        tag: T,
        repeat: Repeat,
        limit: Limit,
        now: Instant,
    ) -> Result<(), T> {
        if self.pending.len() + self.queue.len() >= MAX_WAITING {
            return Err(tag);
        }
        // Parameters of ours can be written.
        let params = serde_json::to_string(params).unwrap_or_default();
        let queued = Queued { tag, method, params, repeat, limit };
        if self.is_up() {
            self.send(queued, now)
        } else {
            self.queue.push_back(queued)
        }
        Ok(())
    }

    fn send(&mut self, queued: Queued<T>, now: Instant) {
        let Queued { tag, method, params, repeat, limit } = queued;
        let id = self.next_id;
        self.next_id += 1;
        self.out.push(format!("{{\"type\":\"req\",\"id\":\"{id}\",\"method\":\"{method}\",\"params\":{params}}}"));
        let until = match limit {
            Limit::Usual => Some(now + ANSWER),
            Limit::None => None,
        };
        let again = (repeat == Repeat::Yes).then_some((method, params));
        self.pending.insert(id, Pending { tag, until, again });
    }

    /// What is to be written, in this order.
    pub(super) fn take_output(&mut self) -> Vec<String> {
        mem::take(&mut self.out)
    }

    /// Takes a frame. `identity` signs the challenge.
    pub(super) fn received<'a>(
        &mut self,
        text: &'a str,
        identity: &Identity,
        platform: &str,
        now: Instant,
    ) -> Heard<'a, T> {
        if text.len() > self.max_frame() {
            return Heard::Broken("it sent a frame that is too long");
        }
        if let State::Up { heard, .. } = &mut self.state {
            *heard = now;
        }
        match Incoming::parse(text) {
            None => match self.state {
                State::Up { .. } => {
                    tracing::warn!(bytes = text.len(), "the gateway sent something that is no frame");
                    Heard::Nothing
                }
                State::Down | State::Opened { .. } | State::Greeted { .. } => {
                    Heard::Broken("what answers does not speak the gateway's protocol")
                }
            },
            Some(Incoming::Unknown) => Heard::Nothing,
            Some(Incoming::Response { id, outcome }) => self.response(&id, outcome, now),
            Some(Incoming::Event { name, payload, seq }) => self.event(name, payload, seq, identity, platform, now),
        }
    }

    fn response<'a>(
        &mut self,
        id: &str,
        outcome: Result<Option<&'a RawValue>, GatewayError>,
        now: Instant,
    ) -> Heard<'a, T> {
        let Ok(id) = id.parse::<u64>() else { return Heard::Nothing };
        match self.state {
            State::Greeted { id: awaited, .. } if awaited == id => match outcome {
                Ok(payload) => self.hello(payload, now),
                Err(error) => Heard::Refused(error),
            },
            State::Down | State::Opened { .. } | State::Greeted { .. } => Heard::Nothing,
            State::Up { .. } => match self.pending.remove(&id) {
                Some(pending) => Heard::Reply(pending.tag, outcome),
                // It came too late.
                None => Heard::Nothing,
            },
        }
    }

    fn hello<'a>(&mut self, payload: Option<&RawValue>, now: Instant) -> Heard<'a, T> {
        let Some(hello) = payload.and_then(wire::read::<Hello>) else {
            return Heard::Broken("its hello cannot be read");
        };
        if hello.protocol != wire::PROTOCOL {
            return Heard::Broken("it speaks another version of the protocol");
        }
        let tick = hello.policy.tick_interval_ms.filter(|ms| *ms > 0).map_or(TICKS, Duration::from_millis);
        self.max_payload = hello.policy.max_payload.unwrap_or(wire::MAX_FRAME).min(wire::MAX_FRAME);
        self.state = State::Up { heard: now, seq: None, quiet: tick.saturating_mul(2).min(MAX_QUIET) };
        for queued in mem::take(&mut self.queue) {
            self.send(queued, now);
        }
        Heard::Hello(Box::new(hello))
    }

    fn event<'a>(
        &mut self,
        name: std::borrow::Cow<'a, str>,
        payload: Option<&'a RawValue>,
        number: Option<u64>,
        identity: &Identity,
        platform: &str,
        now: Instant,
    ) -> Heard<'a, T> {
        match &mut self.state {
            State::Down | State::Greeted { .. } => Heard::Nothing,
            State::Opened { .. } => {
                if name != "connect.challenge" {
                    return Heard::Nothing;
                }
                let Some(challenge) = payload.and_then(wire::read::<Challenge<'_>>) else {
                    return Heard::Broken("its challenge cannot be read");
                };
                self.answer_challenge(&challenge, identity, platform, now);
                Heard::Nothing
            }
            State::Up { seq, .. } => {
                let Some(number) = number else { return Heard::Event(name, payload) };
                let expected = seq.map(|last| last.saturating_add(1));
                *seq = Some(number);
                // The first number of a connection is 1, but what came before the subscription is of no interest.
                match expected {
                    Some(expected) if number > expected => Heard::AfterGap(name, payload),
                    Some(_) | None => Heard::Event(name, payload),
                }
            }
        }
    }

    fn answer_challenge(&mut self, challenge: &Challenge<'_>, identity: &Identity, platform: &str, now: Instant) {
        let id = self.next_id;
        self.next_id += 1;
        let credentials = &self.credentials;
        // The gateway compares this with its own clock, which it has just told.
        let signed_at = challenge.ts.unwrap_or_default();
        let signature = identity.sign(&Signed {
            client: CLIENT,
            mode: MODE,
            scopes: &credentials.scopes,
            signed_at,
            token: credentials.token.as_deref().unwrap_or_default(),
            nonce: &challenge.nonce,
            platform,
        });
        let auth = Auth { token: credentials.token.as_deref(), password: credentials.password.as_deref() };
        let connect = Connect {
            min_protocol: wire::PROTOCOL,
            max_protocol: wire::PROTOCOL,
            client: Client { id: CLIENT, display_name: "ACP", version: "acp", platform, mode: MODE },
            caps: &["tool-events"],
            auth: (auth.token.is_some() || auth.password.is_some()).then_some(auth),
            role: ROLE,
            scopes: &credentials.scopes,
            device: Device {
                id: identity.id(),
                public_key: identity.public_key(),
                signature: &signature,
                signed_at,
                nonce: &challenge.nonce,
            },
        };
        self.out.push(wire::request(id, "connect", &connect));
        self.state = State::Greeted { id, until: now + HANDSHAKE };
    }

    /// When time brings something next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Down => None,
            State::Opened { until } | State::Greeted { until, .. } => Some(until),
            State::Up { heard, quiet, .. } => {
                let answers = self.pending.values().filter_map(|pending| pending.until).min();
                Some(answers.map_or(heard + quiet, |until| until.min(heard + quiet)))
            }
        }
    }

    /// What time has brought.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Late<T>> {
        match self.state {
            State::Down => Vec::new(),
            State::Opened { until } | State::Greeted { until, .. } if now < until => Vec::new(),
            State::Opened { .. } => vec![Late::Silent("it sends no challenge")],
            State::Greeted { .. } => vec![Late::Silent("it does not answer")],
            State::Up { heard, quiet, .. } if now >= heard + quiet => vec![Late::Silent("it has become silent")],
            State::Up { .. } => {
                let over = |pending: &Pending<T>| pending.until.is_some_and(|until| now >= until);
                let ids: Vec<u64> =
                    self.pending.iter().filter(|(_, pending)| over(pending)).map(|(id, _)| *id).collect();
                ids.iter()
                    .filter_map(|id| self.pending.remove(id))
                    .map(|pending| Late::Unanswered(pending.tag))
                    .collect()
            }
        }
    }
}

/// The pair of names that gateways know ACP bridges by.
const CLIENT: &str = "cli";
const MODE: &str = "cli";
