//! What the model says in one turn, kept as it streams: whole for the history, by message for the outcome.
//! Appending is all that happens per piece, so a long answer costs what it is long.

use super::ids::Ids;

/// How the model speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    /// Visible text.
    Text,
    /// Reasoning.
    Thought,
}

/// The running answer and the last visible message.
#[derive(Debug, Default)]
pub(super) struct Speech {
    text: String,
    thought: String,
    voice: Option<Voice>,
    id: String,
    /// Where the current visible message begins in `text`.
    begin: usize,
    /// The last visible message of earlier answers.
    last: String,
}

impl Speech {
    /// Takes one piece; returns the id of the message it belongs to.
    pub(super) fn add(&mut self, voice: Voice, piece: &str, ids: &Ids) -> &str {
        if self.voice != Some(voice) {
            self.voice = Some(voice);
            self.id = ids.message();
            if voice == Voice::Text {
                self.begin = self.text.len();
            }
        }
        match voice {
            Voice::Text => self.text.push_str(piece),
            Voice::Thought => self.thought.push_str(piece),
        }
        &self.id
    }

    /// Ends the current message: what follows has an id of its own.
    pub(super) fn pause(&mut self) {
        self.voice = None;
    }

    /// Bytes of the running answer.
    pub(super) fn len(&self) -> usize {
        self.text.len() + self.thought.len()
    }

    /// Ends the answer and hands out its text and thought.
    pub(super) fn finish(&mut self) -> (String, String) {
        self.pause();
        if let Some(current) = self.text.get(self.begin..).filter(|current| !current.is_empty()) {
            current.clone_into(&mut self.last);
        }
        self.begin = 0;
        (std::mem::take(&mut self.text), std::mem::take(&mut self.thought))
    }

    /// The last visible message of the answers that ended.
    pub(super) fn into_last(self) -> String {
        self.last
    }
}
