//! The list of steps and the closing summary.

use super::*;

#[test]
fn summary_names_what_failed() {
    let outcome = |name, passed| Outcome { name, passed, took: Duration::from_millis(1500) };
    let total = Duration::from_secs(3);
    let good = summary(&[outcome("fmt", true), outcome("test", true)], total);
    assert_eq!(
        good,
        "==> summary\n    fmt          ok          1.5 s\n    test         ok          1.5 s\n    all passed in 3.0 s\n"
    );
    let bad = summary(&[outcome("fmt", false), outcome("test", true)], total);
    assert!(bad.ends_with("    failed: fmt in 3.0 s\n"), "{bad}");
}

#[test]
fn tests_run_once_and_locked() {
    let tests: Vec<_> = STEPS
        .iter()
        .filter_map(|(_, action)| match action {
            Action::Cargo(arguments, _) if arguments.first() == Some(&"test") => Some(*arguments),
            Action::Cargo(..) | Action::Tidy | Action::PublicApi | Action::Deny => None,
        })
        .collect();
    assert_eq!(
        tests,
        [
            ["test", "--workspace", "--locked"].as_slice(),
            &["test", "--manifest-path", SCHEMA, "--locked"],
            &["test", "--manifest-path", SCHEMA_1_7, "--locked"],
            &["test", "--manifest-path", CLIENT, "--locked"],
        ]
    );
}
