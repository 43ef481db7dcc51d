//! Gemini, through the `genai` crate. This file maps messages and events and adds what the crate leaves open: an
//! answer that was cut is an error, the idle limit, and failures in our terms.

use std::{collections::HashSet, time::Duration};

use futures::{Stream, StreamExt, stream};
use genai::{
    Client, ModelIden, ServiceTarget,
    adapter::AdapterKind,
    chat::{
        ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, ContentPart, MessageContent, ReasoningEffort,
        StopReason, StreamEnd, Tool, ToolCall, ToolResponse,
    },
    resolver::{AuthData, Endpoint},
};
use serde_json::Value;
use tokio::time::timeout;

use crate::model::{
    ModelError, ModelEvent, ModelRequest, ModelStop, ModelStream, Thinking, ToolCallRequest, Usage,
    vendor::{
        ApiKey, HttpClients, VendorConfig,
        conversation::Turn,
        failure::{self, Said},
        http, system, turns,
    },
};

/// Starts a call.
pub(super) async fn stream(
    config: &VendorConfig,
    clients: &HttpClients,
    request: &ModelRequest,
) -> Result<ModelStream, ModelError> {
    let Some(key) = config.api_key.clone() else {
        return Err(ModelError::Auth(format!("no api key is configured for gemini.{}", config.alias)));
    };
    // The crate appends `models/...` to the text of the address.
    let url = http::address(config, "v1beta", "models")?;
    let client = Client::builder().with_reqwest(clients.client(&url).await?).build();
    let client = client.map_err(|error| ModelError::Config(failure::chain(&error, Some(&key))))?;
    let target = ServiceTarget {
        endpoint: Endpoint::from_owned(url.as_str().trim_end_matches("models").to_owned()),
        auth: AuthData::from_single(key.expose().trim().to_owned()),
        model: ModelIden::new(AdapterKind::Gemini, config.model.as_str()),
    };
    let mut options = ChatOptions::default().with_capture_usage(true);
    options.temperature = config.temperature;
    options.max_tokens = config.output_limit(request);
    options.reasoning_effort = request.thinking.map(|level| match level {
        // The crate leaves the word for "none" out of the request, and the vendor would think.
        Thinking::Off => ReasoningEffort::Budget(0),
        Thinking::Low => ReasoningEffort::Low,
        Thinking::Medium => ReasoningEffort::Medium,
        Thinking::High => ReasoningEffort::High,
    });
    if request.thinking.is_some_and(|level| level > Thinking::Off) {
        options.capture_reasoning_content = Some(true);
    }
    let failed = Failures { key, now: clients.now() };
    let response = client.exec_chat_stream(target, chat_request(config, request)?, Some(&options)).await;
    let response = response.map_err(|error| failed.of(error, Shown::Nothing))?;
    let events = events(response.stream, failed, config.idle_timeout, format!("call_{}", request.messages.len()));
    // The request is sent by the first poll; what goes wrong before the first event belongs to the start of the call.
    let mut events = events.boxed();
    match events.next().await {
        Some(Err(error)) => Err(error),
        Some(Ok(first)) => Ok(stream::once(async { Ok(first) }).chain(events).boxed()),
        None => Err(ModelError::Stream("the answer was empty".to_owned())),
    }
}

fn chat_request(config: &VendorConfig, request: &ModelRequest) -> Result<ChatRequest, ModelError> {
    let mut messages = Vec::new();
    for turn in turns(config, request) {
        messages.push(match turn {
            Turn::User(text) => ChatMessage::user(text.into_owned()),
            Turn::Assistant { text, thought: _, signed: _, calls } => {
                let mut parts = Vec::with_capacity(calls.len() + 1);
                parts.extend(Some(text.into_owned()).filter(|text| !text.is_empty()).map(ContentPart::Text));
                for call in calls {
                    let arguments =
                        serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::Object(Default::default()));
                    parts.push(ContentPart::ToolCall(ToolCall {
                        call_id: call.id.to_string(),
                        fn_name: call.name.into_owned(),
                        fn_arguments: arguments,
                        thought_signatures: None,
                    }));
                }
                ChatMessage::assistant(MessageContent::from_parts(parts))
            }
            Turn::Results(results) => {
                let results = results.into_iter().map(|result| {
                    ToolResponse::new(result.id.to_string(), result.content).with_fn_name(result.name.into_owned())
                });
                ChatMessage::tool(MessageContent::from_tool_responses(results.collect()))
            }
        });
    }
    let mut chat = ChatRequest::new(messages);
    chat.system = system(request).map(str::to_owned);
    if config.native_tools && !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            Tool::new(tool.name.clone()).with_description(tool.description.clone()).with_schema(tool.parameters.clone())
        });
        chat = chat.with_tools(tools);
    }
    Ok(chat)
}

/// Whether something was shown already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Something,
}

struct State<S> {
    stream: Option<S>,
    waiting: std::collections::VecDeque<Result<ModelEvent, ModelError>>,
    shown: Shown,
    failures: Failures,
    idle: Duration,
    ids: HashSet<String>,
    id_base: String,
}

