//! What a good file gives, what is left alone, and where things are found.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use zeroclaw_config::{
    AcpConfig, ClientConfig, ClientMcpServers, CommandConfig, Config, ConfigError, Env, ErrorCodes, Family, Level,
    Location, ModelRef, PriceConfig, RiskProfile, RuntimeProfile, Secret, SyncMode, Verdict, load, resolve_paths, set,
};

use crate::support::Home;

const CUSTOM: &str = r#"
[providers.models.custom.local]
model = "some-model"
uri = "http://127.0.0.1:8000/v1"
api_key = "sk-x"
native_tools = true
[agents.main]
model_provider = "custom.local"
risk_profile = "default"
runtime_profile = "default"
[risk_profiles.default]
level = "supervised"
[runtime_profiles.default]
"#;

fn loaded(content: &str) -> Config {
    Home::with(content).load(&[]).unwrap().config
}

#[test]
fn no_file_is_all_defaults() {
    let home = Home::empty();
    let loaded = home.load(&[]).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert!(!loaded.file_found);
    assert_eq!(loaded.ignored, Vec::<String>::new());
    assert_eq!(loaded.paths.data_dir, home.dir().join("data"));
    assert_eq!(
        loaded.config.acp,
        AcpConfig {
            default_agent: None,
            max_sessions: 10,
            session_timeout_secs: 3600,
            error_codes: ErrorCodes::Zeroclaw,
            strict: false,
            max_line_bytes: 33_554_432,
            client_terminal: false,
            client_timeout_secs: 30,
            clients: BTreeMap::new(),
            client_mcp_servers: ClientMcpServers::All,
            allowed_cwd_roots: Vec::new(),
        }
    );
    assert_eq!(loaded.config.store.sync, SyncMode::Turn);
    assert!(!home.dir().exists(), "loading creates nothing");
}

#[test]
fn an_empty_file_is_a_file() {
    let loaded = Home::with("").load(&[]).unwrap();
    assert!(loaded.file_found);
    assert_eq!(loaded.config, Config::default());
}

#[test]
fn the_usual_file_loads() {
    let config = loaded(CUSTOM);
    let reference = ModelRef { family: Family::Custom, alias: "local".to_owned() };
    let model = &config.models[&reference];
    assert_eq!(reference.to_string(), "custom.local");
    assert_eq!(model.model.as_deref(), Some("some-model"));
    assert_eq!(model.uri.as_deref(), Some("http://127.0.0.1:8000/v1"));
    assert_eq!(model.api_key.as_ref().map(Secret::expose), Some("sk-x"));
    assert_eq!(model.native_tools, Some(true));
    assert_eq!(config.agents["main"].model_provider.as_deref(), Some("custom.local"));
    assert_eq!(config.risk_profiles["default"].level, Some(Level::Supervised));
    assert_eq!(config.runtime_profiles["default"], RuntimeProfile::default());
    assert_eq!(config.dispatchable(), ["main"]);
    assert_eq!(config.model_of("main"), Some((&reference, model)));
}

#[test]
fn a_byte_order_mark_is_no_error() {
    assert_eq!(loaded(&format!("\u{feff}{CUSTOM}")), loaded(CUSTOM));
}

/// A file with every key, each with a value that is not its default.
const EVERY_KEY: &str = r#"
data_dir = "/var/zc"
[acp]
default_agent = "a"
max_sessions = 3
session_timeout_secs = 60
error_codes = "spec"
strict = true
max_line_bytes = 65536
client_terminal = true
client_timeout_secs = 5
client_mcp_servers = "http"
allowed_cwd_roots = ["/srv"]
[acp.clients."My.IDE"]
error_codes = "spec"
max_line_bytes = 65536

