//! Harder deaths: several calls, several sessions, much output, another vendor, and ends that are not quite a crash.

use serde_json::{Value, json};
use zeroclaw_e2e::{
    Lab, Lifeline, content_text, initialize, new_session, prompt,
    replay::{assert_same, kind, load, open_calls, seen, text, value, without_user},
    text_prompt,
};
use zeroclaw_testkit::{
    model_server::{Call, ModelServer, Part, Reply},
    process::AgentProcess,
};

fn is_interruption(update: &str) -> bool {
    kind(update) == "agent_message_chunk" && text(update).contains("interrupted")
}

/// The stored sessions as `zeroclaw sessions list --json` shows them.
async fn listed(lab: &Lab) -> Vec<Value> {
    let output = lab.command("zeroclaw").args(["sessions", "list", "--json"]).output().await.expect("zeroclaw runs");
    assert!(output.status.success(), "{output:?}");
    let listing = String::from_utf8(output.stdout).expect("UTF-8");
    listing.lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect()
}

async fn state_of(lab: &Lab, session: &str) -> String {
    let sessions = listed(lab).await;
    let found = sessions.iter().find(|entry| entry["sessionId"] == session).expect("the session is listed");
    found["state"].as_str().expect("a state").to_owned()
}

async fn goes_on(agent: &mut AgentProcess, session: &str, server: &ModelServer) -> Vec<Value> {
    server.push(Reply::text("going on"));
    assert_eq!(prompt(agent, session, "go on").await["content"], "going on");
    assert_eq!(server.violations(), Vec::<String>::new());
    server.requests().pop().expect("the model was asked").body["messages"].as_array().expect("messages").clone()
}

/// Starts a command that holds a lifeline and says so on its output, once.
fn holding(lifeline: &Lifeline) -> Value {
    json!({"command": format!("{} (sleep 100; true)", lifeline.held())})
}

fn anthropic(uri: &str) -> Lab {
    Lab::with_config(&format!(
        "[providers.models.anthropic.test]\nmodel = \"test-model\"\nuri = \"{uri}\"\napi_key = \"sk-test\"\n\
         [agents.main]\nmodel_provider = \"anthropic.test\"\n[risk_profiles.default]\nlevel = \"full\"\n"
    ))
}

/// Of several calls in one answer some had a result and some had none, and the vendor refused the conversation for good.
#[tokio::test]
async fn rec_01_killed_between_the_calls_of_one_answer() {
    for anthropic_like in [false, true] {
        let server = ModelServer::start().await;
        let lab =
            if anthropic_like { anthropic(&server.anthropic_url()) } else { Lab::custom("full", &server.openai_url()) };
        let mut lifeline = Lifeline::new(&lab.project().join("alive"));
        lab.file("notes.txt", "remember the milk\n");
        let (mut agent, session) = lab.session().await;
        let calls = vec![
            Call::new("one", "shell", json!({"command": "echo first"})),
            Call::new("two", "shell", holding(&lifeline)),
            Call::new("three", "file_read", json!({"path": "notes.txt"})),
        ];
        let parts = [Part::thought("Three things."), Part::text("Three things. "), Part::ToolCalls(calls, false)];
        server.push(Reply::turn(parts));
        agent.request("session/prompt", text_prompt(&session, "do it")).await;
        lifeline.started().await;
        agent
            .recv_until(|message| {
                let update = &message["params"]["update"];
                update["toolCallId"] == "call-1-2" && update["status"] == "in_progress"
            })
            .await;
        let before = seen(&agent, &session);
        agent.kill9().await;

        let mut agent = lab.agent().await;
        let replayed = load(&mut agent, &session, &lab.project()).await;
        let answers = without_user(&replayed);
        assert_same(&answers[..before.len()], &before, "the replay");
        assert_eq!(open_calls(&replayed), Vec::<String>::new(), "{replayed:#?}");
        let finished = answers.iter().map(|update| value(update)).filter(|update| update["status"] == "completed");
        assert_eq!(finished.count(), 1, "only the first call was finished: {answers:#?}");
        let messages = goes_on(&mut agent, &session, &server).await;
        let all = Value::Array(messages).to_string();
        for id in ["one", "two", "three"] {
            assert!(all.contains(&format!("\"{id}\"")), "{id} is missing: {all}");
        }
        assert!(all.contains("first"), "the result of the finished call is missing: {all}");
    }
}

