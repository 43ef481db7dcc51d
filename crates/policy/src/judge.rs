//! The decision itself: a total function from rules, roots, tool and action to a judgement with every reason kept.

use std::path::Path;

use crate::{Action, CallHint, Level, Permit, RootKind, Roots, Ruleset};

/// How strict a reason is; the strictest wins, so combining is `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Runs.
    Allow,
    /// Runs when somebody says so.
    Ask,
    /// Does not run.
    Deny,
}

/// One rule that applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What this rule alone would decide.
    pub decision: Decision,
    /// A sentence for the person who is asked.
    pub text: String,
}

/// The outcome of judging an action.
#[derive(Debug)]
pub enum Judgement {
    /// It may run now.
    Granted(Permit),
    /// It may run when approved.
    Pending(Pending),
    /// It may not run.
    Refused(Refusal),
}

/// An action that waits for an answer.
#[derive(Debug)]
pub struct Pending {
    action: Action,
    reasons: Vec<Reason>,
}

impl Pending {
    /// The action that is asked about.
    #[must_use]
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// Every rule that applied.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }

    /// Turns the approval of exactly this action into its permit.
    pub fn approve(self) -> Permit {
        // INVARIANT judged: a `Pending` exists only for an action that `judge` let through to a person.
        Permit::new(self.action)
    }
}

/// Why an action may not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Every rule that applied.
    pub reasons: Vec<Reason>,
}

impl Refusal {
    /// The texts of the rules that refused, joined.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<&str> =
            self.reasons.iter().filter(|r| r.decision == Decision::Deny).map(|r| r.text.as_str()).collect();
        texts.join("; ")
    }
}

/// Judges one action of one tool.
#[must_use]
pub fn judge(rules: &Ruleset, roots: &Roots, tool: &str, action: Action) -> Judgement {
    let reasons = reasons(rules, roots, tool, &action);
    let decision = reasons.iter().map(|reason| reason.decision).max().unwrap_or(Decision::Deny);
    match decision {
        // INVARIANT judged: every reason allows.
        Decision::Allow => Judgement::Granted(Permit::new(action)),
        Decision::Ask => Judgement::Pending(Pending { action, reasons }),
        Decision::Deny => Judgement::Refused(Refusal { reasons }),
    }
}

fn reasons(rules: &Ruleset, roots: &Roots, tool: &str, action: &Action) -> Vec<Reason> {
    let mut reasons = vec![by_level(rules, tool, action)];
    if names(&rules.excluded_tools, tool) {
        reasons.push(deny(format!("the tool `{tool}` is excluded by configuration")));
    }
    if names(&rules.always_ask, tool) {
        reasons.push(Reason { decision: Decision::Ask, text: format!("`{tool}` is configured to always ask") });
    }
    match action {
        Action::Read { path } => reasons.extend(forbidden(rules, path.absolute())),
        Action::Write { path, .. } => {
            reasons.extend(forbidden(rules, path.absolute()));
            if roots.root(path.root()).is_none_or(|root| root.kind() == RootKind::ReadOnly) {
                reasons.push(deny("the file lies in a read-only directory".to_owned()));
            }
        }
        Action::Run { cwd, network, .. } => {
            reasons.extend(forbidden(rules, cwd.absolute()));
            if *network && rules.level == Level::Supervised {
                let text = "the command runs with network".to_owned();
                reasons.push(Reason { decision: Decision::Ask, text });
            }
        }
        Action::Call { .. } | Action::Converse => {}
    }
    reasons
}

fn by_level(rules: &Ruleset, tool: &str, action: &Action) -> Reason {
    if !action.has_side_effect() {
        return allow("reading inside the session's directories".to_owned());
    }
    match rules.level {
        Level::Full => allow("the level `full` asks for nothing".to_owned()),
        Level::Supervised if names(&rules.auto_approve, tool) => {
            allow(format!("`{tool}` is approved by configuration"))
        }
        Level::Supervised => {
            let text = match action {
                Action::Write { .. } => "the level `supervised` asks before a file is changed",
                Action::Run { .. } => "the level `supervised` asks before a command runs",
                Action::Call { hint: CallHint::Destructive, .. } => {
                    "the level `supervised` asks before a tool of an MCP server is called, and this one may destroy something"
                }
                Action::Call { .. } => "the level `supervised` asks before a tool of an MCP server is called",
                Action::Read { .. } | Action::Converse => "the level `supervised` asks first",
            };
            Reason { decision: Decision::Ask, text: text.to_owned() }
        }
        Level::Readonly => deny("the level `readonly` changes nothing".to_owned()),
    }
}

fn forbidden(rules: &Ruleset, path: &Path) -> Option<Reason> {
    rules
        .forbidden_paths
        .iter()
        .any(|forbidden| path.starts_with(forbidden))
        .then(|| deny("the path is forbidden by configuration".to_owned()))
}

fn names(list: &[String], tool: &str) -> bool {
    list.iter().any(|name| name == tool || name == "*")
}

fn allow(text: String) -> Reason {
    Reason { decision: Decision::Allow, text }
}

fn deny(text: String) -> Reason {
    Reason { decision: Decision::Deny, text }
}
