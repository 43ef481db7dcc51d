//! The life of a session: opened, prompted, given up, found again.

use std::path::Path;

use serde_json::{Value, json};
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};
use zeroclaw_e2e::{Lab, assert_welcome, initialize, new_session, prompt, text_prompt, updates_of, user_texts};
use zeroclaw_testkit::{
    model_server::{ModelServer, Part, Reply},
    process::AgentProcess,
};

/// A lab whose agent has no model and asks for nothing.
fn full() -> Lab {
    Lab::with_config("[autonomy]\nlevel = \"full\"\n")
}

fn is_update(message: &Value, kind: &str) -> bool {
    message["params"]["update"]["sessionUpdate"] == kind
}

/// The updates of a session that are its history: commands are state of now.
fn history(messages: &[Value]) -> Vec<Value> {
    let updates = messages.iter().filter(|message| message["method"] == "session/update");
    let past = updates.filter(|message| !is_update(message, "available_commands_update"));
    past.map(|message| message["params"]["update"].clone()).collect()
}

/// Prompts the first time and waits for the title, which follows the answer.
async fn first_prompt(agent: &mut AgentProcess, session: &str, text: &str) {
    let request = agent.request("session/prompt", text_prompt(session, text)).await;
    agent.response(&request).await.unwrap();
    if !agent.received().iter().any(|message| is_update(message, "session_info_update")) {
        agent.recv_until(|message| is_update(message, "session_info_update")).await;
    }
}

async fn leave(mut agent: AgentProcess) {
    agent.close_stdin();
    assert!(agent.wait().await.success());
}

/// Loads a session in a new process and returns what came up to the answer.
async fn load(lab: &Lab, session: &str) -> (AgentProcess, Vec<Value>) {
    let mut agent = lab.agent().await;
    let request = agent.request("session/load", json!({"sessionId": session, "cwd": lab.project()})).await;
    let id = request.id().clone();
    let mut messages = agent.recv_until(|message| message["id"] == id).await;
    assert_welcome(&messages.pop().unwrap()["result"]);
    messages.retain(|message| message.get("id").is_none());
    (agent, messages)
}

async fn listed(agent: &mut AgentProcess) -> Vec<String> {
    let result = agent.call("session/list", json!({})).await.unwrap();
    let sessions = result["sessions"].as_array().unwrap();
    sessions.iter().map(|session| session["sessionId"].as_str().unwrap().to_owned()).collect()
}

