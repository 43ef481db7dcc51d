//! The "always" answers of one session, by the exact scope of the action they were given for.
//! It refuses to widen a scope: another file, another argument or another directory is another question.

use std::collections::BTreeMap;

use zeroclaw_policy::Action;

/// Answers kept per session. One more is not kept and the person is asked again: a thousand distinct
/// "always" answers in one session is a client that answers by itself.
pub const MAX_REMEMBERED: usize = 1_000;

/// A remembered answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The action runs without a question.
    Allow,
    /// The action is rejected without a question.
    Reject,
}

/// The "always" answers of one session.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    // INVARIANT bounded: never more than `MAX_REMEMBERED` entries.
    answers: BTreeMap<String, Standing>,
}

impl Remembered {
    /// Nothing remembered.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The answer that covers this action of this tool.
    #[must_use]
    pub fn standing(&self, tool: &str, action: &Action) -> Option<Standing> {
        self.answers.get(&action.scope(tool)).copied()
    }

    /// Keeps an answer under a scope of [`Action::scope`]; reports whether there was room.
    pub fn remember(&mut self, scope: String, standing: Standing) -> bool {
        // INVARIANT bounded: a new key needs room.
        if self.answers.len() >= MAX_REMEMBERED && !self.answers.contains_key(&scope) {
            return false;
        }
        self.answers.insert(scope, standing);
        true
    }

    /// Takes an answer back; reports whether there was one.
    pub fn forget(&mut self, scope: &str) -> bool {
        self.answers.remove(scope).is_some()
    }

    /// Every answer with its scope, in the scopes' order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Standing)> {
        self.answers.iter().map(|(scope, standing)| (scope.as_str(), *standing))
    }
}
