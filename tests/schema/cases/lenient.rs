//! What real clients send beyond the protocol: ours reads it and knows what is meant, the official types refuse it.
//! So this list is what our types accept more than the official ones; an entry that they accept one day leaves it.

use agent_client_protocol_schema::v1;
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{
    Frame, McpServer, MethodKind, NameValue, PromptPart, RequestId,
    params::{
        AuthenticateParams, InitializeParams, ListSessionsParams, LoadSessionParams, NewSessionParams, OptionValue,
        PromptParams, SessionEventParams, SessionParams, SetConfigOptionParams, SetModeParams,
    },
    parse_prompt,
};

/// One input: what it is, the parameters, and whether ours understood them.
type Case = (&'static str, &'static str, fn(&RawValue) -> bool);

/// Checks that every input is understood by ours and refused by the official type.
fn check<T: serde::de::DeserializeOwned>(cases: &[Case]) {
    for (what, params, understood) in cases {
        let raw = RawValue::from_string((*params).to_owned()).expect("a case is JSON");
        assert!(understood(&raw), "ours does not read {what}: {params}");
        assert!(serde_json::from_str::<T>(params).is_err(), "the official type reads {what} now: {params}");
    }
}

fn parts(raw: &RawValue) -> Option<Vec<PromptPart>> {
    let params = PromptParams::parse(Some(raw)).ok()?;
    (params.session_id == "s").then(|| parse_prompt(params.prompt).ok())?
}

fn says_hi(raw: &RawValue) -> bool {
    parts(raw) == Some(vec![PromptPart::Text("hi".to_owned())])
}

fn loads(raw: &RawValue) -> bool {
    LoadSessionParams::parse(Some(raw)).is_ok_and(|params| params.session_id == "s")
}

fn names(raw: &RawValue) -> bool {
    SessionParams::parse(Some(raw)).is_ok_and(|params| params.session_id == "s")
}

fn opens_in(raw: &RawValue, cwd: Option<&str>) -> bool {
    NewSessionParams::parse(Some(raw)).is_ok_and(|params| params.cwd.as_deref() == cwd)
}

