//! A gateway on a port of its own, a connection that echoes, and clients without manners.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{
        Error,
        client::IntoClientRequest,
        handshake::client::Response,
        http::{HeaderName, HeaderValue},
    },
};
use zeroclaw_acp_transport::{Connection, Flow, Limits, Outbox, Rejected};
use zeroclaw_gateway::{Acceptor, Gateway, GatewayError, GatewaySettings, Listener, Periods, TokenStore, World};

/// Longer than anything here takes on a busy machine; only a fault waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What the connections of a lab saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) agents: Mutex<Vec<Option<String>>>,
    pub(crate) ended: AtomicU64,
    pub(crate) end: Notify,
    /// Messages that were put into outboxes by `flood`.
    pub(crate) flooded: AtomicU64,
}

impl Seen {
    pub(crate) async fn wait_for_ends(&self, count: u64) {
        let wait = async {
            loop {
                let notified = self.end.notified();
                if self.ended.load(Ordering::SeqCst) >= count {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(LIMIT, wait).await.expect("the connections end");
    }
}

struct Echo {
    outbox: Outbox,
    seen: Arc<Seen>,
}

impl Echo {
    fn say(&self, line: &[u8]) {
        let flow = self.outbox.append(|out| {
            out.extend_from_slice(line);
            out.push(b'\n');
        });
        match flow {
            Flow::Ready | Flow::Full => {}
        }
    }
}

#[async_trait]
impl Connection for Echo {
    async fn line(&mut self, line: &[u8]) {
        if line == b"flood" || line.ends_with(b"\"method\":\"flood\"}") {
            let (outbox, seen) = (self.outbox.clone(), Arc::clone(&self.seen));
            tokio::spawn(async move {
                let message = vec![b'x'; 1023];
                while !outbox.is_gone() {
                    let flow = outbox.append(|out| {
                        out.extend_from_slice(&message);
                        out.push(b'\n');
                    });
                    seen.flooded.fetch_add(1, Ordering::SeqCst);
                    match flow {
                        Flow::Ready => {}
                        Flow::Full => outbox.drained().await,
                    }
                }
            });
            return;
        }
        self.say(line);
        // A request is answered too: with the lines that it asks for before its answer.
        let Ok(call) = serde_json::from_slice::<serde_json::Value>(line) else { return };
        if call.get("method").is_none() || call.get("id").is_none() {
            return;
        }
        for text in call["params"]["say"].as_array().into_iter().flatten() {
            self.say(text.to_string().as_bytes());
        }
        let outcome = if call["params"]["fail"] == true { "error" } else { "result" };
        self.say(
            serde_json::json!({"jsonrpc": "2.0", "id": call["id"], outcome: call["params"]["give"]})
                .to_string()
                .as_bytes(),
        );
    }

    async fn rejected(&mut self, rejected: Rejected) {
        panic!("nothing is rejected by a socket that closes: {rejected:?}");
    }

    async fn end(self: Box<Self>) {
        self.seen.ended.fetch_add(1, Ordering::SeqCst);
        self.seen.end.notify_waiters();
    }
}

struct Echoes(Arc<Seen>);

#[async_trait]
impl Acceptor for Echoes {
    fn connect(&self, outbox: Outbox, agent: Option<String>) -> Box<dyn Connection> {
        self.0.agents.lock().unwrap().push(agent);
        Box::new(Echo { outbox, seen: Arc::clone(&self.0) })
    }

    async fn ready(&self) -> Result<(), String> {
        Err("no model".to_owned())
    }

    fn metrics(&self, text: &mut String) {
        text.push_str("zeroclaw_echo 1\n");
    }
}

/// Randomness that repeats nothing, and a clock that stands until it is moved.
pub(crate) fn world(clock: &Arc<AtomicI64>) -> World {
    let clock = Arc::clone(clock);
    World {
        now_ms: Box::new(move || clock.load(Ordering::SeqCst)),
        random: Box::new(|buffer| {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            let mut state = NEXT.fetch_add(1, Ordering::SeqCst).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            for byte in buffer {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *byte = (state >> 32) as u8;
            }
        }),
    }
}

pub(crate) const PERIODS: Periods = Periods {
    ping: Duration::from_secs(30),
    dead: Duration::from_secs(70),
    stall: Duration::from_secs(30),
    patience: Duration::from_secs(5),
    watch: Duration::from_millis(20),
};

/// A running gateway.
pub(crate) struct Lab {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) directory: TempDir,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) seen: Arc<Seen>,
    pub(crate) clock: Arc<AtomicI64>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

pub(crate) type Client = WebSocketStream<TcpStream>;

impl Lab {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut GatewaySettings)) -> Self {
        Self::on(Listener::tcp("127.0.0.1", 0).await.unwrap(), change).await
    }

