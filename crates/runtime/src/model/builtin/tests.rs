//! The built-in commands, conversation by conversation.

use std::sync::Arc;

use futures::TryStreamExt;
use serde_json::{Value, json};

use crate::model::{
    Message, ModelEvent, ModelProvider, ModelRequest, ModelStop, ToolCallRequest, ToolSpec,
    builtin::{
        BuiltinProvider, builtin_commands,
        parse::{Command, Parsed, commands},
    },
};

const TOOLS: [&str; 10] = [
    "file_read",
    "list_dir",
    "glob_search",
    "content_search",
    "shell",
    "file_write",
    "file_edit",
    "todo_write",
    "ask_user",
    "deliver_file",
];

fn request(messages: &[Message]) -> ModelRequest {
    let tool = |name: &str| ToolSpec { name: name.to_owned(), description: String::new(), parameters: json!({}) };
    ModelRequest {
        system: "".into(),
        messages: messages.iter().cloned().map(Arc::new).collect(),
        tools: TOOLS.map(tool).into(),
        max_output_tokens: None,
        thinking: None,
    }
}

async fn answer(messages: &[Message]) -> Vec<ModelEvent> {
    let provider = BuiltinProvider::new("builtin.default", vec!["ANTHROPIC_API_KEY".to_owned()]);
    provider.stream(request(messages)).await.unwrap().try_collect().await.unwrap()
}

fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

fn called(call: &ToolCallRequest) -> Message {
    Message::Assistant { text: String::new(), thought: String::new(), tool_calls: vec![call.clone()], signed: vec![] }
}

fn result(call: &ToolCallRequest, content: &str, failed: bool) -> Message {
    Message::Tool { call_id: call.id.clone(), content: content.to_owned(), failed }
}

fn the_call(events: &[ModelEvent]) -> &ToolCallRequest {
    let mut calls = events.iter().filter_map(|event| match event {
        ModelEvent::ToolCall(call) => Some(call),
        _ => None,
    });
    let call = calls.next().expect("a tool call");
    assert_eq!(calls.next(), None, "one call at a time");
    call
}

fn text_of(events: &[ModelEvent]) -> String {
    events
        .iter()
        .filter_map(|event| if let ModelEvent::Text(text) = event { Some(text.as_str()) } else { None })
        .collect()
}

#[tokio::test]
async fn commands_become_calls_of_the_real_tools() {
    let table: &[(&str, &str, Value)] = &[
        ("/read a.txt", "file_read", json!({"path": "a.txt"})),
        ("/ls", "list_dir", json!({"path": "."})),
        ("  /ls src  ", "list_dir", json!({"path": "src"})),
        ("/find **/*.rs", "glob_search", json!({"pattern": "**/*.rs"})),
        ("/grep TODO", "content_search", json!({"pattern": "TODO"})),
        ("/grep \"two words\" src", "content_search", json!({"pattern": "two words", "path": "src"})),
        ("/run echo a | wc -c", "shell", json!({"command": "echo a | wc -c"})),
        ("/run cat <<EOF\nx\nEOF", "shell", json!({"command": "cat <<EOF\nx\nEOF"})),
        ("/write a.txt hello  world", "file_write", json!({"path": "a.txt", "content": "hello  world"})),
        ("/write a.txt\nhello\n\n  world\n", "file_write", json!({"path": "a.txt", "content": "hello\n\n  world\n"})),
        (
            "/write \"my file\"\n```\n/run rm x\n\nb\n```",
            "file_write",
            json!({"path": "my file", "content": "/run rm x\n\nb\n"}),
        ),
        ("/write empty", "file_write", json!({"path": "empty", "content": ""})),
        ("/edit a.txt old => new", "file_edit", json!({"path": "a.txt", "old_text": "old", "new_text": "new"})),
        ("/edit a.txt old =>", "file_edit", json!({"path": "a.txt", "old_text": "old", "new_text": ""})),
        (
            "/edit a.txt\n```\nfn a() {\n}\n```\n\n```rust\nfn b() {\n}\n```\n",
            "file_edit",
            json!({"path": "a.txt", "old_text": "fn a() {\n}", "new_text": "fn b() {\n}"}),
        ),
        (
            "/plan first; second;",
            "todo_write",
            json!({"todos": [
                {"content": "first", "status": "pending", "priority": "medium"},
                {"content": "second", "status": "pending", "priority": "medium"},
            ]}),
        ),
        ("/ask Which? | red | blue", "ask_user", json!({"question": "Which?", "choices": ["red", "blue"]})),
        ("/ask Why?", "ask_user", json!({"question": "Why?", "choices": []})),
        ("/deliver out.png", "deliver_file", json!({"path": "out.png"})),
        ("[Document: a.pdf] /x/a.pdf\n\n/read b", "file_read", json!({"path": "b"})),
    ];
    for (prompt, tool, arguments) in table {
        let events = answer(&[user(prompt)]).await;
        let call = the_call(&events);
        assert_eq!(
            (call.name.as_str(), serde_json::from_str(&call.arguments).unwrap()),
            (*tool, arguments.clone()),
            "{prompt}"
        );
        assert_eq!(events.last(), Some(&ModelEvent::Stop(ModelStop::End)), "{prompt}");
    }
}

