//! Everything we can send, with every combination of its optional members: the official types read it and write the
//! same back, but for the differences that are listed with their reasons.
//!
//! Our structs are written out with every field and our enumerations matched without a wildcard, so that what is added
//! to them does not compile here until it is covered.

use std::borrow::Cow;

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use zeroclaw_acp_protocol::{
    AvailableCommand, CallStatus, CommandInput, ContentBlock, EXTENSION_REQUESTS, EmbeddedResource, ErrorKind,
    ErrorObject, ErrorTable, Frame, Location, MethodKind, PermissionOption, PermissionOptionKind, PermissionRequest,
    PermissionToolCall, PlanEntry, PlanPriority, PlanStatus, RequestId, SessionUpdate, ToolCallContent, ToolKind,
    UpdateFrame, UsageCost, Withdrawal, client, encode_error, encode_notification, encode_request, encode_result,
    lend::{CreateTerminal, EnvVariable, ReadTextFile, TerminalCall, WriteTextFile},
    result::{
        AgentCapabilities, AttachResult, AuthCapabilities, AuthMethod, Choice, ConfigKind, ConfigOption,
        ConfigOptionsResult, ConfigValue, Empty, EventResult, ExtensionCapabilities, Implementation, InitializeMeta,
        InitializeResult, ListSessionsResult, LoadSessionResult, LogPosition, McpCapabilities, Meta, ModeState,
        NewSessionResult, PromptCapabilities, PromptMeta, PromptResult, PromptUsage, SessionCapabilities, SessionInfo,
        SessionStatus, StatusResult, StopResult, SystemPromptCapability, SystemPromptModes, TurnStatus,
    },
};
use zeroclaw_schema_judges::Judge;

use crate::made::{all_of, id, maybe, one_of, path, raw, some, text};

all_of!(pub(crate) METHODS: MethodKind {
    Initialize, SessionNew, SessionLoad, SessionResume, SessionPrompt, SessionCancel, SessionClose, SessionStop,
    SessionList, SessionDelete, SessionFork, SetMode, SetConfigOption, SessionEvent, Authenticate, Logout, CancelRequest,
    SessionAttach, Status,
});
all_of!(TOOL_KINDS: ToolKind { Read, Edit, Delete, Move, Search, Execute, Think, Fetch, Other });
all_of!(CALL_STATUSES: CallStatus { Pending, InProgress, Completed, Failed });
all_of!(PLAN_PRIORITIES: PlanPriority { High, Medium, Low });
all_of!(PLAN_STATUSES: PlanStatus { Pending, InProgress, Completed });
all_of!(OPTION_KINDS: PermissionOptionKind { AllowOnce, AllowAlways, RejectOnce, RejectAlways });
all_of!(ERROR_TABLES: ErrorTable { Zeroclaw, Spec });
all_of!(ERROR_KINDS: ErrorKind {
    Parse, InvalidRequest, MethodNotFound, InvalidParams, Internal, SessionNotFound, SessionLimitReached, SessionBusy,
    AuthRequired, RequestCancelled,
});

/// What the server calls the end of a turn.
const STOP_REASONS: &[&str] = &["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"];

/// Cases for each kind of message: each has at most a few dozen combinations of optional members.
const CASES: u32 = 256;

fn for_each(strategy: &BoxedStrategy<String>, check: impl Fn(&str) -> Result<(), String>) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(strategy, |made| check(&made).map_err(TestCaseError::fail));
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

