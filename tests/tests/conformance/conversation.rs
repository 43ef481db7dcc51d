//! A conversation in which the server shows all it has: every kind of update, both kinds of questions, a replay.
//! The rules about what must not be sent are asserted over it.

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, new_session, text_prompt};
use zeroclaw_testkit::process::{AgentProcess, Permission};

use crate::turns::builtin;

/// Every tool of the built-in agent in one prompt.
const ALL_TOOLS: &str = "/plan look; change\n/think hmm\n/read a.txt\n/ls\n/find *.txt\n/grep alpha\n/write new.txt fresh\n\
    /edit a.txt alpha => beta\n/run echo hi\n/ask Which one? | left | right\n/deliver new.txt\n/say 3";

/// A client that advertises these capabilities, initialized; it says yes to every question for permission.
pub(super) async fn client(lab: &Lab, capabilities: Value) -> AgentProcess {
    started(lab.start(), capabilities).await
}

/// The same with a process that was started in its own way.
pub(super) async fn started(mut agent: AgentProcess, capabilities: Value) -> AgentProcess {
    agent.on_permission(|params| {
        let first = params["options"][0]["optionId"].as_str().expect("a question has options");
        Permission::Select(first.to_owned())
    });
    let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
    agent.call("initialize", params).await.expect("initialize");
    agent
}

/// Every capability that a client can have.
pub(super) fn everything() -> Value {
    json!({
        "fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false, "auth": {"terminal": true},
        "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
        "elicitation": {"form": {}, "url": {}}, "plan": {}, "subagents": {},
    })
}

/// Prompts, declines every form, and returns the answer and all that came before it.
pub(super) async fn drive(agent: &mut AgentProcess, session: &str, text: &str) -> (Value, Vec<Value>) {
    let params = text_prompt(session, text);
    agent
        .send(&json!({"jsonrpc": "2.0", "id": "drive", "method": "session/prompt", "params": params}).to_string())
        .await;
    let mut seen = Vec::new();
    loop {
        let mut message = agent.next().await;
        if message["method"] == "elicitation/create" {
            agent.reply(&message["id"], json!({"action": "decline"})).await;
        }
        if message.get("method").is_none() && message["id"] == "drive" {
            return (message["result"].take(), seen);
        }
        seen.push(message);
    }
}

/// The whole conversation with such a client: all tools, a cancelled turn, every choice, a close, a replay.
pub(super) async fn rich(capabilities: Value) -> (Lab, Vec<Value>) {
    let lab = builtin("supervised");
    lab.file("a.txt", "alpha\n");
    let mut agent = client(&lab, capabilities).await;
    let opened = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.expect("session/new");
    let session = opened["sessionId"].as_str().expect("an id").to_owned();
    let (result, _) = drive(&mut agent, &session, ALL_TOOLS).await;
    assert_eq!(result["stopReason"], "end_turn", "{result}");
    for option in opened["configOptions"].as_array().expect("options") {
        let params = json!({"sessionId": session, "configId": option["id"], "value": option["currentValue"]});
        agent.call("session/set_config_option", params).await.expect("session/set_config_option");
    }
    let mode = json!({"sessionId": session, "modeId": "readonly"});
    agent.call("session/set_mode", mode).await.expect("session/set_mode");
    agent.call("session/close", json!({"sessionId": session})).await.expect("session/close");
    let load = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    agent.call("session/load", load).await.expect("session/load");
    agent.call("session/list", json!({})).await.expect("session/list");
    new_session(&mut agent, &lab.project()).await;
    let received = agent.received();
    (lab, received)
}

/// The names of the requests and notifications among these messages.
pub(super) fn methods(messages: &[Value]) -> Vec<&str> {
    messages.iter().filter_map(|message| message["method"].as_str()).collect()
}

/// The kinds of the updates among these messages.
pub(super) fn kinds(messages: &[Value]) -> Vec<&str> {
    messages.iter().filter_map(|message| message["params"]["update"]["sessionUpdate"].as_str()).collect()
}

/// Asserts that the conversation was as rich as it is meant to be, so that its silence about something means something.
pub(super) fn assert_rich(messages: &[Value]) {
    let kinds = kinds(messages);
    for kind in
        ["agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan", "user_message_chunk"]
    {
        assert!(kinds.contains(&kind), "no {kind} in {kinds:?}");
    }
    assert!(methods(messages).contains(&"session/request_permission"));
}
