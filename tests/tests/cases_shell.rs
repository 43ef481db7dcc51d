//! Commands: what is judged is what runs, and nothing that runs holds or outlives its call.

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, Lifeline, initialize, new_session};
use zeroclaw_testkit::process::AgentProcess;

use crate::turns::{Turn, asks, builtin, end_turn, files_below, last_update, session_with};

fn output(turn: &Turn) -> String {
    last_update(&turn.messages)["rawOutput"].as_str().unwrap().to_owned()
}

fn questions(turn: &Turn) -> usize {
    turn.messages.iter().filter(|message| asks(message)).count()
}

/// Nothing runs that needs an answer: every question is answered with no.
async fn refusing(lab: &Lab) -> (AgentProcess, String) {
    let (mut agent, session) = lab.session().await;
    agent.auto_permit("reject-once");
    (agent, session)
}

/// One shell call with this command, as a model sends it: the built-in agent takes a prompt by its lines.
fn script(commands: &[&str]) -> Vec<Value> {
    let mut lines = Vec::new();
    for command in commands {
        lines.push(json!({"type": "tool_call", "name": "shell", "arguments": {"command": command}}));
    }
    lines.extend([json!({"type": "stop"}), json!({"type": "text", "text": "done"}), json!({"type": "stop"})]);
    lines
}

/// A list of allowed programs was compared with the first of two commands: a line feed was no separator.
#[tokio::test]
async fn shl_01_every_line_is_a_command() {
    let commands = ["ls\ntouch made", "ls\r\ntouch made", "ls\rtouch made", "ls ; touch made", "ls & touch made"];
    let lab = Lab::scripted("supervised", &script(&commands));
    let (mut agent, session) = refusing(&lab).await;
    let turn = end_turn(&mut agent, &session, "go").await;
    assert_eq!(questions(&turn), commands.len());
    assert!(files_below(&lab.project()).is_empty());

    let lab = Lab::scripted("supervised", &script(&["ls\nid", "ls\r\nid"]));
    let config = fs::read_to_string(lab.config_dir().join("config.toml")).unwrap();
    lab.write_config(&format!("{config}allowed_commands = [\"ls\"]\n"));
    let (mut agent, session) = refusing(&lab).await;
    let turn = end_turn(&mut agent, &session, "go").await;
    let said = json!(turn.messages).to_string();
    assert!(said.contains("`id` is not among the allowed commands") && !said.contains("uid="), "{said}");
}

/// A command inside an allowed one ran along.
#[tokio::test]
async fn shl_03_what_a_substitution_runs_is_judged() {
    let commands = [
        "echo $(touch made)",
        "echo `touch made`",
        "echo \"${x:-$(touch made)}\"",
        "cat <(touch made)",
        "echo $(echo $(touch made))",
        "ls \"$(touch made)\"",
        "cat <<E\n$(touch made)\nE",
        "echo $((1 + $(touch made; echo 1)))",
        "x=$(touch made) ls",
    ];
    let lab = Lab::scripted("supervised", &script(&commands));
    let (mut agent, session) = refusing(&lab).await;
    let turn = end_turn(&mut agent, &session, "go").await;
    assert_eq!(questions(&turn), commands.len());
    assert!(files_below(&lab.project()).is_empty());
}

/// After `file_write` was refused, the agent wrote through the same link with a script.
#[tokio::test]
async fn shl_05_a_script_ends_at_the_boundary_of_the_file_tools() {
    let lab = builtin("full");
    let outside = lab.project().parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "hunter2").unwrap();
    symlink(&outside, lab.project().join("link")).unwrap();
    lab.file("a", "a");
    lab.file("script", "cp a link/x\ncat link/secret\n");
    let (mut agent, session) = lab.session().await;
    if !crate::sandbox::confines().await {
        return;
    }
    for command in ["cp a link/x", "cat link/secret", "sh ./script", "cd link && cat secret", "ln link/secret hard"] {
        let turn = end_turn(&mut agent, &session, &format!("/run {command}")).await;
        assert_eq!(last_update(&turn.messages)["status"], "failed", "{command}");
        assert!(!json!(turn.messages).to_string().contains("hunter2"), "{command}");
    }
    assert_eq!(files_below(&outside), ["secret"]);
}

/// A background process held the output open, and the call waited for it for over an hour.
#[tokio::test]
async fn shl_07_a_background_process_holds_nothing() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    for (name, start) in [("plain", ""), ("setsid", "setsid"), ("nohup", "nohup")] {
        let mut held = Lifeline::new(&lab.project().join(name));
        let command = format!("/run {} {start} sleep 600 & echo hi", held.held());
        let turn = end_turn(&mut agent, &session, &command).await;
        assert!(output(&turn).contains("hi\n[exit code 0]"), "{}", output(&turn));
        held.started().await;
        held.gone().await;
    }
    let turn = end_turn(&mut agent, &session, "/run echo still here").await;
    assert!(output(&turn).starts_with("still here\n"));
}

/// A child that ignores the polite signal was waited for, whatever time it had been given.
#[tokio::test]
async fn shl_09_who_does_not_end_is_ended() {
    let call =
        json!({"command": "trap '' TERM INT HUP; echo started; while :; do sleep 1000; done", "timeout_secs": 1});
    let lab = Lab::scripted(
        "full",
        &[
            json!({"type": "tool_call", "name": "shell", "arguments": call}),
            json!({"type": "stop"}),
            json!({"type": "text", "text": "done"}),
            json!({"type": "stop"}),
        ],
    );
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "go").await;
    assert_eq!(turn.result["content"], "done");
    assert_eq!(output(&turn), "started\n[timed out after 1s and was ended]");
    assert_eq!(last_update(&turn.messages)["status"], "failed");
}

