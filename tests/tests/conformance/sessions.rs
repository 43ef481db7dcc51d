//! The rules about setting up, loading, resuming, closing and listing sessions, and about what can be chosen in them.

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, answer_text, new_session, prompt, replay, text_prompt, updates_of};

use super::conversation::{client, drive, everything, kinds};
use crate::turns::{builtin, end_turn, is_update, runs};

#[tokio::test]
async fn ses_1_every_new_session_has_an_id_of_its_own() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..5 {
        ids.insert(new_session(&mut agent, &lab.project()).await);
    }
    let mut other = lab.agent().await;
    ids.insert(new_session(&mut other, &lab.project()).await);
    assert_eq!(ids.len(), 6, "{ids:?}");
}

#[tokio::test]
async fn ses_2_a_load_replays_the_whole_conversation_and_then_answers() {
    let lab = builtin("full");
    lab.file("a.txt", "alpha\n");
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/think hm\n/read a.txt\n/edit a.txt alpha => beta\n/plan one; two\n/say 3").await;
    let live = replay::seen(&agent, &session);
    agent.kill9().await;
    let mut agent = lab.agent().await;
    let loaded = replay::load(&mut agent, &session, &lab.project()).await;
    replay::assert_same(&replay::without_user(&loaded), &live, "what was shown live");
    assert_eq!(loaded.iter().filter(|update| replay::kind(update) == "user_message_chunk").count(), 1);
}

#[tokio::test]
async fn ses_3_a_resume_replays_nothing_before_its_answer() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/plan one; two\n/say 3").await;
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    agent.collected();
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    agent.call("session/resume", params).await.unwrap();
    let before = agent.collected();
    assert_eq!(before, Vec::<Value>::new());
}

#[tokio::test]
async fn ses_4_a_close_ends_the_turn_as_a_cancel_and_frees_the_session() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let running = agent.request("session/prompt", text_prompt(&session, "/run sleep 600")).await;
    agent.recv_until(runs).await;
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    assert_eq!(agent.response(&running).await.unwrap()["stopReason"], "cancelled");
    let error = agent.call("session/prompt", text_prompt(&session, "/say 1")).await.unwrap_err();
    assert_eq!(error["data"]["kind"], "session_not_found", "{error}");
}

#[tokio::test]
async fn ses_5_the_directory_is_the_one_of_the_request_wherever_the_process_is() {
    let lab = builtin("supervised");
    lab.file("deep/a.txt", "in the project\n");
    let mut agent = client(&lab, json!({})).await;
    let session = new_session(&mut agent, &lab.project()).await;
    // Relative paths begin there, commands run there, and the file tools stay in it.
    let (result, seen) = drive(&mut agent, &session, "/read deep/a.txt\n/run pwd").await;
    assert_eq!(result["stopReason"], "end_turn");
    let shown = Value::from(seen).to_string();
    assert!(shown.contains("in the project"), "{shown}");
    let project = lab.project().display().to_string();
    let printed = updates_of(&agent.received(), "tool_call_update");
    assert!(printed.iter().any(|update| update["rawOutput"].to_string().contains(&project)), "{printed:?}");
    std::fs::write(lab.home().join("outside.txt"), "secret of the home").unwrap();
    let outside = lab.home().join("outside.txt");
    let (_, seen) = drive(&mut agent, &session, &format!("/read {}", outside.display())).await;
    assert!(!Value::from(seen).to_string().contains("secret of the home"));
}

#[tokio::test]
async fn ses_6_further_directories_are_absolute() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    for wrong in ["other", "./other", "../other", ""] {
        let params = json!({"cwd": lab.project(), "mcpServers": [], "additionalDirectories": [wrong]});
        let error = agent.call("session/new", params).await.unwrap_err();
        assert_eq!(error["code"], json!(-32602), "{wrong}: {error}");
    }
    let params = json!({"cwd": lab.project(), "mcpServers": [], "additionalDirectories": [lab.home()]});
    agent.call("session/new", params).await.unwrap();
}

#[tokio::test]
async fn list_1_a_list_is_a_list_and_may_be_empty() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    assert_eq!(agent.call("session/list", json!({})).await.unwrap()["sessions"], json!([]));
    let session = new_session(&mut agent, &lab.project()).await;
    prompt(&mut agent, &session, "/say 1").await;
    let listed = agent.call("session/list", json!({})).await.unwrap();
    assert_eq!(listed["sessions"][0]["sessionId"], json!(session), "{listed}");
    let elsewhere = agent.call("session/list", json!({"cwd": lab.home()})).await.unwrap();
    assert_eq!(elsewhere["sessions"], json!([]));
}

