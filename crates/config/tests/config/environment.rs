//! What variables do to the file: they win, they are typed by their key, and a misspelt one is named.

use zeroclaw_config::{Config, Env, Family, Level, ModelRef, Secret, SyncMode};

use crate::support::Home;

const FILE: &str = r#"
[acp]
max_sessions = 2
default_agent = "file"
[agents.Main]
enabled = true
[agents.my__agent]
[providers.models.anthropic.home]
model = "m"
api_key = "file"
"#;

fn loaded(variables: &[(&str, &str)]) -> Config {
    Home::with(FILE).load(variables).unwrap().config
}

fn home_model() -> ModelRef {
    ModelRef { family: Family::Anthropic, alias: "home".to_owned() }
}

#[test]
fn a_variable_wins_over_the_file() {
    let config = loaded(&[
        ("ZEROCLAW_acp__max_sessions", "4"),
        ("ZEROCLAW_ACP__STRICT", "TRUE"),
        ("ZEROCLAW_store__sync", "Off"),
        ("ZEROCLAW_autonomy__level", "read_only"),
        ("ZEROCLAW_providers__models__anthropic__home__api_key", "env"),
        ("ZEROCLAW_PROVIDERS__MODELS__ANTHROPIC__HOME__TEMPERATURE", " 0.5 "),
    ]);
    assert_eq!(config.acp.max_sessions, 4);
    assert!(config.acp.strict);
    assert_eq!(config.acp.default_agent.as_deref(), Some("file"));
    assert_eq!(config.store.sync, SyncMode::Off);
    assert_eq!(config.autonomy.level, Some(Level::Readonly));
    let model = &config.models[&home_model()];
    assert_eq!(model.api_key.as_ref().map(Secret::expose), Some("env"));
    assert_eq!(model.model.as_deref(), Some("m"));
    assert_eq!(model.temperature, Some(0.5));
    assert_eq!(config.models.len(), 1);
}

#[test]
fn variables_alone_make_a_configuration() {
    let home = Home::empty();
    let loaded = home
        .load(&[
            ("ZEROCLAW_agents__main__model_provider", "custom.local"),
            ("ZEROCLAW_agents__main__workspace", "~/ws"),
            ("ZEROCLAW_providers__models__custom__local__uri", "http://h"),
        ])
        .unwrap();
    assert!(!loaded.file_found);
    assert_eq!(loaded.config.dispatchable(), ["main"]);
    assert_eq!(loaded.agent_workspace("main"), home.path().join("ws"));
}

#[test]
fn an_alias_is_found_however_its_letters_are_written() {
    let config = loaded(&[
        ("ZEROCLAW_AGENTS__MAIN__ENABLED", "false"),
        ("ZEROCLAW_agents__my__agent__enabled", "false"),
        ("ZEROCLAW_agents__NEW__enabled", "false"),
    ]);
    let agents: Vec<_> = config.agents.iter().map(|(alias, agent)| (alias.as_str(), agent.enabled)).collect();
    assert_eq!(agents, [("Main", false), ("my__agent", false), ("new", false)]);
}

