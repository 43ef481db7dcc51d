//! Chat completions, as `OpenAI`, `OpenRouter`, llama.cpp, LM Studio, vLLM and many others speak them.
//!
//! Chunks are read into borrowed, typed structs that allocate nothing but the text itself. What servers leave out, send
//! as null or send twice is tolerated wherever the meaning is clear.

mod chunk;
mod request;

use std::collections::VecDeque;

use futures::StreamExt;

use crate::model::{
    ModelError, ModelEvent, ModelRequest, ModelStop, ModelStream, ToolCallRequest, Usage,
    vendor::{
        ApiKey, Family, HttpClients, VendorConfig,
        answer::{Answer, Decode, Ending, Reach},
        failure::Said,
        http,
        lines::Events,
    },
};

use chunk::{CallDelta, Chunk};

pub(super) use chunk::count;

/// Starts a call.
pub(super) async fn stream(
    config: &VendorConfig,
    clients: &HttpClients,
    request: &ModelRequest,
) -> Result<ModelStream, ModelError> {
    let url = http::address(config, "v1", "chat/completions")?;
    let mut headers = http::bearer(config.api_key.as_ref())?;
    if config.family == Family::Openrouter {
        headers.insert("x-title", reqwest::header::HeaderValue::from_static("ZeroClaw ACP"));
    }
    let body = request::body(config, request)?;
    let response = clients.post(config, url, headers, body).await?;
    let decoder = decoder(format!("call_{}", request.messages.len()), config.api_key.clone());
    let key = config.api_key.clone();
    Ok(Answer::new(response.bytes_stream().boxed(), decoder, config.idle_timeout, key).boxed())
}

/// A decoder for one answer; calls without an id are named after `id_base`.
pub(super) fn decoder(id_base: String, key: Option<ApiKey>) -> impl Decode {
    Decoder::new(id_base, key)
}

/// Understands the stream.
struct Decoder {
    events: Events,
    answer: Assembly,
}

/// What is put together over many chunks.
struct Assembly {
    calls: Vec<Partial>,
    usage: Option<Usage>,
    stop: Option<ModelStop>,
    refused: bool,
    done: bool,
    /// Before the names of calls without an id.
    id_base: String,
    key: Option<ApiKey>,
}

/// A tool call as far as it has come.
#[derive(Default)]
struct Partial {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Decoder {
    fn new(id_base: String, key: Option<ApiKey>) -> Self {
        let answer = Assembly { calls: Vec::new(), usage: None, stop: None, refused: false, done: false, id_base, key };
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
        let stop = if answer.refused { ModelStop::Refusal } else { stop };
        let id_base = &answer.id_base;
        let calls = answer.calls.drain(..).enumerate().map(|(at, call)| call.finish(id_base, at + 1));
        Ending { signed: Vec::new(), calls: whole(calls.collect(), stop), usage: answer.usage, stop }
    }
}

/// The calls that may be made: an answer that was cut at its limit may end inside of one.
pub(super) fn whole(mut calls: Vec<ToolCallRequest>, stop: ModelStop) -> Vec<ToolCallRequest> {
    if stop == ModelStop::MaxTokens {
        calls.retain(|call| serde_json::from_str::<serde::de::IgnoredAny>(&call.arguments).is_ok());
    }
    calls
}

impl Assembly {
    fn reach(&self) -> Reach {
        match (self.done, self.stop) {
            (true, _) => Reach::Ended,
            (false, Some(_)) => Reach::Finishing,
            (false, None) => Reach::Open,
        }
    }

