//! Which part of the conversation a request holds: all of it while it fits, then the newest whole turns,
//! then the current turn with its older tool results shortened, then without its oldest steps.
//! The history itself is never changed here, and a tool call never goes without its result.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    model::{Message, ToolCallRequest, ToolSpec},
    turn::bound::shorten,
};

/// Tokens a message costs besides its text.
const MESSAGE_OVERHEAD: u64 = 8;
/// Tool results that no longer fit are cut to this many bytes.
pub(super) const SHORT_RESULT: usize = 1_024;
/// What stands for the answer of a turn that had none; vendors want one between two prompts.
const NO_ANSWER: &str = "[no answer]";
/// When turns have to leave, so many do that the rest fits into this share of the budget (in percent).
/// The next calls of the turn then keep the same beginning, which the vendor's cache needs.
const ROOM_AFTER_CUT: u64 = 75;

/// What a request is made of.
#[derive(Debug)]
pub(super) struct Composed {
    pub(super) messages: Vec<Arc<Message>>,
    /// Estimated tokens of the messages.
    pub(super) tokens: u64,
    /// Earlier turns that were left out.
    pub(super) turns_left_out: usize,
    /// Tool results or steps of this turn that were shortened or left out.
    pub(super) cut_inside: usize,
}

/// Estimates the tokens of a text: four bytes each, rounded up.
pub(super) fn text_tokens(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX).div_ceil(4)
}

/// Estimates the tokens of one message.
pub(super) fn message_tokens(message: &Message) -> u64 {
    let bytes = match message {
        Message::User { text } => text.len(),
        Message::Assistant { text, thought, tool_calls, signed } => {
            let calls = |call: &ToolCallRequest| call.id.len() + call.name.len() + call.arguments.len();
            // What is signed holds the thought once more; only one of the two is ever sent.
            let thoughts = thought.len().max(signed.iter().map(String::len).sum());
            text.len() + thoughts + tool_calls.iter().map(calls).sum::<usize>()
        }
        Message::Tool { call_id, content, .. } => call_id.len() + content.len(),
    };
    MESSAGE_OVERHEAD + text_tokens(bytes)
}

/// Estimates the tokens of tool descriptions, without writing their schemas out.
pub(super) fn spec_tokens(specs: &[ToolSpec]) -> u64 {
    specs
        .iter()
        .map(|spec| {
            MESSAGE_OVERHEAD + text_tokens(spec.name.len() + spec.description.len() + json_bytes(&spec.parameters))
        })
        .sum()
}

/// About the length of a value as JSON. Its depth is bounded: it came from a parser or from our own code.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => 2 + items.iter().map(json_bytes).sum::<usize>(),
        Value::Object(members) => {
            2 + members.iter().map(|(name, member)| name.len() + 4 + json_bytes(member)).sum::<usize>()
        }
    }
}

/// Chooses what of the history goes into a request of at most `budget` tokens.
/// The current turn begins at `turn_start`; of the turns before it, those from `window_start` on are considered.
/// Returns the request and where its window begins.
pub(super) fn compose(
    history: &[Arc<Message>],
    turn_start: usize,
    window_start: usize,
    budget: u64,
) -> (Composed, usize) {
    let (earlier, current) = history.split_at_checked(turn_start).unwrap_or((&[], history));
    let current_tokens: u64 = current.iter().map(|message| message_tokens(message)).sum();
    let kept_tokens: u64 = earlier.iter().skip(window_start).map(|message| message_tokens(message)).sum();
    let (begin, kept_tokens) = if current_tokens.saturating_add(kept_tokens) <= budget {
        (window_start.min(earlier.len()), kept_tokens)
    } else {
        newest_turns(earlier, window_start, (budget / 100 * ROOM_AFTER_CUT).saturating_sub(current_tokens))
    };
    let turns_left_out = earlier.iter().take(begin).filter(|message| is_user(message)).count();
    let mut messages: Vec<Arc<Message>> = Vec::with_capacity(history.len() - begin);
    for message in earlier.iter().skip(begin) {
        add(&mut messages, message);
    }
    let mut cut_inside = 0;
    let mut tokens = current_tokens.saturating_add(kept_tokens);
    if tokens <= budget {
        for message in current {
            add(&mut messages, message);
        }
    } else {
        // `newest_turns` kept nothing: the turn alone is too large.
        let (shortened, cut, left) = shorten_turn(current, current_tokens, budget);
        for message in &shortened {
            add(&mut messages, message);
        }
        cut_inside = cut;
        tokens = left;
    }
    (Composed { messages, tokens, turns_left_out, cut_inside }, begin)
}

