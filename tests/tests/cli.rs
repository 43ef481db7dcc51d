//! The program `zeroclaw` as a person and a script use it, in an empty home without keys.

use std::{
    path::Path,
    process::{Output, Stdio},
};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use zeroclaw_e2e::{Lab, Lifeline, initialize, new_session, prompt};
use zeroclaw_testkit::process::AgentProcess;

/// Runs `zeroclaw` in the project to its end.
async fn zeroclaw(lab: &Lab, arguments: &[&str]) -> Output {
    let mut command = lab.command("zeroclaw");
    command.args(arguments).current_dir(lab.project()).stdin(Stdio::null()).kill_on_drop(true);
    finish(command).await
}

async fn finish(mut command: tokio::process::Command) -> Output {
    let limit = std::time::Duration::from_secs(60);
    tokio::time::timeout(limit, command.output()).await.expect("zeroclaw ends").expect("zeroclaw runs")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("UTF-8")
}

/// The session that `zeroclaw prompt` names at the end of its standard error.
fn session_of(output: &Output) -> String {
    let last = stderr(output).lines().last().unwrap_or_default();
    let id = last.strip_prefix("session ").and_then(|rest| rest.split([';', ' ']).next()).unwrap_or_default();
    assert!(id.starts_with("s-"), "no session in the last line: {output:?}");
    id.to_owned()
}

