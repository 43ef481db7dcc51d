//! Names inside the configuration: provider families, aliases, and the `family.alias` reference to a model.
//!
//! An alias becomes part of a path below the data directory, so whatever could leave it is refused here.

use std::fmt;
use std::str::FromStr;

/// Names the wire protocol family of a model provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Anthropic's Messages interface.
    Anthropic,
    /// OpenAI itself.
    Openai,
    /// OpenRouter.
    Openrouter,
    /// Google Gemini.
    Gemini,
    /// An Ollama server.
    Ollama,
    /// A llama.cpp server.
    Llamacpp,
    /// An LM Studio server.
    Lmstudio,
    /// A vLLM server.
    Vllm,
    /// Any server that speaks the interface of OpenAI; needs a `uri`.
    Custom,
    /// The provider that is compiled into the program.
    Builtin,
    /// Answers read from a script file, for demonstrations and tests of clients.
    Scripted,
}

impl Family {
    /// Lists every family.
    pub const ALL: [Self; 11] = [
        Self::Anthropic,
        Self::Openai,
        Self::Openrouter,
        Self::Gemini,
        Self::Ollama,
        Self::Llamacpp,
        Self::Lmstudio,
        Self::Vllm,
        Self::Custom,
        Self::Builtin,
        Self::Scripted,
    ];

    /// Returns the name used in the configuration file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::Openrouter => "openrouter",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Llamacpp => "llamacpp",
            Self::Lmstudio => "lmstudio",
            Self::Vllm => "vllm",
            Self::Custom => "custom",
            Self::Builtin => "builtin",
            Self::Scripted => "scripted",
        }
    }

    /// Finds the family with exactly this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.as_str() == name)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Names one configured model: `[providers.models.<family>.<alias>]`, written `family.alias`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelRef {
    /// The provider family.
    pub family: Family,
    /// The name that the operator gave to this model.
    pub alias: String,
}

impl fmt::Display for ModelRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.family, self.alias)
    }
}

impl FromStr for ModelRef {
    type Err = ModelRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (family, alias) = text.split_once('.').ok_or(ModelRefError::NotTwoParts)?;
        let family =
            Family::from_name(family).ok_or_else(|| ModelRefError::UnknownFamily { family: family.to_owned() })?;
        check_alias(alias).map_err(ModelRefError::Alias)?;
        Ok(Self { family, alias: alias.to_owned() })
    }
}

/// Says why a text is no model reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelRefError {
    /// There is no dot in it.
    #[error("expected `family.alias`")]
    NotTwoParts,
    /// The part before the dot names no family of this program.
    #[error("unknown provider family `{family}`")]
    UnknownFamily {
        /// The family as written.
        family: String,
    },
    /// The part after the dot is no alias.
    #[error(transparent)]
    Alias(AliasError),
}

/// Says why a text cannot name an agent, a model or a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AliasError {
    /// It has no or more than 64 characters.
    #[error("a name has 1 to 64 characters")]
    Length,
    /// It has a character that is not allowed.
    #[error("a name has only letters, digits, `.`, `_` and `-`")]
    Character,
    /// It could be read as a hidden file or as a way out of a directory.
    #[error("a name has no leading dot and no `..`")]
    Dots,
}

/// Checks a name of an agent, a model or a profile.
pub fn check_alias(alias: &str) -> Result<(), AliasError> {
    if alias.is_empty() || alias.len() > MAX_ALIAS_BYTES {
        return Err(AliasError::Length);
    }
    if !alias.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')) {
        return Err(AliasError::Character);
    }
    if alias.starts_with('.') || alias.contains("..") {
        return Err(AliasError::Dots);
    }
    Ok(())
}

/// Long enough for every name people type, short enough for one path component; longer ones are refused.
const MAX_ALIAS_BYTES: usize = 64;