[store]
sync = "always"
[autonomy]
level = "Read-Only"
[agents.a]
enabled = false
model_provider = "ollama.m"
risk_profile = "r"
runtime_profile = "t"
workspace = "ws"
[providers.models.ollama."m.1"]
model = "m"
api_key = "k"
uri = "http://h"
native_tools = false
max_output_tokens = 1
context_window = 2
temperature = 1
script = "~/s.json"
num_ctx = 3
idle_timeout_secs = 4
[risk_profiles.r]
level = "full"
auto_approve = ["a"]
always_ask = ["b"]
excluded_tools = ["c"]
allowed_commands = ["d"]
forbidden_paths = ["/e"]
allowed_roots = ["/f"]
read_only_roots = ["/g"]
workspace_only = true
max_level = "full"
network = "deny"
[[risk_profiles.r.commands]]
command = "cargo test *"
decision = "allow"
network = true
match = ["cargo test --lib"]
not_match = ["cargo publish"]
[runtime_profiles.t]
max_tool_iterations = 5
shell_timeout_secs = 6
max_context_tokens = 7
compact_at_percent = 70
compact_to_percent = 30
max_output_tokens = 8
"#;

#[test]
fn every_key_arrives() {
    let home = Home::with(EVERY_KEY);
    let loaded = home.load(&[]).unwrap();
    let config = &loaded.config;
    assert_eq!(loaded.ignored, Vec::<String>::new());
    assert_eq!(loaded.paths.data_dir, Path::new("/var/zc"));
    assert_eq!(
        config.acp,
        AcpConfig {
            default_agent: Some("a".to_owned()),
            max_sessions: 3,
            session_timeout_secs: 60,
            error_codes: ErrorCodes::Spec,
            strict: true,
            max_line_bytes: 65_536,
            client_terminal: true,
            client_timeout_secs: 5,
            clients: BTreeMap::from([(
                "My.IDE".to_owned(),
                ClientConfig { error_codes: Some(ErrorCodes::Spec), max_line_bytes: Some(65_536) },
            )]),
            client_mcp_servers: ClientMcpServers::Http,
            allowed_cwd_roots: vec!["/srv".to_owned()],
        }
    );
    assert_eq!(config.store.sync, SyncMode::Always);
    assert_eq!(config.autonomy.level, Some(Level::Readonly));
    let agent = &config.agents["a"];
    assert!(!agent.enabled);
    assert_eq!(agent.risk_profile, "r");
    assert_eq!(agent.runtime_profile, "t");
    assert_eq!(agent.workspace, Some(home.dir().join("ws")));
    assert_eq!(loaded.agent_workspace("a"), home.dir().join("ws"));
    assert_eq!(loaded.agent_workspace("b"), Path::new("/var/zc/agents/b/workspace"));
    let model = &config.models[&ModelRef { family: Family::Ollama, alias: "m.1".to_owned() }];
    assert_eq!(model.native_tools, Some(false));
    assert_eq!((model.max_output_tokens, model.context_window, model.num_ctx), (Some(1), Some(2), Some(3)));
    assert_eq!((model.temperature, model.idle_timeout_secs), (Some(1.0), Some(4)));
    assert_eq!(model.script, Some(home.path().join("s.json")));
    let words = |word: &str| vec![word.to_owned()];
    assert_eq!(
        config.risk_profiles["r"],
        RiskProfile {
            level: Some(Level::Full),
            auto_approve: words("a"),
            always_ask: words("b"),
            excluded_tools: words("c"),
            allowed_commands: words("d"),
            forbidden_paths: words("/e"),
            allowed_roots: words("/f"),
            read_only_roots: words("/g"),
            workspace_only: Some(true),
            max_level: Some(Level::Full),
            network: Some(Verdict::Deny),
            commands: vec![CommandConfig {
                command: "cargo test *".to_owned(),
                decision: Verdict::Allow,
                network: Some(true),
                matches: words("cargo test --lib"),
                not_matches: words("cargo publish"),
                at: Location::File { path: home.dir().join("config.toml"), line: 51, column: 1 },
            }],
        }
    );
    assert_eq!(
        config.runtime_profiles["t"],
        RuntimeProfile {
            max_tool_iterations: Some(5),
            shell_timeout_secs: Some(6),
            max_context_tokens: Some(7),
            max_output_tokens: Some(8),
            compact_at_percent: Some(70),
            compact_to_percent: Some(30),
        }
    );
}

