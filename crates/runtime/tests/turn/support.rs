//! Doubles for the loop's neighbours, and a bench that joins them.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify, mpsc};
use tokio_util::sync::CancellationToken;
use zeroclaw_policy::{Action, Level, Permit, Replaces, Root, RootKind, Ruleset};
use zeroclaw_runtime::{
    client::ClientMeans,
    jail::Jail,
    model::{
        Message, ModelError, ModelEvent, ModelInfo, ModelProvider, ModelRequest, ModelStop, ModelStream,
        ToolCallRequest, ToolSpec, Usage,
    },
    tool::{
        CallView, Location, PlanEntry, PreparedCall, Progress, Tool, ToolContent, ToolContext, ToolFailure, ToolKind,
        ToolOutcome, ToolSettings,
    },
    turn::{
        Agent, Answer, Approval, ApprovalRequest, Approver, Asker, CallStatus, CompactionStep, Flow, Gauge, Remembered,
        ToolSet, TurnError, TurnEvent, TurnInput, TurnLimits, TurnOutcome, TurnSink, compact, run_turn,
    },
};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

// ---- the model

pub(crate) type Event = Result<ModelEvent, ModelError>;

/// What the model does with one request.
pub(crate) enum Reply {
    /// Sends all of it.
    Events(Vec<Event>),
    /// Sends what the test sends.
    Channel(mpsc::UnboundedReceiver<Event>),
    /// Sends all of it without ever giving way.
    Rush(Vec<Event>),
    /// Never starts to answer.
    Silence,
    /// Refuses the request.
    Error(ModelError),
    /// Panics before the answer.
    Panic,
    /// Panics after a piece of text.
    PanicLater,
}

#[derive(Debug)]
pub(crate) struct Model {
    info: ModelInfo,
    replies: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<ModelRequest>>,
    asked: Notify,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

impl Model {
    pub(crate) fn new(name: &str, replies: Vec<Reply>) -> Self {
        Self {
            info: ModelInfo { name: name.to_owned(), source: "test".to_owned(), context_window: 100_000 },
            replies: Mutex::new(replies.into()),
            requests: Mutex::default(),
            asked: Notify::new(),
        }
    }

    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        lock(&self.requests).clone()
    }

    pub(crate) async fn wait_asked(&self) {
        self.asked.notified().await;
    }
}

#[async_trait]
impl ModelProvider for Model {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        check_request(&request);
        lock(&self.requests).push(request);
        self.asked.notify_one();
        let reply = lock(&self.replies).pop_front().expect("the script has a reply for each request");
        match reply {
            // A real stream gives way between its events, which is where a cancel gets in.
            Reply::Events(events) => {
                let later = |event| async {
                    tokio::task::yield_now().await;
                    event
                };
                Ok(stream::iter(events).then(later).boxed())
            }
            Reply::Channel(receiver) => {
                Ok(stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) }).boxed())
            }
            Reply::Rush(events) => Ok(stream::iter(events).boxed()),
            Reply::Silence => std::future::pending().await,
            Reply::Error(error) => Err(error),
            Reply::Panic => panic!("scripted"),
            Reply::PanicLater => {
                let broken = stream::once(async { panic!("scripted") });
                Ok(stream::iter([Ok(ModelEvent::Text("a".to_owned()))]).chain(broken).boxed())
            }
        }
    }
}

