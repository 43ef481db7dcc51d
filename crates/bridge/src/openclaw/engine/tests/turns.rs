//! Turns over a connection that holds: text, tools, errors, stops and approvals.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    ABORTED, APPROVAL, BASIC, Bridge, COMMAND, DROPPED, EDIT, LENGTH, MISSING_FILE, RATE_LIMIT, STATUS, WRITE, settings,
};
use crate::openclaw::engine::ProvenanceMode;

/// Plays a recorded run and gives what the client saw.
fn turn(frames: &str) -> Vec<String> {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (_, run) = bridge.prompt(&session, "go");
    bridge.lines();
    bridge.play(frames, &run);
    bridge.wait(Duration::from_secs(1));
    bridge.seen()
}

#[test]
fn w16_text_is_whole_with_its_white_space_and_thinking_is_told() {
    let text = "w0 xxxxxxxx w1 xxxxxxxx w2 xxxxxxxx w3 xxxxxxxx w4 xxxxxxxx w5 xxxxxxxx w6 xxxxxxxx";
    assert_eq!(turn(BASIC), [text, "(t0 t1 t2 )", " w7 xxxxxxxx ", "108/128000", "3: end_turn"]);
}

#[test]
fn w14_tokens_are_those_of_the_turn_and_come_before_its_answer() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, run) = bridge.prompt(&session, "go");
    bridge.play(BASIC, &run);
    let lines = bridge.lines();
    let last: Vec<&Value> = lines.iter().rev().take(2).collect();
    assert_eq!(last[0]["id"], json!(id));
    assert_eq!(last[0]["result"]["usage"]["totalTokens"], 108);
    assert_eq!(last[1]["params"]["update"], json!({ "sessionUpdate": "usage_update", "used": 108, "size": 128_000 }));
}

#[test]
fn text_before_and_behind_a_tool_is_two_messages_and_output_is_live() {
    assert_eq!(
        turn(COMMAND),
        [
            "calling tool now. ",
            "[CALL in_progress echo hi; sleep 1; echo there]",
            "[CALL in_progress hi\n]",
            "[CALL in_progress hi\nthere\n]",
            "[CALL completed hi\nthere]",
            "tool said: hi\nthere | w0 xxxxxxxx w1 xxxxxxxx w2 xxxxxxxx w3 xxxxxxxx w4 xxxxxxxx ",
            "105/128000",
            "3: end_turn",
        ]
    );
}

#[test]
fn tlc_03_edits_show_what_they_change_and_where() {
    let edited = turn(EDIT);
    let diff = "[CALL completed diff Some(\"hello\\nworld\\n\") Some(\"hello\\nmars\\n\")+Successfully replaced 1 block(s) in /srv/ws/x.txt.]";
    assert_eq!((edited[1].as_str(), edited[2].as_str()), ("[CALL in_progress Edit /srv/ws/x.txt]", diff));
    let written = turn(WRITE);
    let diff = "[CALL completed diff None Some(\"hello\\nworld\\n\")+Successfully wrote 12 bytes to /srv/ws/x.txt]";
    assert_eq!((written[1].as_str(), written[2].as_str()), ("[CALL in_progress Write /srv/ws/x.txt]", diff));
}

#[test]
fn tlc_05_an_edit_is_located_by_its_line() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (_, run) = bridge.prompt(&session, "go");
    bridge.play(EDIT, &run);
    let located = bridge.lines().into_iter().find_map(|line| {
        let update = &line["params"]["update"];
        (update["status"] == "completed").then(|| update["locations"].clone())
    });
    assert_eq!(located, Some(json!([{ "path": "/srv/ws/x.txt", "line": 2 }])));
}

#[test]
fn tlc_01_each_call_ends_once() {
    for frames in [COMMAND, EDIT, WRITE, MISSING_FILE] {
        let ends = |seen: &[String]| {
            seen.iter()
                .filter(|words| words.starts_with("[CALL completed") || words.starts_with("[CALL failed"))
                .count()
        };
        assert_eq!(ends(&turn(frames)), 1);
    }
    assert!(turn(MISSING_FILE).iter().any(|words| words.starts_with("[CALL failed {\n")));
}

