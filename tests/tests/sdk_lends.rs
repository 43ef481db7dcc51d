//! The official Rust SDK as a client that lends its files and its terminals.

use std::{
    io,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use agent_client_protocol::{
    Client, Lines, on_receive_notification, on_receive_request,
    schema::ProtocolVersion,
    v1::schema::{
        ClientCapabilities, ContentBlock, CreateTerminalRequest, CreateTerminalResponse, FileSystemCapabilities,
        InitializeRequest, NewSessionRequest, PromptRequest, ReadTextFileRequest, ReadTextFileResponse,
        ReleaseTerminalRequest, ReleaseTerminalResponse, SessionNotification, SessionUpdate, StopReason,
        TerminalExitStatus, TerminalOutputRequest, TerminalOutputResponse, TextContent, ToolCallContent,
        WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
    },
};
use futures::{sink, stream};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use zeroclaw_e2e::Lab;

/// What the client was asked, in words, and what it was shown.
#[derive(Clone, Default)]
struct Seen {
    asked: Arc<Mutex<Vec<String>>>,
    updates: Arc<Mutex<Vec<SessionUpdate>>>,
}

impl Seen {
    fn note(&self, what: impl Into<String>) {
        self.asked.lock().unwrap().push(what.into());
    }
}

#[tokio::test]
async fn the_official_client_lends_its_files_and_terminals() {
    let lab = edits_and_makes();
    let path = lab.file("a.txt", "saved\n");
    let mut command = lab.command("zeroclaw-acp");
    command.env("ZEROCLAW_acp__client_terminal", "true");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let mut child = command.spawn().expect("the agent starts");
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let outgoing = Box::pin(sink::unfold(input, async |mut input, line: String| {
        input.write_all(format!("{line}\n").as_bytes()).await?;
        input.flush().await?;
        Ok::<_, io::Error>(input)
    }));
    let incoming = Box::pin(stream::unfold(BufReader::new(output).lines(), async |mut lines| {
        lines.next_line().await.transpose().map(|line| (line, lines))
    }));
    let seen = Seen::default();
    let (told, read, wrote, made) = (seen.clone(), seen.clone(), seen.clone(), seen.clone());
    let (waited, printed, released) = (seen.clone(), seen.clone(), seen.clone());
    let running = Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _| {
                told.updates.lock().unwrap().push(notification.update);
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: ReadTextFileRequest, responder, _| {
                read.note(format!("read {}", request.path.display()));
                responder.respond(ReadTextFileResponse::new("typed\n"))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: WriteTextFileRequest, responder, _| {
                wrote.note(format!("write {} {}", request.path.display(), request.content));
                responder.respond(WriteTextFileResponse::new())
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CreateTerminalRequest, responder, _| {
                made.note(format!("create {} {}", request.command, request.args.join(" ")));
                responder.respond(CreateTerminalResponse::new("t-1"))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: WaitForTerminalExitRequest, responder, _| {
                waited.note(format!("wait {}", request.terminal_id));
                responder.respond(WaitForTerminalExitResponse::new(TerminalExitStatus::new().exit_code(0)))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: TerminalOutputRequest, responder, _| {
                printed.note(format!("output {}", request.terminal_id));
                responder.respond(TerminalOutputResponse::new("made\n", false))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ReleaseTerminalRequest, responder, _| {
                released.note(format!("release {}", request.terminal_id));
                responder.respond(ReleaseTerminalResponse::new())
            },
            on_receive_request!(),
        )
        .connect_with(Lines::new(outgoing, incoming), async |agent| {
            let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
            let capabilities = ClientCapabilities::new().fs(files).terminal(true);
            let hello = InitializeRequest::new(ProtocolVersion::V1).client_capabilities(capabilities);
            agent.send_request(hello).block_task().await?;
            let session = agent.send_request(NewSessionRequest::new(lab.project())).block_task().await?.session_id;
            let prompt = vec![ContentBlock::Text(TextContent::new("go"))];
            let answer = agent.send_request(PromptRequest::new(session, prompt)).block_task().await?;
            assert_eq!(answer.stop_reason, StopReason::EndTurn);
            Ok(())
        });
    let limit = std::time::Duration::from_secs(60);
    let result = tokio::time::timeout(limit, running).await.expect("the conversation ends");
    result.unwrap_or_else(|error| panic!("{error:?}"));
    check(&seen, &path);
}

/// A turn that edits a file and runs a command.
fn edits_and_makes() -> Lab {
    Lab::scripted(
        "full",
        &[
            json!({"type": "tool_call", "name": "file_edit",
                "arguments": {"path": "a.txt", "old_text": "typed", "new_text": "edited"}}),
            json!({"type": "tool_call", "name": "shell", "arguments": {"command": "make"}}),
            json!({"type": "stop"}),
            json!({"type": "text", "text": "done"}),
            json!({"type": "stop"}),
        ],
    )
}

/// What the client was asked, in order, and that it was shown its terminal.
fn check(seen: &Seen, path: &Path) {
    let path = path.display();
    let expected = [
        format!("read {path}"),
        format!("read {path}"),
        format!("write {path} edited\n"),
        "create /bin/sh -c make".to_owned(),
        "wait t-1".to_owned(),
        "output t-1".to_owned(),
        "release t-1".to_owned(),
    ];
    assert_eq!(*seen.asked.lock().unwrap(), expected);
    let updates = seen.updates.lock().unwrap();
    let embedded = updates.iter().any(|update| match update {
        SessionUpdate::ToolCallUpdate(update) => update
            .fields
            .content
            .iter()
            .flatten()
            .any(|content| matches!(content, ToolCallContent::Terminal(shown) if *shown.terminal_id.0 == *"t-1")),
        _ => false,
    });
    assert!(embedded, "{updates:#?}");
}
