//! A panic anywhere between the arrival of a request and its answer costs at most what it happened in: every request is
//! answered once, the output stays whole, the session works on or is gone and can be loaded, and the server lives.
//! The panics are real ones, in the parts that a server is given: its store, its clock and its source of ids.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test aborts loudly, and here it is about panics")]

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use serde_json::{Value, json};
use zeroclaw_acp_protocol::ErrorTable;
use zeroclaw_acp_server::{
    AgentEntry, AgentSlot, AgentTable, Ambient, ClientMcp, McpSetup, ModelAccess, OnDisconnect, Server, ServerSettings,
};
use zeroclaw_acp_transport::{Connection, Outbox, OutboxReader};
use zeroclaw_policy::{Level, Ruleset};
use zeroclaw_runtime::{
    model::{builtin::BuiltinProvider, vendor::HttpClients},
    sandbox::Confiner,
    tool::{ToolSettings, standard_tools},
    turn::{Agent, ToolSet, TurnLimits},
};
use zeroclaw_session_store::{
    ApprovalQuery, ApprovalRecord, Batch, ClaimError, EventRecord, ListQuery, MemoryStore, MessageRecord, NewApproval,
    NewSession, SessionPatch, SessionRecord, SessionStore, StoreError, TurnEnd, TurnRecord, TurnStart, TurnState,
};

/// Panics at the call that it is set to, once.
#[derive(Debug, Default)]
struct Mine(AtomicI64);

impl Mine {
    /// Nothing is to happen.
    fn off() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(i64::MAX)))
    }

    /// The next call but `calls` panics.
    fn arm(&self, calls: i64) {
        self.0.store(calls, Ordering::SeqCst);
    }

    fn has_gone_off(&self) -> bool {
        self.0.load(Ordering::SeqCst) < 0
    }

    fn step(&self, what: &str) {
        let left = self.0.fetch_sub(1, Ordering::SeqCst);
        if left == 0 {
            panic!("a panic that this test wants, in {what}");
        }
        if left < 0 {
            self.0.store(-1, Ordering::SeqCst);
        }
    }
}

/// A store in memory whose calls may panic.
struct Store {
    memory: MemoryStore,
    mine: Arc<Mine>,
}

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Store")
    }
}

macro_rules! passed_on {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        #[async_trait]
        impl SessionStore for Store {
            fn is_durable(&self) -> bool {
                true
            }
            $(async fn $name(&self, $($argument: $kind),*) -> $result {
                self.mine.step(stringify!($name));
                self.memory.$name($($argument),*).await
            })*
        }
    };
}

