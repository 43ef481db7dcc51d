//! What the operator configured: the autonomy level and the rules of a risk profile.

use std::path::PathBuf;

use thiserror::Error;

use crate::{Decision, Forbidden, Roots, path, shell, shell::Word};

/// How much an agent may do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing that changes anything.
    Readonly,
    /// What is risky is asked for, what is dangerous is refused.
    Supervised,
    /// Nothing is asked; forbidden paths, excluded tools and the operator's own rules still hold.
    Full,
}

impl Level {
    /// The level's name in configuration and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Readonly => "readonly",
            Self::Supervised => "supervised",
            Self::Full => "full",
        }
    }
}

/// The rules that apply to one session, with the facts about the machine that they need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// The autonomy level.
    pub level: Level,
    /// Tools that run without asking in `supervised`; what is dangerous stays refused.
    pub auto_approve: Vec<String>,
    /// Tools that ask even when they would run, at every level but `readonly`, where they follow the level.
    pub always_ask: Vec<String>,
    /// Tools that do not exist for the agent.
    pub excluded_tools: Vec<String>,
    /// The only programs that commands may call, by name; empty for no such limit. `*` stands for every program.
    /// A dangerous program that is named here is asked about instead of refused.
    pub allowed_commands: Vec<String>,
    /// Rules about single commands; the strictest that matches wins.
    pub commands: Vec<CommandRule>,
    /// What becomes of commands that use the network; `None` asks.
    pub network: Option<Decision>,
    /// Whether commands that name files outside the session's directories are refused (`true`) or may read them
    /// (`false`); `None` asks. The level `full` does not look at it.
    pub workspace_only: Option<bool>,
    /// Paths that no tool may name or reach, with everything below them, at every level.
    /// Relative ones are meant below every directory of the session.
    pub forbidden_paths: Vec<PathBuf>,
    /// Directories that hold what is the program's own. They are forbidden except for a session whose own directory is
    /// one of them or lies inside, which opens that directory and nothing else.
    pub private_dirs: Vec<PathBuf>,
    /// The home directory that `~` stands for in commands.
    pub home: Option<PathBuf>,
    /// Where the shell looks for programs.
    pub search_path: Vec<PathBuf>,
    /// Whether the file system takes two letter cases of one name for the same file.
    pub fold_case: bool,
}

impl Ruleset {
    /// A ruleset of the given level without further rules.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self {
            level,
            auto_approve: Vec::new(),
            always_ask: Vec::new(),
            excluded_tools: Vec::new(),
            allowed_commands: Vec::new(),
            commands: Vec::new(),
            network: None,
            workspace_only: None,
            forbidden_paths: Vec::new(),
            private_dirs: Vec::new(),
            home: None,
            search_path: Vec::new(),
            fold_case: false,
        }
    }

    /// What is forbidden in a session with these directories.
    #[must_use]
    pub fn forbidden(&self, roots: &Roots) -> Forbidden {
        let mut places = Vec::with_capacity(self.forbidden_paths.len());
        for path in &self.forbidden_paths {
            if path.is_absolute() {
                places.extend(path::normalize(path));
            } else {
                places.extend(roots.iter().filter_map(|root| path::normalize(&root.path().join(path))));
            }
        }
        Forbidden::new(places, self.private_dirs.clone(), roots, self.fold_case)
    }

    /// Whether the limit on programs lets this one through.
    pub(crate) fn permits_command(&self, folded: &str) -> bool {
        self.allowed_commands.is_empty()
            || self.allowed_commands.iter().any(|name| name == "*")
            || self.names_command(folded)
    }

    /// Whether the operator names this program; `*` names none.
    pub(crate) fn names_command(&self, folded: &str) -> bool {
        let base = |name: &str| name.rsplit_once('/').map_or(name, |(_, base)| base).to_lowercase();
        self.allowed_commands.iter().any(|name| base(name) == folded)
            || self.commands.iter().any(|rule| rule.decision != Decision::Deny && rule.names(folded))
    }
}

/// The longest pattern of a rule, in bytes: a rule has to be read at a glance to be right.
pub const MAX_PATTERN: usize = 512;

