//! The single place where a session's output is put in order: updates, messages, questions and answers go in from anywhere
//! and come out one after the other, first into the store, then to every attached client.
//! Because the store comes first, everything a client has seen survives `kill -9`.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::FutureExt as _;
use tokio::sync::{Notify, futures::Notified, oneshot};
use tokio_util::sync::CancellationToken;
use zeroclaw_acp_protocol::{ContentBlock, GatedUpdate, NoticeSeverity, RequestId, SessionUpdate, UpdateFrame};
use zeroclaw_runtime::turn::Flow;
use zeroclaw_session_store::{EventKind, EventRecord, MessageRecord, SessionPatch, SessionStore, TurnEnd, TurnStart};

use super::{
    audience::{Apart, Audience, JoinError, Joined, Sent, Since, write_fitting},
    ops::Ledger,
};
use crate::{
    client::{Client, lock},
    encode,
    meters::Meters,
};

/// Bytes of updates that wait to be stored and sent before the turn is told to wait: enough to make commits large,
/// small enough that a stalled client costs little.
const HIGH: usize = 256 * 1024;

/// Something the user should know that is not the model's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice<'a> {
    /// Of the message, for clients that get it as one; unique in the session.
    pub(crate) id: &'a str,
    pub(crate) severity: NoticeSeverity,
    /// One line, not empty, without a final period.
    pub(crate) title: &'a str,
    pub(crate) description: Option<&'a str>,
}

/// Called in its place among everything else the clients get.
struct Then(Box<dyn FnOnce() + Send>);

impl fmt::Debug for Then {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Then")
    }
}

/// Made in its place among everything that is said of the session, called in its place among what the client gets.
struct Join(Box<dyn FnOnce() -> Joined + Send>);

impl fmt::Debug for Join {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Join")
    }
}

/// What the queue holds besides the bytes of the events.
#[derive(Debug)]
enum Item {
    /// The next `len` bytes of the arena are an event.
    Event {
        len: usize,
        kind: EventKind,
        turn: Option<u64>,
        apart: Option<Apart>,
    },
    Message(MessageRecord),
    Begin(TurnStart),
    /// Answered with whether everything up to here is on disk.
    End(TurnEnd, oneshot::Sender<bool>),
    /// A line for one client.
    Line(Arc<Client>, Vec<u8>),
    /// The log, or a part of it, for one client, which gets everything from there on.
    Join(Arc<Client>, Since, Join),
    /// Facts about the session, kept with the next write.
    Patch(SessionPatch),
    Then(Then),
    /// Everything before is handed over; answered with whether it is all stored.
    Barrier(oneshot::Sender<bool>),
}

#[derive(Debug, Default)]
struct Queue {
    /// The bytes of all queued events, one after the other: one allocation a batch, not one an update.
    arena: Vec<u8>,
    items: Vec<Item>,
    closed: bool,
    /// The task has ended: nobody takes anything any more.
    dead: bool,
}

/// A session's output. Shared by its actor, its turn and its tools.
#[derive(Debug)]
pub(crate) struct Pump {
    session: Arc<str>,
    /// The session's directory, where delivered files have their copies.
    cwd: Box<Path>,
    queue: Mutex<Queue>,
    filled: Notify,
    room: Notify,
    /// Woken when a client has come.
    joined: Notify,
    /// Cancelled when the task has panicked.
    broken: CancellationToken,
    /// Clients may go and come back.
    lingers: AtomicBool,
    audience: Arc<Audience>,
    meters: Arc<Meters>,
}

impl Pump {
    /// Makes the pump and starts its task. `last_seq` is the number of the last stored event;
    /// without a store nothing is kept and replays are empty.
    pub(crate) fn start(
        session: Arc<str>,
        cwd: &Path,
        store: Option<Arc<dyn SessionStore>>,
        last_seq: u64,
        meters: &Arc<Meters>,
    ) -> Arc<Self> {
        let pump = Arc::new(Self {
            session: Arc::clone(&session),
            cwd: cwd.into(),
            queue: Mutex::default(),
            filled: Notify::new(),
            room: Notify::new(),
            joined: Notify::new(),
            broken: CancellationToken::new(),
            lingers: AtomicBool::new(false),
            audience: Audience::new(Arc::clone(&session), cwd, store.clone(), last_seq),
            meters: Arc::clone(meters),
        });
        let worker =
            Worker { ledger: Ledger::new(store, session, Arc::clone(meters)), seq: last_seq, pump: Arc::clone(&pump) };
        let guarded = Arc::clone(&pump);
        tokio::spawn(async move {
            if AssertUnwindSafe(worker.run()).catch_unwind().await.is_err() {
                tracing::error!(session = %guarded.session, "the output of a session panicked");
                guarded.broken.cancel();
            }
            guarded.die();
        });
        pump
    }

