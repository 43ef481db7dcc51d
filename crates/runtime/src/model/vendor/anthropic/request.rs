//! The request of Anthropic's messages.

use serde::Serialize;
use serde_json::{Value, value::RawValue};

use crate::model::{
    ModelError, ModelRequest, Thinking,
    vendor::{VendorConfig, conversation::Turn, levels::generation, system, turns},
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
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thought>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thought {
    Disabled,
    Enabled { budget_tokens: u32 },
    Adaptive { display: &'static str },
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Content<'a>>,
}

/// A block of ours, or one of the vendor's own that goes back as it came.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Signed(&'a RawValue),
    Ours(Block<'a>),
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

impl<'a> From<Kind<'a>> for Content<'a> {
    fn from(kind: Kind<'a>) -> Self {
        Self::Ours(Block { kind, cache_control: None })
    }
}

/// Whether thoughts that the vendor signed go back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    /// They do.
    Signed,
    /// The vendor does not take them back, so it is not to think either.
    Nothing,
}

/// Writes the body.
pub(super) fn body(config: &VendorConfig, request: &ModelRequest, replay: Replay) -> Result<Vec<u8>, ModelError> {
    let unwritable = |error| ModelError::Request(format!("the request cannot be written: {error}"));
    let turns = turns(config, request);
    let mut messages = Vec::with_capacity(turns.len());
    for turn in &turns {
        match turn {
            Turn::User(text) => messages.push(Message { role: "user", content: vec![Kind::Text { text }.into()] }),
            Turn::Assistant { text, thought: _, signed, calls } => {
                let mut content = Vec::with_capacity(calls.len() + signed.len() + 1);
                for thought in signed.iter().filter(|_| replay == Replay::Signed) {
                    content.push(Content::Signed(serde_json::from_str(thought).map_err(unwritable)?));
                }
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
    if let Some(Content::Ours(block)) = messages.last_mut().and_then(|message| message.content.last_mut()) {
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
    let level = request.thinking.map(|level| if may_think(&turns, replay) { level } else { Thinking::Off });
    let (thinking, effort, max_tokens) = thought(config, level, config.output_limit(request));
    let thinks = matches!(thinking, Some(Thought::Enabled { .. } | Thought::Adaptive { .. }));
    let body = Body {
        model: &config.model,
        max_tokens,
        stream: true,
        system: system.into_iter().collect(),
        messages,
        tools: tools.collect(),
        // Whoever thinks is not asked for a temperature: the vendor refuses it.
        temperature: config.temperature.filter(|_| !thinks),
        thinking,
        output_config: effort.map(|effort| OutputConfig { effort }),
    };
    serde_json::to_vec(&body).map_err(unwritable)
}

/// Whether the model may think in this request: within a turn each answer with calls must begin with its signed thought,
/// and an answer that was made without one does not.
fn may_think(turns: &[Turn<'_>], replay: Replay) -> bool {
    let running = turns.iter().rposition(|turn| matches!(turn, Turn::User(_))).unwrap_or(0);
    let without = |turn: &Turn<'_>| match turn {
        Turn::Assistant { signed, calls, .. } => !calls.is_empty() && (signed.is_empty() || replay == Replay::Nothing),
        Turn::User(_) | Turn::Results(_) => false,
    };
    !turns.iter().skip(running).any(without)
}

/// What is asked of the model's thinking, and the limit of the whole answer, thoughts included.
fn thought(
    config: &VendorConfig,
    level: Option<Thinking>,
    limit: Option<u32>,
) -> (Option<Thought>, Option<&'static str>, u32) {
    let usual = limit.unwrap_or_else(|| usual_limit(&config.model));
    let (budget, effort) = match level {
        None => return (None, None, usual),
        Some(Thinking::Off) => return (Some(Thought::Disabled), None, usual),
        Some(Thinking::Low) => (2_048, "low"),
        Some(Thinking::Medium) => (6_144, "medium"),
        // With the usual limit this is what every model that thinks can write.
        Some(Thinking::High) => (14_336, "high"),
    };
    // From this generation on the model decides by itself how much, and refuses a budget.
    if generation(&config.model).is_some_and(|generation| generation >= (4, 6)) {
        return (Some(Thought::Adaptive { display: "summarized" }), Some(effort), limit.unwrap_or(usual + budget));
    }
    match limit {
        // A limit that somebody set holds for everything, and half of it is left for the answer.
        Some(limit) if limit / 2 < LEAST_BUDGET => (Some(Thought::Disabled), None, limit),
        Some(limit) => (Some(Thought::Enabled { budget_tokens: budget.min(limit / 2) }), None, limit),
        None => (Some(Thought::Enabled { budget_tokens: budget }), None, usual + budget),
    }
}

/// The vendor refuses a smaller one.
const LEAST_BUDGET: u32 = 1_024;

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
