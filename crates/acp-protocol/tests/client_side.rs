//! What one side writes the other side reads, with nothing lost: an agent's messages by `reading`, a client's by `params`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests abort loudly")]

use std::{borrow::Cow, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use zeroclaw_acp_protocol::{
    AvailableCommand, CallStatus, CommandInput, ContentBlock, EmbeddedResource, Frame, Location, MethodKind,
    PermissionOption, PermissionOptionKind, PermissionRequest, PermissionToolCall, PlanEntry, PlanPriority, PlanStatus,
    PromptPart, RequestId, SessionUpdate, ToolCallContent, ToolKind, calls, encode_request, params, parse_prompt,
    reading, result,
};

fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

/// Reads what was written and writes it again: the same JSON.
fn keeps<T: DeserializeOwned + Serialize>(written: &impl Serialize) -> T {
    let written = raw(written);
    let read: T = reading::read(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
    let again = serde_json::to_value(&read).unwrap();
    assert_eq!(again, serde_json::from_str::<Value>(written.get()).unwrap());
    read
}

fn unknown(update: &reading::Update) -> bool {
    matches!(update, reading::Update::Unknown(_))
}

#[test]
fn every_update_is_read_whole() {
    let arguments = raw(&json!({"big": 12_345_678_901_234_567_890_u64, "s": "\u{1F980}\n"}));
    let block = || ContentBlock::text("a \"quoted\" line\n");
    let blob = EmbeddedResource {
        uri: Cow::Borrowed("attachment://x"),
        mime_type: Some(Cow::Borrowed("image/png")),
        text: None,
        blob: Some(Cow::Borrowed("AAAA")),
    };
    let content = [
        ToolCallContent::Content { content: block() },
        ToolCallContent::Content { content: ContentBlock::Resource { resource: blob } },
        ToolCallContent::Diff { path: Path::new("/a"), old_text: None, new_text: "new" },
        ToolCallContent::Diff { path: Path::new("/a"), old_text: Some("old"), new_text: "new" },
    ];
    let locations = [Location { path: Path::new("/a"), line: Some(3) }, Location { path: Path::new("/b"), line: None }];
    let entries = [PlanEntry { content: "step", priority: PlanPriority::High, status: PlanStatus::InProgress }];
    let commands = [
        AvailableCommand { name: "help", description: "says what there is", input: None },
        AvailableCommand { name: "read", description: "reads", input: Some(CommandInput { hint: "path" }) },
    ];
    let link =
        ContentBlock::ResourceLink { uri: Cow::Borrowed("file:///a"), name: Cow::Borrowed("a"), mime_type: None };
    let updates = [
        SessionUpdate::UserMessageChunk { content: link, message_id: "m" },
        SessionUpdate::AgentMessageChunk { content: block(), message_id: "m" },
        SessionUpdate::AgentThoughtChunk { content: block(), message_id: "m" },
        SessionUpdate::ToolCall {
            tool_call_id: "c",
            title: "t",
            name: "shell",
            kind: ToolKind::Execute,
            status: CallStatus::Pending,
            content: &content,
            locations: &locations,
            raw_input: &arguments,
        },
        SessionUpdate::ToolCallUpdate {
            tool_call_id: "c",
            name: "shell",
            status: Some(CallStatus::Failed),
            title: None,
            content: Some(&content),
            locations: Some(&[]),
            raw_output: Some("out"),
        },
        SessionUpdate::Plan { entries: &entries },
        SessionUpdate::AvailableCommandsUpdate { available_commands: &commands },
        SessionUpdate::CurrentModeUpdate { current_mode_id: "full" },
        SessionUpdate::SessionInfoUpdate { title: "t", updated_at: "2026-01-01T00:00:00Z" },
    ];
    for update in updates {
        let read: reading::Update = keeps(&update);
        assert!(!unknown(&read), "{update:?}");
    }
    let read: reading::Update = keeps(&json!({"sessionUpdate": "usage_update", "used": 1, "size": 2}));
    assert!(matches!(read, reading::Update::UsageUpdate(reading::Usage { used: 1, size: 2, cost: None, .. })));
}

#[test]
fn what_is_not_known_is_kept() {
    let read: reading::Update = keeps(&json!({"sessionUpdate": "from_the_future", "x": [1, {"y": null}]}));
    assert!(unknown(&read));
    let read: reading::Update =
        keeps(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "smell", "x": 1}}));
    assert!(matches!(read, reading::Update::AgentMessageChunk(chunk) if chunk.text().is_none()));
    let call =
        json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "kind": "dance", "status": "paused"});
    match keeps(&call) {
        reading::Update::ToolCall(call) => {
            assert_eq!(call.kind, reading::ToolKind::Unknown("dance".to_owned()));
            assert_eq!(call.status, reading::CallStatus::Unknown("paused".to_owned()));
        }
        other => panic!("{other:?}"),
    }
    let end: reading::PromptResult = keeps(&json!({"stopReason": "bored"}));
    assert_eq!(end.stop_reason, reading::StopReason::Unknown("bored".to_owned()));
    let option: reading::ConfigOption = keeps(&json!({"type": "slider", "id": "x"}));
    assert!(matches!(option, reading::ConfigOption::Unknown(_)));
}

