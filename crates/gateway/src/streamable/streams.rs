//! What waits for the event streams of one client, and on which of them each message goes. Pure but for wakers and time.
//!
//! A message of a session goes on the session's stream, everything else on the connection's; the answers to
//! `session/new` and `session/load` go on the connection's, because a client listens there before it knows a session.
//! The one exception is a load whose session's stream is being read: its replay is there, and two streams have no order.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use zeroclaw_acp_protocol::{Frame, MethodKind, RequestId, ResponseOutcome};

/// Streams of sessions that the server has not named yet. A client opens the stream of a session before it loads it;
/// without the limit it could make up names for ever.
const MAX_UNCONFIRMED: usize = 16;
/// Sessions whose streams are remembered. Beyond it those that nobody reads and nothing waits for are forgotten.
const MAX_REMEMBERED: usize = 1024;
/// Requests whose answers are waited for: as many as the server takes of one client.
const MAX_ROUTES: usize = 1024;

/// Which stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Connection,
    Session(Box<str>),
}

/// What a success of a request does to the sessions that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    /// Its result names a session.
    Opens,
    /// Its session's replay comes before its result.
    Loads,
    Closes,
}

#[derive(Debug)]
struct Route {
    session: Option<Box<str>>,
    effect: Effect,
}

/// Why a stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Somebody reads it.
    Taken,
    /// There is no such session.
    Unknown,
}

