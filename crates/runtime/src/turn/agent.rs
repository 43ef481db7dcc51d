//! What stays the same from turn to turn: the model behind an agent, its tools, and the limits of one turn.
//! It refuses to know sessions; what belongs to one turn is in [`super::TurnInput`].

use std::{collections::HashMap, sync::Arc};

use crate::{
    model::{ModelProvider, Thinking, ToolSpec},
    tool::Tool,
    turn::RetryPolicy,
};

/// An agent that can run turns; shared by all sessions that use it.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The model.
    pub provider: Arc<dyn ModelProvider>,
    /// The tools on offer, before a session's rules exclude some.
    pub tools: Arc<ToolSet>,
    /// How long and how large one turn may get.
    pub limits: TurnLimits,
    /// Models that take over, in this order, when one before cannot answer and nothing was shown yet.
    pub fallbacks: Vec<Fallback>,
    /// A random number, for waits.
    pub random: fn() -> u64,
}

/// A model that takes over.
#[derive(Clone, Debug)]
pub struct Fallback {
    /// What it is called where prices and choices are kept.
    pub id: Arc<str>,
    /// The model.
    pub provider: Arc<dyn ModelProvider>,
    /// As in [`TurnLimits`], for this model's window.
    pub context_tokens: u64,
    /// As in [`TurnLimits`], for this model's window.
    pub compact_to: Option<u64>,
    /// The levels of thinking that it has.
    pub levels: Vec<Thinking>,
    /// How much it thinks where it has not the level that is asked for; `None` leaves it to the vendor.
    pub thinking: Option<Thinking>,
}

/// How long and how large one turn may get.
#[derive(Clone, Debug)]
pub struct TurnLimits {
    /// Model calls of one turn; a turn that would need more stops with `max_turn_requests`.
    pub max_model_calls: u32,
    /// Upper bound of generated tokens per model call, where the configuration sets one.
    pub max_output_tokens: Option<u32>,
    /// Tokens one request may hold by estimate. A conversation that exceeds it is compacted; what exceeds it all the same
    /// is left out of the request, oldest turns first.
    pub context_tokens: u64,
    /// Tokens that a request holds about after a compaction, system prompt and tools included; absent means that none is
    /// made by itself or by order.
    pub compact_to: Option<u64>,
    /// When a model call that said nothing yet is tried again.
    pub retry: RetryPolicy,
}

impl TurnLimits {
    /// The defaults for a model with this window: a fifth of it is left for the answer and for the estimate's error, and
    /// a compaction leaves two fifths.
    #[must_use]
    pub fn for_window(context_window: u64) -> Self {
        Self {
            max_model_calls: 50,
            max_output_tokens: None,
            context_tokens: context_window - context_window / 5,
            compact_to: Some(context_window / 5 * 2),
            retry: RetryPolicy::default(),
        }
    }
}

/// Tools by name, with their schemas laid out once for every model call.
#[derive(Debug)]
pub struct ToolSet {
    // INVARIANT paired: `specs[i]` describes `tools[i]`, and `by_name` maps its name to `i`.
    tools: Vec<Arc<dyn Tool>>,
    specs: Arc<[ToolSpec]>,
    by_name: HashMap<String, usize>,
}

impl ToolSet {
    /// Makes the set. Of several tools with one name the first counts: a later one must not take its place unseen.
    #[must_use]
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        let mut kept: Vec<Arc<dyn Tool>> = Vec::with_capacity(tools.len());
        let mut by_name = HashMap::with_capacity(tools.len());
        for tool in tools {
            let name = tool.spec().name.clone();
            if let std::collections::hash_map::Entry::Vacant(entry) = by_name.entry(name) {
                entry.insert(kept.len());
                kept.push(tool);
            }
        }
        let specs = kept.iter().map(|tool| tool.spec().clone()).collect();
        // INVARIANT paired: both lists come from `kept` in one order.
        Self { tools: kept, specs, by_name }
    }

    /// This set with more tools behind it; those that it has keep their names.
    #[must_use]
    pub fn with(&self, more: Vec<Arc<dyn Tool>>) -> Self {
        Self::new(self.tools.iter().cloned().chain(more).collect())
    }

    /// The tool with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.by_name.get(name).and_then(|index| self.tools.get(*index))
    }

    /// The descriptions of all tools, shared.
    #[must_use]
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    /// The descriptions without the excluded tools; shared with [`ToolSet::specs`] when nothing is excluded.
    #[must_use]
    pub fn specs_without(&self, excluded: &[String]) -> Arc<[ToolSpec]> {
        let is_excluded = |spec: &ToolSpec| excluded.iter().any(|name| *name == spec.name || name == "*");
        if self.specs.iter().any(is_excluded) {
            self.specs.iter().filter(|spec| !is_excluded(spec)).cloned().collect()
        } else {
            self.specs()
        }
    }
}
