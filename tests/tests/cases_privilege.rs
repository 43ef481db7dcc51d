//! Rights: nothing that an agent starts has more of them than it, and a name is never made into a path.

use std::{collections::BTreeSet, fs};

use serde_json::json;
use zeroclaw_e2e::{Lab, binary};
use zeroclaw_testkit::model_server::{ModelServer, Reply};

use crate::turns::{builtin, end_turn, files_below, last_update};

/// A restricted agent started one without restrictions. There is no tool that starts agents, and what a command starts is
/// held by the sandbox of the command, this very program included.
#[tokio::test]
async fn sec_07_an_agent_in_a_command_has_no_more_rights_than_the_command() {
    let model = ModelServer::start().await;
    model.push(Reply::text("fine"));
    let lab = Lab::custom("supervised", &model.openai_url());
    let (mut agent, session) = lab.session().await;
    end_turn(&mut agent, &session, "hello").await;
    let tools = model.requests()[0].body["tools"].as_array().unwrap().clone();
    let names: BTreeSet<&str> = tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    let expected = [
        "file_read",
        "file_write",
        "file_edit",
        "list_dir",
        "glob_search",
        "content_search",
        "shell",
        "todo_write",
        "ask_user",
        "escalate_to_human",
        "deliver_file",
    ];
    assert_eq!(names, BTreeSet::from(expected), "a tool that starts agents would have to hand its limits on");

    if !crate::sandbox::confines().await {
        return;
    }
    let lab = builtin("full");
    let beside = lab.project().parent().unwrap().join("beside");
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("secret"), "hunter2").unwrap();
    fs::copy(binary("zeroclaw"), lab.project().join("inner-agent")).unwrap();
    lab.file("inner/config.toml", "[autonomy]\nlevel = \"full\"\n[sandbox]\nbackend = \"none\"\n");
    let (mut agent, session) = lab.session().await;
    for (cwd, prompt) in [
        (&beside, "/read secret"),
        (&beside, "/edit secret hunter => owned"),
        (&beside, "/write new owned"),
        (&beside, "/run cat secret; echo owned >secret; echo tried"),
        (&lab.project(), "/run cat ../beside/secret; echo owned >../beside/new; echo tried"),
    ] {
        let command =
            format!("/run ./inner-agent --config-dir inner prompt --approve all --cwd '{}' '{prompt}'", cwd.display());
        let turn = end_turn(&mut agent, &session, &command).await;
        let said = last_update(&turn.messages)["rawOutput"].as_str().unwrap().to_owned();
        assert!(said.contains("ermission denied"), "{prompt}: {said}");
        assert!(!said.contains("hunter2"), "{prompt}: {said}");
    }
    assert_eq!(files_below(&beside), ["secret"]);
    assert_eq!(fs::read_to_string(beside.join("secret")).unwrap(), "hunter2");
}

/// A name with a path in it was made into a path.
#[tokio::test]
async fn sec_11_a_name_is_never_a_path() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    let before = files_below(&lab.home());
    let names = [
        "../../../etc".to_owned(),
        "a/b".to_owned(),
        "..".to_owned(),
        ".".to_owned(),
        "/etc/passwd".to_owned(),
        "a\0b".to_owned(),
        "x".repeat(300),
        format!("{session}/../{session}"),
        format!("../{session}"),
    ];
    for name in &names {
        let new = json!({"cwd": lab.project(), "mcpServers": [], "agentAlias": name});
        let error = agent.call("session/new", new).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{name:?}: {error}");
        for (method, params) in [
            ("session/load", json!({"sessionId": name, "cwd": lab.project(), "mcpServers": []})),
            ("session/resume", json!({"sessionId": name, "cwd": lab.project(), "mcpServers": []})),
            ("session/prompt", json!({"sessionId": name, "prompt": "hello"})),
            ("session/close", json!({"sessionId": name})),
            ("session/stop", json!({"sessionId": name})),
        ] {
            let error = agent.call(method, params).await.unwrap_err();
            assert!(matches!(error["code"].as_i64(), Some(-32000 | -32602)), "{method} {name:?}: {error}");
        }
        // What is not there is deleted without an error, and nothing else is.
        let _ = agent.call("session/delete", json!({"sessionId": name})).await;
    }
    assert_eq!(files_below(&lab.home()), before);
    assert!(files_below(&lab.project()).is_empty());
    let list = agent.call("session/list", json!({})).await.unwrap();
    assert_eq!(list["sessions"][0]["sessionId"], json!(session), "the session is still there");
}
