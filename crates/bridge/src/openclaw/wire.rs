//! The gateway's protocol, version 4: frames, and the parameters of the requests that the bridge makes.
//! What is written has no member that the gateway's schemas do not know, as they refuse those; what is read may have any.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The only version of the protocol that this bridge speaks.
pub(super) const PROTOCOL: u32 = 4;

/// The longest frame that is read; the gateway's own limit for what it takes is the same.
/// Without one a frame could take all memory.
pub(super) const MAX_FRAME: usize = 25 * 1024 * 1024;

/// The longest frame that is read before the gateway has said hello: it has proved nothing yet.
pub(super) const MAX_EARLY_FRAME: usize = 64 * 1024;

/// A frame from the gateway.
#[derive(Debug)]
pub(super) enum Incoming<'a> {
    /// The answer to the request with this id.
    Response { id: Cow<'a, str>, outcome: Result<Option<&'a RawValue>, GatewayError> },
    /// Something happened. Only broadcast events are numbered.
    Event { name: Cow<'a, str>, payload: Option<&'a RawValue>, seq: Option<u64> },
    /// A kind of frame that this version does not know; newer gateways may send some.
    Unknown,
}

#[derive(Deserialize)]
struct RawFrame<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow, default)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(default)]
    ok: bool,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<GatewayError>,
    #[serde(default)]
    seq: Option<u64>,
}

impl<'a> Incoming<'a> {
    /// Reads one frame; `None` when it is none.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let raw: RawFrame<'a> = serde_json::from_str(text).ok()?;
        Some(match raw.r#type.as_ref() {
            "event" => Self::Event { name: raw.event?, payload: raw.payload, seq: raw.seq },
            "res" => {
                let outcome = match raw.error {
                    None if raw.ok => Ok(raw.payload),
                    Some(error) => Err(error),
                    // A run that failed before is answered with what is known of it in the payload.
                    None => Err(GatewayError::from_payload(raw.payload)),
                };
                Self::Response { id: raw.id?, outcome }
            }
            _ => Self::Unknown,
        })
    }
}

/// Why the gateway does not do what it was asked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GatewayError {
    pub(super) code: String,
    pub(super) message: String,
    pub(super) details: Option<ErrorDetails>,
    pub(super) retryable: bool,
    pub(super) retry_after_ms: Option<u64>,
}

/// What an error says besides; of the many members those that decide something.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ErrorDetails {
    pub(super) code: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) can_retry_with_device_token: bool,
    pub(super) recommended_next_step: Option<String>,
}

impl GatewayError {
    fn from_payload(payload: Option<&RawValue>) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Summary {
            summary: Option<String>,
            error: Option<String>,
        }
        let said: Summary = payload.and_then(read).unwrap_or_default();
        let message = said.summary.or(said.error).unwrap_or_else(|| "the gateway gives no reason".to_owned());
        Self { code: "FAILED".to_owned(), message, ..Self::default() }
    }

    /// The finer code, where there is one.
    pub(super) fn detail_code(&self) -> &str {
        self.details.as_ref().and_then(|details| details.code.as_deref()).unwrap_or_default()
    }

    /// The finer reason, where there is one.
    pub(super) fn detail_reason(&self) -> &str {
        self.details.as_ref().and_then(|details| details.reason.as_deref()).unwrap_or_default()
    }
}

/// Reads a payload; `None` when it is not of this shape.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// Writes a request.
pub(super) fn request<T: Serialize>(id: u64, method: &str, params: &T) -> String {
    #[derive(Serialize)]
    struct Request<'a, T> {
        r#type: &'static str,
        id: &'a str,
        method: &'a str,
        params: &'a T,
    }
    let request = Request { r#type: "req", id: &id.to_string(), method, params };
    // The parameters below have string keys and plain values only, so they can be written.
    serde_json::to_string(&request).unwrap_or_default()
}

/// `connect`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Connect<'a> {
    pub(super) min_protocol: u32,
    pub(super) max_protocol: u32,
    pub(super) client: Client<'a>,
    pub(super) caps: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) auth: Option<Auth<'a>>,
    pub(super) role: &'a str,
    pub(super) scopes: &'a [String],
    pub(super) device: Device<'a>,
}

/// Who connects. The id and the mode come from closed sets; this pair is what the gateway knows ACP bridges by.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Client<'a> {
    pub(super) id: &'a str,
    pub(super) display_name: &'a str,
    pub(super) version: &'a str,
    pub(super) platform: &'a str,
    pub(super) mode: &'a str,
}

/// What proves that the client may come in.
#[derive(Serialize)]
pub(super) struct Auth<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) password: Option<&'a str>,
}

/// The device that signs the challenge.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device<'a> {
    pub(super) id: &'a str,
    pub(super) public_key: &'a str,
    pub(super) signature: &'a str,
    pub(super) signed_at: u64,
    pub(super) nonce: &'a str,
}

