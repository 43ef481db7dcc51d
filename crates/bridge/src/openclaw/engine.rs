//! The bridge itself, without I/O: a client's lines and a gateway's frames go in, lines, frames and records come out.
//! Everything that happens does so in one place and in order; whoever drives it reads, writes and keeps the time.

mod answers;
mod approvals;
mod client;
mod events;
mod list;
mod open;
mod prompts;
mod reconcile;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde::Serialize;
use zeroclaw_acp_protocol::{
    ErrorKind, ErrorObject, ErrorTable, RequestId, SessionUpdate, UpdateFrame, encode_error, encode_result,
};

use super::{
    choices::Levels,
    gateway::{Core, Credentials, Heard, Late, Limit, Repeat, shown},
    identity::Identity,
    ledger::{self, Record},
    prompt::{Outgoing, PromptMeta},
    run::{Outcome, Translator, Updates, encode},
    wire::{self, GatewayError, Hello, SessionRow},
};

/// Sessions that are open at once, at most; the one that was used longest ago is given up before a further one is refused.
const MAX_SESSIONS: usize = 5000;

/// Time after an answer before a session's commands are told: several clients drop what comes before they have read it.
const ANNOUNCE: Duration = Duration::from_millis(60);

/// Where a message is said to come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProvenanceMode {
    /// Nothing is said.
    #[default]
    Off,
    /// To the gateway only.
    Meta,
    /// To the model as well.
    MetaAndReceipt,
}

/// What does not change while the bridge runs.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) session: Option<String>,
    pub(super) label: Option<String>,
    pub(super) require_existing: bool,
    pub(super) reset: bool,
    pub(super) prefix_cwd: bool,
    pub(super) provenance: ProvenanceMode,
    pub(super) grace: Duration,
    /// Sessions that may be created in [`Self::create_window`].
    pub(super) create_limit: usize,
    pub(super) create_window: Duration,
    pub(super) home: Option<PathBuf>,
    pub(super) host: String,
    pub(super) platform: String,
}

/// The edges of the engine that are not messages.
pub(super) struct World {
    /// Sixteen random bytes, as a UUID.
    pub(super) uuid: Box<dyn FnMut() -> String + Send>,
    /// Milliseconds since 1970.
    pub(super) wall: Box<dyn Fn() -> u64 + Send>,
}

/// What a request to the gateway is for.
#[derive(Debug)]
pub(super) enum Ask {
    Send(String),
    Abort { key: String, run: String },
    Subscribe(String),
    Watch,
    Wait(String),
    History(String),
    Commands,
    Agents,
    Open(u64),
    List(u64),
    Patch(u64),
    Approval(String),
    Decide,
    Approvals(approvals::Kind),
}

/// What time brings.
#[derive(Debug)]
enum Timer {
    Announce(String),
    /// The row that ends a run does not come.
    Settle(String),
    /// The gateway does not say that a run is stopped.
    CancelLimit(String),
    /// The same text may be sent again.
    Resend(String),
    /// The history may be complete now.
    Reread(String),
    Grace,
}

/// An open session.
struct Session {
    id: String,
    /// As events name it.
    key: String,
    cwd: String,
    row: SessionRow,
    frame: UpdateFrame,
    run: Option<String>,
    /// The connection over which its rows are told.
    subscribed: u64,
    titled: bool,
    /// Its commands are told.
    announced: bool,
    /// Milliseconds.
    used: u64,
}

/// How far a run is.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// Not sent.
    Waiting,
    /// Sent, and not yet acknowledged.
    Sent,
    /// Sent, and the connection was lost before the acknowledgement.
    Unsure,
    /// The gateway has it.
    Running,
}

/// A prompt and what becomes of it.
struct Run {
    session: String,
    request: RequestId,
    outgoing: Outgoing,
    meta: PromptMeta,
    phase: Phase,
    translator: Translator,
    /// The end, when the last row is still awaited.
    ending: Option<Outcome>,
    cancelled: bool,
    /// How often the text was sent while the gateway took it for another run's.
    resends: u32,
    without_provenance: bool,
    catching: Option<reconcile::Catching>,
}

/// What the driver has to do about the connection.
#[derive(Debug)]
pub(super) enum Link {
    Fine,
    /// It is of no use; the reason.
    Drop(String),
    /// The handshake was refused.
    Refused(GatewayError),
    /// The gateway has let the bridge in.
    Up(Box<Hello>),
}

/// What goes out besides frames.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) to_client: Vec<u8>,
    pub(super) ledger: Vec<ledger::Command>,
}