/// Changes the database behind the back of whoever has it open; `statement` has one parameter, the session.
async fn change(database: &Path, statement: &'static str, session: &str) {
    let mut connection = SqliteConnectOptions::new().filename(database).connect().await.unwrap();
    sqlx::query(statement).bind(session).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

fn kind_of(error: &Value) -> (i64, &str) {
    (error["code"].as_i64().unwrap(), error["data"]["kind"].as_str().unwrap_or_default())
}

// The conversation was stored, but loading it sent one update about commands and the editor showed an empty thread.
#[tokio::test]
async fn ses_01_a_loaded_thread_is_the_whole_thread() {
    let lab = full();
    lab.file("a.txt", "alpha\n");
    let (mut agent, session) = lab.session().await;
    first_prompt(&mut agent, &session, "/read a.txt\n/say 3").await;
    prompt(&mut agent, &session, "/think hm\n/run echo out; echo err >&2; exit 3").await;
    let live = history(&agent.received());
    leave(agent).await;

    let (_agent, messages) = load(&lab, &session).await;
    let replayed = history(&messages);
    let prompts = updates_of(&messages, "user_message_chunk");
    let texts: Vec<&Value> = prompts.iter().map(|prompt| &prompt["content"]["text"]).collect();
    assert_eq!(texts, [&json!("/read a.txt\n/say 3"), &json!("/think hm\n/run echo out; echo err >&2; exit 3")]);
    let rest: Vec<Value> =
        replayed.iter().filter(|update| update["sessionUpdate"] != "user_message_chunk").cloned().collect();
    assert_eq!(rest, live, "everything but the prompts was seen live, in the same order");
    for kind in ["agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update"] {
        assert!(!updates_of(&messages, kind).is_empty(), "no {kind} in the replay");
    }
    // Each prompt stands before what it caused.
    let position = |wanted: &dyn Fn(&Value) -> bool| replayed.iter().position(wanted).unwrap();
    let first_call = position(&|update| update["sessionUpdate"] == "tool_call");
    let second_prompt = position(&|update| update["content"]["text"] == *texts[1]);
    let last_call = replayed.iter().rposition(|update| update["sessionUpdate"] == "tool_call").unwrap();
    assert_eq!(replayed[0], prompts[0]);
    assert!(first_call < second_prompt && second_prompt < last_call, "{replayed:?}");
}

// Replayed commands all had the tool's bare name for a title, and the command was nowhere to be seen.
#[tokio::test]
async fn ses_03_a_replayed_call_looks_like_the_live_one() {
    let lab = full();
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/run echo hello; printf '%s' x > made.txt").await;
    prompt(&mut agent, &session, "/edit made.txt x => y").await;
    let live = agent.received();
    leave(agent).await;
    let (_agent, replayed) = load(&lab, &session).await;
    for kind in ["tool_call", "tool_call_update"] {
        let calls = updates_of(&live, kind);
        assert!(calls.len() >= 2);
        assert_eq!(updates_of(&replayed, kind), calls);
    }
    let calls = updates_of(&replayed, "tool_call");
    assert_eq!(calls[0]["kind"], json!("execute"));
    assert!(calls[0]["title"].as_str().unwrap().contains("echo hello"), "{}", calls[0]);
    assert!(calls[0]["rawInput"]["command"].as_str().unwrap().starts_with("echo hello;"), "{}", calls[0]);
    assert_eq!(calls[1]["kind"], json!("edit"));
    assert!(calls[1]["content"].to_string().contains(r#""type":"diff""#), "{}", calls[1]);
}

// The live turn repeated the user's words, as a replay must, and every prompt was shown twice.
#[tokio::test]
async fn ses_05_the_users_words_come_back_only_in_a_replay() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    for text in ["/say 1", "/say 2", "hello"] {
        prompt(&mut agent, &session, text).await;
    }
    assert_eq!(updates_of(&agent.received(), "user_message_chunk"), Vec::<Value>::new());
    leave(agent).await;
    let (_agent, messages) = load(&lab, &session).await;
    let prompts = updates_of(&messages, "user_message_chunk");
    let texts: Vec<&Value> = prompts.iter().map(|prompt| &prompt["content"]["text"]).collect();
    assert_eq!(texts, [&json!("/say 1"), &json!("/say 2"), &json!("hello")]);
}

// Editors throw away updates for a session they have not heard of, and then waited for them.
#[tokio::test]
async fn ses_07_a_sessions_first_message_is_the_answer_that_names_it() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    for _ in 0..3 {
        let request = agent.request("session/new", json!({"cwd": lab.project()})).await;
        let messages = agent.recv_until(|message| is_update(message, "available_commands_update")).await;
        let answer =
            messages.iter().position(|message| message["id"] == *request.id()).expect("the answer comes first");
        let session = messages[answer]["result"]["sessionId"].as_str().unwrap();
        let naming = messages.iter().position(|message| message.to_string().contains(session));
        assert_eq!(naming, Some(answer), "{messages:?}");
        let commands = &messages.last().unwrap()["params"]["update"]["availableCommands"];
        assert!(commands.as_array().unwrap().iter().any(|command| command["name"] == "run"), "{commands}");
    }
}

// A session that could not be loaded was reported as loaded, and a resume made a new one under an id nobody knew.
#[tokio::test]
async fn ses_09_a_session_that_is_not_there_is_not_made_up() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let other = new_session(&mut agent, &lab.project()).await;
    prompt(&mut agent, &session, "/say 1").await;
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    change(&lab.database(), "DELETE FROM sessions WHERE id = ?1", &session).await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    for method in ["session/resume", "session/load", "session/prompt"] {
        let params = if method == "session/prompt" { text_prompt(&session, "/say 1") } else { params.clone() };
        let error = agent.call(method, params).await.unwrap_err();
        assert_eq!(kind_of(&error), (-32000, "session_not_found"), "{method}: {error}");
        assert_eq!(error["data"]["sessionId"], json!(session));
    }
    assert_eq!(listed(&mut agent).await, [other]);
}