async fn git(directory: &Path, home: &Path, arguments: &[&str]) {
    let mut command = tokio::process::Command::new("git");
    command.args(["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]);
    command.args(arguments).current_dir(directory).env("HOME", home);
    let output = command.output().await.expect("git runs");
    assert!(output.status.success(), "{output:?}");
}

async fn repository(lab: &Lab) {
    let (project, home) = (lab.project(), lab.home());
    git(&project, &home, &["init", "--quiet"]).await;
    for message in ["first commit", "second commit", "third commit"] {
        git(&project, &home, &["commit", "--quiet", "--allow-empty", "-m", message]).await;
    }
}

/// The first thing a new user types did not work without a key, a configuration and three more steps.
#[tokio::test]
async fn cli_01_a_prompt_works_in_an_empty_home() {
    let lab = Lab::new();
    repository(&lab).await;
    let output = zeroclaw(&lab, &["prompt", "--approve", "all", "/run git log --oneline -3"]).await;
    assert!(output.status.success(), "{output:?}");
    let all = format!("{}{}", stdout(&output), stderr(&output));
    for message in ["first commit", "second commit", "third commit"] {
        assert!(all.contains(message), "{message} is missing: {all}");
    }
    let session = session_of(&output);

    let shown = zeroclaw(&lab, &["sessions", "show", &session]).await;
    assert!(shown.status.success(), "{shown:?}");
    for text in ["/run git log --oneline -3", "third commit", &session] {
        assert!(stdout(&shown).contains(text), "{text} is missing: {}", stdout(&shown));
    }
    assert_eq!(stderr(&shown), "");
}

/// Stored sessions could only be read with a database tool.
#[tokio::test]
async fn cli_02_sessions_can_be_listed_and_read() {
    let lab = Lab::new();
    let empty = zeroclaw(&lab, &["sessions", "list"]).await;
    assert!(empty.status.success(), "{empty:?}");
    assert_eq!(stdout(&empty), "");
    assert!(!lab.config_dir().exists(), "looking made files");

    let first = session_of(&zeroclaw(&lab, &["prompt", "/say 2"]).await);
    let second = session_of(&zeroclaw(&lab, &["prompt", "/think deep thought"]).await);
    let listed = zeroclaw(&lab, &["sessions", "list"]).await;
    assert_eq!(stdout(&listed).lines().count(), 2, "{listed:?}");
    assert!(stdout(&listed).contains(&first) && stdout(&listed).contains(&second), "{listed:?}");

    let listed = zeroclaw(&lab, &["sessions", "list", "--json"]).await;
    let entries: Vec<Value> =
        stdout(&listed).lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect();
    assert_eq!(entries.len(), 2);
    for entry in &entries {
        assert_eq!((&entry["cwd"], &entry["state"]), (&json!(lab.project()), &json!("completed")), "{entry}");
    }

    let shown = zeroclaw(&lab, &["sessions", "show", &first, "--json"]).await;
    let lines: Vec<Value> =
        stdout(&shown).lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect();
    assert_eq!(lines[0]["session"]["sessionId"], first.as_str());
    let kinds: Vec<_> = lines[1..].iter().filter_map(|line| line["update"]["sessionUpdate"].as_str()).collect();
    assert_eq!(kinds[..3], ["user_message_chunk", "agent_message_chunk", "agent_message_chunk"], "{lines:#?}");

    // The beginning of an id is enough while it says which one; an unknown one is an error.
    let unique =
        (1..=first.len()).map(|length| &first[..length]).find(|start| !second.starts_with(start)).expect("two ids");
    assert!(zeroclaw(&lab, &["sessions", "show", unique]).await.status.success());
    for wrong in ["s-00000000000000000000000000", "s-", "nonsense", ""] {
        let output = zeroclaw(&lab, &["sessions", "show", wrong]).await;
        assert_eq!(output.status.code(), Some(1), "{wrong:?}: {output:?}");
        assert_eq!(stdout(&output), "");
        assert!(stderr(&output).contains("session"), "{output:?}");
    }
}

/// A script that could answer no question had its commands run anyway, or hung.
#[tokio::test]
async fn cli_03_nothing_is_approved_unless_it_is_said() {
    for arguments in [&["prompt", "--approve", "none", "/run touch made.txt"][..], &["prompt", "/run touch made.txt"]] {
        let lab = Lab::new();
        let output = zeroclaw(&lab, arguments).await;
        assert!(!lab.project().join("made.txt").exists(), "{arguments:?} ran the command");
        assert!(output.status.success(), "{output:?}");
        assert!(stdout(&output).contains("was not allowed"), "{output:?}");
        session_of(&output);
    }
    let lab = Lab::new();
    let output = zeroclaw(&lab, &["prompt", "--approve", "all", "/run touch made.txt"]).await;
    assert!(output.status.success(), "{output:?}");
    assert!(lab.project().join("made.txt").exists(), "{output:?}");
}

/// Continuing took the last session of anybody instead of the one that was named.
#[tokio::test]
async fn cli_04_a_session_is_continued_by_its_id() {
    let lab = Lab::new();
    let session = session_of(&zeroclaw(&lab, &["prompt", "/say 1"]).await);
    zeroclaw(&lab, &["prompt", "/say 2"]).await;
    let output = zeroclaw(&lab, &["prompt", "--session", &session, "/say 3"]).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(session_of(&output), session);
    assert!(stdout(&output).contains("chunk 3"), "{output:?}");
    let shown = zeroclaw(&lab, &["sessions", "show", &session]).await;
    for (text, wanted) in [("/say 1", true), ("/say 2", false), ("/say 3", true)] {
        assert_eq!(stdout(&shown).contains(text), wanted, "{text}: {}", stdout(&shown));
    }
    let output = zeroclaw(&lab, &["prompt", "--session", "s-unknown", "/say 1"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(stdout(&output), "");
}

/// A prompt longer than a command line could not be given.
#[tokio::test]
async fn cli_05_a_prompt_comes_from_a_file_or_from_standard_input() {
    let lab = Lab::new();
    let file = lab.file("prompt.txt", "/say 3\n");
    let output = zeroclaw(&lab, &["prompt", "--file", &file.display().to_string()]).await;
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("chunk 3"), "{output:?}");

    let mut command = lab.command("zeroclaw");
    command.args(["prompt", "-"]).current_dir(lab.project()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("zeroclaw starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"/say 2\n").await.expect("it reads");
    drop(input);
    let output = child.wait_with_output().await.expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("chunk 2"), "{output:?}");

    for wrong in [&["prompt", "--file", "/does/not/exist"][..], &["prompt"], &["prompt", ""]] {
        let output = zeroclaw(&lab, wrong).await;
        assert!(!output.status.success(), "{wrong:?}: {output:?}");
        assert_eq!(stdout(&output), "", "{wrong:?}");
        assert_ne!(stderr(&output), "", "{wrong:?}");
    }
}

/// Starts a prompt in a process group of its own, as a shell does, and waits until its command runs.
#[cfg(unix)]
async fn running_prompt(lab: &Lab) -> (tokio::process::Child, Lifeline) {
    let mut lifeline = Lifeline::new(&lab.project().join("alive"));
    let mut command = lab.command("zeroclaw");
    let prompt = format!("/run {} sleep 300", lifeline.held());
    command.args(["prompt", "--approve", "all", &prompt]).current_dir(lab.project()).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let child = command.spawn().expect("zeroclaw starts");
    lifeline.started().await;
    (child, lifeline)
}

#[cfg(unix)]
fn interrupt(child: &tokio::process::Child, whole_group: bool) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    let id = id.expect("a running child");
    let signal = rustix::process::Signal::INT;
    let sent = if whole_group {
        rustix::process::kill_process_group(id, signal)
    } else {
        rustix::process::kill_process(id, signal)
    };
    sent.expect("the signal is sent");
}

/// Ctrl-C killed the agent before it could store the turn, and left the command running.
#[cfg(unix)]
#[tokio::test]
async fn cli_06_an_interrupt_cancels_and_says_130() {
    // A terminal signals the whole group, a supervisor only the process.
    for whole_group in [true, false] {
        let lab = Lab::new();
        let (mut child, mut lifeline) = running_prompt(&lab).await;
        interrupt(&child, whole_group);
        let limit = std::time::Duration::from_secs(30);
        let status = tokio::time::timeout(limit, child.wait()).await.expect("it ends").expect("it can be awaited");
        assert_eq!(status.code(), Some(130), "whole group: {whole_group}");
        lifeline.gone().await;
        let listed = zeroclaw(&lab, &["sessions", "list", "--json"]).await;
        let entry: Value = serde_json::from_str(stdout(&listed).trim()).expect("one session");
        assert_eq!(entry["state"], "cancelled", "whole group: {whole_group}; {entry}");
    }
}

/// A script could not tell a failed answer from an empty one.
#[tokio::test]
async fn cli_07_a_model_error_is_exit_code_1() {
    let lab = Lab::scripted("full", &[json!({"type": "error", "kind": "auth", "message": "the key is not accepted"})]);
    let output = zeroclaw(&lab, &["prompt", "hello"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains("the key is not accepted"), "{output:?}");
    assert!(stderr(&output).contains("auth_required"), "{output:?}");
    // Whoever mistypes an option is told so, with another code.
    let output = zeroclaw(&lab, &["prompt", "--no-such-option", "hello"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Scripts had to scrape coloured text.
#[tokio::test]
async fn cli_08_json_output_is_one_update_a_line() {
    let lab = Lab::new();
    let output = zeroclaw(&lab, &["prompt", "--json", "/say 3"]).await;
    assert!(output.status.success(), "{output:?}");
    let kinds: Vec<String> = stdout(&output)
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")["sessionUpdate"].as_str().expect("a kind").to_owned()
        })
        .collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "agent_message_chunk").count(), 3, "{kinds:?}");
    assert!(!stdout(&output).contains('\u{1b}') && !stderr(&output).contains('\u{1b}'), "{output:?}");
}

/// Setting one key rewrote the file without its comments, or made a file that the next start refused.
#[tokio::test]
async fn cli_09_the_configuration_can_be_read_and_changed() {
    let lab = Lab::new();
    let path = zeroclaw(&lab, &["config", "path"]).await;
    let file = lab.config_dir().join("config.toml");
    assert_eq!(stdout(&path), format!("{}\n", file.display()));
    assert!(!file.exists(), "`config path` made the file");

    let get = zeroclaw(&lab, &["config", "get", "acp.max_sessions"]).await;
    assert_eq!(stdout(&get), "10\n", "{get:?}");
    let init = zeroclaw(&lab, &["config", "init"]).await;
    assert!(init.status.success(), "{init:?}");
    let before = std::fs::read_to_string(&file).expect("the file was made");
    let again = zeroclaw(&lab, &["config", "init"]).await;
    assert!(!again.status.success(), "a second init went over the file: {again:?}");
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), before);

    assert!(zeroclaw(&lab, &["config", "set", "acp.max_sessions", "3"]).await.status.success());
    assert_eq!(stdout(&zeroclaw(&lab, &["config", "get", "acp.max_sessions"]).await), "3\n");
    let after = std::fs::read_to_string(&file).expect("a file");
    let comments = |text: &str| text.lines().filter(|line| line.trim_start().starts_with('#')).count();
    assert!(comments(&after) + 1 >= comments(&before), "comments were lost:\n{after}");
    let agent = lab.start();
    let mut agent = agent;
    let hello = initialize(&mut agent).await;
    assert_eq!(hello["_meta"]["zeroclaw"]["maxSessions"], 3, "{hello}");

    zeroclaw(&lab, &["config", "set", "providers.models.openai.main.api_key", "sk-canary-cli"]).await;
    for command in [&["config", "list"][..], &["config", "get", "providers.models.openai.main.api_key"], &["doctor"]] {
        let output = zeroclaw(&lab, command).await;
        let all = format!("{}{}", stdout(&output), stderr(&output));
        assert!(!all.contains("sk-canary-cli"), "{command:?} shows the key");
    }
    let list = zeroclaw(&lab, &["config", "list"]).await;
    assert!(stdout(&list).lines().any(|line| line.contains("acp.max_sessions") && line.contains('3')), "{list:?}");

    let held = std::fs::read_to_string(&file).expect("a file");
    for (key, value) in [("acp.max_sesions", "3"), ("acp.max_sessions", "many"), ("nonsense", "1")] {
        let output = zeroclaw(&lab, &["config", "set", key, value]).await;
        assert_eq!(output.status.code(), Some(1), "{key}: {output:?}");
        assert!(stderr(&output).starts_with("zeroclaw: error:"), "{output:?}");
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), held, "{key} changed the file");
    }
}

