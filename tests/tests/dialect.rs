//! What the server promises beyond the cases: `initialize`, opening and ending sessions, every spelling of every name.

use std::path::PathBuf;

use serde_json::{Value, json};
use zeroclaw_e2e::{
    Lab, assert_welcome, exchange, initialize, new_session, prompt, text_prompt, updates_of, user_texts,
};
use zeroclaw_testkit::{
    model_server::{ModelServer, Reply},
    process::AgentProcess,
};

fn kind_of(error: &Value) -> (i64, &str) {
    (error["code"].as_i64().unwrap(), error["data"]["kind"].as_str().unwrap_or_default())
}

fn is_update(message: &Value, kind: &str) -> bool {
    message["params"]["update"]["sessionUpdate"] == kind
}

/// A lab with scripted agents that answer with their own name; `more` is appended to the configuration.
fn agents(names: &[&str], more: &str) -> Lab {
    let lab = Lab::new();
    configure(&lab, names, more);
    lab
}

fn configure(lab: &Lab, names: &[&str], more: &str) {
    let mut toml = String::new();
    for name in names {
        let lines = [json!({"type": "text", "text": name}), json!({"type": "stop"}), json!({"type": "loop"})];
        let script: PathBuf = lab.home().join(format!("{name}.jsonl"));
        std::fs::write(&script, lines.map(|line| format!("{line}\n")).concat()).unwrap();
        toml += &format!(
            "[providers.models.scripted.{name}]\nscript = \"{}\"\nmodel = \"model-{name}\"\n\
             [agents.{name}]\nmodel_provider = \"scripted.{name}\"\n",
            script.display()
        );
    }
    lab.write_config(&(toml + more));
}

