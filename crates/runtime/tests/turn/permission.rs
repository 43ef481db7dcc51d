//! Questions and their answers.

use zeroclaw_policy::{Action, Grant, Level, Replaces, Root, RootKind, Roots};
use zeroclaw_runtime::turn::{Approval, CallStatus, MAX_REMEMBERED, Remembered, Said, Standing, StopReason};

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

    // Another directory is another question, also after an "always".
    bench.next_turn(vec![asks_for(&[("write", "{\"path\":\".hidden/b.txt\"}")]), says("x")]);
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

/// What was shown and approved was one thing, and what the tool then had in hand was another.
#[tokio::test]
async fn a_tool_that_changes_its_mind_does_nothing() {
    for level in [Level::Supervised, Level::Full] {
        let replies = vec![asks_for(&[("write", "{\"path\":\"a.txt\"}")]), says("done")];
        let mut bench = Bench::new(replies, &[("write", Effect::Write, Doing::ChangeItsMind)]);
        bench.rules.level = level;
        bench.person = Person::answering(vec![Some(Approval::AllowOnce)]);
        bench.run().await.expect("a turn");
        assert_eq!(bench.log.lines(), Vec::<String>::new());
        let reason = "what would run is not what was asked about; nothing was done";
        assert_eq!(bench.results(), [(reason.to_owned(), true)]);
        assert_eq!(bench.sink.statuses("call-1-1"), [CallStatus::Pending, CallStatus::Failed]);
    }
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
    assert_eq!(covers, "`write` anywhere in this directory");
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

/// An answer about writing this file.
fn grant(path: &str) -> Grant {
    let roots = Roots::new(vec![Root::new("/w".into(), RootKind::Session)]);
    let path = roots.locate(path).expect("a path inside");
    Grant::propose(
        "write",
        &Action::Write { path, content: Vec::new().into(), replaces: Replaces::Nothing, pins: Vec::new() },
    )
    .expect("a grant")
}

fn write(path: &str) -> Action {
    let roots = Roots::new(vec![Root::new("/w".into(), RootKind::Session)]);
    let path = roots.locate(path).expect("a path inside");
    Action::Write { path, content: Vec::new().into(), replaces: Replaces::Nothing, pins: Vec::new() }
}

fn standing_of(remembered: &Remembered, path: &str) -> Option<Standing> {
    remembered.said("write", &write(path)).map(|said| said.standing)
}

#[test]
fn standing_answers_are_bounded() {
    let mut remembered = Remembered::new();
    for number in 0..MAX_REMEMBERED {
        assert!(remembered.remember(grant(&format!(".{number}")), Standing::Allow));
    }
    assert!(!remembered.remember(grant(".more"), Standing::Allow));
    assert_eq!(standing_of(&remembered, ".more"), None);
    assert!(
        remembered.remember(grant(".7"), Standing::Reject),
        "a later answer about the same replaces the earlier one"
    );
    assert_eq!(standing_of(&remembered, ".7"), Some(Standing::Reject));
    let kept = (0..2 * MAX_REMEMBERED).map(|number| (grant(&format!(".kept-{number}")), Standing::Allow));
    remembered.renew(kept);
    assert_eq!(standing_of(&remembered, ".kept-999"), Some(Standing::Allow));
    assert_eq!(standing_of(&remembered, ".kept-1000"), None);
}

#[test]
fn the_strictest_answer_counts_and_the_closest_is_named() {
    let mut remembered = Remembered::new();
    assert!(remembered.keep(grant("src/a"), Standing::Allow));
    let said = |remembered: &Remembered, path| remembered.said("write", &write(path));
    let by_directory = Said { standing: Standing::Allow, about_directory: true };
    assert_eq!(said(&remembered, "src/b"), Some(by_directory));
    assert!(remembered.remember(grant("src/deep/a"), Standing::Reject));
    assert_eq!(standing_of(&remembered, "src/deep/x"), Some(Standing::Reject));
    assert_eq!(standing_of(&remembered, "src/b"), Some(Standing::Allow));
    // What is kept elsewhere ends there; the session's own answers stay.
    remembered.renew(std::iter::empty());
    assert_eq!(standing_of(&remembered, "src/b"), None);
    assert_eq!(standing_of(&remembered, "src/deep/x"), Some(Standing::Reject));
    remembered.renew([(grant("a"), Standing::Allow), (grant("src/a"), Standing::Reject)].into_iter());
    assert_eq!(
        (standing_of(&remembered, "b"), standing_of(&remembered, "src/b")),
        (Some(Standing::Allow), Some(Standing::Reject))
    );
    remembered.distrust();
    assert_eq!((standing_of(&remembered, "b"), standing_of(&remembered, "src/b")), (None, Some(Standing::Reject)));
}

#[tokio::test]
async fn a_standing_rejection_holds_at_every_level() {
    let mut bench = writes(1);
    bench.person = Person::answering(vec![Some(Approval::RejectAlways)]);
    bench.run().await.expect("a turn");
    bench.next_turn(vec![asks_for(&[("write", "{\"path\":\"a.txt\"}")]), says("x")]);
    bench.rules.level = Level::Full;
    bench.run().await.expect("a turn");
    assert_eq!(bench.log.lines(), Vec::<String>::new());
}
