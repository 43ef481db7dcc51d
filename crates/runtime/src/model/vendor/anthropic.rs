//! Anthropic's messages, and servers that speak like it.
//!
//! Signed thoughts are sent back while their turn runs, as the vendor wants it, and never later: a thought of a past
//! turn whose signature has become invalid would make every later request fail.

mod request;

use std::{borrow::Cow, collections::VecDeque};

use futures::StreamExt;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::model::{
    Message, ModelError, ModelEvent, ModelRequest, ModelStop, ModelStream, ToolCallRequest, Usage,
    vendor::{
        ApiKey, HttpClients, VendorConfig,
        answer::{Answer, Decode, Ending, Reach},
        failure::Said,
        http,
        lines::Events,
        openai::{count, not_understood, whole},
    },
};

use request::Replay;

/// Starts a call.
pub(super) async fn stream(
    config: &VendorConfig,
    clients: &HttpClients,
    request: &ModelRequest,
) -> Result<ModelStream, ModelError> {
    let url = http::address(config, "v1", "messages")?;
    let mut headers = HeaderMap::new();
    headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    if let Some(key) = &config.api_key {
        headers.insert("x-api-key", http::secret_header(key.expose().trim())?);
    }
    let signed = request.messages.iter().any(|message| match message.as_ref() {
        Message::Assistant { signed, .. } => !signed.is_empty(),
        Message::User { .. } | Message::Tool { .. } => false,
    });
    let body = request::body(config, request, Replay::Signed)?;
    let response = match clients.post(config, url.clone(), headers.clone(), body).await {
        // The same would be refused again and again, for the whole turn. Without thoughts it can go on.
        Err(ModelError::Request(text)) if signed && is_about_thoughts(&text) => {
            tracing::debug!(event = "thoughts_dropped", "the vendor does not take its thoughts back");
            clients.post(config, url, headers, request::body(config, request, Replay::Nothing)?).await?
        }
        other => other?,
    };
    let decoder = Decoder::new(format!("call_{}", request.messages.len()), config.api_key.clone());
    let key = config.api_key.clone();
    Ok(Answer::new(response.bytes_stream().boxed(), decoder, config.idle_timeout, key).boxed())
}

/// Whether a refusal is about a thought that was sent back.
fn is_about_thoughts(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("signature") || text.contains("thinking")
}

/// One event. The kinds share so few members that one struct holds them all.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    content_block: Option<Block<'a>>,
    #[serde(default)]
    message: Option<Start>,
    #[serde(default)]
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(borrow, default)]
    partial_json: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    signature: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    stop_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    signature: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct Counts {
    #[serde(default)]
    input_tokens: Option<f64>,
    #[serde(default)]
    output_tokens: Option<f64>,
    #[serde(default)]
    cache_read_input_tokens: Option<f64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<f64>,
}

/// Understands the stream.
struct Decoder {
    events: Events,
    answer: Assembly,
}

/// What is put together over many events.
struct Assembly {
    calls: Vec<Partial>,
    thoughts: Vec<Thought>,
    input: f64,
    created: f64,
    read: f64,
    output: f64,
    counted: bool,
    stop: Option<ModelStop>,
    done: bool,
    id_base: String,
    key: Option<ApiKey>,
}

/// A thought that may have to go back.
struct Thought {
    index: Option<u64>,
    text: String,
    signature: String,
    /// What stands for a thought that the vendor does not show.
    redacted: Option<String>,
}

struct Partial {
    index: Option<u64>,
    id: String,
    name: String,
    /// What the opening event held; used when no piece follows.
    input: String,
    arguments: String,
}

impl Decoder {
    fn new(id_base: String, key: Option<ApiKey>) -> Self {
        let answer = Assembly {
            calls: Vec::new(),
            thoughts: Vec::new(),
            input: 0.0,
            created: 0.0,
            read: 0.0,
            output: 0.0,
            counted: false,
            stop: None,
            done: false,
            id_base,
            key,
        };
        Self { events: Events::default(), answer }
    }
}

impl Decode for Decoder {
    fn feed(&mut self, bytes: &[u8], events: &mut VecDeque<ModelEvent>) -> Result<Reach, ModelError> {
        let answer = &mut self.answer;
        self.events.feed(bytes, |data| answer.take(data, events))?;
        Ok(self.answer.reach())
    }

    fn close(&mut self, events: &mut VecDeque<ModelEvent>) -> Result<Reach, ModelError> {
        let answer = &mut self.answer;
        self.events.finish(|data| answer.take(data, events))?;
        Ok(self.answer.reach())
    }

    fn ending(&mut self) -> Ending {
        let answer = &mut self.answer;
        let stop = answer.stop.unwrap_or(ModelStop::End);
        let id_base = &answer.id_base;
        let calls = answer.calls.drain(..).enumerate().map(|(at, call)| call.finish(id_base, at + 1)).collect();
        let signed = answer.thoughts.drain(..).filter_map(Thought::finish).collect();
        let usage = answer.counted.then(|| Usage {
            // The vendor counts what was cached apart.
            input: count(Some(answer.input + answer.created + answer.read)),
            output: count(Some(answer.output)),
            cached: count(Some(answer.read)),
            written: count(Some(answer.created)),
        });
        Ending { signed, calls: whole(calls, stop), usage, stop }
    }
}

impl Assembly {
    fn reach(&self) -> Reach {
        match (self.done, self.stop) {
            (true, _) => Reach::Ended,
            (false, Some(_)) => Reach::Finishing,
            (false, None) => Reach::Open,
        }
    }