/// The streams of one client.
#[derive(Debug, Default)]
pub(super) struct Streams {
    state: Mutex<State>,
    /// Woken when something was read.
    pub(super) taken: Notify,
    /// Woken when a stream was opened or left, or a request came or went.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    connection: Mailbox,
    sessions: HashMap<Box<str>, Mailbox>,
    routes: HashMap<RequestId, VecDeque<Route>>,
    open_routes: usize,
    first: Option<(RequestId, oneshot::Sender<Bytes>)>,
    /// Bytes that wait, of all streams together.
    queued: usize,
    /// How much was ever read: it stands still when nobody reads.
    read: u64,
    readers: usize,
    requests: usize,
    quiet_since: Option<Instant>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Mailbox {
    pending: Vec<u8>,
    taken: bool,
    waker: Option<Waker>,
    confirmed: bool,
    /// The session ended; forgotten with its reader.
    over: bool,
}

impl Mailbox {
    fn push(&mut self, line: &[u8]) -> usize {
        let before = self.pending.len();
        self.pending.extend_from_slice(b"data: ");
        self.pending.extend_from_slice(line);
        self.pending.extend_from_slice(b"\n\n");
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        self.pending.len() - before
    }
}

/// The session that parameters or a result name.
#[derive(Deserialize)]
struct Named {
    #[serde(default, rename = "sessionId", alias = "session_id")]
    session: Option<String>,
}

/// The session in parameters or a result; one that is no string is the server's to complain about.
pub(super) fn session_in(raw: Option<&RawValue>) -> Option<Box<str>> {
    let named: Option<Named> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
    named.and_then(|named| named.session).map(String::into_boxed_str)
}

/// Whether a message belongs to the connection whatever its parameters are.
pub(super) fn is_of_connection(method: &str) -> bool {
    method.starts_with("$/")
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer to this request apart from all streams.
    pub(super) fn expect_first(&self, id: RequestId) -> oneshot::Receiver<Bytes> {
        let (sender, receiver) = oneshot::channel();
        self.lock().first = Some((id, sender));
        receiver
    }

    /// Remembers where the answer to a request goes. False: there are too many.
    pub(super) fn expect(&self, id: RequestId, method: &str, session: Option<Box<str>>) -> bool {
        let kind = MethodKind::from_name(method);
        let effect = match kind {
            Some(MethodKind::SessionNew | MethodKind::SessionFork) => Effect::Opens,
            Some(MethodKind::SessionLoad) => Effect::Loads,
            Some(MethodKind::SessionClose | MethodKind::SessionDelete) => Effect::Closes,
            Some(_) | None => Effect::None,
        };
        let mut state = self.lock();
        if state.open_routes >= MAX_ROUTES {
            return false;
        }
        state.open_routes += 1;
        state.routes.entry(id).or_default().push_back(Route { session, effect });
        true
    }

    /// Forgets the request that was remembered last under this id: it was not handed over.
    pub(super) fn expect_no_more(&self, id: &RequestId) {
        let mut state = self.lock();
        let state = &mut *state;
        if let Some(routes) = state.routes.get_mut(id)
            && routes.pop_back().is_some()
        {
            state.open_routes -= 1;
            if routes.is_empty() {
                state.routes.remove(id);
            }
        }
    }

    /// Puts a message of the server on its stream.
    pub(super) fn put(&self, line: &[u8]) {
        self.lock().put(line);
    }

    /// Bytes that wait, and how much was ever read.
    pub(super) fn progress(&self) -> (usize, u64) {
        let state = self.lock();
        (state.queued, state.read)
    }

    /// Begins to read a stream.
    pub(super) fn read(self: &Arc<Self>, target: Target) -> Result<Reader, Unreadable> {
        let mut state = self.lock();
        if let Target::Session(id) = &target
            && !state.sessions.contains_key(id)
        {
            let unconfirmed = state.sessions.values().filter(|mailbox| !mailbox.confirmed).count();
            if unconfirmed >= MAX_UNCONFIRMED || state.closed {
                return Err(Unreadable::Unknown);
            }
            state.sessions.insert(id.clone(), Mailbox::default());
        }
        let Some(mailbox) = state.mailbox(&target) else { return Err(Unreadable::Unknown) };
        if mailbox.taken {
            return Err(Unreadable::Taken);
        }
        mailbox.taken = true;
        state.readers += 1;
        drop(state);
        self.changed.notify_one();
        Ok(Reader { streams: Arc::clone(self), target })
    }

    /// Notes that a request is being served.
    pub(super) fn request(self: &Arc<Self>) -> Requesting {
        self.lock().requests += 1;
        self.changed.notify_one();
        Requesting(Arc::clone(self))
    }

    /// Since when nobody reads and nothing is asked; `None` while somebody does.
    pub(super) fn quiet_since(&self) -> Option<Instant> {
        let mut state = self.lock();
        if state.readers > 0 || state.requests > 0 {
            state.quiet_since = None;
            return None;
        }
        Some(*state.quiet_since.get_or_insert_with(Instant::now))
    }

    /// Ends every stream, behind what waits for it or at once.
    pub(super) fn close(&self, at_once: bool) {
        let mut state = self.lock();
        let state = &mut *state;
        state.closed = true;
        state.first = None;
        state.routes.clear();
        state.open_routes = 0;
        for mailbox in std::iter::once(&mut state.connection).chain(state.sessions.values_mut()) {
            if at_once || !mailbox.taken {
                mailbox.pending = Vec::new();
            }
            if let Some(waker) = mailbox.waker.take() {
                waker.wake();
            }
        }
    }
}

impl State {
    fn mailbox(&mut self, target: &Target) -> Option<&mut Mailbox> {
        match target {
            Target::Connection => Some(&mut self.connection),
            Target::Session(id) => self.sessions.get_mut(id),
        }
    }

    fn put(&mut self, line: &[u8]) {
        let target = match Frame::parse(line) {
            Ok(Frame::Request { method, params, .. } | Frame::Notification { method, params }) => {
                match session_in(params).filter(|_| !is_of_connection(&method)) {
                    Some(session) => self.confirmed(session),
                    None => Target::Connection,
                }
            }
            Ok(Frame::Response { id, outcome }) => {
                if self.first.as_ref().is_some_and(|(first, _)| *first == id) {
                    if let Some((_, sender)) = self.first.take() {
                        // A client that has gone meanwhile is noticed by its silence.
                        let _ = sender.send(Bytes::copy_from_slice(line));
                    }
                    return;
                }
                self.target_of_response(&id, &outcome)
            }
            // The server writes nothing else; were it to, the client should see it.
            Err(_) => Target::Connection,
        };
        let written = match &target {
            Target::Connection => self.connection.push(line),
            Target::Session(id) => self.sessions.get_mut(id).map_or(0, |mailbox| mailbox.push(line)),
        };
        self.queued += written;
    }