fn request_id(value: &Value) -> RequestId {
    let line = format!(r#"{{"jsonrpc":"2.0","id":{value},"method":"x"}}"#);
    match Frame::parse(line.as_bytes()) {
        Ok(Frame::Request { id, .. }) => id,
        other => panic!("{value} is no id: {other:?}"),
    }
}

/// A line without its end, as text.
fn line(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    assert_eq!(out.pop(), Some(b'\n'));
    let text = String::from_utf8(out).expect("a line is UTF-8");
    assert!(!text.contains('\n'), "one message is one line");
    text
}

fn answer<T: Serialize>(id: &Value, result: &T) -> String {
    line(|out| encode_result(out, &request_id(id), result).expect("a result can be written"))
}

// ---- answers

/// The answers to a method. A method that is added has to be entered here.
fn answers(kind: MethodKind) -> BoxedStrategy<String> {
    let empty = || id().prop_map(|id| answer(&id, &Empty {})).boxed();
    match kind {
        MethodKind::Initialize => initialize(),
        MethodKind::SessionNew | MethodKind::SessionFork => new_session(),
        MethodKind::SessionLoad | MethodKind::SessionResume => load_session(),
        MethodKind::SessionPrompt => prompt(),
        MethodKind::SessionList => list(),
        MethodKind::SetConfigOption => (id(), config_options())
            .prop_map(|(id, options)| {
                let options: Vec<ConfigOption<'_>> = options.iter().map(OwnOption::wire).collect();
                answer(&id, &ConfigOptionsResult { config_options: &options })
            })
            .boxed(),
        MethodKind::SessionStop => (id(), text(), any::<bool>())
            .prop_map(|(id, session_id, stopped)| answer(&id, &StopResult { session_id: &session_id, stopped }))
            .boxed(),
        MethodKind::SessionEvent => (id(), text(), text())
            .prop_map(|(id, session_id, kind)| {
                answer(&id, &EventResult { session_id: &session_id, r#type: &kind, status: "processed" })
            })
            .boxed(),
        MethodKind::SessionAttach => (id(), text(), any::<u64>(), id())
            .prop_map(|(id, session_id, seq, prompt)| {
                let prompt = serde_json::value::to_raw_value(&prompt).expect("an id can be written");
                let turn = TurnStatus {
                    prompt_id: &prompt,
                    client_id: Some("c-1"),
                    state: "running",
                    result: None,
                    error: None,
                };
                answer(&id, &AttachResult { session_id: &session_id, seq, turn: Some(turn) })
            })
            .boxed(),
        MethodKind::Status => (id(), text(), any::<(usize, usize, bool)>(), some((text(), any::<usize>())))
            .prop_map(|(id, version, (active_sessions, max_sessions, durable), sessions)| {
                let sessions = sessions
                    .into_iter()
                    .map(|(session_id, open_prompts)| SessionStatus { session_id, open_prompts })
                    .collect();
                answer(&id, &StatusResult { version: &version, active_sessions, max_sessions, durable, sessions })
            })
            .boxed(),
        MethodKind::SessionCancel
        | MethodKind::SessionClose
        | MethodKind::SessionDelete
        | MethodKind::SetMode
        | MethodKind::Authenticate
        | MethodKind::Logout
        | MethodKind::CancelRequest => empty(),
    }
}

fn yes() -> BoxedStrategy<Option<Empty>> {
    maybe(Just(Empty {}))
}

fn capabilities() -> BoxedStrategy<AgentCapabilities> {
    let flags = any::<[bool; 6]>();
    let mode = yes().prop_map(|r#override| SystemPromptCapability { mode: SystemPromptModes { r#override } });
    let session = (yes(), yes(), yes(), yes(), yes(), yes(), maybe(mode)).prop_map(
        |(list, delete, fork, resume, close, additional_directories, system_prompt)| SessionCapabilities {
            list,
            delete,
            fork,
            resume,
            close,
            additional_directories,
            system_prompt,
        },
    );
    let auth = maybe(yes().prop_map(|logout| AuthCapabilities { logout }));
    (flags, session, auth)
        .prop_map(|([load_session, image, audio, embedded_context, http, sse], session_capabilities, auth)| {
            AgentCapabilities {
                load_session,
                prompt_capabilities: PromptCapabilities { image, audio, embedded_context },
                mcp_capabilities: McpCapabilities { http, sse },
                session_capabilities,
                auth,
                meta: Meta { zeroclaw: ExtensionCapabilities { requests: EXTENSION_REQUESTS } },
            }
        })
        .boxed()
}

fn initialize() -> BoxedStrategy<String> {
    let meta = (maybe(text()), any::<usize>(), any::<u64>(), maybe(text()));
    (id(), capabilities(), (text(), text(), text()), some((text(), text(), text())), meta)
        .prop_map(|(id, agent_capabilities, (name, title, version), methods, meta)| {
            let (model, max_sessions, timeout, client_id) = meta;
            // A method is the client's to run in a terminal exactly when it says so.
            let auth_methods = methods
                .iter()
                .enumerate()
                .map(|(at, (id, name, description))| match at % 2 {
                    0 => AuthMethod { id, name, description, kind: None, args: &[] },
                    _ => AuthMethod { id, name, description, kind: Some("terminal"), args: &["login"] },
                })
                .collect();
            let result = InitializeResult {
                protocol_version: zeroclaw_acp_protocol::PROTOCOL_VERSION,
                agent_capabilities,
                agent_info: Implementation { name: &name, title: &title, version: &version },
                auth_methods,
                meta: Meta {
                    zeroclaw: InitializeMeta {
                        default_model: model.as_deref(),
                        max_sessions,
                        session_timeout_secs: timeout,
                        client_id: client_id.as_deref(),
                    },
                },
            };
            answer(&id, &result)
        })
        .boxed()
}

/// An option that owns what [`ConfigOption`] borrows.
#[derive(Clone, Debug)]
struct OwnOption {
    id: String,
    name: String,
    description: Option<String>,
    category: String,
    kind: OwnKind,
}

#[derive(Clone, Debug)]
enum OwnKind {
    Select(String, Vec<(String, String, Option<String>)>),
    Boolean(bool),
}

impl OwnOption {
    fn wire(&self) -> ConfigOption<'_> {
        ConfigOption {
            id: &self.id,
            name: &self.name,
            description: self.description.as_deref(),
            category: &self.category,
            kind: match &self.kind {
                OwnKind::Boolean(current_value) => ConfigKind::Boolean { current_value: *current_value },
                OwnKind::Select(current_value, values) => ConfigKind::Select {
                    current_value,
                    options: values
                        .iter()
                        .map(|(value, name, description)| ConfigValue {
                            value,
                            name,
                            description: description.as_deref(),
                        })
                        .collect(),
                },
            },
        }
    }
}

fn config_options() -> BoxedStrategy<Vec<OwnOption>> {
    let values = some((text(), text(), maybe(text())));
    let select = (text(), values).prop_map(|(current, values)| OwnKind::Select(current, values));
    let kind = prop_oneof![select, any::<bool>().prop_map(OwnKind::Boolean)];
    some((text(), text(), maybe(text()), text(), kind).prop_map(|(id, name, description, category, kind)| OwnOption {
        id,
        name,
        description,
        category,
        kind,
    }))
}

/// The mode in force, and all modes.
type OwnModes = (String, Vec<(String, String, String)>);

fn modes() -> BoxedStrategy<OwnModes> {
    (text(), some((text(), text(), text()))).boxed()
}

fn choices(modes: &OwnModes) -> Vec<Choice<'_>> {
    modes.1.iter().map(|(id, name, description)| Choice { id, name, description }).collect()
}

fn new_session() -> BoxedStrategy<String> {
    (id(), text(), maybe(path()), modes(), config_options())
        .prop_map(|(id, session_id, directory, modes, options)| {
            let options: Vec<ConfigOption<'_>> = options.iter().map(OwnOption::wire).collect();
            let result = NewSessionResult {
                session_id: &session_id,
                workspace_dir: directory.as_deref(),
                modes: ModeState { current_mode_id: &modes.0, available_modes: &choices(&modes) },
                config_options: &options,
            };
            answer(&id, &result)
        })
        .boxed()
}

fn load_session() -> BoxedStrategy<String> {
    (id(), modes(), config_options(), maybe(any::<u64>()))
        .prop_map(|(id, modes, options, seq)| {
            let options: Vec<ConfigOption<'_>> = options.iter().map(OwnOption::wire).collect();
            let result = LoadSessionResult {
                modes: ModeState { current_mode_id: &modes.0, available_modes: &choices(&modes) },
                config_options: &options,
                meta: seq.map(|seq| Meta { zeroclaw: LogPosition { seq } }),
            };
            answer(&id, &result)
        })
        .boxed()
}

fn prompt() -> BoxedStrategy<String> {
    let usage = (any::<[u64; 4]>(), maybe(any::<u64>())).prop_map(
        |([total_tokens, input_tokens, output_tokens, cached_read_tokens], cached_write_tokens)| PromptUsage {
            total_tokens,
            input_tokens,
            output_tokens,
            cached_read_tokens,
            cached_write_tokens,
        },
    );
    let meta = (any::<bool>(), maybe(text()));
    (id(), one_of(STOP_REASONS), maybe(text()), maybe(text()), maybe(usage), maybe(meta))
        .prop_map(|(id, stop_reason, session_id, content, usage, meta)| {
            let (session_id, content) = (session_id.as_deref(), content.as_deref());
            let meta = meta.as_ref().map(|(persisted, model)| Meta {
                zeroclaw: PromptMeta { persisted: *persisted, model: model.as_deref() },
            });
            answer(&id, &PromptResult { stop_reason, session_id, content, usage, meta })
        })
        .boxed()
}

fn list() -> BoxedStrategy<String> {
    let session = (text(), path(), maybe(text()), text(), some(path())).prop_map(
        |(session_id, cwd, title, updated_at, directories)| SessionInfo {
            session_id,
            cwd: cwd.to_string_lossy().into_owned(),
            title,
            updated_at,
            additional_directories: directories.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        },
    );
    (id(), some(session), maybe(text()))
        .prop_map(|(id, sessions, next_cursor)| answer(&id, &ListSessionsResult { sessions, next_cursor }))
        .boxed()
}

/// The name under which the differences of an answer are listed.
fn answer_name(kind: MethodKind) -> &'static str {
    match kind {
        MethodKind::Initialize => "initialize",
        MethodKind::SessionNew => "session/new",
        MethodKind::SessionLoad => "session/load",
        MethodKind::SessionResume => "session/resume",
        MethodKind::SessionPrompt => "session/prompt",
        MethodKind::SessionCancel => "session/cancel",
        MethodKind::SessionClose => "session/close",
        MethodKind::SessionStop => "session/stop",
        MethodKind::SessionList => "session/list",
        MethodKind::SessionDelete => "session/delete",
        MethodKind::SessionFork => "session/fork",
        MethodKind::SetMode => "session/set_mode",
        MethodKind::SetConfigOption => "session/set_config_option",
        MethodKind::SessionEvent => "session/update",
        MethodKind::Authenticate => "authenticate",
        MethodKind::Logout => "logout",
        MethodKind::CancelRequest => "$/cancel_request",
        MethodKind::SessionAttach => "_zeroclaw/session/attach",
        MethodKind::Status => "_zeroclaw/status",
    }
}

// ---- updates

/// A block that owns its texts.
fn block() -> BoxedStrategy<ContentBlock<'static>> {
    let own = |text: String| Cow::<'static, str>::Owned(text);
    let text_block = text().prop_map(move |text| ContentBlock::Text { text: own(text) });
    let link = (text(), text(), maybe(text())).prop_map(move |(uri, name, mime_type)| ContentBlock::ResourceLink {
        uri: own(uri),
        name: own(name),
        mime_type: mime_type.map(own),
    });
    // Exactly one of the two, as the type's comment demands.
    let resource = (text(), maybe(text()), any::<bool>(), text()).prop_map(move |(uri, mime_type, is_text, body)| {
        let (text, blob) = if is_text { (Some(own(body)), None) } else { (None, Some(own(body))) };
        let resource = EmbeddedResource { uri: own(uri), mime_type: mime_type.map(own), text, blob };
        ContentBlock::Resource { resource }
    });
    let made = prop_oneof![text_block, link, resource];
    made.prop_map(|block| match block {
        ContentBlock::Text { .. } | ContentBlock::ResourceLink { .. } | ContentBlock::Resource { .. } => block,
    })
    .boxed()
}

