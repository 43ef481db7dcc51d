//! The rules a request must keep.
//!
//! Owns every check of request bodies. Each breach is a sentence that names the place; the caller records all of them
//! and answers with the first. It refuses to be lenient where any known vendor is strict.

mod anthropic;
mod openai;

use std::collections::HashSet;

use serde_json::Value;

use super::{http::Request, render::Vendor};

/// Longest content of a message, in characters; OpenAI refuses more.
pub const MAX_CONTENT_CHARS: usize = 10_485_760;
/// Most tools in a request; OpenAI refuses more.
const MAX_TOOLS: usize = 128;

/// The signature that closes a thinking block of this text, and the only one accepted when the block comes back.
#[must_use]
pub fn signature_for(thinking: &str) -> String {
    // FNV-1a: enough to notice a changed text, and needs no dependency.
    let hash = thinking
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("sig-{:x}-{hash:016x}", thinking.len())
}

/// Every breach in a request, in the order found.
pub(super) fn check(vendor: Vendor, request: &Request, body: &Value) -> Vec<String> {
    let mut breaches = Breaches::default();
    if !request.header("content-type").is_some_and(|kind| kind.starts_with("application/json")) {
        breaches.add("content-type is not application/json");
    }
    if !body.is_object() {
        breaches.add("the body is not a JSON object");
        return breaches.0;
    }
    if body["stream"] != Value::Bool(true) {
        breaches.add("`stream` is not true");
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        breaches.add("`model` is not a non-empty string");
    }
    match body["messages"].as_array() {
        Some(messages) if !messages.is_empty() => {
            for (index, message) in messages.iter().enumerate() {
                if content_chars(&message["content"]) > MAX_CONTENT_CHARS {
                    breaches.add(format!("messages[{index}]: content over {MAX_CONTENT_CHARS} characters"));
                }
            }
            match vendor {
                Vendor::OpenAi => openai::check(body, messages, &mut breaches),
                Vendor::Anthropic => anthropic::check(request, body, messages, &mut breaches),
            }
        }
        _ => breaches.add("`messages` is not a non-empty array"),
    }
    breaches.0
}

/// A sentence about the first message whose content is empty, however that is written.
pub(super) fn empty_content(body: &Value) -> Option<String> {
    let empty = |content: &Value| match content {
        Value::String(text) => text.is_empty(),
        Value::Array(parts) => parts.is_empty() || parts.iter().any(|part| part["text"] == ""),
        _ => false,
    };
    let messages = body["messages"].as_array()?;
    let at = messages.iter().position(|message| empty(&message["content"]))?;
    Some(format!("messages[{at}]: empty content"))
}

#[derive(Default)]
struct Breaches(Vec<String>);

impl Breaches {
    fn add(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }
}

/// `^[a-zA-Z0-9_-]{1,64}$`.
fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

fn content_chars(content: &Value) -> usize {
    match content {
        Value::String(text) => text.chars().count(),
        Value::Array(parts) => {
            parts.iter().map(|part| content_chars(&part["text"]) + content_chars(&part["content"])).sum()
        }
        _ => 0,
    }
}

/// Checks a list of tools; `split` takes one entry apart into its name and its schema.
fn check_tools<'a>(
    body: &'a Value,
    breaches: &mut Breaches,
    split: impl Fn(&'a Value) -> (&'a Value, Option<&'a Value>),
) {
    let Some(tools) = body.get("tools") else {
        if body.get("tool_choice").is_some() {
            breaches.add("`tool_choice` without `tools`");
        }
        return;
    };
    let Some(tools) = tools.as_array().filter(|tools| !tools.is_empty()) else {
        breaches.add("`tools` is not a non-empty array");
        return;
    };
    if tools.len() > MAX_TOOLS {
        breaches.add(format!("more than {MAX_TOOLS} tools"));
    }
    let mut names = HashSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let (name, schema) = split(tool);
        match name.as_str() {
            Some(name) if is_name(name) => {
                if !names.insert(name) {
                    breaches.add(format!("tools[{index}]: second tool named {name}"));
                }
            }
            _ => breaches.add(format!("tools[{index}]: name {name} does not match ^[a-zA-Z0-9_-]{{1,64}}$")),
        }
        if let Some(schema) = schema {
            if schema["type"] != "object" {
                breaches.add(format!("tools[{index}]: the parameters are not a JSON Schema of type object"));
            }
            check_schema(schema, &format!("tools[{index}]"), breaches);
        }
    }
}

/// The structure of a JSON Schema, as far as the vendors look at it.
fn check_schema(schema: &Value, place: &str, breaches: &mut Breaches) {
    let Some(object) = schema.as_object() else {
        if !schema.is_boolean() {
            breaches.add(format!("{place}: a schema is neither an object nor a boolean"));
        }
        return;
    };
    if let Some(properties) = object.get("properties") {
        match properties.as_object() {
            Some(properties) => {
                for (name, property) in properties {
                    check_schema(property, &format!("{place}.{name}"), breaches);
                }
            }
            None => breaches.add(format!("{place}: `properties` is not an object")),
        }
    }
    if let Some(required) = object.get("required") {
        let names = required.as_array().filter(|names| names.iter().all(Value::is_string));
        match names {
            Some(names) => {
                for name in names.iter().filter_map(Value::as_str) {
                    if object.get("properties").and_then(|properties| properties.get(name)).is_none() {
                        breaches.add(format!("{place}: required property {name} is not declared"));
                    }
                }
            }
            None => breaches.add(format!("{place}: `required` is not an array of strings")),
        }
    }
    if let Some(items) = object.get("items") {
        check_schema(items, &format!("{place}[]"), breaches);
    } else if object.get("type").is_some_and(|kind| kind == "array") {
        breaches.add(format!("{place}: an array without `items`"));
    }
}
