//! What a client reads: the updates, questions and results of an agent, in owned types.
//!
//! The types an agent sends borrow everything and are closed; these own everything and are open: a kind, status or update
//! that this crate does not know is kept as `Unknown`, an absent optional member is `None`, further members are ignored.
//! It refuses to judge: whether an answer fits what was asked is the client's business.

mod result;
mod tool;
mod update;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

pub use result::{
    AgentCapabilities, AuthMethod, ConfigOption, ConfigOptionsResult, ConfigValue, ConfigValues, EventResult,
    Implementation, InitializeFacts, InitializeResult, ListSessionsResult, LoadSessionResult, McpCapabilities, Mode,
    ModeState, NewSessionResult, PromptCapabilities, PromptFacts, PromptResult, PromptUsage, SelectOption,
    SessionCapabilities, SessionInfo, StopReason, StopResult, SwitchOption,
};
pub use tool::{
    CallStatus, Content, Diff, Location, PermissionOption, PermissionOptionKind, PermissionRequest, ShownTerminal,
    ToolCall, ToolCallContent, ToolCallUpdate, ToolKind,
};
pub use update::{
    AvailableCommand, AvailableCommands, Block, CommandInput, ConfigOptions, Cost, CurrentMode, Link, Media,
    MessageChunk, Notice, Plan, PlanEntry, PlanPriority, PlanStatus, Resource, ResourceBlock, SessionNotification,
    SessionTitle, Severity, TextBlock, Update, UpdateFacts, Usage,
};

/// Reads a `result` or `params` member as one of these types.
///
/// # Errors
/// A required member is missing, or a member has another type.
pub fn read<T: DeserializeOwned>(raw: &RawValue) -> Result<T, serde_json::Error> {
    serde_json::from_str(raw.get())
}

/// What is below `_meta.zeroclaw`, when it is there and of this shape.
#[must_use]
pub fn facts<T: DeserializeOwned>(meta: Option<&RawValue>) -> Option<T> {
    #[derive(Deserialize)]
    struct Facts<T> {
        zeroclaw: T,
    }
    let facts: Facts<T> = serde_json::from_str(meta?.get()).ok()?;
    Some(facts.zeroclaw)
}

/// The discriminating member of an object, when it is a string.
fn tag_of(raw: &RawValue, tag: &str) -> Option<String> {
    let members: std::collections::BTreeMap<String, Box<RawValue>> = serde_json::from_str(raw.get()).ok()?;
    serde_json::from_str(members.get(tag)?.get()).ok()
}

/// A whole value, because serde's own reader of tagged enumerations cannot hand raw JSON through.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<RawValue>, D::Error> {
    Box::<RawValue>::deserialize(deserializer)
}

/// An enumeration of objects that one member tells apart.
macro_rules! tagged {
    ($(#[$about:meta])* $name:ident by $tag:literal { $($(#[$each:meta])* $variant:ident($content:ty) = $value:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, serde::Serialize)]
        #[serde(tag = $tag)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$each])* #[serde(rename = $value)] $variant($content),)*
            /// A kind that this crate does not know, as it came.
            #[serde(untagged)]
            Unknown(Box<RawValue>),
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let raw = crate::reading::whole(deserializer)?;
                let read = match crate::reading::tag_of(&raw, $tag).as_deref() {
                    $(Some($value) => serde_json::from_str(raw.get()).map(Self::$variant),)*
                    _ => Ok(Self::Unknown(raw)),
                };
                read.map_err(serde::de::Error::custom)
            }
        }
    };
}

/// An enumeration of words.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$each])* #[serde(rename = $word)] $variant,)*
            /// A word that this crate does not know.
            #[serde(untagged)]
            Unknown(String),
        }
    };
}

pub(crate) use {tagged, words};

/// Reads a list whose absence and `null` mean an empty one.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}