/// What vendors insist on: calls and results in pairs, unique ids, arguments that are objects, no empty or doubled turns.
pub(crate) fn check_request(request: &ModelRequest) {
    let mut ids = std::collections::HashSet::new();
    let mut open: VecDeque<String> = VecDeque::new();
    let mut user_before = false;
    for message in &request.messages {
        if !matches!(**message, Message::Tool { .. }) {
            assert!(open.is_empty(), "calls without results: {open:?}");
        }
        match &**message {
            Message::User { .. } => assert!(!user_before, "two user messages in a row"),
            Message::Assistant { text, tool_calls, .. } => {
                assert!(!text.is_empty() || !tool_calls.is_empty(), "an empty assistant message");
                for call in tool_calls {
                    assert!(ids.insert(call.id.clone()), "repeated id {}", call.id);
                    let arguments: Value = serde_json::from_str(&call.arguments).expect("valid JSON arguments");
                    assert!(arguments.is_object());
                    assert!(call.name.len() <= 64 && call.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
                    open.push_back(call.id.clone());
                }
            }
            Message::Tool { call_id, .. } => assert_eq!(open.pop_front().as_ref(), Some(call_id)),
        }
        user_before = matches!(**message, Message::User { .. });
    }
    assert!(open.is_empty(), "calls without results: {open:?}");
    assert!(!matches!(**request.messages.last().expect("a message"), Message::Assistant { .. }));
}

pub(crate) fn text(piece: &str) -> Event {
    Ok(ModelEvent::Text(piece.to_owned()))
}

pub(crate) fn thought(piece: &str) -> Event {
    Ok(ModelEvent::Thought(piece.to_owned()))
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Event {
    let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
    Ok(ModelEvent::ToolCall(ToolCallRequest { id, name, arguments }))
}

pub(crate) fn usage(input: u64, output: u64) -> Event {
    Ok(ModelEvent::Usage(Usage { input, output, cached: 0, written: 0 }))
}

pub(crate) fn stop(stop: ModelStop) -> Event {
    Ok(ModelEvent::Stop(stop))
}

pub(crate) fn end() -> Event {
    stop(ModelStop::End)
}

/// A whole answer of text.
pub(crate) fn says(piece: &str) -> Reply {
    Reply::Events(vec![text(piece), end()])
}

/// A whole answer of tool calls; ids are made up.
pub(crate) fn asks_for(calls: &[(&str, &str)]) -> Reply {
    let mut events: Vec<Event> =
        calls.iter().enumerate().map(|(index, (name, args))| call(&format!("v{index}"), name, args)).collect();
    events.push(end());
    Reply::Events(events)
}

pub(crate) fn channel() -> (mpsc::UnboundedSender<Event>, Reply) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Reply::Channel(receiver))
}

// ---- the sink

/// One thing that reached the sink, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Text { message: String, text: String },
    Thought { message: String, text: String },
    Started { id: String, tool: String, title: String, raw_input: String },
    Changed { id: String, status: Option<CallStatus>, content: Option<Vec<ToolContent>>, raw_output: Option<String> },
    Plan(Vec<PlanEntry>),
    Usage { used: u64, size: u64 },
    Compaction { id: String, step: String },
    Fallback { from: String, to: String, reason: String },
    Record(Message),
    Compacted { conversation: Vec<Message>, own: usize },
}

#[derive(Default)]
pub(crate) struct Sink {
    seen: Mutex<Vec<Seen>>,
    grew: Notify,
    pub(crate) emits: AtomicUsize,
    /// Answers `Full` from this on, until the test drains it.
    pub(crate) full: AtomicBool,
    pub(crate) room: Notify,
}

impl Sink {
    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).clone()
    }

    /// Waits until something that was seen fits.
    pub(crate) async fn wait(&self, fits: impl Fn(&Seen) -> bool) {
        loop {
            let grew = self.grew.notified();
            if lock(&self.seen).iter().any(&fits) {
                return;
            }
            grew.await;
        }
    }

    pub(crate) fn records(&self) -> Vec<Message> {
        let records = |seen| if let Seen::Record(message) = seen { Some(message) } else { None };
        self.seen().into_iter().filter_map(records).collect()
    }

    /// The statuses of each call, in order; `Pending` for its start.
    pub(crate) fn statuses(&self, wanted: &str) -> Vec<CallStatus> {
        let status = |seen| match seen {
            Seen::Started { id, .. } if id == wanted => Some(CallStatus::Pending),
            Seen::Changed { id, status, .. } if id == wanted => status,
            _ => None,
        };
        self.seen().into_iter().filter_map(status).collect()
    }

    /// The text that ended a call.
    pub(crate) fn output(&self, wanted: &str) -> String {
        let output = |seen: Seen| match seen {
            Seen::Changed { id, raw_output, .. } if id == wanted => raw_output,
            _ => None,
        };
        self.seen().into_iter().rev().find_map(output).expect("the call ended with a text")
    }

    /// Each call that was announced went to exactly one final status and nothing followed it.
    pub(crate) fn check_finished(&self) {
        let started = |seen| if let Seen::Started { id, .. } = seen { Some(id) } else { None };
        for id in self.seen().into_iter().filter_map(started) {
            let statuses = self.statuses(&id);
            let is_final = |status: &CallStatus| matches!(status, CallStatus::Completed | CallStatus::Failed);
            assert_eq!(statuses.iter().filter(|status| is_final(status)).count(), 1, "{id}: {statuses:?}");
            assert!(statuses.last().is_some_and(is_final), "{id}: {statuses:?}");
        }
    }
}

