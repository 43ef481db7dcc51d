//! What a client chooses in a session: modes and options that agree, commands, instructions, copies and removal.

use std::fs;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, answer_text, new_session, prompt, updates_of};
use zeroclaw_testkit::{
    model_server::{ModelServer, Reply},
    process::AgentProcess,
};

fn option<'a>(options: &'a Value, id: &str) -> &'a Value {
    options.as_array().unwrap().iter().find(|option| option["id"] == id).unwrap()
}

fn values(option: &Value) -> Vec<&str> {
    option["options"].as_array().unwrap().iter().map(|value| value["value"].as_str().unwrap()).collect()
}

async fn opened(lab: &Lab) -> (AgentProcess, Value) {
    let mut agent = lab.agent().await;
    let result = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.unwrap();
    (agent, result)
}

/// Two models of one server, so that requests show which one was asked.
fn two_models(uri: &str, extra: &str) -> Lab {
    Lab::with_config(&format!(
        "[providers.models.custom.one]\nmodel = \"model-one\"\nuri = \"{uri}\"\napi_key = \"k\"\n\
         [providers.models.custom.two]\nmodel = \"model-two\"\nuri = \"{uri}\"\napi_key = \"k\"\n\
         [agents.main]\nmodel_provider = \"custom.one\"\n[risk_profiles.default]\n{extra}\n"
    ))
}