// Pages were cut by a time in seconds, so that sessions of the same second were skipped or came twice.
#[tokio::test]
async fn ses_11_sessions_of_the_same_moment_come_once_each() {
    let lab = Lab::new();
    let mut agent = lab.start_with(&[("ZEROCLAW_acp__max_sessions", "100")]);
    initialize(&mut agent).await;
    let mut made = Vec::new();
    for _ in 0..60 {
        made.push(new_session(&mut agent, &lab.project()).await);
    }
    change(&lab.database(), "UPDATE sessions SET last_activity_ms = 1767225600000 WHERE id <> ?1", "").await;
    let first = agent.call("session/list", json!({"cwd": lab.project()})).await.unwrap();
    let cursor = first["nextCursor"].as_str().expect("there is more").to_owned();
    let second = agent.call("session/list", json!({"cwd": lab.project(), "cursor": cursor})).await.unwrap();
    assert_eq!(first["sessions"].as_array().unwrap().len(), 50);
    assert_eq!(second.get("nextCursor"), None);
    let pages = [&first, &second].into_iter().flat_map(|page| page["sessions"].as_array().unwrap());
    let mut seen: Vec<&str> = pages.map(|session| session["sessionId"].as_str().unwrap()).collect();
    seen.sort_unstable();
    made.sort_unstable();
    assert_eq!(seen, made);
    for cursor in ["zzz", "", "1.2", ".", "99999999999999999999.s-a", "-.s-a", "1767225600000."] {
        let error = agent.call("session/list", json!({"cursor": cursor})).await.unwrap_err();
        assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{cursor}: {error}");
    }
    let error = agent.call("session/list", json!({"cwd": "project"})).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32602, "invalid_params"), "{error}");
}

// A session that was killed came back with the next prompt, because its row was still there. Here the row is gone;
// `session/delete` is tested with that method.
#[tokio::test]
async fn ses_13_a_removed_session_stays_removed() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 1").await;
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    change(&lab.database(), "DELETE FROM sessions WHERE id = ?1", &session).await;
    for restart in [false, true] {
        if restart {
            leave(agent).await;
            agent = lab.agent().await;
        }
        for (method, params) in [
            ("session/prompt", text_prompt(&session, "/say 1")),
            ("session/load", json!({"sessionId": session})),
            ("session/resume", json!({"sessionId": session})),
            ("session/prompt", text_prompt(&session, "/say 1")),
            ("session/close", json!({"sessionId": session})),
        ] {
            let error = agent.call(method, params).await.unwrap_err();
            assert_eq!(kind_of(&error), (-32000, "session_not_found"), "{method}: {error}");
        }
        assert_eq!(listed(&mut agent).await, Vec::<String>::new());
    }
}

// Closed is not removed: only a live session takes prompts, but its history is kept and comes back when it is asked for.
#[tokio::test]
async fn ses_13_a_closed_session_does_not_come_back_by_itself() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 1").await;
    assert_eq!(agent.call("session/close", json!({"sessionId": session})).await.unwrap(), json!({}));
    for _ in 0..2 {
        let error = agent.call("session/prompt", text_prompt(&session, "/say 1")).await.unwrap_err();
        assert_eq!(kind_of(&error), (-32000, "session_not_found"), "{error}");
    }
    assert_eq!(listed(&mut agent).await, std::slice::from_ref(&session));
    assert_welcome(&agent.call("session/load", json!({"sessionId": session})).await.unwrap());
    assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], json!("end_turn"));
}

// Two turns ran on one session at once, and both wrote its history.
#[tokio::test]
async fn ses_15_a_second_prompt_is_refused_and_the_first_goes_on() {
    let server = ModelServer::start().await;
    let (reply, gate) = Reply::chunks(["one ", "two"]).gate(1);
    server.push(reply);
    server.push(Reply::text("three"));
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let first = agent.request("session/prompt", text_prompt(&session, "first")).await;
    gate.reached().await;
    agent.recv_until(|message| is_update(message, "agent_message_chunk")).await;
    let error = agent.call("session/prompt", text_prompt(&session, "second")).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32002, "session_busy"), "{error}");
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let result = agent.response(&first).await.unwrap();
    assert_eq!(result["stopReason"], json!("cancelled"), "the cancel still reaches the first: {result}");
    gate.client_gone().await;
    assert_eq!(prompt(&mut agent, &session, "third").await["content"], json!("three"));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(user_texts(&requests[1].body), ["first", "third"]);
    assert_eq!(server.violations(), Vec::<String>::new());
}

