//! A model vendor on the loopback interface: OpenAI chat completions and Anthropic messages, streaming only.
//!
//! Owns the listener, the queue of scripted [`Reply`] values, and the record of what was asked. Every request is
//! checked more strictly than the real vendors do; a breach is answered with 400 and kept in
//! [`ModelServer::violations`]. HTTP is written by hand so that each byte and each write boundary is decided by the
//! test. It refuses TLS, HTTP/2 and requests without streaming.

mod http;
mod render;
mod reply;
mod serve;
mod strict;
mod wire;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

pub use reply::{Call, Gate, Part, Reply};
pub use strict::{MAX_CONTENT_CHARS, signature_for};

/// Replies waiting in the queue; a test that scripts more has a loop that does not end.
const MAX_QUEUED: usize = 100_000;
/// Requests and violations kept; beyond it the server stops recording by aborting the test.
const MAX_RECORDED: usize = 100_000;
/// How long the `wait_for_*` functions wait. Long, because it only bounds a test that has already failed.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// One model request as it arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Request target, query included.
    pub path: String,
    /// Header fields in order of arrival, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The JSON body; `Value::Null` when it did not parse, which is also a violation.
    pub body: Value,
    /// When the last byte of the request had been read.
    pub received_at: Instant,
}

impl Recorded {
    /// The first value of a header field; `name` in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Makes the reply to a request when none is queued.
type Responder = Box<dyn FnMut(&Recorded) -> Reply + Send>;

#[derive(Default)]
struct State {
    replies: VecDeque<Reply>,
    responder: Option<Responder>,
    requests: Vec<Recorded>,
    violations: Vec<String>,
    key: Option<String>,
    models: Vec<String>,
}

/// What the listener task and the handle share.
struct Shared {
    state: Mutex<State>,
    received: watch::Sender<usize>,
    completed: watch::Sender<usize>,
    aborted: watch::Sender<usize>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a holder of the server state panicked")
    }

    fn violation(&self, text: String) {
        let mut state = self.lock();
        assert!(state.violations.len() < MAX_RECORDED, "more than {MAX_RECORDED} violations");
        state.violations.push(text);
    }

    fn next_reply(&self, request: &Recorded) -> Option<Reply> {
        let mut state = self.lock();
        state.replies.pop_front().or_else(|| state.responder.as_mut().map(|responder| responder(request)))
    }

    fn record(&self, request: Recorded) {
        let count = {
            let mut state = self.lock();
            assert!(state.requests.len() < MAX_RECORDED, "more than {MAX_RECORDED} requests");
            state.requests.push(request);
            state.requests.len()
        };
        self.received.send_replace(count);
    }
}

/// The running server. Dropping it closes the listener and every connection.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accept: JoinHandle<()>,
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

impl ModelServer {
    /// Binds a free loopback port and serves it until the value is dropped.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free loopback port");
        let address = listener.local_addr().expect("the address of a bound listener");
        let shared = Arc::new(Shared {
            state: Mutex::new(State { models: vec!["test-model".to_owned()], ..State::default() }),
            received: watch::Sender::new(0),
            completed: watch::Sender::new(0),
            aborted: watch::Sender::new(0),
        });
        let accept = tokio::spawn(serve::accept(listener, Arc::clone(&shared)));
        Self { address, shared, accept }
    }

    /// From now on requests need this key: `Authorization: Bearer` for OpenAI, `x-api-key` for Anthropic. Else 401.
    #[must_use]
    pub fn require_key(self, key: &str) -> Self {
        self.shared.lock().key = Some(key.to_owned());
        self
    }

    /// The names that `GET .../models` lists; one name, `test-model`, unless set.
    pub fn set_models<S: Into<String>>(&self, names: impl IntoIterator<Item = S>) {
        self.shared.lock().models = names.into_iter().map(Into::into).collect();
    }

    /// `http://127.0.0.1:PORT`, without a final slash.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `http://127.0.0.1:PORT/v1`, as a user writes the base of an OpenAI-compatible server.
    ///
    /// genai joins `chat/completions` with `Url::join`, which replaces the last segment unless the base ends in a
    /// slash, and builds `models` by plain concatenation: its `Endpoint` must be this text plus `/`
    /// ([`ModelServer::openai_endpoint`]).
    #[must_use]
    pub fn openai_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// `http://127.0.0.1:PORT/v1/`: [`ModelServer::openai_url`] with the final slash that genai's `Endpoint` needs.
    #[must_use]
    pub fn openai_endpoint(&self) -> String {
        format!("http://{}/v1/", self.address)
    }

    /// `http://127.0.0.1:PORT/v1/`, with the final slash.
    ///
    /// genai's Anthropic adapter concatenates: `format!("{base}messages")` and `format!("{base}models")`; its default
    /// is `https://api.anthropic.com/v1/`. So both the `v1` and the slash belong to the endpoint.
    #[must_use]
    pub fn anthropic_url(&self) -> String {
        format!("http://{}/v1/", self.address)
    }

    /// Queues a reply; each model request takes the next one. With an empty queue a request is answered 500.
    pub fn push(&self, reply: Reply) {
        let mut state = self.shared.lock();
        assert!(state.replies.len() < MAX_QUEUED, "more than {MAX_QUEUED} replies queued");
        state.replies.push_back(reply);
    }

    /// Answers each request for which no reply is queued, for conversations too long to be scripted one by one.
    pub fn answer_with(&self, responder: impl FnMut(&Recorded) -> Reply + Send + 'static) {
        self.shared.lock().responder = Some(Box::new(responder));
    }

    /// Replies that no request has taken yet.
    #[must_use]
    pub fn unused_replies(&self) -> usize {
        self.shared.lock().replies.len()
    }

    /// Every model request so far, in order of arrival, refused ones included.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.lock().requests.clone()
    }

    /// Every breach of the vendors' rules so far. A test normally ends by asserting that this is empty.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.shared.lock().violations.clone()
    }

    /// Waits until `count` model requests have arrived since the start.
    pub async fn wait_for_requests(&self, count: usize) {
        self.wait(&self.shared.received, count, "requests").await;
    }

    /// Waits until `count` replies have been written to their end, as scripted.
    pub async fn wait_for_completed(&self, count: usize) {
        self.wait(&self.shared.completed, count, "completed replies").await;
    }

    /// Waits until in `count` cases the client has closed the connection before its reply was written to the end.
    pub async fn wait_for_aborted(&self, count: usize) {
        self.wait(&self.shared.aborted, count, "replies aborted by the client").await;
    }

    async fn wait(&self, counter: &watch::Sender<usize>, count: usize, what: &str) {
        let mut seen = counter.subscribe();
        let waited = tokio::time::timeout(WAIT_LIMIT, seen.wait_for(|have| *have >= count)).await;
        if waited.is_err() {
            let have = *counter.borrow();
            panic!("waited {WAIT_LIMIT:?} for {count} {what}, have {have}; violations: {:#?}", self.violations());
        }
    }
}
