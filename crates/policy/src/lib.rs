//! Pure security decisions: what a tool call may do, and the permit that lets it.
//!
//! This crate owns autonomy levels, rules, paths inside roots, verdicts and permits.
//! It refuses clocks, environment, file system, threads and I/O of any kind: facts come in as values, decisions go out as values.
//!
//! ```
//! use zeroclaw_policy::{Action, Judgement, Level, Root, RootKind, Roots, Ruleset, judge};
//!
//! let roots = Roots::new(vec![Root::new("/w/project".into(), RootKind::Session)]);
//! let path = roots.locate("src/lib.rs").expect("inside the session directory");
//! let rules = Ruleset::new(Level::Supervised);
//! let action = Action::Read { path };
//! assert!(matches!(judge(&rules, &roots, "file_read", action), Judgement::Granted(_)));
//! ```

mod action;
pub mod cases;
mod command;
mod forbidden;
mod grant;
mod judge;
mod path;
mod permit;
mod rules;
pub mod shell;

pub use action::{Action, CallHint, Pin, Pinned, Replaces};
pub use forbidden::Forbidden;
pub use grant::{Grant, MAX_RULE};
pub use judge::{
    Decision, Facts, Judgement, Pending, Reason, Refusal, Verdict, decide, executed, judge, wants_network,
};
pub use path::{MAX_PATH, PathError, Root, RootKind, RootedPath, Roots};
pub use permit::{Fingerprint, Permit};
pub use rules::{CommandRule, Level, MAX_PATTERN, RuleError, Ruleset};

#[cfg(test)]
mod tests;
