//! Sessions that outlive their connection: several clients of one process, joined to it by nothing but their queues.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests abort loudly")]

use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use zeroclaw_acp_protocol::ErrorTable;
use zeroclaw_acp_server::{Ambient, ClientMcp, OnDisconnect, Server, ServerSettings};
use zeroclaw_acp_transport::{Connection, Outbox, OutboxReader};
use zeroclaw_app::wiring::{absolute_places, agent_table};
use zeroclaw_config::Env;
use zeroclaw_session_store::{MemoryStore, SessionStore, SqliteOptions, SqliteStore, SyncMode, TurnState};

/// Two model calls a turn: a tool that has to be asked for stands between them.
const SCRIPT: &str = r#"{"type":"text","text":"a{n} ","repeat":40}
{"type":"tool_call","name":"file_write","arguments":{"path":"new.txt","content":"x"}}
{"type":"stop"}
{"type":"text","text":"b{n} ","repeat":40}
{"type":"stop"}
{"type":"loop"}
"#;

struct Lab {
    server: Server,
    store: Arc<dyn SessionStore>,
    work: PathBuf,
    _home: TempDir,
}

async fn lab(grace: Duration) -> Lab {
    lab_of(SCRIPT, grace).await
}

async fn lab_of(script: &str, grace: Duration) -> Lab {
    let home = TempDir::new().unwrap();
    std::fs::write(home.path().join("script.jsonl"), script).unwrap();
    let options = SqliteOptions {
        path: home.path().join("sessions.db"),
        sync: SyncMode::Off,
        instance: "lab".to_owned(),
        busy_timeout: Duration::from_secs(60),
    };
    let store = Arc::new(SqliteStore::open(options).await.unwrap());
    lab_with(home, store, grace, 4)
}

fn lab_with(home: TempDir, store: Arc<dyn SessionStore>, grace: Duration, max_sessions: usize) -> Lab {
    let work = home.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let script = home.path().join("script.jsonl");
    if !script.exists() {
        std::fs::write(&script, SCRIPT).unwrap();
    }
    let config = format!(
        "schema_version = 3\n[providers.models.scripted.demo]\nscript = {:?}\n\
         [agents.main]\nmodel_provider = \"scripted.demo\"\n[risk_profiles.default]\nlevel = \"supervised\"\n",
        script.to_str().unwrap()
    );
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    let env = Env::from_os_vars([("HOME".into(), home.path().into())]);
    let paths = zeroclaw_config::resolve_paths(Some(home.path()), &env).unwrap();
    let loaded = absolute_places(zeroclaw_config::load(&paths, &env).unwrap()).unwrap();
    let settings = ServerSettings {
        max_sessions,
        detach_grace: grace,
        session_timeout: Duration::from_secs(3600),
        errors: ErrorTable::Zeroclaw,
        clients: BTreeMap::new(),
        strict: false,
        install_root: home.path().to_owned(),
        allowed_cwd_roots: Vec::new(),
        process_dir: home.path().to_owned(),
        client_mcp: ClientMcp::None,
        client_terminal: false,
        client_timeout: Duration::from_secs(30),
        version: "0",
    };
    let ids = AtomicU64::new(1);
    let ambient = Ambient {
        now_ms: Box::new(|| 1_000),
        session_id: Box::new(move || format!("s-{}", ids.fetch_add(1, Ordering::Relaxed))),
    };
    let server = Server::new(settings, agent_table(&loaded, &env), Some(Arc::clone(&store)), ambient);
    Lab { server, store, work, _home: home }
}

struct Peer {
    connection: Box<dyn Connection>,
    reader: OutboxReader,
    lines: VecDeque<Value>,
    /// Every number and its update, in the order they came; null for the client's own words.
    seen: Vec<(u64, Value)>,
    /// What its prompts are known by.
    id: Value,
}

impl Peer {
    async fn new(lab: &Lab) -> Self {
        Self::with_outbox(lab, 1024 * 1024).await
    }

