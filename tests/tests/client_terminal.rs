//! Commands in a terminal of the client: only where both sides want it, shown before it is given up, released in every case.

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, text_prompt, updates_of};
use zeroclaw_testkit::process::AgentProcess;

use crate::{
    client_files::{Say, asks_client, lending, script, turn},
    turns::{last_update, texts},
};

const WANTED: (&str, &str) = ("ZEROCLAW_acp__client_terminal", "true");

fn command(command: &str) -> Lab {
    Lab::scripted("supervised", &script("shell", json!({"command": command})))
}

/// A client whose program ends at once with this code.
fn ends_with(code: u32) -> impl FnMut(&str, &Value) -> Say {
    move |method, params| {
        if method != "terminal/create" {
            assert_eq!(params["terminalId"], "t-1", "{method}");
        }
        Say::Result(match method {
            "terminal/create" => json!({"terminalId": "t-1"}),
            "terminal/wait_for_exit" => json!({"exitCode": code, "signal": null}),
            "terminal/output" => json!({"output": "hi\n", "truncated": false, "exitStatus": {"exitCode": code}}),
            "terminal/kill" | "terminal/release" => json!({}),
            other => panic!("{other} was asked: {params}"),
        })
    }
}

fn is_request(message: &Value, method: &str) -> bool {
    message["method"] == method && message.get("id").is_some()
}

/// How often each terminal was released, whether the prompt is answered already or not.
fn releases(messages: &[Value]) -> Vec<&Value> {
    let released = messages.iter().filter(|message| is_request(message, "terminal/release"));
    released.map(|message| &message["params"]["terminalId"]).collect()
}

fn embeds(message: &Value) -> bool {
    message["params"]["update"]["content"] == json!([{"type": "terminal", "terminalId": "t-1"}])
}

async fn next_request(agent: &mut AgentProcess, method: &str) -> Value {
    agent.recv_until(|message| is_request(message, method)).await.pop().unwrap()
}

#[tokio::test]
async fn term_1_no_terminal_is_asked_for_unless_both_sides_want_it() {
    for (offered, wanted) in [(false, false), (false, true), (true, false)] {
        let lab = command("echo here");
        let wanted = if wanted { "true" } else { "false" };
        let variables = [("ZEROCLAW_acp__client_terminal", wanted)];
        let (mut agent, session) = lending(&lab, json!({"terminal": offered}), &variables).await;
        let (turn, asked) = turn(&mut agent, &session, |method, _| panic!("{method} was asked")).await;
        assert_eq!(last_update(&turn.messages)["rawOutput"], "here\n[exit code 0]");
        assert!(asked.is_empty());
    }
}

#[tokio::test]
async fn term_1_a_command_runs_in_the_terminal_and_the_model_reads_what_it_showed() {
    for (code, status) in [(0, "completed"), (7, "failed")] {
        let lab = command("echo hi");
        let (mut agent, session) = lending(&lab, json!({"terminal": true}), &[WANTED]).await;
        let (turn, asked) = turn(&mut agent, &session, ends_with(code)).await;
        let end = last_update(&turn.messages);
        assert_eq!(end["status"], status);
        assert_eq!(end["rawOutput"], format!("hi\n[exit code {code}]"));
        let create = &asked[0].1;
        assert_eq!((&create["command"], &create["args"]), (&json!("/bin/sh"), &json!(["-c", "echo hi"])));
        assert_eq!(create["cwd"], json!(lab.project()));
        assert_eq!(create["sessionId"], json!(session));
        assert_eq!(create["outputByteLimit"], 65536);
        let env = create["env"].as_array().unwrap();
        assert!(env.contains(&json!({"name": "PAGER", "value": "cat"})), "{env:?}");
        assert!(!env.iter().any(|variable| variable["name"] == "HOME"), "the client has its own: {env:?}");
    }
}

#[tokio::test]
async fn term_3_a_terminal_is_embedded_before_it_is_released_and_not_after() {
    let lab = command("echo hi");
    let (mut agent, session) = lending(&lab, json!({"terminal": true}), &[WANTED]).await;
    let (turn, asked) = turn(&mut agent, &session, ends_with(0)).await;
    let place = |found: &dyn Fn(&Value) -> bool| turn.messages.iter().position(found).unwrap();
    let embedded = place(&embeds);
    let released = place(&|message| is_request(message, "terminal/release"));
    assert!(place(&|message| is_request(message, "terminal/create")) < embedded && embedded < released);
    // Lists replace: whatever came later would take the terminal away, or name one that is gone.
    for message in &turn.messages[embedded + 1..] {
        let update = &message["params"]["update"];
        assert!(update["sessionUpdate"] != "tool_call_update" || update.get("content").is_none(), "{message}");
    }
    let methods: Vec<&str> = asked.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["terminal/create", "terminal/wait_for_exit", "terminal/output", "terminal/release"]);
}

// A terminal ends with its client, so a later one is shown what it said.
#[tokio::test]
async fn term_3_a_replay_shows_the_text_of_a_terminal() {
    let lab = command("echo hi");
    let (mut agent, session) = lending(&lab, json!({"terminal": true}), &[WANTED]).await;
    turn(&mut agent, &session, ends_with(0)).await;
    let place = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    drop(agent.collected());
    agent.call("session/load", place).await.unwrap();
    let messages = agent.collected();
    assert!(!messages.iter().any(|message| message.to_string().contains("t-1")), "{messages:#?}");
    let end = updates_of(&messages, "tool_call_update").pop().unwrap();
    assert_eq!(texts(&end["content"]), "```console\nhi\n[exit code 0]\n```");
}