/// What [`ToolCallContent`] borrows.
#[derive(Clone, Debug)]
enum Shown {
    Content(ContentBlock<'static>),
    Diff { path: std::path::PathBuf, old: Option<String>, new: String },
    Terminal(String),
}

fn shown() -> BoxedStrategy<Vec<Shown>> {
    let diff = (path(), maybe(text()), text()).prop_map(|(path, old, new)| Shown::Diff { path, old, new });
    some(prop_oneof![block().prop_map(Shown::Content), diff, text().prop_map(Shown::Terminal)])
}

fn contents(shown: &[Shown]) -> Vec<ToolCallContent<'_>> {
    let items = shown.iter().map(|item| match item {
        Shown::Content(content) => ToolCallContent::Content { content: content.clone() },
        Shown::Diff { path, old, new } => ToolCallContent::Diff { path, old_text: old.as_deref(), new_text: new },
        Shown::Terminal(terminal_id) => ToolCallContent::Terminal { terminal_id },
    });
    items
        .map(|item| match item {
            ToolCallContent::Content { .. } | ToolCallContent::Diff { .. } | ToolCallContent::Terminal { .. } => item,
        })
        .collect()
}

/// What [`Location`] borrows.
type OwnLocations = Vec<(std::path::PathBuf, Option<u32>)>;

