//! Sessions that belong to the daemon: clients go, come back and share, over real sockets.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, protocol::frame::coding::CloseCode};
use zeroclaw_e2e::{Lab, answer_text, text_prompt, updates_of};

use crate::daemon::{Client, Daemon, token};

/// Longer than anything here takes on a busy machine; only a fault waits for it.
const LIMIT: Duration = Duration::from_secs(120);

/// A text of many chunks, a command that has to be asked for and leaves a trace each time it runs, and more text.
fn script() -> Vec<Value> {
    vec![
        json!({"type": "text", "text": "before {n}. ", "repeat": 50}),
        json!({"type": "tool_call", "name": "shell", "arguments": {"command": "echo ran >> trace"}}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "after {n}. ", "repeat": 50}),
        json!({"type": "stop"}),
        json!({"type": "loop"}),
    ]
}

/// A client that asked for numbers and keeps what it is told.
struct Seer {
    client: Client,
    /// Every number and its update, in the order they came; null for the client's own words.
    seen: Vec<(u64, Value)>,
}

impl Seer {
    async fn new(daemon: &Daemon, token: &str) -> Self {
        let mut client = daemon.connect("/acp", token).await.unwrap();
        let asks = json!({"protocolVersion": 1, "clientCapabilities": {"_meta": {"zeroclaw": {"seq": true}}}});
        client.call("initialize", asks).await.unwrap();
        Self { client, seen: Vec::new() }
    }

    async fn session(&mut self, lab: &Lab) -> String {
        let created = self.client.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.unwrap();
        created["sessionId"].as_str().unwrap().to_owned()
    }

    /// Takes note of numbers in what was read on the way to an answer.
    fn note(&mut self) {
        for message in std::mem::take(&mut self.client.notices) {
            let params = &message["params"];
            if let Some(seq) = params["_meta"]["zeroclaw"]["seq"].as_u64() {
                self.seen.push((seq, params["update"].clone()));
            } else if message["method"] == "_zeroclaw/session/accepted" {
                self.seen.push((params["seq"].as_u64().unwrap(), Value::Null));
            }
        }
    }

    async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let result = self.client.call(method, params).await;
        self.note();
        result
    }

    async fn attach(&mut self, session: &str, after: u64) -> Result<Value, Value> {
        self.call("_zeroclaw/session/attach", json!({"sessionId": session, "afterSeq": after})).await
    }

    async fn answer(&mut self, id: u64) -> Result<Value, Value> {
        let result = self.client.answer(id).await;
        self.note();
        result
    }

    /// Reads up to the first message that fits.
    async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.client.message().await;
            let Some(Message::Text(text)) = message else { panic!("not a message but {message:?}") };
            let value: Value = serde_json::from_str(text.as_str()).unwrap();
            self.client.notices.push(value.clone());
            self.note();
            if fits(&value) {
                return value;
            }
        }
    }

    async fn method(&mut self, name: &str) -> Value {
        self.until(|message| message["method"] == name).await
    }

    async fn allow(&mut self, question: &Value) {
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": "allow-once"}});
        self.client.reply(&question["id"], outcome).await;
    }

    fn last(&self) -> u64 {
        self.seen.last().map_or(0, |(seq, _)| *seq)
    }

    fn assert_dense(&self, first: u64) {
        let numbers: Vec<u64> = self.seen.iter().map(|(seq, _)| *seq).collect();
        assert!(!numbers.is_empty());
        assert_eq!(numbers, (first..).take(numbers.len()).collect::<Vec<_>>());
    }
}

fn traces(lab: &Lab) -> usize {
    std::fs::read_to_string(lab.project().join("trace")).map_or(0, |text| text.lines().count())
}