#[async_trait]
impl TurnSink for Sink {
    fn emit(&self, event: TurnEvent<'_>) -> Flow {
        let seen = match event {
            TurnEvent::Text { message, text } => Seen::Text { message: message.to_owned(), text: text.to_owned() },
            TurnEvent::Thought { message, text } => {
                Seen::Thought { message: message.to_owned(), text: text.to_owned() }
            }
            TurnEvent::CallStarted { id, tool, title, raw_input, .. } => {
                serde_json::from_str::<Value>(raw_input).expect("raw input is valid JSON");
                assert!(!raw_input.contains(['\n', '\r']), "raw input is one line");
                Seen::Started {
                    id: id.to_owned(),
                    tool: tool.to_owned(),
                    title: title.to_owned(),
                    raw_input: raw_input.to_owned(),
                }
            }
            TurnEvent::CallChanged { id, status, content, raw_output, .. } => Seen::Changed {
                id: id.to_owned(),
                status,
                content: content.map(<[ToolContent]>::to_vec),
                raw_output: raw_output.map(str::to_owned),
            },
            TurnEvent::Plan(entries) => Seen::Plan(entries.to_vec()),
            TurnEvent::Usage { used, size, .. } => Seen::Usage { used, size },
            TurnEvent::Compaction { id, step, .. } => {
                let step = match step {
                    CompactionStep::Started => "started".to_owned(),
                    CompactionStep::Done { summary, before, after } => {
                        assert!(after < before, "{after} of {before}");
                        format!("done: {}", summary.unwrap_or("results cut"))
                    }
                    CompactionStep::Failed { error } => format!("failed: {error}"),
                    CompactionStep::Cancelled => "cancelled".to_owned(),
                };
                Seen::Compaction { id: id.to_owned(), step }
            }
            TurnEvent::Fallback { from, to, reason, .. } => {
                Seen::Fallback { from: from.to_owned(), to: to.to_owned(), reason: reason.to_owned() }
            }
        };
        self.emits.fetch_add(1, Ordering::SeqCst);
        lock(&self.seen).push(seen);
        self.grew.notify_waiters();
        if self.full.load(Ordering::SeqCst) { Flow::Full } else { Flow::Ready }
    }

    async fn drained(&self) {
        loop {
            let room = self.room.notified();
            if !self.full.load(Ordering::SeqCst) {
                return;
            }
            room.await;
        }
    }

    fn record(&self, message: &Arc<Message>) {
        lock(&self.seen).push(Seen::Record((**message).clone()));
        self.grew.notify_waiters();
    }

    fn compacted(&self, conversation: &[Arc<Message>], own: usize) {
        let conversation = conversation.iter().map(|message| (**message).clone()).collect();
        lock(&self.seen).push(Seen::Compacted { conversation, own });
    }
}

// ---- people

/// Answers from a list; waits for ever when it is told to.
#[derive(Default)]
pub(crate) struct Person {
    answers: Mutex<VecDeque<Option<Approval>>>,
    pub(crate) asked: Mutex<Vec<(String, String)>>,
    pub(crate) withdrawn: Arc<AtomicUsize>,
    pub(crate) was_asked: Notify,
}

