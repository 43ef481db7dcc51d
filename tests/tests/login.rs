//! Logging in and out: on the command line, at a terminal, and while a server runs.
#![cfg(unix)]

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    process::{Output, Stdio},
};

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, new_session, prompt, text_prompt};
use zeroclaw_testkit::{
    model_server::{ModelServer, Reply},
    process::AgentProcess,
};

/// A key that would be noticed anywhere.
const KEY: &str = "sk-canary-login-5Tz81";

/// Runs a program to its end with this standard input.
async fn run(lab: &Lab, program: &str, args: &[&str], input: &str) -> Output {
    use tokio::io::AsyncWriteExt;
    let mut command = lab.command(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    child.wait_with_output().await.unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

async fn hello(agent: &mut AgentProcess, capabilities: Value) -> Value {
    agent.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": capabilities})).await.unwrap()
}

#[tokio::test]
async fn a_login_by_script_is_tested_stored_and_used() {
    let server = ModelServer::start().await.require_key(KEY);
    let lab = Lab::with_config("# my notes\n[acp]\nmax_sessions = 3 # few\n");
    let uri = server.openai_url();
    let args = ["login", "--provider", "custom", "--uri", &uri, "--key-stdin"];

    let refused = run(&lab, "zeroclaw", &args, "sk-wrong\n").await;
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("refused the credentials"), "{}", said(&refused));
    assert!(!lab.config_dir().join("auth.toml").exists(), "a key that does not work is not stored");

    server.push(Reply::text("ok"));
    let done = run(&lab, "zeroclaw", &args, &format!("{KEY}\n")).await;
    assert!(done.status.success(), "{}", said(&done));
    assert!(!said(&done).contains(KEY));
    let stored = lab.config_dir().join("auth.toml");
    assert_eq!(fs::metadata(&stored).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&stored).unwrap().contains(KEY));
    let config = fs::read_to_string(lab.config_dir().join("config.toml")).unwrap();
    assert!(config.starts_with("# my notes\n[acp]\nmax_sessions = 3 # few\n"), "{config}");
    assert!(config.contains("[agents.main]\nmodel_provider = \"custom.default\"") && !config.contains(KEY), "{config}");
    // The only model of the server was taken without a question.
    assert!(config.contains("model = \"test-model\""), "{config}");

    let (mut agent, session) = lab.session().await;
    server.push(Reply::text("hello yourself"));
    assert_eq!(prompt(&mut agent, &session, "hello").await["content"], "hello yourself");
    // An agent reads files of its project, and never this one.
    server.push(Reply::tool_call("c", "file_read", json!({"path": stored})));
    server.push(Reply::text("no"));
    prompt(&mut agent, &session, "show the keys").await;
    assert!(!server.requests().last().unwrap().body.to_string().contains(KEY));

    let doctor = run(&lab, "zeroclaw", &["doctor"], "").await;
    assert!(
        said(&doctor).contains("key stored by `zeroclaw login`") && !said(&doctor).contains(KEY),
        "{}",
        said(&doctor)
    );
    let out = run(&lab, "zeroclaw", &["logout", "anthropic"], "").await;
    assert_eq!(said(&out), "No key is stored for anthropic.\n");
    let out = run(&lab, "zeroclaw", &["logout", "custom"], "").await;
    assert_eq!(said(&out), "Removed the key of custom.default.\n");
    assert!(!fs::read_to_string(&stored).unwrap().contains(KEY));
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_login_says_what_it_needs() {
    let lab = Lab::new();
    for (args, expected) in [
        (&["login"][..], "there is no terminal"),
        (&["login", "--key-stdin"], "--provider"),
        (&["login", "--key-stdin", "--provider", "antropic"], "is no provider"),
        (&["login", "--key-stdin", "--provider", "custom"], "--uri"),
        (&["login", "--key-stdin", "--provider", "openai", "--name", "../x"], "--name"),
        (&["logout", "nobody"], "is no provider"),
    ] {
        let output = run(&lab, "zeroclaw", args, "k\n").await;
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(expected), "{args:?}: {}", said(&output));
    }
    let empty = run(&lab, "zeroclaw", &["login", "--key-stdin", "--provider", "openai", "--no-test"], "").await;
    assert_eq!(empty.status.code(), Some(1), "{}", said(&empty));
    assert!(!lab.config_dir().join("config.toml").exists(), "nothing is written for a login that fails");
    let untested = run(&lab, "zeroclaw", &["login", "--key-stdin", "--provider", "openai", "--no-test"], KEY).await;
    assert!(untested.status.success(), "{}", said(&untested));
    let mut agent = lab.start();
    let result = hello(&mut agent, json!({"auth": {"terminal": true}})).await;
    assert_eq!((&result["authMethods"], &result["_meta"]["zeroclaw"]["defaultModel"]), (&json!([]), &json!("gpt-5.6")));
}

