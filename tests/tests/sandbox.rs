//! The sandbox through the built server: on without being asked for, an error where it was asked for and is missing.

#![cfg(target_os = "linux")]

use std::{
    io::Write,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, answer_text, initialize, prompt};
use zeroclaw_testkit::process::AgentProcess;

use crate::turns::{asks, builtin, end_turn, last_update};

/// Whether anything can be confined here; where it must be, a system that cannot is a failure.
pub(crate) async fn confines() -> bool {
    let doctor = Lab::new().command("zeroclaw").arg("doctor").output().await.unwrap();
    if String::from_utf8_lossy(&doctor.stdout).contains("landlock ABI") {
        return true;
    }
    assert!(
        std::env::var_os("ZEROCLAW_REQUIRE_SANDBOX").is_none(),
        "ZEROCLAW_REQUIRE_SANDBOX is set, and there is none"
    );
    eprintln!("SKIPPED, AS NOTHING CAN BE CONFINED HERE");
    false
}

/// A sandbox that was configured and is missing silently became none.
#[tokio::test]
async fn a_configured_sandbox_that_is_missing_opens_no_session() {
    let lab = Lab::with_config("[sandbox]\nbackend = \"seatbelt\"\n");
    let mut agent = lab.start();
    initialize(&mut agent).await;
    let error = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.unwrap_err();
    assert_eq!(error["code"], -32603);
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("the configured sandbox `seatbelt` cannot be used here"), "{message}");
}

/// At every level a command keeps off our own configuration, and what it leaves in its temporary directory goes with the session.
#[tokio::test]
async fn commands_are_confined_without_being_asked_to() {
    if !confines().await {
        return;
    }
    let config = "[autonomy]\nlevel = \"full\"\n";
    let lab = Lab::with_config(config);
    let (mut agent, session) = lab.session().await;
    // Named plainly the rules refuse the file; the kernel does not care how it is named.
    let command = "d=$(printf .zero; printf claw); touch $TMPDIR/left && echo $TMPDIR >place; \
                   cat ~/$d/config.toml; echo x >>~/$d/config.toml";
    prompt(&mut agent, &session, &format!("/run {command}")).await;
    let said = answer_text(&agent.received()) + &json!(agent.received()).to_string();
    assert!(said.contains("Permission denied") && !said.contains("level = "), "{said}");
    assert_eq!(std::fs::read_to_string(lab.config_dir().join("config.toml")).unwrap(), config);
    let place = std::fs::read_to_string(lab.project().join("place")).unwrap();
    assert!(std::path::Path::new(place.trim()).join("left").exists(), "{place}");
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    assert!(!std::path::Path::new(place.trim()).exists(), "{place}");
}

/// A listener on this machine that counts who comes, and ends each visit with an answer that helps nobody.
fn door() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let visits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&visits);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            counted.fetch_add(1, Ordering::SeqCst);
            // Whoever came has been counted; how it ends does not matter.
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (port, visits)
}

/// A prompt whose one question is answered with yes: the title of the question, if there was one, and the end of the call.
async fn approved(agent: &mut AgentProcess, session: &str, text: &str) -> (Option<String>, Value) {
    agent.auto_permit("allow-once");
    let turn = end_turn(agent, session, text).await;
    let asked = turn.messages.iter().find(|message| asks(message));
    let title = asked.map(|message| message["params"]["toolCall"]["title"].as_str().unwrap().to_owned());
    (title, last_update(&turn.messages))
}

