//! Values and stores that the tests of this crate share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use zeroclaw_session_store::{
    Batch, EventKind, EventRecord, MessageRecord, NewApproval, NewSession, Ruling, SessionStore, SqliteOptions,
    SqliteStore, SyncMode, TurnEnd, TurnStart, TurnState,
};

pub(crate) fn options(directory: &Path, instance: &str) -> SqliteOptions {
    SqliteOptions {
        path: database(directory),
        sync: SyncMode::Turn,
        instance: instance.to_owned(),
        busy_timeout: Duration::from_secs(30),
    }
}

pub(crate) fn database(directory: &Path) -> PathBuf {
    directory.join("sessions").join("acp-sessions.db")
}

pub(crate) async fn open(directory: &Path, instance: &str) -> SqliteStore {
    SqliteStore::open(options(directory, instance)).await.unwrap()
}

pub(crate) fn session(id: &str) -> NewSession {
    NewSession {
        id: id.into(),
        workspace: PathBuf::from("/home/user/project"),
        agent: "main".to_owned(),
        created_at_ms: 1_000,
        additional_directories: vec![PathBuf::from("/opt/one"), PathBuf::from("/opt/two")],
    }
}

pub(crate) fn approval(rule: &str) -> NewApproval {
    NewApproval {
        agent: "main".to_owned(),
        workspace: PathBuf::from("/home/user/project"),
        tool: "shell".to_owned(),
        rule: rule.to_owned(),
        ruling: Ruling::Allow,
        session: "a".into(),
        created_at_ms: 4_000,
    }
}

pub(crate) fn event(seq: u64) -> EventRecord {
    EventRecord {
        seq,
        kind: EventKind::Update,
        turn: Some(1),
        payload: Bytes::from(format!(r#"{{"sessionUpdate":"agent_message_chunk","n":{seq}}}"#)),
    }
}

/// The payload of an event, with this many bytes.
pub(crate) fn padded(bytes: usize) -> Bytes {
    const EMPTY: &str = r#"{"text":""}"#;
    Bytes::from(format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes - EMPTY.len())))
}

pub(crate) fn events(from: u64, to: u64) -> Batch {
    Batch { events: (from..=to).map(event).collect(), messages: Vec::new() }
}

pub(crate) fn message(position: u64) -> MessageRecord {
    MessageRecord { position, turn: 1, payload: Bytes::from(format!(r#"{{"role":"user","n":{position}}}"#)) }
}

pub(crate) fn messages(positions: &[u64]) -> Batch {
    Batch { events: Vec::new(), messages: positions.iter().copied().map(message).collect() }
}

pub(crate) fn start(turn: u64) -> TurnStart {
    TurnStart {
        turn,
        prompt: Bytes::from_static(br#"[{"type":"text","text":"hello"}]"#),
        started_at_ms: 2_000,
        batch: Batch::default(),
    }
}

pub(crate) fn end(turn: u64) -> TurnEnd {
    TurnEnd {
        turn,
        state: TurnState::Completed,
        stop_reason: Some("end_turn".to_owned()),
        ended_at_ms: 3_000,
        batch: Batch::default(),
    }
}

/// Every event of a session, read page by page.
pub(crate) async fn all_events(store: &dyn SessionStore, id: &str, limit: u32) -> Vec<EventRecord> {
    let mut all: Vec<EventRecord> = Vec::new();
    loop {
        let after = all.last().map_or(0, |event| event.seq);
        let page = store.events(id, after, limit).await.unwrap();
        assert!(page.len() <= limit as usize);
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}
