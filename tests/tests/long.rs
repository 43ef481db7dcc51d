//! Conversations that outgrow the model's window: compaction by itself and by order, and what is left after it.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use zeroclaw_e2e::{
    Lab, answer_text, content_text, initialize, new_session, prompt,
    replay::{assert_same, kind, load, seen, text, without_user},
    text_prompt, updates_of,
};
use zeroclaw_testkit::{
    model_server::{ModelServer, Part, Recorded, Reply},
    process::AgentProcess,
};

const WINDOW: usize = 32_000;

fn lab(server: &ModelServer, window: usize) -> Lab {
    Lab::with_config(&format!(
        "[providers.models.custom.test]\nmodel = \"test-model\"\nuri = \"{}\"\ncontext_window = {window}\n\
         [agents.main]\nmodel_provider = \"custom.test\"\n[risk_profiles.default]\nlevel = \"full\"\n",
        server.openai_url()
    ))
}

fn texts(body: &Value) -> Vec<String> {
    body["messages"].as_array().unwrap().iter().map(|message| content_text(&message["content"])).collect()
}

/// Whether a request asks for a summary: it has no tools and a transcript.
fn wants_summary(body: &Value) -> bool {
    body.get("tools").is_none() && texts(body).iter().any(|text| text.starts_with("<transcript>"))
}

/// The tokens of a request as a vendor would count them, by four bytes each.
fn measured(body: &Value) -> usize {
    body.to_string().len() / 4
}

/// Says that it remembers what a request holds of the word that the first prompt brought.
fn remembers(body: &Value) -> &'static str {
    if texts(body).iter().any(|text| text.contains("swordfish")) { "I know swordfish." } else { "I have forgotten." }
}

fn summaries(server: &ModelServer) -> usize {
    server.requests().iter().filter(|request| wants_summary(&request.body)).count()
}

/// A client whose capabilities are these.
async fn client(lab: &Lab, capabilities: Value) -> (AgentProcess, String) {
    let mut agent = lab.start();
    agent.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": capabilities})).await.unwrap();
    let session = new_session(&mut agent, &lab.project()).await;
    (agent, session)
}

/// Makes a conversation of some turns of about 1,000 tokens each.
async fn fill(agent: &mut AgentProcess, session: &str, server: &ModelServer, turns: usize) {
    for turn in 0..turns {
        server.push(Reply::text(format!("answer {turn} {}", "b".repeat(2_000))));
        prompt(agent, session, &format!("question {turn}, swordfish {}", "a".repeat(2_000))).await;
    }
}