/// Why a rule about commands cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RuleError {
    /// Not one plain command.
    #[error("`{0}` is not one plain command; write its words, with `*` for any word or, at the end, for any words")]
    Pattern(String),
    /// A command that should be covered is not.
    #[error("the example `{0}` should match and does not")]
    Example(String),
    /// A command that should not be covered is.
    #[error("the example `{0}` should not match and does")]
    Counterexample(String),
}

/// A rule about commands: a pattern of words and what becomes of the commands that match.
///
/// A `*` stands for one word, at the end for any number of words, none included. Other words are compared as they are;
/// the program's name is compared without its directory and without regard to letter case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRule {
    pattern: String,
    words: Vec<String>,
    decision: Decision,
    network: Option<bool>,
}

impl CommandRule {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A pattern that is not one plain command, or that begins with `*`.
    pub fn new(pattern: &str, decision: Decision) -> Result<Self, RuleError> {
        let bad = || RuleError::Pattern(pattern.to_owned());
        if pattern.len() > MAX_PATTERN {
            return Err(bad());
        }
        let script = shell::parse(pattern);
        let [shell::Step::Command(command)] = script.steps.as_slice() else { return Err(bad()) };
        if !script.single || !script.unclear.is_empty() || !command.assignments.is_empty() {
            return Err(bad());
        }
        let words: Option<Vec<String>> = command
            .words
            .iter()
            .map(|word| match word {
                Word::Literal(text) => Some(text.clone()),
                Word::Pattern(text) if text == "*" => Some("*".to_owned()),
                Word::Pattern(_) | Word::Home(_) | Word::Unknown(_) => None,
            })
            .collect();
        let mut words = words.ok_or_else(bad)?;
        let first = words.first_mut().ok_or_else(bad)?;
        if first == "*" {
            return Err(bad());
        }
        *first = first.rsplit_once('/').map_or(&**first, |(_, base)| base).to_lowercase();
        Ok(Self { pattern: pattern.to_owned(), words, decision, network: None })
    }

    /// Says whether what the rule allows runs with network. Left open, programs that are of no use without it have it and
    /// others do not. It means nothing for a rule that does not allow.
    #[must_use]
    pub fn with_network(mut self, network: Option<bool>) -> Self {
        self.network = network;
        self
    }

    /// Whether what the rule allows runs with network, where it says so.
    #[must_use]
    pub fn network(&self) -> Option<bool> {
        self.network
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// What becomes of the commands that match.
    #[must_use]
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Checks commands that must and must not match.
    ///
    /// # Errors
    /// The first example that shows the rule to be another than was meant.
    pub fn check(&self, matching: &[String], other: &[String]) -> Result<(), RuleError> {
        let covered = |example: &String| {
            shell::parse(example).steps.iter().any(|step| match step {
                shell::Step::Command(command) => {
                    let name = command.words.first().and_then(Word::literal).unwrap_or_default();
                    let base = name.rsplit_once('/').map_or(name, |(_, base)| base).to_lowercase();
                    self.matches(true, &base, &command.words)
                }
                shell::Step::Redirect(_) => false,
            })
        };
        if let Some(example) = matching.iter().find(|example| !covered(example)) {
            return Err(RuleError::Example(example.clone()));
        }
        match other.iter().find(|example| covered(example)) {
            Some(example) => Err(RuleError::Counterexample(example.clone())),
            None => Ok(()),
        }
    }

    /// Whether the rule is about this program.
    fn names(&self, folded: &str) -> bool {
        self.words.first().is_some_and(|name| name == folded)
    }

    /// Whether a command matches. Only the system's own program can be allowed by its name.
    pub(crate) fn matches(&self, trusted: bool, folded: &str, words: &[Word]) -> bool {
        if !self.names(folded) || (self.decision == Decision::Allow && !trusted) {
            return false;
        }
        let mut given = words.iter().skip(1);
        let mut pattern = self.words.iter().skip(1).peekable();
        while let Some(part) = pattern.next() {
            if part == "*" && pattern.peek().is_none() {
                return true;
            }
            let Some(word) = given.next() else { return false };
            let same = match word {
                Word::Literal(text) => part == "*" || part == text,
                // What is not known yet can be every word: that refuses, and never allows.
                Word::Home(_) | Word::Pattern(_) | Word::Unknown(_) => part == "*" || self.decision != Decision::Allow,
            };
            if !same {
                return false;
            }
        }
        given.next().is_none()
    }
}
