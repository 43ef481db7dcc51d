//! `docs/conformance.md` and the tests agree: every rule of the page has a test that bears its id, and every test that
//! bears an id has its place on the page.

use std::collections::BTreeSet;

use super::{Check, Problem};

/// The page that lists rules and cases.
pub(super) const PAGE: &str = "docs/conformance.md";

/// A test by the file it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) file: String,
    pub(super) name: String,
}

/// Whether tests in this file bear ids.
pub(super) fn has_ids(file: &str) -> bool {
    let with_ids = [
        "tests/tests/conformance/",
        "tests/tests/cases_",
        "tests/tests/client_",
        "tests/tests/bridge.rs",
        "tests/tests/daemon.rs",
        "tests/tests/detach.rs",
        "tests/tests/mcp.rs",
    ];
    file.ends_with(".rs") && with_ids.iter().any(|start| file.starts_with(start))
}

/// Compares both ways.
pub(super) fn check(text: &str, tests: &[Test]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (mut ids, mut listed) = (BTreeSet::new(), BTreeSet::new());
    let known: BTreeSet<&str> = tests.iter().map(|test| test.name.as_str()).collect();
    for (index, line) in text.lines().enumerate() {
        let Some((id, cell)) = row(line) else { continue };
        let mut problem =
            |message: String| problems.push(Problem::new(Check::Conformance, PAGE, index + 1, message).about(id));
        if !ids.insert(id) {
            problem(format!("`{id}` is listed twice"));
        }
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            problem(format!("`{id}` has no test"));
        }
        for name in names {
            if !name.starts_with(&prefix(id)) {
                problem(format!("`{name}` does not bear the id `{id}`"));
            } else if !known.contains(name) {
                problem(format!("there is no test `{name}`"));
            }
            listed.insert(name);
        }
    }
    let unlisted = tests.iter().filter(|test| bears_id(&test.name) && !listed.contains(test.name.as_str()));
    problems.extend(unlisted.map(|test| {
        Problem::new(Check::Conformance, &test.file, 0, format!("`{}` is missing in {PAGE}", test.name))
            .about(&test.name)
    }));
    problems
}

/// The id and the last cell of a row of a table; `None` for every other line.
fn row(line: &str) -> Option<(&str, &str)> {
    let cells: Vec<&str> = line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let id = *cells.first()?;
    let (letters, digits) = id.split_once('-')?;
    let is_id = !letters.is_empty()
        && letters.bytes().all(|byte| byte.is_ascii_uppercase())
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_id.then(|| (id, cells.last().copied().unwrap_or_default()))
}

/// `INIT-1` begins the names of its tests with `init_1_`.
fn prefix(id: &str) -> String {
    format!("{}_", id.to_lowercase().replace('-', "_"))
}

/// Whether a name begins as a test with an id does: a word, a number and something that is said.
fn bears_id(name: &str) -> bool {
    let mut words = name.splitn(3, '_');
    let (word, number, rest) = (words.next(), words.next(), words.next());
    word.is_some_and(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase()))
        && number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        && rest.is_some()
}

#[cfg(test)]
mod tests;