/// Our events from the crate's.
fn events<S>(
    stream: S,
    failures: Failures,
    idle: Duration,
    id_base: String,
) -> impl Stream<Item = Result<ModelEvent, ModelError>> + Send
where
    S: Stream<Item = genai::Result<ChatStreamEvent>> + Send + Unpin + 'static,
{
    let state = State {
        stream: Some(stream),
        waiting: Default::default(),
        shown: Shown::Nothing,
        failures,
        idle,
        ids: HashSet::new(),
        id_base,
    };
    stream::unfold(state, |mut state| async move {
        loop {
            if let Some(event) = state.waiting.pop_front() {
                state.shown = Shown::Something;
                return Some((event, state));
            }
            let source = state.stream.as_mut()?;
            let next = timeout(state.idle, source.next()).await;
            state.take(next);
        }
    })
}

impl<S> State<S> {
    fn take(&mut self, next: Result<Option<genai::Result<ChatStreamEvent>>, tokio::time::error::Elapsed>) {
        let event = match next {
            Ok(Some(Ok(event))) => event,
            Ok(Some(Err(error))) => return self.fail(self.failures.of(error, self.shown)),
            Ok(None) => return self.cut(),
            Err(_) => return self.fail(ModelError::Idle(self.idle.as_secs())),
        };
        match event {
            ChatStreamEvent::Chunk(chunk) => self.waiting.push_back(Ok(ModelEvent::Text(chunk.content))),
            ChatStreamEvent::ReasoningChunk(chunk) => self.waiting.push_back(Ok(ModelEvent::Thought(chunk.content))),
            ChatStreamEvent::ToolCallChunk(chunk) => {
                let call = self.call(chunk.tool_call);
                self.waiting.push_back(Ok(ModelEvent::ToolCall(call)));
            }
            ChatStreamEvent::End(end) => self.end(end),
            ChatStreamEvent::Start | ChatStreamEvent::ThoughtSignatureChunk(_) | ChatStreamEvent::Heartbeat => {}
        }
    }

    /// The crate numbers calls without an id per chunk, so two chunks may give the same.
    fn call(&mut self, call: ToolCall) -> ToolCallRequest {
        let id = if self.ids.contains(&call.call_id) || call.call_id.starts_with("call#") {
            format!("{}_{}", self.id_base, self.ids.len() + 1)
        } else {
            call.call_id
        };
        self.ids.insert(id.clone());
        let arguments = if call.fn_arguments.is_null() { "{}".to_owned() } else { call.fn_arguments.to_string() };
        ToolCallRequest { id, name: call.fn_name, arguments }
    }

    fn end(&mut self, end: StreamEnd) {
        let stop = match end.captured_stop_reason {
            // The crate makes an end of its own when the answer has none.
            None => return self.cut(),
            Some(StopReason::MaxTokens(_)) => ModelStop::MaxTokens,
            Some(StopReason::ContentFilter(_)) => ModelStop::Refusal,
            Some(
                StopReason::Completed(_) | StopReason::ToolCall(_) | StopReason::StopSequence(_) | StopReason::Other(_),
            ) => ModelStop::End,
        };
        self.stream = None;
        let count = |number: Option<i32>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        self.waiting.extend(end.captured_usage.map(|usage| {
            let cached = usage.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
            Ok(ModelEvent::Usage(Usage {
                input: count(usage.prompt_tokens),
                output: count(usage.completion_tokens),
                cached: count(cached),
                written: 0,
            }))
        }));
        self.waiting.push_back(Ok(ModelEvent::Stop(stop)));
    }

    fn cut(&mut self) {
        let message = "the connection ended before the answer did".to_owned();
        let error = match self.shown {
            Shown::Nothing => ModelError::Transient { message, retry_after: None },
            Shown::Something => ModelError::Stream(message),
        };
        self.fail(error);
    }

    fn fail(&mut self, error: ModelError) {
        self.stream = None;
        self.waiting.push_back(Err(error));
    }
}

/// From the crate's errors to ours.
struct Failures {
    key: ApiKey,
    now: std::time::SystemTime,
}

impl Failures {
    fn of(&self, error: genai::Error, shown: Shown) -> ModelError {
        let key = Some(&self.key);
        match error {
            genai::Error::HttpError { status, body, headers, .. } => {
                let wait = failure::retry_after(&headers, self.now);
                Said::parse(body.as_bytes()).after_status(status.as_u16(), wait, key)
            }
            genai::Error::ChatResponse { body, .. } => Said::parse(body.to_string().as_bytes()).in_stream(key),
            genai::Error::WebStream { error, cause, .. } => {
                let error = match error.downcast::<genai::Error>() {
                    Ok(inner) => return self.of(*inner, shown),
                    Err(error) => error,
                };
                match error.downcast::<reqwest::Error>() {
                    Ok(error) if shown == Shown::Nothing => failure::unreachable(*error, key),
                    Ok(error) => ModelError::Stream(failure::chain(&error.without_url(), key)),
                    Err(_) => ModelError::Stream(failure::clean(&cause, key)),
                }
            }
            genai::Error::StreamParse { serde_error, .. } => {
                ModelError::Stream(format!("an event was not understood: {serde_error}"))
            }
            // What the others print may hold whole requests; their kind says enough.
            _ => ModelError::Request("the request could not be made in the vendor's form".to_owned()),
        }
    }
}