/// Opens a session with these parameters and says which agent it got.
async fn agent_of(agent: &mut AgentProcess, params: Value) -> Result<String, Value> {
    let opened = agent.call("session/new", params).await?;
    let result = prompt(agent, opened["sessionId"].as_str().unwrap(), "who?").await;
    Ok(result["content"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn initialize_says_what_there_is() {
    let lab = Lab::new();
    let mut agent = lab.start();
    let result = agent.call("initialize", json!({})).await.unwrap();
    assert_eq!(result["protocolVersion"], json!(1));
    assert_eq!(result["agentInfo"]["name"], json!("zeroclaw-acp"));
    assert_eq!(result["agentInfo"]["title"], json!("ZeroClaw ACP"));
    assert!(result["agentInfo"]["version"].as_str().unwrap().split('.').count() == 3, "{result}");
    let capabilities = &result["agentCapabilities"];
    assert_eq!(capabilities["loadSession"], json!(true));
    for name in ["list", "resume", "close"] {
        assert_eq!(capabilities["sessionCapabilities"][name], json!({}), "{name}");
    }
    assert_eq!(capabilities["promptCapabilities"], json!({"image": false, "audio": false, "embeddedContext": true}));
    assert_eq!(capabilities["mcpCapabilities"]["sse"], json!(false));
    let meta = &result["_meta"]["zeroclaw"];
    assert_eq!(*meta, json!({"defaultModel": "builtin", "maxSessions": 10, "sessionTimeoutSecs": 3600}));
}

#[tokio::test]
async fn initialize_shows_what_was_configured() {
    let lab = agents(&["one", "two"], "[acp]\ndefault_agent = \"two\"\nmax_sessions = 7\nsession_timeout_secs = 120\n");
    let meta = |result: &Value| result["_meta"]["zeroclaw"].clone();
    let mut agent = lab.start();
    let result = initialize(&mut agent).await;
    assert_eq!(meta(&result), json!({"defaultModel": "model-two", "maxSessions": 7, "sessionTimeoutSecs": 120}));

    // The environment wins over the file, the command line over both.
    let mut agent = lab.start_with(&[("ZEROCLAW_acp__max_sessions", "8"), ("ZEROCLAW_acp__default_agent", "one")]);
    let result = initialize(&mut agent).await;
    assert_eq!(meta(&result), json!({"defaultModel": "model-one", "maxSessions": 8, "sessionTimeoutSecs": 120}));
    let mut command = lab.command("zeroclaw-acp");
    command.env("ZEROCLAW_acp__max_sessions", "8").args(["--max-sessions", "9", "--session-timeout", "60"]);
    let mut agent = AgentProcess::spawn(command);
    let result = initialize(&mut agent).await;
    assert_eq!(meta(&result), json!({"defaultModel": "model-two", "maxSessions": 9, "sessionTimeoutSecs": 60}));

    // Nobody can say which agent a session without an alias would get, so there is no model to name.
    let lab = agents(&["one", "two"], "");
    let mut agent = lab.start();
    let result = initialize(&mut agent).await;
    assert_eq!(meta(&result), json!({"maxSessions": 10, "sessionTimeoutSecs": 3600}));
}

#[tokio::test]
async fn a_login_is_offered_exactly_while_there_is_no_model() {
    let ready = agents(&["one"], "");
    let result = initialize(&mut ready.start()).await;
    assert_eq!(result["authMethods"], json!([]));

    let keyless = Lab::with_config(
        "[providers.models.anthropic.home]\nmodel = \"m\"\n[agents.main]\nmodel_provider = \"anthropic.home\"\n",
    );
    for lab in [Lab::new(), keyless] {
        let mut agent = lab.start();
        let result = initialize(&mut agent).await;
        let methods = result["authMethods"].as_array().unwrap();
        assert!(!methods.is_empty(), "{result}");
        for method in methods {
            assert!(method["id"].is_string() && method["name"].is_string(), "{method}");
            let kind = method.get("type").and_then(Value::as_str).unwrap_or("agent");
            assert_eq!(kind, "agent", "a terminal login is only for clients that have terminals: {method}");
        }
        let error = agent.call("authenticate", json!({"methodId": "no-such"})).await.unwrap_err();
        assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{error}");
    }
}

#[tokio::test]
async fn nothing_is_served_before_initialize() {
    let lab = Lab::new();
    let mut agent = lab.start();
    let calls = [
        ("session/new", json!({"cwd": lab.project()})),
        ("session/load", json!({"sessionId": "s-x"})),
        ("session/resume", json!({"sessionId": "s-x"})),
        ("session/prompt", text_prompt("s-x", "hi")),
        ("session/cancel", json!({"sessionId": "s-x"})),
        ("session/close", json!({"sessionId": "s-x"})),
        ("session/stop", json!({"sessionId": "s-x"})),
        ("session/list", json!({})),
        ("session/update", json!({"sessionId": "s-x"})),
        ("authenticate", json!({"methodId": "x"})),
        ("$/cancel_request", json!({"requestId": 1})),
        ("no/such", json!({})),
    ];
    for (method, params) in calls {
        agent.notify(method, params.clone()).await;
        let error = agent.call(method, params).await.unwrap_err();
        assert_eq!(kind_of(&error), (-32600, "invalid_request"), "{method}: {error}");
    }
    assert_eq!(agent.received().len(), 12, "the notifications were not answered");
    let answer = exchange(&mut agent, "{").await;
    assert_eq!(answer["error"]["code"], json!(-32700), "{answer}");
    initialize(&mut agent).await;
    new_session(&mut agent, &lab.project()).await;
}

#[tokio::test]
async fn a_second_initialize_is_refused_and_changes_nothing() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let zed = json!({"protocolVersion": 1, "clientInfo": {"name": "Zed", "version": "1"}});
    let error = agent.call("initialize", zed).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32600, "invalid_request"), "{error}");
    let error = agent.call("session/close", json!({"sessionId": "s-none"})).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32000, "session_not_found"), "the first client's table is kept: {error}");
    assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], json!("end_turn"));
}