fn places() -> BoxedStrategy<OwnLocations> {
    some((path(), maybe(any::<u32>())))
}

fn locations(places: &OwnLocations) -> Vec<Location<'_>> {
    places.iter().map(|(path, line)| Location { path, line: *line }).collect()
}

/// The notification around an update: the session, and the number that some clients ask for.
struct Around {
    session: String,
    seq: Option<u64>,
}

impl Around {
    fn write(&self, update: &SessionUpdate<'_>) -> (&'static str, String) {
        let bytes = serde_json::to_vec(update).expect("an update can be written");
        (tag(update), line(|out| UpdateFrame::new(&self.session).write(out, &bytes, self.seq)))
    }
}

/// An amount that is no whole number.
fn decimal(number: u32) -> Box<RawValue> {
    RawValue::from_string(format!("{number}.25")).expect("a number is JSON")
}

/// Makes whole notifications of the values that `write` turns into an update.
fn framed<S: Strategy + 'static>(
    values: S,
    write: impl Fn(&S::Value, &Around) -> (&'static str, String) + 'static,
) -> BoxedStrategy<String> {
    (values, text(), maybe(any::<u64>()))
        .prop_map(move |(value, session, seq)| {
            let (tag, line) = write(&value, &Around { session, seq });
            let message: Value = serde_json::from_str(&line).expect("a line is JSON");
            assert_eq!(message["params"]["update"]["sessionUpdate"], tag);
            line
        })
        .boxed()
}

