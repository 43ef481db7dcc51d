//! From configuration to agents: models, tools, rules and limits of every alias. Nothing is connected here.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use zeroclaw_acp_server::{AgentEntry, AgentSlot, AgentTable, McpSetup, ModelAccess, ModelChoice, Price};
use zeroclaw_config::{Env, Family, Loaded, ModelConfig, ModelRef, PriceConfig, RiskProfile, RuntimeProfile, Secret};
use zeroclaw_policy::{self as policy, Ruleset};
use zeroclaw_runtime::{
    model::{
        ModelError, ModelProvider, Thinking,
        builtin::{BuiltinProvider, SlashCommand, builtin_commands},
        scripted::{ScriptedConfig, ScriptedProvider},
        vendor::{ApiKey, Family as VendorFamily, HttpClients, VendorConfig, VendorProvider, levels, models},
    },
    sandbox::Confiner,
    tool::{Launcher, ToolSettings, standard_tools},
    turn::{Agent, Fallback, ToolSet, TurnLimits},
};

use super::{
    ambient,
    environment::shell_env,
    rules::{extra_roots, level, ruleset},
    sandbox::sandbox_settings,
};
use crate::{
    agents::{default_agent, key_variable},
    launch::launcher,
};

/// How long a command may run when nothing is configured.
const SHELL_TIMEOUT: Duration = Duration::from_secs(120);

/// Models that may take over for one, at most: somebody waits for the answer while they are tried.
const MAX_FALLBACKS: usize = 8;

/// At how many percent of the window a conversation is compacted, and how many it takes then, when nothing is configured.
const COMPACT: (u64, u64) = (80, 40);

/// Bytes of a tool's output that reach the model and the client.
const MAX_OUTPUT: usize = 64 * 1024;

/// How long a model may say nothing when nothing is configured.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long somebody who logs in waits for an answer.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Builds every configured agent; without any, the default one of this environment.
#[must_use]
pub fn agent_table(loaded: &Loaded, env: &Env) -> AgentTable {
    let mut builder = Builder {
        loaded,
        env,
        http: http_clients(env),
        launcher: launcher(),
        sandbox: Arc::new(Confiner::new(sandbox_settings(loaded, env))),
        tools: Arc::new(ToolSet::new(standard_tools())),
        models: BTreeMap::new(),
    };
    let usable: Vec<(&ModelRef, &ModelConfig)> =
        loaded.config.models.iter().filter(|(reference, _)| loaded.config.model_problem(reference).is_none()).collect();
    for (reference, model) in &usable {
        let models = builder.of_provider(reference, model);
        builder.models.extend(models);
    }
    for (reference, model) in &usable {
        builder.set_fallbacks(reference, model);
    }
    let config = &loaded.config;
    if config.agents.is_empty() {
        let (alias, slot) = builder.default_entry();
        return AgentTable { agents: BTreeMap::from([(alias, slot)]), default: config.acp.default_agent.clone() };
    }
    let agents = config
        .agents
        .keys()
        .map(|alias| {
            let slot = match config.agent_problem(alias) {
                Some(problem) => AgentSlot::Unavailable(problem),
                None => builder.configured(alias),
            };
            (alias.clone(), slot)
        })
        .collect();
    AgentTable { agents, default: config.acp.default_agent.clone() }
}

struct Builder<'a> {
    loaded: &'a Loaded,
    env: &'a Env,
    http: HttpClients,
    launcher: Option<Launcher>,
    sandbox: Arc<Confiner>,
    tools: Arc<ToolSet>,
    /// Every usable model by id, made once: a script's position belongs to its model, not to an agent.
    models: BTreeMap<String, Model>,
}

/// A model that agents can use.
#[derive(Clone)]
struct Model {
    provider: Arc<dyn ModelProvider>,
    access: ModelAccess,
    levels: Vec<Thinking>,
    thinking: Option<Thinking>,
    price: Option<Price>,
    commands: Vec<SlashCommand>,
    /// What takes over when it cannot answer.
    fallbacks: Vec<(String, Spare)>,
}

/// A model that takes over.
#[derive(Clone)]
struct Spare {
    provider: Arc<dyn ModelProvider>,
    levels: Vec<Thinking>,
    thinking: Option<Thinking>,
}

impl Model {
    /// A model of our own, which has nothing to choose and costs nothing.
    fn own(provider: Arc<dyn ModelProvider>, access: ModelAccess, commands: Vec<SlashCommand>) -> Self {
        Self { provider, access, levels: Vec::new(), thinking: None, price: None, commands, fallbacks: Vec::new() }
    }
}