passed_on! {
    create_session(new: NewSession) -> Result<(), StoreError>;
    claim(id: &str) -> Result<(), ClaimError>;
    release(id: &str) -> Result<(), StoreError>;
    append(id: &str, batch: Batch) -> Result<(), StoreError>;
    begin_turn(id: &str, start: TurnStart) -> Result<(), StoreError>;
    end_turn(id: &str, end: TurnEnd) -> Result<(), StoreError>;
    session(id: &str) -> Result<Option<SessionRecord>, StoreError>;
    events(id: &str, after_seq: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError>;
    messages(id: &str) -> Result<Vec<MessageRecord>, StoreError>;
    turns(id: &str) -> Result<Vec<TurnRecord>, StoreError>;
    update_session(id: &str, patch: SessionPatch) -> Result<(), StoreError>;
    list(query: ListQuery) -> Result<Vec<SessionRecord>, StoreError>;
    delete(id: &str) -> Result<bool, StoreError>;
    add_approval(new: NewApproval) -> Result<u64, StoreError>;
    approvals(query: ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError>;
    revoke_approval(id: u64) -> Result<bool, StoreError>;
    close() -> Result<(), StoreError>;
}

/// A server with one client.
struct Rig {
    connection: Box<dyn Connection>,
    reader: OutboxReader,
    taken: Vec<u8>,
    next_id: u64,
    /// How often each request was answered.
    answers: HashMap<u64, usize>,
    store: Arc<Store>,
    directory: tempfile::TempDir,
}

/// Where panics happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Store,
    Clock,
    Ids,
}

impl Rig {
    fn new(place: Place, mine: &Arc<Mine>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let of = |this: Place| if this == place { Arc::clone(mine) } else { Mine::off() };
        let (clock, ids, made) = (of(Place::Clock), of(Place::Ids), AtomicU64::new(0));
        let ambient = Ambient {
            now_ms: Box::new(move || {
                clock.step("the clock");
                1_767_225_600_000
            }),
            session_id: Box::new(move || {
                ids.step("the source of ids");
                format!("s-{}", made.fetch_add(1, Ordering::Relaxed))
            }),
        };
        let store = Arc::new(Store { memory: MemoryStore::default(), mine: of(Place::Store) });
        let settings = ServerSettings {
            max_sessions: 100,
            detach_grace: Duration::from_secs(60),
            session_timeout: Duration::from_secs(3600),
            errors: ErrorTable::default(),
            clients: BTreeMap::new(),
            strict: false,
            install_root: directory.path().join("config"),
            allowed_cwd_roots: Vec::new(),
            process_dir: directory.path().to_owned(),
            client_mcp: ClientMcp::None,
            client_terminal: false,
            client_timeout: Duration::from_secs(5),
            version: "0.0.0",
        };
        let server = Server::new(settings, agents(&directory), Some(Arc::clone(&store) as _), ambient);
        let (outbox, reader) = Outbox::new(1024 * 1024);
        let connection = server.connect(outbox, None, OnDisconnect::End);
        let (taken, answers) = (Vec::new(), HashMap::new());
        Self { connection, reader, taken, next_id: 0, answers, store, directory }
    }

    async fn send(&mut self, message: &Value) {
        self.connection.line(message.to_string().as_bytes()).await;
    }

    async fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    /// The next message. Whatever is written is whole lines of JSON.
    async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.taken.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.taken.drain(..=end).collect();
                let message: Value = serde_json::from_slice(&line).unwrap_or_else(|error| {
                    panic!("no message: {error}: {}", String::from_utf8_lossy(&line));
                });
                if let (Some(id), None) = (message["id"].as_u64(), message.get("method")) {
                    *self.answers.entry(id).or_default() += 1;
                }
                return message;
            }
            let mut more = Vec::new();
            let waited = tokio::time::timeout(Duration::from_secs(20), self.reader.take(&mut more)).await;
            assert!(waited.unwrap_or_else(|_| panic!("a request is not answered")), "the output has ended");
            self.taken.extend_from_slice(&more);
        }
    }

    /// The answer to a request. Questions are answered with "always".
    async fn answer(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            let mut message = self.next().await;
            if message["method"] == "session/request_permission" {
                let yes = json!({"outcome": {"outcome": "selected", "optionId": "allow-always"}});
                self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": yes})).await;
            } else if message["id"] == id && message.get("method").is_none() {
                return message.get_mut("result").map(Value::take).ok_or_else(|| message["error"].take());
            }
        }
    }

    async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.request(method, &params).await;
        self.answer(id).await
    }

    async fn prompt(&mut self, session: &str, text: &str) -> Result<Value, Value> {
        self.call("session/prompt", json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})).await
    }

    /// Most of what a client can ask for, one after the other. Gives back the errors.
    async fn live(&mut self) -> (Option<String>, Vec<Value>) {
        let cwd = self.directory.path().join("project");
        let mut errors = Vec::new();
        let session = match self.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await {
            Ok(opened) => opened["sessionId"].as_str().unwrap().to_owned(),
            Err(error) => return (None, vec![error]),
        };
        let of = json!({"sessionId": session});
        if let Err(error) = self.prompt(&session, "/say 2\n/run touch made").await {
            errors.push(error);
            let turns = self.store.memory.turns(&session).await.unwrap();
            assert!(turns.iter().all(|turn| turn.state != TurnState::Completed), "told as failed: {turns:?}");
        }
        for (method, params) in [
            ("session/set_mode", json!({"sessionId": session, "modeId": "readonly"})),
            ("session/list", json!({})),
            ("session/update", json!({"sessionId": session, "update": {"type": "note", "text": "a note"}})),
            ("session/load", json!({"sessionId": session, "cwd": cwd, "mcpServers": []})),
            ("_zeroclaw/session/attach", json!({"sessionId": session, "afterSeq": 0})),
            ("session/close", of.clone()),
            ("session/load", json!({"sessionId": session, "cwd": cwd, "mcpServers": []})),
        ] {
            errors.extend(self.call(method, params).await.err());
        }
        errors.extend(self.prompt(&session, "/usage").await.err());
        (Some(session), errors)
    }

    /// A session that still works, or that is gone and says so.
    async fn check(&mut self, session: &str) {
        if let Err(error) = self.prompt(session, "/say 1").await {
            assert_eq!(error["code"], -32000, "{error}");
            let cwd = self.directory.path().join("project");
            let load = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
            let loaded = self.call("session/load", load).await;
            assert!(loaded.is_ok(), "a session that is gone cannot be loaded: {loaded:?}");
            let said = self.prompt(session, "/say 1").await;
            assert!(said.is_ok(), "{said:?}");
        }
        let turns = self.store.memory.turns(session).await.unwrap();
        assert!(turns.iter().all(|turn| turn.state != TurnState::Running), "{turns:?}");
    }
}

