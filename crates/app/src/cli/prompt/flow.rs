//! One prompt from the greeting to the end of the turn: what is sent when, and what each message of the agent leads to.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};

use super::approve::{ApproveMode, Decision, Question, outcome};
use super::connection::{Connection, Gone, Incoming, RpcError};
use super::keyboard::Keyboard;
use super::render::{Renderer, Target};
use super::screen::Screen;
use crate::cli::term::{Role, clipped, one_line};

/// The version of the protocol that is spoken.
const PROTOCOL_VERSION: u64 = 1;
/// Permission requests that wait for a person at once.
const MAX_QUESTIONS: usize = 64;
/// Lines of garbage that are shown; more are only counted.
const MAX_GARBAGE: u32 = 5;
/// Pages of the agent's list that are searched for a session.
const MAX_PAGES: usize = 50;
/// Answers that name no option before a question is given up.
const MAX_MISTAKES: u32 = 5;
const SPINNER_PERIOD: Duration = Duration::from_millis(120);
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const REQUEST_CANCELLED: i64 = -32800;
const AUTH_REQUIRED: i64 = -32000;

/// What is asked of the agent.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) text: String,
    /// The session to continue, or the beginning of its id.
    pub(super) session: Option<String>,
    pub(super) cwd: PathBuf,
    /// Whether `cwd` was chosen; otherwise a continued session keeps its own.
    pub(super) is_cwd_chosen: bool,
    pub(super) agent: Option<String>,
    pub(super) approve: ApproveMode,
    pub(super) json: bool,
    pub(super) show_history: bool,
}

