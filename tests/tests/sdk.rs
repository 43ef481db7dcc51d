//! The official Rust SDK as the client. Its types are closed: an update, a status or an option it does not know is an error,
//! so whatever passes here is understood by every editor built on it.

use std::{
    io,
    process::Stdio,
    sync::{Arc, Mutex},
};

use agent_client_protocol::{
    Agent, Client, Error, Lines, on_receive_notification, on_receive_request,
    schema::ProtocolVersion,
    v1::{
        ConnectionTo,
        schema::{
            CancelNotification, CloseSessionRequest, ContentBlock, DeleteSessionRequest, InitializeRequest,
            ListSessionsRequest, LoadSessionRequest, NewSessionRequest, PermissionOptionKind, PromptRequest,
            PromptResponse, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
            ResumeSessionRequest, SelectedPermissionOutcome, SessionId, SessionNotification, SessionUpdate, StopReason,
            TextContent, ToolCallStatus,
        },
    },
};
use base64::Engine as _;
use futures::{StreamExt as _, sink, stream};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use zeroclaw_e2e::Lab;

/// What one connection of the SDK has seen.
#[derive(Clone, Default)]
struct Record {
    /// Every line of the agent as it came.
    lines: Arc<Mutex<Vec<String>>>,
    /// What the SDK's handlers were given.
    updates: Arc<Mutex<Vec<SessionUpdate>>>,
    asked: Arc<Mutex<Vec<RequestPermissionRequest>>>,
}

impl Record {
    fn updates(&self) -> Vec<SessionUpdate> {
        self.updates.lock().unwrap().clone()
    }

    /// Every notification and request of the agent parses in the SDK's types, and every one reached a handler.
    fn check(&self) {
        let (mut notified, mut asked) = (0, 0);
        for line in self.lines.lock().unwrap().iter() {
            let message: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let params = message["params"].clone();
            match message["method"].as_str() {
                Some("session/update") => {
                    let parsed = serde_json::from_value::<SessionNotification>(params.clone());
                    let parsed = parsed.unwrap_or_else(|error| panic!("{error}: {line}"));
                    kept(&params, &serde_json::to_value(&parsed).unwrap(), line);
                    notified += 1;
                }
                Some("session/request_permission") => {
                    let parsed = serde_json::from_value::<RequestPermissionRequest>(params.clone());
                    let parsed = parsed.unwrap_or_else(|error| panic!("{error}: {line}"));
                    kept(&params, &serde_json::to_value(&parsed).unwrap(), line);
                    asked += 1;
                }
                Some("$/cancel_request") | None => {}
                Some(other) => panic!("the SDK knows no `{other}`: {line}"),
            }
        }
        assert_eq!(notified, self.updates.lock().unwrap().len(), "an update did not reach its handler");
        assert_eq!(asked, self.asked.lock().unwrap().len(), "a request did not reach its handler");
    }
}

/// Nothing that was sent is lost in the SDK's types: whatever they do not know is dropped there.
fn kept(sent: &Value, read: &Value, line: &str) {
    match (sent, read) {
        (Value::Object(sent), Value::Object(read)) => {
            for (name, value) in sent {
                match read.get(name) {
                    Some(other) => kept(value, other, line),
                    // The types leave out what is equal to its default.
                    None => assert!(is_default(name, value), "`{name}` is not known to the SDK: {line}"),
                }
            }
        }
        (Value::Array(sent), Value::Array(read)) => {
            assert_eq!(sent.len(), read.len(), "{line}");
            sent.iter().zip(read).for_each(|(sent, read)| kept(sent, read, line));
        }
        (sent, read) => assert_eq!(sent, read, "{line}"),
    }
}

fn is_default(name: &str, value: &Value) -> bool {
    match name {
        "status" => value == "pending",
        "kind" => value == "other",
        _ => value.is_null() || value == &json!([]),
    }
}

/// Runs a client against a fresh agent process; the permission requests are answered with the first option of this kind.
async fn with_agent<R>(
    lab: &Lab,
    answer: PermissionOptionKind,
    record: &Record,
    main: impl AsyncFnOnce(ConnectionTo<Agent>) -> Result<R, Error>,
) -> R {
    run(lab, Some(answer), record, main).await
}

