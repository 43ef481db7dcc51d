//! Cancelling: what a client is told, what ends, and what still works afterwards.

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, Lifeline, answer_text, new_session, text_prompt};
use zeroclaw_testkit::{
    model_server::{ModelServer, Part, Reply},
    process::AgentProcess,
};

use crate::turns::{Turn, announced, asks, builtin, end_turn, is_update, last_update, runs, selected, statuses};

/// What the text of a cancelled turn ends with.
const MARK: &str = "\n\n[turn cancelled via client]";

async fn cancel(agent: &mut AgentProcess, session: &str) {
    agent.notify("session/cancel", json!({"sessionId": session})).await;
}

/// Starts a prompt, waits for `ready`, cancels, and returns the turn, which has to be cancelled.
async fn cancelled_at(agent: &mut AgentProcess, session: &str, text: &str, ready: impl FnMut(&Value) -> bool) -> Turn {
    let request = agent.request("session/prompt", text_prompt(session, text)).await;
    let mut messages = agent.recv_until(ready).await;
    cancel(agent, session).await;
    let result = agent.response(&request).await.unwrap_or_else(|error| panic!("session/prompt: {error}"));
    messages.extend(agent.collected());
    assert_eq!(result["stopReason"], "cancelled", "{result}");
    Turn { result, messages }
}

// A stopped answer looked like a finished one, and it was said to have cost nothing.
#[tokio::test]
async fn can_01_a_cancelled_answer_keeps_its_text_and_claims_no_usage() {
    let model = ModelServer::start().await;
    let usage = Part::Usage { input: 10, output: 3, cached: 0 };
    let parts = [Part::text("one "), Part::text("two "), Part::text("three"), usage];
    let (reply, gate) = Reply::turn(parts).gate(2);
    model.push(reply);
    model.push(Reply::text("again"));
    let lab = Lab::custom("full", &model.openai_url());
    let (mut agent, session) = lab.session().await;
    let mut seen = String::new();
    let turn = cancelled_at(&mut agent, &session, "count", |message| {
        seen.push_str(&answer_text(std::slice::from_ref(message)));
        seen == "one two "
    })
    .await;
    assert_eq!(turn.result["content"], format!("one two {MARK}"));
    assert_eq!(turn.result.get("usage"), None, "{}", turn.result);
    assert_eq!(answer_text(&turn.messages), "one two ");
    gate.client_gone().await;
    let next = end_turn(&mut agent, &session, "again").await;
    assert_eq!(next.result["content"], "again");
    let said: Vec<Value> = model.requests()[1].body["messages"].as_array().unwrap()[1..].to_vec();
    let said = said.iter().map(|message| message["content"].to_string()).collect::<String>();
    assert!(said.contains("one two"), "the model does not see what it had said: {said}");
    assert_eq!(model.violations(), Vec::<String>::new());
}

// The handler was lost in a rewrite: a cancel was answered as unsupported and the command ran to its end.
#[tokio::test]
async fn can_03_a_cancel_ends_a_running_command() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    for (as_request, pipe) in [(false, "first"), (true, "second")] {
        let mut lifeline = Lifeline::new(&lab.project().join(pipe));
        let command = format!("/run {} sleep 600", lifeline.held());
        let request = agent.request("session/prompt", text_prompt(&session, &command)).await;
        agent.recv_until(runs).await;
        lifeline.started().await;
        if as_request {
            let answer = agent.call("session/cancel", json!({"session_id": session})).await;
            assert_eq!(answer, Ok(json!({})));
        } else {
            cancel(&mut agent, &session).await;
        }
        let result = agent.response(&request).await.unwrap();
        assert_eq!(result["stopReason"], "cancelled", "{result}");
        assert_eq!(last_update(&agent.collected())["status"], "failed");
        lifeline.gone().await;
        end_turn(&mut agent, &session, "/say 2").await;
    }
}

// A cancel that arrived with its prompt was looked at too early, and the turn waited for ever for a message.
#[tokio::test]
async fn can_05_a_cancel_right_behind_its_prompt_is_never_lost() {
    let endless = [
        json!({"type": "delay", "ms": 3_600_000}),
        json!({"type": "text", "text": "too late"}),
        json!({"type": "stop"}),
        json!({"type": "loop"}),
    ];
    let lab = Lab::scripted("full", &endless);
    let (mut agent, session) = lab.session().await;
    for round in 0..200 {
        let result = prompt_and_cancel(&mut agent, &session, round).await;
        assert_eq!(result["stopReason"], "cancelled", "round {round}: {result}");
    }
    // The same with a model that may be done before the cancel is read.
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    for round in 0..50 {
        let result = prompt_and_cancel(&mut agent, &session, round).await;
        assert!(["cancelled", "end_turn"].contains(&result["stopReason"].as_str().unwrap()), "round {round}: {result}");
    }
}