/// The original answered these with `end_turn` and no text.
#[test]
fn w05_a_failed_run_is_an_error_and_its_text_is_not_lost() {
    let whole = "w0 xxxxxxxx w1 xxxxxxxx w2 xxxxxxxx w3 xxxxxxxx w4 xxxxxxxx ";
    assert_eq!(turn(LENGTH), [whole, "105/128000", "3: max_tokens"]);
    assert_eq!(turn(RATE_LIMIT), ["3: error -32603 ⚠️ API rate limit reached. Please try again later."]);
    assert_eq!(turn(DROPPED), [whole, "3: error -32603 LLM request timed out."]);
}

#[test]
fn a_refusal_is_a_stop_reason_with_its_words() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (_, run) = bridge.prompt(&session, "go");
    bridge.lines();
    let error = json!({ "runId": run, "sessionKey": "k", "seq": 1, "state": "error", "errorMessage": "I will not.", "errorKind": "refusal" });
    bridge.event("chat", error);
    assert_eq!(bridge.seen(), ["I will not.", "3: refusal"]);
}

#[test]
fn what_the_gateway_answers_itself_is_told() {
    let seen = turn(STATUS);
    assert!(seen[0].starts_with("ℹ️ Help"), "{seen:?}");
    assert_eq!(seen[1..], ["3: end_turn"]);
}

#[test]
fn w11_commands_go_without_the_directory_and_the_rest_with_it() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let mut sent = |text: &str, meta: Value| {
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }], "_meta": meta });
        bridge.ask("session/prompt", prompt);
        let message = bridge.request("chat.send")["params"]["message"].clone();
        message.as_str().expect("a text").to_owned()
    };
    assert_eq!(sent("hello", json!({})), "[Working directory: ~/p]\n\nhello");
    assert_eq!(sent("/status", json!({})), "/status");
    assert_eq!(sent("stop", json!({})), "stop");
    assert_eq!(sent("hello", json!({ "prefixCwd": false })), "hello");
}

#[test]
fn a_prompt_has_exactly_the_members_that_the_gateway_knows() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let image = json!({ "type": "image", "mimeType": "image/png", "data": "aGVsbG8=" });
    let meta = json!({ "thinking": "low", "deliver": true, "timeoutMs": 9 });
    bridge.ask(
        "session/prompt",
        json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "/x" }, image], "_meta": meta }),
    );
    let subscribe = bridge.request("sessions.messages.subscribe");
    let key = "agent:main:acp-bridge:00000000-0000-4000-8000-000000000001";
    assert_eq!(subscribe["params"], json!({ "key": key }));
    let send = bridge.request("chat.send");
    assert_eq!(
        send["params"],
        json!({
            "sessionKey": key, "message": "/x", "idempotencyKey": "00000000-0000-4000-8000-000000000003",
            "attachments": [{ "type": "image", "mimeType": "image/png", "content": "aGVsbG8=" }],
            "thinking": "low", "deliver": true, "timeoutMs": 9,
        })
    );
}

/// The original never answered a word that stops the agent, because its acknowledgement has no status.
#[test]
fn w03_a_stop_word_is_answered() {
    for (aborted, words) in [(true, "The agent was stopped."), (false, "Nothing was running.")] {
        let mut bridge = Bridge::new();
        let session = bridge.session();
        bridge.ask("session/prompt", json!({ "sessionId": session, "prompt": "stop" }));
        bridge.lines();
        bridge.answer("chat.send", json!({ "ok": true, "aborted": aborted, "runIds": [] }));
        assert_eq!(bridge.seen(), [words, "3: end_turn"]);
    }
}

/// The original never answered the first of two overlapping prompts, and let its run go on.
#[test]
fn w01_a_second_prompt_cancels_the_first() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (first, old) = bridge.prompt(&session, "one");
    bridge.lines();
    let (second, new) = bridge.prompt(&session, "two");
    let abort = bridge.request("chat.abort");
    assert_eq!(abort["params"]["runId"], old.as_str());
    assert_eq!(bridge.seen(), [format!("{first}: cancelled")]);
    // What the old run still says belongs to nobody.
    bridge.play(BASIC, &old);
    assert_eq!(bridge.seen(), Vec::<String>::new());
    bridge.play(STATUS, &new);
    assert_eq!(bridge.seen().last(), Some(&format!("{second}: end_turn")));
}

