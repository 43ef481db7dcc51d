//! The envelope, read in one pass, against a slow reader that builds the whole tree first.

use serde_json::{Map, Value};
use zeroclaw_acp_protocol::{Frame, FrameError, RequestId, ResponseOutcome};

use crate::Input;

const KEYS: &[&str] = &["jsonrpc", "id", "method", "params", "result", "error", "m\\u0065thod", "\\u0069d", "x", ""];

const VALUES: &[&str] = &[
    "\"2.0\"",
    "\"2\\u002e0\"",
    "\"1.0\"",
    "2.0",
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "9007199254740993",
    "\"a\"",
    "\"\"",
    "\"session/new\"",
    "\"session\\/new\"",
    "[]",
    "{}",
    "[1,{\"id\":2}]",
    "{\"a\":[null]}",
    "{\"code\":1,\"message\":\"m\"}",
];

const JUNK: &[&str] = &["", " ", ",", "}", "{", "[", "]", "x", "\"", ":", "null"];

fn text(input: &mut Input<'_>) -> String {
    if input.roll(12) == 0 {
        return (0..input.roll(6)).map(|_| format!("{}{}", input.pick(JUNK), input.pick(VALUES))).collect();
    }
    let members: Vec<String> =
        (0..input.roll(8)).map(|_| format!("\"{}\":{}", input.pick(KEYS), input.pick(VALUES))).collect();
    let space = input.pick(&["", " ", "\t"]);
    let mut text = format!("{{{space}{}{space}}}", members.join(input.pick(&[",", " , "])));
    if input.roll(12) == 0 {
        text.push_str(input.pick(JUNK));
    }
    text
}

/// What the line is, in words that compare.
#[derive(Debug, PartialEq)]
enum Seen {
    Parse,
    Invalid(Option<String>),
    Silent,
    Request(String, String, Option<Value>),
    Notification(String, Option<Value>),
    Result(String, Value),
    Error(String),
}

/// An id comes back as it was written; for the comparison it is written in one way.
fn canonical(id: &RequestId) -> String {
    serde_json::from_str::<Value>(id.as_json()).expect("an id is JSON").to_string()
}

fn seen(line: &str) -> Seen {
    let value = |raw: &serde_json::value::RawValue| serde_json::from_str(raw.get()).expect("what is kept is JSON");
    match Frame::parse(line.as_bytes()) {
        Ok(Frame::Request { id, method, params }) => {
            Seen::Request(canonical(&id), method.into_owned(), params.map(value))
        }
        Ok(Frame::Notification { method, params }) => Seen::Notification(method.into_owned(), params.map(value)),
        Ok(Frame::Response { id, outcome: ResponseOutcome::Result(result) }) => {
            Seen::Result(canonical(&id), value(result))
        }
        Ok(Frame::Response { id, outcome: ResponseOutcome::Error(_) }) => Seen::Error(canonical(&id)),
        Err(FrameError { silent: true, .. }) => Seen::Silent,
        Err(FrameError { code: -32700, .. }) => Seen::Parse,
        Err(FrameError { id, .. }) => Seen::Invalid(id.map(|id| canonical(&id))),
    }
}

/// The specification, case by case, on the tree.
fn expected(line: &str) -> Seen {
    let Ok(value) = serde_json::from_str::<Value>(line) else { return Seen::Parse };
    let Value::Object(object) = value else { return Seen::Invalid(None) };
    let id = object.get("id").filter(|id| id.is_string() || id.is_number() || id.is_null()).map(Value::to_string);
    let is_two = object.get("jsonrpc") == Some(&Value::from("2.0"));
    match object.get("method") {
        Some(Value::String(method)) if is_two => call(&object, id, method),
        Some(_) => Seen::Invalid(id),
        None => answer(&object, id, is_two),
    }
}

fn call(object: &Map<String, Value>, id: Option<String>, method: &str) -> Seen {
    let params = object.get("params").filter(|params| !params.is_null()).cloned();
    if params.as_ref().is_some_and(|params| !params.is_object() && !params.is_array()) {
        return Seen::Invalid(id);
    }
    match (object.contains_key("id"), id) {
        (false, _) => Seen::Notification(method.to_owned(), params),
        (true, Some(id)) => Seen::Request(id, method.to_owned(), params),
        (true, None) => Seen::Invalid(None),
    }
}

fn answer(object: &Map<String, Value>, id: Option<String>, is_two: bool) -> Seen {
    let (result, error) = (object.get("result"), object.get("error"));
    match (result, error, id.clone().filter(|_| is_two)) {
        (None, None, _) => Seen::Invalid(id),
        (_, _, None) => Seen::Silent,
        (Some(result), None | Some(Value::Null), Some(id)) => Seen::Result(id, result.clone()),
        (_, Some(_), Some(id)) => Seen::Error(id),
    }
}

/// See the module.
pub(crate) fn reference(bytes: &[u8]) {
    let line = text(&mut Input::new(bytes));
    assert_eq!(seen(&line), expected(&line), "{line}");
    // Bytes as they are: no panic, and what is not UTF-8 is no message.
    if let Ok(frame) = Frame::parse(bytes) {
        assert!(std::str::from_utf8(bytes).is_ok(), "{frame:?}");
    }
}
