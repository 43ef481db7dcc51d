//! What can be chosen for a session at the gateway, as modes and options; each is one field of its record there.
//! Only an administrator may change them, so nothing is on offer to others.

use serde_json::{Value, json};
use zeroclaw_acp_protocol::{
    params::OptionValue,
    result::{Choice, ConfigKind, ConfigOption, ConfigValue, ModeState},
};

use super::wire::{SessionRow, ThinkingLevel};

/// The option that is also the mode.
const THINKING: &str = "thought_level";

/// An option with a fixed list of values.
struct Fixed {
    id: &'static str,
    name: &'static str,
    category: &'static str,
    /// The field of the record.
    field: &'static str,
    values: &'static [(&'static str, &'static str)],
    now: fn(&SessionRow) -> Option<&str>,
}

const FIXED: &[Fixed] = &[
    Fixed {
        id: "fast_mode",
        name: "Fast mode",
        category: "other",
        field: "fastMode",
        values: &[("off", "Off"), ("auto", "Auto"), ("on", "On")],
        now: |row| match row.fast_mode.as_ref()? {
            Value::Bool(true) => Some("on"),
            Value::Bool(false) => Some("off"),
            Value::String(word) => Some(word),
            _ => None,
        },
    },
    Fixed {
        id: "verbose_level",
        name: "Tool verbosity",
        category: "other",
        field: "verboseLevel",
        values: &[("off", "Off"), ("on", "On"), ("full", "Full")],
        now: |row| row.verbose_level.as_deref(),
    },
    Fixed {
        id: "trace_level",
        name: "Plugin trace",
        category: "other",
        field: "traceLevel",
        values: &[("off", "Off"), ("on", "On")],
        now: |row| row.trace_level.as_deref(),
    },
    Fixed {
        id: "reasoning_level",
        name: "Reasoning",
        category: "other",
        field: "reasoningLevel",
        values: &[("off", "Off"), ("on", "On"), ("stream", "Stream")],
        now: |row| row.reasoning_level.as_deref(),
    },
    Fixed {
        id: "response_usage",
        name: "Usage in answers",
        category: "other",
        field: "responseUsage",
        values: &[("off", "Off"), ("tokens", "Tokens"), ("full", "Full")],
        now: |row| row.response_usage.as_deref(),
    },
    Fixed {
        id: "elevated_level",
        name: "Elevated actions",
        category: "other",
        field: "elevatedLevel",
        values: &[("off", "Off"), ("on", "On"), ("ask", "Ask"), ("full", "Full")],
        now: |row| row.elevated_level.as_deref(),
    },
];

/// The levels that a model offers, and the one that it has without being told.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels {
    pub(super) all: Vec<ThinkingLevel>,
    pub(super) usual: Option<String>,
}

/// A session's choices as they are now.
pub(super) struct Choices<'a> {
    levels: Vec<(&'a str, &'a str)>,
    level: &'a str,
    row: &'a SessionRow,
}

impl<'a> Choices<'a> {
    /// What the session's record says, and for what it does not say, what the agent offers.
    pub(super) fn new(row: &'a SessionRow, agent: &'a Levels) -> Self {
        let offered = if row.thinking_levels.is_empty() { &agent.all } else { &row.thinking_levels };
        let mut levels: Vec<(&str, &str)> =
            offered.iter().map(|level| (level.id.as_str(), level.label.as_deref().unwrap_or(&level.id))).collect();
        let usual = row.thinking_default.as_deref().or(agent.usual.as_deref());
        let level = row.thinking_level.as_deref().or(usual).or(levels.first().map(|level| level.0)).unwrap_or("off");
        if !levels.iter().any(|(id, _)| *id == level) {
            levels.push((level, level));
        }
        Self { levels, level, row }
    }

    /// The level in force.
    pub(super) fn mode(&self) -> &str {
        self.level
    }

    /// Calls `then` with the modes and the options.
    pub(super) fn with<R>(&self, then: impl FnOnce(ModeState<'_>, &[ConfigOption<'_>]) -> R) -> R {
        let modes: Vec<Choice<'_>> = self
            .levels
            .iter()
            .map(|(id, name)| Choice { id, name, description: "How much the model thinks" })
            .collect();
        let value = |(value, name): &(&'a str, &'a str)| ConfigValue { value, name, description: None };
        let mut options = vec![ConfigOption {
            id: THINKING,
            name: "Thinking",
            description: Some("How much the model thinks before it answers"),
            category: "thought_level",
            kind: ConfigKind::Select { current_value: self.level, options: self.levels.iter().map(value).collect() },
        }];
        options.extend(FIXED.iter().map(|fixed| {
            ConfigOption {
                id: fixed.id,
                name: fixed.name,
                description: None,
                category: fixed.category,
                kind: ConfigKind::Select {
                    current_value: (fixed.now)(self.row)
                        .filter(|now| fixed.values.iter().any(|(value, _)| value == now))
                        .or(fixed.values.first().map(|value| value.0))
                        .unwrap_or_default(),
                    options: fixed.values.iter().map(value).collect(),
                },
            }
        }));
        then(ModeState { current_mode_id: self.level, available_modes: &modes }, &options)
    }
}

/// The change of the record that an option stands for; `Ok(None)` for options that exist elsewhere and mean nothing here.
///
/// # Errors
/// A sentence about an option or a value that does not exist.
pub(super) fn patch(key: &str, option: &str, value: &OptionValue) -> Result<Option<Value>, String> {
    let OptionValue::Id(value) = value else {
        return Err(format!("`{option}` takes one of its values, not a boolean"));
    };
    if option == THINKING {
        return Ok(Some(json!({ "key": key, "thinkingLevel": value })));
    }
    if matches!(option, "timeout" | "timeout_seconds") {
        return Ok(None);
    }
    let fixed = FIXED.iter().find(|fixed| fixed.id == option);
    let fixed = fixed.ok_or_else(|| format!("there is no option `{}`", option.escape_debug()))?;
    if !fixed.values.iter().any(|(known, _)| known == value) {
        return Err(format!("`{}` is no value of `{option}`", value.escape_debug()));
    }
    let value = match (fixed.field, value.as_str()) {
        ("fastMode", "on") => json!(true),
        ("fastMode", "off") => json!(false),
        (_, word) => json!(word),
    };
    Ok(Some(json!({ "key": key, (fixed.field): value })))
}

/// Notes in the record what was changed, until the gateway tells it anew.
pub(super) fn note(row: &mut SessionRow, option: &str, value: &str) {
    let value = Some(value.to_owned());
    match option {
        THINKING => row.thinking_level = value,
        "fast_mode" => row.fast_mode = value.map(Value::String),
        "verbose_level" => row.verbose_level = value,
        "trace_level" => row.trace_level = value,
        "reasoning_level" => row.reasoning_level = value,
        "response_usage" => row.response_usage = value,
        "elevated_level" => row.elevated_level = value,
        _ => {}
    }
}
