//! The request of Anthropic's messages.

use serde::Serialize;
use serde_json::{Value, value::RawValue};

use crate::model::{
    ModelError, ModelRequest,
    vendor::{VendorConfig, conversation::Turn, system, turns},
};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
struct Block<'a> {
    #[serde(flatten)]
    kind: Kind<'a>,
    /// What has gone before this mark need not be read anew by the next call of the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Cache>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Kind<'a> {
    Text {
        text: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: &'a RawValue,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
struct Cache {
    r#type: &'static str,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
}

impl<'a> From<Kind<'a>> for Block<'a> {
    fn from(kind: Kind<'a>) -> Self {
        Self { kind, cache_control: None }
    }
}

/// Writes the body.
pub(super) fn body(config: &VendorConfig, request: &ModelRequest) -> Result<Vec<u8>, ModelError> {
    let unwritable = |error| ModelError::Request(format!("the request cannot be written: {error}"));
    let turns = turns(config, request);
    let mut messages = Vec::with_capacity(turns.len());
    for turn in &turns {
        match turn {
            Turn::User(text) => messages.push(Message { role: "user", content: vec![Kind::Text { text }.into()] }),
            Turn::Assistant { text, thought: _, calls } => {
                let mut content = Vec::with_capacity(calls.len() + 1);
                content.extend(Some(text).filter(|text| !text.is_empty()).map(|text| Kind::Text { text }.into()));
                for call in calls {
                    let input = serde_json::from_str(&call.arguments).map_err(unwritable)?;
                    content.push(Kind::ToolUse { id: &call.id, name: &call.name, input }.into());
                }
                messages.push(Message { role: "assistant", content });
            }
            Turn::Results(results) => {
                let results = results.iter().map(|result| {
                    Kind::ToolResult { tool_use_id: &result.id, content: result.content, is_error: result.failed }
                        .into()
                });
                messages.push(Message { role: "user", content: results.collect() });
            }
        }
    }
    if let Some(block) = messages.last_mut().and_then(|message| message.content.last_mut()) {
        block.cache_control = Some(Cache { r#type: "ephemeral" });
    }
    let system = system(request)
        .map(|text| Block { kind: Kind::Text { text }, cache_control: Some(Cache { r#type: "ephemeral" }) });
    let tools = if config.native_tools { request.tools.as_ref() } else { &[] };
    let tools = tools.iter().map(|tool| Tool {
        name: &tool.name,
        description: &tool.description,
        input_schema: &tool.parameters,
    });
    let body = Body {
        model: &config.model,
        max_tokens: config.output_limit(request).unwrap_or_else(|| usual_limit(&config.model)),
        stream: true,
        system: system.into_iter().collect(),
        messages,
        tools: tools.collect(),
        temperature: config.temperature,
    };
    serde_json::to_vec(&body).map_err(unwritable)
}

/// The vendor wants a limit in every request, and refuses one that is over the model's own.
fn usual_limit(model: &str) -> u32 {
    let model = model.to_ascii_lowercase();
    if model.contains("claude-3-5") || model.contains("claude-3.5") {
        8_192
    } else if model.contains("claude-3-") && !model.contains("claude-3-7") {
        4_096
    } else {
        16_384
    }
}