#[test]
fn what_may_be_absent_may_be_absent() {
    let call = raw(&json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "content": null}));
    match reading::read(&call).unwrap() {
        reading::Update::ToolCall(call) => {
            assert_eq!((call.kind, call.status), (reading::ToolKind::Other, reading::CallStatus::Pending));
        }
        other => panic!("{other:?}"),
    }
    let hello: reading::InitializeResult = reading::read(&raw(&json!({"protocolVersion": 1}))).unwrap();
    assert!(!hello.agent_capabilities.load_session && hello.auth_methods.is_empty());
    let missing = raw(&json!({"sessionUpdate": "tool_call", "title": "t"}));
    assert!(reading::read::<reading::Update>(&missing).unwrap_err().to_string().contains("toolCallId"));
}

#[test]
fn facts_of_zeroclaw_are_read_where_they_are() {
    let with = json!({"sessionId": "s", "update": {"sessionUpdate": "plan", "entries": []}, "_meta": {"zeroclaw": {"seq": 7}}});
    let read: reading::SessionNotification = keeps(&with);
    assert_eq!(reading::facts::<reading::UpdateFacts>(read.meta.as_deref()).map(|facts| facts.seq), Some(7));
    assert!(reading::facts::<reading::UpdateFacts>(None).is_none());
    let foreign = raw(&json!({"someone": {"seq": 7}}));
    assert!(reading::facts::<reading::UpdateFacts>(Some(&foreign)).is_none());
}