    /// Lets a client in that has missed nothing.
    pub(crate) fn attach(&self, client: &Arc<Client>) {
        self.audience.add(client);
        self.welcome(client);
    }

    /// A client is there from now on: what is open is asked of it too.
    fn welcome(&self, client: &Client) {
        if client.detaches() {
            self.lingers.store(true, Ordering::Release);
        }
        self.joined.notify_waiters();
    }

    pub(crate) fn session(&self) -> Arc<str> {
        Arc::clone(&self.session)
    }

    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.audience.clients()
    }

    /// Woken when a client has come.
    pub(super) fn joined(&self) -> Notified<'_> {
        self.joined.notified()
    }

    /// Whether clients may go and come back: a question waits for them.
    pub(super) fn lingers(&self) -> bool {
        self.lingers.load(Ordering::Acquire)
    }

    /// Sends a client what it has missed, and then everything that all get. `prepare` is called in its place among everything
    /// that is said of the session, and what it makes in between of the two.
    pub(super) fn join<D>(&self, client: &Arc<Client>, since: Since, prepare: impl FnOnce() -> D + Send + 'static)
    where
        D: FnOnce(Result<u64, JoinError>) + Send + 'static,
    {
        let prepare = Box::new(move || Joined(Box::new(prepare())));
        self.push(Item::Join(Arc::clone(client), since, Join(prepare)));
    }

    /// Queues an event that `encode` writes.
    pub(crate) fn event(&self, kind: EventKind, turn: Option<u64>, encode: impl FnOnce(&mut Vec<u8>)) -> Flow {
        self.push_event(kind, turn, None, encode)
    }

    /// Queues a part of the user's prompt: it goes to every client but the one it came from.
    pub(crate) fn prompt_part(&self, turn: u64, from: &Arc<Client>, id: &RequestId, encode: impl FnOnce(&mut Vec<u8>)) {
        let origin = Some(Apart::Own(Arc::clone(from), id.clone()));
        // A prompt is bounded by the line it came in, so there is no need to wait.
        match self.push_event(EventKind::UserPrompt, Some(turn), origin, encode) {
            Flow::Ready | Flow::Full => {}
        }
    }

    /// Queues an update of which one client gets `instead`, and the log and everybody else what `encode` writes.
    pub(crate) fn event_but(
        &self,
        turn: u64,
        client: &Arc<Client>,
        instead: Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Flow {
        let apart = Some(Apart::Instead(Arc::clone(client), instead));
        self.push_event(EventKind::Update, Some(turn), apart, encode)
    }

    fn push_event(
        &self,
        kind: EventKind,
        turn: Option<u64>,
        apart: Option<Apart>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Flow {
        let mut queue = lock(&self.queue);
        let before = queue.arena.len();
        // Half an event would be taken for the beginning of the next one.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| encode(&mut queue.arena))) {
            queue.arena.truncate(before);
            drop(queue);
            resume_unwind(panic);
        }
        let len = queue.arena.len() - before;
        if queue.dead {
            queue.arena.clear();
        } else if len > 0 {
            self.meters.waiting.add(len);
            queue.items.push(Item::Event { len, kind, turn, apart });
        }
        let full = queue.arena.len() > HIGH;
        let first = queue.items.len() == 1;
        drop(queue);
        if first {
            self.filled.notify_one();
        }
        if full { Flow::Full } else { Flow::Ready }
    }

    fn push(&self, item: Item) {
        let mut queue = lock(&self.queue);
        if queue.dead {
            // The item goes behind the lock: what it carries may have something to say when it is dropped.
            drop(queue);
            return;
        }
        queue.items.push(item);
        drop(queue);
        self.filled.notify_one();
    }

    pub(crate) fn message(&self, message: MessageRecord) {
        self.push(Item::Message(message));
    }

    pub(crate) fn begin_turn(&self, start: TurnStart) {
        self.push(Item::Begin(start));
    }

    /// Ends a turn; resolves to whether the whole turn is on disk.
    pub(crate) async fn end_turn(&self, end: TurnEnd) -> bool {
        let (done, ended) = oneshot::channel();
        self.push(Item::End(end, done));
        ended.await.unwrap_or(false)
    }

    /// Queues a line for one client behind everything that was queued before.
    pub(crate) fn line(&self, client: &Arc<Client>, line: Vec<u8>) {
        {
            let mut queue = lock(&self.queue);
            if !queue.closed {
                queue.items.push(Item::Line(Arc::clone(client), line));
                drop(queue);
                self.filled.notify_one();
                return;
            }
        }
        // The session has ended, and with it what the line had to wait for.
        self.audience.line(client, line);
    }

    /// Hands a line to one client behind everything that has been handed over until now.
    pub(super) fn hand(&self, client: &Arc<Client>, line: Vec<u8>) {
        self.audience.line(client, line);
    }

    /// Calls `answer` when the client has been sent everything that has been handed over until now.
    pub(super) fn answer(&self, client: &Arc<Client>, answer: impl FnOnce() + Send + 'static) {
        self.audience.then(client, Box::new(answer));
    }

    /// The same, once everything that was queued until now is handed over.
    pub(super) fn answer_later(self: &Arc<Self>, client: &Arc<Client>, answer: impl FnOnce() + Send + 'static) {
        let (audience, client) = (Arc::clone(&self.audience), Arc::clone(client));
        self.then(move || audience.then(&client, Box::new(answer)));
    }

    /// Tells one client something that is state of now, not history.
    pub(crate) fn tell(&self, client: &Arc<Client>, update: &SessionUpdate<'_>) {
        let mut encoded = Vec::new();
        encode::write(&mut encoded, update);
        self.tell_encoded(client, &encoded);
    }

    /// Tells one client something of a kind that it must have asked for; false, and nothing, when it has not.
    /// This is the only way out for such updates.
    pub(crate) fn tell_gated(&self, client: &Arc<Client>, update: &GatedUpdate<'_>) -> bool {
        if !client.capabilities().opens(update.gate()) {
            return false;
        }
        let mut encoded = Vec::new();
        encode::write_gated(&mut encoded, update);
        self.tell_encoded(client, &encoded);
        true
    }

    /// Tells every client a notice, live only: those that did not ask for notices get it as a message of the agent.
    pub(crate) fn notice(&self, notice: &Notice<'_>) {
        for client in self.clients() {
            self.notice_to(&client, notice);
        }
    }

    /// The same for one client.
    pub(crate) fn notice_to(&self, client: &Arc<Client>, notice: &Notice<'_>) {
        let Notice { id, severity, title, description } = *notice;
        if self.tell_gated(client, &GatedUpdate::Notice { severity, title, description }) {
            return;
        }
        let text = match description {
            Some(description) => format!("\n\n[{title}: {description}]"),
            None => format!("\n\n[{title}]"),
        };
        self.tell(client, &SessionUpdate::AgentMessageChunk { content: ContentBlock::text(&text), message_id: id });
    }

    /// Tells one client an update as it is written.
    pub(crate) fn tell_encoded(&self, client: &Arc<Client>, encoded: &[u8]) {
        let mut line = Vec::new();
        write_fitting(&UpdateFrame::new(&self.session), &mut line, encoded, None, client.max_line(), &self.cwd);
        self.line(client, line);
    }

    /// Calls `then` when everything queued before is handed over: an answer that must follow updates.
    pub(crate) fn then(&self, then: impl FnOnce() + Send + 'static) {
        self.push(Item::Then(Then(Box::new(then))));
    }

    pub(crate) fn patch(&self, patch: SessionPatch) {
        self.push(Item::Patch(patch));
    }

    /// Resolves when everything queued before is handed to the clients, to whether all of it is stored.
    pub(crate) async fn barrier(&self) -> bool {
        let (done, reached) = oneshot::channel();
        self.push(Item::Barrier(done));
        reached.await.unwrap_or(false)
    }

    /// Resolves when there is room for more events.
    pub(crate) async fn drained(&self) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            {
                let queue = lock(&self.queue);
                if queue.closed || queue.arena.len() <= HIGH {
                    return;
                }
            }
            room.await;
        }
    }

    /// The task has ended: what waits is given up, and nothing is taken any more.
    fn die(&self) {
        let items = {
            let mut queue = lock(&self.queue);
            self.meters.waiting.less(queue.arena.len());
            queue.arena = Vec::new();
            queue.closed = true;
            queue.dead = true;
            std::mem::take(&mut queue.items)
        };
        // Whoever waits for one of them learns that it is gone.
        drop(items);
        self.room.notify_waiters();
    }

    /// Cancelled when the session cannot tell anybody anything any more, because its task has panicked.
    pub(super) fn broken(&self) -> &CancellationToken {
        &self.broken
    }

    /// Ends the task once everything is written.
    pub(crate) fn close(&self) {
        lock(&self.queue).closed = true;
        self.filled.notify_one();
    }
}

