//! The conversation in the shape that every vendor accepts, before it is written in one vendor's words.
//!
//! Sessions outlive vendors and turns are interrupted. So ids are made unique and plain, broken arguments become an
//! object, a call without a result gets one, a result without a call is dropped, and what is empty is left out.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use serde_json::value::RawValue;

use crate::model::{Message, ToolCallRequest};

/// One turn of the conversation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn<'a> {
    /// The user speaks; never empty.
    User(Cow<'a, str>),
    /// The model speaks, calls, or both.
    Assistant {
        /// May be empty when there are calls.
        text: Cow<'a, str>,
        /// The thought, when it belongs to the turn that is running.
        thought: Option<&'a str>,
        /// The thought as the vendor signed it, one JSON text each, when it belongs to the turn that is running.
        signed: &'a [String],
        /// The calls, each with a result in the turn that follows.
        calls: Vec<Call<'a>>,
    },
    /// The results of the calls before, in their order.
    Results(Vec<CallResult<'a>>),
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call<'a> {
    /// `[a-zA-Z0-9_-]{1,64}`, unique in the conversation.
    pub(super) id: Arc<str>,
    /// `[a-zA-Z0-9_-]{1,64}`.
    pub(super) name: Cow<'a, str>,
    /// The text of a JSON object.
    pub(super) arguments: Cow<'a, str>,
    /// The id in the messages.
    pub(super) original_id: &'a str,
}

/// What a call gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CallResult<'a> {
    /// The call's id.
    pub(super) id: Arc<str>,
    /// The call's tool.
    pub(super) name: Cow<'a, str>,
    /// Never empty.
    pub(super) content: &'a str,
    /// Whether it failed.
    pub(super) failed: bool,
}

/// How tool calls of the past are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallForm {
    /// As calls.
    Native,
    /// As text, for models that know none.
    Text,
}

/// Brings messages into shape.
pub(super) fn conversation(messages: &[Arc<Message>], form: CallForm) -> Vec<Turn<'_>> {
    let running = messages.iter().rposition(|message| matches!(message.as_ref(), Message::User { .. })).unwrap_or(0);
    let mut shaper =
        Shaper { turns: Vec::with_capacity(messages.len() + 1), open: Vec::new(), ids: HashSet::new(), form };
    for (index, message) in messages.iter().enumerate() {
        match message.as_ref() {
            Message::User { text } => {
                shaper.close();
                shaper.user(if text.trim().is_empty() { NO_TEXT } else { text });
            }
            Message::Assistant { text, thought, tool_calls, signed } => {
                shaper.close();
                let thought = Some(thought.as_str()).filter(|thought| index > running && !thought.is_empty());
                let signed = if index > running { signed.as_slice() } else { &[] };
                shaper.assistant(text, thought, tool_calls, signed);
            }
            Message::Tool { call_id, content, failed } => shaper.result(call_id, content, *failed),
        }
    }
    shaper.close();
    shaper.turns
}

struct Shaper<'a> {
    turns: Vec<Turn<'a>>,
    /// Calls of the last assistant turn, and their results as far as they have come.
    open: Vec<(Call<'a>, Option<(&'a str, bool)>)>,
    ids: HashSet<Arc<str>>,
    form: CallForm,
}

impl<'a> Shaper<'a> {
    fn user(&mut self, text: &'a str) {
        self.turns.push(Turn::User(Cow::Borrowed(text)));
    }