/// Whoever asked for help had to be asked ten questions first.
#[tokio::test]
async fn cli_10_the_doctor_says_what_is_wrong() {
    let lab = Lab::new();
    let output = zeroclaw(&lab, &["doctor"]).await;
    assert!(output.status.success(), "{output:?}");
    assert!(!lab.config_dir().exists(), "the doctor made files");
    for subject in ["version", "config", "agent", "store"] {
        assert!(stdout(&output).contains(subject), "{subject} is missing: {}", stdout(&output));
    }
    lab.write_config("[acp]\nmax_sesions = 3\n");
    let output = zeroclaw(&lab, &["doctor"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("FAIL") && stdout(&output).contains("max_sesions"), "{output:?}");
}

/// A completion script was printed with log lines in it.
#[tokio::test]
async fn cli_11_completions_are_a_script_and_nothing_else() {
    let lab = Lab::new();
    let output = zeroclaw(&lab, &["completions", "bash"]).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stderr(&output), "");
    let script = lab.file("completions.bash", &output.stdout);
    let mut check = tokio::process::Command::new("bash");
    let checked = check.arg("-n").arg(script).output().await.expect("bash runs");
    assert!(checked.status.success(), "{checked:?}");
    assert_eq!(zeroclaw(&lab, &["completions", "no-such-shell"]).await.status.code(), Some(2));
}

