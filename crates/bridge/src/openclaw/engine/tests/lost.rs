//! Turns over connections that are lost: nothing twice, nothing missing, everything answered.

use std::time::Duration;

use serde_json::{Value, json};

use super::{AFTER_RECONNECT, BASIC, Bridge, COMMAND, EDIT, STATUS};

const TEXT: &str = "w0 xxxxxxxx w1 xxxxxxxx w2 xxxxxxxx w3 xxxxxxxx w4 xxxxxxxx w5 xxxxxxxx w6 xxxxxxxx w7 xxxxxxxx";

/// The rows of a recorded run, as the gateway's history has them, its prompt first. Rows that are told live hold no calls,
/// those of the history do.
fn rows(frames: &str, run: &str) -> Vec<Value> {
    let mut rows: Vec<Value> = Vec::new();
    for line in frames.lines() {
        let frame: Value = serde_json::from_str(&line.replace("RUN", run)).expect("a frame");
        let data = &frame["payload"]["data"];
        if frame["event"] == "session.message" {
            rows.push(frame["payload"]["message"].clone());
        } else if frame["payload"]["stream"] == "tool" && data["phase"] == "start" {
            let call = json!({ "type": "toolCall", "id": data["toolCallId"], "name": data["name"], "arguments": data["args"] });
            rows.last_mut().expect("its answer")["content"].as_array_mut().expect("blocks").push(call);
        } else if frame["payload"]["stream"] == "tool" && data["phase"] == "result" {
            let result = &data["result"];
            rows.push(json!({ "role": "toolResult", "toolCallId": data["toolCallId"], "toolName": data["name"],
                "content": result["content"], "details": result["details"], "isError": data["isError"] }));
        }
    }
    rows
}

fn running(run: &str) -> Value {
    json!({ "runId": run, "status": "timeout", "timeoutPhase": "gateway_draining" })
}

#[test]
fn w06_a_run_that_ends_meanwhile_is_told_whole() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, run) = bridge.prompt(&session, "go");
    for line in BASIC.lines().take(4) {
        bridge.play_line(line, &run);
    }
    bridge.lose();
    bridge.connect();
    bridge.answer("agent.wait", json!({ "runId": run, "status": "ok" }));
    // The last row is written a moment later.
    bridge.answer("sessions.get", json!({ "messages": rows(BASIC, &run)[..1] }));
    bridge.wait(Duration::from_millis(300));
    bridge.answer("sessions.get", json!({ "messages": rows(BASIC, &run) }));
    let seen = bridge.seen();
    assert_eq!(seen.concat().replace("(t0 t1 t2 )", ""), format!("session_info_update{TEXT} 108/128000{id}: end_turn"));
}

#[test]
fn gwb_01_a_run_that_fails_meanwhile_is_an_error() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, run) = bridge.prompt(&session, "go");
    bridge.lines();
    bridge.lose();
    bridge.connect();
    bridge.answer("agent.wait", json!({ "runId": run, "status": "error", "error": "it broke" }));
    let failed = json!({ "role": "assistant", "content": [], "stopReason": "error", "errorMessage": "429 slow down" });
    bridge.answer("sessions.get", json!({ "messages": [rows(BASIC, &run)[0], failed] }));
    assert_eq!(bridge.seen(), [format!("{id}: error -32603 429 slow down")]);
}

#[test]
fn w08_tools_come_back_after_a_reconnect() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, run) = bridge.prompt(&session, "go");
    bridge.lines();
    bridge.lose();
    bridge.connect();
    assert_eq!(bridge.methods()[..3], ["sessions.subscribe", "sessions.messages.subscribe", "agent.wait"]);
    bridge.answer("agent.wait", running(&run));
    bridge.answer("sessions.get", json!({ "messages": [rows(BASIC, &run)[0]] }));
    bridge.play(AFTER_RECONNECT, &run);
    assert_eq!(
        bridge.seen(),
        [
            "calling tool now. ",
            "[CALL in_progress Read /srv/ws/x.txt]",
            "[CALL completed hello\nmars\n]",
            "tool said: hello\nmars\n | w0 xxxxxxxx w1 xxxxxxxx w2 xxxxxxxx ",
            "103/128000",
            &format!("{id}: end_turn"),
        ]
    );
}

