//! What a test scripts: one [`Reply`] per model request.
//!
//! Owns the vendor-neutral description of an answer and its quirks. It refuses to know any wire format: `render` turns
//! the parts into events and `wire` turns events into writes.

use std::{fmt::Display, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::sync::watch;

/// One tool call of an answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// Call id.
    pub id: String,
    /// Tool name.
    pub name: String,
    /// The text of the arguments, normally a JSON object; malformed text is sent as it is.
    pub arguments: String,
}

impl Call {
    /// A call; `arguments` may be a [`Value`] or raw text.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Display) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.to_string() }
    }
}

/// One piece of an answer.
#[derive(Clone, Debug)]
pub enum Part {
    /// One delta of visible text.
    Text(String),
    /// One delta of reasoning. Anthropic signs the finished block with [`super::signature_for`].
    Thought(String),
    /// One tool call; several in a row are sent one after the other.
    ToolCall {
        /// Call id.
        id: String,
        /// Tool name.
        name: String,
        /// The text of the arguments.
        arguments: String,
    },
    /// Several tool calls. When the flag is set, OpenAI opens all in one chunk and interleaves their fragments;
    /// Anthropic always sends one block after the other.
    ToolCalls(Vec<Call>, bool),
    /// What the answer is said to have cost. OpenAI sends it only when the request asks for it
    /// (`stream_options.include_usage`) or [`Reply::usage_chunk`] forces it.
    Usage {
        /// All tokens of the prompt, cached ones included.
        input: u64,
        /// Tokens of the answer.
        output: u64,
        /// Tokens of the prompt that were read from a cache.
        cached: u64,
    },
    /// The finish reason: `stop`, `length`, `tool_calls` or `content_filter`, which Anthropic spells `end_turn`,
    /// `max_tokens`, `tool_use` and `refusal`; another text is sent unchanged. Without it the reason is derived.
    Stop(String),
}

impl Part {
    /// One delta of visible text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// One delta of reasoning.
    pub fn thought(text: impl Into<String>) -> Self {
        Self::Thought(text.into())
    }

    /// One tool call; `arguments` may be a [`Value`] or raw text.
    pub fn tool_call(id: impl Into<String>, name: impl Into<String>, arguments: impl Display) -> Self {
        Self::ToolCall { id: id.into(), name: name.into(), arguments: arguments.to_string() }
    }

    /// The finish reason in the words of [`Part::Stop`].
    pub fn stop(reason: impl Into<String>) -> Self {
        Self::Stop(reason.into())
    }
}

/// How a stream ends.
#[derive(Clone, Debug)]
pub(super) enum End {
    Finish,
    Error(Value),
    Cut,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Stream { parts: Vec<Part>, end: End },
    Status { code: u16, body: Option<Value> },
    HangAfterHeaders,
}

/// How lines end inside the event stream; all three are legal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum LineEnd {
    #[default]
    Lf,
    CrLf,
    Cr,
}

/// Where the body is cut into writes. Each write is one chunk of the chunked coding, so that the client sees the same
/// boundaries whatever the kernel does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Writes {
    #[default]
    PerEvent,
    PerByte,
    Single,
    SplitUtf8,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Quirks {
    pub(super) fragment: Option<usize>,
    pub(super) repeat_name: bool,
    pub(super) line_end: LineEnd,
    pub(super) writes: Writes,
    pub(super) no_done: bool,
    pub(super) keep_open: bool,
    pub(super) empty_choices_first: bool,
    pub(super) null_delta: bool,
    pub(super) usage_chunk: bool,
    pub(super) comments: bool,
    pub(super) multi_line_data: bool,
    pub(super) delay: Option<Duration>,
    pub(super) reject_empty_content: bool,
    pub(super) close_delimited: bool,
    pub(super) cut_bytes: Option<usize>,
    pub(super) clean_cut: bool,
    pub(super) headers: Vec<(String, String)>,
    pub(super) gates: Vec<(usize, Gate)>,
}

/// One scripted answer. The constructors say what it is, the builders how oddly it is sent.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) kind: Kind,
    pub(super) quirks: Quirks,
}

impl Reply {
    fn of(kind: Kind) -> Self {
        Self { kind, quirks: Quirks::default() }
    }

    fn stream(parts: impl IntoIterator<Item = Part>, end: End) -> Self {
        Self::of(Kind::Stream { parts: parts.into_iter().collect(), end })
    }

