//! The typed configuration that the rest of the workspace reads, and the questions it can answer about itself.
//!
//! Plain data with public fields: what is read from where is the business of the loader.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::error::Location;
use crate::names::{Family, ModelRef};
use crate::secret::Secret;

/// Holds the whole configuration with every layer applied.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// The agent server: `[acp]`.
    pub acp: AcpConfig,
    /// The agents by alias: `[agents.<alias>]`.
    pub agents: BTreeMap<String, AgentConfig>,
    /// The models: `[providers.models.<family>.<alias>]`.
    pub models: BTreeMap<ModelRef, ModelConfig>,
    /// The named risk profiles: `[risk_profiles.<name>]`, as written, without what they inherit.
    pub risk_profiles: BTreeMap<String, RiskProfile>,
    /// The named runtime profiles: `[runtime_profiles.<name>]`.
    pub runtime_profiles: BTreeMap<String, RuntimeProfile>,
    /// The base of the profile `default`: `[autonomy]`.
    pub autonomy: RiskProfile,
    /// What confines the processes of tools: `[sandbox]`.
    pub sandbox: SandboxConfig,
    /// The daemon's gateway: `[gateway]`.
    pub gateway: GatewayConfig,
    /// The session store: `[store]`.
    pub store: StoreConfig,
    /// Where data is kept, when the configuration says so; the final answer is in [`Paths`](crate::Paths).
    pub data_dir: Option<PathBuf>,
}

impl Config {
    /// Lists the agents that can be started, in the order of their names.
    pub fn dispatchable(&self) -> Vec<&str> {
        self.agents.keys().map(String::as_str).filter(|alias| self.agent_problem(alias).is_none()).collect()
    }

    /// Says why an agent cannot be started; `None` when it can.
    pub fn agent_problem(&self, alias: &str) -> Option<String> {
        let Some(agent) = self.agents.get(alias) else {
            return Some(format!("agent `{alias}` is not configured"));
        };
        if !agent.enabled {
            return Some(format!("agent `{alias}` is disabled"));
        }
        let Some(provider) = &agent.model_provider else {
            return Some(format!("agent `{alias}` has no `model_provider`"));
        };
        let reference = match provider.parse::<ModelRef>() {
            Ok(reference) => reference,
            Err(error) => {
                return Some(format!("agent `{alias}` has the `model_provider` `{provider}`: {error}"));
            }
        };
        self.model_problem(&reference).map(|problem| format!("agent `{alias}` uses the model `{reference}`, {problem}"))
    }

    /// Says why a model cannot be used; `None` when it can.
    pub fn model_problem(&self, reference: &ModelRef) -> Option<String> {
        let Some(model) = self.models.get(reference) else {
            return Some("which is not configured".to_owned());
        };
        let missing = match reference.family {
            Family::Custom if model.uri.is_none() => "uri",
            Family::Scripted if model.script.is_none() => "script",
            Family::Anthropic
            | Family::Openai
            | Family::Openrouter
            | Family::Gemini
            | Family::Ollama
            | Family::Llamacpp
            | Family::Lmstudio
            | Family::Vllm
            | Family::Custom
            | Family::Builtin
            | Family::Scripted => return None,
        };
        Some(format!("which has no `{missing}`"))
    }

    /// Finds the model of an agent; `None` when the agent or its model is not configured.
    pub fn model_of(&self, alias: &str) -> Option<(&ModelRef, &ModelConfig)> {
        let reference = self.agents.get(alias)?.model_provider.as_ref()?.parse::<ModelRef>().ok()?;
        self.models.get_key_value(&reference)
    }

    /// Returns the risk profile of this name with what it inherits.
    ///
    /// The profile `default` takes each key it leaves out from `[autonomy]`, and need not be written at all; any other
    /// profile stands for itself. A name that is not configured gives the profile `default`.
    pub fn effective_risk_profile(&self, name: &str) -> RiskProfile {
        if name != DEFAULT_PROFILE
            && let Some(profile) = self.risk_profiles.get(name)
        {
            return profile.clone();
        }
        match self.risk_profiles.get(DEFAULT_PROFILE) {
            Some(profile) => profile.over(&self.autonomy),
            None => self.autonomy.clone(),
        }
    }

    /// Returns the runtime profile of this name; one that is not configured sets nothing.
    pub fn effective_runtime_profile(&self, name: &str) -> RuntimeProfile {
        self.runtime_profiles.get(name).cloned().unwrap_or_default()
    }
}

