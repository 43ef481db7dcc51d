//! Streamable HTTP, with a client that takes the page of the protocol at its word.

use std::{sync::atomic::Ordering, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use zeroclaw_acp_transport::Limits;

use crate::lab::{LIMIT, Lab, PERIODS};

/// An event stream over HTTP/1.1.
struct Events {
    head: String,
    body: BufReader<TcpStream>,
    text: String,
}

impl Events {
    /// The next event; `None` when the stream has ended.
    async fn next(&mut self) -> Option<Value> {
        let next = async {
            loop {
                if let Some((event, rest)) = self.text.split_once("\n\n") {
                    let (event, rest) = (event.to_owned(), rest.to_owned());
                    self.text = rest;
                    match event.strip_prefix("data: ") {
                        Some(data) => return Some(serde_json::from_str(data).unwrap()),
                        None => assert_eq!(event, ":"),
                    }
                    continue;
                }
                let mut size = String::new();
                self.body.read_line(&mut size).await.unwrap();
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                let mut chunk = vec![0; size + 2];
                self.body.read_exact(&mut chunk).await.unwrap();
                if size == 0 {
                    return None;
                }
                self.text.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
            }
        };
        tokio::time::timeout(LIMIT, next).await.expect("an event in time")
    }

    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

/// One client of the gateway.
struct Client<'l> {
    lab: &'l Lab,
    bearer: String,
    id: String,
}

impl<'l> Client<'l> {
    async fn new(lab: &'l Lab, token: &str) -> Self {
        let mut client = Self { lab, bearer: format!("Bearer {token}"), id: String::new() };
        let (status, head, body) =
            client.send("POST", &[], &call(0, "initialize", json!({"give": {"hello": 1}}))).await;
        assert_eq!(status, 200, "{head}");
        let answer: Value = serde_json::from_str(&body).expect("an answer in JSON");
        assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 0, "result": {"hello": 1}}), "{head}");
        assert!(head.contains("content-type: application/json\r\n"), "{head}");
        let (_, id) = head.split_once("acp-connection-id: ").expect("an id");
        client.id = id.split("\r\n").next().unwrap().to_owned();
        client
    }

    /// One request on a connection of its own: status, head and body.
    async fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, String) {
        let mut text = format!(
            "{method} /acp?agent=coder HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\nauthorization: {}\r\n",
            self.lab.address,
            body.len(),
            self.bearer
        );
        if method == "POST" && !headers.iter().any(|(name, _)| *name == "content-type") {
            text.push_str("content-type: application/json; charset=utf-8\r\n");
        }
        if !self.id.is_empty() {
            text.push_str(&format!("acp-connection-id: {}\r\n", self.id));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let answer = self.lab.raw(&format!("{text}\r\n{body}")).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), format!("{head}\r\n").to_lowercase(), body.to_owned())
    }

    async fn post(&self, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let (status, _, body) = self.send("POST", headers, body).await;
        (status, body)
    }

    async fn events(&self, session: Option<&str>) -> Events {
        let mut stream = TcpStream::connect(self.lab.address).await.unwrap();
        let session = session.map(|id| format!("acp-session-id: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "GET /acp HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\nauthorization: {}\r\nacp-connection-id: {}\r\n{session}\r\n",
            self.lab.address, self.bearer, self.id
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut body = BufReader::new(stream);
        let mut head = String::new();
        let reading = async { while body.read_line(&mut head).await.unwrap() > 2 {} };
        tokio::time::timeout(LIMIT, reading).await.expect("a head in time");
        Events { head: head.to_lowercase(), body, text: String::new() }
    }
}

fn call(id: u32, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn update(session: &str, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "text": text}})
}