impl Builder<'_> {
    fn configured(&self, alias: &str) -> AgentSlot {
        let config = &self.loaded.config;
        let unavailable = || AgentSlot::Unavailable("its model is not configured".to_owned());
        let (Some(agent), Some((reference, _))) = (config.agents.get(alias), config.model_of(alias)) else {
            return unavailable();
        };
        if !self.models.contains_key(&reference.to_string()) {
            return unavailable();
        }
        let risk = config.effective_risk_profile(&agent.risk_profile);
        let profile = config.effective_runtime_profile(&agent.runtime_profile);
        // An agent without one of its rules would be another agent.
        match ruleset(self.loaded, self.env, alias, &risk) {
            Ok(rules) => {
                AgentSlot::Ready(Arc::new(self.entry(alias, reference, &self.models, (&risk, rules), &profile)))
            }
            Err(problem) => AgentSlot::Unavailable(problem),
        }
    }

    fn default_entry(&self) -> (String, AgentSlot) {
        let chosen = default_agent(self.env);
        let reference = ModelRef { family: chosen.family, alias: "default".to_owned() };
        let key = chosen.key_variable.and_then(|name| self.env.get(name));
        let model = ModelConfig {
            model: chosen.model.clone(),
            api_key: key.map(|key| Secret::new(key.trim())),
            ..ModelConfig::default()
        };
        let models = BTreeMap::from([(reference.to_string(), self.provider(&reference, &model))]);
        let config = &self.loaded.config;
        let risk = config.effective_risk_profile("default");
        let profile = config.effective_runtime_profile("default");
        let slot = match ruleset(self.loaded, self.env, chosen.alias, &risk) {
            Ok(rules) => {
                AgentSlot::Ready(Arc::new(self.entry(chosen.alias, &reference, &models, (&risk, rules), &profile)))
            }
            Err(problem) => AgentSlot::Unavailable(problem),
        };
        (chosen.alias.to_owned(), slot)
    }

    fn provider(&self, reference: &ModelRef, model: &ModelConfig) -> Model {
        let family = match reference.family {
            Family::Builtin => {
                let provider = BuiltinProvider::new(&reference.to_string(), self.found());
                return Model::own(Arc::new(provider), ModelAccess::NoModel, builtin_commands().to_vec());
            }
            Family::Scripted => {
                let provider = ScriptedProvider::new(ScriptedConfig {
                    alias: reference.alias.clone(),
                    script: model.script.clone().unwrap_or_default(),
                    model: model.model.clone(),
                    context_window: model.context_window,
                });
                return Model::own(Arc::new(provider), ModelAccess::Ready, Vec::new());
            }
            Family::Anthropic
            | Family::Openai
            | Family::Openrouter
            | Family::Gemini
            | Family::Ollama
            | Family::Llamacpp
            | Family::Lmstudio
            | Family::Vllm
            | Family::Custom => vendor(reference.family),
        };
        // A cloud vendor without a key of its own uses the one that its own tools would use.
        let key = match &model.api_key {
            Some(key) => Some(key.expose().to_owned()),
            None if model.uri.is_none() => {
                key_variable(reference.family).and_then(|name| self.env.get(name)).map(str::to_owned)
            }
            None => None,
        };
        let access = if key.is_none() && model.uri.is_none() && key_variable(reference.family).is_some() {
            ModelAccess::MissingKey
        } else {
            ModelAccess::Ready
        };
        let config = VendorConfig {
            family,
            alias: reference.alias.clone(),
            model: model.model.clone().unwrap_or_default(),
            api_key: key.map(ApiKey::new),
            uri: model.uri.clone(),
            max_output_tokens: model.max_output_tokens,
            temperature: model.temperature,
            context_window: model.context_window,
            num_ctx: model.num_ctx,
            idle_timeout: model.idle_timeout_secs.map_or(IDLE_TIMEOUT, Duration::from_secs),
            native_tools: model.native_tools.unwrap_or(true),
        };
        let thinking = model.thinking.as_deref().and_then(Thinking::from_name);
        let mut levels = levels(family, &config.model).to_vec();
        if let Some(level) = thinking {
            // Whoever says how much a model thinks says that it does.
            if levels.is_empty() {
                levels = Thinking::ALL.to_vec();
            } else if !levels.contains(&level) {
                levels.push(level);
                levels.sort_unstable();
            }
        }
        let price = model.price.as_ref().map(price);
        let provider = Arc::new(VendorProvider::new(config, self.http.clone()));
        Model { provider, access, levels, thinking, price, commands: Vec::new(), fallbacks: Vec::new() }
    }

    /// The models of one section, by id: its own, and the further ones that it lists.
    fn of_provider(&self, reference: &ModelRef, model: &ModelConfig) -> Vec<(String, Model)> {
        let own = own_model(model);
        let further = model.models.iter().filter(|name| Some(name.as_str()) != own);
        let first = ModelConfig { model: own.map(str::to_owned), ..model.clone() };
        let mut models = vec![(reference.to_string(), self.provider(reference, &first))];
        models.extend(
            further.map(|name| (format!("{reference}/{name}"), self.provider(reference, &further_model(model, name)))),
        );
        models
    }

    /// Says of the models of one section what takes over for them: other models of the provider, then other sections.
    fn set_fallbacks(&mut self, reference: &ModelRef, model: &ModelConfig) {
        if model.fallback.is_empty() && model.fallback_models.is_empty() {
            return;
        }
        let own = own_model(model).map(str::to_owned);
        let mut spares: Vec<(String, Spare)> = Vec::new();
        for name in &model.fallback_models {
            // The section's own model, or one that clients can choose too: it has its facts already.
            let id = if Some(name) == own.as_ref() { reference.to_string() } else { format!("{reference}/{name}") };
            let made = match self.models.get(&id) {
                Some(known) => known.clone(),
                None => self.provider(reference, &further_model(model, name)),
            };
            spares.push((id, made.spare()));
        }
        for name in &model.fallback {
            let known = name.trim().parse::<ModelRef>().ok().map(|other| other.to_string());
            match known.and_then(|id| self.models.get(&id).map(|model| (id, model.spare()))) {
                Some(spare) => spares.push(spare),
                None => tracing::warn!(model = %reference, fallback = %name, "there is no such model to take over"),
            }
        }
        let own_ids = self.of_section(reference);
        for id in own_ids {
            let mut seen = vec![id.clone()];
            let others = spares.iter().filter(|(other, _)| {
                let new = !seen.contains(other);
                seen.push(other.clone());
                new
            });
            let others: Vec<(String, Spare)> = others.take(MAX_FALLBACKS).cloned().collect();
            if let Some(model) = self.models.get_mut(&id) {
                model.fallbacks = others;
            }
        }
    }

    /// The ids of the models of one section.
    fn of_section(&self, reference: &ModelRef) -> Vec<String> {
        let (own, further) = (reference.to_string(), format!("{reference}/"));
        self.models.keys().filter(|id| **id == own || id.starts_with(&further)).cloned().collect()
    }

    /// What there is on this machine to connect a model with, by name.
    fn found(&self) -> Vec<String> {
        let families = [Family::Anthropic, Family::Openai, Family::Openrouter, Family::Gemini];
        let set = families.into_iter().filter_map(key_variable).filter(|name| self.env.get(name).is_some());
        set.map(|name| format!("the environment variable {name}")).collect()
    }

    fn entry(
        &self,
        alias: &str,
        own: &ModelRef,
        models: &BTreeMap<String, Model>,
        (risk, rules): (&RiskProfile, Ruleset),
        profile: &RuntimeProfile,
    ) -> AgentEntry {
        let settings = ToolSettings {
            shell_timeout: profile.shell_timeout_secs.map_or(SHELL_TIMEOUT, Duration::from_secs),
            shell_env: shell_env(self.env, &self.loaded.config.sandbox.pass_env),
            max_output_bytes: MAX_OUTPUT,
            launcher: self.launcher.clone(),
            sandbox: Arc::clone(&self.sandbox),
        };
        let choices: Vec<ModelChoice> = models
            .iter()
            .map(|(id, model)| ModelChoice {
                id: id.clone(),
                name: model.provider.info().name.clone(),
                agent: self.agent(model, profile),
                levels: model.levels.clone(),
                thinking: model.thinking,
                price: model.price.clone(),
                commands: model.commands.clone(),
            })
            .collect();
        let model =
            models.get(&own.to_string()).cloned().unwrap_or_else(|| self.provider(own, &ModelConfig::default()));
        let workspace = self.loaded.agent_workspace(alias);
        AgentEntry {
            alias: alias.to_owned(),
            agent: self.agent(&model, profile),
            // A client may lower the level, and raise it to asking; only the operator lets it go beyond.
            max_level: risk.max_level.map_or(rules.level.max(policy::Level::Supervised), level),
            rules: Arc::new(rules),
            settings: Arc::new(settings),
            workspace: std::path::absolute(&workspace).unwrap_or(workspace),
            extra_roots: extra_roots(risk),
            access: model.access,
            model: own.to_string(),
            models: choices,
            mcp: McpSetup { servers: Vec::new(), http: self.http.clone() },
        }
    }

    fn agent(&self, model: &Model, profile: &RuntimeProfile) -> Arc<Agent> {
        let window = model.provider.info().context_window;
        let mut limits = TurnLimits::for_window(window);
        if let Some(calls) = profile.max_tool_iterations.filter(|calls| *calls > 0) {
            limits.max_model_calls = calls;
        }
        (limits.context_tokens, limits.compact_to) = context_limits(window, profile);
        limits.max_output_tokens = profile.max_output_tokens.filter(|tokens| *tokens > 0);
        let fallbacks = model.fallbacks.iter().map(|(id, spare)| {
            let (context_tokens, compact_to) = context_limits(spare.provider.info().context_window, profile);
            Fallback {
                id: id.as_str().into(),
                provider: Arc::clone(&spare.provider),
                context_tokens,
                compact_to,
                levels: spare.levels.clone(),
                thinking: spare.thinking,
            }
        });
        Arc::new(Agent {
            provider: Arc::clone(&model.provider),
            tools: Arc::clone(&self.tools),
            limits,
            fallbacks: fallbacks.collect(),
            random: ambient::random,
        })
    }
}

