//! Files through the client: what it has not saved counts, what is refused never reaches it, and its failures are told.

use std::{collections::BTreeMap, fs, os::unix::fs::symlink, path::Path};

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, new_session, text_prompt};
use zeroclaw_testkit::process::{AgentProcess, Permission};

use crate::turns::{Turn, announced, last_update, texts};

/// What the client says to a request.
pub(crate) enum Say {
    Result(Value),
    Error(i64, &'static str),
    /// Nothing, for ever.
    Nothing,
}

/// A request of the agent for a file or a terminal.
pub(crate) type Request = (String, Value);

/// Starts the agent with these variables, as a client with these capabilities, and opens a session.
pub(crate) async fn lending(lab: &Lab, capabilities: Value, variables: &[(&str, &str)]) -> (AgentProcess, String) {
    let mut agent = lab.start_with(variables);
    let hello = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
    agent.call("initialize", hello).await.expect("initialize");
    agent.auto_permit("allow-once");
    let session = new_session(&mut agent, &lab.project()).await;
    (agent, session)
}

/// Whether a message asks for a file or a terminal.
pub(crate) fn asks_client(message: &Value) -> bool {
    let method = message["method"].as_str().unwrap_or_default();
    message.get("id").is_some() && (method.starts_with("fs/") || method.starts_with("terminal/"))
}

/// Runs a prompt to its end while the client answers; returns the turn and what was asked, in order.
pub(crate) async fn turn(
    agent: &mut AgentProcess,
    session: &str,
    mut client: impl FnMut(&str, &Value) -> Say,
) -> (Turn, Vec<Request>) {
    let prompt = agent.request("session/prompt", text_prompt(session, "go")).await;
    let (mut messages, mut asked) = (Vec::new(), Vec::new());
    loop {
        let mut message = agent.next().await;
        if message.get("method").is_none() && message["id"] == *prompt.id() {
            return (Turn { result: message["result"].take(), messages }, asked);
        }
        if asks_client(&message) {
            let (method, params) = (message["method"].as_str().unwrap().to_owned(), message["params"].clone());
            match client(&method, &params) {
                Say::Result(result) => agent.reply(&message["id"], result).await,
                Say::Error(code, text) => agent.reply_error(&message["id"], code, text).await,
                Say::Nothing => {}
            }
            asked.push((method, params));
        }
        messages.push(message);
    }
}

/// A script of one tool call and a last word.
pub(crate) fn script(tool: &str, arguments: Value) -> Vec<Value> {
    vec![
        json!({"type": "tool_call", "name": tool, "arguments": arguments}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "done"}),
        json!({"type": "stop"}),
    ]
}

fn both() -> Value {
    json!({"fs": {"readTextFile": true, "writeTextFile": true}})
}

/// An editor with these open files; what is not open is read from and written to the disk.
struct Editor {
    open: BTreeMap<String, String>,
}

impl Editor {
    fn with(path: &Path, text: &str) -> Self {
        Self { open: BTreeMap::from([(path.to_str().unwrap().to_owned(), text.to_owned())]) }
    }

    fn answer(&mut self, method: &str, params: &Value) -> Say {
        let path = params["path"].as_str().expect("a path");
        assert!(Path::new(path).is_absolute(), "{path}");
        if method == "fs/write_text_file" {
            let text = params["content"].as_str().expect("content").to_owned();
            self.open.insert(path.to_owned(), text);
            return Say::Result(Value::Null);
        }
        let text = self.open.get(path).cloned().or_else(|| fs::read_to_string(path).ok());
        let Some(text) = text else { return Say::Error(-32002, "Resource not found") };
        let first = params["line"].as_u64().map_or(0, |line| usize::try_from(line).unwrap() - 1);
        let count = params["limit"].as_u64().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap());
        let part: String = text.split_inclusive('\n').skip(first).take(count).collect();
        Say::Result(json!({"content": part}))
    }
}

fn methods(asked: &[Request]) -> Vec<&str> {
    asked.iter().map(|(method, _)| method.as_str()).collect()
}

