//! The engine between a client and a gateway that are played here; the gateway's frames are recorded ones.

mod lost;
mod opening;
mod rubbish;
mod turns;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Engine, Link, ProvenanceMode, Settings, World};
use crate::openclaw::{
    gateway::Credentials,
    identity::Identity,
    ledger::{Command, Place, Record},
};

const READ_WRITE: [&str; 3] = ["operator.read", "operator.write", "operator.approvals"];
const ADMIN: [&str; 3] = ["operator.admin", "operator.read", "operator.write"];

pub(super) const BASIC: &str = include_str!("../fixtures/basic.jsonl");
pub(super) const COMMAND: &str = include_str!("../fixtures/command.jsonl");
pub(super) const EDIT: &str = include_str!("../fixtures/edit.jsonl");
pub(super) const WRITE: &str = include_str!("../fixtures/write.jsonl");
pub(super) const MISSING_FILE: &str = include_str!("../fixtures/missing-file.jsonl");
pub(super) const LENGTH: &str = include_str!("../fixtures/length.jsonl");
pub(super) const RATE_LIMIT: &str = include_str!("../fixtures/rate-limit.jsonl");
pub(super) const DROPPED: &str = include_str!("../fixtures/dropped.jsonl");
pub(super) const STATUS: &str = include_str!("../fixtures/status.jsonl");
pub(super) const ABORTED: &str = include_str!("../fixtures/aborted.jsonl");
pub(super) const AFTER_RECONNECT: &str = include_str!("../fixtures/tool-after-reconnect.jsonl");
pub(super) const APPROVAL: &str = include_str!("../fixtures/approval.jsonl");

fn settings() -> Settings {
    Settings {
        session: None,
        label: None,
        require_existing: false,
        reset: false,
        prefix_cwd: true,
        provenance: ProvenanceMode::Off,
        grace: Duration::from_secs(30),
        create_limit: 120,
        create_window: Duration::from_secs(10),
        home: Some("/home/u".into()),
        host: "box".to_owned(),
        platform: "linux".to_owned(),
    }
}

/// A bridge whose both ends are in the hands of a test.
pub(super) struct Bridge {
    engine: Engine,
    now: Instant,
    scopes: Vec<&'static str>,
    requests: Vec<Value>,
    lines: Vec<Value>,
    /// What the ledger was told of each session.
    pub(super) told: HashMap<String, Vec<Value>>,
    pub(super) incomplete: Vec<String>,
    pub(super) records: HashMap<String, Record>,
    pub(super) places: Vec<Place>,
    next_id: u64,
    seq: u64,
    _dir: tempfile::TempDir,
}

impl Bridge {
    /// Connected and initialized.
    pub(super) fn new() -> Self {
        Self::with(settings(), &READ_WRITE)
    }