#[tokio::test]
async fn an_agent_is_chosen_by_alias_then_default_then_being_the_only_one() {
    let lab = agents(&["one", "two"], "[agents.off]\nenabled = false\nmodel_provider = \"scripted.one\"\n");
    let mut agent = lab.agent().await;
    for params in [
        json!({"agentAlias": "two"}),
        json!({"agent_alias": "two"}),
        json!({"agent": "two"}),
        json!({"agentAlias": " two\t"}),
        json!({"_meta": {"zeroclaw": {"agentAlias": "two"}}}),
    ] {
        let chosen = agent_of(&mut agent, params.clone()).await;
        assert_eq!(chosen.as_deref(), Ok("two"), "{params}");
    }
    for alias in ["", "  ", "three", "off", "One"] {
        let error = agent_of(&mut agent, json!({"agentAlias": alias})).await.unwrap_err();
        assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{alias:?}: {error}");
    }
    let error = agent_of(&mut agent, json!({"agentAlias": 5})).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{error}");

    configure(&lab, &["one", "two"], "[acp]\ndefault_agent = \"two\"\n");
    let mut agent = lab.agent().await;
    for params in [json!({}), json!({"agent": ""}), json!({"agent": " "})] {
        assert_eq!(agent_of(&mut agent, params).await.as_deref(), Ok("two"));
    }
    assert_eq!(agent_of(&mut agent, json!({"agent": "one"})).await.as_deref(), Ok("one"));

    configure(&lab, &["one"], "[agents.off]\nenabled = false\nmodel_provider = \"scripted.one\"\n");
    let mut agent = lab.agent().await;
    assert_eq!(agent_of(&mut agent, json!({})).await.as_deref(), Ok("one"), "the other one cannot be dispatched");

    configure(&lab, &["one", "two"], "[acp]\ndefault_agent = \"gone\"\n");
    let mut agent = lab.agent().await;
    let error = agent_of(&mut agent, json!({})).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32602, "invalid_params"), "a wrong default is not made up for: {error}");
}

#[tokio::test]
async fn directories_have_three_names_and_must_exist() {
    let lab = Lab::new();
    let file = lab.file("file.txt", "x");
    let mut agent = lab.agent().await;
    for name in ["cwd", "workspaceDir", "workspace_dir"] {
        let result = agent.call("session/new", json!({ name: lab.project() })).await.unwrap();
        assert_eq!(result["workspaceDir"], json!(lab.project()), "{name}");
        let missing = lab.project().join("missing");
        for value in [json!(missing), json!(file), json!(null), json!(5), json!([]), json!(""), json!("a\u{0}b")] {
            let error = agent.call("session/new", json!({ name: value })).await.unwrap_err();
            assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{name} = {value}: {error}");
            assert!(!error["message"].as_str().unwrap().contains(lab.home().to_str().unwrap()), "{error}");
        }
    }
    #[cfg(unix)]
    {
        let link = lab.home().join("link");
        std::os::unix::fs::symlink(lab.project(), &link).unwrap();
        let result = agent.call("session/new", json!({"cwd": link})).await.unwrap();
        assert_eq!(result["workspaceDir"], json!(lab.project()), "links are resolved on intake");
    }
    // Relative paths are taken for the sake of clients that send nothing better; they start at the process's directory.
    let result = agent.call("session/new", json!({"cwd": "./home/../project"})).await.unwrap();
    assert_eq!(result["workspaceDir"], json!(lab.project()));
    let other = lab.home();
    let result = agent.call("session/new", json!({"cwd": lab.project(), "additionalDirectories": [other]})).await;
    assert!(result.is_ok(), "{result:?}");
    for wrong in [json!(["relative"]), json!([lab.project().join("missing")]), json!("x"), json!([5])] {
        let params = json!({"cwd": lab.project(), "additionalDirectories": wrong});
        let error = agent.call("session/new", params).await.unwrap_err();
        assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{wrong}: {error}");
    }
}

#[tokio::test]
async fn session_ids_are_of_the_documented_shape_and_never_the_same() {
    let lab = Lab::new();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut agent = lab.agent().await;
        for _ in 0..4 {
            ids.push(new_session(&mut agent, &lab.project()).await);
        }
    }
    for id in &ids {
        let ulid = id.strip_prefix("s-").unwrap_or_default();
        assert!(
            ulid.len() == 26 && ulid.bytes().all(|byte| b"0123456789abcdefghjkmnpqrstvwxyz".contains(&byte)),
            "{id}"
        );
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 8);
}

