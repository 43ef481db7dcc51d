//! What fits into a request, and what happens when it does not. The double checks each request for broken pairs.

use std::sync::Arc;

use zeroclaw_runtime::{
    model::{Message, ModelError, ModelRequest, ToolCallRequest},
    turn::{StopReason, TurnFailure},
};

use crate::support::{Bench, Doing, Effect, Reply, Seen, asks_for, assistant, says, user};

fn notes(bench: &Bench) -> Vec<String> {
    let note = |seen| if let Seen::Thought { text, .. } = seen { Some(text) } else { None };
    bench.sink.seen().into_iter().filter_map(note).collect()
}

/// A turn of the past with one tool call, about `size` bytes.
fn past(number: usize, size: usize) -> Vec<Arc<Message>> {
    let id = format!("past-{number}");
    let tool_calls = vec![ToolCallRequest { id: id.clone(), name: "look".to_owned(), arguments: "{}".to_owned() }];
    vec![
        Arc::new(user(&format!("question {number}"))),
        Arc::new(Message::Assistant { text: String::new(), thought: String::new(), tool_calls, signed: vec![] }),
        Arc::new(Message::Tool { call_id: id, content: "x".repeat(size), failed: false }),
        Arc::new(assistant(&format!("answer {number}"))),
    ]
}

fn bytes(request: &ModelRequest) -> usize {
    request.messages.iter().map(|message| serde_json::to_string(&**message).expect("JSON").len()).sum()
}

fn overflow() -> ModelError {
    ModelError::ContextOverflow("too many tokens".to_owned())
}

fn refusal() -> Reply {
    Reply::Error(ModelError::Request("the content is not allowed".to_owned()))
}

fn holds(request: &ModelRequest, text: &str) -> bool {
    serde_json::to_string(&request.messages).expect("JSON").contains(text)
}

#[tokio::test]
async fn a_prompt_that_is_refused_at_once_is_not_sent_again() {
    let mut bench = Bench::new(vec![refusal(), says("fine")], &[]);
    bench.history = past(1, 10);
    let before = bench.history.clone();
    bench.run().await.expect_err("it is refused");
    assert_eq!(bench.history, before);
    assert_eq!(bench.model.requests().len(), 1);
    bench.next_turn(Vec::new());
    assert_eq!(bench.run().await.expect("a turn").text, "fine");
}

#[tokio::test]
async fn a_turn_that_broke_off_is_left_out_when_the_vendor_refuses_the_next_request_too() {
    let mut bench = Bench::new(vec![refusal(), says("fine"), says("still fine")], &[]);
    bench.history = past(1, 10);
    bench.history.extend(past(2, 10).into_iter().take(3));
    assert_eq!(bench.run().await.expect("a turn").text, "fine");
    bench.next_turn(Vec::new());
    assert_eq!(bench.run().await.expect("a turn").text, "still fine");
    let requests = bench.model.requests();
    assert_eq!(requests.iter().map(|request| holds(request, "question 2")).collect::<Vec<_>>(), [true, false, false]);
    assert!(requests.iter().all(|request| holds(request, "answer 1") && holds(request, "prompt")));
    assert_eq!(notes(&bench).len(), 1, "the client is told once");
}

#[tokio::test]
async fn what_was_not_the_reason_of_a_refusal_stays_in_the_history() {
    let mut bench = Bench::new(vec![refusal(), refusal()], &[]);
    bench.history = past(1, 10).into_iter().take(3).collect();
    let before = bench.history.clone();
    bench.run().await.expect_err("both are refused");
    assert_eq!(bench.history, before);
}

#[tokio::test]
async fn the_oldest_whole_turns_leave_first_and_the_client_is_told_once() {
    let mut bench = Bench::new(
        vec![asks_for(&[("look", "{}")]), asks_for(&[("look", "{}")]), says("x")],
        &[("look", Effect::Read, Doing::SayMuch(4_000))],
    );
    bench.history = (0..100).flat_map(|number| past(number, 4_000)).collect();
    let before = bench.history.clone();
    bench.agent.limits.compact_to = None;
    bench.agent.limits.context_tokens = 20_000;
    let outcome = bench.run().await.expect("a turn");
    assert_eq!(outcome.stop, StopReason::EndTurn);

    let requests = bench.model.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert!(bytes(request) < 4 * 20_000);
        assert!(matches!(&*request.messages[0], Message::User { text } if text.starts_with("question ")));
        assert_eq!(request.messages[0], requests[0].messages[0], "the beginning stays for the vendor's cache");
    }
    let first = &requests[0];
    assert_eq!(first.messages.len() % 4, 1, "whole turns and the prompt");
    let kept = first.messages.len() / 4;
    assert!((10..20).contains(&kept), "{kept}");
    assert_eq!(first.messages[..first.messages.len() - 1], before[before.len() - kept * 4..]);
    assert_eq!(notes(&bench), [format!("earlier turns were left out of this request: {}", 100 - kept)]);
    assert_eq!(bench.history[..before.len()], before, "the history itself is untouched");
}

