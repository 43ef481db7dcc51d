//! Bytes to messages and back: what broke when lines were cut, long, odd or many.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout},
};
use zeroclaw_e2e::{
    Lab, answer_text, content_text, exchange, initialize, last_line, next_response, prompt, text_prompt, updates_of,
    user_texts,
};
use zeroclaw_testkit::{
    model_server::{ModelServer, Part, Reply},
    process::{AgentProcess, Direction},
};

fn request(id: &str, method: &str, params: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// A scripted agent that says `ok` to everything and whose model reads prompts of any length.
fn patient() -> Lab {
    let script = [json!({"type": "text", "text": "ok"}), json!({"type": "stop"}), json!({"type": "loop"})];
    let lab = Lab::scripted("full", &script);
    let config = lab.config_dir().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    lab.write_config(&text.replacen("script =", "context_window = 4000000000\nscript =", 1));
    lab
}

// Decoding each chunk by itself turned every character that was cut by a chunk's end into replacement characters.
#[tokio::test]
async fn frm_01_characters_cut_by_writes_stay_whole() {
    let text = "漢字🙂é — 漢字🙂é";
    let server = ModelServer::start().await;
    server.push(Reply::text(text).split_utf8());
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    let line = request("77", "session/prompt", &text_prompt(&session, text)) + "\n";
    for byte in line.as_bytes() {
        agent.send_raw(std::slice::from_ref(byte)).await;
    }
    let answer = next_response(&mut agent).await;
    assert_eq!(answer["result"]["content"], json!(text), "{answer}");
    assert_eq!(answer_text(&agent.received()), text);
    let requests = server.requests();
    assert_eq!(user_texts(&requests[0].body), [text]);
    assert!(!requests[0].body.to_string().contains('\u{fffd}'));
    let said = agent.transcript().iter().filter(|entry| entry.direction == Direction::Received);
    assert!(said.into_iter().all(|entry| !entry.line.contains('\u{fffd}')));
    assert_eq!(server.violations(), Vec::<String>::new());
}

// Readers that end a line at every Unicode separator split one message in two and waited for its end for ever.
#[tokio::test]
async fn frm_03_only_a_line_feed_ends_a_line() {
    let odd = "a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f";
    let server = ModelServer::start().await;
    server.push(Reply::tool_call("call_1", "file_read", json!({"path": "odd.txt"})));
    server.push(Reply::text(odd));
    let lab = Lab::custom("full", &server.openai_url());
    lab.file("odd.txt", odd);
    let (mut agent, session) = lab.session().await;
    let result = prompt(&mut agent, &session, odd).await;
    assert_eq!(result["content"], json!(odd));
    assert_eq!(answer_text(&agent.received()), odd);
    let requests = server.requests();
    assert_eq!(user_texts(&requests[0].body), [odd]);
    let messages = requests[1].body["messages"].as_array().unwrap();
    let tool = messages.iter().find(|message| message["role"] == "tool").expect("the tool's result");
    assert!(content_text(&tool["content"]).contains(odd), "{tool}");
    let updates = updates_of(&agent.received(), "tool_call_update");
    let shown = updates.iter().filter_map(|update| update["content"][0]["content"]["text"].as_str());
    assert!(shown.into_iter().any(|text| text.contains(odd)), "{updates:?}");
}

// A reader with a limit of 64 KiB ended the whole connection at the first large file in a prompt.
#[tokio::test]
async fn frm_05_long_lines_are_taken_up_to_the_documented_sizes() {
    let lab = patient();
    let (mut agent, session) = lab.session().await;
    let empty = request("1", "session/prompt", &text_prompt(&session, "")).len();
    for length in [65_535, 65_536, 65_537, 1024 * 1024] {
        let line = request("1", "session/prompt", &text_prompt(&session, &"x".repeat(length - empty)));
        assert_eq!(line.len(), length);
        let answer = exchange(&mut agent, &line).await;
        assert_eq!(answer["result"]["content"], json!("ok"), "a line of {length} bytes");
    }
    let cap = 16 * 1024 * 1024;
    let over = request("2", "session/prompt", &text_prompt(&session, &"x".repeat(cap + 1)));
    let answer = exchange(&mut agent, &over).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(2), &json!(-32602)), "{answer}");
    let under = request("3", "session/prompt", &text_prompt(&session, &"x".repeat(cap)));
    let answer = exchange(&mut agent, &under).await;
    assert_eq!((&answer["id"], &answer["result"]["content"]), (&json!(3), &json!("ok")));
}