impl Person {
    /// `None` is a question that nobody answers.
    pub(crate) fn answering(answers: Vec<Option<Approval>>) -> Self {
        Self { answers: Mutex::new(answers.into()), ..Self::default() }
    }

    pub(crate) fn times_asked(&self) -> usize {
        lock(&self.asked).len()
    }
}

#[async_trait]
impl Approver for Person {
    async fn approve(&self, request: ApprovalRequest<'_>) -> Approval {
        struct Withdrawn(Arc<AtomicUsize>);
        impl Drop for Withdrawn {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        assert!(!request.reasons.is_empty());
        lock(&self.asked)
            .push((request.call_id.to_owned(), request.always.expect("always is offered").covers.to_owned()));
        self.was_asked.notify_one();
        let answer = lock(&self.answers).pop_front().expect("the script has an answer for each question");
        match answer {
            Some(answer) => answer,
            None => {
                let _guard = Withdrawn(Arc::clone(&self.withdrawn));
                std::future::pending().await
            }
        }
    }
}

struct NobodyToAsk;

#[async_trait]
impl Asker for NobodyToAsk {
    async fn ask(&self, _: &str, _: &str, _: &[String]) -> Answer {
        Answer::Unsupported("not in this test".to_owned())
    }
}

// ---- tools

/// What a tool does when it runs.
#[derive(Clone, Debug)]
pub(crate) enum Doing {
    Say(&'static str),
    SayMuch(usize),
    Fail(&'static str),
    Panic,
    PanicInPrepare,
    FailInPrepare(&'static str),
    /// Runs until its token is cancelled, then says so.
    UntilCancelled,
    /// Ignores its token.
    Never,
    /// Waits until this many calls run at once.
    Meet(Arc<Barrier>),
    /// Waits for a signal.
    Wait(Arc<Notify>),
    /// Reports output in pieces, then ends.
    Stream {
        pieces: usize,
        size: usize,
    },
    /// Reports a plan and a message.
    Report(Vec<PlanEntry>),
    /// Has another action in mind when it is asked again.
    ChangeItsMind,
}

/// What a tool would touch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    Read,
    Write,
}

#[derive(Debug)]
pub(crate) struct Fake {
    spec: ToolSpec,
    effect: Effect,
    doing: Doing,
    log: Log,
}

/// What tools did, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    running: Arc<AtomicUsize>,
    peak: Arc<AtomicUsize>,
    grew: Arc<Notify>,
}

impl Log {
    pub(crate) fn lines(&self) -> Vec<String> {
        lock(&self.lines).clone()
    }

    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }

    pub(crate) async fn wait(&self, line: &str) {
        loop {
            let grew = self.grew.notified();
            if self.lines().iter().any(|have| have == line) {
                return;
            }
            grew.await;
        }
    }

    fn add(&self, line: String) {
        lock(&self.lines).push(line);
        self.grew.notify_waiters();
    }
}

struct FakeCall {
    name: String,
    action: Action,
    asked: AtomicUsize,
    doing: Doing,
    log: Log,
}

#[async_trait]
impl Tool for Fake {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        match self.effect {
            Effect::Read => ToolKind::Read,
            Effect::Write => ToolKind::Edit,
        }
    }

    fn parallel_safe(&self) -> bool {
        matches!(self.effect, Effect::Read)
    }

    async fn prepare(&self, arguments: &Value, context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        match self.doing {
            Doing::PanicInPrepare => panic!("scripted"),
            Doing::FailInPrepare(why) => return Err(ToolFailure::Failed(why.to_owned())),
            _ => {}
        }
        let named = arguments.get("path").and_then(Value::as_str).unwrap_or("a.txt");
        let path = context.jail.roots().locate(named).map_err(|error| ToolFailure::Arguments(error.to_string()))?;
        let action = match self.effect {
            Effect::Read => Action::Read { path },
            Effect::Write => {
                Action::Write { path, content: b"new".as_slice().into(), replaces: Replaces::Nothing, pins: Vec::new() }
            }
        };
        Ok(Box::new(FakeCall {
            name: self.spec.name.clone(),
            action,
            asked: AtomicUsize::new(0),
            doing: self.doing.clone(),
            log: self.log.clone(),
        }))
    }
}

