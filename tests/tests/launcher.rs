//! What becomes of commands when the agent dies, is told to end, or cancels them: nothing is left, wherever it went.

#![cfg(target_os = "linux")]

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::json;
use zeroclaw_e2e::{Lab, Lifeline, binary, initialize, new_session, text_prompt};
use zeroclaw_testkit::process::{AgentProcess, hermetic};

use crate::turns::{builtin, end_turn, last_update, runs};

/// Ways in which a command's process can leave what would be killed with the command. `ARGUMENT` tells it in the process
/// table; each says that it has started when it is where it wants to be.
const ESCAPES: [(&str, &str); 5] = [
    ("plain", "echo started >&3; exec sleep ARGUMENT"),
    ("setsid", "setsid sh -c 'echo started >&3; exec sleep ARGUMENT' & wait"),
    ("nohup", "nohup sh -c 'echo started >&3; exec sleep ARGUMENT' >/dev/null 2>&1 & wait"),
    ("forked", "(setsid sh -c '(trap \"\" TERM HUP INT; echo started >&3; sleep ARGUMENT) &' &); sleep 600"),
    ("stubborn", "trap '' TERM HUP INT; setsid -f sh -c 'echo started >&3; sleep ARGUMENT; sleep ARGUMENT'; sleep 600"),
];

/// A command that runs, and what tells when it is gone.
struct Running {
    held: Lifeline,
    argument: String,
}

impl Running {
    /// Prompts for a command and waits until it has started.
    async fn start(lab: &Lab, agent: &mut AgentProcess, session: &str, name: &str, command: &str) -> Self {
        let pipe = lab.project().join(format!("pipe-{name}"));
        let mut held = Lifeline::new(&pipe);
        // A number that no other command of this machine sleeps for, because pipes have names of their own.
        let digits: String = pipe.to_string_lossy().bytes().map(|byte| (byte % 10).to_string()).collect();
        let argument = format!("600.{digits}");
        let command = format!("/run exec 3>'{}'; {}", pipe.display(), command.replace("ARGUMENT", &argument));
        agent.request("session/prompt", text_prompt(session, &command)).await;
        agent.recv_until(runs).await;
        held.started().await;
        let limit = Instant::now() + Duration::from_secs(60);
        // Between the word and the program that follows it there is nothing to wait for.
        while command.contains(&argument) && !is_running(&argument) {
            assert!(Instant::now() < limit, "{name}: `sleep {argument}` is not in the process table");
            tokio::task::yield_now().await;
        }
        Self { held, argument }
    }

    async fn gone(mut self) {
        self.held.gone().await;
        assert!(!is_running(&self.argument), "sleep {} runs on", self.argument);
    }
}

/// The processes of this system: their numbers and their directories.
fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    entries.filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path)))
}

/// Whether a process has this argument, by itself and not as a part of a text.
fn is_running(argument: &str) -> bool {
    processes().any(|(_, path)| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes())
    })
}

/// The children of a process, the dead that wait for it among them.
fn children(parent: u32) -> Vec<String> {
    let stats = processes().filter_map(|(_, path)| fs::read_to_string(path.join("stat")).ok());
    let of = |stat: &String| stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
    stats.filter(|stat| of(stat) == Some(parent)).collect()
}

fn descriptors(of: u32) -> usize {
    fs::read_dir(format!("/proc/{of}/fd")).unwrap().count()
}

async fn raw_output(agent: &mut AgentProcess, session: &str, command: &str) -> String {
    let turn = end_turn(agent, session, &format!("/run {command}")).await;
    last_update(&turn.messages)["rawOutput"].as_str().unwrap().to_owned()
}

// A killed agent left its commands behind, and they went on changing files for hours.
#[tokio::test]
async fn no_command_survives_kill_9_of_the_agent() {
    for (name, command) in ESCAPES {
        let lab = builtin("full");
        let (mut agent, session) = lab.session().await;
        let running = Running::start(&lab, &mut agent, &session, name, command).await;
        agent.kill9().await;
        running.gone().await;
    }
}

#[tokio::test]
async fn no_command_survives_sigterm_to_the_agent() {
    for (name, command) in ESCAPES {
        let lab = builtin("full");
        let (mut agent, session) = lab.session().await;
        let running = Running::start(&lab, &mut agent, &session, name, command).await;
        agent.terminate();
        agent.wait().await;
        running.gone().await;
    }
}

// An editor that closes is an end of input; `sleep 600 &` had been found days later.
#[tokio::test]
async fn no_command_survives_the_end_of_input() {
    for (name, command) in ESCAPES {
        let lab = builtin("full");
        let (mut agent, session) = lab.session().await;
        let running = Running::start(&lab, &mut agent, &session, name, command).await;
        agent.close_stdin();
        agent.wait().await;
        running.gone().await;
    }
}