    pub(crate) async fn on(listener: Listener, change: impl FnOnce(&mut GatewaySettings)) -> Self {
        let directory = TempDir::new().unwrap();
        let mut settings = settings(directory.path());
        change(&mut settings);
        let clock = Arc::new(AtomicI64::new(1_000_000));
        let seen = Arc::new(Seen::default());
        let address = listener.address().unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
        let gateway =
            Gateway::open(settings, &listener, world(&clock), Box::new(Echoes(Arc::clone(&seen)))).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let opened = Arc::clone(&gateway);
        let serving = tokio::spawn(async move {
            gateway
                .serve(
                    listener,
                    async {
                        let _dropped = stopped.await;
                    },
                    async {},
                )
                .await;
        });
        Self { gateway: opened, directory, address, seen, clock, stop: Some(stop), serving: Some(serving) }
    }

    /// Asks the gateway to end.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) {
        let serving = self.serving.take().unwrap();
        tokio::time::timeout(LIMIT, serving).await.expect("the gateway ends").expect("no panic");
    }

    pub(crate) fn tokens(&self) -> TokenStore {
        TokenStore::in_directory(self.directory.path())
    }

    pub(crate) fn world(&self) -> World {
        world(&self.clock)
    }

    /// A new token of this name, in clear.
    pub(crate) fn token(&self, name: &str) -> String {
        self.tokens().create(name, None, &self.world()).unwrap().token.expose().to_owned()
    }

    pub(crate) fn operator_token(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("acp-bridge-token")).unwrap()
    }

    /// Tries to connect with these headers.
    pub(crate) async fn try_connect(&self, path: &str, headers: &[(&str, &str)]) -> Result<(Client, Response), Error> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut request = format!("ws://{}{path}", self.address).into_client_request().unwrap();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
        }
        client_async(request, stream).await
    }

    /// Connects with this token.
    pub(crate) async fn connect(&self, token: &str) -> Client {
        let bearer = format!("Bearer {token}");
        self.try_connect("/acp", &[("authorization", &bearer)]).await.expect("a connection").0
    }

    /// The status of a refused upgrade; 101 when it was not refused.
    pub(crate) async fn status(&self, path: &str, headers: &[(&str, &str)]) -> u16 {
        match self.try_connect(path, headers).await {
            Ok(_) => 101,
            Err(Error::Http(response)) => response.status().as_u16(),
            Err(other) => panic!("{other}"),
        }
    }

    /// Sends these bytes and reads until the gateway closes the connection.
    pub(crate) async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(LIMIT, stream.read_to_string(&mut answer)).await.expect("an answer").unwrap();
        answer
    }

    /// One request without a body; status and body of the answer.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "host") {
            text.push_str(&format!("host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let answer = self.raw(&format!("{text}\r\n{body}")).await;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (status.unwrap(), body.to_owned())
    }
}

pub(crate) fn settings(directory: &Path) -> GatewaySettings {
    GatewaySettings {
        directory: directory.to_owned(),
        require_pairing: true,
        allowed_origins: Vec::new(),
        allowed_hosts: Vec::new(),
        path_prefix: String::new(),
        trust_forwarded: false,
        max_connections: 64,
        limits: Limits { max_line: 64 * 1024, outbox_high: 64 * 1024 },
        periods: PERIODS,
    }
}

/// Opens a gateway that is expected not to open.
pub(crate) async fn refused(listener: &Listener, settings: GatewaySettings) -> GatewayError {
    let clock = Arc::new(AtomicI64::new(0));
    let acceptor = Box::new(Echoes(Arc::default()));
    Gateway::open(settings, listener, world(&clock), acceptor).await.expect_err("refused")
}
