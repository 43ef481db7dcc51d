//! What the operator configured: the autonomy level and the rules of a risk profile.

use std::path::PathBuf;

/// How much an agent may do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing that changes anything.
    Readonly,
    /// Changes are asked for.
    Supervised,
    /// Nothing is asked; forbidden paths and excluded tools still hold.
    Full,
}

impl Level {
    /// The level's name in configuration and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Readonly => "readonly",
            Self::Supervised => "supervised",
            Self::Full => "full",
        }
    }
}

/// The rules that apply to one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// The autonomy level.
    pub level: Level,
    /// Tools that run without asking in `supervised`.
    pub auto_approve: Vec<String>,
    /// Tools that ask even when they would run, at every level but `readonly`, where they follow the level.
    pub always_ask: Vec<String>,
    /// Tools that do not exist for the agent.
    pub excluded_tools: Vec<String>,
    /// Absolute paths that no tool may name or reach, with everything below them, at every level.
    pub forbidden_paths: Vec<PathBuf>,
}

impl Ruleset {
    /// A ruleset of the given level without further rules.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self {
            level,
            auto_approve: Vec::new(),
            always_ask: Vec::new(),
            excluded_tools: Vec::new(),
            forbidden_paths: Vec::new(),
        }
    }
}
