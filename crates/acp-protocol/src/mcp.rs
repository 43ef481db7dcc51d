//! MCP servers as clients name them in `session/new`, `session/load`, `session/resume` and `session/fork` (ACP v1, "MCP servers").
//! It refuses to start anything, and its debug output shows no value of a variable or header: those are where keys are.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::params::ParamsError;

/// A server that a client wants its session to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpServer {
    /// A program that speaks over its standard input and output.
    Stdio {
        /// What the client calls it.
        name: String,
        /// The program; absolute, as the protocol wants it, or a name that is looked up in `PATH`.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables besides the usual ones.
        env: Vec<NameValue>,
    },
    /// A streamable HTTP endpoint.
    Http {
        /// What the client calls it.
        name: String,
        /// Its address.
        url: String,
        /// Headers of every request.
        headers: Vec<NameValue>,
    },
    /// A transport that this agent does not speak: the deprecated SSE one, or a newer one.
    Other {
        /// What the client calls it.
        name: String,
        /// The transport's name.
        transport: String,
    },
}

impl McpServer {
    /// What the client calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Stdio { name, .. } | Self::Http { name, .. } | Self::Other { name, .. } => name,
        }
    }

    /// Reads one entry of `mcpServers`. Missing lists are empty, and pairs may come as an object.
    ///
    /// # Errors
    /// A missing name, command or address, and wrong types.
    pub fn parse(raw: &RawValue) -> Result<Self, ParamsError> {
        let raw: RawServer = serde_json::from_str(raw.get())
            .map_err(|error| ParamsError(format!("`mcpServers`: {}", crate::params::without_position(&error))))?;
        let missing =
            |what: &str| ParamsError(format!("`mcpServers`: the server `{}` has no `{what}`", shown(&raw.name)));
        match raw.r#type.as_deref() {
            None | Some("stdio") => Ok(Self::Stdio {
                command: raw.command.filter(|command| !command.is_empty()).ok_or_else(|| missing("command"))?,
                args: raw.args.unwrap_or_default(),
                env: raw.env.unwrap_or_default().0,
                name: raw.name,
            }),
            Some("http") => Ok(Self::Http {
                url: raw.url.filter(|url| !url.is_empty()).ok_or_else(|| missing("url"))?,
                headers: raw.headers.unwrap_or_default().0,
                name: raw.name,
            }),
            Some(other) => Ok(Self::Other { transport: other.to_owned(), name: raw.name }),
        }
    }
}

/// A variable of the environment, or a header.
#[derive(Clone, Deserialize, PartialEq, Eq, Serialize)]
pub struct NameValue {
    /// Its name.
    pub name: String,
    /// Its value: possibly a secret.
    pub value: String,
}

impl fmt::Debug for NameValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NameValue").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct RawServer {
    name: String,
    #[serde(default)]
    r#type: Option<String>,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Pairs>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    headers: Option<Pairs>,
}

/// A list of pairs, or the object that some clients send instead.
#[derive(Default)]
struct Pairs(Vec<NameValue>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Pairs;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of names and values")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = list.next_element()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = map.next_entry()? {
                    pairs.push(NameValue { name, value });
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// A peer's text in an error: short, and on one line.
fn shown(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests;