/// An approved `git fetch` found no network, and a model had to know a word to get one. The rules know what needs it: the
/// question says so, and the kernel opens it for what was asked about and for nothing else.
#[tokio::test]
async fn the_network_is_open_for_what_was_asked_about_with_it() {
    if !confines().await {
        return;
    }
    let (port, visits) = door();
    let lab = builtin("supervised");
    let (mut agent, session) = lab.session().await;
    for (command, arrives) in [
        (format!("curl -s http://127.0.0.1:{port}/"), true),
        (format!("git ls-remote http://127.0.0.1:{port}/x"), true),
        (format!("git clone http://127.0.0.1:{port}/x"), true),
        (format!("cp \"$(command -v curl)\" mine && ./mine -sS http://127.0.0.1:{port}/"), false),
        (format!("bash -c 'echo >/dev/tcp/127.0.0.1/{port}'"), false),
    ] {
        let before = visits.load(Ordering::SeqCst);
        let (title, end) = approved(&mut agent, &session, &format!("/run {command}")).await;
        let title = title.unwrap_or_else(|| panic!("{command} asks"));
        assert_eq!(title.ends_with(" with network"), arrives, "{title}");
        assert_eq!(visits.load(Ordering::SeqCst) > before, arrives, "{command}: {end}");
        assert_eq!(end["status"] == "completed", command.starts_with("curl"), "{command}: {end}");
    }
    for (command, title) in [
        ("cargo build", "Run `cargo build` with network"),
        ("npm install", "Run `npm install` with network"),
        ("pip install x", "Run `pip install x` with network"),
        ("cargo build --offline", "Run `cargo build --offline`"),
        ("cargo test", "Run `cargo test`"),
    ] {
        agent.auto_permit("reject-once");
        let turn = end_turn(&mut agent, &session, &format!("/run {command}")).await;
        let asked = turn.messages.iter().find(|message| asks(message)).unwrap();
        assert_eq!(asked["params"]["toolCall"]["title"], title);
        let told = json!(asked).to_string();
        assert_eq!(told.contains("runs with network"), title.ends_with("with network"), "{told}");
    }
}

/// What the operator's rules say about the network holds in the kernel, whatever else is approved.
#[tokio::test]
async fn rules_open_and_close_the_network() {
    if !confines().await {
        return;
    }
    let (port, visits) = door();
    let connect = format!("git ls-remote http://127.0.0.1:{port}/x");
    let rule = |network: &str| {
        format!(
            "[autonomy]\nlevel = \"supervised\"\n[[autonomy.commands]]\ncommand = \"git ls-remote *\"\ndecision = \"allow\"\n{network}"
        )
    };
    for (config, arrives) in [
        (rule("network = true\n"), true),
        (rule("network = false\n"), false),
        // It is of no use without, so a rule that allows it means it to have it.
        (rule(""), true),
        (rule("network = true\n").replacen("[[", "network = \"deny\"\n[[", 1), false),
    ] {
        let lab = Lab::with_config(&config);
        let (mut agent, session) = lab.session().await;
        let before = visits.load(Ordering::SeqCst);
        let (title, end) = approved(&mut agent, &session, &format!("/run {connect}")).await;
        assert_eq!(title, None, "a rule allows it: {config}");
        assert_eq!(visits.load(Ordering::SeqCst) > before, arrives, "{config}: {end}");
    }
    let lab = Lab::with_config("[autonomy]\nlevel = \"full\"\nnetwork = \"deny\"\n");
    let (mut agent, session) = lab.session().await;
    let before = visits.load(Ordering::SeqCst);
    let (_, end) = approved(&mut agent, &session, &format!("/run curl -s http://127.0.0.1:{port}/")).await;
    assert_eq!(end["status"], "failed", "{end}");
    let (_, end) = approved(&mut agent, &session, &format!("/run {connect}")).await;
    assert_eq!(end["status"], "failed", "{end}");
    assert_eq!(visits.load(Ordering::SeqCst), before);
}

/// Whether a program is there for the commands of a session, whose home is not that of whoever runs the tests.
async fn has(agent: &mut AgentProcess, session: &str, program: &str) -> bool {
    let (_, end) = approved(agent, session, &format!("/run {program} --version")).await;
    if end["status"] == "completed" {
        return true;
    }
    eprintln!("SKIPPED, AS COMMANDS FIND NO {program} HERE");
    false
}