/// Configures the agent server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcpConfig {
    /// The agent used when a new session names none.
    pub default_agent: Option<String>,
    /// How many sessions may be active at once.
    pub max_sessions: usize,
    /// After how long an idle session is closed and a permission request is given up.
    pub session_timeout_secs: u64,
    /// Which table of error codes is spoken.
    pub error_codes: ErrorCodes,
    /// Whether leniency towards malformed requests is switched off.
    pub strict: bool,
    /// The longest line or message that is accepted.
    pub max_line_bytes: usize,
    /// Whether commands run in the terminal of the client where it offers one.
    pub client_terminal: bool,
    /// How long a client may take to read or write a file, or to start a terminal.
    pub client_timeout_secs: u64,
    /// What is different for clients, by the name they introduce themselves with: `[acp.clients.<name>]`.
    pub clients: BTreeMap<String, ClientConfig>,
    /// Which MCP servers of a client its sessions use.
    pub client_mcp_servers: ClientMcpServers,
    /// The only directories that sessions may be opened in or below; empty for any.
    pub allowed_cwd_roots: Vec<String>,
}

impl Default for AcpConfig {
    fn default() -> Self {
        Self {
            default_agent: None,
            max_sessions: 10,
            session_timeout_secs: 3600,
            error_codes: ErrorCodes::Zeroclaw,
            strict: false,
            max_line_bytes: 32 * 1024 * 1024,
            client_terminal: false,
            client_timeout_secs: 30,
            clients: BTreeMap::new(),
            client_mcp_servers: ClientMcpServers::All,
            allowed_cwd_roots: Vec::new(),
        }
    }
}

/// Names the MCP servers that a client may bring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientMcpServers {
    /// Programs and addresses.
    #[default]
    All,
    /// Addresses only: no program runs because a client named it.
    Http,
    /// None.
    None,
}

/// Configures what one client gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientConfig {
    /// Which table of error codes is spoken to it; absent means what is known of it, or what everybody gets.
    pub error_codes: Option<ErrorCodes>,
    /// The longest line that it reads; absent means what is known of it, or any.
    pub max_line_bytes: Option<usize>,
}

/// Names a table of error codes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ErrorCodes {
    /// The codes that ZeroClaw clients know.
    #[default]
    Zeroclaw,
    /// The codes of the official protocol.
    Spec,
}

/// Names what confines the processes of tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxBackend {
    /// What the system has, nothing where it has none.
    #[default]
    Auto,
    /// Landlock and seccomp, on Linux.
    Landlock,
    /// `sandbox-exec`, on macOS.
    Seatbelt,
    /// Nothing.
    None,
}

/// Configures the sandbox and the limits of the processes that tools start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxConfig {
    /// What confines them.
    pub backend: SandboxBackend,
    /// Paths that they can read besides the session's directories and the usual ones; written like forbidden paths.
    pub readable: Vec<String>,
    /// Paths that they can write besides the session's directories; written like forbidden paths.
    pub writable: Vec<String>,
    /// Whether they may use the sockets of the file system wherever those lie.
    pub local_sockets: bool,
    /// Variables of the environment that they get besides the usual ones.
    pub pass_env: Vec<String>,
    /// Seconds of processor time of one process.
    pub max_cpu_secs: u64,
    /// Megabytes of writable memory of one process; absent means as much as the machine has.
    pub max_memory_mb: Option<u64>,
    /// Megabytes of one file.
    pub max_file_mb: u64,
    /// Open files of one process.
    pub max_open_files: u64,
    /// Processes of one command at once.
    pub max_processes: u64,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            backend: SandboxBackend::Auto,
            readable: Vec::new(),
            writable: Vec::new(),
            local_sockets: false,
            pass_env: Vec::new(),
            max_cpu_secs: 3600,
            max_memory_mb: None,
            max_file_mb: 16_384,
            max_open_files: 8192,
            max_processes: 1024,
        }
    }
}

