//! The table of every key: its section, name, type, limits and default. Reading, editing and listing all work from it,
//! so a key that is not here does not exist.

use crate::names::{Family, ModelRef};
use crate::types::{DEFAULT_PROFILE, Verdict};
use crate::value::Kind;

/// Names a section that holds keys, with the alias it is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Root,
    Acp,
    Client(String),
    Agent(String),
    Autonomy,
    Gateway,
    Model(ModelRef),
    Price(ModelRef),
    Risk(String),
    Runtime(String),
    Sandbox,
    Store,
}

impl Section {
    /// Returns the keys of the section.
    pub(crate) fn keys(&self) -> &'static [Key] {
        match self {
            Self::Root => ROOT,
            Self::Acp => ACP,
            Self::Client(_) => CLIENT,
            Self::Agent(_) => AGENT,
            Self::Autonomy => AUTONOMY,
            Self::Gateway => GATEWAY,
            Self::Model(_) => MODEL,
            Self::Price(_) => PRICE,
            Self::Risk(_) => RISK,
            Self::Runtime(_) => RUNTIME,
            Self::Sandbox => SANDBOX,
            Self::Store => STORE,
        }
    }

    /// Finds one key of the section.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().iter().find(|key| key.name == name)
    }

    /// Says whether a key that resembles none of ours is an error rather than somebody else's.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Acp | Self::Client(_) | Self::Sandbox | Self::Store => true,
            Self::Root
            | Self::Agent(_)
            | Self::Autonomy
            | Self::Gateway
            | Self::Model(_)
            | Self::Price(_)
            | Self::Risk(_)
            | Self::Runtime(_) => false,
        }
    }

    /// Lists keys of ZeroClaw files that are not ours although they resemble one of ours.
    pub(crate) fn strangers(&self) -> &'static [&'static str] {
        match self {
            Self::Risk(_) | Self::Autonomy => &["allowed_tools", "allowed_hosts"],
            Self::Root
            | Self::Acp
            | Self::Client(_)
            | Self::Agent(_)
            | Self::Gateway
            | Self::Model(_)
            | Self::Price(_)
            | Self::Runtime(_)
            | Self::Sandbox
            | Self::Store => &[],
        }
    }

    /// Returns the tables to go through from the root of the file.
    pub(crate) fn tables(&self) -> Vec<&str> {
        match self {
            Self::Root => vec![],
            Self::Acp => vec!["acp"],
            Self::Client(name) => vec!["acp", CLIENTS_TABLE, name],
            Self::Agent(alias) => vec!["agents", alias],
            Self::Autonomy => vec!["autonomy"],
            Self::Gateway => vec!["gateway"],
            Self::Model(model) => vec!["providers", "models", model.family.as_str(), &model.alias],
            Self::Price(model) => vec!["providers", "models", model.family.as_str(), &model.alias, PRICE_TABLE],
            Self::Risk(name) => vec!["risk_profiles", name],
            Self::Runtime(name) => vec!["runtime_profiles", name],
            Self::Sandbox => vec!["sandbox"],
            Self::Store => vec!["store"],
        }
    }

    /// Writes the whole key as it is typed: an alias with a dot in quotes.
    pub(crate) fn path(&self, name: &str) -> String {
        let mut path = String::new();
        for part in self.tables() {
            path.push_str(&quoted(part));
            path.push('.');
        }
        path.push_str(name);
        path
    }

    /// Says whether the section exists without being written.
    pub(crate) fn is_implied(&self) -> bool {
        match self {
            Self::Root | Self::Acp | Self::Autonomy | Self::Gateway | Self::Sandbox | Self::Store => true,
            Self::Risk(name) | Self::Runtime(name) => name == DEFAULT_PROFILE,
            Self::Agent(_) | Self::Client(_) | Self::Model(_) | Self::Price(_) => false,
        }
    }
}

/// Describes one key.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The default as it would be typed; `None` where leaving out means something of its own.
    pub(crate) default: Option<&'static str>,
}

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, default: None }
}

const fn with_default(name: &'static str, kind: Kind, default: &'static str) -> Key {
    Key { name, kind, default: Some(default) }
}