/// A client that learns of a login only from a new process loses the conversation that needed it.
#[tokio::test]
async fn a_running_server_takes_a_login_and_a_logout() {
    let server = ModelServer::start().await;
    let lab = Lab::with_config(
        "[acp]\nerror_codes = \"spec\"\n[providers.models.anthropic.home]\nmodel = \"claude-sonnet-5\"\n\
         [agents.main]\nmodel_provider = \"anthropic.home\"\n",
    );
    let mut agent = lab.start();
    let result = hello(&mut agent, json!({"auth": {"terminal": true}})).await;
    assert_eq!(result["agentCapabilities"]["auth"], json!({"logout": {}}));
    let methods = result["authMethods"].as_array().unwrap();
    assert_eq!(methods.len(), 2, "{methods:?}");
    assert_eq!((&methods[0]["id"], methods[0].get("type")), (&json!("zeroclaw-setup"), None));
    assert_eq!((&methods[1]["type"], &methods[1]["args"]), (&json!("terminal"), &json!(["login"])));
    let session = new_session(&mut agent, &lab.project()).await;
    let failed = agent.call("session/prompt", text_prompt(&session, "hello")).await.unwrap_err();
    assert_eq!((&failed["code"], &failed["data"]["kind"]), (&json!(-32000), &json!("auth_required")), "{failed}");
    let failed = agent.call("authenticate", json!({"methodId": "zeroclaw-setup"})).await.unwrap_err();
    assert_eq!((&failed["code"], &failed["data"]["kind"]), (&json!(-32000), &json!("auth_required")), "{failed}");

    // What a client runs for the user: the same program, with the method's arguments behind its own.
    let uri = server.openai_url();
    server.push(Reply::text("ok"));
    let args = ["login", "--provider", "anthropic", "--uri", &uri, "--model", "test-model", "--key-stdin"];
    let done = run(&lab, "zeroclaw-acp", &args, KEY).await;
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(agent.call("authenticate", json!({"methodId": "zeroclaw-setup"})).await.unwrap(), json!({}));
    server.push(Reply::text("here I am"));
    assert_eq!(prompt(&mut agent, &session, "hello again").await["content"], "here I am", "the same session goes on");
    assert_eq!(server.requests().last().unwrap().header("x-api-key"), Some(KEY));

    assert_eq!(agent.call("logout", json!({})).await.unwrap(), json!({}));
    let asked = server.requests().len();
    server.push(Reply::text("never"));
    prompt(&mut agent, &session, "and now").await;
    assert_eq!(server.requests()[asked].header("x-api-key"), None, "the key is out of the process");
    assert!(!fs::read_to_string(lab.config_dir().join("auth.toml")).unwrap().contains(KEY));
}

/// AUTH-1: a terminal method is only for clients that can show a terminal.
#[tokio::test]
async fn auth_01_a_terminal_method_only_for_clients_with_a_terminal() {
    let lab = Lab::new();
    for (capabilities, count) in [
        (json!({}), 1),
        (json!({"auth": {}}), 1),
        (json!({"auth": {"terminal": false}}), 1),
        (json!({"auth": {"terminal": true}}), 2),
    ] {
        let mut agent = lab.start();
        let result = hello(&mut agent, capabilities.clone()).await;
        assert_eq!(result["authMethods"].as_array().unwrap().len(), count, "{capabilities}");
        // The first method works at once: the built-in agent needs no key.
        assert_eq!(agent.call("authenticate", json!({"methodId": "zeroclaw-setup"})).await.unwrap(), json!({}));
    }
}