fn result(id: u32, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

#[tokio::test]
async fn http_01_every_message_comes_on_the_stream_it_belongs_to() {
    let lab = Lab::new().await;
    let client = Client::new(&lab, &lab.token("laptop")).await;
    assert_eq!(*lab.seen.agents.lock().unwrap(), [Some("coder".to_owned())]);
    let mut connection = client.events(None).await;
    assert!(connection.head.contains("content-type: text/event-stream\r\n"), "{}", connection.head);
    assert!(connection.head.contains(&format!("acp-connection-id: {}\r\n", client.id)), "{}", connection.head);
    // What came before the answer to `initialize` was kept: the lab repeats every message it is sent.
    assert_eq!(connection.next().await.unwrap()["method"], "initialize");

    let new = call(1, "session/new", json!({"give": {"sessionId": "s-1"}, "say": [update("s-1", "early")]}));
    assert_eq!(client.post(&[], &new).await, (202, String::new()));
    assert_eq!(connection.next().await.unwrap()["method"], "session/new");
    assert_eq!(connection.next().await.unwrap(), result(1, json!({"sessionId": "s-1"})));
    let mut session = client.events(Some("s-1")).await;
    assert!(session.head.contains("acp-session-id: s-1\r\n"), "{}", session.head);
    assert_eq!(session.next().await.unwrap(), update("s-1", "early"));

    let permission = json!({"jsonrpc": "2.0", "id": "zc-out-0", "method": "session/request_permission",
        "params": {"sessionId": "s-1"}});
    let withdrawn = json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"sessionId": "s-1"}});
    let say = json!([update("s-1", "one"), permission, withdrawn, update("s-1", "two")]);
    let prompt = call(2, "session/prompt", json!({"sessionId": "s-1", "say": say, "give": {"stopReason": "end_turn"}}));
    assert_eq!(client.post(&[("acp-session-id", "s-1")], &prompt).await.0, 202);
    assert_eq!(session.next().await.unwrap()["method"], "session/prompt");
    assert_eq!(session.next().await.unwrap(), update("s-1", "one"));
    assert_eq!(session.next().await.unwrap(), permission);
    assert_eq!(session.next().await.unwrap(), update("s-1", "two"));
    assert_eq!(session.next().await.unwrap(), result(2, json!({"stopReason": "end_turn"})));
    assert_eq!(connection.next().await.unwrap(), withdrawn);

    // The stream of a session that is loaded is opened before it is known; the end of the replay comes behind it.
    let mut loaded = client.events(Some("s-2")).await;
    let load = call(3, "session/load", json!({"sessionId": "s-2", "say": [update("s-2", "old")], "give": {}}));
    assert_eq!(client.post(&[("acp-session-id", "s-2")], &load).await.0, 202);
    assert_eq!(loaded.next().await.unwrap()["method"], "session/load");
    assert_eq!(loaded.next().await.unwrap(), update("s-2", "old"));
    assert_eq!(loaded.next().await.unwrap(), result(3, json!({})));
    // A client that listens to the connection alone gets its answer there, and the replay when it wants it.
    let load = call(5, "session/load", json!({"sessionId": "s-3", "say": [update("s-3", "old")], "give": {}}));
    assert_eq!(client.post(&[("acp-session-id", "s-3")], &load).await.0, 202);
    assert_eq!(connection.next().await.unwrap(), result(5, json!({})));
    let mut late = client.events(Some("s-3")).await;
    assert_eq!(late.next().await.unwrap()["method"], "session/load");
    assert_eq!(late.next().await.unwrap(), update("s-3", "old"));

    // What fails for a session that nobody reads is told on the connection.
    let unknown = call(4, "session/prompt", json!({"sessionId": "s-9", "fail": true, "give": {"code": -32000}}));
    assert_eq!(client.post(&[], &unknown).await.0, 202);
    // The lab's repetition names the session, so that it is known from there on; its stream has both.
    let mut failed = client.events(Some("s-9")).await;
    assert_eq!(failed.next().await.unwrap()["id"], 4);
    assert_eq!(failed.next().await.unwrap()["error"]["code"], -32000);

    let answer = json!({"jsonrpc": "2.0", "id": "zc-out-0", "result": {"outcome": {"outcome": "cancelled"}}});
    assert_eq!(client.post(&[("acp-session-id", "s-1")], &answer.to_string()).await.0, 202);
    assert_eq!(connection.next().await.unwrap(), answer);

    assert_eq!(client.send("DELETE", &[], "").await.0, 202);
    assert_eq!(connection.next().await, None);
    assert_eq!(session.next().await, None);
    lab.seen.wait_for_ends(1).await;
    assert_eq!(client.send("DELETE", &[], "").await.0, 404);
    assert_eq!(client.events(None).await.status(), 404);
}

