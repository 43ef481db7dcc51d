//! What all connections of a process share: settings, agents, the store, and the table of live sessions.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use zeroclaw_acp_protocol::{ErrorKind, ErrorTable};
use zeroclaw_acp_transport::{Connection, Outbox};
use zeroclaw_session_store::SessionStore;

use crate::{
    agents::{AgentTable, ModelAccess},
    client::{Client, lock},
    connection::ClientConnection,
    error::CallError,
    meters::Meters,
    profile::ClientProfile,
    session::live::LiveSession,
};

/// Settings of the server. There is no `Default`: whoever builds a server spells them out.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Active sessions of the process, at most.
    pub max_sessions: usize,
    /// How long a turn goes on that no client sees.
    pub detach_grace: Duration,
    /// How long a permission waits for an answer.
    pub session_timeout: Duration,
    /// Error numbers for clients that have no profile of their own.
    pub errors: ErrorTable,
    /// What the operator says of clients, by `clientInfo.name`.
    pub clients: BTreeMap<String, ClientProfile>,
    /// Leaves ZeroClaw's own root members out of results.
    pub strict: bool,
    /// The directory of the configuration file, which some clients send as a placeholder.
    pub install_root: PathBuf,
    /// The only directories that sessions may be opened in or below; empty for any.
    pub allowed_cwd_roots: Vec<PathBuf>,
    /// What relative directories start at.
    pub process_dir: PathBuf,
    /// Which MCP servers of a client its sessions use.
    pub client_mcp: ClientMcp,
    /// Whether commands run in the terminal of a client that offers one.
    pub client_terminal: bool,
    /// How long a client may take to read or write a file, or to start a terminal.
    pub client_timeout: Duration,
    /// The program's version.
    pub version: &'static str,
}

/// The MCP servers that a client may bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMcp {
    /// Programs and addresses.
    All,
    /// Addresses only.
    Http,
    /// None.
    None,
}

/// What comes from the world: time and randomness.
pub struct Ambient {
    /// Milliseconds since the epoch.
    pub now_ms: Box<dyn Fn() -> i64 + Send + Sync>,
    /// A new session id: unguessable, never the same twice.
    pub session_id: Box<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for Ambient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Ambient")
    }
}

/// What happens to a client's sessions when it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisconnect {
    /// They end: the process ends with its only client.
    End,
    /// They go on without it, and wait for it or another client.
    Detach,
}

/// What is going on in a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Sessions that are active.
    pub sessions: usize,
    /// Prompts that are not answered yet.
    pub prompts: usize,
}

/// An ACP server.
#[derive(Clone, Debug)]
pub struct Server(Arc<Shared>);

/// What keeps the credentials of models. Both functions may block, and fail with a text that a client may see.
pub struct Logins {
    /// The agents as they are configured now; `None` when nothing has changed.
    pub reload: Box<dyn Fn() -> Result<Option<AgentTable>, String> + Send + Sync>,
    /// Removes the stored credentials.
    pub forget: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl fmt::Debug for Logins {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Logins")
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: ServerSettings,
    agents: Mutex<Arc<AgentTable>>,
    logins: Option<Arc<Logins>>,
    store: Option<Arc<dyn SessionStore>>,
    ambient: Ambient,
    pub(crate) meters: Arc<Meters>,
    sessions: Mutex<Table>,
    /// The process ends: what still runs is interrupted, and nothing begins.
    ending: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    live: HashMap<Arc<str>, Arc<LiveSession>>,
    /// Slots in use: live sessions, and those that are being opened.
    slots: usize,
}

/// What becomes of stored credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Kept,
    Forgotten,
}

/// One of the `max_sessions`; given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Shared>);

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.0.sessions).slots -= 1;
    }
}

impl Server {
    /// Makes a server. Loading sessions is offered with a durable store. One in memory lets clients come back to sessions
    /// that live; without any, a client that was away has missed what was said.
    #[must_use]
    pub fn new(
        settings: ServerSettings,
        agents: AgentTable,
        store: Option<Arc<dyn SessionStore>>,
        ambient: Ambient,
    ) -> Self {
        Self::with_logins(settings, agents, store, ambient, None)
    }

