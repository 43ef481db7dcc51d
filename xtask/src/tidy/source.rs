//! What code may say where: module comments, printing, standard output, the ambient world, lint attributes.

use syn::visit::{self, Visit};

use super::scan::Source;
use super::{Check, Problem};

const PRINT_MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];
/// Where a person reads what is printed. Anywhere else a stray byte breaks the protocol or gets lost.
const PRINT_PLACES: &[&str] = &["xtask/", "crates/app/src/cli/"];
/// Who may touch standard output: the stdio adapter, the command line, and the developer commands.
const STDOUT_PLACES: &[&str] = &["xtask/", "crates/acp-transport/", "crates/app/"];
/// Who may ask the machine for time, environment, directory and randomness: the composition root and what is above it.
const AMBIENT_PLACES: &[&str] = &["xtask/", "crates/app/", "bins/", "tests/"];
/// Crates that decide and never act.
const PURE_CRATES: &[&str] = &["crates/policy/", "crates/acp-protocol/"];

/// Ends of paths that read the world around the process.
const AMBIENT: &[&[&str]] = &[
    &["env", "args"],
    &["env", "args_os"],
    &["env", "current_dir"],
    &["env", "current_exe"],
    &["env", "home_dir"],
    &["env", "set_current_dir"],
    &["env", "temp_dir"],
    &["env", "var"],
    &["env", "var_os"],
    &["env", "vars"],
    &["env", "vars_os"],
    &["SystemTime", "now"],
    &["Timestamp", "now"],
    &["Zoned", "now"],
    &["getrandom", "fill"],
    &["getrandom", "u32"],
    &["getrandom", "u64"],
];
/// Parts of the standard library that act.
const ACTING: &[&[&str]] = &[
    &["std", "env"],
    &["std", "fs"],
    &["std", "net"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
];

/// The first thing in a file says what the file owns.
pub(super) fn module_comment(file: &str, text: &str) -> Vec<Problem> {
    let comment = text.lines().next().and_then(|line| line.strip_prefix("//!"));
    if comment.is_some_and(|words| !words.trim().is_empty()) {
        return Vec::new();
    }
    vec![Problem::new(
        Check::ModuleComment,
        file,
        1,
        "the file does not open with a `//!` comment that says what it owns",
    )]
}

pub(super) fn prints(source: &Source<'_>) -> Vec<Problem> {
    if is_below(source.file, PRINT_PLACES) {
        return Vec::new();
    }
    let found = source.macros.iter().filter(|call| PRINT_MACROS.contains(&call.name.as_str()));
    let found = found.filter(|call| !source.is_test(call.line));
    found
        .map(|call| {
            let message = format!("`{}!` is for the terminal commands; write a log event instead", call.name);
            Problem::new(Check::Print, source.file, call.line, message).about(&call.name)
        })
        .collect()
}

pub(super) fn stdout(source: &Source<'_>) -> Vec<Problem> {
    if is_below(source.file, STDOUT_PLACES) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for path in source.paths.iter().filter(|path| !source.is_test(path.line)) {
        let name = path.segments.join("::");
        let message = if path.ends_with(&["io", "stdout"]) || path.ends_with(&["stdio", "stdout"]) {
            format!("`{name}`: only the stdio adapter and the command line write to standard output")
        } else if path.ends_with(&["Stdio", "inherit"]) {
            format!("`{name}`: a child that inherits standard output writes into the protocol")
        } else {
            continue;
        };
        problems.push(Problem::new(Check::Stdout, source.file, path.line, message).about(&name));
    }
    problems
}

pub(super) fn ambient(source: &Source<'_>) -> Vec<Problem> {
    if is_below(source.file, AMBIENT_PLACES) || source.file.ends_with("/build.rs") {
        return Vec::new();
    }
    let reads = |path: &&super::scan::PathUse| AMBIENT.iter().any(|tail| path.ends_with(tail));
    let found = source.paths.iter().filter(|path| !source.is_test(path.line)).filter(reads);
    found
        .map(|path| {
            let name = path.segments.join("::");
            let message = format!("`{name}`: time, randomness, environment and directory are parameters below `app`");
            Problem::new(Check::Ambient, source.file, path.line, message).about(&name)
        })
        .collect()
}

pub(super) fn pure(source: &Source<'_>) -> Vec<Problem> {
    if !is_below(source.file, PURE_CRATES) {
        return Vec::new();
    }
    let acts = |path: &&super::scan::PathUse| ACTING.iter().any(|head| path.starts_with(head));
    let found = source.paths.iter().filter(|path| !source.is_test(path.line)).filter(acts);
    found
        .map(|path| {
            let name = path.segments.join("::");
            Problem::new(Check::Pure, source.file, path.line, format!("`{name}` in a crate that only decides"))
                .about(&name)
        })
        .collect()
}

pub(super) fn attributes(source: &Source<'_>) -> Vec<Problem> {
    let mut finder = Attributes { file: source.file, problems: Vec::new() };
    finder.visit_file(&source.syntax);
    finder.problems
}

struct Attributes<'a> {
    file: &'a str,
    problems: Vec<Problem>,
}

impl<'ast> Visit<'ast> for Attributes<'_> {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let path = attribute.path();
        let arguments = match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            syn::Meta::Path(_) | syn::Meta::NameValue(_) => String::new(),
        };
        let message = if path.is_ident("allow") {
            "`allow` stays when its cause is gone; use `#[expect(lint, reason = \"...\")]`"
        } else if path.is_ident("expect") && !arguments.contains("reason") {
            "an `expect` without a reason"
        } else if path.is_ident("ignore") {
            "an ignored test proves nothing; make it run or remove it"
        } else if path.is_ident("should_panic") {
            "`should_panic` accepts any panic; assert what is wrong instead"
        } else {
            return visit::visit_attribute(self, attribute);
        };
        let name = path.get_ident().map(ToString::to_string).unwrap_or_default();
        let line = attribute.pound_token.span.start().line;
        self.problems.push(Problem::new(Check::Attribute, self.file, line, message).about(&name));
    }
}

fn is_below(file: &str, places: &[&str]) -> bool {
    places.iter().any(|place| file.starts_with(place))
}