/// The same; without a kind the permission requests stay unanswered.
async fn run<R>(
    lab: &Lab,
    answer: Option<PermissionOptionKind>,
    record: &Record,
    main: impl AsyncFnOnce(ConnectionTo<Agent>) -> Result<R, Error>,
) -> R {
    let mut command = lab.command("zeroclaw-acp");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let mut child = command.spawn().expect("the agent starts");
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let outgoing = Box::pin(sink::unfold(input, async |mut input, line: String| {
        input.write_all(format!("{line}\n").as_bytes()).await?;
        input.flush().await?;
        Ok::<_, io::Error>(input)
    }));
    let lines = Arc::clone(&record.lines);
    let incoming = Box::pin(
        stream::unfold(BufReader::new(output).lines(), async |mut lines| {
            lines.next_line().await.transpose().map(|line| (line, lines))
        })
        .inspect(move |line| lines.lock().unwrap().extend(line.as_ref().ok().cloned())),
    );
    let (updates, asked) = (Arc::clone(&record.updates), Arc::clone(&record.asked));
    // A responder that is dropped answers with an error, so those without an answer are kept.
    let open = Mutex::new(Vec::new());
    let running = Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _| {
                updates.lock().unwrap().push(notification.update);
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _| {
                let option = request.options.iter().find(|option| Some(option.kind) == answer);
                let option = option.map(|option| option.option_id.clone());
                asked.lock().unwrap().push(request);
                let Some(option) = option else {
                    open.lock().unwrap().push(responder);
                    return Ok(());
                };
                let chosen = RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option));
                responder.respond(RequestPermissionResponse::new(chosen))
            },
            on_receive_request!(),
        )
        .connect_with(Lines::new(outgoing, incoming), main);
    let limit = std::time::Duration::from_secs(60);
    let result = tokio::time::timeout(limit, running).await.expect("the conversation ends");
    let result = result.unwrap_or_else(|error| panic!("{error:?}"));
    let status = tokio::time::timeout(limit, child.wait()).await.expect("the agent ends").expect("it can be awaited");
    assert!(status.success(), "{status}");
    result
}

async fn greet(agent: &ConnectionTo<Agent>) -> Result<(), Error> {
    let hello = agent.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await?;
    assert_eq!(hello.protocol_version, ProtocolVersion::V1);
    assert!(hello.agent_capabilities.load_session);
    assert!(hello.agent_capabilities.session_capabilities.list.is_some());
    assert!(hello.agent_capabilities.session_capabilities.resume.is_some());
    assert!(hello.agent_capabilities.session_capabilities.close.is_some());
    assert!(hello.agent_capabilities.session_capabilities.delete.is_some());
    assert_eq!(hello.agent_info.expect("agent info").name, "zeroclaw-acp");
    Ok(())
}

async fn ask(agent: &ConnectionTo<Agent>, session: &SessionId, text: &str) -> Result<PromptResponse, Error> {
    let prompt = vec![ContentBlock::Text(TextContent::new(text))];
    agent.send_request(PromptRequest::new(session.clone(), prompt)).block_task().await
}

fn texts(updates: &[SessionUpdate]) -> String {
    let chunks = updates.iter().filter_map(|update| match update {
        SessionUpdate::AgentMessageChunk(chunk) => Some(&chunk.content),
        _ => None,
    });
    chunks
        .filter_map(|content| if let ContentBlock::Text(text) = content { Some(text.text.as_str()) } else { None })
        .collect()
}

fn statuses(updates: &[SessionUpdate]) -> Vec<ToolCallStatus> {
    updates
        .iter()
        .filter_map(|update| match update {
            SessionUpdate::ToolCall(call) => Some(call.status),
            SessionUpdate::ToolCallUpdate(update) => update.fields.status,
            _ => None,
        })
        .collect()
}

async fn close(agent: &ConnectionTo<Agent>, session: &SessionId) -> Result<(), Error> {
    agent.send_request(CloseSessionRequest::new(session.clone())).block_task().await?;
    Ok(())
}

/// Without the slash commands, which are state of now and not part of a conversation.
fn history(updates: Vec<SessionUpdate>) -> Vec<SessionUpdate> {
    updates.into_iter().filter(|update| !matches!(update, SessionUpdate::AvailableCommandsUpdate(_))).collect()
}

fn without_user(updates: Vec<SessionUpdate>) -> Vec<SessionUpdate> {
    updates.into_iter().filter(|update| !matches!(update, SessionUpdate::UserMessageChunk(_))).collect()
}

