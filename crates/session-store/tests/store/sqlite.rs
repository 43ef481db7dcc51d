//! What the SQLite store promises beyond the contract: its file, and what happens to files that are not its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::slice;
use std::time::Duration;

use futures::future::join_all;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Row};
use zeroclaw_session_store::{
    ApprovalQuery, ApprovalRecord, Batch, ClaimError, ListQuery, OpenError, SessionPatch, SessionStore, SqliteOptions,
    SqliteStore, StoreError, SyncMode, TurnEnd, TurnState,
};

use crate::support::{all_events, approval, database, end, events, messages, open, options, session, start};

async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap()
}

async fn execute(path: &Path, script: &'static str) {
    let mut connection = raw(path).await;
    sqlx::raw_sql(script).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// The files in the directory of the store, without the lock files.
fn files(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory.join("sessions"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "owners")
        .collect();
    names.sort();
    names
}

fn beside(directory: &Path, suffix: &str) -> PathBuf {
    directory.join("sessions").join(format!("acp-sessions.db{suffix}"))
}

async fn works(store: &SqliteStore) {
    store.create_session(session("works")).await.unwrap();
    store.append("works", events(1, 2)).await.unwrap();
    let kept = events(1, 2).events;
    assert_eq!(all_events(store, "works", 10).await, kept);
}

#[tokio::test]
async fn everything_is_there_after_reopening() {
    for sync in [SyncMode::Off, SyncMode::Turn, SyncMode::Always] {
        let directory = tempfile::tempdir().unwrap();
        let open = |instance: &str| SqliteStore::open(SqliteOptions { sync, ..options(directory.path(), instance) });
        let store = open("one").await.unwrap();
        assert!(store.is_durable());
        store.create_session(session("a")).await.unwrap();
        store.begin_turn("a", start(1)).await.unwrap();
        store.append("a", events(1, 400)).await.unwrap();
        let last = TurnEnd {
            batch: Batch { events: events(401, 403).events, messages: messages(&[0, 1]).messages },
            ..end(1)
        };
        store.end_turn("a", last).await.unwrap();
        let patch = SessionPatch { title: Some(Some("T".to_owned())), ..SessionPatch::default() };
        store.update_session("a", patch).await.unwrap();
        let record = store.session("a").await.unwrap();
        store.close().await.unwrap();
        assert_eq!(files(directory.path()), ["acp-sessions.db"]);

        let store = open("two").await.unwrap();
        assert_eq!(store.session("a").await.unwrap(), record);
        let kept = events(1, 403).events;
        assert_eq!(all_events(&store, "a", 100).await, kept);
        let kept = messages(&[0, 1]).messages;
        assert_eq!(store.messages("a").await.unwrap(), kept);
        // What is stored tells how it goes on.
        store.claim("a").await.unwrap();
        store.append("a", events(404, 405)).await.unwrap();
        store.begin_turn("a", start(2)).await.unwrap();
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn close_interrupts_and_releases() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one").await;
    store.create_session(session("a")).await.unwrap();
    store.begin_turn("a", start(1)).await.unwrap();
    let owners = directory.path().join("sessions/owners");
    assert!(owners.join("one.lock").exists());
    store.close().await.unwrap();
    assert!(!owners.join("one.lock").exists());
    let store = open(directory.path(), "two").await;
    let turn = store.session("a").await.unwrap().unwrap().last_turn;
    assert_eq!(turn.unwrap().state, TurnState::Interrupted);
    store.claim("a").await.unwrap();
}

#[tokio::test]
async fn two_stores_share_a_file_but_no_session() {
    let directory = tempfile::tempdir().unwrap();
    let one = open(directory.path(), "one").await;
    let two = open(directory.path(), "two").await;
    one.create_session(session("a")).await.unwrap();
    two.create_session(session("b")).await.unwrap();
    one.begin_turn("a", start(1)).await.unwrap();

    assert!(matches!(two.claim("a").await, Err(ClaimError::HeldElsewhere)));
    assert!(matches!(two.append("a", events(1, 1)).await, Err(StoreError::NotClaimed)));
    assert!(matches!(two.delete("a").await, Err(StoreError::HeldElsewhere)));
    let seen = two.session("a").await.unwrap().unwrap().last_turn;
    assert_eq!(seen.unwrap().state, TurnState::Running);
    let third = open(directory.path(), "three").await;
    let seen = third.session("a").await.unwrap().unwrap().last_turn;
    assert_eq!(seen.unwrap().state, TurnState::Running);

    one.append("a", events(1, 5)).await.unwrap();
    assert_eq!(two.session("a").await.unwrap().unwrap().last_seq, 5);
    one.end_turn("a", end(1)).await.unwrap();
    one.release("a").await.unwrap();
    two.claim("a").await.unwrap();
    two.append("a", events(6, 6)).await.unwrap();
    assert!(matches!(one.claim("a").await, Err(ClaimError::HeldElsewhere)));
    assert!(two.delete("a").await.unwrap());
    assert!(matches!(one.claim("a").await, Err(ClaimError::NotFound)));
}

#[tokio::test]
async fn a_fault_of_the_database_hurts_only_its_caller() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one").await;
    for id in ["a", "b", "c"] {
        store.create_session(session(id)).await.unwrap();
        store.append(id, events(1, 1)).await.unwrap();
    }
    // A trigger behind the back of the store: only the insert itself can find it.
    execute(
        &database(directory.path()),
        "CREATE TRIGGER fault BEFORE INSERT ON events WHEN NEW.session = (SELECT key FROM sessions WHERE id = 'b')
        BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    .await;
    let results = join_all([
        store.append("a", events(2, 3)),
        store.append("b", events(2, 3)),
        store.append("c", events(2, 3)),
        store.append("a", events(4, 4)),
    ])
    .await;
    let landed: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(landed, [true, false, true, true]);
    let kept = events(1, 4).events;
    assert_eq!(all_events(&store, "a", 10).await, kept);
    let kept = events(1, 3).events;
    assert_eq!(all_events(&store, "c", 10).await, kept);
    assert_eq!(store.session("b").await.unwrap().unwrap().last_seq, 1);
}

#[tokio::test]
async fn a_held_lock_is_busy_and_passes() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(SqliteOptions {
        busy_timeout: Duration::from_millis(20),
        ..options(directory.path(), "one")
    })
    .await
    .unwrap();
    store.create_session(session("a")).await.unwrap();
    let mut other = raw(&database(directory.path())).await;
    let begin = sqlx::query("BEGIN IMMEDIATE");
    begin.execute(&mut other).await.unwrap();
    assert!(matches!(store.append("a", events(1, 3)).await, Err(StoreError::Busy)));
    assert!(matches!(store.end_turn("a", end(1)).await, Err(StoreError::Busy)));
    // Reads do not wait.
    assert_eq!(store.session("a").await.unwrap().unwrap().last_seq, 0);
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    store.append("a", events(1, 3)).await.unwrap();
    let kept = events(1, 3).events;
    assert_eq!(all_events(&store, "a", 10).await, kept);
}

#[tokio::test]
async fn a_newer_schema_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    open(directory.path(), "one").await.close().await.unwrap();
    execute(&path, "PRAGMA user_version = 3").await;
    let before = fs::read(&path).unwrap();
    let check = |result: Result<SqliteStore, OpenError>| match result {
        Err(OpenError::NewerSchema { found, supported, .. }) => assert_eq!((found, supported), (3, 2)),
        other => panic!("{other:?}"),
    };
    check(SqliteStore::open(options(directory.path(), "two")).await);
    check(SqliteStore::open_read_only(&path).await);
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// Version 2 brought the approvals; a file of version 1 has nothing else that differs.
async fn make_version_1(path: &Path) {
    execute(path, "DROP TABLE approvals; PRAGMA user_version = 1").await;
}

#[tokio::test]
async fn a_file_of_the_first_version_is_brought_up_to_date_in_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let store = open(directory.path(), "one").await;
    store.create_session(session("a")).await.unwrap();
    store.append("a", events(1, 3)).await.unwrap();
    store.close().await.unwrap();
    make_version_1(&path).await;

    let looking = SqliteStore::open_read_only(&path).await.unwrap();
    assert_eq!(looking.approvals(ApprovalQuery::default()).await.unwrap(), []);
    assert_eq!(looking.session("a").await.unwrap().unwrap().last_seq, 3);
    looking.close().await.unwrap();

    // Two at once: both find the old file, one changes it.
    let (one, two) = (open(directory.path(), "two"), open(directory.path(), "three"));
    let (one, two) = tokio::join!(one, two);
    let id = one.add_approval(approval("git status")).await.unwrap();
    let kept = two.approvals(ApprovalQuery::default()).await.unwrap();
    assert_eq!(kept, [ApprovalRecord { id, approval: approval("git status") }]);
    assert_eq!(all_events(&two, "a", 10).await, events(1, 3).events);
    let names = files(directory.path());
    assert!(names.iter().all(|name| name.starts_with("acp-sessions.db") && !name.contains("-1")), "{names:?}");
}

