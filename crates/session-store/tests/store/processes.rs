//! Several processes on one store, and processes that die: each test starts its own binary again in another role.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Row};
use zeroclaw_session_store::{Batch, ClaimError, EventRecord, ListQuery, SessionStore, StoreError, TurnEnd, TurnState};

use crate::support::{all_events, database, end, event, events, open, padded, session, start};

const DIRECTORY: &str = "SESSION_STORE_TEST_DIRECTORY";
const INSTANCE: &str = "SESSION_STORE_TEST_INSTANCE";

/// Another process that runs the same test in the other role.
struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(test: &str, directory: &Path, instance: &str) -> Other {
        let program = env::current_exe().unwrap();
        Other::spawn(Command::new(program), test, directory, instance)
    }

    fn spawn(mut command: Command, test: &str, directory: &Path, instance: &str) -> Other {
        let mut child = command
            .args(["--exact", &format!("processes::{test}"), "--nocapture"])
            .env(DIRECTORY, directory)
            .env(INSTANCE, instance)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Other { child, input, output }
    }

    /// Waits until the other process says the word, and returns its line.
    fn hear(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "the process ended without saying {word}");
            if line.contains(word) {
                return line;
            }
        }
    }

    fn tell(&mut self) {
        self.input.write_all(b"go\n").unwrap();
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn succeed(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

/// The directory and the instance, in the process that was started for the other role.
fn role() -> Option<(PathBuf, String)> {
    let directory = env::var_os(DIRECTORY)?;
    Some((directory.into(), env::var(INSTANCE).unwrap()))
}

fn say(word: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{word}").unwrap();
    output.flush().unwrap();
}

fn wait() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

async fn integrity(directory: &Path) -> String {
    let mut connection = SqliteConnectOptions::new().filename(database(directory)).connect().await.unwrap();
    let row = sqlx::query("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap();
    row.get(0)
}

/// Five of six processes once failed when they started on a fresh file at the same time.
#[tokio::test]
async fn eight_processes_start_on_a_fresh_store() {
    if let Some((directory, instance)) = role() {
        say("READY");
        wait();
        let store = open(&directory, &instance).await;
        store.create_session(session(&instance)).await.unwrap();
        store.append(&instance, events(1, 20)).await.unwrap();
        store.close().await.unwrap();
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut others: Vec<Other> = (0..8)
        .map(|number| Other::start("eight_processes_start_on_a_fresh_store", directory.path(), &format!("p{number}")))
        .collect();
    for other in &mut others {
        other.hear("READY");
    }
    for other in &mut others {
        other.tell();
    }
    for other in others {
        other.succeed();
    }
    let store = open(directory.path(), "after").await;
    let query = ListQuery { limit: 100, ..ListQuery::default() };
    let list = store.list(query).await.unwrap();
    let found: Vec<_> = list.iter().map(|record| (record.id.to_string(), record.last_seq)).collect();
    let expected: Vec<_> = (0..8).map(|number| (format!("p{number}"), 20)).collect();
    assert_eq!(found, expected);
    store.close().await.unwrap();
    let mut names: Vec<_> =
        fs::read_dir(directory.path().join("sessions")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["acp-sessions.db", "owners"]);
}

#[tokio::test]
async fn a_killed_process_leaves_an_interrupted_turn() {
    if let Some((directory, instance)) = role() {
        let store = open(&directory, &instance).await;
        for id in ["a", "b"] {
            store.create_session(session(id)).await.unwrap();
            let mut begun = start(1);
            begun.batch = events(1, 2);
            store.begin_turn(id, begun).await.unwrap();
            store.append(id, events(3, 40)).await.unwrap();
        }
        say("READY");
        wait();
        panic!("the process was to be killed");
    }
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "parent").await;
    let mut other = Other::start("a_killed_process_leaves_an_interrupted_turn", directory.path(), "victim");
    other.hear("READY");
    let alive = store.session("a").await.unwrap().unwrap().last_turn;
    assert_eq!(alive.unwrap().state, TurnState::Running);
    assert!(matches!(store.claim("a").await, Err(ClaimError::HeldElsewhere)));
    assert!(matches!(store.delete("a").await, Err(StoreError::HeldElsewhere)));
    other.kill();

    // Every event that had been answered is there, although nothing was closed.
    let reader = zeroclaw_session_store::SqliteStore::open_read_only(database(directory.path())).await.unwrap();
    let shown = reader.session("a").await.unwrap().unwrap().last_turn;
    assert_eq!(shown.unwrap().state, TurnState::Interrupted);
    let marked = reader.turns("a").await.unwrap();
    assert_eq!(marked[0].state, TurnState::Running);

    let turn = store.session("a").await.unwrap().unwrap().last_turn.unwrap();
    assert_eq!(turn.state, TurnState::Interrupted);
    assert_eq!((turn.ended_at_ms, turn.last_seq), (None, None));
    assert_eq!(store.turns("a").await.unwrap(), [turn]);
    let kept = events(1, 40).events;
    assert_eq!(all_events(&store, "a", 100).await, kept);

    let lock = directory.path().join("sessions/owners/victim.lock");
    store.claim("a").await.unwrap();
    assert!(lock.exists());
    let repair = TurnEnd { state: TurnState::Interrupted, batch: events(41, 41), ..end(1) };
    store.end_turn("a", repair).await.unwrap();

    // Another process starts later, and finds the rest when it opens the store.
    let late = open(directory.path(), "late").await;
    let marked = late.turns("b").await.unwrap();
    assert_eq!(marked[0].state, TurnState::Interrupted);
    late.claim("b").await.unwrap();
    assert!(!lock.exists());
    late.append("b", events(41, 41)).await.unwrap();
    assert!(matches!(store.claim("b").await, Err(ClaimError::HeldElsewhere)));
    assert_eq!(integrity(directory.path()).await, "ok");
}

/// Processes that shared a store were killed again and again, and the file was damaged.
#[tokio::test]
async fn kills_in_the_middle_of_writing_lose_nothing_answered() {
    const ROUNDS: usize = 15;
    if let Some((directory, instance)) = role() {
        let store = open(&directory, &instance).await;
        store.create_session(session(&instance)).await.unwrap();
        for turn in 1.. {
            store.begin_turn(&instance, start(turn)).await.unwrap();
            let first = (turn - 1) * 10 + 1;
            store.append(&instance, events(first, first + 9)).await.unwrap();
            store.end_turn(&instance, end(turn)).await.unwrap();
            say(&format!("DONE {turn} ."));
        }
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "parent").await;
    store.create_session(session("parent")).await.unwrap();
    for round in 0..ROUNDS {
        let instance = format!("victim{round}");
        let mut other =
            Other::start("kills_in_the_middle_of_writing_lose_nothing_answered", directory.path(), &instance);
        let mut answered = 0;
        for _ in 0..=round {
            let line = other.hear("DONE");
            let number = line.split("DONE ").nth(1).unwrap();
            answered = number.split(' ').next().unwrap().parse().unwrap();
            let next = u64::try_from(round).unwrap() * 100 + answered;
            let last = store.session("parent").await.unwrap().unwrap().last_seq;
            let batch = events(last + 1, last + 1 + next % 7);
            store.append("parent", batch).await.unwrap();
        }
        other.kill();

        store.claim(&instance).await.unwrap();
        let turns = store.turns(&instance).await.unwrap();
        let complete = turns.iter().filter(|turn| turn.state == TurnState::Completed).count();
        assert!(complete as u64 >= answered);
        // At most the last turn is not complete, and the log has no hole.
        assert!(turns.len() <= complete + 1);
        let log = all_events(&store, &instance, 1_000).await;
        let expected: Vec<EventRecord> = (1..=log.len() as u64).map(event).collect();
        assert_eq!(log, expected);
        assert!(log.len() as u64 >= answered * 10);
    }
    assert_eq!(integrity(directory.path()).await, "ok");
}

/// A disk that takes no more: nothing half written, reads go on, and a turn that could not be made durable closes the
/// store for writing.
#[tokio::test]
async fn a_failing_disk_is_told_and_poisons_only_what_was_to_be_durable() {
    if let Some((directory, instance)) = role() {
        let store = open(&directory, &instance).await;
        store.create_session(session("a")).await.unwrap();
        store.begin_turn("a", start(1)).await.unwrap();
        let batch =
            |seq| Batch { events: vec![EventRecord { payload: padded(50_000), ..event(seq) }], messages: Vec::new() };
        let mut written = 0;
        let refused = loop {
            match store.append("a", batch(written + 1)).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, StoreError::Io(_) | StoreError::Full), "{refused:?}");
        assert_eq!(all_events(&store, "a", 1_000).await.len() as u64, written);
        // An append that failed does not close the store: a smaller one may still fit, or is refused for the same reason.
        let small = store.append("a", events(written + 1, written + 1)).await;
        match small {
            Ok(()) => written += 1,
            Err(error) => assert!(matches!(error, StoreError::Io(_) | StoreError::Full), "{error:?}"),
        }
        let last = TurnEnd { batch: batch(written + 1), ..end(1) };
        let refused = store.end_turn("a", last).await.unwrap_err();
        assert!(matches!(refused, StoreError::Io(_)), "{refused:?}");
        for refused in [
            store.append("a", events(written + 1, written + 1)).await,
            store.end_turn("a", end(1)).await,
            store.create_session(session("b")).await,
        ] {
            assert!(matches!(refused, Err(StoreError::ReadOnly { .. })));
        }
        let record = store.session("a").await.unwrap().unwrap();
        assert_eq!(record.last_seq, written);
        assert_eq!(record.last_turn.unwrap().state, TurnState::Running);
        assert_eq!(all_events(&store, "a", 1_000).await.len() as u64, written);
        assert!(matches!(store.close().await, Err(StoreError::ReadOnly { .. })));
        say(&format!("WRITTEN {written} ."));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // A file may not grow beyond the limit, and the process is told so instead of killed.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 2000; exec \"$0\" \"$@\""]);
    shell.arg(env::current_exe().unwrap());
    let mut other = Other::spawn(
        shell,
        "a_failing_disk_is_told_and_poisons_only_what_was_to_be_durable",
        directory.path(),
        "limited",
    );
    let line = other.hear("WRITTEN");
    let number = line.split("WRITTEN ").nth(1).unwrap();
    let written: u64 = number.split(' ').next().unwrap().parse().unwrap();
    assert!(written > 0);
    other.succeed();

    let store = open(directory.path(), "after").await;
    let record = store.session("a").await.unwrap().unwrap();
    assert_eq!(record.last_seq, written);
    assert_eq!(record.last_turn.unwrap().state, TurnState::Interrupted);
    store.claim("a").await.unwrap();
    let repair = TurnEnd { batch: events(written + 1, written + 1), ..end(1) };
    store.end_turn("a", repair).await.unwrap();
    assert_eq!(integrity(directory.path()).await, "ok");
}
