//! Providers inside the agent loop: what is tried again, how often, and what the user is told.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use zeroclaw_policy::{Level, Root, RootKind, Ruleset};
use zeroclaw_runtime::{
    jail::Jail,
    model::Message,
    tool::ToolSettings,
    turn::{
        Agent, Answer, Approval, ApprovalRequest, Approver, Asker, Flow, Remembered, ToolSet, TurnError, TurnEvent,
        TurnInput, TurnLimits, TurnOutcome, TurnSink, run_turn,
    },
};
use zeroclaw_testkit::model_server::{ModelServer, Part, Reply};

use crate::support::{BOTH, provider};

#[derive(Default)]
struct Texts(Mutex<String>);

#[async_trait]
impl TurnSink for Texts {
    fn emit(&self, event: TurnEvent<'_>) -> Flow {
        if let TurnEvent::Text { text, .. } = event {
            self.0.lock().unwrap().push_str(text);
        }
        Flow::Ready
    }

    async fn drained(&self) {}

    fn record(&self, _: &Arc<Message>) {}
}

struct Nobody;

#[async_trait]
impl Approver for Nobody {
    async fn approve(&self, _: ApprovalRequest<'_>) -> Approval {
        Approval::NoDecision("nobody is there".to_owned())
    }
}

#[async_trait]
impl Asker for Nobody {
    async fn ask(&self, _: &str, _: &str, _: &[String]) -> Answer {
        Answer::Unsupported("nobody is there".to_owned())
    }
}

/// Runs one turn with these replies; gives its end, the text that was shown and the number of requests.
async fn turn(
    family: zeroclaw_runtime::model::vendor::Family,
    replies: Vec<Reply>,
) -> (Result<TurnOutcome, TurnError>, String, usize) {
    let server = ModelServer::start().await;
    replies.into_iter().for_each(|reply| server.push(reply));
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let mut limits = TurnLimits::for_window(128_000);
    limits.retry.first_wait = Duration::from_millis(1);
    let tools = Arc::new(ToolSet::new(Vec::new()));
    let agent = Agent { provider: Arc::new(provider(family, &server)), tools, limits };
    let sink = Texts::default();
    let mut history = Vec::new();
    let input = TurnInput {
        turn: 1,
        system: "system".into(),
        history: &mut history,
        prompt: "prompt".to_owned(),
        jail: Arc::new(Jail::open(vec![Root::new(root, RootKind::Session)]).unwrap()),
        rules: Arc::new(Ruleset::new(Level::Supervised)),
        settings: Arc::new(ToolSettings {
            shell_timeout: Duration::from_secs(1),
            shell_env: Vec::new(),
            max_output_bytes: 10_000,
        }),
        sink: &sink,
        approver: &Nobody,
        asker: Arc::new(Nobody),
        remembered: &Mutex::<Remembered>::default(),
        cancel: CancellationToken::new(),
    };
    let outcome = run_turn(&agent, input).await;
    assert_eq!(server.violations(), Vec::<String>::new());
    let text = sink.0.lock().unwrap().clone();
    (outcome, text, server.requests().len())
}

/// 529 twice, in both shapes: the turn succeeds and says nothing twice.
#[tokio::test]
async fn prv_11_overload_is_tried_again() {
    for family in BOTH {
        let overloaded = || Reply::error_mid_stream([], json!({"type": "overloaded_error", "message": "Overloaded"}));
        let replies = vec![Reply::status(529), overloaded(), Reply::text("hello")];
        let (outcome, text, requests) = turn(family, replies).await;
        assert_eq!((outcome.unwrap().text.as_str(), text.as_str(), requests), ("hello", "hello", 3), "{family:?}");
    }
}

/// What was shown cannot be taken back.
#[tokio::test]
async fn prv_11_nothing_is_tried_again_after_output() {
    for family in BOTH {
        let overloaded = json!({"type": "overloaded_error", "message": "Overloaded"});
        let replies = vec![Reply::error_mid_stream([Part::text("hel")], overloaded), Reply::text("hello")];
        let (outcome, text, requests) = turn(family, replies).await;
        assert!(outcome.unwrap_err().to_string().contains("Overloaded"));
        assert_eq!((text.as_str(), requests), ("hel", 1), "{family:?}");
    }
}

/// A wait of days is told, not waited for.
#[tokio::test]
async fn prv_13_a_wait_of_days_fails_at_once() {
    for family in BOTH {
        let body = json!({"error": {"type": "rate_limit_error", "message": "Come back in spring."}});
        let replies = vec![Reply::status(429).retry_after("1382400").body(body), Reply::text("hello")];
        let (outcome, _, requests) = turn(family, replies).await;
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("Come back in spring.") && requests == 1, "{family:?} {requests}: {error}");
    }
}

/// A conversation that stays too long is not sent without end.
#[tokio::test]
async fn prv_19_overflow_ends_after_two_requests_at_most() {
    for family in BOTH {
        let body = json!({"error": {"code": "context_length_exceeded", "message": "maximum context length is 8"}});
        let replies = (0..10).map(|_| Reply::status(400).body(body.clone())).collect();
        let (outcome, _, requests) = turn(family, replies).await;
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("too long") && requests <= 2, "{family:?} {requests}: {error}");
    }
}