struct Worker {
    pump: Arc<Pump>,
    ledger: Ledger,
    seq: u64,
}

/// A batch as it was queued, with the events cut out of the arena.
enum Step {
    Event(EventRecord, Option<Apart>),
    End(oneshot::Sender<bool>),
    Line(Arc<Client>, Vec<u8>),
    Join(Arc<Client>, Since, Join),
    Barrier(oneshot::Sender<bool>),
    Then(Then),
}

impl Worker {
    async fn run(mut self) {
        loop {
            let (arena, items, closed) = {
                let mut queue = lock(&self.pump.queue);
                let arena = std::mem::take(&mut queue.arena);
                (arena, std::mem::take(&mut queue.items), queue.closed)
            };
            if items.is_empty() {
                if closed {
                    break;
                }
                self.pump.filled.notified().await;
                continue;
            }
            self.pump.room.notify_waiters();
            self.pump.meters.waiting.less(arena.len());
            let steps = self.owe(Bytes::from(arena), items);
            let pressing = steps.iter().any(|step| matches!(step, Step::End(_) | Step::Barrier(_)));
            let saved = self.ledger.pay(pressing).await;
            self.deliver(steps, saved).await;
        }
    }

    /// Numbers the events and enters everything into the ledger.
    fn owe(&mut self, arena: Bytes, items: Vec<Item>) -> Vec<Step> {
        let mut steps = Vec::with_capacity(items.len());
        let mut at = 0;
        for item in items {
            match item {
                Item::Event { len, kind, turn, apart } => {
                    self.seq += 1;
                    let payload = arena.slice(at..at + len);
                    at += len;
                    self.pump.meters.updates.add(1);
                    self.pump.meters.update_bytes.add(len);
                    let event = EventRecord { seq: self.seq, kind, turn, payload };
                    self.ledger.event(event.clone());
                    steps.push(Step::Event(event, apart));
                }
                Item::Message(message) => self.ledger.message(message),
                Item::Begin(start) => self.ledger.begin(start),
                Item::End(end, done) => {
                    self.pump.meters.turn(end.state);
                    self.ledger.end(end);
                    steps.push(Step::End(done));
                }
                Item::Line(client, line) => steps.push(Step::Line(client, line)),
                Item::Patch(patch) => self.ledger.patch(patch),
                Item::Then(then) => steps.push(Step::Then(then)),
                Item::Join(client, since, join) => steps.push(Step::Join(client, since, join)),
                Item::Barrier(done) => steps.push(Step::Barrier(done)),
            }
        }
        steps
    }

    async fn deliver(&mut self, steps: Vec<Step>, saved: bool) {
        let mut events: Vec<Sent> = Vec::new();
        for step in steps {
            let step = match step {
                Step::Event(event, apart) => {
                    events.push((event, apart));
                    continue;
                }
                other => other,
            };
            self.pump.audience.send(&events).await;
            events.clear();
            match step {
                // A receiver that is gone does not wait for the signal.
                Step::End(done) => drop(done.send(saved)),
                Step::Barrier(done) => drop(done.send(saved)),
                Step::Then(Then(then)) => then(),
                Step::Line(client, line) => self.pump.audience.line(&client, line),
                Step::Join(client, since, Join(prepare)) => {
                    self.pump.audience.join(&client, since, prepare());
                    self.pump.welcome(&client);
                }
                Step::Event(..) => {}
            }
        }
        self.pump.audience.send(&events).await;
    }
}

#[cfg(test)]
mod tests;
