//! What the methods are given: every spelling and omission that the dialect accepts, and nothing that it does not.
//! Fields this crate does not know are ignored; wrong types are errors that name the field.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::McpServer;

/// What is wrong with a call's parameters; one sentence for the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamsError(pub String);

impl fmt::Display for ParamsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "invalid params: {}", self.0)
    }
}

impl std::error::Error for ParamsError {}

fn parse<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, ParamsError> {
    let text = params.map_or("{}", RawValue::get);
    if text.starts_with('[') {
        return Err(ParamsError("expected an object".to_owned()));
    }
    serde_json::from_str(text).map_err(|error| ParamsError(without_position(&error)))
}

/// The error's text without line and column, which mean nothing to somebody who sent one line.
pub(crate) fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text.get(..at).unwrap_or(&text).to_owned(),
        None => text,
    }
}

/// Reads a value and treats a wrong type as absent: what cannot be read cannot be relied on.
fn lenient<T: DeserializeOwned + Default>(raw: Option<&RawValue>) -> T {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// `initialize`. Nothing in it is required, and no version is refused.
#[derive(Clone, Debug, Default)]
pub struct InitializeParams {
    /// What the client can do.
    pub client: ClientCapabilities,
    /// Its `clientInfo.name`.
    pub client_name: Option<String>,
    /// Its `clientInfo.version`.
    pub client_version: Option<String>,
}

/// What a client said it can do; omitted and malformed both mean no.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCapabilities {
    /// `fs.readTextFile`
    pub read_text_file: bool,
    /// `fs.writeTextFile`
    pub write_text_file: bool,
    /// `terminal`
    pub terminal: bool,
    /// `auth.terminal`
    pub auth_terminal: bool,
    /// `elicitation.form`
    pub elicitation_form: bool,
    /// `_meta.zeroclaw.seq`: wants sequence numbers on updates.
    pub seq: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawInitialize<'a> {
    #[serde(borrow)]
    client_capabilities: Option<&'a RawValue>,
    #[serde(borrow)]
    client_info: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawClientInfo {
    name: Option<String>,
    version: Option<String>,
}

type RawMap = BTreeMap<String, Box<RawValue>>;

fn member<T: DeserializeOwned + Default>(map: &RawMap, name: &str) -> T {
    lenient(map.get(name).map(AsRef::as_ref))
}

impl InitializeParams {
    /// Reads the parameters. Malformed ones count as absent: negotiation must not fail on what a newer client adds.
    #[must_use]
    pub fn parse(params: Option<&RawValue>) -> Self {
        let raw: RawInitialize<'_> = params.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let info: RawClientInfo = lenient(raw.client_info);
        let capabilities: RawMap = lenient(raw.client_capabilities);
        let fs: RawMap = member(&capabilities, "fs");
        let auth: RawMap = member(&capabilities, "auth");
        let elicitation: RawMap = member(&capabilities, "elicitation");
        let meta: RawMap = member(&capabilities, "_meta");
        let zeroclaw: RawMap = member(&meta, "zeroclaw");
        let client = ClientCapabilities {
            read_text_file: member(&fs, "readTextFile"),
            write_text_file: member(&fs, "writeTextFile"),
            terminal: member(&capabilities, "terminal"),
            auth_terminal: member(&auth, "terminal"),
            elicitation_form: elicitation.get("form").is_some_and(|raw| raw.get().starts_with('{')),
            seq: member(&zeroclaw, "seq"),
        };
        Self { client, client_name: info.name, client_version: info.version }
    }
}

/// `session/new`.
#[derive(Clone, Debug, Default)]
pub struct NewSessionParams {
    /// `cwd`, `workspaceDir` or `workspace_dir`.
    pub cwd: Option<String>,
    /// `agentAlias`, `agent_alias`, `agent` or `_meta.zeroclaw.agentAlias`, trimmed; blank is absent.
    pub agent: Option<String>,
    /// Further directories.
    pub additional_directories: Vec<String>,
    /// MCP servers of the client.
    pub mcp_servers: Vec<McpServer>,
    /// Instructions of the client.
    pub system_prompt: Option<SystemPrompt>,
}

fn servers(raw: Option<Vec<&RawValue>>) -> Result<Vec<McpServer>, ParamsError> {
    raw.unwrap_or_default().into_iter().map(McpServer::parse).collect()
}

/// Tells an absent member from `null`, which is refused where a value is expected.
fn present<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawNewSession<'a> {
    #[serde(alias = "workspaceDir", alias = "workspace_dir", deserialize_with = "present")]
    cwd: Option<String>,
    #[serde(alias = "agent_alias", alias = "agent")]
    agent_alias: Option<String>,
    additional_directories: Option<Vec<String>>,
    #[serde(borrow)]
    mcp_servers: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    system_prompt: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl NewSessionParams {
    /// Reads the parameters; all may be missing.
    ///
    /// # Errors
    /// Wrong types, `cwd: null` among them.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        let raw: RawNewSession<'_> = parse(params)?;
        let meta: RawMap = lenient(raw.meta);
        let zeroclaw: RawMap = member(&meta, "zeroclaw");
        let agent = raw.agent_alias.or_else(|| member::<Option<String>>(&zeroclaw, "agentAlias"));
        Ok(Self {
            cwd: raw.cwd,
            agent: agent.map(|alias| alias.trim().to_owned()).filter(|alias| !alias.is_empty()),
            additional_directories: raw.additional_directories.unwrap_or_default(),
            mcp_servers: servers(raw.mcp_servers)?,
            system_prompt: SystemPrompt::parse(raw.system_prompt)?,
        })
    }
}

