//! `zeroclaw prompt` as a process against agents that are small shell scripts: streams and exit codes.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot start the program has failed")]

use std::fs;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Answers the greeting and opens a session; the ids are those that the client counts.
const HELLO: &str = r#"
read line; printf '%s\n' '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{},"authMethods":[]}}'
read line; printf '%s\n' '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s-fake"}}'
read prompt
"#;

fn say(text: &str) -> String {
    format!(
        "printf '%s\\n' '{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"s-fake\",\"update\":\
         {{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{text}\"}}}}}}}}'\n"
    )
}

fn end(reason: &str) -> String {
    format!("printf '%s\\n' '{{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{{\"stopReason\":\"{reason}\"}}}}'\nread rest\n")
}

const ASK: &str = r#"
printf '%s\n' '{"jsonrpc":"2.0","id":"zc-out-0","method":"session/request_permission","params":{"sessionId":"s-fake","toolCall":{"toolCallId":"t","title":"Read it","kind":"KIND"},"options":[{"optionId":"yes","name":"Allow once","kind":"allow_once"},{"optionId":"no","name":"Reject","kind":"reject_once"}]}}'
read answer
case "$answer" in
  *'"optionId":"yes"'*) word=allowed ;;
  *'"optionId":"no"'*) word=rejected ;;
  *) word=neither ;;
esac
printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-fake","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%s"}}}}\n' "$word"
"#;

fn prompt(options: &[&str], script: &str) -> Output {
    let home = TempDir::new().unwrap();
    let agent = home.path().join("agent.sh");
    fs::write(&agent, script).unwrap();
    Command::new(env!("CARGO_BIN_EXE_zeroclaw"))
        .arg("prompt")
        .args(options)
        .args(["hello", "there", "--agent-command", "sh"])
        .arg(&agent)
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir(home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_normal_turn_leaves_the_answer_on_standard_output_and_the_session_on_standard_error() {
    let output = prompt(&[], &(HELLO.to_owned() + &say("Good ") + &say("morning") + &end("end_turn")));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "Good morning\n");
    assert!(text(&output.stderr).contains("session s-fake; continue with: "), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains('\u{1b}'), "no colour and no spinner without a terminal");
}

#[test]
fn the_words_of_the_prompt_are_joined() {
    let echo = r#"
case "$prompt" in *'"text":"hello there"'*) word=joined ;; *) word=other ;; esac
printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-fake","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%s"}}}}\n' "$word"
"#;
    let output = prompt(&[], &(HELLO.to_owned() + echo + &end("end_turn")));
    assert_eq!(text(&output.stdout), "joined\n");
}

#[test]
fn stop_reasons_are_exit_codes() {
    for (reason, code) in
        [("cancelled", 130), ("refusal", 3), ("max_tokens", 4), ("max_turn_requests", 4), ("unheard_of", 1)]
    {
        let output = prompt(&[], &(HELLO.to_owned() + &end(reason)));
        assert_eq!(output.status.code(), Some(code), "{reason}: {}", text(&output.stderr));
    }
}

#[test]
fn each_mode_answers_permission_requests() {
    for (options, kind, answer) in [
        (&["--approve", "all"][..], "execute", "allowed"),
        (&["--approve", "reads"], "execute", "rejected"),
        (&["--approve", "reads"], "read", "allowed"),
        (&["--approve", "none"], "read", "rejected"),
        // Nobody is at a terminal here.
        (&[], "read", "rejected"),
    ] {
        let output = prompt(options, &(HELLO.to_owned() + &ASK.replace("KIND", kind) + &end("end_turn")));
        assert_eq!(text(&output.stdout), format!("{answer}\n"), "{options:?} {kind}: {}", text(&output.stderr));
    }
}

#[test]
fn an_agent_that_dies_is_explained_by_its_last_words() {
    let output = prompt(&[], &(HELLO.to_owned() + &say("half") + "echo 'out of \u{1b}[31mluck' >&2\nexit 7\n"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "half\n");
    let shown = text(&output.stderr);
    assert!(shown.contains("the agent ended before it answered"), "{shown}");
    assert!(shown.contains("exit status: 7"), "{shown}");
    assert!(shown.contains("agent: out of ␛[31mluck"), "{shown}");
}

#[test]
fn the_standard_error_of_an_agent_that_succeeds_is_not_shown() {
    let output = prompt(&[], &("echo noise >&2\n".to_owned() + HELLO + &end("end_turn")));
    assert_eq!(output.status.code(), Some(0));
    assert!(!text(&output.stderr).contains("noise"), "{}", text(&output.stderr));
}

#[test]
fn garbage_on_the_agents_standard_output_is_reported_and_survived() {
    let output = prompt(&[], &("echo starting up\n".to_owned() + HELLO + &say("fine") + &end("end_turn")));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "fine\n");
    assert!(text(&output.stderr).contains("no message: starting up"), "{}", text(&output.stderr));
}

#[test]
fn an_error_answer_is_told_and_the_session_can_still_be_continued() {
    let error = "printf '%s\\n' '{\"jsonrpc\":\"2.0\",\"id\":3,\"error\":{\"code\":-32603,\"message\":\"model is down\"}}'\nread rest\n";
    let output = prompt(&[], &(HELLO.to_owned() + error));
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stderr);
    assert!(shown.contains("session/prompt failed: model is down (error -32603)"), "{shown}");
    assert!(shown.contains("session s-fake"), "{shown}");
}

#[test]
fn json_is_one_update_a_line() {
    let output = prompt(&["--json"], &(HELLO.to_owned() + &say("a") + &say("b") + &end("end_turn")));
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["content"]["text"], "b");
}

#[test]
fn an_agent_that_cannot_be_started_is_a_failure() {
    let home = TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_zeroclaw"))
        .args(["prompt", "hello", "--agent-command", "./no-such-agent"])
        .env_clear()
        .env("HOME", home.path())
        .current_dir(home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot start the agent `./no-such-agent`"), "{}", text(&output.stderr));
}
