//! Rules of chat completions.
//!
//! Owns roles, content, and the pairing of tool calls with tool results.

use std::collections::HashSet;

use serde_json::Value;

use super::{Breaches, check_tools, is_name};

const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

pub(super) fn check(body: &Value, messages: &[Value], breaches: &mut Breaches) {
    check_tools(body, breaches, |tool| (&tool["function"]["name"], tool["function"].get("parameters")));
    for (index, tool) in body["tools"].as_array().into_iter().flatten().enumerate() {
        if tool["type"] != "function" {
            breaches.add(format!("tools[{index}]: type is not `function`"));
        }
    }
    let efforts = [&body["reasoning_effort"], &body["reasoning"]["effort"]];
    if efforts.iter().any(|effort| !effort.is_null() && !EFFORTS.iter().any(|known| *effort == known)) {
        breaches.add("an effort of reasoning that is none of the known words");
    }
    let mut open: HashSet<&str> = HashSet::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        let place = format!("messages[{index}]");
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" {
            unanswered(&mut open, &place, breaches);
        }
        match role {
            "system" | "developer" | "user" => require_content(message, &place, breaches),
            "assistant" => assistant(message, &place, &mut open, &mut seen, breaches),
            "tool" => {
                require_content(message, &place, breaches);
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                if !open.remove(id) {
                    breaches.add(format!("{place}: tool result for {id:?}, which no preceding call is waiting for"));
                }
            }
            other => breaches.add(format!("{place}: role {other:?} is not valid")),
        }
        if role != "assistant" && message.get("tool_calls").is_some() {
            breaches.add(format!("{place}: `tool_calls` on role {role}"));
        }
    }
    unanswered(&mut open, "end of messages", breaches);
}

fn unanswered(open: &mut HashSet<&str>, place: &str, breaches: &mut Breaches) {
    let mut ids: Vec<&str> = open.drain().collect();
    ids.sort_unstable();
    for id in ids {
        breaches.add(format!("{place}: tool call {id:?} has no tool result before this point"));
    }
}

fn require_content(message: &Value, place: &str, breaches: &mut Breaches) {
    match &message["content"] {
        Value::String(_) => {}
        Value::Array(parts) if !parts.is_empty() => content_parts(parts, place, breaches),
        _ => breaches.add(format!("{place}: content is neither a string nor a non-empty array")),
    }
}

fn content_parts(parts: &[Value], place: &str, breaches: &mut Breaches) {
    for (index, part) in parts.iter().enumerate() {
        let sound = match part["type"].as_str() {
            Some("text") => part["text"].is_string(),
            Some("image_url") => part["image_url"]["url"].as_str().is_some_and(|url| !url.is_empty()),
            Some("input_audio") => part["input_audio"]["data"].is_string(),
            Some("file") => part["file"].is_object(),
            Some("refusal") => part["refusal"].is_string(),
            _ => false,
        };
        if !sound {
            breaches.add(format!("{place}.content[{index}]: not a valid part"));
        }
    }
}

fn assistant<'a>(
    message: &'a Value,
    place: &str,
    open: &mut HashSet<&'a str>,
    seen: &mut HashSet<&'a str>,
    breaches: &mut Breaches,
) {
    let Some(calls) = message.get("tool_calls") else {
        require_content(message, place, breaches);
        return;
    };
    match &message["content"] {
        Value::Null => {}
        Value::String(text) if text.is_empty() => {
            breaches.add(format!("{place}: content is an empty string next to tool_calls"));
        }
        Value::String(_) => {}
        Value::Array(parts) if !parts.is_empty() => content_parts(parts, place, breaches),
        _ => breaches.add(format!("{place}: content next to tool_calls is not null, text or parts")),
    }
    let Some(calls) = calls.as_array().filter(|calls| !calls.is_empty()) else {
        breaches.add(format!("{place}: `tool_calls` is not a non-empty array"));
        return;
    };
    for (index, call) in calls.iter().enumerate() {
        let place = format!("{place}.tool_calls[{index}]");
        if call["type"] != "function" {
            breaches.add(format!("{place}: type is not `function`"));
        }
        match call["id"].as_str().filter(|id| !id.is_empty()) {
            Some(id) => {
                if !seen.insert(id) {
                    breaches.add(format!("{place}: id {id:?} was used before"));
                }
                open.insert(id);
            }
            None => breaches.add(format!("{place}: id is not a non-empty string")),
        }
        if !call["function"]["name"].as_str().is_some_and(is_name) {
            breaches.add(format!("{place}: name does not match ^[a-zA-Z0-9_-]{{1,64}}$"));
        }
        let arguments = call["function"]["arguments"].as_str();
        let parsed = arguments.and_then(|text| serde_json::from_str::<Value>(text).ok());
        if !parsed.is_some_and(|value| value.is_object()) {
            breaches.add(format!("{place}: arguments are not the text of a JSON object"));
        }
    }
}
