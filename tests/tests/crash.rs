//! What is left after the process dies in the middle: everything the client saw, and a session that goes on.

use serde_json::{Value, json};
use zeroclaw_e2e::{
    Lab, Lifeline, answer_text, content_text, prompt,
    replay::{assert_same, kind, load, open_calls, seen, text, value, without_user},
    text_prompt,
};
use zeroclaw_testkit::{
    model_server::{ModelServer, Part, Reply},
    process::AgentProcess,
};

/// Whether this is the message that tells about the interruption.
fn is_interruption(update: &str) -> bool {
    kind(update) == "agent_message_chunk" && text(update).contains("interrupted")
}

/// Reads on until an update of this kind satisfies `pred`.
async fn until(agent: &mut AgentProcess, kind: &str, mut pred: impl FnMut(&Value) -> bool) {
    agent
        .recv_until(|message| {
            let update = &message["params"]["update"];
            update["sessionUpdate"] == kind && pred(update)
        })
        .await;
}

async fn until_text(agent: &mut AgentProcess, wanted: &str) {
    until(agent, "agent_message_chunk", |update| update["content"]["text"] == wanted).await;
}

/// The text of a message in a model request.
fn said(message: &Value) -> String {
    content_text(&message["content"])
}

/// Prompts after a crash and returns the messages that the model was given.
async fn goes_on(agent: &mut AgentProcess, session: &str, server: &ModelServer) -> Vec<Value> {
    server.push(Reply::text("going on"));
    let result = prompt(agent, session, "go on").await;
    assert_eq!(result["stopReason"], "end_turn", "{result}");
    assert_eq!(result["content"], "going on", "{result}");
    assert_eq!(server.violations(), Vec::<String>::new());
    let last = server.requests().pop().expect("the model was asked");
    last.body["messages"].as_array().expect("messages").clone()
}

/// What the store says about the last turn.
async fn stored_state(lab: &Lab, session: &str) -> String {
    let output = lab.command("zeroclaw").args(["sessions", "list", "--json"]).output().await.expect("zeroclaw runs");
    assert!(output.status.success(), "{output:?}");
    let listing = String::from_utf8(output.stdout).expect("UTF-8");
    let sessions = listing.lines().map(|line| serde_json::from_str::<Value>(line).expect("one JSON object a line"));
    let found = sessions.filter(|entry| entry["sessionId"] == session).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{listing}");
    found[0]["state"].as_str().expect("a state").to_owned()
}

/// A half-finished answer was gone after a crash: the client had shown it, the store had never heard of it.
#[tokio::test]
async fn crs_01_killed_in_mid_stream_keeps_every_update_seen() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let chunks = ["Hello ", "wörld 漢字🙂 ", "\u{2028}line\\\"\t", "never sent"];
    let (reply, gate) =
        Reply::turn([Part::thought("let me see ")].into_iter().chain(chunks.iter().map(|chunk| Part::text(*chunk))))
            .gate(4);
    server.push(reply);
    agent.request("session/prompt", text_prompt(&session, "tell me")).await;
    gate.reached().await;
    until_text(&mut agent, chunks[2]).await;
    let before = seen(&agent, &session);
    agent.kill9().await;
    assert_eq!(before.len(), 4, "{before:#?}");

    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, &session, &lab.project()).await;
    assert_eq!(kind(&replayed[0]), "user_message_chunk");
    assert_eq!(text(&replayed[0]), "tell me");
    let (after, interruption) = replayed[1..].split_at(before.len());
    assert_same(after, &before, "the replay after the crash");
    assert_eq!(interruption.len(), 1, "{interruption:#?}");
    assert!(is_interruption(&interruption[0]), "{interruption:#?}");

    let messages = goes_on(&mut agent, &session, &server).await;
    let roles: Vec<_> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    let partial = said(&messages[2]);
    assert!(partial.contains("Hello wörld 漢字🙂"), "the model does not know what it had said: {partial}");
    assert!(partial.contains("interrupted"), "{partial}");
}