#[tokio::test]
async fn approvals_outlive_the_store_and_are_seen_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let one = open(directory.path(), "one").await;
    let two = open(directory.path(), "two").await;
    let id = one.add_approval(approval("git status")).await.unwrap();
    // Dropped like a killed process.
    drop(one);
    let kept = ApprovalRecord { id, approval: approval("git status") };
    assert_eq!(two.approvals(ApprovalQuery::default()).await.unwrap(), slice::from_ref(&kept));
    assert!(two.revoke_approval(id).await.unwrap());
    two.close().await.unwrap();
    let again = open(directory.path(), "three").await;
    assert_eq!(again.approvals(ApprovalQuery::default()).await.unwrap(), []);
    assert!(again.add_approval(approval("git status")).await.unwrap() > id, "a number is never used twice");
}

#[tokio::test]
async fn a_foreign_file_is_kept_with_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // The newest rows of the other program are only in its log, as after a crash.
    let source = directory.path().join("source.db");
    let mut other = raw(&source).await;
    let script = "PRAGMA journal_mode = WAL; CREATE TABLE acp_sessions (id TEXT);
        PRAGMA wal_checkpoint(TRUNCATE); INSERT INTO acp_sessions VALUES ('kept')";
    sqlx::raw_sql(script).execute(&mut other).await.unwrap();
    fs::copy(&source, &path).unwrap();
    fs::copy(directory.path().join("source.db-wal"), beside(directory.path(), "-wal")).unwrap();
    other.close().await.unwrap();
    let database_before = fs::read(&path).unwrap();
    let log_before = fs::read(beside(directory.path(), "-wal")).unwrap();
    assert!(!log_before.is_empty());

    assert!(matches!(SqliteStore::open_read_only(&path).await, Err(OpenError::NotAStore { .. })));
    let store = open(directory.path(), "one").await;
    works(&store).await;
    store.close().await.unwrap();
    let kept = beside(directory.path(), ".foreign-1");
    assert_eq!(fs::read(&kept).unwrap(), database_before);
    let kept_log = beside(directory.path(), ".foreign-1-wal");
    assert_eq!(fs::read(&kept_log).unwrap(), log_before);

    // A second one gets the next number.
    fs::remove_file(&path).unwrap();
    execute(&path, "CREATE TABLE t (x)").await;
    let store = open(directory.path(), "two").await;
    works(&store).await;
    store.close().await.unwrap();
    assert!(beside(directory.path(), ".foreign-2").exists());

    // And the other program finds all of its rows in what was kept.
    let mut other = raw(&kept).await;
    let row = sqlx::query("SELECT id FROM acp_sessions").fetch_one(&mut other).await.unwrap();
    assert_eq!(row.get::<String, _>(0), "kept");
}

