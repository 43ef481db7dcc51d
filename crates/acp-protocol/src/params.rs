//! What the methods are given: every spelling and omission that the dialect accepts, and nothing that it does not.
//! Fields this crate does not know are ignored; wrong types are errors that name the field.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{McpServer, members::Members};

/// The spellings of the parameters that have several.
const SESSION_ID: &[&str] = &["sessionId", "session_id"];
const CWD: &[&str] = &["cwd", "workspaceDir", "workspace_dir"];
const AGENT: &[&str] = &["agentAlias", "agent_alias", "agent"];

/// What is wrong with a call's parameters; one sentence for the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamsError(pub String);

impl fmt::Display for ParamsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "invalid params: {}", self.0)
    }
}

impl std::error::Error for ParamsError {}

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
    /// `session.configOptions.boolean`
    pub boolean_options: bool,
    /// `session.notices`
    pub notices: bool,
    /// `session.compaction`
    pub compaction: bool,
    /// `plan`
    pub plan: bool,
    /// `subagents`
    pub subagents: bool,
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

/// Whether a capability is marked with an object; `true` is none.
fn marked(map: &RawMap, name: &str) -> bool {
    map.get(name).is_some_and(|raw| raw.get().starts_with('{'))
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
        let session: RawMap = member(&capabilities, "session");
        let options: RawMap = member(&session, "configOptions");
        let meta: RawMap = member(&capabilities, "_meta");
        let zeroclaw: RawMap = member(&meta, "zeroclaw");
        let client = ClientCapabilities {
            read_text_file: member(&fs, "readTextFile"),
            write_text_file: member(&fs, "writeTextFile"),
            terminal: member(&capabilities, "terminal"),
            auth_terminal: member(&auth, "terminal"),
            elicitation_form: marked(&elicitation, "form"),
            boolean_options: marked(&options, "boolean"),
            notices: marked(&session, "notices"),
            compaction: marked(&session, "compaction"),
            plan: marked(&capabilities, "plan"),
            subagents: marked(&capabilities, "subagents"),
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

impl NewSessionParams {
    /// Reads the parameters; all may be missing.
    ///
    /// # Errors
    /// Wrong types, `cwd: null` among them.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        let members = Members::parse(params)?;
        let meta: RawMap = lenient(members.raw(&["_meta"])?);
        let zeroclaw: RawMap = member(&meta, "zeroclaw");
        let agent = members.optional(AGENT)?.or_else(|| member::<Option<String>>(&zeroclaw, "agentAlias"));
        Ok(Self {
            cwd: members.present(CWD)?,
            agent: agent.map(|alias| alias.trim().to_owned()).filter(|alias| !alias.is_empty()),
            additional_directories: members.optional(&["additionalDirectories"])?.unwrap_or_default(),
            mcp_servers: servers(members.optional(&["mcpServers"])?)?,
            system_prompt: SystemPrompt::parse(members.raw(&["systemPrompt"])?)?,
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

impl LoadSessionParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing session id, wrong types, a system prompt that cannot be applied.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        let members = Members::parse(params)?;
        Ok(Self {
            session_id: members.required(SESSION_ID)?,
            cwd: members.optional(CWD)?,
            additional_directories: members.optional(&["additionalDirectories"])?,
            mcp_servers: servers(members.optional(&["mcpServers"])?)?,
            system_prompt: SystemPrompt::parse(members.raw(&["systemPrompt"])?)?,
        })
    }
}

/// `session/prompt`.
#[derive(Clone, Debug)]
pub struct PromptParams<'a> {
    /// The session.
    pub session_id: String,
    /// The prompt as it came; [`crate::parse_prompt`] reads it.
    pub prompt: &'a RawValue,
}

impl<'a> PromptParams<'a> {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing session id or prompt, wrong types.
    pub fn parse(params: Option<&'a RawValue>) -> Result<Self, ParamsError> {
        let members = Members::parse(params)?;
        Ok(Self { session_id: members.required(SESSION_ID)?, prompt: members.required(&["prompt", "content"])? })
    }
}

/// Methods that only name a session: cancel, close, stop.
#[derive(Clone, Debug)]
pub struct SessionParams {
    /// The session.
    pub session_id: String,
}

impl SessionParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing session id, wrong types.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        let members = Members::parse(params)?;
        Ok(Self { session_id: members.required(SESSION_ID)? })
    }
}

