//! Whole prompts against an agent in memory that follows a script and checks what it is sent.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use crate::cli::prompt::approve::ApproveMode;
use crate::cli::prompt::connection::Connection;
use crate::cli::prompt::flow::{Flow, FlowError, Request};
use crate::cli::prompt::keyboard::Keyboard;
use crate::cli::prompt::screen::{Looks, Screen};
use crate::cli::term::Palette;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The agent's end.
struct Agent {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Agent {
    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn expect(&mut self, method: &str) -> Value {
        let message = self.next().await;
        assert_eq!(message["method"], method, "{message}");
        assert_eq!(message["jsonrpc"], "2.0");
        message
    }

    async fn raw(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn send(&mut self, message: Value) {
        self.raw(&message.to_string()).await;
    }

    async fn answer(&mut self, request: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    async fn update(&mut self, update: Value) {
        let params = json!({"sessionId": "s-1", "update": update});
        self.send(json!({"jsonrpc": "2.0", "method": "session/update", "params": params})).await;
    }

    async fn say(&mut self, text: &str) {
        self.update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})).await;
    }

    async fn ask(&mut self, id: &str) {
        let params = json!({
            "sessionId": "s-1",
            "toolCall": {"toolCallId": "t", "title": "Run ls", "kind": "execute", "rawInput": {"command": "ls"}},
            "options": [
                {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"},
                {"optionId": "reject-once", "name": "Reject", "kind": "reject_once"},
            ],
        });
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params})).await;
    }

    /// Greets, opens a session and returns the prompt request.
    async fn until_prompt(&mut self) -> Value {
        let hello = self.expect("initialize").await;
        assert_eq!(hello["params"]["protocolVersion"], 1);
        let capabilities = &hello["params"]["clientCapabilities"];
        assert_eq!(*capabilities, json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false}));
        self.answer(&hello, json!({"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []})).await;
        let new = self.expect("session/new").await;
        assert_eq!(new["params"]["cwd"], "/project");
        assert_eq!(new["params"]["mcpServers"], json!([]));
        self.answer(&new, json!({"sessionId": "s-1"})).await;
        let prompt = self.expect("session/prompt").await;
        assert_eq!(prompt["params"], json!({"sessionId": "s-1", "prompt": [{"type": "text", "text": "hello"}]}));
        prompt
    }

    async fn end(&mut self, prompt: &Value, reason: &str) {
        self.answer(prompt, json!({"stopReason": reason})).await;
    }
}

/// The client's end, with everything that a person could do.
struct Client {
    flow: Flow,
    out: Written,
    err: Written,
    keys: mpsc::Sender<String>,
    interrupt: mpsc::Sender<()>,
}

fn request() -> Request {
    Request {
        text: "hello".to_owned(),
        session: None,
        cwd: PathBuf::from("/project"),
        is_cwd_chosen: false,
        agent: None,
        approve: ApproveMode::Ask,
        json: false,
        show_history: false,
    }
}

fn pair(request: Request, has_keyboard: bool) -> (Client, Agent) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(ours);
    let (out, err) = (Written::default(), Written::default());
    let looks = Looks { palette: Palette::plain(), is_shared: false, has_spinner: false };
    let screen = Screen::new(Box::new(out.clone()), Box::new(err.clone()), looks);
    let (keys, lines) = mpsc::channel(8);
    let (interrupt, interrupts) = mpsc::channel(8);
    let keyboard = if has_keyboard { Keyboard::lines(lines) } else { Keyboard::absent() };
    let flow = Flow::new(Connection::new(read, write), request, screen, keyboard, interrupts);
    let (read, writer) = tokio::io::split(theirs);
    (Client { flow, out, err, keys, interrupt }, Agent { lines: BufReader::new(read).lines(), writer })
}

