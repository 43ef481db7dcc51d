//! Everything an official client can send: built with the official builders, every optional member present or absent,
//! written by the official types, and read by ours with the same meaning, member by member.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{LazyLock, Mutex},
};

use agent_client_protocol_schema::{
    ProtocolVersion,
    v1::{self, JsonRpcMessage, Notification, Request, Response},
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use zeroclaw_acp_protocol::{
    Frame, McpServer, MethodKind, NameValue, PromptPart, RequestId, ResourceBody, ResponseOutcome,
    params::{
        AuthenticateParams, CancelRequestParams, ClientCapabilities, InitializeParams, ListSessionsParams,
        LoadSessionParams, NewSessionParams, OptionValue, PermissionOutcome, PromptParams, SessionParams,
        SetConfigOptionParams, SetModeParams,
    },
    parse_prompt,
};

use crate::made::{id, json, maybe, one_of, path, some, text};

/// Cases for each method: each has at most a few dozen combinations of optional members.
const CASES: u32 = 256;

fn for_each<S: Strategy>(strategy: S, check: impl Fn(S::Value)) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&strategy, |made| {
        check(made);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

// ---- what the official builders make

fn meta() -> BoxedStrategy<Option<v1::Meta>> {
    let object = some((text(), json())).prop_map(|members| members.into_iter().collect::<v1::Meta>());
    maybe(object)
}

fn annotations() -> BoxedStrategy<Option<v1::Annotations>> {
    let audience = maybe(some(prop_oneof![Just(v1::Role::User), Just(v1::Role::Assistant)]));
    let made = (audience, maybe(text()), maybe(0.0..1.0), meta()).prop_map(|(audience, modified, priority, meta)| {
        v1::Annotations::new().audience(audience).last_modified(modified).priority(priority).meta(meta)
    });
    maybe(made)
}

/// A block, and what it means.
fn block() -> BoxedStrategy<(v1::ContentBlock, PromptPart)> {
    let text_block = (text(), annotations(), meta()).prop_map(|(text, annotations, meta)| {
        let block = v1::TextContent::new(text.as_str()).annotations(annotations).meta(meta);
        (v1::ContentBlock::Text(block), PromptPart::Text(text))
    });
    let image =
        (text(), text(), maybe(text()), annotations(), meta()).prop_map(|(data, mime_type, uri, annotations, meta)| {
            let block = v1::ImageContent::new(data.as_str(), mime_type.as_str());
            let block = block.uri(uri).annotations(annotations).meta(meta);
            (v1::ContentBlock::Image(block), PromptPart::Image { data, mime_type })
        });
    let audio = (text(), text(), annotations(), meta()).prop_map(|(data, mime_type, annotations, meta)| {
        let block = v1::AudioContent::new(data, mime_type).annotations(annotations).meta(meta);
        (v1::ContentBlock::Audio(block), PromptPart::Audio)
    });
    let names = ("[a-z]{1,4}:[a-z/ ]{0,8}", text(), maybe(text()));
    let link = (names, (maybe(text()), maybe(text()), maybe(any::<i64>())), annotations(), meta()).prop_map(
        |((uri, name, mime_type), (title, description, size), annotations, meta)| {
            let block = v1::ResourceLink::new(name.as_str(), uri.as_str()).mime_type(mime_type.clone());
            let block = block.title(title).description(description).size(size).annotations(annotations).meta(meta);
            (v1::ContentBlock::ResourceLink(block), PromptPart::ResourceLink { uri, name, mime_type })
        },
    );
    let resource = (any::<bool>(), text(), text(), maybe(text()), annotations(), (meta(), meta())).prop_map(
        |(is_text, content, uri, mime_type, annotations, (meta, inner))| {
            let (contents, body) = if is_text {
                let contents = v1::TextResourceContents::new(content.as_str(), uri.as_str());
                let contents = contents.mime_type(mime_type.clone()).meta(inner);
                (v1::EmbeddedResourceResource::TextResourceContents(contents), ResourceBody::Text(content))
            } else {
                let contents = v1::BlobResourceContents::new(content.as_str(), uri.as_str());
                let contents = contents.mime_type(mime_type.clone()).meta(inner);
                (v1::EmbeddedResourceResource::BlobResourceContents(contents), ResourceBody::Blob(content))
            };
            let block = v1::EmbeddedResource::new(contents).annotations(annotations).meta(meta);
            (v1::ContentBlock::Resource(block), PromptPart::Resource { uri, mime_type, body })
        },
    );
    prop_oneof![text_block, image, audio, link, resource].boxed()
}

/// Names with values, as headers and as variables, and what they mean.
type Pairs = Vec<(String, String, Option<v1::Meta>)>;

fn pairs() -> BoxedStrategy<Pairs> {
    some((text(), text(), meta()))
}

fn meant(pairs: Pairs) -> Vec<NameValue> {
    pairs.into_iter().map(|(name, value, _)| NameValue { name, value }).collect()
}

fn headers(pairs: Pairs) -> Vec<v1::HttpHeader> {
    pairs.into_iter().map(|(name, value, meta)| v1::HttpHeader::new(name, value).meta(meta)).collect()
}

fn variables(pairs: Pairs) -> Vec<v1::EnvVariable> {
    pairs.into_iter().map(|(name, value, meta)| v1::EnvVariable::new(name, value).meta(meta)).collect()
}

/// A server, and what it means.
fn mcp_server() -> BoxedStrategy<(v1::McpServer, McpServer)> {
    let stdio = (text(), path(), some(text()), pairs(), meta()).prop_map(|(name, command, args, env, meta)| {
        let server = v1::McpServerStdio::new(name.clone(), command.clone()).args(args.clone());
        let command = strings(&[command]).remove(0);
        let server = server.env(variables(env.clone())).meta(meta);
        (v1::McpServer::Stdio(server), McpServer::Stdio { name, command, args, env: meant(env) })
    });
    // An address has a letter at least: an empty one names no server.
    let address = "[a-z]{1,5}:[a-z/ ]{0,8}";
    let http = (text(), address, pairs(), meta()).prop_map(|(name, url, pairs, meta)| {
        let server = v1::McpServerHttp::new(name.clone(), url.clone()).headers(headers(pairs.clone())).meta(meta);
        (v1::McpServer::Http(server), McpServer::Http { name, url, headers: meant(pairs) })
    });
    // Deprecated, and nothing of ours speaks it.
    let sse = (text(), address, pairs(), meta()).prop_map(|(name, url, pairs, meta)| {
        let server = v1::McpServerSse::new(name.clone(), url).headers(headers(pairs)).meta(meta);
        (v1::McpServer::Sse(server), McpServer::Other { name, transport: "sse".to_owned() })
    });
    prop_oneof![stdio, http, sse].boxed()
}

/// The members that all requests share which open a session.
#[derive(Clone, Debug)]
struct Opening {
    session: String,
    cwd: PathBuf,
    directories: Vec<PathBuf>,
    servers: Vec<v1::McpServer>,
    /// What the servers mean.
    meant: Vec<McpServer>,
    meta: Option<v1::Meta>,
}

fn opening() -> BoxedStrategy<Opening> {
    (text(), path(), some(path()), some(mcp_server()), meta())
        .prop_map(|(session, cwd, directories, servers, meta)| {
            let (servers, meant) = servers.into_iter().unzip();
            Opening { session, cwd, directories, servers, meant, meta }
        })
        .boxed()
}

fn strings(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.to_str().expect("made of text").to_owned()).collect()
}

// ---- from their line to our parameters

/// The places of all members that were made, by method: this proves that no builder was forgotten.
static MADE: LazyLock<Mutex<BTreeMap<String, BTreeSet<String>>>> = LazyLock::new(Mutex::default);

fn record(method: &str, params: Option<&RawValue>) {
    fn walk(value: &Value, at: &str, places: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let place = format!("{at}/{name}");
                    // What is inside belongs to nobody.
                    if name != "_meta" {
                        walk(member, &place, places);
                    }
                    places.insert(place);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, &format!("{at}/*"), places)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let value = params.map_or(Value::Null, |raw| serde_json::from_str(raw.get()).expect("raw JSON"));
    let mut made = MADE.lock().expect("no test fails while it holds the lock");
    walk(&value, "", made.entry(method.to_owned()).or_default());
}

/// Writes a request with the official types and reads its envelope with ours.
fn request<T: Serialize>(method: &str, params: T) -> (MethodKind, Option<Box<RawValue>>) {
    let request = Request { id: v1::RequestId::Number(1), method: method.into(), params: Some(params) };
    let line = serde_json::to_string(&JsonRpcMessage::wrap(request)).expect("official types can be written");
    match Frame::parse(line.as_bytes()) {
        Ok(Frame::Request { method, params, .. }) => {
            record(&method, params);
            let kind = MethodKind::from_name(&method).unwrap_or_else(|| panic!("`{method}` is not served"));
            (kind, params.map(ToOwned::to_owned))
        }
        other => panic!("{line} is no request: {other:?}"),
    }
}

/// The same for a notification.
fn notification<T: Serialize>(method: &str, params: T) -> (MethodKind, Option<Box<RawValue>>) {
    let message = Notification { method: method.into(), params: Some(params) };
    let line = serde_json::to_string(&JsonRpcMessage::wrap(message)).expect("official types can be written");
    match Frame::parse(line.as_bytes()) {
        Ok(Frame::Notification { method, params }) => {
            record(&method, params);
            let kind = MethodKind::from_name(&method).unwrap_or_else(|| panic!("`{method}` is not served"));
            (kind, params.map(ToOwned::to_owned))
        }
        other => panic!("{line} is no notification: {other:?}"),
    }
}

// ---- the tests

/// Compares what the other tests make with the JSON Schema: each member of each call of a client is made somewhere.
#[cfg(feature = "newest")]
#[test]
fn every_official_member_is_made() {
    let tests: [fn(); 12] = [
        initialize,
        session_new,
        session_load_resume_and_fork,
        system_prompts,
        session_prompt,
        methods_that_name_a_session,
        session_list,
        session_set_mode,
        session_set_config_option,
        authenticate,
        logout,
        cancel_request,
    ];
    tests.iter().for_each(|test| test());
    let made = MADE.lock().expect("the tests above have passed");
    let mut forgotten = BTreeSet::new();
    for (method, places) in zeroclaw_schema_judges::JsonSchema::official().client_calls() {
        let made = made.get(&method).cloned().unwrap_or_default();
        forgotten.extend(places.difference(&made).map(|place| format!("{method} {place}")));
    }
    assert_eq!(forgotten, BTreeSet::new());
}

#[test]
fn initialize() {
    let flags = any::<[bool; 12]>();
    let versions = one_of(&[ProtocolVersion::V0, ProtocolVersion::V1, ProtocolVersion::LATEST]);
    let info = maybe((text(), text(), maybe(text()), meta()));
    for_each((flags, versions, info, meta()), |(flags, version, info, meta)| {
        let [read, write, terminal, auth, session, options, boolean, elicitation, form, url, plan, has_fs_meta] = flags;
        let newest = cfg!(feature = "newest");
        // The newest client that has a plan replaces what it says of sessions, see below.
        let (session_kept, options_kept) = (session && !(newest && plan), options && boolean);
        let fs = v1::FileSystemCapabilities::new().read_text_file(read).write_text_file(write);
        let fs = fs.meta(has_fs_meta.then(v1::Meta::new));
        let boolean = boolean.then(|| v1::BooleanConfigOptionCapabilities::new().meta(meta.clone()));
        let options = options.then(|| v1::SessionConfigOptionsCapabilities::new().boolean(boolean).meta(meta.clone()));
        let session = session.then(|| v1::ClientSessionCapabilities::new().config_options(options).meta(meta.clone()));
        let (form_marker, url_marker) = (
            form.then(|| v1::ElicitationFormCapabilities::new().meta(meta.clone())),
            url.then(|| v1::ElicitationUrlCapabilities::new().meta(meta.clone())),
        );
        let asks = elicitation
            .then(|| v1::ElicitationCapabilities::new().form(form_marker).url(url_marker).meta(meta.clone()));
        let capabilities = v1::ClientCapabilities::new()
            .fs(fs)
            .terminal(terminal)
            .session(session)
            .auth(v1::AuthCapabilities::new().terminal(auth).meta(meta.clone()))
            .elicitation(asks)
            .meta(meta.clone());
        #[cfg(feature = "newest")]
        let capabilities = {
            let all = v1::ClientSessionCapabilities::new()
                .notices(v1::NoticeCapabilities::default())
                .compaction(v1::CompactionCapabilities::default());
            let capabilities = if plan { capabilities.session(all) } else { capabilities };
            capabilities.plan(plan.then(v1::PlanCapabilities::new)).subagents(plan.then(v1::SubagentCapabilities::new))
        };
        #[cfg(not(feature = "newest"))]
        let _only_newer = plan;
        let client = info
            .clone()
            .map(|(name, version, title, meta)| v1::Implementation::new(name, version).title(title).meta(meta));
        let made = v1::InitializeRequest::new(version).client_capabilities(capabilities).client_info(client).meta(meta);
        let (kind, params) = request("initialize", made);
        assert_eq!(kind, MethodKind::Initialize);
        let ours = InitializeParams::parse(params.as_deref());
        let expected = ClientCapabilities {
            read_text_file: read,
            write_text_file: write,
            terminal,
            auth_terminal: auth,
            elicitation_form: elicitation && form,
            boolean_options: session_kept && options_kept,
            notices: newest && plan,
            compaction: newest && plan,
            plan: newest && plan,
            subagents: newest && plan,
            seq: false,
        };
        assert_eq!(ours.client, expected);
        assert_eq!(ours.client_name.as_deref(), info.as_ref().map(|info| info.0.as_str()));
        assert_eq!(ours.client_version.as_deref(), info.as_ref().map(|info| info.1.as_str()));
    });
}

#[test]
fn session_new() {
    for_each(opening(), |made| {
        let official = v1::NewSessionRequest::new(made.cwd.clone())
            .additional_directories(made.directories.clone())
            .mcp_servers(made.servers.clone())
            .meta(made.meta.clone());
        let (kind, params) = request("session/new", official);
        assert_eq!(kind, MethodKind::SessionNew);
        let ours = NewSessionParams::parse(params.as_deref()).expect("an official request");
        assert_eq!(ours.cwd.as_deref(), made.cwd.to_str());
        assert_eq!(ours.additional_directories, strings(&made.directories));
        assert_eq!(ours.mcp_servers, made.meant);
        assert_eq!(ours.agent, None);
        assert_eq!(ours.system_prompt, None);
    });
}

#[test]
fn session_load_resume_and_fork() {
    for_each(opening(), |made| {
        let load = v1::LoadSessionRequest::new(made.session.as_str().to_owned(), made.cwd.clone())
            .additional_directories(made.directories.clone())
            .mcp_servers(made.servers.clone())
            .meta(made.meta.clone());
        let resume = v1::ResumeSessionRequest::new(made.session.as_str().to_owned(), made.cwd.clone())
            .additional_directories(made.directories.clone())
            .mcp_servers(made.servers.clone())
            .meta(made.meta.clone());
        let fork = v1::ForkSessionRequest::new(made.session.as_str().to_owned(), made.cwd.clone())
            .additional_directories(made.directories.clone())
            .mcp_servers(made.servers.clone())
            .meta(made.meta.clone());
        let requests = [
            (MethodKind::SessionLoad, request("session/load", load)),
            (MethodKind::SessionResume, request("session/resume", resume)),
            (MethodKind::SessionFork, request("session/fork", fork)),
        ];
        for (expected, (kind, params)) in requests {
            assert_eq!(kind, expected);
            let ours = LoadSessionParams::parse(params.as_deref()).expect("an official request");
            assert_eq!(ours.session_id, made.session);
            assert_eq!(ours.cwd.as_deref(), made.cwd.to_str());
            // The official types write an empty list by leaving it out.
            assert_eq!(ours.additional_directories.unwrap_or_default(), strings(&made.directories));
            assert_eq!(ours.mcp_servers, made.meant);
            assert_eq!(ours.system_prompt, None);
        }
    });
}

#[cfg(feature = "newest")]
#[test]
fn system_prompts() {
    use zeroclaw_acp_protocol::params::{SystemPrompt, SystemPromptMode};

    let mode = prop_oneof![
        Just(v1::SystemPromptMode::Append),
        Just(v1::SystemPromptMode::Override),
        "[a-z_]{1,12}".prop_map(v1::SystemPromptMode::Other),
    ];
    for_each((opening(), mode, some(block()), meta()), |(made, mode, blocks, meta)| {
        let (blocks, parts): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
        let official = v1::SystemPrompt::new(blocks).mode(mode.clone()).meta(meta);
        let new = v1::NewSessionRequest::new(made.cwd.clone()).system_prompt(official.clone());
        let load = v1::LoadSessionRequest::new(made.session.clone(), made.cwd.clone()).system_prompt(official.clone());
        let resume = v1::ResumeSessionRequest::new(made.session.clone(), made.cwd.clone()).system_prompt(official);
        let read = [
            NewSessionParams::parse(request("session/new", new).1.as_deref()).map(|params| params.system_prompt),
            LoadSessionParams::parse(request("session/load", load).1.as_deref()).map(|params| params.system_prompt),
            LoadSessionParams::parse(request("session/resume", resume).1.as_deref()).map(|params| params.system_prompt),
        ];
        let texts: Option<Vec<String>> = parts
            .into_iter()
            .map(|part| match part {
                PromptPart::Text(text) => Some(text),
                PromptPart::ResourceLink { .. }
                | PromptPart::Resource { .. }
                | PromptPart::Image { .. }
                | PromptPart::Audio
                | PromptPart::Unknown(_) => None,
            })
            .collect();
        let mode = match mode.clone() {
            v1::SystemPromptMode::Append => Some(SystemPromptMode::Append),
            v1::SystemPromptMode::Override => Some(SystemPromptMode::Override),
            other => match serde_json::to_value(other).expect("a mode can be written").as_str() {
                Some("append") => Some(SystemPromptMode::Append),
                Some("override") => Some(SystemPromptMode::Override),
                _ => None,
            },
        };
        let text = texts.map(|texts| texts.join("\n\n")).filter(|text| !text.trim().is_empty());
        for read in read {
            match (mode, &text) {
                (Some(mode), Some(text)) => {
                    assert_eq!(read.expect("it can be applied"), Some(SystemPrompt { mode, text: text.clone() }));
                }
                // "MUST return an error" for an unknown mode and for blocks that are not text; empty MAY be refused.
                (None, _) | (_, None) => assert!(read.is_err(), "a system prompt that cannot be applied is an error"),
            }
        }
    });
}

#[test]
fn session_prompt() {
    for_each((text(), some(block()), meta()), |(session, blocks, meta)| {
        let (blocks, parts): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
        let official = v1::PromptRequest::new(session.clone(), blocks).meta(meta);
        let (kind, params) = request("session/prompt", official);
        assert_eq!(kind, MethodKind::SessionPrompt);
        let ours = PromptParams::parse(params.as_deref()).expect("an official request");
        assert_eq!(ours.session_id, session);
        assert_eq!(parse_prompt(ours.prompt), Ok(parts));
    });
}

#[test]
fn methods_that_name_a_session() {
    for_each((text(), meta()), |(session, meta)| {
        let close = v1::CloseSessionRequest::new(session.clone()).meta(meta.clone());
        let delete = v1::DeleteSessionRequest::new(session.clone()).meta(meta.clone());
        let cancel = v1::CancelNotification::new(session.clone()).meta(meta);
        let calls = [
            (MethodKind::SessionClose, request("session/close", close)),
            (MethodKind::SessionDelete, request("session/delete", delete)),
            (MethodKind::SessionCancel, notification("session/cancel", cancel)),
        ];
        for (expected, (kind, params)) in calls {
            assert_eq!(kind, expected);
            assert_eq!(SessionParams::parse(params.as_deref()).expect("an official call").session_id, session);
        }
    });
}

#[test]
fn session_list() {
    for_each((maybe(path()), maybe(text()), meta()), |(cwd, cursor, meta)| {
        let official = v1::ListSessionsRequest::new().cwd(cwd.clone()).cursor(cursor.clone()).meta(meta);
        let (kind, params) = request("session/list", official);
        assert_eq!(kind, MethodKind::SessionList);
        let ours = ListSessionsParams::parse(params.as_deref()).expect("an official request");
        assert_eq!(ours.cwd.as_deref(), cwd.as_ref().and_then(|path| path.to_str()));
        assert_eq!(ours.cursor, cursor);
    });
}

#[test]
fn session_set_mode() {
    for_each((text(), text(), meta()), |(session, mode, meta)| {
        let official = v1::SetSessionModeRequest::new(session.clone(), mode.clone()).meta(meta);
        let (kind, params) = request("session/set_mode", official);
        assert_eq!(kind, MethodKind::SetMode);
        let ours = SetModeParams::parse(params.as_deref()).expect("an official request");
        assert_eq!((ours.session_id, ours.mode_id), (session, mode));
    });
}

#[test]
fn session_set_config_option() {
    let value = prop_oneof![
        text().prop_map(v1::SessionConfigOptionValue::value_id),
        any::<bool>().prop_map(v1::SessionConfigOptionValue::boolean),
    ];
    for_each((text(), text(), value, meta()), |(session, option, value, meta)| {
        let official = v1::SetSessionConfigOptionRequest::new(session.clone(), option.clone(), value.clone());
        let (kind, params) = request("session/set_config_option", official.meta(meta));
        assert_eq!(kind, MethodKind::SetConfigOption);
        let ours = SetConfigOptionParams::parse(params.as_deref());
        let ours = ours.expect("an official request");
        let expected = match value.as_value_id() {
            Some(id) => OptionValue::Id(id.to_string()),
            None => OptionValue::Flag(value.as_bool().expect("an id or a boolean")),
        };
        assert_eq!((ours.session_id, ours.config_id, ours.value), (session, option, expected));
    });
}

#[test]
fn authenticate() {
    for_each((text(), meta()), |(method, meta)| {
        let official = v1::AuthenticateRequest::new(method.clone()).meta(meta);
        let (kind, params) = request("authenticate", official);
        assert_eq!(kind, MethodKind::Authenticate);
        assert_eq!(AuthenticateParams::parse(params.as_deref()).expect("an official request").method_id, method);
    });
}

#[test]
fn logout() {
    for_each(meta(), |meta| {
        let (kind, _) = request("logout", v1::LogoutRequest::new().meta(meta));
        assert_eq!(kind, MethodKind::Logout);
    });
}

fn official_id(id: &Value) -> v1::RequestId {
    serde_json::from_value(id.clone()).expect("an official id")
}

#[test]
fn cancel_request() {
    for_each((id(), meta()), |(id, meta)| {
        let official = v1::CancelRequestNotification::new(official_id(&id)).meta(meta);
        let (kind, params) = notification("$/cancel_request", official);
        assert_eq!(kind, MethodKind::CancelRequest);
        let ours = CancelRequestParams::parse(params.as_deref()).expect("an official notification");
        assert_eq!(serde_json::from_str::<Value>(ours.request_id.get()).expect("raw JSON"), id);
    });
}

#[test]
fn answers_to_a_permission_request() {
    let outcome = maybe((text(), meta()));
    for_each((id(), outcome, meta()), |(id, chosen, meta)| {
        let (outcome, expected) = match chosen {
            Some((option, inner)) => {
                let selected = v1::SelectedPermissionOutcome::new(option.clone()).meta(inner);
                (v1::RequestPermissionOutcome::Selected(selected), PermissionOutcome::Selected(option))
            }
            None => (v1::RequestPermissionOutcome::Cancelled, PermissionOutcome::Cancelled),
        };
        let official = v1::RequestPermissionResponse::new(outcome).meta(meta);
        let line = answer_line(&id, Ok(official));
        match Frame::parse(line.as_bytes()) {
            Ok(Frame::Response { id: ours, outcome: ResponseOutcome::Result(result) }) => {
                assert_eq!(json_of(&ours), id);
                assert_eq!(PermissionOutcome::parse(result), Some(expected));
            }
            other => panic!("{line} is no result: {other:?}"),
        }
    });
}

#[test]
fn errors_of_a_client() {
    for_each((id(), any::<i32>(), text(), maybe(json())), |(id, code, message, data)| {
        let error = v1::Error::new(code, message.clone()).data(data);
        let line = answer_line::<v1::RequestPermissionResponse>(&id, Err(error));
        match Frame::parse(line.as_bytes()) {
            Ok(Frame::Response { id: ours, outcome: ResponseOutcome::Error(error) }) => {
                assert_eq!(json_of(&ours), id);
                assert_eq!((error.code, error.message), (i64::from(code), message));
            }
            other => panic!("{line} is no error: {other:?}"),
        }
    });
}

fn answer_line<T: Serialize>(id: &Value, outcome: Result<T, v1::Error>) -> String {
    let response = Response::new(official_id(id), outcome);
    serde_json::to_string(&JsonRpcMessage::wrap(response)).expect("official types can be written")
}

fn json_of(id: &RequestId) -> Value {
    serde_json::from_str(id.as_json()).expect("an id is JSON")
}
