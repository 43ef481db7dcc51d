//! The tables of error numbers, what is refused and how, the limits of a server, lists of sessions, life without a store.

use serde_json::{Value, json};
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};
use zeroclaw_e2e::{Lab, assert_welcome, exchange, initialize, new_session, prompt, text_prompt, updates_of};
use zeroclaw_testkit::process::AgentProcess;

fn kind_of(error: &Value) -> (i64, &str) {
    (error["code"].as_i64().unwrap(), error["data"]["kind"].as_str().unwrap_or_default())
}

/// Numbers of the kinds that the two tables disagree about.
struct Table {
    not_found: i64,
    limit: i64,
    busy: i64,
    auth: i64,
}

/// An agent whose first model call fails for credentials and whose second fails otherwise.
fn failing() -> Lab {
    Lab::scripted(
        "supervised",
        &[
            json!({"type": "error", "kind": "auth", "message": "bad key"}),
            json!({"type": "error", "kind": "stream", "message": "it broke"}),
            json!({"type": "tool_call", "name": "shell", "arguments": {"command": "touch made"}}),
            json!({"type": "stop"}),
            json!({"type": "stop"}),
        ],
    )
}

/// Causes every error there is and checks its number and its kind.
async fn all_errors(mut agent: AgentProcess, client: Value, lab: &Lab, table: &Table) {
    agent.call("initialize", json!({"protocolVersion": 1, "clientInfo": client})).await.unwrap();
    let answer = exchange(&mut agent, "{\"jsonrpc\":").await;
    assert_eq!(kind_of(&answer["error"]), (-32700, "parse_error"), "{answer}");
    let answer = exchange(&mut agent, r#"{"jsonrpc":"2.0","id":70}"#).await;
    assert_eq!(kind_of(&answer["error"]), (-32600, "invalid_request"), "{answer}");
    let error = agent.call("no/such\u{1b}[31m", json!({})).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32601, "method_not_found"), "{error}");
    assert!(!error["message"].as_str().unwrap().contains('\u{1b}'), "{error}");
    let error = agent.call("session/new", json!({"cwd": 5})).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{error}");

    let unknown = json!({"sessionId": "s-none"});
    for method in ["load", "resume", "close", "stop", "update", "event"] {
        let error = agent.call(&format!("session/{method}"), unknown.clone()).await.unwrap_err();
        assert_eq!(kind_of(&error), (table.not_found, "session_not_found"), "{method}: {error}");
        assert_eq!(error["data"]["sessionId"], json!("s-none"), "{method}");
        assert!(error["message"].as_str().unwrap().to_lowercase().contains("session not found"), "{error}");
    }
    let error = agent.call("session/prompt", text_prompt("s-none", "x")).await.unwrap_err();
    assert_eq!(kind_of(&error), (table.not_found, "session_not_found"), "{error}");

    let session = new_session(&mut agent, &lab.project()).await;
    let error = agent.call("session/new", json!({"cwd": lab.project()})).await.unwrap_err();
    assert_eq!(kind_of(&error), (table.limit, "session_limit_reached"), "{error}");

    let error = agent.call("session/prompt", text_prompt(&session, "x")).await.unwrap_err();
    assert_eq!(kind_of(&error), (table.auth, "auth_required"), "{error}");
    let error = agent.call("session/prompt", text_prompt(&session, "x")).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32603, "internal_error"), "{error}");

    let turn = agent.request("session/prompt", text_prompt(&session, "x")).await;
    agent.recv_until(|message| message["method"] == "session/request_permission").await;
    let error = agent.call("session/prompt", text_prompt(&session, "y")).await.unwrap_err();
    assert_eq!(kind_of(&error), (table.busy, "session_busy"), "{error}");
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(agent.response(&turn).await.unwrap()["stopReason"], json!("cancelled"));
}

const ZEROCLAW: Table = Table { not_found: -32000, limit: -32001, busy: -32002, auth: -32603 };
const SPEC: Table = Table { not_found: -32002, limit: 4290, busy: 4091, auth: -32000 };

#[tokio::test]
async fn every_error_has_its_number_and_its_kind() {
    let lab = failing();
    let one = ("ZEROCLAW_acp__max_sessions", "1");
    all_errors(lab.start_with(&[one]), json!({"name": "editor", "version": "1"}), &lab, &ZEROCLAW).await;
    // A name that only resembles a profile's is none.
    all_errors(lab.start_with(&[one]), json!({"name": "Zed Attack", "version": "1"}), &lab, &ZEROCLAW).await;
    all_errors(lab.start_with(&[one]), json!(null), &lab, &ZEROCLAW).await;
}