#[tokio::test]
async fn a_damaged_file_is_kept() {
    let garbage = b"this is no database at all".repeat(500);
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let store = open(directory.path(), "one").await;
    works(&store).await;
    store.close().await.unwrap();
    let mut broken_schema = fs::read(&path).unwrap();
    broken_schema[100..4096].fill(0xff);

    let cases = [garbage, broken_schema, b"short".to_vec(), vec![0; 8192]];
    for (number, content) in (1..).zip(cases) {
        fs::write(&path, &content).unwrap();
        let store = open(directory.path(), "one").await;
        works(&store).await;
        store.close().await.unwrap();
        let kept = beside(directory.path(), &format!(".damaged-{number}"));
        assert_eq!(fs::read(kept).unwrap(), content);
    }
    assert!(!beside(directory.path(), ".damaged-5").exists());
}

#[tokio::test]
async fn a_log_without_its_database_does_not_reach_the_fresh_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let store = open(directory.path(), "one").await;
    works(&store).await;
    let log = fs::read(beside(directory.path(), "-wal")).unwrap();
    assert!(!log.is_empty());
    store.close().await.unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(beside(directory.path(), "-wal"), &log).unwrap();

    let store = open(directory.path(), "two").await;
    assert_eq!(store.session("works").await.unwrap(), None);
    works(&store).await;
    let kept = beside(directory.path(), ".damaged-1-wal");
    assert_eq!(fs::read(kept).unwrap(), log);
}

#[tokio::test]
async fn an_empty_file_becomes_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, b"").unwrap();
    let store = open(directory.path(), "one").await;
    works(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_place_that_cannot_hold_a_store_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions");
    fs::write(&file, b"in the way").unwrap();
    let refused = SqliteStore::open(options(directory.path(), "one")).await;
    assert!(matches!(refused, Err(OpenError::Io { .. })), "{refused:?}");
    assert_eq!(fs::read(&file).unwrap(), b"in the way");

    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(database(directory.path())).unwrap();
    let refused = SqliteStore::open(options(directory.path(), "one")).await;
    assert!(refused.is_err(), "{refused:?}");
    assert!(database(directory.path()).is_dir());
}

