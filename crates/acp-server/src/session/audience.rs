//! Who gets a session's output, and how far each of them is.
//!
//! A client that keeps up gets each batch as it comes. One that does not, and one that comes back, is behind: a task of its
//! own sends it what is stored, at its own pace, and lets it in again where the others are. So nobody waits for anybody
//! else, and what waits for one client is never more than its outbox and one batch.
//! It refuses to put things in order: whoever hands them over has.

use std::{
    collections::VecDeque,
    fmt,
    panic::AssertUnwindSafe,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt as _;
use serde::Serialize;
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{
    ContentBlock, GatedUpdate, NoticeSeverity, RequestId, SessionUpdate, UpdateFrame, encode_notification,
};
use zeroclaw_session_store::{EventKind, EventRecord, SessionStore, StoreError};

use crate::{
    client::{Client, lock},
    encode, fit,
};

/// Events read from the store at once.
const PAGE: u32 = 512;

/// How long a turn waits when no client takes anything. Behind it the turn goes on without them: they catch up.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is kept for a client that is behind, besides the events, which the store has: lines, answers, and updates of which
/// it gets a version of its own. Beyond it the client is detached; only one that does not read gets there.
const MAX_KEPT: usize = 4096;
const MAX_KEPT_BYTES: usize = 4 * 1024 * 1024;

/// Told to a client that asked for numbers: its prompt's number in the log.
const ACCEPTED: &str = "_zeroclaw/session/accepted";

/// Told to clients that asked for numbers: what a client has injected.
const EVENT: &str = "_zeroclaw/session/event";

/// A client that does not get the event as the others do.
#[derive(Debug)]
pub(super) enum Apart {
    /// It is part of this client's own prompt: it knows its own words.
    Own(Arc<Client>, RequestId),
    /// This client gets another update in its place.
    Instead(Arc<Client>, Vec<u8>),
}

/// An event on its way to the clients.
pub(super) type Sent = (EventRecord, Option<Apart>);

/// Where a client begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// At the first event. A gap in the log is told in its place.
    Start,
    /// Behind this event. A gap makes it impossible.
    After(u64),
    /// Behind the last event.
    Now,
}

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
    /// What it has asked for before is still being sent to it.
    Busy,
    Store(StoreError),
    /// Reading the log panicked, which ends what was asked for and not the connection.
    Panicked,
}

/// Told whether a client has joined, and the number of the last event before, in its place among what the client gets.
pub(super) struct Joined(pub(super) Box<dyn FnOnce(Result<u64, JoinError>) + Send>);

impl fmt::Debug for Joined {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Joined")
    }
}

/// Called in its place among what a client gets.
type Then = Box<dyn FnOnce() + Send>;

/// What comes to a client that is behind in between the events.
enum Kept {
    /// In place of the event with this number.
    Instead(Vec<u8>),
    /// The rest comes behind the event with this number.
    Line(Vec<u8>),
    Then(Then),
    Joined {
        joined: Joined,
        /// The client was there before it asked.
        known: bool,
    },
}

/// What waits until a client has caught up.
#[derive(Default)]
struct Behind {
    kept: VecDeque<(u64, Kept)>,
    bytes: usize,
}

struct Member {
    client: Arc<Client>,
    behind: Option<Behind>,
}

struct State {
    /// The number of the last event that was handed over.
    delivered: u64,
    members: Vec<Member>,
}

impl State {
    fn find(&mut self, client: &Arc<Client>) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| Arc::ptr_eq(&member.client, client))
    }
}

/// The clients of one session.
pub(super) struct Audience {
    session: Arc<str>,
    /// The session's directory, where delivered files have their copies.
    cwd: Box<Path>,
    frame: UpdateFrame,
    store: Option<Arc<dyn SessionStore>>,
    state: Mutex<State>,
}

impl fmt::Debug for Audience {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Audience").field("session", &self.session).finish_non_exhaustive()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Accepted<'a> {
    session_id: &'a str,
    prompt_id: &'a RawValue,
    seq: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Injected<'a> {
    session_id: &'a str,
    seq: u64,
    event: &'a RawValue,
}

