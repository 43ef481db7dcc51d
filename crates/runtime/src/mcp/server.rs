//! The life of one server: started, asked for its tools, started once more when it dies, ended with its session.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ClientHandler, RoleClient, ServiceExt,
    model::{
        ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, ProgressNotificationParam,
        ProgressToken, ProtocolVersion,
    },
    service::{NotificationContext, Peer, RunningServiceCancellationToken},
    transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig},
};
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    mcp::{
        McpHost, McpServerConfig, McpTransport,
        process::{Ending, MAX_LINE, Program},
        tool::McpTool,
    },
    tool::{Tool, show},
};

/// Tools of one server that are offered: a model that has to read more of them works worse.
const MAX_TOOLS: usize = 128;

/// Pages of a list that are read: a list that does not end is not one.
const MAX_PAGES: usize = 32;

/// Times a server that ended by itself is started again. One that dies again would do so for ever.
const RESTARTS: usize = 1;

/// Progress reports that wait for a call to take them; further ones are dropped.
const REPORTS: usize = 16;

/// Sentences kept for the user.
const MAX_NEWS: usize = 16;

/// Characters of a server's own words in such a sentence.
const MAX_REASON: usize = 500;

/// Secrets shorter than this are too common to be blanked out in texts.
const MIN_SECRET: usize = 6;

/// Where a server stands.
enum State {
    Starting,
    Ready(Arc<Ready>),
    Failed,
    Ended,
}

struct Ready {
    link: Link,
    tools: Vec<Arc<dyn Tool>>,
}

/// The way to a running server.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) peer: Peer<RoleClient>,
    pub(super) listener: Listener,
    /// Cancelled when the connection is over.
    gone: CancellationToken,
    /// Whether it is over because of a line that was too long.
    too_long: Arc<AtomicBool>,
}

impl Link {
    /// The connection is over, whoever noticed it.
    pub(super) fn lost(&self) {
        self.gone.cancel();
    }

    /// Why the connection is over, where that is known.
    pub(super) fn fault(&self) -> Option<String> {
        self.too_long.load(Ordering::Acquire).then(|| format!("it sent a line of more than {MAX_LINE} bytes"))
    }

    fn is_lost(&self) -> bool {
        self.gone.is_cancelled() || self.peer.is_transport_closed()
    }
}

/// A server of a session.
pub(super) struct Server {
    config: McpServerConfig,
    origin: String,
    state: watch::Sender<State>,
    news: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("name", &self.config.name).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts a server in the background.
    pub(super) fn start(config: McpServerConfig, host: McpHost, stop: CancellationToken) -> Arc<Self> {
        let server = Arc::new(Self {
            origin: config.transport.digest(),
            config,
            state: watch::channel(State::Starting).0,
            news: Mutex::default(),
        });
        let life = Arc::clone(&server);
        tokio::spawn(async move {
            life.live(&host, &stop).await;
            life.state.send_replace(State::Ended);
        });
        server
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// A digest of what the server is.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    pub(super) fn call_timeout(&self) -> Duration {
        self.config.call_timeout
    }

    /// Resolves when the server is ready or will not be. One that has just died is about to be started again.
    pub(super) async fn settled(&self) {
        let settled = |state: &State| match state {
            State::Starting => false,
            State::Ready(ready) => !ready.link.is_lost(),
            State::Failed | State::Ended => true,
        };
        // It fails only without a sender, and that is here.
        let _ = self.state.subscribe().wait_for(settled).await;
    }

    /// Resolves when nothing of the server is left.
    pub(super) async fn ended(&self) {
        let _ = self.state.subscribe().wait_for(|state| matches!(state, State::Ended)).await;
    }

    /// The way to the server, while it is ready.
    pub(super) fn link(&self) -> Option<Link> {
        match &*self.state.borrow() {
            State::Ready(ready) => Some(ready.link.clone()),
            State::Starting | State::Failed | State::Ended => None,
        }
    }

