//! The paths of the gateway and what stands before them: host, origin, token.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware,
    response::Response,
    routing::{get, post},
};
use tokio::{
    sync::{Mutex, Semaphore, watch},
    time::Instant,
};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use zeroclaw_acp_transport::{Connection, Outbox};

use crate::{
    GatewayError, GatewaySettings, Listener, World,
    auth::{Denied, Gatekeeper, Identity, Peer},
    cors,
    guard::Guard,
    listen,
    metrics::Metrics,
    socket,
    streamable::{self, Clients},
    tls::Tls,
};

/// How long the head of a request may take.
pub(crate) const REQUEST_PATIENCE: Duration = Duration::from_secs(10);

/// For how long an answer about readiness holds: finding out writes to the disk, and whoever asks needs no token.
const READY_FOR: Duration = Duration::from_secs(1);

/// The subprotocol that is echoed.
const SUBPROTOCOL: &str = "zeroclaw.acp.v1";

/// What stands before a token among the subprotocols.
const BEARER_PROTOCOL: &str = "bearer.";

/// A pairing request is one short code; more is not read.
const MAX_PAIR_BODY: usize = 4096;

/// A header that names something longer than this names nothing of ours.
pub(crate) const MAX_ID: usize = 128;

pub(crate) const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");

/// Takes the connections of clients that were let in.
#[async_trait]
pub trait Acceptor: Send + Sync {
    /// Takes a new client. `agent` is what its address asked for.
    fn connect(&self, outbox: Outbox, agent: Option<String>) -> Box<dyn Connection>;

    /// Whether work can be done; otherwise in a few words what is missing. They are shown to everybody.
    async fn ready(&self) -> Result<(), String>;

    /// Further metrics, in the text format of Prometheus.
    fn metrics(&self, text: &mut String);
}

/// The gateway.
pub struct Gateway {
    settings: GatewaySettings,
    keeper: Arc<Gatekeeper>,
    guard: Guard,
    metrics: Arc<Metrics>,
    acceptor: Box<dyn Acceptor>,
    slots: Arc<Semaphore>,
    clients: Clients,
    closing: watch::Sender<bool>,
    tls: Option<Arc<Tls>>,
    /// What was last found out about readiness, and when. Held while it is found out anew: everybody may ask.
    readiness: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Gateway").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Opens a gateway behind a listener: checks the settings, reads the tokens, and writes a new operator token.
    ///
    /// # Errors
    /// The settings are wrong together with where it listens, or the files cannot be used.
    pub async fn open(
        settings: GatewaySettings,
        listener: &Listener,
        world: World,
        acceptor: Box<dyn Acceptor>,
    ) -> Result<Arc<Self>, GatewayError> {
        if !settings.require_pairing && !listener.is_local() {
            let place = listener.address().map_or_else(String::new, |address| address.to_string());
            return Err(GatewayError::OpenToStrangers { place });
        }
        check_prefix(&settings.path_prefix)?;
        let guard = Guard::new(&settings.allowed_origins, &settings.allowed_hosts, listener.is_loopback_address())
            .map_err(|origin| GatewayError::BadOrigin { origin })?;
        let (required, directory) = (settings.require_pairing, settings.directory.clone());
        let opened = tokio::task::spawn_blocking(move || Gatekeeper::open(required, &directory, world)).await;
        let keeper = opened.map_err(|error| crate::StateError::Io {
            action: "read",
            path: settings.directory.clone(),
            source: std::io::Error::other(error),
        })??;
        Ok(Arc::new(Self {
            slots: Arc::new(Semaphore::new(settings.max_connections)),
            settings,
            keeper,
            guard,
            metrics: Arc::default(),
            acceptor,
            clients: Clients::default(),
            closing: watch::Sender::new(false),
            tls: listener.tls(),
            readiness: Mutex::default(),
        }))
    }