/// What a client that is behind needs next.
enum Next {
    /// It is not behind any more, or not there.
    Done,
    /// These come before further events, each behind the event with its number.
    Kept(Vec<(u64, Kept)>),
    /// Events up to this number.
    Events(u64),
}

impl Audience {
    /// Nobody, behind the event `delivered`.
    pub(super) fn new(
        session: Arc<str>,
        cwd: &Path,
        store: Option<Arc<dyn SessionStore>>,
        delivered: u64,
    ) -> Arc<Self> {
        let frame = UpdateFrame::new(&session);
        let state = Mutex::new(State { delivered, members: Vec::new() });
        Arc::new(Self { session, cwd: cwd.into(), frame, store, state })
    }

    pub(super) fn clients(&self) -> Vec<Arc<Client>> {
        let mut state = lock(&self.state);
        state.members.retain(|member| !member.client.is_detached());
        state.members.iter().map(|member| Arc::clone(&member.client)).collect()
    }

    /// Lets a client in that has missed nothing.
    pub(super) fn add(&self, client: &Arc<Client>) {
        let mut state = lock(&self.state);
        if state.find(client).is_none() {
            state.members.push(Member { client: Arc::clone(client), behind: None });
        }
    }

    /// Hands a run of events to everybody, and waits while nobody takes them.
    pub(super) async fn send(self: &Arc<Self>, events: &[Sent]) {
        let Some((last, _)) = events.last() else { return };
        let mut fallen = Vec::new();
        {
            let mut state = lock(&self.state);
            state.members.retain(|member| !member.client.is_detached());
            let before = std::mem::replace(&mut state.delivered, last.seq);
            for Member { client, behind } in &mut state.members {
                if behind.is_none() && client.detaches() && client.is_full() {
                    *behind = Some(Behind::default());
                    fallen.push((Arc::clone(client), before));
                }
                match behind {
                    Some(behind) => self.keep_apart(behind, client, events),
                    None => client.append(|out| self.write_run(out, client, events)),
                }
            }
        }
        for (client, after) in fallen {
            tracing::debug!(session = %self.session, after, "a client is behind");
            tokio::spawn(Arc::clone(self).catch_up(client, after, Since::Start));
        }
        self.pace().await;
    }

    /// Waits while every client that keeps up has enough to read.
    async fn pace(&self) {
        let full: Vec<Arc<Client>> = {
            let state = lock(&self.state);
            let mut live = state.members.iter().filter(|member| member.behind.is_none()).peekable();
            if live.peek().is_none() || live.clone().any(|member| !member.client.is_full()) {
                return;
            }
            live.map(|member| Arc::clone(&member.client)).collect()
        };
        let room = futures::future::select_all(full.iter().map(|client| Box::pin(client.room())));
        if full.iter().all(|client| client.detaches()) {
            // Whoever takes nothing for so long gets the rest from the store.
            let _late = tokio::time::timeout(PATIENCE, room).await;
        } else {
            // The process's only client: without it there is nothing to go on for.
            room.await;
        }
    }

    /// A line for one client behind everything that it was sent before.
    pub(super) fn line(&self, client: &Arc<Client>, line: Vec<u8>) {
        let mut state = lock(&self.state);
        let at = state.delivered;
        match state.find(client).and_then(|member| member.behind.as_mut()) {
            Some(behind) => Self::keep(behind, client, at, Kept::Line(line)),
            None => client.write_line(&line),
        }
    }

    /// Calls `then` when the client has been sent everything that was handed over before.
    pub(super) fn then(&self, client: &Arc<Client>, then: Then) {
        {
            let mut state = lock(&self.state);
            let at = state.delivered;
            if let Some(behind) = state.find(client).and_then(|member| member.behind.as_mut()) {
                return Self::keep(behind, client, at, Kept::Then(then));
            }
        }
        then();
    }