fn chunk(wrap: impl for<'a> Fn(ContentBlock<'a>, &'a str) -> SessionUpdate<'a> + 'static) -> BoxedStrategy<String> {
    framed((block(), text()), move |(content, message_id), frame| frame.write(&wrap(content.clone(), message_id)))
}

fn tool_call() -> BoxedStrategy<String> {
    let names = (text(), text(), text());
    let values = (names, one_of(TOOL_KINDS), one_of(CALL_STATUSES), shown(), places(), raw());
    framed(values, |((id, title, name), kind, status, shown, places, raw_input), frame| {
        frame.write(&SessionUpdate::ToolCall {
            tool_call_id: id,
            title,
            name,
            kind: *kind,
            status: *status,
            content: &contents(shown),
            locations: &locations(places),
            raw_input,
        })
    })
}

fn tool_call_update() -> BoxedStrategy<String> {
    let names = (text(), text());
    let values = (names, maybe(one_of(CALL_STATUSES)), maybe(text()), maybe(shown()), maybe(places()), maybe(text()));
    framed(values, |((id, name), status, title, shown, places, raw_output), frame| {
        let shown = shown.as_deref().map(contents);
        let places = places.as_ref().map(locations);
        frame.write(&SessionUpdate::ToolCallUpdate {
            tool_call_id: id,
            name,
            status: *status,
            title: title.as_deref(),
            content: shown.as_deref(),
            locations: places.as_deref(),
            raw_output: raw_output.as_deref(),
        })
    })
}