/// Configures the gateway of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    /// The name or address that is listened on.
    pub host: String,
    /// The port that is listened on; 0 lets the system choose.
    pub port: u16,
    /// The Unix domain socket that is listened on in place of host and port.
    pub unix_socket: Option<PathBuf>,
    /// The certificate with which TLS is spoken; `None` for plain HTTP.
    pub tls_certificate: Option<PathBuf>,
    /// The key of the certificate.
    pub tls_key: Option<PathBuf>,
    /// What stands before every path, for reverse proxies that pass it on.
    pub path_prefix: Option<String>,
    /// Whether a client needs a token.
    pub require_pairing: bool,
    /// How long a pairing code can be used.
    pub pairing_code_ttl_secs: u64,
    /// The origins of web pages that may connect, beside the gateway's own.
    pub allowed_origins: Vec<String>,
    /// The names under which a gateway on a loopback address may be asked for, beside those of the loopback.
    pub allowed_hosts: Vec<String>,
    /// Whether `X-Forwarded-For` says who the peer is.
    pub trust_forwarded_headers: bool,
    /// How many connections may be open at once.
    pub max_connections: usize,
    /// How long running turns may go on when the daemon is asked to end.
    pub drain_secs: u64,
    /// The only directories that clients of the gateway may open sessions in; empty for those of `[acp]`.
    pub allowed_cwd_roots: Vec<String>,
    /// How long a turn goes on that no client sees.
    pub detach_grace_secs: u64,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 42617,
            unix_socket: None,
            tls_certificate: None,
            tls_key: None,
            path_prefix: None,
            require_pairing: true,
            pairing_code_ttl_secs: 600,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            trust_forwarded_headers: false,
            max_connections: 512,
            drain_secs: 20,
            allowed_cwd_roots: Vec::new(),
            detach_grace_secs: 3600,
        }
    }
}

/// Configures one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// Whether sessions may be created for it.
    pub enabled: bool,
    /// The model it uses, as `family.alias`.
    pub model_provider: Option<String>,
    /// The name of its risk profile.
    pub risk_profile: String,
    /// The name of its runtime profile.
    pub runtime_profile: String,
    /// Its own directory; absent means `<data dir>/agents/<alias>/workspace`.
    pub workspace: Option<PathBuf>,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            model_provider: None,
            risk_profile: DEFAULT_PROFILE.to_owned(),
            runtime_profile: DEFAULT_PROFILE.to_owned(),
            workspace: None,
        }
    }
}

/// Configures one model.
#[derive(Clone, Default, PartialEq)]
pub struct ModelConfig {
    /// The name of the model as the provider knows it.
    pub model: Option<String>,
    /// The key sent to the provider.
    pub api_key: Option<Secret>,
    /// Whether that key is one that `zeroclaw login` stored.
    pub key_is_stored: bool,
    /// The address of the provider, where it is not the family's own.
    pub uri: Option<String>,
    /// Whether the model understands tool calls; absent means what the family usually does.
    pub native_tools: Option<bool>,
    /// The most tokens of one answer.
    pub max_output_tokens: Option<u32>,
    /// How many tokens the model can read.
    pub context_window: Option<u64>,
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// The script file of the family `scripted`.
    pub script: Option<PathBuf>,
    /// The context length asked of an Ollama server.
    pub num_ctx: Option<u64>,
    /// After how long without a byte a stream is given up.
    pub idle_timeout_secs: Option<u64>,
    /// Further models of the same provider that a client may choose.
    pub models: Vec<String>,
    /// Models that take over when this one cannot answer, as `family.alias`, in order.
    pub fallback: Vec<String>,
    /// Models of the same provider that take over before those.
    pub fallback_models: Vec<String>,
    /// How much the model thinks: `off`, `low`, `medium` or `high`; absent leaves it to the provider.
    pub thinking: Option<String>,
    /// What its tokens cost.
    pub price: Option<PriceConfig>,
}

/// Says what a million tokens of a model cost.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PriceConfig {
    /// Of the request.
    pub input: Option<f64>,
    /// Of the answer.
    pub output: Option<f64>,
    /// Of the request, read from the provider's cache; absent means as the rest of the request.
    pub cached: Option<f64>,
    /// Of the request, written to the provider's cache; absent means as the rest of the request.
    pub cache_write: Option<f64>,
    /// The currency, as ISO 4217 writes it; absent means USD.
    pub currency: Option<String>,
}

impl fmt::Debug for ModelConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ModelConfig")
            .field("model", &self.model)
            .field("api_key", &self.api_key)
            .field("key_is_stored", &self.key_is_stored)
            .field("uri", &self.uri.as_deref().map(mask_uri))
            .field("native_tools", &self.native_tools)
            .field("max_output_tokens", &self.max_output_tokens)
            .field("context_window", &self.context_window)
            .field("temperature", &self.temperature)
            .field("script", &self.script)
            .field("num_ctx", &self.num_ctx)
            .field("idle_timeout_secs", &self.idle_timeout_secs)
            .field("models", &self.models)
            .field("thinking", &self.thinking)
            .field("fallback", &self.fallback)
            .field("fallback_models", &self.fallback_models)
            .field("price", &self.price)
            .finish()
    }
}