/// `connect.challenge`
#[derive(Deserialize)]
pub(super) struct Challenge<'a> {
    #[serde(borrow)]
    pub(super) nonce: Cow<'a, str>,
    /// The gateway's clock, in milliseconds.
    #[serde(default)]
    pub(super) ts: Option<u64>,
}

/// What the gateway says when it has let the client in.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) server: Server,
    pub(super) auth: Granted,
    pub(super) policy: Policy,
    pub(super) snapshot: Snapshot,
}

/// The gateway's own version.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Server {
    pub(super) version: String,
}

/// What the client may do, and a token that is enough the next time.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Granted {
    pub(super) role: String,
    pub(super) scopes: Vec<String>,
    pub(super) device_token: Option<String>,
}

impl std::fmt::Debug for Granted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Granted").field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

/// The limits of the connection.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Policy {
    pub(super) max_payload: Option<usize>,
    pub(super) tick_interval_ms: Option<u64>,
}

/// What the gateway is like now; of it the names of the default agent and session.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Snapshot {
    pub(super) session_defaults: SessionDefaults,
}

/// See [`Snapshot`].
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SessionDefaults {
    pub(super) default_agent_id: Option<String>,
}

/// `chat.send`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatSend<'a> {
    pub(super) session_key: &'a str,
    pub(super) message: &'a str,
    pub(super) idempotency_key: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) attachments: &'a [Attachment],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deliver: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_input_provenance: Option<Provenance<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_provenance_receipt: Option<&'a str>,
}

/// A picture that goes with a message.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attachment {
    pub(super) r#type: &'static str,
    pub(super) mime_type: String,
    /// Base64.
    pub(super) content: String,
}

/// Where a message comes from.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Provenance<'a> {
    pub(super) kind: &'a str,
    pub(super) origin_session_id: &'a str,
    pub(super) source_channel: &'a str,
    pub(super) source_tool: &'a str,
}

/// `chat.abort`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatAbort<'a> {
    pub(super) session_key: &'a str,
    pub(super) run_id: &'a str,
}

/// `agent.wait`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentWait<'a> {
    pub(super) run_id: &'a str,
    pub(super) timeout_ms: u64,
}

/// Methods that only name a session by its key.
#[derive(Serialize)]
pub(super) struct Key<'a> {
    pub(super) key: &'a str,
}

/// `sessions.get`
#[derive(Serialize)]
pub(super) struct SessionsGet<'a> {
    pub(super) key: &'a str,
    pub(super) limit: u32,
}

/// `sessions.describe`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Describe<'a> {
    pub(super) key: &'a str,
    pub(super) include_derived_titles: bool,
}

/// `sessions.list`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionsList {
    pub(super) limit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offset: Option<u32>,
    pub(super) include_derived_titles: bool,
}

/// `sessions.resolve` by label.
#[derive(Serialize)]
pub(super) struct Label<'a> {
    pub(super) label: &'a str,
}

/// Requests that say nothing.
#[derive(Serialize)]
pub(super) struct Nothing {}

/// `exec.approval.get`
#[derive(Serialize)]
pub(super) struct Id<'a> {
    pub(super) id: &'a str,
}

/// `exec.approval.resolve` and `plugin.approval.resolve`
#[derive(Serialize)]
pub(super) struct Decide<'a> {
    pub(super) id: &'a str,
    pub(super) decision: &'a str,
}

/// The answer to `chat.send`. Nothing of it is certain: a word that stops the agent is answered in a shape of its own.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ChatAck {
    pub(super) run_id: Option<String>,
    pub(super) status: Option<String>,
    pub(super) aborted: Option<bool>,
    pub(super) summary: Option<String>,
}

/// The answer to `agent.wait`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WaitAnswer {
    pub(super) status: String,
    pub(super) timeout_phase: Option<String>,
    pub(super) error: Option<String>,
    pub(super) stop_reason: Option<String>,
}

/// A row of the list of sessions.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SessionRow {
    pub(super) key: String,
    pub(super) label: Option<String>,
    pub(super) display_name: Option<String>,
    pub(super) derived_title: Option<String>,
    /// Milliseconds.
    pub(super) updated_at: Option<u64>,
    pub(super) thinking_level: Option<String>,
    pub(super) thinking_levels: Vec<ThinkingLevel>,
    pub(super) thinking_default: Option<String>,
    pub(super) fast_mode: Option<serde_json::Value>,
    pub(super) verbose_level: Option<String>,
    pub(super) trace_level: Option<String>,
    pub(super) reasoning_level: Option<String>,
    pub(super) response_usage: Option<String>,
    pub(super) elevated_level: Option<String>,
    pub(super) total_tokens: Option<u64>,
    pub(super) total_tokens_fresh: bool,
    pub(super) context_tokens: Option<u64>,
    pub(super) spawned_workspace_dir: Option<String>,
    pub(super) spawned_cwd: Option<String>,
}

/// How much a model may think.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct ThinkingLevel {
    pub(super) id: String,
    pub(super) label: Option<String>,
}

#[cfg(test)]
mod tests;
