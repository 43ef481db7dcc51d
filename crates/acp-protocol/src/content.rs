//! Content blocks: what a prompt may be made of, and what an agent shows.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// A block an agent sends.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ContentBlock<'a> {
    /// Text.
    Text {
        /// Markdown.
        text: Cow<'a, str>,
    },
    /// A resource by name.
    ResourceLink {
        /// Where it is.
        uri: Cow<'a, str>,
        /// What it is called.
        name: Cow<'a, str>,
        /// Its media type, when known.
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<Cow<'a, str>>,
    },
    /// A resource with its content.
    Resource {
        /// The content.
        resource: EmbeddedResource<'a>,
    },
}

impl<'a> ContentBlock<'a> {
    /// A text block that borrows.
    #[must_use]
    pub fn text(text: &'a str) -> Self {
        Self::Text { text: Cow::Borrowed(text) }
    }
}

/// The content of an embedded resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddedResource<'a> {
    /// Where it is.
    pub uri: Cow<'a, str>,
    /// Its media type, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<Cow<'a, str>>,
    /// Its text; exactly one of `text` and `blob` is present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
    /// Its bytes in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<Cow<'a, str>>,
}

/// One part of a prompt, as a client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptPart {
    /// Text, with or without `type`.
    Text(String),
    /// A resource by name.
    ResourceLink {
        /// Where it is.
        uri: String,
        /// What it is called.
        name: String,
        /// Its media type.
        mime_type: Option<String>,
    },
    /// A resource with its content.
    Resource {
        /// Where it is.
        uri: String,
        /// Its media type.
        mime_type: Option<String>,
        /// The content.
        body: ResourceBody,
    },
    /// A picture in base64.
    Image {
        /// Base64.
        data: String,
        /// Its media type.
        mime_type: String,
    },
    /// Sound in base64.
    Audio,
    /// A kind that this crate does not know, by its name.
    Unknown(String),
}

/// The content of a resource in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceBody {
    /// Text.
    Text(String),
    /// Base64.
    Blob(String),
}

/// Reads the `prompt` member: a string, or an array of parts.
///
/// # Errors
/// A sentence that names the part and what is wrong with it.
pub fn parse_prompt(raw: &RawValue) -> Result<Vec<PromptPart>, String> {
    let parts: RawPrompt = serde_json::from_str(raw.get()).map_err(|error| format!("invalid prompt: {error}"))?;
    match parts {
        RawPrompt::Text(text) => Ok(vec![PromptPart::Text(text)]),
        RawPrompt::Parts(parts) => parts
            .into_iter()
            .enumerate()
            .map(|(index, part)| part.into_part().map_err(|what| format!("invalid prompt: part {index}: {what}")))
            .collect(),
    }
}

enum RawPrompt {
    Text(String),
    Parts(Vec<RawPart>),
}

impl<'de> Deserialize<'de> for RawPrompt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawPromptVisitor)
    }
}

struct RawPromptVisitor;

impl<'de> Visitor<'de> for RawPromptVisitor {
    type Value = RawPrompt;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or an array of content blocks")
    }

    fn visit_str<E>(self, text: &str) -> Result<RawPrompt, E> {
        Ok(RawPrompt::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<RawPrompt, E> {
        Ok(RawPrompt::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawPrompt, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = seq.next_element()? {
            parts.push(part);
        }
        Ok(RawPrompt::Parts(parts))
    }
}

/// Every field that any kind of block has; which ones must be there depends on `type`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawPart {
    r#type: Option<String>,
    text: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    mime_type: Option<String>,
    data: Option<String>,
    resource: Option<RawResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResource {
    uri: Option<String>,
    #[serde(default)]
    mime_type: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    blob: Option<String>,
}

impl RawPart {
    fn into_part(self) -> Result<PromptPart, String> {
        let missing = |field: &str, kind: &str| format!("`{kind}` without `{field}`");
        match self.r#type.as_deref() {
            None | Some("text") => self.text.map(PromptPart::Text).ok_or_else(|| missing("text", "text")),
            Some("resource_link") => Ok(PromptPart::ResourceLink {
                uri: self.uri.filter(|uri| !uri.is_empty()).ok_or_else(|| missing("uri", "resource_link"))?,
                name: self.name.ok_or_else(|| missing("name", "resource_link"))?,
                mime_type: self.mime_type,
            }),
            Some("resource") => {
                let resource = self.resource.ok_or_else(|| missing("resource", "resource"))?;
                let body = match (resource.text, resource.blob) {
                    (Some(text), None) => ResourceBody::Text(text),
                    (None, Some(blob)) => ResourceBody::Blob(blob),
                    (Some(_), Some(_)) => return Err("`resource` with both `text` and `blob`".to_owned()),
                    (None, None) => return Err("`resource` with neither `text` nor `blob`".to_owned()),
                };
                let uri = resource.uri.ok_or_else(|| missing("resource.uri", "resource"))?;
                Ok(PromptPart::Resource { uri, mime_type: resource.mime_type, body })
            }
            Some("image") => Ok(PromptPart::Image {
                data: self.data.ok_or_else(|| missing("data", "image"))?,
                mime_type: self.mime_type.ok_or_else(|| missing("mimeType", "image"))?,
            }),
            Some("audio") => Ok(PromptPart::Audio),
            Some(other) => Ok(PromptPart::Unknown(other.chars().take(64).collect())),
        }
    }
}
