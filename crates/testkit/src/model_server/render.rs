//! From parts to the events of a vendor.
//!
//! Owns the two streaming formats: OpenAI chat completions and Anthropic messages. It refuses to decide how events are
//! written; that is `wire`.

mod anthropic;
mod openai;

use serde_json::{Value, json};

use super::reply::{Call, End, Part, Quirks};

/// Tokens reported when a reply says nothing about usage but the format or the request wants a number.
const NOMINAL_USAGE: Usage = Usage { input: 10, output: 5, cached: 0 };

/// The two families of wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    OpenAi,
    Anthropic,
}

/// One event of the stream before it is text.
pub(super) struct Event {
    /// Parts that are complete before this event.
    pub(super) parts_before: usize,
    /// Belongs to the end of the answer, not to a part.
    pub(super) finish: bool,
    /// `event:` line.
    pub(super) name: Option<&'static str>,
    /// JSON of the `data:` line; `None` is the literal `[DONE]`.
    pub(super) data: Option<Value>,
}

#[derive(Clone, Copy)]
struct Usage {
    input: u64,
    output: u64,
    cached: u64,
}

/// What a request says about its own answer.
pub(super) struct Asked {
    pub(super) model: String,
    pub(super) usage: bool,
}

impl Asked {
    pub(super) fn of(body: &Value) -> Self {
        Self {
            model: body["model"].as_str().unwrap_or_default().to_owned(),
            usage: body["stream_options"]["include_usage"].as_bool().unwrap_or(false),
        }
    }
}

/// The events of a streamed reply.
pub(super) fn events(vendor: Vendor, parts: &[Part], end: &End, quirks: &Quirks, asked: &Asked) -> Vec<Event> {
    match vendor {
        Vendor::OpenAi => openai::events(parts, end, quirks, asked),
        Vendor::Anthropic => anthropic::events(parts, end, quirks, asked),
    }
}

/// The body of an error response in the words of the vendor.
pub(super) fn error_body(vendor: Vendor, code: u16, message: &str) -> Value {
    match vendor {
        Vendor::OpenAi => {
            let (kind, name) = match code {
                401 => ("invalid_request_error", json!("invalid_api_key")),
                404 => ("invalid_request_error", json!("model_not_found")),
                429 => ("requests", json!("rate_limit_exceeded")),
                400..=499 => ("invalid_request_error", Value::Null),
                _ => ("server_error", Value::Null),
            };
            json!({"error": {"message": message, "type": kind, "param": null, "code": name}})
        }
        Vendor::Anthropic => {
            let kind = match code {
                401 => "authentication_error",
                403 => "permission_error",
                404 => "not_found_error",
                413 => "request_too_large",
                429 => "rate_limit_error",
                400..=499 => "invalid_request_error",
                529 => "overloaded_error",
                _ => "api_error",
            };
            json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_test"})
        }
    }
}

fn usage_of(parts: &[Part]) -> Usage {
    parts
        .iter()
        .rev()
        .find_map(|part| match part {
            Part::Usage { input, output, cached } => Some(Usage { input: *input, output: *output, cached: *cached }),
            Part::Text(_) | Part::Thought(_) | Part::ToolCall { .. } | Part::ToolCalls(..) | Part::Stop(_) => None,
        })
        .unwrap_or(NOMINAL_USAGE)
}

fn stop_of(parts: &[Part]) -> String {
    let stated = parts.iter().rev().find_map(|part| match part {
        Part::Stop(reason) => Some(reason.clone()),
        Part::Text(_) | Part::Thought(_) | Part::ToolCall { .. } | Part::ToolCalls(..) | Part::Usage { .. } => None,
    });
    let calls = parts.iter().any(|part| matches!(part, Part::ToolCall { .. } | Part::ToolCalls(..)));
    stated.unwrap_or_else(|| if calls { "tool_calls" } else { "stop" }.to_owned())
}

/// The calls of a part, and whether they are interleaved.
fn calls_of(part: &Part) -> Option<(Vec<Call>, bool)> {
    match part {
        Part::ToolCall { id, name, arguments } => Some((vec![Call::new(id, name, arguments)], false)),
        Part::ToolCalls(calls, parallel) => Some((calls.clone(), *parallel)),
        Part::Text(_) | Part::Thought(_) | Part::Usage { .. } | Part::Stop(_) => None,
    }
}

/// Pieces of at most `size` bytes that never cut a character; a character longer than `size` stays whole.
fn fragments(text: &str, size: Option<usize>) -> Vec<String> {
    let Some(size) = size else {
        return vec![text.to_owned()];
    };
    let mut pieces = Vec::new();
    let mut piece = String::new();
    for character in text.chars() {
        if !piece.is_empty() && piece.len() + character.len_utf8() > size {
            pieces.push(std::mem::take(&mut piece));
        }
        piece.push(character);
    }
    pieces.push(piece);
    pieces
}
