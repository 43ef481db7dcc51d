//! Sessions opened, listed and changed.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{ADMIN, BASIC, Bridge, READ_WRITE, Settings, settings};
use crate::openclaw::ledger::{Place, Record};

const UUID: &str = "11111111-1111-4111-8111-111111111111";

fn record(complete: bool, text: &str) -> Record {
    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text }, "messageId": "m" });
    Record {
        key: "agent:main:other".to_owned(),
        cwd: "/w".to_owned(),
        complete,
        updates: vec![Bytes::from(update.to_string())],
        told_at: 1000,
    }
}

fn row(updated_at: u64) -> Value {
    json!({ "session": { "key": "agent:main:other", "derivedTitle": "[Working directory: /w] hello…", "updatedAt": updated_at } })
}

#[test]
fn ses_07_commands_come_after_the_answer() {
    let mut bridge = Bridge::new();
    bridge.ask("session/new", json!({ "cwd": "/w", "mcpServers": [] }));
    let answer = bridge.lines();
    assert_eq!(answer.len(), 1);
    assert_eq!(
        answer[0]["result"],
        json!({ "sessionId": "00000000-0000-4000-8000-000000000001" }),
        "no modes without rights"
    );
    bridge.wait(Duration::from_millis(100));
    let told = bridge.lines();
    assert_eq!(told[0]["params"]["update"]["availableCommands"][0]["name"], "status");
}

#[test]
fn w14_modes_are_those_of_the_agent() {
    let mut bridge = Bridge::with(settings(), &ADMIN);
    bridge.ask("session/new", json!({ "cwd": "/w" }));
    assert_eq!(bridge.seen(), Vec::<String>::new(), "they are not known yet");
    let levels = json!([{ "id": "off", "label": "Off" }, { "id": "high", "label": "High" }]);
    bridge.answer(
        "agents.list",
        json!({ "defaultId": "main", "agents": [
        { "id": "other" }, { "id": "main", "thinkingLevels": levels, "thinkingDefault": "high" },
    ] }),
    );
    let lines = bridge.lines();
    let modes = &lines[0]["result"]["modes"];
    assert_eq!(modes["currentModeId"], "high");
    assert_eq!(modes["availableModes"].as_array().expect("modes").len(), 2);
    let session = lines[0]["result"]["sessionId"].clone();
    let id = bridge.ask("session/set_mode", json!({ "sessionId": session, "modeId": "off" }));
    let patch = bridge.answer("sessions.patch", json!({ "ok": true }));
    assert_eq!(patch["params"]["thinkingLevel"], "off");
    assert_eq!(bridge.seen(), ["current_mode_update", "config_option_update", &format!("{id}: {{}}")]);
    bridge.ask("session/set_config_option", json!({ "sessionId": session, "configId": "fast_mode", "value": "on" }));
    let patch = bridge.answer("sessions.patch", json!({ "ok": true }));
    assert_eq!(patch["params"]["fastMode"], true);
    let lines = bridge.lines();
    let options = lines[2]["result"]["configOptions"].as_array().expect("options").clone();
    assert_eq!(options[1]["currentValue"], "on");
    let id = bridge
        .ask("session/set_config_option", json!({ "sessionId": session, "configId": "fast_mode", "value": "maybe" }));
    assert_eq!(bridge.seen(), [format!("{id}: error -32602 `maybe` is no value of `fast_mode`")]);
    let id = bridge.ask("session/set_mode", json!({ "sessionId": session, "modeId": "low" }));
    bridge.decline("sessions.patch", json!({ "code": "INVALID_REQUEST", "message": "not supported (use off)" }));
    assert_eq!(bridge.seen(), [format!("{id}: error -32602 not supported (use off)")]);
}

#[test]
fn without_rights_nothing_is_changed() {
    let mut bridge = Bridge::with(Settings { reset: true, ..settings() }, &READ_WRITE);
    let id = bridge.ask("session/new", json!({ "cwd": "/w" }));
    let why = "only an administrator may reset a session; start the bridge with --admin";
    assert_eq!(bridge.seen(), [format!("{id}: error -32600 {why}")]);
}