// Beyond the limit the line was an exception in the receive loop; it has to be an answer, and the next line a line.
#[tokio::test]
async fn frm_05_a_line_over_the_limit_is_answered_and_skipped() {
    let lab = patient();
    let limit = 100_000;
    let mut agent = lab.start_with(&[("ZEROCLAW_acp__max_line_bytes", "100000")]);
    initialize(&mut agent).await;
    let line = |id: &str, length: usize| {
        let empty = request(id, "session/list", &json!({"pad": ""})).len();
        request(id, "session/list", &json!({"pad": "x".repeat(length - empty)}))
    };
    let answer = exchange(&mut agent, &line("10", limit)).await;
    assert!(answer["result"]["sessions"].is_array(), "a line of exactly the limit: {answer}");
    for (id, echoed) in [("11", json!(11)), ("\"eleven\"", json!("eleven"))] {
        let answer = exchange(&mut agent, &line(id, limit + 1)).await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&echoed, &json!(-32600)), "{answer}");
    }
    let answer = exchange(&mut agent, &"y".repeat(10 * limit)).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(null), &json!(-32600)), "{answer}");
    let answer = exchange(&mut agent, &line("12", 200)).await;
    assert!(answer["result"]["sessions"].is_array(), "{answer}");
}

// Ids were read into a 32-bit number, so every client with string ids failed at its first request.
#[tokio::test]
async fn frm_07_ids_come_back_as_they_were_sent() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let ids = [
        r#""a""#,
        r#""1""#,
        "1",
        "0",
        "-7",
        "9007199254740993",
        "18446744073709551616",
        "123456789012345678901234567890",
        r#""""#,
        r#""漢\u00e9\"\\""#,
        "null",
    ];
    for id in ids {
        for (method, params, member) in
            [("session/list", json!({}), "result"), ("session/close", json!({"sessionId": "s-none"}), "error")]
        {
            exchange(&mut agent, &request(id, method, &params)).await;
            let line = last_line(&agent);
            assert!(line.contains(&format!(r#""id":{id},"{member}":"#)), "{line}");
        }
    }
}

// A broken line was answered with the id 0, and a client with a request 0 took that for its answer.
#[tokio::test]
async fn frm_09_a_broken_line_has_no_id() {
    let server = ModelServer::start().await;
    let (reply, gate) = Reply::text("done").gate(0);
    server.push(reply);
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    agent.send(&request("0", "session/prompt", &text_prompt(&session, "hello"))).await;
    server.wait_for_requests(1).await;
    let answer = exchange(&mut agent, "{").await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(null), &json!(-32700)), "{answer}");
    gate.release();
    let answer = next_response(&mut agent).await;
    assert_eq!((&answer["id"], &answer["result"]["content"]), (&json!(0), &json!("done")), "{answer}");
}

