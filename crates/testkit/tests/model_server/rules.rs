//! The strictness of the scripted vendor: sound conversations pass, each breach is answered 400 and kept.

use serde_json::{Value, json};
use zeroclaw_testkit::model_server::{MAX_CONTENT_CHARS, ModelServer, Reply, signature_for};

use crate::client::{Client, JSON, VERSION, openai};

#[derive(Clone, Copy)]
enum Api {
    OpenAi,
    Anthropic,
}

/// Status and violations of one request.
async fn ask_text(api: Api, headers: &[(&str, &str)], body: &str) -> (u16, Vec<String>) {
    let server = ModelServer::start().await;
    server.push(Reply::text("ok"));
    let mut client = Client::connect(&server).await;
    let path = match api {
        Api::OpenAi => "/v1/chat/completions",
        Api::Anthropic => "/v1/messages",
    };
    client.send("POST", path, headers, body).await;
    let response = client.response().await;
    if response.status == 400 {
        let error = response.json();
        assert_eq!(error["error"]["type"], "invalid_request_error");
        assert_eq!(error["error"]["message"].as_str(), server.violations().first().map(String::as_str));
        assert_eq!(server.unused_replies(), 1, "a refused request takes no reply");
    }
    (response.status, server.violations())
}

async fn ask(api: Api, body: &Value) -> (u16, Vec<String>) {
    let headers: &[(&str, &str)] = match api {
        Api::OpenAi => &[JSON],
        Api::Anthropic => &[JSON, VERSION],
    };
    ask_text(api, headers, &body.to_string()).await
}

/// Replaces what each pointer names, or removes it when the new value is null and the name starts with `-`.
fn edited(mut body: Value, pointer: &str, value: Value) -> Value {
    if let Some(pointer) = pointer.strip_prefix('-') {
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
        let parent = body.pointer_mut(parent).expect("the place to edit");
        parent.as_object_mut().expect("an object").remove(name);
    } else if let Some(place) = body.pointer_mut(pointer) {
        *place = value;
    } else {
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
        body.pointer_mut(parent).expect("the place to edit")[name] = value;
    }
    body
}

async fn assert_breaches(api: Api, sound: &Value, cases: Vec<(&str, Value, &str)>) {
    assert_eq!(ask(api, sound).await, (200, Vec::new()));
    for (pointer, value, expected) in cases {
        let (status, violations) = ask(api, &edited(sound.clone(), pointer, value.clone())).await;
        assert_eq!(status, 400, "{pointer} = {value}");
        assert!(violations.iter().any(|text| text.contains(expected)), "{pointer} = {value}: {violations:#?}");
    }
}

fn openai_sound() -> Value {
    json!({
        "model": "m",
        "stream": true,
        "stream_options": {"include_usage": true},
        "tools": [
            {"type": "function", "function": {"name": "read", "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}},
                "required": ["path"],
            }}},
            {"type": "function", "function": {"name": "now"}},
        ],
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}},
                {"id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "b", "content": ""},
            {"role": "tool", "tool_call_id": "a", "content": "text"},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "more"},
        ],
    })
}

