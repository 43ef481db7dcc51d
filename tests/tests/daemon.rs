//! The daemon as its users meet it: started, paired with, connected to over real sockets, and ended.

use std::{
    io,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_client_protocol::{
    Client as Sdk, Lines, on_receive_notification,
    schema::ProtocolVersion,
    v1::schema::{
        CloseSessionRequest, ContentBlock, InitializeRequest, NewSessionRequest, PromptRequest, SessionNotification,
        SessionUpdate, StopReason, TextContent,
    },
};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    sync::mpsc,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest, protocol::frame::coding::CloseCode},
};
use zeroclaw_e2e::Lab;

/// Longer than anything here takes on a busy machine; only a fault waits for it.
const LIMIT: Duration = Duration::from_secs(120);

/// A running daemon on a port of its own.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: String,
    log: mpsc::UnboundedReceiver<String>,
    seen: String,
}

impl Daemon {
    pub(crate) async fn start(lab: &Lab, arguments: &[&str]) -> Self {
        Self::start_with(lab, arguments, &[]).await
    }

    /// The same with these variables in its environment.
    pub(crate) async fn start_with(lab: &Lab, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = lab.command("zeroclaw");
        command.args(["daemon", "--port", "0"]).args(arguments).envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let _nobody = sender.send(line);
            }
        });
        let mut daemon = Self { child, address: String::new(), log, seen: String::new() };
        let line = daemon.logged("zeroclaw: listening on ").await;
        let (_, place) = line.split_once("listening on ").unwrap();
        let place = place.split_once("://").map_or(place, |(_, place)| place);
        daemon.address = place.trim_end_matches("/acp").to_owned();
        daemon
    }

    /// The next line of the log that holds this.
    pub(crate) async fn logged(&mut self, wanted: &str) -> String {
        loop {
            let line = tokio::time::timeout(LIMIT, self.log.recv()).await.expect("a line in time");
            let line = line.unwrap_or_else(|| panic!("the daemon ended without `{wanted}`: {}", self.seen));
            self.seen.push_str(&line);
            self.seen.push('\n');
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// Ends it without a warning, with everything it holds.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Waits for its end; the exit code and everything it logged.
    pub(crate) async fn ended(mut self) -> (Option<i32>, String) {
        let status = tokio::time::timeout(LIMIT, self.child.wait()).await.expect("the daemon ends").unwrap();
        while let Some(line) = self.log.recv().await {
            self.seen.push_str(&line);
            self.seen.push('\n');
        }
        (status.code(), self.seen)
    }

    pub(crate) async fn connect(&self, path: &str, token: &str) -> Result<Client, Error> {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let mut request = format!("ws://{}{path}", self.address).into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let (socket, _) = client_async(request, stream).await?;
        Ok(Client { socket, next_id: 0, notices: Vec::new(), sent: 0, received: 0 })
    }

    /// A request without a body, and the whole answer.
    pub(crate) async fn get(&self, path: &str, header: &str) -> String {
        self.request("GET", path, header).await
    }

    /// The status of the answer to a request as it is written here.
    pub(crate) async fn status_of(&self, request: &str) -> u16 {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await.unwrap();
        line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    }

    async fn post(&self, path: &str, header: &str) -> String {
        self.request("POST", path, header).await
    }

    async fn request(&self, method: &str, path: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        stream.write_all(format!("{head}{header}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

/// One client on a WebSocket.
pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<TcpStream>,
    next_id: u64,
    pub(crate) notices: Vec<Value>,
    /// Messages in either direction.
    pub(crate) sent: usize,
    pub(crate) received: usize,
}

impl Client {
    pub(crate) async fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    /// Answers a request of the server.
    pub(crate) async fn reply(&mut self, id: &Value, result: Value) {
        self.write(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
    }

    async fn write(&mut self, message: &Value) {
        self.socket.send(Message::text(message.to_string())).await.unwrap();
        self.sent += 1;
    }

    /// Keeps the next message, which has to be no answer.
    pub(crate) async fn hear(&mut self) {
        let Some(Message::Text(text)) = self.message().await else { panic!("the connection goes on") };
        self.notices.push(serde_json::from_str(text.as_str()).unwrap());
    }

    /// The next message but a ping, which is answered by reading on.
    pub(crate) async fn message(&mut self) -> Option<Message> {
        loop {
            let message = tokio::time::timeout(LIMIT, self.socket.next()).await.expect("a message in time");
            match message.and_then(Result::ok) {
                Some(Message::Ping(_)) => {}
                Some(Message::Text(text)) => {
                    self.received += 1;
                    return Some(Message::Text(text));
                }
                other => return other,
            }
        }
    }

    /// The answer to a request; what came before it is kept.
    pub(crate) async fn answer(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            let message = self.message().await;
            let Some(Message::Text(text)) = message else { panic!("no answer to {id} but {message:?}") };
            let mut value: Value = serde_json::from_str(text.as_str()).unwrap();
            if value.get("method").is_none() && value["id"] == id {
                return match value.get_mut("result") {
                    Some(result) => Ok(result.take()),
                    None => Err(value["error"].take()),
                };
            }
            self.notices.push(value);
        }
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    pub(crate) async fn session(&mut self, lab: &Lab) -> String {
        self.call("initialize", json!({"protocolVersion": 1})).await.expect("initialize");
        let created = self.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await;
        created.expect("session/new")["sessionId"].as_str().unwrap().to_owned()
    }

    /// The close code behind whatever else comes.
    pub(crate) async fn close_code(&mut self) -> Option<CloseCode> {
        loop {
            if let Message::Close(frame) = self.message().await? {
                return frame.map(|frame| frame.code);
            }
        }
    }
}

/// What a command prints, which has to succeed.
pub(crate) async fn printed(lab: &Lab, arguments: &[&str]) -> String {
    let mut command: Command = lab.command("zeroclaw");
    let output = command.args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

pub(crate) async fn token(lab: &Lab, name: &str) -> String {
    printed(lab, &["tokens", "create", name]).await
}

#[tokio::test]
async fn tr_4_a_client_gets_over_the_gateway_what_it_gets_over_stdio() {
    let lab =
        Lab::scripted("supervised", &[json!({"type": "text", "text": "hello from afar"}), json!({"type": "stop"})]);
    let daemon = Daemon::start(&lab, &[]).await;
    let mut client = daemon.connect("/acp", &token(&lab, "laptop").await).await.unwrap();
    let session = client.session(&lab).await;
    let result = client.call("session/prompt", zeroclaw_e2e::text_prompt(&session, "hi")).await.unwrap();
    assert_eq!((&result["stopReason"], &result["content"]), (&json!("end_turn"), &json!("hello from afar")));
    assert_eq!(zeroclaw_e2e::answer_text(&client.notices), "hello from afar");
    let operator = std::fs::read_to_string(lab.config_dir().join("acp-bridge-token")).unwrap();
    assert!(daemon.connect("/acp", &operator).await.is_ok());
    assert!(matches!(daemon.connect("/acp", "zc_wrong").await, Err(Error::Http(response)) if response.status() == 401));
}

#[tokio::test]
async fn a_code_from_the_terminal_becomes_a_token_that_the_operator_can_take_back() {
    let lab = Lab::scripted("supervised", &[]);
    let daemon = Daemon::start(&lab, &[]).await;
    let code = printed(&lab, &["pair", "--name", "phone"]).await;
    assert_eq!(code.len(), 8, "{code}");
    let answer = daemon.post("/pair", &format!("x-pairing-code: {code}")).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let paired: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&paired["paired"], &paired["name"]), (&json!(true), &json!("phone")));
    let token = paired["token"].as_str().unwrap();
    let mut client = daemon.connect("/acp", token).await.unwrap();
    client.session(&lab).await;
    let list = printed(&lab, &["tokens", "list"]).await;
    assert!(list.contains("  phone  made ") && !list.contains(token), "{list}");
    let listed: Value = serde_json::from_str(&printed(&lab, &["tokens", "list", "--json"]).await).unwrap();
    assert_eq!(listed["id"], paired["id"]);
    printed(&lab, &["tokens", "revoke", "phone"]).await;
    assert_eq!(client.close_code().await, Some(CloseCode::Library(4401)));
    assert!(daemon.connect("/acp", token).await.is_err());
    assert!(daemon.post("/pair", &format!("x-pairing-code: {code}")).await.starts_with("HTTP/1.1 401"));
}

#[tokio::test]
async fn a_taken_port_ends_the_second_daemon_and_leaves_the_first_alone() {
    let lab = Lab::scripted("supervised", &[]);
    let first = Daemon::start(&lab, &[]).await;
    let operator = std::fs::read_to_string(lab.config_dir().join("acp-bridge-token")).unwrap();
    let port = first.address.rsplit(':').next().unwrap();
    let output = lab.command("zeroclaw").args(["daemon", "--port", port]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("cannot listen on") && error.contains(port), "{error}");
    assert!(first.connect("/acp", &operator).await.is_ok(), "its token is still the one in the file");
}

#[tokio::test]
async fn without_pairing_it_does_not_listen_beyond_the_loopback() {
    let lab = Lab::with_config("[gateway]\nrequire_pairing = false\nhost = \"0.0.0.0\"\nport = 0\n");
    let output = lab.command("zeroclaw").arg("daemon").output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("gateway.require_pairing"));
}

#[tokio::test]
async fn sec_03_the_address_selects_among_the_agents_and_grants_nothing() {
    let lab = Lab::with_config(
        "[providers.models.builtin.x]\n[agents.one]\nmodel_provider = \"builtin.x\"\n[agents.two]\n\
         model_provider = \"builtin.x\"\n[agents.off]\nenabled = false\nmodel_provider = \"builtin.x\"\n",
    );
    let daemon = Daemon::start(&lab, &[]).await;
    let token = token(&lab, "laptop").await;
    for (path, expect) in [
        ("/acp?agent=two", Ok(())),
        ("/acp?agent=off", Err(-32602)),
        ("/acp?agent=..%2Fx", Err(-32602)),
        ("/acp", Err(-32602)),
    ] {
        let mut client = daemon.connect(path, &token).await.unwrap();
        client.call("initialize", json!({"protocolVersion": 1})).await.unwrap();
        let created = client.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await;
        assert_eq!(created.map(|_| ()).map_err(|error| error["code"].as_i64().unwrap()), expect, "{path}");
    }
}

#[tokio::test]
async fn a_running_turn_may_end_before_the_daemon_does() {
    let lab = Lab::scripted(
        "supervised",
        &[json!({"type": "delay", "ms": 1500}), json!({"type": "text", "text": "to the end"}), json!({"type": "stop"})],
    );
    let daemon = Daemon::start(&lab, &[]).await;
    let mut client = daemon.connect("/acp", &token(&lab, "laptop").await).await.unwrap();
    let session = client.session(&lab).await;
    let prompt = client.send("session/prompt", zeroclaw_e2e::text_prompt(&session, "hi")).await;
    // Answered behind the prompt, so the turn runs.
    client.call("session/list", json!({})).await.unwrap();
    daemon.signal(rustix::process::Signal::TERM);
    let result = client.answer(prompt).await.unwrap();
    assert_eq!((&result["stopReason"], &result["content"]), (&json!("end_turn"), &json!("to the end")));
    assert_eq!(client.close_code().await, Some(CloseCode::Away));
    assert_eq!(daemon.ended().await.0, Some(0));
}

#[tokio::test]
async fn a_turn_that_does_not_end_is_interrupted_and_stored() {
    let lab = Lab::scripted(
        "supervised",
        &[
            json!({"type": "text", "text": "part"}),
            json!({"type": "stop"}),
            json!({"type": "delay", "ms": 600_000}),
            json!({"type": "stop"}),
        ],
    );
    let daemon = Daemon::start(&lab, &[]).await;
    let token = token(&lab, "laptop").await;
    let mut client = daemon.connect("/acp", &token).await.unwrap();
    let session = client.session(&lab).await;
    client.call("session/prompt", zeroclaw_e2e::text_prompt(&session, "one")).await.unwrap();
    let two = client.send("session/prompt", zeroclaw_e2e::text_prompt(&session, "two")).await;
    client.call("session/list", json!({})).await.unwrap();
    // Who asks twice does not want to wait for the turn.
    daemon.signal(rustix::process::Signal::TERM);
    daemon.signal(rustix::process::Signal::INT);
    let error = client.answer(two).await.unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("interrupted"), "{error}");
    assert_eq!(client.close_code().await, Some(CloseCode::Away));
    assert_eq!(daemon.ended().await.0, Some(0));
    let again = Daemon::start(&lab, &[]).await;
    let mut client = again.connect("/acp", &token).await.unwrap();
    client.call("initialize", json!({"protocolVersion": 1})).await.unwrap();
    let params = json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []});
    client.call("session/load", params).await.unwrap();
    assert_eq!(zeroclaw_e2e::updates_of(&client.notices, "user_message_chunk").len(), 2);
    let text = zeroclaw_e2e::answer_text(&client.notices);
    assert_eq!(text.matches("interrupted").count(), 1, "{text}");
}