#[test]
fn lists_are_toml_or_separated_by_commas() {
    fn check(text: &str, expect: &[&str]) {
        assert_eq!(
            loaded(&[("ZEROCLAW_autonomy__allowed_commands", text)]).autonomy.allowed_commands,
            expect,
            "{text}"
        );
    }
    check("git", &["git"]);
    check("git, cargo ,,ls", &["git", "cargo", "ls"]);
    check(r#" ["a,b", 'c'] "#, &["a,b", "c"]);
    check("[]", &[]);
    check("", &[]);
}

#[test]
fn an_empty_variable_takes_the_file_back() {
    let config = loaded(&[
        ("ZEROCLAW_acp__default_agent", ""),
        ("ZEROCLAW_providers__models__anthropic__home__api_key", ""),
        ("ZEROCLAW_agents__main__risk_profile", ""),
    ]);
    assert_eq!(config.acp.default_agent, None);
    assert_eq!(config.models[&home_model()].api_key, None);
    assert_eq!(config.agents["Main"].risk_profile, "default");
}

#[test]
fn a_bad_variable_is_named() {
    fn check(variable: &str, text: &str, expect: &str) {
        let error = Home::with(FILE).load(&[(variable, text)]).unwrap_err();
        assert_eq!(error.to_string(), format!("environment variable `{variable}`: {expect}"));
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
    check(
        "ZEROCLAW_acp__max_sessions",
        "s3cret",
        "`acp.max_sessions`: expected a whole number from 1 to 1000000, found other text",
    );
    check("ZEROCLAW_acp__max_sessions", "0", "`acp.max_sessions`: expected a whole number from 1 to 1000000, found 0");
    check(
        "ZEROCLAW_acp__max_sessions",
        "",
        "`acp.max_sessions`: expected a whole number from 1 to 1000000, found other text",
    );
    check("ZEROCLAW_acp__strict", "yes", "`acp.strict`: expected a boolean, `true` or `false`, found other text");
    check(
        "ZEROCLAW_autonomy__level",
        "super",
        "`autonomy.level`: expected one of `readonly`, `supervised`, `full`, found `super`",
    );
    check(
        "ZEROCLAW_autonomy__auto_approve",
        "['s3cret",
        "`autonomy.auto_approve`: expected an array of strings, found other text",
    );
    check(
        "ZEROCLAW_autonomy__auto_approve",
        "[1]",
        "`autonomy.auto_approve`: expected an array of strings, found integer in it",
    );
    check("ZEROCLAW_acp__max_sesions", "4", "unknown key `acp.max_sesions`, did you mean `max_sessions`?");
    check(
        "ZEROCLAW_providers__models__anthropic__home__apikey",
        "s3cret",
        "unknown key `providers.models.anthropic.home.apikey`, did you mean `api_key`?",
    );
    check(
        "ZEROCLAW_providers__models__antropic__home__api_key",
        "s3cret",
        "unknown key `providers.models.antropic`, did you mean `anthropic`?",
    );
    check(
        "ZEROCLAW_agents__../x__enabled",
        "true",
        "bad name in `agents.\"../x\".enabled`: a name has only letters, digits, `.`, `_` and `-`",
    );
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let loaded = Home::with(FILE)
        .load(&[
            ("PATH", "/bin"),
            ("ZEROCLAW_LOG", "debug"),
            ("ZEROCLAW_ACP_BRIDGE_TOKEN", "t"),
            ("ZEROCLAW_acp__colour", "red"),
            ("ZEROCLAW_agents__enabled", "x"),
            ("ZEROCLAW_gateway__pair_rate_limit_per_minute", "1"),
            ("ZEROCLAW_providers__models__groq__x__model", "x"),
            ("ZEROCLAW_risk_profiles__r__allowed_tools", "x"),
            ("ZEROCLAW___", "x"),
        ])
        .unwrap();
    assert_eq!(
        loaded.ignored,
        [
            "ZEROCLAW___",
            "ZEROCLAW_acp__colour",
            "ZEROCLAW_agents__enabled",
            "ZEROCLAW_gateway__pair_rate_limit_per_minute",
            "ZEROCLAW_providers__models__groq__x__model",
            "ZEROCLAW_risk_profiles__r__allowed_tools",
        ]
    );
}

#[test]
fn the_environment_prints_no_value() {
    let env = [("A", "s3cret"), ("B", "")].into_iter().collect::<Env>();
    assert_eq!(format!("{env:?}"), r#"{"A", "B"}"#);
    assert_eq!((env.get("A"), env.get("B"), env.get("C")), (Some("s3cret"), None, None));
    let variables = [("A".into(), "s3cret".into()), ("B".into(), "".into())];
    assert_eq!(Env::from_os_vars(variables), env);
}
