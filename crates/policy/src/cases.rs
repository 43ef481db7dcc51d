//! Tables of commands and what is to become of them: one line each, checked against a ruleset.
//!
//! ```text
//! # a comment
//! @level supervised
//! allow   git status
//! ask     cargo build
//! deny    sudo rm x
//! ask+    ls\nid          with `+`, `\n`, `\r`, `\t`, `\0` and `\\` are decoded
//! ```
//!
//! A line that begins with `@` changes the rules for the lines below it. The table is text in and mismatches out; this
//! module opens no file.

use std::path::PathBuf;

use thiserror::Error;

use crate::{
    Action, CommandRule, Decision, Facts, Level, Root, RootKind, Roots, Ruleset, Verdict, decide, wants_network,
};

/// The largest table, in bytes: a hundred thousand lines, far more than anybody checks by hand.
pub const MAX_TABLE: usize = 8 * 1024 * 1024;

/// Where a table starts from: the rules and the working directory of an agent.
#[derive(Clone, Debug)]
pub struct Base {
    /// The rules.
    pub rules: Ruleset,
    /// The directories of the session, the working directory first.
    pub roots: Vec<Root>,
}

/// A line whose command was decided about otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The line, from one.
    pub line: usize,
    /// The command, decoded.
    pub command: String,
    /// What the table says.
    pub expected: Decision,
    /// What the rules say.
    pub verdict: Verdict,
}

/// How a table went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many commands were checked.
    pub checked: usize,
    /// Those that differ.
    pub mismatches: Vec<Mismatch>,
}

/// A line that is none of the format.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {message}")]
pub struct TableError {
    /// The line, from one.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}

/// Decides about one command as the shell tool would run it in the first of these directories.
///
/// # Errors
/// When there is no directory.
pub fn decide_command(base: &Base, command: &str) -> Result<Verdict, crate::PathError> {
    let roots = Roots::new(base.roots.clone());
    let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), command.to_owned()];
    let cwd = roots.locate(".")?;
    let network = wants_network(&base.rules, &roots, "shell", &argv, &cwd);
    let action = Action::Run { argv, cwd, shown: command.to_owned(), network, pins: Vec::new() };
    Ok(decide(&base.rules, &action, &Facts { tool: "shell", roots: &roots }))
}

/// Checks a whole table.
///
/// # Errors
/// The first line that is none of the format.
pub fn check(text: &str, base: &Base) -> Result<Outcome, TableError> {
    let mut base = base.clone();
    let mut outcome = Outcome::default();
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let wrong = |message: String| TableError { line, message };
        let content = raw.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if let Some(directive) = content.strip_prefix('@') {
            direct(&mut base, directive).map_err(wrong)?;
            continue;
        }
        let (word, command) = content
            .split_once(char::is_whitespace)
            .ok_or_else(|| wrong("expected a decision and a command".to_owned()))?;
        let (word, encoded) = word.strip_suffix('+').map_or((word, false), |word| (word, true));
        let expected = decision(word).ok_or_else(|| wrong(format!("`{word}` is not allow, ask or deny")))?;
        let command = command.trim_start();
        let command = if encoded { decoded(command).map_err(wrong)? } else { command.to_owned() };
        let verdict = decide_command(&base, &command).map_err(|error| wrong(error.to_string()))?;
        outcome.checked += 1;
        if verdict.decision != expected {
            outcome.mismatches.push(Mismatch { line, command, expected, verdict });
        }
    }
    Ok(outcome)
}

fn decision(word: &str) -> Option<Decision> {
    match word {
        "allow" => Some(Decision::Allow),
        "ask" => Some(Decision::Ask),
        "deny" => Some(Decision::Deny),
        _ => None,
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('0') => '\0',
            Some('\\') => '\\',
            Some(other) => return Err(format!("`\\{other}` is not an escape of this format")),
            None => return Err("the line ends in a backslash".to_owned()),
        });
    }
    Ok(out)
}

/// Applies one `@` line.
fn direct(base: &mut Base, directive: &str) -> Result<(), String> {
    let (name, value) = directive.split_once(char::is_whitespace).unwrap_or((directive, ""));
    let value = value.trim();
    let list = || value.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    let path = || match value {
        _ if value.starts_with('/') => Ok(PathBuf::from(value)),
        _ => Err(format!("`{value}` is not an absolute path")),
    };
    match name {
        "level" => {
            base.rules.level = match value {
                "readonly" => Level::Readonly,
                "supervised" => Level::Supervised,
                "full" => Level::Full,
                _ => return Err(format!("`{value}` is not readonly, supervised or full")),
            };
        }
        "cwd" => base.roots = vec![Root::new(path()?, RootKind::Session)],
        "root" => base.roots.push(Root::new(path()?, RootKind::Additional)),
        "read_only_root" => base.roots.push(Root::new(path()?, RootKind::ReadOnly)),
        "home" => base.rules.home = Some(path()?),
        "search_path" => base.rules.search_path = list().into_iter().map(PathBuf::from).collect(),
        "forbidden_paths" => base.rules.forbidden_paths = list().into_iter().map(PathBuf::from).collect(),
        "allowed_commands" => base.rules.allowed_commands = list(),
        "auto_approve" => base.rules.auto_approve = list(),
        "always_ask" => base.rules.always_ask = list(),
        "network" => base.rules.network = if value.is_empty() { None } else { Some(said(value)?) },
        "workspace_only" => {
            base.rules.workspace_only = match value {
                "true" => Some(true),
                "false" => Some(false),
                "" => None,
                _ => return Err(format!("`{value}` is not true or false")),
            };
        }
        "rule" => {
            let (word, pattern) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
            let (word, network) = word.strip_suffix("+network").map_or((word, None), |word| (word, Some(true)));
            let rule = CommandRule::new(pattern.trim(), said(word)?).map_err(|error| error.to_string())?;
            base.rules.commands.push(rule.with_network(network));
        }
        "no_rules" => base.rules.commands.clear(),
        _ => return Err(format!("`@{name}` is not known")),
    }
    Ok(())
}

fn said(word: &str) -> Result<Decision, String> {
    decision(word).ok_or_else(|| format!("`{word}` is not allow, ask or deny"))
}
