//! The rules about initialization, paths, members, extensions, the transport and ids.

use std::path::Path;

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, exchange, initialize, last_line, new_session, prompt};
use zeroclaw_testkit::process::{AgentProcess, Direction};

use super::conversation::{assert_rich, client, drive, everything, kinds, methods, rich, started};
use crate::turns::{builtin, turn_of};

#[tokio::test]
async fn init_1_the_answer_has_the_version_and_the_capabilities() {
    let lab = Lab::new();
    let hello = initialize(&mut lab.start()).await;
    assert_eq!(hello["protocolVersion"], json!(1));
    assert!(hello["agentCapabilities"]["promptCapabilities"].is_object(), "{hello}");
}

#[tokio::test]
async fn init_2_a_version_that_is_not_spoken_is_answered_with_the_latest_one_that_is() {
    let lab = Lab::new();
    for (asked, answered) in [(1, 1), (2, 1), (65535, 1), (0, 1)] {
        let hello = lab.start().call("initialize", json!({"protocolVersion": asked})).await.unwrap();
        assert_eq!(hello["protocolVersion"], json!(answered), "{asked}");
    }
}

#[tokio::test]
async fn init_3_a_capability_that_is_omitted_is_not_used() {
    let (_lab, seen) = rich(json!({})).await;
    assert_rich(&seen);
    let baseline = ["session/update", "session/request_permission", "$/cancel_request"];
    for method in methods(&seen) {
        assert!(baseline.contains(&method), "{method} was sent to a client without capabilities");
    }
    let baseline = [
        "user_message_chunk",
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
    ];
    for kind in kinds(&seen) {
        assert!(baseline.contains(&kind), "{kind} was sent to a client without capabilities");
    }
}

#[tokio::test]
async fn init_4_text_and_links_are_taken_in_every_prompt() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let link = json!({"type": "resource_link", "uri": "file:///a/notes.txt", "name": "notes.txt"});
    for blocks in [json!([{"type": "text", "text": "/say 1"}, link]), json!([link])] {
        let turn = turn_of(&mut agent, json!({"sessionId": session, "prompt": blocks})).await;
        assert_eq!(turn.result["stopReason"], "end_turn", "{blocks}");
    }
}

#[tokio::test]
async fn init_5_the_baseline_methods_are_served() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], "end_turn");
    assert!(kinds(&agent.received()).contains(&"agent_message_chunk"), "session/update");
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], "end_turn");
}

/// Calls `check` with every value below a member of this name.
fn members(value: &Value, name: &str, check: &mut impl FnMut(&Value)) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                // What the model said and what a tool returned are not members of the protocol.
                if key != "rawInput" && key != "rawOutput" {
                    if key == name {
                        check(value);
                    }
                    members(value, name, check);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| members(value, name, check)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn path_1_every_path_on_the_wire_is_absolute() {
    let (_lab, seen) = rich(json!({})).await;
    assert_rich(&seen);
    let mut found = 0;
    for message in &seen {
        for name in ["path", "cwd", "workspaceDir"] {
            members(message, name, &mut |path| {
                found += 1;
                assert!(path.as_str().is_some_and(|path| Path::new(path).is_absolute()), "{name}: {path}");
            });
        }
    }
    assert!(found > 6, "diffs, places, a workspace and a list were shown: {found}");
}

/// What the specification lets these objects have at their root.
fn allowed(result: &Value) -> &'static [&'static str] {
    if result.get("stopReason").is_some() {
        &["stopReason", "usage", "_meta"]
    } else if result.get("protocolVersion").is_some() {
        &["protocolVersion", "agentCapabilities", "authMethods", "agentInfo", "_meta"]
    } else {
        &["sessionId", "modes", "configOptions", "sessions", "nextCursor", "_meta"]
    }
}

#[tokio::test]
async fn meta_1_strict_mode_adds_nothing_to_the_types_of_the_specification() {
    let lab = builtin("supervised");
    lab.file("a.txt", "alpha\n");
    let mut agent = started(lab.start_with(&[("ZEROCLAW_acp__strict", "true")]), json!({})).await;
    let session = new_session(&mut agent, &lab.project()).await;
    drive(&mut agent, &session, "/read a.txt\n/run echo hi\n/plan one; two").await;
    let update = [
        "sessionUpdate",
        "content",
        "messageId",
        "toolCallId",
        "title",
        "name",
        "kind",
        "status",
        "locations",
        "rawInput",
        "rawOutput",
        "entries",
        "availableCommands",
        "currentModeId",
        "configOptions",
        "updatedAt",
        "used",
        "size",
        "cost",
        "_meta",
    ];
    let mut results = 0;
    for message in agent.received() {
        let (object, allowed) = match message["method"].as_str() {
            Some("session/update") => (&message["params"]["update"], update.as_slice()),
            Some("session/request_permission") => {
                (&message["params"], ["sessionId", "toolCall", "options", "_meta"].as_slice())
            }
            Some(_) => continue,
            None => {
                results += 1;
                (&message["result"], allowed(&message["result"]))
            }
        };
        for name in object.as_object().expect("an object").keys() {
            assert!(allowed.contains(&name.as_str()), "`{name}` in {message}");
        }
    }
    assert_eq!(results, 3);
}

