//! Chat completion chunks.
//!
//! Owns the shape of `chat.completion.chunk` events; refuses everything that is not a delta of choice 0.

use serde_json::{Value, json};

use super::{Asked, Event, calls_of, fragments, stop_of, usage_of};
use crate::model_server::reply::{Call, End, Part, Quirks};

struct Stream<'a> {
    events: Vec<Event>,
    quirks: &'a Quirks,
    asked: &'a Asked,
    parts: usize,
    calls: usize,
    finish: bool,
}

pub(super) fn events(parts: &[Part], end: &End, quirks: &Quirks, asked: &Asked) -> Vec<Event> {
    let mut stream = Stream { events: Vec::new(), quirks, asked, parts: 0, calls: 0, finish: false };
    stream.open();
    for part in parts {
        match part {
            Part::Text(text) => stream.delta(&json!({"content": text})),
            Part::Thought(text) => stream.delta(&json!({"reasoning_content": text})),
            Part::ToolCall { .. } | Part::ToolCalls(..) => {
                if let Some((calls, parallel)) = calls_of(part) {
                    stream.calls(&calls, parallel);
                }
            }
            Part::Usage { .. } | Part::Stop(_) => {}
        }
        stream.parts += 1;
    }
    stream.finish = true;
    match end {
        End::Cut => {}
        End::Error(error) if error.get("error").is_some() => stream.push(Some(error.clone())),
        End::Error(error) => stream.push(Some(json!({"error": error}))),
        End::Finish => stream.close(parts),
    }
    stream.events
}

impl Stream<'_> {
    fn push(&mut self, data: Option<Value>) {
        self.events.push(Event { parts_before: self.parts, finish: self.finish, name: None, data });
    }

    fn chunk(&mut self, choices: &Value, usage: Option<Value>) {
        let mut chunk = json!({
            "id": "chatcmpl-test",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": self.asked.model,
            "choices": choices,
        });
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        } else if self.asked.usage {
            chunk["usage"] = Value::Null;
        }
        self.push(Some(chunk));
    }

    fn delta(&mut self, delta: &Value) {
        self.chunk(&json!([{"index": 0, "delta": delta, "finish_reason": null}]), None);
    }

    fn open(&mut self) {
        if self.quirks.empty_choices_first {
            self.chunk(&json!([]), None);
        }
        self.delta(&json!({"role": "assistant", "content": ""}));
        if self.quirks.null_delta {
            self.delta(&Value::Null);
            self.delta(&json!({"content": null}));
        }
    }

    fn close(&mut self, parts: &[Part]) {
        self.chunk(&json!([{"index": 0, "delta": {}, "finish_reason": stop_of(parts)}]), None);
        if self.asked.usage || self.quirks.usage_chunk {
            let usage = usage_of(parts);
            let usage = json!({
                "prompt_tokens": usage.input,
                "completion_tokens": usage.output,
                "total_tokens": usage.input + usage.output,
                "prompt_tokens_details": {"cached_tokens": usage.cached},
            });
            self.chunk(&json!([]), Some(usage));
        }
        if !self.quirks.no_done {
            self.push(None);
        }
    }

    fn calls(&mut self, calls: &[Call], parallel: bool) {
        let first = self.calls;
        self.calls += calls.len();
        let open = |index: usize, call: &Call| {
            json!({
                "index": first + index,
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": ""},
            })
        };
        let pieces: Vec<Vec<String>> =
            calls.iter().map(|call| fragments(&call.arguments, self.quirks.fragment)).collect();
        if parallel {
            let opened: Vec<Value> = calls.iter().enumerate().map(|(index, call)| open(index, call)).collect();
            self.delta(&json!({"tool_calls": opened}));
            for round in 0..pieces.iter().map(Vec::len).max().unwrap_or(0) {
                for (index, call) in calls.iter().enumerate() {
                    if let Some(piece) = pieces[index].get(round) {
                        self.fragment(first + index, call, piece);
                    }
                }
            }
        } else {
            for (index, call) in calls.iter().enumerate() {
                self.delta(&json!({"tool_calls": [open(index, call)]}));
                for piece in &pieces[index] {
                    self.fragment(first + index, call, piece);
                }
            }
        }
    }

    fn fragment(&mut self, index: usize, call: &Call, piece: &str) {
        let mut function = json!({"arguments": piece});
        if self.quirks.repeat_name {
            function["name"] = json!(call.name);
        }
        self.delta(&json!({"tool_calls": [{"index": index, "function": function}]}));
    }
}
