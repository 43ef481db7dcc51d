//! Other programs that change the database behind the back of the store that has it open.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Row};
use zeroclaw_session_store::{
    Batch, SessionPatch, SessionStore, SqliteOptions, SqliteStore, StoreError, TurnEnd, TurnStart,
};

use crate::logs::Logs;
use crate::support::{all_events, database, end, events, messages, open, options, session, start};

async fn raw(directory: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(database(directory)).connect().await.unwrap()
}

async fn execute(directory: &Path, script: &'static str) {
    let mut connection = raw(directory).await;
    sqlx::raw_sql(script).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// The rows of events, messages and turns that belong to no session.
async fn orphans(directory: &Path) -> i64 {
    let mut connection = raw(directory).await;
    let count = "SELECT (SELECT COUNT(*) FROM events WHERE session NOT IN (SELECT key FROM sessions))
        + (SELECT COUNT(*) FROM messages WHERE session NOT IN (SELECT key FROM sessions))
        + (SELECT COUNT(*) FROM turns WHERE session NOT IN (SELECT key FROM sessions))";
    let row = sqlx::query(count).fetch_one(&mut connection).await.unwrap();
    let orphans = row.get(0);
    connection.close().await.unwrap();
    orphans
}

fn both() -> Batch {
    Batch { events: events(1, 2).events, messages: messages(&[1]).messages }
}

/// A conversation went on into a session that another program had deleted: every call succeeded, and nothing could ever
/// be read again.
#[tokio::test]
async fn a_session_deleted_by_another_program_takes_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one").await;
    store.create_session(session("kept")).await.unwrap();
    for id in ["append", "begin", "update", "end"] {
        store.create_session(session(id)).await.unwrap();
    }
    execute(directory.path(), "DELETE FROM sessions WHERE id = 'append'").await;
    assert!(matches!(store.append("append", both()).await, Err(StoreError::NotFound)));
    execute(directory.path(), "DELETE FROM sessions WHERE id = 'begin'").await;
    let begun = TurnStart { batch: both(), ..start(1) };
    assert!(matches!(store.begin_turn("begin", begun).await, Err(StoreError::NotFound)));
    execute(directory.path(), "DELETE FROM sessions WHERE id = 'update'").await;
    let patch = SessionPatch { title: Some(Some("T".to_owned())), ..SessionPatch::default() };
    assert!(matches!(store.update_session("update", patch).await, Err(StoreError::NotFound)));
    assert_eq!(orphans(directory.path()).await, 0);

    store.begin_turn("end", start(1)).await.unwrap();
    execute(directory.path(), "DELETE FROM sessions WHERE id = 'end'").await;
    let last = TurnEnd { batch: both(), ..end(1) };
    assert!(matches!(store.end_turn("end", last).await, Err(StoreError::NotFound)));
    // What the other program left behind is its own turn row, and nothing was added to that.
    assert_eq!(orphans(directory.path()).await, 1);

    store.append("kept", events(1, 2)).await.unwrap();
    let kept = events(1, 2).events;
    assert_eq!(all_events(&store, "kept", 10).await, kept);
    // A new session of the same name has nothing of the old one.
    store.create_session(session("append")).await.unwrap();
    store.append("append", events(1, 1)).await.unwrap();
}

/// The lock file of a living process was removed by hand; another process took its sessions for abandoned.
#[tokio::test]
async fn a_session_that_another_process_took_or_deleted_takes_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let one = open(directory.path(), "one").await;
    for id in ["deleted", "taken"] {
        one.create_session(session(id)).await.unwrap();
        one.append(id, events(1, 1)).await.unwrap();
    }
    std::fs::remove_file(directory.path().join("sessions/owners/one.lock")).unwrap();
    let two = open(directory.path(), "two").await;
    assert!(two.delete("deleted").await.unwrap());
    two.claim("taken").await.unwrap();
    assert!(matches!(one.append("deleted", events(2, 2)).await, Err(StoreError::NotFound)));
    assert!(matches!(one.append("taken", events(2, 2)).await, Err(StoreError::NotClaimed)));
    assert!(matches!(one.begin_turn("taken", start(1)).await, Err(StoreError::NotClaimed)));
    two.append("taken", events(2, 3)).await.unwrap();
    assert_eq!(orphans(directory.path()).await, 0);
}