/// One conversation, with what differs between runs replaced.
async fn conversation(lab: &Lab, mut command: tokio::process::Command) -> Vec<String> {
    command.args(["--log-level", "trace"]);
    let mut agent = AgentProcess::spawn(command);
    initialize(&mut agent).await;
    let session = new_session(&mut agent, &lab.project()).await;
    prompt(&mut agent, &session, "/say 3").await;
    agent.auto_permit("allow-once");
    prompt(&mut agent, &session, "/run echo hello; echo world >&2").await;
    agent.call("no/such_method", json!({})).await.expect_err("there is none");
    agent.close_stdin();
    assert!(agent.wait().await.success());
    let mut lines = Vec::new();
    for message in agent.received() {
        let mut line = message.to_string().replace(&session, "SESSION");
        if let Some(time) = message["params"]["update"]["updatedAt"].as_str() {
            line = line.replace(time, "TIME");
        }
        // Announced after a while, and so at no fixed place; how output is cut into updates is up to the pipe.
        if !line.contains("available_commands_update") && !line.contains("\"in_progress\"") {
            lines.push(line);
        }
    }
    lines
}

/// One of the two ways to start the agent printed a banner on the protocol's stream.
#[tokio::test]
async fn cli_12_both_programs_speak_the_protocol_and_nothing_else() {
    let lab = Lab::new();
    let own = conversation(&lab, lab.command("zeroclaw-acp")).await;
    let mut command = lab.command("zeroclaw");
    command.arg("acp");
    let as_command = conversation(&lab, command).await;
    assert_eq!(own, as_command);
    assert!(own.len() > 8, "{own:#?}");
}

/// Start-up errors were printed where the client reads, and it waited for an answer for ever.
#[tokio::test]
async fn cli_13_a_broken_configuration_ends_the_agent_with_a_sentence_on_stderr() {
    let lab = Lab::with_config("[acp]\nmax_sesions = 3\n");
    for (name, arguments) in [("zeroclaw-acp", &[][..]), ("zeroclaw", &["acp"])] {
        let mut command = lab.command(name);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let output = finish(command).await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(stdout(&output), "");
        let error = stderr(&output);
        assert!(error.contains("max_sesions") && error.contains("max_sessions") && error.contains('2'), "{error}");
    }
}