/// What the client has in the end: messages by id, calls by id with their last state, and the answer.
fn transcript(seen: &[Value]) -> (Vec<String>, Vec<(String, String, String)>, String) {
    let mut texts: Vec<(String, String)> = Vec::new();
    let mut calls: Vec<(String, String, String)> = Vec::new();
    let mut end = String::new();
    for line in seen {
        let update = &line["params"]["update"];
        let id = update["messageId"].as_str().unwrap_or_default().to_owned();
        let said = update["content"]["text"].as_str().unwrap_or_default();
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => match texts.iter_mut().find(|(known, _)| *known == id) {
                Some((_, text)) => text.push_str(said),
                None => texts.push((id, said.to_owned())),
            },
            Some("tool_call") => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                calls.push((text(&update["toolCallId"]), text(&update["title"]), text(&update["status"])));
            }
            Some("tool_call_update") => {
                let call = calls.iter_mut().find(|call| update["toolCallId"] == call.0.as_str()).expect("a known call");
                if let Some(status) = update["status"].as_str() {
                    assert!(!matches!(call.2.as_str(), "completed" | "failed"), "an ended call ended again");
                    status.clone_into(&mut call.2);
                }
            }
            Some(_) => {}
            None => end = format!("{}{}", line["result"]["stopReason"], line["error"]["message"]),
        }
    }
    // White space behind a message that others follow is told when it comes in time.
    (texts.into_iter().map(|(_, text)| text.trim_end().to_owned()).collect(), calls, end)
}

/// A gateway that writes rows as it did when it was recorded, and whose connection is cut behind any of its frames.
#[test]
fn a_cut_at_every_frame_changes_nothing() {
    for frames in [BASIC, COMMAND, EDIT] {
        let mut whole = Bridge::new();
        let session = whole.session();
        let (_, run) = whole.prompt(&session, "go");
        whole.play(frames, &run);
        whole.wait(Duration::from_secs(1));
        let expected = transcript(&whole.lines());
        let count = frames.lines().count();
        for cut in 0..count {
            for missed in [0, 1, 3, count] {
                let mut bridge = Bridge::new();
                let session = bridge.session();
                let (_, run) = bridge.prompt(&session, "go");
                let lines: Vec<&str> = frames.lines().collect();
                for line in &lines[..cut] {
                    bridge.play_line(line, &run);
                }
                bridge.lose();
                bridge.connect();
                let next = (cut + missed).min(count);
                catch_up(&mut bridge, &lines, next, &run);
                bridge.wait(Duration::from_secs(1));
                let seen = bridge.lines();
                assert_eq!(transcript(&seen), expected, "cut at {cut}, {missed} frames missed");
                let answers = seen.iter().filter(|line| line["result"]["stopReason"].is_string()).count();
                assert_eq!(answers, 1, "cut at {cut}, {missed} frames missed");
            }
        }
    }
}

/// Answers what the bridge asks after a reconnect while the gateway is before its frame `next`, and plays the rest.
fn catch_up(bridge: &mut Bridge, lines: &[&str], next: usize, run: &str) {
    if !bridge.methods().contains(&"agent.wait".to_owned()) {
        // The turn had ended before.
        return;
    }
    let is_over = lines[..next].iter().any(|line| line.contains("\"state\":\"final\""));
    let wait = if is_over { json!({ "runId": run, "status": "ok" }) } else { running(run) };
    bridge.answer("agent.wait", wait);
    // A frame that comes while the history is read is held.
    let early = next.min(lines.len());
    let ahead = (early + 1).min(lines.len());
    let history = rows(&lines[..early].join("\n"), run);
    if !is_over {
        for line in &lines[early..ahead] {
            bridge.play_line(line, run);
        }
    }
    bridge.answer("sessions.get", json!({ "messages": history }));
    if !is_over {
        for line in &lines[ahead..] {
            bridge.play_line(line, run);
        }
    }
}