/// The original waited for ever for a run whose text the gateway took for that of another one.
#[test]
fn w02_the_same_text_again_is_its_own_run() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (_, old) = bridge.prompt(&session, "same");
    bridge.play(STATUS, &old);
    bridge.lines();
    let id = bridge.ask("session/prompt", json!({ "sessionId": session, "prompt": "same" }));
    let first = bridge.answer("chat.send", json!({ "runId": old, "status": "in_flight" }));
    assert_eq!(bridge.methods(), Vec::<String>::new(), "not at once");
    bridge.wait(Duration::from_millis(150));
    let run = bridge.begin();
    assert_ne!(json!(run), first["params"]["idempotencyKey"]);
    bridge.play(STATUS, &run);
    assert_eq!(bridge.seen().last(), Some(&format!("{id}: end_turn")));
}

#[test]
fn w02_the_same_text_as_a_foreign_run_is_answered_with_it() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let id = bridge.ask("session/prompt", json!({ "sessionId": session, "prompt": "same" }));
    bridge.answer("chat.send", json!({ "runId": "theirs", "status": "in_flight" }));
    bridge.answer("agent.wait", json!({ "runId": "theirs", "status": "timeout", "timeoutPhase": "gateway_draining" }));
    bridge.answer("sessions.get", json!({ "messages": [] }));
    bridge.play(STATUS, "theirs");
    assert_eq!(bridge.seen().last(), Some(&format!("{id}: end_turn")));
}

#[test]
fn a_cancelled_prompt_says_so_and_ends_its_calls() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, run) = bridge.prompt(&session, "go");
    for line in COMMAND.lines().take(9) {
        bridge.play_line(line, &run);
    }
    bridge.lines();
    bridge.say(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    bridge.answer("chat.abort", json!({ "ok": true, "aborted": true, "runIds": [run] }));
    assert_eq!(bridge.seen(), Vec::<String>::new(), "the last words come first");
    bridge.play(ABORTED, &run);
    assert_eq!(bridge.seen(), ["[CALL failed]", "105/128000", &format!("{id}: cancelled")]);
    // The gateway may forget to say it.
    let (id, _) = bridge.prompt(&session, "again");
    bridge.lines();
    bridge.say(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    bridge.wait(Duration::from_secs(2));
    assert_eq!(bridge.seen(), [format!("{id}: cancelled")]);
}

#[test]
fn cancel_request_stops_the_prompt_that_it_names() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, _) = bridge.prompt(&session, "go");
    bridge.say(&json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": id } }));
    assert_eq!(bridge.methods(), ["chat.abort"]);
}

#[test]
fn w12_an_approval_is_asked_about_its_own_call_with_the_whole_command() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (_, run) = bridge.prompt(&session, "go");
    for line in APPROVAL.lines().take(9) {
        bridge.play_line(line, &run);
    }
    bridge.lines();
    let long = format!("echo approved-$((1+1)) {}", "x".repeat(500));
    bridge.answer("exec.approval.get", json!({ "commandText": long, "allowedDecisions": ["allow-once", "deny"] }));
    let asked = bridge.lines().pop().expect("a question");
    let call = &asked["params"]["toolCall"];
    assert_eq!((&asked["method"], &call["toolCallId"]), (&json!("session/request_permission"), &json!("CALL")));
    assert!(call["content"][0]["content"]["text"].as_str().expect("a text").contains(&long));
    let options: Vec<&str> = asked["params"]["options"]
        .as_array()
        .expect("options")
        .iter()
        .filter_map(|option| option["optionId"].as_str())
        .collect();
    assert_eq!(options, ["allow-once", "deny"]);
    let chosen = json!({ "outcome": { "outcome": "selected", "optionId": "allow-once" } });
    bridge.say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": chosen }));
    let decided = bridge.request("exec.approval.resolve");
    assert_eq!(decided["params"]["decision"], "allow-once");
}