#[test]
fn w10_an_id_of_ours_works_in_another_process() {
    let mut bridge = Bridge::new();
    let id = bridge.ask("session/resume", json!({ "sessionId": UUID, "cwd": "/w" }));
    let asked = bridge.answer("sessions.describe", row(5));
    assert_eq!(
        asked["params"],
        json!({ "key": format!("agent:main:acp-bridge:{UUID}"), "includeDerivedTitles": true })
    );
    assert_eq!(bridge.seen(), [format!("{id}: {{}}")]);
    // And so does a key of the gateway.
    let id = bridge.ask("session/resume", json!({ "sessionId": "agent:main:other", "cwd": "/w" }));
    let asked = bridge.answer("sessions.describe", row(5));
    assert_eq!(
        (asked["params"]["key"].as_str(), bridge.seen()),
        (Some("agent:main:other"), vec![format!("{id}: {{}}")])
    );
}

#[test]
fn w10_an_unknown_id_is_an_error() {
    let mut bridge = Bridge::new();
    for method in ["session/load", "session/resume"] {
        let id = bridge.ask(method, json!({ "sessionId": "rubbish", "cwd": "/w", "mcpServers": [] }));
        bridge.answer("sessions.describe", json!({ "session": null }));
        assert_eq!(bridge.seen(), [format!("{id}: error -32002 there is no such session")]);
    }
}

#[test]
fn sec_11_an_id_is_no_path() {
    let mut bridge = Bridge::new();
    for bad in ["", "a\0b", "a\nb", &"x".repeat(600)] {
        let id = bridge.ask("session/load", json!({ "sessionId": bad, "cwd": "/w", "mcpServers": [] }));
        assert_eq!(bridge.seen(), [format!("{id}: error -32002 there is no such session")]);
    }
    // Anything else is a key, which only the gateway knows.
    bridge.ask("session/load", json!({ "sessionId": "../../etc", "cwd": "/w", "mcpServers": [] }));
    assert_eq!(bridge.request("sessions.describe")["params"]["key"], "agent:main:../../etc");
}

#[test]
fn a_complete_story_is_told_from_the_ledger() {
    let mut bridge = Bridge::new();
    bridge.records.insert("s1".to_owned(), record(true, "as it was"));
    let id = bridge.ask("session/load", json!({ "sessionId": "s1", "cwd": "/w", "mcpServers": [] }));
    bridge.answer("sessions.describe", row(5000));
    assert_eq!(bridge.seen(), ["as it was", &format!("{id}: {{}}")]);
    assert_eq!(bridge.told.get("s1"), None, "it is not written once more");
    bridge.wait(Duration::from_millis(100));
    let told = bridge.lines();
    assert_eq!(told[1]["params"]["update"]["title"], "hello");
}

#[test]
fn another_story_is_told_from_the_transcript() {
    // Incomplete; or others have spoken since; or nothing is in it.
    let cases = [
        (record(false, "half"), 5000),
        (record(true, "old"), 900_000),
        (Record { updates: Vec::new(), ..record(true, "") }, 5000),
    ];
    for (record, updated_at) in cases {
        let mut bridge = Bridge::new();
        bridge.records.insert("s1".to_owned(), record);
        let id = bridge.ask("session/load", json!({ "sessionId": "s1", "cwd": "/w", "mcpServers": [] }));
        bridge.answer("sessions.describe", row(updated_at));
        let rows: Vec<Value> = BASIC
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a frame"))
            .filter(|frame| frame["event"] == "session.message")
            .map(|frame| frame["payload"]["message"].clone())
            .collect();
        bridge.answer("sessions.get", json!({ "messages": rows }));
        let seen = bridge.seen();
        assert_eq!((seen[0].as_str(), seen[1].as_str()), ("> hello MOCK chunks=8 delay=60 think=3", "(t0 t1 t2 )"));
        assert!(seen[2].starts_with("w0 xxxxxxxx"), "{seen:?}");
        assert_eq!(seen[3], format!("{id}: {{}}"));
        assert_eq!(bridge.told["s1"].len(), 3, "the ledger has it now");
    }
}

