//! The protocol stream carries messages and nothing else. The driver checks every line of every test; here is what once
//! slipped through elsewhere.

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, initialize, new_session, next_response, prompt, text_prompt, updates_of};
use zeroclaw_testkit::process::AgentProcess;

// A database that was made on the first start told of it on stdout, and editors took the first line for a broken answer.
#[tokio::test]
async fn std_01_startup_lines_stay_off_stdout() {
    for (program, arguments) in [("zeroclaw-acp", &[][..]), ("zeroclaw", &["acp"][..])] {
        let lab = Lab::new();
        assert!(!lab.database().exists());
        let mut command = lab.command(program);
        command.args(arguments).env("RUST_LOG", "trace");
        let mut agent = AgentProcess::spawn(command);
        assert_eq!(initialize(&mut agent).await["protocolVersion"], json!(1));
        assert_eq!(agent.received().len(), 1, "the answer is the first and only line");
        assert!(lab.database().exists(), "the store was made by this start");
        let session = new_session(&mut agent, &lab.project()).await;
        prompt(&mut agent, &session, "/say 2").await;
        agent.close_stdin();
        assert!(agent.wait().await.success());
        assert!(!agent.stderr_text().is_empty(), "a log at the level trace goes to stderr");
    }
}

// The loop printed the model's words to the terminal it believed it had, beside sending them as updates.
#[tokio::test]
async fn std_03_an_answer_is_never_a_bare_line() {
    let lines = [
        json!({"type": "text", "text": "quicksilver\n"}),
        json!({"type": "text", "text": "marmalade"}),
        json!({"type": "stop"}),
    ];
    let lab = Lab::scripted("full", &lines);
    let mut agent = lab.start_with(&[("RUST_LOG", "trace")]);
    initialize(&mut agent).await;
    let session = new_session(&mut agent, &lab.project()).await;
    let result = prompt(&mut agent, &session, "go").await;
    assert_eq!(result["content"], json!("quicksilver\nmarmalade"));
    agent.close_stdin();
    assert!(agent.wait().await.success());
    let chunks: Vec<Value> = updates_of(&agent.received(), "agent_message_chunk");
    let streamed: String = chunks.iter().filter_map(|chunk| chunk["content"]["text"].as_str()).collect();
    assert_eq!(streamed, "quicksilver\nmarmalade");
    for message in agent.received() {
        if message.to_string().contains("marmalade") {
            let is_chunk = message["params"]["update"]["sessionUpdate"] == "agent_message_chunk";
            assert!(is_chunk || message["result"]["content"] == result["content"], "{message}");
        }
    }
    assert!(!agent.stderr_text().contains("marmalade"), "what is said is not logged either");
}

// Log lines that happened to be JSON, one with the id of a pending request in it, were taken for that request's answer.
#[tokio::test]
async fn std_05_json_that_is_no_response_answers_nothing() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let turn = agent.request("session/prompt", text_prompt(&session, "/write note.txt hello")).await;
    let asked = agent.recv_until(|message| message["method"] == "session/request_permission").await.pop().unwrap();
    let id = asked["id"].clone();
    assert!(id.is_string(), "{asked}");

    let allow = json!({"outcome": {"outcome": "selected", "optionId": "allow-once"}});
    agent.send("\"hi\"").await;
    agent.send("[1]").await;
    agent.send(&json!({"id": id, "level": "info"}).to_string()).await;
    for expected in [json!(null), json!(null), id.clone()] {
        let refused = next_response(&mut agent).await;
        assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32600), &expected), "{refused}");
    }
    // These look like responses, and a response is never answered.
    agent.send(&json!({"id": id, "result": allow}).to_string()).await;
    agent.send(&json!({"jsonrpc": "1.0", "id": id, "result": allow}).to_string()).await;
    agent.send(&json!({"jsonrpc": "2.0", "id": "zc-out-77", "result": allow}).to_string()).await;
    agent.send(&json!({"jsonrpc": "2.0", "id": 0, "result": allow}).to_string()).await;
    let reject = json!({"outcome": {"outcome": "selected", "optionId": "reject-once"}});
    agent.reply(&id, reject).await;
    let result = agent.response(&turn).await.unwrap();
    assert_eq!(result["stopReason"], json!("end_turn"));
    let updates = updates_of(&agent.received(), "tool_call_update");
    assert_eq!(updates.last().unwrap()["status"], json!("failed"), "only the true answer counted, and it was no");
    assert!(!lab.project().join("note.txt").exists());
}
