//! Tools that MCP servers lend to a session: offered, asked about, called, bounded, and gone with their server.
#![cfg(target_os = "linux")]

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, answer_text, initialize, prompt, text_prompt, updates_of};
use zeroclaw_testkit::{
    model_server::{ModelServer, Part, Reply},
    process::AgentProcess,
};

const PEER: &str = env!("CARGO_BIN_EXE_mcp-peer");

fn peer(arguments: &[&str]) -> Value {
    json!({"name": "peer", "command": PEER, "args": arguments, "env": []})
}

/// Script lines of a turn that calls one tool and then says `done`.
fn calling(tool: &str, arguments: Value) -> Vec<Value> {
    vec![
        json!({"type": "tool_call", "name": tool, "arguments": arguments}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "done"}),
        json!({"type": "stop"}),
    ]
}

/// Several such turns one after the other.
fn turns(calls: &[(&str, Value)]) -> Vec<Value> {
    calls.iter().flat_map(|(tool, arguments)| calling(tool, arguments.clone())).collect()
}

async fn open(lab: &Lab, servers: Value) -> (AgentProcess, String) {
    let mut agent = lab.agent().await;
    let params = json!({"cwd": lab.project(), "mcpServers": servers});
    let result = agent.call("session/new", params).await.unwrap();
    let session = result["sessionId"].as_str().unwrap().to_owned();
    (agent, session)
}

/// The last state of the tool calls among these messages, by their order.
fn ends(messages: &[Value]) -> Vec<(String, String)> {
    updates_of(messages, "tool_call_update")
        .iter()
        .filter(|update| matches!(update["status"].as_str(), Some("completed" | "failed")))
        .map(|update| {
            let text = update["rawOutput"].as_str().unwrap_or_default().to_owned();
            (update["status"].as_str().unwrap().to_owned(), text)
        })
        .collect()
}

/// Processes whose command line holds this text.
fn alive(needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(needle) {
            found.push(line);
        }
    }
    found
}

async fn gone(needle: &str) {
    // What is killed is not gone in the same moment; a hang ends by the test's own limit.
    for _ in 0..1000 {
        if alive(needle).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("still there: {:?}", alive(needle));
}

/// MCP-1: every agent runs the stdio servers that its client names. Their tools are offered to the model under the server's
/// name, a call is asked about with its arguments in full, and the result reaches model and client.
#[tokio::test]
async fn mcp_1_a_stdio_server_lends_its_tools() {
    let model = ModelServer::start().await;
    let lab = Lab::custom("supervised", &model.openai_url());
    let (mut agent, session) = open(&lab, json!([peer(&[])])).await;
    model.push(Reply::turn([Part::tool_call("call_1", "peer__echo", json!({"text": "from the peer 🦀"}))]));
    model.push(Reply::text("done"));
    agent.auto_permit("allow-once");
    let result = prompt(&mut agent, &session, "go").await;
    assert_eq!(result["content"], "done", "{result}");

    let requests = model.requests();
    let names: Vec<&str> = requests[0].body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert!(names.contains(&"peer__echo") && names.contains(&"peer__progress"), "both pages are read: {names:?}");
    assert!(
        names
            .iter()
            .all(|name| name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)))
    );
    assert!(requests[1].body["messages"].to_string().contains("from the peer 🦀"));
    assert_eq!(model.violations(), Vec::<String>::new());

    let messages = agent.received();
    let asked = messages.iter().find(|message| message["method"] == "session/request_permission").unwrap();
    let shown = asked["params"]["toolCall"].to_string();
    assert!(shown.contains("from the peer 🦀") && shown.contains("peer"), "{shown}");
    let started = &updates_of(&messages, "tool_call")[0];
    assert_eq!((&started["kind"], &started["name"]), (&json!("other"), &json!("peer__echo")), "{started}");
    assert_eq!(ends(&messages), [("completed".to_owned(), "from the peer 🦀".to_owned())]);
}