/// An editor or a pager opened the terminal that the server had been started in, and waited for a person.
#[tokio::test]
async fn shl_11_nothing_asks_a_terminal() {
    let lab = builtin("full");
    lab.file("a", "a\n");
    // A terminal of its own, as the server has it when it is started from a shell.
    let server = zeroclaw_e2e::binary("zeroclaw-acp");
    let setup =
        "git init -q . && git config user.name n && git config user.email e@x && git add a && git commit -qm one";
    let mut command = zeroclaw_testkit::process::hermetic(std::path::Path::new("script"), &lab.home());
    command.args(["-qec", &format!("stty raw -echo; exec '{}'", server.display()), "/dev/null"]);
    command.current_dir(lab.project());
    let mut agent = AgentProcess::spawn(command);
    initialize(&mut agent).await;
    let session = new_session(&mut agent, &lab.project()).await;
    for (command, expected) in [
        (setup, "[exit code 0]"),
        ("git commit --allow-empty", "[exit code 1]"),
        ("git commit --amend", "[exit code 0]"),
        ("git log", "[exit code 0]"),
        ("cat /dev/tty", "[exit code 1]"),
        ("(: </dev/tty) 2>/dev/null || echo none", "none\n[exit code 0]"),
        ("read answer; echo \"got [$answer]\"", "got []\n[exit code 0]"),
        ("tty", "not a tty\n[exit code 1]"),
    ] {
        let turn = end_turn(&mut agent, &session, &format!("/run {command}")).await;
        assert!(output(&turn).ends_with(expected), "{command}: {}", output(&turn));
    }
}

/// Commands inherited the environment of the server, keys included.
#[tokio::test]
async fn shl_13_commands_get_a_short_environment() {
    let lab = Lab::with_config(
        "[providers.models.builtin.b]\n[agents.main]\nmodel_provider = \"builtin.b\"\n[risk_profiles.default]\nlevel = \"full\"\n",
    );
    let secrets = [
        ("ANTHROPIC_API_KEY", "sk-one"),
        ("AWS_SECRET_ACCESS_KEY", "sk-two"),
        ("GITHUB_TOKEN", "sk-three"),
        ("DATABASE_URL", "sk-four"),
        ("ZEROCLAW_acp__session_timeout_secs", "31337"),
        ("LD_PRELOAD", ""),
        ("BASH_ENV", "/nonexistent"),
        ("LC_ALL", "C.UTF-8"),
    ];
    let mut agent = lab.start_with(&secrets);
    initialize(&mut agent).await;
    let session = new_session(&mut agent, &lab.project()).await;
    let turn = end_turn(&mut agent, &session, "/run env; ls /usr >/dev/null && echo found; printf 'é' | wc -m").await;
    let text = output(&turn);
    assert!(text.contains("found\n1\n[exit code 0]") && text.contains("LC_ALL=C.UTF-8\n"), "{text}");
    assert!(text.contains(&format!("HOME={}\n", lab.home().display())), "{text}");
    for (name, value) in &secrets[..7] {
        assert!(!text.contains(&format!("{name}=")) && (value.is_empty() || !text.contains(*value)), "{name}: {text}");
    }
}

/// Output was read only after the end, so a command that wrote more than a pipe takes never came to it.
#[tokio::test]
async fn shl_15_much_output_blocks_nothing() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    for command in [
        "head -c 1000000 /dev/zero | tr '\\0' a",
        "head -c 1000000 /dev/zero | tr '\\0' a >&2",
        "(head -c 1000000 /dev/zero | tr '\\0' a >&2) & head -c 1000000 /dev/zero | tr '\\0' b; wait",
    ] {
        let turn = end_turn(&mut agent, &session, &format!("/run {command}; echo; echo end")).await;
        assert_eq!(last_update(&turn.messages)["status"], "completed", "{command}");
        let text = output(&turn);
        assert!(text.ends_with("end\n[exit code 0]") && text.len() < 1_000_000, "{command}: {} bytes", text.len());
    }
}

/// Blanks took a command line apart. What is written is what arrives, in arguments as in the directory.
#[tokio::test]
async fn shl_17_words_arrive_as_they_were_written() {
    let odd = "a b'c \"d\" & %PATH% é漢";
    let lab = builtin("full");
    let place = lab.project().join(odd);
    fs::create_dir(&place).unwrap();
    let program = lab.file("my tool & co", "#!/bin/sh\nprintf '<%s>' \"$@\"\n");
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (mut agent, _) = session_with(&lab, &[]).await;
    let session = new_session(&mut agent, &place).await;
    let quoted = format!("'{}'", odd.replace('\'', "'\\''"));
    let turn = end_turn(&mut agent, &session, &format!("/run printf '<%s>' {quoted} '' '*' '$HOME'; echo; pwd")).await;
    assert_eq!(output(&turn), format!("<{odd}><><*><$HOME>\n{}\n[exit code 0]", place.display()));
    let session = new_session(&mut agent, &lab.project()).await;
    let turn = end_turn(&mut agent, &session, &format!("/run './my tool & co' {quoted} 'x  y'")).await;
    assert_eq!(output(&turn), format!("<{odd}><x  y>\n[exit code 0]"));
}