#[tokio::test]
async fn an_instance_has_to_be_a_name() {
    let directory = tempfile::tempdir().unwrap();
    for instance in ["", ".", "../x", "a/b", "a.b", "a b", &"x".repeat(65)] {
        let refused = SqliteStore::open(options(directory.path(), instance)).await;
        assert!(matches!(refused, Err(OpenError::Instance)), "{instance}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn one_instance_is_one_store() {
    let directory = tempfile::tempdir().unwrap();
    let one = open(directory.path(), "same").await;
    one.create_session(session("a")).await.unwrap();
    let two = open(directory.path(), "same").await;
    assert!(matches!(two.create_session(session("b")).await, Err(StoreError::Io(_))));
    assert_eq!(two.session("b").await.unwrap(), None);
}

#[tokio::test]
async fn a_path_with_a_zero_byte_has_no_stored_form() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one").await;
    let mut new = session("a");
    new.additional_directories = vec![PathBuf::from("/a\0b")];
    assert!(matches!(store.create_session(new).await, Err(StoreError::Invalid { what: "path" })));
    assert_eq!(store.session("a").await.unwrap(), None);
}

#[tokio::test]
async fn a_reader_looks_and_never_touches() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    assert!(matches!(SqliteStore::open_read_only(&path).await, Err(OpenError::NotFound { .. })));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);

    let store = open(directory.path(), "one").await;
    store.create_session(session("a")).await.unwrap();
    let reader = SqliteStore::open_read_only(&path).await.unwrap();
    store.begin_turn("a", start(1)).await.unwrap();
    store.append("a", events(1, 3)).await.unwrap();
    let record = store.session("a").await.unwrap();
    assert_eq!(reader.session("a").await.unwrap(), record);
    let query = ListQuery { limit: 10, ..ListQuery::default() };
    let list = reader.list(query).await.unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].last_turn.as_ref().unwrap().state, TurnState::Running);
    let kept = events(1, 3).events;
    assert_eq!(all_events(&reader, "a", 10).await, kept);
    for refused in [
        reader.append("a", events(4, 4)).await,
        reader.create_session(session("b")).await,
        reader.delete("a").await.map(drop),
    ] {
        assert!(matches!(refused, Err(StoreError::ReadOnly { .. })));
    }
    reader.close().await.unwrap();
    assert!(matches!(reader.session("a").await, Err(StoreError::Closed)));
    store.append("a", events(4, 4)).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn the_files_are_for_the_user_alone() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one").await;
    store.create_session(session("a")).await.unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = directory.path().join("sessions");
    assert_eq!(mode(folder.clone()), 0o700);
    assert_eq!(mode(folder.join("owners")), 0o700);
    assert_eq!(mode(folder.join("owners/one.lock")), 0o600);
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(beside(directory.path(), suffix)), 0o600, "{suffix}");
    }
}

#[tokio::test]
async fn nothing_stored_shows_in_debug_output() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one").await;
    store.create_session(session("a")).await.unwrap();
    let patch = SessionPatch {
        title: Some(Some("SECRET".to_owned())),
        config: Some(bytes::Bytes::from_static(b"SECRET")),
        ..SessionPatch::default()
    };
    let shown = format!("{patch:?}");
    store.update_session("a", patch).await.unwrap();
    let mut begun = start(1);
    begun.prompt = bytes::Bytes::from_static(b"SECRET");
    let mut batch = events(1, 1);
    batch.events[0].payload = bytes::Bytes::from_static(b"SECRET");
    batch.messages = messages(&[1]).messages;
    batch.messages[0].payload = bytes::Bytes::from_static(b"SECRET");
    begun.batch = batch.clone();
    let shown = format!("{shown}{begun:?}{batch:?}{store:?}");
    store.begin_turn("a", begun).await.unwrap();
    let record = store.session("a").await.unwrap().unwrap();
    assert_eq!(record.title.as_deref(), Some("SECRET"));
    assert!(!format!("{shown}{record:?}").contains("SECRET"));
}

#[tokio::test]
async fn a_column_out_of_range_is_damage_and_not_a_guess() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one").await;
    works(&store).await;
    execute(&database(directory.path()), "UPDATE events SET kind = 77 WHERE seq = 2").await;
    assert!(matches!(store.events("works", 0, 10).await, Err(StoreError::Corrupt(_))));
    let first = store.events("works", 0, 1).await.unwrap();
    assert_eq!(first, events(1, 1).events);
}
