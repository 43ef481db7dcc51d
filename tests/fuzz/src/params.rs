//! The parameters of every method: no input panics, and what a member says does not depend on where it stands or on members
//! that nobody knows.

use serde_json::value::RawValue;
use zeroclaw_acp_protocol::params::{
    AttachParams, AuthenticateParams, CancelRequestParams, InitializeParams, ListSessionsParams, LoadSessionParams,
    NewSessionParams, PromptParams, SessionEventParams, SessionParams, SetConfigOptionParams, SetModeParams,
};

use crate::Input;

const KEYS: &[&str] = &[
    "protocolVersion",
    "clientCapabilities",
    "clientInfo",
    "cwd",
    "workspaceDir",
    "workspace_dir",
    "sessionId",
    "session_id",
    "prompt",
    "mcpServers",
    "additionalDirectories",
    "agentAlias",
    "agent",
    "agent_alias",
    "afterSeq",
    "modeId",
    "configId",
    "value",
    "cursor",
    "update",
    "text",
    "requestId",
    "methodId",
    "_meta",
    "systemPrompt",
];

const VALUES: &[&str] = &[
    "null",
    "true",
    "0",
    "1",
    "-1",
    "1.5",
    "18446744073709551616",
    "\"\"",
    "\"a\"",
    "\" a \"",
    "\"\\u0000\"",
    "\"2025-06-18\"",
    "[]",
    "{}",
    "[1]",
    "[\"/a\"]",
    "[{\"type\":\"text\",\"text\":\"t\"}]",
    "[{\"text\":\"t\"}]",
    "[{\"type\":\"image\",\"data\":\"!\",\"mimeType\":\"x\"}]",
    "[{\"type\":\"resource\",\"resource\":{\"uri\":\"file:///a\",\"text\":\"x\"}}]",
    "[{\"type\":\"resource_link\",\"uri\":\"u\",\"name\":\"n\"}]",
    "[{\"name\":\"n\",\"command\":\"/c\",\"args\":[],\"env\":[]}]",
    "[{\"type\":\"http\",\"name\":\"n\",\"url\":\"u\",\"headers\":[]}]",
    "{\"fs\":{\"readTextFile\":true}}",
    "{\"name\":\"n\",\"version\":\"v\"}",
    "{\"zeroclaw\":{\"seq\":true}}",
    "{\"mode\":\"append\",\"text\":\"t\"}",
    "{\"content\":{\"type\":\"text\",\"text\":\"t\"}}",
];

/// Everything that is read of an object, as text.
fn read(json: &str) -> Vec<String> {
    let raw: Box<RawValue> = serde_json::from_str(json).expect("an object was put together");
    let raw = Some(&*raw);
    vec![
        format!("{:?}", InitializeParams::parse(raw)),
        format!("{:?}", NewSessionParams::parse(raw)),
        format!("{:?}", LoadSessionParams::parse(raw)),
        format!("{:?}", PromptParams::parse(raw)),
        format!("{:?}", SessionParams::parse(raw)),
        format!("{:?}", AttachParams::parse(raw)),
        format!("{:?}", SetModeParams::parse(raw)),
        format!("{:?}", SetConfigOptionParams::parse(raw)),
        format!("{:?}", ListSessionsParams::parse(raw)),
        format!("{:?}", CancelRequestParams::parse(raw)),
        format!("{:?}", AuthenticateParams::parse(raw)),
        // What it is about is kept as it came; that it is one does not depend on what else is there.
        format!("{:?}", SessionEventParams::parse(raw).map(drop)),
    ]
}

/// See the module.
pub(crate) fn tolerance(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut members: Vec<String> = Vec::new();
    let mut used = Vec::new();
    for _ in 0..input.roll(7) {
        let key = input.pick(KEYS);
        // Which of two members of one name counts is not said.
        if !used.contains(&key) {
            used.push(key);
            members.push(format!("\"{key}\":{}", input.pick(VALUES)));
        }
    }
    let object = format!("{{{}}}", members.join(","));
    let plain = read(&object);
    let unknown = format!("\"zzz-unknown\":{}", input.pick(VALUES));
    members.insert(input.roll(members.len() + 1), unknown);
    let with_unknown = format!("{{{}}}", members.join(","));
    assert_eq!(read(&with_unknown), plain, "{with_unknown}");
    members.reverse();
    let reversed = format!("{{ {} }}", members.join(" ,\t"));
    // Which of several mistakes is named may depend on their order; whether there is one may not.
    let outcomes = |all: &[String]| all.iter().map(|one| one.starts_with("Err")).collect::<Vec<_>>();
    assert_eq!(outcomes(&read(&reversed)), outcomes(&plain), "{reversed}");
    for value in VALUES {
        read(value);
    }
}
