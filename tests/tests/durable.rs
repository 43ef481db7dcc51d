//! One store, many processes: what is kept, who may use it, and that a replay is what was seen.

use serde_json::{Value, json};
use zeroclaw_e2e::{
    Lab, initialize, new_session, prompt,
    replay::{assert_same, kind, load, open_calls, seen, seen_since, text, value, without_user},
    updates_of,
};
use zeroclaw_testkit::process::AgentProcess;

/// Reads on until the title of a session has come; it follows the answer of the first turn.
async fn await_title(agent: &mut AgentProcess) {
    agent.recv_until(|message| message["params"]["update"]["sessionUpdate"] == "session_info_update").await;
}

/// A script whose turns show everything a transcript can hold.
fn rich_script() -> Vec<Value> {
    let edit = json!({"path": "main.rs", "old_text": "old", "new_text": "nëw 🙂"});
    vec![
        json!({"type": "thought", "text": "First I look. {n} ", "repeat": 3}),
        json!({"type": "text", "text": "Reading the file.\n"}),
        json!({"type": "tool_call", "name": "file_read", "arguments": {"path": "main.rs"}}),
        json!({"type": "tool_call", "name": "list_dir", "arguments": {"path": "."}}),
        json!({"type": "usage", "input": 100, "output": 20}),
        json!({"type": "stop"}),
        json!({"type": "tool_call", "name": "todo_write", "arguments": {"todos": [
            {"content": "change it", "status": "in_progress", "priority": "high"},
            {"content": "hand it over", "status": "pending", "priority": "low"}]}}),
        json!({"type": "tool_call", "name": "file_edit", "arguments": edit}),
        json!({"type": "tool_call", "name": "file_write", "arguments": {"path": "fresh.txt", "content": "a\n\u{2028}b\n"}}),
        json!({"type": "tool_call", "name": "shell", "arguments": {"command": "echo out; echo err >&2; exit 3"}}),
        json!({"type": "tool_call", "name": "file_read", "arguments": {"path": "missing.txt"}}),
        json!({"type": "tool_call", "name": "no_such_tool", "arguments": {}}),
        json!({"type": "stop"}),
        json!({"type": "tool_call", "name": "deliver_file", "arguments": {"path": "fresh.txt", "title": "The file"}}),
        json!({"type": "stop"}),
        json!({"type": "thought", "text": "Done."}),
        json!({"type": "text", "text": "chunk {n} \u{0085}", "repeat": 40}),
        json!({"type": "usage", "input": 200, "output": 40, "cached": 50}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "A second turn."}),
        json!({"type": "stop"}),
    ]
}

/// Reloaded conversations lost tool calls, diffs, thoughts and plans, or showed them under other names.
#[tokio::test]
async fn dur_01_a_replay_is_what_was_seen_byte_for_byte() {
    let lab = Lab::scripted("full", &rich_script());
    lab.file("main.rs", "fn main() { old }\n");
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "do it").await;
    await_title(&mut agent).await;
    prompt(&mut agent, &session, "again").await;
    agent.close_stdin();
    assert!(agent.wait().await.success());
    let live = seen(&agent, &session);
    for expected in
        ["agent_thought_chunk", "tool_call", "tool_call_update", "plan", "usage_update", "session_info_update"]
    {
        assert!(live.iter().any(|update| kind(update) == expected), "no {expected} in {live:#?}");
    }
    assert!(live.iter().any(|update| update.contains("\"type\":\"diff\"")), "no diff");
    assert!(live.iter().any(|update| update.contains("attachment://deliver/")), "no delivered file");
    assert_eq!(open_calls(&live), Vec::<String>::new());
    assert!(!live.iter().any(|update| kind(update) == "user_message_chunk"), "the client's own words were echoed");

    let mut other = lab.agent().await;
    let replayed = load(&mut other, &session, &lab.project()).await;
    assert_same(&without_user(&replayed), &live, "the replay in another process");
    let users: Vec<String> =
        replayed.iter().filter(|update| kind(update) == "user_message_chunk").map(|update| text(update)).collect();
    assert_eq!(users, ["do it", "again"]);
    assert_eq!(text(&replayed[0]), "do it", "the user's words come first");
}

