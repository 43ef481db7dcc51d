//! `zeroclaw prompt` with this program as its own agent, and what `zeroclaw sessions` shows of it afterwards.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot start the program has failed")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Runs the program without any key in its environment, so that the builtin agent answers.
fn run(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zeroclaw"))
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir(home.join("project"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn home() -> TempDir {
    let home = TempDir::new().unwrap();
    fs::create_dir(home.path().join("project")).unwrap();
    home
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn sessions(home: &Path) -> Vec<Value> {
    let list = run(home, &["sessions", "list", "--json"]);
    text(&list.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_prompt_is_answered_stored_shown_and_continued() {
    let home = home();
    let home = home.path();
    let first = run(home, &["prompt", "/say 3"]);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let answer = text(&first.stdout);
    assert!(!answer.trim().is_empty());

    let listed = sessions(home);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["state"], "completed");
    let id = listed[0]["sessionId"].as_str().unwrap();
    assert!(text(&first.stderr).contains(id), "the way to continue is told");

    let shown = text(&run(home, &["sessions", "show", &id[..10]]).stdout);
    assert!(shown.contains("> /say 3\n"), "{shown}");
    assert!(shown.contains(answer.trim()), "{shown}");

    let second = run(home, &["prompt", "--session", &id[..10], "--show-history", "/say 1"]);
    assert_eq!(second.status.code(), Some(0), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("> /say 3\n"), "{}", text(&second.stderr));
    assert!(!text(&second.stdout).contains(answer.trim()), "history is not the answer");
    assert_eq!(sessions(home).len(), 1, "it is the same session");

    let third = run(home, &["prompt", "--session", id, "/say 1"]);
    assert!(!text(&third.stderr).contains("> /say 3"), "history is shown on request only");
}

#[test]
fn approval_modes_decide_whether_a_file_is_written() {
    let home = home();
    let home = home.path();
    let file = home.join("project").join("note.txt");
    for mode in ["none", "reads"] {
        run(home, &["prompt", "--approve", mode, "/write note.txt hello"]);
        assert!(!file.exists(), "{mode}");
    }
    let output = run(home, &["prompt", "--approve", "all", "/write note.txt hello"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&file).unwrap().trim_end(), "hello");
    assert!(text(&output.stderr).contains("+hello"), "the diff is shown: {}", text(&output.stderr));
}

#[test]
fn an_unknown_session_and_an_unknown_agent_are_failures_with_a_reason() {
    let home = home();
    let unknown = run(home.path(), &["prompt", "--session", "s-nothing", "hello"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("session_not_found"), "{}", text(&unknown.stderr));
    assert!(!text(&unknown.stderr).contains("continue with"), "there is nothing to continue");
    let unknown = run(home.path(), &["prompt", "--agent", "nobody", "hello"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("nobody"), "{}", text(&unknown.stderr));
    let show = run(home.path(), &["sessions", "show", "s-nothing"]);
    assert_eq!(show.status.code(), Some(1));
    assert!(text(&show.stderr).contains("there is no session"), "{}", text(&show.stderr));
}