/// A client that goes in the middle of a turn costs nothing: the turn waits for the answer to its question, the client gets
/// what it has missed, and nothing runs twice.
#[tokio::test]
async fn gwb_17_a_client_that_goes_finds_its_session_as_it_left_it() {
    let lab = Lab::scripted("supervised", &script());
    let daemon = Daemon::start(&lab, &[]).await;
    let token = token(&lab, "laptop").await;
    let mut first = Seer::new(&daemon, &token).await;
    let session = first.session(&lab).await;
    let prompt = first.client.send("session/prompt", text_prompt(&session, "hi")).await;
    first.method("session/request_permission").await;
    first.assert_dense(1);
    let half = first.last() / 2;
    // Without a close frame, as when a network goes away.
    drop(first.client);

    let mut second = Seer::new(&daemon, &token).await;
    let joined = second.attach(&session, half).await.unwrap();
    assert_eq!(joined["turn"]["promptId"], prompt);
    assert_eq!(joined["turn"]["state"], "running");
    assert_eq!(second.seen, first.seen[usize::try_from(half).unwrap()..], "exactly what was missed");
    let question = second.method("session/request_permission").await;
    second.allow(&question).await;
    let ended = second.method("_zeroclaw/session/turn_ended").await;
    assert_eq!(ended["params"]["promptId"], prompt);
    assert_eq!(ended["params"]["result"]["stopReason"], "end_turn");
    second.assert_dense(half + 1);
    assert_eq!(traces(&lab), 1);
    drop(second.client);

    let mut third = Seer::new(&daemon, &token).await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    // Until the gateway has noticed, the session belongs to the connection that is gone.
    let loading = async {
        while let Err(error) = third.call("session/load", params.clone()).await {
            assert_eq!(error["code"], -32602, "{error}");
        }
    };
    tokio::time::timeout(LIMIT, loading).await.expect("the session can be loaded");
    third.assert_dense(1);
    assert_eq!(third.seen[usize::try_from(half).unwrap()..], second.seen);
    assert_eq!(traces(&lab), 1, "nothing ran twice");
}

#[tokio::test]
async fn several_clients_see_every_update_and_the_first_answer_to_a_question_wins() {
    let lab = Lab::scripted("supervised", &script());
    let daemon = Daemon::start(&lab, &[]).await;
    let token = token(&lab, "laptop").await;
    let mut first = Seer::new(&daemon, &token).await;
    let session = first.session(&lab).await;
    let mut second = Seer::new(&daemon, &token).await;
    let mut third = Seer::new(&daemon, &token).await;
    second.attach(&session, 0).await.unwrap();
    third.attach(&session, 0).await.unwrap();
    let prompt = first.client.send("session/prompt", text_prompt(&session, "hi")).await;
    let open = first.method("session/request_permission").await;
    let question = second.method("session/request_permission").await;
    let other = third.method("session/request_permission").await;
    second.allow(&question).await;
    assert_eq!(first.method("$/cancel_request").await["params"]["requestId"], open["id"]);
    assert_eq!(third.method("$/cancel_request").await["params"]["requestId"], other["id"]);
    // Late, and for nobody.
    third.allow(&other).await;
    assert_eq!(first.answer(prompt).await.unwrap()["stopReason"], "end_turn");
    second.method("_zeroclaw/session/turn_ended").await;
    third.method("_zeroclaw/session/turn_ended").await;
    for seer in [&first, &second, &third] {
        seer.assert_dense(1);
    }
    assert_eq!(second.seen, third.seen);
    assert_eq!(first.seen[1..], second.seen[1..]);
    assert_eq!(second.seen[0].1["sessionUpdate"], "user_message_chunk");
    assert_eq!(traces(&lab), 1);
}

/// The most memory that a process has had, in KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A client that stopped reading had everything queued for it until the process had no memory left.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn gwb_13_a_client_that_does_not_read_costs_little_and_is_told_so() {
    // Short, so that the answer itself is no memory to speak of.
    let lab = Lab::scripted(
        "supervised",
        &[json!({"type": "text", "text": "x", "repeat": 150_000}), json!({"type": "stop"}), json!({"type": "loop"})],
    );
    let mut daemon = Daemon::start(&lab, &["--log-level", "info"]).await;
    let token = token(&lab, "laptop").await;
    let mut stalled = Seer::new(&daemon, &token).await;
    let session = stalled.session(&lab).await;
    let mut reading = Seer::new(&daemon, &token).await;
    reading.attach(&session, 0).await.unwrap();
    let before = peak(daemon.pid());
    stalled.client.send("session/prompt", text_prompt(&session, "hi")).await;
    // About 32 MiB, of which the other client takes nothing while this one takes all.
    reading.method("_zeroclaw/session/turn_ended").await;
    reading.assert_dense(1);
    let grown = peak(daemon.pid()) - before;
    assert!(grown < 24 * 1024, "{grown} KiB more for a client that does not read");
    // Its answers are not waited for either.
    reading.client.call("session/list", json!({})).await.unwrap();
    daemon.logged("why=Stalled").await;
    assert_eq!(stalled.client.close_code().await, Some(CloseCode::Library(4409)));

    let mut third = Seer::new(&daemon, &token).await;
    third.attach(&session, 0).await.unwrap();
    assert_eq!(third.seen, reading.seen, "the turn is stored");
}