/// After a crash in a later step of a turn the model saw its earlier steps twice, or its last words not at all.
#[tokio::test]
async fn rec_02_killed_in_the_third_step_of_a_turn() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    lab.file("notes.txt", "remember the milk\n");
    let (mut agent, session) = lab.session().await;
    for step in ["first", "second"] {
        server.push(Reply::turn([
            Part::text(format!("{step} step. ")),
            Part::tool_call(step, "file_read", json!({"path": "notes.txt"})),
        ]));
    }
    let (reply, _gate) = Reply::chunks(["third ", "step ", "never"]).gate(2);
    server.push(reply);
    agent.request("session/prompt", text_prompt(&session, "do it")).await;
    agent.recv_until(|message| message["params"]["update"]["content"]["text"] == "step ").await;
    agent.kill9().await;

    let mut agent = lab.agent().await;
    load(&mut agent, &session, &lab.project()).await;
    let messages = goes_on(&mut agent, &session, &server).await;
    let said: Vec<String> = messages
        .iter()
        .filter(|message| message["role"] == "assistant")
        .map(|message| content_text(&message["content"]))
        .collect();
    assert_eq!(said.len(), 3, "{said:#?}");
    assert!(said[0].contains("first step.") && said[1].contains("second step."), "{said:#?}");
    assert!(said[2].starts_with("third step"), "{said:#?}");
    assert!(said[2].contains("interrupted") && !said[2].contains("first step"), "{said:#?}");
}

/// What a tool said to the user in between made the repair forget what the model had said after it.
#[tokio::test]
async fn rec_03_a_tools_own_message_does_not_hide_the_models_words() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let escalation = json!({"summary": "look at this", "urgency": "high"});
    server.push(Reply::turn([Part::text("First. "), Part::tool_call("one", "escalate_to_human", escalation)]));
    server.push(Reply::turn([Part::text("Second. "), Part::tool_call("two", "list_dir", json!({"path": "."}))]));
    let (reply, _gate) = Reply::chunks(["Third ", "words ", "never"]).gate(2);
    server.push(reply);
    agent.request("session/prompt", text_prompt(&session, "do it")).await;
    agent.recv_until(|message| message["params"]["update"]["content"]["text"] == "words ").await;
    agent.kill9().await;

    let mut agent = lab.agent().await;
    load(&mut agent, &session, &lab.project()).await;
    let messages = goes_on(&mut agent, &session, &server).await;
    let last = messages.iter().rfind(|message| message["role"] == "assistant").expect("the model had spoken");
    assert!(content_text(&last["content"]).contains("Third words"), "{messages:#?}");
}

/// A crash with several sessions at work repaired the one that was loaded first and lost the others.
#[tokio::test]
async fn rec_04_every_session_of_a_killed_process_comes_back() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let mut agent = lab.agent().await;
    let mut sessions = Vec::new();
    for number in 0..3 {
        let (reply, gate) = Reply::chunks([format!("half of {number}"), "never".to_owned()]).gate(1);
        server.push(reply);
        let session = new_session(&mut agent, &lab.project()).await;
        agent.request("session/prompt", text_prompt(&session, &format!("question {number}"))).await;
        gate.reached().await;
        agent.recv_until(|message| message["params"]["update"]["content"]["text"] == format!("half of {number}")).await;
        sessions.push((session, gate));
    }
    let before: Vec<Vec<String>> = sessions.iter().map(|(session, _)| seen(&agent, session)).collect();
    agent.kill9().await;

    let mut agents = [lab.agent().await, lab.agent().await, lab.agent().await];
    for (((session, _), before), agent) in sessions.iter().zip(&before).zip(&mut agents) {
        let replayed = load(agent, session, &lab.project()).await;
        assert_same(&without_user(&replayed)[..before.len()], before, session);
        assert!(is_interruption(replayed.last().expect("updates")), "{replayed:#?}");
        goes_on(agent, session, &server).await;
    }
}

