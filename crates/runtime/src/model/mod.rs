//! What the loop needs from a language model: one request, one stream of events.
//! Vendors, the model-less `builtin` and the `scripted` replay live in their own files; none of them sees tools run.

pub mod builtin;
mod replay;
pub mod scripted;
mod thinking;
pub mod vendor;

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use thinking::Thinking;

/// One message of the conversation as the model sees it; the stored form is its JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// What the user said.
    User {
        /// The prompt's parts joined, attachments named by path.
        text: String,
    },
    /// What the model said and asked for.
    Assistant {
        /// The visible text; empty when there was none.
        text: String,
        /// The thoughts, kept for display and for vendors that want them back.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        thought: String,
        /// The tool calls in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCallRequest>,
        /// Thoughts in the vendor's own form, one JSON text each. Vendors that sign them want them back, unchanged, while
        /// the turn runs; later they are never sent.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        signed: Vec<String>,
    },
    /// What one tool call gave.
    Tool {
        /// The call's id.
        call_id: String,
        /// The text for the model.
        content: String,
        /// Whether the call failed.
        #[serde(default)]
        failed: bool,
    },
}

/// A tool call as the model asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallRequest {
    /// The vendor's id, unique within the turn.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as JSON text, exactly as assembled from the stream; may be malformed.
    pub arguments: String,
}

/// A tool as the model is told about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// `[a-z_]+`, unique among the tools.
    pub name: String,
    /// One or two sentences for the model.
    pub description: String,
    /// JSON Schema of the arguments; an object.
    pub parameters: serde_json::Value,
}

/// What one model call is given. Everything is shared, nothing is copied per call.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: Arc<str>,
    /// The conversation, oldest first; ends with a user or a tool message.
    pub messages: Vec<Arc<Message>>,
    /// The tools on offer.
    pub tools: Arc<[ToolSpec]>,
    /// Upper bound of generated tokens, where the configuration sets one.
    pub max_output_tokens: Option<u32>,
    /// How much the model is to think; absent leaves it to the vendor.
    pub thinking: Option<Thinking>,
}

/// One piece of a model's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// Visible text.
    Text(String),
    /// Reasoning text.
    Thought(String),
    /// A whole thought in the vendor's own form, to be kept with this answer: see [`Message::Assistant`].
    Signed(String),
    /// One whole tool call; providers assemble fragments.
    ToolCall(ToolCallRequest),
    /// Token counts of this call; may come more than once, the last one counts.
    Usage(Usage),
    /// The call's end. Exactly one, last; a stream that ends without it is an error.
    Stop(ModelStop),
}

/// Why a model call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelStop {
    /// It had nothing more to say, or waits for its tool calls.
    End,
    /// It reached the output limit.
    MaxTokens,
    /// It declined.
    Refusal,
}

/// Token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the request, cached ones included.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Of `input`, those read from the vendor's cache.
    pub cached: u64,
    /// Of `input`, those written to the vendor's cache, where the vendor counts them apart.
    pub written: u64,
}

/// Facts about the model behind a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// What users call it: the model's name.
    pub name: String,
    /// `family.alias` of the configuration, or where it came from.
    pub source: String,
    /// Tokens its window holds, input and output together.
    pub context_window: u64,
}

/// Why a model call failed. Texts are safe to show: no key, no header.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ModelError {
    /// The vendor wants other credentials.
    #[error("the model provider refused the credentials: {0}")]
    Auth(String),
    /// Worth another try later: rate limit, overload, a broken connection before the first output.
    #[error("the model provider is not available: {message}")]
    Transient {
        /// The vendor's text.
        message: String,
        /// How long it asked to wait.
        retry_after: Option<Duration>,
    },
    /// The conversation does not fit the model's window.
    #[error("the conversation is too long for the model: {0}")]
    ContextOverflow(String),
    /// Nothing came for longer than the idle limit.
    #[error("the model sent nothing for {0} seconds")]
    Idle(u64),
    /// The stream broke off or made no sense.
    #[error("the model's answer broke off: {0}")]
    Stream(String),
    /// The vendor refused the request for good.
    #[error("the model provider refused the request: {0}")]
    Request(String),
    /// The vendor does not serve this model to this user: no quota or credit left, no such model.
    #[error("the model provider refused the request: {0}")]
    Unusable(String),
    /// The provider cannot be used as configured.
    #[error("{0}")]
    Config(String),
}

/// The stream of one model call. Dropping it ends the call.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// A source of model turns.
#[async_trait]
pub trait ModelProvider: Send + Sync + Debug {
    /// Facts about the model.
    fn info(&self) -> &ModelInfo;

    /// Starts one call. Nothing is retried here: the loop decides that.
    ///
    /// # Errors
    /// What the vendor or the network said before the first event.
    async fn stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError>;

    /// Whether it can be asked for a summary of a conversation. What is no language model cannot.
    fn writes_summaries(&self) -> bool {
        true
    }
}