/// `session/load`, `session/resume` and `session/fork`: the stored session says what is not given.
#[derive(Clone, Debug)]
pub struct LoadSessionParams {
    /// The session.
    pub session_id: String,
    /// Must be the session's own directory when given.
    pub cwd: Option<String>,
    /// The complete list of further directories when given.
    pub additional_directories: Option<Vec<String>>,
    /// MCP servers of the client.
    pub mcp_servers: Vec<McpServer>,
    /// Instructions of the client.
    pub system_prompt: Option<SystemPrompt>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLoadSession<'a> {
    #[serde(alias = "session_id")]
    session_id: String,
    #[serde(default, alias = "workspaceDir", alias = "workspace_dir")]
    cwd: Option<String>,
    #[serde(default)]
    additional_directories: Option<Vec<String>>,
    #[serde(borrow, default)]
    mcp_servers: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    system_prompt: Option<&'a RawValue>,
}

impl LoadSessionParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing session id, wrong types, a system prompt that cannot be applied.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        let raw: RawLoadSession<'_> = parse(params)?;
        Ok(Self {
            session_id: raw.session_id,
            cwd: raw.cwd,
            additional_directories: raw.additional_directories,
            mcp_servers: servers(raw.mcp_servers)?,
            system_prompt: SystemPrompt::parse(raw.system_prompt)?,
        })
    }
}

/// `session/prompt`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptParams<'a> {
    /// The session.
    #[serde(alias = "session_id")]
    pub session_id: String,
    /// The prompt as it came; [`crate::parse_prompt`] reads it.
    #[serde(borrow, alias = "content")]
    pub prompt: &'a RawValue,
}

impl<'a> PromptParams<'a> {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing session id or prompt, wrong types.
    pub fn parse(params: Option<&'a RawValue>) -> Result<Self, ParamsError> {
        parse(params)
    }
}

/// Methods that only name a session: cancel, close, stop.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionParams {
    /// The session.
    #[serde(alias = "session_id")]
    pub session_id: String,
}

impl SessionParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing session id, wrong types.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        parse(params)
    }
}

/// `session/set_mode`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetModeParams {
    /// The session.
    #[serde(alias = "session_id")]
    pub session_id: String,
    /// One of the modes on offer.
    #[serde(alias = "mode_id")]
    pub mode_id: String,
}

impl SetModeParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing id, wrong types.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        parse(params)
    }
}

/// `session/set_config_option`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetConfigOptionParams {
    /// The session.
    #[serde(alias = "session_id")]
    pub session_id: String,
    /// One of the options on offer.
    #[serde(alias = "config_id")]
    pub config_id: String,
    /// One of its values. Booleans are not on offer, so any other type is an error.
    pub value: String,
}

impl SetConfigOptionParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing id or value, wrong types.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        parse(params)
    }
}

/// `systemPrompt` of `session/new`, `session/load` and `session/resume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemPrompt {
    /// How it joins the agent's own instructions.
    pub mode: SystemPromptMode,
    /// Its text blocks joined with blank lines.
    pub text: String,
}

