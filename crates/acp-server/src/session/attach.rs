//! Joining a live session: what a client that comes back is told of the last turn, and what others are told of its end.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{
    ErrorKind, ErrorObject, RequestId, encode_notification,
    result::{AttachResult, TurnStatus},
};

use super::{
    audience::{JoinError, Since},
    live::LiveSession,
    pump::Pump,
    turn::Asked,
};
use crate::{
    client::{Client, lock},
    error::CallError,
};

/// Told to those that attached: how a turn ended whose prompt came over another connection.
const TURN_ENDED: &str = "_zeroclaw/session/turn_ended";

/// Told to those that attached: that the session has ended by somebody else, and why.
const CLOSED: &str = "_zeroclaw/session/closed";

/// Why a session ends.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    Closed,
    Stopped,
    Deleted,
    ServerEnding,
    Failed,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionClosed<'a> {
    session_id: &'a str,
    reason: Reason,
}

/// Tells the clients of a session that it ends, but those that are answered.
pub(super) fn closed(session: &str, pump: &Pump, reason: Reason, answered: &[&Arc<Client>]) {
    let mut line = Vec::new();
    if let Err(error) = encode_notification(&mut line, CLOSED, &SessionClosed { session_id: session, reason }) {
        tracing::error!(%error, "a notification could not be encoded");
        return;
    }
    for client in pump.clients() {
        if client.capabilities().seq && !answered.iter().any(|known| Arc::ptr_eq(known, &client)) {
            pump.hand(&client, line.clone());
        }
    }
}

/// How a turn ended, as its prompt was answered.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Ended {
    Result(Box<RawValue>),
    Error(ErrorObject),
}

/// The last prompt of a session.
#[derive(Clone, Debug)]
pub(super) struct LastTurn {
    prompt_id: Box<RawValue>,
    /// Of the client that sent it: ids of prompts are only unique for one.
    client_id: Option<Arc<str>>,
    ended: Option<Ended>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TurnEnded<'a> {
    session_id: &'a str,
    prompt_id: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<&'a str>,
    #[serde(flatten)]
    ended: &'a Ended,
}

fn raw(id: &RequestId) -> Box<RawValue> {
    serde_json::from_str(id.as_json()).unwrap_or_default()
}

/// Notes that a prompt runs. In the pump's order, like everything that is said of turns: whoever attaches is told of a
/// turn either as running, and later of its end, or as ended.
pub(super) fn began(live: &Arc<LiveSession>, pump: &Pump, asked: &Asked) {
    let (live, prompt_id, client_id) = (Arc::clone(live), raw(&asked.id), asked.client.public_id());
    pump.then(move || *lock(&live.last_turn) = Some(LastTurn { prompt_id, client_id, ended: None }));
}

/// Notes how a prompt ended, and tells the clients that it did not come from.
pub(super) fn ended(live: &Arc<LiveSession>, pump: &Arc<Pump>, asked: &Asked, ended: Ended) {
    let (live, told, asked) = (Arc::clone(live), Arc::clone(pump), asked.clone());
    pump.then(move || {
        let (prompt_id, client_id) = (raw(&asked.id), asked.client.public_id());
        let params =
            TurnEnded { session_id: &live.id, prompt_id: &prompt_id, client_id: client_id.as_deref(), ended: &ended };
        let mut line = Vec::new();
        match encode_notification(&mut line, TURN_ENDED, &params) {
            Ok(()) => {
                for client in told.clients() {
                    if client.capabilities().seq && !Arc::ptr_eq(&client, &asked.client) {
                        told.hand(&client, line.clone());
                    }
                }
            }
            Err(error) => tracing::error!(%error, "a notification could not be encoded"),
        }
        *lock(&live.last_turn) = Some(LastTurn { prompt_id, client_id, ended: Some(ended) });
    });
}

/// Sends what the client has not seen, and then the answer; from there on it gets what all get.
pub(super) fn attach(live: &Arc<LiveSession>, pump: &Pump, client: &Arc<Client>, id: RequestId, after: u64) {
    let (live, told) = (Arc::clone(live), Arc::clone(client));
    let shown = pump.clients().iter().any(|known| Arc::ptr_eq(known, client));
    pump.join(client, Since::After(after), move || {
        // As it is where the client joins: what comes of it later the client is told.
        let last = lock(&live.last_turn).clone();
        move |joined| match joined {
            Ok(seq) => {
                let turn = last.as_ref().map(|last| {
                    let (state, result, error) = match &last.ended {
                        None => ("running", None, None),
                        Some(Ended::Result(result)) => ("ended", Some(&**result), None),
                        Some(Ended::Error(error)) => ("ended", None, Some(error)),
                    };
                    TurnStatus {
                        prompt_id: &last.prompt_id,
                        client_id: last.client_id.as_deref(),
                        state,
                        result,
                        error,
                    }
                });
                told.respond(&id, Ok(&AttachResult { session_id: &live.id, seq, turn }));
            }
            Err(error) => {
                if !shown {
                    live.release(&told);
                }
                told.respond::<()>(&id, Err(&refusal(error)));
            }
        }
    });
}

/// An error as a client that asked to join is told it.
pub(super) fn refusal(error: JoinError) -> CallError {
    match error {
        JoinError::Beyond { last } => {
            CallError::params(format!("`afterSeq` is beyond the end of the log, which is {last}"))
        }
        JoinError::Damaged { seq } => {
            let message = format!("the log of the session is damaged or missing at {seq}; load the session instead");
            CallError::new(ErrorKind::Internal, message)
        }
        JoinError::Busy => CallError::new(ErrorKind::SessionBusy, "what was asked for before is still being sent"),
        JoinError::Store(error) => error.into(),
        JoinError::Panicked => CallError::new(ErrorKind::Internal, "internal error"),
    }
}