/// An update that met no row was taken for done, and its turn belonged to nothing.
#[tokio::test]
async fn a_turn_is_not_begun_when_its_session_cannot_be_touched() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one").await;
    store.create_session(session("a")).await.unwrap();
    let trigger = "CREATE TRIGGER hidden BEFORE UPDATE ON sessions BEGIN SELECT RAISE(IGNORE); END";
    execute(directory.path(), trigger).await;
    assert!(matches!(store.begin_turn("a", start(1)).await, Err(StoreError::NotFound)));
    assert_eq!(store.turns("a").await.unwrap(), []);
}

/// The directory of the store was deleted while the server ran. Everything went on succeeding, into a file without a name,
/// and all of it was gone after the next start.
#[cfg(unix)]
#[tokio::test]
async fn a_store_whose_file_is_gone_stops_writing() {
    use std::fs;

    type Harm = fn(&Path);
    let unlink: Harm = |directory| fs::remove_file(database(directory)).unwrap();
    let remove_all: Harm = |directory| fs::remove_dir_all(directory.join("sessions")).unwrap();
    let replace: Harm = |directory| {
        let backup = directory.join("backup.db");
        fs::copy(database(directory), &backup).unwrap();
        fs::rename(&backup, database(directory)).unwrap();
    };
    for harm in [unlink, remove_all, replace] {
        for call in ["create", "begin", "end"] {
            let directory = tempfile::tempdir().unwrap();
            let (logs, _guard) = Logs::catch();
            let store = open(directory.path(), "one").await;
            store.create_session(session("a")).await.unwrap();
            if call == "end" {
                store.begin_turn("a", start(1)).await.unwrap();
            }
            harm(directory.path());
            let refused = match call {
                "create" => store.create_session(session("b")).await,
                "begin" => store.begin_turn("a", start(1)).await,
                _ => store.end_turn("a", end(1)).await,
            };
            assert!(matches!(refused, Err(StoreError::ReadOnly { .. })), "{call}: {refused:?}");
            for refused in [store.append("a", events(1, 1)).await, store.create_session(session("c")).await] {
                assert!(matches!(refused, Err(StoreError::ReadOnly { .. })), "{call}: {refused:?}");
            }
            assert!(matches!(store.close().await, Err(StoreError::ReadOnly { .. })));
            assert_eq!(logs.with("store_file_gone").len(), 1);

            // What the operator does about a restored file: no journal of another file beside it.
            for suffix in ["-wal", "-shm"] {
                let _ = fs::remove_file(directory.path().join(format!("sessions/acp-sessions.db{suffix}")));
            }
            let store = open(directory.path(), "two").await;
            store.create_session(session("d")).await.unwrap();
            store.begin_turn("d", start(1)).await.unwrap();
            store.end_turn("d", end(1)).await.unwrap();
            store.close().await.unwrap();
        }
    }
}

/// Closing said that all was written when there was nothing left to write it to.
#[cfg(unix)]
#[tokio::test]
async fn closing_a_store_whose_file_is_gone_fails() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one").await;
    store.create_session(session("a")).await.unwrap();
    std::fs::remove_file(database(directory.path())).unwrap();
    assert!(matches!(store.close().await, Err(StoreError::ReadOnly { .. })));
}

/// Runs the tasks of the store until they wait for the database.
async fn settle() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}

/// Another program kept the write lock for ten seconds. Each call waited for the whole timeout after the one before it, and
/// a server with many sessions stood still for minutes.
#[tokio::test]
async fn writes_that_wait_for_one_lock_give_up_together() {
    const OTHERS: [&str; 4] = ["b", "c", "d", "e"];
    let directory = tempfile::tempdir().unwrap();
    let timeout = Duration::from_millis(500);
    let store = SqliteStore::open(SqliteOptions { busy_timeout: timeout, ..options(directory.path(), "one") });
    let store = Arc::new(store.await.unwrap());
    for id in ["a"].into_iter().chain(OTHERS) {
        store.create_session(session(id)).await.unwrap();
    }
    let mut other = raw(directory.path()).await;
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut other).await.unwrap();
    let append = |id: &'static str| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.append(id, events(1, 1)).await })
    };
    let first = append("a");
    settle().await;
    let others = OTHERS.map(append);
    settle().await;
    assert!(matches!(first.await.unwrap(), Err(StoreError::Busy)));
    // The others began to wait before that. With the lock free, only a wait of their own could make them succeed.
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    for late in others {
        assert!(matches!(late.await.unwrap(), Err(StoreError::Busy)));
    }
    for id in OTHERS {
        store.append(id, events(1, 1)).await.unwrap();
    }
}