/// Returns the names of our tables and keys at the root of the file.
pub(crate) const TOP_LEVEL: [&str; 10] = [
    "acp",
    "agents",
    "autonomy",
    "data_dir",
    "gateway",
    "providers",
    "risk_profiles",
    "runtime_profiles",
    "sandbox",
    "store",
];

/// Lists the names of all families.
pub(crate) fn family_names() -> impl Iterator<Item = &'static str> {
    Family::ALL.into_iter().map(Family::as_str)
}

/// Puts a part of a key in quotes when it could not be typed without.
pub(crate) fn quoted(part: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !part.is_empty() && part.bytes().all(bare) { part.to_owned() } else { format!("{part:?}") }
}

/// Ten years: longer waits are typing errors, and clocks overflow on the largest ones.
const SECONDS: Kind = Kind::Whole { min: 1, max: 315_360_000 };

/// A count where nought means "the program's own default", as in files of ZeroClaw.
const OPTIONAL_COUNT: Kind = Kind::Whole { min: 0, max: u32::MAX as u64 };

/// The table of clients inside of that of the agent server.
pub(crate) const CLIENTS_TABLE: &str = "clients";

const ROOT: &[Key] = &[key("data_dir", Kind::Path)];

const ACP: &[Key] = &[
    key("default_agent", Kind::Text),
    // A session costs memory; a million of them is no machine's intention.
    with_default("max_sessions", Kind::Whole { min: 1, max: 1_000_000 }, "10"),
    with_default("session_timeout_secs", SECONDS, "3600"),
    with_default("error_codes", Kind::Choice(&["zeroclaw", "spec"]), "zeroclaw"),
    with_default("strict", Kind::Flag, "false"),
    // Below 64 KiB ordinary prompts with a file in them fail; above 1 GiB one message takes the whole machine.
    with_default("max_line_bytes", Kind::Whole { min: 64 * 1024, max: 1024 * 1024 * 1024 }, "33554432"),
    with_default("client_terminal", Kind::Flag, "false"),
    with_default("client_timeout_secs", SECONDS, "30"),
    with_default("client_mcp_servers", Kind::Choice(&["all", "http", "none"]), "all"),
    key("allowed_cwd_roots", Kind::Paths),
];

const GATEWAY: &[Key] = &[
    with_default("host", Kind::Text, "127.0.0.1"),
    // Nought lets the system choose, which tests and several daemons on one machine need.
    with_default("port", Kind::Whole { min: 0, max: 65535 }, "42617"),
    key("unix_socket", Kind::Path),
    key("tls_certificate", Kind::Path),
    key("tls_key", Kind::Path),
    key("path_prefix", Kind::Text),
    with_default("require_pairing", Kind::Flag, "true"),
    // Below half a minute nobody can carry a code to another machine; a code that lives a day is a password.
    with_default("pairing_code_ttl_secs", Kind::Whole { min: 30, max: 86_400 }, "600"),
    key("allowed_origins", Kind::List),
    key("allowed_hosts", Kind::List),
    with_default("trust_forwarded_headers", Kind::Flag, "false"),
    // A connection costs memory and a file descriptor, of which a process has some thousand by default.
    with_default("max_connections", Kind::Whole { min: 1, max: 100_000 }, "512"),
    with_default("drain_secs", Kind::Whole { min: 0, max: 3600 }, "20"),
    key("allowed_cwd_roots", Kind::Paths),
    // Nought ends a turn with its last client; ten years are for ever.
    with_default("detach_grace_secs", Kind::Whole { min: 0, max: 315_360_000 }, "3600"),
];

const CLIENT: &[Key] = &[
    key("error_codes", Kind::Choice(&["zeroclaw", "spec"])),
    // Below 64 KiB nothing but text would get through; no client is known that reads less.
    key("max_line_bytes", Kind::Whole { min: 64 * 1024, max: 1024 * 1024 * 1024 }),
];

const AGENT: &[Key] = &[
    with_default("enabled", Kind::Flag, "true"),
    key("model_provider", Kind::Text),
    with_default("risk_profile", Kind::Text, DEFAULT_PROFILE),
    with_default("runtime_profile", Kind::Text, DEFAULT_PROFILE),
    key("workspace", Kind::Path),
];