#[tokio::test]
async fn modes_and_options_agree_from_either_side() {
    let lab = Lab::new();
    let (mut agent, new) = opened(&lab).await;
    let session = new["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(new["modes"]["currentModeId"], "supervised");
    let modes: Vec<&Value> =
        new["modes"]["availableModes"].as_array().unwrap().iter().map(|mode| &mode["id"]).collect();
    assert_eq!(modes, ["readonly", "supervised"], "only the operator lets a client go to `full`");
    assert_eq!(values(option(&new["configOptions"], "mode")), ["readonly", "supervised"]);
    assert_eq!(option(&new["configOptions"], "mode")["currentValue"], "supervised");
    assert_eq!(option(&new["configOptions"], "model")["currentValue"], "builtin.default");

    let set = json!({"sessionId": session, "modeId": "readonly"});
    assert_eq!(agent.call("session/set_mode", set).await.unwrap(), json!({}));
    let told = agent.collected();
    assert_eq!(updates_of(&told, "current_mode_update")[0]["currentModeId"], "readonly");
    let options = &updates_of(&told, "config_option_update")[0]["configOptions"];
    assert_eq!(option(options, "mode")["currentValue"], "readonly");
    prompt(&mut agent, &session, "/run touch made").await;
    assert!(!lab.project().join("made").exists());

    let set = json!({"sessionId": session, "configId": "mode", "value": "supervised"});
    let result = agent.call("session/set_config_option", set).await.unwrap();
    assert_eq!(option(&result["configOptions"], "mode")["currentValue"], "supervised");
    let told = agent.collected();
    assert_eq!(updates_of(&told, "current_mode_update").last().unwrap()["currentModeId"], "supervised");
    agent.auto_permit("allow-once");
    prompt(&mut agent, &session, "/run touch made").await;
    assert!(lab.project().join("made").exists());
}

#[tokio::test]
async fn what_is_not_on_offer_is_refused_and_changes_nothing() {
    let lab = Lab::new();
    let (mut agent, new) = opened(&lab).await;
    let session = new["sessionId"].clone();
    let refused = [
        ("session/set_mode", json!({"sessionId": session, "modeId": "full"})),
        ("session/set_mode", json!({"sessionId": session, "modeId": "yolo"})),
        ("session/set_mode", json!({"sessionId": session})),
        ("session/set_config_option", json!({"sessionId": session, "configId": "mode", "value": "full"})),
        ("session/set_config_option", json!({"sessionId": session, "configId": "model", "value": "x.y"})),
        ("session/set_config_option", json!({"sessionId": session, "configId": "speed", "value": "fast"})),
        (
            "session/set_config_option",
            json!({"sessionId": session, "configId": "mode", "type": "boolean", "value": true}),
        ),
    ];
    for (method, params) in refused {
        let error = agent.call(method, params.clone()).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{method} {params}: {error}");
    }
    let error = agent.call("session/set_mode", json!({"sessionId": "s-none", "modeId": "readonly"})).await.unwrap_err();
    assert_eq!(error["data"]["kind"], "session_not_found");
    let resumed = agent.call("session/resume", json!({"sessionId": session, "cwd": lab.project()})).await.unwrap();
    assert_eq!(resumed["modes"]["currentModeId"], "supervised");
}

#[tokio::test]
async fn the_operator_caps_the_mode_and_lifts_the_cap() {
    let server = ModelServer::start().await;
    let capped = two_models(&server.openai_url(), "level = \"supervised\"\nmax_level = \"readonly\"");
    let (_agent, new) = opened(&capped).await;
    assert_eq!(new["modes"]["currentModeId"], "readonly");
    assert_eq!(values(option(&new["configOptions"], "mode")), ["readonly"]);
    let lifted = two_models(&server.openai_url(), "level = \"readonly\"\nmax_level = \"full\"");
    let (_agent, new) = opened(&lifted).await;
    assert_eq!(new["modes"]["currentModeId"], "readonly");
    assert_eq!(values(option(&new["configOptions"], "mode")), ["readonly", "supervised", "full"]);
}

#[tokio::test]
async fn the_chosen_model_is_asked_and_remembered() {
    let server = ModelServer::start().await;
    let lab = two_models(&server.openai_url(), "level = \"supervised\"");
    let (mut agent, new) = opened(&lab).await;
    let session = new["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(values(option(&new["configOptions"], "model")), ["custom.one", "custom.two"]);
    let set = json!({"sessionId": session, "configId": "model", "value": "custom.two"});
    agent.call("session/set_config_option", set).await.unwrap();
    server.push(Reply::text("a"));
    prompt(&mut agent, &session, "first").await;
    assert_eq!(server.requests()[0].body["model"], "model-two");
    agent.kill9().await;

    let mut agent = lab.agent().await;
    let loaded =
        agent.call("session/load", json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []})).await;
    assert_eq!(option(&loaded.unwrap()["configOptions"], "model")["currentValue"], "custom.two");
    server.push(Reply::text("b"));
    prompt(&mut agent, &session, "/model custom.one").await;
    prompt(&mut agent, &session, "second").await;
    assert_eq!(server.requests()[1].body["model"], "model-one", "the command asked no model");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn session_commands_answer_without_a_model() {
    let server = ModelServer::start().await;
    let lab = two_models(&server.openai_url(), "level = \"supervised\"");
    let (mut agent, session) = lab.session().await;
    for (text, expected) in [
        ("/mode", "`supervised` Supervised (in force)"),
        ("/mode nonsense", "there is no such mode"),
        ("/mode readonly", "Mode is now `readonly`."),
        ("/model", "`custom.two` model-two"),
        ("/usage", "Tokens used in this session: 0 in"),
    ] {
        let result = prompt(&mut agent, &session, text).await;
        assert_eq!(result["stopReason"], "end_turn");
        assert!(result["content"].as_str().unwrap().contains(expected), "{text}: {result}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn files_become_commands() {
    let server = ModelServer::start().await;
    let lab = two_models(&server.openai_url(), "level = \"supervised\"");
    let text = "---\ndescription: Look at a change\nargument-hint: REV\n---\nReview $ARGUMENTS carefully.\n";
    lab.file(".zeroclaw/commands/review.md", text);
    lab.file(".zeroclaw/commands/model.md", "must not hide a command of the session");
    fs::create_dir_all(lab.project().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", lab.project().join(".zeroclaw/commands/leak.md")).unwrap();
    let (mut agent, session) = lab.session().await;
    let announced = agent
        .recv_until(|message| !updates_of(std::slice::from_ref(message), "available_commands_update").is_empty())
        .await;
    let commands = updates_of(&announced, "available_commands_update")[0]["availableCommands"].clone();
    let names: Vec<&str> =
        commands.as_array().unwrap().iter().map(|command| command["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["model", "mode", "usage", "compact", "review"]);
    let review = &commands.as_array().unwrap()[4];
    assert_eq!((&review["description"], &review["input"]["hint"]), (&json!("Look at a change"), &json!("REV")));
    server.push(Reply::text("fine"));
    prompt(&mut agent, &session, "/review HEAD~1").await;
    let body = server.requests()[0].body.to_string();
    assert!(body.contains("Review HEAD~1 carefully."), "{body}");
    agent.collected();
    agent.call("session/load", json!({"sessionId": session, "cwd": lab.project()})).await.unwrap();
    let said = updates_of(&agent.collected(), "user_message_chunk");
    assert_eq!(said[0]["content"]["text"], "/review HEAD~1", "a replay shows what was typed");
}

#[tokio::test]
async fn the_clients_instructions_reach_the_model() {
    let server = ModelServer::start().await;
    let lab = two_models(&server.openai_url(), "level = \"supervised\"");
    let mut agent = lab.agent().await;
    let block = |text: &str| json!([{"type": "text", "text": text}]);
    for (mode, keeps_own) in [("append", true), ("override", false)] {
        let params = json!({"cwd": lab.project(), "mcpServers": [], "systemPrompt": {"mode": mode, "content": block("Speak in rhymes.")}});
        let session = agent.call("session/new", params).await.unwrap()["sessionId"].as_str().unwrap().to_owned();
        server.push(Reply::text("ok"));
        prompt(&mut agent, &session, "hello").await;
        let body = server.requests().pop().unwrap().body.to_string();
        assert!(body.contains("Speak in rhymes."), "{mode}");
        assert_eq!(body.contains("You are a coding agent"), keeps_own, "{mode}");
        assert!(body.contains("Working directory"), "what the environment says stays: {mode}");
    }
    for bad in [
        json!({"mode": "prepend", "content": block("x")}),
        json!({"mode": "append", "content": []}),
        json!({"mode": "append", "content": [{"type": "image", "data": "", "mimeType": "image/png"}]}),
        json!("x"),
    ] {
        let error = agent.call("session/new", json!({"cwd": lab.project(), "systemPrompt": bad})).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{bad}: {error}");
    }
}

#[tokio::test]
async fn a_deleted_session_is_gone_with_its_attachments() {
    let lab = Lab::new();
    let (mut agent, first) = lab.session().await;
    let second = new_session(&mut agent, &lab.project()).await;
    let upload = |text: &str| {
        json!([{"type": "text", "text": "/say 1"},
            {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": STANDARD.encode(text)}}])
    };
    for (session, text) in [(&first, "own"), (&first, "shared"), (&second, "shared")] {
        agent.call("session/prompt", json!({"sessionId": session, "prompt": upload(text)})).await.unwrap();
    }
    let uploads = lab.project().join("uploads");
    assert_eq!(fs::read_dir(&uploads).unwrap().count(), 2);
    assert_eq!(agent.call("session/delete", json!({"sessionId": first})).await.unwrap(), json!({}));
    let left: Vec<Vec<u8>> =
        fs::read_dir(&uploads).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    assert_eq!(left, [b"shared".to_vec()]);
    assert_eq!(agent.call("session/delete", json!({"sessionId": first})).await.unwrap(), json!({}), "again");
    for (method, params) in [
        ("session/prompt", json!({"sessionId": first, "prompt": "x"})),
        ("session/load", json!({"sessionId": first, "cwd": lab.project()})),
        ("session/resume", json!({"sessionId": first, "cwd": lab.project()})),
    ] {
        assert_eq!(agent.call(method, params).await.unwrap_err()["data"]["kind"], "session_not_found", "{method}");
    }
    let list = agent.call("session/list", json!({})).await.unwrap();
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn deleting_a_session_ends_its_turn_first() {
    let lab = Lab::with_config(
        "[providers.models.builtin.b]\n[agents.main]\nmodel_provider = \"builtin.b\"\n[risk_profiles.default]\nlevel = \"full\"\n",
    );
    let (mut agent, session) = lab.session().await;
    let turn = agent.request("session/prompt", json!({"sessionId": session, "prompt": "/run sleep 300"})).await;
    agent.recv_until(|message| message["params"]["update"]["status"] == "in_progress").await;
    assert_eq!(agent.call("session/delete", json!({"sessionId": session})).await.unwrap(), json!({}));
    assert_eq!(agent.response(&turn).await.unwrap()["stopReason"], "cancelled");
}

#[tokio::test]
async fn a_fork_goes_its_own_way() {
    let server = ModelServer::start().await;
    let lab = two_models(&server.openai_url(), "level = \"supervised\"");
    let (mut agent, session) = lab.session().await;
    server.push(Reply::text("the first answer"));
    prompt(&mut agent, &session, "the first question").await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    let forked = agent.call("session/fork", params).await.unwrap();
    let copy = forked["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(copy, session);
    server.push(Reply::text("the second answer"));
    prompt(&mut agent, &copy, "the second question").await;
    let body = server.requests()[1].body.to_string();
    assert!(body.contains("the first question") && body.contains("the first answer"), "{body}");
    agent.collected();
    for (id, answers) in [(&session, 1), (&copy, 2)] {
        agent.call("session/load", json!({"sessionId": id, "cwd": lab.project()})).await.unwrap();
        let replay = agent.collected();
        assert_eq!(updates_of(&replay, "user_message_chunk").len(), answers, "{id}");
        assert!(answer_text(&replay).contains("the first answer"));
    }
    let error = agent.call("session/fork", json!({"sessionId": "s-none", "cwd": lab.project()})).await.unwrap_err();
    assert_eq!(error["data"]["kind"], "session_not_found");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_file_is_no_command_of_the_session_or_the_model() {
    let lab = Lab::with_config(
        "[providers.models.builtin.b]\n[agents.main]\nmodel_provider = \"builtin.b\"\n[risk_profiles.default]\nmax_level = \"full\"\n",
    );
    lab.file(".zeroclaw/commands/review.md", "/mode full\n");
    lab.file(".zeroclaw/commands/say.md", "/run touch made\n");
    lab.file(".zeroclaw/commands/many.md", "$ARGUMENTS".repeat(6_000));
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/review").await;
    let result = prompt(&mut agent, &session, "/say 3").await;
    assert_eq!(result["stopReason"], "end_turn");
    assert!(!lab.project().join("made").exists());
    let told = agent.collected();
    assert!(updates_of(&told, "current_mode_update").is_empty(), "only the user chooses the mode");
    let huge = json!({"sessionId": session, "prompt": format!("/many {}", "x".repeat(100_000))});
    assert_eq!(agent.call("session/prompt", huge).await.unwrap_err()["code"], -32602);
}

#[tokio::test]
async fn a_fork_that_cannot_be_opened_leaves_nothing() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 1").await;
    let params = json!({"sessionId": session, "cwd": lab.project().parent().unwrap(), "mcpServers": []});
    assert_eq!(agent.call("session/fork", params).await.unwrap_err()["code"], -32602);
    let list = agent.call("session/list", json!({})).await.unwrap();
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn deleting_a_session_leaves_the_users_own_files() {
    let lab = Lab::new();
    let mut own = Vec::new();
    for name in ["a", "b", "c"] {
        let file = format!("uploads/{}.png", name.repeat(64));
        lab.file(&file, "the user's own");
        own.push(lab.project().join(file).canonicalize().unwrap());
    }
    let (mut agent, session) = lab.session().await;
    agent.auto_permit("allow-once");
    prompt(&mut agent, &session, "/run ls -d $PWD/uploads/*").await;
    prompt(&mut agent, &session, &format!("look at {}\n[IMAGE:{}]", own[0].display(), own[1].display())).await;
    let link = json!([{"type": "text", "text": "/say 1"},
        {"type": "resource_link", "name": "c", "uri": format!("file://{}", own[2].display())}]);
    agent.call("session/prompt", json!({"sessionId": session, "prompt": link})).await.unwrap();
    assert_eq!(agent.call("session/delete", json!({"sessionId": session})).await.unwrap(), json!({}));
    assert!(own.iter().all(|file| file.exists()));
}

/// What closes a session and what opens it again are worked off in order, and a cancel reaches the prompt behind both.
#[tokio::test]
async fn a_session_reopened_in_one_write_takes_its_cancel_and_its_end() {
    let lab = Lab::with_config(
        "[providers.models.builtin.b]\n[agents.main]\nmodel_provider = \"builtin.b\"\n[risk_profiles.default]\nlevel = \"full\"\n",
    );
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 1").await;
    let line = |id: &str, method: &str, more: Value| {
        let mut params = json!({"sessionId": session, "cwd": lab.project()});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    };
    for round in 0..20 {
        let ids = [format!("c{round}"), format!("l{round}"), format!("p{round}"), format!("x{round}")];
        let text = [
            line(&ids[0], if round % 2 == 0 { "session/close" } else { "session/stop" }, json!({})),
            line(&ids[1], "session/load", json!({})),
            line(&ids[2], "session/prompt", json!({"prompt": "/run sleep 300"})),
            line(&ids[3], "session/cancel", json!({})),
        ];
        agent.send_raw(text.concat().as_bytes()).await;
        let seen = agent.recv_until(|message| message["id"] == ids[2]).await;
        assert_eq!(seen.last().unwrap()["result"]["stopReason"], "cancelled", "round {round}: {seen:?}");
    }
    let text = [
        line("c", "session/close", json!({})),
        line("l", "session/load", json!({})),
        line("p", "session/prompt", json!({"prompt": "/run sleep 300"})),
    ];
    agent.send_raw(text.concat().as_bytes()).await;
    agent.close_stdin();
    let rest = agent.drain().await;
    for id in ["c", "l", "p"] {
        assert_eq!(rest.iter().filter(|message| message["id"] == id).count(), 1, "{id}: {rest:?}");
    }
    assert!(agent.wait().await.success());
}

/// A load behind a delete must not bring back what is being deleted.
#[tokio::test]
async fn a_load_behind_a_delete_finds_nothing() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    for round in 0..20 {
        let session = new_session(&mut agent, &lab.project()).await;
        prompt(&mut agent, &session, "/say 1").await;
        if round % 2 == 0 {
            agent.call("session/close", json!({"sessionId": session})).await.unwrap();
        }
        let delete = agent.request("session/delete", json!({"sessionId": session})).await;
        let load = agent.request("session/load", json!({"sessionId": session, "cwd": lab.project()})).await;
        assert_eq!(agent.response(&delete).await.unwrap(), json!({}));
        let error = agent.response(&load).await.unwrap_err();
        assert_eq!(error["data"]["kind"], "session_not_found", "round {round}: {error}");
    }
}

/// A copy made while a tool runs shows the call as interrupted, not as running for ever.
#[tokio::test]
async fn a_fork_made_during_a_turn_shows_it_as_interrupted() {
    let lab = Lab::with_config(
        "[providers.models.builtin.b]\n[agents.main]\nmodel_provider = \"builtin.b\"\n[risk_profiles.default]\nlevel = \"full\"\n",
    );
    let (mut agent, session) = lab.session().await;
    let turn = agent.request("session/prompt", json!({"sessionId": session, "prompt": "/run sleep 300"})).await;
    agent.recv_until(|message| message["params"]["update"]["status"] == "in_progress").await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    let copy = agent.call("session/fork", params).await.unwrap()["sessionId"].as_str().unwrap().to_owned();
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(agent.response(&turn).await.unwrap()["stopReason"], "cancelled");
    agent.collected();
    agent.call("session/load", json!({"sessionId": copy, "cwd": lab.project()})).await.unwrap();
    let replay = agent.collected();
    assert_eq!(updates_of(&replay, "tool_call_update").last().unwrap()["status"], "failed", "{replay:?}");
    assert!(answer_text(&replay).contains("interrupted"), "{replay:?}");
    assert_eq!(prompt(&mut agent, &copy, "/say 1").await["stopReason"], "end_turn");
}