    /// Lets a client in that may have missed something, which it is sent first.
    pub(super) fn join(self: &Arc<Self>, client: &Arc<Client>, since: Since, joined: Joined) {
        let mut state = lock(&self.state);
        let last = state.delivered;
        let after = match since {
            Since::Start => 0,
            Since::After(after) => after,
            Since::Now => last,
        };
        let known = state.find(client);
        let refusal = if known.as_ref().is_some_and(|member| member.behind.is_some()) {
            Some(JoinError::Busy)
        } else {
            (after > last).then_some(JoinError::Beyond { last })
        };
        if let Some(refusal) = refusal {
            drop(state);
            return joined.0(Err(refusal));
        }
        let is_known = known.is_some();
        if !is_known {
            state.members.push(Member { client: Arc::clone(client), behind: None });
        }
        if after == last {
            drop(state);
            return joined.0(Ok(last));
        }
        if let Some(member) = state.find(client) {
            let mut behind = Behind::default();
            behind.kept.push_back((last, Kept::Joined { joined, known: is_known }));
            member.behind = Some(behind);
        }
        drop(state);
        tokio::spawn(Arc::clone(self).catch_up(Arc::clone(client), after, since));
    }

    /// Sends a client what it has missed, until it is where the others are.
    async fn catch_up(self: Arc<Self>, client: Arc<Client>, mut after: u64, since: Since) {
        // Whatever goes wrong here must not leave a client that waits for ever.
        let mut watch = Unfinished { audience: &self, client: &client, finished: false };
        let strict = match since {
            Since::Start | Since::Now => false,
            Since::After(_) => true,
        };
        loop {
            client.room().await;
            if client.is_detached() {
                return;
            }
            let last = match self.next(&client, after) {
                Next::Done => {
                    watch.finished = true;
                    return;
                }
                Next::Kept(kept) => {
                    for (at, kept) in kept {
                        self.say(&client, kept, at);
                    }
                    continue;
                }
                Next::Events(last) => last,
            };
            let read = async {
                match &self.store {
                    Some(store) => store.events(&self.session, after, PAGE).await,
                    None => Ok(Vec::new()),
                }
            };
            let missing = match AssertUnwindSafe(read).catch_unwind().await {
                Ok(Ok(mut page)) => {
                    page.retain(|event| event.seq <= last);
                    let hole = (after + 1..).zip(&page).find(|(seq, event)| *seq != event.seq).map(|(seq, _)| seq);
                    match (page.last().map(|event| event.seq), hole) {
                        (None, _) => match self.shown_up_to(&client).filter(|_| !strict) {
                            // What is left of the log has been shown.
                            Some(end) if end > after => {
                                after = end;
                                continue;
                            }
                            Some(_) | None => JoinError::Damaged { seq: after + 1 },
                        },
                        (Some(_), Some(seq)) if strict => JoinError::Damaged { seq },
                        (Some(end), _) => {
                            self.write_page(&client, after, &page);
                            after = end;
                            continue;
                        }
                    }
                }
                Ok(Err(error)) => JoinError::Store(error),
                Err(_) => JoinError::Panicked,
            };
            match self.fail(&client, missing) {
                Some(last) => after = last,
                None => {
                    // It may be there again already.
                    watch.finished = true;
                    return;
                }
            }
        }
    }

    /// What a client needs that has been sent everything up to `after`.
    fn next(&self, client: &Arc<Client>, after: u64) -> Next {
        let mut state = lock(&self.state);
        let delivered = state.delivered;
        let Some(member) = state.find(client) else { return Next::Done };
        let Some(behind) = &mut member.behind else { return Next::Done };
        let kept = behind.due(after);
        if !kept.is_empty() {
            return Next::Kept(kept);
        }
        if after < delivered {
            return Next::Events(delivered);
        }
        member.behind = None;
        Next::Done
    }

    /// Sends what is not an event.
    fn say(&self, client: &Arc<Client>, kept: Kept, at: u64) {
        match kept {
            // Without its event there is nothing to stand in for.
            Kept::Instead(_) => {}
            Kept::Line(line) => client.write_line(&line),
            Kept::Then(then) => then(),
            Kept::Joined { joined, .. } => joined.0(Ok(at)),
        }
    }

