//! What the tests of whole turns share: a turn with all it said, its calls by id, and answers to questions.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, text_prompt};
use zeroclaw_testkit::process::AgentProcess;

/// A lab with the built-in agent at this level.
pub(crate) fn builtin(level: &str) -> Lab {
    Lab::with_config(&format!("[autonomy]\nlevel = \"{level}\"\n"))
}

/// Starts the agent with these arguments and opens a session in the project.
pub(crate) async fn session_with(lab: &Lab, arguments: &[&str]) -> (AgentProcess, String) {
    let mut command = lab.command("zeroclaw-acp");
    command.args(arguments);
    let mut agent = AgentProcess::spawn(command);
    zeroclaw_e2e::initialize(&mut agent).await;
    let session = zeroclaw_e2e::new_session(&mut agent, &lab.project()).await;
    (agent, session)
}

/// A turn that ended: the answer to its prompt, and every message that came before it.
pub(crate) struct Turn {
    pub(crate) result: Value,
    pub(crate) messages: Vec<Value>,
}

/// Runs a text prompt to its end.
pub(crate) async fn turn(agent: &mut AgentProcess, session: &str, text: &str) -> Turn {
    turn_of(agent, text_prompt(session, text)).await
}

/// Runs a prompt with these parameters to its end.
pub(crate) async fn turn_of(agent: &mut AgentProcess, params: Value) -> Turn {
    drop(agent.collected());
    let result = agent.call("session/prompt", params).await;
    let result = result.unwrap_or_else(|error| panic!("session/prompt: {error}"));
    Turn { result, messages: agent.collected() }
}

/// Runs a prompt that has to end by itself.
pub(crate) async fn end_turn(agent: &mut AgentProcess, session: &str, text: &str) -> Turn {
    let turn = turn(agent, session, text).await;
    assert_eq!(turn.result["stopReason"], "end_turn", "{}", turn.result);
    turn
}

/// Whether a message asks for permission.
pub(crate) fn asks(message: &Value) -> bool {
    message["method"] == "session/request_permission"
}

/// Whether a message is the update of this kind.
pub(crate) fn is_update(message: &Value, kind: &str) -> bool {
    message["params"]["update"]["sessionUpdate"] == kind
}

/// Whether a message says that a call has begun to run.
pub(crate) fn runs(message: &Value) -> bool {
    is_update(message, "tool_call_update") && message["params"]["update"]["status"] == "in_progress"
}

/// Reads on up to a permission request and returns it.
pub(crate) async fn question(agent: &mut AgentProcess) -> Value {
    agent.recv_until(asks).await.pop().unwrap()
}

/// The answer that selects an option.
pub(crate) fn selected(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

/// Every status of every call, in order, by the call's id.
pub(crate) fn statuses(messages: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut calls: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for message in messages {
        let update = &message["params"]["update"];
        if let (Some(id), Some(status)) = (update["toolCallId"].as_str(), update["status"].as_str()) {
            calls.entry(id.to_owned()).or_default().push(status.to_owned());
        }
    }
    calls
}

/// The last update of the only call among these messages.
pub(crate) fn last_update(messages: &[Value]) -> Value {
    let updates = zeroclaw_e2e::updates_of(messages, "tool_call_update");
    updates.last().cloned().unwrap_or_else(|| panic!("no tool_call_update in {messages:#?}"))
}

/// The calls as they were announced.
pub(crate) fn announced(messages: &[Value]) -> Vec<Value> {
    zeroclaw_e2e::updates_of(messages, "tool_call")
}

/// All text blocks of a `content` list.
pub(crate) fn texts(content: &Value) -> String {
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["content"]["text"].as_str()).collect();
    texts.join("\n")
}

/// Every file below a directory by its relative name, sorted.
pub(crate) fn files_below(directory: &Path) -> Vec<String> {
    fn walk(base: &Path, directory: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                walk(base, &entry.path(), found);
            } else {
                found.push(entry.path().strip_prefix(base).unwrap().display().to_string());
            }
        }
    }
    let mut found = Vec::new();
    walk(directory, directory, &mut found);
    found.sort();
    found
}