#[test]
fn a_session_that_is_routed_by_its_request() {
    let mut bridge = Bridge::with(Settings { session: Some("flag".to_owned()), ..settings() }, &READ_WRITE);
    let key = |bridge: &mut Bridge, meta: Value| {
        bridge.ask("session/new", json!({ "cwd": "/w", "_meta": meta }));
        bridge.answer("sessions.describe", row(5))["params"]["key"].as_str().expect("a key").to_owned()
    };
    assert_eq!(key(&mut bridge, json!({})), "agent:main:flag");
    assert_eq!(key(&mut bridge, json!({ "sessionKey": "agent:x:y" })), "agent:x:y");
    bridge.lines();
    let id = bridge.ask("session/new", json!({ "cwd": "/w", "_meta": { "sessionLabel": "mine" } }));
    assert_eq!(bridge.request("sessions.resolve")["params"], json!({ "label": "mine" }));
    bridge.ask("session/new", json!({ "cwd": "/w", "_meta": { "key": "k", "requireExisting": true } }));
    bridge
        .decline("sessions.resolve", json!({ "code": "INVALID_REQUEST", "message": "No session found: agent:main:k" }));
    assert_eq!(bridge.seen(), [format!("{}: error -32002 No session found: agent:main:k", id + 1)]);
}

#[test]
fn a_reset_is_made_before_the_session_is_there() {
    let mut bridge =
        Bridge::with(Settings { reset: true, session: Some("agent:main:k".to_owned()), ..settings() }, &ADMIN);
    bridge.answer("agents.list", json!({}));
    bridge.ask("session/new", json!({ "cwd": "/w" }));
    let reset = bridge.answer("sessions.reset", json!({ "ok": true, "key": "agent:main:k" }));
    assert_eq!(reset["params"], json!({ "key": "agent:main:k" }));
    bridge.answer("sessions.describe", json!({ "session": null }));
    assert!(bridge.lines()[0]["result"]["sessionId"].is_string());
}

#[test]
fn what_is_asked_of_a_session_that_is_being_opened_waits() {
    let mut bridge = Bridge::new();
    let load = bridge.ask("session/load", json!({ "sessionId": UUID, "cwd": "/w", "mcpServers": [] }));
    let prompt = bridge.ask("session/prompt", json!({ "sessionId": UUID, "prompt": "/status" }));
    assert_eq!(bridge.seen(), Vec::<String>::new());
    bridge.answer("sessions.describe", row(5));
    bridge.answer("sessions.get", json!({ "messages": [] }));
    assert_eq!(bridge.seen()[0], format!("{load}: {{}}"));
    let run = bridge.begin();
    bridge.play(super::STATUS, &run);
    assert_eq!(bridge.seen().last(), Some(&format!("{prompt}: end_turn")));
}

#[test]
fn ses_19_a_session_in_which_a_turn_runs_is_not_loaded_again() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (prompt, run) = bridge.prompt(&session, "go");
    bridge.lines();
    let load = bridge.ask("session/load", json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] }));
    assert_eq!(bridge.seen(), [format!("{load}: error -32600 a turn is running in this session")]);
    bridge.play(super::STATUS, &run);
    assert_eq!(bridge.seen().last(), Some(&format!("{prompt}: end_turn")));
}

#[test]
fn creations_are_limited() {
    let mut bridge = Bridge::with(Settings { create_limit: 3, ..settings() }, &READ_WRITE);
    for _ in 0..3 {
        bridge.ask("session/new", json!({ "cwd": "/w" }));
        bridge.wait(Duration::from_secs(1));
    }
    bridge.lines();
    let id = bridge.ask("session/new", json!({ "cwd": "/w" }));
    assert_eq!(bridge.seen(), [format!("{id}: error 4290 too many sessions are being created; retry after 8s")]);
    bridge.wait(Duration::from_secs(8));
    bridge.lines();
    bridge.ask("session/new", json!({ "cwd": "/w" }));
    assert!(bridge.lines()[0]["result"]["sessionId"].is_string());
}

