//! Providers for the fake vendor, requests, and a turn around them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use zeroclaw_runtime::model::{
    Message, ModelError, ModelEvent, ModelProvider, ModelRequest, ModelStop, ToolCallRequest, ToolSpec, Usage,
    vendor::{ApiKey, Family, HttpClients, VendorConfig, VendorProvider},
};
use zeroclaw_testkit::model_server::{ModelServer, Reply};

/// The two formats that the fake vendor speaks.
pub(crate) const BOTH: [Family; 2] = [Family::Custom, Family::Anthropic];

pub(crate) fn config(family: Family, uri: &str) -> VendorConfig {
    VendorConfig {
        family,
        alias: "test".to_owned(),
        model: "test-model".to_owned(),
        api_key: Some(ApiKey::new("sk-secret-test-key")),
        uri: Some(uri.to_owned()),
        max_output_tokens: None,
        temperature: None,
        context_window: None,
        num_ctx: None,
        idle_timeout: Duration::from_secs(30),
        native_tools: true,
    }
}

pub(crate) fn provider(family: Family, server: &ModelServer) -> VendorProvider {
    VendorProvider::new(config(family, &server.openai_url()), HttpClients::new(None, std::time::SystemTime::now))
}

pub(crate) fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

pub(crate) fn assistant(text: &str, thought: &str, calls: &[(&str, &str)]) -> Message {
    let call = |(id, arguments): &(&str, &str)| ToolCallRequest {
        id: (*id).to_owned(),
        name: "shell".to_owned(),
        arguments: (*arguments).to_owned(),
    };
    Message::Assistant {
        text: text.to_owned(),
        thought: thought.to_owned(),
        tool_calls: calls.iter().map(call).collect(),
        signed: Vec::new(),
    }
}

pub(crate) fn result(id: &str, content: &str) -> Message {
    Message::Tool { call_id: id.to_owned(), content: content.to_owned(), failed: false }
}

pub(crate) fn request(messages: Vec<Message>) -> ModelRequest {
    let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]});
    let tool = ToolSpec { name: "shell".to_owned(), description: "Runs a command.".to_owned(), parameters };
    ModelRequest {
        system: "Be short.".into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: [tool].into(),
        max_output_tokens: None,
        thinking: None,
    }
}

/// What one call gave: its events, and the error that ended it.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) signed: Vec<String>,
    pub(crate) text: String,
    pub(crate) thought: String,
    pub(crate) calls: Vec<(String, String, String)>,
    pub(crate) usage: Option<Usage>,
    pub(crate) stop: Option<ModelStop>,
    pub(crate) error: Option<ModelError>,
}

/// Runs one call to its end and checks that there is exactly one.
pub(crate) async fn call(provider: &dyn ModelProvider, request: ModelRequest) -> Outcome {
    let mut outcome = Outcome {
        signed: Vec::new(),
        text: String::new(),
        thought: String::new(),
        calls: Vec::new(),
        usage: None,
        stop: None,
        error: None,
    };
    let mut stream = match provider.stream(request).await {
        Ok(stream) => stream,
        Err(error) => {
            outcome.error = Some(error);
            return outcome;
        }
    };
    while let Some(event) = stream.next().await {
        assert!(outcome.stop.is_none() && outcome.error.is_none(), "something after the end: {event:?}");
        match event {
            Ok(ModelEvent::Text(text)) => outcome.text.push_str(&text),
            Ok(ModelEvent::Thought(text)) => outcome.thought.push_str(&text),
            Ok(ModelEvent::ToolCall(call)) => outcome.calls.push((call.id, call.name, call.arguments)),
            Ok(ModelEvent::Signed(thought)) => outcome.signed.push(thought),
            Ok(ModelEvent::Usage(usage)) => outcome.usage = Some(usage),
            Ok(ModelEvent::Stop(stop)) => outcome.stop = Some(stop),
            Err(error) => outcome.error = Some(error),
        }
    }
    assert!(outcome.stop.is_some() || outcome.error.is_some(), "an end without a word: {outcome:?}");
    outcome
}

/// One call that gets this reply.
pub(crate) async fn ask(family: Family, reply: Reply) -> Outcome {
    let server = ModelServer::start().await;
    server.push(reply);
    let outcome = call(&provider(family, &server), request(vec![user("hello")])).await;
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(server.requests().len(), 1, "nothing is retried inside");
    outcome
}

/// A vendor for what the fake one does not speak: raw responses, sent as they are.
pub(crate) struct RawServer {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl RawServer {
    /// Answers the connections in order, one response each.
    pub(crate) async fn start(responses: Vec<Vec<u8>>) -> Self {
        Self::connections(responses.into_iter().map(|response| vec![response]).collect()).await
    }

    /// Answers the connections in order, and each one's requests in order. Further connections are refused.
    pub(crate) async fn connections(connections: Vec<Vec<Vec<u8>>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            for responses in connections {
                let (mut socket, _) = listener.accept().await.unwrap();
                for response in responses {
                    let request = read_request(&mut socket).await;
                    seen.lock().unwrap().push(request);
                    socket.write_all(&response).await.unwrap();
                }
            }
        });
        Self { address, requests }
    }

    pub(crate) fn requests(&self) -> Vec<(String, Value)> {
        self.requests.lock().unwrap().clone()
    }
}

/// The head, in lower case, and the body of one request.
async fn read_request(socket: &mut TcpStream) -> (String, Value) {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let count = socket.read(&mut piece).await.unwrap();
        assert_ne!(count, 0, "the request is whole");
        bytes.extend_from_slice(&piece[..count]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if bytes.len() >= end + 4 + length.parse::<usize>().unwrap() {
            return (head, serde_json::from_slice(&bytes[end + 4..]).unwrap());
        }
    }
}

/// A response that ends with its connection.
pub(crate) fn raw(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n{body}").into_bytes()
}