/// A server that says of its tools that they change nothing is not believed: it asks all the same, and read-only is read-only.
#[tokio::test]
async fn what_a_server_says_of_its_tools_permits_nothing() {
    let lab = Lab::scripted("readonly", &calling("peer__echo", json!({"text": "x"})));
    let (mut agent, session) = open(&lab, json!([peer(&[])])).await;
    prompt(&mut agent, &session, "go").await;
    let ends = ends(&agent.received());
    assert!(ends[0].0 == "failed" && ends[0].1.contains("readonly"), "{ends:?}");

    let lab = Lab::scripted("supervised", &calling("peer__echo", json!({"text": "x"})));
    let (mut agent, session) = open(&lab, json!([peer(&[])])).await;
    agent.auto_permit("reject-once");
    prompt(&mut agent, &session, "go").await;
    assert_eq!(ends_of_one(&agent).0, "failed");
}

fn ends_of_one(agent: &AgentProcess) -> (String, String) {
    let mut ends = ends(&agent.received());
    assert_eq!(ends.len(), 1, "{ends:?}");
    ends.remove(0)
}

/// "Always" covers the tool of the server, with whatever arguments, and no other tool of it.
#[tokio::test]
async fn always_is_per_server_and_tool() {
    let lab = Lab::scripted(
        "supervised",
        &turns(&[
            ("peer__echo", json!({"text": "1"})),
            ("peer__echo", json!({"text": "2"})),
            ("peer__where", json!({})),
        ]),
    );
    let (mut agent, session) = open(&lab, json!([peer(&[])])).await;
    agent.auto_permit("allow-always");
    for _ in 0..3 {
        prompt(&mut agent, &session, "go").await;
    }
    let messages = agent.received();
    let asked: Vec<&Value> =
        messages.iter().filter(|message| message["method"] == "session/request_permission").collect();
    assert_eq!(asked.len(), 2, "the second echo is covered, the other tool is not");
    let name = asked[0]["params"]["options"][1]["name"].as_str().unwrap();
    assert!(name.contains("echo") && name.contains("peer"), "{name}");
    assert!(ends(&messages).iter().all(|(status, _)| status == "completed"));
}

/// A server runs in the session's directory, with what the client gave it and no key of ours.
#[tokio::test]
async fn a_server_gets_its_own_variables_and_no_key_of_ours() {
    let lab = Lab::scripted("full", &turns(&[("peer__env", json!({})), ("peer__where", json!({}))]));
    let mut agent = lab.start_with(&[("ANTHROPIC_API_KEY", "sk-ours"), ("GITHUB_TOKEN", "ghp-ours")]);
    initialize(&mut agent).await;
    let server = json!({"name": "peer", "command": PEER, "args": [], "env": [{"name": "PEER_TOKEN", "value": "t"}]});
    let params = json!({"cwd": lab.project(), "mcpServers": [server]});
    let result = agent.call("session/new", params).await.unwrap();
    let session = result["sessionId"].as_str().unwrap().to_owned();
    prompt(&mut agent, &session, "go").await;
    prompt(&mut agent, &session, "go").await;
    let ends = ends(&agent.received());
    let names: Vec<&str> = ends[0].1.lines().collect();
    assert!(names.contains(&"PEER_TOKEN") && names.contains(&"PATH"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("API_KEY") || name.contains("GITHUB")), "{names:?}");
    assert_eq!(Path::new(&ends[1].1), lab.project());
}

