//! What the built server really prints, line by line, over whole lives: every line is judged by the official types
//! and, for the newest, by the JSON Schema. Nothing it prints may be unknown to both and not an extension by its name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use zeroclaw_acp_protocol::MethodKind;
use zeroclaw_e2e::{Lab, initialize, new_session, prompt, text_prompt};
#[cfg(feature = "newest")]
use zeroclaw_schema_judges::JsonSchema;
use zeroclaw_schema_judges::Judge;
use zeroclaw_testkit::process::{AgentProcess, Direction, Entry, Permission};

use crate::sent::{METHODS, update_tags};

/// What was seen in the recorded lines, so that a test can say what it has covered.
#[derive(Debug, Default)]
struct Seen {
    /// Methods that were answered with a result.
    answers: Vec<MethodKind>,
    /// Kinds of updates.
    updates: BTreeSet<String>,
    /// Requests and notifications of the server.
    calls: BTreeSet<String>,
    /// `data.kind` of errors.
    errors: BTreeSet<String>,
}

/// Judges every line that a server printed.
fn judge(transcript: &[Entry], seen: &mut Seen) {
    let judge = Judge::default();
    let mut asked: BTreeMap<String, String> = BTreeMap::new();
    let checked = |outcome: Result<(), String>| outcome.unwrap_or_else(|fault| panic!("{fault}"));
    for entry in transcript {
        let message: Value = match serde_json::from_str(&entry.line) {
            Ok(message) => message,
            // Only a test writes what is not JSON.
            Err(_) if entry.direction == Direction::Sent => continue,
            Err(error) => panic!("{error}: {}", entry.line),
        };
        if entry.direction == Direction::Sent {
            if let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) {
                asked.insert(id.to_string(), method.to_owned());
            }
            continue;
        }
        if let Some(method) = message["method"].as_str() {
            checked(judge.call(&entry.line));
            seen.calls.insert(method.to_owned());
            seen.updates.extend(message["params"]["update"]["sessionUpdate"].as_str().map(str::to_owned));
        } else if let Some(error) = message.get("error") {
            checked(judge.error(&entry.line));
            seen.errors.extend(error["data"]["kind"].as_str().map(str::to_owned));
        } else {
            let method = &asked[&message["id"].to_string()];
            checked(judge.answer(method, &entry.line));
            seen.answers.extend(MethodKind::from_name(method));
        }
    }
}

/// A script of the model: each list is one call, the last words end the turn.
fn script(calls: &[&[Value]]) -> Vec<Value> {
    let mut lines = Vec::new();
    for call in calls {
        lines.extend_from_slice(call);
        if call.last().is_none_or(|last| last["type"] != "stop" && last["type"] != "error") {
            lines.push(json!({"type": "stop"}));
        }
    }
    lines
}

fn tool(name: &str, arguments: Value) -> Value {
    json!({"type": "tool_call", "name": name, "arguments": arguments})
}

fn is_update(message: &Value, kind: &str) -> bool {
    message["params"]["update"]["sessionUpdate"] == kind
}

/// A turn with every tool that shows something of its own kind.
fn every_tool() -> Vec<Value> {
    let tools = [
        json!({"type": "thought", "text": "first, look"}),
        json!({"type": "text", "text": "I look.\n"}),
        tool("todo_write", json!({"todos": [{"content": "look", "status": "in_progress", "priority": "high"}]})),
        tool("file_read", json!({"path": "a.txt"})),
        tool("list_dir", json!({"path": "."})),
        tool("glob_search", json!({"pattern": "*.txt"})),
        tool("content_search", json!({"pattern": "alpha"})),
        tool("file_write", json!({"path": "new.txt", "content": "fresh\n"})),
        tool("file_edit", json!({"path": "a.txt", "old_text": "alpha", "new_text": "beta"})),
        tool("shell", json!({"command": "echo out; echo err >&2"})),
        tool("shell", json!({"command": "exit 3"})),
        tool("deliver_file", json!({"path": "new.txt", "title": "The file"})),
        tool("ask_user", json!({"question": "Which?", "choices": ["one", "two"]})),
        tool("escalate_to_human", json!({"summary": "look here", "urgency": "low"})),
        tool("no_such_tool", json!({})),
        json!({"type": "tool_call", "name": "file_read", "arguments": "not json"}),
        json!({"type": "usage", "input": 100, "output": 20, "cached": 5}),
    ];
    let rest = [json!({"type": "text", "text": "done"}), json!({"type": "usage", "input": 9, "output": 1})];
    let cut = [json!({"type": "text", "text": "too long"}), json!({"type": "stop", "reason": "max_tokens"})];
    let refusal = [json!({"type": "text", "text": "no"}), json!({"type": "stop", "reason": "refusal"})];
    let failed = [json!({"type": "error", "kind": "request", "message": "bad"})];
    script(&[&tools, &rest, &cut, &refusal, &failed])
}