#[tokio::test]
async fn a_conversation_that_fits_is_sent_whole_and_shared() {
    let mut bench = Bench::new(vec![says("x")], &[]);
    bench.history = past(1, 100);
    let before = bench.history.clone();
    bench.run().await.expect("a turn");
    let request = &bench.model.requests()[0];
    assert_eq!(request.messages.len(), 5);
    assert!(request.messages.iter().zip(&before).all(|(sent, kept)| Arc::ptr_eq(sent, kept)));
    assert_eq!(notes(&bench), Vec::<String>::new());
}

#[tokio::test]
async fn old_results_of_a_turn_that_is_too_large_are_shortened() {
    let mut replies: Vec<Reply> = (0..10).map(|_| asks_for(&[("look", "{}")])).collect();
    replies.push(says("x"));
    let mut bench = Bench::new(replies, &[("look", Effect::Read, Doing::SayMuch(20_000))]);
    bench.agent.limits.compact_to = None;
    bench.agent.limits.context_tokens = 20_000;
    bench.run().await.expect("a turn");
    let last = bench.model.requests().pop().expect("a request");
    assert!(bytes(&last) < 4 * 20_000);
    assert_eq!(last.messages.len(), 21, "every step is there");
    let lengths: Vec<usize> = last
        .messages
        .iter()
        .filter_map(|message| if let Message::Tool { content, .. } = &**message { Some(content.len()) } else { None })
        .collect();
    assert_eq!(lengths.last(), Some(&20_000), "the newest result is whole");
    assert!(lengths[0] < 1_200);
    assert!(bench.results().iter().all(|(content, _)| content.len() == 20_000));
    assert_eq!(notes(&bench), ["older steps of this turn were shortened in this request"]);
}

#[tokio::test]
async fn a_turn_of_countless_small_steps_still_fits() {
    let mut replies: Vec<Reply> = (0..200).map(|_| asks_for(&[("look", "{}"), ("look", "{}")])).collect();
    replies.push(says("x"));
    let mut bench = Bench::new(replies, &[("look", Effect::Read, Doing::SayMuch(400))]);
    bench.agent.limits.compact_to = None;
    bench.agent.limits.context_tokens = 3_000;
    bench.agent.limits.max_model_calls = 300;
    let outcome = bench.run().await.expect("a turn never fails because it is long");
    assert_eq!(outcome.stop, StopReason::EndTurn);
    let last = bench.model.requests().pop().expect("a request");
    assert!(bytes(&last) < 4 * 3_000 * 2);
    assert_eq!(*last.messages[0], user("prompt"));
    assert!(matches!(&*last.messages[1], Message::Assistant { .. }));
}

/// A peer retried the same input for ever.
#[tokio::test]
async fn prv_19_an_overflow_is_tried_once_more_with_less_and_then_fails() {
    let mut bench = Bench::new(vec![Reply::Error(overflow()), Reply::Error(overflow())], &[]);
    bench.history = (0..10).flat_map(|number| past(number, 4_000)).collect();
    let error = bench.run().await.expect_err("a failed turn");
    assert_eq!(error.error, TurnFailure::Model(overflow()));
    let requests = bench.model.requests();
    assert_eq!(requests.len(), 2);
    assert!(bytes(&requests[1]) * 10 <= bytes(&requests[0]) * 6);
}

#[tokio::test]
async fn an_overflow_that_fits_at_the_second_try_goes_on() {
    let mut bench = Bench::new(vec![Reply::Events(vec![Err(overflow())]), says("fits")], &[]);
    bench.agent.limits.compact_to = None;
    bench.history = (0..10).flat_map(|number| past(number, 4_000)).collect();
    let outcome = bench.run().await.expect("a turn");
    assert_eq!(outcome.text, "fits");
    assert_eq!(notes(&bench).len(), 1);
}

#[tokio::test]
async fn an_overflow_with_nothing_to_leave_out_fails_at_once() {
    let mut bench = Bench::new(vec![Reply::Error(overflow())], &[]);
    let error = bench.run().await.expect_err("a failed turn");
    assert_eq!(error.error, TurnFailure::Model(overflow()));
    assert_eq!(bench.model.requests().len(), 1);
}