#[test]
fn every_way_to_write_a_table_is_the_same() {
    let expect = loaded("[acp]\nmax_sessions = 4\n[agents.main]\nenabled = false\n");
    for content in [
        "acp.max_sessions = 4\nagents.main.enabled = false",
        "acp = { max_sessions = 4 }\nagents = { main = { enabled = false } }",
        "[agents]\nmain.enabled = false\n[acp]\nmax_sessions = 0x4",
    ] {
        assert_eq!(loaded(content), expect, "{content}");
    }
}

#[test]
fn a_file_of_zeroclaw_keeps_its_other_sections() {
    let home = Home::with(
        r#"
schema_version = 3
default_temperature = 0.7
[gateway]
port = 42618
paired_tokens = []
session_persistence = true
[gateway.tls]
enabled = false
[mcp]
enabled = true
[acpx]
a = 1
[[channels.telegram]]
token = "t"
[providers]
fallback = "x"
[providers.tts.openai]
voice = "v"
[providers.models.groq.fast]
model = "x"
[providers.models.openai.main]
model = "gpt"
wire_api = "responses"
api = "x"
[agents.main]
channels = ["telegram.main"]
model_provider = "openai.main"
[agents.main.workspace]
path = "/srv/ws"
access = {}
[risk_profiles.default]
level = "supervised"
allowed_tools = []
max_actions_per_hour = 20
[runtime_profiles.default]
agentic = true
max_tool_iterations = 0
[autonomy]
block_high_risk_commands = true
"#,
    );
    let loaded = home.load(&[]).unwrap();
    assert_eq!(
        loaded.ignored,
        [
            "schema_version",
            "default_temperature",
            "gateway.paired_tokens",
            "gateway.session_persistence",
            "gateway.tls",
            "mcp",
            "acpx",
            "channels",
            "providers.fallback",
            "providers.tts",
            "providers.models.groq",
            "providers.models.openai.main.wire_api",
            "providers.models.openai.main.api",
            "agents.main.channels",
            "agents.main.workspace.access",
            "risk_profiles.default.allowed_tools",
            "risk_profiles.default.max_actions_per_hour",
            "runtime_profiles.default.agentic",
            "autonomy.block_high_risk_commands",
        ]
    );
    assert_eq!(loaded.config.agents["main"].workspace, Some(PathBuf::from("/srv/ws")));
    assert_eq!(loaded.config.runtime_profiles["default"].max_tool_iterations, None);
    assert_eq!(loaded.config.gateway, zeroclaw_config::GatewayConfig { port: 42618, ..Default::default() });
    assert_eq!(loaded.config.dispatchable(), ["main"]);
}

#[test]
fn an_agent_says_why_it_cannot_start() {
    let config = loaded(
        r#"
[acp]
default_agent = "nobody"
[agents.good]
model_provider = "custom.ok"
[agents.dotted]
model_provider = "custom.v1.5"
[agents.off]
enabled = false
model_provider = "custom.ok"
[agents.none]
[agents.blank]
model_provider = ""
[agents.lost]
model_provider = "custom.gone"
[agents.plain]
model_provider = "custom"
[agents.foreign]
model_provider = "groq.fast"
[agents.nouri]
model_provider = "custom.nouri"
[agents.noscript]
model_provider = "scripted.x"
[agents.built]
model_provider = "builtin.b"
[providers.models.custom]
ok = { uri = "http://h" }
"v1.5" = { uri = "http://h" }
nouri = { uri = "" }
[providers.models.scripted.x]
[providers.models.builtin.b]
"#,
    );
    assert_eq!(config.dispatchable(), ["built", "dotted", "good"]);
    for (alias, expect) in [
        ("good", None),
        ("absent", Some("agent `absent` is not configured")),
        ("off", Some("agent `off` is disabled")),
        ("none", Some("agent `none` has no `model_provider`")),
        ("blank", Some("agent `blank` has no `model_provider`")),
        ("lost", Some("agent `lost` uses the model `custom.gone`, which is not configured")),
        ("plain", Some("agent `plain` has the `model_provider` `custom`: expected `family.alias`")),
        ("foreign", Some("agent `foreign` has the `model_provider` `groq.fast`: unknown provider family `groq`")),
        ("nouri", Some("agent `nouri` uses the model `custom.nouri`, which has no `uri`")),
        ("noscript", Some("agent `noscript` uses the model `scripted.x`, which has no `script`")),
    ] {
        assert_eq!(config.agent_problem(alias).as_deref(), expect, "{alias}");
    }
}