/// The whole list against the kernel, through the built server at the level that asks for nothing: what a command must not
/// do fails or is ended, and the work of a project is done. The words are spelt so that only the kernel can refuse them.
#[tokio::test]
async fn the_kernel_stops_what_must_not_be_and_nothing_else() {
    if !confines().await {
        return;
    }
    let lab = builtin("full");
    std::fs::create_dir(lab.home().join(".ssh")).unwrap();
    std::fs::write(lab.home().join(".ssh/id"), "PRIVATE").unwrap();
    let beside = lab.project().parent().unwrap().join("beside");
    std::fs::create_dir(&beside).unwrap();
    let (port, visits) = door();
    let (mut agent, session) = lab.session().await;
    let beside_name = beside.display();
    for (what, command) in [
        ("a key", "d=$(printf .ss; printf h); cat ~/$d/id".to_owned()),
        ("a key's directory", "d=$(printf .ss; printf h); ls ~/$d; echo x >~/$d/new".to_owned()),
        ("a write outside", format!("echo x >'{beside_name}/new'")),
        ("a write by a link", format!("ln -s '{beside_name}' out && echo x >out/new")),
        ("loopback", format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'")),
        ("the server's environment", "cat /proc/$PPID/environ".to_owned()),
        ("a mount", "m=$(printf mou; printf nt); $m -t tmpfs none .".to_owned()),
        ("a name space", "u=$(printf unsha; printf re); $u -r true".to_owned()),
        ("a signal to the server", "k=$(printf ki; printf ll); sh -c \"$k -9 $PPID\"".to_owned()),
    ] {
        let (_, end) = approved(&mut agent, &session, &format!("/run {command}")).await;
        assert_eq!(end["status"], "failed", "{what}: {end}");
        assert!(!end.to_string().contains("PRIVATE"), "{what}: {end}");
    }
    assert_eq!(crate::turns::files_below(&beside), Vec::<String>::new());
    assert_eq!(crate::turns::files_below(&lab.home().join(".ssh")), ["id"]);
    assert_eq!(visits.load(Ordering::SeqCst), 0, "somebody came by loopback");

    // A bomb of bounded size, and a daemon that leaves its session: neither outlives the call.
    let mut held = zeroclaw_e2e::Lifeline::new(&lab.project().join("pipe"));
    let command =
        format!("/run {} (setsid sh -c '(trap \"\" TERM HUP; sleep 600; sleep 600) &' &); echo left", held.held());
    let (_, end) = approved(&mut agent, &session, &command).await;
    assert!(end["rawOutput"].as_str().unwrap().ends_with("[background processes were ended]"), "{end}");
    held.started().await;
    held.gone().await;

    let git = "git init -q . && git config user.name n && git config user.email e@x && echo a >a && git add a \
               && git commit -qm one && git log --format=%s && git status --short a";
    let (_, end) = approved(&mut agent, &session, &format!("/run {git}")).await;
    assert_eq!(end["rawOutput"], "one\n[exit code 0]", "{end}");
    if has(&mut agent, &session, "/usr/bin/python3").await {
        let (_, end) = approved(
            &mut agent,
            &session,
            "/run /usr/bin/python3 -c 'import tempfile; tempfile.mkdtemp(); print(6 * 7)'",
        )
        .await;
        assert_eq!(end["rawOutput"], "42\n[exit code 0]", "{end}");
        let trace =
            "import ctypes; l = ctypes.CDLL(None, use_errno=True); print(l.ptrace(16, 1, 0, 0), ctypes.get_errno())";
        let (_, end) = approved(&mut agent, &session, &format!("/run /usr/bin/python3 -c '{trace}'")).await;
        assert_eq!(end["rawOutput"], "-1 1\n[exit code 0]", "tracing is refused: {end}");
    }
    if has(&mut agent, &session, "node").await {
        let (_, end) = approved(&mut agent, &session, "/run node -e 'console.log(6 * 7)'").await;
        assert_eq!(end["rawOutput"], "42\n[exit code 0]", "{end}");
    }
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
}

/// More processes than a command may have end it, and the next one runs.
#[tokio::test]
async fn a_fork_bomb_ends_itself() {
    if !confines().await {
        return;
    }
    let lab = Lab::with_config("[autonomy]\nlevel = \"full\"\n[sandbox]\nmax_processes = 100\n");
    let (mut agent, session) = lab.session().await;
    let bomb = "b() { [ $1 -gt 8 ] || { b $(($1 + 1)) & b $(($1 + 1)) & }; sleep 300; }; b 0";
    let (_, end) = approved(&mut agent, &session, &format!("/run {bomb}")).await;
    assert!(end["rawOutput"].as_str().unwrap().ends_with("all were killed]"), "{end}");
    let (_, end) = approved(&mut agent, &session, "/run echo on").await;
    assert_eq!(end["rawOutput"], "on\n[exit code 0]");
}