/// Answers whatever is asked with its first option.
fn permit(agent: &mut AgentProcess) {
    agent.on_permission(|params| {
        Permission::Select(params["options"][0]["optionId"].as_str().expect("an option").to_owned())
    });
}

/// A life with everything in it; returns what the server said.
async fn whole_life(lab: &Lab, capabilities: Value) -> Vec<Entry> {
    lab.file("a.txt", "alpha\n");
    let mut agent = lab.start();
    let client = json!({"name": "recorder", "version": "1.0.0"});
    let hello = json!({"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": client});
    agent.call("initialize", hello).await.expect("initialize");
    permit(&mut agent);
    let session = new_session(&mut agent, &lab.project()).await;
    agent.recv_until(|message| is_update(message, "available_commands_update")).await;
    for reason in ["end_turn", "max_tokens", "refusal"] {
        assert_eq!(prompt(&mut agent, &session, "go").await["stopReason"], reason);
    }
    agent.call("session/prompt", text_prompt(&session, "fail")).await.expect_err("the model refuses the request");

    let id = json!({"sessionId": session});
    let place = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    let with = |name: &str, value: Value| {
        let mut params = id.clone();
        params[name] = value;
        params
    };
    let calls = [
        ("session/list", json!({})),
        ("session/set_mode", with("modeId", json!("readonly"))),
        ("session/set_config_option", json!({"sessionId": session, "configId": "mode", "value": "supervised"})),
        ("session/update", with("update", json!({"type": "build", "text": "red"}))),
        ("session/cancel", id.clone()),
        ("$/cancel_request", json!({"requestId": 999})),
        ("session/close", id.clone()),
        ("session/load", place.clone()),
        ("session/close", id.clone()),
        ("session/resume", place.clone()),
        ("_zeroclaw/session/attach", with("afterSeq", json!(0))),
        ("session/fork", place),
        ("session/stop", id.clone()),
        ("_zeroclaw/status", json!({})),
        ("session/delete", id),
    ];
    for (method, params) in calls {
        agent.call(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"));
    }
    agent.close_stdin();
    assert!(agent.wait().await.success());
    agent.transcript().to_vec()
}

/// Everything that is refused, and a turn that is cancelled while it asks.
async fn refusals(lab: &Lab) -> Vec<Entry> {
    let mut agent = lab.start();
    agent.call("session/new", json!({})).await.expect_err("nothing works before initialize");
    initialize(&mut agent).await;
    let session = new_session(&mut agent, &lab.project()).await;
    for line in ["not json", "[]", "7", r#"{"jsonrpc":"1.0","id":5,"method":"session/new"}"#] {
        zeroclaw_e2e::exchange(&mut agent, line).await;
    }
    let refused = [
        ("initialize", json!({"protocolVersion": 1})),
        ("no/such/method", json!({})),
        ("session/new", json!({"cwd": null})),
        ("session/prompt", json!({"sessionId": "s-none", "prompt": "hi"})),
        ("session/prompt", json!({"sessionId": session, "prompt": [{"type": "video"}]})),
        ("session/load", json!({"sessionId": "s-none"})),
        ("session/set_mode", json!({"sessionId": session, "modeId": "yolo"})),
        ("session/list", json!({"cursor": "made up"})),
        ("authenticate", json!({"methodId": "made up"})),
    ];
    for (method, params) in refused {
        agent.call(method, params).await.expect_err(method);
    }
    let turn = agent.request("session/prompt", text_prompt(&session, "/run touch made")).await;
    agent.recv_until(|message| message["method"] == "session/request_permission").await;
    agent.call("session/prompt", text_prompt(&session, "now")).await.expect_err("a turn is running");
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let result = agent.response(&turn).await.expect("a cancelled turn is answered");
    assert_eq!(result["stopReason"], "cancelled");
    new_session(&mut agent, &lab.project()).await;
    agent.call("session/new", json!({"cwd": lab.project()})).await.expect_err("two are active");
    agent.close_stdin();
    assert!(agent.wait().await.success());
    agent.transcript().to_vec()
}

/// The built-in agent with room for two sessions, spoken to in the given table of codes.
fn small(table: &str) -> Lab {
    Lab::with_config(&format!(
        "[acp]\nmax_sessions = 2\nerror_codes = \"{table}\"\n[autonomy]\nlevel = \"supervised\"\n"
    ))
}

/// A client that asks for nothing gets nothing that it would have to ask for: the older types refuse every update that
/// clients of today must ask for, so they prove it.
#[tokio::test]
async fn a_whole_life_is_official() {
    let lab = Lab::scripted("supervised", &every_tool());
    let mut seen = Seen::default();
    judge(&whole_life(&lab, json!({})).await, &mut seen);
    let tags: BTreeSet<String> = update_tags().into_iter().map(str::to_owned).collect();
    assert_eq!(seen.updates, tags, "what the server can say, and what it said");
    assert_eq!(seen.calls, BTreeSet::from(["session/request_permission", "session/update"].map(str::to_owned)));
    assert_eq!(seen.errors, BTreeSet::from(["internal_error".to_owned()]));
    // Logins have a life of their own.
    let logins = [MethodKind::Authenticate, MethodKind::Logout];
    for kind in METHODS.iter().filter(|kind| !logins.contains(kind)) {
        assert!(seen.answers.contains(kind), "{kind:?} was never answered");
    }
}

#[tokio::test]
async fn a_client_that_asks_for_numbers_gets_them_as_extensions() {
    let lab = Lab::scripted("supervised", &every_tool());
    let mut seen = Seen::default();
    let transcript = whole_life(&lab, json!({"_meta": {"zeroclaw": {"seq": true}}})).await;
    judge(&transcript, &mut seen);
    assert!(seen.calls.contains("_zeroclaw/session/accepted"), "{:?}", seen.calls);
    let numbered = transcript.iter().filter(|entry| entry.line.contains(r#""_meta":{"zeroclaw":{"seq":"#)).count();
    assert!(numbered > 20, "{numbered} lines have a number");
}

#[tokio::test]
async fn a_strict_server_has_no_root_members_of_its_own() {
    let lab = Lab::scripted("supervised", &every_tool());
    let config = std::fs::read_to_string(lab.config_dir().join("config.toml")).expect("the lab has a configuration");
    lab.write_config(&format!("[acp]\nstrict = true\n{config}"));
    let transcript = whole_life(&lab, json!({})).await;
    judge(&transcript, &mut Seen::default());
    for entry in transcript.iter().filter(|entry| entry.direction == Direction::Received) {
        let message: Value = serde_json::from_str(&entry.line).expect("a line is JSON");
        assert_eq!(message["result"].get("workspaceDir"), None, "{message}");
        assert_eq!(message["result"].get("content"), None, "{message}");
    }
}

#[tokio::test]
async fn refusals_are_official_in_both_tables() {
    for table in ["zeroclaw", "spec"] {
        let lab = small(table);
        let mut seen = Seen::default();
        judge(&refusals(&lab).await, &mut seen);
        let expected = [
            "invalid_params",
            "invalid_request",
            "method_not_found",
            "parse_error",
            "session_busy",
            "session_limit_reached",
            "session_not_found",
        ];
        assert_eq!(seen.errors, BTreeSet::from(expected.map(str::to_owned)), "{table}");
        assert!(seen.calls.contains("$/cancel_request"), "{table}: the open question was not withdrawn");
    }
}

#[tokio::test]
async fn a_login_is_official() {
    let lab = Lab::new();
    let mut agent = lab.start();
    let result = initialize(&mut agent).await;
    let method = result["authMethods"][0]["id"].as_str().expect("there is no model, so there is a login").to_owned();
    agent.call("authenticate", json!({"methodId": method})).await.expect("it needs nothing");
    agent.call("logout", json!({})).await.expect("nothing is stored, so nothing is removed");
    let mut seen = Seen::default();
    judge(agent.transcript(), &mut seen);
    assert_eq!(seen.answers, [MethodKind::Initialize, MethodKind::Authenticate, MethodKind::Logout]);
}

/// The method table against the schema: what a client may call and we do not serve has its reason here.
#[cfg(feature = "newest")]
#[test]
fn every_stable_method_is_served() {
    let schema = JsonSchema::official();
    let unserved: Vec<String> =
        schema.client_calls().into_keys().filter(|method| MethodKind::from_name(method).is_none()).collect();
    assert_eq!(unserved, Vec::<String>::new());
}

/// A wrong message cannot hide behind another definition, and an unknown one behind none.
#[cfg(feature = "newest")]
#[test]
fn the_schema_refuses_what_is_wrong() {
    let schema = JsonSchema::official();
    schema.answer("session/new", &json!({"sessionId": "s"})).expect("the smallest answer");
    // Right as the answer to `session/prompt`, but not to `session/new`.
    schema.answer("session/new", &json!({"stopReason": "end_turn"})).expect_err("another method's answer");
    schema.answer("session/prompt", &json!({"stopReason": "done"})).expect_err("no such reason");
    schema.answer("session/nonsense", &json!({})).expect_err("no such method");
    let update = |update: Value| json!({"sessionId": "s", "update": update});
    let text = json!({"type": "text", "text": "hi"});
    let chunk = update(json!({"sessionUpdate": "agent_message_chunk", "content": text}));
    schema.call("session/update", &chunk).expect("an update");
    schema.call("session/update", &update(json!({"sessionUpdate": "mood"}))).expect_err("no such update");
    schema.call("session/request_permission", &chunk).expect_err("another method's parameters");
    schema.error(&json!({"code": -32000, "message": "no"})).expect("an error");
    schema.error(&json!({"code": "no", "message": "no"})).expect_err("a code is a number");
}
