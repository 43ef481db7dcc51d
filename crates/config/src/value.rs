//! The types of values: how each is read from TOML and from plain text, shown, and written.
//!
//! A mismatch never repeats a value, except a number out of range and a word that is none of the choices.

use std::ops::Range;

use toml_edit::{Array, Value as Toml};

use crate::secret::{MASK, Secret};
use crate::types::mask_uri;

/// Names the type of a key, with its limits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    Path,
    Uri,
    Secret,
    Flag,
    Whole {
        min: u64,
        max: u64,
    },
    Number {
        min: u32,
        max: u32,
    },
    List,
    /// A list of paths, in which `~` is the home directory.
    Paths,
    Choice(&'static [&'static str]),
}

/// Holds one value that fits its key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Secret(Secret),
    Flag(bool),
    Whole(u64),
    Number(f64),
    List(Vec<String>),
}

/// Says how a value does not fit.
#[derive(Debug)]
pub(crate) struct Mismatch {
    pub(crate) expected: String,
    pub(crate) found: String,
    /// The exact place, when it is inside the value.
    pub(crate) span: Option<Range<usize>>,
}

impl Kind {
    /// Says what would fit, in words.
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Text | Self::Secret => "a string".to_owned(),
            Self::Path => "a path as a string".to_owned(),
            Self::Uri => "an address as a string".to_owned(),
            Self::Flag => "a boolean, `true` or `false`".to_owned(),
            Self::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Self::Number { min, max } => format!("a number from {min} to {max}"),
            Self::List | Self::Paths => "an array of strings".to_owned(),
            Self::Choice(words) => format!("one of `{}`", words.join("`, `")),
        }
    }

    /// Says whether the value is a path.
    pub(crate) fn is_path(self) -> bool {
        matches!(self, Self::Path)
    }

    fn mismatch(self, found: impl Into<String>, span: Option<Range<usize>>) -> Mismatch {
        Mismatch { expected: self.expected(), found: found.into(), span }
    }

    /// Reads a value of the file.
    pub(crate) fn read_toml(self, toml: &Toml) -> Result<Value, Mismatch> {
        let wrong = || self.mismatch(toml.type_name(), toml.span());
        match self {
            Self::Text | Self::Path | Self::Uri | Self::Secret | Self::Choice(_) => {
                self.read_word(toml.as_str().ok_or_else(wrong)?)
            }
            Self::Flag => toml.as_bool().map(Value::Flag).ok_or_else(wrong),
            Self::Whole { .. } => {
                let number = toml.as_integer().ok_or_else(wrong)?;
                let whole = u64::try_from(number).map_err(|_| self.mismatch(number.to_string(), toml.span()))?;
                self.read_whole(whole)
            }
            Self::Number { .. } => {
                let whole = || toml.as_integer().and_then(|number| i32::try_from(number).ok()).map(f64::from);
                self.read_number(toml.as_float().or_else(whole).ok_or_else(wrong)?)
            }
            Self::List | Self::Paths => {
                let array = toml.as_array().ok_or_else(wrong)?;
                let word = |item: &Toml| match item.as_str() {
                    Some(text) => Ok(text.to_owned()),
                    None => Err(self.mismatch(format!("{} in it", item.type_name()), item.span())),
                };
                array.iter().map(word).collect::<Result<_, _>>().map(Value::List)
            }
        }
    }

    /// Reads a value of a variable or a command line.
    pub(crate) fn read_text(self, text: &str) -> Result<Value, Mismatch> {
        let wrong = || self.mismatch("other text", None);
        match self {
            Self::Text | Self::Path | Self::Uri | Self::Secret => self.read_word(text),
            Self::Choice(_) => self.read_word(text.trim()),
            Self::Flag => match text.trim().to_ascii_lowercase().as_str() {
                "true" => Ok(Value::Flag(true)),
                "false" => Ok(Value::Flag(false)),
                _ => Err(wrong()),
            },
            Self::Whole { .. } => self.read_whole(text.trim().parse().map_err(|_| wrong())?),
            Self::Number { .. } => self.read_number(text.trim().parse().map_err(|_| wrong())?),
            Self::List | Self::Paths if text.trim_start().starts_with('[') => {
                let toml: Toml = text.trim().parse().map_err(|_| wrong())?;
                self.read_toml(&toml).map_err(|mismatch| Mismatch { span: None, ..mismatch })
            }
            Self::List | Self::Paths => {
                let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
                Ok(Value::List(words.map(str::to_owned).collect()))
            }
        }
    }

    fn read_word(self, text: &str) -> Result<Value, Mismatch> {
        match self {
            Self::Secret => Ok(Value::Secret(Secret::new(text))),
            Self::Choice(words) => {
                let plain = |word: &str| word.replace(['-', '_'], "").to_ascii_lowercase();
                match words.iter().find(|word| text.is_empty() || plain(word) == plain(text)) {
                    Some(_) if text.is_empty() => Ok(Value::Text(String::new())),
                    Some(word) => Ok(Value::Text((*word).to_owned())),
                    None => Err(self.mismatch(format!("`{}`", shortened(text)), None)),
                }
            }
            Self::Path | Self::Text | Self::Uri if text.contains('\0') => {
                Err(self.mismatch("a text with a NUL character", None))
            }
            Self::Text
            | Self::Path
            | Self::Uri
            | Self::Flag
            | Self::Whole { .. }
            | Self::Number { .. }
            | Self::List
            | Self::Paths => Ok(Value::Text(text.to_owned())),
        }
    }

    fn read_whole(self, number: u64) -> Result<Value, Mismatch> {
        match self {
            Self::Whole { min, max } if !(min..=max).contains(&number) => Err(self.mismatch(number.to_string(), None)),
            Self::Whole { .. }
            | Self::Text
            | Self::Path
            | Self::Uri
            | Self::Secret
            | Self::Flag
            | Self::Number { .. }
            | Self::List
            | Self::Paths
            | Self::Choice(_) => Ok(Value::Whole(number)),
        }
    }

    fn read_number(self, number: f64) -> Result<Value, Mismatch> {
        match self {
            Self::Number { min, max } if !(f64::from(min)..=f64::from(max)).contains(&number) => {
                Err(self.mismatch(number.to_string(), None))
            }
            Self::Number { .. }
            | Self::Text
            | Self::Path
            | Self::Uri
            | Self::Secret
            | Self::Flag
            | Self::Whole { .. }
            | Self::List
            | Self::Paths
            | Self::Choice(_) => Ok(Value::Number(number)),
        }
    }

    /// Shows a value as a person would type it, secrets masked.
    pub(crate) fn show(self, value: &Value) -> String {
        match value {
            Value::Text(text) => match self {
                Self::Uri => mask_uri(text),
                Self::Secret => MASK.to_owned(),
                Self::Text
                | Self::Path
                | Self::Flag
                | Self::Whole { .. }
                | Self::Number { .. }
                | Self::List
                | Self::Paths
                | Self::Choice(_) => text.clone(),
            },
            Value::Secret(_) => MASK.to_owned(),
            Value::Flag(flag) => flag.to_string(),
            Value::Whole(number) => number.to_string(),
            Value::Number(number) => number.to_string(),
            Value::List(_) => value.to_toml().to_string(),
        }
    }
}

impl Value {
    /// Says whether the value is a text without a character, which means the same as leaving the key out.
    pub(crate) fn is_blank(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Secret(secret) => secret.expose().is_empty(),
            Self::Flag(_) | Self::Whole(_) | Self::Number(_) | Self::List(_) => false,
        }
    }

    /// Turns the value into what is written to the file, secrets in the clear.
    pub(crate) fn to_toml(&self) -> Toml {
        match self {
            Self::Text(text) => Toml::from(text.as_str()),
            Self::Secret(secret) => Toml::from(secret.expose()),
            Self::Flag(flag) => Toml::from(*flag),
            Self::Whole(number) => Toml::from(i64::try_from(*number).unwrap_or(i64::MAX)),
            Self::Number(number) => Toml::from(*number),
            Self::List(words) => Toml::Array(words.iter().map(String::as_str).collect::<Array>()),
        }
    }
}

/// Cuts a text that is repeated in a message.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        short.push('…');
    }
    short
}

/// A wrong word is repeated up to this many characters; the rest would only hide the message.
const MAX_SHOWN: usize = 32;