#[test]
fn the_default_risk_profile_inherits_from_autonomy() {
    let config = loaded(
        r#"
[autonomy]
level = "full"
forbidden_paths = ["/secret"]
always_ask = ["a"]
[risk_profiles.default]
always_ask = ["b"]
[risk_profiles.own]
workspace_only = false
"#,
    );
    let expect = RiskProfile {
        level: Some(Level::Full),
        forbidden_paths: vec!["/secret".to_owned()],
        always_ask: vec!["b".to_owned()],
        ..RiskProfile::default()
    };
    assert_eq!(config.effective_risk_profile("default"), expect);
    assert_eq!(config.effective_risk_profile("absent"), expect);
    let own = RiskProfile { workspace_only: Some(false), ..RiskProfile::default() };
    assert_eq!(config.effective_risk_profile("own"), own);
    assert_eq!(loaded("").effective_risk_profile("default"), RiskProfile::default());
}

/// A `~` that stayed would forbid nothing, and `~/.ssh` is what people write.
#[test]
fn home_in_a_list_of_paths_is_the_home_directory() {
    let home = Home::with(
        "[risk_profiles.r]\nforbidden_paths = ['~/.ssh', '~', '/etc', 'target', '~other']\nallowed_roots = ['~/src']\n\
         read_only_roots = ['~/doc']\nallowed_commands = ['~/run']\n",
    );
    let profile = &home.load(&[]).unwrap().config.risk_profiles["r"];
    let in_home = |path: &str| home.path().join(path).to_str().unwrap().to_owned();
    let root = home.path().to_str().unwrap().to_owned();
    let rest = ["/etc", "target", "~other"].map(str::to_owned);
    assert_eq!(profile.forbidden_paths, [vec![in_home(".ssh"), root], rest.to_vec()].concat());
    assert_eq!(profile.allowed_roots, [in_home("src")]);
    assert_eq!(profile.read_only_roots, [in_home("doc")]);
    assert_eq!(profile.allowed_commands, ["~/run"]);
}

#[test]
fn the_configuration_directory_is_found() {
    fn check(flag: Option<&str>, variables: &[(&str, &str)], expect: Option<(&str, &str)>) {
        let env = variables.iter().copied().collect::<Env>();
        match (resolve_paths(flag.map(Path::new), &env), expect) {
            (Ok(paths), Some((config, data))) => {
                assert_eq!(paths.config_dir, Path::new(config));
                assert_eq!(paths.config_file, Path::new(config).join("config.toml"));
                assert_eq!(paths.data_dir, Path::new(data));
            }
            (Err(error), None) => assert!(matches!(error, ConfigError::NoConfigDir), "{error}"),
            (result, expect) => panic!("{result:?} is not {expect:?}"),
        }
    }
    check(None, &[("HOME", "/h")], Some(("/h/.zeroclaw", "/h/.zeroclaw/data")));
    check(None, &[("HOME", "/h"), ("ZEROCLAW_CONFIG_DIR", "/c")], Some(("/c", "/c/data")));
    check(None, &[("HOME", "/h"), ("ZEROCLAW_CONFIG_DIR", "")], Some(("/h/.zeroclaw", "/h/.zeroclaw/data")));
    check(None, &[("HOME", "/h"), ("ZEROCLAW_CONFIG_DIR", "~/c")], Some(("/h/c", "/h/c/data")));
    check(Some("/f"), &[("HOME", "/h"), ("ZEROCLAW_CONFIG_DIR", "/c")], Some(("/f", "/f/data")));
    check(Some("f"), &[], Some(("f", "f/data")));
    check(Some("/f"), &[("ZEROCLAW_WORKSPACE", "/w")], Some(("/f", "/w")));
    check(Some("/f"), &[("ZEROCLAW_WORKSPACE", "/w"), ("ZEROCLAW_DATA_DIR", "/d")], Some(("/f", "/d")));
    check(None, &[], None);
    check(None, &[("HOME", "")], None);
    check(Some(""), &[("HOME", "/h")], None);
}

