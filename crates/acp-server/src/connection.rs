//! One client's calls: reads frames in order, checks them, hands session inputs to their sessions in that order.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use async_trait::async_trait;
use futures::FutureExt as _;
use jiff::Timestamp;
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{
    EXTENSION_REQUESTS, ErrorKind, ErrorTable, Frame, FrameError, MethodKind, PROTOCOL_VERSION, RequestId,
    params::{
        AttachParams, AuthenticateParams, CancelRequestParams, InitializeParams, ListSessionsParams, LoadSessionParams,
        NewSessionParams, PromptParams, SessionEventParams, SessionParams, SetConfigOptionParams, SetModeParams,
    },
    result::{
        AgentCapabilities, AuthCapabilities, AuthMethod, Empty, ExtensionCapabilities, Implementation, InitializeMeta,
        InitializeResult, ListSessionsResult, McpCapabilities, Meta, PromptCapabilities, SessionCapabilities,
        SessionInfo, SessionStatus, StatusResult, SystemPromptCapability, SystemPromptModes,
    },
};
use zeroclaw_acp_transport::{Connection, Rejected};
use zeroclaw_session_store::{ListCursor, ListQuery};

use crate::{
    agents::{AgentEntry, ModelAccess},
    client::{Client, InFlight},
    error::CallError,
    server::{OnDisconnect, Shared, Stored},
    session::{
        actor,
        live::{Input, LiveSession, Untaken},
        open::Opening,
    },
};

/// Sessions on one page of `session/list`.
const PAGE: u32 = 50;

/// The login methods that are offered while there is no usable model: what `authenticate` does, and what a terminal does.
const AUTH_METHOD: &str = "zeroclaw-setup";
const TERMINAL_METHOD: &str = "zeroclaw-login";

/// The arguments that make a login of every program that serves agents.
const LOGIN_ARGUMENTS: [&str; 1] = ["login"];

pub(crate) struct ClientConnection {
    server: Arc<Shared>,
    client: Arc<Client>,
    agent: Option<String>,
    on_disconnect: OnDisconnect,
}

type Params<'a> = Option<&'a RawValue>;

impl ClientConnection {
    pub(crate) fn new(
        server: Arc<Shared>,
        client: Arc<Client>,
        agent: Option<String>,
        on_disconnect: OnDisconnect,
    ) -> Self {
        Self { server, client, agent, on_disconnect }
    }

    fn request(&self, id: RequestId, method: &str, params: Params<'_>) {
        tracing::debug!(method, id = id.as_json(), size = params.map_or(0, |raw| raw.get().len()), "request");
        if let Err(error) = self.client.begin(&id) {
            self.client.refuse_call(&id, &error);
            return;
        }
        let kind = MethodKind::from_name(method);
        let introduced = self.client.is_introduced();
        let result = match (kind, introduced) {
            (Some(MethodKind::Initialize), false) => {
                self.initialize(&id, params);
                Ok(())
            }
            (Some(MethodKind::Initialize), true) => {
                Err(CallError::new(ErrorKind::InvalidRequest, "`initialize` was already called"))
            }
            (_, false) => Err(CallError::new(ErrorKind::InvalidRequest, "the first request must be `initialize`")),
            (Some(kind), true) => self.call(kind, &id, params),
            (None, true) => {
                let shown: String = method.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect();
                Err(CallError::new(ErrorKind::MethodNotFound, format!("there is no method `{shown}`")))
            }
        };
        if let Err(error) = result {
            self.client.respond::<()>(&id, Err(&error));
        }
    }

