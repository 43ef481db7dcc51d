//! Whole turns over HTTP: what a vendor may do wrong, and what never leaves the process.

use std::time::Duration;

use serde_json::{Value, json};
use zeroclaw_e2e::{
    Lab, answer_text, prompt,
    replay::{assert_same, load, open_calls, seen, without_user},
    text_prompt,
};
use zeroclaw_testkit::{
    model_server::{ModelServer, Part, Reply},
    process::AgentProcess,
};

/// A key that would be noticed anywhere.
const KEY: &str = "sk-canary-7Qm2xv91LcZt";

fn anthropic(uri: &str) -> Lab {
    Lab::with_config(&format!(
        "[providers.models.anthropic.test]\nmodel = \"test-model\"\nuri = \"{uri}\"\napi_key = \"{KEY}\"\n\
         [agents.main]\nmodel_provider = \"anthropic.test\"\n[risk_profiles.default]\nlevel = \"full\"\n"
    ))
}

fn custom_with_key(uri: &str) -> Lab {
    Lab::with_config(&format!(
        "[providers.models.custom.test]\nmodel = \"test-model\"\nuri = \"{uri}\"\napi_key = \"{KEY}\"\n\
         [agents.main]\nmodel_provider = \"custom.test\"\n[risk_profiles.default]\nlevel = \"full\"\n"
    ))
}

/// Two model calls with a tool call between them.
async fn whole_turn(lab: &Lab, server: &ModelServer) -> AgentProcess {
    lab.file("notes.txt", "remember the milk\n");
    server.push(
        Reply::turn([
            Part::thought("I should look."),
            Part::text("Let me look. "),
            Part::tool_call("toolu_1", "file_read", json!({"path": "notes.txt"})),
            Part::Usage { input: 100, output: 10, cached: 20 },
        ])
        .fragment_arguments(3),
    );
    server.push(Reply::turn([
        Part::text("It says "),
        Part::text("milk 🥛."),
        Part::Usage { input: 150, output: 5, cached: 100 },
    ]));
    let (mut agent, session) = lab.session().await;
    let result = prompt(&mut agent, &session, "what do my notes say?").await;
    assert_eq!(result["stopReason"], "end_turn", "{result}");
    assert_eq!(result["content"], "It says milk 🥛.", "{result}");
    assert_eq!(answer_text(&agent.received()), "Let me look. It says milk 🥛.");
    assert_eq!(open_calls(&seen(&agent, &session)), Vec::<String>::new());
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[1].body["messages"].to_string().contains("remember the milk"), "{}", requests[1].body);
    assert_eq!(server.violations(), Vec::<String>::new());

    // A second turn shows that the vendor takes its own answers back.
    server.push(Reply::text("Nothing else."));
    let result = prompt(&mut agent, &session, "anything else?").await;
    assert_eq!(result["content"], "Nothing else.", "{result}");
    assert_eq!(server.violations(), Vec::<String>::new());
    agent
}

/// A gateway that speaks like OpenAI refused the second request of every turn with tools.
#[tokio::test]
async fn mdl_01_a_whole_turn_with_an_openai_compatible_server() {
    let server = ModelServer::start().await.require_key(KEY);
    let lab = custom_with_key(&server.openai_url());
    whole_turn(&lab, &server).await;
}

/// A base address without the final part of the path was asked at the wrong place.
#[tokio::test]
async fn mdl_02_a_whole_turn_with_anthropic() {
    let server = ModelServer::start().await.require_key(KEY);
    let lab = anthropic(&server.anthropic_url());
    whole_turn(&lab, &server).await;
    assert!(server.requests().iter().all(|request| request.path.starts_with("/v1/messages")));
}

/// The way users write the address (no version, no slash, a slash too many) decided whether anything worked.
#[tokio::test]
async fn mdl_03_the_address_may_be_written_with_and_without_the_final_slash() {
    for slash in ["", "/"] {
        let server = ModelServer::start().await.require_key(KEY);
        let lab = custom_with_key(&format!("{}{slash}", server.openai_url()));
        whole_turn(&lab, &server).await;
        let server = ModelServer::start().await.require_key(KEY);
        let lab = anthropic(&format!("{}{slash}", server.openai_url()));
        whole_turn(&lab, &server).await;
    }
}

