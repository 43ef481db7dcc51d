//! The built program: version, help, and arguments that are refused without a byte on standard output.
#![expect(clippy::unwrap_used, reason = "a test that cannot start the program has failed")]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zeroclaw-acp")).args(arguments).output().unwrap()
}

#[test]
fn version_and_help_are_printed() {
    let version = run(&["--version"]);
    assert!(version.status.success());
    assert_eq!(String::from_utf8(version.stdout).unwrap(), format!("zeroclaw-acp {}\n", env!("CARGO_PKG_VERSION")));
    let help = run(&["--help"]);
    assert!(help.status.success());
    let text = String::from_utf8(help.stdout).unwrap();
    for option in ["--config-dir", "--max-sessions", "--session-timeout", "--log-level", "--log-file"] {
        assert!(text.contains(option), "{option} is not in {text}");
    }
}

#[test]
fn wrong_arguments_end_with_two_and_leave_standard_output_alone() {
    for arguments in [&["acp"][..], &["--max-sessions", "0"], &["--log-level", "loud"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}