#[tokio::test]
async fn the_official_numbers_come_by_configuration_or_by_profile() {
    let lab = failing();
    let one = ("ZEROCLAW_acp__max_sessions", "1");
    let spec = ("ZEROCLAW_acp__error_codes", "spec");
    all_errors(lab.start_with(&[one, spec]), json!({"name": "editor", "version": "1"}), &lab, &SPEC).await;
    for name in ["Zed", "zed"] {
        all_errors(lab.start_with(&[one]), json!({"name": name, "version": "1"}), &lab, &SPEC).await;
    }
    // Own numbers lie outside of what the protocol has reserved.
    for number in [SPEC.limit, SPEC.busy] {
        assert!(!(-32_899..=-32_000).contains(&number));
    }
}

#[tokio::test]
async fn lines_that_are_no_calls_are_refused_with_the_id_they_have() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let cases: [(&[u8], Value, i64, &str); 16] = [
        (b"{", json!(null), -32700, "parse_error"),
        (b"garbage", json!(null), -32700, "parse_error"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/list\"} trailing", json!(null), -32700, "parse_error"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/list\"", json!(null), -32700, "parse_error"),
        (b"{}", json!(null), -32600, "invalid_request"),
        (b"17", json!(null), -32600, "invalid_request"),
        (b"null", json!(null), -32600, "invalid_request"),
        (b"[]", json!(null), -32600, "invalid_request"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"x\"}", json!("x"), -32600, "invalid_request"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":7}", json!(3), -32600, "invalid_request"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":null}", json!(3), -32600, "invalid_request"),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"session/list\",\"params\":5}",
            json!(4),
            -32600,
            "invalid_request",
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"session/list\"}", json!(null), -32600, "invalid_request"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"session/list\"}", json!(null), -32600, "invalid_request"),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"session/list\",\"x\":\"\xff\"}",
            json!(5),
            -32600,
            "invalid_request",
        ),
        (b"\xc3\x28", json!(null), -32600, "invalid_request"),
    ];
    for (line, id, code, kind) in cases {
        let shown = String::from_utf8_lossy(line).into_owned();
        agent.send_raw(&[line, b"\n"].concat()).await;
        let answer = zeroclaw_e2e::next_response(&mut agent).await;
        assert_eq!(answer["id"], id, "{shown}: {answer}");
        assert_eq!(kind_of(&answer["error"]), (code, kind), "{shown}: {answer}");
    }
    // None of this was a call, and nothing is ever answered that looks like a response.
    for silent in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"zc-out-0","error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","result":{}}"#,
        r#"{"id":1,"error":7}"#,
        "   ",
        "\r",
        "",
    ] {
        agent.send(silent).await;
    }
    let before = agent.received().len();
    assert_eq!(agent.call("session/list", json!({})).await.unwrap(), json!({"sessions": []}));
    assert_eq!(agent.received().len(), before + 1);
    // A method makes it a call, whatever else is in it.
    let line = r#"{"jsonrpc":"2.0","id":6,"method":"session/list","result":{},"error":null,"extra":1}"#;
    let answer = exchange(&mut agent, line).await;
    assert_eq!((&answer["id"], &answer["result"]["sessions"]), (&json!(6), &json!([])), "{answer}");
    let answer = exchange(&mut agent, r#"{"jsonrpc":"2.0","id":7,"method":"session/list","params":null}"#).await;
    assert_eq!(answer["result"]["sessions"], json!([]), "{answer}");
}