#[tokio::test]
async fn term_2_a_command_out_of_time_is_killed_read_and_released() {
    let lab = Lab::scripted("supervised", &script("shell", json!({"command": "sleep 600", "timeout_secs": 1})));
    let (mut agent, session) = lending(&lab, json!({"terminal": true}), &[WANTED]).await;
    // The client cannot kill, as one real client cannot.
    let (turn, asked) = turn(&mut agent, &session, |method, params| match method {
        "terminal/kill" => Say::Error(-32602, "missing sessionID"),
        "terminal/wait_for_exit" => Say::Nothing,
        "terminal/output" => Say::Result(json!({"output": "so far", "truncated": true})),
        _ => ends_with(0)(method, params),
    })
    .await;
    let end = last_update(&turn.messages);
    assert_eq!(end["status"], "failed");
    let text = "[the beginning of the output was cut by the client]\nso far\n[timed out after 1s and was ended]";
    assert_eq!(end["rawOutput"], text);
    let methods: Vec<&str> = asked.iter().map(|(method, _)| method.as_str()).collect();
    let kill = methods.iter().position(|method| *method == "terminal/kill").unwrap();
    assert_eq!(methods[kill..], ["terminal/kill", "terminal/output", "terminal/release"]);
}

#[tokio::test]
async fn term_2_a_cancelled_command_is_killed_and_released() {
    for how in ["session/cancel", "session/close"] {
        let lab = command("sleep 600");
        let (mut agent, session) = lending(&lab, json!({"terminal": true}), &[WANTED]).await;
        let prompt = agent.request("session/prompt", text_prompt(&session, "go")).await;
        let create = next_request(&mut agent, "terminal/create").await;
        agent.reply(&create["id"], json!({"terminalId": "t-1"})).await;
        next_request(&mut agent, "terminal/wait_for_exit").await;
        if how == "session/close" {
            agent.request(how, json!({"sessionId": session})).await;
        } else {
            agent.notify(how, json!({"sessionId": session})).await;
        }
        assert_eq!(agent.response(&prompt).await.unwrap()["stopReason"], "cancelled");
        agent.close_stdin();
        let messages = agent.drain().await;
        let place = |method: &str| messages.iter().position(|message| is_request(message, method)).unwrap();
        assert!(place("terminal/kill") < place("terminal/release"), "{how}");
        assert_eq!(releases(&agent.received()), ["t-1"], "{how}");
    }
}

#[tokio::test]
async fn term_2_an_error_of_the_client_still_releases() {
    for broken in ["terminal/wait_for_exit", "terminal/output"] {
        let lab = command("echo hi");
        let (mut agent, session) = lending(&lab, json!({"terminal": true}), &[WANTED]).await;
        let (turn, _) = turn(&mut agent, &session, |method, params| {
            if method == broken { Say::Error(-32603, "lost") } else { ends_with(0)(method, params) }
        })
        .await;
        let end = last_update(&turn.messages);
        assert_eq!(end["status"], "failed");
        assert!(end["rawOutput"].as_str().unwrap().contains("lost"), "{end}");
        assert_eq!(releases(&agent.received()), ["t-1"], "{broken}");
    }
}

// The command would have run on, in a terminal that nobody knows.
#[tokio::test]
async fn term_2_a_terminal_that_comes_after_the_cancel_is_released() {
    let lab = command("sleep 600");
    let (mut agent, session) = lending(&lab, json!({"terminal": true}), &[WANTED]).await;
    let prompt = agent.request("session/prompt", text_prompt(&session, "go")).await;
    let create = next_request(&mut agent, "terminal/create").await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let withdrawn = agent.recv_until(|message| message["method"] == "$/cancel_request").await.pop().unwrap();
    assert_eq!(withdrawn["params"], json!({"requestId": create["id"]}));
    assert_eq!(agent.response(&prompt).await.unwrap()["stopReason"], "cancelled");
    agent.reply(&create["id"], json!({"terminalId": "t-late"})).await;
    let release = next_request(&mut agent, "terminal/release").await;
    assert_eq!(release["params"], json!({"sessionId": session, "terminalId": "t-late"}));
}

#[tokio::test]
async fn term_2_a_terminal_that_is_not_made_fails_the_call() {
    let lab = command("echo hi");
    let (mut agent, session) = lending(&lab, json!({"terminal": true}), &[WANTED]).await;
    let (turn, asked) = turn(&mut agent, &session, |_, _| Say::Error(-32603, "no room")).await;
    let end = last_update(&turn.messages);
    assert_eq!((&end["status"], asked.len()), (&json!("failed"), 1));
    assert!(end["rawOutput"].as_str().unwrap().contains("no room"), "{end}");
}

#[tokio::test]
async fn term_2_a_client_that_dies_in_a_call_leaves_nothing_waiting() {
    let lab = command("sleep 600");
    let (mut agent, session) = lending(&lab, json!({"terminal": true}), &[WANTED]).await;
    agent.request("session/prompt", text_prompt(&session, "go")).await;
    let create = agent.recv_until(asks_client).await.pop().unwrap();
    agent.reply(&create["id"], json!({"terminalId": "t-1"})).await;
    next_request(&mut agent, "terminal/wait_for_exit").await;
    agent.close_stdin();
    assert!(agent.wait().await.success());
}

#[tokio::test]
async fn term_1_a_rejected_command_makes_no_terminal() {
    let lab = command("touch made");
    let (mut agent, session) = lending(&lab, json!({"terminal": true}), &[WANTED]).await;
    agent.auto_permit("reject-once");
    let (_, asked) = turn(&mut agent, &session, |method, _| panic!("{method} was asked")).await;
    assert!(asked.is_empty());
}