#[tokio::test]
async fn a_turn_that_nobody_comes_for_ends_after_the_grace_and_its_place_is_free() {
    let lab = Lab::scripted("supervised", &script());
    let config = std::fs::read_to_string(lab.config_dir().join("config.toml")).unwrap();
    lab.write_config(&format!("{config}[gateway]\ndetach_grace_secs = 0\n[acp]\nmax_sessions = 1\n"));
    let daemon = Daemon::start(&lab, &[]).await;
    let token = token(&lab, "laptop").await;
    let mut first = Seer::new(&daemon, &token).await;
    let session = first.session(&lab).await;
    first.client.send("session/prompt", text_prompt(&session, "hi")).await;
    first.method("session/request_permission").await;
    drop(first.client);
    let mut second = Seer::new(&daemon, &token).await;
    let params = json!({"cwd": lab.project(), "mcpServers": []});
    let opening = async {
        while let Err(error) = second.call("session/new", params.clone()).await {
            assert_eq!(error["code"], -32001, "{error}");
        }
    };
    tokio::time::timeout(LIMIT, opening).await.expect("the place becomes free");
    assert_eq!(traces(&lab), 0, "a question that nobody answered is a no");
}

#[tokio::test]
async fn a_session_without_a_client_is_closed_after_its_time_and_can_be_loaded() {
    let lab = Lab::scripted("full", &[json!({"type": "text", "text": "kept"}), json!({"type": "stop"})]);
    let config = std::fs::read_to_string(lab.config_dir().join("config.toml")).unwrap();
    lab.write_config(&format!("{config}[acp]\nsession_timeout_secs = 1\n"));
    let daemon = Daemon::start(&lab, &[]).await;
    let token = token(&lab, "laptop").await;
    let mut first = Seer::new(&daemon, &token).await;
    let session = first.session(&lab).await;
    first.call("session/prompt", text_prompt(&session, "hi")).await.unwrap();
    let mut second = Seer::new(&daemon, &token).await;
    drop(first.client);
    let closed = async {
        while second.call("_zeroclaw/status", json!({})).await.unwrap()["activeSessions"] != 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, closed).await.expect("the session is closed");
    assert_eq!(second.attach(&session, 0).await.unwrap_err()["code"], -32000);
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    second.client.call("session/load", params).await.unwrap();
    assert_eq!(answer_text(&second.client.notices), "kept");
    assert_eq!(updates_of(&second.client.notices, "user_message_chunk").len(), 1);
}

#[tokio::test]
async fn a_turn_without_a_client_may_end_too_before_the_daemon_does() {
    let lab = Lab::scripted(
        "supervised",
        &[
            json!({"type": "text", "text": "begun, "}),
            json!({"type": "delay", "ms": 1500}),
            json!({"type": "text", "text": "to the end"}),
            json!({"type": "stop"}),
        ],
    );
    let daemon = Daemon::start(&lab, &[]).await;
    let token = token(&lab, "laptop").await;
    let mut first = Seer::new(&daemon, &token).await;
    let session = first.session(&lab).await;
    first.client.send("session/prompt", text_prompt(&session, "hi")).await;
    first.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    drop(first.client);
    let mut idle = Seer::new(&daemon, &token).await;
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(idle.client.close_code().await, Some(CloseCode::Away));
    assert_eq!(daemon.ended().await.0, Some(0));
    let again = Daemon::start(&lab, &[]).await;
    let mut second = Seer::new(&again, &token).await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    second.client.call("session/load", params).await.unwrap();
    assert_eq!(answer_text(&second.client.notices), "begun, to the end");
}