    /// Serves a request. `Ok` means that it is answered, or will be by whoever it was handed to.
    fn call(&self, kind: MethodKind, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        match kind {
            MethodKind::Initialize => Ok(()),
            MethodKind::SessionNew => self.session_new(id, params),
            MethodKind::SessionLoad => self.session_load(id, params, true),
            MethodKind::SessionResume => self.session_load(id, params, false),
            MethodKind::SessionPrompt => self.session_prompt(id, params),
            MethodKind::SessionCancel => {
                let params = SessionParams::parse(params)?;
                self.cancel(&params.session_id);
                self.client.respond(id, Ok(&Empty {}));
                Ok(())
            }
            MethodKind::SessionClose => self.session_close(id, params),
            MethodKind::SessionStop => self.session_stop(id, params),
            MethodKind::SessionList => self.session_list(id, params),
            MethodKind::SessionDelete => self.session_delete(id, params),
            MethodKind::SessionFork => self.session_fork(id, params),
            MethodKind::SessionAttach => self.session_attach(id, params),
            MethodKind::SetMode => self.set_mode(id, params),
            MethodKind::SetConfigOption => self.set_option(id, params),
            MethodKind::SessionEvent => self.session_event(Some(id), params),
            MethodKind::Authenticate => self.authenticate(id, params),
            MethodKind::Logout => self.logout(id),
            MethodKind::Status => {
                self.status(id);
                Ok(())
            }
            MethodKind::CancelRequest => {
                self.cancel_request(params);
                self.client.respond(id, Ok(&Empty {}));
                Ok(())
            }
        }
    }

    /// Serves a notification. Nothing is ever answered, whatever is wrong with it.
    fn notification(&self, method: &str, params: Params<'_>) {
        tracing::debug!(method, size = params.map_or(0, |raw| raw.get().len()), "notification");
        if !self.client.is_introduced() {
            return;
        }
        match MethodKind::from_name(method) {
            Some(MethodKind::SessionCancel) => {
                if let Ok(params) = SessionParams::parse(params) {
                    self.cancel(&params.session_id);
                }
            }
            Some(MethodKind::SessionEvent) => {
                if let Err(error) = self.session_event(None, params) {
                    tracing::debug!(error = error.message, "an injected event was dropped");
                }
            }
            Some(MethodKind::CancelRequest) => self.cancel_request(params),
            Some(
                MethodKind::Initialize
                | MethodKind::SessionNew
                | MethodKind::SessionLoad
                | MethodKind::SessionResume
                | MethodKind::SessionPrompt
                | MethodKind::SessionClose
                | MethodKind::SessionStop
                | MethodKind::SessionList
                | MethodKind::SessionDelete
                | MethodKind::SessionFork
                | MethodKind::SessionAttach
                | MethodKind::SetMode
                | MethodKind::SetConfigOption
                | MethodKind::Authenticate
                | MethodKind::Logout
                | MethodKind::Status,
            )
            | None => tracing::debug!(method, "a notification was ignored"),
        }
    }