/// A resume that replayed made editors show the conversation twice.
#[tokio::test]
async fn dur_02_resume_replays_nothing_and_remembers_everything() {
    let server = zeroclaw_testkit::model_server::ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    server.push(zeroclaw_testkit::model_server::Reply::text("The word is walnut."));
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "choose a word").await;
    agent.close_stdin();
    assert!(agent.wait().await.success());

    let mut other = lab.agent().await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    other.call("session/resume", params).await.expect("session/resume");
    assert_eq!(seen(&other, &session), Vec::<String>::new());
    server.push(zeroclaw_testkit::model_server::Reply::text("walnut"));
    prompt(&mut other, &session, "which word?").await;
    let request = server.requests().pop().expect("a request");
    assert!(request.body["messages"].to_string().contains("The word is walnut."), "{}", request.body);
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// Two processes held one session at once and both appended to it.
#[tokio::test]
async fn dur_03_a_session_belongs_to_one_process_at_a_time() {
    let lab = Lab::new();
    let (mut first, session) = lab.session().await;
    prompt(&mut first, &session, "/say 3").await;
    let mut second = lab.agent().await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    for method in ["session/load", "session/resume"] {
        let error = second.call(method, params.clone()).await.expect_err("the session is in use");
        assert_eq!(error["code"], -32602, "{error}");
    }
    let error = second
        .call("session/prompt", zeroclaw_e2e::text_prompt(&session, "/say 1"))
        .await
        .expect_err("the session is not this process's");
    assert_eq!(error["data"]["kind"], "session_not_found", "{error}");
    // The refusals did not disturb the owner.
    prompt(&mut first, &session, "/say 2").await;
    first.call("session/close", json!({"sessionId": session})).await.expect("session/close");
    let live = seen(&first, &session);
    let replayed = load(&mut second, &session, &lab.project()).await;
    assert_same(&without_user(&replayed), &live, "the replay in the second process");
    prompt(&mut second, &session, "/say 1").await;
    let error = first.call("session/load", params).await.expect_err("now it is in use here");
    assert_eq!(error["code"], -32602, "{error}");
}

/// The lock of a process that was killed held its sessions for ever.
#[tokio::test]
async fn dur_04_a_killed_process_gives_its_sessions_up_at_once() {
    let lab = Lab::new();
    let (mut first, session) = lab.session().await;
    prompt(&mut first, &session, "/say 3").await;
    let mut second = lab.agent().await;
    first.kill9().await;
    let replayed = load(&mut second, &session, &lab.project()).await;
    assert!(replayed.iter().any(|update| text(update) == "chunk 3 "), "{replayed:#?}");
    prompt(&mut second, &session, "/say 1").await;
}

/// Several editors were opened at once on a fresh machine, and all but one said "database is locked".
#[tokio::test]
async fn dur_05_eight_first_starts_at_once_share_one_store() {
    let lab = Lab::new();
    let mut agents: Vec<AgentProcess> = (0..8).map(|_| lab.start()).collect();
    let mut sessions = Vec::new();
    for agent in &mut agents {
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        agent.request("initialize", params).await;
        agent.request("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await;
    }
    for agent in &mut agents {
        let ready = agent.recv_until(|message| message["id"] == 2).await;
        let hello = ready.iter().find(|message| message["id"] == 1).expect("initialize was answered");
        assert_eq!(hello["result"]["agentCapabilities"]["loadSession"], true, "{hello}");
        let id = ready.last().expect("an answer")["result"]["sessionId"].as_str();
        sessions.push(id.unwrap_or_else(|| panic!("{ready:#?}")).to_owned());
    }
    let mut pending = Vec::new();
    for (agent, session) in agents.iter_mut().zip(&sessions) {
        pending.push(agent.request("session/prompt", zeroclaw_e2e::text_prompt(session, "/say 50")).await);
    }
    for (agent, request) in agents.iter_mut().zip(&pending) {
        let result = agent.response(request).await.expect("every turn is stored");
        assert_eq!(result["stopReason"], "end_turn");
        assert!(result["_meta"].is_null(), "a turn was not stored: {result}");
    }
    let live: Vec<Vec<String>> = agents.iter().zip(&sessions).map(|(agent, session)| seen(agent, session)).collect();
    for agent in &mut agents {
        agent.close_stdin();
        assert!(agent.wait().await.success());
        assert!(!agent.stderr_text().contains("locked"), "{}", agent.stderr_text());
    }
    let mut reader = lab.agent().await;
    for (session, live) in sessions.iter().zip(&live) {
        let replayed = load(&mut reader, session, &lab.project()).await;
        assert_same(&without_user(&replayed)[..live.len()], live, "a session of a parallel process");
    }
}

/// A limit on active sessions made older conversations unreachable, and closing one threw its record away.
#[tokio::test]
async fn dur_06_a_session_survives_the_limit_and_its_close() {
    let lab = Lab::with_config("[acp]\nmax_sessions = 2\n");
    let (mut agent, first) = lab.session().await;
    prompt(&mut agent, &first, "/say 5").await;
    await_title(&mut agent).await;
    let live = seen(&agent, &first);
    let second = new_session(&mut agent, &lab.project()).await;
    let params = json!({"cwd": lab.project(), "mcpServers": []});
    let error = agent.call("session/new", params.clone()).await.expect_err("two are the limit");
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32001), &json!("session_limit_reached")), "{error}");

    agent.call("session/close", json!({"sessionId": first})).await.expect("session/close");
    let error = agent.call("session/close", json!({"sessionId": first})).await.expect_err("it is not active now");
    assert_eq!(error["data"]["kind"], "session_not_found", "{error}");
    agent.call("session/new", params).await.expect("a place is free");
    let load_first = json!({"sessionId": first, "cwd": lab.project(), "mcpServers": []});
    let error = agent.call("session/load", load_first).await.expect_err("two are the limit");
    assert_eq!(error["data"]["kind"], "session_limit_reached", "{error}");
    agent.call("session/stop", json!({"sessionId": second})).await.expect("session/stop");
    let replayed = load(&mut agent, &first, &lab.project()).await;
    assert_same(&without_user(&replayed), &live, "the replay after the close");
    prompt(&mut agent, &first, "/say 1").await;
}

