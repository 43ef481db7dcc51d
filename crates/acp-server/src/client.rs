//! One client on one connection: its outbox, its requests in flight, and ours.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use zeroclaw_acp_protocol::{
    ContentBlock, ErrorKind, ErrorObject, ErrorTable, RequestId, ResponseOutcome, SessionUpdate, Withdrawal,
    client as method, encode_error, encode_notification, encode_request, encode_result,
    params::{ClientCapabilities, InitializeParams},
};
use zeroclaw_acp_transport::{Flow, Outbox};

use crate::{
    error::CallError,
    fit,
    profile::{self, ClientProfile},
    server::OnDisconnect,
    session::Pump,
};

/// Requests of one client that are not answered yet, at most: more is a client that does not read answers.
const MAX_IN_FLIGHT: usize = 1024;

/// Requests of ours that a client has not answered yet, at most.
const MAX_ASKED: usize = 256;

/// What the client said about itself.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) known: ClientProfile,
    /// What tells its prompts from those of others, where it asked for numbers.
    id: Option<Arc<str>>,
}

/// What a request in flight is, for those that want to cancel it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InFlight {
    /// A prompt of this live session.
    Prompt(Arc<str>),
    /// Another request that this live session has to answer.
    Session(Arc<str>),
    Other,
}

/// An answer to a request of ours.
#[derive(Debug)]
pub(crate) enum PeerAnswer {
    Result(Box<RawValue>),
    /// The question was not answered.
    Error(ErrorObject),
}

/// A question to the client that is open.
#[derive(Debug)]
struct Asked {
    session: Arc<str>,
    number: u64,
    answers: mpsc::Sender<(u64, PeerAnswer)>,
    /// It is being withdrawn: an answer does not count any more.
    void: bool,
    /// Its answer counts even when the session is cancelled: it tells of something that has to be given back.
    lasting: bool,
}

#[derive(Debug)]
pub(crate) struct Client {
    outbox: Outbox,
    profile: OnceLock<Profile>,
    default_errors: ErrorTable,
    in_flight: Mutex<HashMap<RequestId, InFlight>>,
    /// Woken when the last request in flight is answered.
    idle: Notify,
    asked: Mutex<HashMap<Box<str>, Asked>>,
    next_ask: AtomicU64,
    /// What becomes of its sessions when it goes.
    on_disconnect: OnDisconnect,
    /// Cancelled when the client goes: nobody waits for it to read any more.
    leaving: CancellationToken,
}

impl Client {
    pub(crate) fn new(outbox: Outbox, default_errors: ErrorTable, on_disconnect: OnDisconnect) -> Arc<Self> {
        Arc::new(Self {
            outbox,
            profile: OnceLock::new(),
            default_errors,
            in_flight: Mutex::default(),
            idle: Notify::new(),
            asked: Mutex::default(),
            next_ask: AtomicU64::new(0),
            on_disconnect,
            leaving: CancellationToken::new(),
        })
    }

    /// Fixes what the client said about itself; false when it has said so before.
    pub(crate) fn introduce(
        &self,
        params: &InitializeParams,
        configured: &BTreeMap<String, ClientProfile>,
        new_id: impl FnOnce() -> Arc<str>,
    ) -> bool {
        let id = params.client.seq.then(new_id);
        let known = profile::of(params.client_name.as_deref().unwrap_or_default(), configured);
        self.profile.set(Profile { capabilities: params.client, known, id }).is_ok()
    }

    /// What others are told of it.
    pub(crate) fn public_id(&self) -> Option<Arc<str>> {
        self.profile.get().and_then(|profile| profile.id.clone())
    }