#[tokio::test]
async fn session_id_has_two_spellings_in_every_method() {
    let lab = Lab::new();
    for name in ["sessionId", "session_id"] {
        let (mut agent, session) = lab.session().await;
        let only = json!({ name: session });
        let result = agent.call("session/prompt", json!({ name: session, "prompt": "/say 1" })).await.unwrap();
        assert_eq!(result["stopReason"], json!("end_turn"));
        assert_eq!(agent.call("session/cancel", only.clone()).await.unwrap(), json!({}));
        for method in ["session/update", "session/event"] {
            let result = agent.call(method, json!({ name: session, "text": "x" })).await.unwrap();
            assert_eq!(result["status"], json!("processed"));
        }
        assert_eq!(agent.call("session/close", only.clone()).await.unwrap(), json!({}));
        assert_welcome(&agent.call("session/resume", only.clone()).await.unwrap());
        let stopped = json!({"sessionId": session, "stopped": true});
        assert_eq!(agent.call("session/stop", only.clone()).await.unwrap(), stopped);
        assert_welcome(&agent.call("session/load", only.clone()).await.unwrap());
        assert_eq!(agent.call("_zeroclaw/session/stop", only).await.unwrap(), stopped);
    }
    let (mut agent, session) = lab.session().await;
    for params in [json!({}), json!({"sessionId": 5}), json!({"sessionId": null}), json!([session])] {
        for method in ["prompt", "cancel", "close", "stop", "load", "resume", "update", "event"] {
            let error = agent.call(&format!("session/{method}"), params.clone()).await.unwrap_err();
            assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{method} {params}: {error}");
        }
    }
}

#[tokio::test]
async fn a_cancel_keeps_what_was_said() {
    let server = ModelServer::start().await;
    let (reply, gate) = Reply::chunks(["one ", "two"]).gate(1);
    let (second, gate_two) = Reply::text("never").gate(0);
    server.push(reply);
    server.push(second);
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    // Idle and unknown sessions have nothing to cancel, which is no error.
    assert_eq!(agent.call("session/cancel", json!({"sessionId": session})).await.unwrap(), json!({}));
    assert_eq!(agent.call("session/cancel", json!({"sessionId": "s-none"})).await.unwrap(), json!({}));

    let turn = agent.request("session/prompt", text_prompt(&session, "go")).await;
    gate.reached().await;
    agent.recv_until(|message| is_update(message, "agent_message_chunk")).await;
    assert_eq!(agent.call("session/cancel", json!({"sessionId": session})).await.unwrap(), json!({}));
    let result = agent.response(&turn).await.unwrap();
    let content = "one \n\n[turn cancelled via client]";
    assert_eq!(result["content"], json!(content));
    assert_eq!((&result["sessionId"], &result["stopReason"]), (&json!(session), &json!("cancelled")));
    gate.client_gone().await;

    // By the request's id it is the same, and another request's id cancels nothing.
    let turn = agent.request("session/prompt", text_prompt(&session, "go")).await;
    gate_two.reached().await;
    agent.notify("$/cancel_request", json!({"requestId": 123_456})).await;
    agent.notify("$/cancel_request", json!({"requestId": turn.id().to_string()})).await;
    assert!(agent.call("session/list", json!({})).await.is_ok());
    agent.notify("$/cancel_request", json!({"requestId": turn.id()})).await;
    let ended = agent.response(&turn).await;
    let cancelled = |result: &Value| result["stopReason"] == "cancelled";
    let refused = |error: &Value| kind_of(error) == (-32800, "request_cancelled");
    assert!(ended.as_ref().is_ok_and(cancelled) || ended.as_ref().is_err_and(refused), "{ended:?}");
    gate_two.client_gone().await;
}