    /// The same with credentials that can change while it runs.
    #[must_use]
    pub fn with_logins(
        settings: ServerSettings,
        agents: AgentTable,
        store: Option<Arc<dyn SessionStore>>,
        ambient: Ambient,
        logins: Option<Logins>,
    ) -> Self {
        let (agents, logins) = (Mutex::new(Arc::new(agents)), logins.map(Arc::new));
        Self(Arc::new(Shared {
            settings,
            agents,
            logins,
            store,
            ambient,
            meters: Arc::default(),
            sessions: Mutex::default(),
            ending: AtomicBool::new(false),
        }))
    }

    /// What is going on.
    #[must_use]
    pub fn activity(&self) -> Activity {
        let table = lock(&self.0.sessions);
        let prompts = table.live.values().map(|session| session.open_prompts()).sum();
        Activity { sessions: table.live.len(), prompts }
    }

    /// What is missing for work to be done, in a few words without names.
    #[must_use]
    pub fn lacks(&self) -> Option<&'static str> {
        if self.0.durable().is_none() {
            return Some("sessions cannot be stored");
        }
        match self.0.agents().default_entry().map(|entry| entry.access) {
            Some(ModelAccess::NoModel) => Some("no model is configured"),
            Some(ModelAccess::MissingKey) => Some("the model has no key"),
            Some(ModelAccess::Ready) | None => None,
        }
    }

    /// Whether the session store writes: something that changes nothing goes all the way to the disk.
    pub async fn stores(&self) -> bool {
        let Some(store) = self.0.durable() else { return false };
        match store.revoke_approval(u64::MAX).await {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, "the session store does not write");
                false
            }
        }
    }

    /// Ends every session, and interrupts the turns that still run. Nothing new is begun after it.
    pub async fn shut_down(&self) {
        self.0.ending.store(true, Ordering::Release);
        loop {
            // What was being opened meanwhile is there in the next round.
            let sessions: Vec<_> = lock(&self.0.sessions).live.values().cloned().collect();
            if sessions.is_empty() {
                return;
            }
            for session in &sessions {
                session.shut_down();
            }
            for session in sessions {
                session.ended().await;
            }
        }
    }

    /// Appends what was counted so far, in the text format of Prometheus.
    pub fn write_metrics(&self, text: &mut String) {
        use std::fmt::Write as _;

        let activity = self.activity();
        for (name, help, value) in [
            ("sessions", "Sessions that are active", activity.sessions),
            ("prompts", "Prompts that are not answered yet", activity.prompts),
        ] {
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "# HELP zeroclaw_{name} {help}.\n# TYPE zeroclaw_{name} gauge\nzeroclaw_{name} {value}");
        }
        self.0.meters.write(text);
    }

    /// Takes over what has changed about the agents since the start.
    ///
    /// # Errors
    /// The configuration cannot be used; the agents stay as they were.
    pub async fn reload(&self) -> Result<(), String> {
        self.0.renew_logins(Stored::Kept).await.map_err(|error| error.message)
    }

    /// Takes a new client. `agent` is the alias its connection asked for, on transports that have such a thing.
    #[must_use]
    pub fn connect(&self, outbox: Outbox, agent: Option<String>, on_disconnect: OnDisconnect) -> Box<dyn Connection> {
        let client = Client::new(outbox, self.0.settings.errors, on_disconnect);
        Box::new(ClientConnection::new(Arc::clone(&self.0), client, agent, on_disconnect))
    }
}

impl Shared {
    /// Where sessions outlive the process.
    pub(crate) fn durable(&self) -> Option<&Arc<dyn SessionStore>> {
        self.store.as_ref().filter(|store| store.is_durable())
    }