    /// Serves until `stop` resolves; then nobody is let in any more, and when `drain` has resolved too every client gets
    /// a close frame. Returns when all are gone.
    pub async fn serve(
        self: &Arc<Self>,
        listener: Listener,
        stop: impl Future<Output = ()>,
        drain: impl Future<Output = ()>,
    ) {
        let watching = tokio::spawn(watch_tokens(Arc::clone(&self.keeper), self.settings.periods.watch));
        listen::run(self, listener, stop, drain).await;
        watching.abort();
    }

    /// Reads the certificate again, for the connections that come from now on. False: there is none.
    ///
    /// # Errors
    /// It cannot be used; the one before stays in use.
    pub async fn reload_certificate(&self) -> Result<bool, GatewayError> {
        let Some(tls) = self.tls.clone() else { return Ok(false) };
        // A thread that could not be had leaves what is in use.
        match tokio::task::spawn_blocking(move || tls.reload()).await {
            Ok(reloaded) => reloaded.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    pub(crate) fn settings(&self) -> &GatewaySettings {
        &self.settings
    }

    pub(crate) fn keeper(&self) -> &Arc<Gatekeeper> {
        &self.keeper
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn acceptor(&self) -> &dyn Acceptor {
        self.acceptor.as_ref()
    }

    pub(crate) fn slots(&self) -> &Arc<Semaphore> {
        &self.slots
    }

    pub(crate) fn clients(&self) -> &Clients {
        &self.clients
    }

    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Whether work can be done, as it was found at most [`READY_FOR`] ago.
    async fn readiness(&self) -> Result<(), String> {
        let mut known = self.readiness.lock().await;
        if let Some((when, found)) = known.as_ref()
            && when.elapsed() < READY_FOR
        {
            return found.clone();
        }
        let found = self.acceptor.ready().await;
        *known = Some((Instant::now(), found.clone()));
        found
    }

    /// Resolves when no client is connected any more.
    pub(crate) async fn emptied(&self) {
        let all = u32::try_from(self.settings.max_connections).unwrap_or(u32::MAX);
        // Only a closed semaphore refuses, and this one is never closed.
        let _ = self.slots.acquire_many(all).await;
    }

    /// A new id of a connection, which nobody can guess.
    pub(crate) fn new_id(&self) -> String {
        let bytes: [u8; 16] = self.keeper.world().bytes();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Sees tokens that end while their connections are open.
async fn watch_tokens(keeper: Arc<Gatekeeper>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        keeper.refresh().await;
        keeper.remind();
    }
}

fn check_prefix(prefix: &str) -> Result<(), GatewayError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    let good = prefix.is_empty()
        || (prefix.starts_with('/') && !prefix.ends_with('/') && !prefix.contains("//") && prefix.bytes().all(plain));
    if good { Ok(()) } else { Err(GatewayError::BadPrefix { prefix: prefix.to_owned() }) }
}

pub(crate) fn router(gateway: &Arc<Gateway>) -> Router {
    let paths = Router::new()
        .route("/acp", get(acp).post(acp).delete(acp))
        .route("/pair", post(pair))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics));
    let prefix = gateway.settings.path_prefix.as_str();
    // With and without the prefix: some proxies take it off and some do not.
    let all = if prefix.is_empty() { paths } else { Router::new().nest(prefix, paths.clone()).merge(paths) };
    let all = all.fallback(async || plain(StatusCode::NOT_FOUND, "there is nothing here\n"));
    let cors = middleware::from_fn_with_state(Arc::clone(gateway), cors::answer);
    all.layer(cors).with_state(Arc::clone(gateway))
}

/// A short answer in plain text.
pub(crate) fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn json(status: StatusCode, value: &serde_json::Value) -> Response {
    let mut response = Response::new(Body::from(format!("{value}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// One value of a header that may stand there once.
pub(crate) fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Refuses what a browser was made to do by a page of somebody else.
pub(crate) fn foreign(gateway: &Gateway, request: &Request, counted: bool) -> Option<Response> {
    let headers = request.headers();
    let host = only(headers, &header::HOST).or_else(|| request.uri().authority().map(|host| host.as_str()));
    // A header that is not text is refused like a wrong one.
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("null"));
    let good = gateway.guard.host_is_good(host) && gateway.guard.origin_is_good(origin, host);
    if good {
        return None;
    }
    if counted {
        gateway.metrics.foreign.one();
    }
    Some(plain(StatusCode::FORBIDDEN, "this origin or host is not allowed\n"))
}

/// Who is asking, behind a proxy or not.
fn peer_of(gateway: &Gateway, peer: Peer, headers: &HeaderMap) -> Peer {
    if !gateway.settings.trust_forwarded {
        return peer;
    }
    // The last entry is the one that our own proxy wrote.
    let forwarded = headers.get_all("x-forwarded-for").iter().next_back().and_then(|value| value.to_str().ok());
    let last = forwarded.and_then(|list| list.rsplit(',').next()).map(str::trim);
    last.and_then(|address| address.parse().ok()).map_or(peer, Peer::of)
}

/// The token that a request presents: in its header, else among the subprotocols, else in the address.
fn token_of(request: &Request) -> Option<String> {
    let headers = request.headers();
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let value = value.to_str().unwrap_or_default();
        let token = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        return Some(token.map_or("", |(_, token)| token).trim().to_owned());
    }
    let offered = protocols(headers).find_map(|name| name.strip_prefix(BEARER_PROTOCOL).map(str::to_owned));
    offered.or_else(|| query(request, "token"))
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(',')).map(str::trim)
}

/// One parameter of the address. The address itself is never logged: it may hold a token.
pub(crate) fn query(request: &Request, name: &str) -> Option<String> {
    let query = request.uri().query()?;
    form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Everything that stands before a path that is not for everybody.
fn admit(
    gateway: &Gateway,
    peer: Peer,
    request: &Request,
) -> impl Future<Output = Result<Identity, Response>> + Send + use<> {
    // The request is not held while the tokens are looked at: its body cannot be shared.
    let refusal = foreign(gateway, request, true);
    let peer = peer_of(gateway, peer, request.headers());
    let token = token_of(request);
    let (keeper, metrics) = (Arc::clone(&gateway.keeper), Arc::clone(&gateway.metrics));
    async move {
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        keeper.admit(peer, token.as_deref()).await.map_err(|denied| denial(&metrics, denied))
    }
}

fn denial(metrics: &Metrics, denied: Denied) -> Response {
    match denied {
        Denied::Unknown => {
            metrics.denied.one();
            let mut response = plain(StatusCode::UNAUTHORIZED, "unauthorized\n");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
        Denied::Later(wait_ms) => {
            metrics.throttled.one();
            let mut response = plain(StatusCode::TOO_MANY_REQUESTS, "too many attempts\n");
            let seconds = wait_ms.saturating_add(999) / 1000;
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            response
        }
        Denied::Broken => plain(StatusCode::SERVICE_UNAVAILABLE, "tokens cannot be checked\n"),
    }
}

async fn acp(State(gateway): State<Arc<Gateway>>, Extension(peer): Extension<Peer>, request: Request) -> Response {
    match admit(&gateway, peer, &request).await {
        Ok(identity) if wants_upgrade(request.headers()) => upgrade(&gateway, identity, request),
        Ok(identity) => streamable::serve(&gateway, identity, request).await,
        Err(refusal) => refusal,
    }
}

/// Whether a request asks for a WebSocket.
fn wants_upgrade(headers: &HeaderMap) -> bool {
    let names = |name: HeaderName, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|list| list.split(',')).any(|value| value.trim().eq_ignore_ascii_case(wanted))
    };
    names(header::UPGRADE, "websocket") && names(header::CONNECTION, "upgrade")
}

/// Answers a WebSocket handshake (RFC 6455, section 4.2) and hands the connection over.
fn upgrade(gateway: &Arc<Gateway>, identity: Identity, mut request: Request) -> Response {
    let headers = request.headers();
    if only(headers, &header::SEC_WEBSOCKET_VERSION) != Some("13") {
        let mut response = plain(StatusCode::UPGRADE_REQUIRED, "the version of WebSocket is 13\n");
        response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return response;
    }
    let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY).filter(|key| key.len() == 24) else {
        return plain(StatusCode::BAD_REQUEST, "the WebSocket handshake has no key\n");
    };
    let accept = derive_accept_key(key.as_bytes());
    let speaks_ours = protocols(headers).any(|name| name == SUBPROTOCOL);
    let agent = query(&request, "agent").filter(|agent| !agent.trim().is_empty());
    let Some(upgrade) = request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>() else {
        return plain(StatusCode::BAD_REQUEST, "this connection cannot be upgraded\n");
    };
    let Ok(slot) = Arc::clone(&gateway.slots).try_acquire_owned() else {
        gateway.metrics.full.one();
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many connections\n");
    };
    let id = gateway.new_id();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let (Ok(accept), Ok(id)) = (HeaderValue::from_str(&accept), HeaderValue::from_str(&id)) {
        answer.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        answer.insert(CONNECTION_ID, id);
    }
    if speaks_ours {
        answer.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    }
    let gateway = Arc::clone(gateway);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => socket::serve(&gateway, upgraded, identity, id, agent).await,
            Err(error) => tracing::debug!(%error, "an upgrade came to nothing"),
        }
        drop(slot);
    });
    response
}