    fn initialize(&self, id: &RequestId, params: Params<'_>) {
        self.client
            .introduce(&InitializeParams::parse(params), &self.server.settings.clients, || self.server.new_client_id());
        let client_id = self.client.public_id();
        let entry = self.server.agents().default_entry();
        let durable = self.server.durable().is_some();
        let stored = durable.then_some(Empty {});
        let settings = &self.server.settings;
        let result = InitializeResult {
            protocol_version: PROTOCOL_VERSION,
            agent_capabilities: AgentCapabilities {
                load_session: durable,
                prompt_capabilities: PromptCapabilities { image: false, audio: false, embedded_context: true },
                mcp_capabilities: McpCapabilities { http: true, sse: false },
                session_capabilities: SessionCapabilities {
                    list: stored,
                    delete: stored,
                    fork: stored,
                    resume: stored,
                    close: stored,
                    additional_directories: Some(Empty {}),
                    system_prompt: Some(SystemPromptCapability {
                        mode: SystemPromptModes { r#override: Some(Empty {}) },
                    }),
                },
                auth: self.server.has_logins().then_some(AuthCapabilities { logout: Some(Empty {}) }),
                meta: Meta { zeroclaw: ExtensionCapabilities { requests: EXTENSION_REQUESTS } },
            },
            agent_info: Implementation { name: "zeroclaw-acp", title: "ZeroClaw ACP", version: settings.version },
            auth_methods: auth_methods(entry.as_deref(), self.client.capabilities().auth_terminal),
            meta: Meta {
                zeroclaw: InitializeMeta {
                    default_model: entry.as_deref().map(|entry| entry.agent.provider.info().name.as_str()),
                    max_sessions: settings.max_sessions,
                    session_timeout_secs: settings.session_timeout.as_secs(),
                    client_id: client_id.as_deref(),
                },
            },
        };
        self.client.respond(id, Ok(&result));
    }

    /// What the process and this client's sessions are doing; other clients' sessions are only counted.
    fn status(&self, id: &RequestId) {
        let settings = &self.server.settings;
        let (active_sessions, held) = self.server.active(&self.client);
        let sessions = held
            .iter()
            .map(|session| SessionStatus { session_id: session.id.to_string(), open_prompts: session.open_prompts() })
            .collect();
        let result = StatusResult {
            version: settings.version,
            active_sessions,
            max_sessions: settings.max_sessions,
            durable: self.server.durable().is_some(),
            sessions,
        };
        self.client.respond(id, Ok(&result));
    }

    fn session_new(&self, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        let params = NewSessionParams::parse(params)?;
        let entry = self.server.agents().choose(params.agent.as_deref(), self.agent.as_deref())?;
        let slot = self.server.reserve()?;
        let opening = Opening::New { client: Arc::clone(&self.client), id: id.clone(), params, entry, slot };
        actor::start(&self.server, self.server.new_session_id().into(), opening);
        Ok(())
    }

    fn session_load(&self, id: &RequestId, params: Params<'_>, replay: bool) -> Result<(), CallError> {
        let params = LoadSessionParams::parse(params)?;
        if self.server.durable().is_none() {
            return Err(CallError::session_not_found(&params.session_id));
        }
        let (client, id) = (Arc::clone(&self.client), id.clone());
        let Some(live) = self.server.find(&params.session_id) else {
            let session = params.session_id.as_str().into();
            actor::start(&self.server, session, Opening::Stored { client, id, params, replay, after: None });
            return Ok(());
        };
        if !live.is_held_by(&self.client) {
            if live.has_holder() {
                return Err(CallError::params("the session is already active; close it first"));
            }
            // The client that had it is gone: this one takes over, unless the session ends this moment.
            if let Err(error) = live.hold(&self.client)
                && !live.is_closing()
            {
                return Err(error);
            }
        }
        if live.is_closing() {
            // The load follows what ends the session.
            let session = Arc::clone(&live.id);
            actor::start(&self.server, session, Opening::Stored { client, id, params, replay, after: Some(live) });
            return Ok(());
        }
        let input = Input::Welcome { client, id, replay };
        live.send(input).map_err(|untaken| refused(&live, &untaken))
    }

    /// Joins a session that is active. One that is only stored is brought back with `session/resume` first.
    fn session_attach(&self, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        let params = AttachParams::parse(params)?;
        let live = self.server.find(&params.session_id).filter(|live| !live.is_closing());
        let live = live.ok_or_else(|| CallError::session_not_found(&params.session_id))?;
        // From now on, so that a prompt right behind this finds the session.
        live.hold(&self.client)?;
        let input = Input::Attach { client: Arc::clone(&self.client), id: id.clone(), after: params.after_seq };
        live.send(input).map_err(|untaken| refused(&live, &untaken))
    }

    fn session_prompt(&self, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        let params = PromptParams::parse(params)?;
        let session = self.find(&params.session_id)?;
        self.client.mark(id, InFlight::Prompt(Arc::clone(&session.id)));
        let handed = session.prompt(Arc::clone(&self.client), id.clone(), params.prompt.to_owned());
        handed.map_err(|untaken| refused(&session, &untaken))
    }

    fn session_event(&self, id: Option<&RequestId>, params: Params<'_>) -> Result<(), CallError> {
        let parsed = SessionEventParams::parse(params)?;
        let session = self.find(&parsed.session_id)?;
        let raw = params.unwrap_or(RawValue::NULL).to_owned();
        let input = Input::Event { client: Arc::clone(&self.client), id: id.cloned(), params: parsed, raw };
        session.send(input).map_err(|untaken| refused(&session, &untaken))
    }

    fn session_close(&self, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        let params = SessionParams::parse(params)?;
        // Closing keeps the record; where there is none the method is not offered (ZeroClaw dialect, `initialize`).
        if self.server.durable().is_none() {
            return Err(CallError::session_not_found(&params.session_id));
        }
        let session = self.find(&params.session_id)?;
        // At once, so that no answer to an open question that comes behind the close can overtake it.
        session.cancel();
        let input = Input::Close { client: Arc::clone(&self.client), id: id.clone() };
        session.send(input).map(|()| session.closes()).map_err(|untaken| refused(&session, &untaken))
    }

    fn session_stop(&self, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        let params = SessionParams::parse(params)?;
        let session = self.find(&params.session_id)?;
        let input = Input::Stop { client: Arc::clone(&self.client), id: id.clone() };
        session.send(input).map(|()| session.closes()).map_err(|untaken| refused(&session, &untaken))
    }

    fn set_mode(&self, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        let params = SetModeParams::parse(params)?;
        let session = self.find(&params.session_id)?;
        let input = Input::SetMode { client: Arc::clone(&self.client), id: id.clone(), mode: params.mode_id };
        session.send(input).map_err(|untaken| refused(&session, &untaken))
    }

    fn set_option(&self, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        let params = SetConfigOptionParams::parse(params)?;
        let session = self.find(&params.session_id)?;
        let (client, id) = (Arc::clone(&self.client), id.clone());
        let input = Input::SetOption { client, id, option: params.config_id, value: params.value };
        session.send(input).map_err(|untaken| refused(&session, &untaken))
    }

    /// Deletes the record and what belongs to it. A session that is not there is deleted already (ACP v1, `session/delete`).
    fn session_delete(&self, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        let params = SessionParams::parse(params)?;
        let live = self.server.find(&params.session_id);
        if live.as_ref().is_some_and(|live| !live.is_held_by(&self.client)) {
            return Err(CallError::params("the session is active for another client; it is closed there first"));
        }
        let session = params.session_id.as_str().into();
        actor::remove(&self.server, session, Arc::clone(&self.client), id.clone(), live);
        Ok(())
    }

    /// Opens a copy of a stored conversation under an id of its own (unstable in ACP v1).
    fn session_fork(&self, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        let params = LoadSessionParams::parse(params)?;
        if self.server.durable().is_none() {
            return Err(CallError::session_not_found(&params.session_id));
        }
        let slot = self.server.reserve()?;
        let opening = Opening::Fork { client: Arc::clone(&self.client), id: id.clone(), params, slot };
        actor::start(&self.server, self.server.new_session_id().into(), opening);
        Ok(())
    }

    fn find(&self, id: &str) -> Result<Arc<LiveSession>, CallError> {
        let session = self.server.find(id).filter(|session| session.is_held_by(&self.client));
        session.ok_or_else(|| CallError::session_not_found(id))
    }

    /// Silent for sessions that are not there: what has ended is cancelled.
    fn cancel(&self, session: &str) {
        if let Ok(session) = self.find(session) {
            session.cancel();
        }
    }

    fn cancel_request(&self, params: Params<'_>) {
        let Ok(params) = CancelRequestParams::parse(params) else { return };
        let Some((id, InFlight::Prompt(session))) = self.client.find(params.request_id) else { return };
        if let Ok(session) = self.find(&session) {
            session.cancel_prompt(&self.client, &id);
        }
    }

    fn session_list(&self, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        let params = ListSessionsParams::parse(params)?;
        let Some(store) = self.server.durable().cloned() else {
            self.client.respond(id, Ok(&ListSessionsResult { sessions: Vec::new(), next_cursor: None }));
            return Ok(());
        };
        let before = params.cursor.as_deref().map(parse_cursor).transpose()?;
        let workspace = match params.cwd {
            Some(cwd) if !std::path::Path::new(&cwd).is_absolute() || cwd.contains('\0') => {
                return Err(CallError::params("`cwd` must be an absolute path"));
            }
            Some(cwd) => Some(std::path::PathBuf::from(cwd)),
            None => None,
        };
        let server = Arc::clone(&self.server);
        // Reading a page waits for the disk; nothing else of this connection should.
        self.answer_later(id, |client, id| async move {
            let canonical = match workspace {
                Some(path) => Some(tokio::fs::canonicalize(&path).await.unwrap_or(path)),
                None => None,
            };
            let query = ListQuery { workspace: canonical, before, limit: PAGE + 1 };
            match store.list(query).await {
                Ok(records) => client.respond(&id, Ok(&page(&server, records))),
                Err(error) => client.respond::<()>(&id, Err(&CallError::from(error))),
            }
        });
        Ok(())
    }

    fn authenticate(&self, id: &RequestId, params: Params<'_>) -> Result<(), CallError> {
        let params = AuthenticateParams::parse(params)?;
        // A client may have kept a method of before the last login or logout.
        if ![AUTH_METHOD, TERMINAL_METHOD].contains(&params.method_id.as_str()) {
            return Err(CallError::params("there is no such authentication method"));
        }
        let server = Arc::clone(&self.server);
        self.answer_later(id, |client, id| async move {
            let renewed = server.renew_logins(Stored::Kept).await;
            let ready = renewed.and_then(|()| match server.agents().default_entry().map(|entry| entry.access) {
                Some(ModelAccess::MissingKey) => {
                    let message = "the agent's model has no API key yet; `zeroclaw login` stores one";
                    Err(CallError::new(ErrorKind::AuthRequired, message))
                }
                Some(ModelAccess::Ready | ModelAccess::NoModel) | None => Ok(()),
            });
            match ready {
                Ok(()) => client.respond(&id, Ok(&Empty {})),
                Err(error) => client.respond::<()>(&id, Err(&error)),
            }
        });
        Ok(())
    }

    /// Removes the stored keys. A key that the configuration or the environment holds is not ours to remove.
    fn logout(&self, id: &RequestId) -> Result<(), CallError> {
        if !self.server.has_logins() {
            return Err(CallError::new(ErrorKind::MethodNotFound, "nothing is stored that could be removed"));
        }
        let server = Arc::clone(&self.server);
        self.answer_later(id, |client, id| async move {
            match server.renew_logins(Stored::Forgotten).await {
                Ok(()) => client.respond(&id, Ok(&Empty {})),
                Err(error) => client.respond::<()>(&id, Err(&error)),
            }
        });
        Ok(())
    }

    /// Answers a request in a task of its own, whatever happens there.
    fn answer_later<F>(&self, id: &RequestId, answer: impl FnOnce(Arc<Client>, RequestId) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let answering = AssertUnwindSafe(answer(Arc::clone(&self.client), id.clone()));
        let (client, id) = (Arc::clone(&self.client), id.clone());
        tokio::spawn(async move {
            if answering.catch_unwind().await.is_err() {
                tracing::error!(id = id.as_json(), "a request panicked");
                client.fail(&id);
            }
        });
    }

    fn refuse(&self, error: &FrameError) {
        if !error.silent {
            self.client.refuse(error.id.as_ref(), &error.to_error());
        }
    }
}

#[async_trait]
impl Connection for ClientConnection {
    async fn line(&mut self, line: &[u8]) {
        let frame = Frame::parse(line);
        let asked = match &frame {
            Ok(Frame::Request { id, .. }) => Some(id.clone()),
            Ok(Frame::Notification { .. } | Frame::Response { .. }) | Err(_) => None,
        };
        let taken = catch_unwind(AssertUnwindSafe(|| match frame {
            Ok(Frame::Request { id, method, params }) => self.request(id, &method, params),
            Ok(Frame::Notification { method, params }) => self.notification(&method, params),
            Ok(Frame::Response { id, outcome }) => self.client.answered(&id, outcome),
            Err(error) => self.refuse(&error),
        }));
        if taken.is_err() {
            tracing::error!(size = line.len(), "the handling of a message panicked");
            if let Some(id) = asked {
                self.client.fail(&id);
            }
        }
    }