// A batch was called a parse error with nothing said about batches, and version 1.0 was served as if it were 2.0.
#[tokio::test]
async fn frm_11_batches_and_other_versions_are_refused_by_name() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let params = json!({"cwd": lab.project()});
    let batch = format!("[{},{}]", request("2", "session/new", &params), request("3", "session/new", &params));
    let answer = exchange(&mut agent, &batch).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(null), &json!(-32600)), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("batch"), "{answer}");
    let answer = exchange(&mut agent, "[]").await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(null), &json!(-32600)), "{answer}");
    for version in [r#""1.0""#, "2.0", "2", "null", r#""2.00""#] {
        let line = format!(r#"{{"jsonrpc":{version},"id":4,"method":"session/new","params":{params}}}"#);
        let answer = exchange(&mut agent, &line).await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(4), &json!(-32600)), "{version}: {answer}");
    }
    let answer = exchange(&mut agent, &format!(r#"{{"id":5,"method":"session/new","params":{params}}}"#)).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(5), &json!(-32600)), "{answer}");
    // One answer each, nothing of it has run, and the next line works.
    let answer = exchange(&mut agent, &request("6", "session/list", &json!({}))).await;
    assert_eq!((&answer["id"], &answer["result"]["sessions"]), (&json!(6), &json!([])), "{answer}");
}

// Notifications that failed were answered with errors, which peers could not match to anything.
#[tokio::test]
async fn frm_13_notifications_are_never_answered() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    agent.recv_until(|message| message["params"]["update"]["sessionUpdate"] == "available_commands_update").await;
    let calls = [
        ("session/cancel", json!({"sessionId": "s-none"})),
        ("session/cancel", json!({"sessionId": session})),
        ("session/cancel", json!({"sessionId": 5})),
        ("session/cancel", json!({})),
        ("session/cancel", json!([])),
        ("session/update", json!({"sessionId": "s-none", "text": "x"})),
        ("session/event", json!({"session": 1})),
        ("$/cancel_request", json!({"requestId": 99})),
        ("$/cancel_request", json!({})),
        ("$/progress", json!({"token": 1})),
        ("_vendor/unknown", json!({})),
        ("no/such/method", json!({})),
        ("initialize", json!({"protocolVersion": 1})),
        ("session/new", json!({"cwd": lab.project()})),
        ("session/new", json!({"cwd": 5})),
        ("session/prompt", text_prompt(&session, "/write by-notification.txt x")),
        ("session/load", json!({"sessionId": session})),
        ("session/close", json!({"sessionId": session})),
    ];
    let before = agent.received().len();
    for (method, params) in calls {
        agent.notify(method, params).await;
    }
    agent.send(r#"{"jsonrpc":"2.0","method":"session/cancel"}"#).await;
    let result = agent.call("session/list", json!({})).await.unwrap();
    assert_eq!(result["sessions"].as_array().unwrap().len(), 1, "no notification made a session");
    assert_eq!(agent.received().len(), before + 1, "nothing but the answer to the request");
    let result = prompt(&mut agent, &session, "/say 1").await;
    assert_eq!(result["stopReason"], json!("end_turn"), "the session was not closed");
}

// Encoders that escape the slash, or any letter, made method names that a borrowing parser could not read.
#[tokio::test]
async fn frm_15_escaped_method_names_are_read() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let cwd = json!(lab.project());
    let lines = [
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"session\/new","params":{{"cwd":{cwd}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"\u0073ession/new","params":{{"cwd":{cwd}}}}}"#),
        format!(
            r#"{{"jsonrp\u0063":"\u0032.0","\u0069d":1,"m\u0065thod":"session/new","par\u0061ms":{{"\u0063wd":{cwd}}}}}"#
        ),
    ];
    for line in lines {
        let answer = exchange(&mut agent, &line).await;
        assert_eq!((&answer["id"], &answer["result"]["workspaceDir"]), (&json!(1), &cwd), "{line}: {answer}");
    }
}

