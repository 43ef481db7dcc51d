//! Connections: one task each, one request after the other.
//!
//! Owns the order of checks (key, rules, queue) and the playing of a planned reply. While it pauses it watches for the
//! client closing, so that cancel tests can await the departure instead of sleeping.

use std::{io, sync::Arc, time::Instant};

use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{
    Recorded, Shared,
    http::{self, Connection, Request},
    render::{self, Asked, Vendor},
    reply::{End, Kind, Quirks, Reply},
    strict,
    wire::{self, Action, BodyEnd},
};

/// Connections alive at once; a client that needs more leaks them.
const MAX_CONNECTIONS: usize = 1024;

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                if connections.len() >= MAX_CONNECTIONS {
                    shared.violation(format!("more than {MAX_CONNECTIONS} connections at once"));
                    continue;
                }
                connections.spawn(connection(stream, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let Ok(mut connection) = Connection::new(stream) else { return };
    loop {
        match connection.request().await {
            Ok(Some(request)) => match answer(&mut connection, request, &shared).await {
                Ok(Next::KeepAlive) => {}
                Ok(Next::Close) | Err(_) => return,
            },
            Ok(None) => return,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                shared.violation(format!("malformed HTTP: {error}"));
                return;
            }
            Err(_) => return,
        }
    }
}

enum Next {
    KeepAlive,
    Close,
}

async fn answer(connection: &mut Connection, request: Request, shared: &Shared) -> io::Result<Next> {
    let route = request.path.split('?').next().unwrap_or_default();
    if request.method == "GET" && route.ends_with("/models") {
        return list_models(connection, &request, shared).await;
    }
    let vendor = match route {
        _ if request.method == "POST" && route.ends_with("/chat/completions") => Vendor::OpenAi,
        _ if request.method == "POST" && route.ends_with("/v1/messages") => Vendor::Anthropic,
        _ => {
            shared.violation(format!("no such route: {} {route}", request.method));
            let body = render::error_body(Vendor::OpenAi, 404, "no such route");
            return respond(connection, 404, &[], &body).await;
        }
    };
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let asked = Asked::of(&body);
    let refused = key_error(vendor, &request, shared);
    let breaches = strict::check(vendor, &request, &body);
    let recorded = Recorded { path: request.path, headers: request.headers, body, received_at: Instant::now() };
    let next = if refused.is_none() && breaches.is_empty() { shared.next_reply(&recorded) } else { None };
    let empty = next
        .as_ref()
        .filter(|reply| reply.quirks.reject_empty_content)
        .and_then(|_| strict::empty_content(&recorded.body));
    shared.record(recorded);
    if let Some(message) = refused {
        return respond(connection, 401, &[], &render::error_body(vendor, 401, message)).await;
    }
    if let Some(first) = breaches.first().cloned() {
        breaches.into_iter().for_each(|breach| shared.violation(breach));
        return respond(connection, 400, &[], &render::error_body(vendor, 400, &first)).await;
    }
    if let Some(message) = empty {
        shared.violation(message.clone());
        return respond(connection, 400, &[], &render::error_body(vendor, 400, &message)).await;
    }
    let Some(reply) = next else {
        shared.violation("no reply scripted for a request".to_owned());
        return respond(connection, 500, &[], &render::error_body(vendor, 500, "no reply scripted")).await;
    };
    let Reply { kind, quirks } = reply;
    match kind {
        Kind::Status { code, body } => {
            let body = body.unwrap_or_else(|| render::error_body(vendor, code, &format!("scripted status {code}")));
            let next = respond(connection, code, &quirks.headers, &body).await?;
            shared.completed.send_modify(|count| *count += 1);
            Ok(next)
        }
        Kind::HangAfterHeaders => {
            let played = play(connection, Vec::new(), BodyEnd::Open, &quirks).await;
            settle(played, &quirks, shared)
        }
        Kind::Stream { parts, end } => {
            let actions = wire::plan(&render::events(vendor, &parts, &end, &quirks, &asked), &quirks);
            let played = play(connection, actions, body_end(&end, &quirks), &quirks).await;
            settle(played, &quirks, shared)
        }
    }
}

fn body_end(end: &End, quirks: &Quirks) -> BodyEnd {
    let cut = matches!(end, End::Cut) || quirks.cut_bytes.is_some();
    if cut && !quirks.clean_cut {
        BodyEnd::Cut
    } else if quirks.keep_open {
        BodyEnd::Open
    } else {
        BodyEnd::Proper
    }
}

/// How the playing of a reply came to its end.
enum Played {
    Whole(Next),
    ClientGone,
}

