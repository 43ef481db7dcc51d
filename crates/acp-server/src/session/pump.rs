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
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, futures::Notified, oneshot};
use tokio_util::sync::CancellationToken;
use zeroclaw_acp_protocol::{ContentBlock, GatedUpdate, NoticeSeverity, RequestId, SessionUpdate, UpdateFrame};
use zeroclaw_runtime::turn::Flow;
use zeroclaw_session_store::{
    EventKind, EventRecord, MessageRecord, SessionPatch, SessionStore, StoreError, TurnEnd, TurnStart,
};

use super::ops::Ledger;
use crate::{
    client::{Client, lock},
    encode, fit,
    meters::Meters,
};

/// Bytes of updates that wait to be stored and sent before the turn is told to wait: enough to make commits large,
/// small enough that a stalled client costs little.
const HIGH: usize = 256 * 1024;

/// Events read from the store at once during a replay.
const PAGE: u32 = 512;

/// Told to a client that asked for numbers: its prompt's number in the log.
const ACCEPTED: &str = "_zeroclaw/session/accepted";

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

/// The client and request that a prompt's events come from: it knows its own words.
type Origin = (Arc<Client>, RequestId);

/// A client that does not get the event as the others do.
#[derive(Debug)]
enum Apart {
    /// It is part of this client's own prompt.
    Own(Origin),
    /// This client gets another update in its place.
    Instead(Arc<Client>, Vec<u8>),
}

/// An event on its way to the clients.
type Sent = (EventRecord, Option<Apart>);

/// Why a client cannot go on from where it was.
#[derive(Debug)]
pub(super) enum JoinError {
    /// The log is shorter.
    Beyond {
        last: u64,
    },
    /// An event is not there any more.
    Damaged {
        seq: u64,
    },
    Store(StoreError),
}

/// Told whether a client has joined, and the number of the last event it got.
struct Joined(Box<dyn FnOnce(Result<u64, JoinError>) + Send>);

impl fmt::Debug for Joined {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Joined")
    }
}

/// Told how a replay went, in its place among everything else the client gets.
struct Replayed(Box<dyn FnOnce(Result<(), StoreError>) + Send>);

impl fmt::Debug for Replayed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Replayed")
    }
}

/// Called in its place among everything else the clients get.
struct Then(Box<dyn FnOnce() + Send>);

