//! What a client gets only because it said that it understands it: forms, notices, options that are on or off.

use std::path::Path;

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, answer_text, new_session, text_prompt, updates_of};
use zeroclaw_testkit::process::{AgentProcess, Direction};

use crate::turns::{announced, asks, builtin, end_turn, last_update, selected};

/// A client that said it understands these.
async fn client(lab: &Lab, capabilities: Value) -> (AgentProcess, String) {
    let mut agent = lab.start();
    let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
    agent.call("initialize", params).await.expect("initialize");
    let session = new_session(&mut agent, &lab.project()).await;
    (agent, session)
}

fn is_form(message: &Value) -> bool {
    message["method"] == "elicitation/create"
}

/// Prompts, answers the form with this, and returns the form's parameters and all messages of the turn.
async fn asked(agent: &mut AgentProcess, session: &str, text: &str, answer: Value) -> (Value, Vec<Value>) {
    let request = agent.request("session/prompt", text_prompt(session, text)).await;
    let mut messages = agent.recv_until(is_form).await;
    let form = messages.last().unwrap().clone();
    agent.reply(&form["id"], answer).await;
    let result = agent.response(&request).await.unwrap();
    assert_eq!(result["stopReason"], "end_turn");
    messages.extend(agent.collected());
    (form["params"].clone(), messages)
}

// A client that takes forms is asked with one, and what it sends back is checked against the form again.
#[tokio::test]
async fn a_client_with_forms_is_asked_with_a_form() {
    let lab = builtin("readonly");
    let (mut agent, session) = client(&lab, json!({"elicitation": {"form": {}}})).await;
    let accept = |value: Value| json!({"action": "accept", "content": {"answer": value}});
    let cases = [
        (accept(json!("choice-1")), "The user answered: green\n"),
        (accept(json!("green")), "The user gave no answer: the client's answer is none of the choices"),
        (accept(json!(1)), "The user gave no answer: the client's answer does not fit the form"),
        (json!({"action": "accept"}), "The user gave no answer: the client's answer does not fit the form"),
        (json!({"action": "decline"}), "The user gave no answer: the user declined to answer"),
        (json!({"action": "cancel"}), "The user gave no answer: the user closed the question"),
        (json!({"outcome": {"outcome": "selected", "optionId": "choice-1"}}), "The user gave no answer"),
    ];
    for (answer, said) in cases {
        let (form, messages) =
            asked(&mut agent, &session, "/ask Which\u{200b} colour? | red\u{202e} | green", answer).await;
        let call = announced(&messages).pop().unwrap();
        let expected = json!({
            "mode": "form", "sessionId": session, "toolCallId": call["toolCallId"],
            "message": "Which\\u{200b} colour?",
            "requestedSchema": {"type": "object", "required": ["answer"], "properties": {"answer": {
                "type": "string", "title": "Answer",
                "oneOf": [{"const": "choice-0", "title": "red\\u{202e}"}, {"const": "choice-1", "title": "green"}],
            }}},
        });
        assert_eq!(form, expected);
        assert!(!messages.iter().any(asks), "asked twice");
        assert!(answer_text(&messages).starts_with(&format!("The answer: {said}")), "{}", answer_text(&messages));
    }
}

// Without choices a form takes free text.
#[tokio::test]
async fn a_form_takes_free_text() {
    let lab = builtin("readonly");
    let (mut agent, session) = client(&lab, json!({"elicitation": {"form": {}}})).await;
    let accept = |text: &str| json!({"action": "accept", "content": {"answer": text}});
    let long = "x".repeat(4001);
    let cases = [("Ada", "The user answered: Ada\n"), (" ", "the answer is empty"), (&*long, "longer than 4000")];
    for (text, said) in cases {
        let (form, messages) = asked(&mut agent, &session, "/ask Who are you?", accept(text)).await;
        let field = &form["requestedSchema"]["properties"]["answer"];
        assert_eq!(*field, json!({"type": "string", "title": "Answer", "minLength": 1, "maxLength": 4000}));
        assert!(answer_text(&messages).contains(said), "{}", answer_text(&messages));
    }
}