    /// The stream of a session that the server has named.
    fn confirmed(&mut self, session: Box<str>) -> Target {
        if !self.sessions.contains_key(&session) && self.sessions.len() >= MAX_REMEMBERED {
            self.sessions.retain(|_, mailbox| mailbox.taken || !mailbox.pending.is_empty());
            if self.sessions.len() >= MAX_REMEMBERED {
                return Target::Connection;
            }
        }
        self.sessions.entry(session.clone()).or_default().confirmed = true;
        Target::Session(session)
    }

    fn target_of_response(&mut self, id: &RequestId, outcome: &ResponseOutcome<'_>) -> Target {
        let Some(route) = self.take_route(id) else { return Target::Connection };
        let result = match outcome {
            ResponseOutcome::Result(result) => Some(*result),
            ResponseOutcome::Error(_) => None,
        };
        match (route.effect, &route.session) {
            (Effect::Opens, _) => {
                if let Some(opened) = session_in(result) {
                    self.confirmed(opened);
                }
            }
            (Effect::Loads, Some(session)) => {
                if result.is_some() {
                    self.confirmed(session.clone());
                }
                if !self.sessions.get(session).is_some_and(|mailbox| mailbox.taken) {
                    return Target::Connection;
                }
            }
            (Effect::Closes, Some(session)) if result.is_some() => return self.closed_session(session),
            (Effect::None | Effect::Loads | Effect::Closes, _) => {}
        }
        match route.session {
            Some(session) if self.sessions.contains_key(&session) => Target::Session(session),
            // Where nobody can ever read, nothing is put.
            Some(_) | None => Target::Connection,
        }
    }

    fn take_route(&mut self, id: &RequestId) -> Option<Route> {
        let routes = self.routes.get_mut(id)?;
        let route = routes.pop_front()?;
        self.open_routes -= 1;
        if routes.is_empty() {
            self.routes.remove(id);
        }
        Some(route)
    }

    /// A session that ended: its answer goes where somebody reads it.
    fn closed_session(&mut self, session: &str) -> Target {
        match self.sessions.get_mut(session) {
            Some(mailbox) if mailbox.taken => {
                mailbox.over = true;
                Target::Session(session.into())
            }
            Some(mailbox) => {
                self.queued -= mailbox.pending.len();
                self.sessions.remove(session);
                Target::Connection
            }
            None => Target::Connection,
        }
    }
}

/// Whoever reads a stream; another may when it is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    streams: Arc<Streams>,
    target: Target,
}

impl Reader {
    /// Everything that waits; `None` when nothing will come any more.
    pub(super) fn poll_events(&self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.streams.lock();
        let closed = state.closed;
        let Some(mailbox) = state.mailbox(&self.target) else { return Poll::Ready(None) };
        if mailbox.pending.is_empty() {
            if closed {
                return Poll::Ready(None);
            }
            mailbox.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let events = std::mem::take(&mut mailbox.pending);
        state.queued -= events.len();
        state.read += events.len() as u64;
        drop(state);
        self.streams.taken.notify_one();
        Poll::Ready(Some(Bytes::from(events)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.streams.lock();
        state.readers -= 1;
        if let Some(mailbox) = state.mailbox(&self.target) {
            mailbox.taken = false;
            mailbox.waker = None;
            let forgotten = mailbox.over || (!mailbox.confirmed && mailbox.pending.is_empty());
            if let Target::Session(id) = &self.target
                && forgotten
                && let Some(mailbox) = state.sessions.remove(id)
            {
                state.queued -= mailbox.pending.len();
            }
        }
        drop(state);
        self.streams.taken.notify_one();
        self.streams.changed.notify_one();
    }
}

/// A request that is being served.
#[derive(Debug)]
pub(super) struct Requesting(Arc<Streams>);

impl Drop for Requesting {
    fn drop(&mut self) {
        self.0.lock().requests -= 1;
        self.0.changed.notify_one();
    }
}