/// Asks an approval and gives its request.
fn asked(bridge: &mut Bridge) -> (String, Value) {
    let session = bridge.session();
    let (_, run) = bridge.prompt(&session, "go");
    for line in APPROVAL.lines().take(9) {
        bridge.play_line(line, &run);
    }
    bridge.answer("exec.approval.get", json!({ "commandText": "echo" }));
    let id = bridge.lines().pop().expect("a question")["id"].clone();
    (session, id)
}

#[test]
fn prm_03_whatever_is_no_clear_yes_is_a_no() {
    let answers = [
        json!({ "result": { "outcome": { "outcome": "selected", "optionId": "allow-always" } } }),
        json!({ "result": { "outcome": { "outcome": "selected", "optionId": "yes" } } }),
        json!({ "result": { "outcome": { "outcome": "cancelled" } } }),
        json!({ "result": {} }),
        json!({ "error": { "code": -32601, "message": "no" } }),
    ];
    for answer in answers {
        let mut bridge = Bridge::new();
        let (_, id) = asked(&mut bridge);
        let mut message = answer.clone();
        message["jsonrpc"] = json!("2.0");
        message["id"] = id;
        bridge.say(&message);
        assert_eq!(bridge.request("exec.approval.resolve")["params"]["decision"], "deny", "{answer}");
    }
}

#[test]
fn w12_what_somebody_else_decided_is_not_asked_any_more() {
    let mut bridge = Bridge::new();
    let (_, id) = asked(&mut bridge);
    let resolved = APPROVAL.lines().find(|line| line.contains("exec.approval.resolved")).expect("recorded");
    bridge.play_line(resolved, "any");
    assert_eq!(bridge.seen(), [format!("$/cancel_request {}", id.as_str().expect("a text"))]);
    // The client's answer is on its way, and decides nothing.
    let chosen = json!({ "outcome": { "outcome": "selected", "optionId": "allow-once" } });
    bridge.say(&json!({ "jsonrpc": "2.0", "id": id, "result": chosen }));
    assert_eq!(bridge.methods(), Vec::<String>::new());
}

#[test]
fn prm_13_a_cancelled_turn_denies_and_withdraws() {
    let mut bridge = Bridge::new();
    let (session, id) = asked(&mut bridge);
    bridge.say(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    assert_eq!(bridge.seen(), [format!("$/cancel_request {}", id.as_str().expect("a text"))]);
    assert_eq!(bridge.request("exec.approval.resolve")["params"]["decision"], "deny");
    assert_eq!(bridge.methods(), ["chat.abort"]);
}

#[test]
fn a_plugin_that_asks_is_heard() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    bridge.prompt(&session, "go");
    bridge.lines();
    let key = "agent:main:acp-bridge:00000000-0000-4000-8000-000000000001";
    let request = json!({ "title": "Post it?", "description": "To the \u{202e}world", "toolName": "post", "toolCallId": "c9",
        "allowedDecisions": ["allow-once", "allow-always", "deny"], "sessionKey": key });
    bridge.event("plugin.approval.requested", json!({ "id": "plugin:1", "request": request }));
    let asked = bridge.lines().pop().expect("a question");
    let text = &asked["params"]["toolCall"]["content"][0]["content"]["text"];
    assert_eq!(text, "To the \\u{202e}world", "nothing in it is hidden");
    let chosen = json!({ "outcome": { "outcome": "selected", "optionId": "allow-always" } });
    bridge.say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": chosen }));
    let decided = bridge.request("plugin.approval.resolve");
    assert_eq!(decided["params"], json!({ "id": "plugin:1", "decision": "allow-always" }));
}

/// A text that is rewritten was cut at the wrong place by the original.
#[test]
fn a_rewritten_text_is_told_whole() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (_, run) = bridge.prompt(&session, "go");
    bridge.lines();
    let say = |text: &str, delta: &str, replace: bool| {
        let data = json!({ "text": text, "delta": delta, "replace": replace });
        json!({ "runId": run, "stream": "assistant", "data": data, "sessionKey": "k", "seq": 1 })
    };
    bridge.event("agent", say("The sky is gr", "The sky is gr", false));
    bridge.event("agent", say("The sky is blue", "The sky is blue", true));
    bridge.event("agent", say("The sky is blue.\n", ".\n", false));
    assert_eq!(bridge.seen(), ["The sky is gr", "The sky is blue.\n"]);
}

