//! The rules about the end of a turn, about cancelling it, and about questions that were declined.

use serde_json::json;
use zeroclaw_e2e::text_prompt;

use super::conversation::{client, drive};
use crate::turns::{builtin, end_turn, is_update, runs, statuses};

#[tokio::test]
async fn turn_1_the_answer_comes_when_no_call_is_pending() {
    let lab = builtin("full");
    lab.file("a.txt", "alpha\n");
    let (mut agent, session) = lab.session().await;
    let seen =
        end_turn(&mut agent, &session, "/read a.txt\n/read missing.txt\n/run false\n/write b.txt text").await.messages;
    let calls = statuses(&seen);
    assert_eq!(calls.len(), 4, "{calls:?}");
    for (call, states) in calls {
        let is_final = |state: &&String| matches!(state.as_str(), "completed" | "failed");
        assert_eq!(states.iter().filter(is_final).count(), 1, "{call}: {states:?}");
        assert!(states.last().is_some_and(|state| is_final(&state)), "{call}: {states:?}");
    }
}

#[tokio::test]
async fn turn_2_a_cancelled_turn_answers_cancelled_and_no_error() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let running = agent.request("session/prompt", text_prompt(&session, "/run sleep 600")).await;
    agent.recv_until(runs).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(agent.response(&running).await.expect("no error")["stopReason"], "cancelled");
    let running = agent.request("session/prompt", text_prompt(&session, "/say 1000000")).await;
    agent.recv_until(|message| is_update(message, "agent_message_chunk")).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(agent.response(&running).await.expect("no error")["stopReason"], "cancelled");
}

#[tokio::test]
async fn turn_3_after_the_answer_to_a_cancelled_turn_nothing_of_it_comes() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let running = agent.request("session/prompt", text_prompt(&session, "/run sleep 600")).await;
    agent.recv_until(runs).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    agent.response(&running).await.expect("no error");
    let before = agent.collected();
    let open = statuses(&before);
    assert!(open.values().all(|states| states.last().is_some_and(|state| state == "failed")), "{before:?}");
    // The next call of the session is answered behind whatever the turn might still have said.
    agent.call("session/stop", json!({"sessionId": session})).await.unwrap();
    let late = agent.collected();
    assert!(late.iter().all(|message| !is_update(message, "tool_call_update")), "{late:?}");
}

#[tokio::test]
async fn can_1_a_cancelled_request_is_answered_like_any_other() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let params = text_prompt(&session, "/run sleep 600");
    agent
        .send(
            &json!({"jsonrpc": "2.0", "id": "to-be-cancelled", "method": "session/prompt", "params": params})
                .to_string(),
        )
        .await;
    agent.recv_until(runs).await;
    agent.notify("$/cancel_request", json!({"requestId": "to-be-cancelled"})).await;
    let answer = agent.recv_until(|message| message["id"] == "to-be-cancelled").await.pop().unwrap();
    let is_partial = answer["result"]["stopReason"] == "cancelled";
    assert!(is_partial || answer["error"]["code"] == json!(-32800), "{answer}");
    agent.notify("$/cancel_request", json!({"requestId": "unknown"})).await;
    end_turn(&mut agent, &session, "/say 1").await;
}

#[tokio::test]
async fn eli_5_a_form_that_is_declined_or_fails_is_no_success() {
    let lab = builtin("supervised");
    let mut agent = client(&lab, json!({"elicitation": {"form": {}}})).await;
    let session = zeroclaw_e2e::new_session(&mut agent, &lab.project()).await;
    // Without choices there is nothing to fall back to: the model is told that there is no answer, and why.
    let (result, seen) = drive(&mut agent, &session, "/ask What is your name?").await;
    assert_eq!(result["stopReason"], "end_turn", "{result}");
    let calls = statuses(&seen);
    assert_eq!(calls.len(), 1, "{calls:?}");
    let told = crate::turns::last_update(&seen)["rawOutput"].as_str().unwrap().to_owned();
    assert!(told.starts_with("The user gave no answer: "), "{told}");
    assert!(!told.contains("The user answered"), "{told}");
}
