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
    let mut conversation = Conversation::default();
    for (index, message) in messages.iter().enumerate() {
        conversation.message(index, message, breaches);
    }
    conversation.answered("end of messages", breaches);
    if conversation.last != "user" {
        breaches.add("the last message is not from the user");
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