#[tokio::test]
async fn openai_rules_are_enforced() {
    let tool_message = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
    let call = "/messages/2/tool_calls/0";
    let at = |path: &str| format!("{call}{path}");
    let (name, arguments, id, kind) = (at("/function/name"), at("/function/arguments"), at("/id"), at("/type"));
    assert_breaches(
        Api::OpenAi,
        &openai_sound(),
        vec![
            ("/stream", json!(false), "`stream` is not true"),
            ("-/stream", Value::Null, "`stream` is not true"),
            ("/model", json!(""), "`model`"),
            ("/messages", json!([]), "`messages`"),
            ("/messages/0/role", json!("root"), "role \"root\" is not valid"),
            ("/messages/0/content", json!(null), "content is neither"),
            ("/messages/1/content", json!([]), "content is neither"),
            ("/messages/1/content/1", json!({"type": "image"}), "not a valid part"),
            ("/messages/2/content", json!(""), "empty string next to tool_calls"),
            ("/messages/2/tool_calls", json!([]), "`tool_calls` is not a non-empty array"),
            (&name, json!("a.b"), "name does not match"),
            (&name, json!("x".repeat(65)), "name does not match"),
            (&arguments, json!({"path": "x"}), "arguments are not the text"),
            (&arguments, json!("[]"), "arguments are not the text"),
            (&arguments, json!("{\"path\":"), "arguments are not the text"),
            (&arguments, json!(""), "arguments are not the text"),
            (&id, json!("b"), "id \"b\" was used before"),
            (&id, json!(""), "id is not a non-empty string"),
            (&kind, json!("custom"), "type is not `function`"),
            ("/messages/3/tool_call_id", json!("z"), "tool result for \"z\""),
            ("/messages/3", tool_message("a"), "tool result for \"a\""),
            ("/messages/4", json!({"role": "user", "content": "x"}), "tool call \"a\" has no tool result"),
            ("/messages/5", tool_message("a"), "tool result for \"a\""),
            ("/messages/5/content", Value::Null, "content is neither"),
            ("/messages/6/tool_calls", json!([]), "`tool_calls` on role user"),
            (
                "/messages/6",
                json!({"role": "assistant", "tool_calls": [
                    {"id": "q", "type": "function", "function": {"name": "now", "arguments": "{}"}}]}),
                "end of messages: tool call \"q\"",
            ),
            ("/tools", json!([]), "`tools` is not a non-empty array"),
            ("/tools/0/type", json!("tool"), "tools[0]: type"),
            ("/tools/0/function/name", json!("re ad"), "tools[0]: name"),
            ("/tools/0/function/name", json!("now"), "second tool named now"),
            ("/tools/0/function/parameters", json!("{}"), "not a JSON Schema"),
            ("/tools/0/function/parameters", json!({}), "not a JSON Schema"),
            ("/tools/0/function/parameters/properties", json!([]), "`properties` is not an object"),
            ("/tools/0/function/parameters/properties/path", json!("string"), "neither an object nor a boolean"),
            ("/tools/0/function/parameters/required", json!(["nope"]), "required property nope"),
            ("/tools/0/function/parameters/required", json!("path"), "`required` is not an array"),
            ("-/tools/0/function/parameters/properties/lines/items", Value::Null, "an array without `items`"),
        ],
    )
    .await;
    let choice = json!({"model": "m", "stream": true, "tool_choice": "auto",
        "messages": [{"role": "user", "content": "x"}]});
    assert_eq!(ask(Api::OpenAi, &choice).await.1, ["`tool_choice` without `tools`"]);
    let tool = |index: usize| json!({"type": "function", "function": {"name": format!("t{index}")}});
    let many = edited(openai_sound(), "/tools", (0..129).map(tool).collect());
    assert_eq!(ask(Api::OpenAi, &many).await.1, ["more than 128 tools"]);
}

fn anthropic_sound() -> Value {
    json!({
        "model": "m",
        "stream": true,
        "max_tokens": 100,
        "system": [{"type": "text", "text": "be brief"}],
        "tools": [{"name": "read", "input_schema": {"type": "object", "properties": {}}}],
        "messages": [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": signature_for("hm")},
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "a", "name": "read", "input": {}},
                {"type": "tool_use", "id": "b", "name": "read", "input": {}},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "text"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b"}, {"type": "text", "text": "so?"}]},
        ],
    })
}

#[tokio::test]
async fn anthropic_rules_are_enforced() {
    let assistant = json!({"role": "assistant", "content": "x"});
    let user = json!({"role": "user", "content": "x"});
    let text = json!({"type": "text", "text": "x"});
    assert_breaches(
        Api::Anthropic,
        &anthropic_sound(),
        vec![
            ("/stream", json!("true"), "`stream` is not true"),
            ("-/max_tokens", Value::Null, "`max_tokens`"),
            ("/max_tokens", json!(0), "`max_tokens`"),
            ("/system", json!(""), "`system`"),
            ("/system/0/text", json!(""), "`system`"),
            ("-/tools/0/input_schema", Value::Null, "no `input_schema`"),
            ("/tools/0/input_schema", json!({"type": "string"}), "not a JSON Schema"),
            ("/tools/0/name", json!(""), "tools[0]: name"),
            ("/messages/0/role", json!("system"), "system text belongs to the top level"),
            ("/messages/0/role", json!("tool"), "role \"tool\" is not valid"),
            ("/messages/0", assistant.clone(), "the first message is not from the user"),
            ("/messages/0", assistant.clone(), "two assistant messages in a row"),
            ("/messages/0/content", json!(""), "content is empty"),
            ("/messages/0/content", json!([]), "content is neither"),
            ("/messages/1/content/0/thinking", json!("changed"), "the signature does not belong"),
            ("-/messages/1/content/0/signature", Value::Null, "the signature does not belong"),
            ("/messages/1/content/0", json!({"type": "redacted_thinking"}), "redacted thinking without data"),
            (
                "/messages/1/content/1",
                json!({"type": "thinking", "thinking": "", "signature": "x"}),
                "the signature does not belong",
            ),
            ("/messages/1/content/1/text", json!(""), "a text block without text"),
            ("/messages/1/content/2/id", json!("a b"), "id \"a b\" is not valid"),
            ("/messages/1/content/2/id", json!("b"), "id \"b\" was used before"),
            ("/messages/1/content/2/name", json!("a/b"), "name does not match"),
            ("/messages/1/content/2/input", json!("{}"), "input is not an object"),
            ("/messages/1/content/2/type", json!("image"), "block \"image\" is not valid for role \"assistant\""),
            ("/messages/2", user.clone(), "tool_use \"a\" has no tool_result"),
            ("/messages/2", assistant, "tool_use \"a\" has no tool_result"),
            ("/messages/2/content/0/tool_use_id", json!("z"), "tool_result for \"z\""),
            ("/messages/2/content/0/content", json!(1), "the content of a tool_result"),
            ("/messages/3", user, "tool_use \"b\" has no tool_result"),
            ("/messages/3/content/0", text, "tool_use \"b\" has no tool_result"),
            ("/messages/3/content/1", json!({"type": "image"}), "no source"),
            ("/messages/3/role", json!("assistant"), "the last message is not from the user"),
        ],
    )
    .await;
}