/// An agent that worked with hand-written clients sent one field that the official types refuse, and editors stayed blank.
#[tokio::test]
async fn sdk_01_the_official_client_gets_through_a_whole_life() {
    let lab = Lab::new();
    lab.file("notes.txt", "remember the milk\n");
    let record = Record::default();
    let cwd = lab.project();
    let (session, live) = with_agent(&lab, PermissionOptionKind::AllowOnce, &record, async |agent| {
        greet(&agent).await?;
        let session = agent.send_request(NewSessionRequest::new(cwd.clone())).block_task().await?.session_id;

        let answer = ask(&agent, &session, "/say 5").await?;
        assert_eq!(answer.stop_reason, StopReason::EndTurn);
        assert_eq!(texts(&record.updates()), "chunk 1 chunk 2 chunk 3 chunk 4 chunk 5 ");

        let commands = "/think about it\n/plan one; two\n/read notes.txt\n/run echo hello > made.txt\n/write new.txt a text\n\
                        /edit notes.txt milk => bread\n/deliver notes.txt\n/read missing.txt";
        let answer = ask(&agent, &session, commands).await?;
        assert_eq!(answer.stop_reason, StopReason::EndTurn);

        let before = statuses(&record.updates()).len();
        let prompt = vec![ContentBlock::Text(TextContent::new("/run touch begun; sleep 3600"))];
        let running = agent.send_request(PromptRequest::new(session.clone(), prompt));
        let mut answer = std::pin::pin!(running.block_task());
        while !statuses(&record.updates())[before..].contains(&ToolCallStatus::InProgress) {
            let step = std::time::Duration::from_millis(1);
            assert!(tokio::time::timeout(step, &mut answer).await.is_err(), "the turn ended by itself");
        }
        agent.send_notification(CancelNotification::new(session.clone()))?;
        assert_eq!(answer.await?.stop_reason, StopReason::Cancelled);
        assert_eq!(statuses(&record.updates()).last(), Some(&ToolCallStatus::Failed));

        close(&agent, &session).await?;
        Ok((session, history(record.updates())))
    })
    .await;
    record.check();
    assert!(lab.project().join("made.txt").exists(), "the permitted command did not run");
    assert_eq!(std::fs::read_to_string(lab.project().join("notes.txt")).unwrap(), "remember the bread\n");
    let asked: Vec<_> = record.asked.lock().unwrap().iter().map(|asked| asked.tool_call.tool_call_id.clone()).collect();
    assert_eq!(asked.len(), 4, "the command, the new file, the change and the long command are asked about");
    let announced =
        |id| live.iter().any(|update| matches!(update, SessionUpdate::ToolCall(call) if call.tool_call_id == id));
    assert!(asked.into_iter().all(announced), "a question belongs to a call that was announced");
    assert!(statuses(&live).contains(&ToolCallStatus::Failed), "the missing file");
    assert!(live.iter().any(|update| matches!(update, SessionUpdate::Plan(_))));
    assert!(live.iter().any(|update| matches!(update, SessionUpdate::AgentThoughtChunk(_))));
    assert!(live.iter().any(|update| matches!(update, SessionUpdate::SessionInfoUpdate(_))));

    let again = Record::default();
    with_agent(&lab, PermissionOptionKind::AllowOnce, &again, async |agent| {
        greet(&agent).await?;
        let listed = agent.send_request(ListSessionsRequest::new().cwd(cwd.clone())).block_task().await?;
        assert_eq!(listed.sessions.len(), 1);
        assert_eq!((&listed.sessions[0].session_id, &listed.sessions[0].cwd), (&session, &cwd));
        assert_eq!(listed.sessions[0].title.as_deref(), Some("/say 5"));
        assert!(listed.sessions[0].updated_at.is_some());
        let elsewhere = agent.send_request(ListSessionsRequest::new().cwd(lab.home())).block_task().await?;
        assert_eq!(elsewhere.sessions, []);

        agent.send_request(LoadSessionRequest::new(session.clone(), cwd.clone())).block_task().await?;
        let replayed = history(again.updates());
        let users = replayed.iter().filter(|update| matches!(update, SessionUpdate::UserMessageChunk(_))).count();
        assert_eq!(users, 3);
        assert_eq!(without_user(replayed), live, "the replay is what was seen");
        close(&agent, &session).await?;

        again.updates.lock().unwrap().clear();
        again.lines.lock().unwrap().clear();
        agent.send_request(ResumeSessionRequest::new(session.clone(), cwd.clone())).block_task().await?;
        assert_eq!(history(again.updates()), [], "a resume replays nothing");
        ask(&agent, &session, "/say 1").await?;
        close(&agent, &session).await?;

        agent.send_request(DeleteSessionRequest::new(session.clone())).block_task().await?;
        let listed = agent.send_request(ListSessionsRequest::new()).block_task().await?;
        assert_eq!(listed.sessions, []);
        let load = agent.send_request(LoadSessionRequest::new(session.clone(), cwd.clone())).block_task().await;
        assert_eq!(load.expect_err("it is deleted").data.expect("data")["kind"], "session_not_found");
        Ok(())
    })
    .await;
    again.check();
}