fn never(method: &str, params: &Value) -> Say {
    panic!("{method} was asked: {params}")
}

#[tokio::test]
async fn fs_1_text_that_is_not_saved_is_what_the_model_reads() {
    let lab = Lab::scripted("supervised", &script("file_read", json!({"path": "a.txt"})));
    let path = lab.file("a.txt", "saved\n");
    let (mut agent, session) = lending(&lab, both(), &[]).await;
    let mut editor = Editor::with(&path, "typed\nmore\n");
    let (turn, asked) = turn(&mut agent, &session, |method, params| editor.answer(method, params)).await;
    assert_eq!(last_update(&turn.messages)["rawOutput"], "     1\ttyped\n     2\tmore\n");
    assert_eq!(asked, [("fs/read_text_file".to_owned(), json!({"sessionId": session, "path": path}))]);
}

#[tokio::test]
async fn fs_1_lines_and_limits_are_passed_on() {
    let arguments = json!({"path": "a.txt", "offset": 2, "limit": 2});
    let lab = Lab::scripted("supervised", &script("file_read", arguments));
    let path = lab.file("a.txt", "x\n");
    let (mut agent, session) = lending(&lab, both(), &[]).await;
    let mut editor = Editor::with(&path, "one\ntwo\nthree\nfour\n");
    let (turn, asked) = turn(&mut agent, &session, |method, params| editor.answer(method, params)).await;
    let text = "     2\ttwo\n     3\tthree\n[more lines may follow; continue with offset 4]\n";
    assert_eq!(last_update(&turn.messages)["rawOutput"], text);
    assert_eq!(asked[0].1, json!({"sessionId": session, "path": path, "line": 2, "limit": 2}));
}

#[tokio::test]
async fn fs_1_an_edit_is_made_of_what_is_not_saved_and_goes_to_the_client() {
    let arguments = json!({"path": "a.txt", "old_text": "typed", "new_text": "edited"});
    let lab = Lab::scripted("supervised", &script("file_edit", arguments));
    let path = lab.file("a.txt", "saved\n");
    let (mut agent, session) = lending(&lab, both(), &[]).await;
    let mut editor = Editor::with(&path, "typed\n");
    let (turn, asked) = turn(&mut agent, &session, |method, params| editor.answer(method, params)).await;
    assert_eq!(last_update(&turn.messages)["status"], "completed", "{:#?}", turn.messages);
    let diff = json!({"type": "diff", "path": path, "oldText": "typed\n", "newText": "edited\n"});
    assert_eq!(announced(&turn.messages)[0]["content"], json!([diff]));
    // Read for the diff, read again when it was allowed, then written.
    assert_eq!(methods(&asked), ["fs/read_text_file", "fs/read_text_file", "fs/write_text_file"]);
    assert_eq!(asked[2].1, json!({"sessionId": session, "path": path, "content": "edited\n"}));
    assert_eq!(editor.open[path.to_str().unwrap()], "edited\n");
    assert_eq!(fs::read_to_string(path).unwrap(), "saved\n", "only the client writes");
}

#[tokio::test]
async fn fs_1_what_was_typed_while_it_was_asked_is_not_written_over() {
    let arguments = json!({"path": "a.txt", "content": "new\n"});
    let lab = Lab::scripted("supervised", &script("file_write", arguments));
    let path = lab.file("a.txt", "saved\n");
    let (mut agent, session) = lending(&lab, both(), &[]).await;
    let mut reads = 0;
    let (turn, asked) = turn(&mut agent, &session, |method, _| {
        assert_eq!(method, "fs/read_text_file", "nothing is written");
        reads += 1;
        Say::Result(json!({"content": format!("typed {reads}\n")}))
    })
    .await;
    assert_eq!(asked.len(), 2);
    let end = last_update(&turn.messages);
    assert_eq!(end["status"], "failed");
    assert!(end["rawOutput"].as_str().unwrap().contains("changed since it was read"), "{end}");
    assert_eq!(fs::read_to_string(path).unwrap(), "saved\n");
}

