//! The driver of child processes, tried on small shell children.
#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests abort the test")]
#![cfg(unix)]

use std::{os::unix::process::ExitStatusExt, panic::AssertUnwindSafe, path::Path, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use zeroclaw_testkit::process::{AgentProcess, Direction, Permission, hermetic};

/// Prints every line it reads.
const ECHO: &str = r#"while IFS= read -r line; do printf '%s\n' "$line"; done"#;

fn shell(script: &str) -> AgentProcess {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    AgentProcess::spawn(command).with_limit(Duration::from_secs(30))
}

/// A child that prints these lines and then echoes.
fn printing(lines: &[&str]) -> AgentProcess {
    let lines: String = lines.iter().map(|line| format!("printf '%s\\n' '{line}'; ")).collect();
    shell(&format!("{lines}{ECHO}"))
}

/// The text of the panic that ends `step`.
async fn failure<T>(step: impl Future<Output = T>) -> String {
    let caught = futures::FutureExt::catch_unwind(AssertUnwindSafe(step)).await;
    let Err(panic) = caught else { panic!("the step should have failed") };
    *panic.downcast::<String>().expect("a text")
}

#[tokio::test]
async fn messages_are_sent_read_and_written_down() {
    let mut agent = shell(ECHO);
    agent.notify("hello", json!({"text": "漢字\u{2028}🙂"})).await;
    let message = agent.next().await;
    assert_eq!(message, json!({"jsonrpc": "2.0", "method": "hello", "params": {"text": "漢字\u{2028}🙂"}}));
    agent.send_raw(b"{\"jsonrpc\":\"2.0\",").await;
    agent.send_raw(b"\"id\":7,\"result\":null}\n").await;
    assert_eq!(agent.next().await, json!({"jsonrpc": "2.0", "id": 7, "result": null}));
    let directions: Vec<Direction> = agent.transcript().iter().map(|entry| entry.direction).collect();
    assert_eq!(
        directions,
        [Direction::Sent, Direction::Received, Direction::Sent, Direction::Sent, Direction::Received]
    );
    assert_eq!(agent.received().len(), 2);
    agent.close_stdin();
    assert_eq!(agent.next_or_end().await, None);
    assert!(agent.wait().await.success());
}

#[tokio::test]
async fn a_call_finds_its_response_among_other_messages() {
    let mut agent = printing(&[
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","n":1}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"fs/read_text_file","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"ok":true}}"#,
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","n":2}}"#,
    ]);
    assert_eq!(agent.call("first", json!({})).await, Ok(json!({"ok": true})));
    let second = agent.request("second", json!({})).await;
    assert_eq!(second.id(), &json!(2));
    assert_eq!(agent.response(&second).await, Err(json!({"code": -32601, "message": "no"})));
    let methods: Vec<Value> = agent.collected().into_iter().map(|mut message| message["method"].take()).collect();
    assert_eq!(methods, ["session/update", "fs/read_text_file"]);
    let rest = agent.recv_until(|message| message["method"] == "second").await;
    assert_eq!(rest.len(), 3, "the second update and both echoed requests");
    let numbers: Vec<Value> = agent.updates().into_iter().map(|mut params| params["n"].take()).collect();
    assert_eq!(numbers, [1, 2]);
}

const ASK: &str = r#"{"jsonrpc":"2.0","id":"zc-out-0","method":"session/request_permission","params":{"options":[]}}"#;

#[tokio::test]
async fn permission_requests_are_answered_at_once() {
    let mut agent = printing(&[ASK]);
    agent.auto_permit("allow-once");
    assert_eq!(agent.next().await["method"], "session/request_permission");
    let selected = json!({"outcome": {"outcome": "selected", "optionId": "allow-once"}});
    assert_eq!(agent.next().await, json!({"jsonrpc": "2.0", "id": "zc-out-0", "result": selected}));

    let mut agent = printing(&[ASK, ASK, ASK, ASK]);
    let mut answers = vec![
        Permission::Unanswered,
        Permission::Error { code: -32000, message: "no".to_owned() },
        Permission::Cancelled,
        Permission::Select("x".to_owned()),
    ];
    agent.on_permission(move |params| {
        assert_eq!(params, &json!({"options": []}));
        answers.pop().expect("four requests")
    });
    let mut outcomes = Vec::new();
    while outcomes.len() < 3 {
        let message = agent.next().await;
        if message.get("method").is_none() {
            outcomes.push(message);
        }
    }
    assert_eq!(outcomes[0]["result"]["outcome"]["optionId"], "x");
    assert_eq!(outcomes[1]["result"]["outcome"], json!({"outcome": "cancelled"}));
    assert_eq!(outcomes[2]["error"], json!({"code": -32000, "message": "no"}));
    agent.reply(&json!("zc-out-0"), json!({})).await;
    assert_eq!(agent.next().await["result"], json!({}));
}

#[tokio::test]
async fn much_in_both_directions_does_not_deadlock() {
    let mut agent = AgentProcess::spawn(Command::new("cat"));
    let text = "x".repeat(1024 * 1024);
    for n in 0..8 {
        agent.notify("big", json!({"n": n, "text": text})).await;
    }
    agent.close_stdin();
    let messages = agent.drain().await;
    assert_eq!(messages.len(), 8);
    assert_eq!(messages[7]["params"]["n"], 7);
    assert!(agent.wait().await.success());
}