/// The engine.
pub(super) struct Engine {
    settings: Settings,
    world: World,
    identity: Arc<Identity>,
    core: Core<Ask>,
    initialized: bool,
    sessions: HashMap<String, Session>,
    runs: HashMap<String, Run>,
    /// Runs of this process that are over, for a while: the gateway may take a text for one of theirs.
    settled: VecDeque<String>,
    /// Which run the rows of a session belong to, by key.
    owners: HashMap<String, String>,
    dialogs: approvals::Dialogs,
    opening: BTreeMap<u64, open::Opening>,
    listing: BTreeMap<u64, list::Listing>,
    patching: BTreeMap<u64, answers::Patching>,
    next_op: u64,
    timers: BTreeMap<(Instant, u64), Timer>,
    next_timer: u64,
    /// Counts connections.
    connection: u64,
    admin: bool,
    default_agent: String,
    levels: Option<Levels>,
    commands: Option<Bytes>,
    /// Since when there is no gateway, and why.
    lost: Option<(Instant, String)>,
    /// The grace is over, and the gateway is still away.
    forsaken: bool,
    created: VecDeque<Instant>,
    /// The time of what is being worked on.
    now: Instant,
    effects: Effects,
}

impl Engine {
    pub(super) fn new(settings: Settings, world: World, identity: Arc<Identity>, now: Instant) -> Self {
        Self {
            settings,
            world,
            identity,
            core: Core::new(),
            initialized: false,
            sessions: HashMap::new(),
            runs: HashMap::new(),
            settled: VecDeque::new(),
            owners: HashMap::new(),
            dialogs: approvals::Dialogs::default(),
            opening: BTreeMap::new(),
            listing: BTreeMap::new(),
            patching: BTreeMap::new(),
            next_op: 1,
            timers: BTreeMap::new(),
            next_timer: 0,
            connection: 0,
            admin: false,
            default_agent: "main".to_owned(),
            levels: None,
            commands: None,
            lost: None,
            forsaken: false,
            created: VecDeque::new(),
            now,
            effects: Effects::default(),
        }
    }

    /// Milliseconds since 1970.
    pub(super) fn wall(&self) -> u64 {
        (self.world.wall)()
    }

    /// The gateway has closed because a frame was too long for it: the prompts that it has not acknowledged are to blame.
    pub(super) fn too_large(&mut self) {
        let sent = self.runs.iter().filter(|(_, run)| run.phase == Phase::Sent).map(|(id, _)| id.clone());
        for id in sent.collect::<Vec<_>>() {
            self.settle(&id, Outcome::Failed("the prompt is too large for the gateway".to_owned(), None));
        }
    }

    /// What has to be written, told and kept.
    pub(super) fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// The frames for the gateway, in this order.
    pub(super) fn take_frames(&mut self) -> Vec<String> {
        self.core.take_output()
    }

    /// Whether nothing is asked for or running.
    pub(super) fn is_idle(&self) -> bool {
        self.runs.is_empty() && self.opening.is_empty() && self.listing.is_empty() && self.patching.is_empty()
    }

    /// When time brings something next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let timer = self.timers.keys().next().map(|(at, _)| *at);
        match (timer, self.core.deadline()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn timer(&mut self, at: Instant, timer: Timer) {
        self.next_timer += 1;
        self.timers.insert((at, self.next_timer), timer);
    }

    /// A connection is open.
    pub(super) fn opened(&mut self, credentials: Credentials, now: Instant) {
        self.now = now;
        self.core.opened(credentials, now);
    }

    /// Takes a frame of the gateway.
    pub(super) fn frame(&mut self, text: &str, now: Instant) -> Link {
        self.now = now;
        let heard = self.core.received(text, &self.identity, &self.settings.platform, now);
        match heard {
            Heard::Nothing => Link::Fine,
            Heard::Hello(hello) => {
                self.hello(&hello, now);
                Link::Up(hello)
            }
            Heard::Refused(error) => Link::Refused(error),
            Heard::Reply(ask, outcome) => {
                self.reply(ask, outcome, now);
                Link::Fine
            }
            Heard::Event(name, payload) => {
                self.event(&name, payload, now);
                Link::Fine
            }
            Heard::AfterGap(name, payload) => {
                tracing::warn!("the gateway has skipped events; reading what they said");
                self.gap(now);
                self.event(&name, payload, now);
                Link::Fine
            }
            Heard::Broken(why) => Link::Drop(why.to_owned()),
        }
    }

    fn hello(&mut self, hello: &Hello, now: Instant) {
        self.connection += 1;
        self.lost = None;
        self.forsaken = false;
        let scopes = &hello.auth.scopes;
        self.admin = scopes.iter().any(|scope| scope == "operator.admin");
        if !self.admin && !scopes.iter().any(|scope| scope == "operator.approvals") {
            tracing::warn!("the gateway does not let this device answer approvals; pair it anew to be asked");
        }
        if let Some(agent) = &hello.snapshot.session_defaults.default_agent_id {
            self.default_agent.clone_from(agent);
        }
        if self.commands.is_none() {
            self.ask("commands.list", &wire::Nothing {}, Ask::Commands, Repeat::Yes, now);
        }
        if self.admin && self.levels.is_none() {
            self.ask("agents.list", &wire::Nothing {}, Ask::Agents, Repeat::Yes, now);
        }
        self.catch_up(now);
    }

    /// The connection is gone, or could not be opened.
    pub(super) fn lost(&mut self, why: &str, now: Instant) {
        self.now = now;
        let was_up = self.core.is_up();
        let lost = self.core.closed();
        if self.connection == 0 {
            return;
        }
        if self.lost.is_none() {
            self.lost = Some((now, why.to_owned()));
            self.timer(now + self.settings.grace, Timer::Grace);
        } else if let Some((_, reason)) = &mut self.lost {
            why.clone_into(reason);
        }
        if was_up {
            self.suspend();
        }
        for ask in lost {
            self.unanswered(ask, "the connection to the gateway was lost", now);
        }
    }

    /// Asks, and answers at once when too much waits already.
    fn ask<P: Serialize>(&mut self, method: &'static str, params: &P, ask: Ask, repeat: Repeat, now: Instant) {
        if let Err(ask) = self.core.ask(method, params, ask, repeat, Limit::Usual, now) {
            self.unanswered(ask, "too much waits for the gateway already", now);
        }
    }

    /// What time has brought. A reason when the connection is of no use any more.
    pub(super) fn due(&mut self, now: Instant) -> Link {
        self.now = now;
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let timer = entry.remove();
            self.timed(timer, now);
        }
        let mut link = Link::Fine;
        for late in self.core.due(now) {
            match late {
                Late::Unanswered(ask) => self.unanswered(ask, "the gateway does not answer", now),
                Late::Silent(why) => link = Link::Drop(why.to_owned()),
            }
        }
        link
    }

