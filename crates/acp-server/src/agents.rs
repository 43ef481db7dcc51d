//! The agents a process can run, and which one a new session gets.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use zeroclaw_policy::{Level, Root, Ruleset};
use zeroclaw_runtime::{
    mcp::McpServerConfig,
    model::{Thinking, builtin::SlashCommand, vendor::HttpClients},
    tool::ToolSettings,
    turn::Agent,
};

use crate::{cost::Price, error::CallError};

/// Whether an agent's model can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelAccess {
    /// It can.
    Ready,
    /// There is no model behind the agent; it works without one.
    NoModel,
    /// The vendor wants a key and none is configured.
    MissingKey,
}

/// An agent that sessions can be opened with.
#[derive(Clone, Debug)]
pub struct AgentEntry {
    /// Its name in the configuration.
    pub alias: String,
    /// Model, tools, limits.
    pub agent: Arc<Agent>,
    /// Its rules.
    pub rules: Arc<Ruleset>,
    /// Settings of its tools.
    pub settings: Arc<ToolSettings>,
    /// Its own directory: the working directory of sessions that name none. Made when it is first needed.
    pub workspace: PathBuf,
    /// Further roots the operator gave it; absolute.
    pub extra_roots: Vec<Root>,
    /// Whether its model can be called.
    pub access: ModelAccess,
    /// The model it starts with: an id of `models`.
    pub model: String,
    /// The models a client may choose from, its own among them.
    pub models: Vec<ModelChoice>,
    /// The most that a client may choose as mode.
    pub max_level: Level,
    /// MCP servers that every session of the agent has.
    pub mcp: McpSetup,
}

/// What sessions start their MCP servers with.
#[derive(Clone, Debug)]
pub struct McpSetup {
    /// The operator's servers; a client's come on top.
    pub servers: Vec<McpServerConfig>,
    /// For servers behind an address.
    pub http: HttpClients,
}

/// A model that a client may choose.
#[derive(Clone, Debug)]
pub struct ModelChoice {
    /// `family.alias`, or `family.alias/name` for a further model of the same provider.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// The agent with this model.
    pub agent: Arc<Agent>,
    /// The levels of thinking a client may choose from; none where the model has none.
    pub levels: Vec<Thinking>,
    /// How much it thinks unless the client chooses; `None` leaves it to the vendor.
    pub thinking: Option<Thinking>,
    /// What its tokens cost, where that is configured.
    pub price: Option<Price>,
    /// Slash commands that the model itself understands.
    pub commands: Vec<SlashCommand>,
}

/// One configured alias.
#[derive(Clone, Debug)]
pub enum AgentSlot {
    /// Dispatchable.
    Ready(Arc<AgentEntry>),
    /// Configured, but disabled or not resolvable; the text says why.
    Unavailable(String),
}

/// All configured agents.
#[derive(Clone, Debug, Default)]
pub struct AgentTable {
    /// By alias.
    pub agents: BTreeMap<String, AgentSlot>,
    /// `[acp].default_agent`.
    pub default: Option<String>,
}

impl AgentTable {
    /// Chooses the agent of a new session: the explicit alias, else the connection's, else the default, else the only one.
    pub(crate) fn choose(
        &self,
        explicit: Option<&str>,
        connection: Option<&str>,
    ) -> Result<Arc<AgentEntry>, CallError> {
        let alias = explicit.or(connection).or(self.default.as_deref()).or_else(|| self.only());
        let Some(alias) = alias else {
            return Err(CallError::params(if self.agents.is_empty() {
                "no agent is configured"
            } else {
                "several agents are configured: name one, or set acp.default_agent"
            }));
        };
        match self.agents.get(alias) {
            Some(AgentSlot::Ready(entry)) => Ok(Arc::clone(entry)),
            Some(AgentSlot::Unavailable(why)) => {
                Err(CallError::params(format!("the agent `{}` cannot be used: {why}", shown(alias))))
            }
            None => Err(CallError::params(format!("there is no agent `{}`", shown(alias)))),
        }
    }

    /// Chooses the agent of a stored session: its own if it is still there, else the default, else the only one.
    pub(crate) fn choose_stored(&self, alias: &str) -> Result<Arc<AgentEntry>, CallError> {
        match self.agents.get(alias) {
            Some(AgentSlot::Ready(entry)) => Ok(Arc::clone(entry)),
            Some(AgentSlot::Unavailable(_)) | None => self.choose(None, None),
        }
    }

    /// This entry of a session with the models as they are now; everything else stays as the session began with it.
    /// `None` when the agent is not there any more.
    pub(crate) fn renewed(&self, entry: &AgentEntry) -> Option<AgentEntry> {
        let Some(AgentSlot::Ready(now)) = self.agents.get(&entry.alias) else { return None };
        Some(AgentEntry {
            agent: Arc::clone(&now.agent),
            access: now.access,
            model: now.model.clone(),
            models: now.models.clone(),
            ..entry.clone()
        })
    }

    /// The agent that `session/new` without an alias would use.
    pub(crate) fn default_entry(&self) -> Option<Arc<AgentEntry>> {
        self.choose(None, None).ok()
    }

    /// The only dispatchable agent, if there is exactly one.
    fn only(&self) -> Option<&str> {
        let mut ready = self.agents.iter().filter(|(_, slot)| matches!(slot, AgentSlot::Ready(_)));
        match (ready.next(), ready.next()) {
            (Some((alias, _)), None) => Some(alias),
            (Some(_) | None, _) => None,
        }
    }
}

/// A peer's text in an error: short, and on one line.
fn shown(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect()
}