/// Where there is no write-ahead log, a lock keeps readers out as well.
#[tokio::test]
async fn reads_that_wait_for_one_lock_give_up_together() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one").await;
    store.create_session(session("a")).await.unwrap();
    store.close().await.unwrap();
    let mut other = raw(directory.path()).await;
    // A reader that uses the old journal keeps the store from changing the mode back.
    sqlx::raw_sql("PRAGMA journal_mode = DELETE; BEGIN; SELECT * FROM sessions").execute(&mut other).await.unwrap();
    let timeout = Duration::from_millis(500);
    let store = SqliteStore::open(SqliteOptions { busy_timeout: timeout, ..options(directory.path(), "two") });
    let store = Arc::new(store.await.unwrap());
    sqlx::raw_sql("ROLLBACK; BEGIN EXCLUSIVE").execute(&mut other).await.unwrap();
    let turns = || {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.turns("a").await })
    };
    let first = turns();
    settle().await;
    let others = [turns(), turns(), turns()];
    settle().await;
    assert!(matches!(first.await.unwrap(), Err(StoreError::Busy)));
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    for late in others {
        assert!(matches!(late.await.unwrap(), Err(StoreError::Busy)));
    }
    assert_eq!(store.turns("a").await.unwrap(), []);
}

/// The payload of a stored event had turned into two lines of nothing. It was sent to the client as it was, and broke the
/// protocol for everything after it.
#[tokio::test]
async fn a_damaged_event_is_left_out_of_its_page() {
    let directory = tempfile::tempdir().unwrap();
    let (logs, _guard) = Logs::catch();
    let store = open(directory.path(), "one").await;
    for id in ["a", "b", "all"] {
        store.create_session(session(id)).await.unwrap();
        store.append(id, events(1, 12)).await.unwrap();
    }
    execute(
        directory.path(),
        r#"UPDATE events SET payload = CASE seq
            WHEN 2 THEN x'7b22534543524554ff227d' WHEN 4 THEN x'' WHEN 5 THEN CAST('["SECRET"]' AS BLOB)
            WHEN 6 THEN CAST('{"SECRET":1' AS BLOB) WHEN 7 THEN CAST('{"SECRET":1} {}' AS BLOB)
            WHEN 8 THEN x'7b225345435245542209' WHEN 9 THEN x'7b22534543524554223a0a317d' ELSE x'00' END
        WHERE session = (SELECT key FROM sessions WHERE id = 'a') AND seq NOT IN (1, 3, 11);
        UPDATE events SET payload = x'00' WHERE session = (SELECT key FROM sessions WHERE id = 'b') AND seq = 7;
        UPDATE events SET payload = x'00' WHERE session = (SELECT key FROM sessions WHERE id = 'all')"#,
    )
    .await;
    for limit in 1..=12 {
        let seqs = |id| {
            let store = &store;
            async move { all_events(store, id, limit).await.iter().map(|event| event.seq).collect::<Vec<_>>() }
        };
        assert_eq!(seqs("a").await, [1, 3, 11], "{limit}");
        assert_eq!(seqs("b").await, [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12], "{limit}");
        assert_eq!(seqs("all").await, [0_u64; 0], "{limit}");
    }
    assert_eq!(store.events("a", 3, 0).await.unwrap(), []);
    let told = logs.with("store_event_damaged");
    assert_eq!(told.len(), 3, "{told:?}");
    for (line, (id, seq)) in told.iter().zip([("a", 2), ("b", 7), ("all", 1)]) {
        assert!(line.contains(&format!(" session={id}")) && line.contains(&format!(" seq={seq}")), "{line}");
        assert!(!line.contains("SECRET"));
    }
    // The log goes on after its last number, damaged or not.
    store.append("a", events(13, 13)).await.unwrap();
    let kept = events(13, 13).events;
    assert_eq!(store.events("a", 11, 1).await.unwrap(), kept);
}
