//! The event log: what was appended comes back to the byte and in order, in pages of any size, from both stores alike, and
//! what does not follow on changes nothing.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use zeroclaw_session_store::{
    Batch, EventKind, EventRecord, MemoryStore, NewSession, SessionStore, SqliteOptions, SqliteStore, SyncMode,
};

use crate::Input;

const PAYLOADS: &[&str] = &[
    "{}",
    "{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"h\"}}",
    "{\"a\":\"\\u2028\\n\\\"\"}",
    "{\"a\":\"é漢🙂\u{2028}\"}",
    "{ \"spaced\" : [ 1 , 2 ] }",
    "{\"n\":9007199254740993,\"n\":1e5}",
];

struct Stores {
    runtime: tokio::runtime::Runtime,
    both: [Arc<dyn SessionStore>; 2],
    _directory: tempfile::TempDir,
}

fn stores() -> &'static Stores {
    static STORES: OnceLock<Stores> = OnceLock::new();
    STORES.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sessions.db");
        let options = SqliteOptions {
            path,
            sync: SyncMode::Off,
            instance: "fuzz".to_owned(),
            busy_timeout: Duration::from_secs(5),
        };
        let durable = runtime.block_on(SqliteStore::open(options)).expect("a store");
        let both: [Arc<dyn SessionStore>; 2] = [Arc::new(MemoryStore::new()), Arc::new(durable)];
        Stores { runtime, both, _directory: directory }
    })
}

/// See the module.
pub(crate) fn bytes(bytes: &[u8]) {
    static SESSIONS: AtomicU64 = AtomicU64::new(0);
    let stores = stores();
    let id: Arc<str> = format!("s-{}", SESSIONS.fetch_add(1, Ordering::Relaxed)).into();
    for store in &stores.both {
        stores.runtime.block_on(one(store.as_ref(), &id, bytes));
    }
}

async fn one(store: &dyn SessionStore, id: &Arc<str>, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let new = NewSession {
        id: Arc::clone(id),
        workspace: "/w".into(),
        agent: "a".to_owned(),
        created_at_ms: 1,
        additional_directories: Vec::new(),
    };
    store.create_session(new).await.expect("a new session");
    let mut log: Vec<EventRecord> = Vec::new();
    for _ in 0..input.roll(8) {
        let gap = u64::from(input.roll(5) == 0);
        let events: Vec<EventRecord> = (1..=input.roll(6) as u64)
            .map(|number| EventRecord {
                seq: log.len() as u64 + number + gap,
                kind: [EventKind::Update, EventKind::UserPrompt, EventKind::ClientEvent][input.roll(3)],
                turn: [None, Some(1)][input.roll(2)],
                payload: Bytes::from_static(input.pick(PAYLOADS).as_bytes()),
            })
            .collect();
        let appended = store.append(id, Batch { events: events.clone(), messages: Vec::new() }).await;
        assert_eq!(appended.is_ok(), gap == 0 || events.is_empty(), "{appended:?}");
        if appended.is_ok() {
            log.extend(events);
        }
    }
    let limit = u32::try_from(1 + input.roll(4)).unwrap_or(1);
    let mut after = input.roll(log.len() + 2) as u64;
    let mut expected = log.into_iter().filter(|event| event.seq > after).collect::<Vec<_>>().into_iter();
    loop {
        let page = store.events(id, after, limit).await.expect("a page");
        assert!(page.len() <= limit as usize);
        let Some(last) = page.last() else { break };
        after = last.seq;
        for event in page {
            assert_eq!(Some(event), expected.next());
        }
    }
    assert_eq!(expected.next(), None, "the last page is the last");
    assert!(store.delete(id).await.expect("deleted"));
}
