//! Puts the variables of the environment over the settings of the file, and makes the typed configuration of both.

use std::path::{Path, PathBuf};

use crate::env::Env;
use crate::error::ConfigError;
use crate::names::{Family, ModelRef, check_alias};
use crate::nearest::nearest;
use crate::paths::{data_dir_from_env, expand_home};
use crate::schema::{CLIENTS_TABLE, PRICE_TABLE, Section, family_names};
use crate::settings::{Place, Setting, Settings, Source};
use crate::types::{
    AcpConfig, AgentConfig, ClientConfig, ClientMcpServers, Config, DEFAULT_PROFILE, ErrorCodes, GatewayConfig, Level,
    ModelConfig, PriceConfig, RiskProfile, RuntimeProfile, SandboxBackend, SandboxConfig, StoreConfig, SyncMode,
    Verdict,
};
use crate::value::Value;

/// Applies every variable that names one of our keys.
pub(crate) fn apply_env(settings: &mut Settings, source: &Source, env: &Env) -> Result<(), ConfigError> {
    for (variable, text) in env.iter() {
        let Some(rest) = variable.strip_prefix("ZEROCLAW_") else {
            continue;
        };
        let parts: Vec<&str> = rest.split("__").collect();
        let Some((section, name)) = target(settings, source, variable, &parts)? else {
            if parts.len() > 1 {
                settings.ignored.push(variable.to_owned());
            }
            continue;
        };
        let place = Place::Variable(variable.to_owned());
        let Some(key) = section.key(&name) else {
            if let Some(ours) = nearest(&name, section.keys().iter().map(|key| key.name))
                && !section.strangers().contains(&name.as_str())
            {
                return Err(unknown(source, &place, section.path(&name), ours));
            }
            settings.ignored.push(variable.to_owned());
            continue;
        };
        let value = key.kind.read_text(text).map_err(|wrong| source.bad_value(&place, &section, key, wrong))?;
        settings.put(&section, Setting { key, value, place });
    }
    Ok(())
}