#[tokio::test]
async fn http_02_what_is_wrong_has_the_status_of_the_page() {
    let lab = Lab::with(|settings| settings.periods.stall = Duration::from_millis(300)).await;
    let client = Client::new(&lab, &lab.token("laptop")).await;
    let prompt = |session: Value| call(1, "session/prompt", session);
    let known = prompt(json!({"sessionId": "s-1"}));
    for (headers, body, expect) in [
        (vec![("content-type", "text/plain")], known.as_str(), 415),
        (vec![], "[]", 501),
        (vec![], " [{\"jsonrpc\":\"2.0\"}]", 501),
        (vec![], "{", 400),
        (vec![], "7", 400),
        (vec![], "{\"jsonrpc\":\"2.0\",\"id\":1}", 400),
        (vec![("acp-session-id", "s-2")], &known, 400),
        (vec![], &prompt(json!({})), 400),
        (vec![("acp-session-id", "s-2")], &prompt(json!([])), 400),
        (vec![("acp-session-id", &"s".repeat(129))], &known, 400),
    ] {
        assert_eq!(client.post(&headers, body).await.0, expect, "{headers:?} {body}");
    }
    let batch: Value = serde_json::from_str(&client.post(&[], "[]").await.1).unwrap();
    assert_eq!((&batch["id"], &batch["error"]["code"]), (&Value::Null, &json!(-32600)));
    let large = format!("\"{}\"", "x".repeat(64 * 1024 - 1));
    assert_eq!(client.post(&[], &large).await.0, 413);
    // The same of a body that does not say how long it is.
    let head = format!(
        "POST /acp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: {}\r\ncontent-type: application/json\r\nacp-connection-id: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        lab.address, client.bearer, client.id
    );
    let chunk = format!("{head}{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    assert_eq!(lab.raw(&chunk).await.split(' ').nth(1), Some("413"));
    // One that does not come is not waited for.
    assert_eq!(lab.raw(&format!("{head}5\r\n{{\"jso")).await.split(' ').nth(1), Some("408"));

    let nobody = Client { lab: &lab, bearer: client.bearer.clone(), id: String::new() };
    assert_eq!(nobody.post(&[], &known).await.0, 400);
    assert_eq!(nobody.post(&[], "{\"jsonrpc\":\"2.0\",\"method\":\"initialize\"}").await.0, 400);
    assert_eq!(nobody.send("DELETE", &[], "").await.0, 400);
    assert_eq!(nobody.events(None).await.status(), 404, "an empty id is not the id of anything");
    assert_eq!(nobody.post(&[], &call(1, "initialize", json!({"pad": "x".repeat(256 * 1024)}))).await.0, 413);
    let stranger = Client { lab: &lab, bearer: client.bearer.clone(), id: "0".repeat(32) };
    assert_eq!(stranger.post(&[], &known).await.0, 404);
    assert_eq!(client.send("GET", &[("accept", "application/json")], "").await.0, 406);
    assert_eq!(client.send("PUT", &[], "").await.0, 405);
    // A client that is refused gets no connection.
    let refused = nobody.send("POST", &[], &call(7, "initialize", json!({"fail": true, "give": {"code": 1}}))).await;
    assert_eq!((refused.0, refused.1.contains("acp-connection-id")), (200, false));
    assert_eq!(serde_json::from_str::<Value>(&refused.2).unwrap()["error"]["code"], 1);
    lab.seen.wait_for_ends(1).await;
}

#[tokio::test]
async fn http_03_a_session_in_the_header_is_brought_into_the_message() {
    let lab = Lab::new().await;
    let client = Client::new(&lab, &lab.token("laptop")).await;
    let mut session = client.events(Some("s-1")).await;
    for (sent, expect) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/close"}"#, json!({"sessionId": "s-1"})),
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{ }}"#, json!({"sessionId": "s-1"})),
        (r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"a":[1]}}"#, json!({"sessionId": "s-1", "a": [1]})),
        (r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"session_id":"s-1"}}"#, json!({"session_id": "s-1"})),
    ] {
        assert_eq!(client.post(&[("acp-session-id", "s-1")], sent).await.0, 202, "{sent}");
        let mut message = session.next().await.unwrap();
        while message.get("method").is_none() {
            message = session.next().await.unwrap();
        }
        assert_eq!(message["params"], expect, "{sent}");
    }
}