/// A server that does not start costs its tools and one sentence, in which its secret does not show; the others work.
#[tokio::test]
async fn a_dead_server_is_told_and_costs_nothing_else() {
    let lab = Lab::scripted("full", &turns(&[("peer__echo", json!({"text": "alive"})), ("dead__echo", json!({}))]));
    let dead = json!({"name": "dead", "command": PEER, "args": ["--dead"],
                      "env": [{"name": "PEER_TOKEN", "value": "hidden-token-value"}]});
    let nowhere = json!({"name": "nowhere", "command": "/nonexistent/program", "args": [], "env": []});
    let old = json!({"type": "sse", "name": "old", "url": "http://127.0.0.1:9/sse", "headers": []});
    let (mut agent, session) = open(&lab, json!([dead, nowhere, old, peer(&[])])).await;
    prompt(&mut agent, &session, "go").await;
    let told = answer_text(&agent.received());
    assert!(told.contains("`nowhere`: it could not be started: the program cannot be run: No such file"), "{told}");
    for word in ["`dead`", "`nowhere`", "`old`", "not supported", "cannot start"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    let everything = agent.transcript().iter().map(|entry| entry.line.as_str()).skip(2).collect::<String>();
    let ours = everything.replace(&json!("hidden-token-value").to_string(), "");
    assert!(!ours.contains("hidden-token-value") && !agent.stderr_text().contains("hidden-token-value"));
    prompt(&mut agent, &session, "go").await;
    let ends = ends(&agent.received());
    assert_eq!(ends[0], ("completed".to_owned(), "alive".to_owned()));
    assert_eq!(ends[1].0, "failed", "a tool of a server that is not there");
    assert_eq!(answer_text(&agent.received()).matches("`dead`").count(), 1, "told once");
}

/// A server that crashes in a call fails that call, is started again once, and works then.
#[tokio::test]
async fn a_crashed_server_is_started_again_once() {
    let lab = Lab::scripted(
        "full",
        &turns(&[
            ("peer__crash", json!({})),
            ("peer__echo", json!({"text": "again"})),
            ("peer__crash", json!({})),
            ("peer__echo", json!({"text": "never"})),
        ]),
    );
    let secret = json!([{"name": "PEER_TOKEN", "value": "hidden-crash-token"}]);
    let server = json!({"name": "peer", "command": PEER, "args": [], "env": secret});
    let (mut agent, session) = open(&lab, json!([server])).await;
    for _ in 0..4 {
        prompt(&mut agent, &session, "go").await;
    }
    let ends = ends(&agent.received());
    let states: Vec<&str> = ends.iter().map(|(state, _)| state.as_str()).collect();
    assert_eq!(states, ["failed", "completed", "failed", "failed"], "{ends:?}");
    assert!(ends[0].1.contains("not running"), "{ends:?}");
    let told = answer_text(&agent.received());
    assert!(told.contains("started again") && told.contains("stays away"), "{told}");
    assert!(told.contains("crashing with [redacted]") && !told.contains("hidden-crash-token"), "{told}");
}

/// A line that is too long was dropped without a word, and the call waited two minutes for what was in it.
#[tokio::test]
async fn a_line_that_is_too_long_ends_the_server_and_says_so() {
    let script = turns(&[("peer__endless", json!({})), ("peer__echo", json!({"text": "again"}))]);
    let lab = Lab::scripted("full", &script);
    let (mut agent, session) = open(&lab, json!([peer(&[])])).await;
    prompt(&mut agent, &session, "go").await;
    prompt(&mut agent, &session, "go").await;
    let ends = ends(&agent.received());
    assert_eq!(ends[0].0, "failed");
    assert!(ends[0].1.contains("sent a line of more than 16777216 bytes"), "{ends:?}");
    assert_eq!(ends[1], ("completed".to_owned(), "again".to_owned()), "it was started again");
    let told = answer_text(&agent.received());
    assert!(told.contains("started again: it sent a line of more than"), "{told}");
}

/// A call that never ends is given up by cancel, and the session goes on.
#[tokio::test]
async fn a_silent_call_is_ended_by_cancel() {
    let lab = Lab::scripted("full", &turns(&[("peer__silent", json!({})), ("peer__echo", json!({"text": "on"}))]));
    let (mut agent, session) = open(&lab, json!([peer(&[])])).await;
    let running = agent.request("session/prompt", text_prompt(&session, "go")).await;
    agent.recv_until(|message| message["params"]["update"]["status"] == "in_progress").await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let result = agent.response(&running).await.unwrap();
    assert_eq!(result["stopReason"], "cancelled");
    // The script goes on with its next call.
    prompt(&mut agent, &session, "go").await;
    let ends = ends(&agent.received());
    assert_eq!(ends[0].0, "failed");
}

/// A prompt does not wait for ever for a server that never answers, and a cancel does not wait at all.
#[tokio::test]
async fn a_mute_server_does_not_hold_a_cancelled_prompt() {
    let lab = Lab::scripted("full", &[json!({"type": "text", "text": "hello"}), json!({"type": "stop"})]);
    let (mut agent, session) = open(&lab, json!([peer(&["--mute"])])).await;
    let waiting = agent.request("session/prompt", text_prompt(&session, "go")).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(agent.response(&waiting).await.unwrap()["stopReason"], "cancelled");
    assert_eq!(agent.call("session/close", json!({"sessionId": session})).await.unwrap(), json!({}));
}

/// Large results are cut, pictures are stored like those of a prompt, failures are marked, progress is seen, complaints
/// without end cost nothing.
#[tokio::test]
async fn results_are_bounded_stored_and_marked() {
    let lab = Lab::scripted(
        "full",
        &turns(&[
            ("peer__huge", json!({})),
            ("peer__image", json!({})),
            ("peer__fail", json!({})),
            ("peer__progress", json!({})),
            ("peer__flood", json!({})),
        ]),
    );
    let (mut agent, session) = open(&lab, json!([peer(&[])])).await;
    for _ in 0..5 {
        prompt(&mut agent, &session, "go").await;
    }
    let messages = agent.received();
    let ends = ends(&messages);
    let states: Vec<&str> = ends.iter().map(|(state, _)| state.as_str()).collect();
    assert_eq!(states, ["completed", "completed", "failed", "completed", "completed"], "{states:?}");
    assert!(ends[0].1.len() < 70_000 && ends[0].1.contains("3000000 bytes in all"), "{}", ends[0].1.len());
    let longest = agent.transcript().iter().map(|entry| entry.line.len()).max().unwrap();
    assert!(longest < 400_000, "{longest}");
    assert!(ends[1].1.contains("a picture") && ends[1].1.contains("inside"), "{}", ends[1].1);
    let stored = ends[1].1.lines().find_map(|line| line.strip_prefix("[IMAGE:")?.strip_suffix(']')).unwrap();
    assert!(Path::new(stored).starts_with(lab.project().join("uploads")), "{stored}");
    assert_eq!(std::fs::read(stored).unwrap(), [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a]);
    let blocks: Vec<Value> = updates_of(&messages, "tool_call_update");
    assert!(blocks.iter().any(|update| update["content"].to_string().contains("attachment://mcp/")));
    assert_eq!(ends[2].1, "it went wrong");
    assert!(blocks.iter().any(|update| update["content"].to_string().contains("step 3")), "progress is shown");
}

/// A list of tools that changes is followed.
#[tokio::test]
async fn a_changed_list_of_tools_is_followed() {
    let model = ModelServer::start().await;
    let lab = Lab::custom("full", &model.openai_url());
    let (mut agent, session) = open(&lab, json!([peer(&[])])).await;
    model.push(Reply::turn([Part::tool_call("call_1", "peer__grow", json!({}))]));
    model.push(Reply::text("grown"));
    prompt(&mut agent, &session, "go").await;
    // The change is followed beside the turn: within a few prompts the tool is there.
    for _ in 0..100 {
        model.push(Reply::text("looked"));
        prompt(&mut agent, &session, "look").await;
        if model.requests().last().unwrap().body["tools"].to_string().contains("peer__added") {
            return;
        }
    }
    panic!("the new tool never came");
}

/// Nothing of a server outlives its session: not by close, not by the end of input, not by a kill of the agent.
#[tokio::test]
async fn nothing_of_a_server_outlives_its_session() {
    for how in ["close", "eof", "kill"] {
        let mark = format!("--mark={how}-{}", std::process::id());
        let lab = Lab::scripted("full", &calling("peer__echo", json!({"text": "x"})));
        let (mut agent, session) = open(&lab, json!([peer(&["--stubborn", &mark])])).await;
        prompt(&mut agent, &session, "go").await;
        assert!(!alive(&mark).is_empty(), "it runs");
        match how {
            "close" => {
                agent.call("session/close", json!({"sessionId": session})).await.unwrap();
                assert_eq!(alive(&mark), Vec::<String>::new(), "gone when close is answered");
            }
            "eof" => {
                agent.close_stdin();
                agent.wait().await;
            }
            _ => {
                agent.kill9().await;
            }
        }
        gone(&mark).await;
    }
    let left = alive("trap '' TERM HUP INT");
    assert_eq!(left, Vec::<String>::new(), "and neither do its children");
}

/// SES-27: a server that exits at once leaves no dead process behind, however many sessions name it.
#[tokio::test]
async fn ses_27_a_server_that_exits_at_once_is_reaped() {
    let lab = Lab::with_config("[acp]\nmax_sessions = 30\n");
    let mut agent = lab.agent().await;
    let exits = json!({"name": "exits", "command": PEER, "args": ["--dead"], "env": []});
    for _ in 0..20 {
        let params = json!({"cwd": lab.project(), "mcpServers": [exits]});
        let result = agent.call("session/new", params).await.unwrap();
        prompt(&mut agent, result["sessionId"].as_str().unwrap(), "/help").await;
    }
    assert_eq!(answer_text(&agent.received()).matches("could not be started").count(), 20);
    let children = children_of(agent.pid());
    assert_eq!(children, Vec::<String>::new());
}

/// The state and name of the direct children of a process.
fn children_of(parent: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // pid (name) state ppid …, and the name may hold anything.
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        if rest.split(' ').nth(1) == Some(&parent.to_string()) {
            found.push(format!("{name}) {rest}"));
        }
    }
    found
}