// A client that offers forms and fails on one is asked with options; an empty or url-only capability is none.
#[tokio::test]
async fn where_a_form_fails_options_are_asked() {
    let lab = builtin("readonly");
    let (mut agent, session) = client(&lab, json!({"elicitation": {"form": {}}})).await;
    let request = agent.request("session/prompt", text_prompt(&session, "/ask Go on? | yes | no")).await;
    let form = agent.recv_until(is_form).await.pop().unwrap();
    agent.reply_error(&form["id"], -32601, "no forms after all").await;
    let question = agent.recv_until(asks).await.pop().unwrap();
    agent.reply(&question["id"], selected("choice-0")).await;
    agent.response(&request).await.unwrap();
    let messages = agent.collected();
    assert!(answer_text(&messages).contains("The user answered: yes"), "{}", answer_text(&messages));
    drop(agent);
    for capability in [json!({}), json!({"url": {}}), json!({"form": null}), json!({"form": true})] {
        let (mut agent, session) = client(&lab, json!({"elicitation": capability})).await;
        let turn = end_turn(&mut agent, &session, "/ask Who are you?").await;
        assert_eq!(last_update(&turn.messages)["status"], "failed");
        assert!(!agent.received().iter().any(is_form), "{capability}");
    }
}

// A cancelled turn withdraws its form and does not wait for the answer.
#[tokio::test]
async fn a_cancelled_turn_withdraws_its_form() {
    let lab = builtin("readonly");
    let (mut agent, session) = client(&lab, json!({"elicitation": {"form": {}}})).await;
    let request = agent.request("session/prompt", text_prompt(&session, "/ask Who are you?")).await;
    let form = agent.recv_until(is_form).await.pop().unwrap();
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let result = agent.response(&request).await.unwrap();
    assert_eq!(result["stopReason"], "cancelled");
    let messages = agent.collected();
    let withdrawn = messages.iter().find(|message| message["method"] == "$/cancel_request").unwrap();
    assert_eq!(withdrawn["params"]["requestId"], form["id"]);
}

fn options(result: &Value) -> Vec<&str> {
    result["configOptions"].as_array().unwrap().iter().map(|option| option["id"].as_str().unwrap()).collect()
}

// CFG-1: an option that is on or off is shown only to clients that asked for such; it has an effect, and it is kept.
#[tokio::test]
async fn thoughts_can_be_switched_off_by_clients_that_know_switches() {
    let script = [
        json!({"type": "thought", "text": "hmm"}),
        json!({"type": "text", "text": "done"}),
        json!({"type": "stop"}),
        json!({"type": "thought", "text": "hmm"}),
        json!({"type": "text", "text": "done"}),
        json!({"type": "stop"}),
    ];
    let lab = Lab::scripted("supervised", &script);
    let (mut agent, session) = client(&lab, json!({"session": {"configOptions": {"boolean": {}}}})).await;
    let first = end_turn(&mut agent, &session, "think").await;
    assert_eq!(updates_of(&first.messages, "agent_thought_chunk").len(), 1);
    let set = |value: Value| json!({"sessionId": session, "configId": "thoughts", "type": "boolean", "value": value});
    let result = agent.call("session/set_config_option", set(json!(false))).await.unwrap();
    let shown = result["configOptions"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&shown["id"], &shown["type"], &shown["currentValue"]),
        (&json!("thoughts"), &json!("boolean"), &json!(false))
    );
    let second = end_turn(&mut agent, &session, "think").await;
    assert!(updates_of(&second.messages, "agent_thought_chunk").is_empty());
    for wrong in [json!("false"), json!(0), Value::Null] {
        let error = agent.call("session/set_config_option", set(wrong)).await.unwrap_err();
        assert_eq!(error["code"], -32602);
    }
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    let load = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    let result = agent.call("session/load", load.clone()).await.unwrap();
    assert_eq!(result["configOptions"].as_array().unwrap().last().unwrap()["currentValue"], false);
    agent.close_stdin();
    agent.wait().await;
    let mut strict = lab.agent().await;
    let result = strict.call("session/load", load).await.unwrap();
    assert_eq!(options(&result), ["mode", "model"]);
}