/// The original sent it before hello, and the gateway closed the connection for it.
#[test]
fn w04_nothing_is_sent_before_hello() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    bridge.lose();
    let id = bridge.ask("session/prompt", json!({ "sessionId": session, "prompt": "x" }));
    bridge.ask("session/list", json!({}));
    assert_eq!(bridge.methods(), Vec::<String>::new());
    bridge.connect();
    assert_eq!(bridge.methods()[..3], ["sessions.list", "sessions.messages.subscribe", "chat.send"]);
    let run = bridge.begin();
    bridge.play(STATUS, &run);
    assert_eq!(bridge.seen().last(), Some(&format!("{id}: end_turn")));
}

#[test]
fn w07_a_cancel_meanwhile_stops_the_run_later() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, run) = bridge.prompt(&session, "go");
    bridge.lines();
    bridge.lose();
    bridge.say(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    assert_eq!(bridge.seen(), [format!("{id}: cancelled")]);
    // Even when it takes longer than prompts wait.
    bridge.wait(Duration::from_secs(40));
    bridge.connect();
    assert_eq!(bridge.request("chat.abort")["params"]["runId"], run.as_str());
}

#[test]
fn w07_an_outage_within_the_grace_fails_nothing_and_a_longer_one_says_why() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, _) = bridge.prompt(&session, "go");
    bridge.lines();
    bridge.lose();
    bridge.wait(Duration::from_secs(20));
    // Counted from the first loss, not from the last.
    bridge.lose();
    bridge.wait(Duration::from_secs(9));
    assert_eq!(bridge.seen(), Vec::<String>::new());
    bridge.wait(Duration::from_secs(2));
    assert_eq!(bridge.seen(), [format!("{id}: error -32603 the gateway is away: the connection broke")]);
    assert_eq!(bridge.incomplete, std::slice::from_ref(&session));
    let id = bridge.ask("session/prompt", json!({ "sessionId": session, "prompt": "x" }));
    assert_eq!(bridge.seen(), [format!("{id}: error -32603 the gateway is away: the connection broke")]);
    bridge.connect();
    let (id, run) = bridge.prompt(&session, "again");
    bridge.play(STATUS, &run);
    assert_eq!(bridge.seen().last(), Some(&format!("{id}: end_turn")));
}

#[test]
fn w15_a_prompt_whose_acknowledgement_was_lost_is_not_run_twice() {
    for arrived in [true, false] {
        let mut bridge = Bridge::new();
        let session = bridge.session();
        let id = bridge.ask("session/prompt", json!({ "sessionId": session, "prompt": "x" }));
        let sent = bridge.request("chat.send");
        let run = sent["params"]["idempotencyKey"].as_str().expect("a run").to_owned();
        bridge.lose();
        bridge.connect();
        let history = if arrived { rows(BASIC, &run) } else { Vec::new() };
        bridge.answer("sessions.get", json!({ "messages": history }));
        if arrived {
            bridge.answer("agent.wait", json!({ "runId": run, "status": "ok" }));
            bridge.answer("sessions.get", json!({ "messages": history }));
            assert!(!bridge.methods().contains(&"chat.send".to_owned()));
        } else {
            // Under the same key, so that a gateway that has it after all says so.
            let run_again = bridge.begin();
            assert_eq!(run_again, run);
            bridge.play(STATUS, &run);
        }
        assert_eq!(bridge.seen().last(), Some(&format!("{id}: end_turn")));
    }
}

#[test]
fn a_run_that_the_gateway_has_forgotten_fails_with_the_reason() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, run) = bridge.prompt(&session, "go");
    bridge.lines();
    bridge.lose();
    bridge.connect();
    bridge.answer(
        "agent.wait",
        json!({ "runId": run, "status": "timeout", "timeoutPhase": "queue", "providerStarted": false }),
    );
    bridge.answer("sessions.get", json!({ "messages": [] }));
    let why = "the gateway does not know the run any more; it was restarted, or the run was stopped";
    assert_eq!(bridge.seen(), [format!("{id}: error -32603 {why}")]);
}

#[test]
fn a_run_that_was_stopped_meanwhile_is_cancelled() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, run) = bridge.prompt(&session, "go");
    bridge.lines();
    bridge.lose();
    bridge.connect();
    bridge.answer(
        "agent.wait",
        json!({ "runId": run, "status": "timeout", "timeoutPhase": "queue", "providerStarted": false }),
    );
    let stopped =
        json!({ "role": "assistant", "content": [{ "type": "text", "text": "half" }], "stopReason": "aborted" });
    bridge.answer("sessions.get", json!({ "messages": [rows(BASIC, &run)[0], stopped] }));
    assert_eq!(bridge.seen(), ["half", &format!("{id}: cancelled")]);
}

