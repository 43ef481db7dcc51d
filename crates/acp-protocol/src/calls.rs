//! What a client sends: parameters of the methods and answers to the agent's questions, in the official spelling.
//! Everything borrows; absent optional members are left out. What an agent accepts beyond is in [`crate::params`].

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{ContentBlock, RequestId, params::SystemPromptMode};

/// `initialize`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialize<'a> {
    /// [`crate::PROTOCOL_VERSION`]
    pub protocol_version: u16,
    /// What the client can do.
    pub client_capabilities: Capabilities,
    /// Who calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_info: Option<ClientInfo<'a>>,
}

/// The calling program.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ClientInfo<'a> {
    /// For programs.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
}

/// What a client can do, flat; written as the nested objects of the protocol, and only what is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own in the protocol")]
pub struct Capabilities {
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
    /// `elicitation.url`
    pub elicitation_url: bool,
    /// `session.configOptions.boolean`
    pub boolean_options: bool,
    /// `session.notices`
    pub notices: bool,
    /// `_meta.zeroclaw.seq`: numbers on updates.
    pub seq: bool,
}

/// Serialises only the pairs that are switched on.
struct Flags<'a, T>(&'a [(&'static str, bool)], T);

impl<T: Serialize> Serialize for Flags<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, _) in self.0.iter().filter(|(_, on)| *on) {
            map.serialize_entry(name, &self.1)?;
        }
        map.end()
    }
}

impl Serialize for Capabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let empty = crate::result::Empty {};
        let mut map = serializer.serialize_map(None)?;
        if self.read_text_file || self.write_text_file {
            let flags = [("readTextFile", self.read_text_file), ("writeTextFile", self.write_text_file)];
            map.serialize_entry("fs", &Flags(&flags, true))?;
        }
        if self.terminal {
            map.serialize_entry("terminal", &true)?;
        }
        if self.auth_terminal {
            map.serialize_entry("auth", &Flags(&[("terminal", true)], true))?;
        }
        if self.boolean_options || self.notices {
            let options = Flags(&[("boolean", true)], empty);
            let mut session = std::collections::BTreeMap::new();
            if self.boolean_options {
                session.insert("configOptions", &options);
            }
            let none = Flags(&[], empty);
            if self.notices {
                session.insert("notices", &none);
            }
            map.serialize_entry("session", &session)?;
        }
        if self.elicitation_form || self.elicitation_url {
            let flags = [("form", self.elicitation_form), ("url", self.elicitation_url)];
            map.serialize_entry("elicitation", &Flags(&flags, empty))?;
        }
        if self.seq {
            map.serialize_entry("_meta", &Flags(&[("zeroclaw", true)], Flags(&[("seq", true)], true)))?;
        }
        map.end()
    }
}

/// `session/new`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSession<'a> {
    /// Absolute.
    pub cwd: &'a str,
    /// The protocol wants the list even when it is empty.
    pub mcp_servers: &'a [McpServer<'a>],
    /// Further directories, absolute.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub additional_directories: &'a [&'a str],
    /// Instructions for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<SystemPrompt<'a>>,
    /// ZeroClaw: which agent.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent<'a>>,
}

impl<'a> NewSession<'a> {
    /// A session in this directory, and nothing else.
    #[must_use]
    pub fn new(cwd: &'a str) -> Self {
        Self { cwd, mcp_servers: &[], additional_directories: &[], system_prompt: None, agent: None }
    }
}

/// The alias of an agent, written as `_meta.zeroclaw.agentAlias`.
#[derive(Clone, Copy, Debug)]
pub struct Agent<'a>(pub &'a str);

impl Serialize for Agent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Flags(&[("zeroclaw", true)], Flags(&[("agentAlias", true)], self.0)).serialize(serializer)
    }
}

/// Instructions for the model.
#[derive(Clone, Debug)]
pub struct SystemPrompt<'a> {
    /// How they join the agent's own.
    pub mode: SystemPromptMode,
    /// Their text.
    pub text: &'a str,
}

impl Serialize for SystemPrompt<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mode = match self.mode {
            SystemPromptMode::Append => "append",
            SystemPromptMode::Override => "override",
        };
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("mode", mode)?;
        map.serialize_entry("content", &[ContentBlock::text(self.text)])?;
        map.end()
    }
}

/// A server whose tools the session may use.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum McpServer<'a> {
    /// A program to start.
    Stdio {
        /// For people.
        name: &'a str,
        /// Absolute.
        command: &'a str,
        /// Its arguments.
        args: &'a [&'a str],
        /// Its further environment.
        env: &'a [Pair<'a>],
    },
    /// A server at an address.
    Http {
        /// `http`
        r#type: HttpType,
        /// For people.
        name: &'a str,
        /// The address.
        url: &'a str,
        /// Further headers.
        headers: &'a [Pair<'a>],
    },
}

/// The word `http`.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpType {
    /// Streamable HTTP.
    Http,
}

/// A variable or a header.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value.
    pub value: &'a str,
}

/// `session/load`, `session/resume` and `session/fork`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadSession<'a> {
    /// The session.
    pub session_id: &'a str,
    /// Its own directory.
    pub cwd: &'a str,
    /// The protocol wants the list even when it is empty.
    pub mcp_servers: &'a [McpServer<'a>],
}

/// `session/prompt`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prompt<'a> {
    /// The session.
    pub session_id: &'a str,
    /// What is said.
    pub prompt: &'a [ContentBlock<'a>],
}

/// `session/cancel`, `session/close`, `session/stop` and `session/delete`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Session<'a> {
    /// The session.
    pub session_id: &'a str,
}

/// `session/list`
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ListSessions<'a> {
    /// Only sessions of this directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<&'a str>,
    /// Where the last page ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<&'a str>,
}

/// `session/set_mode`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetMode<'a> {
    /// The session.
    pub session_id: &'a str,
    /// One of the modes on offer.
    pub mode_id: &'a str,
}

/// `session/set_config_option`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetConfigOption<'a> {
    /// The session.
    pub session_id: &'a str,
    /// One of the options on offer.
    pub config_id: &'a str,
    /// One of its values.
    pub value: &'a str,
}

/// `authenticate`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Authenticate<'a> {
    /// One of the methods on offer.
    pub method_id: &'a str,
}

/// `$/cancel_request`
#[derive(Clone, Copy, Debug)]
pub struct CancelRequest<'a> {
    /// The id the request was sent with.
    pub request_id: &'a RequestId,
}

impl Serialize for CancelRequest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &serde_json::value::RawValue =
            serde_json::from_str(self.request_id.as_json()).map_err(serde::ser::Error::custom)?;
        Flags(&[("requestId", true)], raw).serialize(serializer)
    }
}

/// The answer to `session/request_permission`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionAnswer<'a> {
    /// The id of the chosen option.
    Selected(&'a str),
    /// The turn was cancelled before anybody chose.
    Cancelled,
}

impl Serialize for PermissionAnswer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Outcome<'a> {
            outcome: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            option_id: Option<&'a str>,
        }
        let outcome = match *self {
            Self::Selected(option) => Outcome { outcome: "selected", option_id: Some(option) },
            Self::Cancelled => Outcome { outcome: "cancelled", option_id: None },
        };
        Flags(&[("outcome", true)], outcome).serialize(serializer)
    }
}