#[tokio::test]
async fn no_token_and_no_code_is_logged() {
    let lab = Lab::scripted("supervised", &[]);
    let daemon = Daemon::start(&lab, &["--log-level", "trace"]).await;
    let code = printed(&lab, &["pair"]).await;
    let answer = daemon.post("/pair", &format!("x-pairing-code: {code}")).await;
    let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let token = body["token"].as_str().unwrap().to_owned();
    let operator = std::fs::read_to_string(lab.config_dir().join("acp-bridge-token")).unwrap();
    let mut client = daemon.connect(&format!("/acp?token={token}"), &operator).await.unwrap();
    client.session(&lab).await;
    daemon.post(&format!("/pair?token={token}"), "x-pairing-code: WRONGONE").await;
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(client.close_code().await, Some(CloseCode::Away));
    let (_, log) = daemon.ended().await;
    assert!(log.contains("a client connected"), "the log is there: {log}");
    for secret in [&token, &operator, &code, &"WRONGONE".to_owned()] {
        assert!(!log.contains(secret.as_str()), "a secret is in the log");
    }
}

#[tokio::test]
async fn a_hangup_reads_the_agents_again_and_keeps_the_clients() {
    let config =
        |alias: &str| format!("[providers.models.builtin.x]\n[agents.{alias}]\nmodel_provider = \"builtin.x\"\n");
    let lab = Lab::with_config(&config("one"));
    let mut daemon = Daemon::start(&lab, &["--log-level", "info"]).await;
    let mut client = daemon.connect("/acp", &token(&lab, "laptop").await).await.unwrap();
    let session = client.session(&lab).await;
    lab.write_config(&config("two"));
    daemon.signal(rustix::process::Signal::HUP);
    daemon.logged("the configuration of the agents was read again").await;
    let params = json!({"cwd": lab.project(), "mcpServers": [], "agent": "two"});
    client.call("session/new", params).await.expect("the new agent");
    client.call("session/prompt", zeroclaw_e2e::text_prompt(&session, "/help")).await.expect("the old session");
}

