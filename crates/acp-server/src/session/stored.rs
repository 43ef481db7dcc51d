//! The conversation as the store keeps it: messages one by one, and after a compaction all that the model sees from then on.
//! Nothing is taken out of the store: a reader begins with the last compaction, and what lies before it stays.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};
use zeroclaw_runtime::model::Message;
use zeroclaw_session_store::MessageRecord;

/// The stored form of a compaction. Its role sets it apart from every message.
#[derive(Deserialize, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Compaction<'a> {
    Compacted {
        /// How many messages at the end belong to the turn that ran.
        own: usize,
        /// What the model sees.
        messages: Vec<Cow<'a, Message>>,
    },
}

/// Writes a compaction.
pub(super) fn compacted(conversation: &[Arc<Message>], own: usize) -> serde_json::Result<Vec<u8>> {
    let messages = conversation.iter().map(|message| Cow::Borrowed(message.as_ref())).collect();
    serde_json::to_vec(&Compaction::Compacted { own, messages })
}

/// Builds what the model sees from what was stored. `left_out` says of a turn that it is no part of the conversation.
pub(super) fn conversation(
    session: &str,
    stored: &[MessageRecord],
    left_out: impl Fn(u64) -> bool,
) -> Vec<Arc<Message>> {
    let mut history: Vec<Arc<Message>> = Vec::with_capacity(stored.len());
    for record in stored {
        let out = left_out(record.turn);
        match serde_json::from_slice::<Message>(&record.payload) {
            Ok(message) if !out => history.push(Arc::new(message)),
            Ok(_) => {}
            Err(error) => match serde_json::from_slice::<Compaction<'_>>(&record.payload) {
                Ok(Compaction::Compacted { own, mut messages }) => {
                    // Turns before are as much shorter as ever; only what the turn itself said goes.
                    messages.truncate(messages.len().saturating_sub(if out { own } else { 0 }));
                    history = messages.into_iter().map(|message| Arc::new(message.into_owned())).collect();
                }
                Err(_) => tracing::warn!(session, %error, "a stored message cannot be read and is left out"),
            },
        }
    }
    history
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Arc, Message, MessageRecord, compacted, conversation};

    fn user(text: &str) -> Arc<Message> {
        Arc::new(Message::User { text: text.to_owned() })
    }

    fn record(position: u64, turn: u64, payload: Vec<u8>) -> MessageRecord {
        MessageRecord { position, turn, payload: Bytes::from(payload) }
    }

    fn message(position: u64, turn: u64, text: &str) -> MessageRecord {
        record(position, turn, serde_json::to_vec(user(text).as_ref()).unwrap())
    }

    #[test]
    fn a_conversation_begins_with_its_last_compaction() {
        let first = compacted(&[user("short 1")], 0).unwrap();
        let second = compacted(&[user("short 2"), user("three")], 1).unwrap();
        let stored = [
            message(0, 1, "one"),
            record(1, 2, first),
            message(2, 2, "two"),
            message(3, 3, "three"),
            record(4, 3, second),
            message(5, 3, "more of three"),
            record(6, 3, b"{}".to_vec()),
        ];
        let of = |out: u64| conversation("s", &stored, |turn| turn == out);
        assert_eq!(of(0), [user("short 2"), user("three"), user("more of three")]);
        assert_eq!(of(3), [user("short 2")], "a turn that does not count leaves what it made of the others");
        assert_eq!(conversation("s", &stored[..3], |_| false), [user("short 1"), user("two")]);
        assert_eq!(conversation("s", &stored[..1], |_| true), []);
    }
}