    /// Sends a page of events, and in between what has its place there.
    fn write_page(&self, client: &Arc<Client>, after: u64, page: &[EventRecord]) {
        let Some(end) = page.last() else { return };
        let kept = match lock(&self.state).find(client).and_then(|member| member.behind.as_mut()) {
            Some(behind) => behind.due(end.seq),
            None => return,
        };
        let mut kept = kept.into_iter().peekable();
        let mut out = Vec::new();
        let mut expected = after + 1;
        for event in page {
            while let Some((at, kept)) = kept.next_if(|(at, _)| *at < event.seq) {
                self.flush(client, &mut out);
                self.say(client, kept, at);
            }
            if event.seq != expected {
                self.gap(&mut out, client, expected);
            }
            expected = event.seq + 1;
            match kept.next_if(|(at, kept)| *at == event.seq && matches!(kept, Kept::Instead(_))) {
                Some((_, Kept::Instead(line))) => out.extend_from_slice(&line),
                _ => self.write(&mut out, event, client),
            }
        }
        self.flush(client, &mut out);
        for (at, kept) in kept {
            self.say(client, kept, at);
        }
    }

    fn flush(&self, client: &Client, out: &mut Vec<u8>) {
        if !out.is_empty() {
            client.append(|outbox| outbox.append(out));
        }
    }

    /// The event up to which a client has asked to be shown the log, while it has not been.
    fn shown_up_to(&self, client: &Arc<Client>) -> Option<u64> {
        let mut state = lock(&self.state);
        let behind = state.find(client).and_then(|member| member.behind.as_ref())?;
        behind.kept.iter().find(|(_, kept)| matches!(kept, Kept::Joined { .. })).map(|(at, _)| *at)
    }

    /// A client cannot be sent what it has missed. One that was there before goes on where it was, which is given back;
    /// others are not let in.
    fn fail(&self, client: &Arc<Client>, error: JoinError) -> Option<u64> {
        let asked = {
            let mut state = lock(&self.state);
            let behind = state.find(client).and_then(|member| member.behind.as_mut())?;
            let at = behind.kept.iter().position(|(_, kept)| matches!(kept, Kept::Joined { .. }));
            at.and_then(|at| behind.kept.remove(at))
        };
        match asked {
            Some((last, Kept::Joined { joined, known })) => {
                if !known {
                    lock(&self.state).members.retain(|member| !Arc::ptr_eq(&member.client, client));
                }
                joined.0(Err(error));
                known.then_some(last)
            }
            _ => {
                tracing::warn!(session = %self.session, ?error, "a client cannot be sent what it has missed");
                lock(&self.state).members.retain(|member| !Arc::ptr_eq(&member.client, client));
                client.detach();
                None
            }
        }
    }

    /// Keeps what the client gets in place of some of these events.
    fn keep_apart(&self, behind: &mut Behind, client: &Arc<Client>, events: &[Sent]) {
        for (event, apart) in events {
            let mut line = Vec::new();
            match apart {
                Some(Apart::Own(owner, id)) if Arc::ptr_eq(owner, client) => {
                    self.accepted(&mut line, client, event.seq, id);
                }
                Some(Apart::Instead(owner, update)) if Arc::ptr_eq(owner, client) => {
                    self.write_update(&mut line, update, event.seq, client);
                }
                Some(Apart::Own(..) | Apart::Instead(..)) | None => continue,
            }
            Self::keep(behind, client, event.seq, Kept::Instead(line));
        }
    }

    fn keep(behind: &mut Behind, client: &Client, at: u64, kept: Kept) {
        if behind.kept.len() >= MAX_KEPT || behind.bytes > MAX_KEPT_BYTES {
            if !client.is_leaving() {
                tracing::warn!("a client does not read; it is detached");
                client.detach();
            }
            return;
        }
        behind.bytes += kept.len();
        behind.kept.push_back((at, kept));
    }