#[test]
fn approvals_survive_a_lost_connection() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    bridge.prompt(&session, "go");
    bridge.lines();
    let key = "agent:main:acp-bridge:00000000-0000-4000-8000-000000000001";
    let request =
        |command: &str| json!({ "command": command, "sessionKey": key, "allowedDecisions": ["allow-once", "deny"] });
    for id in ["a1", "a2"] {
        bridge.event("exec.approval.requested", json!({ "id": id, "request": request(id) }));
        bridge.answer("exec.approval.get", json!({ "commandText": id }));
    }
    let asked: Vec<Value> =
        bridge.lines().into_iter().filter(|line| line["method"] == "session/request_permission").collect();
    bridge.lose();
    // The answer waits for the gateway.
    let chosen = json!({ "outcome": { "outcome": "selected", "optionId": "allow-once" } });
    bridge.say(&json!({ "jsonrpc": "2.0", "id": asked[0]["id"], "result": chosen }));
    bridge.connect();
    assert_eq!(bridge.request("exec.approval.resolve")["params"], json!({ "id": "a1", "decision": "allow-once" }));
    // The second is not wanted any more, and there is a new one.
    bridge.answer("exec.approval.list", json!([{ "id": "a3", "request": request("a3") }]));
    assert_eq!(bridge.seen(), [format!("$/cancel_request {}", asked[1]["id"].as_str().expect("a text"))]);
    bridge.answer("exec.approval.get", json!({ "commandText": "a3" }));
    assert_eq!(bridge.seen().last(), Some(&"session/request_permission oc-out-3".to_owned()));
}

#[test]
fn skipped_events_are_read_from_the_history() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, run) = bridge.prompt(&session, "go");
    let lines: Vec<&str> = BASIC.lines().collect();
    for line in &lines[..4] {
        bridge.play_line(line, &run);
    }
    // A client that was too slow: the gateway has thrown some away, and counted them.
    bridge.skip(5);
    bridge.play_line(lines[9], &run);
    bridge.answer("agent.wait", running(&run));
    bridge.answer("sessions.get", json!({ "messages": rows(&lines[..10].join("\n"), &run) }));
    for line in &lines[10..] {
        bridge.play_line(line, &run);
    }
    bridge.wait(Duration::from_secs(1));
    let (texts, _, end) = transcript(&bridge.lines());
    assert_eq!((texts, end), (vec![TEXT.to_owned()], "\"end_turn\"null".to_owned()), "{id}");
}

#[test]
fn a_silent_gateway_is_given_up() {
    let mut bridge = Bridge::new();
    assert!(matches!(bridge.wait(Duration::from_secs(59)), super::Link::Fine));
    assert!(matches!(bridge.wait(Duration::from_secs(2)), super::Link::Drop(_)));
}

#[test]
fn gwb_11_a_prompt_that_is_too_large_fails_alone() {
    let mut bridge = Bridge::new();
    let (one, other) = (bridge.session(), bridge.session());
    let id = bridge.ask("session/prompt", json!({ "sessionId": one, "prompt": "big" }));
    bridge.lines();
    bridge.engine.too_large();
    bridge.lose();
    assert_eq!(bridge.seen(), [format!("{id}: error -32603 the prompt is too large for the gateway")]);
    bridge.connect();
    let (id, run) = bridge.prompt(&other, "small");
    bridge.play(STATUS, &run);
    assert_eq!(bridge.seen().last(), Some(&format!("{id}: end_turn")));
}

#[test]
fn w13_what_runs_is_stopped_when_the_client_is_gone() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, run) = bridge.prompt(&session, "go");
    bridge.lines();
    bridge.engine.stop_all(bridge.now);
    bridge.take();
    assert_eq!(bridge.request("chat.abort")["params"]["runId"], run.as_str());
    assert_eq!(bridge.seen(), [format!("{id}: cancelled")]);
}
