//! What a client may choose in a session, mode, model and thought level, offered as modes and as options that never disagree.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroclaw_acp_protocol::{
    params::{ClientCapabilities, OptionValue},
    result::{Choice, ConfigKind, ConfigOption, ConfigValue, ModeState},
};
use zeroclaw_policy::{Level, Ruleset};
use zeroclaw_runtime::{model::Thinking, turn::Agent};

use crate::{
    agents::{AgentEntry, ModelChoice},
    cost::Spent,
    error::CallError,
};

/// The option for the mode.
pub(crate) const MODE: &str = "mode";

/// The option for the model.
pub(crate) const MODEL: &str = "model";

/// The option for how much the model thinks.
const THINKING: &str = "thought_level";

/// The value that leaves it to the vendor.
const DEFAULT_LEVEL: &str = "default";

/// The option for the model's reasoning: whether clients are told of it.
const THOUGHTS: &str = "thoughts";

/// All modes, the strictest first.
const MODES: [(Level, Choice<'static>); 3] = [
    (
        Level::Readonly,
        Choice {
            id: "readonly",
            name: "Read only",
            description: "Reads and searches; changes nothing and runs nothing",
        },
    ),
    (
        Level::Supervised,
        Choice { id: "supervised", name: "Supervised", description: "Asks before a file is changed or a command runs" },
    ),
    (Level::Full, Choice { id: "full", name: "Full", description: "Asks for nothing; forbidden paths still hold" }),
];

/// What is chosen in one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    level: Level,
    model: String,
    /// What the client wants; it is kept over a model that has no such level.
    thinking: Option<Thinking>,
    /// Whether the model's reasoning is shown.
    thoughts: bool,
}

/// The stored form of [`Chosen`]. Members that are missing or not on offer any more mean the agent's own.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Stored {
    mode: Option<String>,
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thoughts: Option<bool>,
    spent: Spent,
}

/// What a change concerns, for telling clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    Mode,
    Model,
    Thinking,
    Thoughts,
}

impl Chosen {
    /// What the agent's configuration says.
    pub(crate) fn of(entry: &AgentEntry) -> Self {
        Self {
            level: entry.rules.level.min(entry.max_level),
            model: entry.model.clone(),
            thinking: None,
            thoughts: true,
        }
    }

    /// What was stored with the session, as far as it is still on offer.
    pub(crate) fn restore(entry: &AgentEntry, stored: Option<&[u8]>) -> (Self, Spent) {
        let mut chosen = Self::of(entry);
        let stored: Stored = stored.and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default();
        if let Some(mode) = stored.mode {
            // What the operator has forbidden since is not taken up again.
            drop(chosen.set_mode(entry, &mode));
        }
        if let Some(model) = stored.model {
            drop(chosen.set_model(entry, &model));
        }
        chosen.thinking = stored.thinking.as_deref().and_then(Thinking::from_name);
        chosen.thoughts = stored.thoughts.unwrap_or(true);
        (chosen, stored.spent)
    }

    /// The stored form, with what the session has used.
    pub(crate) fn to_json(&self, spent: &Spent) -> Vec<u8> {
        let stored = Stored {
            mode: Some(self.level.as_str().to_owned()),
            model: Some(self.model.clone()),
            thinking: self.thinking.map(|level| level.as_str().to_owned()),
            thoughts: (!self.thoughts).then_some(false),
            spent: spent.clone(),
        };
        serde_json::to_vec(&stored).unwrap_or_default()
    }

    /// The same choices for another agent or another state of the same one, as far as they are on offer there.
    pub(crate) fn carried_to(&self, entry: &AgentEntry) -> Self {
        Self::restore(entry, Some(&self.to_json(&Spent::default()))).0
    }

