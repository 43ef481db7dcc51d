//! Providers inside the agent loop: what is tried again, how often, and what the user is told.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use zeroclaw_policy::{Level, Root, RootKind, Ruleset};
use zeroclaw_runtime::{
    client::ClientMeans,
    jail::Jail,
    model::{Message, ModelProvider, builtin::BuiltinProvider, vendor::Family},
    tool::{Tool, ToolSettings, standard_tools},
    turn::{
        Agent, Answer, Approval, ApprovalRequest, Approver, Asker, Flow, Gauge, Remembered, ToolSet, TurnError,
        TurnEvent, TurnInput, TurnLimits, TurnOutcome, TurnSink, run_turn,
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

    fn compacted(&self, _: &[Arc<Message>], _: usize) {}
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

/// Runs one turn against these replies; gives its end, the text that was shown and the number of requests.
async fn turn(family: Family, replies: Vec<Reply>) -> (Result<TurnOutcome, TurnError>, String, usize) {
    let server = ModelServer::start().await;
    replies.into_iter().for_each(|reply| server.push(reply));
    let directory = tempfile::tempdir().unwrap();
    let provider = Arc::new(provider(family, &server));
    let (outcome, text) = run(provider, Vec::new(), Level::Supervised, directory.path(), "prompt").await;
    assert_eq!(server.violations(), Vec::<String>::new());
    (outcome, text, server.requests().len())
}

/// Runs one turn of a new session in this directory; gives its end and the text that was shown.
async fn run(
    provider: Arc<dyn ModelProvider>,
    tools: Vec<Arc<dyn Tool>>,
    level: Level,
    directory: &Path,
    prompt: &str,
) -> (Result<TurnOutcome, TurnError>, String) {
    let mut limits = TurnLimits::for_window(128_000);
    limits.retry.first_wait = Duration::from_millis(1);
    let tools = Arc::new(ToolSet::new(tools));
    let agent = Agent { provider, tools, limits, fallbacks: Vec::new(), random: || 0 };
    let sink = Texts::default();
    let input = TurnInput {
        turn: 1,
        system: "system".into(),
        history: &mut Vec::new(),
        prompt: prompt.to_owned(),
        thinking: None,
        jail: Arc::new(Jail::open(vec![Root::new(directory.canonicalize().unwrap(), RootKind::Session)]).unwrap()),
        rules: Arc::new(Ruleset::new(level)),
        settings: Arc::new(ToolSettings {
            shell_timeout: Duration::from_secs(60),
            shell_env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            max_output_bytes: 10_000,
            launcher: None,
            sandbox: Arc::new(zeroclaw_runtime::sandbox::Confiner::unconfined()),
        }),
        sink: &sink,
        approver: &Nobody,
        client: ClientMeans::default(),
        asker: Arc::new(Nobody),
        remembered: &Mutex::<Remembered>::default(),
        gauge: &Gauge::default(),
        cancel: CancellationToken::new(),
    };
    let outcome = run_turn(&agent, input).await;
    let text = sink.0.lock().unwrap().clone();
    (outcome, text)
}

/// The built-in agent's commands are calls that the real tools understand.
#[tokio::test]
async fn the_builtin_agent_drives_the_real_tools() {
    let directory = tempfile::tempdir().unwrap();
    let prompt = "/write a.txt one\n/edit a.txt one => two\n/read a.txt 1-1\n/ls\n/find *.txt\n/grep two\n\
                  /plan first; second\n/run cat a.txt\n/run exit 3\n/read missing.txt\n/deliver a.txt\n/say 2";
    let builtin: Arc<dyn ModelProvider> = Arc::new(BuiltinProvider::new("builtin.default", Vec::new()));
    let (outcome, text) = run(Arc::clone(&builtin), standard_tools(), Level::Full, directory.path(), prompt).await;
    outcome.unwrap();
    let told: Vec<&str> = text.lines().collect();
    assert_eq!(std::fs::read_to_string(directory.path().join("a.txt")).unwrap(), "two", "{text}");
    assert_eq!(
        told[..9],
        [
            "a.txt is written.",
            "a.txt is changed.",
            "a.txt is above.",
            "The content of . is above.",
            "What was found is above.",
            "What was found is above.",
            "The plan is set.",
            "The command has ended (exit code 0); its output is above.",
            "The command has ended (exit code 3); its output is above.",
        ]
    );
    assert!(told[9].starts_with("That did not work: "), "{text}");
    assert_eq!(told[10..], ["a.txt is delivered.", "chunk 1 chunk 2 "]);

    let (outcome, text) = run(builtin, standard_tools(), Level::Supervised, directory.path(), "/write b.txt x").await;
    outcome.unwrap();
    assert_eq!(text, "That was not allowed: no decision: nobody is there\n");
    assert!(!directory.path().join("b.txt").exists());
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