/// Only a load repaired the crashed turn: a resume sent the vendor a call without a result.
#[tokio::test]
async fn rec_05_a_resume_after_a_crash_is_whole_too() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("supervised", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    server.push(Reply::tool_call("call", "shell", json!({"command": "touch made"})));
    agent.request("session/prompt", text_prompt(&session, "do it")).await;
    agent.recv_until(|message| message["method"] == "session/request_permission").await;
    agent.kill9().await;

    let mut agent = lab.agent().await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    agent.call("session/resume", params).await.expect("session/resume");
    goes_on(&mut agent, &session, &server).await;
    assert_eq!(agent.received().iter().filter(|message| message["method"] == "session/request_permission").count(), 0);
    agent.kill9().await;
    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, &session, &lab.project()).await;
    assert_eq!(open_calls(&replayed), Vec::<String>::new());
    assert_eq!(replayed.iter().filter(|update| is_interruption(update)).count(), 1, "{replayed:#?}");
}

/// A fast answer was ahead of the store: what had been shown of it was longer than what came back.
#[tokio::test]
async fn rec_06_killed_in_the_middle_of_a_flood() {
    let script = [json!({"type": "text", "text": "word {n} ", "repeat": 1_000_000}), json!({"type": "stop"})];
    let lab = Lab::scripted("full", &script);
    for reads in [1, 700, 20_000] {
        let (mut agent, session) = lab.session().await;
        agent.request("session/prompt", text_prompt(&session, "go")).await;
        let mut words = 0;
        while words < reads {
            let message = agent.next().await;
            words += usize::from(message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
        }
        let before = seen(&agent, &session);
        agent.kill9().await;

        let mut agent = lab.agent().await;
        let replayed = load(&mut agent, &session, &lab.project()).await;
        let answers = without_user(&replayed);
        assert_same(&answers[..before.len()], &before, "the replay");
        let (end, words) = answers.split_last().expect("updates");
        assert!(is_interruption(end), "{end}");
        for (index, word) in words.iter().enumerate() {
            assert_eq!(text(word), format!("word {} ", index + 1));
        }
    }
}

/// A process that died while it replayed left the session locked or half repaired.
#[tokio::test]
async fn rec_07_killed_while_it_replays() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "/say 8000").await;
    let live = seen(&agent, &session);
    agent.kill9().await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    for reads in [0, 1, 4000] {
        let mut agent = lab.agent().await;
        agent.request("session/load", params.clone()).await;
        agent.flush().await;
        for _ in 0..reads {
            agent.next().await;
        }
        agent.kill9().await;
    }
    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, &session, &lab.project()).await;
    assert_same(&without_user(&replayed), &live, "the replay");
}

/// The end of input while a question was open waited for the answer that could not come any more.
#[tokio::test]
async fn rec_08_end_of_input_with_a_question_open() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("supervised", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    server.push(Reply::tool_call("call", "file_write", json!({"path": "new.txt", "content": "x"})));
    let request = agent.request("session/prompt", text_prompt(&session, "write it")).await;
    agent.recv_until(|message| message["method"] == "session/request_permission").await;
    agent.close_stdin();
    assert!(agent.wait().await.success(), "{}", agent.stderr_text());
    assert_eq!(agent.response(&request).await.expect("a result")["stopReason"], "cancelled");
    assert_eq!(open_calls(&seen(&agent, &session)), Vec::<String>::new());
    assert_eq!(state_of(&lab, &session).await, "cancelled");
    assert!(!lab.project().join("new.txt").exists());
    let mut agent = lab.agent().await;
    load(&mut agent, &session, &lab.project()).await;
    goes_on(&mut agent, &session, &server).await;
}

/// A command that ignores SIGTERM held the end of the process up until the editor killed it, and the turn was lost.
#[tokio::test]
async fn rec_09_end_of_input_with_a_stubborn_command() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let mut lifeline = Lifeline::new(&lab.project().join("alive"));
    let command = format!("trap '' TERM INT HUP; {} sleep 100; sleep 100", lifeline.held());
    server.push(Reply::tool_call("call", "shell", json!({"command": command})));
    let request = agent.request("session/prompt", text_prompt(&session, "do it")).await;
    lifeline.started().await;
    agent.close_stdin();
    assert!(agent.wait().await.success(), "{}", agent.stderr_text());
    lifeline.gone().await;
    assert_eq!(agent.response(&request).await.expect("a result")["stopReason"], "cancelled");
    assert_eq!(open_calls(&seen(&agent, &session)), Vec::<String>::new());
    assert_eq!(state_of(&lab, &session).await, "cancelled");
}