/// `_zeroclaw/session/attach`.
#[derive(Clone, Debug)]
pub struct AttachParams {
    /// The session.
    pub session_id: String,
    /// The last number that the client has seen; what follows is sent.
    pub after_seq: u64,
}

impl AttachParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing session id, wrong types.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        let members = Members::parse(params)?;
        Ok(Self {
            session_id: members.required(SESSION_ID)?,
            after_seq: members.optional(&["afterSeq"])?.unwrap_or_default(),
        })
    }
}

/// `session/set_mode`.
#[derive(Clone, Debug)]
pub struct SetModeParams {
    /// The session.
    pub session_id: String,
    /// One of the modes on offer.
    pub mode_id: String,
}

impl SetModeParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing id, wrong types.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        let members = Members::parse(params)?;
        Ok(Self { session_id: members.required(SESSION_ID)?, mode_id: members.required(&["modeId", "mode_id"])? })
    }
}

/// `session/set_config_option`.
#[derive(Clone, Debug)]
pub struct SetConfigOptionParams {
    /// The session.
    pub session_id: String,
    /// One of the options on offer.
    pub config_id: String,
    /// One of its values.
    pub value: OptionValue,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a value's id or a boolean")]
pub enum OptionValue {
    /// Of an option with several values: the value's id.
    Id(String),
    /// Of an option that is on or off.
    Flag(bool),
}

impl SetConfigOptionParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing id or value, wrong types.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        let members = Members::parse(params)?;
        let config_id = members.required(&["configId", "config_id"])?;
        // What `type` says follows from the value; a client that says it wrongly is not helped by an error.
        let value = members.required(&["value"])?;
        Ok(Self { session_id: members.required(SESSION_ID)?, config_id, value })
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
#[derive(Clone, Debug, Default)]
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
        let members = Members::parse(params)?;
        Ok(Self { cwd: members.optional(&["cwd"])?, cursor: members.optional(&["cursor"])? })
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

impl SessionEventParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing session id, wrong types.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        let members = Members::parse(params)?;
        let session_id = members.required(SESSION_ID)?;
        let update: RawMap = lenient(members.raw(&["update"])?);
        let named = |name: &str| member::<Option<String>>(&update, name);
        let block: RawMap = member(&update, "content");
        let text = members.optional(&["text"])?;
        let text = text.or_else(|| named("content")).or_else(|| member(&block, "text")).or_else(|| named("text"));
        let kind = named("sessionUpdate").or_else(|| named("type")).or(members.optional(&["type"])?);
        let kind = kind.unwrap_or_else(|| "event".to_owned()).chars().take(64).collect();
        Ok(Self { session_id, kind, text })
    }
}

/// `$/cancel_request`.
#[derive(Clone, Debug)]
pub struct CancelRequestParams<'a> {
    /// The request's id, raw.
    pub request_id: &'a RawValue,
}

impl<'a> CancelRequestParams<'a> {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing id.
    pub fn parse(params: Option<&'a RawValue>) -> Result<Self, ParamsError> {
        let members = Members::parse(params)?;
        Ok(Self { request_id: members.required(&["requestId", "request_id"])? })
    }
}

/// `authenticate`.
#[derive(Clone, Debug)]
pub struct AuthenticateParams {
    /// One of the advertised methods.
    pub method_id: String,
}

impl AuthenticateParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// A missing method id.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, ParamsError> {
        let members = Members::parse(params)?;
        Ok(Self { method_id: members.required(&["methodId", "method_id"])? })
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