#[test]
fn a_line_range_is_read_or_refused() {
    let read = |lines| Parsed::Commands(vec![Command::Read { path: "a".to_owned(), lines }]);
    assert_eq!(commands("/read a 3-7"), read(Some((3, 7))));
    assert_eq!(commands("/read a"), read(None));
    for wrong in ["/read a 7-3", "/read a 0-3", "/read a x", "/read a 3"] {
        let Parsed::Commands(parsed) = commands(wrong) else { panic!("{wrong} is a command") };
        assert!(matches!(parsed.as_slice(), [Command::Wrong { .. }]), "{wrong}: {parsed:?}");
    }
}

#[tokio::test]
async fn several_commands_run_one_after_the_other() {
    let prompt = user("/think hm\n/run false\n/say 2\n/ls");
    let first = answer(std::slice::from_ref(&prompt)).await;
    assert_eq!(first.first(), Some(&ModelEvent::Thought("hm".to_owned())));
    let run = the_call(&first).clone();
    assert_eq!(run.name, "shell");

    let mut conversation = vec![prompt, called(&run), result(&run, "oh\n[exit code 1]", true)];
    let second = answer(&conversation).await;
    assert_eq!(text_of(&second), "The command has ended (exit code 1); its output is above.\nchunk 1 chunk 2 ");
    let list = the_call(&second).clone();
    assert_eq!(list.name, "list_dir");
    assert_ne!(list.id, run.id);

    conversation.extend([called(&list), result(&list, "a\nb", false)]);
    let last = answer(&conversation).await;
    assert_eq!(last, [ModelEvent::Text("The content of . is above.\n".to_owned()), ModelEvent::Stop(ModelStop::End)]);
}

#[tokio::test]
async fn an_earlier_turn_does_not_count() {
    let old = ToolCallRequest { id: "x".to_owned(), name: "list_dir".to_owned(), arguments: "{}".to_owned() };
    let events = answer(&[user("/ls"), called(&old), result(&old, "a", false), user("/run date")]).await;
    assert_eq!(the_call(&events).name, "shell");
    assert_eq!(text_of(&events), "");
}

#[tokio::test]
async fn a_failed_call_is_told_as_what_it_was() {
    for (content, expected) in [
        ("the user rejected this call", "That was not allowed: the user rejected this call\n"),
        ("no decision: nobody is there", "That was not allowed: no decision: nobody is there\n"),
        ("\nno such file: a\nmore", "That did not work: no such file: a\n"),
        ("", "That did not work: no reason given\n"),
    ] {
        let prompt = user("/read a");
        let call = the_call(&answer(std::slice::from_ref(&prompt)).await).clone();
        let events = answer(&[prompt, called(&call), result(&call, content, true)]).await;
        assert_eq!(text_of(&events), expected);
    }
}

#[tokio::test]
async fn say_streams_one_event_a_chunk() {
    let events = answer(&[user("/say 1000")]).await;
    assert_eq!(events.len(), 1001);
    assert_eq!(events.first(), Some(&ModelEvent::Text("chunk 1 ".to_owned())));
    assert_eq!(events.get(999), Some(&ModelEvent::Text("chunk 1000 ".to_owned())));
}

#[tokio::test]
async fn text_with_a_counter_mark_is_not_counted() {
    assert_eq!(answer(&[user("/think {n}")]).await.first(), Some(&ModelEvent::Thought("{n}".to_owned())));
}

#[tokio::test]
async fn anything_else_is_answered_honestly() {
    for prompt in ["Write me a poem", "", "/etc/hosts is a file", "hello\n/run rm -rf x"] {
        let events = answer(&[user(prompt)]).await;
        let text = text_of(&events);
        assert!(
            text.contains("No language model is connected") && text.contains("ANTHROPIC_API_KEY"),
            "{prompt}: {text}"
        );
        assert_eq!(events.len(), 2, "{prompt}: no call");
    }
    let unknown = text_of(&answer(&[user("/frobnicate x")]).await);
    assert!(unknown.starts_with("There is no command /frobnicate."), "{unknown}");
}

#[tokio::test]
async fn what_follows_a_blank_line_is_never_a_command() {
    let prompt = user("/ls\n\n[file:///x/notes.md]\n/run curl evil");
    let call = the_call(&answer(std::slice::from_ref(&prompt)).await).clone();
    assert_eq!(call.name, "list_dir");
    let events = answer(&[prompt, called(&call), result(&call, "a", false)]).await;
    assert_eq!(events.len(), 2, "{events:?}");
}

#[tokio::test]
async fn a_tool_that_is_not_on_offer_is_not_called() {
    let provider = BuiltinProvider::new("builtin", Vec::new());
    let mut request = request(&[user("/run date")]);
    request.tools = Arc::new([]);
    let events: Vec<_> = provider.stream(request).await.unwrap().try_collect().await.unwrap();
    assert_eq!(text_of(&events), "The tool shell is not on offer in this session.\n");
}

#[tokio::test]
async fn every_advertised_command_is_in_the_help_and_understood() {
    let help = text_of(&answer(&[user("/help")]).await);
    for command in builtin_commands() {
        assert!(help.contains(&format!("`/{}", command.name)), "{} is in the help", command.name);
        let Parsed::Commands(parsed) = commands(&format!("/{}", command.name)) else { panic!("{}", command.name) };
        for parsed in parsed {
            if let Command::Wrong { problem, .. } = parsed {
                assert_ne!(problem, "there is no such command", "{}", command.name);
            }
        }
    }
}
