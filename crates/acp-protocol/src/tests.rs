//! Envelopes, parameters and messages, table by table.

use serde_json::{json, value::RawValue};

use crate::{
    Change, CompactionStatus, ContentBlock, ElicitationAnswer, ElicitationField, ElicitationForm, ElicitationOption,
    ElicitationProperty, ElicitationRequest, ElicitationScope, ElicitationValue, ErrorKind, ErrorObject, ErrorTable,
    Frame, Gate, GatedUpdate, NoticeSeverity, PlanContent, PlanEntry, PlanPriority, PlanStatus, PromptPart, RequestId,
    ResourceBody, ResponseOutcome, SessionUpdate, SubagentState, UpdateFrame, encode_error, encode_result, params,
    parse_prompt, result,
};

/// Says in one word what a line is.
fn shape(line: &str) -> String {
    match Frame::parse(line.as_bytes()) {
        Ok(Frame::Request { id, method, params }) => format!("request {} {method} {}", id.as_json(), params.is_some()),
        Ok(Frame::Notification { method, params }) => format!("notification {method} {}", params.is_some()),
        Ok(Frame::Response { id, outcome: ResponseOutcome::Result(result) }) => {
            format!("result {} {result}", id.as_json())
        }
        Ok(Frame::Response { id, outcome: ResponseOutcome::Error(error) }) => {
            format!("error {} {}", id.as_json(), error.code)
        }
        Err(error) if error.silent => "silent".to_owned(),
        Err(error) => format!("invalid {} {}", error.code, error.id.as_ref().map_or("null", RequestId::as_json)),
    }
}

// A client's error whose `data` was a text lost its code and its message: it counted as malformed.
#[test]
fn foreign_error_data_hides_nothing() {
    for data in [r#""details""#, "[false]", "7", "null", r#"{"kind":5}"#, r#"{"reason":"x"}"#] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32050,"message":"no","data":{data}}}}}"#);
        match Frame::parse(line.as_bytes()) {
            Ok(Frame::Response { outcome: ResponseOutcome::Error(error), .. }) => {
                assert_eq!((error.code, error.message.as_str()), (-32050, "no"), "{data}");
                assert_eq!(error.data.and_then(|data| data.kind), None, "{data}");
            }
            other => panic!("{data}: {other:?}"),
        }
    }
}