    pub(super) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        match &*self.state.borrow() {
            State::Ready(ready) => ready.tools.clone(),
            State::Starting | State::Failed | State::Ended => Vec::new(),
        }
    }

    /// Takes what is to be told.
    pub(super) fn news(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.news))
    }

    /// A text of the server's without what it was given as secrets.
    pub(super) fn redact(&self, text: &str) -> String {
        let (pairs, address) = match &self.config.transport {
            McpTransport::Stdio { env, .. } => (env, Vec::new()),
            McpTransport::Http { url, headers } => (headers, behind_the_host(url)),
        };
        let values = pairs.iter().flat_map(|(_, value)| value.split_whitespace());
        let mut text = text.to_owned();
        for part in values.chain(address.iter().map(String::as_str)).filter(|part| part.len() >= MIN_SECRET) {
            text = text.replace(part, "[redacted]");
        }
        let mut line = show::line(text.trim());
        if let Some((cut, _)) = line.char_indices().nth(MAX_REASON) {
            line.truncate(cut);
            line.push('…');
        }
        line
    }

    /// Keeps a sentence for the user. What servers say of themselves goes through here, so their secrets go no further.
    fn tell(&self, what: &str) {
        let what = self.redact(what);
        let name = show::line(&self.config.name);
        tracing::warn!(event = "mcp", server = %name, "an MCP server is not as it should be");
        let mut news = lock(&self.news);
        if news.len() < MAX_NEWS {
            news.push(format!("MCP server `{name}`: {what}"));
        }
    }

    async fn live(self: &Arc<Self>, host: &McpHost, stop: &CancellationToken) {
        let mut restarts = 0;
        loop {
            let connected = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                connected = timeout(self.config.start_timeout, Running::connect(self, host)) => connected,
            };
            let mut running = match connected {
                Ok(Ok(running)) => running,
                Ok(Err(why)) => return self.fail(&format!("it could not be started: {why}")),
                Err(_) => {
                    let seconds = self.config.start_timeout.as_secs();
                    return self.fail(&format!("it did not start within {seconds} s; its tools are missing"));
                }
            };
            if !self.attend(&mut running, stop).await {
                return;
            }
            let why = running.end().await;
            if restarts == RESTARTS {
                return self.fail(&format!("it ended again and stays away{why}"));
            }
            restarts += 1;
            self.state.send_replace(State::Starting);
            self.tell(&format!("it ended by itself and is started again{why}"));
        }
    }

    /// Publishes the tools and follows their changes until the server ends by itself (true) or is to end (false).
    async fn attend(self: &Arc<Self>, running: &mut Running, stop: &CancellationToken) -> bool {
        loop {
            let link = running.link.clone();
            let tools = std::mem::take(&mut running.tools);
            self.state.send_replace(State::Ready(Arc::new(Ready { link, tools })));
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    running.end().await;
                    return false;
                }
                () = running.link.gone.cancelled() => return true,
                () = running.link.listener.shared.changed.notified() => {}
            }
            // The list that was is kept when the new one cannot be read.
            let listed = tokio::select! {
                () = stop.cancelled() => continue,
                listed = timeout(self.config.start_timeout, list(self, &running.link.peer)) => listed,
            };
            match listed {
                Ok(Ok(tools)) => running.tools = tools,
                Ok(Err(_)) | Err(_) => {
                    self.tell("its changed list of tools could not be read");
                    running.tools = self.tools();
                }
            }
        }
    }

    fn fail(&self, why: &str) {
        self.tell(why);
        self.state.send_replace(State::Failed);
    }
}

/// A connection to a server, and its process where it has one.
struct Running {
    link: Link,
    tools: Vec<Arc<dyn Tool>>,
    /// Runs until the connection is over.
    service: JoinHandle<()>,
    /// Ends the connection.
    closing: Option<RunningServiceCancellationToken>,
    program: Option<Program>,
}

impl Running {
    async fn connect(server: &Arc<Server>, host: &McpHost) -> Result<Self, String> {
        let listener = Listener::new(host.version);
        let mut too_long = Arc::default();
        let (service, program) = match &server.config.transport {
            McpTransport::Stdio { command, args, env } => {
                let (program, reader, writer) = Program::start(command, args, env, host).await?;
                too_long = reader.too_long();
                // Kept while it starts: dropped with this future it is ended.
                let service = listener.clone().serve((reader, writer)).await;
                match service {
                    Ok(service) => (service, Some(program)),
                    Err(error) => {
                        return Err(match program.end().await {
                            // That the connection was closed then says nothing.
                            Ending::NotStarted(why) => why,
                            Ending::Ran(said) => format!("{error}{said}"),
                        });
                    }
                }
            }
            McpTransport::Http { url, headers } => {
                let transport = http_transport(url, headers, host).await?;
                let service = listener.clone().serve(transport).await;
                (service.map_err(|error| error.to_string())?, None)
            }
        };
        let peer = service.peer().clone();
        let link = Link { peer, listener, gone: CancellationToken::new(), too_long };
        let (closing, gone) = (Some(service.cancellation_token()), link.gone.clone());
        let service = tokio::spawn(async move {
            // However it ends, it is over.
            let _ = service.waiting().await;
            gone.cancel();
        });
        let mut running = Self { link, tools: Vec::new(), service, closing, program };
        match list(server, &running.link.peer).await {
            Ok(tools) => {
                running.tools = tools;
                Ok(running)
            }
            Err(why) => {
                let end = running.end().await;
                Err(format!("its tools could not be listed: {why}{end}"))
            }
        }
    }