/// Why a prompt came to no end of its own.
#[derive(Debug, thiserror::Error)]
pub(super) enum FlowError {
    #[error("{method} failed: {}{hint}", describe(error))]
    Answered { method: &'static str, error: Box<RpcError>, hint: String },
    #[error("the agent answered {method} with something else than ACP: {problem}")]
    BadAnswer { method: &'static str, problem: String },
    #[error("the agent speaks version {0} of the protocol, this program speaks {PROTOCOL_VERSION}")]
    Version(Value),
    #[error("the agent cannot continue sessions")]
    NoSessions,
    #[error("more than one session begins with `{0}`")]
    Ambiguous(String),
    #[error("the agent ended before it answered")]
    Gone,
    #[error("interrupted")]
    Quit,
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

impl From<Gone> for FlowError {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

/// Runs one prompt over a connection.
pub(super) struct Flow {
    connection: Connection,
    request: Request,
    screen: Screen,
    renderer: Renderer,
    keyboard: Keyboard,
    interrupts: mpsc::Receiver<()>,
    spinner: Interval,
    phase: Phase,
    session: Option<String>,
    questions: VecDeque<Asked>,
    is_asking: bool,
    mistakes: u32,
    garbage: u32,
    auth_methods: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Setup,
    Turn,
    Cancelling,
}

struct Asked {
    id: Value,
    /// The tool call it is about.
    call: String,
    question: Question,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateParams<'a> {
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    #[serde(borrow)]
    update: &'a RawValue,
}

impl Flow {
    pub(super) fn new(
        connection: Connection,
        request: Request,
        screen: Screen,
        keyboard: Keyboard,
        interrupts: mpsc::Receiver<()>,
    ) -> Self {
        let mut spinner = tokio::time::interval(SPINNER_PERIOD);
        spinner.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self {
            connection,
            renderer: Renderer::new(screen.palette),
            request,
            screen,
            keyboard,
            interrupts,
            spinner,
            phase: Phase::Setup,
            session: None,
            questions: VecDeque::new(),
            is_asking: false,
            mistakes: 0,
            garbage: 0,
            auth_methods: Vec::new(),
        }
    }

    /// The session, once there is one.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Gives back what is written to, and ends the connection.
    pub(super) fn into_screen(self) -> Screen {
        self.screen
    }

    /// Runs the prompt and returns the stop reason.
    pub(super) async fn run(&mut self) -> Result<String, FlowError> {
        let result = self.turn().await;
        // Whatever happened, the lines that are open are ended.
        let last = self.renderer.finish();
        self.screen.clear_spinner()?;
        if !self.request.json {
            self.screen.write_last(&last)?;
        }
        if self.garbage > MAX_GARBAGE {
            let more = self.garbage - MAX_GARBAGE;
            self.screen.note(Role::Warn, &format!("the agent wrote {more} more lines that are no messages"))?;
        }
        result
    }

    async fn turn(&mut self) -> Result<String, FlowError> {
        let greeting = self.call("initialize", greeting()).await?;
        if greeting["protocolVersion"] != PROTOCOL_VERSION {
            return Err(FlowError::Version(greeting["protocolVersion"].clone()));
        }
        let methods = greeting["authMethods"].as_array().map(Vec::as_slice).unwrap_or_default();
        self.auth_methods = methods
            .iter()
            .filter_map(|method| method["name"].as_str().or(method["id"].as_str()))
            .map(str::to_owned)
            .collect();
        match self.request.session.clone() {
            Some(wanted) => self.continue_session(&wanted, &greeting["agentCapabilities"]).await?,
            None => self.new_session().await?,
        }
        self.phase = Phase::Turn;
        let params = json!({
            "sessionId": self.session,
            "prompt": [{"type": "text", "text": self.request.text}],
        });
        let result = self.call("session/prompt", params).await?;
        match result["stopReason"].as_str() {
            Some(reason) => Ok(reason.to_owned()),
            None => Err(FlowError::BadAnswer {
                method: "session/prompt",
                problem: "the result has no `stopReason`".to_owned(),
            }),
        }
    }

    async fn new_session(&mut self) -> Result<(), FlowError> {
        let mut params = json!({"cwd": self.request.cwd, "mcpServers": []});
        if let Some(agent) = &self.request.agent {
            params["agentAlias"] = json!(agent);
        }
        let result = self.call("session/new", params).await?;
        let id = result["sessionId"].as_str().ok_or_else(|| FlowError::BadAnswer {
            method: "session/new",
            problem: "the result has no `sessionId`".to_owned(),
        })?;
        self.session = Some(id.to_owned());
        Ok(())
    }

    async fn continue_session(&mut self, wanted: &str, capabilities: &Value) -> Result<(), FlowError> {
        let can_load = capabilities["loadSession"] == true;
        let can_resume = capabilities["sessionCapabilities"]["resume"].is_object();
        let can_list = capabilities["sessionCapabilities"]["list"].is_object();
        let (id, stored_cwd) = if can_list { self.find_session(wanted).await? } else { (wanted.to_owned(), None) };
        let cwd = match stored_cwd {
            Some(stored) if !self.request.is_cwd_chosen => PathBuf::from(stored),
            Some(_) | None => self.request.cwd.clone(),
        };
        let params = json!({"sessionId": id, "cwd": cwd, "mcpServers": []});
        self.session = Some(id);
        let result = if can_resume && !(self.request.show_history && can_load) {
            self.call("session/resume", params).await
        } else if can_load {
            self.renderer.answers_to(Target::Info);
            self.call("session/load", params).await
        } else {
            Err(FlowError::NoSessions)
        };
        if let Err(error) = result {
            // There is nothing to continue, so nothing to show the way to.
            self.session = None;
            return Err(error);
        }
        let end = self.renderer.finish();
        if self.request.show_history && !self.request.json {
            self.screen.write(&end)?;
        }
        self.renderer.answers_to(Target::Answer);
        Ok(())
    }

    /// Finds a session by its id or the beginning of it; one that is not listed is asked for as it was given.
    async fn find_session(&mut self, wanted: &str) -> Result<(String, Option<String>), FlowError> {
        let mut found: Option<(String, Option<String>)> = None;
        let mut is_ambiguous = false;
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let page = self.call("session/list", params).await?;
            for session in page["sessions"].as_array().into_iter().flatten() {
                let Some(id) = session["sessionId"].as_str().filter(|id| id.starts_with(wanted)) else { continue };
                let cwd = session["cwd"].as_str().map(str::to_owned);
                if id == wanted {
                    return Ok((id.to_owned(), cwd));
                }
                is_ambiguous |= found.as_ref().is_some_and(|(other, _)| other != id);
                found = Some((id.to_owned(), cwd));
            }
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        match found {
            Some(_) if is_ambiguous => Err(FlowError::Ambiguous(one_line(wanted).into_owned())),
            Some(found) => Ok(found),
            None => Ok((wanted.to_owned(), None)),
        }
    }

    /// Sends a request and serves everything that comes until its response does.
    async fn call(&mut self, method: &'static str, params: Value) -> Result<Value, FlowError> {
        let id = self.connection.request(method, params).await?;
        let result = loop {
            tokio::select! {
                message = self.connection.next() => match message {
                    None => return Err(FlowError::Gone),
                    Some(Incoming::Response { id: answered, result }) if answered == id => break result,
                    Some(message) => self.serve(message).await?,
                },
                Some(()) = self.interrupts.recv() => self.interrupt().await?,
                line = self.keyboard.line(), if self.is_asking => self.typed(line).await?,
                _ = self.spinner.tick(), if self.screen.has_spinner() && !self.is_asking => {
                    let label = match self.phase {
                        Phase::Setup => "starting",
                        Phase::Turn => "working",
                        Phase::Cancelling => "cancelling",
                    };
                    self.screen.spin(label)?;
                }
            }
        };
        let raw = result.map_err(|error| self.answered(method, error))?;
        serde_json::from_str(raw.get()).map_err(|error| FlowError::BadAnswer { method, problem: error.to_string() })
    }

    fn answered(&self, method: &'static str, error: RpcError) -> FlowError {
        let is_auth = error.code == AUTH_REQUIRED
            && !matches!(error.data["kind"].as_str(), Some(kind) if kind != "auth_required");
        let hint = if is_auth && method != "initialize" && !self.auth_methods.is_empty() {
            let names: Vec<_> = self.auth_methods.iter().map(|name| one_line(name)).collect();
            format!("\nThe agent may want you to log in. It offers: {}.", names.join(", "))
        } else {
            String::new()
        };
        FlowError::Answered { method, error: Box::new(error), hint }
    }

    async fn serve(&mut self, message: Incoming) -> Result<(), FlowError> {
        match message {
            Incoming::Notification { method, params } if method == "session/update" => self.update(&params),
            Incoming::Notification { method, params } if method == "$/cancel_request" => self.withdraw(&params).await,
            Incoming::Request { id, method, params } if method == "session/request_permission" => {
                self.permission(id, &params).await
            }
            Incoming::Request { id, method, .. } => {
                let message = format!("this client has no `{method}`");
                Ok(self.connection.refuse(&id, METHOD_NOT_FOUND, &message).await?)
            }
            // Unknown notifications are ignored; a response nobody waits for belongs to a request that was given up.
            Incoming::Notification { .. } | Incoming::Response { .. } => Ok(()),
            Incoming::Garbage(beginning) => self.garbage(&beginning),
        }
    }

    fn update(&mut self, params: &RawValue) -> Result<(), FlowError> {
        let Ok(params) = serde_json::from_str::<UpdateParams<'_>>(params.get()) else {
            return self.garbage(params.get());
        };
        if self.session.as_deref() != Some(params.session_id.as_ref()) {
            return Ok(());
        }
        if self.phase == Phase::Setup && !self.request.show_history {
            return Ok(());
        }
        let update: Value = serde_json::from_str(params.update.get()).unwrap_or_default();
        // In JSON mode too: a permission request is shown over what is known about its tool call.
        let pieces = self.renderer.update(&update);
        if self.request.json {
            self.screen.json(params.update.get())?;
        } else if !pieces.is_empty() {
            // What comes while a question is open is shown above the question's last line.
            if self.is_asking {
                self.screen.info("\n")?;
            }
            self.screen.write(&pieces)?;
            if self.is_asking {
                self.ask_again()?;
            }
        }
        Ok(())
    }

    fn garbage(&mut self, beginning: &str) -> Result<(), FlowError> {
        self.garbage = self.garbage.saturating_add(1);
        if self.garbage <= MAX_GARBAGE {
            let shown = clipped(&one_line(beginning), 120).into_owned();
            self.screen.note(Role::Warn, &format!("the agent wrote a line that is no message: {shown}"))?;
        }
        Ok(())
    }

    async fn permission(&mut self, id: Value, params: &RawValue) -> Result<(), FlowError> {
        let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
        let call = params["toolCall"]["toolCallId"].as_str().unwrap_or_default();
        let known = self.renderer.tool(call);
        let question = match Question::read(&params, known) {
            Ok(question) => question,
            Err(problem) => return Ok(self.connection.refuse(&id, INVALID_PARAMS, &problem).await?),
        };
        if self.phase == Phase::Cancelling || self.questions.len() >= MAX_QUESTIONS {
            return Ok(self.connection.answer(&id, outcome(&Decision::Cancel)).await?);
        }
        match question.decide(self.request.approve) {
            Decision::Ask => {
                self.questions.push_back(Asked { id, call: call.to_owned(), question });
                if self.questions.len() == 1 { self.ask().await } else { Ok(()) }
            }
            decision => self.decided(&id, &question, &decision, "").await,
        }
    }

    /// Answers a request and says so.
    async fn decided(
        &mut self,
        id: &Value,
        question: &Question,
        decision: &Decision,
        why: &str,
    ) -> Result<(), FlowError> {
        self.connection.answer(id, outcome(decision)).await?;
        let chosen = match decision {
            Decision::Select(id) => question.choices.iter().find(|choice| choice.id == *id),
            Decision::Ask | Decision::Cancel => None,
        };
        let name = chosen.map_or(Cow::Borrowed("no answer"), |choice| one_line(&choice.name));
        let title = clipped(&one_line(&question.tool.title), 200).into_owned();
        let (title, why) = (if title.is_empty() { "a tool call" } else { &title }, why);
        let open = self.renderer.interrupt();
        if !self.request.json {
            self.screen.write(&open)?;
        }
        Ok(self.screen.note(Role::Dim, &format!("permission for {title}: {name}{why}"))?)
    }

    /// Shows the first waiting question; without anybody to answer, all are rejected.
    async fn ask(&mut self) -> Result<(), FlowError> {
        self.mistakes = 0;
        if !self.keyboard.prepare() {
            while let Some(Asked { id, question, .. }) = self.questions.pop_front() {
                let decision = question.reject();
                self.decided(&id, &question, &decision, " (no terminal to ask at)").await?;
            }
            return Ok(());
        }
        let Some(asked) = self.questions.front() else { return Ok(()) };
        let text = asked.question.describe(self.screen.palette);
        self.renderer.shown(&asked.call, &asked.question.tool);
        let open = self.renderer.interrupt();
        if !self.request.json {
            self.screen.write(&open)?;
        }
        self.screen.info(&text)?;
        self.is_asking = true;
        self.ask_again()
    }

    fn ask_again(&mut self) -> Result<(), FlowError> {
        if let Some(asked) = self.questions.front() {
            self.screen.info(&asked.question.ask())?;
        }
        Ok(())
    }

    async fn typed(&mut self, line: Option<String>) -> Result<(), FlowError> {
        self.screen.line_typed();
        let Some(asked) = self.questions.front() else {
            self.is_asking = false;
            return Ok(());
        };
        let decision = match &line {
            Some(line) => asked.question.typed(line),
            None => Some(asked.question.reject()),
        };
        let decision = match decision {
            Some(decision) => decision,
            None if self.mistakes < MAX_MISTAKES => {
                self.mistakes += 1;
                return self.ask_again();
            }
            None => asked.question.reject(),
        };
        if let Some(Asked { id, question, .. }) = self.questions.pop_front() {
            self.decided(&id, &question, &decision, "").await?;
        }
        self.next_question().await
    }

    async fn next_question(&mut self) -> Result<(), FlowError> {
        self.is_asking = false;
        if self.questions.is_empty() { Ok(()) } else { self.ask().await }
    }

    /// The agent takes a request back.
    async fn withdraw(&mut self, params: &RawValue) -> Result<(), FlowError> {
        let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
        let Some(at) = self.questions.iter().position(|asked| asked.id == params["requestId"]) else {
            return Ok(());
        };
        if let Some(Asked { id, .. }) = self.questions.remove(at) {
            self.connection.refuse(&id, REQUEST_CANCELLED, "the request was withdrawn").await?;
        }
        if at > 0 || !self.is_asking {
            return Ok(());
        }
        self.screen.note(Role::Dim, "the agent took the question back")?;
        self.next_question().await
    }

    /// The first Ctrl-C of a turn cancels it; any other one quits.
    async fn interrupt(&mut self) -> Result<(), FlowError> {
        if self.phase != Phase::Turn {
            return Err(FlowError::Quit);
        }
        self.phase = Phase::Cancelling;
        self.connection.notify("session/cancel", json!({"sessionId": self.session})).await?;
        // A client that cancels answers every open permission request itself.
        while let Some(Asked { id, .. }) = self.questions.pop_front() {
            self.connection.answer(&id, outcome(&Decision::Cancel)).await?;
        }
        self.is_asking = false;
        let open = self.renderer.interrupt();
        if !self.request.json {
            self.screen.write(&open)?;
        }
        Ok(self.screen.note(Role::Warn, "cancelling; press Ctrl-C again to quit")?)
    }
}

/// The parameters of `initialize`: this client reads no files and has no terminals for the agent.
fn greeting() -> Value {
    json!({
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false},
        "clientInfo": {"name": "zeroclaw", "title": "ZeroClaw", "version": env!("CARGO_PKG_VERSION")},
    })
}

fn describe(error: &RpcError) -> String {
    let message = clipped(&one_line(&error.message), 2000).into_owned();
    let message = if message.is_empty() { "no message" } else { &message };
    match error.data["kind"].as_str() {
        Some(kind) => format!("{message} (error {}, {})", error.code, clipped(&one_line(kind), 100)),
        None => format!("{message} (error {})", error.code),
    }
}