/// Two settings made at the same moment: one was lost, and a comment on the first line with it.
#[tokio::test]
async fn cli_14_settings_made_at_once_are_all_kept() {
    let lab =
        Lab::with_config("# first line\n[acp] # beside\nmax_sessions = 5 # five\n\n[other_program]\nkey = 'kept'\n");
    let lab = &lab;
    let settings: Vec<(String, String)> =
        (0..8).map(|number| (format!("agents.a{number}.model_provider"), format!("builtin.b{number}"))).collect();
    let all = settings.iter().map(async |(key, value)| zeroclaw(lab, &["config", "set", key, value]).await);
    for output in futures::future::join_all(all).await {
        assert!(output.status.success(), "{output:?}");
    }
    for (key, value) in &settings {
        assert_eq!(stdout(&zeroclaw(lab, &["config", "get", key]).await).trim(), value);
    }
    let text = std::fs::read_to_string(lab.config_dir().join("config.toml")).expect("the file");
    for kept in ["# first line\n[acp] # beside\nmax_sessions = 5 # five\n", "[other_program]\nkey = 'kept'\n"] {
        assert!(text.contains(kept), "{kept:?} is gone:\n{text}");
    }
}

/// An answer could set the window's title, clear the screen, or fake the lines around it.
#[tokio::test]
async fn cli_15_an_answer_cannot_drive_the_terminal() {
    let evil = "a\u{1b}]0;title\u{7}b\u{1b}[2Jc\u{9b}31md\r!";
    let script = [
        json!({"type": "text", "text": evil}),
        json!({"type": "thought", "text": evil}),
        json!({"type": "tool_call", "name": "shell", "arguments": {"command": "printf '\\033[31mred\\007'"}}),
        json!({"type": "tool_call", "name": evil, "arguments": {}}),
        json!({"type": "stop"}),
        json!({"type": "error", "kind": "request", "message": evil}),
    ];
    let lab = Lab::scripted("full", &script);
    let output = zeroclaw(&lab, &["prompt", evil]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let session = session_of(&output);
    let shown = zeroclaw(&lab, &["sessions", "show", &session]).await;
    let listed = zeroclaw(&lab, &["sessions", "list"]).await;
    for output in [&output, &shown, &listed] {
        for text in [stdout(output), stderr(output)] {
            let control = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
            assert_eq!(control, None, "{text:?}");
        }
    }
}

/// A script could not tell why a model had stopped.
#[tokio::test]
async fn cli_16_every_way_to_stop_has_its_exit_code() {
    for (reason, code) in [("end", 0), ("refusal", 3), ("max_tokens", 4)] {
        let lines = [json!({"type": "text", "text": "so far"}), json!({"type": "stop", "reason": reason})];
        let lab = Lab::scripted("full", &lines);
        let output = zeroclaw(&lab, &["prompt", "hello"]).await;
        assert_eq!(output.status.code(), Some(code), "{reason}: {output:?}");
        assert!(stdout(&output).contains("so far"), "{output:?}");
        session_of(&output);
    }
}

/// A reader that had seen enough made the program panic, or run on without anybody.
#[cfg(unix)]
#[tokio::test]
async fn cli_17_a_reader_that_leaves_ends_the_program() {
    let lab = Lab::new();
    let session = session_of(&zeroclaw(&lab, &["prompt", "/say 30000"]).await);
    for arguments in [vec!["prompt", "/say 1000000"], vec!["sessions", "show", &session], vec!["config", "list"]] {
        let mut command = lab.command("zeroclaw");
        command.args(&arguments).current_dir(lab.project()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("zeroclaw starts");
        let mut out = child.stdout.take().expect("a pipe");
        let mut first = [0];
        tokio::io::AsyncReadExt::read_exact(&mut out, &mut first).await.expect("it prints something");
        drop(out);
        let limit = std::time::Duration::from_secs(60);
        let output = tokio::time::timeout(limit, child.wait_with_output()).await.expect("it ends").expect("it ran");
        assert!(!stderr(&output).contains("panicked"), "{arguments:?}: {output:?}");
        assert!(output.status.code().is_some(), "{arguments:?} was killed: {output:?}");
    }
}

/// The client worked with its own agent only.
#[tokio::test]
async fn cli_18_another_agent_can_be_driven() {
    let lab = Lab::new();
    let agent = zeroclaw_e2e::binary("zeroclaw-acp").display().to_string();
    let arguments =
        ["prompt", "--approve", "all", "/run touch made.txt", "--agent-command", &agent, "--log-level", "off"];
    let output = zeroclaw(&lab, &arguments).await;
    assert!(output.status.success(), "{output:?}");
    assert!(lab.project().join("made.txt").exists());
    for (command, wanted) in
        [("/does/not/exist", "/does/not/exist"), ("false", "exit status: 1"), ("cat", "initialize")]
    {
        let output = zeroclaw(&lab, &["prompt", "hello", "--agent-command", command]).await;
        assert_eq!(output.status.code(), Some(1), "{command}: {output:?}");
        assert!(stderr(&output).contains(wanted), "{command}: {output:?}");
    }
}