#[test]
fn lines_are_told_apart() {
    let cases = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, "request 1 m false"),
        (r#"{"jsonrpc":"2.0","id":"1","method":"m","params":{}}"#, "request \"1\" m true"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"m","params":null}"#, "request null m false"),
        (r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"m"}"#, "request 9007199254740993 m false"),
        (
            r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"m"}"#,
            "request 123456789012345678901234567890 m false",
        ),
        (r#"{"jsonrpc":"2.0","id":-7,"method":"m"}"#, "request -7 m false"),
        (r#"{"jsonrpc":"2.0","id":0,"method":"session\/new"}"#, "request 0 session/new false"),
        (r#"{"jsonrpc":"2.0","id":0,"method":"\u0073ession/new"}"#, "request 0 session/new false"),
        (r#" {"jsonrpc" : "2.0" , "method" : "m" , "extra" : [1,{"id":2}] } "#, "notification m false"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","result":1}"#, "request 1 m false"),
        (r#"{"jsonrpc":"2.0","id":"zc-out-0","result":{"a":1}}"#, "result \"zc-out-0\" {\"a\":1}"),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "result 1 null"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"x"}}"#, "error 1 -1"),
        (r#"{"jsonrpc":"2.0","id":1,"error":"x"}"#, "error 1 -32603"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#, "result 1 {}"),
        (r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":-1,"message":"x"}}"#, "error 1 -1"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":-1,"message":"x"}}"#, "error 1 -1"),
        (r#"{"jsonrpc":"2.0","id":1,"error":null}"#, "error 1 -32603"),
        (r#"{"id":1,"result":1}"#, "silent"),
        (r#"{"jsonrpc":"2.0","result":1}"#, "silent"),
        ("{", "invalid -32700 null"),
        ("", "invalid -32700 null"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"} x"#, "invalid -32700 null"),
        ("[]", "invalid -32600 null"),
        (r#"[{"jsonrpc":"2.0","id":2,"method":"m"}]"#, "invalid -32600 null"),
        ("\"hi\"", "invalid -32600 null"),
        ("17", "invalid -32600 null"),
        ("-1.5", "invalid -32600 null"),
        ("true", "invalid -32600 null"),
        ("null", "invalid -32600 null"),
        (r#"{"id":1,"level":"info"}"#, "invalid -32600 1"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, "invalid -32600 1"),
        (r#"{"id":1,"method":"m"}"#, "invalid -32600 1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":3}"#, "invalid -32600 1"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "invalid -32600 null"),
        (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, "invalid -32600 null"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}"#, "invalid -32600 1"),
    ];
    for (line, expected) in cases {
        assert_eq!(shape(line), expected, "{line}");
    }
}

#[test]
fn invalid_utf8_is_an_invalid_request() {
    let error = Frame::parse(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}").expect_err("invalid UTF-8");
    assert_eq!((error.code, error.id), (-32600, None));
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let line =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(shape(&line), "request 1 m true");
}

fn raw(value: &serde_json::Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("JSON")
}

#[test]
fn any_initialize_is_understood() {
    let versions = [
        json!(1),
        json!(0),
        json!(99),
        json!(65536),
        json!("2025-06-18"),
        json!("1"),
        json!(1.0),
        json!(-1),
        json!(null),
    ];
    for version in versions {
        let params = raw(
            &json!({"protocolVersion": version, "future": {"x": [1]}, "clientInfo": {"name": "zed", "version": "1"}}),
        );
        assert_eq!(params::InitializeParams::parse(Some(&params)).client_name.as_deref(), Some("zed"));
    }
    assert_eq!(params::InitializeParams::parse(None).client, params::ClientCapabilities::default());
    let params =
        raw(&json!({"clientCapabilities": {"fs": {"readTextFile": true, "writeTextFile": "x"}, "terminal": true,
        "elicitation": {"form": {}}, "auth": 7, "_meta": {"zeroclaw": {"seq": true}}}, "clientInfo": 3}));
    let parsed = params::InitializeParams::parse(Some(&params));
    let expected = params::ClientCapabilities {
        read_text_file: true,
        terminal: true,
        elicitation_form: true,
        seq: true,
        ..Default::default()
    };
    assert_eq!(parsed.client, expected);
}

#[test]
fn new_session_takes_every_spelling() {
    for key in ["cwd", "workspaceDir", "workspace_dir"] {
        let params = raw(&json!({ key: "/w", "agent": " main " }));
        let parsed = params::NewSessionParams::parse(Some(&params)).expect(key);
        assert_eq!((parsed.cwd.as_deref(), parsed.agent.as_deref()), (Some("/w"), Some("main")), "{key}");
    }
    for key in ["agentAlias", "agent_alias", "agent"] {
        let params = raw(&json!({ key: "  " }));
        assert_eq!(params::NewSessionParams::parse(Some(&params)).expect(key).agent, None, "{key}");
    }
    let params = raw(&json!({"_meta": {"zeroclaw": {"agentAlias": "x"}}, "mcpServers": []}));
    assert_eq!(params::NewSessionParams::parse(Some(&params)).expect("meta").agent.as_deref(), Some("x"));
    assert!(params::NewSessionParams::parse(None).expect("nothing").cwd.is_none());
    for bad in [json!({"cwd": null}), json!({"cwd": 3}), json!({"agent": []}), json!(["/w"])] {
        assert!(params::NewSessionParams::parse(Some(&raw(&bad))).is_err(), "{bad}");
    }
}

#[test]
fn session_ids_have_two_spellings() {
    for key in ["sessionId", "session_id"] {
        let params = raw(&json!({ key: "s-1", "prompt": "hi" }));
        assert_eq!(params::SessionParams::parse(Some(&params)).expect(key).session_id, "s-1");
        assert_eq!(params::LoadSessionParams::parse(Some(&params)).expect(key).session_id, "s-1");
        assert_eq!(params::PromptParams::parse(Some(&params)).expect(key).session_id, "s-1");
        assert_eq!(params::SessionEventParams::parse(Some(&params)).expect(key).session_id, "s-1");
    }
    let error = params::SessionParams::parse(Some(&raw(&json!({"sessionId": 7})))).expect_err("a number");
    assert_eq!(error.to_string(), "invalid params: `sessionId`: invalid type: integer `7`, expected a string");
    assert!(params::SessionParams::parse(None).is_err());
}

#[test]
fn prompts_are_strings_or_parts() {
    let prompt = json!([
        {"text": "a"},
        {"type": "text", "text": "b", "annotations": {}},
        {"type": "resource_link", "uri": "file:///x", "name": "x"},
        {"type": "resource", "resource": {"uri": "u", "text": "t"}},
        {"type": "resource", "resource": {"uri": "u", "mimeType": "m", "blob": "AA=="}},
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
        {"type": "hologram"}
    ]);
    let link = PromptPart::ResourceLink { uri: "file:///x".into(), name: "x".into(), mime_type: None };
    let text = PromptPart::Resource { uri: "u".into(), mime_type: None, body: ResourceBody::Text("t".into()) };
    let blob =
        PromptPart::Resource { uri: "u".into(), mime_type: Some("m".into()), body: ResourceBody::Blob("AA==".into()) };
    let expected = vec![
        PromptPart::Text("a".into()),
        PromptPart::Text("b".into()),
        link,
        text,
        blob,
        PromptPart::Image { data: "AA==".into(), mime_type: "image/png".into() },
        PromptPart::Audio,
        PromptPart::Unknown("hologram".into()),
    ];
    assert_eq!(parse_prompt(&raw(&prompt)), Ok(expected));
    assert_eq!(parse_prompt(&raw(&json!("hi"))), Ok(vec![PromptPart::Text("hi".into())]));
    let bad = [
        json!(7),
        json!({"text": "x"}),
        json!([{"type": "text"}]),
        json!([{"type": "resource_link", "name": "x"}]),
        json!([{"type": "resource_link", "uri": "x"}]),
        json!([{"type": "resource", "resource": {"uri": "u"}}]),
        json!([{"type": "image"}]),
        json!([3]),
    ];
    for prompt in bad {
        assert!(parse_prompt(&raw(&prompt)).is_err(), "{prompt}");
    }
}

#[test]
fn events_carry_text_in_several_places() {
    let cases = [
        (json!({"sessionId": "s", "text": "a", "type": "note"}), ("note", Some("a"))),
        (json!({"sessionId": "s", "update": {"type": "x", "content": "b"}}), ("x", Some("b"))),
        (
            json!({"sessionId": "s", "update": {"sessionUpdate": "y", "content": {"type": "text", "text": "c"}}}),
            ("y", Some("c")),
        ),
        (json!({"sessionId": "s", "update": {"z": 1}}), ("event", None)),
        (json!({"sessionId": "s"}), ("event", None)),
    ];
    for (params, (kind, text)) in cases {
        let parsed = params::SessionEventParams::parse(Some(&raw(&params))).expect("an event");
        assert_eq!((parsed.kind.as_str(), parsed.text.as_deref()), (kind, text), "{params}");
    }
}

#[test]
fn permission_answers_are_nested() {
    let selected = raw(&json!({"outcome": {"outcome": "selected", "optionId": "allow-once"}}));
    assert_eq!(
        params::PermissionOutcome::parse(&selected),
        Some(params::PermissionOutcome::Selected("allow-once".into()))
    );
    let cancelled = raw(&json!({"outcome": {"outcome": "cancelled"}}));
    assert_eq!(params::PermissionOutcome::parse(&cancelled), Some(params::PermissionOutcome::Cancelled));
    for bad in [
        json!({"outcome": "selected", "optionId": "allow-once"}),
        json!(null),
        json!({"outcome": {"outcome": "selected"}}),
    ] {
        assert_eq!(params::PermissionOutcome::parse(&raw(&bad)), None, "{bad}");
    }
}

#[test]
fn updates_are_framed_without_being_parsed_again() {
    let update = SessionUpdate::AgentMessageChunk { content: ContentBlock::text("a\u{2028}\"b"), message_id: "m-1-0" };
    let bytes = serde_json::to_vec(&update).expect("an update");
    let frame = UpdateFrame::new("s-1");
    let mut out = Vec::new();
    frame.write(&mut out, &bytes, None);
    frame.write(&mut out, &bytes, Some(7));
    let lines: Vec<serde_json::Value> = out
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).expect("JSON"))
        .collect();
    let expected = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a\u{2028}\"b"}, "messageId": "m-1-0"});
    assert_eq!(lines.len(), 2);
    assert_eq!(
        lines[0],
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s-1", "update": expected}})
    );
    assert_eq!(lines[1]["params"]["_meta"]["zeroclaw"]["seq"], json!(7));
    assert_eq!(lines[1]["params"]["update"], expected);
}

#[test]
fn answers_echo_the_id_as_it_came() {
    let Ok(Frame::Request { id, .. }) = Frame::parse(br#"{"jsonrpc":"2.0","id":9007199254740993,"method":"m"}"#) else {
        panic!("a request")
    };
    let mut out = Vec::new();
    encode_result(&mut out, &id, &result::Empty {}).expect("JSON");
    encode_error(
        &mut out,
        None,
        &ErrorObject::new(ErrorTable::Spec, ErrorKind::SessionNotFound, "no").with_session("s"),
    );
    let expected = concat!(
        r#"{"jsonrpc":"2.0","id":9007199254740993,"result":{}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32002,"message":"no","data":{"kind":"session_not_found","sessionId":"s"}}}"#,
        "\n"
    );
    assert_eq!(String::from_utf8_lossy(&out), expected);
}

#[test]
fn lines_that_are_no_messages_have_a_kind_too() {
    for (line, code, kind) in [("{", -32700, "parse_error"), ("[]", -32600, "invalid_request")] {
        let Err(error) = Frame::parse(line.as_bytes()) else { panic!("{line} is no message") };
        let error = error.to_error();
        assert_eq!((error.code, error.data.and_then(|data| data.kind).as_deref()), (code, Some(kind)));
    }
}

#[test]
fn two_spellings_of_one_parameter_must_agree() {
    type Parse = fn(&RawValue) -> Result<(), String>;
    let session: Parse = |raw| params::SessionParams::parse(Some(raw)).map(drop).map_err(|error| error.0);
    let new: Parse = |raw| params::NewSessionParams::parse(Some(raw)).map(drop).map_err(|error| error.0);
    let load: Parse = |raw| params::LoadSessionParams::parse(Some(raw)).map(drop).map_err(|error| error.0);
    let prompt: Parse = |raw| params::PromptParams::parse(Some(raw)).map(drop).map_err(|error| error.0);
    let mode: Parse = |raw| params::SetModeParams::parse(Some(raw)).map(drop).map_err(|error| error.0);
    let event: Parse = |raw| params::SessionEventParams::parse(Some(raw)).map(drop).map_err(|error| error.0);
    let cases: [(Parse, serde_json::Value, Option<[&str; 2]>); 14] = [
        (session, json!({"sessionId": "s", "session_id": "s"}), None),
        (session, json!({"sessionId": "s", "session_id": "t"}), Some(["sessionId", "session_id"])),
        (session, json!({"sessionId": "s", "session_id": null}), Some(["sessionId", "session_id"])),
        (new, json!({"cwd": "/a", "workspaceDir": "/a", "workspace_dir": "/a"}), None),
        (new, json!({"cwd": "/a", "workspaceDir": "/b"}), Some(["cwd", "workspaceDir"])),
        (new, json!({"workspaceDir": "/a", "workspace_dir": "/b"}), Some(["workspaceDir", "workspace_dir"])),
        (new, json!({"agent": "a", "agentAlias": "b"}), Some(["agent", "agentAlias"])),
        (new, json!({"agent": "a", "agentAlias": "a", "agent_alias": "a"}), None),
        (load, json!({"sessionId": "s", "cwd": "/a", "workspaceDir": "/b"}), Some(["cwd", "workspaceDir"])),
        (load, json!({"sessionId": "s", "session_id": "s", "cwd": "/a", "workspaceDir": "/a"}), None),
        (prompt, json!({"sessionId": "s", "prompt": [{"text": "a"}], "content": [{"text": "a"}]}), None),
        (prompt, json!({"sessionId": "s", "prompt": "a", "content": "b"}), Some(["prompt", "content"])),
        (mode, json!({"sessionId": "s", "modeId": "a", "mode_id": "b"}), Some(["modeId", "mode_id"])),
        (event, json!({"sessionId": "s", "session_id": "t"}), Some(["sessionId", "session_id"])),
    ];
    for (parse, value, differ) in cases {
        let parsed = parse(&raw(&value));
        match differ {
            None => assert_eq!(parsed, Ok(()), "{value}"),
            Some(names) => {
                let error = parsed.expect_err("two meanings");
                assert!(names.iter().all(|name| error.contains(&format!("`{name}`"))), "{value}: {error}");
            }
        }
    }
    let twice: Box<RawValue> = serde_json::from_str(r#"{"sessionId":"s", "sessionId":"t"}"#).expect("JSON");
    assert_eq!(
        params::SessionParams::parse(Some(&twice)).expect_err("two values").0,
        "`sessionId` is given twice with different values"
    );
    let written: Box<RawValue> = serde_json::from_str(r#"{"sessionId":"s","session_id":"\u0073"}"#).expect("JSON");
    assert_eq!(params::SessionParams::parse(Some(&written)).expect("one meaning").session_id, "s");
}

#[test]
fn what_a_client_does_not_mark_with_an_object_it_does_not_have() {
    let all = json!({"clientCapabilities": {
        "elicitation": {"form": {}}, "plan": {}, "subagents": {},
        "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}}
    }});
    let gates = [Gate::Notices, Gate::Compaction, Gate::Plan, Gate::Subagents];
    let client = params::InitializeParams::parse(Some(&raw(&all))).client;
    assert!(client.elicitation_form && client.boolean_options);
    assert!(gates.iter().all(|gate| client.opens(*gate)));
    let none = json!({"clientCapabilities": {
        "elicitation": {"form": true}, "plan": true, "subagents": null,
        "session": {"notices": null, "compaction": false, "configOptions": {}}
    }});
    let client = params::InitializeParams::parse(Some(&raw(&none))).client;
    assert_eq!(client, params::ClientCapabilities::default());
    assert!(!gates.iter().any(|gate| client.opens(*gate)));
}

#[test]
fn updates_that_a_client_must_ask_for_know_their_gate() {
    let path = std::path::Path::new("/a");
    let step = PlanEntry { content: "x", priority: PlanPriority::Low, status: PlanStatus::Pending };
    let cases = [
        (
            GatedUpdate::PlanUpdate { plan: PlanContent::Items { plan_id: "p", entries: &[step] } },
            Gate::Plan,
            json!({"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p",
                "entries": [{"content": "x", "priority": "low", "status": "pending"}]}}),
        ),
        (
            GatedUpdate::PlanRemoved { plan_id: "p" },
            Gate::Plan,
            json!({"sessionUpdate": "plan_removed", "planId": "p"}),
        ),
        (
            GatedUpdate::Notice { severity: NoticeSeverity::Warning, title: "t", description: None },
            Gate::Notices,
            json!({"sessionUpdate": "notice", "severity": "warning", "title": "t"}),
        ),
        (
            GatedUpdate::CompactionUpdate {
                compaction_id: "c",
                status: CompactionStatus::InProgress,
                summary: Change::Clear,
                error: Change::Keep,
            },
            Gate::Compaction,
            json!({"sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress", "summary": null}),
        ),
        (
            GatedUpdate::SubagentUpdate {
                session_id: "k",
                title: Change::Set("child"),
                description: Change::Keep,
                capabilities: Change::Keep,
                state: Change::Set(SubagentState::Idle { stop_reason: Some("end_turn") }),
                cwd: Change::Set(path),
                additional_directories: Change::Keep,
            },
            Gate::Subagents,
            json!({"sessionUpdate": "subagent_update", "sessionId": "k", "title": "child", "cwd": "/a",
                "state": {"state": "idle", "stopReason": "end_turn"}}),
        ),
    ];
    for (update, gate, wire) in cases {
        assert_eq!(serde_json::to_value(&update).expect("JSON"), wire);
        assert_eq!(update.gate(), gate, "{wire}");
    }
}

#[test]
fn a_form_keeps_the_order_of_its_fields() {
    let options = [ElicitationOption { value: "a", title: "A", description: None }];
    let field = |name, property| ElicitationField { name, title: None, description: None, property };
    let properties = [
        field(
            "z",
            ElicitationProperty::String {
                min_length: None,
                max_length: None,
                pattern: None,
                format: None,
                default: None,
                values: None,
                one_of: Some(&options),
            },
        ),
        field("a", ElicitationProperty::Boolean { default: Some(true) }),
    ];
    let request = ElicitationRequest {
        scope: ElicitationScope::Session { session_id: "s", tool_call_id: Some("c") },
        message: "m",
        requested_schema: ElicitationForm { title: None, description: None, properties: &properties, required: &["z"] },
    };
    assert_eq!(
        serde_json::to_string(&request).expect("JSON"),
        concat!(
            r#"{"mode":"form","sessionId":"s","toolCallId":"c","message":"m","requestedSchema":{"type":"object","#,
            r#""properties":{"z":{"type":"string","oneOf":[{"const":"a","title":"A"}]},"a":{"type":"boolean","default":true}},"#,
            r#""required":["z"]}}"#
        )
    );
}

#[test]
fn answers_to_a_form_say_what_the_user_did() {
    let answer = |value| ElicitationAnswer::parse(&raw(&value));
    let content = [("a".to_owned(), ElicitationValue::Text("x".to_owned()))].into();
    assert_eq!(answer(json!({"action": "accept", "content": {"a": "x"}})), Some(ElicitationAnswer::Accept(content)));
    assert_eq!(answer(json!({"action": "accept"})), Some(ElicitationAnswer::Accept([].into())));
    assert_eq!(answer(json!({"action": "decline", "content": null})), Some(ElicitationAnswer::Decline));
    assert_eq!(answer(json!({"action": "cancel"})), Some(ElicitationAnswer::Cancel));
    for bad in
        [json!({"action": "agree"}), json!({"content": {}}), json!(null), json!({"action": {"action": "accept"}})]
    {
        assert_eq!(answer(bad.clone()), None, "{bad}");
    }
}
