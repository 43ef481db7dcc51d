//! Talking to the user through the client.

use serde_json::json;
use zeroclaw_policy::Action;
use zeroclaw_runtime::{
    tool::{PlanEntry, PlanPriority, PlanStatus, ToolFailure},
    turn::Answer,
};

use crate::support::Bench;

fn answers(answer: Answer) -> Bench {
    let bench = Bench::new();
    *bench.client.answer.lock().expect("lock") = Some(answer);
    bench
}

#[tokio::test]
async fn a_plan_is_shown_whole() {
    let bench = Bench::new();
    let todos = json!({ "todos": [
        { "content": "look", "status": "completed", "priority": "high" },
        { "content": "do", "status": "in_progress" },
        { "content": "check", "status": "pending", "priority": "low" },
    ]});
    let call = bench.prepare("todo_write", todos).await.expect("prepared");
    assert_eq!(call.action(), Action::Converse);
    bench.finish("todo_write", call).await.expect("shown");
    let step = |content: &str, priority, status| PlanEntry { content: content.to_owned(), priority, status };
    let expected = vec![
        step("look", PlanPriority::High, PlanStatus::Completed),
        step("do", PlanPriority::Medium, PlanStatus::InProgress),
        step("check", PlanPriority::Low, PlanStatus::Pending),
    ];
    assert_eq!(*bench.reports.plans.lock().expect("lock"), [expected]);
    let failure = bench.failure("todo_write", json!({ "todos": [{ "content": "x", "status": "done" }] })).await;
    assert!(failure.contains("unknown variant `done`"), "{failure}");
    let many: Vec<_> = (0..201).map(|_| json!({ "content": "x", "status": "pending" })).collect();
    assert!(bench.failure("todo_write", json!({ "todos": many })).await.contains("at most 200"));
}

#[tokio::test]
async fn a_question_is_asked_and_answered() {
    let bench = answers(Answer::Choice("blue".to_owned()));
    let arguments = json!({ "question": "Which colour?", "choices": ["red", "blue"] });
    assert_eq!(bench.text("ask_user", arguments).await, "The user answered: blue");
    let asked = ("call-1".to_owned(), "Which colour?".to_owned(), vec!["red".to_owned(), "blue".to_owned()]);
    assert_eq!(*bench.client.asked.lock().expect("lock"), [asked]);

    let bench = answers(Answer::None("time ran out".to_owned()));
    assert_eq!(bench.text("ask_user", json!({ "question": "Why?" })).await, "The user gave no answer: time ran out");

    let bench = answers(Answer::Unsupported("no forms".to_owned()));
    let failure = bench.failure("ask_user", json!({ "question": "Why?" })).await;
    assert_eq!(failure, "the client cannot ask for free text (no forms); give `choices`");
    for arguments in [json!({ "question": " " }), json!({ "question": "x", "choices": ["a", "a"] })] {
        assert!(bench.failure("ask_user", arguments).await.starts_with("invalid arguments"));
    }
}

#[tokio::test]
async fn a_cancelled_turn_does_not_wait_for_the_answer() {
    let bench = Bench::new();
    let cancel = bench.context.cancel.clone();
    let call = bench.call("ask_user", json!({ "question": "Anybody?", "choices": ["yes"] }));
    let (result, ()) = tokio::join!(call, async {
        while bench.client.asked.lock().expect("lock").is_empty() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    });
    assert_eq!(result, Err(ToolFailure::Cancelled));
}

#[tokio::test]
async fn an_escalation_is_marked_and_waits_only_when_told_to() {
    let bench = answers(Answer::Choice("Stop".to_owned()));
    let told = bench.text("escalate_to_human", json!({ "summary": "Disk is full", "urgency": "high" })).await;
    assert_eq!(told, "The user was told.");
    assert!(bench.client.asked.lock().expect("lock").is_empty());
    assert_eq!(*bench.reports.messages.lock().expect("lock"), ["**[Needs a person, urgency high]** Disk is full"]);
    let arguments = json!({ "summary": "Go on?", "urgency": "low", "wait": true });
    assert_eq!(bench.text("escalate_to_human", arguments).await, "The user answered: Stop");
    assert_eq!(bench.client.asked.lock().expect("lock")[0].2, ["Continue", "Stop"]);
}
