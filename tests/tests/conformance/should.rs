//! What an agent should do: the recommendations of the specification that this server follows.

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, initialize, new_session};

use super::conversation::client;

/// The error of a call that has to fail.
async fn refused(lab: &Lab, variables: &[(&str, &str)], method: &str, params: Value) -> Value {
    let mut agent = lab.start_with(variables);
    initialize(&mut agent).await;
    agent.call(method, params).await.expect_err("the call was taken")
}

const SPEC: &[(&str, &str)] = &[("ZEROCLAW_acp__error_codes", "spec")];

#[tokio::test]
async fn should_01_the_agent_introduces_itself() {
    let hello = initialize(&mut Lab::new().start()).await;
    let info = &hello["agentInfo"];
    assert!(info["name"] == "zeroclaw-acp" && info["version"].is_string(), "{hello}");
}

#[tokio::test]
async fn should_02_a_cursor_that_is_not_ours_is_an_error() {
    let error = refused(&Lab::new(), &[], "session/list", json!({"cursor": "zzz"})).await;
    assert_eq!(error["code"], json!(-32602), "{error}");
}

#[tokio::test]
async fn should_03_deleting_what_is_not_there_succeeds() {
    let mut agent = Lab::new().agent().await;
    assert_eq!(agent.call("session/delete", json!({"sessionId": "s-none"})).await, Ok(json!({})));
}

#[tokio::test]
async fn should_04_modes_and_options_are_both_offered_and_agree() {
    let lab = Lab::new();
    let mut agent = client(&lab, json!({})).await;
    let opened = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.unwrap();
    let options = opened["configOptions"].as_array().unwrap();
    let mode = options.iter().find(|option| option["category"] == "mode").expect("a mode among the options");
    assert_eq!(mode["currentValue"], opened["modes"]["currentModeId"]);
}

#[tokio::test]
async fn should_05_an_unknown_session_is_named() {
    let error = refused(&Lab::new(), SPEC, "session/prompt", json!({"sessionId": "s-none", "prompt": []})).await;
    assert_eq!((&error["code"], &error["data"]["sessionId"]), (&json!(-32002), &json!("s-none")), "{error}");
}

#[tokio::test]
async fn should_06_a_method_that_is_not_offered_does_not_exist() {
    for method in ["session/set_title", "providers/list", "mcp/message", "_other/method"] {
        let error = refused(&Lab::new(), &[], method, json!({})).await;
        assert_eq!(error["code"], json!(-32601), "{method}: {error}");
    }
}

#[tokio::test]
async fn should_07_our_own_codes_are_outside_of_the_reserved_ranges() {
    let lab = Lab::new();
    let variables = [SPEC[0], ("ZEROCLAW_acp__max_sessions", "1")];
    let mut agent = lab.start_with(&variables);
    initialize(&mut agent).await;
    new_session(&mut agent, &lab.project()).await;
    let error = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.unwrap_err();
    assert_eq!(error["data"]["kind"], "session_limit_reached", "{error}");
    let code = error["code"].as_i64().unwrap();
    assert!(!(-32768..=-32000).contains(&code) && !(-32899..=-32800).contains(&code), "{code}");
}

#[tokio::test]
async fn should_08_unknown_notifications_are_ignored() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    for method in ["$/progress", "_someone/else", "no/such"] {
        agent.notify(method, json!({"x": 1})).await;
    }
    let before = agent.received().len();
    agent.call("session/list", json!({})).await.unwrap();
    assert_eq!(agent.received().len(), before + 1);
}
