//! ACP over streamable HTTP, on the path of the WebSocket: a client posts what it says and reads what is said to it on
//! event streams, one for its connection and one for each of its sessions.
//!
//! It refuses batches, bodies over the limit of a message, and a second reader of a stream. Nothing is sent twice: what
//! was on its way to a stream that broke is lost, and a client that cares loads its sessions again.

mod client;
mod streams;

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use futures::{Stream, StreamExt as _};
use hyper::body::Body as _;
use serde_json::value::RawValue;
use tokio::time::{Interval, MissedTickBehavior, timeout};
use zeroclaw_acp_protocol::{Frame, MethodKind, RequestId, ResponseOutcome, encode_error};

pub(crate) use self::client::Clients;
use self::{
    client::{Client, Input},
    streams::{Reader, Target, Unreadable, is_of_connection, session_in},
};
use crate::{
    Gateway,
    auth::Identity,
    http::{CONNECTION_ID, MAX_ID, only, plain, query},
};

const SESSION_ID: HeaderName = HeaderName::from_static("acp-session-id");

/// The first message of a client, which has no connection yet whose room it could take: capabilities and names. Nothing
/// that is known comes near a tenth of it.
const MAX_INITIALIZE: usize = 256 * 1024;

/// Answers a request to the path that is no WebSocket handshake.
pub(crate) async fn serve(gateway: &Arc<Gateway>, identity: Identity, request: Request) -> Response {
    match request.method().as_str() {
        "POST" => post(gateway, identity, request).await.unwrap_or_else(|refusal| *refusal),
        "DELETE" => delete(gateway, &identity, request.headers()).await.unwrap_or_else(|refusal| *refusal),
        _ => get(gateway, &identity, request.headers()).unwrap_or_else(|refusal| *refusal),
    }
}

type Answer = Result<Response, Box<Response>>;

fn refuse<T>(status: StatusCode, text: &'static str) -> Result<T, Box<Response>> {
    Err(Box::new(plain(status, text)))
}

/// The client that a request names, which has to be the asker's own.
fn client_of(gateway: &Gateway, identity: &Identity, headers: &HeaderMap) -> Result<Arc<Client>, Box<Response>> {
    let Some(id) = headers.get(CONNECTION_ID) else {
        return refuse(StatusCode::BAD_REQUEST, "the header Acp-Connection-Id is missing\n");
    };
    let found = id.to_str().ok().and_then(|id| gateway.clients().find(id, identity));
    found.map_or_else(|| refuse(StatusCode::NOT_FOUND, "there is no such connection\n"), Ok)
}

/// The session that the header names.
fn session_of(headers: &HeaderMap) -> Result<Option<Box<str>>, Box<Response>> {
    let Some(value) = headers.get(SESSION_ID) else { return Ok(None) };
    match value.to_str() {
        Ok(id) if !id.is_empty() && id.len() <= MAX_ID => Ok(Some(id.into())),
        Ok(_) | Err(_) => refuse(StatusCode::BAD_REQUEST, "the header Acp-Session-Id is no id\n"),
    }
}

async fn post(gateway: &Arc<Gateway>, identity: Identity, request: Request) -> Answer {
    let kind = only(request.headers(), &header::CONTENT_TYPE).and_then(|kind| kind.split(';').next());
    if !kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body has to be application/json\n");
    }
    let patience = gateway.settings().periods.stall;
    if !request.headers().contains_key(CONNECTION_ID) {
        let agent = query(&request, "agent").filter(|agent| !agent.trim().is_empty());
        let body = read(request.into_body(), MAX_INITIALIZE, patience).await?;
        return initialize(gateway, identity, agent, body).await;
    }
    let client = client_of(gateway, &identity, request.headers())?;
    let session = session_of(request.headers())?;
    let _requesting = client.streams.request();
    let (limit, body) = (gateway.settings().limits.max_line, request.into_body());
    // A body that does not say how long it is may be as long as any.
    let expected = body.size_hint().upper().and_then(|upper| usize::try_from(upper).ok()).unwrap_or(limit);
    if expected > limit {
        return too_large(gateway);
    }
    let Some(room) = client.make_room(expected).await else { return gone() };
    let body = match read(body, limit, patience).await {
        Err(refusal) if refusal.status() == StatusCode::PAYLOAD_TOO_LARGE => return too_large(gateway),
        other => other?,
    };
    let (line, expecting) = addressed(&body, session)?;
    if let Some(Expecting { id, method, session }) = &expecting
        && !client.streams.expect(id.clone(), method, session.clone())
    {
        return refuse(StatusCode::TOO_MANY_REQUESTS, "too many requests are not answered yet\n");
    }
    if client.inbox.send(Input::Message(line.unwrap_or(body), room)).await.is_err() {
        if let Some(Expecting { id, .. }) = &expecting {
            client.streams.expect_no_more(id);
        }
        return gone();
    }
    Ok(accepted())
}

