//! A raw HTTP client over a TCP socket, and a reader of event streams written from the standard's text.
//!
//! Owns nothing but what a test needs to see bytes and chunk boundaries. It refuses to hide them.

use std::time::Duration;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use zeroclaw_testkit::model_server::ModelServer;

/// Bounds a read that a broken server would leave hanging; a sound one never comes near it.
const LIMIT: Duration = Duration::from_secs(30);

/// How a response body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    LastChunk,
    Length,
    Close,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) ended: Ended,
}

impl Response {
    pub(crate) fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body()).expect("a complete body is UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body()).expect("an error body is JSON")
    }

    pub(crate) fn events(&self) -> Vec<Sse> {
        parse_sse(&self.text())
    }
}

/// One dispatched event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sse {
    pub(crate) name: Option<String>,
    pub(crate) data: String,
}

impl Sse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).expect("event data is JSON")
    }
}

pub(crate) fn parse_sse(text: &str) -> Vec<Sse> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let (mut name, mut data): (Option<String>, Vec<&str>) = (None, Vec::new());
    for line in text.split_terminator('\n') {
        if line.is_empty() {
            let lines = std::mem::take(&mut data);
            let name = name.take();
            if !lines.is_empty() {
                events.push(Sse { name, data: lines.join("\n") });
            }
        } else if let Some((field, value)) = line.split_once(':') {
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" => {}
                "event" => name = Some(value.to_owned()),
                "data" => data.push(value),
                other => panic!("unexpected field {other:?}"),
            }
        } else {
            panic!("unexpected line {line:?}");
        }
    }
    events
}

pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(server: &ModelServer) -> Self {
        let address = server.base_url().replace("http://", "");
        Self { stream: TcpStream::connect(address).await.expect("the server listens"), input: Vec::new() }
    }

    pub(crate) async fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let length = body.len().to_string();
        let headers = [headers, &[("Content-Length", length.as_str())]].concat();
        self.write(method, path, &headers, body).await;
    }

    /// A request whose framing is up to the headers given.
    pub(crate) async fn send_unframed(&mut self, path: &str, headers: &[(&str, &str)], body: &str) {
        self.write("POST", path, headers, body).await;
    }

    async fn write(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        request.push_str(body);
        self.stream.write_all(request.as_bytes()).await.expect("the server reads");
    }

    pub(crate) async fn head(&mut self) -> (u16, String) {
        let line_end = self.until(b"\r\n\r\n").await.expect("a response head");
        let head = String::from_utf8(line_end).expect("an ASCII head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status code");
        (status, head)
    }

    /// One chunk; `None` for the last one, `Err` when the connection ends instead.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ()> {
        let line = self.until(b"\r\n").await?;
        let size = String::from_utf8(line).ok().and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
        let size = size.expect("a chunk size");
        let mut data = self.exactly(size + 2).await?;
        assert_eq!(data.split_off(size), b"\r\n", "a chunk ends in CR LF");
        Ok((size > 0).then_some(data))
    }

    pub(crate) async fn response(&mut self) -> Response {
        let (status, head) = self.head().await;
        let field = |name: &str| {
            let lower = head.to_ascii_lowercase();
            lower.lines().find_map(|line| line.strip_prefix(name).map(|value| value.trim().to_owned()))
        };
        let mut chunks = Vec::new();
        let ended = if field("transfer-encoding:").is_some() {
            loop {
                match self.chunk().await {
                    Ok(Some(data)) => chunks.push(data),
                    Ok(None) => break Ended::LastChunk,
                    Err(()) => break Ended::Close,
                }
            }
        } else if let Some(length) = field("content-length:") {
            let length = length.parse().expect("a length");
            chunks.push(self.exactly(length).await.expect("a whole body"));
            Ended::Length
        } else {
            while self.fill().await > 0 {}
            chunks.push(std::mem::take(&mut self.input));
            Ended::Close
        };
        Response { status, head, chunks, ended }
    }

    /// Whether the connection has been closed by the server, with nothing left to read.
    pub(crate) async fn at_end(&mut self) -> bool {
        self.input.is_empty() && self.fill().await == 0
    }

    async fn until(&mut self, end: &[u8]) -> Result<Vec<u8>, ()> {
        loop {
            if let Some(at) = self.input.windows(end.len()).position(|window| window == end) {
                return Ok(self.input.drain(..at + end.len()).collect());
            }
            if self.fill().await == 0 {
                return Err(());
            }
        }
    }

    async fn exactly(&mut self, count: usize) -> Result<Vec<u8>, ()> {
        while self.input.len() < count {
            if self.fill().await == 0 {
                return Err(());
            }
        }
        Ok(self.input.drain(..count).collect())
    }

    async fn fill(&mut self) -> usize {
        let read = tokio::time::timeout(LIMIT, self.stream.read_buf(&mut self.input)).await;
        read.expect("the server writes or closes").unwrap_or(0)
    }
}

pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");
pub(crate) const VERSION: (&str, &str) = ("Anthropic-Version", "2023-06-01");

pub(crate) async fn openai(server: &ModelServer, body: &Value) -> Response {
    let mut client = Client::connect(server).await;
    client.send("POST", "/v1/chat/completions", &[JSON], &body.to_string()).await;
    client.response().await
}

pub(crate) async fn anthropic(server: &ModelServer, body: &Value) -> Response {
    let mut client = Client::connect(server).await;
    client.send("POST", "/v1/messages", &[JSON, VERSION], &body.to_string()).await;
    client.response().await
}
