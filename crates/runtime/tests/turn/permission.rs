//! Questions and their answers.

use zeroclaw_policy::Level;
use zeroclaw_runtime::turn::{Approval, CallStatus, MAX_REMEMBERED, Remembered, Standing, StopReason};

use crate::support::{Bench, Doing, Effect, Person, asks_for, says};

fn writes(times: usize) -> Bench {
    let mut replies: Vec<_> = (0..times).map(|_| asks_for(&[("write", "{\"path\":\"a.txt\"}")])).collect();
    replies.push(says("done"));
    Bench::new(replies, &[("write", Effect::Write, Doing::Say("written"))])
}

#[tokio::test]
async fn prm_01_always_is_remembered_for_the_same_action_in_the_same_session() {
    let mut bench = writes(2);
    bench.person = Person::answering(vec![Some(Approval::AllowAlways)]);
    bench.run().await.expect("a turn");
    assert_eq!(bench.person.times_asked(), 1);
    assert_eq!(bench.log.lines().len(), 4);

    // Another file is another question, also after an "always".
    bench.next_turn(vec![asks_for(&[("write", "{\"path\":\"b.txt\"}")]), says("x")]);
    bench.person = Person::answering(vec![Some(Approval::AllowOnce)]);
    bench.run().await.expect("a turn");
    assert_eq!(bench.person.times_asked(), 1);

    let mut other = writes(1);
    other.person = Person::answering(vec![Some(Approval::AllowOnce)]);
    other.run().await.expect("a turn");
    assert_eq!(other.person.times_asked(), 1);
}

#[tokio::test]
async fn prm_01_once_is_not_remembered() {
    let mut bench = writes(2);
    bench.person = Person::answering(vec![Some(Approval::AllowOnce), Some(Approval::AllowOnce)]);
    bench.run().await.expect("a turn");
    assert_eq!(bench.person.times_asked(), 2);
}

/// In a peer a selected "reject" still wrote the file, because only the outcome was looked at.
#[tokio::test]
async fn prm_03_a_rejected_call_does_not_run_and_the_turn_goes_on() {
    let mut bench = writes(1);
    bench.person = Person::answering(vec![Some(Approval::RejectOnce)]);
    let outcome = bench.run().await.expect("a turn");
    assert_eq!((outcome.stop, outcome.text.as_str()), (StopReason::EndTurn, "done"));
    assert_eq!(bench.log.lines(), Vec::<String>::new());
    assert_eq!(bench.results(), [("the user rejected this call".to_owned(), true)]);
    assert_eq!(bench.sink.statuses("call-1-1"), [CallStatus::Pending, CallStatus::Failed]);
}

#[tokio::test]
async fn a_standing_rejection_is_not_asked_again() {
    let mut bench = writes(2);
    bench.person = Person::answering(vec![Some(Approval::RejectAlways)]);
    bench.run().await.expect("a turn");
    assert_eq!(bench.person.times_asked(), 1);
    assert_eq!(bench.log.lines(), Vec::<String>::new());
    let texts = [
        "the user rejected this call and every further one like it",
        "the user rejected every call like this one before",
    ];
    assert_eq!(bench.results(), texts.map(|text| (text.to_owned(), true)));
}

#[tokio::test]
async fn prm_09_no_decision_denies_the_call_and_not_the_turn() {
    let mut bench = writes(1);
    bench.person = Person::answering(vec![Some(Approval::NoDecision("nobody answered in 3600 s".to_owned()))]);
    let outcome = bench.run().await.expect("a turn");
    assert_eq!(outcome.stop, StopReason::EndTurn);
    assert_eq!(bench.results(), [("no decision: nobody answered in 3600 s".to_owned(), true)]);
    assert_eq!(bench.log.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_question_that_breaks_down_denies_the_call_and_not_the_turn() {
    let mut bench = writes(1);
    // The double panics when it has no answer.
    bench.person = Person::answering(Vec::new());
    let outcome = bench.run().await.expect("a turn");
    assert_eq!(outcome.stop, StopReason::EndTurn);
    assert_eq!(bench.results(), [("no decision: the question could not be asked (internal error)".to_owned(), true)]);
}

#[tokio::test]
async fn a_tool_that_always_asks_asks_in_spite_of_always() {
    let mut bench = writes(2);
    bench.rules.level = Level::Full;
    bench.rules.always_ask = vec!["write".to_owned()];
    bench.person = Person::answering(vec![Some(Approval::AllowAlways), Some(Approval::AllowAlways)]);
    bench.run().await.expect("a turn");
    assert_eq!(bench.person.times_asked(), 2);
}

#[tokio::test]
async fn the_question_names_the_announced_call_and_what_always_covers() {
    let mut bench = writes(1);
    bench.person = Person::answering(vec![Some(Approval::AllowOnce)]);
    bench.run().await.expect("a turn");
    let (id, covers) = bench.person.asked.lock().expect("no panic")[0].clone();
    assert_eq!(id, "call-1-1");
    assert!(covers.starts_with("changes to /") && covers.ends_with("/a.txt"), "{covers}");
}

#[tokio::test]
async fn reads_before_a_question_are_done_before_it_is_answered() {
    let mut bench = Bench::new(
        vec![asks_for(&[("look", "{}"), ("ask", "{}"), ("look", "{}")]), says("x")],
        &[("look", Effect::Read, Doing::Say("seen")), ("ask", Effect::Read, Doing::Say("asked"))],
    );
    bench.rules.always_ask = vec!["ask".to_owned()];
    bench.person = Person::answering(vec![Some(Approval::AllowOnce)]);
    bench.run().await.expect("a turn");
    let lines = bench.log.lines();
    assert_eq!(lines.first().map(String::as_str), Some("call-1-1 begins"));
    let results: Vec<String> = bench.results().into_iter().map(|(content, _)| content).collect();
    assert_eq!(results, ["seen", "asked", "seen"]);
}

#[test]
fn standing_answers_are_bounded_and_can_be_taken_back() {
    let mut remembered = Remembered::new();
    for number in 0..MAX_REMEMBERED {
        assert!(remembered.remember(number.to_string(), Standing::Allow));
    }
    assert!(!remembered.remember("one more".to_owned(), Standing::Allow));
    assert!(remembered.remember("7".to_owned(), Standing::Reject));
    assert!(remembered.forget("8"));
    assert!(!remembered.forget("8"));
    assert_eq!(remembered.iter().count(), MAX_REMEMBERED - 1);
    assert_eq!(remembered.iter().find(|(scope, _)| *scope == "7"), Some(("7", Standing::Reject)));
}