// One editor answers "" for a file that does not exist, another an error.
#[tokio::test]
async fn fs_1_a_new_file_is_made_by_the_client() {
    for missing in [Some(json!({"content": ""})), None] {
        let arguments = json!({"path": "deep/new.txt", "content": "fresh\n"});
        let lab = Lab::scripted("supervised", &script("file_write", arguments));
        let (mut agent, session) = lending(&lab, both(), &[]).await;
        let (turn, asked) = turn(&mut agent, &session, |method, _| match (method, &missing) {
            ("fs/write_text_file", _) => Say::Result(json!({})),
            (_, Some(empty)) => Say::Result(empty.clone()),
            (_, None) => Say::Error(-32603, "no such file"),
        })
        .await;
        let path = lab.project().join("deep/new.txt");
        assert_eq!(last_update(&turn.messages)["status"], "completed", "{:#?}", turn.messages);
        let diff = json!({"type": "diff", "path": path, "oldText": null, "newText": "fresh\n"});
        assert_eq!(announced(&turn.messages)[0]["content"], json!([diff]));
        let written = json!({"sessionId": session, "path": path, "content": "fresh\n"});
        assert_eq!(asked.last().unwrap(), &("fs/write_text_file".to_owned(), written));
        assert!(lab.project().join("deep").is_dir(), "the client finds the directory");
    }
}

#[tokio::test]
async fn fs_1_what_is_refused_never_reaches_the_client() {
    let arguments = |path: &Path| json!({"path": path, "content": "x", "old_text": "a", "new_text": "b"});
    for tool in ["file_read", "file_write", "file_edit"] {
        let elsewhere = Lab::new();
        let secret = elsewhere.file("secret.txt", "a\n");
        for inside in ["../outside.txt", "link.txt", "dangling.txt", "dir/secret.txt", "forbidden/a.txt"] {
            let lab = Lab::scripted("supervised", &script(tool, arguments(Path::new(inside))));
            lab.file("forbidden/a.txt", "a\n");
            symlink(&secret, lab.project().join("link.txt")).unwrap();
            symlink("../nothing.txt", lab.project().join("dangling.txt")).unwrap();
            symlink(elsewhere.project(), lab.project().join("dir")).unwrap();
            let config = fs::read_to_string(lab.config_dir().join("config.toml")).unwrap();
            let forbidden = lab.project().join("forbidden");
            lab.write_config(&format!("{config}forbidden_paths = [\"{}\"]\n", forbidden.display()));
            let (mut agent, session) = lending(&lab, both(), &[]).await;
            let (turn, _) = turn(&mut agent, &session, never).await;
            assert_eq!(last_update(&turn.messages)["status"], "failed", "{tool} {inside}: {:#?}", turn.messages);
        }
        assert_eq!(fs::read_to_string(secret).unwrap(), "a\n");
    }
}

#[tokio::test]
async fn fs_1_a_level_that_changes_nothing_asks_for_nothing_to_change() {
    for (tool, arguments) in [
        ("file_write", json!({"path": "a.txt", "content": "x"})),
        ("file_edit", json!({"path": "a.txt", "old_text": "a", "new_text": "b"})),
    ] {
        let lab = Lab::scripted("readonly", &script(tool, arguments));
        lab.file("a.txt", "a\n");
        let (mut agent, session) = lending(&lab, both(), &[]).await;
        let (turn, _) = turn(&mut agent, &session, never).await;
        assert_eq!(last_update(&turn.messages)["status"], "failed");
    }
}

#[tokio::test]
async fn fs_1_a_link_inside_is_asked_for_by_where_it_leads() {
    let lab = Lab::scripted("supervised", &script("file_read", json!({"path": "link.txt"})));
    let path = lab.file("real/a.txt", "saved\n");
    symlink("real/a.txt", lab.project().join("link.txt")).unwrap();
    let (mut agent, session) = lending(&lab, both(), &[]).await;
    let mut editor = Editor::with(&path, "typed\n");
    let (turn, asked) = turn(&mut agent, &session, |method, params| editor.answer(method, params)).await;
    assert_eq!(asked[0].1["path"], json!(path));
    assert_eq!(last_update(&turn.messages)["rawOutput"], "     1\ttyped\n");
}