    /// Writes events as this client gets them.
    fn write_run(&self, out: &mut Vec<u8>, client: &Arc<Client>, events: &[Sent]) {
        for (event, apart) in events {
            match apart {
                Some(Apart::Own(owner, id)) if Arc::ptr_eq(owner, client) => {
                    self.accepted(out, client, event.seq, id);
                }
                Some(Apart::Instead(owner, update)) if Arc::ptr_eq(owner, client) => {
                    self.write_update(out, update, event.seq, client);
                }
                Some(Apart::Own(..) | Apart::Instead(..)) | None => self.write(out, event, client),
            }
        }
    }

    fn write(&self, out: &mut Vec<u8>, event: &EventRecord, client: &Client) {
        match event.kind {
            EventKind::Update | EventKind::UserPrompt => self.write_update(out, &event.payload, event.seq, client),
            EventKind::ClientEvent => self.injected(out, event, client),
        }
    }

    fn write_update(&self, out: &mut Vec<u8>, update: &[u8], seq: u64, client: &Client) {
        let seq = client.capabilities().seq.then_some(seq);
        write_fitting(&self.frame, out, update, seq, client.max_line(), &self.cwd);
    }

    /// What a client has injected has a number too, so clients that count are told.
    fn injected(&self, out: &mut Vec<u8>, event: &EventRecord, client: &Client) {
        if !client.capabilities().seq {
            return;
        }
        // One that cannot be read any more still has its number.
        let payload = serde_json::from_slice(&event.payload).unwrap_or(RawValue::NULL);
        notify(out, EVENT, &Injected { session_id: &self.session, seq: event.seq, event: payload });
    }

    fn accepted(&self, out: &mut Vec<u8>, client: &Client, seq: u64, id: &RequestId) {
        if !client.capabilities().seq {
            return;
        }
        let Ok(prompt_id) = serde_json::from_str(id.as_json()) else { return };
        notify(out, ACCEPTED, &Accepted { session_id: &self.session, prompt_id, seq });
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
}

impl Kept {
    fn len(&self) -> usize {
        match self {
            Self::Instead(line) | Self::Line(line) => line.len(),
            Self::Then(_) | Self::Joined { .. } => 0,
        }
    }
}

impl Behind {
    /// Takes out what has its place up to the event `last`.
    fn due(&mut self, last: u64) -> Vec<(u64, Kept)> {
        let count = self.kept.iter().take_while(|(at, _)| *at <= last).count();
        let due: Vec<_> = self.kept.drain(..count).collect();
        self.bytes -= due.iter().map(|(_, kept)| kept.len()).sum::<usize>();
        due
    }
}

/// A client that is being sent what it has missed; it is not left in between.
struct Unfinished<'a> {
    audience: &'a Audience,
    client: &'a Arc<Client>,
    finished: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let gone: Vec<Member> = {
            let mut state = lock(&self.audience.state);
            state.members.extract_if(.., |member| Arc::ptr_eq(&member.client, self.client)).collect()
        };
        // What was kept goes behind the lock: it may have something to say when it is dropped.
        drop(gone);
        if std::thread::panicking() {
            self.client.detach();
        }
    }
}

fn notify<T: Serialize>(out: &mut Vec<u8>, method: &str, params: &T) {
    if let Err(error) = encode_notification(out, method, params) {
        tracing::error!(%error, "a notification could not be encoded");
    }
}

/// Writes an update as one line, or as several where the client does not read so long a line. With a number, which
/// stands for the whole, it is the last line that has it.
pub(super) fn write_fitting(
    frame: &UpdateFrame,
    out: &mut Vec<u8>,
    update: &[u8],
    seq: Option<u64>,
    most: usize,
    cwd: &Path,
) {
    if frame.written_len(update) <= most {
        return frame.write(out, update, seq);
    }
    let room = most.saturating_sub(frame.written_len(&[]));
    let pieces = fit::update(update, room, cwd);
    for (index, piece) in pieces.iter().enumerate() {
        frame.write(out, piece, seq.filter(|_| index + 1 == pieces.len()));
    }
}
