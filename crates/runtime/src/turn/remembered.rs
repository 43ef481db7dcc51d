//! The "always" answers that count in one session: those kept for its agent and directory, and its own.
//! A rejection wins over everything; it refuses to widen an answer beyond its grant.

use zeroclaw_policy::{Action, Grant};

/// Answers of each kind that count in a session. One more is not kept and the person is asked again: a thousand distinct
/// "always" answers are those of a client that answers by itself.
pub const MAX_REMEMBERED: usize = 1_000;

/// A remembered answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The action runs without a question.
    Allow,
    /// The action is rejected without a question.
    Reject,
}

/// What was said about an action before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// The answer.
    pub standing: Standing,
    /// Whether it was said about the directory and not about this action: then it counts only for what really lies there.
    pub about_directory: bool,
}

/// The "always" answers that count in one session.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    // INVARIANT bounded: neither list is ever longer than `MAX_REMEMBERED`.
    kept: Vec<(Grant, Standing)>,
    own: Vec<(Grant, Standing)>,
}

impl Remembered {
    /// Nothing remembered.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was said that covers this action of this tool: a rejection before everything else, an answer about the action
    /// before one about its directory.
    #[must_use]
    pub fn said(&self, tool: &str, action: &Action) -> Option<Said> {
        let covering = self.kept.iter().chain(&self.own).filter(|(grant, _)| grant.covers(tool, action));
        let said = covering.map(|(grant, standing)| Said { standing: *standing, about_directory: grant.is_tree() });
        said.min_by_key(|said| (said.standing != Standing::Reject, said.about_directory))
    }

    /// Keeps an answer for the session, unless it is remembered already; reports whether there was room.
    pub fn remember(&mut self, grant: Grant, standing: Standing) -> bool {
        let is_known = |(known, said): &(Grant, Standing)| *known == grant && *said == standing;
        if self.kept.iter().any(is_known) {
            return true;
        }
        put(&mut self.own, grant, standing)
    }

    /// Notes an answer that is kept elsewhere; reports whether there was room.
    pub fn keep(&mut self, grant: Grant, standing: Standing) -> bool {
        put(&mut self.kept, grant, standing)
    }

    /// Replaces the answers that are kept elsewhere by those that are now; what exceeds the limit does not count.
    pub fn renew(&mut self, kept: impl Iterator<Item = (Grant, Standing)>) {
        // INVARIANT bounded: no more than the limit is taken.
        self.kept = kept.take(MAX_REMEMBERED).collect();
    }

    /// Lets only rejections count of what is kept elsewhere, when it cannot be found out what is still kept.
    pub fn distrust(&mut self) {
        self.kept.retain(|(_, standing)| *standing == Standing::Reject);
    }
}

fn put(list: &mut Vec<(Grant, Standing)>, grant: Grant, standing: Standing) -> bool {
    if let Some((_, known)) = list.iter_mut().find(|(known, _)| *known == grant) {
        *known = standing;
        return true;
    }
    // INVARIANT bounded: a new one needs room.
    if list.len() >= MAX_REMEMBERED {
        return false;
    }
    list.push((grant, standing));
    true
}