#[tokio::test]
async fn deep_nesting_and_doubled_members_do_no_harm() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    for depth in [100, 10_000, 1_000_000] {
        let nested = "[".repeat(depth) + &"]".repeat(depth);
        let line = format!(r#"{{"jsonrpc":"2.0","id":8,"method":"session/list","params":{{"x":{nested}}}}}"#);
        let answer = exchange(&mut agent, &line).await;
        assert!(answer.get("result").is_some() || answer["error"]["code"].is_i64(), "{answer}");
    }
    let answer = exchange(&mut agent, r#"{"jsonrpc":"2.0","id":9,"method":"session/list"}"#).await;
    assert_eq!(answer["result"]["sessions"], json!([]), "{answer}");
}

#[tokio::test]
async fn strict_mode_leaves_out_what_the_official_types_do_not_have() {
    let lab = Lab::new();
    let mut agent = lab.start_with(&[("ZEROCLAW_acp__strict", "true")]);
    initialize(&mut agent).await;
    let opened = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.unwrap();
    assert_eq!(opened.as_object().unwrap().keys().filter(|key| *key == "workspaceDir").count(), 0, "{opened}");
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    let result = prompt(&mut agent, &session, "/say 2").await;
    assert_eq!(result["stopReason"], json!("end_turn"));
    for own in ["sessionId", "content"] {
        assert_eq!(result.get(own), None, "{result}");
    }
    assert_eq!(updates_of(&agent.received(), "agent_message_chunk").len(), 2, "the text itself is streamed as ever");

    let (mut agent, session) = lab.session().await;
    let result = prompt(&mut agent, &session, "/say 2").await;
    assert_eq!((&result["sessionId"], &result["content"]), (&json!(session), &json!("chunk 1 chunk 2 ")));
}

#[tokio::test]
async fn sessions_are_limited_and_a_closed_one_makes_room() {
    let lab = Lab::new();
    let mut command = lab.command("zeroclaw-acp");
    command.args(["--max-sessions", "2"]);
    let mut agent = AgentProcess::spawn(command);
    initialize(&mut agent).await;
    let cwd = json!({"cwd": lab.project()});
    let first = new_session(&mut agent, &lab.project()).await;
    let second = new_session(&mut agent, &lab.project()).await;
    let error = agent.call("session/new", cwd.clone()).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32001, "session_limit_reached"), "{error}");
    agent.call("session/close", json!({"sessionId": first})).await.unwrap();
    // What was refused took no place: neither a wrong directory nor an unknown session.
    assert!(agent.call("session/new", json!({"cwd": lab.project().join("missing")})).await.is_err());
    assert!(agent.call("session/load", json!({"sessionId": "s-none"})).await.is_err());
    assert!(agent.call("session/load", json!({"sessionId": first, "cwd": lab.home()})).await.is_err());
    let third = new_session(&mut agent, &lab.project()).await;
    for method in ["session/load", "session/resume"] {
        let error = agent.call(method, json!({"sessionId": first})).await.unwrap_err();
        assert_eq!(kind_of(&error), (-32001, "session_limit_reached"), "{method}: {error}");
    }
    // A session that is live already needs no further place.
    assert_welcome(&agent.call("session/load", json!({"sessionId": second})).await.unwrap());
    agent.call("session/stop", json!({"sessionId": third})).await.unwrap();
    assert_welcome(&agent.call("session/load", json!({"sessionId": first})).await.unwrap());
}