fn gone<T>() -> Result<T, Box<Response>> {
    refuse(StatusCode::NOT_FOUND, "there is no such connection\n")
}

fn too_large<T>(gateway: &Gateway) -> Result<T, Box<Response>> {
    gateway.metrics().too_large.one();
    refuse(StatusCode::PAYLOAD_TOO_LARGE, "the message is over the limit\n")
}

fn accepted() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Reads a body as long as it goes on coming.
async fn read(body: Body, limit: usize, patience: Duration) -> Result<Bytes, Box<Response>> {
    let mut chunks = body.into_data_stream();
    let mut first = Bytes::new();
    let mut rest: Option<Vec<u8>> = None;
    loop {
        let chunk = match timeout(patience, chunks.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(Some(Err(_))) => return refuse(StatusCode::BAD_REQUEST, "the body broke off\n"),
            Ok(None) => return Ok(rest.map_or(first, Bytes::from)),
            Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the body took too long\n"),
        };
        let so_far = rest.as_ref().map_or(first.len(), Vec::len);
        if so_far + chunk.len() > limit {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the message is over the limit\n");
        }
        match &mut rest {
            Some(rest) => rest.extend_from_slice(&chunk),
            None if first.is_empty() => first = chunk,
            None => rest = Some([first.as_ref(), chunk.as_ref()].concat()),
        }
    }
}

/// A request whose answer has to find its stream.
struct Expecting {
    id: RequestId,
    method: String,
    session: Option<Box<str>>,
}

/// Reads what was posted, and brings the session of the header into it when it names none itself.
fn addressed(body: &Bytes, header: Option<Box<str>>) -> Result<(Option<Bytes>, Option<Expecting>), Box<Response>> {
    let (id, method, params) = match parse(body)? {
        Frame::Request { id, method, params } => (Some(id), method, params),
        Frame::Notification { method, params } => (None, method, params),
        Frame::Response { .. } => return Ok((None, None)),
    };
    let header = header.filter(|_| !is_of_connection(&method));
    let named = session_in(params).filter(|_| !is_of_connection(&method));
    if let (Some(header), Some(named)) = (&header, &named)
        && header != named
    {
        return refuse(StatusCode::BAD_REQUEST, "the header Acp-Session-Id and the message name different sessions\n");
    }
    let needs = needs_session(&method);
    let line = match (&header, &named) {
        (None, None) if needs => {
            return refuse(StatusCode::BAD_REQUEST, "the header Acp-Session-Id is missing\n");
        }
        (Some(header), None) if needs => Some(with_session(id.as_ref(), &method, params, header)?),
        (Some(_) | None, _) => None,
    };
    let session = header.or(named);
    Ok((line, id.map(|id| Expecting { id, method: method.into_owned(), session })))
}

/// Whether a method means nothing without a session.
fn needs_session(method: &str) -> bool {
    match MethodKind::from_name(method) {
        Some(
            MethodKind::SessionLoad
            | MethodKind::SessionResume
            | MethodKind::SessionPrompt
            | MethodKind::SessionCancel
            | MethodKind::SessionClose
            | MethodKind::SessionStop
            | MethodKind::SessionDelete
            | MethodKind::SessionFork
            | MethodKind::SessionAttach
            | MethodKind::SetMode
            | MethodKind::SetConfigOption
            | MethodKind::SessionEvent,
        ) => true,
        Some(
            MethodKind::Initialize
            | MethodKind::SessionNew
            | MethodKind::SessionList
            | MethodKind::Authenticate
            | MethodKind::Logout
            | MethodKind::Status
            | MethodKind::CancelRequest,
        )
        | None => false,
    }
}

/// The same call with the session in its parameters.
fn with_session(
    id: Option<&RequestId>,
    method: &str,
    params: Option<&RawValue>,
    session: &str,
) -> Result<Bytes, Box<Response>> {
    let members = params.map_or("{}", RawValue::get).trim();
    let Some(members) = members.strip_prefix('{') else {
        return refuse(StatusCode::BAD_REQUEST, "a session needs parameters that are an object\n");
    };
    let comma = if members.trim_start().starts_with('}') { "" } else { "," };
    let id = id.map(|id| format!("\"id\":{},", id.as_json())).unwrap_or_default();
    let (method, session) = (serde_json::Value::from(method), serde_json::Value::from(session));
    let head = format!("{{\"jsonrpc\":\"2.0\",{id}\"method\":{method},\"params\":{{\"sessionId\":{session}{comma}");
    Ok(Bytes::from([head.as_str(), members, "}"].concat()))
}