#[tokio::test]
async fn stop_lets_the_turn_end_and_refuses_the_next() {
    let server = ModelServer::start().await;
    let (reply, gate) = Reply::chunks(["one ", "two"]).gate(1);
    server.push(reply);
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let turn = agent.request("session/prompt", text_prompt(&session, "go")).await;
    gate.reached().await;
    let stop = agent.request("session/stop", json!({"sessionId": session})).await;
    assert!(agent.call("session/prompt", text_prompt(&session, "more")).await.is_err());
    gate.release();
    let stopped = agent.response(&stop).await.unwrap();
    assert_eq!(stopped, json!({"sessionId": session, "stopped": true}));
    let result = agent.response(&turn).await.unwrap();
    assert_eq!((&result["stopReason"], &result["content"]), (&json!("end_turn"), &json!("one two")));
    let received = agent.received();
    let position = |id: &Value| received.iter().position(|message| message["id"] == *id).unwrap();
    assert!(position(turn.id()) < position(stop.id()), "the stop is answered after the turn");
    let error = agent.call("session/prompt", text_prompt(&session, "again")).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32000, "session_not_found"), "{error}");
    let error = agent.call("session/stop", json!({"sessionId": session})).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32000, "session_not_found"), "{error}");
    assert_welcome(&agent.call("session/load", json!({"sessionId": session})).await.unwrap());
}

#[tokio::test]
async fn close_cancels_the_turn_and_keeps_the_record() {
    let server = ModelServer::start().await;
    let (reply, gate) = Reply::chunks(["one ", "two"]).gate(1);
    server.push(reply);
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let turn = agent.request("session/prompt", text_prompt(&session, "go")).await;
    gate.reached().await;
    agent.recv_until(|message| is_update(message, "agent_message_chunk")).await;
    let close = agent.request("session/close", json!({"sessionId": session})).await;
    assert_eq!(agent.response(&close).await.unwrap(), json!({}));
    assert_eq!(agent.response(&turn).await.unwrap()["stopReason"], json!("cancelled"));
    let received = agent.received();
    let position = |id: &Value| received.iter().position(|message| message["id"] == *id).unwrap();
    assert!(position(turn.id()) < position(close.id()), "the close is answered after the turn");
    let error = agent.call("session/close", json!({"sessionId": session})).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32000, "session_not_found"), "{error}");

    // What the close was answered for is on disk already.
    agent.kill9().await;
    let mut agent = lab.agent().await;
    agent.call("session/load", json!({"sessionId": session})).await.unwrap();
    let texts = updates_of(&agent.received(), "agent_message_chunk");
    assert_eq!(texts[0]["content"]["text"], json!("one "));
}

#[tokio::test]
async fn injected_events_reach_the_models_next_turn() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let note = |text: &str| json!({"sessionId": session, "text": text});
    let update = |update: Value| json!({"sessionId": session, "update": update});
    let answered = [
        ("session/update", note("note-1"), "event"),
        ("session/event", note("note-2"), "event"),
        ("session/update", update(json!({"sessionUpdate": "custom", "content": "note-3"})), "custom"),
        ("session/event", update(json!({"type": "my_kind", "content": {"type": "text", "text": "note-4"}})), "my_kind"),
        ("session/update", update(json!({"sessionUpdate": "opaque", "data": {"n": [1, 2]}})), "opaque"),
        ("session/update", json!({"sessionId": session, "type": "bare"}), "bare"),
    ];
    for (method, params, kind) in answered {
        let result = agent.call(method, params).await.unwrap();
        assert_eq!(result, json!({"sessionId": session, "type": kind, "status": "processed"}), "{method}");
    }
    agent.notify("session/update", note("note-5")).await;
    server.push(Reply::text("ok"));
    server.push(Reply::text("ok"));
    prompt(&mut agent, &session, "first").await;
    prompt(&mut agent, &session, "second").await;
    let requests = server.requests();
    let texts = user_texts(&requests[0].body).concat();
    let mut from = 0;
    for expected in ["first", "note-1", "note-2", "note-3", "note-4", "note-5"] {
        let at = texts[from..].find(expected).unwrap_or_else(|| panic!("no {expected} in order in {texts}"));
        from += at;
    }
    let second = user_texts(&requests[1].body);
    assert!(!second.last().unwrap().contains("note-"), "a note is told once: {second:?}");
    assert_eq!(server.violations(), Vec::<String>::new());
    let error = agent.call("session/update", json!({"sessionId": "s-none", "text": "x"})).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32000, "session_not_found"), "{error}");
}