/// Both lines in one write; returns the result of the prompt.
async fn prompt_and_cancel(agent: &mut AgentProcess, session: &str, round: usize) -> Value {
    let id = json!(format!("prompt-{round}"));
    let prompt =
        json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": text_prompt(session, "/say 1")});
    let stop = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
    agent.send_raw(format!("{prompt}\n{stop}\n").as_bytes()).await;
    let answer =
        agent.recv_until(|message| message["id"] == id && message.get("method").is_none()).await.pop().unwrap();
    assert_eq!(answer.get("error"), None, "round {round}: {answer}");
    answer["result"].clone()
}

// A question to the user did not hear the cancel: the session was busy until the question timed out.
#[tokio::test]
async fn can_07_a_cancel_takes_an_open_question_back() {
    let lab = builtin("supervised");
    let (mut agent, session) = lab.session().await;
    let turn = cancelled_at(&mut agent, &session, "/run echo hi > made", asks).await;
    let question = turn.messages.iter().find(|message| asks(message)).unwrap()["id"].clone();
    let withdrawn: Vec<&Value> =
        turn.messages.iter().filter(|message| message["method"] == "$/cancel_request").collect();
    assert_eq!(withdrawn.len(), 1, "{:#?}", turn.messages);
    assert_eq!(withdrawn[0]["params"]["requestId"], question);
    assert_eq!(withdrawn[0].get("id"), None);
    assert_eq!(last_update(&turn.messages)["status"], "failed");
    assert!(!turn.messages.iter().any(runs), "{:#?}", turn.messages);
    // The client answers all the same.
    agent.reply(&question, selected("allow-once")).await;
    agent.reply(&question, json!({"outcome": {"outcome": "cancelled"}})).await;
    let next = end_turn(&mut agent, &session, "/say 1").await;
    assert!(announced(&next.messages).is_empty());
    assert!(!lab.project().join("made").exists());
}

// A yes that was sent behind the cancel arrived before it.
#[tokio::test]
async fn an_answer_behind_a_cancel_does_not_overtake_it() {
    let lab = builtin("supervised");
    let (mut agent, session) = lab.session().await;
    for round in 0..100 {
        let request = agent.request("session/prompt", text_prompt(&session, "/run echo x >> made")).await;
        let question = agent.recv_until(asks).await.pop().unwrap();
        let stop = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
        let yes = json!({"jsonrpc": "2.0", "id": question["id"], "result": selected("allow-once")});
        agent.send_raw(format!("{stop}\n{yes}\n").as_bytes()).await;
        let result = agent.response(&request).await.unwrap();
        assert_eq!(result["stopReason"], "cancelled", "round {round}");
        let messages = agent.collected();
        assert!(!messages.iter().any(runs), "round {round}: {messages:#?}");
        assert!(messages.iter().any(|message| message["method"] == "$/cancel_request"), "round {round}: {messages:#?}");
    }
    assert!(!lab.project().join("made").exists());
}

// A prompt that was cancelled before the model spoke was put in front of the next one, and carried out with it.
#[tokio::test]
async fn a_prompt_without_an_answer_is_not_carried_out_by_the_next() {
    let lab = builtin("supervised");
    let (mut agent, session) = lab.session().await;
    agent.auto_permit("reject-once");
    for round in 0..30 {
        let params = text_prompt(&session, "/run touch made");
        let id = json!(format!("cancelled-{round}"));
        let prompt = json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params});
        let stop = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
        agent.send_raw(format!("{prompt}\n{stop}\n").as_bytes()).await;
        agent.recv_until(|message| message["id"] == id && message.get("method").is_none()).await;
        let next = end_turn(&mut agent, &session, "/say 1").await;
        assert_eq!(next.result["content"], "chunk 1 ", "round {round}");
        assert!(announced(&next.messages).is_empty(), "round {round}");
    }
    // A turn in which the model only thought has no visible answer either.
    end_turn(&mut agent, &session, "/think hm").await;
    assert_eq!(end_turn(&mut agent, &session, "/say 1").await.result["content"], "chunk 1 ");
}

