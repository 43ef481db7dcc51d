//! Stories kept over restarts, within their limits.

use std::fs;

use bytes::Bytes;

use super::{Caps, Command, Found, Imported, Place, Record, Store, import};

fn update(text: &str) -> Bytes {
    Bytes::from(format!(
        "{{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{text}\"}}}}"
    ))
}

fn open(store: &mut Store, id: &str, key: &str, at: u64) {
    store.run(Command::Open { id: id.to_owned(), key: key.to_owned(), cwd: "/w".to_owned(), at });
}

fn tell(store: &mut Store, id: &str, texts: &[&str]) {
    for text in texts {
        store.run(Command::Append(id.to_owned(), update(text)));
    }
    store.run(Command::Flush(id.to_owned(), 0));
}

fn texts(record: &Record) -> Vec<String> {
    let text = |update: &Bytes| {
        let value: serde_json::Value = serde_json::from_slice(update).expect("JSON");
        value["content"]["text"].as_str().expect("a text").to_owned()
    };
    record.updates.iter().map(text).collect()
}

#[test]
fn a_story_survives_the_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = Store::new(dir.path().to_owned(), Caps::default());
    open(&mut store, "s1", "agent:main:k", 5);
    tell(&mut store, "s1", &["one", "two"]);
    drop(store);
    let mut store = Store::new(dir.path().to_owned(), Caps::default());
    let record = store.find("s1").expect("kept");
    assert_eq!((record.complete, record.key.as_str(), record.cwd.as_str()), (true, "agent:main:k", "/w"));
    assert_eq!(texts(&record), ["one", "two"]);
    open(&mut store, "s1", "agent:main:k", 6);
    tell(&mut store, "s1", &["three"]);
    assert_eq!(store.find("s1").map(|record| texts(&record)), Some(vec!["one".into(), "two".into(), "three".into()]));
    let places = store.run(Command::Places { op: 3 });
    let expected = vec![Place { key: "agent:main:k".to_owned(), cwd: "/w".to_owned(), title: None }];
    assert!(matches!(places, Some(Found::Places { op: 3, places }) if places == expected));
}

#[test]
fn a_story_that_was_cut_is_incomplete() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = Store::new(dir.path().to_owned(), Caps::default());
    open(&mut store, "s1", "k", 5);
    store.run(Command::Append("s1".to_owned(), update("half a turn")));
    store.flush_all();
    assert!(!store.find("s1").expect("kept").complete, "its turn did not end");
    tell(&mut store, "s1", &["the rest"]);
    assert!(store.find("s1").expect("kept").complete);
    store.run(Command::Incomplete("s1".to_owned()));
    assert!(!store.find("s1").expect("kept").complete);
    store.run(Command::Restart("s1".to_owned()));
    tell(&mut store, "s1", &["anew"]);
    let record = store.find("s1").expect("kept");
    assert_eq!((record.complete, texts(&record)), (true, vec!["anew".to_owned()]));
}

#[test]
fn a_torn_line_swallows_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = Store::new(dir.path().to_owned(), Caps::default());
    open(&mut store, "s1", "k", 5);
    tell(&mut store, "s1", &["one"]);
    drop(store);
    let file = fs::read_dir(dir.path()).expect("listed").next().expect("a file").expect("read").path();
    let mut text = fs::read_to_string(&file).expect("read");
    text.push_str("{\"u\":{\"sessionUp");
    fs::write(&file, text).expect("written");
    let mut store = Store::new(dir.path().to_owned(), Caps::default());
    open(&mut store, "s1", "k", 6);
    tell(&mut store, "s1", &["two"]);
    let record = store.find("s1").expect("kept");
    assert_eq!((record.complete, texts(&record)), (false, vec!["one".to_owned(), "two".to_owned()]));
}

#[test]
fn a_key_finds_the_latest_complete_story() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = Store::new(dir.path().to_owned(), Caps::default());
    for (id, at) in [("s1", 1), ("s2", 2), ("s3", 3)] {
        open(&mut store, id, "agent:main:k", at);
        tell(&mut store, id, &[id]);
    }
    store.run(Command::Incomplete("s3".to_owned()));
    assert_eq!(store.find("agent:main:k").map(|record| texts(&record)), Some(vec!["s2".to_owned()]));
    assert_eq!(store.find("s1").map(|record| texts(&record)), Some(vec!["s1".to_owned()]));
    // The session's own story is broken, and another one tells the same.
    assert_eq!(store.find("s3").map(|record| texts(&record)), Some(vec!["s2".to_owned()]));
    assert_eq!(store.find("rubbish"), None);
}