/// A rejected call counted as allowed, or ended the turn.
#[tokio::test]
async fn sdk_02_a_rejected_call_fails_and_the_turn_goes_on() {
    let lab = Lab::new();
    let record = Record::default();
    with_agent(&lab, PermissionOptionKind::RejectOnce, &record, async |agent| {
        greet(&agent).await?;
        let session = agent.send_request(NewSessionRequest::new(lab.project())).block_task().await?.session_id;
        let answer = ask(&agent, &session, "/run touch made.txt\n/say 1").await?;
        assert_eq!(answer.stop_reason, StopReason::EndTurn);
        assert!(texts(&record.updates()).ends_with("chunk 1 "), "{}", texts(&record.updates()));
        close(&agent, &session).await
    })
    .await;
    record.check();
    assert_eq!(statuses(&record.updates()).last(), Some(&ToolCallStatus::Failed));
    assert!(!lab.project().join("made.txt").exists());
}

/// A cancel was answered with an error, or with `end_turn`, and the client could not tell what had happened.
#[tokio::test]
async fn sdk_03_a_cancelled_turn_says_cancelled() {
    let script = [
        json!({"type": "text", "text": "so far "}),
        json!({"type": "delay", "ms": 3_600_000}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "fine"}),
        json!({"type": "stop"}),
    ];
    let lab = Lab::scripted("full", &script);
    let record = Record::default();
    with_agent(&lab, PermissionOptionKind::AllowOnce, &record, async |agent| {
        greet(&agent).await?;
        let session = agent.send_request(NewSessionRequest::new(lab.project())).block_task().await?.session_id;
        let prompt = vec![ContentBlock::Text(TextContent::new("hello"))];
        let running = agent.send_request(PromptRequest::new(session.clone(), prompt));
        let mut answer = std::pin::pin!(running.block_task());
        // The handlers run beside this, so the first text is a matter of yielding to them.
        while texts(&record.updates()).is_empty() {
            let step = std::time::Duration::from_millis(1);
            assert!(tokio::time::timeout(step, &mut answer).await.is_err(), "the turn ended by itself");
        }
        agent.send_notification(CancelNotification::new(session.clone()))?;
        assert_eq!(answer.await?.stop_reason, StopReason::Cancelled);
        assert_eq!(ask(&agent, &session, "again").await?.stop_reason, StopReason::EndTurn);
        assert_eq!(texts(&record.updates()), "so far fine");
        close(&agent, &session).await
    })
    .await;
    record.check();
}

/// Usage, refusals and limits had names of their own.
#[tokio::test]
async fn sdk_04_every_stop_reason_and_update_is_official() {
    let script = [
        json!({"type": "thought", "text": "hm"}),
        json!({"type": "text", "text": "too lo"}),
        json!({"type": "usage", "input": 100, "output": 20, "cached": 10}),
        json!({"type": "stop", "reason": "max_tokens"}),
        json!({"type": "text", "text": "I will not."}),
        json!({"type": "stop", "reason": "refusal"}),
        json!({"type": "tool_call", "name": "shell", "arguments": {"command": "echo a; sleep 0; echo b >&2; exit 4"}}),
        json!({"type": "tool_call", "name": "no_such_tool", "arguments": {}}),
        json!({"type": "tool_call", "name": "file_read", "arguments": "{broken"}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "done"}),
        json!({"type": "stop"}),
    ];
    let lab = Lab::scripted("full", &script);
    let record = Record::default();
    with_agent(&lab, PermissionOptionKind::AllowOnce, &record, async |agent| {
        greet(&agent).await?;
        let session = agent.send_request(NewSessionRequest::new(lab.project())).block_task().await?.session_id;
        assert_eq!(ask(&agent, &session, "one").await?.stop_reason, StopReason::MaxTokens);
        assert_eq!(ask(&agent, &session, "two").await?.stop_reason, StopReason::Refusal);
        assert_eq!(ask(&agent, &session, "three").await?.stop_reason, StopReason::EndTurn);
        close(&agent, &session).await
    })
    .await;
    record.check();
    let failed = statuses(&record.updates()).into_iter().filter(|status| *status == ToolCallStatus::Failed).count();
    assert_eq!(failed, 3);
    assert!(record.updates().iter().any(|update| matches!(update, SessionUpdate::UsageUpdate(_))));
}

