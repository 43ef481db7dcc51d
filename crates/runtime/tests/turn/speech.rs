//! Text, thoughts, ids, stop reasons, retries: turns without tools.

use std::{sync::atomic::Ordering, time::Duration};

use zeroclaw_runtime::{
    model::{Message, ModelError, ModelStop, Usage},
    turn::{StopReason, TurnFailure, TurnOutcome},
};

use crate::support::{
    Bench, Doing, Effect, Reply, Seen, asks_for, assistant, call, channel, end, says, stop, text, thought, usage, user,
};

fn transient(retry_after: Option<Duration>) -> ModelError {
    ModelError::Transient { message: "overloaded".to_owned(), retry_after }
}

#[tokio::test]
async fn a_message_id_changes_when_the_voice_changes() {
    let mut bench = Bench::new(
        vec![Reply::Events(vec![
            thought("hm"),
            text("a"),
            text(""),
            text("b"),
            thought("so"),
            text("c"),
            usage(3, 4),
            usage(10, 5),
            end(),
        ])],
        &[],
    );
    let outcome = bench.run().await.expect("a turn");
    let total = Usage { input: 10, output: 5, cached: 0, written: 0 };
    assert_eq!(
        outcome,
        TurnOutcome { stop: StopReason::EndTurn, text: "c".to_owned(), usage: Some(total), model: None }
    );
    let said =
        Message::Assistant { text: "abc".to_owned(), thought: "hmso".to_owned(), tool_calls: vec![], signed: vec![] };
    let thought = |message: &str, text: &str| Seen::Thought { message: message.to_owned(), text: text.to_owned() };
    let text = |message: &str, text: &str| Seen::Text { message: message.to_owned(), text: text.to_owned() };
    assert_eq!(
        bench.sink.seen(),
        [
            Seen::Record(user("prompt")),
            thought("m-1-1", "hm"),
            text("m-1-2", "a"),
            text("m-1-2", "b"),
            thought("m-1-3", "so"),
            text("m-1-4", "c"),
            Seen::Usage { used: 15, size: 100_000 },
            Seen::Record(said.clone()),
        ]
    );
    assert_eq!(bench.history.iter().map(|m| (**m).clone()).collect::<Vec<_>>(), [user("prompt"), said]);
}

#[tokio::test]
async fn text_after_a_tool_call_has_an_id_of_its_own() {
    let first = Reply::Events(vec![text("a"), call("v1", "look", "{}"), text("b"), end()]);
    let mut bench = Bench::new(vec![first, says("c")], &[("look", Effect::Read, Doing::Say("seen"))]);
    let outcome = bench.run().await.expect("a turn");
    let texts: Vec<(String, String)> = bench
        .sink
        .seen()
        .into_iter()
        .filter_map(|seen| if let Seen::Text { message, text } = seen { Some((message, text)) } else { None })
        .collect();
    let wanted = [("m-1-1", "a"), ("m-1-2", "b"), ("m-1-3", "c")].map(|(m, t)| (m.to_owned(), t.to_owned()));
    assert_eq!(texts, wanted);
    assert_eq!(outcome.text, "c");
}

/// A peer copied the whole text per chunk and slowed down with the square of the answer's length.
#[tokio::test]
async fn prf_03_a_hundred_thousand_pieces_are_a_hundred_thousand_emits() {
    const PIECES: usize = 100_000;
    let mut events: Vec<_> = (0..PIECES).map(|_| text("x")).collect();
    events.push(end());
    let mut bench = Bench::new(vec![Reply::Events(events)], &[]);
    let outcome = bench.run().await.expect("a turn");
    assert_eq!(outcome.text.len(), PIECES);
    assert_eq!(bench.sink.emits.load(Ordering::SeqCst), PIECES);
    let bytes: usize =
        bench.sink.seen().iter().map(|seen| if let Seen::Text { text, .. } = seen { text.len() } else { 0 }).sum();
    assert_eq!(bytes, PIECES);
}