#[tokio::test]
async fn injected_events_are_bounded_in_size_and_number() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let params = |text: &str| json!({"sessionId": session, "text": text});
    let error = agent.call("session/update", params(&"x".repeat(64 * 1024))).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{error}");
    for _ in 0..32 {
        agent.call("session/update", params("note")).await.unwrap();
    }
    let error = agent.call("session/update", params("one more")).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{error}");
    prompt(&mut agent, &session, "/say 1").await;
    agent.call("session/update", params("there is room again")).await.unwrap();
    // Events that are no notes are counted too: they are kept in the session's log.
    let opaque = json!({"sessionId": session, "type": "opaque"});
    let mut taken = 0;
    let error = loop {
        match agent.call("session/update", opaque.clone()).await {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 10_000, "there is a limit");
    };
    assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{error}");
    prompt(&mut agent, &session, "/say 1").await;
    agent.call("session/update", opaque).await.unwrap();
}

#[tokio::test]
async fn resume_replays_nothing_and_knows_everything() {
    let server = ModelServer::start().await;
    server.push(Reply::text("one"));
    server.push(Reply::text("two"));
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "first").await;
    agent.close_stdin();
    assert!(agent.wait().await.success());
    let mut agent = lab.agent().await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    assert_welcome(&agent.call("session/resume", params).await.unwrap());
    assert_eq!(agent.updates(), Vec::<Value>::new());
    assert_eq!(prompt(&mut agent, &session, "second").await["content"], json!("two"));
    assert_eq!(user_texts(&server.requests()[1].body), ["first", "second"]);
    assert!(server.requests()[1].body["messages"].to_string().contains("one"));
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_stored_session_goes_to_its_agent_or_to_the_default_one() {
    let lab = agents(&["one", "two", "three"], "[acp]\ndefault_agent = \"one\"\n");
    let mut agent = lab.agent().await;
    let opened = agent.call("session/new", json!({"agent": "two", "cwd": lab.project()})).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    prompt(&mut agent, &session, "who?").await;
    agent.kill9().await;
    let off = "[agents.two]\nenabled = false\nmodel_provider = \"scripted.one\"\n";
    let cases = [
        (&["one", "two", "three"][..], "[acp]\ndefault_agent = \"one\"\n".to_owned(), Ok("two")),
        (&["one", "three"], format!("{off}[acp]\ndefault_agent = \"three\"\n"), Ok("three")),
        (&["one"], off.to_owned(), Ok("one")),
        (&["three"], String::new(), Ok("three")),
        (&["one", "three"], off.to_owned(), Err((-32602, "invalid_params"))),
    ];
    for (names, more, expected) in cases {
        configure(&lab, names, &more);
        let mut agent = lab.agent().await;
        let resumed = agent.call("session/resume", json!({"sessionId": session})).await;
        match expected {
            Ok(name) => {
                assert_welcome(&resumed.unwrap());
                assert_eq!(prompt(&mut agent, &session, "who?").await["content"], json!(name));
            }
            Err(kind) => assert_eq!(kind_of(&resumed.unwrap_err()), kind),
        }
        agent.close_stdin();
        assert!(agent.wait().await.success());
    }
}

#[tokio::test]
async fn a_load_names_the_sessions_own_directory_or_none() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    for cwd in [json!(lab.home()), json!(lab.project().join("missing")), json!(5)] {
        let error = agent.call("session/load", json!({"sessionId": session, "cwd": cwd})).await.unwrap_err();
        assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{cwd}: {error}");
    }
    for params in [
        json!({"sessionId": session}),
        json!({"sessionId": session, "cwd": lab.project()}),
        json!({"sessionId": session, "cwd": "."}),
        json!({"sessionId": session, "workspaceDir": lab.project(), "mcpServers": []}),
    ] {
        assert_welcome(&agent.call("session/load", params.clone()).await.unwrap());
        agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    }
}

#[tokio::test]
async fn a_session_of_another_live_process_is_not_taken() {
    let lab = Lab::new();
    let (mut first, session) = lab.session().await;
    prompt(&mut first, &session, "/say 1").await;
    let mut second = lab.agent().await;
    for method in ["session/load", "session/resume"] {
        let error = second.call(method, json!({"sessionId": session})).await.unwrap_err();
        assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{method}: {error}");
    }
    first.call("session/close", json!({"sessionId": session})).await.unwrap();
    assert_welcome(&second.call("session/load", json!({"sessionId": session})).await.unwrap());
    let another = new_session(&mut first, &lab.project()).await;
    assert_eq!(prompt(&mut first, &another, "/say 1").await["stopReason"], json!("end_turn"));
}