#[test]
fn w09_the_list_knows_ids_directories_and_titles() {
    let mut bridge = Bridge::new();
    let place = |key: &str, title: Option<&str>| Place {
        key: key.to_owned(),
        cwd: "/w".to_owned(),
        title: title.map(str::to_owned),
    };
    let ours = format!("agent:main:acp-bridge:{UUID}");
    bridge.places = vec![place(&ours, Some("what was said")), place("agent:main:other", None)];
    let rows = json!([
        { "key": ours, "derivedTitle": "[Working directory: /w/very/long…", "updatedAt": 1_796_065_293_065_u64 },
        { "key": "agent:main:other", "derivedTitle": "[Working directory: /w] hi", "updatedAt": 0 },
        { "key": "agent:main:main", "displayName": "ACP", "updatedAt": 951_782_400_000_u64 },
    ]);
    let id = bridge.ask("session/list", json!({}));
    let asked = bridge.answer("sessions.list", json!({ "sessions": rows, "hasMore": true, "nextOffset": 50 }));
    assert_eq!(asked["params"], json!({ "limit": 50, "includeDerivedTitles": true }));
    let lines = bridge.lines();
    assert_eq!(
        lines[0],
        json!({ "jsonrpc": "2.0", "id": id, "result": { "nextCursor": "o50", "sessions": [
        { "sessionId": UUID, "cwd": "/w", "title": "what was said", "updatedAt": "2026-11-30T19:01:33.065Z" },
        { "sessionId": "agent:main:other", "cwd": "/w", "title": "hi", "updatedAt": "1970-01-01T00:00:00.000Z" },
        { "sessionId": "agent:main:main", "cwd": "/", "title": "ACP", "updatedAt": "2000-02-29T00:00:00.000Z" },
    ] } })
    );
    bridge.ask("session/list", json!({ "cwd": "/w/" }));
    bridge.answer("sessions.list", json!({ "sessions": rows }));
    let lines = bridge.lines();
    assert_eq!(lines[0]["result"]["sessions"].as_array().map(Vec::len), Some(2));
    bridge.ask("session/list", json!({ "cursor": "o50", "_meta": { "limit": 7 } }));
    assert_eq!(
        bridge.request("sessions.list")["params"],
        json!({ "limit": 7, "offset": 50, "includeDerivedTitles": true })
    );
    for bad in [json!({ "cwd": "w" }), json!({ "cursor": "rubbish" })] {
        bridge.ask("session/list", bad);
        assert_eq!(bridge.lines()[0]["error"]["code"], -32602);
    }
}

#[test]
fn sec_09_servers_of_the_client_are_not_started() {
    let mut bridge = Bridge::new();
    let server = json!({ "name": "x", "command": "/bin/sh", "args": ["-c", "touch /tmp/x"], "env": [] });
    bridge.ask("session/new", json!({ "cwd": "/w", "mcpServers": [server] }));
    assert!(bridge.lines()[0]["result"]["sessionId"].is_string());
    assert_eq!(bridge.methods(), Vec::<String>::new(), "nobody is told of it");
}

#[test]
fn a_closed_session_is_gone() {
    let mut bridge = Bridge::new();
    let session = bridge.session();
    let (prompt, _) = bridge.prompt(&session, "go");
    bridge.lines();
    let close = bridge.ask("session/close", json!({ "sessionId": session }));
    assert_eq!(bridge.seen(), [format!("{prompt}: cancelled"), format!("{close}: {{}}")]);
    assert_eq!(bridge.methods(), ["chat.abort"]);
    let close = bridge.ask("session/close", json!({ "sessionId": session }));
    assert_eq!(bridge.seen(), [format!("{close}: error -32002 there is no such session")]);
}

#[test]
fn the_handshake_of_the_client_is_kept() {
    let mut bridge = Bridge::new();
    let id = bridge.ask("initialize", json!({ "protocolVersion": "2025-06-18" }));
    assert_eq!(bridge.seen(), [format!("{id}: error -32600 `initialize` was there already")]);
    let id = bridge.ask("authenticate", json!({ "methodId": "x" }));
    assert_eq!(bridge.seen(), [format!("{id}: {{}}")]);
    bridge.say(&json!([1]));
    assert_eq!(bridge.lines()[0]["error"]["code"], -32600);
}