    pub(crate) fn is_introduced(&self) -> bool {
        self.profile.get().is_some()
    }

    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        self.profile.get().map(|profile| profile.capabilities).unwrap_or_default()
    }

    /// Whether it reads `modeId` where the protocol says `currentModeId`.
    pub(crate) fn wants_mode_id(&self) -> bool {
        self.profile.get().is_some_and(|profile| profile.known.mode_id_twice)
    }

    /// The longest line that it reads, without the line feed.
    pub(crate) fn max_line(&self) -> usize {
        self.profile.get().and_then(|profile| profile.known.max_line).unwrap_or(usize::MAX)
    }

    fn errors(&self) -> ErrorTable {
        self.profile.get().and_then(|profile| profile.known.errors).unwrap_or(self.default_errors)
    }

    /// Notes a request; it is answered exactly once, by [`Self::respond`].
    pub(crate) fn begin(&self, id: &RequestId) -> Result<(), CallError> {
        let mut in_flight = lock(&self.in_flight);
        if in_flight.contains_key(id) {
            return Err(CallError::new(ErrorKind::InvalidRequest, "a request with this id is not answered yet"));
        }
        if in_flight.len() >= MAX_IN_FLIGHT {
            return Err(CallError::new(ErrorKind::InvalidRequest, "too many requests are not answered yet"));
        }
        in_flight.insert(id.clone(), InFlight::Other);
        Ok(())
    }

    pub(crate) fn mark(&self, id: &RequestId, what: InFlight) {
        if let Some(entry) = lock(&self.in_flight).get_mut(id) {
            *entry = what;
        }
    }

    /// Notes who has to answer a request: it is asked for by [`Self::fail_all_of`].
    pub(crate) fn hand_to(&self, id: &RequestId, session: &Arc<str>) {
        if let Some(entry @ InFlight::Other) = lock(&self.in_flight).get_mut(id) {
            *entry = InFlight::Session(Arc::clone(session));
        }
    }

    /// Answers a request whose handling has panicked, unless it is answered already.
    pub(crate) fn fail(&self, id: &RequestId) {
        self.respond::<()>(id, Err(&CallError::panicked()));
    }

    /// The same for everything that a live session has to answer. The session is known by the place of its id in the
    /// memory: there may be a later one with the same id.
    pub(crate) fn fail_all_of(&self, session: &Arc<str>) {
        let open: Vec<RequestId> = {
            let in_flight = lock(&self.in_flight);
            let of_it = in_flight.iter().filter(|(_, what)| match what {
                InFlight::Prompt(of) | InFlight::Session(of) => Arc::ptr_eq(of, session),
                InFlight::Other => false,
            });
            of_it.map(|(id, _)| id.clone()).collect()
        };
        for id in open {
            self.fail(&id);
        }
    }

    /// The request with this raw id, while it is in flight.
    pub(crate) fn find(&self, raw: &RawValue) -> Option<(RequestId, InFlight)> {
        let in_flight = lock(&self.in_flight);
        in_flight.iter().find(|(id, _)| id.as_json() == raw.get()).map(|(id, what)| (id.clone(), what.clone()))
    }

    /// Answers a request, unless it is answered already: after a panic there may be two that want to.
    pub(crate) fn respond<T: Serialize>(&self, id: &RequestId, outcome: Result<&T, &CallError>) {
        // Held over the write: whoever has read the answer may use its id again, and whoever waits for the last answer
        // finds it written.
        let mut in_flight = lock(&self.in_flight);
        if !in_flight.contains_key(id) {
            tracing::warn!("a second answer to a request was held back");
            return;
        }
        match outcome {
            Ok(result) => self.write(|out| {
                if let Err(error) = encode_result(out, id, result) {
                    tracing::error!(%error, "a result could not be encoded");
                    let internal = CallError::new(ErrorKind::Internal, "the result could not be encoded");
                    encode_error(out, Some(id), &internal.to_wire(self.errors()));
                }
            }),
            Err(error) => self.write(|out| encode_error(out, Some(id), &error.to_wire(self.errors()))),
        }
        // After the write: what panics in it has written nothing, and the request is still there to be failed.
        in_flight.remove(id);
        if in_flight.is_empty() {
            self.idle.notify_waiters();
        }
    }

    /// Resolves when every request is answered.
    pub(crate) async fn all_answered(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if lock(&self.in_flight).is_empty() {
                return;
            }
            idle.await;
        }
    }

    /// Answers something that is not a request in flight.
    pub(crate) fn refuse(&self, id: Option<&RequestId>, error: &ErrorObject) {
        self.write(|out| encode_error(out, id, error));
    }

    pub(crate) fn refuse_call(&self, id: &RequestId, error: &CallError) {
        self.refuse(Some(id), &error.to_wire(self.errors()));
    }

    /// Appends without waiting: answers and questions are few and must not be held up.
    fn write(&self, write: impl FnOnce(&mut Vec<u8>)) {
        match self.outbox.append(write) {
            Flow::Ready | Flow::Full => {}
        }
    }

    /// Appends whole lines. Whoever appends many looks whether the client [is full](Self::is_full).
    pub(crate) fn append(&self, write: impl FnOnce(&mut Vec<u8>)) {
        self.write(write);
    }

    /// Whether the client should read before it is sent more.
    pub(crate) fn is_full(&self) -> bool {
        self.outbox.is_full()
    }

    /// Resolves when the client can be sent more, or is leaving.
    pub(crate) async fn room(&self) {
        tokio::select! {
            () = self.outbox.drained() => {}
            () = self.leaving.cancelled() => {}
        }
    }

    /// Lets go of a client that does not read. It can come back and get the rest.
    pub(crate) fn detach(&self) {
        self.leave();
        self.outbox.close();
    }

    /// Prepares a request to the client; answers arrive at `answers`. `None` when too many are open.
    /// The question and its withdrawal both travel through `pump`.
    pub(crate) fn ask(
        self: &Arc<Self>,
        pump: &Arc<Pump>,
        answers: mpsc::Sender<(u64, PeerAnswer)>,
    ) -> Option<Question> {
        let number = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let name: Box<str> = format!("zc-out-{number}").into();
        let mut asked = lock(&self.asked);
        if asked.len() >= MAX_ASKED || self.is_detached() {
            return None;
        }
        asked.insert(name.clone(), Asked { session: pump.session(), number, answers, void: false, lasting: false });
        let (client, pump) = (Arc::clone(self), Arc::clone(pump));
        Some(Question { client, pump, id: RequestId::from_plain_text(&name), number, name, answered: false })
    }

    /// Sends a request whose answer changes nothing; it is ignored when it comes.
    pub(crate) fn tell<T: Serialize>(self: &Arc<Self>, pump: &Pump, name: &str, params: &T) {
        let number = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let mut line = Vec::with_capacity(256);
        match encode_request(&mut line, &RequestId::from_plain_text(&format!("zc-out-{number}")), name, params) {
            Ok(()) => pump.line(self, line),
            Err(error) => tracing::error!(%error, "a request could not be encoded"),
        }
    }

    /// An answer came that could not be taken in, such as one that is too long. False when it answers nothing of ours.
    pub(crate) fn answered_unreadably(&self, id: &RequestId, why: &str) -> bool {
        let name = id.as_json().trim_matches('"');
        let open = lock(&self.asked).contains_key(name);
        if open {
            let error = ErrorObject::new(self.errors(), ErrorKind::InvalidRequest, why);
            self.answered(id, ResponseOutcome::Error(error));
        }
        open
    }

    /// Hands an answer to whoever asked; late and invented ones are ignored.
    pub(crate) fn answered(&self, id: &RequestId, outcome: ResponseOutcome<'_>) {
        let Some(name) = id.as_json().strip_prefix('"').and_then(|text| text.strip_suffix('"')) else { return };
        let sender = {
            let mut asked = lock(&self.asked);
            match asked.get(name) {
                Some(question) if !question.void => {
                    asked.remove(name).map(|question| (question.number, question.answers))
                }
                Some(_) | None => None,
            }
        };
        let Some((number, sender)) = sender else { return };
        let answer = match outcome {
            ResponseOutcome::Result(raw) => PeerAnswer::Result(raw.to_owned()),
            ResponseOutcome::Error(error) => PeerAnswer::Error(error),
        };
        // Capacity is one per client asked, so this fails only when nobody waits any more.
        let _nobody_waits = sender.try_send((number, answer));
    }

    /// The session is cancelled. What the client answers from now on comes after its cancel, and must not overtake it on
    /// the way to the turn.
    pub(crate) fn void_questions(&self, session: &str) {
        for question in lock(&self.asked).values_mut().filter(|asked| *asked.session == *session && !asked.lasting) {
            question.void = true;
        }
    }

    /// The client is going: nobody waits for it to read any more.
    pub(crate) fn leave(&self) {
        self.leaving.cancel();
    }

    /// Whether its sessions go on without it.
    pub(crate) fn detaches(&self) -> bool {
        match self.on_disconnect {
            OnDisconnect::Detach => true,
            OnDisconnect::End => false,
        }
    }

    /// Whether it has gone and its sessions go on without it.
    pub(crate) fn is_detached(&self) -> bool {
        self.detaches() && self.is_leaving()
    }

    /// An error as this client is told it.
    pub(crate) fn wire_error(&self, error: &CallError) -> ErrorObject {
        error.to_wire(self.errors())
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// Resolves when the client goes.
    pub(crate) async fn left(&self) {
        self.leaving.cancelled().await;
    }

    /// The client is gone: no answer will come to what it was asked.
    pub(crate) fn forget_questions(&self) {
        lock(&self.asked).clear();
    }
}

