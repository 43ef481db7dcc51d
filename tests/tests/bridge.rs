//! The bridge between a client on pipes and a real daemon: what passes, what is told at the end, and what is told nowhere.

use serde_json::json;
use zeroclaw_e2e::{Lab, answer_text, initialize, new_session, prompt, text_prompt};
use zeroclaw_testkit::process::AgentProcess;

use crate::daemon::Daemon;

/// A bridge to this daemon, which finds the daemon's token by itself.
fn bridge(lab: &Lab, daemon: &Daemon, arguments: &[&str]) -> AgentProcess {
    let mut command = lab.command("zeroclaw-acp-bridge");
    command.args(["--url", &format!("ws://{}/acp", daemon.address)]).args(arguments).env("RUST_LOG", "trace");
    AgentProcess::spawn(command)
}

#[tokio::test]
async fn a_client_gets_over_the_bridge_what_it_gets_over_stdio() {
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, &[]).await;
    let mut client = bridge(&lab, &daemon, &[]);
    let hello = initialize(&mut client).await;
    assert_eq!((&hello["protocolVersion"], &hello["agentInfo"]["name"]), (&json!(1), &json!("zeroclaw-acp")));
    let session = new_session(&mut client, &lab.project()).await;
    client.auto_permit("allow-once");
    let result = prompt(&mut client, &session, "/run touch made\n/say 3").await;
    assert_eq!(result["stopReason"], "end_turn", "{result}");
    assert!(lab.project().join("made").exists());
    assert!(answer_text(&client.received()).contains("chunk 1 chunk 2 chunk 3 "));
    let listed = client.call("session/list", json!({})).await.unwrap();
    assert_eq!(listed["sessions"][0]["sessionId"], session.as_str());
    client.close_stdin();
    assert_eq!(client.wait().await.code(), Some(0));

    let token = std::fs::read_to_string(lab.config_dir().join("acp-bridge-token")).unwrap();
    let log = client.stderr_text();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the log is on: {log}");
    assert!(!log.contains(token.trim()), "the token is in the log");
    assert!(!log.contains("touch made"), "a message is in the log: {log}");
}

#[tokio::test]
async fn what_was_sent_before_the_input_ended_is_answered() {
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, &[]).await;
    let mut client = bridge(&lab, &daemon, &[]);
    initialize(&mut client).await;
    let session = new_session(&mut client, &lab.project()).await;
    let asked = client.request("session/prompt", text_prompt(&session, "/say 500")).await;
    client.close_stdin();
    assert_eq!(client.response(&asked).await.unwrap()["stopReason"], "end_turn");
    assert_eq!(client.wait().await.code(), Some(0));
    assert_eq!(answer_text(&client.received()).matches("chunk ").count(), 500);
}

#[tokio::test]
async fn a_gateway_that_stays_away_answers_everything_with_an_error() {
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, &[]).await;
    let mut client = bridge(&lab, &daemon, &["--reconnect-secs", "1"]);
    initialize(&mut client).await;
    let session = new_session(&mut client, &lab.project()).await;
    let asked = client.request("session/prompt", text_prompt(&session, "/run sleep 600")).await;
    client.recv_until(|message| message["params"]["update"]["status"] == "in_progress").await;
    daemon.kill().await;
    let error = client.response(&asked).await.unwrap_err();
    assert_eq!(error["code"], -32603, "{error}");
    assert_eq!(client.wait().await.code(), Some(1), "although the input is still open");
}

#[tokio::test]
async fn a_token_that_is_not_accepted_is_told_and_ends_the_bridge() {
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, &[]).await;
    let wrong = lab.file("wrong", "not-a-token");
    let mut client = bridge(&lab, &daemon, &["--token-file", wrong.to_str().unwrap()]);
    let error = client.call("initialize", json!({"protocolVersion": 1})).await.unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("refuses"), "{error}");
    assert_eq!(client.wait().await.code(), Some(3));
    assert!(!client.stderr_text().contains("not-a-token"));
}
