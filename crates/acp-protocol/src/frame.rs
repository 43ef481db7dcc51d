//! The JSON-RPC 2.0 envelope, read in one pass without building a tree; parameters and results stay raw.
//! What is not a call or a response is told apart exactly, because each case has its own answer (JSON-RPC 2.0 section 5.1,
//! ZeroClaw dialect "Framing").

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{Codes, ErrorKind, ErrorObject, ErrorTable};

/// A request's id, kept as the JSON text it came in, so that it is echoed unchanged: strings, integers of any size, null.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// The id as JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Makes an id that is a JSON string; `text` must need no escaping.
    #[must_use]
    pub fn from_plain_text(text: &str) -> Self {
        Self(format!("\"{text}\"").into_boxed_str())
    }

    /// Makes an id that is a JSON number.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        Self(number.to_string().into_boxed_str())
    }

    /// Takes a raw JSON value as an id: strings, numbers and null are; anything else is not.
    fn from_raw(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        match text.as_bytes().first()? {
            b'"' | b'-' | b'0'..=b'9' | b'n' => Some(Self(text.into())),
            _ => None,
        }
    }
}

/// One message.
#[derive(Debug)]
pub enum Frame<'a> {
    /// A call that wants an answer. `id: null` is one too.
    Request {
        /// To be echoed.
        id: RequestId,
        /// The method's name, unescaped.
        method: Cow<'a, str>,
        /// The parameters, unparsed; absent when the member is.
        params: Option<&'a RawValue>,
    },
    /// A call without an `id` member; never answered.
    Notification {
        /// The method's name, unescaped.
        method: Cow<'a, str>,
        /// The parameters, unparsed; absent when the member is.
        params: Option<&'a RawValue>,
    },
    /// The answer to a request of ours.
    Response {
        /// The id we gave it.
        id: RequestId,
        /// What it says.
        outcome: ResponseOutcome<'a>,
    },
}

/// What a response says.
#[derive(Debug)]
pub enum ResponseOutcome<'a> {
    /// The `result` member, unparsed.
    Result(&'a RawValue),
    /// The `error` member; a malformed one keeps what could be read.
    Error(ErrorObject),
}

/// Why a line is not a [`Frame`], and how to answer it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// -32700 or -32600.
    pub code: i64,
    /// The id to answer with; `None` is null.
    pub id: Option<RequestId>,
    /// One sentence.
    pub message: &'static str,
    /// Nothing is answered: it looked like a response, and a response is never answered.
    pub silent: bool,
}

impl<'a> Frame<'a> {
    /// Reads one line without its terminator.
    ///
    /// # Errors
    /// [`FrameError`] says how the line is to be answered.
    pub fn parse(line: &'a [u8]) -> Result<Self, FrameError> {
        let text = std::str::from_utf8(line).map_err(|_| FrameError::invalid(None, "the line is not valid UTF-8"))?;
        let shape: Shape<'a> = serde_json::from_str(text).map_err(|_| FrameError {
            code: Codes::PARSE,
            id: None,
            message: "the line is not valid JSON",
            silent: false,
        })?;
        match shape {
            Shape::Object(members) => members.classify(),
            Shape::Array => Err(FrameError::invalid(None, "batches are not supported: send one message per line")),
            Shape::Scalar => Err(FrameError::invalid(None, "a message is a JSON object")),
        }
    }
}

impl FrameError {
    fn invalid(id: Option<RequestId>, message: &'static str) -> Self {
        Self { code: Codes::INVALID_REQUEST, id, message, silent: false }
    }

    /// The answer's error object.
    #[must_use]
    pub fn to_error(&self) -> ErrorObject {
        let kind = if self.code == Codes::PARSE { ErrorKind::Parse } else { ErrorKind::InvalidRequest };
        // Both have the same number in every table.
        ErrorObject::new(ErrorTable::default(), kind, self.message)
    }
}

#[derive(Default)]
struct Members<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'a> Members<'a> {
    fn classify(self) -> Result<Frame<'a>, FrameError> {
        let usable = self.id.and_then(RequestId::from_raw);
        let version = self.jsonrpc.is_some_and(|raw| raw.get() == "\"2.0\"" || unescape(raw).as_deref() == Some("2.0"));
        let Some(method) = self.method else {
            return self.classify_response(usable, version);
        };
        if !version {
            return Err(FrameError::invalid(usable, "`jsonrpc` must be \"2.0\""));
        }
        let Some(method) = unescape(method) else {
            return Err(FrameError::invalid(usable, "`method` must be a string"));
        };
        // `params: null` means the same as no params: official clients send both.
        let params = self.params.filter(|raw| raw.get() != "null");
        if params.is_some_and(|raw| !raw.get().starts_with(['{', '['])) {
            return Err(FrameError::invalid(usable, "`params` must be an object or an array"));
        }
        match (self.id, usable) {
            (None, _) => Ok(Frame::Notification { method, params }),
            (Some(_), Some(id)) => Ok(Frame::Request { id, method, params }),
            (Some(_), None) => Err(FrameError::invalid(None, "`id` must be a string, a number or null")),
        }
    }

    fn classify_response(self, usable: Option<RequestId>, version: bool) -> Result<Frame<'a>, FrameError> {
        if self.result.is_none() && self.error.is_none() {
            return Err(FrameError::invalid(usable, "the message has neither `method` nor `result` nor `error`"));
        }
        let silent = || FrameError { silent: true, ..FrameError::invalid(None, "the message is a malformed response") };
        let id = usable.filter(|_| version).ok_or_else(silent)?;
        // Several JSON-RPC libraries write both members and leave the unused one null.
        let error = self.error.filter(|error| self.result.is_none() || error.get() != "null");
        let outcome = match (self.result, error) {
            (Some(result), None) => ResponseOutcome::Result(result),
            (_, Some(error)) => ResponseOutcome::Error(serde_json::from_str(error.get()).unwrap_or(ErrorObject {
                code: Codes::INTERNAL,
                message: "the peer sent a malformed error".to_owned(),
                data: None,
            })),
            (None, None) => return Err(silent()),
        };
        Ok(Frame::Response { id, outcome })
    }
}

/// The text of a JSON string, borrowed when it has no escapes.
fn unescape(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get();
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { serde_json::from_str(text).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

enum Shape<'a> {
    Object(Members<'a>),
    Array,
    Scalar,
}

impl<'de: 'a, 'a> Deserialize<'de> for Shape<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Members::default();
        while let Some(key) = map.next_key::<Key>()? {
            let slot = match key {
                Key::Jsonrpc => &mut members.jsonrpc,
                Key::Id => &mut members.id,
                Key::Method => &mut members.method,
                Key::Params => &mut members.params,
                Key::Result => &mut members.result,
                Key::Error => &mut members.error,
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *slot = Some(map.next_value()?);
        }
        Ok(Shape::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Shape::Array)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Shape::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Shape::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Shape::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Shape::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Shape::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Shape::Scalar)
    }
}

enum Key {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a member name")
    }

    fn visit_str<E>(self, text: &str) -> Result<Key, E> {
        Ok(match text {
            "jsonrpc" => Key::Jsonrpc,
            "id" => Key::Id,
            "method" => Key::Method,
            "params" => Key::Params,
            "result" => Key::Result,
            "error" => Key::Error,
            _ => Key::Other,
        })
    }
}
