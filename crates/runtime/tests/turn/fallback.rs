//! Models that take over for one that cannot answer.

use std::{sync::Arc, time::Duration};

use zeroclaw_runtime::{
    model::{ModelError, ModelProvider, Thinking},
    turn::{Fallback, TurnFailure},
};

use crate::support::{Bench, Doing, Effect, Event, Model, Reply, Seen, asks_for, says, text};

fn transient() -> ModelError {
    ModelError::Transient { message: "overloaded".to_owned(), retry_after: None }
}

/// A bench with models behind its own.
fn bench(own: Vec<Reply>, others: Vec<Vec<Reply>>) -> (Bench, Vec<Arc<Model>>) {
    let mut bench = Bench::new(own, &[("look", Effect::Read, Doing::Say("seen"))]);
    let models: Vec<Arc<Model>> = others
        .into_iter()
        .enumerate()
        .map(|(index, replies)| Arc::new(Model::new(&format!("spare {index}"), replies)))
        .collect();
    bench.agent.limits.retry.first_wait = Duration::from_millis(1);
    bench.agent.fallbacks = models
        .iter()
        .enumerate()
        .map(|(index, model)| Fallback {
            id: format!("custom.spare{index}").into(),
            provider: Arc::clone(model) as Arc<dyn ModelProvider>,
            context_tokens: 50_000,
            compact_to: None,
            levels: vec![Thinking::Off],
            thinking: Some(Thinking::Off),
        })
        .collect();
    (bench, models)
}

fn changes(bench: &Bench) -> Vec<(String, String)> {
    let change = |seen| if let Seen::Fallback { from, to, .. } = seen { Some((from, to)) } else { None };
    bench.sink.seen().into_iter().filter_map(change).collect()
}

#[tokio::test]
async fn each_failure_of_a_model_lets_the_next_one_take_over() {
    let name = |text: &str| text.to_owned();
    for (error, requests) in [
        (transient(), 2),
        (ModelError::Transient { message: name("later"), retry_after: Some(Duration::from_secs(6)) }, 1),
        (ModelError::Auth(name("no key")), 1),
        (ModelError::Idle(9), 1),
        (ModelError::Stream(name("cut")), 1),
        (ModelError::Unusable(name("no credit")), 1),
        (ModelError::Config(name("no address")), 1),
    ] {
        let own = (0..requests).map(|_| Reply::Error(error.clone())).collect();
        let (mut bench, models) = bench(own, vec![vec![says("I am here")]]);
        let outcome = bench.run().await.expect("a turn");
        assert_eq!((outcome.text.as_str(), outcome.model.as_deref()), ("I am here", Some("custom.spare0")), "{error}");
        assert_eq!(bench.model.requests().len(), requests, "{error}");
        assert_eq!(models[0].requests()[0].thinking, Some(Thinking::Off), "it is asked for what it can do");
        assert_eq!(changes(&bench), [("fake".to_owned(), "spare 0".to_owned())]);
    }
}

#[tokio::test]
async fn the_rest_of_the_turn_stays_with_the_model_that_took_over_and_the_next_turn_begins_anew() {
    let spare = vec![asks_for(&[("look", "{}")]), says("seen it")];
    let (mut bench, models) = bench(vec![Reply::Error(ModelError::Auth("no".to_owned()))], vec![spare]);
    bench.run().await.expect("a turn");
    assert_eq!((bench.model.requests().len(), models[0].requests().len()), (1, 2));
    bench.next_turn(vec![says("I am back")]);
    let outcome = bench.run().await.expect("a turn");
    assert_eq!((outcome.text.as_str(), outcome.model), ("I am back", None));
}

#[tokio::test]
async fn nothing_takes_over_once_something_was_shown() {
    let half: Vec<Event> = vec![text("half an ans"), Err(transient())];
    let (mut bench, models) = bench(vec![Reply::Events(half)], vec![vec![]]);
    let error = bench.run().await.expect_err("a failed turn");
    assert_eq!(error.text_so_far, "half an ans");
    assert_eq!((models[0].requests().len(), changes(&bench).len()), (0, 0));
}

#[tokio::test]
async fn what_is_wrong_with_the_request_is_not_carried_to_another_vendor() {
    let refused = ModelError::Request("the content is not allowed".to_owned());
    let (mut bench, models) = bench(vec![Reply::Error(refused.clone())], vec![vec![]]);
    let error = bench.run().await.expect_err("a failed turn");
    assert_eq!((error.error, models[0].requests().len()), (TurnFailure::Model(refused), 0));
}

#[tokio::test]
async fn when_all_fail_the_last_one_says_why_after_its_retries() {
    let last = (0..4).map(|_| Reply::Error(transient())).collect();
    let idle = vec![Reply::Error(ModelError::Idle(1))];
    let (mut bench, models) = bench(vec![Reply::Error(ModelError::Auth("no".to_owned()))], vec![idle, last]);
    let error = bench.run().await.expect_err("a failed turn");
    assert_eq!(error.error, TurnFailure::Model(transient()));
    assert_eq!((models[0].requests().len(), models[1].requests().len()), (1, 4));
    assert_eq!(changes(&bench).len(), 2);
}

#[test]
fn waits_are_spread_and_never_shorter_than_a_vendor_asked_for() {
    let policy = zeroclaw_runtime::turn::RetryPolicy::default();
    let asked = ModelError::Transient { message: String::new(), retry_after: Some(Duration::from_secs(10)) };
    for chance in [0, 1, 511, 1_023, u64::MAX] {
        let wait = policy.wait(2, &transient(), chance).expect("a wait");
        assert!((Duration::from_millis(750)..=Duration::from_secs(1)).contains(&wait), "{wait:?}");
        let wait = policy.wait(2, &asked, chance).expect("a wait");
        assert!((Duration::from_secs(10)..=Duration::from_secs(11)).contains(&wait), "{wait:?}");
    }
    assert_ne!(policy.wait(2, &transient(), 0), policy.wait(2, &transient(), 512));
}
