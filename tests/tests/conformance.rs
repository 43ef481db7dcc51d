//! The cases of the public black-box suite for agents (profile `acp-core-v1`), by name, as raw messages: what a client that
//! was written against the specification alone relies on. The dialect of this server is left to the other files.

mod basics;
mod conversation;
mod gated;
mod sessions;
mod should;
mod turns;

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, answer_text, new_session, prompt, text_prompt, updates_of};
use zeroclaw_testkit::process::AgentProcess;

use crate::turns::{announced, asks, end_turn, is_update, last_update, question, runs, selected};

/// The messages that came before the answer to a call that reads nothing of the session: none of them may be late.
async fn afterwards(agent: &mut AgentProcess) -> Vec<Value> {
    agent.collected();
    agent.call("session/list", json!({})).await.expect("session/list");
    let mut late = agent.collected();
    late.retain(|message| !is_update(message, "available_commands_update"));
    late
}

async fn refused(agent: &mut AgentProcess, method: &str, params: Value) -> Value {
    let shown = params.to_string();
    agent.call(method, params).await.err().unwrap_or_else(|| panic!("{method} {shown} was taken"))
}

/// An agent with this as its answer to every permission request; reads are asked about too.
async fn asking(option: &str) -> (Lab, AgentProcess, String) {
    let lab = Lab::with_config("[autonomy]\nalways_ask = [\"file_read\"]\n");
    lab.file("notes.txt", "remember the milk\n");
    let (mut agent, session) = lab.session().await;
    agent.auto_permit(option);
    (lab, agent, session)
}

/// Runs one command and returns the last status of its call, which was asked about exactly once, with the same id.
async fn asked_once(agent: &mut AgentProcess, session: &str, command: &str) -> String {
    let seen = end_turn(agent, session, command).await.messages;
    let call = announced(&seen);
    assert_eq!(call.len(), 1, "{call:?}");
    let asked: Vec<_> = seen.iter().filter(|message| asks(message)).collect();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0]["params"]["sessionId"], session);
    assert_eq!(asked[0]["params"]["toolCall"]["toolCallId"], call[0]["toolCallId"]);
    last_update(&seen)["status"].as_str().expect("a status").to_owned()
}

#[tokio::test]
async fn cnf_01_handshake() {
    let lab = Lab::new();
    let mut agent = lab.start();
    let params =
        json!({"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": {"name": "suite", "version": "1"}});
    let hello = agent.call("initialize", params).await.expect("initialize");
    assert_eq!(hello["protocolVersion"], json!(1));
    assert!(hello["agentCapabilities"].is_object() && hello["authMethods"].is_array(), "{hello}");
}

#[tokio::test]
async fn cnf_02_new_session() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let one = new_session(&mut agent, &lab.project()).await;
    let two = new_session(&mut agent, &lab.project()).await;
    assert!(!one.is_empty() && one != two);
}

#[tokio::test]
async fn cnf_03_single_turn() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], "end_turn");
}

#[tokio::test]
async fn cnf_04_multi_turn() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    for chunks in ["/say 1", "/say 2", "/say 3"] {
        assert_eq!(prompt(&mut agent, &session, chunks).await["stopReason"], "end_turn");
    }
    let text = answer_text(&agent.collected());
    assert_eq!(text, "chunk 1 chunk 1 chunk 2 chunk 1 chunk 2 chunk 3 ");
}

#[tokio::test]
async fn cnf_05_an_update_comes_before_the_answer() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 1").await;
    let seen = agent.collected();
    assert_eq!(updates_of(&seen, "agent_message_chunk").len(), 1);
    let of_the_session =
        |message: &Value| message["method"] != "session/update" || message["params"]["sessionId"] == *session;
    assert!(seen.iter().all(of_the_session), "{seen:?}");
}

#[tokio::test]
async fn cnf_06_cancel_in_flight() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let turn = agent.request("session/prompt", text_prompt(&session, "/run sleep 3600")).await;
    agent.recv_until(runs).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(agent.response(&turn).await.expect("no error")["stopReason"], "cancelled");
}

#[tokio::test]
async fn cnf_07_cancel_while_idle_is_silent() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    agent.notify("session/cancel", json!({"sessionId": "no-such-session"})).await;
    assert_eq!(afterwards(&mut agent).await, Vec::<Value>::new());
    assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], "end_turn");
}

#[tokio::test]
async fn cnf_08_a_prompt_follows_a_cancel() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let turn = agent.request("session/prompt", text_prompt(&session, "/run sleep 3600")).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let next = agent.request("session/prompt", text_prompt(&session, "/say 1")).await;
    assert_eq!(agent.response(&turn).await.expect("no error")["stopReason"], "cancelled");
    // Sent before the cancelled turn had ended, it may be told to wait; what is sent after that works.
    if let Err(error) = agent.response(&next).await {
        assert_eq!(error["data"]["kind"], "session_busy", "{error}");
        assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], "end_turn");
    }
    assert!(answer_text(&agent.collected()).ends_with("chunk 1 "));
}

