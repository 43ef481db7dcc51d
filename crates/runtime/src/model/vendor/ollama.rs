//! Ollama's own interface: one JSON object a line.
//!
//! Its chat completions are not used because they ignore the context length: the server would cut the conversation to
//! its default without a word, tools first. Here `num_ctx` is part of every request.

use std::{borrow::Cow, collections::VecDeque};

use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::model::{
    ModelError, ModelEvent, ModelRequest, ModelStop, ModelStream, Thinking, ToolCallRequest, Usage,
    vendor::{
        ApiKey, HttpClients, VendorConfig,
        answer::{Answer, Decode, Ending, Reach},
        conversation::Turn,
        failure::Said,
        http, levels,
        lines::Lines,
        openai::{count, not_understood, whole},
        system, turns,
    },
};

/// Starts a call.
pub(super) async fn stream(
    config: &VendorConfig,
    clients: &HttpClients,
    request: &ModelRequest,
) -> Result<ModelStream, ModelError> {
    let url = address(config, "api/chat")?;
    let headers = http::bearer(config.api_key.as_ref())?;
    let body = body(config, request)?;
    let response = clients.post(config, url, headers, body).await?;
    let id_base = format!("call_{}", request.messages.len());
    let key = config.api_key.clone();
    let decoder = Decoder { lines: Lines::default(), answer: Assembly::new(id_base, key.clone()) };
    Ok(Answer::new(response.bytes_stream().boxed(), decoder, config.idle_timeout, key).boxed())
}

/// The context length that is asked for.
pub(super) fn context_length(config: &VendorConfig) -> u64 {
    config.num_ctx.or(config.context_window).unwrap_or(DEFAULT_CONTEXT)
}

/// The address of the call; users often write the one of the chat completions.
pub(super) fn address(config: &VendorConfig, call: &str) -> Result<reqwest::Url, ModelError> {
    let mut config = config.clone();
    if let Some(uri) = &mut config.uri {
        let base = uri.trim().trim_end_matches('/');
        *uri = base
            .strip_suffix("/v1")
            .or_else(|| base.strip_suffix("/api/chat"))
            .or_else(|| base.strip_suffix("/api"))
            .unwrap_or(base)
            .to_owned();
    }
    http::address(&config, "", call)
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    think: Option<Think>,
    options: Options,
}

/// Most models only know whether; some know how much.
#[derive(Serialize)]
#[serde(untagged)]
enum Think {
    Whether(bool),
    HowMuch(&'static str),
}

#[derive(Serialize)]
struct Options {
    num_ctx: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
}

#[derive(Serialize, Default)]
struct Message<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
}

#[derive(Serialize)]
struct Call<'a> {
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a RawValue,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Declaration<'a>,
}

#[derive(Serialize)]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

fn body(config: &VendorConfig, request: &ModelRequest) -> Result<Vec<u8>, ModelError> {
    let unwritable = |error| ModelError::Request(format!("the request cannot be written: {error}"));
    let turns = turns(config, request);
    let mut messages = Vec::with_capacity(turns.len() + 1);
    messages.extend(system(request).map(|text| Message { role: "system", content: Some(text), ..Message::default() }));
    for turn in &turns {
        match turn {
            Turn::User(text) => messages.push(Message { role: "user", content: Some(text), ..Message::default() }),
            Turn::Assistant { text, thought: _, signed: _, calls } => {
                let mut tool_calls = Vec::with_capacity(calls.len());
                for call in calls {
                    let arguments = serde_json::from_str(&call.arguments).map_err(unwritable)?;
                    tool_calls.push(Call { function: Function { name: &call.name, arguments } });
                }
                let content = Some(text.as_ref()).filter(|text| !text.is_empty());
                messages.push(Message { role: "assistant", content, tool_calls, tool_name: None });
            }
            Turn::Results(results) => messages.extend(results.iter().map(|result| Message {
                role: "tool",
                content: Some(result.content),
                tool_name: Some(&result.name),
                ..Message::default()
            })),
        }
    }
    let tools = if config.native_tools { request.tools.as_ref() } else { &[] };
    let tools = tools.iter().map(|tool| Tool {
        r#type: "function",
        function: Declaration { name: &tool.name, description: &tool.description, parameters: &tool.parameters },
    });
    let body = Body {
        model: &config.model,
        messages,
        tools: tools.collect(),
        stream: true,
        think: request.thinking.map(|level| think(&config.model, level)),
        options: Options {
            num_ctx: context_length(config),
            num_predict: config.output_limit(request),
            temperature: config.temperature,
        },
    };
    serde_json::to_vec(&body).map_err(unwritable)
}