#[tokio::test]
async fn commands_are_told_again_at_the_first_prompt() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let commands = |messages: &[Value]| updates_of(messages, "available_commands_update").len();
    agent.recv_until(|message| is_update(message, "available_commands_update")).await;
    prompt(&mut agent, &session, "/say 1").await;
    assert_eq!(commands(&agent.received()), 2, "a client that was not ready for the first has the second");
    prompt(&mut agent, &session, "/say 1").await;
    assert_eq!(commands(&agent.received()), 2);
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    agent.call("session/resume", json!({"sessionId": session})).await.unwrap();
    agent.recv_until(|message| message["id"].is_null() && is_update(message, "available_commands_update")).await;
}

#[tokio::test]
async fn every_stop_and_every_close_is_answered() {
    let server = ModelServer::start().await;
    let (reply, gate) = Reply::chunks(["one ", "two"]).gate(1);
    server.push(reply);
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let named = json!({"sessionId": session});
    let turn = agent.request("session/prompt", text_prompt(&session, "go")).await;
    gate.reached().await;
    let first = agent.request("session/stop", named.clone()).await;
    let second = agent.request("session/stop", named.clone()).await;
    // A close does not wait for what the stops wait for.
    let close = agent.request("session/close", named.clone()).await;
    assert_eq!(agent.response(&turn).await.unwrap()["stopReason"], json!("cancelled"));
    assert_eq!(agent.response(&close).await.unwrap(), json!({}));
    for stop in [first, second] {
        assert_eq!(agent.response(&stop).await.unwrap(), json!({"sessionId": session, "stopped": true}));
    }
    gate.client_gone().await;
}

#[tokio::test]
async fn requests_in_flight_are_limited_and_each_is_answered() {
    let server = ModelServer::start().await;
    let (reply, gate) = Reply::text("done").gate(0);
    server.push(reply);
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let turn = agent.request("session/prompt", text_prompt(&session, "go")).await;
    gate.reached().await;
    let mut stops = Vec::new();
    for _ in 1..1024 {
        stops.push(agent.request("session/stop", json!({"sessionId": session})).await);
    }
    let error = agent.call("session/list", json!({})).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32600, "invalid_request"), "{error}");
    gate.release();
    assert_eq!(agent.response(&turn).await.unwrap()["stopReason"], json!("end_turn"));
    for stop in stops {
        assert_eq!(agent.response(&stop).await.unwrap()["stopped"], json!(true));
    }
    assert!(agent.call("session/list", json!({})).await.is_ok());
}

#[tokio::test]
async fn a_load_right_behind_a_close_gets_a_whole_session_or_none() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 1").await;
    for _ in 0..10 {
        let call = |id: &str, method: &str| {
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {"sessionId": session}}).to_string() + "\n"
        };
        agent.send_raw((call("c", "session/close") + &call("l", "session/load")).as_bytes()).await;
        let mut answers = Vec::new();
        while answers.len() < 2 {
            answers.push(zeroclaw_e2e::next_response(&mut agent).await);
        }
        answers.sort_by_key(|answer| answer["id"].to_string());
        assert_eq!(answers[0]["result"], json!({}), "{answers:?}");
        if let Some(error) = answers[1].get("error") {
            assert_eq!(kind_of(error), (-32000, "session_not_found"), "{error}");
            agent.call("session/load", json!({"sessionId": session})).await.unwrap();
        }
        let result = prompt(&mut agent, &session, "/say 1").await;
        assert_eq!(result.get("_meta"), None, "the turn was stored: {result}");
    }
    agent.kill9().await;
    let mut agent = lab.agent().await;
    agent.call("session/load", json!({"sessionId": session})).await.unwrap();
    assert_eq!(updates_of(&agent.received(), "user_message_chunk").len(), 11);
}