/// A busy vendor ended the turn, although it had said when to come back.
#[tokio::test]
async fn mdl_04_a_busy_vendor_is_asked_again() {
    for anthropic_like in [false, true] {
        let server = ModelServer::start().await;
        let lab =
            if anthropic_like { anthropic(&server.anthropic_url()) } else { custom_with_key(&server.openai_url()) };
        server.push(Reply::status(429).retry_after("1"));
        server.push(Reply::status(if anthropic_like { 529 } else { 503 }).retry_after("0"));
        server.push(Reply::text("there I am"));
        let (mut agent, session) = lab.session().await;
        let result = prompt(&mut agent, &session, "hello").await;
        assert_eq!(result["content"], "there I am", "{result}");
        assert_eq!(answer_text(&agent.received()), "there I am");
        assert_eq!(server.requests().len(), 3);
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

/// What a model had said before its stream broke was thrown away, and the broken answer counted as a whole one.
#[tokio::test]
async fn mdl_05_an_error_in_mid_stream_keeps_what_was_said() {
    for anthropic_like in [false, true] {
        let server = ModelServer::start().await;
        let lab =
            if anthropic_like { anthropic(&server.anthropic_url()) } else { custom_with_key(&server.openai_url()) };
        let error = json!({"type": "server_error", "message": "the engine is on fire"});
        server.push(Reply::error_mid_stream([Part::text("The answer "), Part::text("is ")], error));
        let (mut agent, session) = lab.session().await;
        let failed = agent.call("session/prompt", text_prompt(&session, "the answer?")).await.expect_err("it broke");
        assert_eq!(failed["code"], -32603, "{failed}");
        assert!(failed.to_string().contains("the engine is on fire"), "the vendor's reason is missing: {failed}");
        let live = seen(&agent, &session);
        assert_eq!(answer_text(&agent.received()), "The answer is ");
        assert_eq!(server.requests().len(), 1, "text was shown already, so a second try would repeat it");

        // The session goes on, and the model knows what it had said.
        server.push(Reply::text("42"));
        prompt(&mut agent, &session, "go on").await;
        assert!(
            server.requests()[1].body["messages"].to_string().contains("The answer is"),
            "{:?}",
            server.requests()[1]
        );
        assert_eq!(server.violations(), Vec::<String>::new());
        agent.kill9().await;
        let mut agent = lab.agent().await;
        let replayed = load(&mut agent, &session, &lab.project()).await;
        let answers = without_user(&replayed);
        assert_same(&answers[..live.len()], &live, "the failed turn in the replay");
    }
}

/// A connection that closed in mid-answer counted as a regular end.
#[tokio::test]
async fn mdl_06_a_cut_stream_is_an_error() {
    for anthropic_like in [false, true] {
        for clean in [false, true] {
            let server = ModelServer::start().await;
            let lab =
                if anthropic_like { anthropic(&server.anthropic_url()) } else { custom_with_key(&server.openai_url()) };
            let reply = Reply::cut_after([Part::text("half an ans")]);
            server.push(if clean { reply.clean_cut() } else { reply });
            let (mut agent, session) = lab.session().await;
            let answer = agent.call("session/prompt", text_prompt(&session, "hello")).await;
            let failed = answer.expect_err("half an answer is not an answer");
            assert_eq!(failed["code"], -32603, "{failed}");
            assert_eq!(answer_text(&agent.received()), "half an ans");
        }
    }
}

/// A wrong key showed as an internal error, and users looked for a fault in the program.
#[tokio::test]
async fn mdl_07_a_refused_key_says_so() {
    for anthropic_like in [false, true] {
        let server = ModelServer::start().await.require_key("another key");
        let lab =
            if anthropic_like { anthropic(&server.anthropic_url()) } else { custom_with_key(&server.openai_url()) };
        let (mut agent, session) = lab.session().await;
        let failed = agent.call("session/prompt", text_prompt(&session, "hello")).await.expect_err("refused");
        assert_eq!(failed["data"]["kind"], "auth_required", "{failed}");
        assert_eq!(server.requests().len(), 1, "a refused key is not tried again");
        assert!(!failed.to_string().contains(KEY), "{failed}");
    }
}

/// A vendor that sent its headers and then nothing held the turn, and cancelling waited for the vendor.
#[tokio::test]
async fn mdl_08_a_silent_vendor_can_be_cancelled() {
    let server = ModelServer::start().await;
    let lab = custom_with_key(&server.openai_url());
    server.push(Reply::hang_after_headers());
    let (agent, session) = lab.session().await;
    let mut agent = agent.with_limit(Duration::from_secs(20));
    let request = agent.request("session/prompt", text_prompt(&session, "hello")).await;
    server.wait_for_requests(1).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let result = agent.response(&request).await.expect("a result");
    assert_eq!(result["stopReason"], "cancelled", "{result}");
    server.wait_for_aborted(1).await;
    server.push(Reply::text("back"));
    assert_eq!(prompt(&mut agent, &session, "still there?").await["content"], "back");
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A vendor that says nothing for longer than is configured held the turn for ever.
#[tokio::test]
async fn mdl_09_a_silent_vendor_is_given_up() {
    let server = ModelServer::start().await;
    let lab = Lab::with_config(&format!(
        "[providers.models.custom.test]\nmodel = \"test-model\"\nuri = \"{}\"\nidle_timeout_secs = 1\n\
         [agents.main]\nmodel_provider = \"custom.test\"\n",
        server.openai_url()
    ));
    for _ in 0..10 {
        server.push(Reply::hang_after_headers());
    }
    let (mut agent, session) = lab.session().await;
    let failed = agent.call("session/prompt", text_prompt(&session, "hello")).await.expect_err("nothing came");
    assert_eq!(failed["code"], -32603, "{failed}");
}

/// A finish reason on a connection that stays open left the turn hanging.
#[tokio::test]
async fn mdl_10_the_finish_reason_ends_the_turn() {
    let server = ModelServer::start().await;
    let lab = custom_with_key(&server.openai_url());
    server.push(Reply::chunks(["all ", "said"]).no_done().keep_open_after_finish());
    let (agent, session) = lab.session().await;
    let mut agent = agent.with_limit(Duration::from_secs(20));
    assert_eq!(prompt(&mut agent, &session, "hello").await["content"], "all said");
}

/// Everything that leaves the process or stays behind it, as one text.
fn traces(lab: &Lab, agent: &AgentProcess) -> Vec<(String, Vec<u8>)> {
    let mut traces = vec![("stderr".to_owned(), agent.stderr_text().into_bytes())];
    for entry in agent.transcript() {
        traces.push(("the wire".to_owned(), entry.line.clone().into_bytes()));
    }
    let mut directories = vec![lab.home(), lab.project()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a readable directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.file_name().is_some_and(|name| name != "config.toml") {
                traces.push((path.display().to_string(), std::fs::read(&path).expect("a readable file")));
            }
        }
    }
    traces
}

fn contains(bytes: &[u8], wanted: &str) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted.as_bytes())
}