#[tokio::test]
async fn waiting_reads_on_and_keeps_the_messages() {
    // More than a pipe holds, so that the child can only end if somebody reads.
    let line = json!({"jsonrpc": "2.0", "method": "m", "params": {"text": "y".repeat(1000)}}).to_string();
    let mut agent =
        shell(&format!("i=0; while [ $i -lt 500 ]; do echo '{line}'; i=$((i+1)); done; echo bye >&2; exit 3"));
    assert_eq!(agent.wait().await.code(), Some(3));
    assert_eq!(agent.collected().len(), 500);
    assert_eq!(agent.stderr_text(), "bye\n");
}

#[tokio::test]
async fn signals_end_the_child() {
    let mut agent = shell(ECHO);
    assert!(agent.pid() > 1);
    assert_eq!(agent.kill9().await.signal(), Some(9));
    let ready_child = |script: &'static str| async move {
        let mut agent = shell(script);
        assert_eq!(agent.next().await["method"], "ready");
        agent
    };
    let ready = r#"echo '{"jsonrpc":"2.0","method":"ready"}'; exec cat"#;
    let mut agent = ready_child(ready).await;
    agent.terminate();
    assert_eq!(agent.wait().await.signal(), Some(15));
    let mut agent = ready_child(ready).await;
    agent.interrupt();
    assert_eq!(agent.wait().await.signal(), Some(2));
}

#[tokio::test]
async fn a_hermetic_child_sees_its_home_and_nothing_else() {
    let home = TempDir::new().expect("a directory");
    let mut command = hermetic(Path::new("/bin/sh"), home.path());
    command.args(["-c", "env >&2"]);
    let mut agent = AgentProcess::spawn(command);
    agent.wait().await;
    let text = agent.stderr_text();
    // Shells add these three by themselves.
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.retain(|name| !["PWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "PATH"]);
    assert!(text.contains(&format!("HOME={}\n", home.path().display())), "{text}");
}

#[tokio::test]
async fn bad_lines_end_the_test() {
    for (line, fault) in [
        ("Starting up...", "not JSON"),
        ("", "not JSON"),
        (r#"{"jsonrpc":"2.0","method":"a"} {}"#, "not JSON"),
        (r#"[{"jsonrpc":"2.0","method":"a"}]"#, "not a JSON object"),
        (r#"{"method":"a"}"#, "`jsonrpc` is not"),
        (r#"{"jsonrpc":"1.0","method":"a"}"#, "`jsonrpc` is not"),
        (r#"{"jsonrpc":"2.0","method":1}"#, "`method` is not a string"),
        (r#"{"jsonrpc":"2.0","method":"a","result":1}"#, "a call with a result"),
        (r#"{"jsonrpc":"2.0","method":"a","params":1}"#, "`params` is neither"),
        (r#"{"jsonrpc":"2.0"}"#, "neither a call nor a response"),
        (r#"{"jsonrpc":"2.0","id":1}"#, "either a result or an error"),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}"#, "either a result or an error"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"message":""}}"#, "an error without a code"),
        (r#"{"jsonrpc":"2.0","id":{},"result":1}"#, "`id` is neither"),
    ] {
        let mut agent = printing(&[line]);
        let report = failure(agent.next()).await;
        assert!(report.contains("bad line on stdout") && report.contains(fault), "{line}: {report}");
        assert!(report.contains(&format!("<-- {line}\n")), "{report}");
    }
    let mut agent = shell(r"printf '\377\n'; cat");
    assert!(failure(agent.next()).await.contains("not UTF-8"));
}

#[tokio::test]
async fn an_unexpected_end_shows_what_was_seen() {
    let mut agent = shell(r#"read -r line; echo "$line"; echo broken >&2; exit 1"#);
    agent.notify("one", json!({})).await;
    agent.next().await;
    agent.wait().await;
    let report = failure(agent.next()).await;
    for expected in ["the output ended", "--> {", "<-- {", "broken\n", r#""method":"one""#] {
        assert!(report.contains(expected), "{expected}: {report}");
    }
    let mut agent = shell(r#"printf '{"jsonrpc":"2.0"'"#);
    let report = failure(agent.next_or_end()).await;
    assert!(
        report.contains("ends inside a line") && report.contains(r#"(no line end yet) {"jsonrpc":"2.0""#),
        "{report}"
    );
    let mut agent = shell(r#"printf '{"jsonrpc":"2.0"'"#);
    assert!(failure(agent.wait()).await.contains("ends inside a line"));
}

#[tokio::test]
async fn silence_shows_what_was_seen() {
    let mut agent = shell(ECHO);
    let request = agent.request("slow", json!({})).await;
    agent.recv_until(|message| message["method"] == "slow").await;
    let mut agent = agent.with_limit(Duration::from_millis(50));
    let report = failure(agent.response(&request)).await;
    assert!(report.contains("waited 50ms for the response to request 1"), "{report}");
    assert!(report.contains(r#""method":"slow""#), "{report}");
    assert!(failure(agent.wait()).await.contains("the child does not end"));
}

#[tokio::test]
async fn a_read_that_was_given_up_loses_nothing() {
    let mut agent = shell(r#"printf '{"jsonrpc":'; read -r go; printf '"2.0","method":"whole"}\n'; cat"#);
    // Whether the first half has arrived when the read is given up must make no difference.
    let early = tokio::time::timeout(Duration::from_millis(20), agent.next()).await;
    assert!(early.is_err());
    agent.send("go").await;
    assert_eq!(agent.next().await["method"], "whole");
}