impl Model {
    fn spare(&self) -> Spare {
        Spare { provider: Arc::clone(&self.provider), levels: self.levels.clone(), thinking: self.thinking }
    }
}

/// The tokens of a request at which the conversation is compacted, and those that it takes then.
fn context_limits(window: u64, profile: &RuntimeProfile) -> (u64, Option<u64>) {
    let percent = |percent: u64| (u128::from(window) * u128::from(percent) / 100).try_into().unwrap_or(u64::MAX);
    let configured = profile.max_context_tokens.filter(|tokens| *tokens > 0);
    let at = profile.compact_at_percent.unwrap_or(COMPACT.0);
    let most: u64 = if at == 0 { TurnLimits::for_window(window).context_tokens } else { percent(at) };
    let context = match configured {
        Some(tokens) if at > 0 && profile.compact_at_percent.is_some() => tokens.min(most),
        Some(tokens) => tokens,
        None => most,
    };
    let to: u64 = percent(profile.compact_to_percent.unwrap_or(COMPACT.1));
    (context, (at > 0).then(|| to.min(context / 2)))
}

/// The model of a section when no other is named.
fn own_model(model: &ModelConfig) -> Option<&str> {
    model.model.as_deref().or(model.models.first().map(String::as_str))
}

/// Another model of the same section. Window, level and price are those of the section's own model.
fn further_model(model: &ModelConfig, name: &str) -> ModelConfig {
    ModelConfig { model: Some(name.to_owned()), context_window: None, thinking: None, price: None, ..model.clone() }
}