    async fn with_outbox(lab: &Lab, high: usize) -> Self {
        let (outbox, reader) = Outbox::new(high);
        let connection = lab.server.connect(outbox, None, OnDisconnect::Detach);
        let mut peer = Self { connection, reader, lines: VecDeque::new(), seen: Vec::new(), id: Value::Null };
        let asks = json!({"protocolVersion": 1, "clientCapabilities": {"_meta": {"zeroclaw": {"seq": true}}}});
        let hello = peer.call(0, "initialize", asks).await;
        peer.id = hello["result"]["_meta"]["zeroclaw"]["clientId"].clone();
        assert!(peer.id.as_str().unwrap().starts_with("c-"));
        peer
    }

    async fn send(&mut self, message: Value) {
        self.connection.line(message.to_string().as_bytes()).await;
    }

    async fn request(&mut self, id: u64, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
    }

    /// Reads up to the first message that fits.
    async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            while let Some(message) = self.lines.pop_front() {
                let params = &message["params"];
                if let Some(seq) = params["_meta"]["zeroclaw"]["seq"].as_u64() {
                    self.seen.push((seq, params["update"].clone()));
                } else if message["method"] == "_zeroclaw/session/accepted" {
                    self.seen.push((params["seq"].as_u64().unwrap(), Value::Null));
                } else if message["method"] == "_zeroclaw/session/event" {
                    self.seen.push((params["seq"].as_u64().unwrap(), params["event"].clone()));
                }
                if fits(&message) {
                    return message;
                }
            }
            let mut buffer = Vec::new();
            let taken = tokio::time::timeout(Duration::from_secs(60), self.reader.take(&mut buffer)).await;
            assert!(taken.expect("a message"), "the output ended");
            let lines = buffer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            self.lines.extend(lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()));
        }
    }

    async fn call(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.request(id, method, params).await;
        self.answer(id).await
    }

    async fn answer(&mut self, id: u64) -> Value {
        self.until(|message| message.get("method").is_none() && message["id"] == json!(id)).await
    }

    async fn method(&mut self, name: &str) -> Value {
        self.until(|message| message["method"] == name).await
    }

    async fn allow(&mut self, question: &Value) {
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": "allow-once"}});
        self.send(json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome})).await;
    }

    async fn new_session(&mut self, lab: &Lab) -> String {
        let answer = self.call(1, "session/new", json!({"cwd": lab.work, "mcpServers": []})).await;
        answer["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    async fn attach(&mut self, id: u64, session: &str, after: u64) -> Value {
        self.call(id, "_zeroclaw/session/attach", json!({"sessionId": session, "afterSeq": after})).await
    }

    async fn prompt(&mut self, id: u64, session: &str) {
        self.request(id, "session/prompt", json!({"sessionId": session, "prompt": "Go on"})).await;
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

#[tokio::test]
async fn a_turn_outlives_its_connection_and_its_open_question_is_asked_again() {
    let lab = lab(Duration::from_secs(3600)).await;
    let mut first = Peer::new(&lab).await;
    let session = first.new_session(&lab).await;
    first.prompt(7, &session).await;
    first.method("session/request_permission").await;
    let seen = first.last();
    first.assert_dense(1);
    first.connection.end().await;

    let mut second = Peer::new(&lab).await;
    let answer = second.attach(1, &session, seen / 2).await;
    assert_eq!(answer["result"]["turn"], json!({"promptId": 7, "clientId": first.id, "state": "running"}));
    assert_eq!(answer["result"]["seq"], json!(second.last()));
    let question = second.method("session/request_permission").await;
    second.allow(&question).await;
    let ended = second.method("_zeroclaw/session/turn_ended").await;
    assert_eq!(ended["params"]["promptId"], json!(7));
    assert_eq!(ended["params"]["result"]["stopReason"], "end_turn");
    second.assert_dense(seen / 2 + 1);
    assert!(lab.work.join("new.txt").exists());

    let mut third = Peer::new(&lab).await;
    let answer = third.attach(1, &session, 0).await;
    assert_eq!(answer["result"]["turn"]["state"], "ended");
    assert_eq!(answer["result"]["turn"]["result"], ended["params"]["result"]);
    third.assert_dense(1);
    let missed = usize::try_from(seen / 2).unwrap();
    assert_eq!(third.seen[missed..], second.seen);
    assert_eq!(third.attach(2, &session, 100_000).await["error"]["code"], json!(-32602));
    assert_eq!(third.attach(3, "s-unknown", 0).await["error"]["code"], json!(-32000));
}

#[tokio::test]
async fn the_first_answer_wins_and_every_client_sees_the_same() {
    let lab = lab(Duration::from_secs(3600)).await;
    let mut first = Peer::new(&lab).await;
    let session = first.new_session(&lab).await;
    let mut second = Peer::new(&lab).await;
    let load = json!({"sessionId": session, "cwd": lab.work, "mcpServers": []});
    assert_eq!(second.call(1, "session/load", load.clone()).await["error"]["code"], json!(-32602));
    assert_eq!(second.attach(2, &session, 0).await["result"], json!({"sessionId": session, "seq": 0, "turn": null}));
    first.prompt(7, &session).await;
    let open = first.method("session/request_permission").await;
    let question = second.method("session/request_permission").await;
    second.allow(&question).await;
    let told = first.method("$/cancel_request").await;
    assert_eq!(told["params"]["requestId"], open["id"]);
    assert_eq!(first.answer(7).await["result"]["stopReason"], "end_turn");
    second.method("_zeroclaw/session/turn_ended").await;
    first.assert_dense(1);
    second.assert_dense(1);
    assert_eq!(second.seen[0].1["sessionUpdate"], "user_message_chunk");
    assert_eq!(first.seen[1..], second.seen[1..]);

    // Both are gone: a load takes over.
    let count = first.seen.len();
    first.connection.end().await;
    second.connection.end().await;
    let mut third = Peer::new(&lab).await;
    assert!(third.call(1, "session/load", load).await["result"].is_object());
    third.assert_dense(1);
    assert_eq!(third.seen.len(), count);
}

#[tokio::test]
async fn a_turn_that_nobody_comes_for_is_cancelled_after_the_grace() {
    let lab = lab(Duration::ZERO).await;
    let mut first = Peer::new(&lab).await;
    let session = first.new_session(&lab).await;
    first.prompt(7, &session).await;
    first.method("session/request_permission").await;
    first.connection.end().await;
    let cancelled = async {
        while lab.store.turns(&session).await.unwrap()[0].state != TurnState::Cancelled {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), cancelled).await.expect("the turn is cancelled");
    assert!(!lab.work.join("new.txt").exists());
    let mut second = Peer::new(&lab).await;
    let answer = second.attach(1, &session, 0).await;
    assert_eq!(answer["result"]["turn"]["promptId"], json!(7));
    second.assert_dense(1);
}

#[tokio::test]
async fn without_a_disk_a_client_comes_back_all_the_same() {
    let lab = lab_with(TempDir::new().unwrap(), Arc::new(MemoryStore::new()), Duration::from_secs(3600), 4);
    let mut first = Peer::new(&lab).await;
    let session = first.new_session(&lab).await;
    let load = json!({"sessionId": session, "cwd": lab.work, "mcpServers": []});
    assert_eq!(first.call(2, "session/load", load).await["error"]["code"], json!(-32000), "nothing is kept for later");
    first.prompt(7, &session).await;
    first.method("session/request_permission").await;
    let seen = first.last();
    first.connection.end().await;

    let mut second = Peer::new(&lab).await;
    assert_eq!(second.attach(1, &session, seen / 2).await["result"]["turn"]["state"], "running");
    let question = second.method("session/request_permission").await;
    second.allow(&question).await;
    second.method("_zeroclaw/session/turn_ended").await;
    second.assert_dense(seen / 2 + 1);
}

#[tokio::test]
async fn a_session_without_a_client_makes_room_for_a_new_one_and_a_busy_one_does_not() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("sessions.db");
    let (instance, busy_timeout) = ("lab".to_owned(), Duration::from_secs(60));
    let store = SqliteStore::open(SqliteOptions { path, sync: SyncMode::Off, instance, busy_timeout }).await.unwrap();
    let lab = lab_with(home, Arc::new(store), Duration::from_secs(3600), 2);
    let mut first = Peer::new(&lab).await;
    let busy = first.new_session(&lab).await;
    first.prompt(7, &busy).await;
    first.method("session/request_permission").await;
    let mut second = Peer::new(&lab).await;
    let idle = second.new_session(&lab).await;
    let mut third = Peer::new(&lab).await;
    let new = json!({"cwd": lab.work, "mcpServers": []});
    assert_eq!(third.call(1, "session/new", new.clone()).await["error"]["code"], json!(-32001), "both are held");
    first.connection.end().await;
    assert_eq!(
        third.call(2, "session/new", new.clone()).await["error"]["code"],
        json!(-32001),
        "one is held, one works"
    );
    second.connection.end().await;
    assert!(third.call(3, "session/new", new).await["result"].is_object());
    assert_eq!(third.attach(4, &idle, 0).await["error"]["code"], json!(-32000), "it is closed");
    assert_eq!(third.attach(5, &busy, 0).await["result"]["turn"]["state"], "running");
    let listed = third.call(6, "session/list", json!({})).await;
    let listed: Vec<&Value> = listed["result"]["sessions"].as_array().unwrap().iter().collect();
    assert!(listed.iter().any(|session| session["sessionId"] == idle.as_str()), "its record stays");
}

#[tokio::test]
async fn a_turn_that_runs_when_the_server_ends_is_interrupted_and_says_so() {
    let lab = lab(Duration::from_secs(3600)).await;
    let mut first = Peer::new(&lab).await;
    let session = first.new_session(&lab).await;
    first.prompt(7, &session).await;
    first.method("session/request_permission").await;
    lab.server.shut_down().await;
    let error = first.answer(7).await["error"].take();
    assert!(error["message"].as_str().unwrap().contains("interrupted"), "{error}");
    assert_eq!(lab.store.turns(&session).await.unwrap()[0].state, TurnState::Interrupted);
    let said = first.seen.last().unwrap().1["content"]["text"].as_str().unwrap().to_owned();
    assert!(said.contains("interrupted"), "{said}");
    let refused = first.call(8, "session/new", json!({"cwd": lab.work, "mcpServers": []})).await;
    assert_eq!(refused["error"]["code"], json!(-32603));
}

/// 8 MiB of updates in one turn, many times what waits for a client.
const LONG: &str = r#"{"type":"text","text":"a text of some length, with the number {n} ","repeat":40000}
{"type":"stop"}
{"type":"loop"}
"#;

// A client that did not read held up the turn and every other client of the session for ten seconds, again and again.
#[tokio::test]
async fn a_client_that_does_not_read_holds_up_nobody_and_misses_nothing() {
    let lab = lab_of(LONG, Duration::from_secs(3600)).await;
    let mut stalled = Peer::with_outbox(&lab, 64 * 1024).await;
    let session = stalled.new_session(&lab).await;
    let mut reading = Peer::new(&lab).await;
    reading.attach(1, &session, 0).await;
    // Its own prompt, of which nobody reads a byte until the turn is over.
    stalled.prompt(7, &session).await;
    reading.method("_zeroclaw/session/turn_ended").await;
    reading.assert_dense(1);
    assert!(reading.seen.len() > 40_000);
    let mut waiting = Vec::new();
    assert!(stalled.reader.take(&mut waiting).await);
    assert!(waiting.len() < 1024 * 1024, "{} bytes waited for one client", waiting.len());
    let lines = waiting.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    stalled.lines.extend(lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()));
    assert_eq!(stalled.answer(7).await["result"]["stopReason"], "end_turn");
    stalled.assert_dense(1);
    assert_eq!(stalled.seen[1..], reading.seen[1..], "everything comes before the answer, once");
    // It is where the others are.
    stalled.prompt(8, &session).await;
    assert_eq!(stalled.answer(8).await["result"]["stopReason"], "end_turn");
    stalled.assert_dense(1);
}