/// A request of ours that waits for its answer. Dropping it unanswered withdraws it.
#[derive(Debug)]
pub(crate) struct Question {
    client: Arc<Client>,
    pump: Arc<Pump>,
    id: RequestId,
    number: u64,
    name: Box<str>,
    answered: bool,
}

impl Question {
    /// Sends the request, behind everything the session said before.
    pub(crate) fn send<T: Serialize>(&self, name: &str, params: &T) {
        let mut line = Vec::with_capacity(512);
        if let Err(error) = encode_request(&mut line, &self.id, name, params) {
            tracing::error!(%error, "a request could not be encoded");
        }
        // Without the line feed.
        if line.len() > self.client.max_line().saturating_add(1) {
            line = self.shortened(name, params);
        }
        self.pump.line(&self.client, line);
    }

    /// The question in a line that the client reads, after what it is about has been told in messages.
    fn shortened<T: Serialize>(&self, name: &str, params: &T) -> Vec<u8> {
        // Method, id and punctuation around the parameters.
        let most = self.client.max_line().saturating_sub(name.len() + self.name.len() + 64);
        let (before, params) = fit::question(&serde_json::to_vec(params).unwrap_or_default(), most);
        let message_id = format!("about-{}", self.name);
        for text in &before {
            let text = format!("{text}\n\n");
            let content = ContentBlock::text(&text);
            self.pump.tell(&self.client, &SessionUpdate::AgentMessageChunk { content, message_id: &message_id });
        }
        let mut line = Vec::new();
        if let Err(error) = encode_request(&mut line, &self.id, name, &params) {
            tracing::error!(%error, "a request could not be encoded");
        }
        line
    }

    /// Whether the client has gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.client.is_detached()
    }

    /// Whether no answer has come yet.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.client.asked).contains_key(&self.name)
    }

    /// What an answer to it carries.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its answer has come: it is not withdrawn.
    pub(crate) fn settle(&mut self) {
        self.answered = true;
    }

    /// Its answer counts even when the session is cancelled meanwhile.
    pub(crate) fn outlasts_cancel(&self) {
        if let Some(asked) = lock(&self.client.asked).get_mut(&self.name) {
            asked.lasting = true;
        }
    }

    /// Withdraws it, and still takes its answer.
    pub(crate) fn withdraw(&mut self) {
        // Dropping it has nothing left to say.
        self.answered = true;
        let mut line = Vec::new();
        if encode_notification(&mut line, method::CANCEL_REQUEST, &Withdrawal { request_id: &self.name }).is_ok() {
            self.pump.line(&self.client, line);
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let open = lock(&self.client.asked).remove(&self.name).is_some();
        if open && !self.answered {
            self.withdraw();
        }
    }
}

impl Client {
    /// Writes one prepared line.
    pub(crate) fn write_line(&self, line: &[u8]) {
        self.write(|out| out.extend_from_slice(line));
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The maps stay consistent when a holder panics: every change is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