fn think(model: &str, level: Thinking) -> Think {
    match level {
        Thinking::Off => Think::Whether(false),
        Thinking::Low | Thinking::Medium | Thinking::High if levels::knows_how_much(model) => {
            Think::HowMuch(level.as_str())
        }
        Thinking::Low | Thinking::Medium | Thinking::High => Think::Whether(true),
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    message: Option<Spoken<'a>>,
    #[serde(default)]
    done: Option<bool>,
    #[serde(borrow, default)]
    done_reason: Option<Cow<'a, str>>,
    #[serde(default)]
    prompt_eval_count: Option<f64>,
    #[serde(default)]
    eval_count: Option<f64>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// What the model says in one line.
#[derive(Deserialize)]
struct Spoken<'a> {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<Made<'a>>>,
}

/// A tool call; it comes whole.
#[derive(Deserialize)]
struct Made<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(borrow)]
    function: MadeFunction<'a>,
}

#[derive(Deserialize)]
struct MadeFunction<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// Understands the stream.
struct Decoder {
    lines: Lines,
    answer: Assembly,
}

struct Assembly {
    calls: Vec<ToolCallRequest>,
    usage: Option<Usage>,
    stop: Option<ModelStop>,
    id_base: String,
    key: Option<ApiKey>,
}

impl Decode for Decoder {
    fn feed(&mut self, bytes: &[u8], events: &mut VecDeque<ModelEvent>) -> Result<Reach, ModelError> {
        let answer = &mut self.answer;
        self.lines.feed(bytes, |line| answer.take(line, events))?;
        Ok(self.answer.reach())
    }

    fn close(&mut self, events: &mut VecDeque<ModelEvent>) -> Result<Reach, ModelError> {
        let answer = &mut self.answer;
        self.lines.finish(|line| answer.take(line, events))?;
        Ok(self.answer.reach())
    }

    fn ending(&mut self) -> Ending {
        let stop = self.answer.stop.unwrap_or(ModelStop::End);
        Ending {
            signed: Vec::new(),
            calls: whole(std::mem::take(&mut self.answer.calls), stop),
            usage: self.answer.usage,
            stop,
        }
    }
}

impl Assembly {
    fn new(id_base: String, key: Option<ApiKey>) -> Self {
        Self { calls: Vec::new(), usage: None, stop: None, id_base, key }
    }

    fn reach(&self) -> Reach {
        if self.stop.is_some() { Reach::Ended } else { Reach::Open }
    }

    fn take(&mut self, line: &[u8], events: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        let line = line.trim_ascii();
        if line.is_empty() || self.stop.is_some() {
            return Ok(());
        }
        let said: Line<'_> = serde_json::from_slice(line).map_err(|error| not_understood(&error))?;
        if said.error.is_some() {
            return Err(Said::parse(line).in_stream(self.key.as_ref()));
        }
        if let Some(message) = said.message {
            let full = |text: Option<String>| text.filter(|text| !text.is_empty());
            events.extend(full(message.thinking).map(ModelEvent::Thought));
            events.extend(full(message.content).map(ModelEvent::Text));
            for call in message.tool_calls.unwrap_or_default() {
                if self.calls.len() >= MAX_CALLS {
                    return Err(ModelError::Stream(format!("more than {MAX_CALLS} tool calls in one answer")));
                }
                let number = self.calls.len() + 1;
                let id = call.id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("{}_{number}", self.id_base));
                let arguments = call.function.arguments.map_or("{}", RawValue::get).to_owned();
                self.calls.push(ToolCallRequest { id, name: call.function.name, arguments });
            }
        }
        if said.done == Some(true) {
            self.stop = Some(match said.done_reason.as_deref() {
                Some("length") => ModelStop::MaxTokens,
                Some(_) | None => ModelStop::End,
            });
            if said.prompt_eval_count.is_some() || said.eval_count.is_some() {
                let (input, output) = (count(said.prompt_eval_count), count(said.eval_count));
                self.usage = Some(Usage { input, output, cached: 0, written: 0 });
            }
        }
        Ok(())
    }
}

/// Holds an agent's prompt, its tools and some files, and fits into the memory of most machines.
const DEFAULT_CONTEXT: u64 = 32_768;
/// No model asks for so many at once; a server that opens calls without end is stopped.
const MAX_CALLS: usize = 256;