/// A peer's conversation ended for good when it had reached the window, with the same error at each prompt.
#[tokio::test]
async fn three_hundred_turns_fit_into_a_small_window() {
    let server = ModelServer::start().await;
    let lab = lab(&server, WINDOW);
    lab.file("notes.txt", "a line of notes\n".repeat(600));
    let mut calls = 0;
    let largest = Arc::new(Mutex::new(0));
    let seen_largest = Arc::clone(&largest);
    server.answer_with(move |request: &Recorded| {
        let size = measured(&request.body);
        let mut largest = seen_largest.lock().unwrap();
        *largest = size.max(*largest);
        let usage = Part::Usage { input: size as u64, output: 100, cached: 0 };
        let last = texts(&request.body).pop().unwrap();
        if wants_summary(&request.body) {
            return Reply::turn([Part::text(format!("The summary. {}", remembers(&request.body))), usage]);
        }
        // Every tenth turn looks at a file first.
        if last.starts_with("prompt") && last.contains("0 ") {
            calls += 1;
            let id = format!("call_{calls}");
            return Reply::turn([Part::tool_call(id, "file_read", json!({"path": "notes.txt"})), usage]);
        }
        Reply::turn([Part::text(format!("{} {}", remembers(&request.body), "c".repeat(600))), usage])
    });
    let (mut agent, session) = lab.session().await;
    for turn in 0..300 {
        let word = if turn == 0 { "swordfish" } else { "" };
        let result = prompt(&mut agent, &session, &format!("prompt {turn} {word}{}", "p".repeat(900))).await;
        assert_eq!(result["stopReason"], "end_turn", "{turn}: {result}");
        assert!(result["content"].as_str().unwrap().starts_with("I know swordfish."), "{turn}");
    }
    let compactions = summaries(&server);
    assert!((3..60).contains(&compactions), "{compactions}");
    let most = *largest.lock().unwrap();
    assert!(most <= WINDOW, "{most} tokens in a request");
    assert_eq!(server.violations(), Vec::<String>::new());
    let live = seen(&agent, &session);
    agent.close_stdin();
    agent.wait().await;

    // A load shows everything that was said, and the model goes on from the summary.
    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, &session, &lab.project()).await;
    assert_eq!(replayed.iter().filter(|update| kind(update) == "user_message_chunk").count(), 300);
    // What was told of the compactions was news of then, not a part of the conversation.
    let said: Vec<String> = live.into_iter().filter(|update| !text(update).starts_with("\n\n[")).collect();
    assert_same(&without_user(&replayed), &said, "the replay");
    let before = server.requests().len();
    let result = prompt(&mut agent, &session, "what was the word?").await;
    assert!(result["content"].as_str().unwrap().starts_with("I know swordfish."), "{result}");
    let asked = server.requests();
    assert_eq!(asked.len(), before + 1, "a load needs no new summary");
    assert!(!asked[before].body.to_string().contains("prompt 0 "), "the oldest turns are not sent again");

    // A fork and a resume know the same.
    let forked = agent.call("session/fork", json!({"sessionId": session, "cwd": lab.project()})).await.unwrap();
    let fork = forked["sessionId"].as_str().unwrap().to_owned();
    let result = prompt(&mut agent, &fork, "and here?").await;
    assert!(result["content"].as_str().unwrap().starts_with("I know swordfish."), "{result}");
    agent.close_stdin();
    agent.wait().await;
    let mut agent = lab.agent().await;
    agent.call("session/resume", json!({"sessionId": session, "cwd": lab.project()})).await.unwrap();
    let result = prompt(&mut agent, &session, "and now?").await;
    assert!(result["content"].as_str().unwrap().starts_with("I know swordfish."), "{result}");
    assert!(*largest.lock().unwrap() <= WINDOW);
}