impl fmt::Debug for Then {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Then")
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
    /// The whole log for one client, then the signal.
    Replay(Arc<Client>, Replayed),
    /// The log behind a number for one client, which gets everything from there on.
    Join(Arc<Client>, u64, Joined),
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
    clients: Mutex<Vec<Arc<Client>>>,
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
            clients: Mutex::default(),
            meters: Arc::clone(meters),
        });
        let worker = Worker {
            frame: UpdateFrame::new(&session),
            ledger: Ledger::new(store, session, Arc::clone(meters)),
            seq: last_seq,
            pump: Arc::clone(&pump),
        };
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

    pub(crate) fn attach(&self, client: Arc<Client>) {
        let mut clients = lock(&self.clients);
        if !clients.iter().any(|known| Arc::ptr_eq(known, &client)) {
            if client.detaches() {
                self.lingers.store(true, Ordering::Release);
            }
            clients.push(client);
        }
        drop(clients);
        self.joined.notify_waiters();
    }

    pub(crate) fn session(&self) -> Arc<str> {
        Arc::clone(&self.session)
    }

    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        let mut clients = lock(&self.clients);
        clients.retain(|client| !client.is_detached());
        clients.clone()
    }

    /// Woken when a client has come.
    pub(super) fn joined(&self) -> Notified<'_> {
        self.joined.notified()
    }

    /// Whether clients may go and come back: a question waits for them.
    pub(super) fn lingers(&self) -> bool {
        self.lingers.load(Ordering::Acquire)
    }

    /// Sends the log behind `after` to a client and then everything that all get; calls `done` in between.
    pub(super) fn join(
        &self,
        client: &Arc<Client>,
        after: u64,
        done: impl FnOnce(Result<u64, JoinError>) + Send + 'static,
    ) {
        self.push(Item::Join(Arc::clone(client), after, Joined(Box::new(done))));
    }

    /// Queues an event that `encode` writes.
    pub(crate) fn event(&self, kind: EventKind, turn: Option<u64>, encode: impl FnOnce(&mut Vec<u8>)) -> Flow {
        self.push_event(kind, turn, None, encode)
    }

    /// Queues a part of the user's prompt: it goes to every client but the one it came from.
    pub(crate) fn prompt_part(&self, turn: u64, from: &Arc<Client>, id: &RequestId, encode: impl FnOnce(&mut Vec<u8>)) {
        let origin = Some(Apart::Own((Arc::clone(from), id.clone())));
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
        client.write_line(&line);
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

    /// Sends the log as it is now to one client, then calls `done`.
    pub(crate) fn replay(&self, client: &Arc<Client>, done: impl FnOnce(Result<(), StoreError>) + Send + 'static) {
        self.push(Item::Replay(Arc::clone(client), Replayed(Box::new(done))));
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

/// Writes an update as one line, or as several where the client does not read so long a line. With a number, which
/// stands for the whole, it is the last line that has it.
fn write_fitting(frame: &UpdateFrame, out: &mut Vec<u8>, update: &[u8], seq: Option<u64>, most: usize, cwd: &Path) {
    if frame.written_len(update) <= most {
        return frame.write(out, update, seq);
    }
    let room = most.saturating_sub(frame.written_len(&[]));
    let pieces = fit::update(update, room, cwd);
    for (index, piece) in pieces.iter().enumerate() {
        frame.write(out, piece, seq.filter(|_| index + 1 == pieces.len()));
    }
}

struct Worker {
    pump: Arc<Pump>,
    frame: UpdateFrame,
    ledger: Ledger,
    seq: u64,
}

/// A batch as it was queued, with the events cut out of the arena.
enum Step {
    Event(EventRecord, Option<Apart>),
    End(oneshot::Sender<bool>),
    Line(Arc<Client>, Vec<u8>),
    /// Up to this number: what comes behind it in the queue is sent as itself.
    Replay(Arc<Client>, u64, Replayed),
    Join(Arc<Client>, u64, u64, Joined),
    Barrier(oneshot::Sender<bool>),
    Then(Then),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Accepted<'a> {
    session_id: &'a str,
    prompt_id: &'a RawValue,
    seq: u64,
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
                Item::Replay(client, done) => steps.push(Step::Replay(client, self.seq, done)),
                Item::Join(client, after, done) => steps.push(Step::Join(client, after, self.seq, done)),
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
            self.send(&events).await;
            events.clear();
            match step {
                // A receiver that is gone does not wait for the signal.
                Step::End(done) => drop(done.send(saved)),
                Step::Barrier(done) => drop(done.send(saved)),
                Step::Then(Then(then)) => then(),
                Step::Line(client, line) => client.write_line(&line),
                Step::Replay(client, last, Replayed(done)) => {
                    let shown = self.replay(&client, 0, last, None).await;
                    self.pump.attach(client);
                    done(shown);
                }
                Step::Join(client, after, last, Joined(done)) => done(self.join(client, after, last).await),
                Step::Event(..) => {}
            }
        }
        self.send(&events).await;
    }

    /// Hands a run of events to every client.
    async fn send(&self, events: &[Sent]) {
        if events.is_empty() {
            return;
        }
        for client in self.pump.clients() {
            let (numbered, most) = (client.capabilities().seq, client.max_line());
            client
                .write_updates(|out| {
                    for (event, apart) in events {
                        match apart {
                            Some(Apart::Own((origin, id))) if Arc::ptr_eq(origin, &client) => {
                                if numbered {
                                    self.accepted(out, event.seq, id);
                                }
                            }
                            Some(Apart::Instead(owner, update)) if Arc::ptr_eq(owner, &client) => {
                                let seq = numbered.then_some(event.seq);
                                write_fitting(&self.frame, out, update, seq, most, &self.pump.cwd);
                            }
                            Some(Apart::Own(_) | Apart::Instead(..)) | None => self.write(out, event, numbered, most),
                        }
                    }
                })
                .await;
        }
    }

    fn write(&self, out: &mut Vec<u8>, event: &EventRecord, numbered: bool, most: usize) {
        match event.kind {
            EventKind::Update | EventKind::UserPrompt => {
                let seq = numbered.then_some(event.seq);
                write_fitting(&self.frame, out, &event.payload, seq, most, &self.pump.cwd);
            }
            EventKind::ClientEvent => {}
        }
    }

    /// Says in its place that the store could not read something: a conversation with a hole must not look whole.
    fn gap(&self, out: &mut Vec<u8>, client: &Client, seq: u64) {
        let title = "A part of this conversation is damaged in the session store and was left out";
        let mut update = Vec::new();
        let notice = GatedUpdate::Notice { severity: NoticeSeverity::Warning, title, description: None };
        if client.capabilities().opens(notice.gate()) {
            encode::write_gated(&mut update, &notice);
        } else {
            let (text, message_id) = (format!("[{title}.]"), format!("gap-{seq}"));
            let content = ContentBlock::text(&text);
            encode::write(&mut update, &SessionUpdate::AgentMessageChunk { content, message_id: &message_id });
        }
        self.frame.write(out, &update, None);
    }

    fn accepted(&self, out: &mut Vec<u8>, seq: u64, id: &RequestId) {
        let Ok(prompt_id) = serde_json::from_str(id.as_json()) else { return };
        let params = Accepted { session_id: &self.pump.session, prompt_id, seq };
        if let Err(error) = zeroclaw_acp_protocol::encode_notification(out, ACCEPTED, &params) {
            tracing::error!(%error, "a notification could not be encoded");
        }
    }

    /// Sends what a client has not seen and lets it in.
    async fn join(&self, client: Arc<Client>, after: u64, last: u64) -> Result<u64, JoinError> {
        if after > last {
            return Err(JoinError::Beyond { last });
        }
        let mut damage = None;
        self.replay(&client, after, last, Some(&mut damage)).await.map_err(JoinError::Store)?;
        if let Some(seq) = damage {
            return Err(JoinError::Damaged { seq });
        }
        self.pump.attach(client);
        Ok(last)
    }

    /// Writes the stored bytes back, page by page, up to the event `last`.
    /// A gap is told to the client, unless it is asked for in `damage`: then nothing is sent from there on.
    async fn replay(
        &self,
        client: &Arc<Client>,
        mut after: u64,
        last: u64,
        mut damage: Option<&mut Option<u64>>,
    ) -> Result<(), StoreError> {
        let Some(store) = self.ledger.store() else {
            if let Some(damage) = damage {
                *damage = (after < last).then_some(after + 1);
            }
            return Ok(());
        };
        let (numbered, most) = (client.capabilities().seq, client.max_line());
        while after < last {
            let mut page = store.events(&self.pump.session, after, PAGE).await?;
            let first = after + 1;
            let Some(end) = page.last() else {
                if let Some(damage) = damage {
                    *damage = Some(first);
                }
                return Ok(());
            };
            if let Some(damage) = damage.as_deref_mut()
                && let Some(missing) = (first..).zip(&page).find(|(seq, event)| *seq != event.seq)
            {
                *damage = Some(missing.0);
                return Ok(());
            }
            after = end.seq;
            page.retain(|event| event.seq <= last);
            client
                .write_updates(|out| {
                    let mut expected = first;
                    for event in &page {
                        if event.seq != expected {
                            self.gap(out, client, expected);
                        }
                        expected = event.seq + 1;
                        self.write(out, event, numbered, most);
                    }
                })
                .await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