// The mark of the running turn was removed only when all went well, so after one stop every prompt waited for ever.
#[tokio::test]
async fn can_09_the_next_prompt_starts_after_a_cancel_in_any_phase() {
    let model = ModelServer::start().await;
    let lab = Lab::custom("supervised", &model.openai_url());
    let (mut agent, session) = lab.session().await;
    let check = async |agent: &mut AgentProcess| {
        model.push(Reply::text("ok"));
        let next = end_turn(agent, &session, "go on").await;
        assert_eq!(next.result["content"], "ok");
    };
    // Before the model says anything.
    model.push(Reply::hang_after_headers());
    let request = agent.request("session/prompt", text_prompt(&session, "wait")).await;
    model.wait_for_requests(1).await;
    cancel(&mut agent, &session).await;
    let result = agent.response(&request).await.unwrap();
    assert_eq!(result["stopReason"], "cancelled", "{result}");
    model.wait_for_aborted(1).await;
    check(&mut agent).await;
    // While a thought streams.
    let (reply, gate) = Reply::turn([Part::thought("hm"), Part::text("never")]).gate(1);
    model.push(reply);
    cancelled_at(&mut agent, &session, "think", |message| is_update(message, "agent_thought_chunk")).await;
    gate.client_gone().await;
    check(&mut agent).await;
    // While a question is open.
    model.push(Reply::tool_call("call_1", "shell", json!({"command": "touch made"})));
    cancelled_at(&mut agent, &session, "ask", asks).await;
    check(&mut agent).await;
    // While a tool runs.
    agent.auto_permit("allow-once");
    model.push(Reply::tool_call("call_2", "shell", json!({"command": "sleep 600"})));
    cancelled_at(&mut agent, &session, "run", runs).await;
    check(&mut agent).await;
    // When the model is done and the turn is being stored.
    model.push(Reply::text("the end"));
    let request = agent.request("session/prompt", text_prompt(&session, "end")).await;
    agent.recv_until(|message| is_update(message, "agent_message_chunk")).await;
    cancel(&mut agent, &session).await;
    let result = agent.response(&request).await.unwrap();
    assert!(["cancelled", "end_turn"].contains(&result["stopReason"].as_str().unwrap()), "{result}");
    check(&mut agent).await;
    // With nothing to cancel.
    cancel(&mut agent, &session).await;
    check(&mut agent).await;
    assert_eq!(model.violations(), Vec::<String>::new());
}

// The answer overtook the updates: the client closed an empty turn and then got its text.
#[tokio::test]
async fn can_11_no_update_of_a_turn_follows_its_answer() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    // Nothing is read until the whole turn is in the pipes, so the agent feels a client that is behind.
    let request = agent.request("session/prompt", text_prompt(&session, "/say 10000")).await;
    agent.flush().await;
    let result = agent.response(&request).await.unwrap();
    assert_eq!(result["stopReason"], "end_turn");
    let before = agent.collected();
    assert_eq!(answer_text(&before), result["content"], "text is missing before the answer");
    assert_silent(&mut agent, &session).await;

    let mut chunks = 0;
    let request = agent.request("session/prompt", text_prompt(&session, "/say 1000000")).await;
    let mut messages = agent
        .recv_until(|message| {
            chunks += usize::from(is_update(message, "agent_message_chunk"));
            chunks == 500
        })
        .await;
    cancel(&mut agent, &session).await;
    let result = agent.response(&request).await.unwrap();
    assert_eq!(result["stopReason"], "cancelled");
    messages.extend(agent.collected());
    assert_eq!(format!("{}{MARK}", answer_text(&messages)), result["content"], "text is missing before the answer");
    assert_silent(&mut agent, &session).await;
}

/// Two further calls of the session bring nothing of the turn before.
async fn assert_silent(agent: &mut AgentProcess, session: &str) {
    for _ in 0..2 {
        let event = json!({"sessionId": session, "update": {"type": "probe"}});
        agent.call("session/update", event).await.unwrap();
    }
    for message in agent.collected() {
        let kind = message["params"]["update"]["sessionUpdate"].as_str().unwrap_or_default();
        let of_the_session = ["session_info_update", "available_commands_update"].contains(&kind);
        assert!(of_the_session, "after the answer: {message}");
    }
}