    fn assistant(
        &mut self,
        text: &'a str,
        thought: Option<&'a str>,
        requests: &'a [ToolCallRequest],
        signed: &'a [String],
    ) {
        // Some vendors refuse text that is only white space.
        let text = if text.trim().is_empty() { "" } else { text };
        if text.is_empty() && requests.is_empty() {
            return;
        }
        if self.turns.is_empty() {
            self.user(OMITTED);
        }
        let calls: Vec<Call<'a>> = requests.iter().map(|request| self.call(request)).collect();
        self.open = calls.iter().cloned().map(|call| (call, None)).collect();
        let (text, calls) = match self.form {
            CallForm::Native => (Cow::Borrowed(text), calls),
            CallForm::Text => (Cow::Owned(told(text, &calls)), Vec::new()),
        };
        // Two in a row are what an interrupted turn leaves; vendors want the roles to alternate.
        if let Some(Turn::Assistant { text: before, calls: before_calls, signed: before_signed, .. }) =
            self.turns.last_mut()
            && before_calls.is_empty()
        {
            if !text.is_empty() {
                *before = Cow::Owned(format!("{before}\n\n{text}"));
            }
            *before_calls = calls;
            *before_signed = signed;
            return;
        }
        self.turns.push(Turn::Assistant { text, thought, signed, calls });
    }

    fn call(&mut self, request: &'a ToolCallRequest) -> Call<'a> {
        Call {
            id: self.unique(&request.id),
            name: plain(&request.name),
            arguments: object_text(&request.arguments),
            original_id: &request.id,
        }
    }

    fn unique(&mut self, id: &str) -> Arc<str> {
        let wanted = plain(id);
        let mut unique: Arc<str> = Arc::from(wanted.as_ref());
        let mut number = 2_u64;
        while !self.ids.insert(Arc::clone(&unique)) {
            let suffix = format!("_{number}");
            let kept = wanted.get(..wanted.len().min(MAX_NAME - suffix.len())).unwrap_or_default();
            unique = Arc::from(format!("{kept}{suffix}"));
            number += 1;
        }
        unique
    }

    fn result(&mut self, id: &str, content: &'a str, failed: bool) {
        let waiting = self.open.iter_mut().find(|(call, result)| call.original_id == id && result.is_none());
        if let Some((_, result)) = waiting {
            *result = Some((if content.trim().is_empty() { NO_OUTPUT } else { content }, failed));
        }
    }

    /// Writes the results of the calls before.
    fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let results = self.open.drain(..).map(|(call, result)| {
            let (content, failed) = result.unwrap_or((INTERRUPTED, true));
            CallResult { id: call.id, name: call.name, content, failed }
        });
        let results: Vec<_> = results.collect();
        match self.form {
            CallForm::Native => self.turns.push(Turn::Results(results)),
            CallForm::Text => {
                let texts: Vec<_> =
                    results.iter().map(|result| format!("[result of {}]\n{}", result.name, result.content)).collect();
                self.turns.push(Turn::User(Cow::Owned(texts.join("\n\n"))));
            }
        }
    }
}

fn told(text: &str, calls: &[Call<'_>]) -> String {
    let mut told = text.to_owned();
    for call in calls {
        let space = if told.is_empty() { "" } else { "\n" };
        told = format!("{told}{space}[call of {} with {}]", call.name, call.arguments);
    }
    told
}

/// A name or id that every vendor accepts.
fn plain(name: &str) -> Cow<'_, str> {
    let sound = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'_' || letter == b'-';
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(sound) {
        return Cow::Borrowed(name);
    }
    if name.is_empty() {
        return Cow::Borrowed("call");
    }
    let letters = name.chars().map(|letter| if u8::try_from(letter).is_ok_and(sound) { letter } else { '_' });
    Cow::Owned(letters.take(MAX_NAME).collect())
}

/// The arguments as the text of an object; broken ones are kept inside one, so that the model sees what it wrote.
pub(super) fn object_text(arguments: &str) -> Cow<'_, str> {
    let text = arguments.trim();
    if text.is_empty() {
        return Cow::Borrowed("{}");
    }
    if text.starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(serde_json::json!({ "malformed_arguments": text }).to_string())
}

/// What vendors allow for names and ids.
const MAX_NAME: usize = 64;
const NO_TEXT: &str = "(no text)";
const NO_OUTPUT: &str = "(no output)";
const INTERRUPTED: &str = "(interrupted before there was a result)";
const OMITTED: &str = "(the earlier conversation is left out)";