/// The turns without those that ended after a tool call, with no answer.
pub(super) fn without_broken_off(earlier: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let broken_off = |turn: &&[Arc<Message>]| matches!(turn.last().map(|last| &**last), Some(Message::Tool { .. }));
    let turns = earlier.chunk_by(|_, next| !is_user(next));
    turns.filter(|turn| !broken_off(turn)).flatten().cloned().collect()
}

/// The beginning of the longest run of newest whole turns that fits, and its tokens.
pub(super) fn newest_turns(earlier: &[Arc<Message>], window_start: usize, room: u64) -> (usize, u64) {
    let (mut begin, mut kept, mut running) = (earlier.len(), 0, 0_u64);
    for (index, message) in earlier.iter().enumerate().skip(window_start).rev() {
        running = running.saturating_add(message_tokens(message));
        if running > room {
            break;
        }
        if is_user(message) {
            (begin, kept) = (index, running);
        }
    }
    (begin, kept)
}

/// Makes one turn fit as far as possible: results shortened from the oldest on, then steps left out from the oldest on.
/// The user's message and the last step always stay. Returns the messages, how many were touched, and their tokens.
fn shorten_turn(current: &[Arc<Message>], mut tokens: u64, budget: u64) -> (Vec<Arc<Message>>, usize, u64) {
    let mut kept: Vec<Arc<Message>> = current.to_vec();
    let mut touched = 0;
    for place in &mut kept {
        if tokens <= budget {
            return (kept, touched, tokens);
        }
        let Message::Tool { call_id, content, failed } = &**place else { continue };
        let Some(content) = shorten(content, SHORT_RESULT) else { continue };
        let short = Message::Tool { call_id: call_id.clone(), content, failed: *failed };
        tokens = tokens.saturating_sub(message_tokens(place)).saturating_add(message_tokens(&short));
        *place = Arc::new(short);
        touched += 1;
    }
    // A step is what the model said together with the results of its calls.
    let is_step = |message: &Arc<Message>| matches!(&**message, Message::Assistant { .. });
    let first = kept.iter().position(is_step).unwrap_or(kept.len());
    let last = kept.iter().rposition(is_step).unwrap_or(kept.len());
    let mut end = first;
    while tokens > budget && end < last {
        let next = kept.iter().skip(end + 1).position(is_step).map_or(last, |offset| end + 1 + offset);
        tokens = kept
            .iter()
            .skip(end)
            .take(next - end)
            .fold(tokens, |tokens, message| tokens.saturating_sub(message_tokens(message)));
        touched += next - end;
        end = next;
    }
    kept.drain(first..end);
    (kept, touched, tokens)
}

/// Adds a message in a form that vendors take: no assistant message without anything, no two user messages in a row.
/// Both happen after a turn that failed or was cancelled before the model said something.
fn add(messages: &mut Vec<Arc<Message>>, message: &Arc<Message>) {
    match &**message {
        Message::Assistant { text, tool_calls, .. } if text.is_empty() && tool_calls.is_empty() => {}
        Message::User { .. } => {
            // Not one message out of two: what was cancelled or refused must not be taken for a part of what comes now.
            if messages.last().is_some_and(is_user) {
                let text = NO_ANSWER.to_owned();
                let (thought, tool_calls, signed) = Default::default();
                messages.push(Arc::new(Message::Assistant { text, thought, tool_calls, signed }));
            }
            messages.push(Arc::clone(message));
        }
        Message::Assistant { .. } | Message::Tool { .. } => messages.push(Arc::clone(message)),
    }
}

pub(super) fn is_user(message: &Arc<Message>) -> bool {
    matches!(&**message, Message::User { .. })
}