#[tokio::test]
async fn the_official_client_gets_through_a_life_over_websocket() {
    let lab = Lab::scripted("supervised", &[json!({"type": "text", "text": "from afar"}), json!({"type": "stop"})]);
    let daemon = Daemon::start(&lab, &[]).await;
    let client = daemon.connect("/acp", &token(&lab, "sdk").await).await.unwrap();
    let (sink, stream) = client.socket.split();
    let outgoing = sink.sink_map_err(io::Error::other).with(async |line: String| Ok(Message::text(line)));
    let incoming = stream.filter_map(async |message| match message {
        Ok(Message::Text(text)) => Some(Ok(text.as_str().to_owned())),
        Ok(_) => None,
        Err(error) => Some(Err(io::Error::other(error))),
    });
    let heard = Arc::new(Mutex::new(String::new()));
    let hearing = Arc::clone(&heard);
    let project = lab.project();
    let running = Sdk
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _| {
                if let SessionUpdate::AgentMessageChunk(chunk) = notification.update
                    && let ContentBlock::Text(text) = chunk.content
                {
                    hearing.lock().unwrap().push_str(&text.text);
                }
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_with(Lines::new(Box::pin(outgoing), Box::pin(incoming)), async move |agent| {
            agent.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await?;
            let created = agent.send_request(NewSessionRequest::new(project)).block_task().await?;
            let prompt = vec![ContentBlock::Text(TextContent::new("hi"))];
            let asked = agent.send_request(PromptRequest::new(created.session_id.clone(), prompt)).block_task().await?;
            agent.send_request(CloseSessionRequest::new(created.session_id)).block_task().await?;
            Ok(asked.stop_reason)
        });
    let stop_reason = tokio::time::timeout(LIMIT, running).await.expect("the conversation ends");
    assert_eq!(stop_reason.unwrap(), StopReason::EndTurn);
    assert_eq!(*heard.lock().unwrap(), "from afar");
}