/// A rich turn was answered before it was on disk.
#[tokio::test]
async fn dur_07_a_kill_right_after_the_answer_loses_nothing_of_a_rich_turn() {
    let lab = Lab::scripted("full", &rich_script());
    lab.file("main.rs", "fn main() { old }\n");
    let (mut agent, session) = lab.session().await;
    let line = agent.transcript().len();
    let result = prompt(&mut agent, &session, "do it").await;
    let live = seen_since(&agent, &session, line);
    agent.kill9().await;
    assert!(result["_meta"].is_null(), "{result}");

    let mut other = lab.agent().await;
    let replayed = load(&mut other, &session, &lab.project()).await;
    let answers = without_user(&replayed);
    assert_same(&answers[..live.len()], &live, "the replay");
    let rest: Vec<String> = answers[live.len()..].iter().map(|update| kind(update)).collect();
    assert!(rest.iter().all(|kind| kind == "session_info_update"), "a finished turn was repaired: {rest:#?}");
    let listed = other.call("session/list", json!({})).await.expect("session/list");
    assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["sessions"][0]["sessionId"], session.as_str());
    assert_eq!(listed["sessions"][0]["cwd"], json!(lab.project()));
}

/// A directory that was given to `session/load` moved the conversation to other files.
#[tokio::test]
async fn dur_08_a_session_keeps_its_directory() {
    let lab = Lab::new();
    lab.file("here.txt", "the right place\n");
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 1").await;
    agent.close_stdin();
    assert!(agent.wait().await.success());
    let elsewhere = lab.home().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory");

    let mut other = lab.agent().await;
    let params = json!({"sessionId": session, "cwd": elsewhere, "mcpServers": []});
    let error = other.call("session/load", params).await.expect_err("not the session's directory");
    assert_eq!(error["code"], -32602, "{error}");
    load(&mut other, &session, &lab.project()).await;
    prompt(&mut other, &session, "/read here.txt").await;
    assert!(other.received().iter().any(|message| message.to_string().contains("the right place")));
}

/// Turns that failed left no trace: the user saw an error and after a reload not even the question.
#[tokio::test]
async fn dur_09_failed_and_cancelled_turns_are_kept() {
    let script = [
        json!({"type": "text", "text": "so far "}),
        json!({"type": "error", "kind": "stream", "message": "the line is dead"}),
        json!({"type": "text", "text": "long "}),
        json!({"type": "delay", "ms": 3_600_000}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "fine"}),
        json!({"type": "stop"}),
    ];
    let lab = Lab::scripted("full", &script);
    let (mut agent, session) = lab.session().await;
    let failed = agent.call("session/prompt", zeroclaw_e2e::text_prompt(&session, "one")).await;
    assert_eq!(failed.expect_err("the model failed")["code"], -32603);
    let request = agent.request("session/prompt", zeroclaw_e2e::text_prompt(&session, "two")).await;
    agent.recv_until(|message| message["params"]["update"]["content"]["text"] == "long ").await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(agent.response(&request).await.expect("a result")["stopReason"], "cancelled");
    prompt(&mut agent, &session, "three").await;
    let live = seen(&agent, &session);
    agent.kill9().await;

    let mut other = lab.start();
    initialize(&mut other).await;
    let replayed = load(&mut other, &session, &lab.project()).await;
    assert_same(&without_user(&replayed)[..live.len()], &live, "the replay");
    let users: Vec<String> =
        replayed.iter().filter(|update| kind(update) == "user_message_chunk").map(|update| text(update)).collect();
    assert_eq!(users, ["one", "two", "three"]);
    assert_eq!(updates_of(&other.received(), "user_message_chunk").len(), 3);
    assert!(value(&replayed[0])["content"]["text"] == "one");
}
