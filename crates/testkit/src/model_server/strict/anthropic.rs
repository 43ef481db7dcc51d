//! Rules of the messages API.
//!
//! Owns the alternation of roles, the shape of blocks, the pairing of `tool_use` with `tool_result`, and the signatures
//! of thinking blocks.

use std::collections::HashSet;

use serde_json::Value;

use super::{Breaches, check_tools, is_name, signature_for};
use crate::model_server::http::Request;

pub(super) fn check(request: &Request, body: &Value, messages: &[Value], breaches: &mut Breaches) {
    if request.header("anthropic-version").is_none() {
        breaches.add("no `anthropic-version` header");
    }
    if body["max_tokens"].as_u64().is_none_or(|count| count == 0) {
        breaches.add("`max_tokens` is not a positive integer");
    }
    match body.get("system") {
        None => {}
        Some(Value::String(text)) if !text.is_empty() => {}
        Some(Value::Array(blocks)) if !blocks.is_empty() && blocks.iter().all(is_text) => {}
        Some(_) => breaches.add("`system` is neither text nor a list of text blocks"),
    }
    for (index, tool) in body["tools"].as_array().into_iter().flatten().enumerate() {
        if tool.get("input_schema").is_none() {
            breaches.add(format!("tools[{index}]: no `input_schema`"));
        }
    }
    check_tools(body, breaches, |tool| (&tool["name"], tool.get("input_schema")));
    thinking(body, messages, breaches);
    cache_marks(body, breaches);
    let mut conversation = Conversation::default();
    for (index, message) in messages.iter().enumerate() {
        conversation.message(index, message, breaches);
    }
    conversation.answered("end of messages", breaches);
    if conversation.last != "user" {
        breaches.add("the last message is not from the user");
    }
}

/// Fewest tokens of a thinking budget.
const LEAST_BUDGET: u64 = 1024;
/// Most blocks with a `cache_control`.
const MAX_CACHE_MARKS: usize = 4;

fn thinking(body: &Value, messages: &[Value], breaches: &mut Breaches) {
    let kind = match body.get("thinking") {
        None => return,
        Some(thinking) => thinking["type"].as_str().unwrap_or_default(),
    };
    match kind {
        "disabled" => return,
        "adaptive" => {}
        "enabled" => {
            let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or(0);
            if budget < LEAST_BUDGET || budget >= body["max_tokens"].as_u64().unwrap_or(0) {
                breaches.add("`thinking.budget_tokens` is not between 1024 and `max_tokens`");
            }
        }
        other => breaches.add(format!("thinking of type {other:?}")),
    }
    if body.get("temperature").is_some_and(|temperature| *temperature != 1) {
        breaches.add("`temperature` beside thinking");
    }
    // Within a tool loop each answer begins with the thought it was made from.
    let is_result = |message: &Value| message["content"][0]["type"] == "tool_result";
    let running = messages.iter().rposition(|message| message["role"] == "user" && !is_result(message)).unwrap_or(0);
    for (index, message) in
        messages.iter().enumerate().skip(running).filter(|(_, message)| message["role"] == "assistant")
    {
        if !matches!(message["content"][0]["type"].as_str(), Some("thinking" | "redacted_thinking")) {
            breaches.add(format!("messages[{index}]: expected a thinking block at the start, as thinking is on"));
        }
    }
}

fn cache_marks(value: &Value, breaches: &mut Breaches) {
    fn collect<'a>(value: &'a Value, marks: &mut Vec<&'a Value>) {
        match value {
            Value::Object(members) => {
                marks.extend(members.get("cache_control"));
                // What a tool is given and what its schema says are not blocks.
                let blocks = members.iter().filter(|(name, _)| !matches!(name.as_str(), "input" | "input_schema"));
                blocks.for_each(|(_, member)| collect(member, marks));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, marks)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut marks = Vec::new();
    collect(value, &mut marks);
    if marks.len() > MAX_CACHE_MARKS {
        breaches.add(format!("{} blocks with `cache_control`, at most {MAX_CACHE_MARKS} are allowed", marks.len()));
    }
    if marks.iter().any(|mark| mark["type"] != "ephemeral") {
        breaches.add("a `cache_control` that is not of type `ephemeral`");
    }
}

fn is_text(block: &Value) -> bool {
    block["type"] == "text" && block["text"].as_str().is_some_and(|text| !text.is_empty())
}

/// What the messages so far leave open. User messages in a row count as one turn, as they do for the vendor.
#[derive(Default)]
struct Conversation<'a> {
    last: &'a str,
    open: HashSet<&'a str>,
    seen: HashSet<&'a str>,
    /// The running user turn has shown something other than a tool result.
    past_results: bool,
}