// The extensions are advertised where a client looks for them, and what is advertised is served.
#[tokio::test]
async fn extension_requests_are_advertised_and_served() {
    let lab = builtin("readonly");
    let mut agent = lab.start();
    let result = agent.call("initialize", json!({"protocolVersion": 1})).await.unwrap();
    let requests = &result["agentCapabilities"]["_meta"]["zeroclaw"]["requests"];
    assert_eq!(*requests, json!(["_zeroclaw/session/attach", "_zeroclaw/session/stop", "_zeroclaw/status"]));
    let idle = agent.call("_zeroclaw/status", json!({})).await.unwrap();
    assert_eq!((&idle["activeSessions"], &idle["sessions"]), (&json!(0), &json!([])));
    let session = new_session(&mut agent, &lab.project()).await;
    let busy = agent.call("_zeroclaw/status", Value::Null).await.unwrap();
    assert_eq!(busy["sessions"], json!([{"sessionId": session, "openPrompts": 0}]));
    assert_eq!(
        (&busy["activeSessions"], &busy["maxSessions"], &busy["durable"]),
        (&json!(1), &json!(10), &json!(true))
    );
    let stopped = agent.call("_zeroclaw/session/stop", json!({"sessionId": session})).await.unwrap();
    assert_eq!(stopped, json!({"sessionId": session, "stopped": true}));
    let error = agent.call("_zeroclaw/unknown", json!({})).await.unwrap_err();
    assert_eq!(error["code"], -32601);
    agent.notify("_zeroclaw/unknown", json!({})).await;
    agent.notify("$/unknown", json!({})).await;
    agent.call("_zeroclaw/status", json!({})).await.unwrap();
}

// Every request that is in flight when it is cancelled is answered once all the same, and the next ones are served.
#[tokio::test]
async fn every_cancelled_request_is_answered_once() {
    let lab = builtin("readonly");
    let (mut agent, session) = lab.session().await;
    end_turn(&mut agent, &session, "hello").await;
    let stored = new_session(&mut agent, &lab.project()).await;
    agent.call("session/close", json!({"sessionId": stored})).await.unwrap();
    let cwd: &Path = &lab.project();
    let calls = [
        ("session/new", json!({"cwd": cwd, "mcpServers": []})),
        ("session/load", json!({"sessionId": stored, "cwd": cwd, "mcpServers": []})),
        ("session/load", json!({"sessionId": session, "cwd": cwd, "mcpServers": []})),
        ("session/resume", json!({"sessionId": session, "cwd": cwd})),
        ("session/list", json!({})),
        ("session/set_mode", json!({"sessionId": session, "modeId": "readonly"})),
        ("session/set_config_option", json!({"sessionId": session, "configId": "mode", "value": "readonly"})),
        ("_zeroclaw/status", json!({})),
        ("session/close", json!({"sessionId": session})),
        ("session/delete", json!({"sessionId": session})),
    ];
    for (number, (method, params)) in calls.into_iter().enumerate() {
        let id = format!("cancelled-{number}");
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let cancel = json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}});
        agent.send_raw(format!("{request}\n{cancel}\n{cancel}\n").as_bytes()).await;
        let answer = agent.recv_until(|message| message["id"] == *id).await.pop().unwrap();
        let fine = answer["result"].is_object() || answer["error"]["code"] == -32800;
        assert!(fine, "{method}: {answer}");
        agent.call("_zeroclaw/status", json!({})).await.unwrap();
        let twice = agent.received().iter().filter(|message| message["id"] == *id).count();
        assert_eq!(twice, 1, "{method}");
    }
}

/// A client that calls itself this, and the lines that the agent has printed to it.
async fn named(lab: &Lab, name: &str) -> AgentProcess {
    let mut agent = lab.start();
    let params = json!({"protocolVersion": 1, "clientInfo": {"name": name, "version": "1"}});
    agent.call("initialize", params).await.expect("initialize");
    agent
}

fn longest(agent: &AgentProcess) -> usize {
    let received = agent.transcript().iter().filter(|entry| entry.direction == Direction::Received);
    received.map(|entry| entry.line.len()).max().unwrap()
}