fn plan() -> BoxedStrategy<String> {
    framed(some((text(), one_of(PLAN_PRIORITIES), one_of(PLAN_STATUSES))), |steps, frame| {
        let entries: Vec<PlanEntry<'_>> = steps
            .iter()
            .map(|(content, priority, status)| PlanEntry { content, priority: *priority, status: *status })
            .collect();
        frame.write(&SessionUpdate::Plan { entries: &entries })
    })
}

fn commands() -> BoxedStrategy<String> {
    framed(some((text(), text(), maybe(text()))), |commands, frame| {
        let commands: Vec<AvailableCommand<'_>> = commands
            .iter()
            .map(|(name, description, hint)| AvailableCommand {
                name,
                description,
                input: hint.as_deref().map(|hint| CommandInput { hint }),
            })
            .collect();
        frame.write(&SessionUpdate::AvailableCommandsUpdate { available_commands: &commands })
    })
}

/// Lists the updates with what makes them. A variant that is added and not listed does not compile.
macro_rules! updates {
    ($($variant:ident: $tag:literal => $made:expr),+ $(,)?) => {
        fn updates() -> Vec<(&'static str, BoxedStrategy<String>)> {
            vec![$(($tag, $made)),+]
        }

        fn tag(update: &SessionUpdate<'_>) -> &'static str {
            match update {
                $(SessionUpdate::$variant { .. } => $tag),+
            }
        }
    };
}

updates! {
    UserMessageChunk: "user_message_chunk" =>
        chunk(|content, message_id| SessionUpdate::UserMessageChunk { content, message_id }),
    AgentMessageChunk: "agent_message_chunk" =>
        chunk(|content, message_id| SessionUpdate::AgentMessageChunk { content, message_id }),
    AgentThoughtChunk: "agent_thought_chunk" =>
        chunk(|content, message_id| SessionUpdate::AgentThoughtChunk { content, message_id }),
    ToolCall: "tool_call" => tool_call(),
    ToolCallUpdate: "tool_call_update" => tool_call_update(),
    Plan: "plan" => plan(),
    AvailableCommandsUpdate: "available_commands_update" => commands(),
    CurrentModeUpdate: "current_mode_update" =>
        framed(text(), |mode, frame| frame.write(&SessionUpdate::CurrentModeUpdate { current_mode_id: mode })),
    ConfigOptionUpdate: "config_option_update" => framed(config_options(), |options, frame| {
        let options: Vec<ConfigOption<'_>> = options.iter().map(OwnOption::wire).collect();
        frame.write(&SessionUpdate::ConfigOptionUpdate { config_options: &options })
    }),
    UsageUpdate: "usage_update" => framed((any::<[u64; 2]>(), maybe((any::<u32>(), text()))), |([used, size], cost), frame| {
        let cost = cost.as_ref().map(|(amount, currency)| (decimal(*amount), currency));
        let cost = cost.as_ref().map(|(amount, currency)| UsageCost { amount, currency });
        frame.write(&SessionUpdate::UsageUpdate { used: *used, size: *size, cost })
    }),
    SessionInfoUpdate: "session_info_update" => framed((text(), text()), |(title, updated_at), frame| {
        frame.write(&SessionUpdate::SessionInfoUpdate { title, updated_at })
    }),
}

/// Every kind of update that the server has.
pub(crate) fn update_tags() -> Vec<&'static str> {
    updates().iter().map(|(tag, _)| *tag).collect()
}

