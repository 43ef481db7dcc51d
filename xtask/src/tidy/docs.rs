//! The documents stay true: a command that a document tells the reader to type exists, and a link leads somewhere.

use std::collections::BTreeSet;

use super::{Check, Problem};

/// What a document may refer to.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) bins: BTreeSet<String>,
    pub(super) packages: BTreeSet<String>,
    /// The subcommands of `cargo xtask`, `bench start` included.
    pub(super) xtask: BTreeSet<String>,
    /// The tracked files.
    pub(super) files: BTreeSet<String>,
    /// The functions in files of tests and in test modules.
    pub(super) tests: BTreeSet<String>,
}

/// The command that runs every test; a reader looks for it on the first page.
const TEST_COMMAND: &str = "cargo test --workspace";

pub(super) fn check(file: &str, text: &str, known: &Known) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for message in line_commands(line, known) {
            problems.push(Problem::new(Check::Command, file, index + 1, message));
        }
    }
    if file == "README.md" && !text.lines().any(|line| line.contains(TEST_COMMAND)) {
        problems.push(Problem::new(Check::Command, file, 0, format!("`{TEST_COMMAND}` is missing")));
    }
    problems.extend(witnesses(file, text, known));
    problems.extend(links(file, text, known));
    problems
}

/// A rule that names a test as its witness names one that exists. A name of three words or more is taken for a test;
/// lints have two at most.
fn witnesses(file: &str, text: &str, known: &Known) -> Vec<Problem> {
    let mut problems = Vec::new();
    let lines = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("Checked by:"));
    for (index, line) in lines {
        let spans = line.split('`').enumerate().filter(|(place, _)| place % 2 == 1).map(|(_, span)| span);
        for name in spans.filter(|span| is_test_name(span) && !known.tests.contains(*span)) {
            let message = format!("there is no test `{name}`");
            problems.push(Problem::new(Check::Witness, file, index + 1, message).about(name));
        }
    }
    problems
}

fn is_test_name(span: &str) -> bool {
    let is_name = span.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    is_name && span.split('_').count() > 2
}

/// What is wrong with the cargo commands on one line.
fn line_commands(line: &str, known: &Known) -> Vec<String> {
    let mut messages = Vec::new();
    for (at, _) in line.match_indices("cargo ") {
        // A command ends where its code span, its pipeline or its comment ends.
        let command = line[at..].split(['`', '|', ';', '#', '&', ')']).next().unwrap_or_default();
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.get(1) {
            Some(&"xtask") => messages.extend(xtask_problem(&words[2..], known)),
            Some(&("run" | "test" | "build" | "check" | "clippy" | "doc")) => {
                messages.extend(option_problems(&words[2..], known));
            }
            _ => {}
        }
    }
    messages
}

fn xtask_problem(words: &[&str], known: &Known) -> Option<String> {
    let name = words.first()?;
    let known_group = known.xtask.iter().any(|entry| entry.starts_with(&format!("{name} ")));
    let full = match words.get(1) {
        Some(below) if known_group && !below.starts_with('-') => format!("{name} {below}"),
        _ => (*name).to_owned(),
    };
    (!known.xtask.contains(&full)).then(|| format!("`cargo xtask {full}` does not exist"))
}

fn option_problems(words: &[&str], known: &Known) -> Vec<String> {
    let mut messages = Vec::new();
    let mut words = words.iter().take_while(|word| **word != "--");
    while let Some(word) = words.next() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (*word, None),
        };
        let (what, set) = match option {
            "--bin" => ("program", &known.bins),
            "-p" | "--package" => ("package", &known.packages),
            _ => continue,
        };
        match value.or_else(|| words.next().copied()) {
            Some(name) if set.contains(name) => {}
            Some(name) => messages.push(format!("no {what} `{name}` in the workspace")),
            None => messages.push(format!("`{option}` without a name")),
        }
    }
    messages
}

/// Checks the relative links and the anchors of a document.
fn links(file: &str, text: &str, known: &Known) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut anchors = BTreeSet::new();
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            if line.starts_with('#') {
                anchors.insert(anchor(line.trim_start_matches('#')));
            }
            found.extend(targets(&without_code_spans(line)).into_iter().map(|target| (index + 1, target)));
        }
    }
    for (line, target) in found {
        let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
        if is_elsewhere || target.is_empty() {
            continue;
        }
        let (path, fragment) = target.split_once('#').unwrap_or((&target, ""));
        let leads = if path.is_empty() {
            anchors.contains(fragment)
        } else {
            resolve(file, path).is_some_and(|path| exists(&path, known))
        };
        if !leads {
            problems.push(Problem::new(Check::Link, file, line, format!("`{target}` leads nowhere")).about(&target));
        }
    }
    problems
}

fn without_code_spans(line: &str) -> String {
    // Odd pieces are inside backticks. A link whose text is code keeps its target, which is outside of them.
    line.split('`').enumerate().map(|(index, piece)| if index % 2 == 0 { piece } else { "" }).collect()
}

/// The targets of `[text](target)` and of `[name]: target`.
fn targets(line: &str) -> Vec<String> {
    let mut targets: Vec<String> = line
        .match_indices("](")
        .filter_map(|(at, opening)| line[at + opening.len()..].split([')', ' ']).next())
        .map(str::to_owned)
        .collect();
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        targets.extend(target.split_whitespace().next().map(str::to_owned));
    }
    targets
}

/// The target as a path from the root; `None` when it leaves the tree.
fn resolve(file: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn exists(path: &str, known: &Known) -> bool {
    let folder = format!("{path}/");
    path.is_empty() || known.files.contains(path) || known.files.iter().any(|file| file.starts_with(&folder))
}

/// The anchor that a heading gets where the document is shown.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}