#[tokio::test]
async fn cnf_09_a_prompt_without_its_parameters() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    for params in [
        json!({"sessionId": session}),
        json!({"prompt": []}),
        json!([]),
        json!({}),
        json!({"sessionId": session, "prompt": 5}),
    ] {
        assert_eq!(refused(&mut agent, "session/prompt", params).await["code"], -32602);
    }
    assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], "end_turn");
}

#[tokio::test]
async fn cnf_10_a_session_id_that_is_no_string() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    for id in [json!(5), json!(null), json!({}), json!(["s"])] {
        let params = json!({"sessionId": id, "prompt": [{"type": "text", "text": "hello"}]});
        assert_eq!(refused(&mut agent, "session/prompt", params).await["code"], -32602);
    }
}

#[tokio::test]
async fn cnf_11_a_directory_that_is_null() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    for cwd in [json!(null), json!(5), json!({})] {
        let params = json!({"cwd": cwd, "mcpServers": []});
        assert_eq!(refused(&mut agent, "session/new", params).await["code"], -32602);
    }
}

#[tokio::test]
async fn cnf_12_an_unknown_session() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let error = refused(&mut agent, "session/prompt", text_prompt("no-such-session", "hello")).await;
    assert_eq!(error["data"]["kind"], "session_not_found", "{error}");
}

#[tokio::test]
async fn cnf_13_an_empty_prompt() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    for parts in [json!([]), json!([{"type": "text", "text": ""}]), json!("")] {
        let error = refused(&mut agent, "session/prompt", json!({"sessionId": session, "prompt": parts})).await;
        assert_eq!(error["code"], -32602, "{error}");
    }
    assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], "end_turn");
}

#[tokio::test]
async fn cnf_14_a_prompt_that_means_nothing_to_the_agent() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    assert_eq!(prompt(&mut agent, &session, "qwertz /no-such-command").await["stopReason"], "end_turn");
    assert!(!answer_text(&agent.collected()).is_empty(), "nothing was said");
}

#[tokio::test]
async fn cnf_15_structured_blocks() {
    let lab = Lab::new();
    let file = lab.file("notes.txt", "remember the milk\n");
    let (mut agent, session) = lab.session().await;
    let parts = json!([
        {"type": "text", "text": "/say 1"},
        {"type": "resource_link", "uri": format!("file://{}", file.display()), "name": "notes.txt"},
    ]);
    let answer =
        agent.call("session/prompt", json!({"sessionId": session, "prompt": parts})).await.expect("session/prompt");
    assert_eq!(answer["stopReason"], "end_turn");
    assert_eq!(answer_text(&agent.collected()), "chunk 1 ");
}

#[tokio::test]
async fn cnf_16_a_read_that_is_approved() {
    let (_lab, mut agent, session) = asking("allow-once").await;
    assert_eq!(asked_once(&mut agent, &session, "/read notes.txt").await, "completed");
}

#[tokio::test]
async fn cnf_17_a_read_that_is_denied() {
    let (_lab, mut agent, session) = asking("reject-once").await;
    assert_eq!(asked_once(&mut agent, &session, "/read notes.txt").await, "failed");
    let shown: Vec<_> = agent.received().iter().map(Value::to_string).collect();
    assert!(!shown.concat().contains("remember the milk"), "the file was read");
}

#[tokio::test]
async fn cnf_18_a_write_that_is_approved() {
    let (lab, mut agent, session) = asking("allow-once").await;
    assert_eq!(asked_once(&mut agent, &session, "/write new.txt a text").await, "completed");
    assert_eq!(std::fs::read_to_string(lab.project().join("new.txt")).unwrap().trim_end(), "a text");
}

#[tokio::test]
async fn cnf_19_a_write_that_is_denied() {
    let (lab, mut agent, session) = asking("reject-once").await;
    assert_eq!(asked_once(&mut agent, &session, "/write new.txt a text").await, "failed");
    assert!(!lab.project().join("new.txt").exists());
}

#[tokio::test]
async fn cnf_20_a_prompt_in_the_background() {
    let lab = Lab::new();
    let (mut agent, one) = lab.session().await;
    let two = new_session(&mut agent, &lab.project()).await;
    let waiting = agent.request("session/prompt", text_prompt(&one, "/run touch made.txt")).await;
    let asked = question(&mut agent).await;
    assert_eq!(prompt(&mut agent, &two, "/say 1").await["stopReason"], "end_turn");
    agent.reply(&asked["id"], selected("allow-once")).await;
    assert_eq!(agent.response(&waiting).await.expect("no error")["stopReason"], "end_turn");
    assert!(lab.project().join("made.txt").exists());
}

#[tokio::test]
async fn cnf_21_nothing_comes_after_a_success() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    agent.auto_permit("allow-once");
    assert_eq!(prompt(&mut agent, &session, "/say 3\n/run echo hello").await["stopReason"], "end_turn");
    assert_eq!(afterwards(&mut agent).await, Vec::<Value>::new());
}
