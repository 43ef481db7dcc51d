//! Compares what a client has seen live with what a later load replays: as bytes, not as values.
//! It refuses to compare the slash commands, which are state of now and never part of a conversation.

use std::{collections::HashMap, path::Path};

use serde_json::{Value, json, value::RawValue};
use zeroclaw_testkit::process::{AgentProcess, Direction};

type Members = HashMap<String, Box<RawValue>>;

/// The texts of all updates of a session read so far, in order, exactly as they stood on the wire.
#[must_use]
pub fn seen(agent: &AgentProcess, session: &str) -> Vec<String> {
    seen_since(agent, session, 0)
}

/// The same, from this line of the transcript on.
#[must_use]
pub fn seen_since(agent: &AgentProcess, session: &str, line: usize) -> Vec<String> {
    let received = agent.transcript().iter().skip(line).filter(|entry| entry.direction == Direction::Received);
    received.filter_map(|entry| update_text(&entry.line, session)).filter(|update| is_history(update)).collect()
}

/// Loads a session and returns the texts of the updates that came before the answer.
pub async fn load(agent: &mut AgentProcess, session: &str, cwd: &Path) -> Vec<String> {
    let line = agent.transcript().len();
    let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
    agent.call("session/load", params).await.unwrap_or_else(|error| panic!("session/load: {error}"));
    seen_since(agent, session, line)
}

/// The `sessionUpdate` of an update.
#[must_use]
pub fn kind(update: &str) -> String {
    value(update)["sessionUpdate"].as_str().unwrap_or_default().to_owned()
}

/// The update as a value.
#[must_use]
pub fn value(update: &str) -> Value {
    serde_json::from_str(update).expect("an update is JSON")
}

/// The text of a chunk, or nothing.
#[must_use]
pub fn text(update: &str) -> String {
    value(update)["content"]["text"].as_str().unwrap_or_default().to_owned()
}

/// Without the user's own messages, which only a replay shows.
#[must_use]
pub fn without_user(updates: &[String]) -> Vec<String> {
    updates.iter().filter(|update| kind(update) != "user_message_chunk").cloned().collect()
}

/// The tool calls among these updates that have no final status.
#[must_use]
pub fn open_calls(updates: &[String]) -> Vec<String> {
    let mut open = Vec::new();
    for update in updates.iter().map(|update| value(update)) {
        let Some(id) = update["toolCallId"].as_str() else { continue };
        let is_final = matches!(update["status"].as_str(), Some("completed" | "failed"));
        open.retain(|known| known != id);
        if !is_final {
            open.push(id.to_owned());
        }
    }
    open
}

/// Asserts that two lists of updates are the same bytes in the same order, and shows the first difference.
pub fn assert_same(actual: &[String], expected: &[String], what: &str) {
    for (index, pair) in actual.iter().zip(expected).enumerate() {
        assert_eq!(pair.0, pair.1, "{what}: update {index} differs");
    }
    let rest = if actual.len() > expected.len() { &actual[expected.len()..] } else { &expected[actual.len()..] };
    let (have, want) = (actual.len(), expected.len());
    assert!(have == want, "{what}: {have} updates instead of {want}; the difference: {rest:#?}");
}

fn update_text(line: &str, session: &str) -> Option<String> {
    let message: Members = serde_json::from_str(line).ok()?;
    if message.get("method")?.get() != "\"session/update\"" {
        return None;
    }
    let params: Members = serde_json::from_str(message.get("params")?.get()).ok()?;
    let of: String = serde_json::from_str(params.get("sessionId")?.get()).ok()?;
    (of == session).then(|| params.get("update").map(|raw| raw.get().to_owned())).flatten()
}

fn is_history(update: &str) -> bool {
    kind(update) != "available_commands_update"
}