/// SEC-09: where the operator does not want programs that clients name, none is started, and the client is told.
#[tokio::test]
async fn sec_09_programs_of_a_client_are_not_started_where_that_is_not_allowed() {
    for (allowed, starts) in [("all", true), ("http", false), ("none", false)] {
        let lab = Lab::with_config(&format!("[acp]\nclient_mcp_servers = \"{allowed}\"\n"));
        let made = lab.project().join("made; touch also");
        let server = json!({"name": "m", "command": "/usr/bin/touch", "args": [made], "env": []});
        let (mut agent, session) = open(&lab, json!([server])).await;
        prompt(&mut agent, &session, "/help").await;
        let told = answer_text(&agent.received());
        assert_eq!(made.exists(), starts, "{allowed}");
        assert_eq!(
            told.contains("`m`: programs that a client names are not started here"),
            !starts,
            "{allowed}: {told}"
        );
        assert!(!lab.project().join("also").exists(), "no shell reads the arguments");
    }
}

/// What cannot be a server is refused by name, and no session is opened.
#[tokio::test]
async fn malformed_servers_are_refused() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let many: Vec<Value> =
        (0..40).map(|n| json!({"name": format!("s{n}"), "command": PEER, "args": [], "env": []})).collect();
    for (servers, word) in [
        (json!([{"command": PEER}]), "name"),
        (json!([{"name": "a", "args": [], "env": []}]), "command"),
        (json!([{"name": "", "command": PEER, "args": [], "env": []}]), "name"),
        (json!("none"), "sequence"),
        (json!(many), "at most"),
    ] {
        let params = json!({"cwd": lab.project(), "mcpServers": servers});
        let error = agent.call("session/new", params).await.unwrap_err();
        assert!(error["code"] == -32602 && error["message"].as_str().unwrap().contains(word), "{servers}: {error}");
    }
    let listed = agent.call("session/list", json!({})).await.unwrap();
    assert_eq!(listed["sessions"], json!([]));
    let accepted = json!({"cwd": lab.project(), "mcpServers": null});
    agent.call("session/new", accepted).await.unwrap();
}