// A second request with the id of one in flight took over its place; the first caller waited for ever.
#[tokio::test]
async fn frm_17_an_id_in_flight_is_not_given_twice() {
    let server = ModelServer::start().await;
    let (reply, gate) = Reply::text("first").gate(0);
    server.push(reply);
    server.push(Reply::text("second"));
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    agent.send(&request("5", "session/prompt", &text_prompt(&session, "one"))).await;
    server.wait_for_requests(1).await;
    let answer = exchange(&mut agent, &request("5", "session/prompt", &text_prompt(&session, "two"))).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(5), &json!(-32600)), "{answer}");
    let answer = exchange(&mut agent, &request("5", "session/list", &json!({}))).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(5), &json!(-32600)), "{answer}");
    let answer = exchange(&mut agent, &request(r#""5""#, "session/list", &json!({}))).await;
    assert!(answer["id"] == "5" && answer["result"].is_object(), "another type is another id: {answer}");
    gate.release();
    let answer = next_response(&mut agent).await;
    assert_eq!((&answer["id"], &answer["result"]["content"]), (&json!(5), &json!("first")), "{answer}");
    let answer = exchange(&mut agent, &request("5", "session/prompt", &text_prompt(&session, "three"))).await;
    assert_eq!((&answer["id"], &answer["result"]["content"]), (&json!(5), &json!("second")), "{answer}");
    assert_eq!(server.requests().len(), 2);
}

// An id was still taken for a moment after its answer had been read, so a client with one id for everything was refused.
#[tokio::test]
async fn frm_17_an_answered_id_is_free_at_once() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    for _ in 0..200 {
        for (method, params) in [
            ("session/list", json!({})),
            ("session/update", json!({"sessionId": session, "type": "opaque"})),
            ("session/resume", json!({"sessionId": session})),
        ] {
            let answer = exchange(&mut agent, &request("1", method, &params)).await;
            assert!(answer.get("result").is_some(), "{method}: {answer}");
        }
    }
}

// The end of the input raced with the last line, and what it asked for was never answered.
#[tokio::test]
async fn frm_19_the_last_line_needs_no_line_feed() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    agent.send_raw(request("8", "session/new", &json!({"cwd": lab.project()})).as_bytes()).await;
    agent.close_stdin();
    let answers = agent.drain().await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(answers[0]["id"] == 8 && answers[0]["result"]["sessionId"].is_string(), "{answers:?}");
    assert!(agent.wait().await.success());

    let (mut agent, session) = lab.session().await;
    agent.send_raw(request("9", "session/prompt", &text_prompt(&session, "/say 3")).as_bytes()).await;
    agent.close_stdin();
    let said = agent.drain().await;
    let answers: Vec<&Value> = said.iter().filter(|message| message["id"] == 9).collect();
    assert_eq!(answers.len(), 1, "{said:?}");
    let stop = &answers[0]["result"]["stopReason"];
    assert!(stop == "end_turn" || stop == "cancelled", "{answers:?}");
    assert_eq!(said.last(), answers.first().copied(), "the answer comes after everything it answers for");
    assert!(agent.wait().await.success());
}

/// A client that reads only as much as it wants to.
struct LazyClient {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    session: String,
}

