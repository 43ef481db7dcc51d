//! Error codes and error objects.
//! One kind per thing that can go wrong on the wire; a table turns kinds into numbers, because ZeroClaw and the
//! official ACP pages give some numbers different meanings.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// What went wrong, independent of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The line is not JSON.
    Parse,
    /// The JSON is not a JSON-RPC call, or the call is not allowed now.
    InvalidRequest,
    /// No such method.
    MethodNotFound,
    /// The parameters do not fit the method.
    InvalidParams,
    /// The agent failed.
    Internal,
    /// No such session, or not an active one.
    SessionNotFound,
    /// The process holds as many active sessions as it may.
    SessionLimitReached,
    /// A turn is running in this session.
    SessionBusy,
    /// The agent's model wants other credentials.
    AuthRequired,
    /// The request was cancelled by `$/cancel_request`.
    RequestCancelled,
}

impl ErrorKind {
    /// The name in `error.data.kind`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parse => "parse_error",
            Self::InvalidRequest => "invalid_request",
            Self::MethodNotFound => "method_not_found",
            Self::InvalidParams => "invalid_params",
            Self::Internal => "internal_error",
            Self::SessionNotFound => "session_not_found",
            Self::SessionLimitReached => "session_limit_reached",
            Self::SessionBusy => "session_busy",
            Self::AuthRequired => "auth_required",
            Self::RequestCancelled => "request_cancelled",
        }
    }
}

/// Which numbers the kinds have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorTable {
    /// ZeroClaw's documented numbers: -32000 not found, -32001 limit, -32002 busy.
    #[default]
    Zeroclaw,
    /// The official ACP numbers: -32002 not found, -32000 authentication required; limit and busy are positive.
    Spec,
}

/// The numbers that mean the same in both tables.
pub struct Codes;

impl Codes {
    /// The line is not JSON.
    pub const PARSE: i64 = -32700;
    /// Not a call, or not now.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Parameters do not fit.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The agent failed.
    pub const INTERNAL: i64 = -32603;
    /// Cancelled by `$/cancel_request`.
    pub const REQUEST_CANCELLED: i64 = -32800;
    /// -32002, as clients answer about files and terminals that are not there.
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
}

impl ErrorTable {
    /// The number of a kind.
    #[must_use]
    pub fn code(self, kind: ErrorKind) -> i64 {
        match (kind, self) {
            (ErrorKind::Parse, _) => Codes::PARSE,
            (ErrorKind::InvalidRequest, _) => Codes::INVALID_REQUEST,
            (ErrorKind::MethodNotFound, _) => Codes::METHOD_NOT_FOUND,
            (ErrorKind::InvalidParams, _) => Codes::INVALID_PARAMS,
            (ErrorKind::Internal, _) => Codes::INTERNAL,
            (ErrorKind::RequestCancelled, _) => Codes::REQUEST_CANCELLED,
            (ErrorKind::SessionNotFound, Self::Zeroclaw) => -32000,
            (ErrorKind::SessionLimitReached, Self::Zeroclaw) => -32001,
            (ErrorKind::SessionBusy, Self::Zeroclaw) => -32002,
            // -32000 means "session not found" in this table, so a turn that fails for credentials is an internal error with a kind.
            (ErrorKind::AuthRequired, Self::Zeroclaw) => Codes::INTERNAL,
            (ErrorKind::SessionNotFound, Self::Spec) => -32002,
            (ErrorKind::SessionLimitReached, Self::Spec) => 4290,
            (ErrorKind::SessionBusy, Self::Spec) => 4091,
            (ErrorKind::AuthRequired, Self::Spec) => -32000,
        }
    }
}

/// The `error` member of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// The number.
    pub code: i64,
    /// One sentence without secrets.
    pub message: String,
    /// More about it; absent when there is none.
    #[serde(default, deserialize_with = "own_data", skip_serializing_if = "Option::is_none")]
    pub data: Option<ErrorData>,
}

/// Reads `data` as far as it is of our shape: JSON-RPC leaves it to the sender, who may well put a text there, and that
/// must not hide the code and the message.
fn own_data<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ErrorData>, D::Error> {
    let raw = Option::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()))
}

/// The `data` member of our errors. Foreign data is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ErrorData {
    /// [`ErrorKind::as_str`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The session that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

impl ErrorObject {
    /// Makes an error of a kind with the table's number.
    #[must_use]
    pub fn new(table: ErrorTable, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            code: table.code(kind),
            message: message.into(),
            data: Some(ErrorData { kind: Some(kind.as_str().to_owned()), session_id: None }),
        }
    }

    /// Names the session that was asked for.
    #[must_use]
    pub fn with_session(mut self, id: &str) -> Self {
        self.data.get_or_insert_default().session_id = Some(id.to_owned());
        self
    }
}