/// The servers of a load are used by the loaded session.
#[tokio::test]
async fn a_loaded_session_uses_the_servers_of_the_load() {
    let lab =
        Lab::scripted("full", &turns(&[("peer__echo", json!({"text": "1"})), ("peer__echo", json!({"text": "2"}))]));
    let (mut agent, session) = open(&lab, json!([])).await;
    prompt(&mut agent, &session, "go").await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": [peer(&[])]});
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    agent.call("session/load", params).await.unwrap();
    agent.collected();
    prompt(&mut agent, &session, "go").await;
    assert_eq!(ends(&agent.collected()), [("completed".to_owned(), "2".to_owned())]);
}

/// A server behind an address is used like one that is a program; its secret is in its requests and nowhere else.
#[tokio::test]
async fn a_server_over_http_lends_its_tools() {
    let lab =
        Lab::scripted("full", &turns(&[("peer__echo", json!({"text": "by http"})), ("peer__progress", json!({}))]));
    let file = lab.home().join("port");
    let mut server = std::process::Command::new(PEER).arg(format!("--http={}", file.display())).spawn().unwrap();
    let port = loop {
        match std::fs::read_to_string(&file) {
            Ok(port) if !port.is_empty() => break port,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let named = json!({"type": "http", "name": "peer", "url": format!("http://127.0.0.1:{port}/mcp"),
                       "headers": [{"name": "X-Peer", "value": "s3cret-header"}]});
    let refused =
        json!({"type": "http", "name": "refused", "url": format!("http://127.0.0.1:{port}/mcp"), "headers": []});
    let (mut agent, session) = open(&lab, json!([named, refused])).await;
    prompt(&mut agent, &session, "go").await;
    prompt(&mut agent, &session, "go").await;
    let messages = agent.received();
    assert_eq!(
        ends(&messages),
        [("completed".to_owned(), "by http".to_owned()), ("completed".to_owned(), "done".to_owned())]
    );
    assert!(answer_text(&messages).contains("`refused`"), "{}", answer_text(&messages));
    let received: String = messages.iter().map(Value::to_string).collect();
    assert!(!received.contains("s3cret-header") && !agent.stderr_text().contains("s3cret-header"));
    agent.close_stdin();
    agent.wait().await;
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Keys stand in addresses and come back in the errors of servers; both went to the log at its usual level, through the
/// library that speaks to servers, and the address also into the conversation.
#[tokio::test]
async fn a_key_of_a_server_that_cannot_be_reached_is_told_nowhere() {
    let lab = Lab::scripted("full", &turns(&[("none__x", json!({}))]));
    // A port that nobody listens at: it was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/path-s3cret/mcp?api_key=query-s3cret");
    let headers = json!([{"name": "X-Peer", "value": "header-s3cret"}]);
    let mut agent = lab.start_with(&[("RUST_LOG", "trace")]);
    initialize(&mut agent).await;
    let params = json!({"cwd": lab.project(), "mcpServers": [
        {"type": "http", "name": "away", "url": url, "headers": headers},
        peer(&[]),
    ]});
    let session = agent.call("session/new", params).await.unwrap()["sessionId"].as_str().unwrap().to_owned();
    prompt(&mut agent, &session, "go").await;
    agent.close_stdin();
    agent.wait().await;
    let told = answer_text(&agent.received());
    assert!(told.contains("`away`") && told.contains("127.0.0.1"), "what is not secret helps: {told}");
    let received: String = agent.received().iter().map(Value::to_string).collect();
    assert!(!received.contains("s3cret"), "{received}");
    assert!(!agent.stderr_text().contains("s3cret"), "{}", agent.stderr_text());
}

/// Arguments and results are bodies of messages, which no level of the log shows.
#[tokio::test]
async fn what_is_said_to_a_server_is_not_logged() {
    let lab = Lab::scripted("full", &calling("peer__echo", json!({"text": "only-for-the-peer"})));
    let mut agent = lab.start_with(&[("RUST_LOG", "trace")]);
    initialize(&mut agent).await;
    let params = json!({"cwd": lab.project(), "mcpServers": [peer(&[])]});
    let session = agent.call("session/new", params).await.unwrap()["sessionId"].as_str().unwrap().to_owned();
    prompt(&mut agent, &session, "go").await;
    agent.close_stdin();
    agent.wait().await;
    assert_eq!(ends(&agent.received()), [("completed".to_owned(), "only-for-the-peer".to_owned())]);
    let log = agent.stderr_text();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the log is on: {log}");
    assert!(!log.contains("only-for-the-peer"), "{log}");
}
