//! A store that cannot do what it should: locked, full, damaged, busy. The turn goes on, and nobody is told a half truth.

use std::process::Stdio;

use serde_json::{Value, json};
use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use zeroclaw_e2e::{
    Lab, initialize, new_session, prompt,
    replay::{assert_same, kind, load, seen, text, without_user},
    text_prompt,
};
use zeroclaw_testkit::process::AgentProcess;

async fn open(lab: &Lab) -> SqliteConnection {
    SqliteConnectOptions::new().filename(lab.database()).connect().await.expect("the store is a SQLite file")
}

/// The unsaved turns are marked, in the result and in words.
fn says_unsaved(agent: &AgentProcess, session: &str, result: &Value) -> bool {
    let marked = result["_meta"]["zeroclaw"]["persisted"] == false;
    let told = seen(agent, session).iter().any(|update| text(update).contains("could not be saved"));
    assert_eq!(marked, told, "{result}");
    marked
}

/// While another program held the store's lock, the answer did not come or half of a turn was kept.
#[tokio::test]
async fn sto_05_a_lock_from_outside_delays_no_answer_for_ever() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 2").await;
    let mut other = open(&lab).await;
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut other).await.expect("the lock");
    let result = prompt(&mut agent, &session, "/say 3").await;
    assert_eq!(result["stopReason"], "end_turn", "{result}");
    assert!(says_unsaved(&agent, &session, &result), "the turn cannot be on disk: {result}");
    sqlx::query("COMMIT").execute(&mut other).await.expect("the lock is given back");
    other.close().await.expect("closed");

    // What was owed is paid with the next turn.
    let result = prompt(&mut agent, &session, "/say 4").await;
    assert!(result["_meta"].is_null(), "{result}");
    // That a turn is not saved was true then; it is saved now, and a replay does not say otherwise.
    let mut live = seen(&agent, &session);
    live.retain(|update| !text(update).contains("could not be saved"));
    agent.kill9().await;
    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, &session, &lab.project()).await;
    assert_same(&without_user(&replayed), &live, "the replay");
    assert_eq!(replayed.iter().filter(|update| kind(update) == "user_message_chunk").count(), 3);
}

/// A client that asked for notices is told by one, and sees no message that is not the model's.
#[tokio::test]
async fn sto_05_a_client_with_notices_is_told_by_one() {
    let lab = Lab::new();
    let mut agent = lab.start();
    let capabilities = serde_json::json!({"session": {"notices": {}}});
    let params = serde_json::json!({"protocolVersion": 1, "clientCapabilities": capabilities});
    agent.call("initialize", params).await.expect("initialize");
    let session = new_session(&mut agent, &lab.project()).await;
    let mut other = open(&lab).await;
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut other).await.expect("the lock");
    let result = prompt(&mut agent, &session, "/say 1").await;
    assert_eq!(result["_meta"]["zeroclaw"]["persisted"], false);
    sqlx::query("COMMIT").execute(&mut other).await.expect("the lock is given back");
    other.close().await.expect("closed");
    let told = seen(&agent, &session);
    let notices: Vec<Value> = told
        .iter()
        .filter(|update| kind(update) == "notice")
        .map(|update| zeroclaw_e2e::replay::value(update))
        .collect();
    let expected = serde_json::json!({
        "sessionUpdate": "notice", "severity": "error", "title": "This turn could not be saved",
        "description": "the session store does not write. It may be missing after a restart.",
    });
    assert_eq!(notices, [expected]);
    assert!(!told.iter().any(|update| text(update).contains("could not be saved")));
}