/// Keys turned up in debug logs, in error messages that repeated the vendor's, and in the environment of commands.
#[tokio::test]
async fn mdl_11_the_key_is_nowhere_but_in_the_request() {
    const FROM_ENVIRONMENT: &str = "sk-canary-environment-4Rw8";
    let server = ModelServer::start().await.require_key(KEY);
    let lab = custom_with_key(&server.openai_url());
    let log = lab.home().join("trace.log");
    let mut command = lab.command("zeroclaw-acp");
    command.args(["--log-level", "trace", "--log-file"]).arg(&log);
    command.env("OPENAI_API_KEY", FROM_ENVIRONMENT).env("ANTHROPIC_API_KEY", FROM_ENVIRONMENT);
    command.env("ZEROCLAW_providers__models__openai__other__api_key", FROM_ENVIRONMENT);
    let mut agent = AgentProcess::spawn(command);
    zeroclaw_e2e::initialize(&mut agent).await;
    let session = zeroclaw_e2e::new_session(&mut agent, &lab.project()).await;
    server.push(Reply::tool_call("c1", "shell", json!({"command": "env; echo end of env"})));
    server.push(Reply::text("done"));
    prompt(&mut agent, &session, "show me your environment").await;
    let shown = agent.received().iter().map(Value::to_string).collect::<String>();
    assert!(shown.contains("end of env") && shown.contains("PATH="), "the command did not show its environment");

    // Vendors repeat the key in the refusal.
    let echo = format!("Incorrect API key provided: {KEY}. You can find your key on the page.");
    for status in [401, 400, 403] {
        let body = json!({"error": {"message": echo, "type": "invalid_request_error", "code": "invalid_api_key"}});
        server.push(Reply::status(status).body(body));
        agent.call("session/prompt", text_prompt(&session, "again")).await.expect_err("refused");
    }
    server.push(Reply::error_mid_stream([Part::text("so far ")], json!({"type": "server_error", "message": echo})));
    agent.call("session/prompt", text_prompt(&session, "again")).await.expect_err("it broke");
    agent.close_stdin();
    assert!(agent.wait().await.success());

    assert!(server.requests().iter().all(|request| request.header("authorization") == Some(&format!("Bearer {KEY}"))));
    assert!(std::fs::metadata(&log).expect("a log").len() > 0, "nothing was logged");
    for (place, bytes) in traces(&lab, &agent) {
        for secret in [KEY, FROM_ENVIRONMENT] {
            let shown = String::from_utf8_lossy(&bytes);
            assert!(
                !contains(&bytes, secret),
                "{place} holds the key:\n{}",
                &shown.chars().take(2000).collect::<String>()
            );
        }
    }
}