    pub(crate) fn mode(&self) -> &'static str {
        self.level.as_str()
    }

    pub(crate) fn set_mode(&mut self, entry: &AgentEntry, id: &str) -> Result<Changed, CallError> {
        let found = offered(entry).find(|(_, choice)| choice.id == id);
        let (level, _) = found.ok_or_else(|| CallError::params("there is no such mode in this session"))?;
        self.level = *level;
        Ok(Changed::Mode)
    }

    pub(crate) fn set_model(&mut self, entry: &AgentEntry, id: &str) -> Result<Changed, CallError> {
        let found = entry.models.iter().find(|choice| choice.id == id);
        self.model.clone_from(&found.ok_or_else(|| CallError::params("there is no such model in this session"))?.id);
        Ok(Changed::Model)
    }

    fn set_thinking(&mut self, entry: &AgentEntry, id: &str) -> Result<Changed, CallError> {
        let found = self.levels(entry).into_iter().find(|(value, _)| *value == id);
        found.ok_or_else(|| CallError::params("there is no such thought level for this model"))?;
        self.thinking = Thinking::from_name(id);
        Ok(Changed::Thinking)
    }

    /// How much the chosen model is to think: what the client wants where the model can, else what is configured.
    pub(crate) fn thinking(&self, entry: &AgentEntry) -> Option<Thinking> {
        let model = self.model(entry)?;
        self.thinking.filter(|level| model.levels.contains(level)).or(model.thinking)
    }

    /// Value and name of the levels on offer.
    fn levels(&self, entry: &AgentEntry) -> Vec<(&'static str, &'static str)> {
        let Some(model) = self.model(entry).filter(|model| !model.levels.is_empty()) else { return Vec::new() };
        let own = model.thinking.is_none().then_some((DEFAULT_LEVEL, "Default"));
        let levels = model.levels.iter().map(|level| {
            let name = match level {
                Thinking::Off => "Off",
                Thinking::Low => "Low",
                Thinking::Medium => "Medium",
                Thinking::High => "High",
            };
            (level.as_str(), name)
        });
        own.into_iter().chain(levels).collect()
    }

    /// Sets an option. What a client was not offered it may set all the same: it has the value the right way.
    pub(crate) fn set_option(
        &mut self,
        entry: &AgentEntry,
        option: &str,
        value: &OptionValue,
    ) -> Result<Changed, CallError> {
        match (option, value) {
            (MODE, OptionValue::Id(id)) => self.set_mode(entry, id),
            (MODEL, OptionValue::Id(id)) => self.set_model(entry, id),
            (THINKING, OptionValue::Id(id)) => self.set_thinking(entry, id),
            (THOUGHTS, OptionValue::Flag(on)) => {
                self.thoughts = *on;
                Ok(Changed::Thoughts)
            }
            (MODE | MODEL | THINKING, OptionValue::Flag(_)) => {
                Err(CallError::params("`value` must be the id of a value"))
            }
            (THOUGHTS, OptionValue::Id(_)) => Err(CallError::params("`value` must be a boolean")),
            _ => Err(CallError::params("there is no such option in this session")),
        }
    }

    /// Whether the model's reasoning is shown.
    pub(crate) fn shows_thoughts(&self) -> bool {
        self.thoughts
    }

    /// The agent's rules at the chosen level.
    pub(crate) fn rules(&self, entry: &AgentEntry) -> Arc<Ruleset> {
        if entry.rules.level == self.level {
            return Arc::clone(&entry.rules);
        }
        Arc::new(Ruleset { level: self.level, ..entry.rules.as_ref().clone() })
    }

    /// The chosen model.
    pub(crate) fn model<'a>(&self, entry: &'a AgentEntry) -> Option<&'a ModelChoice> {
        entry.models.iter().find(|choice| choice.id == self.model)
    }

    /// The agent with the chosen model.
    pub(crate) fn agent(&self, entry: &AgentEntry) -> Arc<Agent> {
        Arc::clone(self.model(entry).map_or(&entry.agent, |choice| &choice.agent))
    }

    /// The modes on offer.
    pub(crate) fn modes(entry: &AgentEntry) -> Vec<Choice<'static>> {
        offered(entry).map(|(_, choice)| *choice).collect()
    }

    /// The state of the modes.
    pub(crate) fn mode_state<'a>(&self, modes: &'a [Choice<'static>]) -> ModeState<'a> {
        ModeState { current_mode_id: self.mode(), available_modes: modes }
    }

    /// The options, complete as far as the client understands them: a strict one fails on a kind that it did not
    /// ask for. This is the only place where options are made.
    pub(crate) fn options<'a>(&'a self, entry: &'a AgentEntry, client: ClientCapabilities) -> Vec<ConfigOption<'a>> {
        let modes = offered(entry).map(|(_, choice)| ConfigValue {
            value: choice.id,
            name: choice.name,
            description: Some(choice.description),
        });
        let models =
            entry.models.iter().map(|choice| ConfigValue { value: &choice.id, name: &choice.name, description: None });
        let select = |id, name, current_value, options| ConfigOption {
            id,
            name,
            description: None,
            category: id,
            kind: ConfigKind::Select { current_value, options },
        };
        let mut all = vec![
            select(MODE, "Mode", self.mode(), modes.collect()),
            select(MODEL, "Model", &self.model, models.collect()),
        ];
        let levels = self.levels(entry);
        if !levels.is_empty() {
            let now = self.thinking(entry).map_or(DEFAULT_LEVEL, Thinking::as_str);
            let value = |(value, name)| ConfigValue { value, name, description: None };
            all.push(select(THINKING, "Thought level", now, levels.into_iter().map(value).collect()));
        }
        if client.boolean_options {
            all.push(ConfigOption {
                id: THOUGHTS,
                name: "Show thoughts",
                description: Some("Whether the model's reasoning is shown and kept"),
                category: "_display",
                kind: ConfigKind::Boolean { current_value: self.thoughts },
            });
        }
        all
    }
}

/// The stored form without what was used: a copy of a session has spent nothing yet.
pub(crate) fn without_spent(stored: &[u8]) -> Option<Vec<u8>> {
    let stored: Stored = serde_json::from_slice(stored).ok()?;
    serde_json::to_vec(&Stored { spent: Spent::default(), ..stored }).ok()
}

/// The modes that the operator lets a client choose.
fn offered(entry: &AgentEntry) -> impl Iterator<Item = &'static (Level, Choice<'static>)> {
    let most = entry.max_level;
    MODES.iter().filter(move |(level, _)| *level <= most)
}