#[tokio::test]
async fn fs_1_only_what_was_advertised_is_called() {
    let lines = [
        script("file_read", json!({"path": "a.txt"})),
        script("file_edit", json!({"path": "a.txt", "old_text": "a", "new_text": "b"})),
    ]
    .concat();
    for (reads, writes) in [(false, false), (true, false), (false, true)] {
        let lab = Lab::scripted("supervised", &lines);
        let path = lab.file("a.txt", "a\n");
        let capabilities = json!({"fs": {"readTextFile": reads, "writeTextFile": writes}, "terminal": false});
        let (mut agent, session) = lending(&lab, capabilities, &[]).await;
        let mut editor = Editor { open: BTreeMap::new() };
        for _ in 0..2 {
            let (turn, asked) = turn(&mut agent, &session, |method, params| editor.answer(method, params)).await;
            assert_eq!(last_update(&turn.messages)["status"], "completed", "{:#?}", turn.messages);
            for (method, _) in asked {
                assert!(if method == "fs/read_text_file" { reads } else { writes }, "{method} was not advertised");
            }
        }
        assert_eq!(fs::read_to_string(path).unwrap() == "b\n", !writes);
    }
}

// Saved over the user's own changes, an edit on disk would have cost one or the other.
#[tokio::test]
async fn fs_1_a_client_that_only_reads_keeps_what_is_not_saved() {
    let arguments = json!({"path": "a.txt", "old_text": "a", "new_text": "b"});
    let lab = Lab::scripted("supervised", &script("file_edit", arguments));
    let path = lab.file("a.txt", "a\n");
    let (mut agent, session) = lending(&lab, json!({"fs": {"readTextFile": true}}), &[]).await;
    let mut editor = Editor::with(&path, "a typed\n");
    let (turn, _) = turn(&mut agent, &session, |method, params| editor.answer(method, params)).await;
    let end = last_update(&turn.messages);
    assert_eq!(end["status"], "failed");
    assert!(end["rawOutput"].as_str().unwrap().contains("not saved"), "{end}");
    assert_eq!(fs::read_to_string(path).unwrap(), "a\n");
}

#[tokio::test]
async fn fs_1_an_error_of_the_client_fails_the_call_and_says_so() {
    let lab = Lab::scripted("supervised", &script("file_read", json!({"path": "a.txt"})));
    lab.file("a.txt", "saved\n");
    let (mut agent, session) = lending(&lab, both(), &[]).await;
    let (turn, _) = turn(&mut agent, &session, |_, _| Say::Error(-32603, "the buffer\nis locked")).await;
    let end = last_update(&turn.messages);
    assert_eq!(end["status"], "failed");
    let text = end["rawOutput"].as_str().unwrap();
    assert!(text.contains("the buffer is locked") && !text.contains("saved"), "{text}");
    assert_eq!(turn.result["stopReason"], "end_turn");
}

#[tokio::test]
async fn fs_1_a_client_that_does_not_answer_fails_the_call_and_is_told() {
    for (tool, arguments) in
        [("file_read", json!({"path": "a.txt"})), ("file_write", json!({"path": "a.txt", "content": "new\n"}))]
    {
        let lab = Lab::scripted("supervised", &script(tool, arguments));
        let path = lab.file("a.txt", "saved\n");
        let (mut agent, session) = lending(&lab, both(), &[("ZEROCLAW_acp__client_timeout_secs", "1")]).await;
        let (turn, _) = turn(&mut agent, &session, |method, _| match (tool, method) {
            ("file_write", "fs/read_text_file") => Say::Result(json!({"content": "saved\n"})),
            _ => Say::Nothing,
        })
        .await;
        let end = last_update(&turn.messages);
        assert_eq!(end["status"], "failed");
        assert!(end["rawOutput"].as_str().unwrap().contains("did not answer in time"), "{end}");
        let open = turn.messages.iter().rfind(|message| asks_client(message)).unwrap();
        let withdrawn = turn.messages.iter().find(|message| message["method"] == "$/cancel_request").unwrap();
        assert_eq!(withdrawn["params"]["requestId"], open["id"]);
        assert_eq!(fs::read_to_string(path).unwrap(), "saved\n");
    }
}