    /// A whole turn from its parts, with a regular end.
    pub fn turn(parts: impl IntoIterator<Item = Part>) -> Self {
        Self::stream(parts, End::Finish)
    }

    /// Text in one delta.
    pub fn text(text: impl Into<String>) -> Self {
        Self::turn([Part::text(text)])
    }

    /// Text in several deltas.
    pub fn chunks<S: Into<String>>(chunks: impl IntoIterator<Item = S>) -> Self {
        Self::turn(chunks.into_iter().map(Part::text))
    }

    /// Reasoning in one delta, and nothing else.
    pub fn thought(text: impl Into<String>) -> Self {
        Self::turn([Part::thought(text)])
    }

    /// A single tool call; `arguments` may be a [`Value`] or raw text.
    pub fn tool_call(id: impl Into<String>, name: impl Into<String>, arguments: impl Display) -> Self {
        Self::turn([Part::tool_call(id, name, arguments)])
    }

    /// An HTTP status instead of a stream, with the error body the vendor uses unless [`Reply::body`] gives another.
    #[must_use]
    pub fn status(code: u16) -> Self {
        Self::of(Kind::Status { code, body: None })
    }

    /// 200 and the header fields of a stream, then silence until the client closes.
    #[must_use]
    pub fn hang_after_headers() -> Self {
        Self::of(Kind::HangAfterHeaders)
    }

    /// The parts, then an error in the stream, then the end of the body without a terminal event. `error` is the inner
    /// object (`{"type": .., "message": ..}`), or a whole body when it has an `error` member.
    pub fn error_mid_stream(parts: impl IntoIterator<Item = Part>, error: Value) -> Self {
        Self::stream(parts, End::Error(error))
    }

    /// The parts, then the socket is closed: no finish reason, no terminal event, no last chunk of the HTTP body.
    /// With [`Reply::clean_cut`] the HTTP body ends properly and only the events are missing.
    pub fn cut_after(parts: impl IntoIterator<Item = Part>) -> Self {
        Self::stream(parts, End::Cut)
    }

    /// Cuts the event stream after so many bytes of body, wherever that is.
    #[must_use]
    pub fn cut_after_bytes(mut self, bytes: usize) -> Self {
        self.quirks.cut_bytes = Some(bytes);
        self
    }

    /// A cut that HTTP does not show: the body ends properly and the events stop in the middle.
    #[must_use]
    pub fn clean_cut(mut self) -> Self {
        self.quirks.clean_cut = true;
        self
    }

    /// Adds a `Retry-After` header field.
    #[must_use]
    pub fn retry_after(self, value: &str) -> Self {
        self.header("Retry-After", value)
    }

    /// Adds a header field to the response.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.quirks.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The body of a [`Reply::status`]: a JSON value; a string is sent bare, as `text/plain`.
    #[must_use]
    pub fn body(mut self, value: impl Into<Value>) -> Self {
        let Kind::Status { body, .. } = &mut self.kind else { panic!("only a status reply takes a body") };
        *body = Some(value.into());
        self
    }

    /// Cuts tool arguments into fragments of at most so many bytes; a character is never cut.
    #[must_use]
    pub fn fragment_arguments(mut self, bytes: usize) -> Self {
        assert!(bytes > 0, "a fragment of zero bytes");
        self.quirks.fragment = Some(bytes);
        self
    }

    /// OpenAI: every later fragment of a call repeats the tool name but has no id. No effect on Anthropic.
    #[must_use]
    pub fn repeat_name_without_id(mut self) -> Self {
        self.quirks.repeat_name = true;
        self
    }

    /// Lines end in CR LF.
    #[must_use]
    pub fn crlf(mut self) -> Self {
        self.quirks.line_end = LineEnd::CrLf;
        self
    }

    /// Lines end in a lone CR.
    #[must_use]
    pub fn cr_only(mut self) -> Self {
        self.quirks.line_end = LineEnd::Cr;
        self
    }

    /// Every byte of the body is its own chunk and its own write.
    #[must_use]
    pub fn one_byte_writes(mut self) -> Self {
        self.quirks.writes = Writes::PerByte;
        self
    }

    /// The body is one chunk, written at once together with the head. Gates still divide it.
    #[must_use]
    pub fn one_write(mut self) -> Self {
        self.quirks.writes = Writes::Single;
        self
    }

    /// A write ends inside every character that has more than one byte, after its first byte.
    #[must_use]
    pub fn split_utf8(mut self) -> Self {
        self.quirks.writes = Writes::SplitUtf8;
        self
    }