// A search that had moved into the background went on for days after the stop.
#[tokio::test]
async fn can_13_nothing_of_a_cancelled_command_lives_on() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let mut stubborn = Lifeline::new(&lab.project().join("stubborn"));
    let command = format!(
        "/run {} (trap '' TERM HUP INT; sleep 600; sleep 600) & nohup sleep 600 >/dev/null 2>&1 & sh -c 'sleep 600 & wait' & sleep 600",
        stubborn.held()
    );
    let request = agent.request("session/prompt", text_prompt(&session, &command)).await;
    agent.recv_until(runs).await;
    stubborn.started().await;
    cancel(&mut agent, &session).await;
    let result = agent.response(&request).await.unwrap();
    assert_eq!(result["stopReason"], "cancelled");
    stubborn.gone().await;
    // The same for a command that ends by itself and leaves something behind.
    let mut left = Lifeline::new(&lab.project().join("left"));
    let command = format!("/run {} nohup sleep 600 >/dev/null 2>&1 &", left.held());
    let turn = end_turn(&mut agent, &session, &command).await;
    left.started().await;
    left.gone().await;
    let output = last_update(&turn.messages)["rawOutput"].as_str().unwrap().to_owned();
    assert!(output.contains("background processes were ended"), "{output}");
}

// A cancelled search became an error of the agent.
#[tokio::test]
async fn can_15_a_cancelled_search_is_a_failed_call_and_no_error() {
    let search = json!({"pattern": "[a-z]+[0-9]{3}[a-z]+$"});
    let script = [
        json!({"type": "tool_call", "name": "content_search", "arguments": search}),
        json!({"type": "stop"}),
        // If the search is done before the cancel is read, this keeps the turn running.
        json!({"type": "delay", "ms": 3_600_000}),
        json!({"type": "text", "text": "too late"}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "still here"}),
        json!({"type": "stop"}),
    ];
    let lab = Lab::scripted("full", &script);
    let line = format!("{}\n", "abcdefgh ".repeat(20));
    let original = lab.file("text-0.txt", line.repeat(20_000));
    for copy in 1..200 {
        std::fs::hard_link(&original, lab.project().join(format!("text-{copy}.txt"))).unwrap();
    }
    let (mut agent, session) = lab.session().await;
    let turn = cancelled_at(&mut agent, &session, "search", runs).await;
    let last = last_update(&turn.messages);
    assert_eq!((&last["status"], &last["rawOutput"]), (&json!("failed"), &json!("cancelled")), "{last}");
}

// A turn that reached the output limit was an exception, and one in which the user said no was a refusal.
#[tokio::test]
async fn can_17_limits_and_rejections_are_told_apart() {
    let script = [
        json!({"type": "text", "text": "cut of"}),
        json!({"type": "stop", "reason": "max_tokens"}),
        json!({"type": "tool_call", "name": "shell", "arguments": {"command": "touch made"}}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "then not"}),
        json!({"type": "stop"}),
        json!({"type": "stop", "reason": "refusal"}),
    ];
    let lab = Lab::scripted("supervised", &script);
    let (mut agent, session) = lab.session().await;
    agent.auto_permit("reject-once");
    let cut = crate::turns::turn(&mut agent, &session, "talk").await;
    assert_eq!((&cut.result["stopReason"], &cut.result["content"]), (&json!("max_tokens"), &json!("cut of")));
    let rejected = end_turn(&mut agent, &session, "do it").await;
    assert_eq!(rejected.result["content"], "then not");
    assert_eq!(last_update(&rejected.messages)["status"], "failed");
    assert!(!lab.project().join("made").exists());
    let refused = crate::turns::turn(&mut agent, &session, "no").await;
    assert_eq!(refused.result["stopReason"], "refusal");
}

