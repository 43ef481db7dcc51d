//! `cargo xtask tidy`: the rules of the house that no other tool checks. Every check is a function from text to
//! problems; this file gathers the input, applies the written exceptions and prints everything that was found.

mod conformance;
mod docs;
mod exceptions;
mod layers;
mod lock;
mod manifests;
mod scan;
mod sizes;
mod source;
mod words;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Context, Result};
use clap::CommandFactory;

use self::docs::Known;
use self::scan::Source;
use crate::workspace::Workspace;
use crate::{Cli, Verdict};

/// Which rule was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    Ambient,
    Attribute,
    Command,
    Conformance,
    FileSize,
    FunctionSize,
    Layers,
    Link,
    LockBudget,
    Manifest,
    ModuleComment,
    Parse,
    Print,
    Pure,
    Stdout,
    Witness,
    Word,
    Exception,
}

impl fmt::Display for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Check::Ambient => "ambient",
            Check::Attribute => "attribute",
            Check::Command => "command",
            Check::Conformance => "conformance",
            Check::FileSize => "file-size",
            Check::FunctionSize => "function-size",
            Check::Layers => "layers",
            Check::Link => "link",
            Check::LockBudget => "lock-budget",
            Check::Manifest => "manifest",
            Check::ModuleComment => "module-comment",
            Check::Parse => "parse",
            Check::Print => "print",
            Check::Pure => "pure",
            Check::Stdout => "stdout",
            Check::Witness => "witness",
            Check::Word => "word",
            Check::Exception => "exception",
        })
    }
}

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    check: Check,
    file: String,
    /// 0 when the file as a whole is meant.
    line: usize,
    /// The function or path it is about; exceptions name it.
    item: String,
    /// For the size checks: how large it is.
    size: usize,
    message: String,
}

impl Problem {
    fn new(check: Check, file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { check, file: file.to_owned(), line, item: String::new(), size: 0, message: message.into() }
    }

    fn about(mut self, item: &str) -> Self {
        item.clone_into(&mut self.item);
        self
    }

    fn sized(mut self, size: usize) -> Self {
        self.size = size;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.check, self.file)?;
        if self.line > 0 {
            write!(formatter, ":{}", self.line)?;
        }
        write!(formatter, ": {}", self.message)
    }
}

pub(crate) fn run(workspace: &Workspace) -> Result<Verdict> {
    let files = workspace.tracked_files()?;
    let packages = workspace.packages()?;
    let mut problems = layers::check(&packages);

    let mut known = Known {
        bins: packages.bins().into_iter().map(str::to_owned).collect(),
        packages: packages.members.iter().map(|member| member.name.clone()).collect(),
        xtask: xtask_commands(),
        files: files.iter().cloned().collect(),
        tests: BTreeSet::new(),
    };
    let mut rust_files = 0;
    let mut documents = Vec::new();
    let mut with_ids = Vec::new();
    for file in &files {
        let bytes = std::fs::read(workspace.root.join(file)).with_context(|| format!("cannot read {file}"))?;
        // Fixtures may be binary, or text that is not UTF-8 on purpose; the text rules do not concern them.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        problems.extend(words::check(file, &text));
        if file.ends_with(".rs") {
            rust_files += 1;
            let (found, tests) = check_source(file, &text);
            problems.extend(found);
            if conformance::has_ids(file) {
                with_ids.extend(tests.iter().map(|name| conformance::Test { file: file.clone(), name: name.clone() }));
            }
            known.tests.extend(tests);
        } else if file.ends_with(".md") {
            documents.push((file, text));
        } else if file.ends_with("Cargo.toml") {
            problems.extend(manifests::check(file, &text));
        } else if file == "Cargo.lock" {
            problems.extend(lock::check(file, &text));
        }
    }

    // After the code: a document may name any of its tests.
    for (file, text) in &documents {
        problems.extend(docs::check(file, text, &known));
    }
    let page = documents.iter().find(|(file, _)| *file == conformance::PAGE).map_or("", |(_, text)| text);
    problems.extend(conformance::check(page, &with_ids));

    let problems = exceptions::apply(problems, exceptions::LIST);
    for problem in &problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        println!("tidy: {} files, {rust_files} of them Rust, nothing to report", files.len());
        return Ok(Verdict::Pass);
    }
    println!("tidy: {} problems", problems.len());
    Ok(Verdict::Fail)
}

/// Every check that looks at one Rust file, and the names of its tests.
fn check_source(file: &str, text: &str) -> (Vec<Problem>, Vec<String>) {
    let mut problems = source::module_comment(file, text);
    problems.extend(sizes::file(file, text));
    let source = match Source::parse(file, text) {
        Ok(source) => source,
        Err(problem) => {
            problems.push(problem);
            return (problems, Vec::new());
        }
    };
    problems.extend(sizes::functions(&source));
    problems.extend(source::prints(&source));
    problems.extend(source::stdout(&source));
    problems.extend(source::ambient(&source));
    problems.extend(source::pure(&source));
    problems.extend(source::attributes(&source));
    (problems, source.test_functions())
}

/// The subcommands of this program as they are typed, `bench start` included.
fn xtask_commands() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for command in Cli::command().get_subcommands() {
        names.insert(command.get_name().to_owned());
        for below in command.get_subcommands() {
            names.insert(format!("{} {}", command.get_name(), below.get_name()));
        }
    }
    names
}