#[test]
fn text_that_only_chat_brings_is_told_as_it_comes() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (id, run) = bridge.prompt(&session, "go");
    bridge.lines();
    let chat = |state: &str, delta: &str, text: &str| {
        let message = json!({ "role": "assistant", "content": [{ "type": "text", "text": text }] });
        json!({ "runId": run, "sessionKey": "k", "seq": 1, "state": state, "deltaText": delta, "message": message })
    };
    bridge.event("chat", chat("delta", "one", "one"));
    bridge.event("chat", chat("delta", " \"two\"", "one \"two\""));
    let tool = json!({ "phase": "start", "name": "read", "toolCallId": "c", "args": {} });
    bridge.event("agent", json!({ "runId": run, "stream": "tool", "data": tool }));
    bridge.event("chat", chat("delta", "three", "one \"two\"three"));
    bridge.event("chat", chat("final", "", "one \"two\"three"));
    assert_eq!(
        bridge.seen(),
        ["one \"two\"", "[c in_progress read]", "three", "[c failed]", &format!("{id}: end_turn")]
    );
}

#[test]
fn plans_and_compactions_are_told() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (_, run) = bridge.prompt(&session, "go");
    bridge.lines();
    let agent = |stream: &str, data: Value| json!({ "runId": run, "stream": stream, "data": data });
    let steps = json!(["look", { "step": "do", "status": "in_progress" }]);
    bridge.event("agent", agent("plan", json!({ "phase": "update", "title": "Plan updated", "steps": steps })));
    bridge.event("agent", agent("compaction", json!({ "phase": "start" })));
    bridge.event("agent", agent("novelty", json!({ "x": 1 })));
    assert_eq!(bridge.seen(), ["plan pending look, in_progress do", "(The conversation is being compacted.)"]);
}

#[test]
fn where_a_message_comes_from_is_told_to_administrators_gateways_only() {
    let with =
        |scopes| Bridge::with(super::Settings { provenance: ProvenanceMode::MetaAndReceipt, ..settings() }, scopes);
    let mut bridge = with(&super::ADMIN);
    bridge.answer("agents.list", json!({}));
    let session = bridge.session();
    bridge.ask("session/prompt", json!({ "sessionId": session, "prompt": "x" }));
    let send = bridge.request("chat.send");
    assert_eq!(send["params"]["systemInputProvenance"]["kind"], "external_user");
    assert!(send["params"]["systemProvenanceReceipt"].as_str().expect("a receipt").contains("originCwd=/home/u/p\n"));
    let mut bridge = with(&super::READ_WRITE);
    let session = bridge.session();
    bridge.ask("session/prompt", json!({ "sessionId": session, "prompt": "x" }));
    assert_eq!(bridge.request("chat.send")["params"].get("systemInputProvenance"), None);
}

#[test]
fn what_cannot_be_sent_is_refused_with_its_reason() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let id = bridge.ask("session/prompt", json!({ "sessionId": session, "prompt": " " }));
    assert_eq!(bridge.seen(), [format!("{id}: error -32602 invalid prompt: the prompt is empty")]);
    let id = bridge.ask("session/prompt", json!({ "sessionId": "nobody", "prompt": "x" }));
    assert_eq!(bridge.seen(), [format!("{id}: error -32002 there is no such session")]);
    let id = bridge.ask("session/prompt", json!({ "sessionId": session, "prompt": "x" }));
    bridge.lines();
    bridge.decline("chat.send", json!({ "code": "INVALID_REQUEST", "message": "send blocked by session policy" }));
    assert_eq!(bridge.seen(), [format!("{id}: error -32603 send blocked by session policy")]);
    let id = bridge.ask("session/fork", json!({ "sessionId": session }));
    assert_eq!(bridge.seen(), [format!("{id}: error -32601 an OpenClaw gateway has no `session/fork`")]);
}