#[tokio::test]
async fn blocks_of_a_message_keep_their_order() {
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": signature_for("hm")});
    let late_thinking = edited(anthropic_sound(), "/messages/1/content/1", thinking.clone());
    assert_eq!(ask(Api::Anthropic, &late_thinking).await, (200, Vec::new()), "thinking blocks may follow each other");
    let late_thinking = edited(anthropic_sound(), "/messages/1/content/0", json!({"type": "text", "text": "x"}));
    let late_thinking = edited(late_thinking, "/messages/1/content/1", thinking);
    let (_, violations) = ask(Api::Anthropic, &late_thinking).await;
    assert_eq!(violations, ["messages[1]: a thinking block after another block"]);
    let results = json!([{"type": "text", "text": "so?"}, {"type": "tool_result", "tool_use_id": "b"}]);
    let (_, violations) = ask(Api::Anthropic, &edited(anthropic_sound(), "/messages/3/content", results)).await;
    assert!(violations.contains(&"messages[3].content[1]: a tool_result after another block of the user".to_owned()));
}

#[tokio::test]
async fn content_over_the_limit_is_refused() {
    // Two bytes a character: the limit counts characters.
    let full = "é".repeat(MAX_CONTENT_CHARS);
    let body = |text: &str| json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": text}]});
    assert_eq!(ask(Api::OpenAi, &body(&full)).await, (200, Vec::new()));
    let (status, violations) = ask(Api::OpenAi, &body(&format!("{full}x"))).await;
    assert_eq!((status, violations), (400, vec!["messages[0]: content over 10485760 characters".to_owned()]));
}

#[tokio::test]
async fn bodies_and_headers_are_checked() {
    let sound = openai_sound().to_string();
    assert_eq!(ask_text(Api::OpenAi, &[], &sound).await.1, ["content-type is not application/json"]);
    assert_eq!(ask_text(Api::OpenAi, &[JSON], "[1]").await.1, ["the body is not a JSON object"]);
    assert_eq!(ask_text(Api::OpenAi, &[JSON], "{\"a\":").await.1, ["the body is not a JSON object"]);
    let sound = anthropic_sound().to_string();
    assert_eq!(ask_text(Api::Anthropic, &[JSON], &sound).await.1, ["no `anthropic-version` header"]);
}

#[tokio::test]
async fn empty_content_is_refused_where_a_reply_says_so() {
    let body = |content: Value| {
        json!({"model": "m", "stream": true, "messages": [
            {"role": "user", "content": "x"}, {"role": "user", "content": content}]})
    };
    for (content, status) in [
        (json!(""), 400),
        (json!([{"type": "text", "text": ""}]), 400),
        (json!(" "), 200),
        (json!([{"type": "text", "text": "x"}]), 200),
    ] {
        let server = ModelServer::start().await;
        server.push(Reply::text("ok").reject_empty_content());
        assert_eq!(openai(&server, &body(content.clone())).await.status, status, "{content}");
        let expected: &[&str] = if status == 400 { &["messages[1]: empty content"] } else { &[] };
        assert_eq!(server.violations(), expected);
    }
    assert_eq!(ask(Api::OpenAi, &body(json!(""))).await.0, 200, "without the quirk an empty text is accepted");
}

#[tokio::test]
async fn an_unknown_route_is_a_violation() {
    let server = ModelServer::start().await;
    let mut client = Client::connect(&server).await;
    client.send("POST", "/chat/complete", &[JSON], "{}").await;
    assert_eq!(client.response().await.status, 404);
    assert_eq!(server.violations(), ["no such route: POST /chat/complete"]);
    assert!(server.requests().is_empty());
}