// ---- requests and notifications of ours

fn permission() -> BoxedStrategy<String> {
    let names = (text(), text(), text(), text());
    let options = some((text(), text(), one_of(OPTION_KINDS)));
    (0..u32::MAX, names, one_of(TOOL_KINDS), one_of(CALL_STATUSES), shown(), places(), (maybe(raw()), options))
        .prop_map(|(number, (session_id, id, title, name), kind, status, shown, places, (raw_input, options))| {
            let options: Vec<PermissionOption<'_>> = options
                .iter()
                .map(|(option_id, name, kind)| PermissionOption { option_id, name, kind: *kind })
                .collect();
            let params = PermissionRequest {
                session_id: &session_id,
                tool_call: PermissionToolCall {
                    tool_call_id: &id,
                    title: &title,
                    name: &name,
                    kind,
                    status,
                    content: &contents(&shown),
                    locations: &locations(&places),
                    raw_input: raw_input.as_deref(),
                },
                options: &options,
            };
            let id = RequestId::from_plain_text(&format!("zc-out-{number}"));
            line(|out| {
                encode_request(out, &id, client::REQUEST_PERMISSION, &params).expect("a request can be written");
            })
        })
        .boxed()
}

/// A request of ours with this method.
fn asked(number: u32, method: &str, params: &impl Serialize) -> String {
    let id = RequestId::from_plain_text(&format!("zc-out-{number}"));
    line(|out| encode_request(out, &id, method, params).expect("a request can be written"))
}

fn file_read() -> BoxedStrategy<String> {
    (0..u32::MAX, text(), text(), maybe(1..u32::MAX), maybe(any::<u32>()))
        .prop_map(|(number, session_id, path, line, limit)| {
            let params = ReadTextFile { session_id: &session_id, path: &path, line, limit };
            asked(number, client::READ_TEXT_FILE, &params)
        })
        .boxed()
}

fn file_write() -> BoxedStrategy<String> {
    (0..u32::MAX, text(), text(), text())
        .prop_map(|(number, session_id, path, content)| {
            let params = WriteTextFile { session_id: &session_id, path: &path, content: &content };
            asked(number, client::WRITE_TEXT_FILE, &params)
        })
        .boxed()
}

fn terminal_create() -> BoxedStrategy<String> {
    let lists = (some(text()), some((text(), text())));
    (0..u32::MAX, text(), text(), lists, maybe(text()), maybe(0..u64::from(u32::MAX)))
        .prop_map(|(number, session_id, command, (args, env), cwd, output_byte_limit)| {
            let env: Vec<EnvVariable<'_>> = env.iter().map(|(name, value)| EnvVariable { name, value }).collect();
            let params = CreateTerminal {
                session_id: &session_id,
                command: &command,
                args: &args,
                env: &env,
                cwd: cwd.as_deref(),
                output_byte_limit,
            };
            asked(number, client::TERMINAL_CREATE, &params)
        })
        .boxed()
}

fn terminal_call(method: &'static str) -> BoxedStrategy<String> {
    (0..u32::MAX, text(), text())
        .prop_map(move |(number, session_id, terminal_id)| {
            asked(number, method, &TerminalCall { session_id: &session_id, terminal_id: &terminal_id })
        })
        .boxed()
}

fn withdrawal() -> BoxedStrategy<String> {
    text()
        .prop_map(|id| {
            line(|out| {
                encode_notification(out, client::CANCEL_REQUEST, &Withdrawal { request_id: &id })
                    .expect("a notification can be written");
            })
        })
        .boxed()
}