/// A kind of update that a client does not know ends its session, and a silent change of what the model knows looks
/// like a model that forgets.
#[tokio::test]
async fn each_client_is_told_of_a_compaction_in_the_way_that_it_understands() {
    for (capabilities, gated) in [(json!({"session": {"compaction": {}}}), true), (json!({}), false)] {
        let server = ModelServer::start().await;
        let lab = lab(&server, 16_000);
        let (mut agent, session) = client(&lab, capabilities).await;
        fill(&mut agent, &session, &server, 8).await;
        let larger = updates_of(&agent.received(), "usage_update").pop();
        server.push(Reply::text("they spoke of swordfish"));
        server.push(Reply::turn([Part::text("done"), Part::Usage { input: 4_000, output: 1, cached: 0 }]));
        let result = prompt(&mut agent, &session, &"x".repeat(14_000)).await;
        assert_eq!(result["content"], "done", "{result}");
        assert_eq!(summaries(&server), 1);
        let updates = updates_of(&agent.received(), "compaction_update");
        let told = "[The older part of the conversation is replaced by a summary";
        if gated {
            let [begun, done] = &updates[..] else { panic!("{updates:?}") };
            assert_eq!(begun["compactionId"], done["compactionId"]);
            assert_eq!((begun["status"].as_str(), done["status"].as_str()), (Some("in_progress"), Some("completed")));
            assert_eq!(done["summary"], json!([{"type": "text", "text": "they spoke of swordfish"}]));
        } else {
            assert_eq!(updates, Vec::<Value>::new());
        }
        assert_eq!(answer_text(&agent.received()).contains(told), !gated);
        let sizes = updates_of(&agent.received(), "usage_update");
        assert!(larger.is_some() && sizes.iter().any(|update| update["used"].as_u64().unwrap() < 10_000), "{sizes:?}");
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn compact_is_a_command_with_wishes() {
    let server = ModelServer::start().await;
    let lab = lab(&server, 128_000);
    let (mut agent, session) = client(&lab, json!({"session": {"compaction": {}}})).await;
    fill(&mut agent, &session, &server, 3).await;
    server.push(Reply::text("all about swordfish"));
    let result = prompt(&mut agent, &session, "/compact keep the fish").await;
    assert_eq!(result["stopReason"], "end_turn", "{result}");
    assert!(result["content"].as_str().unwrap().starts_with("The conversation is compacted: about "), "{result}");
    let asked = server.requests().pop().unwrap();
    assert!(wants_summary(&asked.body) && asked.body.to_string().contains("keep the fish"), "{}", asked.body);
    let used = updates_of(&agent.received(), "usage_update").pop().unwrap()["used"].as_u64().unwrap();
    server.push(Reply::text("yes"));
    prompt(&mut agent, &session, "go on").await;
    let asked = server.requests().pop().unwrap();
    let sent = asked.body.to_string();
    assert!(sent.contains("all about swordfish") && !sent.contains("question 0"), "{sent}");
    assert!(!sent.contains("/compact"), "a command is nothing that was said to the model");
    assert!(used < 10_000, "{used}");

    // The same after a restart.
    agent.close_stdin();
    agent.wait().await;
    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, &session, &lab.project()).await;
    assert!(replayed.iter().any(|update| text(update).contains("question 0")));
    server.push(Reply::text("yes"));
    prompt(&mut agent, &session, "once more").await;
    let sent = server.requests().pop().unwrap().body.to_string();
    assert!(sent.contains("all about swordfish") && !sent.contains("question 0"), "{sent}");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_kill_and_a_cancel_in_the_middle_of_a_summary_lose_nothing() {
    let server = ModelServer::start().await;
    let lab = lab(&server, 128_000);
    let (mut agent, session) = lab.session().await;
    fill(&mut agent, &session, &server, 3).await;
    let (summary, gate) = Reply::text("cut off").gate(0);
    server.push(summary);
    let asked = agent.request("session/prompt", text_prompt(&session, "/compact")).await;
    gate.reached().await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let result = agent.response(&asked).await.unwrap();
    assert_eq!(result["stopReason"], "cancelled", "{result}");
    gate.client_gone().await;

    let (summary, gate) = Reply::text("cut off").gate(0);
    server.push(summary);
    agent.request("session/prompt", text_prompt(&session, "/compact")).await;
    gate.reached().await;
    agent.kill9().await;

    let mut agent = lab.start();
    initialize(&mut agent).await;
    load(&mut agent, &session, &lab.project()).await;
    server.push(Reply::text("still here"));
    let result = prompt(&mut agent, &session, "go on").await;
    assert_eq!(result["content"], "still here", "{result}");
    let sent = server.requests().pop().unwrap().body.to_string();
    assert!((0..3).all(|turn| sent.contains(&format!("question {turn}"))) && !sent.contains("cut off"), "{sent}");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn an_error_of_the_summary_is_told_and_the_conversation_stays() {
    let server = ModelServer::start().await;
    let lab = lab(&server, 128_000);
    let (mut agent, session) = lab.session().await;
    fill(&mut agent, &session, &server, 2).await;
    server.push(Reply::status(400));
    let error = agent.call("session/prompt", text_prompt(&session, "/compact")).await.unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("scripted status 400"), "{error}");
    server.push(Reply::text("yes"));
    prompt(&mut agent, &session, "go on").await;
    assert!(server.requests().pop().unwrap().body.to_string().contains("question 0"));
}