/// A crash was repaired once more at every load: each time the transcript grew by another notice.
#[tokio::test]
async fn crs_02_an_interruption_is_told_once() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let (reply, _gate) = Reply::chunks(["half", " an answer"]).gate(1);
    server.push(reply);
    agent.request("session/prompt", text_prompt(&session, "tell me")).await;
    until_text(&mut agent, "half").await;
    agent.kill9().await;

    let mut first = lab.agent().await;
    let once = load(&mut first, &session, &lab.project()).await;
    first.kill9().await;
    let mut second = lab.agent().await;
    let twice = load(&mut second, &session, &lab.project()).await;
    assert_same(&twice, &once, "the second load");
    second.close_stdin();
    assert!(second.wait().await.success());
    assert_eq!(stored_state(&lab, &session).await, "interrupted");
    let mut third = lab.agent().await;
    let messages = goes_on_after_load(&mut third, &session, &lab, &server, &once).await;
    let notices = messages.iter().filter(|message| said(message).contains("interrupted")).count();
    assert_eq!(notices, 1, "{messages:#?}");
}

async fn goes_on_after_load(
    agent: &mut AgentProcess,
    session: &str,
    lab: &Lab,
    server: &ModelServer,
    expected: &[String],
) -> Vec<Value> {
    let replayed = load(agent, session, &lab.project()).await;
    assert_same(&replayed, expected, "a later load");
    goes_on(agent, session, server).await
}

/// Starts a turn whose shell command runs in two processes, and returns the lifeline of both.
async fn running_command(lab: &Lab, agent: &mut AgentProcess, session: &str, server: &ModelServer) -> Lifeline {
    let mut lifeline = Lifeline::new(&lab.project().join("alive"));
    let command = format!("{} echo running; (sleep 300; true)", lifeline.held());
    server.push(Reply::turn([
        Part::text("I run it. "),
        Part::tool_call("call_shell", "shell", json!({"command": command})),
    ]));
    agent.request("session/prompt", text_prompt(session, "run it")).await;
    lifeline.started().await;
    until(agent, "tool_call_update", |update| update["content"][0]["content"]["text"] == "running\n").await;
    lifeline
}

/// A tool call that ran when the agent died stayed "in progress" for ever, and the vendor refused the conversation
/// because the call had no result.
#[tokio::test]
async fn crs_03_killed_during_a_shell_call() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let _lifeline = running_command(&lab, &mut agent, &session, &server).await;
    let before = seen(&agent, &session);
    agent.kill9().await;
    assert_eq!(open_calls(&before).len(), 1, "{before:#?}");

    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, &session, &lab.project()).await;
    let answers = without_user(&replayed);
    assert_same(&answers[..before.len()], &before, "the replay after the crash");
    assert_eq!(open_calls(&replayed), Vec::<String>::new(), "{replayed:#?}");
    let end = &answers[answers.len() - 2..];
    let (failed, call) = (value(&end[0]), &open_calls(&before)[0]);
    assert_eq!(failed["sessionUpdate"], "tool_call_update", "{end:#?}");
    assert_eq!(failed["toolCallId"], call.as_str());
    assert_eq!(failed["status"], "failed");
    assert!(is_interruption(&end[1]), "{end:#?}");

    let messages = goes_on(&mut agent, &session, &server).await;
    let result = messages.iter().find(|message| message["role"] == "tool").expect("the call has a result");
    assert_eq!(result["tool_call_id"], "call_shell");
    assert!(said(result).contains("interrupted"), "{result}");
}

/// Commands of a dead agent went on for days, and nobody was left to stop them.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn crs_04_no_command_outlives_a_killed_agent() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let mut alive = running_command(&lab, &mut agent, &session, &server).await;
    agent.kill9().await;
    alive.gone().await;
}

/// The question for a permission died with the agent; after the restart the call hung as pending.
#[tokio::test]
async fn crs_05_killed_with_a_permission_pending() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("supervised", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    server.push(Reply::turn([
        Part::text("I write it. "),
        Part::tool_call("call_write", "file_write", json!({"path": "new.txt", "content": "x"})),
    ]));
    agent.request("session/prompt", text_prompt(&session, "write it")).await;
    agent.recv_until(|message| message["method"] == "session/request_permission").await;
    let before = seen(&agent, &session);
    agent.kill9().await;

    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, &session, &lab.project()).await;
    let answers = without_user(&replayed);
    assert_same(&answers[..before.len()], &before, "the replay after the crash");
    assert_eq!(open_calls(&replayed), Vec::<String>::new(), "{replayed:#?}");
    assert!(is_interruption(answers.last().expect("updates")), "{answers:#?}");
    assert!(!lab.project().join("new.txt").exists(), "a call that nobody allowed has run");
    goes_on(&mut agent, &session, &server).await;
    let asked = agent.received().into_iter().filter(|message| message["method"] == "session/request_permission");
    assert_eq!(asked.count(), 0, "the question of a dead turn was asked again");
}