#[tokio::test]
async fn http_04_a_stream_has_one_reader_and_unknown_sessions_are_few() {
    let lab = Lab::new().await;
    let client = Client::new(&lab, &lab.token("laptop")).await;
    let connection = client.events(None).await;
    assert_eq!(client.events(None).await.status(), 409);
    let mut open = Vec::new();
    for number in 0..16 {
        let stream = client.events(Some(&format!("s-{number}"))).await;
        assert_eq!(stream.status(), 200);
        open.push(stream);
    }
    assert_eq!(client.events(Some("s-3")).await.status(), 409);
    assert_eq!(client.events(Some("s-16")).await.status(), 404);
    // One that leaves gives its place and its stream to the next.
    drop(open.pop());
    drop(connection);
    for session in [Some("s-16"), None] {
        let again = async { while client.events(session).await.status() != 200 {} };
        tokio::time::timeout(LIMIT, again).await.expect("free again");
    }
}

#[tokio::test]
async fn http_05_a_connection_belongs_to_the_token_that_opened_it() {
    let lab = Lab::new().await;
    let client = Client::new(&lab, &lab.token("laptop")).await;
    let mut stream = client.events(None).await;
    assert_eq!(stream.next().await.unwrap()["method"], "initialize");
    let thief = Client { lab: &lab, bearer: format!("Bearer {}", lab.token("thief")), id: client.id.clone() };
    let message = call(1, "session/list", json!({}));
    assert_eq!(thief.post(&[], &message).await.0, 404);
    assert_eq!(thief.events(None).await.status(), 404);
    assert_eq!(thief.send("DELETE", &[], "").await.0, 404);
    let stranger = Client { lab: &lab, bearer: "Bearer zc_wrong".to_owned(), id: client.id.clone() };
    assert_eq!(stranger.post(&[], &message).await.0, 401);
    assert_eq!(stranger.events(None).await.status(), 401);
    assert_eq!(client.post(&[("origin", "https://evil.test")], &message).await.0, 403);
    lab.tokens().revoke("laptop").unwrap();
    assert_eq!(stream.next().await, None);
    lab.seen.wait_for_ends(1).await;
    assert_eq!(client.post(&[], &message).await.0, 401);
}

#[tokio::test]
async fn http_06_a_client_that_falls_silent_is_let_go_and_one_that_reads_is_not() {
    let lab = Lab::with(|settings| settings.periods.dead = Duration::from_millis(1500)).await;
    let token = lab.token("laptop");
    let reading = Client::new(&lab, &token).await;
    let mut stream = reading.events(None).await;
    let silent = Client::new(&lab, &token).await;
    lab.seen.wait_for_ends(1).await;
    assert_eq!(silent.post(&[], &call(1, "session/list", json!({}))).await.0, 404);
    assert_eq!(reading.post(&[], &call(1, "session/list", json!({}))).await.0, 202);
    assert_eq!(stream.next().await.unwrap()["method"], "initialize");
    assert_eq!(stream.next().await.unwrap()["method"], "session/list");
    assert_eq!(lab.seen.ended.load(Ordering::SeqCst), 1);
    drop(stream);
    lab.seen.wait_for_ends(2).await;
}