#[test]
fn limits_hold() {
    let dir = tempfile::tempdir().expect("a directory");
    let caps = Caps { sessions: 3, events: 10, bytes: 4000 };
    let mut store = Store::new(dir.path().to_owned(), caps);
    for at in 0..6 {
        let id = format!("s{at}");
        open(&mut store, &id, &format!("k{at}"), at);
        tell(&mut store, &id, &["x"]);
        store.run(Command::Close(id));
    }
    assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 3);
    assert!(store.find("s2").is_none() && store.find("s5").is_some(), "the oldest went");
    open(&mut store, "s5", "k5", 9);
    for number in 0..25 {
        tell(&mut store, "s5", &[&number.to_string()]);
    }
    let record = store.find("s5").expect("kept");
    assert!(!record.complete && record.updates.len() <= 10, "{}", record.updates.len());
    assert_eq!(texts(&record).last().map(String::as_str), Some("24"));
    tell(&mut store, "s5", &["y".repeat(3000).as_str(), "z".repeat(3000).as_str()]);
    let total: u64 = fs::read_dir(dir.path())
        .expect("listed")
        .map(|entry| entry.expect("read").metadata().expect("known").len())
        .sum();
    assert!(total <= 4000, "{total} bytes");
}

#[test]
fn a_disk_that_takes_nothing_stops_nobody() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("no-directory");
    fs::write(&file, "").expect("written");
    let mut store = Store::new(file, Caps::default());
    open(&mut store, "s1", "k", 5);
    tell(&mut store, "s1", &["one"]);
    assert_eq!(store.find("s1"), None);
}

#[test]
fn an_older_ledger_is_brought_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = dir.path().join("event-ledger.json");
    let event = |seq: u32, update: serde_json::Value| serde_json::json!({ "seq": seq, "at": 1, "sessionId": "s1", "sessionKey": "k", "update": update });
    let text = |text: &str| serde_json::json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
    let ledger = serde_json::json!({ "version": 1, "sessions": {
        "s1": { "sessionId": "s1", "sessionKey": "agent:main:k", "cwd": "/w", "complete": true, "createdAt": 1, "updatedAt": 2, "nextSeq": 4,
            "events": [event(2, text("two")), event(1, text("one")), event(3, serde_json::json!({ "sessionUpdate": "usage_update", "used": 0, "size": 1 }))] },
        "s2": { "sessionId": "s2", "sessionKey": "k2", "cwd": "", "complete": false, "createdAt": 1, "updatedAt": 2, "nextSeq": 1, "events": [] },
        "bad": 7,
    } });
    fs::write(&source, ledger.to_string()).expect("written");
    let target = dir.path().join("sessions");
    let imported = import(&source, &target, Caps::default()).expect("brought over");
    assert_eq!(imported, Imported { sessions: 2, kept: 0, events: 2 });
    let mut store = Store::new(target.clone(), Caps::default());
    let record = store.find("s1").expect("kept");
    assert_eq!(
        (record.complete, record.key.as_str(), texts(&record)),
        (true, "agent:main:k", vec!["one".to_owned(), "two".to_owned()])
    );
    assert!(!store.find("s2").expect("kept").complete);
    let again = import(&source, &target, Caps::default()).expect("brought over");
    assert_eq!(again, Imported { sessions: 0, kept: 2, events: 0 });
    assert_eq!(fs::read_to_string(&source).expect("still there"), ledger.to_string());
}

#[test]
fn what_is_no_ledger_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let cases = [
        ("SQLite format 3\0rest", "SQLite"),
        ("{\"version\":2,\"sessions\":{}}", "no ledger of version 1"),
        ("rubbish", "no ledger of version 1"),
    ];
    for (text, why) in cases {
        let source = dir.path().join("source");
        fs::write(&source, text).expect("written");
        let error = import(&source, dir.path(), Caps::default()).expect_err("refused");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(import(&dir.path().join("nothing"), dir.path(), Caps::default()).is_err());
}