impl<'a> Conversation<'a> {
    fn message(&mut self, index: usize, message: &'a Value, breaches: &mut Breaches) {
        let place = format!("messages[{index}]");
        let role = message["role"].as_str().unwrap_or_default();
        match role {
            "user" => {
                if self.last != "user" {
                    self.past_results = false;
                }
            }
            "assistant" => {
                if self.last.is_empty() {
                    breaches.add(format!("{place}: the first message is not from the user"));
                }
                if self.last == "assistant" {
                    breaches.add(format!("{place}: two assistant messages in a row"));
                }
                self.answered(&place, breaches);
            }
            "system" => breaches.add(format!("{place}: system text belongs to the top level")),
            other => breaches.add(format!("{place}: role {other:?} is not valid")),
        }
        self.last = role;
        match &message["content"] {
            Value::String(text) => {
                if text.is_empty() {
                    breaches.add(format!("{place}: content is empty"));
                }
                self.other_block(&place, breaches);
            }
            Value::Array(blocks) if !blocks.is_empty() => {
                for (at, block) in blocks.iter().enumerate() {
                    self.block(role, &format!("{place}.content[{at}]"), block, breaches);
                }
                let thinking = |block: &Value| block["type"] == "thinking" || block["type"] == "redacted_thinking";
                if blocks.iter().skip_while(|block| thinking(block)).any(thinking) {
                    breaches.add(format!("{place}: a thinking block after another block"));
                }
            }
            _ => breaches.add(format!("{place}: content is neither text nor a non-empty list of blocks")),
        }
    }

    fn answered(&mut self, place: &str, breaches: &mut Breaches) {
        let mut ids: Vec<&str> = self.open.drain().collect();
        ids.sort_unstable();
        for id in ids {
            breaches.add(format!("{place}: tool_use {id:?} has no tool_result before this point"));
        }
    }

    /// A user block that is not a tool result ends the place where results may stand.
    fn other_block(&mut self, place: &str, breaches: &mut Breaches) {
        if self.last == "user" {
            self.answered(place, breaches);
            self.past_results = true;
        }
    }

    fn block(&mut self, role: &str, place: &str, block: &'a Value, breaches: &mut Breaches) {
        match (role, block["type"].as_str().unwrap_or_default()) {
            ("user" | "assistant", "text") => {
                if !is_text(block) {
                    breaches.add(format!("{place}: a text block without text"));
                }
                self.other_block(place, breaches);
            }
            ("user", "image" | "document") => {
                if !block["source"]["type"].is_string() {
                    breaches.add(format!("{place}: no source"));
                }
                self.other_block(place, breaches);
            }
            ("user", "tool_result") => {
                let id = block["tool_use_id"].as_str().unwrap_or_default();
                if !self.open.remove(id) {
                    breaches
                        .add(format!("{place}: tool_result for {id:?}, which no preceding tool_use is waiting for"));
                }
                if self.past_results {
                    breaches.add(format!("{place}: a tool_result after another block of the user"));
                }
                if !matches!(block.get("content"), None | Some(Value::String(_) | Value::Array(_))) {
                    breaches.add(format!("{place}: the content of a tool_result is neither text nor blocks"));
                }
            }
            ("assistant", "tool_use") => self.tool_use(place, block, breaches),
            ("assistant", "thinking") => {
                let text = block["thinking"].as_str();
                if text.map(signature_for).as_deref() != block["signature"].as_str() || text.is_none() {
                    breaches.add(format!("{place}: the signature does not belong to this thinking"));
                }
            }
            ("assistant", "redacted_thinking") => {
                if !block["data"].is_string() {
                    breaches.add(format!("{place}: redacted thinking without data"));
                }
            }
            (role, kind) => breaches.add(format!("{place}: block {kind:?} is not valid for role {role:?}")),
        }
    }

    fn tool_use(&mut self, place: &str, block: &'a Value, breaches: &mut Breaches) {
        let id = block["id"].as_str().unwrap_or_default();
        if !is_name(id) {
            breaches.add(format!("{place}: id {id:?} is not valid"));
        }
        if !self.seen.insert(id) {
            breaches.add(format!("{place}: id {id:?} was used before"));
        }
        self.open.insert(id);
        if !block["name"].as_str().is_some_and(is_name) {
            breaches.add(format!("{place}: name does not match ^[a-zA-Z0-9_-]{{1,64}}$"));
        }
        if !block["input"].is_object() {
            breaches.add(format!("{place}: input is not an object"));
        }
    }
}