/// Starts the agent so that no file it writes may become larger than so many blocks of 512 bytes: a full disk.
async fn on_a_full_disk(lab: &Lab, blocks: u32) -> AgentProcess {
    let agent = zeroclaw_e2e::binary("zeroclaw-acp");
    let mut command = tokio::process::Command::new("/bin/sh");
    command.env_clear().env("HOME", lab.home()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // A process that ignores the signal gets an error from the write instead, as it would from a full disk.
    command.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec '{}'", agent.display()));
    let mut agent = AgentProcess::spawn(command);
    initialize(&mut agent).await;
    agent
}

/// A full disk ended the process, tore the store, or lost the turns before and after it.
#[cfg(unix)]
#[tokio::test]
async fn sto_07_a_full_disk_costs_one_turn_at_most() {
    let script = [
        json!({"type": "text", "text": "word {n} ", "repeat": 20_000}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "small"}),
        json!({"type": "stop"}),
        json!({"type": "loop"}),
    ];
    let lab = Lab::scripted("full", &script);
    let (mut agent, session) = lab.session().await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    prompt(&mut agent, &session, "before").await;
    let before = seen(&agent, &session);
    agent.close_stdin();
    assert!(agent.wait().await.success());

    let size = std::fs::metadata(lab.database()).expect("the store").len();
    let blocks = u32::try_from(size / 512 + 600).expect("a small store");
    let mut agent = on_a_full_disk(&lab, blocks).await;
    agent.call("session/load", params.clone()).await.expect("reading needs no room");
    let line = agent.transcript().len();
    let result = prompt(&mut agent, &session, "too much").await;
    assert_eq!(result["stopReason"], "end_turn", "{result}");
    let told = zeroclaw_e2e::replay::seen_since(&agent, &session, line);
    let words = told.iter().filter(|update| text(update).starts_with("word ")).count();
    assert_eq!(words, 20_000, "the answer itself is whole");
    assert_eq!(result["_meta"]["zeroclaw"]["persisted"], false, "{result}");
    assert!(told.iter().any(|update| text(update).contains("could not be saved")), "nobody was told");
    agent.close_stdin();
    agent.wait().await;

    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, &session, &lab.project()).await;
    assert_same(&without_user(&replayed)[..before.len()], &before, "the turn before the disk was full");
    let result = prompt(&mut agent, &session, "after").await;
    assert!(result["_meta"].is_null(), "{result}");
    let history = without_user(&load_again(&lab, agent, &session).await);
    assert!(history.iter().any(|update| text(update).starts_with("word ") || text(update) == "small"));
}

async fn load_again(lab: &Lab, mut agent: AgentProcess, session: &str) -> Vec<String> {
    agent.kill9().await;
    let mut agent = lab.agent().await;
    load(&mut agent, session, &lab.project()).await
}

/// Two servers on one store lost turns when one of them was killed again and again.
#[tokio::test]
async fn sto_11_writers_that_die_do_not_harm_each_other() {
    let lab = Lab::new();
    let (mut steady, session) = lab.session().await;
    let mut kept: Vec<String> = Vec::new();
    for round in 0..12 {
        let mut victim = lab.agent().await;
        let other = new_session(&mut victim, &lab.project()).await;
        victim.request("session/prompt", text_prompt(&other, "/say 100000")).await;
        let line = steady.transcript().len();
        let running = steady.request("session/prompt", text_prompt(&session, &format!("/say {}", 100 + round))).await;
        for _ in 0..(round * 50) {
            victim.next().await;
        }
        victim.kill9().await;
        let result = steady.response(&running).await.expect("the steady one goes on");
        assert!(result["_meta"].is_null(), "round {round}: {result}");
        kept.extend(zeroclaw_e2e::replay::seen_since(&steady, &session, line));
    }
    let replayed = load_again(&lab, steady, &session).await;
    assert_same(&without_user(&replayed), &kept, "the steady session");
    let mut connection = open(&lab).await;
    let check: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut connection).await.expect("a check");
    assert_eq!(check, "ok");
}

/// Starts once more on what is there and uses it.
async fn starts(lab: &Lab, what: &str) -> (AgentProcess, Value) {
    let mut agent = lab.start();
    let hello = initialize(&mut agent).await;
    let session = new_session(&mut agent, &lab.project()).await;
    let result = prompt(&mut agent, &session, "/say 1").await;
    assert_eq!(result["stopReason"], "end_turn", "{what}");
    (agent, hello)
}