/// The HTTP clients, behind the proxy that the user's other programs use.
fn http_clients(env: &Env) -> HttpClients {
    let proxy = env.get("HTTPS_PROXY").or_else(|| env.get("https_proxy"));
    HttpClients::new(proxy.map(str::to_owned), SystemTime::now)
}

/// The vendor's family; one of ours, which has no vendor, is never asked for.
fn vendor(family: Family) -> VendorFamily {
    match family {
        Family::Anthropic => VendorFamily::Anthropic,
        Family::Openai => VendorFamily::Openai,
        Family::Openrouter => VendorFamily::Openrouter,
        Family::Gemini => VendorFamily::Gemini,
        Family::Ollama => VendorFamily::Ollama,
        Family::Llamacpp => VendorFamily::Llamacpp,
        Family::Lmstudio => VendorFamily::Lmstudio,
        Family::Vllm => VendorFamily::Vllm,
        Family::Custom | Family::Builtin | Family::Scripted => VendorFamily::Custom,
    }
}

/// A provider that somebody wants to log in to.
#[derive(Debug)]
pub struct Trial {
    /// Its family.
    pub family: Family,
    /// Its address, where it is not the family's own.
    pub uri: Option<String>,
    /// The key.
    pub key: Option<Secret>,
    /// The model; empty while it is not known.
    pub model: String,
}

impl Trial {
    /// The names of the provider's models.
    ///
    /// # Errors
    /// What the provider or the network said.
    pub async fn models(&self, env: &Env) -> Result<Vec<String>, ModelError> {
        models(&self.config(), &http_clients(env)).await
    }

    /// The provider, ready to be asked.
    pub fn provider(&self, env: &Env) -> VendorProvider {
        VendorProvider::new(self.config(), http_clients(env))
    }

    fn config(&self) -> VendorConfig {
        VendorConfig {
            family: vendor(self.family),
            alias: "login".to_owned(),
            model: self.model.clone(),
            api_key: self.key.as_ref().map(|key| ApiKey::new(key.expose())),
            uri: self.uri.clone(),
            max_output_tokens: None,
            temperature: None,
            context_window: None,
            num_ctx: None,
            idle_timeout: TRIAL_TIMEOUT,
            native_tools: true,
        }
    }
}

fn price(price: &PriceConfig) -> Price {
    let currency = price.currency.as_deref().unwrap_or("USD");
    Price::new(
        price.input.unwrap_or_default(),
        price.output.unwrap_or_default(),
        price.cached,
        price.cache_write,
        currency,
    )
}