/// Closing the terminal window sent a SIGHUP: the agent was gone, its command was not.
#[cfg(unix)]
#[tokio::test]
async fn rec_10_a_hangup_is_an_end_like_any_other() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let mut lifeline = Lifeline::new(&lab.project().join("alive"));
    server.push(Reply::tool_call("call", "shell", holding(&lifeline)));
    agent.request("session/prompt", text_prompt(&session, "do it")).await;
    lifeline.started().await;
    let pid = i32::try_from(agent.pid()).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("the signal is sent");
    assert!(agent.wait().await.success(), "{}", agent.stderr_text());
    lifeline.gone().await;
    assert_eq!(state_of(&lab, &session).await, "cancelled");
}

/// Killing the prompt client left its agent and the agent's command behind.
#[tokio::test]
async fn rec_11_a_killed_prompt_client_leaves_nothing_behind() {
    let lab = Lab::new();
    let mut lifeline = Lifeline::new(&lab.project().join("alive"));
    let mut command = lab.command("zeroclaw");
    command.args(["prompt", "--approve", "all"]).arg(format!("/run {} sleep 100", lifeline.held()));
    command.current_dir(lab.project()).kill_on_drop(true);
    let null = std::process::Stdio::null;
    command.stdin(null()).stdout(null()).stderr(null());
    let mut child = command.spawn().expect("zeroclaw starts");
    lifeline.started().await;
    child.kill().await.expect("it is killed");
    lifeline.gone().await;
    // The command is gone before the turn's end is stored; a session that can be loaded has been given up.
    let session = listed(&lab).await[0]["sessionId"].as_str().expect("an id").to_owned();
    let mut agent = lab.agent().await;
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while let Err(error) = agent.call("session/load", params.clone()).await {
        assert!(std::time::Instant::now() < limit, "the client's agent lives on: {error}");
        tokio::task::yield_now().await;
    }
    agent.close_stdin();
    assert!(agent.wait().await.success());
    assert_eq!(state_of(&lab, &session).await, "cancelled");
}

/// A session of a crashed process could not be looked at before somebody had loaded it.
#[tokio::test]
async fn rec_12_a_crashed_session_can_be_shown_before_it_is_repaired() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let (reply, _gate) = Reply::chunks(["half an ", "answer"]).gate(1);
    server.push(reply);
    agent.request("session/prompt", text_prompt(&session, "tell me")).await;
    agent.recv_until(|message| message["params"]["update"]["content"]["text"] == "half an ").await;
    agent.kill9().await;
    let shown = lab.command("zeroclaw").args(["sessions", "show", &session]).output().await.expect("zeroclaw runs");
    let text = String::from_utf8(shown.stdout).expect("UTF-8");
    assert!(shown.status.success() && text.contains("tell me") && text.contains("half an "), "{text}");
    // Nobody was changed by being looked at: the owner's death is still to be found out.
    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, &session, &lab.project()).await;
    assert!(is_interruption(replayed.last().expect("updates")), "{replayed:#?}");
}

/// A project that had been moved away made its session unreadable for ever.
#[tokio::test]
async fn rec_13_a_directory_that_is_gone_is_an_error_and_not_the_end() {
    let lab = Lab::new();
    let directory = lab.project().join("deep");
    std::fs::create_dir(&directory).expect("a directory");
    let mut agent = lab.agent().await;
    let session = new_session(&mut agent, &directory).await;
    prompt(&mut agent, &session, "/say 2").await;
    let live = seen(&agent, &session);
    agent.close_stdin();
    assert!(agent.wait().await.success());
    let away = lab.project().join("away");
    std::fs::rename(&directory, &away).expect("moved");

    let mut agent = lab.start();
    initialize(&mut agent).await;
    let params = json!({"sessionId": session, "cwd": directory, "mcpServers": []});
    let error = agent.call("session/load", params).await.expect_err("the directory is gone");
    assert_eq!(error["code"], -32602, "{error}");
    let shown = agent.call("session/list", json!({})).await.expect("session/list");
    assert_eq!(shown["sessions"][0]["sessionId"], session.as_str(), "{shown}");
    std::fs::rename(&away, &directory).expect("moved back");
    let replayed = load(&mut agent, &session, &directory).await;
    assert_same(&without_user(&replayed)[..live.len()], &live, "the replay");
    prompt(&mut agent, &session, "/say 1").await;
}