#[test]
fn every_result_is_read_whole() {
    let values = vec![result::ConfigValue { value: "v", name: "n", description: None }];
    let options = [result::ConfigOption {
        id: "model",
        name: "Model",
        description: None,
        category: "model",
        kind: result::ConfigKind::Select { current_value: "v", options: values },
    }];
    let choices = [result::Choice { id: "full", name: "Full", description: "all" }];
    let modes = || result::ModeState { current_mode_id: "full", available_modes: &choices };
    let read: reading::NewSessionResult = keeps(&result::NewSessionResult {
        session_id: "s",
        workspace_dir: Some(Path::new("/p")),
        modes: modes(),
        config_options: &options,
    });
    match read.config_options.unwrap().first() {
        Some(reading::ConfigOption::Select(option)) => assert_eq!(option.current_value, "v"),
        other => panic!("{other:?}"),
    }
    let _: reading::LoadSessionResult =
        keeps(&result::LoadSessionResult { modes: modes(), config_options: &options, meta: None });
    let _: reading::ConfigOptionsResult = keeps(&result::ConfigOptionsResult { config_options: &options });
    let _: reading::StopResult = keeps(&result::StopResult { session_id: "s", stopped: true });
    let _: reading::EventResult = keeps(&result::EventResult { session_id: "s", r#type: "t", status: "processed" });
    let _: reading::ListSessionsResult = keeps(&result::ListSessionsResult {
        sessions: vec![result::SessionInfo {
            session_id: "s".to_owned(),
            cwd: "/p".to_owned(),
            title: None,
            updated_at: "2026-01-01T00:00:00Z".to_owned(),
            additional_directories: vec!["/q".to_owned()],
        }],
        next_cursor: Some("c".to_owned()),
    });
}

#[test]
fn a_permission_request_is_read_whole_and_answered() {
    let options = [
        PermissionOption { option_id: "allow-once", name: "Allow once", kind: PermissionOptionKind::AllowOnce },
        PermissionOption { option_id: "reject-once", name: "Reject", kind: PermissionOptionKind::RejectOnce },
    ];
    let asked: reading::PermissionRequest = keeps(&PermissionRequest {
        session_id: "s",
        tool_call: PermissionToolCall {
            tool_call_id: "c",
            title: "t",
            name: "shell",
            kind: ToolKind::Execute,
            status: CallStatus::Pending,
            content: &[],
            locations: &[],
            raw_input: None,
        },
        options: &options,
    });
    let chosen = asked.option(&reading::PermissionOptionKind::RejectOnce).unwrap();
    let answer = raw(&calls::PermissionAnswer::Selected(&chosen.option_id));
    assert_eq!(
        params::PermissionOutcome::parse(&answer),
        Some(params::PermissionOutcome::Selected("reject-once".to_owned()))
    );
    let answer = raw(&calls::PermissionAnswer::Cancelled);
    assert_eq!(params::PermissionOutcome::parse(&answer), Some(params::PermissionOutcome::Cancelled));
}

#[test]
fn every_call_is_understood() {
    let all = calls::Capabilities {
        read_text_file: true,
        write_text_file: true,
        terminal: true,
        auth_terminal: true,
        elicitation_form: true,
        elicitation_url: true,
        boolean_options: true,
        notices: true,
        seq: true,
    };
    let info = Some(calls::ClientInfo { name: "me", version: "1" });
    let hello = calls::Initialize { protocol_version: 1, client_capabilities: all, client_info: info };
    let read = params::InitializeParams::parse(Some(&raw(&hello)));
    let client = read.client;
    assert!(client.read_text_file && client.write_text_file && client.terminal && client.auth_terminal);
    assert!(client.elicitation_form && client.seq);
    assert_eq!((read.client_name.as_deref(), read.client_version.as_deref()), (Some("me"), Some("1")));
    let written = serde_json::to_value(all).unwrap();
    assert_eq!(written["session"], json!({"configOptions": {"boolean": {}}, "notices": {}}));
    assert_eq!(written["elicitation"], json!({"form": {}, "url": {}}));
    assert_eq!(serde_json::to_value(calls::Capabilities::default()).unwrap(), json!({}));

    let new = calls::NewSession {
        additional_directories: &["/q"],
        agent: Some(calls::Agent("main")),
        system_prompt: Some(calls::SystemPrompt { mode: params::SystemPromptMode::Append, text: "be brief" }),
        ..calls::NewSession::new("/p")
    };
    let read = params::NewSessionParams::parse(Some(&raw(&new))).unwrap();
    assert_eq!((read.cwd.as_deref(), read.agent.as_deref()), (Some("/p"), Some("main")));
    assert_eq!(read.additional_directories, ["/q"]);
    assert_eq!(read.system_prompt.unwrap().text, "be brief");

    let load = calls::LoadSession { session_id: "s", cwd: "/p", mcp_servers: &[] };
    let read = params::LoadSessionParams::parse(Some(&raw(&load))).unwrap();
    assert_eq!((read.session_id.as_str(), read.cwd.as_deref()), ("s", Some("/p")));

    let prompt = raw(&calls::Prompt { session_id: "s", prompt: &[ContentBlock::text("hi")] });
    let read = params::PromptParams::parse(Some(&prompt)).unwrap();
    assert_eq!(parse_prompt(read.prompt).unwrap(), [PromptPart::Text("hi".to_owned())]);

    let mode = raw(&calls::SetMode { session_id: "s", mode_id: "full" });
    assert_eq!(params::SetModeParams::parse(Some(&mode)).unwrap().mode_id, "full");
    let option = raw(&calls::SetConfigOption { session_id: "s", config_id: "mode", value: "full" });
    assert_eq!(
        params::SetConfigOptionParams::parse(Some(&option)).unwrap().value,
        params::OptionValue::Id("full".to_owned())
    );
    let login = raw(&calls::Authenticate { method_id: "m" });
    assert_eq!(params::AuthenticateParams::parse(Some(&login)).unwrap().method_id, "m");
    let list = raw(&calls::ListSessions { cwd: Some("/p"), cursor: Some("c") });
    assert_eq!(params::ListSessionsParams::parse(Some(&list)).unwrap().cursor.as_deref(), Some("c"));
    let session = raw(&calls::Session { session_id: "s" });
    assert_eq!(params::SessionParams::parse(Some(&session)).unwrap().session_id, "s");

    for id in [RequestId::from_number(u64::MAX), RequestId::from_plain_text("a")] {
        let cancel = raw(&calls::CancelRequest { request_id: &id });
        assert_eq!(params::CancelRequestParams::parse(Some(&cancel)).unwrap().request_id.get(), id.as_json());
    }
}

#[test]
fn servers_are_written_as_the_protocol_wants_them() {
    let env = [calls::Pair { name: "K", value: "v" }];
    let stdio = calls::McpServer::Stdio { name: "files", command: "/bin/server", args: &["-x"], env: &env };
    let http = calls::McpServer::Http { r#type: calls::HttpType::Http, name: "web", url: "https://x", headers: &env };
    assert_eq!(
        serde_json::to_value([stdio, http]).unwrap(),
        json!([
            {"name": "files", "command": "/bin/server", "args": ["-x"], "env": [{"name": "K", "value": "v"}]},
            {"type": "http", "name": "web", "url": "https://x", "headers": [{"name": "K", "value": "v"}]},
        ])
    );
}

#[test]
fn names_lead_back_to_their_methods() {
    let names = [
        "initialize",
        "session/new",
        "session/load",
        "session/resume",
        "session/prompt",
        "session/cancel",
        "session/close",
        "session/stop",
        "session/list",
        "session/delete",
        "session/fork",
        "session/set_mode",
        "session/set_config_option",
        "session/update",
        "authenticate",
        "$/cancel_request",
    ];
    for name in names {
        let kind = MethodKind::from_name(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(kind.name(), name);
        let mut line = Vec::new();
        encode_request(&mut line, &RequestId::from_number(9), kind.name(), &json!({})).unwrap();
        assert_eq!(line.pop(), Some(b'\n'));
        match Frame::parse(&line) {
            Ok(Frame::Request { id, method, .. }) => assert_eq!((id.as_json(), &*method), ("9", name)),
            other => panic!("{other:?}"),
        }
    }
}
