//! The few members of messages that the bridge looks at, and the few messages of its own.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{
    ErrorKind, ErrorObject, ErrorTable, RequestId, encode_error, encode_request, encode_result,
};

/// The method that joins a running session (ZeroClaw dialect, "Attach and reconnect").
pub(crate) const ATTACH: &str = "_zeroclaw/session/attach";
/// Tells the sender of a prompt the number of its message.
pub(crate) const ACCEPTED: &str = "_zeroclaw/session/accepted";
/// Tells how a turn ended whose prompt came over another connection.
pub(crate) const TURN_ENDED: &str = "_zeroclaw/session/turn_ended";

/// What parameters and results say about sessions; everything may be missing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Peek<'a> {
    #[serde(borrow, alias = "session_id")]
    pub(crate) session_id: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "_meta")]
    pub(crate) meta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) update: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) tool_call: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) prompt_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) request_id: Option<&'a RawValue>,
    pub(crate) seq: Option<u64>,
    #[serde(borrow)]
    pub(crate) turn: Option<Turn<'a>>,
    #[serde(borrow)]
    pub(crate) result: Option<&'a RawValue>,
    pub(crate) error: Option<ErrorObject>,
}

impl<'a> Peek<'a> {
    /// Looks into an object; what is not one says nothing.
    pub(crate) fn into(raw: Option<&'a RawValue>) -> Self {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }

    /// The sequence number of an update.
    pub(crate) fn number(&self) -> Option<u64> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Meta {
            zeroclaw: Zeroclaw,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Zeroclaw {
            seq: Option<u64>,
        }
        serde_json::from_str::<Meta>(self.meta?.get()).ok()?.zeroclaw.seq
    }

    /// Whether the update is something that a user has said.
    pub(crate) fn is_user_message(&self) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind<'a> {
            #[serde(borrow)]
            session_update: Cow<'a, str>,
        }
        self.update
            .and_then(|update| serde_json::from_str::<Kind<'_>>(update.get()).ok())
            .is_some_and(|kind| kind.session_update == "user_message_chunk")
    }

    /// The id of the tool call that a question is about.
    pub(crate) fn tool_call_id(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Call {
            tool_call_id: String,
        }
        Some(serde_json::from_str::<Call>(self.tool_call?.get()).ok()?.tool_call_id)
    }
}

/// The turn that an attach tells of.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Turn<'a> {
    #[serde(borrow)]
    pub(crate) prompt_id: &'a RawValue,
    #[serde(borrow)]
    pub(crate) state: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) error: Option<ErrorObject>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Attach<'a> {
    session_id: &'a str,
    after_seq: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resume<'a> {
    session_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Withdraw<'a> {
    request_id: &'a RawValue,
}

/// A request to join a session.
pub(crate) fn attach(id: &RequestId, session: &str, after_seq: u64) -> Vec<u8> {
    request(id, ATTACH, &Attach { session_id: session, after_seq })
}

/// A request to bring a stored session back without its history.
pub(crate) fn resume(id: &RequestId, session: &str) -> Vec<u8> {
    request(id, "session/resume", &Resume { session_id: session })
}

/// A request with these parameters.
pub(crate) fn request<T: Serialize>(id: &RequestId, method: &str, params: &T) -> Vec<u8> {
    let mut line = Vec::with_capacity(128);
    // Parameters of ours, and those that were JSON before, can be written.
    let _infallible = encode_request(&mut line, id, method, params);
    line
}

/// The same request under another id.
pub(crate) fn renamed_request(id: &RequestId, method: &str, params: Option<&RawValue>) -> Vec<u8> {
    request(id, method, &params.unwrap_or(RawValue::NULL))
}

/// An answer that was got for another id.
pub(crate) fn answer(id: &RequestId, outcome: Result<&RawValue, &ErrorObject>) -> Vec<u8> {
    let mut line = Vec::with_capacity(128);
    match outcome {
        Ok(result) => {
            let _infallible = encode_result(&mut line, id, &result);
        }
        Err(error) => encode_error(&mut line, Some(id), error),
    }
    line
}

/// An answer that the gateway will not give.
pub(crate) fn failure(id: &RequestId, why: &str) -> Vec<u8> {
    answer(id, Err(&ErrorObject::new(ErrorTable::default(), ErrorKind::Internal, why)))
}

/// Takes a question back.
pub(crate) fn withdrawal(id: &RequestId) -> Vec<u8> {
    let mut line = Vec::with_capacity(96);
    if let Ok(raw) = serde_json::from_str::<&RawValue>(id.as_json()) {
        let method = zeroclaw_acp_protocol::client::CANCEL_REQUEST;
        let _infallible = zeroclaw_acp_protocol::encode_notification(&mut line, method, &Withdraw { request_id: raw });
    }
    line
}

/// The client's `initialize`, asking for sequence numbers besides; true when the client had asked itself.
pub(crate) fn numbered(id: &RequestId, params: Option<&RawValue>) -> (Vec<u8>, bool) {
    let mut params: serde_json::Value =
        params.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_else(|| serde_json::json!({}));
    let mut at = &mut params;
    for name in ["clientCapabilities", "_meta", "zeroclaw"] {
        if !at.get(name).is_some_and(serde_json::Value::is_object)
            && let Some(object) = at.as_object_mut()
        {
            object.insert(name.to_owned(), serde_json::json!({}));
        }
        match at.get_mut(name) {
            Some(inner) => at = inner,
            // Parameters that are no object go on as they are: the gateway says what it thinks of them.
            None => return (request(id, "initialize", &params), false),
        }
    }
    let asked = at.get("seq") == Some(&serde_json::Value::Bool(true));
    if let Some(object) = at.as_object_mut() {
        object.insert("seq".to_owned(), serde_json::Value::Bool(true));
    }
    (request(id, "initialize", &params), asked)
}
