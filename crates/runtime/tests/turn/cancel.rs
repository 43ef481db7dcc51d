//! Cancelling a turn in each of its phases.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::Notify;
use zeroclaw_runtime::{
    model::Message,
    turn::{CallStatus, StopReason, TurnOutcome},
};

use crate::support::{
    Bench, Doing, Effect, Meanwhile, Person, Reply, Seen, asks_for, assistant, call, channel, end, says, text, user,
};

async fn after_cancel_the_next_prompt_works(bench: &mut Bench) {
    bench.next_turn(vec![says("next")]);
    let outcome = bench.run().await.expect("the next turn");
    assert_eq!((outcome.stop, outcome.text.as_str()), (StopReason::EndTurn, "next"));
}

/// A stop looked like a clean finish in a peer, with zero usage for tokens that were billed.
#[tokio::test]
async fn can_01_a_cancel_in_mid_stream_keeps_the_partial_text_and_omits_usage() {
    let (sender, reply) = channel();
    let mut bench = Bench::new(vec![reply], &[]);
    sender.send(text("half")).expect("an open stream");
    let outcome = bench
        .run_beside(|at| async move {
            at.sink.wait(|seen| matches!(seen, Seen::Text { .. })).await;
            at.cancel.cancel();
            // The stream is dropped: nobody pays for what nobody reads.
            sender.closed().await;
        })
        .await
        .expect("not an error");
    assert_eq!(outcome, TurnOutcome { stop: StopReason::Cancelled, text: "half".to_owned(), usage: None, model: None });
    assert_eq!(bench.sink.records(), [user("prompt"), assistant("half")]);
    after_cancel_the_next_prompt_works(&mut bench).await;
}

#[tokio::test]
async fn can_05_a_cancel_that_is_already_there_asks_no_model() {
    let mut bench = Bench::new(Vec::new(), &[]);
    bench.cancel.cancel();
    let outcome = bench.run().await.expect("not an error");
    assert_eq!(outcome, TurnOutcome { stop: StopReason::Cancelled, text: String::new(), usage: None, model: None });
    assert_eq!(bench.model.requests().len(), 0);
    assert_eq!(bench.sink.records(), [user("prompt")]);
    after_cancel_the_next_prompt_works(&mut bench).await;
}

/// A cancel that raced the first result hung for ever in a peer.
#[tokio::test]
async fn can_05_a_cancel_at_any_step_ends_the_turn() {
    let (mut cancelled, mut ended, mut results) = (0, 0, HashSet::new());
    for steps in 0..60 {
        let mut bench = Bench::new(
            vec![Reply::Events(vec![text("a"), call("v", "look", "{}"), text("c"), end()]), says("b")],
            &[("look", Effect::Read, Doing::Stream { pieces: 5, size: 10 })],
        );
        let outcome = bench
            .run_beside(|at| async move {
                for _ in 0..steps {
                    tokio::task::yield_now().await;
                }
                at.cancel.cancel();
            })
            .await
            .expect("not an error");
        match outcome.stop {
            StopReason::Cancelled => cancelled += 1,
            StopReason::EndTurn => ended += 1,
            other => panic!("{other:?}"),
        }
        results.insert((bench.history.len(), bench.results()));
        // One reply may be left over from the turn that was cut short.
        bench.next_turn(vec![says("b"), says("b")]);
        let next = bench.run().await.expect("the next turn");
        assert_eq!(next.stop, StopReason::EndTurn);
    }
    assert!(cancelled > 5 && ended > 5, "{cancelled} cancelled, {ended} ended");
    assert!(results.len() >= 4, "the cancels came in too few phases: {results:?}");
}

/// The turn lock was held for five minutes in a peer, because the question did not know of the cancel.
#[tokio::test]
async fn can_07_a_cancel_while_a_question_is_open_withdraws_it() {
    let mut bench = Bench::new(vec![asks_for(&[("write", "{}")])], &[("write", Effect::Write, Doing::Say("written"))]);
    bench.person = Person::answering(vec![None]);
    let outcome = bench
        .run_beside(|at| async move {
            at.person.was_asked.notified().await;
            at.cancel.cancel();
        })
        .await
        .expect("not an error");
    assert_eq!(outcome.stop, StopReason::Cancelled);
    assert_eq!(bench.person.withdrawn.load(Ordering::SeqCst), 1);
    assert_eq!(bench.log.lines(), Vec::<String>::new());
    assert_eq!(bench.results(), [("cancelled".to_owned(), true)]);
    assert_eq!(bench.sink.statuses("call-1-1"), [CallStatus::Pending, CallStatus::Failed]);
    after_cancel_the_next_prompt_works(&mut bench).await;
}

/// The running flag was cleared on the happy path only, so later prompts queued for ever.
#[tokio::test]
async fn can_09_a_cancel_before_the_first_token() {
    let mut bench = Bench::new(vec![Reply::Silence], &[]);
    let outcome = bench
        .run_beside(|at: Meanwhile<'_>| async move {
            at.model.wait_asked().await;
            at.cancel.cancel();
        })
        .await
        .expect("not an error");
    assert_eq!(outcome.stop, StopReason::Cancelled);
    after_cancel_the_next_prompt_works(&mut bench).await;
}