/// Reads one message; what is none is answered here.
fn parse(body: &[u8]) -> Result<Frame<'_>, Box<Response>> {
    Frame::parse(body).map_err(|error| {
        let batch = body.trim_ascii_start().first() == Some(&b'[');
        let status = if batch { StatusCode::NOT_IMPLEMENTED } else { StatusCode::BAD_REQUEST };
        if error.silent {
            return Box::new(plain(status, "the message is a malformed response\n"));
        }
        let mut text = Vec::new();
        encode_error(&mut text, error.id.as_ref(), &error.to_error());
        Box::new(json(status, Bytes::from(text)))
    })
}

fn json(status: StatusCode, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A client introduces itself: its connection begins, and the answer comes back at once.
async fn initialize(gateway: &Arc<Gateway>, identity: Identity, agent: Option<String>, body: Bytes) -> Answer {
    let id = match parse(&body)? {
        Frame::Request { id, method, .. } if MethodKind::from_name(&method) == Some(MethodKind::Initialize) => id,
        Frame::Request { .. } | Frame::Notification { .. } | Frame::Response { .. } => {
            return refuse(StatusCode::BAD_REQUEST, "the header Acp-Connection-Id is missing\n");
        }
    };
    let Ok(slot) = Arc::clone(gateway.slots()).try_acquire_owned() else {
        gateway.metrics().full.one();
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many connections\n");
    };
    let client = gateway.clients().enter(gateway, identity, agent, slot);
    let _requesting = client.streams.request();
    let answer = client.streams.expect_first(id);
    let Some(room) = client.make_room(body.len()).await else { return gone() };
    if client.inbox.send(Input::Message(body, room)).await.is_err() {
        return gone();
    }
    let Ok(answer) = answer.await else { return gone() };
    let refused =
        matches!(Frame::parse(&answer), Ok(Frame::Response { outcome: ResponseOutcome::Error(_), .. }) | Err(_));
    let mut response = json(StatusCode::OK, answer);
    if refused {
        // A task that has ended already needs no telling.
        let _ = client.inbox.send(Input::End).await;
    } else if let Ok(id) = HeaderValue::from_str(&client.id) {
        response.headers_mut().insert(CONNECTION_ID, id);
    }
    Ok(response)
}

async fn delete(gateway: &Arc<Gateway>, identity: &Identity, headers: &HeaderMap) -> Answer {
    let client = client_of(gateway, identity, headers)?;
    // Behind what was posted before it. A task that has ended already needs no telling.
    let _ = client.inbox.send(Input::End).await;
    Ok(accepted())
}

fn get(gateway: &Arc<Gateway>, identity: &Identity, headers: &HeaderMap) -> Answer {
    let mut accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if !accepts.any(|list| list.to_ascii_lowercase().contains("text/event-stream")) {
        return refuse(StatusCode::NOT_ACCEPTABLE, "this path speaks WebSocket, and text/event-stream\n");
    }
    let client = client_of(gateway, identity, headers)?;
    let session = session_of(headers)?;
    let reader = match client.streams.read(session.clone().map_or(Target::Connection, Target::Session)) {
        Ok(reader) => reader,
        Err(Unreadable::Taken) => return refuse(StatusCode::CONFLICT, "somebody reads this stream\n"),
        Err(Unreadable::Unknown) => return refuse(StatusCode::NOT_FOUND, "there is no such session\n"),
    };
    let mut response = Response::new(Body::from_stream(Events::new(reader, gateway.settings().periods.ping)));
    let answer = response.headers_mut();
    answer.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would otherwise collect the events before it passes them on.
    answer.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    for (name, value) in [(CONNECTION_ID, Some(client.id.as_str())), (SESSION_ID, session.as_deref())] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            answer.insert(name, value);
        }
    }
    Ok(response)
}

/// The body of an event stream: what waits, and a comment now and then that keeps proxies from cutting it and finds out
/// whether anybody is there.
struct Events {
    reader: Reader,
    alive: Interval,
}

impl Events {
    fn new(reader: Reader, ping: Duration) -> Self {
        // The first comes at once, so that the head does not wait for the first event.
        let mut alive = tokio::time::interval(ping);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { reader, alive }
    }
}

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.reader.poll_events(context) {
            Poll::Ready(events) => Poll::Ready(events.map(Ok)),
            Poll::Pending => self.alive.poll_tick(context).map(|_| Some(Ok(Bytes::from_static(b":\n\n")))),
        }
    }
}