#[async_trait]
impl PreparedCall for FakeCall {
    fn action(&self) -> Action {
        let before = self.asked.fetch_add(1, Ordering::SeqCst);
        match (&self.doing, self.action.clone()) {
            (Doing::ChangeItsMind, Action::Write { path, replaces, pins, .. }) if before > 0 => {
                Action::Write { path, content: b"other".as_slice().into(), replaces, pins }
            }
            (_, action) => action,
        }
    }

    fn view(&self) -> CallView {
        let locations = match &self.action {
            Action::Read { path } | Action::Write { path, .. } => {
                vec![Location { path: path.absolute().to_owned(), line: Some(1) }]
            }
            Action::Run { .. } | Action::Call { .. } | Action::Converse => Vec::new(),
        };
        CallView { title: format!("Use {}", self.name), locations, content: vec![ToolContent::Text("view".to_owned())] }
    }

    async fn run(
        self: Box<Self>,
        permit: Permit,
        context: &ToolContext,
        progress: &dyn Progress,
    ) -> Result<ToolOutcome, ToolFailure> {
        assert_eq!(permit.into_action(), self.action);
        self.log.add(format!("{} begins", context.call_id));
        let running = self.log.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.log.peak.fetch_max(running, Ordering::SeqCst);
        let said = match &self.doing {
            Doing::Say(said) => Ok((*said).to_owned()),
            Doing::SayMuch(size) => Ok("y".repeat(*size)),
            Doing::Fail(why) => Err(ToolFailure::Failed((*why).to_owned())),
            Doing::Panic => panic!("scripted"),
            Doing::PanicInPrepare | Doing::FailInPrepare(_) => Ok(String::new()),
            Doing::UntilCancelled => {
                context.cancel.cancelled().await;
                Err(ToolFailure::Cancelled)
            }
            Doing::Never => std::future::pending().await,
            Doing::Meet(barrier) => {
                barrier.wait().await;
                Ok("met".to_owned())
            }
            Doing::Wait(signal) => {
                signal.notified().await;
                Ok("went on".to_owned())
            }
            Doing::Stream { pieces, size } => {
                for _ in 0..*pieces {
                    progress.output(&"x".repeat(*size));
                    tokio::task::yield_now().await;
                }
                Ok("streamed".to_owned())
            }
            // It is not called again.
            Doing::ChangeItsMind => panic!("it ran"),
            Doing::Report(plan) => {
                progress.plan(plan);
                progress.message("a word to the user");
                Ok("reported".to_owned())
            }
        };
        self.log.running.fetch_sub(1, Ordering::SeqCst);
        self.log.add(format!("{} ends", context.call_id));
        let model_text = said?;
        Ok(ToolOutcome { model_text, content: Vec::new(), locations: Vec::new(), title: None, failed: false })
    }
}

// ---- the bench

