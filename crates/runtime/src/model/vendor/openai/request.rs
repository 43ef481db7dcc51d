//! The request of chat completions.

use serde::Serialize;
use serde_json::Value;

use crate::model::{
    ModelError, ModelRequest, Thinking,
    vendor::{Family, VendorConfig, conversation::Turn, system, turns},
};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
}

/// The same in the words of `OpenRouter`.
#[derive(Serialize)]
struct Reasoning {
    effort: &'static str,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize, Default)]
struct Message<'a> {
    role: &'static str,
    /// Left out beside tool calls when empty: some servers refuse an empty text.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
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

/// Writes the body.
pub(super) fn body(config: &VendorConfig, request: &ModelRequest) -> Result<Vec<u8>, ModelError> {
    let turns = turns(config, request);
    let wants_thoughts = wants_thoughts_back(&config.model);
    let mut messages = Vec::with_capacity(turns.len() + 1);
    messages.extend(system(request).map(|text| Message { role: "system", content: Some(text), ..Message::default() }));
    for turn in &turns {
        match turn {
            Turn::User(text) => messages.push(Message { role: "user", content: Some(text), ..Message::default() }),
            Turn::Assistant { text, thought, signed: _, calls } => {
                let calls = calls.iter().map(|call| Call {
                    id: &call.id,
                    r#type: "function",
                    function: Function { name: &call.name, arguments: &call.arguments },
                });
                messages.push(Message {
                    role: "assistant",
                    content: Some(text.as_ref()).filter(|text| !text.is_empty()),
                    reasoning_content: thought.filter(|_| wants_thoughts),
                    tool_calls: calls.collect(),
                    tool_call_id: None,
                });
            }
            Turn::Results(results) => messages.extend(results.iter().map(|result| Message {
                role: "tool",
                content: Some(result.content),
                tool_call_id: Some(&result.id),
                ..Message::default()
            })),
        }
    }
    let tools = if config.native_tools { request.tools.as_ref() } else { &[] };
    let tools = tools.iter().map(|tool| Tool {
        r#type: "function",
        function: Declaration { name: &tool.name, description: &tool.description, parameters: &tool.parameters },
    });
    let limit = config.output_limit(request);
    // The vendor itself has renamed the member, and refuses the old name for new models; the others know the old one.
    let renamed = config.family == Family::Openai;
    let effort = request.thinking.map(effort);
    let routed = config.family == Family::Openrouter;
    let body = Body {
        model: &config.model,
        messages,
        tools: tools.collect(),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        max_tokens: limit.filter(|_| !renamed),
        max_completion_tokens: limit.filter(|_| renamed),
        temperature: config.temperature,
        reasoning_effort: effort.filter(|_| !routed),
        reasoning: effort.filter(|_| routed).map(|effort| Reasoning { effort }),
    };
    serde_json::to_vec(&body).map_err(|error| ModelError::Request(format!("the request cannot be written: {error}")))
}

fn effort(level: Thinking) -> &'static str {
    match level {
        Thinking::Off => "none",
        Thinking::Low => "low",
        Thinking::Medium => "medium",
        Thinking::High => "high",
    }
}

/// Models that refuse to go on with their tool calls unless they get the thought of the same turn back.
fn wants_thoughts_back(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    ["deepseek", "kimi-k2-thinking"].iter().any(|part| model.contains(part))
}