// Of the two ways to cancel, one knows the session and the other the request; both end the same turn, and an id that is
// not a running prompt ends none.
#[tokio::test]
async fn cancel_request_ends_the_turn_of_its_prompt_only() {
    let lab = builtin("full");
    let mut agent = lab.agent().await;
    let first = new_session(&mut agent, &lab.project()).await;
    let second = new_session(&mut agent, &lab.project()).await;
    let stays = agent.request("session/prompt", text_prompt(&first, "/run sleep 600")).await;
    agent.recv_until(runs).await;
    let ends = agent.request("session/prompt", text_prompt(&second, "/run sleep 600")).await;
    agent.recv_until(runs).await;
    for unknown in [json!("no-such-id"), json!(99_999), json!(ends.id().to_string())] {
        agent.notify("$/cancel_request", json!({"requestId": unknown})).await;
    }
    agent.notify("$/cancel_request", json!({"requestId": ends.id()})).await;
    let result = agent.response(&ends).await.unwrap();
    assert_eq!(result["stopReason"], "cancelled");
    let of_first: Vec<Value> =
        agent.received().into_iter().filter(|message| message["params"]["sessionId"] == json!(first)).collect();
    let calls = statuses(&of_first);
    assert_eq!(calls.into_values().collect::<Vec<_>>(), [["pending", "in_progress"]]);
    cancel(&mut agent, &first).await;
    assert_eq!(agent.response(&stays).await.unwrap()["stopReason"], "cancelled");
}

// A vendor that asked to wait a minute kept the turn for that minute, cancelled or not.
#[tokio::test]
async fn a_cancel_does_not_wait_for_a_retry() {
    let model = ModelServer::start().await;
    model.push(Reply::status(429).retry_after("50"));
    let lab = Lab::custom("full", &model.openai_url());
    let (agent, session) = lab.session().await;
    let mut agent = agent.with_limit(std::time::Duration::from_secs(30));
    let request = agent.request("session/prompt", text_prompt(&session, "hello")).await;
    model.wait_for_requests(1).await;
    cancel(&mut agent, &session).await;
    let result = agent.response(&request).await.unwrap();
    assert_eq!((&result["stopReason"], &result["content"]), (&json!("cancelled"), &json!(MARK)));
    model.push(Reply::text("ok"));
    assert_eq!(end_turn(&mut agent, &session, "again").await.result["content"], "ok");
    assert_eq!(model.requests().len(), 2);
}

// The first of three commands was stopped and the other two ran all the same.
#[tokio::test]
async fn the_calls_behind_a_cancelled_one_do_not_run() {
    let model = ModelServer::start().await;
    let calls = ["sleep 600", "touch second", "touch third"]
        .into_iter()
        .enumerate()
        .map(|(number, command)| Part::tool_call(format!("call_{number}"), "shell", json!({"command": command})));
    model.push(Reply::turn(calls));
    model.push(Reply::text("ok"));
    let lab = Lab::custom("full", &model.openai_url());
    let (mut agent, session) = lab.session().await;
    let turn = cancelled_at(&mut agent, &session, "go", runs).await;
    // A second cancel is nobody's.
    cancel(&mut agent, &session).await;
    for steps in statuses(&turn.messages).values() {
        assert_eq!(steps.last().map(String::as_str), Some("failed"), "{steps:?}");
    }
    assert_eq!(end_turn(&mut agent, &session, "again").await.result["content"], "ok");
    assert!(!lab.project().join("second").exists() && !lab.project().join("third").exists());
    // The model has a result for each of the three calls, or its vendor would refuse the conversation.
    let messages = model.requests()[1].body["messages"].clone();
    let results = messages.as_array().unwrap().iter().filter(|message| message["role"] == "tool").count();
    assert_eq!(results, 3, "{messages}");
    assert_eq!(model.violations(), Vec::<String>::new());
}

// A model that called tools without end was stopped by an error, which lost the turn.
#[tokio::test]
async fn a_turn_that_does_not_end_stops_at_its_limit() {
    let script = [
        json!({"type": "tool_call", "name": "list_dir", "arguments": {"path": "."}}),
        json!({"type": "stop"}),
        json!({"type": "loop"}),
    ];
    let lab = Lab::scripted("full", &script);
    let config = std::fs::read_to_string(lab.config_dir().join("config.toml")).unwrap();
    lab.write_config(&format!("{config}[runtime_profiles.default]\nmax_tool_iterations = 3\n"));
    let (mut agent, session) = lab.session().await;
    for _ in 0..2 {
        let turn = crate::turns::turn(&mut agent, &session, "go").await;
        assert_eq!(turn.result["stopReason"], "max_turn_requests");
        let calls = statuses(&turn.messages);
        assert_eq!(calls.len(), 3);
        assert!(calls.values().all(|steps| steps.last().is_some_and(|step| step == "completed")), "{calls:?}");
    }
}
