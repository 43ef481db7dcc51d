//! The first words between a client and the agent.

use std::{io::ErrorKind, net::TcpListener, path::Path};

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, binary, exchange, initialize, new_session, prompt, text_prompt, updates_of};
use zeroclaw_testkit::process::{AgentProcess, hermetic};

/// Initializes a fresh agent with these raw parameters and checks that it speaks version 1 and works.
async fn negotiates(lab: &Lab, params: Option<&str>) {
    let mut agent = lab.start();
    let params = params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
    let answer = exchange(&mut agent, &format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize"{params}}}"#)).await;
    let version = &answer["result"]["protocolVersion"];
    assert!(version.is_u64() && *version == json!(1), "{params}: {answer}");
    new_session(&mut agent, &lab.project()).await;
}

// A version that was a date was refused outright, so there was nothing to negotiate.
#[tokio::test]
async fn hsk_01_an_odd_version_is_negotiated() {
    let lab = Lab::new();
    for version in [r#""2025-11-25""#, r#""1""#, r#""1.0""#, "1.0", "-1", "null", "true", "{}", "[1]", "1e30"] {
        negotiates(&lab, Some(&format!(r#"{{"protocolVersion":{version}}}"#))).await;
    }
    for params in [None, Some("{}"), Some("null"), Some("[]"), Some(r#"{"clientCapabilities":null}"#)] {
        negotiates(&lab, params).await;
    }
}

// A newer client's parameters failed to parse before anybody had looked at its version.
#[tokio::test]
async fn hsk_03_a_newer_client_is_told_version_1() {
    let lab = Lab::new();
    let future = r#""capabilities":{"session":{"x":[1]}},"clientInfo":["not","an","object"],"clientCapabilities":{"fs":7,
        "terminal":"yes","auth":null,"elicitation":[],"_meta":1,"plan":{}},"info":null,"_meta":{"a":{"b":[]}}"#;
    let future = future.replace('\n', " ");
    for version in [0, 1, 2, 99, 65_535, 65_536] {
        negotiates(&lab, Some(&format!(r#"{{"protocolVersion":{version},{future}}}"#))).await;
    }
}

// The answer waited until models and tools had started, and editors gave up after thirty seconds. A slow tool server is
// tested with the tool servers.
#[tokio::test]
async fn hsk_05_initialize_waits_for_no_provider() {
    let provider = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    provider.set_nonblocking(true).unwrap();
    // The kernel completes connections to it, and nobody ever answers.
    let lab = Lab::custom("supervised", &format!("http://{}/v1", provider.local_addr().unwrap()));
    let mut agent = lab.agent().await;
    new_session(&mut agent, &lab.project()).await;
    let untouched = provider.accept().map(|_| ()).map_err(|error| error.kind());
    assert_eq!(untouched, Err(ErrorKind::WouldBlock), "nobody has connected to the provider yet");
}

/// Starts this program and opens a session with it.
async fn works(program: &Path, lab: &Lab) {
    let mut agent = AgentProcess::spawn(hermetic(program, &lab.home()));
    assert_eq!(initialize(&mut agent).await["agentInfo"]["name"], json!("zeroclaw-acp"));
    new_session(&mut agent, &lab.project()).await;
    agent.close_stdin();
    assert!(agent.wait().await.success());
}

// An editor started it under another name, and looking for the own name in the arguments failed.
#[tokio::test]
async fn hsk_07_the_programs_name_does_not_matter() {
    let lab = Lab::new();
    let program = binary("zeroclaw-acp");
    let extension = std::env::consts::EXE_SUFFIX;
    let spaced = lab.home().join("a directory with späces");
    std::fs::create_dir(&spaced).unwrap();
    let copies = [lab.home().join(format!("editor-agent{extension}")), spaced.join(format!("agent 1{extension}"))];
    for copy in copies {
        if std::fs::hard_link(&program, &copy).is_err() {
            std::fs::copy(&program, &copy).unwrap();
        }
        works(&copy, &lab).await;
    }
    #[cfg(unix)]
    {
        let link = spaced.join("link");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        works(&link, &lab).await;
    }
}

// A prompt that came right behind its session ran before the session was ready. The tools of a client's own tool servers
// are tested with the tool servers.
#[tokio::test]
async fn hsk_09_one_write_is_worked_off_in_order() {
    let lab = Lab::new();
    lab.file("here.txt", "x");
    let call = |id: u64, method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string() + "\n"
    };
    let mut agent = lab.start();
    let opening =
        call(1, "initialize", json!({"protocolVersion": 1})) + &call(2, "session/new", json!({"cwd": lab.project()}));
    agent.send_raw(opening.as_bytes()).await;
    let first = agent.next().await;
    let second = agent.next().await;
    assert_eq!((&first["id"], &second["id"]), (&json!(1), &json!(2)));
    let session = second["result"]["sessionId"].as_str().unwrap().to_owned();
    prompt(&mut agent, &session, "/say 1").await;
    agent.close_stdin();
    assert!(agent.wait().await.success());

    // The id of a stored session is known beforehand, so its first prompt can ride in the same write.
    for opening in ["session/load", "session/resume"] {
        let mut agent = lab.start();
        let all = call(1, "initialize", json!({"protocolVersion": 1}))
            + &call(2, opening, json!({"sessionId": session}))
            + &call(3, "session/prompt", text_prompt(&session, "/ls"));
        agent.send_raw(all.as_bytes()).await;
        let messages = agent.recv_until(|message| message["id"] == 3).await;
        let answers: Vec<&Value> = messages.iter().filter(|message| message.get("id").is_some()).collect();
        assert_eq!(answers.iter().map(|answer| &answer["id"]).collect::<Vec<_>>(), [&json!(1), &json!(2), &json!(3)]);
        assert!(answers.iter().all(|answer| answer.get("result").is_some()), "{answers:?}");
        let calls = updates_of(&messages, "tool_call");
        let last = calls.last().expect("the tools are there at the first prompt");
        assert_eq!(last["name"], json!("list_dir"));
        agent.close_stdin();
        assert!(agent.wait().await.success());
    }
}

// A start that could not succeed left its client waiting without a word. What the bridge does about a silent gateway is
// tested with the bridge.
#[tokio::test]
async fn hsk_11_a_start_that_cannot_succeed_says_why_and_ends() {
    let lab = Lab::with_config("[acp]\nmax_sesions = 3\n");
    let mut agent = lab.start();
    assert!(agent.drain().await.is_empty(), "nothing on stdout");
    assert!(!agent.wait().await.success());
    let reason = agent.stderr_text();
    assert!(reason.contains("max_sesions") && reason.contains("max_sessions"), "{reason}");
}

// And the other way round: a client that never says hello and goes is no failure.
#[tokio::test]
async fn hsk_11_a_client_that_says_nothing_is_not_waited_for() {
    let lab = Lab::new();
    let mut agent = lab.start();
    agent.close_stdin();
    assert!(agent.drain().await.is_empty());
    assert!(agent.wait().await.success());
}