    pub(super) fn with(settings: Settings, scopes: &[&'static str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let identity = Arc::new(Identity::open(dir.path(), 1).expect("an identity"));
        let mut count = 0;
        let world = World {
            uuid: Box::new(move || {
                count += 1;
                format!("00000000-0000-4000-8000-{count:012}")
            }),
            wall: Box::new(|| 1_796_065_293_065),
        };
        let now = Instant::now();
        let mut bridge = Self {
            engine: Engine::new(settings, world, identity, now),
            now,
            scopes: scopes.to_vec(),
            requests: Vec::new(),
            lines: Vec::new(),
            told: HashMap::new(),
            incomplete: Vec::new(),
            records: HashMap::new(),
            places: Vec::new(),
            next_id: 0,
            seq: 0,
            _dir: dir,
        };
        bridge.connect();
        bridge.answer("commands.list", json!({ "commands": [
            { "name": "status", "textAliases": ["/status"], "description": "Show current status.", "acceptsArgs": true },
        ] }));
        bridge.ask("initialize", json!({ "protocolVersion": 1 }));
        bridge.lines.clear();
        bridge
    }

    /// Opens a connection up to hello.
    pub(super) fn connect(&mut self) {
        self.seq = 0;
        self.engine.opened(
            Credentials {
                token: Some("t".to_owned()),
                scopes: vec!["operator.read".to_owned()],
                ..Credentials::default()
            },
            self.now,
        );
        let challenge = json!({ "type": "event", "event": "connect.challenge", "payload": { "nonce": "n", "ts": 5 } });
        self.frame(&challenge);
        let connect = self.requests.pop().expect("a connect");
        assert_eq!(connect["method"], "connect", "nothing goes before it");
        let hello = json!({ "type": "res", "id": connect["id"], "ok": true, "payload": {
            "type": "hello-ok", "protocol": 4, "server": { "version": "2026.6.11", "connId": "c" },
            "auth": { "role": "operator", "scopes": self.scopes },
            "policy": { "maxPayload": 26_214_400, "maxBufferedBytes": 52_428_800, "tickIntervalMs": 30000 },
            "snapshot": { "sessionDefaults": { "defaultAgentId": "main" } },
        } });
        assert!(matches!(self.frame(&hello), Link::Up(_)));
    }

    pub(super) fn lose(&mut self) {
        self.engine.lost("the connection broke", self.now);
        self.take();
        self.requests.clear();
    }

    pub(super) fn frame(&mut self, frame: &Value) -> Link {
        let link = self.engine.frame(&frame.to_string(), self.now);
        self.take();
        link
    }

    fn take(&mut self) {
        loop {
            for frame in self.engine.take_frames() {
                self.requests.push(serde_json::from_str(&frame).expect("a frame"));
            }
            let effects = self.engine.take_effects();
            for line in effects.to_client.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.lines.push(serde_json::from_slice(line).expect("a line"));
            }
            if effects.ledger.is_empty() {
                return;
            }
            for command in effects.ledger {
                match command {
                    Command::Append(id, update) => {
                        self.told.entry(id).or_default().push(serde_json::from_slice(&update).expect("an update"));
                    }
                    Command::Incomplete(id) => self.incomplete.push(id),
                    Command::Find { op, id } => {
                        let record = self.records.get(&id).cloned();
                        self.engine.found(op, record, self.now);
                    }
                    Command::Places { op } => self.engine.places(op, self.places.clone(), self.now),
                    Command::Open { .. }
                    | Command::Title(..)
                    | Command::Flush(..)
                    | Command::Close(_)
                    | Command::Restart(_) => {}
                }
            }
        }
    }

    /// Sends a request of the client; its number.
    pub(super) fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub(super) fn say(&mut self, message: &Value) {
        self.engine.line(message.to_string().as_bytes(), self.now);
        self.take();
    }

    /// The next request for the gateway with this method; those before it stay.
    pub(super) fn request(&mut self, method: &str) -> Value {
        let at = self.requests.iter().position(|request| request["method"] == method);
        let at = at.unwrap_or_else(|| panic!("no `{method}` among {:?}", self.methods()));
        self.requests.remove(at)
    }

    pub(super) fn methods(&self) -> Vec<String> {
        self.requests.iter().map(|request| request["method"].as_str().expect("a method").to_owned()).collect()
    }

    /// Answers the next request with this method.
    pub(super) fn answer(&mut self, method: &str, payload: Value) -> Value {
        let request = self.request(method);
        self.frame(&json!({ "type": "res", "id": request["id"], "ok": true, "payload": payload }));
        request
    }

    pub(super) fn decline(&mut self, method: &str, error: Value) {
        let request = self.request(method);
        self.frame(&json!({ "type": "res", "id": request["id"], "ok": false, "error": error }));
    }

    pub(super) fn event(&mut self, name: &str, payload: Value) {
        self.seq += 1;
        self.frame(&json!({ "type": "event", "event": name, "payload": payload, "seq": self.seq }));
    }

    /// Plays recorded frames as those of this run.
    pub(super) fn play(&mut self, frames: &str, run: &str) {
        for line in frames.lines() {
            self.play_line(line, run);
        }
    }

    pub(super) fn play_line(&mut self, line: &str, run: &str) {
        let text =
            line.replace("RUN", run).replace("KEY", "agent:main:acp-bridge:00000000-0000-4000-8000-000000000001");
        let mut frame: Value = serde_json::from_str(&text).expect("a recorded frame");
        if frame["seq"].is_u64() {
            self.seq += 1;
            frame["seq"] = json!(self.seq);
        }
        self.frame(&frame);
    }

    /// The gateway throws events away that it has counted.
    pub(super) fn skip(&mut self, count: u64) {
        self.seq += count;
    }

    /// Lets time pass.
    pub(super) fn wait(&mut self, time: Duration) -> Link {
        self.now += time;
        let link = self.engine.due(self.now);
        self.take();
        link
    }