#[tokio::test]
async fn meta_2_nothing_is_assumed_about_meta() {
    let lab = Lab::new();
    for odd in [
        json!(null),
        json!({}),
        json!({"zeroclaw": 7}),
        json!({"zeroclaw": {"seq": "x", "agentAlias": 5}}),
        json!({"traceparent": []}),
    ] {
        let mut agent = lab.start();
        let hello = json!({"protocolVersion": 1, "clientCapabilities": {"_meta": odd}, "_meta": odd});
        agent.call("initialize", hello).await.unwrap();
        let opened = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": [], "_meta": odd})).await;
        let session = opened.unwrap()["sessionId"].clone();
        let blocks = json!([{"type": "text", "text": "/say 1", "_meta": odd}]);
        let params = json!({"sessionId": session, "prompt": blocks, "_meta": odd});
        assert_eq!(turn_of(&mut agent, params).await.result["stopReason"], "end_turn", "{odd}");
    }
}

#[tokio::test]
async fn ext_1_an_extension_is_answered_with_its_id_and_ours_begin_with_an_underscore() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    for id in [json!("ext"), json!(41)] {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "_someone/else", "params": {}});
        let answer = exchange(&mut agent, &call.to_string()).await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32601)), "{answer}");
    }
    let (_lab, seen) = rich(everything()).await;
    let official = [
        "session/update",
        "session/request_permission",
        "elicitation/create",
        "elicitation/complete",
        "$/cancel_request",
    ];
    for method in methods(&seen) {
        assert!(official.contains(&method) || method.starts_with('_'), "{method}");
    }
}

#[tokio::test]
async fn tr_1_both_directions_are_utf_8() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let text = "/run printf '%s' 'h\u{e9}llo \u{6f22}\u{5b57} \u{1F980}'";
    agent.auto_permit("allow-once");
    prompt(&mut agent, &session, text).await;
    // The harness refuses a line that is not UTF-8.
    assert!(
        agent
            .transcript()
            .iter()
            .any(|entry| entry.direction == Direction::Received && entry.line.contains("\u{6f22}\u{5b57} \u{1F980}"))
    );
}

#[tokio::test]
async fn tr_2_a_message_has_no_line_feed_inside() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/run printf 'one\\ntwo\\r\\nthree\\n'").await;
    // The harness reads line by line and refuses what is not one whole message.
    let shown = agent.received().iter().any(|message| message.to_string().contains("one\\ntwo"));
    assert!(shown, "the line ends are escaped: {}", last_line(&agent));
}

#[tokio::test]
async fn tr_3_standard_output_has_nothing_but_messages() {
    let lab = builtin("full");
    let mut command = lab.command("zeroclaw-acp");
    command.env("RUST_LOG", "trace").env("ZEROCLAW_LOG", "trace");
    let mut agent = started(AgentProcess::spawn(command), json!({})).await;
    let session = new_session(&mut agent, &lab.project()).await;
    drive(&mut agent, &session, "/run echo out; echo err >&2\n/say 2").await;
    agent.close_stdin();
    assert!(agent.wait().await.success());
    // The harness has refused every line that is no message; what a command printed came inside of one.
    for entry in agent.transcript().iter().filter(|entry| entry.direction == Direction::Received) {
        assert!(entry.line.starts_with("{\"jsonrpc\":\"2.0\","), "{}", entry.line);
    }
}

#[tokio::test]
async fn rpc_1_an_id_comes_back_as_it_was_sent() {
    let lab = Lab::new();
    let mut agent = client(&lab, json!({})).await;
    for id in ["\"a\"", "\"1\"", "1", "0", "-7", "9007199254740993", "18446744073709551616", "null", "\"\\u0061\""] {
        agent.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"session/list"}}"#)).await;
        agent.next().await;
        assert!(last_line(&agent).contains(&format!("\"id\":{id},")), "{id}: {}", last_line(&agent));
    }
}
