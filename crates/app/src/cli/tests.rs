//! Tests of the arguments: what is understood, what is refused, and what is passed on.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};

use super::log::LogLevel;
use super::{Command, GlobalArgs, Zeroclaw, ZeroclawAcp};

fn parse(words: &[&str]) -> Result<Zeroclaw, clap::Error> {
    Zeroclaw::try_parse_from(std::iter::once(&"zeroclaw").chain(words))
}

#[test]
fn the_definition_is_consistent() {
    Zeroclaw::command().debug_assert();
    ZeroclawAcp::command().debug_assert();
}

#[test]
fn both_spellings_of_the_configuration_directory_are_understood_before_and_after_the_command() {
    for words in [
        &["--config-dir", "/c", "acp"][..],
        &["--config-dir=/c", "acp"],
        &["acp", "--config-dir", "/c"],
        &["acp", "--config-dir=/c"],
    ] {
        assert_eq!(parse(words).unwrap().globals.config_dir, Some(PathBuf::from("/c")), "{words:?}");
    }
    for words in [&["x", "--config-dir", "/c"][..], &["x", "--config-dir=/c"]] {
        let parsed = ZeroclawAcp::try_parse_from(words).unwrap();
        assert_eq!(parsed.globals.config_dir, Some(PathBuf::from("/c")), "{words:?}");
    }
}

#[test]
fn limits_of_the_server_are_positive_numbers() {
    let parsed = ZeroclawAcp::try_parse_from(["x", "--max-sessions", "4", "--session-timeout=60"]).unwrap();
    assert_eq!((parsed.acp.max_sessions, parsed.acp.session_timeout), (Some(4), Some(60)));
    for words in [["--max-sessions", "0"], ["--max-sessions", "-1"], ["--session-timeout", "soon"]] {
        assert!(ZeroclawAcp::try_parse_from(["x"].iter().chain(&words)).is_err(), "{words:?}");
    }
}

#[test]
fn wrong_arguments_are_errors_and_help_is_none() {
    for (words, is_error) in [
        (&[][..], true),
        (&["nonsense"], true),
        (&["acp", "extra"], true),
        (&["--log-level", "loud", "acp"], true),
        (&["sessions"], true),
        (&["config", "set", "key"], true),
        (&["prompt", "text", "--file", "f"], true),
        (&["prompt", "--show-history", "text"], true),
        (&["prompt", "--approve", "maybe", "text"], true),
        (&["completions", "basic"], true),
        (&["--help"], false),
        (&["--version"], false),
        (&["prompt", "--help"], false),
    ] {
        let error = parse(words).unwrap_err();
        assert_eq!(error.use_stderr(), is_error, "{words:?}");
    }
}

#[test]
fn the_command_of_another_agent_takes_the_rest_of_the_line() {
    let parsed = parse(&["prompt", "say", "hi", "--json", "--agent-command", "agent", "--flag", "-x", "acp"]).unwrap();
    let Command::Prompt(prompt) = parsed.command else { panic!("expected prompt, got {:?}", parsed.command) };
    let shown = format!("{prompt:?}");
    assert!(shown.contains(r#"text: ["say", "hi"]"#), "{shown}");
    assert!(shown.contains(r#"agent_command: ["agent", "--flag", "-x", "acp"]"#), "{shown}");
    assert!(shown.contains("json: true"), "{shown}");
}

#[test]
fn a_single_dash_is_a_prompt_source_and_not_an_option() {
    assert!(parse(&["prompt", "-"]).is_ok());
    assert!(parse(&["prompt", "--", "--not-an-option"]).is_ok());
    assert!(parse(&["config", "set", "acp.max_sessions", "-1"]).is_ok(), "the configuration judges the value");
}

#[test]
fn global_options_are_passed_on_with_absolute_paths() {
    assert!(GlobalArgs::default().to_arguments().unwrap().is_empty());
    let globals = GlobalArgs {
        config_dir: Some(PathBuf::from("/c")),
        log_level: Some(LogLevel::Debug),
        log_file: Some(PathBuf::from("log")),
    };
    let arguments = globals.to_arguments().unwrap();
    let head: Vec<OsString> =
        ["--config-dir", "/c", "--log-level", "debug", "--log-file"].into_iter().map(OsString::from).collect();
    assert_eq!(arguments[..5], head[..]);
    assert!(PathBuf::from(&arguments[5]).is_absolute());
}
