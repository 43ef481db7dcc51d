//! How a conversation that has grown to the limit is made shorter. The double checks each request for broken pairs.

use std::sync::Arc;

use zeroclaw_runtime::{
    model::{Message, ModelError, ModelRequest, ToolCallRequest},
    turn::{StopReason, TurnFailure},
};

use crate::support::{Bench, Doing, Effect, Reply, Seen, asks_for, assistant, says, user};

const HEAD: &str = "[Summary of the conversation until here;";

/// A turn of the past with one tool call: `prompt` and `result` bytes of text.
fn past(number: usize, prompt: usize, result: usize) -> Vec<Arc<Message>> {
    let id = format!("past-{number}");
    let tool_calls = vec![ToolCallRequest { id: id.clone(), name: "look".to_owned(), arguments: "{}".to_owned() }];
    vec![
        Arc::new(user(&format!("question {number} {}", "q".repeat(prompt)))),
        Arc::new(Message::Assistant { text: String::new(), thought: String::new(), tool_calls, signed: vec![] }),
        Arc::new(Message::Tool { call_id: id, content: "x".repeat(result), failed: false }),
        Arc::new(assistant(&format!("answer {number}"))),
    ]
}

/// A bench with many past turns and room for 20,000 tokens.
fn long(replies: Vec<Reply>, prompt: usize, result: usize) -> Bench {
    let mut bench = Bench::new(replies, &[("look", Effect::Read, Doing::SayMuch(4_000))]);
    bench.history = (0..40).flat_map(|number| past(number, prompt, result)).collect();
    bench.agent.limits.context_tokens = 20_000;
    bench.agent.limits.compact_to = Some(10_000);
    bench
}

fn text(request: &ModelRequest) -> String {
    serde_json::to_string(&request.messages).expect("JSON")
}

fn steps(bench: &Bench) -> Vec<String> {
    let step = |seen| if let Seen::Compaction { step, .. } = seen { Some(step) } else { None };
    bench.sink.seen().into_iter().filter_map(step).collect()
}

fn snapshots(bench: &Bench) -> Vec<(Vec<Message>, usize)> {
    let taken = |seen| if let Seen::Compacted { conversation, own } = seen { Some((conversation, own)) } else { None };
    bench.sink.seen().into_iter().filter_map(taken).collect()
}

#[tokio::test]
async fn the_oldest_turns_are_replaced_by_a_summary_that_the_model_wrote() {
    let mut bench = long(vec![says("they spoke of q"), says("fine")], 3_000, 10);
    let before = bench.history.clone();
    assert_eq!(bench.run().await.expect("a turn").text, "fine");

    let requests = bench.model.requests();
    assert_eq!(requests.len(), 2);
    let asked = text(&requests[0]);
    assert!(asked.contains("question 0 ") && asked.contains("calls look with {}"), "the transcript has the oldest");
    assert!(requests[0].tools.is_empty() && asked.len() < 4 * 20_000);
    let answered = text(&requests[1]);
    assert!(answered.contains(HEAD) && answered.contains("they spoke of q") && !answered.contains("question 0 "));
    assert!(answered.contains("question 39 ") && answered.len() < 4 * 10_000, "{}", answered.len());
    assert_eq!(steps(&bench), ["started", "done: they spoke of q"]);

    // What was recorded is what the model has seen, the newest turns as they were.
    let [(conversation, own)] = &snapshots(&bench)[..] else { panic!("one snapshot") };
    assert_eq!(*own, 1, "the prompt");
    assert_eq!(conversation.iter().cloned().map(Arc::new).collect::<Vec<_>>(), requests[1].messages);
    let kept = conversation.len() - 3;
    assert_eq!(kept % 4, 0, "whole turns");
    assert_eq!(bench.history[2..2 + kept], before[before.len() - kept..]);

    bench.next_turn(vec![says("still")]);
    bench.run().await.expect("a turn");
    assert_eq!(bench.model.requests().len(), 3, "nothing is compacted twice");
}

#[tokio::test]
async fn long_results_of_older_calls_go_first_and_no_summary_is_asked_for() {
    let mut bench = long(vec![says("fine")], 10, 3_000);
    bench.run().await.expect("a turn");
    let requests = bench.model.requests();
    assert_eq!(requests.len(), 1);
    let sent = text(&requests[0]);
    assert!((0..40).all(|number| sent.contains(&format!("question {number} "))), "every turn is there");
    assert!(sent.contains(&"x".repeat(3_000)), "the newest results are whole");
    assert_eq!(steps(&bench), ["done: results cut"]);
    assert_eq!(snapshots(&bench).len(), 1);
}

#[tokio::test]
async fn a_summary_that_fails_costs_the_turn_nothing() {
    for failure in [
        Reply::Error(ModelError::Request("no".to_owned())),
        Reply::Events(vec![crate::support::end()]),
        Reply::Panic,
        asks_for(&[("look", "{}")]),
    ] {
        let mut bench = long(vec![failure, says("fine")], 3_000, 10);
        let length = bench.history.len();
        assert_eq!(bench.run().await.expect("a turn").text, "fine");
        let told = steps(&bench);
        assert!(told.len() == 2 && told[1].starts_with("failed: "), "{told:?}");
        assert_eq!(bench.history.len(), length + 2, "nothing is lost");
        assert!(text(&bench.model.requests()[1]).len() < 4 * 20_000, "what does not fit is left out of the request");
    }
}