/// A damaged file in the data directory stopped the start, or was deleted with everything in it.
#[tokio::test]
async fn sto_13_garbage_in_the_store_stops_no_start_and_is_kept() {
    for (name, garbage) in [
        ("acp-sessions.db", &b"this is no database, but somebody may want it back"[..]),
        ("acp-sessions.db", b""),
        ("acp-sessions.db-wal", b"garbage"),
        ("acp-sessions.db-shm", b"garbage"),
        ("acp-sessions.db.new", b"garbage"),
        ("acp-sessions.db", b"SQLite format 3\0 and then nothing that makes sense at all"),
    ] {
        let lab = Lab::new();
        let directory = lab.database().parent().expect("a directory").to_owned();
        std::fs::create_dir_all(&directory).expect("the directory");
        std::fs::write(directory.join(name), garbage).expect("a file");
        let (_agent, hello) = starts(&lab, name).await;
        assert_eq!(hello["agentCapabilities"]["loadSession"], true, "{name}: {hello}");
        if garbage.len() > 20 {
            let kept = std::fs::read_dir(&directory)
                .expect("a directory")
                .any(|entry| std::fs::read(entry.expect("an entry").path()).is_ok_and(|bytes| bytes == garbage));
            assert!(kept, "{name}: what was there is gone");
        }
    }
}

/// A store that was damaged in the middle answered a load with half a conversation, or took the process down.
#[tokio::test]
async fn sto_15_a_damaged_row_is_told_and_the_rest_stays_usable() {
    let lab = Lab::new();
    let (mut agent, damaged) = lab.session().await;
    prompt(&mut agent, &damaged, "/say 3").await;
    let sound = new_session(&mut agent, &lab.project()).await;
    prompt(&mut agent, &sound, "/say 3").await;
    agent.close_stdin();
    assert!(agent.wait().await.success());
    let mut connection = open(&lab).await;
    let damage =
        "UPDATE events SET payload = x'7bff00' WHERE seq = 2 AND session = (SELECT key FROM sessions WHERE id = ?)";
    let changed = sqlx::query(damage).bind(&damaged).execute(&mut connection).await.expect("a change");
    assert_eq!(changed.rows_affected(), 1);
    connection.close().await.expect("closed");

    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, &damaged, &lab.project()).await;
    let texts: Vec<Value> =
        replayed.iter().map(|update| serde_json::from_str::<Value>(update).expect("JSON")).collect();
    let told = |text: &str| {
        texts.iter().any(|update| update["content"]["text"].as_str().is_some_and(|own| own.contains(text)))
    };
    assert!(told("is damaged in the session store and was left out"), "{texts:?}");
    assert!(told("chunk 2") && told("chunk 3"), "{texts:?}");
    prompt(&mut agent, &damaged, "/say 1").await;
    let replayed = load(&mut agent, &sound, &lab.project()).await;
    assert_eq!(replayed.iter().filter(|update| kind(update) == "agent_message_chunk").count(), 3);
    prompt(&mut agent, &sound, "/say 1").await;
}

/// Keys and conversations lay in files that every user of the machine could read.
#[cfg(unix)]
#[tokio::test]
async fn sto_17_the_files_are_the_users_alone() {
    use std::os::unix::fs::PermissionsExt;

    let lab = Lab::new();
    let mut command = lab.command("zeroclaw");
    command.args(["config", "init"]).stdout(Stdio::null());
    assert!(command.status().await.expect("zeroclaw runs").success());
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 1").await;
    let mut directories = vec![lab.config_dir()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let mode = std::fs::metadata(&path).expect("what is it").permissions().mode();
            let shared = mode & 0o077;
            if path.is_dir() {
                directories.push(path);
            } else {
                assert_eq!(shared, 0, "{} has mode {mode:o}", path.display());
            }
        }
    }
}
