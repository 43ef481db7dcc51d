//! `docs/protocol.md` is read back: each JSON block by the types of its direction, the error table by ours.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests abort loudly")]

use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{ErrorKind, ErrorTable, Frame, MethodKind, ResponseOutcome, params, parse_prompt, reading};

const PAGE: &str = include_str!("../../../docs/protocol.md");

/// The blocks of the page by their direction.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let mut blocks = Vec::new();
    for piece in PAGE.split("```").skip(1).step_by(2) {
        let (info, text) = piece.split_once('\n').unwrap();
        let direction = info.strip_prefix("json ").unwrap_or_else(|| panic!("a block without a direction: `{info}`"));
        blocks.push((direction, text.trim_end()));
    }
    blocks
}

fn call(kind: MethodKind, raw: Option<&RawValue>) {
    match kind {
        MethodKind::Initialize => assert!(params::InitializeParams::parse(raw).client_name.is_some()),
        MethodKind::SessionNew => assert!(params::NewSessionParams::parse(raw).unwrap().cwd.is_some()),
        MethodKind::SessionPrompt => {
            let params = params::PromptParams::parse(raw).unwrap();
            assert_eq!(parse_prompt(params.prompt).unwrap().len(), 1);
        }
        MethodKind::SessionStop => assert_eq!(params::SessionParams::parse(raw).unwrap().session_id, "SESSION"),
        other => panic!("the page shows {other:?} and nothing here reads it"),
    }
}

#[test]
fn every_block_is_read_by_the_types_of_its_direction() {
    let mut open = Vec::new();
    let mut read = 0;
    for (direction, text) in blocks() {
        let frame = Frame::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error:?}: {text}"));
        match (direction, frame) {
            ("client", Frame::Request { id, method, params }) => {
                let kind = MethodKind::from_name(&method).unwrap_or_else(|| panic!("{method}"));
                call(kind, params);
                open.push((id, kind));
            }
            ("client", Frame::Response { outcome: ResponseOutcome::Result(raw), .. }) => {
                assert!(params::PermissionOutcome::parse(raw).is_some(), "{text}");
            }
            ("agent", Frame::Request { method, params: Some(raw), .. }) if method == "session/request_permission" => {
                assert!(!reading::read::<reading::PermissionRequest>(raw).unwrap().options.is_empty());
            }
            ("agent", Frame::Notification { params: Some(raw), .. }) => {
                let update = reading::read::<reading::SessionNotification>(raw).unwrap().update;
                assert!(!matches!(update, reading::Update::Unknown(_)), "{text}");
            }
            ("agent", Frame::Response { id, outcome: ResponseOutcome::Result(raw) }) => {
                let (_, kind) = open.iter().find(|(open, _)| *open == id).unwrap_or_else(|| panic!("{text}"));
                match kind {
                    MethodKind::Initialize => drop(reading::read::<reading::InitializeResult>(raw).unwrap()),
                    MethodKind::SessionNew => drop(reading::read::<reading::NewSessionResult>(raw).unwrap()),
                    MethodKind::SessionPrompt => drop(reading::read::<reading::PromptResult>(raw).unwrap()),
                    MethodKind::SessionStop => drop(reading::read::<reading::StopResult>(raw).unwrap()),
                    other => panic!("nothing here reads the answer to {other:?}"),
                }
            }
            ("agent", Frame::Response { outcome: ResponseOutcome::Error(error), .. }) => {
                assert!(error.data.unwrap().kind.is_some(), "{text}");
            }
            _ => panic!("a block in the wrong direction ({direction}): {text}"),
        }
        read += 1;
    }
    assert!(read > 10, "{read}");
}

#[test]
fn the_error_table_of_the_page_is_the_one_of_the_code() {
    let kinds = [
        ErrorKind::Parse,
        ErrorKind::InvalidRequest,
        ErrorKind::MethodNotFound,
        ErrorKind::InvalidParams,
        ErrorKind::Internal,
        ErrorKind::RequestCancelled,
        ErrorKind::SessionNotFound,
        ErrorKind::SessionLimitReached,
        ErrorKind::SessionBusy,
        ErrorKind::AuthRequired,
    ];
    for kind in kinds {
        let (ours, spec) = (ErrorTable::Zeroclaw.code(kind), ErrorTable::Spec.code(kind));
        let row = format!("| `{}` | {ours} | {spec} |", kind.as_str());
        assert!(PAGE.contains(&row), "{row}");
    }
}