    async fn rejected(&mut self, rejected: Rejected) {
        let (id, message) = match rejected {
            Rejected::TooLong { id, length } => (id, format!("the line has {length} bytes, which is over the limit")),
            Rejected::InvalidUtf8 { id } => (id, "the line is not valid UTF-8".to_owned()),
        };
        // Whoever asked would wait for an answer that came already. A response is never answered.
        if id.as_ref().is_some_and(|id| self.client.answered_unreadably(id, &message)) {
            return;
        }
        let error = CallError::new(ErrorKind::InvalidRequest, message);
        self.client.refuse(id.as_ref(), &error.to_wire(ErrorTable::default()));
    }

    async fn end(self: Box<Self>) {
        self.client.leave();
        match self.on_disconnect {
            OnDisconnect::End => {}
            OnDisconnect::Detach => {
                self.client.forget_questions();
                self.server.detach(&self.client);
                return;
            }
        }
        self.server.end_sessions_of(&self.client).await;
        // Only now, so that a turn that ends here is cancelled: an open question that is merely answered with no
        // would send the turn on to its next model call.
        self.client.forget_questions();
        self.client.all_answered().await;
        // What was still being opened is there now.
        self.server.end_sessions_of(&self.client).await;
    }
}

/// The answer to an input that a session did not take.
fn refused(session: &LiveSession, untaken: &Untaken) -> CallError {
    match untaken {
        Untaken::Ended(_) => CallError::session_not_found(&session.id),
        Untaken::Full(_) => CallError::busy(&session.id),
    }
}

/// How to log in: nothing while the agent is ready to work. What a client can do by itself comes first, as some take the
/// first; a terminal is only offered to clients that can show one (ACP v1, `AuthMethodTerminal`).
fn auth_methods(entry: Option<&AgentEntry>, terminal: bool) -> Vec<AuthMethod<'static>> {
    let agent = |name, description| AuthMethod { id: AUTH_METHOD, name, description, kind: None, args: &[] };
    let agent = match entry.map(|entry| entry.access) {
        Some(ModelAccess::Ready) => return Vec::new(),
        Some(ModelAccess::NoModel) | None => agent(
            "Work without a model",
            "No model is configured: the built-in commands work, and /help says how to connect a model.",
        ),
        Some(ModelAccess::MissingKey) => agent(
            "API key",
            "Store the key of the model with `zeroclaw login`, or set it with `zeroclaw config set`; then go on here.",
        ),
    };
    let login = terminal.then_some(AuthMethod {
        id: TERMINAL_METHOD,
        name: "Log in to a model provider",
        description: "Asks for the provider, its key and the model, and tests them.",
        kind: Some("terminal"),
        args: &LOGIN_ARGUMENTS,
    });
    [agent].into_iter().chain(login).collect()
}