/// A damaged file with keys kept the program from starting, and was replaced by the next login.
#[tokio::test]
async fn sto_13_a_damaged_key_file_is_told_and_kept() {
    let lab =
        Lab::with_config("[providers.models.openai.a]\nmodel = \"m\"\n[agents.main]\nmodel_provider = \"openai.a\"\n");
    let damaged = format!("[keys\n\"openai.a\" = \"{KEY}\"\n");
    fs::write(lab.config_dir().join("auth.toml"), &damaged).unwrap();
    let (agent, _) = lab.session().await;
    assert!(agent.stderr_text().contains("stored keys"), "{}", agent.stderr_text());
    for args in [&["doctor"][..], &["login", "--provider", "openai", "--key-stdin", "--no-test"], &["logout"]] {
        let output = run(&lab, "zeroclaw", args, KEY).await;
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", said(&output));
        assert!(said(&output).contains("auth.toml") && !said(&output).contains(KEY), "{args:?}: {}", said(&output));
    }
    assert_eq!(fs::read_to_string(lab.config_dir().join("auth.toml")).unwrap(), damaged);
}

/// A person at a terminal, in the arguments' place: answers each question when it is asked.
fn at_a_terminal(lab: &Lab, args: &[&str], answers: Vec<(&'static str, String)>) -> (Option<i32>, String) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let open = || fs::OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = lab.command("zeroclaw-acp").into_std();
    command.args(args).stdin(open()).stdout(open()).stderr(open());
    let mut child = command.spawn().unwrap();
    // Its copies of the terminal would keep the reading below from ending.
    drop(command);
    let mut terminal = fs::File::from(terminal);
    let (mut shown, mut asked_at) = (String::new(), 0);
    let mut answers = answers.into_iter().peekable();
    let mut buffer = [0; 4096];
    // Reading fails when the last user of the terminal has gone.
    while let Ok(count @ 1..) = terminal.read(&mut buffer) {
        shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        while let Some((_, answer)) = answers.next_if(|(question, _)| shown[asked_at..].contains(question)) {
            asked_at = shown.len();
            terminal.write_all(answer.as_bytes()).unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert_eq!(answers.peek(), None, "not asked: {shown}");
    (status.code(), shown)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_at_a_terminal() {
    let server = ModelServer::start().await.require_key(KEY);
    server.set_models(["small-model", "large-model"]);
    let lab = Lab::new();
    server.push(Reply::text("ok"));
    let answers = vec![
        ("Provider, by number or name [1]: ", "9\n".to_owned()),
        ("Address", format!("{}\n", server.openai_url())),
        ("API key", "sk-wrong\r".to_owned()),
        ("API key", format!("{KEY}x\u{7f}\r")),
        ("Model, by number or name [1]: ", "large-model\n".to_owned()),
    ];
    let (status, shown) = tokio::task::block_in_place(|| at_a_terminal(&lab, &["login"], answers));
    assert_eq!(status, Some(0), "{shown}");
    assert!(!shown.contains(KEY) && !shown.contains("sk-wrong"), "a typed key is not shown: {shown}");
    assert!(shown.contains("small-model") && shown.contains("The agent `main` uses large-model"), "{shown}");
    let (mut agent, session) = lab.session().await;
    server.push(Reply::text("hi"));
    assert_eq!(prompt(&mut agent, &session, "hello").await["content"], "hi");
    assert_eq!(server.requests().last().unwrap().body["model"], "large-model");

    // Giving up changes nothing, and the terminal is as before.
    let before = fs::read_to_string(lab.config_dir().join("auth.toml")).unwrap();
    let answers = vec![("Provider", "custom\n".to_owned()), ("API key", "half\u{3}".to_owned())];
    let (status, shown) = tokio::task::block_in_place(|| at_a_terminal(&lab, &["login"], answers));
    assert_eq!(status, Some(130), "{shown}");
    assert!(shown.contains("Nothing was changed."), "{shown}");
    assert_eq!(fs::read_to_string(lab.config_dir().join("auth.toml")).unwrap(), before);
    assert_eq!(server.violations(), Vec::<String>::new());
}