/// Everything one session has.
pub(crate) struct Bench {
    pub(crate) model: Arc<Model>,
    pub(crate) agent: Agent,
    pub(crate) sink: Sink,
    pub(crate) person: Person,
    pub(crate) log: Log,
    pub(crate) history: Vec<Arc<Message>>,
    pub(crate) rules: Ruleset,
    pub(crate) remembered: Mutex<Remembered>,
    pub(crate) gauge: Gauge,
    pub(crate) cancel: CancellationToken,
    pub(crate) turn: u64,
    /// The user orders a compaction with this wish instead of saying something.
    pub(crate) order: Option<String>,
    jail: Arc<Jail>,
    _directory: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new(replies: Vec<Reply>, tools: &[(&str, Effect, Doing)]) -> Self {
        let log = Log::default();
        let make = |(name, effect, doing): &(&str, Effect, Doing)| -> Arc<dyn Tool> {
            let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
            let spec = ToolSpec { name: (*name).to_owned(), description: "A tool.".to_owned(), parameters };
            Arc::new(Fake { spec, effect: *effect, doing: doing.clone(), log: log.clone() })
        };
        let model = Arc::new(Model::new("fake", replies));
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a real directory");
        let jail = Jail::open(vec![Root::new(root, RootKind::Session)]).expect("an opened directory");
        Self {
            agent: Agent {
                provider: Arc::clone(&model) as Arc<dyn ModelProvider>,
                tools: Arc::new(ToolSet::new(tools.iter().map(make).collect())),
                limits: TurnLimits::for_window(100_000),
                fallbacks: Vec::new(),
                random: || 0,
            },
            model,
            sink: Sink::default(),
            person: Person::default(),
            log,
            history: Vec::new(),
            rules: Ruleset::new(Level::Supervised),
            remembered: Mutex::default(),
            gauge: Gauge::default(),
            cancel: CancellationToken::new(),
            turn: 1,
            order: None,
            jail: Arc::new(jail),
            _directory: directory,
        }
    }

    /// Runs one turn beside what the test does meanwhile.
    pub(crate) async fn run_beside<'a, F: Future<Output = ()>>(
        &'a mut self,
        beside: impl FnOnce(Meanwhile<'a>) -> F,
    ) -> Result<TurnOutcome, TurnError> {
        let Self {
            model, agent, sink, person, log, history, rules, remembered, gauge, cancel, turn, jail, order, ..
        } = self;
        let input = TurnInput {
            turn: *turn,
            system: "system".into(),
            history,
            prompt: "prompt".to_owned(),
            thinking: None,
            jail: Arc::clone(jail),
            rules: Arc::new(rules.clone()),
            settings: Arc::new(ToolSettings {
                shell_timeout: Duration::from_secs(1),
                shell_env: Vec::new(),
                max_output_bytes: 10_000,
                launcher: None,
                sandbox: Arc::new(zeroclaw_runtime::sandbox::Confiner::unconfined()),
            }),
            sink: &*sink,
            approver: &*person,
            client: ClientMeans::default(),
            asker: Arc::new(NobodyToAsk),
            remembered: &*remembered,
            gauge: &*gauge,
            cancel: cancel.clone(),
        };
        let meanwhile = Meanwhile { model, sink, person, log, cancel };
        // Boxed as a sendable future: the server spawns turns.
        let running: futures::future::BoxFuture<'_, _> = match order {
            None => Box::pin(run_turn(agent, input)),
            Some(wishes) => Box::pin(compact(agent, TurnInput { prompt: wishes.clone(), ..input })),
        };
        let (result, ()) = tokio::join!(running, beside(meanwhile));
        sink.check_finished();
        result
    }

    pub(crate) async fn run(&mut self) -> Result<TurnOutcome, TurnError> {
        self.run_beside(|_| async {}).await
    }

    /// The next turn of the same session, with further replies.
    pub(crate) fn next_turn(&mut self, replies: Vec<Reply>) {
        self.turn += 1;
        self.cancel = CancellationToken::new();
        lock(&self.model.replies).extend(replies);
    }

    /// The text of the tool results in the history.
    pub(crate) fn results(&self) -> Vec<(String, bool)> {
        let result = |message: &Arc<Message>| match &**message {
            Message::Tool { content, failed, .. } => Some((content.clone(), *failed)),
            Message::User { .. } | Message::Assistant { .. } => None,
        };
        self.history.iter().filter_map(result).collect()
    }
}

/// What a test sees while a turn runs.
pub(crate) struct Meanwhile<'a> {
    pub(crate) model: &'a Model,
    pub(crate) sink: &'a Sink,
    pub(crate) person: &'a Person,
    pub(crate) log: &'a Log,
    pub(crate) cancel: &'a CancellationToken,
}

pub(crate) fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

pub(crate) fn assistant(text: &str) -> Message {
    Message::Assistant { text: text.to_owned(), thought: String::new(), tool_calls: vec![], signed: vec![] }
}