#[tokio::test]
async fn can_09_a_cancel_in_a_tool_gives_every_call_a_result() {
    let first = Reply::Events(vec![
        text("look"),
        call("a", "hang", "{}"),
        call("b", "hang", "{}"),
        call("c", "write", "{}"),
        end(),
    ]);
    let mut bench = Bench::new(
        vec![first],
        &[("hang", Effect::Read, Doing::UntilCancelled), ("write", Effect::Write, Doing::Say("written"))],
    );
    let outcome = bench
        .run_beside(|at| async move {
            at.log.wait("call-1-2 begins").await;
            at.cancel.cancel();
        })
        .await
        .expect("not an error");
    assert_eq!((outcome.stop, outcome.text.as_str()), (StopReason::Cancelled, "look"));
    assert_eq!(bench.results(), ["cancelled"; 3].map(|text| (text.to_owned(), true)));
    // The change was never announced, so there is nothing to take back.
    assert_eq!(bench.sink.statuses("call-1-3"), []);
    let last: Vec<Message> = bench.sink.records().split_off(2);
    assert!(last.iter().all(|message| matches!(message, Message::Tool { failed: true, .. })));
    after_cancel_the_next_prompt_works(&mut bench).await;
}

/// A cancelled search surfaced as an agent error.
#[tokio::test]
async fn can_15_a_cancelled_search_is_a_failed_call_and_a_cancelled_turn() {
    let mut bench = Bench::new(vec![asks_for(&[("search", "{}")])], &[("search", Effect::Read, Doing::UntilCancelled)]);
    let outcome = bench
        .run_beside(|at| async move {
            at.log.wait("call-1-1 begins").await;
            at.cancel.cancel();
        })
        .await
        .expect("not an error");
    // It was told and ended by itself, well before the grace.
    assert_eq!(bench.log.lines(), ["call-1-1 begins", "call-1-1 ends"]);
    assert_eq!(outcome.stop, StopReason::Cancelled);
    assert_eq!(bench.sink.statuses("call-1-1"), [CallStatus::Pending, CallStatus::InProgress, CallStatus::Failed]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_ignores_the_cancel_is_dropped_after_the_grace() {
    let mut bench = Bench::new(vec![asks_for(&[("hang", "{}")])], &[("hang", Effect::Read, Doing::Never)]);
    let started = tokio::time::Instant::now();
    let outcome = bench
        .run_beside(|at| async move {
            at.log.wait("call-1-1 begins").await;
            at.cancel.cancel();
        })
        .await
        .expect("not an error");
    assert_eq!(outcome.stop, StopReason::Cancelled);
    assert!(started.elapsed() <= Duration::from_secs(6));
    assert_eq!(bench.results(), [("cancelled".to_owned(), true)]);
}

#[tokio::test]
async fn what_a_tool_did_in_spite_of_the_cancel_is_told_as_done() {
    let signal = Arc::new(Notify::new());
    let mut bench =
        Bench::new(vec![asks_for(&[("wait", "{}")])], &[("wait", Effect::Read, Doing::Wait(Arc::clone(&signal)))]);
    let outcome = bench
        .run_beside(|at| async move {
            at.log.wait("call-1-1 begins").await;
            at.cancel.cancel();
            signal.notify_one();
        })
        .await
        .expect("not an error");
    assert_eq!(outcome.stop, StopReason::Cancelled);
    assert_eq!(bench.results(), [("went on".to_owned(), false)]);
}

#[tokio::test]
async fn calls_queued_behind_the_limit_do_not_begin_after_a_cancel() {
    let calls = [("hang", "{}"); 12];
    let mut bench = Bench::new(vec![asks_for(&calls)], &[("hang", Effect::Read, Doing::UntilCancelled)]);
    bench
        .run_beside(|at| async move {
            at.log.wait("call-1-8 begins").await;
            at.cancel.cancel();
        })
        .await
        .expect("not an error");
    assert_eq!(bench.log.peak(), 8);
    assert!(!bench.log.lines().contains(&"call-1-9 begins".to_owned()));
    assert_eq!(bench.results(), ["cancelled"; 12].map(|text| (text.to_owned(), true)).to_vec());
}

#[tokio::test]
async fn a_model_that_never_gives_way_can_be_cancelled() {
    const PIECES: usize = 100_000;
    let mut bench = Bench::new(vec![Reply::Rush((0..PIECES).map(|_| text("x")).collect())], &[]);
    let outcome = bench
        .run_beside(|at| async move {
            at.sink.wait(|seen| matches!(seen, Seen::Text { .. })).await;
            at.cancel.cancel();
        })
        .await
        .expect("not an error");
    assert_eq!(outcome.stop, StopReason::Cancelled);
    assert!(!outcome.text.is_empty() && outcome.text.len() < PIECES);
}