    /// Takes the data of one event.
    fn take(&mut self, data: &[u8], events: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        if self.done {
            return Ok(());
        }
        let data = data.trim_ascii();
        if data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk: Chunk<'_> = serde_json::from_slice(data).map_err(|error| not_understood(&error))?;
        if let Some(error) = chunk.failure(data) {
            return Err(Said::parse(error).in_stream(self.key.as_ref()));
        }
        if let Some(usage) = chunk.usage {
            self.usage = Some(usage.counts());
        }
        let Some(choice) = chunk.choices.0 else { return Ok(()) };
        if let Some(delta) = choice.delta {
            let thought = delta.reasoning_content.or(delta.reasoning).filter(|text| !text.0.is_empty());
            events.extend(thought.map(|text| ModelEvent::Thought(text.0)));
            if let Some(content) = delta.content {
                events.extend(content.thought.map(ModelEvent::Thought));
                events.extend(Some(content.text).filter(|text| !text.is_empty()).map(ModelEvent::Text));
            }
            if let Some(refusal) = delta.refusal.filter(|text| !text.0.is_empty()) {
                self.refused = true;
                events.push_back(ModelEvent::Text(refusal.0));
            }
            for call in delta.tool_calls.unwrap_or_default() {
                self.fragment(call)?;
            }
        }
        match choice.finish_reason.as_deref() {
            None | Some("") => {}
            Some("length" | "max_tokens" | "model_length") => self.stop = Some(ModelStop::MaxTokens),
            Some("content_filter" | "refusal" | "safety") => self.stop = Some(ModelStop::Refusal),
            Some("error") => return Err(ModelError::Stream("the vendor reported an error".to_owned())),
            Some("insufficient_system_resource") => {
                let message = "the vendor has not enough resources at the moment".to_owned();
                return Err(ModelError::Transient { message, retry_after: None });
            }
            // `stop`, `tool_calls`, `function_call` and what servers invent beside them.
            Some(_) => self.stop = Some(ModelStop::End),
        }
        Ok(())
    }

    /// Takes a piece of a tool call. The index says which one; an id only opens one. Without an index, an id that is
    /// new opens one and everything else belongs to the last.
    fn fragment(&mut self, delta: CallDelta<'_>) -> Result<(), ModelError> {
        let id = delta.id.as_deref().filter(|id| !id.is_empty());
        let function = delta.function.unwrap_or_default();
        let name = function.name.as_deref().filter(|name| !name.is_empty());
        let same_id = |call: &Partial| id.is_none_or(|id| call.id.is_empty() || call.id == id);
        let found = match delta.index {
            // One index with two ids is two calls: some servers number every call 0.
            Some(index) => self
                .calls
                .iter()
                .rposition(|call| call.index == Some(index))
                .filter(|at| self.calls.get(*at).is_some_and(same_id)),
            None => match id {
                Some(id) => self.calls.iter().rposition(|call| call.id == id),
                None => self.calls.len().checked_sub(1),
            },
        };
        let at = match found {
            Some(at) => at,
            None if self.calls.len() >= MAX_CALLS => {
                return Err(ModelError::Stream(format!("more than {MAX_CALLS} tool calls in one answer")));
            }
            None => {
                self.calls.push(Partial { index: delta.index, ..Partial::default() });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        if call.id.is_empty() {
            call.id.push_str(id.unwrap_or_default());
        }
        if call.name.is_empty() {
            call.name.push_str(name.unwrap_or_default());
        }
        let Some(text) = function.arguments else { return Ok(()) };
        if call.arguments.len() + text.len() > MAX_ARGUMENT_BYTES {
            return Err(ModelError::Stream(format!("tool arguments over {} MiB", MAX_ARGUMENT_BYTES >> 20)));
        }
        call.arguments.push_str(&text);
        Ok(())
    }
}

impl Partial {
    fn finish(self, id_base: &str, number: usize) -> ToolCallRequest {
        let id = if self.id.is_empty() { format!("{id_base}_{number}") } else { self.id };
        let arguments = if self.arguments.trim().is_empty() { "{}".to_owned() } else { self.arguments };
        ToolCallRequest { id, name: self.name, arguments }
    }
}

/// An event that is not what it should be. The event itself is a message body and stays out of the text.
pub(super) fn not_understood(error: &serde_json::Error) -> ModelError {
    ModelError::Stream(format!("an event was not understood: {error}"))
}

/// No model asks for so many at once; a server that opens calls without end is stopped.
const MAX_CALLS: usize = 256;
/// As long as the longest event.
const MAX_ARGUMENT_BYTES: usize = 16 << 20;
