//! Language models behind HTTP: one provider for every vendor family.
//!
//! Owns the configuration of a model, the connection and the mapping of failures; each wire format has its own file.
//! The `genai` crate speaks Gemini. It is not used for the others. Seen with 0.7.2 against the fake vendor of the tests:
//! an Anthropic answer whose CR LF are cut between two reads is lost whole and without an error; a finish reason
//! without an end mark hangs while the connection is open, and looks like a cut answer when it closes; a fragment that
//! repeats the tool's name without the id replaces the id. Read in its source: each fragment copies all arguments so
//! far, Ollama's `num_ctx` cannot be set, and message bodies go to the log.
//!
//! It retries nothing, follows no redirect (a key would go along), and sends keys only to the configured address.

mod answer;
mod anthropic;
mod conversation;
mod failure;
mod gemini;
mod http;
mod levels;
mod lines;
mod models;
mod ollama;
mod openai;
#[cfg(test)]
mod tests;
mod window;

use std::{borrow::Cow, fmt, time::Duration};

use async_trait::async_trait;

use crate::model::{ModelError, ModelInfo, ModelProvider, ModelRequest, ModelStream};

use conversation::{CallForm, Turn, conversation};

pub use http::HttpClients;
pub use levels::levels;
pub use models::models;

/// The families of vendors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Anthropic's messages.
    Anthropic,
    /// OpenAI's chat completions.
    Openai,
    /// `OpenRouter`.
    Openrouter,
    /// Google's Gemini.
    Gemini,
    /// Ollama's own interface.
    Ollama,
    /// The server of llama.cpp.
    Llamacpp,
    /// LM Studio.
    Lmstudio,
    /// vLLM.
    Vllm,
    /// Anything that speaks chat completions; needs an address.
    Custom,
}

impl Family {
    /// The name in the configuration.
    #[must_use]
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
        }
    }

    /// Whether the vendor's own address answers nobody without a key.
    #[must_use]
    pub fn needs_key(self) -> bool {
        match self {
            Self::Anthropic | Self::Openai | Self::Openrouter | Self::Gemini => true,
            Self::Ollama | Self::Llamacpp | Self::Lmstudio | Self::Vllm | Self::Custom => false,
        }
    }

    /// The address that is used when none is configured.
    #[must_use]
    pub fn default_uri(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("https://api.anthropic.com/v1"),
            Self::Openai => Some("https://api.openai.com/v1"),
            Self::Openrouter => Some("https://openrouter.ai/api/v1"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            Self::Ollama => Some("http://127.0.0.1:11434"),
            Self::Llamacpp => Some("http://127.0.0.1:8080/v1"),
            Self::Lmstudio => Some("http://127.0.0.1:1234/v1"),
            Self::Vllm => Some("http://127.0.0.1:8000/v1"),
            Self::Custom => None,
        }
    }
}

/// A vendor's key. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Wraps a key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key itself, for the header that carries it and for taking it out of messages.
    fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// The configuration of one model.
#[derive(Clone, PartialEq)]
pub struct VendorConfig {
    /// Whose words are spoken.
    pub family: Family,
    /// The alias in the configuration.
    pub alias: String,
    /// The model's name as the vendor knows it.
    pub model: String,
    /// The key, where one is needed.
    pub api_key: Option<ApiKey>,
    /// The address, where it is not the family's own.
    pub uri: Option<String>,
    /// The most tokens of one answer.
    pub max_output_tokens: Option<u32>,
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// How many tokens the model can read; absent means what is known about the model.
    pub context_window: Option<u64>,
    /// The context length asked of an Ollama server; absent means the window, or 32,768.
    pub num_ctx: Option<u64>,
    /// After how long without a byte an answer is given up; zero means two minutes, and a day is the most.
    pub idle_timeout: Duration,
    /// Whether the model understands tool calls; if not, it is told of none.
    pub native_tools: bool,
}

impl fmt::Debug for VendorConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold credentials.
        formatter
            .debug_struct("VendorConfig")
            .field("family", &self.family)
            .field("alias", &self.alias)
            .field("model", &self.model)
            .field("api_key", &self.api_key)
            .field("own_uri", &self.uri.is_some())
            .field("context_window", &self.context_window)
            .finish_non_exhaustive()
    }
}

impl VendorConfig {
    fn call_form(&self) -> CallForm {
        if self.native_tools { CallForm::Native } else { CallForm::Text }
    }

    /// The bound of an answer: the smaller of what the request and the model's configuration say.
    fn output_limit(&self, request: &ModelRequest) -> Option<u32> {
        match (request.max_output_tokens, self.max_output_tokens) {
            (Some(asked), Some(configured)) => Some(asked.min(configured)),
            (asked, configured) => asked.or(configured),
        }
    }
}

/// A model of a vendor.
#[derive(Debug)]
pub struct VendorProvider {
    config: VendorConfig,
    info: ModelInfo,
    http: HttpClients,
}

impl VendorProvider {
    /// Makes the provider. Nothing is connected and no TLS is set up before the first call; what is wrong with the
    /// configuration is told by that call.
    #[must_use]
    pub fn new(mut config: VendorConfig, http: HttpClients) -> Self {
        if config.idle_timeout.is_zero() {
            config.idle_timeout = DEFAULT_IDLE;
        }
        config.idle_timeout = config.idle_timeout.min(LONGEST_IDLE);
        config.api_key = config.api_key.filter(|key| !key.expose().trim().is_empty());
        let known = match config.family {
            Family::Ollama => ollama::context_length(&config),
            Family::Anthropic
            | Family::Openai
            | Family::Openrouter
            | Family::Gemini
            | Family::Llamacpp
            | Family::Lmstudio
            | Family::Vllm
            | Family::Custom => window::of(&config.model),
        };
        let info = ModelInfo {
            name: config.model.clone(),
            source: format!("{}.{}", config.family.as_str(), config.alias),
            context_window: config.context_window.unwrap_or(known),
        };
        Self { config, info, http }
    }
}

#[async_trait]
impl ModelProvider for VendorProvider {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        let config = &self.config;
        if config.model.trim().is_empty() {
            return Err(ModelError::Config(format!("no model is configured for {}", self.info.source)));
        }
        if config.api_key.is_none() && config.uri.is_none() && config.family.needs_key() {
            let source = &self.info.source;
            return Err(ModelError::Auth(format!("there is no key for {source}; `zeroclaw login` stores one")));
        }
        match config.family {
            Family::Anthropic => anthropic::stream(config, &self.http, &request).await,
            Family::Gemini => gemini::stream(config, &self.http, &request).await,
            Family::Ollama => ollama::stream(config, &self.http, &request).await,
            Family::Openai
            | Family::Openrouter
            | Family::Llamacpp
            | Family::Lmstudio
            | Family::Vllm
            | Family::Custom => openai::stream(config, &self.http, &request).await,
        }
    }
}

/// The system prompt, when there is one.
fn system(request: &ModelRequest) -> Option<&str> {
    Some(request.system.as_ref()).filter(|system| !system.trim().is_empty())
}

/// The conversation as turns.
fn turns<'a>(config: &VendorConfig, request: &'a ModelRequest) -> Vec<Turn<'a>> {
    let mut turns = conversation(&request.messages, config.call_form());
    if turns.is_empty() {
        turns.push(Turn::User(Cow::Borrowed("(no text)")));
    }
    turns
}

/// Long enough for a large prompt on a slow machine.
const DEFAULT_IDLE: Duration = Duration::from_secs(120);
/// Nobody waits longer, and no clock overflows.
const LONGEST_IDLE: Duration = Duration::from_secs(86_400);