    /// A new session, announced; the first one has the id that recorded keys are changed to.
    pub(super) fn session(&mut self) -> String {
        self.ask("session/new", json!({ "cwd": "/home/u/p", "mcpServers": [] }));
        let id = self.lines.iter().find_map(|line| line["result"]["sessionId"].as_str()).expect("a session").to_owned();
        self.wait(Duration::from_millis(100));
        self.lines.clear();
        id
    }

    /// Sends a prompt and has the gateway begin its run; the request's number and the run's id.
    pub(super) fn prompt(&mut self, session: &str, text: &str) -> (u64, String) {
        let id =
            self.ask("session/prompt", json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] }));
        let run = self.begin();
        (id, run)
    }

    /// Has the gateway begin the run that is asked for.
    pub(super) fn begin(&mut self) -> String {
        while self.methods().contains(&"sessions.messages.subscribe".to_owned()) {
            let request = self.request("sessions.messages.subscribe");
            let key = request["params"]["key"].clone();
            self.frame(&json!({ "type": "res", "id": request["id"], "ok": true, "payload": { "subscribed": true, "key": key } }));
        }
        let request = self.request("chat.send");
        let run = request["params"]["idempotencyKey"].as_str().expect("a run").to_owned();
        let payload = json!({ "runId": run, "status": "started" });
        self.frame(&json!({ "type": "res", "id": request["id"], "ok": true, "payload": payload }));
        run
    }

    /// What the client was sent since the last time, in a few words; parts of one message are one.
    pub(super) fn seen(&mut self) -> Vec<String> {
        let mut seen: Vec<(String, String)> = Vec::new();
        for line in std::mem::take(&mut self.lines) {
            let update = &line["params"]["update"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (join, words) = match update["sessionUpdate"].as_str() {
                Some("agent_message_chunk") => (text(&update["messageId"]), text(&update["content"]["text"])),
                Some("agent_thought_chunk") => (String::new(), format!("({})", text(&update["content"]["text"]))),
                Some("user_message_chunk") => (String::new(), format!("> {}", text(&update["content"]["text"]))),
                Some("tool_call") => {
                    let words = format!(
                        "[{} {} {}]",
                        text(&update["toolCallId"]),
                        text(&update["status"]),
                        text(&update["title"])
                    );
                    (String::new(), words)
                }
                Some("tool_call_update") => {
                    let parts = update["content"].as_array().cloned().unwrap_or_default();
                    let parts: Vec<String> = parts.iter().map(part).collect();
                    let status = update["status"].as_str().unwrap_or("-");
                    (
                        String::new(),
                        format!("[{} {status} {}]", text(&update["toolCallId"]), parts.join("+")).replace(" ]", "]"),
                    )
                }
                Some("usage_update") => (String::new(), format!("{}/{}", update["used"], update["size"])),
                Some("plan") => {
                    let entries = update["entries"].as_array().cloned().unwrap_or_default();
                    let entries =
                        entries.iter().map(|entry| format!("{} {}", text(&entry["status"]), text(&entry["content"])));
                    (String::new(), format!("plan {}", entries.collect::<Vec<_>>().join(", ")))
                }
                Some(other) => (String::new(), other.to_owned()),
                None => (String::new(), answer(&line)),
            };
            match seen.last_mut() {
                Some((id, words_before)) if !join.is_empty() && *id == join => words_before.push_str(&words),
                Some(_) | None => seen.push((join, words)),
            }
        }
        seen.into_iter().map(|(_, words)| words).collect()
    }

    /// The lines to the client since the last time.
    pub(super) fn lines(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.lines)
    }
}

fn part(content: &Value) -> String {
    match content["type"].as_str() {
        Some("diff") => format!("diff {:?} {:?}", content["oldText"].as_str(), content["newText"].as_str()),
        _ => content["content"]["text"].as_str().unwrap_or_default().to_owned(),
    }
}

fn answer(line: &Value) -> String {
    let id = &line["id"];
    if let Some(stop) = line["result"]["stopReason"].as_str() {
        format!("{id}: {stop}")
    } else if let Some(message) = line["error"]["message"].as_str() {
        format!("{id}: error {} {message}", line["error"]["code"])
    } else if let Some(method) = line["method"].as_str() {
        format!("{method} {}", line["params"]["requestId"].as_str().or(id.as_str()).unwrap_or_default())
    } else {
        format!("{id}: {}", line["result"])
    }
}
