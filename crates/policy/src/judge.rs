//! The decision itself: a total function from rules, roots, tool and action to a judgement with every reason kept.

use std::path::{Path, PathBuf};

use crate::{
    Action, CallHint, Fingerprint, Level, Permit, RootKind, RootedPath, Roots, Ruleset,
    command::{self, Examined, Finding, Reach, Risk},
};

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
    fingerprint: Fingerprint,
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
        Permit::new(self.action, self.fingerprint)
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

/// What a decision needs to know besides the rules and the action.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The name of the tool.
    pub tool: &'a str,
    /// The directories of the session.
    pub roots: &'a Roots,
}

/// A decision with every reason that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The strictest of the reasons.
    pub decision: Decision,
    /// Every reason, in the order in which they were found.
    pub reasons: Vec<Reason>,
}

/// Decides about an action without giving anything out: the same rules as [`judge`], for showing and testing.
#[must_use]
pub fn decide(rules: &Ruleset, action: &Action, facts: &Facts<'_>) -> Verdict {
    let reasons = reasons(rules, facts.roots, facts.tool, action);
    // Without a reason there is nothing that allows it.
    let decision = reasons.iter().map(|reason| reason.decision).max().unwrap_or(Decision::Deny);
    Verdict { decision, reasons }
}

/// Judges one action of one tool.
#[must_use]
pub fn judge(rules: &Ruleset, roots: &Roots, tool: &str, action: Action) -> Judgement {
    let Verdict { decision, reasons } = decide(rules, &action, &Facts { tool, roots });
    let fingerprint = action.fingerprint();
    match decision {
        // INVARIANT judged: every reason allows.
        Decision::Allow => Judgement::Granted(Permit::new(action, fingerprint)),
        Decision::Ask => Judgement::Pending(Pending { action, fingerprint, reasons }),
        Decision::Deny => Judgement::Refused(Refusal { reasons }),
    }
}

/// Whether a command is to be judged, shown and run with network when nobody says otherwise: what is of no use without it is,
/// and so is what may have to download something, as long as that does not turn a command that runs into one that asks.
#[must_use]
pub fn wants_network(rules: &Ruleset, roots: &Roots, tool: &str, argv: &[String], cwd: &RootedPath) -> bool {
    if rules.level == Level::Readonly || rules.network == Some(Decision::Deny) {
        return false;
    }
    let examined = command::examine(rules, roots, argv, cwd.absolute());
    match examined.reach {
        Reach::None => false,
        Reach::Needs => true,
        Reach::Downloads if examined.granted || is_open(rules) => true,
        Reach::Downloads => {
            let action = Action::Run {
                argv: argv.to_vec(),
                cwd: cwd.clone(),
                shown: String::new(),
                network: false,
                pins: Vec::new(),
            };
            decide(rules, &action, &Facts { tool, roots }).decision == Decision::Ask
        }
    }
}

/// The files of the session's directories that a command runs as programs or scripts, as far as its text says so: what is
/// asked about has to be what runs, and these can change while the question is open.
#[must_use]
pub fn executed(rules: &Ruleset, roots: &Roots, argv: &[String], cwd: &RootedPath) -> Vec<PathBuf> {
    command::examine(rules, roots, argv, cwd.absolute()).executed
}

/// Whether nobody is asked about the network.
fn is_open(rules: &Ruleset) -> bool {
    match (rules.network, rules.level) {
        (Some(Decision::Deny | Decision::Ask), _) | (_, Level::Readonly) | (None, Level::Supervised) => false,
        (Some(Decision::Allow), Level::Supervised | Level::Full) | (None, Level::Full) => true,
    }
}

fn reasons(rules: &Ruleset, roots: &Roots, tool: &str, action: &Action) -> Vec<Reason> {
    let mut reasons = match action {
        Action::Run { argv, cwd, network, .. } => {
            let Examined { findings, granted, .. } = command::examine(rules, roots, argv, cwd.absolute());
            let mut reasons = commands(rules, tool, findings);
            if *network {
                reasons.extend(with_network(rules, granted));
            }
            reasons
        }
        Action::Read { .. } | Action::Write { .. } | Action::Call { .. } | Action::Converse => {
            vec![by_level(rules, tool, action)]
        }
    };
    if names(&rules.excluded_tools, tool) {
        reasons.push(deny(format!("the tool `{tool}` is excluded by configuration")));
    }
    if names(&rules.always_ask, tool) {
        reasons.push(ask(format!("`{tool}` is configured to always ask")));
    }
    match action {
        Action::Read { path } => reasons.extend(forbidden(rules, roots, path.absolute())),
        Action::Write { path, .. } => {
            reasons.extend(forbidden(rules, roots, path.absolute()));
            if roots.root(path.root()).is_none_or(|root| root.kind() == RootKind::ReadOnly) {
                reasons.push(deny("the file lies in a read-only directory".to_owned()));
            }
        }
        Action::Run { cwd, .. } => reasons.extend(forbidden(rules, roots, cwd.absolute())),
        Action::Call { .. } | Action::Converse => {}
    }
    reasons
}

