//! Turns what a model asked for into something that every vendor takes back and every client can show.
//! Vendors refuse a whole conversation for one repeated id, one odd name or one broken argument text,
//! and a conversation that is refused once is refused for good; so nothing of that kind gets into the history.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Value, json};

use crate::{
    model::{Message, ToolCallRequest},
    turn::{bound::one_line, ids::Ids},
};

/// The longest tool name that vendors take.
const MAX_NAME: usize = 64;
/// The longest id that is sent back as it came; a longer one is replaced.
const MAX_ID: usize = 128;

/// One tool call of an answer, ready to be looked at.
#[derive(Debug)]
pub(super) struct Call {
    /// The id towards the client.
    pub(super) id: Arc<str>,
    /// The id towards the model.
    pub(super) vendor_id: String,
    /// The name as the model wrote it, for the tool table only.
    pub(super) asked: String,
    /// The name for the client: one line, bounded.
    pub(super) shown: String,
    /// The arguments, or what is wrong with them.
    pub(super) arguments: Result<Value, String>,
    /// The arguments as valid JSON on one line.
    pub(super) raw_input: String,
}

/// Ids that the conversation already holds.
#[derive(Debug)]
pub(super) struct KnownIds(HashSet<String>);

impl KnownIds {
    pub(super) fn of(history: &[Arc<Message>]) -> Self {
        let calls = history.iter().filter_map(|message| match &**message {
            Message::Assistant { tool_calls, .. } => Some(tool_calls),
            Message::User { .. } | Message::Tool { .. } => None,
        });
        Self(calls.flatten().map(|call| call.id.clone()).collect())
    }

    /// Keeps a usable new id and replaces any other.
    fn admit(&mut self, id: String, own: &str) -> String {
        let usable = !id.is_empty() && id.len() <= MAX_ID && id.bytes().all(|b| b.is_ascii_graphic());
        let mut chosen = if usable && !self.0.contains(&id) { id } else { own.to_owned() };
        while !self.0.insert(chosen.clone()) {
            chosen.push('x');
        }
        chosen
    }
}

/// Takes one call in; the second value is its form in the history.
pub(super) fn take_in(request: ToolCallRequest, ids: &Ids, known: &mut KnownIds) -> (Call, ToolCallRequest) {
    let id = ids.call();
    let vendor_id = known.admit(request.id, &id);
    let (arguments, raw_input) = read_arguments(request.arguments);
    let kept =
        ToolCallRequest { id: vendor_id.clone(), name: vendor_name(&request.name), arguments: raw_input.clone() };
    let shown = one_line(&request.name, MAX_NAME);
    (Call { id, vendor_id, asked: request.name, shown, arguments, raw_input }, kept)
}

/// Reads arguments; the second value is valid JSON on one line in any case.
fn read_arguments(text: String) -> (Result<Value, String>, String) {
    // Several models send nothing at all for a tool without parameters.
    if text.trim().is_empty() {
        return (Ok(json!({})), "{}".to_owned());
    }
    let problem = match serde_json::from_str::<Value>(&text) {
        Ok(value @ Value::Object(_)) => {
            // Between tokens only: inside of strings JSON has no raw line break. A frame is one line.
            let line = if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text };
            return (Ok(value), line);
        }
        Ok(_) => "the arguments are not a JSON object".to_owned(),
        Err(error) => format!("the arguments are not valid JSON: {error}"),
    };
    let wrapped = json!({ "malformed": text }).to_string();
    (Err(problem), wrapped)
}

fn vendor_name(name: &str) -> String {
    let clean: String = name
        .chars()
        .take(MAX_NAME)
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
        .collect();
    if clean.is_empty() { "unknown".to_owned() } else { clean }
}