#[test]
fn any_protocol_version() {
    let knows = |raw: &RawValue| InitializeParams::parse(Some(raw)).client_name.as_deref() == Some("c");
    check::<v1::InitializeRequest>(&[
        ("no version", r#"{"clientInfo":{"name":"c","version":"1"}}"#, knows),
        ("a null version", r#"{"protocolVersion":null,"clientInfo":{"name":"c","version":"1"}}"#, knows),
        ("a text", r#"{"protocolVersion":"1","clientInfo":{"name":"c","version":"1"}}"#, knows),
        ("a date", r#"{"protocolVersion":"2025-06-18","clientInfo":{"name":"c","version":"1"}}"#, knows),
        ("a fraction", r#"{"protocolVersion":1.0,"clientInfo":{"name":"c","version":"1"}}"#, knows),
        ("a great number", r#"{"protocolVersion":65536,"clientInfo":{"name":"c","version":"1"}}"#, knows),
    ]);
}

#[test]
fn a_client_without_a_version_keeps_its_name() {
    // The official type reads such a message, but forgets who sent it.
    let params = r#"{"protocolVersion":1,"clientInfo":{"name":"zed"}}"#;
    let raw = RawValue::from_string(params.to_owned()).expect("JSON");
    assert_eq!(InitializeParams::parse(Some(&raw)).client_name.as_deref(), Some("zed"));
    let theirs: v1::InitializeRequest = serde_json::from_str(params).expect("read leniently");
    assert!(theirs.client_info.is_none());
}

#[test]
fn a_session_without_its_members() {
    let alias =
        |raw: &RawValue| NewSessionParams::parse(Some(raw)).is_ok_and(|params| params.agent.as_deref() == Some("dev"));
    check::<v1::NewSessionRequest>(&[
        ("nothing", "{}", |raw| opens_in(raw, None)),
        ("no servers", r#"{"cwd":"/p"}"#, |raw| opens_in(raw, Some("/p"))),
        ("no directory", r#"{"mcpServers":[]}"#, |raw| opens_in(raw, None)),
        ("the dialect's name", r#"{"workspaceDir":"/p","mcpServers":[]}"#, |raw| opens_in(raw, Some("/p"))),
        ("its older spelling", r#"{"workspace_dir":"/p","mcpServers":[]}"#, |raw| opens_in(raw, Some("/p"))),
        ("an agent", r#"{"agentAlias":" dev "}"#, alias),
        ("an agent, spelt otherwise", r#"{"agent_alias":"dev"}"#, alias),
        ("an agent by its short name", r#"{"agent":"dev"}"#, alias),
        ("an agent among the extensions", r#"{"_meta":{"zeroclaw":{"agentAlias":"dev"}}}"#, alias),
    ]);
}

/// The older types drop such servers in silence instead of refusing the request, and ours reads them.
#[test]
fn servers_without_their_lists() {
    let pair = |name: &str, value: &str| NameValue { name: name.to_owned(), value: value.to_owned() };
    let stdio = |args: &[&str], env: Vec<NameValue>| McpServer::Stdio {
        name: "a".to_owned(),
        command: "/b".to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        env,
    };
    let http = |headers| McpServer::Http { name: "a".to_owned(), url: "https://h".to_owned(), headers };
    let cases = [
        (r#"{"name":"a","command":"/b"}"#, stdio(&[], Vec::new())),
        (r#"{"name":"a","command":"/b","args":["x"],"env":{"K":"v"}}"#, stdio(&["x"], vec![pair("K", "v")])),
        (r#"{"type":"http","name":"a","url":"https://h"}"#, http(Vec::new())),
        (r#"{"type":"http","name":"a","url":"https://h","headers":{"K":"v"}}"#, http(vec![pair("K", "v")])),
    ];
    for (server, meant) in cases {
        let params = format!(r#"{{"cwd":"/p","mcpServers":[{server}]}}"#);
        let raw = RawValue::from_string(params.clone()).expect("JSON");
        let ours = NewSessionParams::parse(Some(&raw)).unwrap_or_else(|error| panic!("{params}: {error}"));
        assert_eq!(ours.mcp_servers, [meant], "{params}");
        let understood =
            serde_json::from_str::<v1::NewSessionRequest>(&params).is_ok_and(|theirs| !theirs.mcp_servers.is_empty());
        assert!(!understood, "the official type reads it now: {params}");
    }
}

#[test]
fn a_load_that_leaves_the_rest_to_the_store() {
    let cases: &[Case] = &[
        ("the session alone", r#"{"sessionId":"s"}"#, loads),
        ("the session, spelt otherwise", r#"{"session_id":"s","cwd":"/p","mcpServers":[]}"#, loads),
        ("no directory", r#"{"sessionId":"s","mcpServers":[]}"#, loads),
    ];
    check::<v1::LoadSessionRequest>(cases);
    check::<v1::ResumeSessionRequest>(cases);
    check::<v1::ForkSessionRequest>(cases);
}

#[test]
fn a_prompt_in_other_shapes() {
    check::<v1::PromptRequest>(&[
        ("a text", r#"{"sessionId":"s","prompt":"hi"}"#, says_hi),
        ("a block without type", r#"{"sessionId":"s","prompt":[{"text":"hi"}]}"#, says_hi),
        ("the session, spelt otherwise", r#"{"session_id":"s","prompt":[{"type":"text","text":"hi"}]}"#, says_hi),
        ("content for prompt", r#"{"sessionId":"s","content":[{"type":"text","text":"hi"}]}"#, says_hi),
        ("an unknown block, to be refused by name", r#"{"sessionId":"s","prompt":[{"type":"video"}]}"#, |raw| {
            parts(raw) == Some(vec![PromptPart::Unknown("video".to_owned())])
        }),
    ]);
}

#[test]
fn ids_in_the_other_spelling() {
    check::<v1::CancelNotification>(&[("cancel", r#"{"session_id":"s"}"#, names)]);
    check::<v1::CloseSessionRequest>(&[("close", r#"{"session_id":"s"}"#, names)]);
    check::<v1::DeleteSessionRequest>(&[("delete", r#"{"session_id":"s"}"#, names)]);
    check::<v1::SetSessionModeRequest>(&[("a mode", r#"{"session_id":"s","mode_id":"full"}"#, |raw| {
        SetModeParams::parse(Some(raw)).is_ok_and(|params| params.session_id == "s" && params.mode_id == "full")
    })]);
    let option = r#"{"session_id":"s","config_id":"mode","value":"full"}"#;
    check::<v1::SetSessionConfigOptionRequest>(&[("an option", option, |raw| {
        SetConfigOptionParams::parse(Some(raw))
            .is_ok_and(|params| params.config_id == "mode" && params.value == OptionValue::Id("full".to_owned()))
    })]);
    check::<v1::AuthenticateRequest>(&[("a login", r#"{"method_id":"m"}"#, |raw| {
        AuthenticateParams::parse(Some(raw)).is_ok_and(|params| params.method_id == "m")
    })]);
}

#[test]
fn parameters_that_are_missing_altogether() {
    assert!(InitializeParams::parse(None).client_name.is_none());
    assert!(NewSessionParams::parse(None).is_ok_and(|params| params.cwd.is_none()));
    assert!(ListSessionsParams::parse(None).is_ok_and(|params| params.cwd.is_none() && params.cursor.is_none()));
    assert!(serde_json::from_str::<v1::InitializeRequest>("null").is_err());
    assert!(serde_json::from_str::<v1::NewSessionRequest>("null").is_err());
}

#[test]
fn events_towards_the_agent() {
    assert_eq!(MethodKind::from_name("session/update"), Some(MethodKind::SessionEvent));
    assert_eq!(MethodKind::from_name("session/event"), Some(MethodKind::SessionEvent));
    check::<v1::SessionNotification>(&[
        ("an event of its own", r#"{"sessionId":"s","update":{"type":"build","text":"red"}}"#, |raw| {
            SessionEventParams::parse(Some(raw))
                .is_ok_and(|params| params.kind == "build" && params.text.as_deref() == Some("red"))
        }),
        ("an event without an update", r#"{"session_id":"s","text":"red"}"#, |raw| {
            SessionEventParams::parse(Some(raw)).is_ok_and(|params| params.text.as_deref() == Some("red"))
        }),
    ]);
}

#[test]
fn ids_that_no_integer_holds() {
    for id in ["18446744073709551616", "123456789012345678901234567890", "1.5", "1e3"] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"session/new"}}"#);
        let ours = match Frame::parse(line.as_bytes()) {
            Ok(Frame::Request { id, .. }) => id,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(RequestId::as_json(&ours), id, "an id is echoed as it came");
        assert!(serde_json::from_str::<v1::RequestId>(id).is_err(), "the official type reads {id} now");
    }
}

/// The other way round: what neither accepts, because a guess would be wrong.
#[test]
fn what_is_refused_by_both() {
    let refused = |official: bool, ours: bool, what: &str| assert!(official && ours, "{what} is accepted by somebody");
    let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("JSON");
    for params in [r#"{"cwd":null,"mcpServers":[]}"#, r#"{"cwd":7,"mcpServers":[]}"#] {
        let theirs = serde_json::from_str::<v1::NewSessionRequest>(params).is_err();
        refused(theirs, NewSessionParams::parse(Some(&raw(params))).is_err(), params);
    }
    for params in ["{}", r#"{"sessionId":7,"prompt":[]}"#, r#"{"sessionId":"s"}"#] {
        let theirs = serde_json::from_str::<v1::PromptRequest>(params).is_err();
        refused(theirs, PromptParams::parse(Some(&raw(params))).is_err(), params);
    }
    for params in ["{}", r#"{"sessionId":null}"#] {
        let theirs = serde_json::from_str::<v1::CancelNotification>(params).is_err();
        refused(theirs, SessionParams::parse(Some(&raw(params))).is_err(), params);
    }
    let link = r#"{"sessionId":"s","prompt":[{"type":"resource_link","uri":"file:///a"}]}"#;
    let theirs = serde_json::from_str::<v1::PromptRequest>(link).is_err();
    refused(theirs, parts(&raw(link)).is_none(), link);
}