/// Turns what was found out about a command into reasons, by level and rules.
fn commands(rules: &Ruleset, tool: &str, findings: Vec<Finding>) -> Vec<Reason> {
    let approved = names(&rules.auto_approve, tool);
    findings.into_iter().map(|Finding { risk, text }| Reason { decision: weigh(rules, approved, risk), text }).collect()
}

/// What the network of a command means; `granted` when rules of the operator give it.
fn with_network(rules: &Ruleset, granted: bool) -> Option<Reason> {
    match (rules.network, rules.level) {
        (_, Level::Readonly) => Some(deny("the level `readonly` has no network".to_owned())),
        (Some(Decision::Deny), _) => Some(deny("the network is closed by configuration".to_owned())),
        _ if granted || is_open(rules) => None,
        _ => Some(ask("the command runs with network".to_owned())),
    }
}

/// What one finding means at a level.
fn weigh(rules: &Ruleset, approved: bool, risk: Risk) -> Decision {
    let medium = match rules.level {
        Level::Readonly => Decision::Deny,
        Level::Supervised if approved => Decision::Allow,
        Level::Supervised => Decision::Ask,
        Level::Full => Decision::Allow,
    };
    match risk {
        Risk::Low => Decision::Allow,
        Risk::Medium => medium,
        Risk::Refused => Decision::Deny,
        Risk::Asked => match rules.level {
            Level::Readonly => Decision::Deny,
            Level::Supervised | Level::Full => Decision::Ask,
        },
        Risk::High { named } => match rules.level {
            Level::Readonly => Decision::Deny,
            Level::Supervised if named => Decision::Ask,
            Level::Supervised => Decision::Deny,
            Level::Full => Decision::Allow,
        },
        Risk::Network => match (rules.network, rules.level) {
            (Some(Decision::Deny), _) => Decision::Deny,
            (_, Level::Readonly) => Decision::Deny,
            (Some(Decision::Allow), _) => Decision::Allow,
            (Some(Decision::Ask), Level::Full) => Decision::Ask,
            (Some(Decision::Ask) | None, Level::Supervised) => medium,
            (None, Level::Full) => Decision::Allow,
        },
        Risk::Outside => match (rules.level, rules.workspace_only) {
            (Level::Full, _) => Decision::Allow,
            (Level::Supervised | Level::Readonly, Some(false)) => Decision::Allow,
            (Level::Supervised | Level::Readonly, Some(true)) | (Level::Readonly, None) => Decision::Deny,
            (Level::Supervised, None) => Decision::Ask,
        },
    }
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
                Action::Call { hint: CallHint::Destructive, .. } => {
                    "the level `supervised` asks before a tool of an MCP server is called, and this one may destroy something"
                }
                Action::Call { .. } => "the level `supervised` asks before a tool of an MCP server is called",
                // Commands are judged one by one, and the others have no effect.
                Action::Run { .. } | Action::Read { .. } | Action::Converse => "the level `supervised` asks first",
            };
            ask(text.to_owned())
        }
        Level::Readonly => deny("the level `readonly` changes nothing".to_owned()),
    }
}

fn forbidden(rules: &Ruleset, roots: &Roots, path: &Path) -> Option<Reason> {
    rules.forbidden(roots).holds(path).then(|| deny("the path is forbidden by configuration".to_owned()))
}

fn names(list: &[String], tool: &str) -> bool {
    list.iter().any(|name| name == tool || name == "*")
}

fn allow(text: String) -> Reason {
    Reason { decision: Decision::Allow, text }
}

fn ask(text: String) -> Reason {
    Reason { decision: Decision::Ask, text }
}

fn deny(text: String) -> Reason {
    Reason { decision: Decision::Deny, text }
}