#[tokio::test]
async fn a_cancel_ends_a_summary_and_changes_nothing() {
    let mut bench = long(vec![Reply::Silence], 3_000, 10);
    let before = bench.history.clone();
    let outcome = bench
        .run_beside(|meanwhile| async move {
            meanwhile.model.wait_asked().await;
            meanwhile.cancel.cancel();
        })
        .await
        .expect("a turn");
    assert_eq!(outcome.stop, StopReason::Cancelled);
    assert_eq!(steps(&bench), ["started", "cancelled"]);
    assert_eq!(snapshots(&bench), []);
    assert_eq!(bench.history[..before.len()], before);
}

#[tokio::test]
async fn steps_of_a_very_long_turn_are_replaced_too() {
    let mut replies: Vec<Reply> = (0..25).map(|_| asks_for(&[("look", "{}")])).collect();
    // After 20 steps of a thousand tokens.
    replies.insert(20, says("I looked often"));
    replies.push(says("done"));
    let mut bench = Bench::new(replies, &[("look", Effect::Read, Doing::SayMuch(4_000))]);
    bench.agent.limits.context_tokens = 20_000;
    bench.agent.limits.compact_to = Some(10_000);
    let outcome = bench.run().await.expect("a turn");
    assert_eq!((outcome.stop, outcome.text.as_str()), (StopReason::EndTurn, "done"));
    assert_eq!(steps(&bench), ["started", "done: I looked often"]);
    let last = bench.model.requests().pop().expect("a request");
    assert_eq!(*last.messages[0], user("prompt"));
    assert!(matches!(&*last.messages[1], Message::Assistant { text, .. } if text.contains("I looked often")));
    let own = snapshots(&bench)[0].1;
    assert_eq!(own, snapshots(&bench)[0].0.len(), "all of it belongs to the turn");
}

#[tokio::test]
async fn an_overflow_makes_a_summary_and_the_call_is_made_once_more() {
    let overflow = || Reply::Error(ModelError::ContextOverflow("too many tokens".to_owned()));
    let mut bench = Bench::new(vec![overflow(), says("in short"), says("fits")], &[]);
    bench.history = (0..10).flat_map(|number| past(number, 4_000, 10)).collect();
    assert_eq!(bench.run().await.expect("a turn").text, "fits");
    let requests = bench.model.requests();
    assert_eq!(requests.len(), 3);
    assert!(text(&requests[2]).contains("in short"));
    assert!(text(&requests[2]).len() * 10 <= text(&requests[0]).len() * 6);

    // A vendor that never takes it is asked twice, and the next prompt begins with less.
    let mut bench = Bench::new(vec![overflow(), overflow()], &[]);
    bench.history = (0..10).flat_map(|number| past(number, 4_000, 10)).collect();
    let error = bench.run().await.expect_err("a failed turn");
    assert!(matches!(error.error, TurnFailure::Model(ModelError::ContextOverflow(_))));
    bench.next_turn(vec![says("fits now")]);
    assert_eq!(bench.run().await.expect("a turn").text, "fits now");
    let requests = bench.model.requests();
    assert!(text(&requests[2]).len() * 10 <= text(&requests[0]).len() * 6);
}

#[tokio::test]
async fn the_user_can_order_a_compaction() {
    let mut bench = Bench::new(vec![says("all of it")], &[]);
    bench.history = (0..3).flat_map(|number| past(number, 1_000, 10)).collect();
    bench.order = Some("keep the numbers".to_owned());
    let outcome = bench.run().await.expect("a compaction");
    assert!(outcome.text.starts_with("The conversation is compacted: about "), "{}", outcome.text);
    assert_eq!(bench.history.len(), 2, "a summary and nothing else");
    assert!(text(&bench.model.requests()[0]).contains("The user asks of this summary: keep the numbers"));
    assert!(bench.sink.seen().iter().any(|seen| matches!(seen, Seen::Usage { used, .. } if *used < 200)));

    bench.next_turn(Vec::new());
    let outcome = bench.run().await.expect("nothing to do");
    assert_eq!(outcome.text, "There is nothing to compact.");

    bench.next_turn(vec![Reply::Error(ModelError::Auth("no".to_owned()))]);
    bench.history.extend(past(9, 1_000, 10));
    let before = bench.history.clone();
    bench.run().await.expect_err("the error is told");
    assert_eq!(bench.history, before);
}

#[tokio::test]
async fn what_the_vendor_counts_is_believed_over_the_estimate() {
    use crate::support::{end, text as piece, usage};
    let answer = Reply::Events(vec![piece("one"), usage(40_000, 1), end()]);
    let mut bench = long(vec![answer, says("short"), says("two")], 1_400, 10);
    bench.agent.limits.context_tokens = 30_000;
    bench.run().await.expect("a turn");
    assert_eq!(steps(&bench), Vec::<String>::new(), "by the estimate it fits");
    bench.next_turn(Vec::new());
    bench.run().await.expect("a turn");
    assert_eq!(steps(&bench), ["started", "done: short"], "the vendor counts more than twice as many");
}