#[tokio::test]
async fn a_client_that_comes_back_slowly_holds_up_nobody() {
    let lab = lab_of(LONG, Duration::from_secs(3600)).await;
    let mut first = Peer::new(&lab).await;
    let session = first.new_session(&lab).await;
    first.prompt(7, &session).await;
    first.answer(7).await;
    let mut slow = Peer::with_outbox(&lab, 1024).await;
    slow.request(1, "_zeroclaw/session/attach", json!({"sessionId": session, "afterSeq": 0})).await;
    // A whole turn goes by before it reads.
    first.prompt(8, &session).await;
    assert_eq!(first.answer(8).await["result"]["stopReason"], "end_turn");
    let joined = slow.answer(1).await["result"].take();
    assert_eq!(joined["seq"], json!(slow.last()));
    slow.until(|message| message["method"] == "_zeroclaw/session/turn_ended" && message["params"]["promptId"] == 8)
        .await;
    slow.assert_dense(1);
    assert_eq!(slow.seen.len(), first.seen.len());
}

#[tokio::test]
async fn numbers_are_dense_whatever_has_one_and_a_client_is_told_where_it_begins() {
    let lab = lab(Duration::from_secs(3600)).await;
    let mut first = Peer::new(&lab).await;
    let session = first.new_session(&lab).await;
    let mut second = Peer::new(&lab).await;
    second.attach(1, &session, 0).await;
    let update = json!({"sessionId": session, "update": {"sessionUpdate": "x_seen", "content": {"text": "a note"}}});
    first.call(2, "session/update", update.clone()).await;
    assert_eq!(second.method("_zeroclaw/session/event").await["params"]["event"], update);
    first.prompt(7, &session).await;
    let question = first.method("session/request_permission").await;
    first.allow(&question).await;
    first.answer(7).await;
    second.method("_zeroclaw/session/turn_ended").await;
    first.assert_dense(1);
    second.assert_dense(1);
    let last = second.last();
    first.connection.end().await;
    second.connection.end().await;

    let params = json!({"sessionId": session, "cwd": lab.work, "mcpServers": []});
    let mut third = Peer::new(&lab).await;
    let loaded = third.call(1, "session/load", params.clone()).await;
    assert_eq!(loaded["result"]["_meta"]["zeroclaw"]["seq"], json!(last));
    third.assert_dense(1);
    assert_eq!(third.last(), last);
    third.call(2, "session/close", json!({"sessionId": session})).await;
    let resumed = third.call(3, "session/resume", params).await;
    assert_eq!(resumed["result"]["_meta"]["zeroclaw"]["seq"], json!(last));
}

// Two clients may count their requests alike.
#[tokio::test]
async fn a_prompt_is_known_by_its_client_and_its_id() {
    let lab = lab(Duration::from_secs(3600)).await;
    let mut first = Peer::new(&lab).await;
    let session = first.new_session(&lab).await;
    let mut second = Peer::new(&lab).await;
    second.attach(1, &session, 0).await;
    assert_ne!(first.id, second.id);
    second.prompt(7, &session).await;
    let question = first.method("session/request_permission").await;
    assert_eq!(first.attach(2, &session, 0).await["result"]["turn"]["clientId"], second.id);
    first.allow(&question).await;
    let ended = first.method("_zeroclaw/session/turn_ended").await;
    assert_eq!((&ended["params"]["promptId"], &ended["params"]["clientId"]), (&json!(7), &second.id));
    assert!(first.call(3, "session/close", json!({"sessionId": session})).await["result"].is_object());
    let closed = second.method("_zeroclaw/session/closed").await;
    assert_eq!(closed["params"], json!({"sessionId": session, "reason": "closed"}));
}