    /// Ends the connection and the process; tells what the process said last, if it said something.
    async fn end(&mut self) -> String {
        if let Some(closing) = self.closing.take() {
            closing.cancel();
            // A server that does not let go of its connection loses it with its process.
            if timeout(CLOSE, &mut self.service).await.is_err() {
                self.service.abort();
            }
        }
        self.link.lost();
        let fault = self.link.fault().map(|fault| format!(": {fault}")).unwrap_or_default();
        match self.program.take() {
            Some(program) => fault + &program.end().await.words(),
            None => fault,
        }
    }
}

/// What of an address may be a key: all but its host. Longer parts come first.
fn behind_the_host(address: &str) -> Vec<String> {
    let Ok(url) = reqwest::Url::parse(address) else { return vec![address.to_owned()] };
    let query = url.query().unwrap_or_default();
    let whole = format!("{}?{query}", url.path());
    let parts = [&whole, query, url.path(), url.password().unwrap_or_default(), url.username()].map(str::to_owned);
    parts.into_iter().chain(url.query_pairs().map(|(_, value)| value.into_owned())).collect()
}

/// Time for a connection to be closed.
const CLOSE: Duration = Duration::from_millis(500);

async fn http_transport(
    url: &str,
    headers: &[(String, String)],
    host: &McpHost,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    let parsed = reqwest::Url::parse(url).map_err(|error| format!("its address is none: {error}"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err("its address is neither http nor https".to_owned());
    }
    let mut custom = HashMap::with_capacity(headers.len());
    for (name, value) in headers {
        let name = reqwest::header::HeaderName::from_bytes(name.as_bytes());
        let value = reqwest::header::HeaderValue::from_str(value);
        let (Ok(name), Ok(mut value)) = (name, value) else { return Err("a header is malformed".to_owned()) };
        value.set_sensitive(true);
        custom.insert(name, value);
    }
    let client = host.http.client(&parsed).await.map_err(|error| error.to_string())?;
    let config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(custom);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// Reads the whole list of tools.
async fn list(server: &Arc<Server>, peer: &Peer<RoleClient>) -> Result<Vec<Arc<dyn Tool>>, String> {
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(page)).await.map_err(|error| error.to_string())?;
        for tool in page.tools {
            if tools.len() == MAX_TOOLS {
                server.tell(&format!("it has more than {MAX_TOOLS} tools; the further ones are left out"));
                return Ok(tools);
            }
            match McpTool::new(server, tool) {
                Some(tool) => tools.push(Arc::new(tool)),
                None => server.tell("a tool without a name or with too large a schema is left out"),
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tools);
        }
    }
    Err(format!("its list of tools has more than {MAX_PAGES} pages"))
}

/// What hears the server's notifications.
#[derive(Clone)]
pub(super) struct Listener {
    version: &'static str,
    shared: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    changed: Notify,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    listening: HashMap<ProgressToken, mpsc::Sender<ProgressNotificationParam>>,
    /// Reports that came before their call could listen: its token is known only when the request is on its way.
    early: VecDeque<ProgressNotificationParam>,
}

/// The reports of one call. Dropped, it hears nothing more.
pub(super) struct Reports {
    pub(super) receiver: mpsc::Receiver<ProgressNotificationParam>,
    token: ProgressToken,
    shared: Arc<Heard>,
}

impl Listener {
    fn new(version: &'static str) -> Self {
        Self { version, shared: Arc::default() }
    }

    pub(super) fn subscribe(&self, token: &ProgressToken) -> Reports {
        let (sender, receiver) = mpsc::channel(REPORTS);
        let mut calls = lock(&self.shared.calls);
        let (ours, others) =
            std::mem::take(&mut calls.early).into_iter().partition(|early| early.progress_token == *token);
        calls.early = others;
        let ours: VecDeque<ProgressNotificationParam> = ours;
        for report in ours {
            // As many as fit the channel were kept.
            let _ = sender.try_send(report);
        }
        calls.listening.insert(token.clone(), sender);
        drop(calls);
        Reports { receiver, token: token.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        lock(&self.shared.calls).listening.remove(&self.token);
    }
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities = ClientCapabilities::default();
        info.client_info = Implementation::new("zeroclaw-acp", self.version);
        info.protocol_version = ProtocolVersion::V_2025_06_18;
        info
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        let mut calls = lock(&self.shared.calls);
        // A flood of reports costs the reports, not memory.
        if let Some(listening) = calls.listening.get(&params.progress_token) {
            let _ = listening.try_send(params);
        } else if calls.early.len() < REPORTS {
            calls.early.push_back(params);
        }
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.shared.changed.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded stays whole when a holder panics: every change is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