async fn pair(State(gateway): State<Arc<Gateway>>, Extension(peer): Extension<Peer>, request: Request) -> Response {
    if let Some(refusal) = foreign(&gateway, &request, true) {
        return refusal;
    }
    let peer = peer_of(&gateway, peer, request.headers());
    let (head, body) = request.into_parts();
    let code = match head.headers.get("x-pairing-code") {
        Some(code) => code.to_str().unwrap_or_default().to_owned(),
        None => match tokio::time::timeout(REQUEST_PATIENCE, axum::body::to_bytes(body, MAX_PAIR_BODY)).await {
            Ok(Ok(body)) => code_in(&body),
            Ok(Err(_)) => return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large\n"),
            Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the body took too long\n"),
        },
    };
    match gateway.keeper.pair(peer, code).await {
        Ok(paired) => {
            gateway.metrics.paired.one();
            tracing::info!(name = paired.record.name, id = paired.record.id, "a client was paired");
            let answer = serde_json::json!({
                "paired": true,
                "token": paired.token.expose(),
                "name": paired.record.name,
                "id": paired.record.id,
            });
            json(StatusCode::OK, &answer)
        }
        Err(denied) => denial(&gateway.metrics, denied),
    }
}

fn code_in(body: &Bytes) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let code = parsed.as_ref().and_then(|value| value.get("code")).and_then(serde_json::Value::as_str);
    code.unwrap_or_default().to_owned()
}

async fn health(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let fine = || json(StatusCode::OK, &serde_json::json!({"status": "ok"}));
    foreign(&gateway, &request, true).unwrap_or_else(fine)
}

async fn ready(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    if let Some(refusal) = foreign(&gateway, &request, true) {
        return refusal;
    }
    match gateway.readiness().await {
        Ok(()) => json(StatusCode::OK, &serde_json::json!({"status": "ready"})),
        Err(why) => json(StatusCode::SERVICE_UNAVAILABLE, &serde_json::json!({"status": "not ready", "why": why})),
    }
}

async fn metrics(State(gateway): State<Arc<Gateway>>, Extension(peer): Extension<Peer>, request: Request) -> Response {
    if let Err(refusal) = admit(&gateway, peer, &request).await {
        return refusal;
    }
    let mut text = gateway.metrics.text();
    gateway.acceptor.metrics(&mut text);
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