impl LazyClient {
    async fn start(lab: &Lab) -> Self {
        let mut command = lab.command("zeroclaw-acp");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self { child, stdin, stdout, session: String::new() };
        client.write(&[request("1", "initialize", &json!({})), request("2", "session/new", &json!({}))]).await;
        let opened: Value = serde_json::from_str(&client.read_until(r#""id":2"#).await).unwrap();
        client.session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
        client
    }

    async fn write(&mut self, lines: &[String]) {
        self.stdin.write_all((lines.join("\n") + "\n").as_bytes()).await.unwrap();
    }

    async fn read_until(&mut self, wanted: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).await.unwrap(), 0, "the output ended before {wanted}");
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// Starts an answer that is longer than every buffer on the way, and sees it begin.
    async fn begin_long_answer(&mut self) {
        let say = request("3", "session/prompt", &text_prompt(&self.session, "/say 10000000"));
        self.write(&[say]).await;
        self.read_until("agent_message_chunk").await;
    }
}

/// The process ends by itself, in whatever way.
async fn ends(child: &mut Child) {
    let ended = tokio::time::timeout(Duration::from_secs(30), child.wait()).await;
    ended.expect("the process waits for a reader that will not read").unwrap();
}

// At the end of the input a client that had stopped reading kept the process alive for ever.
#[tokio::test]
async fn frm_19_a_reader_that_stopped_does_not_keep_the_process() {
    let lab = Lab::new();
    let mut client = LazyClient::start(&lab).await;
    client.begin_long_answer().await;
    let LazyClient { mut child, stdin, stdout, .. } = client;
    drop(stdin);
    ends(&mut child).await;
    drop(stdout);
}

// The same when it has asked for more answers than are kept for it, so that its input is not taken any more either.
#[cfg(unix)]
#[tokio::test]
async fn frm_19_unread_answers_do_not_keep_the_process() {
    let lab = Lab::new();
    let mut client = LazyClient::start(&lab).await;
    client.begin_long_answer().await;
    // An id that is echoed makes an answer as long as its question; at some point the pipe takes no more of them.
    let question = request(&format!("\"{}\"", "i".repeat(60_000)), "no/such", &json!({}));
    let flood = async {
        for _ in 0..2_000 {
            client.write(std::slice::from_ref(&question)).await;
        }
    };
    // However much of it was taken by then: that it is bounded is tested where the bound is.
    let _blocked = tokio::time::timeout(Duration::from_secs(1), flood).await;
    let LazyClient { mut child, stdin, stdout, .. } = client;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    ends(&mut child).await;
    drop((stdin, stdout));
}

// And when it has closed its end of the output but keeps the input open.
#[tokio::test]
async fn frm_19_a_reader_that_is_gone_ends_the_process() {
    let lab = Lab::new();
    let mut client = LazyClient::start(&lab).await;
    client.begin_long_answer().await;
    let LazyClient { mut child, stdin, stdout, .. } = client;
    drop(stdout);
    ends(&mut child).await;
    drop(stdin);
}

// A byte order mark from an editor on another system made the configuration unreadable.
#[tokio::test]
async fn frm_21_a_byte_order_mark_is_no_content() {
    let lab = Lab::with_config("\u{feff}[acp]\nmax_sessions = 3\n");
    let mut agent: AgentProcess = lab.start();
    agent.send_raw(b"\xef\xbb\xbf").await;
    let answer = exchange(&mut agent, &request("1", "initialize", &json!({"protocolVersion": 1}))).await;
    assert_eq!(answer["result"]["_meta"]["zeroclaw"]["maxSessions"], json!(3), "{answer}");
    // Only the very first bytes of a stream can be a mark.
    let answer = exchange(&mut agent, &format!("\u{feff}{}", request("2", "session/list", &json!({})))).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(null), &json!(-32700)), "{answer}");
}

// Nobody reported this one: parts of one line arrive as separate writes, and several lines in one.
#[tokio::test]
async fn frm_lines_do_not_depend_on_writes() {
    let lab = Lab::new();
    let mut agent = lab.agent().await;
    let text = ["20", "21", "22"].map(|id| request(id, "session/list", &json!({}))).join("\r\n\r\n \n");
    let (head, tail) = text.split_at(text.len() / 2 - 7);
    agent.send_raw(head.as_bytes()).await;
    agent.send_raw(tail.as_bytes()).await;
    agent.send_raw(b"\n").await;
    let mut ids: Vec<Value> = Vec::new();
    for _ in 0..3 {
        ids.push(next_response(&mut agent).await["id"].take());
    }
    ids.sort_by_key(Value::as_u64);
    assert_eq!(ids, [json!(20), json!(21), json!(22)]);
}

// A tool call and the words around it are one line each, however large the model's pieces are.
#[tokio::test]
async fn frm_one_update_is_one_line() {
    let server = ModelServer::start().await;
    let piece = "a\r\nb\rc\n\u{2028}".repeat(20_000);
    server.push(Reply::turn([Part::text(piece.clone()), Part::text("end")]));
    let lab = Lab::custom("full", &server.openai_url());
    let (mut agent, session) = lab.session().await;
    prompt(&mut agent, &session, "go").await;
    assert_eq!(answer_text(&agent.received()), format!("{piece}end"));
}