/// How a client's system prompt joins the agent's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemPromptMode {
    /// Behind it.
    Append,
    /// In place of the agent's built-in instructions; what the environment says stays.
    Override,
}

#[derive(Deserialize)]
struct RawSystemPrompt<'a> {
    mode: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

impl SystemPrompt {
    /// Reads the member. What cannot be applied is an error, never ignored (ACP v1, system prompt).
    ///
    /// # Errors
    /// An unknown mode, no content, blocks that are not text.
    fn parse(raw: Option<&RawValue>) -> Result<Option<Self>, ParamsError> {
        let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
        let fail = |what: String| ParamsError(format!("`systemPrompt`: {what}"));
        let parsed: RawSystemPrompt<'_> =
            serde_json::from_str(raw.get()).map_err(|error| fail(without_position(&error)))?;
        let mode = match parsed.mode.as_str() {
            "append" => SystemPromptMode::Append,
            "override" => SystemPromptMode::Override,
            other => return Err(fail(format!("unknown mode `{}`", other.escape_debug()))),
        };
        let parts = crate::parse_prompt(parsed.content).map_err(fail)?;
        let mut texts = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                crate::PromptPart::Text(text) => texts.push(text),
                _ => return Err(fail("only text blocks are supported".to_owned())),
            }
        }
        let text = texts.join("\n\n");
        if text.trim().is_empty() {
            return Err(fail("the content is empty".to_owned()));
        }
        Ok(Some(Self { mode, text }))
    }
}

/// `session/list`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ListSessionsParams {
    /// Only sessions of this directory.
    pub cwd: Option<String>,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

impl ListSessionsParams {
    /// Reads the parameters; all may be missing.
    ///
    /// # Errors
    /// Wrong types.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        parse(params)
    }
}

/// `session/update` and `session/event` towards the agent.
#[derive(Clone, Debug)]
pub struct SessionEventParams {
    /// The session.
    pub session_id: String,
    /// `update.sessionUpdate`, `update.type` or `type`; `event` when there is none.
    pub kind: String,
    /// Text for the model: `update.content` (a string or a text block) or `text`.
    pub text: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSessionEvent<'a> {
    #[serde(alias = "session_id")]
    session_id: String,
    #[serde(borrow, default)]
    update: Option<&'a RawValue>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    r#type: Option<String>,
}

impl SessionEventParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing session id, wrong types.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        let raw: RawSessionEvent<'_> = parse(params)?;
        let update: RawMap = lenient(raw.update);
        let named = |name: &str| member::<Option<String>>(&update, name);
        let block: RawMap = member(&update, "content");
        let text = raw.text.or_else(|| named("content")).or_else(|| member(&block, "text")).or_else(|| named("text"));
        let kind = named("sessionUpdate").or_else(|| named("type")).or(raw.r#type);
        let kind = kind.unwrap_or_else(|| "event".to_owned()).chars().take(64).collect();
        Ok(Self { session_id: raw.session_id, kind, text })
    }
}

/// `$/cancel_request`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelRequestParams<'a> {
    /// The request's id, raw.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
}

impl<'a> CancelRequestParams<'a> {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing id.
    pub fn parse(params: Option<&'a RawValue>) -> Result<Self, ParamsError> {
        parse(params)
    }
}

/// `authenticate`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthenticateParams {
    /// One of the advertised methods.
    #[serde(alias = "method_id")]
    pub method_id: String,
}

impl AuthenticateParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing method id.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        parse(params)
    }
}

/// The answer to `session/request_permission`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionOutcome {
    /// The person chose an option.
    Selected(String),
    /// The client withdrew the question, as it must when its turn is cancelled.
    Cancelled,
}

#[derive(Deserialize)]
struct RawPermissionResult {
    outcome: RawOutcome,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawOutcome {
    outcome: String,
    #[serde(default)]
    option_id: Option<String>,
}

impl PermissionOutcome {
    /// Reads the `result` member; `None` when it is not of the documented shape.
    #[must_use]
    pub fn parse(result: &RawValue) -> Option<Self> {
        let raw: RawPermissionResult = serde_json::from_str(result.get()).ok()?;
        match (raw.outcome.outcome.as_str(), raw.outcome.option_id) {
            ("selected", Some(option)) => Some(Self::Selected(option)),
            ("cancelled", _) => Some(Self::Cancelled),
            _ => None,
        }
    }
}