// Error numbers that a client reads in another way than they are meant are not sent to it; the operator may add clients.
#[tokio::test]
async fn known_and_configured_clients_get_the_numbers_they_understand() {
    let lab = Lab::with_config(
        "[acp.clients.my-ide]\nerror_codes = \"spec\"\n[acp.clients.zed]\nerror_codes = \"zeroclaw\"\n",
    );
    let cases =
        [("acpx", -32002), ("My IDE", -32002), ("zed", -32000), ("CodeCompanion.nvim", -32000), ("toad", -32000)];
    for (name, code) in cases {
        let mut agent = named(&lab, name).await;
        let error = agent.call("session/prompt", text_prompt("s-none", "x")).await.unwrap_err();
        assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(code), &json!("session_not_found")), "{name}");
    }
}

// Avante reads the mode under another name than the protocol's; nobody else gets a member the protocol does not know.
#[tokio::test]
async fn avante_reads_the_mode_under_its_own_name() {
    let lab = builtin("supervised");
    let expected = |own: bool| {
        let mut update = json!({"sessionUpdate": "current_mode_update", "currentModeId": "readonly"});
        if own {
            update["modeId"] = json!("readonly");
        }
        update
    };
    for (name, own) in [("avante.nvim", true), ("toad", false)] {
        let mut agent = named(&lab, name).await;
        let session = new_session(&mut agent, &lab.project()).await;
        agent.call("session/set_mode", json!({"sessionId": session, "modeId": "readonly"})).await.unwrap();
        assert_eq!(updates_of(&agent.received(), "current_mode_update"), [expected(own)], "{name}");
    }
}

// A file over the limit of Toad's reader ended the client: it is told where the file is instead.
#[tokio::test]
async fn a_file_that_makes_too_long_a_line_is_a_link() {
    for level in ["full", "readonly"] {
        let lab = builtin(level);
        let bytes = vec![7_u8; 9 * 1024 * 1024];
        lab.file("large.bin", &bytes);
        let mut agent = named(&lab, "toad").await;
        let session = new_session(&mut agent, &lab.project()).await;
        let turn = end_turn(&mut agent, &session, "/deliver large.bin").await;
        let link = last_update(&turn.messages)["content"][1]["content"].clone();
        assert_eq!(link["type"], "resource_link");
        let path = link["uri"].as_str().unwrap().strip_prefix("file://").unwrap();
        assert!(std::fs::read(path).unwrap() == bytes, "the link leads to other bytes");
        assert!(longest(&agent) <= 10 * 1024 * 1024);
    }
}

// A client of the Python SDK stops at 64 KiB: it gets nothing longer, text whole, and is asked about what it has seen.
#[tokio::test]
async fn a_client_that_reads_short_lines_gets_no_longer_ones() {
    let lab = Lab::with_config("[autonomy]\nlevel = \"supervised\"\n[acp.clients.snake]\nmax_line_bytes = 65536\n");
    let mut agent = named(&lab, "snake").await;
    let session = new_session(&mut agent, &lab.project()).await;
    let text = "\u{1}é\"x ".repeat(20_000);
    let request = agent.request("session/prompt", text_prompt(&session, &format!("/write a.txt {text}"))).await;
    let mut messages = agent.recv_until(asks).await;
    let question = messages.last().unwrap().clone();
    let shown = answer_text(&messages);
    let written: String = shown.chars().filter(|c| *c == 'é').collect();
    assert_eq!(written.chars().count(), 20_000, "not all of what is asked about was shown");
    agent.reply(&question["id"], selected("allow-once")).await;
    let result = agent.response(&request).await.unwrap();
    messages.extend(agent.collected());
    assert_eq!(result["stopReason"], "end_turn");
    assert_eq!(last_update(&messages)["status"], "completed");
    let turn = end_turn(&mut agent, &session, "/read a.txt").await;
    assert_eq!(last_update(&turn.messages)["status"], "completed");
    assert!(longest(&agent) <= 65536, "{}", longest(&agent));
    agent.close_stdin();
    agent.wait().await;
    let load = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    let mut again = named(&lab, "snake").await;
    again.call("session/load", load.clone()).await.unwrap();
    let user: String = updates_of(&again.received(), "user_message_chunk")
        .iter()
        .filter_map(|update| update["content"]["text"].as_str())
        .collect();
    assert_eq!(user, format!("/write a.txt {text}/read a.txt"));
    assert!(longest(&again) <= 65536, "{}", longest(&again));
}