    fn take(&mut self, data: &[u8], events: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        let data = data.trim_ascii();
        if self.done || data.is_empty() {
            return Ok(());
        }
        let event: Event<'_> = serde_json::from_slice(data).map_err(|error| not_understood(&error))?;
        match event.kind.as_ref() {
            "message_start" => self.count(event.message.and_then(|message| message.usage)),
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.open(event.index, block, events)?;
                }
            }
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.delta(event.index, delta, events)?;
                }
            }
            "message_delta" => {
                self.count(event.usage);
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.stop = Some(match reason.as_ref() {
                        "max_tokens" | "model_context_window_exceeded" => ModelStop::MaxTokens,
                        "refusal" => ModelStop::Refusal,
                        // `end_turn`, `tool_use`, `stop_sequence`, `pause_turn`.
                        _ => ModelStop::End,
                    });
                }
            }
            "message_stop" => self.done = true,
            "error" => return Err(Said::parse(data).in_stream(self.key.as_ref())),
            // `content_block_stop`, `ping` and what is invented later.
            _ => {}
        }
        Ok(())
    }

    /// Counts may come in pieces and are totals; a piece that is left out keeps its value.
    fn count(&mut self, counts: Option<Counts>) {
        let Some(counts) = counts else { return };
        self.counted = true;
        self.input = counts.input_tokens.unwrap_or(self.input);
        self.output = counts.output_tokens.unwrap_or(self.output);
        self.read = counts.cache_read_input_tokens.unwrap_or(self.read);
        self.created = counts.cache_creation_input_tokens.unwrap_or(self.created);
    }

    fn open(
        &mut self,
        index: Option<u64>,
        block: Block<'_>,
        events: &mut VecDeque<ModelEvent>,
    ) -> Result<(), ModelError> {
        let full = |text: Option<String>| text.filter(|text| !text.is_empty());
        if matches!(block.kind.as_ref(), "thinking" | "redacted_thinking") {
            if self.thoughts.len() >= MAX_CALLS {
                return Err(ModelError::Stream(format!("more than {MAX_CALLS} thoughts in one answer")));
            }
            self.thoughts.push(Thought {
                index,
                text: block.thinking.clone().unwrap_or_default(),
                signature: block.signature.as_deref().unwrap_or_default().to_owned(),
                redacted: block.data.map(Cow::into_owned),
            });
        }
        events.extend(full(block.thinking).map(ModelEvent::Thought));
        events.extend(full(block.text).map(ModelEvent::Text));
        if block.kind != "tool_use" {
            return Ok(());
        }
        if self.calls.len() >= MAX_CALLS {
            return Err(ModelError::Stream(format!("more than {MAX_CALLS} tool calls in one answer")));
        }
        self.calls.push(Partial {
            index,
            id: block.id.unwrap_or_default().into_owned(),
            name: block.name.unwrap_or_default().into_owned(),
            input: block.input.map_or("", RawValue::get).to_owned(),
            arguments: String::new(),
        });
        Ok(())
    }

    fn delta(
        &mut self,
        index: Option<u64>,
        delta: Delta<'_>,
        events: &mut VecDeque<ModelEvent>,
    ) -> Result<(), ModelError> {
        let full = |text: Option<String>| text.filter(|text| !text.is_empty());
        if delta.thinking.is_some() || delta.signature.is_some() {
            self.think(index, &delta)?;
        }
        events.extend(full(delta.thinking).map(ModelEvent::Thought));
        events.extend(full(delta.text).map(ModelEvent::Text));
        let Some(piece) = delta.partial_json else { return Ok(()) };
        // Blocks of other kinds, such as searches by the vendor, have pieces too; they are not ours to run.
        let Some(call) = self.calls.iter_mut().rev().find(|call| call.index == index) else { return Ok(()) };
        if call.arguments.len() + piece.len() > MAX_ARGUMENT_BYTES {
            return Err(ModelError::Stream(format!("tool arguments over {} MiB", MAX_ARGUMENT_BYTES >> 20)));
        }
        call.arguments.push_str(&piece);
        Ok(())
    }
}

impl Assembly {
    fn think(&mut self, index: Option<u64>, delta: &Delta<'_>) -> Result<(), ModelError> {
        let Some(thought) = self.thoughts.iter_mut().rev().find(|thought| thought.index == index) else {
            return Ok(());
        };
        let (more, signature) = (delta.thinking.as_deref().unwrap_or_default(), delta.signature.as_deref());
        if thought.text.len() + more.len() + signature.map_or(0, str::len) > MAX_ARGUMENT_BYTES {
            return Err(ModelError::Stream(format!("a thought over {} MiB", MAX_ARGUMENT_BYTES >> 20)));
        }
        thought.text.push_str(more);
        if let Some(signature) = signature {
            signature.clone_into(&mut thought.signature);
        }
        Ok(())
    }
}

impl Thought {
    /// The block to send back; `None` for a thought that nobody signed.
    fn finish(self) -> Option<String> {
        match self {
            Self { redacted: Some(data), .. } => Some(json!({"type": "redacted_thinking", "data": data}).to_string()),
            Self { signature, .. } if signature.is_empty() => None,
            Self { text, signature, .. } => {
                Some(json!({"type": "thinking", "thinking": text, "signature": signature}).to_string())
            }
        }
    }
}

impl Partial {
    fn finish(self, id_base: &str, number: usize) -> ToolCallRequest {
        let id = if self.id.is_empty() { format!("{id_base}_{number}") } else { self.id };
        let texts = [self.arguments, self.input];
        let arguments = texts.into_iter().find(|text| !text.trim().is_empty()).unwrap_or_else(|| "{}".to_owned());
        ToolCallRequest { id, name: self.name, arguments }
    }
}

/// No model asks for so many at once; a server that opens calls without end is stopped.
const MAX_CALLS: usize = 256;
/// As long as the longest event.
const MAX_ARGUMENT_BYTES: usize = 16 << 20;