/// Says what an agent may do and what it must ask for. An empty list and an absent value mean "not said".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RiskProfile {
    /// How much the agent may do by itself; absent means supervised.
    pub level: Option<Level>,
    /// Tools that need no permission.
    pub auto_approve: Vec<String>,
    /// Tools that always need permission.
    pub always_ask: Vec<String>,
    /// Tools that the agent does not have.
    pub excluded_tools: Vec<String>,
    /// Commands that the shell tool may run.
    pub allowed_commands: Vec<String>,
    /// Paths that no tool touches; `~` has become the home directory, other relative ones are as written.
    pub forbidden_paths: Vec<String>,
    /// Directories beside the working directory that tools may use; written like the forbidden paths.
    pub allowed_roots: Vec<String>,
    /// Directories that tools may only read; written like the forbidden paths.
    pub read_only_roots: Vec<String>,
    /// Whether tools stay inside the working directory and the allowed roots.
    pub workspace_only: Option<bool>,
    /// The most autonomous level that a client may choose; left out, the level itself, but at least `supervised`.
    pub max_level: Option<Level>,
    /// What becomes of commands that use the network; absent asks.
    pub network: Option<Verdict>,
    /// Rules about single commands.
    pub commands: Vec<CommandConfig>,
}

/// A rule about single commands: `[[risk_profiles.<name>.commands]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandConfig {
    /// The pattern of words.
    pub command: String,
    /// What becomes of the commands that match.
    pub decision: Verdict,
    /// Whether what is allowed runs with network, where the rule says so.
    pub network: Option<bool>,
    /// Commands that must match.
    pub matches: Vec<String>,
    /// Commands that must not match.
    pub not_matches: Vec<String>,
    /// Where the rule stands.
    pub at: Location,
}

/// Names what becomes of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Allow,
    /// It is asked about.
    Ask,
    /// It is refused.
    Deny,
}

impl Verdict {
    /// The words that name the verdicts.
    pub(crate) const WORDS: &'static [&'static str] = &["allow", "ask", "deny"];

    /// Reads a word.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "allow" => Some(Self::Allow),
            "ask" => Some(Self::Ask),
            "deny" => Some(Self::Deny),
            _ => None,
        }
    }
}

impl RiskProfile {
    /// Fills what this profile leaves out from another.
    fn over(&self, base: &Self) -> Self {
        fn list(own: &[String], base: &[String]) -> Vec<String> {
            if own.is_empty() { base.to_vec() } else { own.to_vec() }
        }
        Self {
            level: self.level.or(base.level),
            auto_approve: list(&self.auto_approve, &base.auto_approve),
            always_ask: list(&self.always_ask, &base.always_ask),
            excluded_tools: list(&self.excluded_tools, &base.excluded_tools),
            allowed_commands: list(&self.allowed_commands, &base.allowed_commands),
            forbidden_paths: list(&self.forbidden_paths, &base.forbidden_paths),
            allowed_roots: list(&self.allowed_roots, &base.allowed_roots),
            read_only_roots: list(&self.read_only_roots, &base.read_only_roots),
            workspace_only: self.workspace_only.or(base.workspace_only),
            max_level: self.max_level.or(base.max_level),
            network: self.network.or(base.network),
            commands: if self.commands.is_empty() { base.commands.clone() } else { self.commands.clone() },
        }
    }
}

/// Names how much an agent may do by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing that changes anything.
    Readonly,
    /// Whatever is risky asks first.
    #[default]
    Supervised,
    /// Nothing asks.
    Full,
}

/// Sets the limits of one turn; an absent value means the program's own default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeProfile {
    /// How often the model may call tools within a turn.
    pub max_tool_iterations: Option<u32>,
    /// After how long a shell command is ended.
    pub shell_timeout_secs: Option<u64>,
    /// How many tokens of conversation are sent to the model.
    pub max_context_tokens: Option<u64>,
    /// The most tokens of one answer.
    pub max_output_tokens: Option<u32>,
    /// At how many percent of the window the conversation is compacted; 0 for never.
    pub compact_at_percent: Option<u64>,
    /// How many percent of the window it takes afterwards.
    pub compact_to_percent: Option<u64>,
}

/// Configures the session store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreConfig {
    /// When written data is forced to the disk.
    pub sync: SyncMode,
}

/// Names when written data is forced to the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// Never: a crash of the machine may lose turns, a crash of the program does not.
    Off,
    /// At the end of each turn, before it is answered.
    #[default]
    Turn,
    /// At every write.
    Always,
}

/// Hides the parts of an address that may carry a key: user information and the query.
pub(crate) fn mask_uri(uri: &str) -> String {
    let (scheme, rest) = uri.split_once("://").map_or(("", uri), |(scheme, rest)| (scheme, rest));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?***"));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let authority = authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("***@{host}"));
    let separator = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{separator}{authority}{path}{query}")
}

/// The profile that an agent has when it names none; it exists without being written.
pub(crate) const DEFAULT_PROFILE: &str = "default";