fn agents(directory: &tempfile::TempDir) -> AgentTable {
    std::fs::create_dir(directory.path().join("project")).unwrap();
    let provider = Arc::new(BuiltinProvider::new("builtin.default", Vec::new()));
    let (tools, limits) = (Arc::new(ToolSet::new(standard_tools())), TurnLimits::for_window(1_000_000));
    let entry = AgentEntry {
        alias: "main".to_owned(),
        agent: Arc::new(Agent { provider, tools, limits, fallbacks: Vec::new(), random: || 0 }),
        rules: Arc::new(Ruleset::new(Level::Supervised)),
        settings: Arc::new(ToolSettings {
            shell_timeout: Duration::from_secs(20),
            shell_env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            max_output_bytes: 10_000,
            launcher: None,
            sandbox: Arc::new(Confiner::unconfined()),
        }),
        workspace: directory.path().join("workspace"),
        extra_roots: Vec::new(),
        access: ModelAccess::Ready,
        model: "builtin.default".to_owned(),
        models: Vec::new(),
        max_level: Level::Supervised,
        mcp: McpSetup { servers: Vec::new(), http: HttpClients::new(None, SystemTime::now) },
    };
    let agents = BTreeMap::from([("main".to_owned(), AgentSlot::Ready(Arc::new(entry)))]);
    AgentTable { agents, default: None }
}

/// Lives a whole life with a panic at every place where there can be one, one after the other.
async fn survives(place: Place) {
    for calls in 0.. {
        let mine = Mine::off();
        let mut rig = Rig::new(place, &mine);
        rig.call("initialize", json!({"protocolVersion": 1})).await.unwrap();
        mine.arm(calls);
        let (session, errors) = rig.live().await;
        if !mine.has_gone_off() {
            assert_eq!(errors, Vec::<Value>::new(), "without a panic everything works");
            assert!(calls > 0, "nothing was called at all");
            return;
        }
        for error in &errors {
            assert!([-32603, -32000].contains(&error["code"].as_i64().unwrap()), "{place:?} {calls}: {error}");
        }
        if let Some(session) = session {
            rig.check(&session).await;
        }
        let (_, errors) = rig.live().await;
        assert_eq!(errors, Vec::<Value>::new(), "{place:?} {calls}: the next session");
        rig.connection.end().await;
        for id in 1..=rig.next_id {
            assert_eq!(rig.answers.get(&id), Some(&1), "{place:?} {calls}: the answers to request {id}");
        }
    }
}

#[tokio::test]
async fn a_panic_in_the_store_loses_no_answer() {
    survives(Place::Store).await;
}

#[tokio::test]
async fn a_panic_of_the_clock_loses_no_answer() {
    survives(Place::Clock).await;
}

#[tokio::test]
async fn a_panic_before_a_session_is_there_loses_no_answer() {
    survives(Place::Ids).await;
}