    fn timed(&mut self, timer: Timer, now: Instant) {
        match timer {
            Timer::Announce(session) => self.announce(&session),
            Timer::Settle(run) => {
                let ending = self.runs.get_mut(&run).and_then(|run| run.ending.take());
                if let Some(outcome) = ending {
                    self.settle(&run, outcome);
                }
            }
            Timer::CancelLimit(run) => {
                if self.runs.get(&run).is_some_and(|run| run.cancelled) {
                    self.settle(&run, Outcome::Cancelled);
                }
            }
            Timer::Resend(run) => self.send_run(&run, now),
            Timer::Reread(run) => self.read_history(&run, now),
            Timer::Grace => {
                let late = self.lost.as_ref().filter(|(since, _)| now >= *since + self.settings.grace);
                if let Some((_, why)) = late {
                    let why = format!("the gateway is away: {}", shown(why));
                    self.forsake(&why, now);
                }
            }
        }
    }

    /// The grace is over: what waits is answered with an error.
    fn forsake(&mut self, why: &str, now: Instant) {
        self.forsaken = true;
        for ask in self.core.give_up() {
            match ask {
                // A run that nobody waits for any more is stopped whenever the gateway is there again.
                Ask::Abort { key, run } => self.abort(key, run, now),
                other => self.unanswered(other, why, now),
            }
        }
        let runs: Vec<String> = self.runs.keys().cloned().collect();
        for run in runs {
            if let Some(session) = self.runs.get(&run).map(|run| run.session.clone()) {
                self.effects.ledger.push(ledger::Command::Incomplete(session));
            }
            self.settle(&run, Outcome::Failed(why.to_owned(), None));
        }
    }

    /// Ends everything with this reason: no gateway will be there.
    pub(super) fn give_up(&mut self, why: &str, now: Instant) {
        self.now = now;
        for ask in self.core.closed() {
            self.unanswered(ask, why, now);
        }
        self.forsake(why, now);
    }

    /// The client is gone or the process is to end: what runs is stopped.
    pub(super) fn stop_all(&mut self, now: Instant) {
        self.now = now;
        let runs: Vec<String> = self.runs.keys().cloned().collect();
        for run in runs {
            self.stop_run(&run, now);
            self.settle(&run, Outcome::Cancelled);
        }
    }

    fn answer<T: Serialize>(&mut self, id: &RequestId, result: &T) {
        // Results of ours can be written.
        let _infallible = encode_result(&mut self.effects.to_client, id, result);
    }

    fn fail(&mut self, id: &RequestId, kind: ErrorKind, why: impl Into<String>) {
        let error = ErrorObject::new(ErrorTable::Spec, kind, why);
        encode_error(&mut self.effects.to_client, Some(id), &error);
    }

    /// Hands updates of a session on, and keeps those that tell its story.
    fn tell(&mut self, session: &str, updates: Updates) {
        let Some(open) = self.sessions.get(session) else { return };
        for update in updates {
            open.frame.write(&mut self.effects.to_client, &update, None);
            self.effects.ledger.push(ledger::Command::Append(session.to_owned(), update));
        }
    }

    /// Hands an update on that only matters now.
    fn tell_state(&mut self, session: &str, update: &SessionUpdate<'_>) {
        let Some(open) = self.sessions.get(session) else { return };
        open.frame.write(&mut self.effects.to_client, &encode(update), None);
    }

    /// The key as events name it.
    fn canonical(&self, key: &str) -> String {
        if key.starts_with("agent:") || key == "global" || key == "unknown" {
            key.to_owned()
        } else {
            format!("agent:{}:{key}", self.default_agent)
        }
    }

    /// Takes what the ledger has found.
    pub(super) fn found(&mut self, op: u64, record: Option<Record>, now: Instant) {
        self.now = now;
        self.open_found(op, record, now);
    }
}

#[cfg(test)]
mod tests;