const MODEL: &[Key] = &[
    key("model", Kind::Text),
    key("models", Kind::List),
    key("fallback", Kind::List),
    key("fallback_models", Kind::List),
    key("api_key", Kind::Secret),
    key("uri", Kind::Uri),
    key("native_tools", Kind::Flag),
    key("max_output_tokens", OPTIONAL_COUNT),
    key("context_window", OPTIONAL_COUNT),
    key("temperature", Kind::Number { min: 0, max: 2 }),
    key("script", Kind::Path),
    key("num_ctx", OPTIONAL_COUNT),
    key("idle_timeout_secs", SECONDS),
    key("thinking", Kind::Choice(&["off", "low", "medium", "high"])),
];

/// The table of a model that holds what its tokens cost.
pub(crate) const PRICE_TABLE: &str = "price";

/// No vendor asks for so much; a larger number was meant for another unit.
const PRICE_OF_A_MILLION: Kind = Kind::Number { min: 0, max: 1_000_000 };

const PRICE: &[Key] = &[
    key("input", PRICE_OF_A_MILLION),
    key("output", PRICE_OF_A_MILLION),
    key("cached", PRICE_OF_A_MILLION),
    key("cache_write", PRICE_OF_A_MILLION),
    with_default("currency", Kind::Text, "USD"),
];

/// The list of a risk profile that holds its rules about commands.
pub(crate) const COMMANDS: &str = "commands";

const LEVEL: Kind = Kind::Choice(&["readonly", "supervised", "full"]);

const AUTONOMY: &[Key] = &[
    with_default("level", LEVEL, "supervised"),
    key("auto_approve", Kind::List),
    key("always_ask", Kind::List),
    key("excluded_tools", Kind::List),
    key("allowed_commands", Kind::List),
    key("forbidden_paths", Kind::Paths),
    key("allowed_roots", Kind::Paths),
    key("read_only_roots", Kind::Paths),
    key("workspace_only", Kind::Flag),
    key("max_level", LEVEL),
    key("network", Kind::Choice(Verdict::WORDS)),
];

const RISK: &[Key] = &[
    key("level", LEVEL),
    key("auto_approve", Kind::List),
    key("always_ask", Kind::List),
    key("excluded_tools", Kind::List),
    key("allowed_commands", Kind::List),
    key("forbidden_paths", Kind::Paths),
    key("allowed_roots", Kind::Paths),
    key("read_only_roots", Kind::Paths),
    key("workspace_only", Kind::Flag),
    key("max_level", LEVEL),
    key("network", Kind::Choice(Verdict::WORDS)),
];

const RUNTIME: &[Key] = &[
    key("max_tool_iterations", OPTIONAL_COUNT),
    key("shell_timeout_secs", SECONDS),
    key("max_context_tokens", OPTIONAL_COUNT),
    key("max_output_tokens", OPTIONAL_COUNT),
    // Above, nothing would be left for the answer; nought leaves out instead of compacting.
    key("compact_at_percent", Kind::Whole { min: 0, max: 95 }),
    // Below, every compaction would lose nearly everything; above, the next one would follow at once.
    key("compact_to_percent", Kind::Whole { min: 5, max: 80 }),
];

/// Numbers of megabytes that multiply without overflowing; a million of them is a terabyte.
const MEGABYTES: Kind = Kind::Whole { min: 1, max: 1_000_000_000 };

const SANDBOX: &[Key] = &[
    with_default("backend", Kind::Choice(&["auto", "landlock", "seatbelt", "none"]), "auto"),
    key("readable", Kind::Paths),
    key("writable", Kind::Paths),
    with_default("local_sockets", Kind::Flag, "false"),
    key("pass_env", Kind::List),
    with_default("max_cpu_secs", SECONDS, "3600"),
    key("max_memory_mb", MEGABYTES),
    with_default("max_file_mb", MEGABYTES, "16384"),
    // Below this many a shell cannot even start its pipes.
    with_default("max_open_files", Kind::Whole { min: 16, max: 1_000_000 }, "8192"),
    with_default("max_processes", Kind::Whole { min: 8, max: 1_000_000 }, "1024"),
];

const STORE: &[Key] = &[with_default("sync", Kind::Choice(&["off", "turn", "always"]), "turn")];

#[cfg(test)]
mod tests;
