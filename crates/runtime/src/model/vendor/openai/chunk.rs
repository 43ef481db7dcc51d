//! One chunk of a chat completion, read without copying what is not kept.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::model::Usage;

/// A chunk.
#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    /// The first choice; empty, null and absent lists are the same.
    #[serde(borrow, default)]
    pub(super) choices: First<Choice<'a>>,
    /// Token counts.
    #[serde(default)]
    pub(super) usage: Option<Counts>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "text_or_nothing")]
    object: Option<Cow<'a, str>>,
}

impl<'a> Chunk<'a> {
    /// The error in this chunk, if it is one. Some servers send the error's members without an object around them.
    pub(super) fn failure(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        match self.error.map(RawValue::get) {
            Some("null" | "\"\"" | "{}") | None => (self.object.as_deref() == Some("error")).then_some(data),
            Some(_) => Some(data),
        }
    }
}

/// A choice.
#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    /// What is new.
    #[serde(borrow, default)]
    pub(super) delta: Option<Delta<'a>>,
    /// Why it ended.
    #[serde(borrow, default, deserialize_with = "text_or_nothing")]
    pub(super) finish_reason: Option<Cow<'a, str>>,
}

/// What is new.
#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    /// Visible text, or parts of it.
    #[serde(default)]
    pub(super) content: Option<Content>,
    /// Reasoning, one name.
    #[serde(default)]
    pub(super) reasoning_content: Option<Text>,
    /// Reasoning, the other name.
    #[serde(default)]
    pub(super) reasoning: Option<Text>,
    /// Why it declines.
    #[serde(default)]
    pub(super) refusal: Option<Text>,
    /// Pieces of tool calls.
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<Vec<CallDelta<'a>>>,
}

/// A piece of a tool call.
#[derive(Deserialize)]
pub(super) struct CallDelta<'a> {
    /// Which call.
    #[serde(default)]
    pub(super) index: Option<u64>,
    /// Its id, in the first piece.
    #[serde(borrow, default, deserialize_with = "text_or_nothing")]
    pub(super) id: Option<Cow<'a, str>>,
    /// The rest.
    #[serde(borrow, default)]
    pub(super) function: Option<FunctionDelta<'a>>,
}

/// Name and arguments of a piece.
#[derive(Deserialize, Default)]
pub(super) struct FunctionDelta<'a> {
    /// The tool.
    #[serde(borrow, default, deserialize_with = "text_or_nothing")]
    pub(super) name: Option<Cow<'a, str>>,
    /// A piece of the arguments' text; a server may send the whole object instead.
    #[serde(borrow, default, deserialize_with = "arguments")]
    pub(super) arguments: Option<Cow<'a, str>>,
}

/// Token counts.
#[derive(Deserialize)]
pub(super) struct Counts {
    #[serde(default)]
    prompt_tokens: Option<f64>,
    #[serde(default)]
    completion_tokens: Option<f64>,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
    #[serde(default)]
    prompt_cache_hit_tokens: Option<f64>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<f64>,
}

impl Counts {
    /// The counts in our own terms.
    pub(super) fn counts(&self) -> Usage {
        let cached = self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
        Usage {
            input: count(self.prompt_tokens),
            output: count(self.completion_tokens),
            cached: count(cached.or(self.prompt_cache_hit_tokens)),
            written: 0,
        }
    }
}

/// A number of tokens, whatever kind of number it was written as.
pub(in crate::model::vendor) fn count(number: Option<f64>) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
    let whole = number.unwrap_or(0.0).max(0.0) as u64;
    whole
}

/// The first element of a list; the others are skipped without being kept.
pub(super) struct First<T>(pub(super) Option<T>);

impl<T> Default for First<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for First<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Visit<T> {
            type Value = First<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list or null")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(First(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let first = list.next_element()?;
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(First(first))
            }
        }
        deserializer.deserialize_any(Visit(std::marker::PhantomData))
    }
}

/// Text that is kept.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Text(pub(super) String);

/// The content of a delta: a text, or a list of parts.
#[derive(Default)]
pub(super) struct Content {
    /// Visible text.
    pub(super) text: String,
    /// Reasoning among the parts.
    pub(super) thought: Option<String>,
}

impl Content {
    fn add(&mut self, part: Part) {
        if let Some(text) = part.text {
            self.text.push_str(&text);
        }
        if let Some(thinking) = part.thinking {
            let thought = self.thought.get_or_insert_default();
            thought.push_str(&thinking.text);
        }
    }
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thinking: Option<Content>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Content;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("text, a list of parts or null")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content { text: text.to_owned(), thought: None })
            }

            fn visit_string<E>(self, text: String) -> Result<Content, E> {
                Ok(Content { text, thought: None })
            }

            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
                let mut content = Content::default();
                while let Some(part) = list.next_element::<Part>()? {
                    content.add(part);
                }
                Ok(content)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Content, A::Error> {
                let mut content = Content::default();
                content.add(Part::deserialize(serde::de::value::MapAccessDeserializer::new(map))?);
                Ok(content)
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// A text, borrowed where it has no escapes; any other kind of value counts as nothing.
fn text_or_nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(string_of(raw))
}

fn arguments<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(match raw.get() {
        "null" => None,
        _ => string_of(raw).or_else(|| Some(Cow::Borrowed(raw.get()))),
    })
}

fn string_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get();
    if !text.starts_with('"') {
        return None;
    }
    // Without an escape, what stands between the quotes is the text.
    match text.get(1..text.len() - 1).filter(|inside| !inside.contains('\\')) {
        Some(inside) => Some(Cow::Borrowed(inside)),
        None => serde_json::from_str::<String>(text).ok().map(Cow::Owned),
    }
}