    /// Where the logs of live sessions are.
    pub(crate) fn log(&self) -> Option<&Arc<dyn SessionStore>> {
        self.store.as_ref()
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// The agents as they are now.
    pub(crate) fn agents(&self) -> Arc<AgentTable> {
        Arc::clone(&lock(&self.agents))
    }

    pub(crate) fn has_logins(&self) -> bool {
        self.logins.is_some()
    }

    /// Takes over what has changed about logins since the start, after removing what is stored if that is asked for.
    pub(crate) async fn renew_logins(&self, stored: Stored) -> Result<(), CallError> {
        let Some(logins) = self.logins.clone() else { return Ok(()) };
        let renewed = tokio::task::spawn_blocking(move || {
            match stored {
                Stored::Kept => {}
                Stored::Forgotten => (logins.forget)()?,
            }
            (logins.reload)()
        });
        let renewed = renewed.await.unwrap_or_else(|_| Err("the configuration could not be read".to_owned()));
        if let Some(table) = renewed.map_err(|error| CallError::new(ErrorKind::Internal, error))? {
            *lock(&self.agents) = Arc::new(table);
        }
        Ok(())
    }

    pub(crate) fn now_ms(&self) -> i64 {
        (self.ambient.now_ms)()
    }

    pub(crate) fn new_session_id(&self) -> String {
        (self.ambient.session_id)()
    }

    pub(crate) fn new_client_id(&self) -> Arc<str> {
        // As unguessable as a session, and never taken for one.
        format!("c-{}", self.new_session_id().trim_start_matches("s-")).into()
    }

    /// A time as RFC 3339 in UTC, to the second.
    pub(crate) fn rfc3339(&self, ms: i64) -> String {
        Timestamp::from_second(ms.div_euclid(1000)).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
    }

    /// Takes a slot for one more session. When there is none left, the session that has been without a client and a turn for
    /// longest is given up for it.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<Slot, CallError> {
        if self.is_ending() {
            return Err(CallError::new(ErrorKind::Internal, "the server ends"));
        }
        let mut idle: Vec<_> = {
            let mut table = lock(&self.sessions);
            if table.slots < self.settings.max_sessions {
                table.slots += 1;
                return Ok(Slot(Arc::clone(self)));
            }
            table.live.values().filter(|session| session.is_abandoned()).cloned().collect()
        };
        idle.sort_by_key(|session| session.last_touched());
        idle.iter().find_map(|session| session.give_up()).ok_or_else(|| {
            let message = format!("{} sessions are active, which is the limit", self.settings.max_sessions);
            CallError::new(ErrorKind::SessionLimitReached, message)
        })
    }

    pub(crate) fn enter(&self, session: &Arc<LiveSession>) {
        lock(&self.sessions).live.insert(Arc::clone(&session.id), Arc::clone(session));
    }

    /// Takes a session out of the table, unless one that was opened after it has its place.
    pub(crate) fn leave(&self, session: &Arc<LiveSession>) {
        let mut table = lock(&self.sessions);
        if table.live.get(&session.id).is_some_and(|entered| Arc::ptr_eq(entered, session)) {
            table.live.remove(&session.id);
        }
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<LiveSession>> {
        lock(&self.sessions).live.get(id).cloned()
    }

    /// How many sessions are active, and which of them the client holds, in the order of their ids.
    pub(crate) fn active(&self, client: &Arc<Client>) -> (usize, Vec<Arc<LiveSession>>) {
        let table = lock(&self.sessions);
        let mut held: Vec<_> = table.live.values().filter(|session| session.is_held_by(client)).cloned().collect();
        held.sort_by(|one, other| one.id.cmp(&other.id));
        (table.slots, held)
    }

    /// Lets the sessions of a client that has gone go on without it.
    pub(crate) fn detach(&self, client: &Arc<Client>) {
        let table = lock(&self.sessions);
        for session in table.live.values().filter(|session| session.knows(client)) {
            session.release(client);
        }
    }

    /// Ends every session that the client holds and waits until they are stored.
    pub(crate) async fn end_sessions_of(&self, client: &Arc<Client>) {
        let held: Vec<Arc<LiveSession>> = {
            let table = lock(&self.sessions);
            table.live.values().filter(|session| session.is_held_by(client)).cloned().collect()
        };
        // All are told first, so that they end side by side.
        for session in &held {
            session.shut_down();
        }
        for session in held {
            session.ended().await;
        }
    }
}
