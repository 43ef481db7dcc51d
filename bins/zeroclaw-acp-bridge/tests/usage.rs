//! The program itself: its arguments, its exit codes, and an output that carries nothing but protocol.
#![expect(clippy::expect_used, reason = "helpers of tests abort loudly")]

use std::process::{Command, Output, Stdio};

fn bridge(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zeroclaw-acp-bridge"));
    // No home, no variable of whoever runs the tests.
    command.args(arguments).env_clear().stdin(Stdio::null()).output().expect("the bridge runs")
}

#[test]
fn what_cannot_be_a_gateway_is_refused_before_anything_is_connected() {
    for (arguments, word) in [
        (["--url", "http://127.0.0.1:9/acp"].as_slice(), "ws://"),
        (&["--url", "ws://127.0.0.1:9/acp?token=s3cret"], "must not hold a token"),
        (&[], "directory"),
    ] {
        let output = bridge(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(word) && !errors.contains("s3cret"), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_gateway_that_is_not_there_is_told_in_one_line() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let output = bridge(&["--url", &format!("ws://127.0.0.1:{port}/acp")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(errors.contains("the gateway is not there") && output.stdout.is_empty(), "{errors}");
}

#[test]
fn the_version_is_told() {
    let output = bridge(&["--version"]);
    let version = format!("zeroclaw-acp-bridge {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()), (Some(0), version.as_str()));
}