/// One page of records, one of which only shows that there are more.
fn page(server: &Shared, mut records: Vec<zeroclaw_session_store::SessionRecord>) -> ListSessionsResult {
    let more = records.len() > PAGE as usize;
    records.truncate(PAGE as usize);
    let next_cursor = records.last().filter(|_| more).map(|last| format!("{}.{}", last.last_activity_ms, last.id));
    let sessions = records
        .into_iter()
        .map(|record| SessionInfo {
            session_id: record.id.to_string(),
            cwd: record.workspace.to_string_lossy().into_owned(),
            title: record.title,
            updated_at: server.rfc3339(record.last_activity_ms),
            additional_directories: record
                .additional_directories
                .iter()
                .map(|path| path.to_string_lossy().into_owned())
                .collect(),
        })
        .collect();
    ListSessionsResult { sessions, next_cursor }
}

fn parse_cursor(text: &str) -> Result<ListCursor, CallError> {
    let invalid = || CallError::params("the cursor is not one of this server's");
    let (time, id) = text.split_once('.').ok_or_else(invalid)?;
    let last_activity_ms = time.parse().map_err(|_| invalid())?;
    Timestamp::from_millisecond(last_activity_ms).map_err(|_| invalid())?;
    if !id.starts_with("s-") || id.len() > 64 {
        return Err(invalid());
    }
    Ok(ListCursor { last_activity_ms, id: id.into() })
}