#[tokio::test]
async fn http_07_a_client_that_does_not_read_its_streams_is_bounded_and_detached() {
    let lab = Lab::with(|settings| {
        settings.periods = zeroclaw_gateway::Periods { stall: Duration::from_millis(300), ..PERIODS };
        settings.limits = Limits { max_line: 64 * 1024, outbox_high: 64 * 1024 };
    })
    .await;
    let token = lab.token("laptop");
    let stalled = Client::new(&lab, &token).await;
    let _unread = stalled.events(None).await;
    let mut other = lab.connect(&token).await;
    assert_eq!(stalled.post(&[], "{\"jsonrpc\":\"2.0\",\"method\":\"flood\"}").await.0, 202);
    lab.seen.wait_for_ends(1).await;
    // What the kernel holds for both ends, one batch on the stream, one in the outbox; in KiB.
    let flooded = lab.seen.flooded.load(Ordering::SeqCst);
    assert!(flooded < 16 * 1024, "{flooded} KiB");
    crate::life::echoed(&mut other, "not slowed").await;
    let metrics = lab.request("GET", "/metrics", &[("authorization", &stalled.bearer)], "").await.1;
    assert!(metrics.contains("zeroclaw_gateway_stalled_total 1\n"), "{metrics}");
}

#[tokio::test]
async fn gwb_15_a_slow_reader_of_a_stream_gets_everything_in_order() {
    let lab = Lab::new().await;
    let client = Client::new(&lab, &lab.token("laptop")).await;
    let mut session = client.events(Some("s-1")).await;
    // Fifty thousand updates through an outbox of 64 KiB, a hundred in each of the requests that ask for them.
    let posting = async {
        for request in 0..500_u32 {
            let say: Vec<Value> = (0..100).map(|number| update("s-1", &(request * 100 + number).to_string())).collect();
            let prompt = call(request, "session/prompt", json!({"sessionId": "s-1", "say": say}));
            assert_eq!(client.post(&[], &prompt).await.0, 202);
        }
    };
    let reading = async {
        let mut expect = 0_u32;
        while expect < 50_000 {
            let event = session.next().await.unwrap();
            if event["method"] == "session/update" {
                assert_eq!(event["params"]["text"], expect.to_string());
                expect += 1;
            }
        }
    };
    tokio::join!(posting, reading);
}

#[tokio::test]
async fn http_08_streams_end_with_the_gateway_and_places_are_limited() {
    let mut lab = Lab::with(|settings| settings.max_connections = 4).await;
    let token = lab.token("laptop");
    let nobody = Client { lab: &lab, bearer: format!("Bearer {token}"), id: String::new() };
    for _ in 0..4 {
        assert_eq!(nobody.post(&[], &call(0, "initialize", json!({}))).await.0, 200);
    }
    assert_eq!(nobody.post(&[], &call(0, "initialize", json!({}))).await.0, 503);
    let mut lab_of_one = Lab::new().await;
    let client = Client::new(&lab_of_one, &lab_of_one.token("laptop")).await;
    let mut stream = client.events(None).await;
    assert_eq!(stream.next().await.unwrap()["method"], "initialize");
    drop(client);
    lab_of_one.stop();
    assert_eq!(stream.next().await, None);
    lab_of_one.ended().await;
    drop(nobody);
    lab.stop();
    lab.ended().await;
    assert_eq!(lab.seen.ended.load(Ordering::SeqCst), 4);
}
