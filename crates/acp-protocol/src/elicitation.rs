//! `elicitation/create`: a form for the user, and what comes back.
//! It refuses the url mode: what an agent asks here is shown and answered in the client, never on a page elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;

use crate::RequestId;

/// The request's parameters, in form mode.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "mode", rename = "form", rename_all = "camelCase")]
pub struct ElicitationRequest<'a> {
    /// What the question belongs to.
    #[serde(flatten)]
    pub scope: ElicitationScope<'a>,
    /// What the user reads first.
    pub message: &'a str,
    /// The form.
    pub requested_schema: ElicitationForm<'a>,
}

/// What a question belongs to.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum ElicitationScope<'a> {
    /// A session, and a tool call in it.
    Session {
        /// The session.
        session_id: &'a str,
        /// The call that asks.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<&'a str>,
    },
    /// A request of the client outside of any session.
    Request {
        /// The request's id.
        #[serde(serialize_with = "raw_id")]
        request_id: &'a RequestId,
    },
}

fn raw_id<S: Serializer>(id: &RequestId, serializer: S) -> Result<S::Ok, S::Error> {
    let raw: &RawValue = serde_json::from_str(id.as_json()).map_err(serde::ser::Error::custom)?;
    raw.serialize(serializer)
}

/// A form: a flat JSON schema.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename = "object")]
pub struct ElicitationForm<'a> {
    /// What the form is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'a str>,
    /// What the form is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'a str>,
    /// The fields in the order they are shown.
    #[serde(serialize_with = "by_name")]
    pub properties: &'a [ElicitationField<'a>],
    /// Names of the fields that must be filled in.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub required: &'a [&'a str],
}

fn by_name<S: Serializer>(fields: &[ElicitationField<'_>], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(fields.len()))?;
    for field in fields {
        map.serialize_entry(field.name, field)?;
    }
    map.end()
}

/// A field of a form.
#[derive(Clone, Debug, Serialize)]
pub struct ElicitationField<'a> {
    /// The member of the answer that it fills.
    #[serde(skip)]
    pub name: &'a str,
    /// What the user reads beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'a str>,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'a str>,
    /// What may be filled in.
    #[serde(flatten)]
    pub property: ElicitationProperty<'a>,
}

/// What may be filled in.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ElicitationProperty<'a> {
    /// Text, or one of several values.
    String {
        /// Characters, at least.
        #[serde(skip_serializing_if = "Option::is_none")]
        min_length: Option<u32>,
        /// Characters, at most.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_length: Option<u32>,
        /// A regular expression that it matches.
        #[serde(skip_serializing_if = "Option::is_none")]
        pattern: Option<&'a str>,
        /// What kind of text it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        format: Option<ElicitationFormat>,
        /// What stands there first.
        #[serde(skip_serializing_if = "Option::is_none")]
        default: Option<&'a str>,
        /// The only values, shown as they are.
        #[serde(rename = "enum", skip_serializing_if = "Option::is_none")]
        values: Option<&'a [&'a str]>,
        /// The only values, each with a text to show.
        #[serde(skip_serializing_if = "Option::is_none")]
        one_of: Option<&'a [ElicitationOption<'a>]>,
    },
    /// A number.
    Number {
        /// At least.
        #[serde(skip_serializing_if = "Option::is_none")]
        minimum: Option<f64>,
        /// At most.
        #[serde(skip_serializing_if = "Option::is_none")]
        maximum: Option<f64>,
        /// What stands there first.
        #[serde(skip_serializing_if = "Option::is_none")]
        default: Option<f64>,
    },
    /// A whole number.
    Integer {
        /// At least.
        #[serde(skip_serializing_if = "Option::is_none")]
        minimum: Option<i64>,
        /// At most.
        #[serde(skip_serializing_if = "Option::is_none")]
        maximum: Option<i64>,
        /// What stands there first.
        #[serde(skip_serializing_if = "Option::is_none")]
        default: Option<i64>,
    },
    /// Yes or no.
    Boolean {
        /// What stands there first.
        #[serde(skip_serializing_if = "Option::is_none")]
        default: Option<bool>,
    },
    /// Several of several values.
    Array {
        /// How many, at least.
        #[serde(skip_serializing_if = "Option::is_none")]
        min_items: Option<u64>,
        /// How many, at most.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_items: Option<u64>,
        /// The values.
        items: ElicitationItems<'a>,
        /// What is chosen first.
        #[serde(skip_serializing_if = "Option::is_none")]
        default: Option<&'a [&'a str]>,
    },
}

/// What kind of text a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ElicitationFormat {
    /// An address of electronic mail.
    Email,
    /// A uri.
    Uri,
    /// `2026-12-01`
    Date,
    /// ISO 8601.
    DateTime,
}

/// One value out of several.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ElicitationOption<'a> {
    /// What comes back.
    #[serde(rename = "const")]
    pub value: &'a str,
    /// What the user reads.
    pub title: &'a str,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'a str>,
}

/// The values that several may be chosen of.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum ElicitationItems<'a> {
    /// Shown as they are.
    Plain {
        /// `string`
        r#type: &'static str,
        /// The values.
        r#enum: &'a [&'a str],
    },
    /// Each with a text to show.
    Titled {
        /// The values.
        #[serde(rename = "anyOf")]
        any_of: &'a [ElicitationOption<'a>],
    },
}

/// What came back. It says what the user did, not that the content fits the form: whoever asked checks that.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationAnswer {
    /// Filled in and sent.
    Accept(BTreeMap<String, ElicitationValue>),
    /// The user does not want to say.
    Decline,
    /// The user closed the form without an answer.
    Cancel,
}

/// What was filled into a field.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum ElicitationValue {
    /// Text or the chosen value.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// The chosen values.
    Values(Vec<String>),
}

#[derive(Deserialize)]
struct RawAnswer {
    action: String,
    #[serde(default)]
    content: Option<BTreeMap<String, ElicitationValue>>,
}

impl ElicitationAnswer {
    /// Reads the `result` member; `None` when it is not of the documented shape.
    #[must_use]
    pub fn parse(result: &RawValue) -> Option<Self> {
        let raw: RawAnswer = serde_json::from_str(result.get()).ok()?;
        match raw.action.as_str() {
            "accept" => Some(Self::Accept(raw.content.unwrap_or_default())),
            "decline" => Some(Self::Decline),
            "cancel" => Some(Self::Cancel),
            _ => None,
        }
    }
}
