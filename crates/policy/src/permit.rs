//! The proof that an action was judged.
//! Only this crate can make one; it is bound to one action, cannot be cloned, and using it consumes it.

use crate::Action;

/// Lets its holder perform exactly one action, once.
///
/// A tool takes paths, content and arguments from the permit, never from the model's call, so check and use cannot disagree.
#[derive(Debug)]
#[must_use = "a permit that is dropped permits nothing"]
pub struct Permit {
    // INVARIANT judged: a value exists only for an action that `judge` allowed or whose `Pending` was approved.
    action: Action,
}

impl Permit {
    pub(crate) fn new(action: Action) -> Self {
        // INVARIANT judged: called by `judge` and `Pending::approve` only.
        Self { action }
    }

    /// The action this permit is for.
    #[must_use]
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// Uses the permit up and hands out what to do.
    #[must_use]
    pub fn into_action(self) -> Action {
        self.action
    }
}