#[tokio::test]
async fn no_command_survives_its_cancel() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    for (name, command) in ESCAPES {
        let running = Running::start(&lab, &mut agent, &session, name, command).await;
        agent.notify("session/cancel", json!({"sessionId": session})).await;
        let answer = agent.recv_until(|message| message["result"]["stopReason"].is_string()).await.pop().unwrap();
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{name}");
        running.gone().await;
        assert_eq!(children(agent.pid()), Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_cancelled_command_may_clean_up() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let command = "trap 'echo bye >cleaned; exit 5' TERM; echo started >&3; while :; do :; done";
    let running = Running::start(&lab, &mut agent, &session, "trap", command).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    agent.recv_until(|message| message["result"]["stopReason"] == "cancelled").await;
    running.gone().await;
    assert_eq!(fs::read_to_string(lab.project().join("cleaned")).unwrap(), "bye\n");
}

// `setsid` was the way out of a call: what it started was found by nothing that ends commands.
#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_its_call() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    for (name, start) in [("setsid", "setsid"), ("setsid-f", "setsid -f"), ("nohup", "nohup"), ("shell", "")] {
        let mut held = Lifeline::new(&lab.project().join(name));
        let command = format!("{} {start} sleep 600 >/dev/null 2>&1 & echo left", held.held());
        let output = raw_output(&mut agent, &session, &command).await;
        assert_eq!(output, "left\n[exit code 0]\n[background processes were ended]", "{name}");
        held.started().await;
        held.gone().await;
    }
}

#[tokio::test]
async fn how_a_command_ended_is_told_exactly() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let cases = [
        ("true", "[exit code 0]"),
        ("exit 3", "[exit code 3]"),
        ("exit 255", "[exit code 255]"),
        ("kill -9 $$", "[killed by signal 9]"),
        ("kill -TERM $$", "[killed by signal 15]"),
        ("kill 0", "[killed by signal 15]"),
        ("exec no-such-program 2>/dev/null", "[exit code 127]"),
        ("echo one; echo two >&2; echo three; exit 2", "one\ntwo\nthree\n[exit code 2]"),
    ];
    for (command, expected) in cases {
        assert_eq!(raw_output(&mut agent, &session, command).await, expected, "{command}");
    }
}

#[tokio::test]
async fn commands_leave_neither_the_dead_nor_descriptors() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    // What is opened once and for all is open by now.
    for command in ["true", "setsid sleep 600 & true", "exit 3"] {
        raw_output(&mut agent, &session, command).await;
    }
    let before = descriptors(agent.pid());
    for number in 0..20 {
        raw_output(&mut agent, &session, &format!("(echo {number} &); exit {number}")).await;
        assert_eq!(children(agent.pid()), Vec::<String>::new(), "after command {number}");
    }
    assert_eq!(descriptors(agent.pid()), before);
}

// A program that was started through a link, or replaced by an upgrade while it ran, could not find itself any more.
#[tokio::test]
async fn a_program_without_a_file_still_runs_commands() {
    let lab = builtin("full");
    let (program, link) = (lab.home().join("kimi-code"), lab.home().join("agent"));
    fs::copy(binary("zeroclaw-acp"), &program).unwrap();
    std::os::unix::fs::symlink(&program, &link).unwrap();
    let mut command = hermetic(&link, &lab.home());
    command.current_dir(lab.project());
    let mut agent = AgentProcess::spawn(command);
    initialize(&mut agent).await;
    let session = new_session(&mut agent, &lab.project()).await;
    assert_eq!(raw_output(&mut agent, &session, "echo hi").await, "hi\n[exit code 0]");
    fs::remove_file(&link).unwrap();
    fs::remove_file(&program).unwrap();
    fs::write(&program, "#!/bin/sh\necho another program\n").unwrap();
    assert_eq!(raw_output(&mut agent, &session, "echo hi; exit 3").await, "hi\n[exit code 3]");
}

// Whatever a launcher is, it is no command that a person finds.
#[tokio::test]
async fn the_launcher_is_not_in_the_help() {
    let lab = Lab::new();
    for program in ["zeroclaw", "zeroclaw-acp"] {
        let help = lab.command(program).arg("--help").output().await.unwrap();
        assert!(help.status.success());
        assert!(!String::from_utf8(help.stdout).unwrap().contains("__launch"), "{program}");
        // Without a command it is an argument like any other, and a wrong one.
        let wrong = lab.command(program).arg("__launch").output().await.unwrap();
        assert_eq!(wrong.status.code(), Some(2), "{program}");
    }
}

/// Keys lay open to every command in the environment of the agent's own process.
#[tokio::test]
async fn a_command_cannot_read_the_agents_environment() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    const NOBODY: u32 = 65534;
    let lab = Lab::with_config(
        "[providers.models.builtin.b]\n[agents.main]\nmodel_provider = \"builtin.b\"\n[risk_profiles.default]\nlevel = \"full\"\n",
    );
    let mut command = lab.command("zeroclaw-acp");
    // The superuser may read everything, so the agent is run by somebody else then.
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        let root = lab.home().parent().unwrap().to_owned();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        let copy = root.join("zeroclaw-acp");
        fs::copy(binary("zeroclaw-acp"), &copy).unwrap();
        for path in [lab.home(), lab.config_dir(), lab.config_dir().join("config.toml"), lab.project()] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut other = hermetic(std::path::Path::new("setpriv"), &lab.home());
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy).current_dir("/");
        command = other;
    }
    command.env("SOME_VENDOR_KEY", "sk-lies-open");
    let mut agent = AgentProcess::spawn(command);
    initialize(&mut agent).await;
    let session = new_session(&mut agent, &lab.project()).await;
    let command = format!("/run cat /proc/{}/environ; echo tried", agent.pid());
    let result = zeroclaw_e2e::prompt(&mut agent, &session, &command).await;
    assert_eq!(result["stopReason"], "end_turn");
    let seen = format!("{:?}", agent.received());
    assert!(seen.contains("tried") && !seen.contains("sk-lies-open"), "{seen}");
}