/// Writes the head and performs the actions.
async fn play(connection: &mut Connection, actions: Vec<Action>, end: BodyEnd, quirks: &Quirks) -> io::Result<Played> {
    let chunked = !quirks.close_delimited;
    let framing = if chunked { ("Transfer-Encoding", "chunked") } else { ("Connection", "close") };
    let mut headers =
        vec![("Content-Type", "text/event-stream; charset=utf-8"), ("Cache-Control", "no-cache"), framing];
    headers.extend(quirks.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let mut waiting = http::head(200, &headers);
    // Only a body in a single write travels together with the head.
    let single = matches!(quirks.writes, super::reply::Writes::Single);
    if !single {
        connection.write(&std::mem::take(&mut waiting)).await?;
    }
    for action in actions {
        match action {
            Action::Write(bytes) => {
                waiting.extend(if chunked { http::chunk(&bytes) } else { bytes });
                if !single {
                    connection.write(&std::mem::take(&mut waiting)).await?;
                }
            }
            Action::Wait(gate) => {
                connection.write(&std::mem::take(&mut waiting)).await?;
                gate.arrive();
                tokio::select! {
                    () = gate.passed() => {}
                    () = connection.client_gone() => return Ok(Played::ClientGone),
                }
            }
            Action::Sleep(delay) => {
                connection.write(&std::mem::take(&mut waiting)).await?;
                tokio::select! {
                    () = tokio::time::sleep(delay) => {}
                    () = connection.client_gone() => return Ok(Played::ClientGone),
                }
            }
        }
    }
    match end {
        BodyEnd::Proper if chunked => {
            waiting.extend_from_slice(http::LAST_CHUNK);
            connection.write(&waiting).await?;
            Ok(Played::Whole(Next::KeepAlive))
        }
        BodyEnd::Proper | BodyEnd::Cut => {
            connection.write(&waiting).await?;
            Ok(Played::Whole(Next::Close))
        }
        BodyEnd::Open => {
            connection.write(&waiting).await?;
            connection.client_gone().await;
            Ok(Played::ClientGone)
        }
    }
}

/// Counts the outcome and tells the gates when the client left early.
fn settle(played: io::Result<Played>, quirks: &Quirks, shared: &Shared) -> io::Result<Next> {
    match played {
        Ok(Played::Whole(next)) => {
            shared.completed.send_modify(|count| *count += 1);
            Ok(next)
        }
        Ok(Played::ClientGone) | Err(_) => {
            quirks.gates.iter().for_each(|(_, gate)| gate.mark_gone());
            shared.aborted.send_modify(|count| *count += 1);
            Ok(Next::Close)
        }
    }
}

/// A whole response with a length.
async fn respond(connection: &mut Connection, code: u16, extra: &[(String, String)], body: &Value) -> io::Result<Next> {
    let (content_type, text) = match body {
        Value::String(text) => ("text/plain; charset=utf-8", text.clone()),
        value => ("application/json", value.to_string()),
    };
    let length = text.len().to_string();
    let mut headers = vec![("Content-Type", content_type), ("Content-Length", length.as_str())];
    headers.extend(extra.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let mut response = http::head(code, &headers);
    response.extend_from_slice(text.as_bytes());
    connection.write(&response).await?;
    Ok(Next::KeepAlive)
}

async fn list_models(connection: &mut Connection, request: &Request, shared: &Shared) -> io::Result<Next> {
    let vendor = if request.header("anthropic-version").is_some() { Vendor::Anthropic } else { Vendor::OpenAi };
    if let Some(message) = key_error(vendor, request, shared) {
        return respond(connection, 401, &[], &render::error_body(vendor, 401, message)).await;
    }
    let names = shared.lock().models.clone();
    let body = match vendor {
        Vendor::OpenAi => {
            let data: Vec<Value> = names
                .iter()
                .map(|name| json!({"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "test"}))
                .collect();
            json!({"object": "list", "data": data})
        }
        Vendor::Anthropic => {
            let data: Vec<Value> = names
                .iter()
                .map(|name| {
                    json!({"type": "model", "id": name, "display_name": name, "created_at": "2024-01-01T00:00:00Z"})
                })
                .collect();
            json!({"data": data, "has_more": false, "first_id": names.first(), "last_id": names.last()})
        }
    };
    respond(connection, 200, &[], &body).await
}

/// The refusal for a missing or wrong key. The text never repeats the key.
fn key_error(vendor: Vendor, request: &Request, shared: &Shared) -> Option<&'static str> {
    let state = shared.lock();
    let key = state.key.as_deref()?;
    let given = match vendor {
        Vendor::OpenAi => request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")),
        Vendor::Anthropic => request.header("x-api-key"),
    };
    match given {
        None => Some("no api key in the request"),
        Some(given) if given != key => Some("incorrect api key"),
        Some(_) => None,
    }
}