/// Errors that the official types cannot read ended the connection instead of the request.
#[tokio::test]
async fn sdk_05_errors_reach_the_caller_as_errors() {
    let lab = Lab::scripted("full", &[json!({"type": "error", "kind": "request", "message": "bad request"})]);
    let record = Record::default();
    with_agent(&lab, PermissionOptionKind::AllowOnce, &record, async |agent| {
        greet(&agent).await?;
        let unknown = SessionId::new("s-00000000000000000000000000");
        let error = ask(&agent, &unknown, "hello").await.expect_err("there is no such session");
        assert_eq!(error.data.expect("data")["kind"], "session_not_found");
        let error = agent
            .send_request(LoadSessionRequest::new(unknown, lab.project()))
            .block_task()
            .await
            .expect_err("there is no such session");
        assert_eq!(error.data.expect("data")["kind"], "session_not_found");
        let error = agent
            .send_request(NewSessionRequest::new("/does/not/exist"))
            .block_task()
            .await
            .expect_err("there is no such directory");
        assert_eq!(i32::from(error.code), -32602);
        let session = agent.send_request(NewSessionRequest::new(lab.project())).block_task().await?.session_id;
        let error = ask(&agent, &session, "hello").await.expect_err("the model failed");
        assert_eq!(i32::from(error.code), -32603);
        close(&agent, &session).await
    })
    .await;
    record.check();
}

/// A cancel while a question was open sent the client a notification that its types refused, and the turn hung.
#[tokio::test]
async fn sdk_06_a_cancel_takes_an_open_question_back() {
    let lab = Lab::new();
    let record = Record::default();
    run(&lab, None, &record, async |agent| {
        greet(&agent).await?;
        let session = agent.send_request(NewSessionRequest::new(lab.project())).block_task().await?.session_id;
        let prompt = vec![ContentBlock::Text(TextContent::new("/run touch made.txt"))];
        let running = agent.send_request(PromptRequest::new(session.clone(), prompt));
        let mut answer = std::pin::pin!(running.block_task());
        while record.asked.lock().unwrap().is_empty() {
            let step = std::time::Duration::from_millis(1);
            assert!(tokio::time::timeout(step, &mut answer).await.is_err(), "the turn ended by itself");
        }
        agent.send_notification(CancelNotification::new(session.clone()))?;
        assert_eq!(answer.await?.stop_reason, StopReason::Cancelled);
        assert_eq!(ask(&agent, &session, "/say 1").await?.stop_reason, StopReason::EndTurn);
        close(&agent, &session).await
    })
    .await;
    record.check();
    assert_eq!(statuses(&record.updates()).last(), Some(&ToolCallStatus::Failed));
    let withdrawn = record.lines.lock().unwrap().iter().filter(|line| line.contains("$/cancel_request")).count();
    assert_eq!(withdrawn, 1);
    assert!(!lab.project().join("made.txt").exists());
}

/// A result beyond the client's limit of a line took the connection down with it.
#[tokio::test]
async fn sdk_07_much_text_and_long_lines_come_whole() {
    let lab = Lab::new();
    let bytes: Vec<u8> = (0_u32..1 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    lab.file("big.bin", &bytes);
    let record = Record::default();
    with_agent(&lab, PermissionOptionKind::AllowOnce, &record, async |agent| {
        greet(&agent).await?;
        let session = agent.send_request(NewSessionRequest::new(lab.project())).block_task().await?.session_id;
        let flood = "/say 5000\n/run head -c 1048576 /dev/zero | tr '\\0' '\\001'\n/deliver big.bin";
        assert_eq!(ask(&agent, &session, flood).await?.stop_reason, StopReason::EndTurn);
        close(&agent, &session).await
    })
    .await;
    record.check();
    let said: String = (1..=5_000).map(|chunk| format!("chunk {chunk} ")).collect();
    assert!(texts(&record.updates()).contains(&said), "the text is not whole");
    assert_eq!(statuses(&record.updates()).iter().filter(|status| **status == ToolCallStatus::Completed).count(), 2);
    let delivered = json!(base64::engine::general_purpose::STANDARD.encode(&bytes));
    let updates: Vec<Value> = record.updates().iter().map(|update| serde_json::to_value(update).unwrap()).collect();
    let blobs = updates.iter().flat_map(|update| update["content"].as_array().cloned().unwrap_or_default());
    let blobs: Vec<Value> =
        blobs.map(|part| part["content"]["resource"]["blob"].clone()).filter(Value::is_string).collect();
    assert!(blobs == [delivered], "the file was not delivered whole");
}