#[tokio::test]
async fn fs_1_a_cancelled_turn_withdraws_what_it_asked() {
    let lab = Lab::scripted("supervised", &script("file_read", json!({"path": "a.txt"})));
    lab.file("a.txt", "saved\n");
    let (mut agent, session) = lending(&lab, both(), &[]).await;
    let prompt = agent.request("session/prompt", text_prompt(&session, "go")).await;
    let asked = agent.recv_until(asks_client).await.pop().unwrap();
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let withdrawn = agent.recv_until(|message| message["method"] == "$/cancel_request").await.pop().unwrap();
    assert_eq!(withdrawn["params"], json!({"requestId": asked["id"]}));
    assert_eq!(agent.response(&prompt).await.unwrap()["stopReason"], "cancelled");
}

#[tokio::test]
async fn fs_1_a_client_that_dies_in_a_call_leaves_nothing_waiting() {
    let lab = Lab::scripted("supervised", &script("file_read", json!({"path": "a.txt"})));
    lab.file("a.txt", "saved\n");
    let (mut agent, session) = lending(&lab, both(), &[]).await;
    agent.request("session/prompt", text_prompt(&session, "go")).await;
    agent.recv_until(asks_client).await;
    agent.close_stdin();
    assert!(agent.wait().await.success());
}

// An answer beyond the line limit was refused, and whoever had asked waited for it.
#[tokio::test]
async fn fs_1_an_answer_that_is_too_long_fails_the_call() {
    let lab = Lab::scripted("supervised", &script("file_read", json!({"path": "a.txt"})));
    lab.file("a.txt", "saved\n");
    let (mut agent, session) = lending(&lab, both(), &[("ZEROCLAW_acp__max_line_bytes", "65536")]).await;
    let (turn, _) = turn(&mut agent, &session, |_, _| Say::Result(json!({"content": "x".repeat(70_000)}))).await;
    let end = last_update(&turn.messages);
    assert_eq!(end["status"], "failed");
    assert!(end["rawOutput"].as_str().unwrap().contains("over the limit"), "{end}");
}

#[tokio::test]
async fn fs_1_binary_files_stay_on_the_disk() {
    let lab = Lab::scripted("supervised", &script("file_read", json!({"path": "a.bin"})));
    lab.file("a.bin", b"\x7fELF\0\0");
    let (mut agent, session) = lending(&lab, both(), &[]).await;
    let (turn, _) = turn(&mut agent, &session, never).await;
    assert!(last_update(&turn.messages)["rawOutput"].as_str().unwrap().contains("binary file"));
}

// The dialog of a permission request says what will be written, and a rejected change is not written anywhere.
#[tokio::test]
async fn fs_1_a_rejected_change_is_not_written() {
    let arguments = json!({"path": "a.txt", "content": "new\n"});
    let lab = Lab::scripted("supervised", &script("file_write", arguments));
    let path = lab.file("a.txt", "saved\n");
    let (mut agent, session) = lending(&lab, both(), &[]).await;
    agent.on_permission(|params| {
        assert!(
            texts(&params["toolCall"]["content"]).is_empty() || params["toolCall"]["content"][0]["newText"] == "new\n"
        );
        Permission::Select("reject-once".to_owned())
    });
    let mut editor = Editor::with(&path, "typed\n");
    let (_, asked) = turn(&mut agent, &session, |method, params| editor.answer(method, params)).await;
    assert_eq!(methods(&asked), ["fs/read_text_file"]);
}