fn error() -> BoxedStrategy<String> {
    (maybe(id()), one_of(ERROR_TABLES), one_of(ERROR_KINDS), text(), maybe(text()), any::<bool>())
        .prop_map(|(id, table, kind, message, session, data)| {
            let mut error = ErrorObject::new(table, kind, message);
            if !data {
                error.data = None;
            }
            if let Some(session) = session {
                error = error.with_session(&session);
            }
            line(|out| encode_error(out, id.map(|id| request_id(&id)).as_ref(), &error))
        })
        .boxed()
}

// ---- the tests

#[test]
fn answers_come_back_equal() {
    let judge = Judge::default();
    for kind in METHODS {
        let name = answer_name(*kind);
        assert_eq!(MethodKind::from_name(name), Some(*kind));
        for_each(&answers(*kind), |line| judge.answer(name, line));
    }
    let names: Vec<&str> = METHODS.iter().map(|kind| answer_name(*kind)).collect();
    assert!(judge.unseen(&names).is_empty(), "not needed any more: {:#?}", judge.unseen(&names));
}

#[test]
fn updates_come_back_equal() {
    let judge = Judge::default();
    for (_, made) in updates() {
        for_each(&made, |line| judge.call(line));
    }
    let tags = update_tags();
    assert!(judge.unseen(&tags).is_empty(), "not needed any more: {:#?}", judge.unseen(&tags));
}

#[test]
fn requests_and_notifications_come_back_equal() {
    let judge = Judge::default();
    let made = [
        (client::REQUEST_PERMISSION, permission()),
        (client::CANCEL_REQUEST, withdrawal()),
        (client::READ_TEXT_FILE, file_read()),
        (client::WRITE_TEXT_FILE, file_write()),
        (client::TERMINAL_CREATE, terminal_create()),
        (client::TERMINAL_OUTPUT, terminal_call(client::TERMINAL_OUTPUT)),
        (client::TERMINAL_WAIT_FOR_EXIT, terminal_call(client::TERMINAL_WAIT_FOR_EXIT)),
        (client::TERMINAL_KILL, terminal_call(client::TERMINAL_KILL)),
        (client::TERMINAL_RELEASE, terminal_call(client::TERMINAL_RELEASE)),
    ];
    for (method, made) in made {
        for_each(&made, |line| judge.call(line));
        assert!(judge.unseen(&[method]).is_empty(), "not needed any more: {:#?}", judge.unseen(&[method]));
    }
}

#[test]
fn errors_come_back_equal() {
    let judge = Judge::default();
    for_each(&error(), |line| judge.error(line));
}

/// The judge itself: what is wrong is found, and an allowed difference is allowed in its place only.
#[test]
fn a_wrong_message_is_refused() {
    let judge = Judge::default();
    let called = |message: Value| judge.call(&message.to_string()).expect_err("a wrong message passes");
    let answered = |method: &str, message: &Value| judge.answer(method, &message.to_string());
    let text = json!({"type": "text", "text": "hi"});
    let chunk = |update: Value| {
        let params = json!({"sessionId": "s", "update": update});
        json!({"jsonrpc": "2.0", "method": "session/update", "params": params})
    };
    let unknown = chunk(json!({"sessionUpdate": "agent_message", "content": text}));
    assert!(called(unknown).contains("unknown variant"));
    let extra = chunk(json!({"sessionUpdate": "agent_message_chunk", "content": text, "mood": "good"}));
    assert!(called(extra).contains("/params/update/mood"));
    assert!(called(json!({"jsonrpc": "2.0", "method": "session/mood", "params": {}})).contains("nobody knows"));
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"sessionId": "s", "workspaceDir": "/"}});
    answered("session/new", &answer).expect("the dialect has it");
    assert!(answered("session/resume", &answer).expect_err("it does not have it here").contains("/result/"));
    let bare = json!({"id": 1, "result": {"sessionId": "s"}});
    assert!(answered("session/new", &bare).expect_err("no version").contains("jsonrpc"));
    assert!(answered("session/mood", &answer).expect_err("no such method").contains("not served"));
}