#[tokio::test]
async fn a_turn_streams_its_answer_and_returns_the_stop_reason() {
    let (mut client, mut agent) = pair(request(), false);
    let script = async {
        let prompt = agent.until_prompt().await;
        agent.say("Hel").await;
        agent.say("lo").await;
        agent
            .update(json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Look", "status": "pending"}))
            .await;
        agent.end(&prompt, "end_turn").await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert_eq!(result.unwrap(), "end_turn");
    assert_eq!(client.out.text(), "Hello\n");
    assert_eq!(client.err.text(), "○ Look\n");
    assert_eq!(client.flow.session(), Some("s-1"));
}

#[tokio::test]
async fn updates_of_other_sessions_are_not_shown() {
    let (mut client, mut agent) = pair(request(), false);
    let script = async {
        let prompt = agent.until_prompt().await;
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "other"}});
        let params = json!({"sessionId": "s-2", "update": update});
        agent.send(json!({"jsonrpc": "2.0", "method": "session/update", "params": params})).await;
        agent.end(&prompt, "end_turn").await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert_eq!(result.unwrap(), "end_turn");
    assert_eq!(client.out.text(), "");
}

#[tokio::test]
async fn json_prints_the_updates_as_they_came_and_nothing_else() {
    let (mut client, mut agent) = pair(Request { json: true, ..request() }, false);
    let raw = r#"{"z":1,"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"},"a":2.50}"#;
    let script = async {
        let prompt = agent.until_prompt().await;
        let line =
            format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s-1","update":{raw}}}}}"#);
        agent.raw(&line).await;
        agent.end(&prompt, "end_turn").await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert_eq!(result.unwrap(), "end_turn");
    assert_eq!(client.out.text(), format!("{raw}\n"));
    assert_eq!(client.err.text(), "");
}

#[tokio::test]
async fn each_mode_answers_a_permission_request() {
    for (mode, answer) in [
        (ApproveMode::All, "allow-once"),
        (ApproveMode::Reads, "reject-once"),
        (ApproveMode::None, "reject-once"),
        // There is nobody to ask here.
        (ApproveMode::Ask, "reject-once"),
    ] {
        let (mut client, mut agent) = pair(Request { approve: mode, ..request() }, false);
        let script = async {
            let prompt = agent.until_prompt().await;
            agent.ask("zc-out-0").await;
            let answered = agent.next().await;
            assert_eq!(answered["id"], "zc-out-0");
            assert_eq!(answered["result"], json!({"outcome": {"outcome": "selected", "optionId": answer}}), "{mode:?}");
            agent.end(&prompt, "end_turn").await;
        };
        let (result, ()) = tokio::join!(client.flow.run(), script);
        assert_eq!(result.unwrap(), "end_turn");
        assert!(client.err.text().contains("permission for Run ls: "), "{}", client.err.text());
    }
}

#[tokio::test]
async fn a_person_is_shown_the_question_and_asked_until_the_answer_is_clear() {
    let (mut client, mut agent) = pair(request(), true);
    let keys = client.keys.clone();
    let script = async {
        let prompt = agent.until_prompt().await;
        agent.ask("q").await;
        for line in ["what", "", "y"] {
            keys.send(line.to_owned()).await.unwrap();
        }
        let answered = agent.next().await;
        assert_eq!(answered["result"]["outcome"]["optionId"], "allow-once");
        agent.end(&prompt, "end_turn").await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert_eq!(result.unwrap(), "end_turn");
    let shown = client.err.text();
    assert!(shown.starts_with("? Run ls [execute]\n  $ ls\n  y = Allow once, n = Reject > "), "{shown}");
    assert_eq!(shown.matches("y = Allow once").count(), 3, "{shown}");
}

#[tokio::test]
async fn two_questions_are_asked_one_after_the_other() {
    let (mut client, mut agent) = pair(request(), true);
    let keys = client.keys.clone();
    let script = async {
        let prompt = agent.until_prompt().await;
        agent.ask("first").await;
        agent.ask("second").await;
        keys.send("n".to_owned()).await.unwrap();
        let answered = agent.next().await;
        assert_eq!(
            (&answered["id"], &answered["result"]["outcome"]["optionId"]),
            (&json!("first"), &json!("reject-once"))
        );
        keys.send("y".to_owned()).await.unwrap();
        let answered = agent.next().await;
        assert_eq!(
            (&answered["id"], &answered["result"]["outcome"]["optionId"]),
            (&json!("second"), &json!("allow-once"))
        );
        agent.end(&prompt, "end_turn").await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert_eq!(result.unwrap(), "end_turn");
}

#[tokio::test]
async fn a_question_that_is_taken_back_is_answered_as_cancelled() {
    let (mut client, mut agent) = pair(request(), true);
    let script = async {
        let prompt = agent.until_prompt().await;
        agent.ask("q").await;
        agent.send(json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "q"}})).await;
        let answered = agent.next().await;
        assert_eq!((&answered["id"], &answered["error"]["code"]), (&json!("q"), &json!(-32800)));
        agent.end(&prompt, "end_turn").await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert_eq!(result.unwrap(), "end_turn");
    assert!(client.err.text().contains("took the question back"), "{}", client.err.text());
}

#[tokio::test]
async fn the_first_interrupt_cancels_the_turn_and_its_questions() {
    let (mut client, mut agent) = pair(request(), true);
    let interrupt = client.interrupt.clone();
    let script = async {
        let prompt = agent.until_prompt().await;
        agent.say("so far").await;
        agent.ask("q").await;
        // An answered request proves that the question before it is being asked.
        agent.send(json!({"jsonrpc": "2.0", "id": 7, "method": "fs/read_text_file", "params": {}})).await;
        let refused = agent.next().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(7), &json!(-32601)));
        interrupt.send(()).await.unwrap();
        let cancel = agent.expect("session/cancel").await;
        assert_eq!(cancel["params"], json!({"sessionId": "s-1"}));
        assert!(cancel.get("id").is_none(), "it is a notification");
        let answered = agent.next().await;
        assert_eq!((&answered["id"], &answered["result"]["outcome"]["outcome"]), (&json!("q"), &json!("cancelled")));
        agent.ask("late").await;
        assert_eq!(agent.next().await["result"]["outcome"]["outcome"], "cancelled");
        agent.end(&prompt, "cancelled").await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert_eq!(result.unwrap(), "cancelled");
    assert_eq!(client.out.text(), "so far\n");
}