#[tokio::test]
async fn a_full_sink_is_waited_for() {
    let mut bench = Bench::new(vec![Reply::Events(vec![text("a"), text("b"), end()])], &[]);
    bench.sink.full.store(true, Ordering::SeqCst);
    let outcome = bench
        .run_beside(|at| async move {
            at.sink.wait(|seen| matches!(seen, Seen::Text { .. })).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(at.sink.emits.load(Ordering::SeqCst), 1);
            at.sink.full.store(false, Ordering::SeqCst);
            at.sink.room.notify_waiters();
        })
        .await
        .expect("a turn");
    assert_eq!(outcome.text, "ab");
    assert_eq!(bench.sink.emits.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_full_sink_does_not_hold_up_a_cancel() {
    let mut bench = Bench::new(vec![Reply::Events(vec![text("a"), text("b"), end()])], &[]);
    bench.sink.full.store(true, Ordering::SeqCst);
    let outcome = bench
        .run_beside(|at| async move {
            at.sink.wait(|seen| matches!(seen, Seen::Text { .. })).await;
            at.cancel.cancel();
        })
        .await
        .expect("a turn");
    assert_eq!(outcome.stop, StopReason::Cancelled);
    assert_eq!(outcome.text, "a");
}

#[tokio::test]
async fn can_17_a_length_stop_is_max_tokens_and_runs_no_cut_call() {
    let cut = Reply::Events(vec![text("a"), call("v1", "look", "{\"path\":"), stop(ModelStop::MaxTokens)]);
    let mut bench = Bench::new(vec![cut], &[("look", Effect::Read, Doing::Say("seen"))]);
    let outcome = bench.run().await.expect("a turn");
    assert_eq!(outcome, TurnOutcome { stop: StopReason::MaxTokens, text: "a".to_owned(), usage: None, model: None });
    assert_eq!(bench.log.lines(), Vec::<String>::new());
    assert_eq!(bench.sink.records(), [user("prompt"), assistant("a")]);
}

#[tokio::test]
async fn a_refused_turn_is_not_in_the_next_request() {
    let refusal = Reply::Events(vec![text("no"), stop(ModelStop::Refusal)]);
    let mut bench = Bench::new(
        vec![says("hello"), asks_for(&[("look", "{}")]), refusal, says("again")],
        &[("look", Effect::Read, Doing::Say("seen"))],
    );
    bench.run().await.expect("the first turn");
    bench.next_turn(Vec::new());
    let outcome = bench.run().await.expect("the refused turn");
    assert_eq!((outcome.stop, outcome.text.as_str()), (StopReason::Refusal, "no"));
    assert_eq!(bench.history.len(), 2);
    bench.next_turn(Vec::new());
    bench.run().await.expect("the third turn");
    let last = bench.model.requests().pop().expect("a request");
    let messages: Vec<Message> = last.messages.iter().map(|message| (**message).clone()).collect();
    assert_eq!(messages, [user("prompt"), assistant("hello"), user("prompt")]);
}

#[tokio::test]
async fn the_limit_of_model_calls_ends_the_turn_with_every_result_kept() {
    let replies = (0..3).map(|_| asks_for(&[("look", "{}")])).collect();
    let mut bench = Bench::new(replies, &[("look", Effect::Read, Doing::Say("seen"))]);
    bench.agent.limits.max_model_calls = 3;
    let outcome = bench.run().await.expect("a turn");
    assert_eq!(outcome.stop, StopReason::MaxTurnRequests);
    assert_eq!(bench.model.requests().len(), 3);
    assert_eq!(bench.results().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn prv_11_an_overload_before_the_first_output_is_tried_again() {
    let mut bench =
        Bench::new(vec![Reply::Error(transient(None)), Reply::Events(vec![Err(transient(None))]), says("done")], &[]);
    let outcome = bench.run().await.expect("a turn");
    assert_eq!(outcome.text, "done");
    assert_eq!(bench.model.requests().len(), 3);
    assert_eq!(bench.sink.records(), [user("prompt"), assistant("done")]);
}

#[tokio::test(start_paused = true)]
async fn an_overload_that_stays_fails_the_turn() {
    let replies = (0..4).map(|_| Reply::Error(transient(None))).collect();
    let mut bench = Bench::new(replies, &[]);
    let error = bench.run().await.expect_err("a failed turn");
    assert_eq!(error.error, TurnFailure::Model(transient(None)));
    assert_eq!(bench.model.requests().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn prv_13_a_wait_of_days_fails_at_once_with_the_vendors_text() {
    let days = transient(Some(Duration::from_secs(1_382_400)));
    let mut bench = Bench::new(vec![Reply::Error(days.clone())], &[]);
    let started = tokio::time::Instant::now();
    let error = bench.run().await.expect_err("a failed turn");
    assert_eq!(error.error, TurnFailure::Model(days));
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_wait_before_another_try() {
    let mut bench = Bench::new(vec![Reply::Error(transient(Some(Duration::from_secs(59))))], &[]);
    let outcome = bench
        .run_beside(|at| async move {
            at.model.wait_asked().await;
            at.cancel.cancel();
        })
        .await
        .expect("a turn");
    assert_eq!(outcome.stop, StopReason::Cancelled);
    assert_eq!(bench.model.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_the_first_output_nothing_is_tried_again_and_what_was_said_stays() {
    let broken = Reply::Events(vec![text("half"), usage(7, 1), Err(transient(None))]);
    let mut bench = Bench::new(vec![broken], &[]);
    let error = bench.run().await.expect_err("a failed turn");
    assert_eq!(error.error, TurnFailure::Model(transient(None)));
    assert_eq!(error.text_so_far, "half");
    assert_eq!(error.usage, Some(Usage { input: 7, output: 1, cached: 0, written: 0 }));
    assert_eq!(bench.sink.records(), [user("prompt"), assistant("half")]);
}

#[tokio::test]
async fn prv_03_a_stream_without_its_end_is_an_error() {
    let mut bench = Bench::new(vec![Reply::Events(vec![text("half"), call("v", "look", "{}")])], &[]);
    let error = bench.run().await.expect_err("a failed turn");
    assert!(matches!(error.error, TurnFailure::Model(ModelError::Stream(_))), "{error:?}");
    assert_eq!(bench.sink.records(), [user("prompt"), assistant("half")]);
}

#[tokio::test]
async fn a_provider_that_panics_fails_its_turn_and_the_next_one_works() {
    let mut bench = Bench::new(vec![Reply::Panic], &[]);
    let error = bench.run().await.expect_err("a failed turn");
    assert!(matches!(error.error, TurnFailure::Internal(_)), "{error:?}");
    bench.next_turn(vec![Reply::PanicLater]);
    let error = bench.run().await.expect_err("a failed turn");
    assert_eq!(error.text_so_far, "a");
    // The first turn left a prompt without an answer; the double refuses two of them in a row.
    bench.next_turn(vec![says("well")]);
    assert_eq!(bench.run().await.expect("a turn").text, "well");
}

#[tokio::test]
async fn an_answer_of_thoughts_alone_is_kept_for_display_and_not_sent_back() {
    let mut bench = Bench::new(vec![Reply::Events(vec![thought("hm"), end()])], &[]);
    let outcome = bench.run().await.expect("a turn");
    assert_eq!(outcome.text, "");
    assert_eq!(bench.history.len(), 2);
    bench.next_turn(vec![says("x")]);
    bench.run().await.expect("a turn");
    let messages = bench.model.requests().pop().expect("a request").messages;
    let messages: Vec<_> = messages.iter().map(|m| (**m).clone()).collect();
    assert_eq!(messages, [user("prompt"), assistant("[no answer]"), user("prompt")]);
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off_at_the_limit() {
    let (sender, reply) = channel();
    for _ in 0..18 {
        sender.send(text(&"x".repeat(1024 * 1024))).expect("room");
    }
    let mut bench = Bench::new(vec![reply], &[]);
    let error = bench.run().await.expect_err("a failed turn");
    assert!(matches!(error.error, TurnFailure::Model(ModelError::Stream(_))));
    assert_eq!(error.text_so_far.len(), 17 * 1024 * 1024);
    drop(sender);
}

#[tokio::test]
async fn prf_09_tool_schemas_are_shared_between_model_calls() {
    let mut bench =
        Bench::new(vec![asks_for(&[("look", "{}")]), says("x")], &[("look", Effect::Read, Doing::Say("seen"))]);
    bench.run().await.expect("a turn");
    let requests = bench.model.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert!(std::sync::Arc::ptr_eq(&request.tools, &bench.agent.tools.specs()));
    }
}