/// The answer of a turn was sent before it was on disk: a crash right after it lost the turn.
#[tokio::test]
async fn crs_06_killed_right_after_the_response() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    lab.file("notes.txt", "remember the milk\n");
    let (mut agent, session) = lab.session().await;
    let mut known: Vec<String> = Vec::new();
    for round in 0..5 {
        let call = json!({"path": "notes.txt"});
        server.push(Reply::turn([Part::text("reading "), Part::tool_call(format!("c{round}"), "file_read", call)]));
        server.push(Reply::chunks(["it says ".to_owned(), format!("milk, round {round}")]));
        let line = agent.transcript().len();
        prompt(&mut agent, &session, &format!("question {round}")).await;
        let fresh = zeroclaw_e2e::replay::seen_since(&agent, &session, line);
        agent.kill9().await;
        agent = lab.agent().await;
        let replayed = load(&mut agent, &session, &lab.project()).await;
        known.extend(fresh);
        assert_same(&without_user(&replayed), &known, &format!("round {round}"));
        assert_eq!(replayed.iter().filter(|update| kind(update) == "user_message_chunk").count(), round + 1);
    }
    let messages = goes_on(&mut agent, &session, &server).await;
    for round in 0..5 {
        assert!(messages.iter().any(|message| said(message) == format!("question {round}")), "{messages:#?}");
        assert!(messages.iter().any(|message| said(message).contains(&format!("milk, round {round}"))));
    }
}

/// A small generator of numbers: the rounds are random and the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        // Numerical Recipes' constants; the upper bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit as u64).expect("below a usize")
    }
}

/// What the last answer of every turn ends with, also of a turn that takes the replies its killed predecessor left.
const END: &str = "the end";

/// A store that survived one crash did not survive the fifteenth: each round ends at another point of a turn.
#[tokio::test]
async fn crs_07_fifteen_kills_at_random_points() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    lab.file("notes.txt", "remember the milk\n".repeat(50));
    let mut dice = Dice(0x5eed_0001);
    let (mut agent, session) = lab.session().await;
    let mut history: Vec<String> = Vec::new();
    for round in 0..15 {
        let words = 1 + dice.below(40);
        let chunks = (0..words).map(|word| Part::text(format!("r{round}w{word} ")));
        let call = Part::tool_call(format!("call_{round}"), "file_read", json!({"path": "notes.txt"}));
        server.push(Reply::turn(
            [Part::thought(format!("thinking about {round}"))].into_iter().chain(chunks).chain([call]),
        ));
        server.push(Reply::chunks((0..words).map(|word| format!("s{round}w{word} ")).chain([END.to_owned()])));
        let reads = dice.below(2 * words + 8);
        let line = agent.transcript().len();
        let request = agent.request("session/prompt", text_prompt(&session, &format!("question {round}"))).await;
        agent.flush().await;
        let mut answered = false;
        for _ in 0..reads {
            let message = agent.next().await;
            if message["id"] == *request.id() {
                answered = true;
                break;
            }
        }
        let fresh = zeroclaw_e2e::replay::seen_since(&agent, &session, line);
        agent.kill9().await;

        agent = lab.agent().await;
        let replayed = load(&mut agent, &session, &lab.project()).await;
        assert!(replayed.len() >= history.len(), "round {round}: the replay became shorter");
        assert_same(&replayed[..history.len()], &history, &format!("round {round}, what earlier rounds left"));
        let news = &replayed[history.len()..];
        if news.is_empty() {
            assert!(fresh.is_empty(), "round {round}: updates were seen and are gone: {fresh:#?}");
        } else {
            let (question, answers) = news.split_first().expect("a question");
            assert_eq!(text(question), format!("question {round}"), "round {round}");
            assert!(answers.len() >= fresh.len(), "round {round}: seen {fresh:#?}, replayed {answers:#?}");
            assert_same(&answers[..fresh.len()], &fresh, &format!("round {round}, what was seen"));
            let interrupted = answers.last().is_some_and(|update| is_interruption(update));
            assert!(!(answered && interrupted), "round {round}: an answered turn counts as interrupted");
            let finished = answers.iter().any(|update| text(update) == END);
            assert!(finished || interrupted, "round {round}: neither finished nor interrupted: {answers:#?}");
        }
        assert_eq!(open_calls(&replayed), Vec::<String>::new(), "round {round}");
        history = replayed;
    }
    // What killed rounds never asked for is still in the queue and answers first.
    while server.unused_replies() > 0 {
        prompt(&mut agent, &session, "use it up").await;
    }
    goes_on(&mut agent, &session, &server).await;
}

