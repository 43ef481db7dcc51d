//! Every spelling of a server that clients send, and what is refused.

use serde_json::value::RawValue;

use super::{McpServer, NameValue};

fn parse(json: &str) -> Result<McpServer, String> {
    let raw = RawValue::from_string(json.to_owned()).unwrap();
    McpServer::parse(&raw).map_err(|error| error.to_string())
}

fn pair(name: &str, value: &str) -> NameValue {
    NameValue { name: name.to_owned(), value: value.to_owned() }
}

#[test]
fn a_program_needs_a_name_and_a_command_only() {
    let expected = McpServer::Stdio { name: "a".into(), command: "/b".into(), args: vec![], env: vec![] };
    for json in [
        r#"{"name":"a","command":"/b"}"#,
        r#"{"name":"a","command":"/b","args":[],"env":[]}"#,
        r#"{"type":"stdio","name":"a","command":"/b","args":null,"env":{},"more":1}"#,
    ] {
        assert_eq!(parse(json).unwrap(), expected, "{json}");
    }
}

#[test]
fn variables_come_as_pairs_or_as_an_object() {
    let expected = vec![pair("K", "v"), pair("L", "w")];
    for env in [r#"[{"name":"K","value":"v"},{"name":"L","value":"w"}]"#, r#"{"K":"v","L":"w"}"#] {
        let json = format!(r#"{{"name":"a","command":"b","args":["-x"],"env":{env}}}"#);
        let McpServer::Stdio { env, args, .. } = parse(&json).unwrap() else { panic!("a program: {json}") };
        assert_eq!((env, args), (expected.clone(), vec!["-x".to_owned()]));
    }
}

#[test]
fn an_address_has_headers() {
    let json = r#"{"type":"http","name":"a","url":"https://h/mcp","headers":[{"name":"X","value":"y"}]}"#;
    let expected = McpServer::Http { name: "a".into(), url: "https://h/mcp".into(), headers: vec![pair("X", "y")] };
    assert_eq!(parse(json).unwrap(), expected);
}

#[test]
fn a_transport_that_is_not_spoken_is_kept_by_name() {
    let json = r#"{"type":"sse","name":"a","url":"https://h/sse","headers":[]}"#;
    assert_eq!(parse(json).unwrap(), McpServer::Other { name: "a".into(), transport: "sse".into() });
}

#[test]
fn what_is_missing_is_named() {
    for (json, word) in [
        (r#"{"command":"/b"}"#, "name"),
        (r#"{"name":"a"}"#, "`command`"),
        (r#"{"name":"a","command":""}"#, "`command`"),
        (r#"{"name":"a","type":"http"}"#, "`url`"),
        (r#"{"name":"a","command":"/b","env":"K=v"}"#, "list of names"),
        (r#"{"name":"a","command":"/b","args":"-x"}"#, "sequence"),
        (r#"[]"#, "struct"),
    ] {
        let error = parse(json).unwrap_err();
        assert!(error.contains("`mcpServers`") && error.contains(word), "{json}: {error}");
    }
}

#[test]
fn values_do_not_show_in_debug_output() {
    let json = r#"{"name":"a","command":"/b","env":{"K":"hidden-value"}}"#;
    let text = format!("{:?}", parse(json).unwrap());
    assert!(text.contains('K') && !text.contains("hidden-value"), "{text}");
}