#[test]
fn the_data_directory_is_found() {
    fn check(content: &str, variables: &[(&str, &str)], expect: &str) {
        let home = Home::with(content);
        let expect = expect.replace("CONFIG", home.dir().to_str().unwrap());
        assert_eq!(home.load(variables).unwrap().paths.data_dir, Path::new(&expect), "{content} {variables:?}");
    }
    check("", &[], "CONFIG/data");
    check("data_dir = '/file'", &[], "/file");
    check("data_dir = 'file'", &[], "CONFIG/file");
    check("data_dir = ''", &[], "CONFIG/data");
    check("", &[("ZEROCLAW_WORKSPACE", "/old")], "/old");
    check("", &[("ZEROCLAW_WORKSPACE", "/old"), ("ZEROCLAW_DATA_DIR", "/new")], "/new");
    check("data_dir = '/file'", &[("ZEROCLAW_DATA_DIR", "/new")], "/new");
    check("data_dir = '/file'", &[("ZEROCLAW_data_dir", "/new")], "/new");
    check("data_dir = '/file'", &[("ZEROCLAW_WORKSPACE", "/old")], "/file");
}

#[test]
fn nothing_printed_shows_a_secret() {
    let home =
        Home::with("[providers.models.custom.x]\napi_key = 's3cret'\nuri = 'http://u:s3cret@h:1/v?key=s3cret'\n");
    let env = home.env(&[("ZEROCLAW_providers__models__gemini__g__api_key", "s3cret")]);
    let loaded = load(&home.paths(), &env).unwrap();
    let shown = format!("{loaded:?} {loaded:#?} {env:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.contains("Some(***)") && shown.contains("http://***@h:1/v?***"), "{shown}");
    assert_eq!(format!("{0} {0:?}", Secret::new("s3cret")), "*** ***");
    assert_eq!(loaded.config.models.len(), 2);
}

/// What a model costs stands in a table of its own, in the file, in the environment and on the command line alike.
#[test]
fn prices_are_read_from_every_place() {
    let home = Home::with(
        "[providers.models.anthropic.a]\nmodel = \"m\"\nthinking = \"High\"\nmodels = [\"n\", \"o\"]\n\
         fallback = [\"openai.b\"]\nfallback_models = [\"p\"]\n\
         [providers.models.anthropic.a.price]\ninput = 3\noutput = 0.5\ncurrency = \"EUR\"\n",
    );
    let variable = ("ZEROCLAW_providers__models__anthropic__a__price__cached", "0.25");
    let loaded = home.load(&[variable]).unwrap();
    let model = &loaded.config.models[&"anthropic.a".parse().unwrap()];
    assert_eq!(
        (model.thinking.as_deref(), model.models.as_slice()),
        (Some("high"), &["n".to_owned(), "o".to_owned()][..])
    );
    assert_eq!(
        (model.fallback.as_slice(), model.fallback_models.as_slice()),
        (&["openai.b".into()][..], &["p".into()][..])
    );
    let expected = PriceConfig {
        input: Some(3.0),
        output: Some(0.5),
        cached: Some(0.25),
        cache_write: None,
        currency: Some("EUR".to_owned()),
    };
    assert_eq!(model.price.as_ref(), Some(&expected));

    set(&home.paths(), "providers.models.anthropic.a.price.input", "4.5").unwrap();
    assert!(home.text().contains("[providers.models.anthropic.a.price]\ninput = 4.5\n"), "{}", home.text());
    let error = set(&home.paths(), "providers.models.anthropic.a.price.inpt", "1").unwrap_err();
    assert!(error.to_string().contains("providers.models.anthropic.a.price.input"), "{error}");
    let home = Home::with("[providers.models.anthropic.a.price]\ninput = -1\n");
    let error = home.load(&[]).unwrap_err();
    assert!(home.message(&error).starts_with("config.toml:2:9:"), "{}", home.message(&error));
}