fn ids(result: &Value) -> Vec<&str> {
    result["sessions"].as_array().unwrap().iter().map(|session| session["sessionId"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_list_shows_the_latest_first_with_all_that_is_known() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    assert_eq!(agent.call("session/list", json!({})).await.unwrap(), json!({"sessions": []}));
    let answer = exchange(&mut agent, r#"{"jsonrpc":"2.0","id":50,"method":"session/list"}"#).await;
    assert_eq!(answer["result"], json!({"sessions": []}));
    let other = lab.home();
    let opened = agent.call("session/new", json!({"cwd": lab.project(), "additionalDirectories": [other]})).await;
    let first = opened.unwrap()["sessionId"].as_str().unwrap().to_owned();
    let second = new_session(&mut agent, &lab.home()).await;
    let turn = agent.request("session/prompt", text_prompt(&first, "/say 1\nand more")).await;
    agent.response(&turn).await.unwrap();
    agent.recv_until(|message| message["params"]["update"]["sessionUpdate"] == "session_info_update").await;

    // The title follows the answer, and is stored just after it is told.
    let result = loop {
        let result = agent.call("session/list", json!({})).await.unwrap();
        if result["sessions"][0].get("title").is_some() {
            break result;
        }
    };
    assert_eq!(ids(&result), [first.as_str(), second.as_str()], "the one that was used last comes first");
    let shown = &result["sessions"][0];
    assert_eq!((&shown["cwd"], &shown["title"]), (&json!(lab.project()), &json!("/say 1")));
    assert_eq!(shown["additionalDirectories"], json!([lab.home()]));
    let time = shown["updatedAt"].as_str().unwrap();
    assert!(time.len() == 20 && time.starts_with("20") && time.ends_with('Z') && time.contains('T'), "{time}");
    assert_eq!(result.get("nextCursor"), None);

    for (cwd, expected) in [
        (lab.project(), vec![first.as_str()]),
        (lab.home(), vec![second.as_str()]),
        (lab.project().join("missing"), vec![]),
    ] {
        let result = agent.call("session/list", json!({"cwd": cwd})).await.unwrap();
        assert_eq!(ids(&result), expected, "{}", cwd.display());
    }
    for wrong in [
        json!({"cwd": "relative"}),
        json!({"cwd": 5}),
        json!({"cwd": "/\u{0}"}),
        json!({"cursor": 5}),
        json!({"cursor": "zzz"}),
        json!([]),
    ] {
        let error = agent.call("session/list", wrong.clone()).await.unwrap_err();
        assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{wrong}: {error}");
    }
}

#[tokio::test]
async fn a_cursor_survives_what_happens_between_two_pages() {
    let lab = Lab::new();
    let mut agent = lab.start_with(&[("ZEROCLAW_acp__max_sessions", "200")]);
    initialize(&mut agent).await;
    let mut made = Vec::new();
    for _ in 0..120 {
        made.push(new_session(&mut agent, &lab.project()).await);
    }
    let mut seen: Vec<String> = Vec::new();
    let mut cursor = json!(null);
    let mut pages = 0;
    loop {
        let page = agent.call("session/list", json!({"cursor": cursor, "cwd": null})).await.unwrap();
        assert!(ids(&page).len() <= 50, "pages are bounded");
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        pages += 1;
        // A session that is newer than the cursor belongs to no later page.
        new_session(&mut agent, &lab.project()).await;
        match page.get("nextCursor") {
            Some(next) => cursor = next.clone(),
            None => break,
        }
    }
    assert_eq!(pages, 3);
    seen.sort_unstable();
    made.sort_unstable();
    assert_eq!(seen, made);
}

#[tokio::test]
async fn without_a_store_sessions_live_in_memory() {
    let lab = Lab::new();
    // A file stands where the data directory would be; that stops root as well.
    let blocked = lab.file("blocked", "x");
    let mut agent = lab.start_with(&[("ZEROCLAW_DATA_DIR", blocked.to_str().unwrap())]);
    let result = initialize(&mut agent).await;
    assert_eq!(result["agentCapabilities"]["loadSession"], json!(false));
    for name in ["list", "resume", "close"] {
        assert_eq!(result["agentCapabilities"]["sessionCapabilities"].get(name), None, "{name}");
    }
    let workspace = lab.project();
    let session = new_session(&mut agent, &workspace).await;
    let result = prompt(&mut agent, &session, "/say 2").await;
    assert_eq!((&result["stopReason"], &result["content"]), (&json!("end_turn"), &json!("chunk 1 chunk 2 ")));
    for method in ["session/load", "session/resume", "session/close"] {
        for id in [session.as_str(), "s-none"] {
            let error = agent.call(method, json!({"sessionId": id})).await.unwrap_err();
            assert_eq!(kind_of(&error), (-32000, "session_not_found"), "{method}: {error}");
        }
    }
    assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], json!("end_turn"), "it is still there");
    agent.close_stdin();
    assert!(agent.wait().await.success());
    let reason = agent.stderr_text();
    assert_eq!(reason.matches("sessions will not be saved").count(), 1, "said once: {reason}");
    assert_eq!(std::fs::read_to_string(&blocked).unwrap(), "x");
}

#[cfg(unix)]
#[tokio::test]
async fn a_read_only_data_directory_is_no_store() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    let data = lab.config_dir().join("data");
    std::fs::create_dir_all(&data).unwrap();
    let mode = |mode| std::fs::set_permissions(&data, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o500);
    // Root writes where nobody else may; then there is a store after all, and that is right.
    let writable = std::fs::File::create(data.join("probe")).is_ok();
    let mut agent = lab.start();
    let result = initialize(&mut agent).await;
    assert_eq!(result["agentCapabilities"]["loadSession"], json!(writable), "{result}");
    let session = new_session(&mut agent, &lab.project()).await;
    assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], json!("end_turn"));
    agent.close_stdin();
    assert!(agent.wait().await.success());
    mode(0o700);
}

#[tokio::test]
async fn a_store_that_fails_is_an_error_without_its_path() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 1").await;
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    let mut connection = SqliteConnectOptions::new().filename(lab.database()).connect().await.unwrap();
    sqlx::query("DROP TABLE messages").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let error = agent.call("session/load", json!({"sessionId": session})).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32603, "internal_error"), "{error}");
    assert!(!error.to_string().contains("acp-sessions"), "{error}");
    assert!(agent.call("session/list", json!({})).await.is_ok(), "the rest works on");
}