// What one session said appeared in another, and the end of one turn ended another's.
#[tokio::test]
async fn ses_17_sessions_side_by_side_do_not_mix() {
    let server = ModelServer::start().await;
    let half = |name: &str| (0..200).map(|n| Part::text(format!("{name}{n} "))).collect::<Vec<Part>>();
    let (a, gate_a) = Reply::turn(half("a")).gate(100);
    let (b, gate_b) = Reply::turn(half("b").into_iter().chain([Part::stop("length")])).gate(100);
    server.push(a);
    server.push(b);
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, first) = lab.session().await;
    let second = new_session(&mut agent, &lab.project()).await;
    let turn_a = agent.request("session/prompt", text_prompt(&first, "go")).await;
    server.wait_for_requests(1).await;
    let turn_b = agent.request("session/prompt", text_prompt(&second, "go")).await;
    gate_a.reached().await;
    gate_b.reached().await;
    gate_b.release();
    gate_a.release();
    let a = agent.response(&turn_a).await.unwrap();
    let b = agent.response(&turn_b).await.unwrap();
    assert_eq!((&a["stopReason"], &a["sessionId"]), (&json!("end_turn"), &json!(first)));
    assert_eq!((&b["stopReason"], &b["sessionId"]), (&json!("max_tokens"), &json!(second)));
    for (session, name) in [(&first, "a"), (&second, "b")] {
        let own = agent.updates().into_iter().filter(|params| params["sessionId"] == **session);
        let text: String =
            own.filter_map(|params| params["update"]["content"]["text"].as_str().map(str::to_owned)).collect();
        assert_eq!(text, (0..200).map(|n| format!("{name}{n} ")).collect::<String>());
    }
}

// Loading a session that was live built a second one under its id, and the cancel went to the wrong of the two.
#[cfg(unix)]
#[tokio::test]
async fn ses_19_loading_a_live_session_keeps_its_cancel() {
    let lab = full();
    let mut held = zeroclaw_e2e::Lifeline::new(&lab.project().join("pipe"));
    let (mut agent, session) = lab.session().await;
    let command = format!("/run {} echo begun; sleep 600", held.held());
    let turn = agent.request("session/prompt", text_prompt(&session, &command)).await;
    held.started().await;
    let loading = agent.request("session/load", json!({"sessionId": session, "cwd": lab.project()})).await;
    assert_welcome(&agent.response(&loading).await.unwrap());
    let replayed = updates_of(&agent.received(), "user_message_chunk");
    assert_eq!(replayed.len(), 1, "the running turn is part of the replay");
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let result = agent.response(&turn).await.unwrap();
    assert_eq!(result["stopReason"], json!("cancelled"));
    held.gone().await;
    assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], json!("end_turn"));
}

// Sessions of one directory were missed because its name was written in another way.
#[tokio::test]
async fn ses_21_a_directory_has_one_name() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let project = lab.project();
    let text = project.to_str().unwrap().to_owned();
    #[cfg(windows)]
    let spellings = {
        let (drive, rest) = text.trim_start_matches(r"\\?\").split_once(':').unwrap();
        let (upper, lower) = (drive.to_uppercase(), drive.to_lowercase());
        [format!("{upper}:{rest}"), format!("{lower}:{}", rest.replace('\\', "/")), format!("{upper}:{rest}\\")]
    };
    #[cfg(not(windows))]
    let spellings = {
        let link = lab.home().join("link");
        std::os::unix::fs::symlink(&project, &link).unwrap();
        [format!("{text}/"), format!("{text}/./../project//"), link.to_str().unwrap().to_owned()]
    };
    let mut made = Vec::new();
    for spelling in &spellings {
        made.push(new_session(&mut agent, Path::new(spelling)).await);
    }
    new_session(&mut agent, &lab.home()).await;
    made.sort_unstable();
    for spelling in spellings.iter().chain([&text]) {
        let result = agent.call("session/list", json!({"cwd": spelling})).await.unwrap();
        let found = result["sessions"].as_array().unwrap();
        let mut ids: Vec<&str> = found.iter().map(|session| session["sessionId"].as_str().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, made, "{spelling}");
        let id = ids[0].to_owned();
        agent.call("session/close", json!({"sessionId": id})).await.unwrap();
        agent.call("session/load", json!({"sessionId": id, "cwd": spelling})).await.unwrap();
    }
}