/// Prompts and answers stood in the log of a support case.
#[tokio::test]
async fn mdl_12_no_message_body_is_logged_at_any_level() {
    let server = ModelServer::start().await;
    let lab = custom_with_key(&server.openai_url());
    let mut command = lab.command("zeroclaw-acp");
    command.args(["--log-level", "trace"]);
    let mut agent = AgentProcess::spawn(command);
    zeroclaw_e2e::initialize(&mut agent).await;
    let session = zeroclaw_e2e::new_session(&mut agent, &lab.project()).await;
    server.push(Reply::turn([
        Part::text("canary-answer "),
        Part::tool_call("c1", "shell", json!({"command": "echo canary-$((40+2))-output"})),
    ]));
    server.push(Reply::text("done"));
    prompt(&mut agent, &session, "canary-prompt").await;
    agent.close_stdin();
    assert!(agent.wait().await.success());
    let log = agent.stderr_text();
    for body in ["canary-answer", "canary-prompt", "canary-42-output"] {
        assert!(!log.contains(body), "the log holds {body}");
    }
}

/// A turn that waited to try again could not be cancelled before the wait was over.
#[tokio::test]
async fn mdl_13_the_wait_for_a_busy_vendor_can_be_cancelled() {
    let server = ModelServer::start().await;
    let lab = custom_with_key(&server.openai_url());
    server.push(Reply::status(429).retry_after("25"));
    let (agent, session) = lab.session().await;
    let mut agent = agent.with_limit(Duration::from_secs(20));
    let request = agent.request("session/prompt", text_prompt(&session, "hello")).await;
    server.wait_for_completed(1).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(agent.response(&request).await.expect("a result")["stopReason"], "cancelled");
    server.push(Reply::text("back"));
    assert_eq!(prompt(&mut agent, &session, "again").await["content"], "back");
    assert_eq!(server.requests().len(), 2, "the cancelled call was tried again");
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A vendor that asked for days of patience got them.
#[tokio::test]
async fn mdl_14_a_wait_of_days_is_an_error_with_the_vendors_words() {
    let server = ModelServer::start().await;
    let lab = custom_with_key(&server.openai_url());
    let body = json!({"error": {"type": "insufficient_quota", "message": "the quota is used up until next month"}});
    for _ in 0..8 {
        server.push(Reply::status(429).retry_after("1382400").body(body.clone()));
    }
    let (agent, session) = lab.session().await;
    let mut agent = agent.with_limit(Duration::from_secs(20));
    let failed = agent.call("session/prompt", text_prompt(&session, "hello")).await.expect_err("no quota");
    assert_eq!(failed["code"], -32603, "{failed}");
    assert!(failed.to_string().contains("the quota is used up until next month"), "{failed}");
}

/// A key, or a password in the address, was sent on to wherever a redirect pointed, or shown in an error.
#[tokio::test]
async fn mdl_15_a_redirect_takes_no_key_along() {
    let (server, stranger) = (ModelServer::start().await, ModelServer::start().await);
    let lab = custom_with_key(&server.openai_url());
    let elsewhere = format!("{}/chat/completions", stranger.openai_url());
    server.push(Reply::status(307).header("Location", &elsewhere));
    let (mut agent, session) = lab.session().await;
    agent.call("session/prompt", text_prompt(&session, "hello")).await.expect_err("the vendor gave no answer");
    assert_eq!(stranger.requests().len(), 0, "the conversation went to a stranger");
}

/// The address of a vendor stood in its errors, with the password that was part of it.
#[tokio::test]
async fn mdl_16_a_password_in_the_address_is_not_shown() {
    // A port that was free a moment ago: nothing listens there.
    let gone = ModelServer::start().await.base_url();
    let gone = gone.trim_start_matches("http://");
    let families = [("custom", "/v1"), ("anthropic", ""), ("gemini", "/v1beta"), ("ollama", "")];
    let tries =
        families.map(|(family, path)| nothing_is_shown(family, format!("http://user:canary-pass@{gone}{path}")));
    futures::future::join_all(tries).await;
}

/// A prompt to a vendor that is not there, with a password in its address.
async fn nothing_is_shown(family: &str, uri: String) {
    let lab = Lab::with_config(&format!(
        "[providers.models.{family}.test]\nmodel = \"test-model\"\nuri = \"{uri}\"\napi_key = \"{KEY}\"\n\
         [agents.main]\nmodel_provider = \"{family}.test\"\n"
    ));
    let log = lab.home().join("trace.log");
    let mut command = lab.command("zeroclaw-acp");
    command.args(["--log-level", "trace", "--log-file"]).arg(&log);
    let mut agent = AgentProcess::spawn(command);
    zeroclaw_e2e::initialize(&mut agent).await;
    let session = zeroclaw_e2e::new_session(&mut agent, &lab.project()).await;
    let failed = agent.call("session/prompt", text_prompt(&session, "hello")).await;
    failed.expect_err("nobody listens there");
    agent.close_stdin();
    assert!(agent.wait().await.success());
    for (place, bytes) in traces(&lab, &agent) {
        for secret in [KEY, "canary-pass"] {
            let shown: String = String::from_utf8_lossy(&bytes).chars().take(2000).collect();
            assert!(!contains(&bytes, secret), "{family}: {place} holds {secret}:\n{shown}");
        }
    }
}

/// Counts of a vendor that are too large to be added up panicked in a build with checks: the prompt was never answered and
/// the session was gone.
#[tokio::test]
async fn absurd_token_counts_cost_no_answer() {
    let counted = json!({"type": "usage", "input": u64::MAX, "output": u64::MAX});
    let lab = Lab::scripted("full", &[json!({"type": "text", "text": "hello"}), counted, json!({"type": "stop"})]);
    let (mut agent, session) = lab.session().await;
    let result = prompt(&mut agent, &session, "go").await;
    assert_eq!((&result["content"], &result["usage"]["totalTokens"]), (&json!("hello"), &json!(u64::MAX)), "{result}");
}