/// The end of input ended the process at once: the last answer was lost and the turn looked like a crash.
#[tokio::test]
async fn crs_08_end_of_input_in_mid_turn_is_a_cancel() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let (reply, _gate) = Reply::chunks(["half ", "an answer"]).gate(1);
    server.push(reply);
    let request = agent.request("session/prompt", text_prompt(&session, "tell me")).await;
    until_text(&mut agent, "half ").await;
    agent.close_stdin();
    assert!(agent.wait().await.success(), "{}", agent.stderr_text());
    let result = agent.response(&request).await.expect("a cancelled turn has a result");
    assert_eq!(result["stopReason"], "cancelled", "{result}");
    cancelled_and_whole(&lab, &server, &agent, &session).await;
}

/// A service manager's SIGTERM left the turn open and the exit code of a signal.
#[cfg(unix)]
#[tokio::test]
async fn crs_09_sigterm_in_mid_turn_is_a_cancel() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let (reply, _gate) = Reply::chunks(["half ", "an answer"]).gate(1);
    server.push(reply);
    let request = agent.request("session/prompt", text_prompt(&session, "tell me")).await;
    until_text(&mut agent, "half ").await;
    agent.terminate();
    assert!(agent.wait().await.success(), "{}", agent.stderr_text());
    let result = agent.response(&request).await.expect("a cancelled turn has a result");
    assert_eq!(result["stopReason"], "cancelled", "{result}");
    cancelled_and_whole(&lab, &server, &agent, &session).await;
}

async fn cancelled_and_whole(lab: &Lab, server: &ModelServer, agent: &AgentProcess, session: &str) {
    let before = seen(agent, session);
    assert_eq!(stored_state(lab, session).await, "cancelled");
    let mut agent = lab.agent().await;
    let replayed = load(&mut agent, session, &lab.project()).await;
    // What the ending process still said may be more than was read, never less.
    let answers = without_user(&replayed);
    assert_same(&answers[..before.len()], &before, "the replay after the end");
    assert!(!answers.iter().any(|update| is_interruption(update)), "{answers:#?}");
    assert_eq!(open_calls(&replayed), Vec::<String>::new());
    goes_on(&mut agent, session, server).await;
}

/// A SIGTERM during a command left the command running and its call open.
#[cfg(unix)]
#[tokio::test]
async fn crs_10_sigterm_during_a_shell_call_ends_the_command() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let mut alive = running_command(&lab, &mut agent, &session, &server).await;
    agent.terminate();
    assert!(agent.wait().await.success(), "{}", agent.stderr_text());
    alive.gone().await;
    assert_eq!(open_calls(&seen(&agent, &session)), Vec::<String>::new(), "the client still shows the call as running");
    cancelled_and_whole(&lab, &server, &agent, &session).await;
}

/// The end of input during a command left it running without a parent.
#[tokio::test]
async fn crs_11_end_of_input_during_a_shell_call_ends_the_command() {
    let server = ModelServer::start().await;
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let mut alive = running_command(&lab, &mut agent, &session, &server).await;
    agent.close_stdin();
    assert!(agent.wait().await.success(), "{}", agent.stderr_text());
    alive.gone().await;
    cancelled_and_whole(&lab, &server, &agent, &session).await;
}

/// A prompt that was written right before the end of input was thrown away unanswered.
#[tokio::test]
async fn crs_12_a_prompt_at_the_end_of_input_is_answered() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let request = agent.request("session/prompt", text_prompt(&session, "/say 3")).await;
    agent.close_stdin();
    assert!(agent.wait().await.success(), "{}", agent.stderr_text());
    let result = agent.response(&request).await.expect("the prompt has a result");
    assert!(matches!(result["stopReason"].as_str(), Some("end_turn" | "cancelled")), "{result}");
    let said = answer_text(&agent.received());
    let content = result["content"].as_str().expect("content");
    assert!(content.starts_with(said.as_str()) || said.starts_with(content), "{content:?} and {said:?}");
}