#[tokio::test]
async fn the_second_interrupt_quits_and_so_does_one_before_the_turn() {
    let (mut client, mut agent) = pair(request(), true);
    let interrupt = client.interrupt.clone();
    let script = async {
        agent.until_prompt().await;
        interrupt.send(()).await.unwrap();
        agent.expect("session/cancel").await;
        interrupt.send(()).await.unwrap();
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert!(matches!(result, Err(FlowError::Quit)), "{result:?}");

    let (mut client, mut agent) = pair(request(), true);
    let interrupt = client.interrupt.clone();
    let script = async {
        agent.expect("initialize").await;
        interrupt.send(()).await.unwrap();
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert!(matches!(result, Err(FlowError::Quit)), "{result:?}");
}

#[tokio::test]
async fn garbage_is_reported_a_few_times_and_changes_nothing() {
    let (mut client, mut agent) = pair(request(), false);
    let script = async {
        agent.raw("booting \u{1b}[31mred").await;
        let prompt = agent.until_prompt().await;
        for line in [r#""hi""#, "[1]", r#"{"id":3,"result":{"stopReason":"refusal"}}"#, "a", "b", "c"] {
            agent.raw(line).await;
        }
        agent.end(&prompt, "end_turn").await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert_eq!(result.unwrap(), "end_turn");
    let shown = client.err.text();
    assert!(shown.contains("no message: booting ␛[31mred"), "{shown}");
    assert_eq!(shown.matches("no message: ").count(), 5, "{shown}");
    assert!(shown.contains("2 more lines that are no messages"), "{shown}");
}

#[tokio::test]
async fn an_error_answer_is_told_with_its_kind_and_the_way_to_log_in() {
    let (mut client, mut agent) = pair(request(), false);
    let script = async {
        let hello = agent.expect("initialize").await;
        let methods = json!([{"id": "key", "name": "API key"}]);
        agent.answer(&hello, json!({"protocolVersion": 1, "authMethods": methods})).await;
        let new = agent.expect("session/new").await;
        let error = json!({"code": -32000, "message": "log in first\u{1b}", "data": {"kind": "auth_required"}});
        agent.send(json!({"jsonrpc": "2.0", "id": new["id"], "error": error})).await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    let text = result.unwrap_err().to_string();
    assert!(text.starts_with("session/new failed: log in first␛ (error -32000, auth_required)"), "{text}");
    assert!(text.contains("API key"), "{text}");
    assert_eq!(client.flow.session(), None);
}

#[tokio::test]
async fn an_agent_that_goes_away_and_one_of_another_version_are_errors() {
    let (mut client, mut agent) = pair(request(), false);
    let script = async move {
        agent.until_prompt().await;
        agent.say("half a sen").await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert!(matches!(result, Err(FlowError::Gone)), "{result:?}");
    assert_eq!(client.out.text(), "half a sen\n");

    let (mut client, mut agent) = pair(request(), false);
    let script = async {
        let hello = agent.expect("initialize").await;
        agent.answer(&hello, json!({"protocolVersion": 2})).await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert!(matches!(result, Err(FlowError::Version(_))), "{result:?}");
}

#[tokio::test]
async fn a_session_is_found_by_the_beginning_of_its_id_and_keeps_its_directory() {
    let (mut client, mut agent) = pair(Request { session: Some("s-".to_owned()), ..request() }, false);
    let script = async {
        let hello = agent.expect("initialize").await;
        let capabilities = json!({"loadSession": true, "sessionCapabilities": {"list": {}, "resume": {}}});
        agent.answer(&hello, json!({"protocolVersion": 1, "agentCapabilities": capabilities})).await;
        let list = agent.expect("session/list").await;
        assert_eq!(list["params"], json!({}));
        agent.answer(&list, json!({"sessions": [{"sessionId": "other", "cwd": "/o"}], "nextCursor": "c"})).await;
        let list = agent.expect("session/list").await;
        assert_eq!(list["params"], json!({"cursor": "c"}));
        agent.answer(&list, json!({"sessions": [{"sessionId": "s-1", "cwd": "/stored"}]})).await;
        let resume = agent.expect("session/resume").await;
        assert_eq!(resume["params"], json!({"sessionId": "s-1", "cwd": "/stored", "mcpServers": []}));
        agent.answer(&resume, json!({})).await;
        let prompt = agent.expect("session/prompt").await;
        agent.end(&prompt, "end_turn").await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert_eq!(result.unwrap(), "end_turn");
}

#[tokio::test]
async fn history_is_shown_only_when_asked_for_and_never_as_the_answer() {
    for show_history in [false, true] {
        let wanted = Request { session: Some("s-1".to_owned()), show_history, ..request() };
        let (mut client, mut agent) = pair(wanted, false);
        let script = async {
            let hello = agent.expect("initialize").await;
            agent.answer(&hello, json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}})).await;
            let load = agent.expect("session/load").await;
            assert_eq!(load["params"]["cwd"], "/project");
            agent.say("old").await;
            agent.answer(&load, json!({})).await;
            let prompt = agent.expect("session/prompt").await;
            agent.say("new").await;
            agent.end(&prompt, "end_turn").await;
        };
        let (result, ()) = tokio::join!(client.flow.run(), script);
        assert_eq!(result.unwrap(), "end_turn");
        assert_eq!(client.out.text(), "new\n");
        assert_eq!(client.err.text(), if show_history { "old\n" } else { "" });
    }
}

#[tokio::test]
async fn an_ambiguous_beginning_and_an_agent_without_sessions_are_errors() {
    let (mut client, mut agent) = pair(Request { session: Some("s".to_owned()), ..request() }, false);
    let script = async {
        let hello = agent.expect("initialize").await;
        let capabilities = json!({"sessionCapabilities": {"list": {}, "resume": {}}});
        agent.answer(&hello, json!({"protocolVersion": 1, "agentCapabilities": capabilities})).await;
        let list = agent.expect("session/list").await;
        agent.answer(&list, json!({"sessions": [{"sessionId": "s-1"}, {"sessionId": "s-2"}]})).await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert!(matches!(result, Err(FlowError::Ambiguous(_))), "{result:?}");

    let (mut client, mut agent) = pair(Request { session: Some("s".to_owned()), ..request() }, false);
    let script = async {
        let hello = agent.expect("initialize").await;
        agent.answer(&hello, json!({"protocolVersion": 1})).await;
    };
    let (result, ()) = tokio::join!(client.flow.run(), script);
    assert!(matches!(result, Err(FlowError::NoSessions)), "{result:?}");
}