#[tokio::test]
async fn sys_1_a_system_prompt_that_cannot_be_applied_is_an_error() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let text = json!([{"type": "text", "text": "be brief"}]);
    let image = json!([{"type": "image", "data": "AAAA", "mimeType": "image/png"}]);
    for wrong in [
        json!({"mode": "whisper", "content": text}),
        json!({"mode": "append", "content": image}),
        json!({"mode": "append"}),
        json!(7),
    ] {
        let params = json!({"cwd": lab.project(), "mcpServers": [], "systemPrompt": wrong});
        let error = agent.call("session/new", params).await.unwrap_err();
        assert_eq!(error["code"], json!(-32602), "{wrong}: {error}");
    }
    for mode in ["append", "override"] {
        let params = json!({"cwd": lab.project(), "mcpServers": [], "systemPrompt": {"mode": mode, "content": text}});
        agent.call("session/new", params).await.unwrap();
    }
}

#[tokio::test]
async fn opt_1_initial_options_that_are_not_known_are_ignored() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let params =
        json!({"cwd": lab.project(), "mcpServers": [], "configOptions": [{"configId": "of_the_future", "value": "x"}]});
    let opened = agent.call("session/new", params).await.unwrap();
    assert!(opened["sessionId"].is_string(), "{opened}");
}

/// The options of a new session of a client with these capabilities.
async fn options(capabilities: Value) -> Vec<Value> {
    let lab = Lab::new();
    let mut agent = client(&lab, capabilities).await;
    let opened = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.unwrap();
    opened["configOptions"].as_array().expect("options").clone()
}

#[tokio::test]
async fn cfg_1_a_client_that_does_not_know_switches_gets_none() {
    let options = options(json!({})).await;
    assert!(!options.is_empty());
    assert!(options.iter().all(|option| option["type"] == "select"), "{options:?}");
}

#[tokio::test]
async fn cfg_2_every_option_has_a_value_from_the_start() {
    for option in options(everything()).await {
        let current = &option["currentValue"];
        let offered = option["options"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_offered = offered.iter().any(|value| value["value"] == *current);
        assert!(is_offered || current.is_boolean(), "{option}");
    }
}

#[tokio::test]
async fn cfg_3_setting_an_option_answers_all_of_them() {
    let lab = Lab::new();
    let mut agent = client(&lab, json!({})).await;
    let opened = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.unwrap();
    let ids = |options: &Value| -> Vec<Value> {
        options.as_array().expect("a list").iter().map(|option| option["id"].clone()).collect()
    };
    let params = json!({"sessionId": opened["sessionId"], "configId": "mode", "value": "readonly"});
    let answer = agent.call("session/set_config_option", params).await.unwrap();
    assert_eq!(ids(&answer["configOptions"]), ids(&opened["configOptions"]));
    let mode =
        answer["configOptions"].as_array().unwrap().iter().find(|option| option["id"] == "mode").unwrap().clone();
    assert_eq!(mode["currentValue"], "readonly");
}

#[tokio::test]
async fn cfg_4_options_are_set_by_their_ids_whatever_their_categories() {
    let lab = Lab::new();
    let mut agent = client(&lab, json!({})).await;
    let opened = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.unwrap();
    let options = opened["configOptions"].as_array().unwrap();
    let ids: std::collections::BTreeSet<&str> = options.iter().filter_map(|option| option["id"].as_str()).collect();
    assert_eq!(ids.len(), options.len(), "the ids tell the options apart: {options:?}");
    for option in options {
        for value in option["options"].as_array().unwrap() {
            let params = json!({"sessionId": opened["sessionId"], "configId": option["id"], "value": value["value"]});
            agent.call("session/set_config_option", params).await.unwrap();
        }
    }
}

#[tokio::test]
async fn auth_1_a_login_in_the_terminal_is_offered_to_those_who_asked_for_it_only() {
    let lab = Lab::with_config(
        "[providers.models.openai.home]\nmodel = \"gpt\"\n[agents.main]\nmodel_provider = \"openai.home\"\n",
    );
    let hello = lab.start().call("initialize", json!({"protocolVersion": 1})).await.unwrap();
    let methods = hello["authMethods"].as_array().unwrap();
    assert!(!methods.is_empty(), "there is no key, so there is a login: {hello}");
    for method in methods {
        assert!(method.get("type").is_none_or(|kind| kind == "agent"), "{method}");
    }
}

#[tokio::test]
async fn plan_1_every_update_of_the_plan_has_all_entries() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let seen = end_turn(&mut agent, &session, "/plan one; two; three").await.messages;
    let plans = updates_of(&seen, "plan");
    assert!(!plans.is_empty());
    for plan in plans {
        let entries = plan["entries"].as_array().unwrap();
        let contents: Vec<&str> = entries.iter().filter_map(|entry| entry["content"].as_str()).collect();
        assert_eq!(contents, ["one", "two", "three"]);
        assert!(entries.iter().all(|entry| entry["priority"].is_string() && entry["status"].is_string()), "{plan}");
    }
    assert!(seen.iter().all(|message| !is_update(message, "plan_update")), "{:?}", kinds(&seen));
    assert!(answer_text(&seen).len() < 4096);
}
