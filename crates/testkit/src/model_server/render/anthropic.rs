//! Anthropic message events.
//!
//! Owns the block structure of a streamed message: one block open at a time, indices dense, thinking signed before its
//! block closes.

use serde_json::{Value, json};

use super::{Asked, Event, calls_of, fragments, stop_of, usage_of};
use crate::model_server::{
    reply::{Call, End, Part, Quirks},
    strict::signature_for,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Text,
    Thinking,
}

struct Stream<'a> {
    events: Vec<Event>,
    quirks: &'a Quirks,
    parts: usize,
    finish: bool,
    index: usize,
    open: Option<Block>,
    /// Text of the open thinking block, for its signature.
    thinking: String,
}

pub(super) fn events(parts: &[Part], end: &End, quirks: &Quirks, asked: &Asked) -> Vec<Event> {
    let mut stream =
        Stream { events: Vec::new(), quirks, parts: 0, finish: false, index: 0, open: None, thinking: String::new() };
    stream.start(parts, asked);
    for part in parts {
        match part {
            Part::Text(text) => {
                stream.enter(Block::Text);
                stream.delta(&json!({"type": "text_delta", "text": text}));
            }
            Part::Thought(text) => {
                stream.enter(Block::Thinking);
                stream.thinking.push_str(text);
                stream.delta(&json!({"type": "thinking_delta", "thinking": text}));
            }
            Part::ToolCall { .. } | Part::ToolCalls(..) => {
                for call in calls_of(part).map(|(calls, _)| calls).unwrap_or_default() {
                    stream.call(&call);
                }
            }
            Part::Usage { .. } | Part::Stop(_) => {}
        }
        stream.parts += 1;
    }
    stream.finish = true;
    match end {
        End::Cut => {}
        End::Error(error) => {
            let body = match error.get("error") {
                Some(_) => error.clone(),
                None => json!({"type": "error", "error": error}),
            };
            stream.push("error", body);
        }
        End::Finish => stream.stop(parts),
    }
    stream.events
}

impl Stream<'_> {
    fn push(&mut self, name: &'static str, data: Value) {
        self.events.push(Event { parts_before: self.parts, finish: self.finish, name: Some(name), data: Some(data) });
    }

    fn start(&mut self, parts: &[Part], asked: &Asked) {
        let usage = usage_of(parts);
        self.push(
            "message_start",
            json!({"type": "message_start", "message": {
                "id": "msg_test",
                "type": "message",
                "role": "assistant",
                "model": asked.model,
                "content": [],
                "stop_reason": null,
                "stop_sequence": null,
                "usage": {
                    "input_tokens": usage.input.saturating_sub(usage.cached),
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": usage.cached,
                    "output_tokens": 1,
                },
            }}),
        );
        if self.quirks.empty_choices_first {
            self.push("ping", json!({"type": "ping"}));
        }
        if self.quirks.null_delta {
            self.push("ping", json!({"type": "ping"}));
        }
    }

    fn enter(&mut self, block: Block) {
        if self.open == Some(block) {
            return;
        }
        self.leave();
        let content = match block {
            Block::Text => json!({"type": "text", "text": ""}),
            Block::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
        };
        self.push(
            "content_block_start",
            json!({"type": "content_block_start", "index": self.index, "content_block": content}),
        );
        self.open = Some(block);
    }

    fn leave(&mut self) {
        let Some(block) = self.open.take() else {
            return;
        };
        if block == Block::Thinking {
            let signature = signature_for(&std::mem::take(&mut self.thinking));
            self.delta(&json!({"type": "signature_delta", "signature": signature}));
        }
        self.block_stop();
    }

    fn delta(&mut self, delta: &Value) {
        self.push("content_block_delta", json!({"type": "content_block_delta", "index": self.index, "delta": delta}));
    }

    fn block_stop(&mut self) {
        self.push("content_block_stop", json!({"type": "content_block_stop", "index": self.index}));
        self.index += 1;
    }

    fn call(&mut self, call: &Call) {
        self.leave();
        self.push(
            "content_block_start",
            json!({"type": "content_block_start", "index": self.index, "content_block": {
                "type": "tool_use", "id": call.id, "name": call.name, "input": {},
            }}),
        );
        // The vendor opens every input with an empty fragment.
        self.delta(&json!({"type": "input_json_delta", "partial_json": ""}));
        for piece in fragments(&call.arguments, self.quirks.fragment) {
            self.delta(&json!({"type": "input_json_delta", "partial_json": piece}));
        }
        self.block_stop();
    }

    fn stop(&mut self, parts: &[Part]) {
        self.leave();
        let reason = match stop_of(parts).as_str() {
            "stop" => "end_turn".to_owned(),
            "length" => "max_tokens".to_owned(),
            "tool_calls" => "tool_use".to_owned(),
            "content_filter" => "refusal".to_owned(),
            other => other.to_owned(),
        };
        self.push(
            "message_delta",
            json!({
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": null},
                "usage": {"output_tokens": usage_of(parts).output},
            }),
        );
        if !self.quirks.no_done {
            self.push("message_stop", json!({"type": "message_stop"}));
        }
    }
}