    /// Leaves out the terminal event (`[DONE]`, `message_stop`); the finish reason is sent.
    #[must_use]
    pub fn no_done(mut self) -> Self {
        self.quirks.no_done = true;
        self
    }

    /// After the last event the body stays open until the client closes. Together with [`Reply::no_done`] the finish
    /// reason is the last thing the client ever sees.
    #[must_use]
    pub fn keep_open_after_finish(mut self) -> Self {
        self.quirks.keep_open = true;
        self
    }

    /// OpenAI: the stream opens with a chunk whose `choices` is empty. Anthropic: with a `ping`.
    #[must_use]
    pub fn empty_choices_first(mut self) -> Self {
        self.quirks.empty_choices_first = true;
        self
    }

    /// OpenAI: a chunk with `"delta": null` and one with `"content": null` before the first part. Anthropic: a `ping`.
    #[must_use]
    pub fn null_delta(mut self) -> Self {
        self.quirks.null_delta = true;
        self
    }

    /// OpenAI: the usage chunk is sent although the request did not ask for it. Anthropic always sends usage.
    #[must_use]
    pub fn usage_chunk(mut self) -> Self {
        self.quirks.usage_chunk = true;
        self
    }

    /// A comment line before every event.
    #[must_use]
    pub fn comments(mut self) -> Self {
        self.quirks.comments = true;
        self
    }

    /// The JSON of each event is spread over several `data:` lines, which a reader joins with a line feed.
    #[must_use]
    pub fn multi_line_data(mut self) -> Self {
        self.quirks.multi_line_data = true;
        self
    }

    /// Waits before every event but the first.
    #[must_use]
    pub fn delay_between(mut self, delay: Duration) -> Self {
        self.quirks.delay = Some(delay);
        self
    }

    /// The request that takes this reply is answered 400 if any message in it has empty content.
    #[must_use]
    pub fn reject_empty_content(mut self) -> Self {
        self.quirks.reject_empty_content = true;
        self
    }

    /// The body has no chunked coding and ends when the connection closes: a cut then looks like an end.
    #[must_use]
    pub fn close_delimited(mut self) -> Self {
        self.quirks.close_delimited = true;
        self
    }

    /// Pauses the stream after `parts` parts until the handle releases it. With a number at or beyond the number of
    /// parts it pauses before the finish reason. Several gates on one reply are passed in order.
    #[must_use]
    pub fn gate(mut self, parts: usize) -> (Self, Gate) {
        let gate = Gate::new();
        self.quirks.gates.push((parts, gate.clone()));
        self.quirks.gates.sort_by_key(|(after, _)| *after);
        (self, gate)
    }
}

/// Handle of a pause in a stream, made by [`Reply::gate`].
#[derive(Clone, Debug)]
pub struct Gate {
    inner: Arc<GateInner>,
}

#[derive(Debug)]
struct GateInner {
    reached: watch::Sender<bool>,
    released: watch::Sender<bool>,
    gone: watch::Sender<bool>,
}

impl Gate {
    fn new() -> Self {
        let flag = || watch::Sender::new(false);
        Self { inner: Arc::new(GateInner { reached: flag(), released: flag(), gone: flag() }) }
    }

    /// Lets the stream go on, now or when it gets there.
    pub fn release(&self) {
        self.inner.released.send_replace(true);
    }

    /// Waits until everything before the gate has been written.
    pub async fn reached(&self) {
        bounded(&self.inner.reached, "the stream to reach a gate").await;
    }

    /// Waits until the client has closed the connection before the end of the reply.
    pub async fn client_gone(&self) {
        bounded(&self.inner.gone, "the client to close the connection").await;
    }

    pub(super) fn arrive(&self) {
        self.inner.reached.send_replace(true);
    }

    pub(super) fn mark_gone(&self) {
        self.inner.gone.send_replace(true);
    }

    pub(super) async fn passed(&self) {
        self.inner.released.subscribe().wait_for(|open| *open).await.expect("the gate owns its sender");
    }
}

async fn bounded(flag: &watch::Sender<bool>, what: &str) {
    let mut flag = flag.subscribe();
    let waited = tokio::time::timeout(super::WAIT_LIMIT, flag.wait_for(|set| *set)).await;
    assert!(waited.is_ok(), "waited {:?} for {what}", super::WAIT_LIMIT);
}
