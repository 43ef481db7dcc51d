//! The built program: version, help, exit codes, and the commands that need no agent.
#![expect(clippy::unwrap_used, reason = "a test that cannot start the program has failed")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Runs the program in an environment of its own.
fn run(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zeroclaw"))
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .current_dir(home)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn version_and_help_are_printed() {
    let home = TempDir::new().unwrap();
    let version = run(home.path(), &["--version"]);
    assert!(version.status.success());
    assert_eq!(text(&version.stdout), format!("zeroclaw {}\n", env!("CARGO_PKG_VERSION")));
    let help = run(home.path(), &["--help"]);
    assert!(help.status.success());
    for command in ["acp", "prompt", "config", "sessions", "doctor", "completions"] {
        assert!(text(&help.stdout).contains(command), "{command}");
    }
}

#[test]
fn without_a_command_help_goes_to_standard_error() {
    let home = TempDir::new().unwrap();
    let output = run(home.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(text(&output.stderr).contains("Usage: zeroclaw"));
}

#[test]
fn the_configuration_is_written_changed_and_read() {
    let home = TempDir::new().unwrap();
    let file = home.path().join(".zeroclaw").join("config.toml");
    let path = run(home.path(), &["config", "path"]);
    assert_eq!(text(&path.stdout), format!("{}\n", file.display()));
    assert!(run(home.path(), &["config", "init"]).status.success());
    assert!(file.is_file());
    assert_eq!(run(home.path(), &["config", "init"]).status.code(), Some(1), "it is not overwritten");
    assert!(run(home.path(), &["config", "set", "acp.max_sessions", "3"]).status.success());
    assert_eq!(text(&run(home.path(), &["config", "get", "acp.max_sessions"]).stdout), "3\n");
    assert!(text(&run(home.path(), &["config", "list"]).stdout).contains("acp.max_sessions = 3 (file)"));
    let unknown = run(home.path(), &["config", "get", "acp.max_sesions"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("acp.max_sessions") || text(&unknown.stderr).contains("max_sessions"));
}

#[test]
fn a_secret_is_never_printed() {
    let home = TempDir::new().unwrap();
    let key = "providers.models.anthropic.home.api_key";
    assert!(run(home.path(), &["config", "set", key, "sk-very-secret"]).status.success());
    for arguments in [&["config", "get", key][..], &["config", "list"], &["doctor"]] {
        let output = run(home.path(), arguments);
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(!all.contains("very-secret"), "{arguments:?}: {all}");
    }
}

#[test]
fn the_doctor_names_what_is_there_and_fails_on_what_is_broken() {
    let home = TempDir::new().unwrap();
    let output = run(home.path(), &["doctor"]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert!(report.contains(" sandbox   "), "{report}");
    assert!(report.contains("builtin"), "{report}");
    assert!(!home.path().join(".zeroclaw").exists(), "the doctor makes nothing");

    fs::create_dir(home.path().join(".zeroclaw")).unwrap();
    fs::write(home.path().join(".zeroclaw").join("config.toml"), "[acp]\nmax_sesions = 3\n").unwrap();
    let output = run(home.path(), &["doctor"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("FAIL config"), "{}", text(&output.stdout));

    fs::write(home.path().join(".zeroclaw").join("config.toml"), "[agents.a]\nmodel_provider = \"anthropic.none\"\n")
        .unwrap();
    let output = run(home.path(), &["doctor"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("FAIL agent"), "{}", text(&output.stdout));
}

/// A sandbox that was configured and is missing silently became none.
#[test]
fn the_doctor_says_what_confines_commands() {
    let home = TempDir::new().unwrap();
    fs::create_dir(home.path().join(".zeroclaw")).unwrap();
    let missing = if cfg!(target_os = "macos") { "landlock" } else { "seatbelt" };
    let cases = [
        (
            "none",
            0,
            "note sandbox   none (switched off by configuration): commands run with all your rights".to_owned(),
        ),
        (missing, 1, format!("FAIL sandbox   the configured sandbox `{missing}` cannot be used here")),
    ];
    for (backend, code, expected) in cases {
        let config = format!("[sandbox]\nbackend = \"{backend}\"\n");
        fs::write(home.path().join(".zeroclaw").join("config.toml"), config).unwrap();
        let output = run(home.path(), &["doctor"]);
        let report = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{report}");
        assert!(report.contains(&expected), "{report}");
    }
}

#[test]
fn the_doctor_names_the_variable_of_a_key() {
    let home = TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_zeroclaw"))
        .arg("doctor")
        .env_clear()
        .env("HOME", home.path())
        .env("OPENAI_API_KEY", "sk-very-secret")
        .output()
        .unwrap();
    let report = text(&output.stdout);
    assert!(output.status.success(), "{report}");
    assert!(report.contains("key from OPENAI_API_KEY") && !report.contains("very-secret"), "{report}");
}

#[test]
fn without_a_store_the_list_is_empty_and_a_session_is_not_found() {
    let home = TempDir::new().unwrap();
    let list = run(home.path(), &["sessions", "list"]);
    assert_eq!((list.status.code(), list.stdout.len()), (Some(0), 0));
    let show = run(home.path(), &["sessions", "show", "s-1"]);
    assert_eq!(show.status.code(), Some(1));
    assert!(text(&show.stderr).contains("no session store"), "{}", text(&show.stderr));
}

#[test]
fn every_shell_has_completions() {
    let home = TempDir::new().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(home.path(), &["completions", shell]);
        assert!(output.status.success(), "{shell}");
        assert!(text(&output.stdout).contains("zeroclaw"), "{shell}");
    }
}

#[test]
fn prompts_that_cannot_be_are_usage_errors() {
    let home = TempDir::new().unwrap();
    for arguments in [
        &["prompt"][..],
        &["prompt", "  "],
        &["prompt", "-"],
        &["prompt", "--file", "missing"],
        &["prompt", "--cwd", "missing", "text"],
    ] {
        let output = run(home.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_log_file_gets_what_standard_error_would() {
    let home = TempDir::new().unwrap();
    let output = run(home.path(), &["--log-file", "missing/log", "doctor"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("log file"), "{}", text(&output.stderr));
    let output = run(home.path(), &["--log-file", "log", "config", "path"]);
    assert!(output.status.success());
    assert!(home.path().join("log").is_file());
}