// Without a directory the work landed where the server happened to have been started.
#[tokio::test]
async fn ses_23_a_session_without_a_directory_has_the_agents_own() {
    let lab = Lab::new();
    let own = lab.config_dir().join("data/agents/main/workspace");
    std::fs::create_dir_all(lab.project().join("a")).unwrap();
    std::fs::create_dir_all(lab.project().join("b")).unwrap();
    let mut agent = lab.agent().await;
    let cases = [
        (json!({}), own.clone()),
        (json!({"cwd": "."}), own.clone()),
        (json!({"cwd": lab.config_dir()}), own.clone()),
        (json!({"cwd": lab.config_dir().join("data/..")}), own.clone()),
        (json!({"cwd": lab.project().join("a")}), lab.project().join("a")),
        (json!({"cwd": lab.project().join("a/../b")}), lab.project().join("b")),
        // Below the install root is not the install root.
        (json!({"cwd": lab.config_dir().join("data")}), lab.config_dir().join("data")),
        // Not a placeholder either: a directory that contains the install root.
        (json!({"cwd": lab.home()}), lab.home()),
    ];
    for (params, expected) in cases {
        let result = agent.call("session/new", params.clone()).await.unwrap();
        assert_eq!(result["workspaceDir"], json!(expected), "{params}");
    }
    let result = agent.call("session/new", json!({})).await.unwrap();
    let session = result["sessionId"].as_str().unwrap();
    prompt(&mut agent, session, "/ls").await;
    let calls = updates_of(&agent.received(), "tool_call");
    assert_eq!(calls.last().unwrap()["locations"][0]["path"], json!(own), "tools start there too");
}

// The process was killed, and what it had started lived on under another parent.
#[cfg(unix)]
#[tokio::test]
async fn ses_25_nothing_outlives_a_killed_server() {
    let (lab, mut agent, mut held) = busy().await;
    agent.kill9().await;
    held.gone().await;
    drop(lab);
}

#[cfg(unix)]
#[tokio::test]
async fn ses_25_nothing_outlives_a_terminated_server() {
    let (lab, mut agent, mut held) = busy().await;
    agent.terminate();
    agent.wait().await;
    held.gone().await;
    drop(lab);
}

/// An agent in the middle of a command that has children of its own.
#[cfg(unix)]
async fn busy() -> (Lab, AgentProcess, zeroclaw_e2e::Lifeline) {
    let lab = full();
    let mut held = zeroclaw_e2e::Lifeline::new(&lab.project().join("pipe"));
    let (mut agent, session) = lab.session().await;
    let command = format!("/run {} sleep 600 & sleep 600", held.held());
    agent.request("session/prompt", text_prompt(&session, &command)).await;
    held.started().await;
    (lab, agent, held)
}

// Children that had ended stayed in the process table. Tool servers are tested with the tool servers; commands are
// children too.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn ses_27_no_child_stays_defunct() {
    let lab = full();
    let (mut agent, session) = lab.session().await;
    for _ in 0..20 {
        prompt(&mut agent, &session, "/run true").await;
    }
    let pid = agent.pid();
    let children = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| {
        let children = task.unwrap().path().join("children");
        std::fs::read_to_string(children).unwrap_or_default()
    });
    let children: String = children.collect();
    assert_eq!(children.trim(), "", "every command has ended and was reaped");
}

// The backend died in the middle of a turn, and the prompt waited for ever. Gateway and bridge are tested with those;
// here it is the model's server.
#[tokio::test]
async fn ses_29_a_dead_backend_ends_the_turn() {
    let server = ModelServer::start().await;
    let (reply, gate) = Reply::chunks(["one ", "two"]).gate(1);
    server.push(reply);
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let turn = agent.request("session/prompt", text_prompt(&session, "go")).await;
    gate.reached().await;
    agent.recv_until(|message| is_update(message, "agent_message_chunk")).await;
    drop(server);
    let error = agent.response(&turn).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32603, "internal_error"), "{error}");
    let error = agent.call("session/prompt", text_prompt(&session, "again")).await.unwrap_err();
    assert_eq!(kind_of(&error), (-32603, "internal_error"), "{error}");
    // The agent itself is well.
    assert_eq!(listed(&mut agent).await, std::slice::from_ref(&session));
    assert_eq!(agent.call("session/close", json!({"sessionId": session})).await.unwrap(), json!({}));
}

// That an agent ended was written down as the end of the session, and people got an empty conversation for their own.
#[tokio::test]
async fn ses_31_only_a_close_closes_and_even_that_keeps_the_record() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 2").await;
    leave(agent).await;
    for method in ["session/resume", "session/load"] {
        let mut agent = lab.agent().await;
        assert_eq!(listed(&mut agent).await, std::slice::from_ref(&session));
        let result = agent.call(method, json!({"sessionId": session, "cwd": lab.project()})).await.unwrap();
        assert_welcome(&result);
        assert_eq!(prompt(&mut agent, &session, "/say 1").await["stopReason"], json!("end_turn"));
        agent.kill9().await;
    }
    let mut agent = lab.agent().await;
    agent.call("session/load", json!({"sessionId": session})).await.unwrap();
    let replayed = updates_of(&agent.received(), "user_message_chunk");
    assert_eq!(replayed.len(), 3, "every prompt of every process");
}