/// Finds section and key that a variable names; `None` when it is not ours.
fn target(
    settings: &Settings,
    source: &Source,
    variable: &str,
    parts: &[&str],
) -> Result<Option<(Section, String)>, ConfigError> {
    let Some((last, tables)) = parts.split_last() else {
        return Ok(None);
    };
    let name = last.to_ascii_lowercase();
    let [first, rest @ ..] = tables else {
        return Ok(Some((Section::Root, name)).filter(|(_, name)| name == "data_dir"));
    };
    let section: Box<dyn Fn(String) -> Section> = match (first.to_ascii_lowercase().as_str(), rest) {
        ("acp", []) => return Ok(Some((Section::Acp, name))),
        ("autonomy", []) => return Ok(Some((Section::Autonomy, name))),
        ("sandbox", []) => return Ok(Some((Section::Sandbox, name))),
        ("gateway", []) => return Ok(Some((Section::Gateway, name))),
        ("store", []) => return Ok(Some((Section::Store, name))),
        ("acp", [clients, _, ..]) if clients.eq_ignore_ascii_case(CLIENTS_TABLE) => Box::new(Section::Client),
        ("agents", [_, ..]) => Box::new(Section::Agent),
        ("risk_profiles", [_, ..]) => Box::new(Section::Risk),
        ("runtime_profiles", [_, ..]) => Box::new(Section::Runtime),
        ("providers", [models, family, _, ..]) if models.eq_ignore_ascii_case("models") => {
            let family = family.to_ascii_lowercase();
            match (Family::from_name(&family), nearest(&family, family_names())) {
                (Some(family), _) => Box::new(move |alias| Section::Model(ModelRef { family, alias })),
                (None, Some(ours)) => {
                    let place = Place::Variable(variable.to_owned());
                    return Err(unknown(source, &place, format!("providers.models.{family}"), ours));
                }
                (None, None) => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    let skipped = match first.to_ascii_lowercase().as_str() {
        "providers" => 2,
        "acp" => 1,
        _ => 0,
    };
    let mut alias = rest.get(skipped..).unwrap_or_default();
    let mut section = section;
    // What costs something stands in a table of its own below the model.
    if skipped > 1
        && let [before @ .., last] = alias
        && !before.is_empty()
        && last.eq_ignore_ascii_case(PRICE_TABLE)
    {
        alias = before;
        let model = section;
        section = Box::new(move |alias| match model(alias) {
            Section::Model(model) => Section::Price(model),
            other => other,
        });
    }
    let alias = alias.join("__");
    check_alias(&alias).map_err(|error| ConfigError::BadAlias {
        at: source.locate(&Place::Variable(variable.to_owned())),
        key: section(alias.clone()).path(&name),
        source: error,
    })?;
    Ok(Some((configured(settings, &section, &alias), name)))
}

/// Finds the section that the file has for an alias however its letters are written; a new one is in lower case.
fn configured(settings: &Settings, section: &dyn Fn(String) -> Section, alias: &str) -> Section {
    let exact = section(alias.to_owned());
    if settings.sections.contains_key(&exact) {
        return exact;
    }
    let lower = section(alias.to_ascii_lowercase());
    let same = |candidate: &&Section| {
        let lower_case = |section: &Section| section.tables().join("\0").to_ascii_lowercase();
        lower_case(candidate) == lower_case(&lower)
    };
    settings.sections.keys().find(same).cloned().unwrap_or(lower)
}

fn unknown(source: &Source, place: &Place, key: String, ours: &str) -> ConfigError {
    ConfigError::UnknownKey { at: source.locate(place), key, nearest: Some(ours.to_owned()), known: Vec::new() }
}

/// Makes the typed configuration; the settings have been checked one by one.
pub(crate) fn build(settings: &Settings, source: &Source, env: &Env) -> Config {
    let mut config = Config::default();
    for (section, keys) in &settings.sections {
        let values = || keys.values().map(|setting| (setting, Reader { setting, source, env }));
        match section {
            Section::Root => values().for_each(|(_, reader)| reader.path(&mut config.data_dir)),
            Section::Acp => values().for_each(|(setting, reader)| put_acp(&mut config.acp, setting, &reader)),
            Section::Sandbox => {
                values().for_each(|(setting, reader)| put_sandbox(&mut config.sandbox, setting, &reader))
            }
            Section::Gateway => {
                values().for_each(|(setting, reader)| put_gateway(&mut config.gateway, setting, &reader))
            }
            Section::Store => values().for_each(|(_, reader)| put_store(&mut config.store, &reader)),
            Section::Autonomy => {
                values().for_each(|(setting, reader)| put_risk(&mut config.autonomy, setting, &reader))
            }
            Section::Client(name) => {
                let client = config.acp.clients.entry(name.clone()).or_default();
                values().for_each(|(setting, reader)| put_client(client, setting, &reader));
            }
            Section::Agent(alias) => {
                let agent = config.agents.entry(alias.clone()).or_default();
                values().for_each(|(setting, reader)| put_agent(agent, setting, &reader));
            }
            Section::Model(model) => {
                let model = config.models.entry(model.clone()).or_default();
                values().for_each(|(setting, reader)| put_model(model, setting, &reader));
            }
            Section::Price(model) => {
                let price = config.models.entry(model.clone()).or_default().price.get_or_insert_default();
                values().for_each(|(setting, reader)| put_price(price, setting, &reader));
            }
            Section::Risk(name) => {
                let profile = config.risk_profiles.entry(name.clone()).or_default();
                values().for_each(|(setting, reader)| put_risk(profile, setting, &reader));
            }
            Section::Runtime(name) => {
                let profile = config.runtime_profiles.entry(name.clone()).or_default();
                values().for_each(|(setting, reader)| put_runtime(profile, setting, &reader));
            }
        }
    }
    for (section, rules) in &settings.commands {
        match section {
            Section::Autonomy => config.autonomy.commands.clone_from(rules),
            Section::Risk(name) => config.risk_profiles.entry(name.clone()).or_default().commands.clone_from(rules),
            Section::Root
            | Section::Acp
            | Section::Client(_)
            | Section::Agent(_)
            | Section::Model(_)
            | Section::Price(_)
            | Section::Runtime(_)
            | Section::Gateway
            | Section::Sandbox
            | Section::Store => {}
        }
    }
    if config.data_dir.is_none() {
        config.data_dir = data_dir_from_env(env);
    }
    config
}

/// Refuses agents that name profiles which do not exist.
pub(crate) fn check_references(settings: &Settings, config: &Config, source: &Source) -> Result<(), ConfigError> {
    for (alias, agent) in &config.agents {
        let risk = (&agent.risk_profile, "risk_profile", "risk_profiles", keys(&config.risk_profiles));
        let runtime = (&agent.runtime_profile, "runtime_profile", "runtime_profiles", keys(&config.runtime_profiles));
        for (name, key, section, profiles) in [risk, runtime] {
            if name == DEFAULT_PROFILE || profiles.contains(&name.as_str()) {
                continue;
            }
            let owner = Section::Agent(alias.clone());
            let place = settings.get(&owner, key).map_or(Place::Byte(0), |setting| setting.place.clone());
            return Err(ConfigError::MissingProfile {
                at: source.locate(&place),
                key: owner.path(key),
                section,
                name: name.clone(),
                nearest: nearest(name, profiles.into_iter().chain([DEFAULT_PROFILE])).map(str::to_owned),
            });
        }
    }
    Ok(())
}

fn keys<T>(map: &std::collections::BTreeMap<String, T>) -> Vec<&str> {
    map.keys().map(String::as_str).collect()
}

/// Makes a path of a setting: `~` is the home directory, and a relative path in the file starts beside the file.
pub(crate) fn resolve_path(text: &str, place: &Place, source: &Source, env: &Env) -> PathBuf {
    let path = expand_home(Path::new(text), env);
    match place {
        Place::Byte(_) => source.directory().join(path),
        Place::Variable(_) => path,
    }
}

/// Puts the home directory where a path of a list has `~`; whoever judges paths does not know it. Other relative paths
/// stay as they are, because they belong to the working directory of a session.
pub(crate) fn expand_list(words: &[String], env: &Env) -> Vec<String> {
    words.iter().map(|word| expand_home(Path::new(word), env).to_string_lossy().into_owned()).collect()
}

/// Hands the value of one setting to the field it is for. The table of keys decides the type, so a value of another
/// type cannot come; if it came, the default would stay.
struct Reader<'a> {
    setting: &'a Setting,
    source: &'a Source,
    env: &'a Env,
}

impl Reader<'_> {
    fn word(&self) -> &str {
        match &self.setting.value {
            Value::Text(text) => text,
            Value::Secret(_) | Value::Flag(_) | Value::Whole(_) | Value::Number(_) | Value::List(_) => "",
        }
    }

    fn text(&self, field: &mut Option<String>) {
        *field = Some(self.word().to_owned()).filter(|text| !text.is_empty());
    }

    fn path(&self, field: &mut Option<PathBuf>) {
        *field = Some(resolve_path(self.word(), &self.setting.place, self.source, self.env));
    }

    fn flag(&self) -> Option<bool> {
        match self.setting.value {
            Value::Flag(flag) => Some(flag),
            Value::Text(_) | Value::Secret(_) | Value::Whole(_) | Value::Number(_) | Value::List(_) => None,
        }
    }

    fn whole(&self) -> Option<u64> {
        match self.setting.value {
            Value::Whole(number) => Some(number),
            Value::Text(_) | Value::Secret(_) | Value::Flag(_) | Value::Number(_) | Value::List(_) => None,
        }
    }

    fn number(&self) -> Option<f64> {
        match self.setting.value {
            Value::Number(number) => Some(number),
            Value::Text(_) | Value::Secret(_) | Value::Flag(_) | Value::Whole(_) | Value::List(_) => None,
        }
    }

    /// Reads a count where nought stands for the program's own default.
    fn count<T: TryFrom<u64>>(&self, field: &mut Option<T>) {
        *field = self.whole().filter(|number| *number > 0).and_then(|number| T::try_from(number).ok());
    }

    fn list(&self, field: &mut Vec<String>) {
        if let Value::List(words) = &self.setting.value {
            field.clone_from(words);
        }
    }

    fn paths(&self, field: &mut Vec<String>) {
        if let Value::List(words) = &self.setting.value {
            *field = expand_list(words, self.env);
        }
    }
}

fn put_acp(acp: &mut AcpConfig, setting: &Setting, reader: &Reader<'_>) {
    let size = |default: usize| reader.whole().and_then(|number| usize::try_from(number).ok()).unwrap_or(default);
    match setting.key.name {
        "default_agent" => reader.text(&mut acp.default_agent),
        "max_sessions" => acp.max_sessions = size(acp.max_sessions),
        "session_timeout_secs" => acp.session_timeout_secs = reader.whole().unwrap_or(acp.session_timeout_secs),
        "error_codes" if reader.word() == "spec" => acp.error_codes = ErrorCodes::Spec,
        "error_codes" => acp.error_codes = ErrorCodes::Zeroclaw,
        "strict" => acp.strict = reader.flag().unwrap_or(acp.strict),
        "max_line_bytes" => acp.max_line_bytes = size(acp.max_line_bytes),
        "allowed_cwd_roots" => reader.paths(&mut acp.allowed_cwd_roots),
        "client_terminal" => acp.client_terminal = reader.flag().unwrap_or(acp.client_terminal),
        "client_timeout_secs" => acp.client_timeout_secs = reader.whole().unwrap_or(acp.client_timeout_secs),
        "client_mcp_servers" => {
            acp.client_mcp_servers = match reader.word() {
                "http" => ClientMcpServers::Http,
                "none" => ClientMcpServers::None,
                _ => ClientMcpServers::All,
            };
        }
        _ => {}
    }
}

fn put_gateway(gateway: &mut GatewayConfig, setting: &Setting, reader: &Reader<'_>) {
    let whole = |default: u64| reader.whole().unwrap_or(default);
    match setting.key.name {
        "host" => gateway.host = reader.word().to_owned(),
        "port" => gateway.port = reader.whole().and_then(|port| u16::try_from(port).ok()).unwrap_or(gateway.port),
        "unix_socket" => reader.path(&mut gateway.unix_socket),
        "tls_certificate" => reader.path(&mut gateway.tls_certificate),
        "tls_key" => reader.path(&mut gateway.tls_key),
        "path_prefix" => reader.text(&mut gateway.path_prefix),
        "require_pairing" => gateway.require_pairing = reader.flag().unwrap_or(gateway.require_pairing),
        "pairing_code_ttl_secs" => gateway.pairing_code_ttl_secs = whole(gateway.pairing_code_ttl_secs),
        "allowed_origins" => reader.list(&mut gateway.allowed_origins),
        "allowed_hosts" => reader.list(&mut gateway.allowed_hosts),
        "trust_forwarded_headers" => {
            gateway.trust_forwarded_headers = reader.flag().unwrap_or(gateway.trust_forwarded_headers);
        }
        "max_connections" => {
            let count = reader.whole().and_then(|count| usize::try_from(count).ok());
            gateway.max_connections = count.unwrap_or(gateway.max_connections);
        }
        "drain_secs" => gateway.drain_secs = whole(gateway.drain_secs),
        "allowed_cwd_roots" => reader.paths(&mut gateway.allowed_cwd_roots),
        "detach_grace_secs" => gateway.detach_grace_secs = whole(gateway.detach_grace_secs),
        _ => {}
    }
}

fn put_client(client: &mut ClientConfig, setting: &Setting, reader: &Reader<'_>) {
    match setting.key.name {
        "error_codes" if reader.word() == "spec" => client.error_codes = Some(ErrorCodes::Spec),
        "error_codes" => client.error_codes = Some(ErrorCodes::Zeroclaw),
        "max_line_bytes" => reader.count(&mut client.max_line_bytes),
        _ => {}
    }
}

fn put_agent(agent: &mut AgentConfig, setting: &Setting, reader: &Reader<'_>) {
    match setting.key.name {
        "enabled" => agent.enabled = reader.flag().unwrap_or(agent.enabled),
        "model_provider" => reader.text(&mut agent.model_provider),
        "risk_profile" => agent.risk_profile = reader.word().to_owned(),
        "runtime_profile" => agent.runtime_profile = reader.word().to_owned(),
        "workspace" => reader.path(&mut agent.workspace),
        _ => {}
    }
}

fn put_model(model: &mut ModelConfig, setting: &Setting, reader: &Reader<'_>) {
    match setting.key.name {
        "model" => reader.text(&mut model.model),
        "api_key" => {
            if let Value::Secret(secret) = &setting.value {
                model.api_key = Some(secret.clone());
            }
        }
        "uri" => reader.text(&mut model.uri),
        "native_tools" => model.native_tools = reader.flag(),
        "max_output_tokens" => reader.count(&mut model.max_output_tokens),
        "context_window" => reader.count(&mut model.context_window),
        "temperature" => model.temperature = reader.number(),
        "models" => reader.list(&mut model.models),
        "fallback" => reader.list(&mut model.fallback),
        "fallback_models" => reader.list(&mut model.fallback_models),
        "thinking" => reader.text(&mut model.thinking),
        "script" => reader.path(&mut model.script),
        "num_ctx" => reader.count(&mut model.num_ctx),
        "idle_timeout_secs" => model.idle_timeout_secs = reader.whole(),
        _ => {}
    }
}

fn put_price(price: &mut PriceConfig, setting: &Setting, reader: &Reader<'_>) {
    match setting.key.name {
        "input" => price.input = reader.number(),
        "output" => price.output = reader.number(),
        "cached" => price.cached = reader.number(),
        "cache_write" => price.cache_write = reader.number(),
        "currency" => reader.text(&mut price.currency),
        _ => {}
    }
}

fn put_risk(profile: &mut RiskProfile, setting: &Setting, reader: &Reader<'_>) {
    match setting.key.name {
        "level" => profile.level = level(reader.word()),
        "max_level" => profile.max_level = level(reader.word()),
        "auto_approve" => reader.list(&mut profile.auto_approve),
        "always_ask" => reader.list(&mut profile.always_ask),
        "excluded_tools" => reader.list(&mut profile.excluded_tools),
        "allowed_commands" => reader.list(&mut profile.allowed_commands),
        "forbidden_paths" => reader.paths(&mut profile.forbidden_paths),
        "allowed_roots" => reader.paths(&mut profile.allowed_roots),
        "read_only_roots" => reader.paths(&mut profile.read_only_roots),
        "workspace_only" => profile.workspace_only = reader.flag(),
        "network" => profile.network = Verdict::from_word(reader.word()),
        _ => {}
    }
}

fn level(word: &str) -> Option<Level> {
    match word {
        "readonly" => Some(Level::Readonly),
        "supervised" => Some(Level::Supervised),
        "full" => Some(Level::Full),
        _ => None,
    }
}

fn put_runtime(profile: &mut RuntimeProfile, setting: &Setting, reader: &Reader<'_>) {
    match setting.key.name {
        "max_tool_iterations" => reader.count(&mut profile.max_tool_iterations),
        "shell_timeout_secs" => profile.shell_timeout_secs = reader.whole(),
        "max_context_tokens" => reader.count(&mut profile.max_context_tokens),
        "max_output_tokens" => reader.count(&mut profile.max_output_tokens),
        "compact_at_percent" => profile.compact_at_percent = reader.whole(),
        "compact_to_percent" => profile.compact_to_percent = reader.whole(),
        _ => {}
    }
}

fn put_sandbox(sandbox: &mut SandboxConfig, setting: &Setting, reader: &Reader<'_>) {
    let number = |default: u64| reader.whole().unwrap_or(default);
    match setting.key.name {
        "backend" => {
            sandbox.backend = match reader.word() {
                "landlock" => SandboxBackend::Landlock,
                "seatbelt" => SandboxBackend::Seatbelt,
                "none" => SandboxBackend::None,
                _ => SandboxBackend::Auto,
            }
        }
        "readable" => reader.paths(&mut sandbox.readable),
        "writable" => reader.paths(&mut sandbox.writable),
        "local_sockets" => sandbox.local_sockets = reader.flag().unwrap_or(sandbox.local_sockets),
        "pass_env" => reader.list(&mut sandbox.pass_env),
        "max_cpu_secs" => sandbox.max_cpu_secs = number(sandbox.max_cpu_secs),
        "max_memory_mb" => sandbox.max_memory_mb = reader.whole(),
        "max_file_mb" => sandbox.max_file_mb = number(sandbox.max_file_mb),
        "max_open_files" => sandbox.max_open_files = number(sandbox.max_open_files),
        "max_processes" => sandbox.max_processes = number(sandbox.max_processes),
        _ => {}
    }
}

fn put_store(store: &mut StoreConfig, reader: &Reader<'_>) {
    store.sync = match reader.word() {
        "off" => SyncMode::Off,
        "always" => SyncMode::Always,
        _ => SyncMode::Turn,
    };
}
