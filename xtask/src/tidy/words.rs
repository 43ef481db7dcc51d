//! Text that has no place in the tree: paths of one machine, references that only its authors can follow.
//! This file is the one that is not looked at, because it has to spell them.

use super::{Check, Problem};

/// Compared without regard to case.
pub(super) const FORBIDDEN: &[&str] = &["/root/", "/mnt/", "issue #", "see the ticket", "fixme"];

const THIS_FILE: &str = "xtask/src/tidy/words.rs";

pub(super) fn check(file: &str, text: &str) -> Vec<Problem> {
    if file == THIS_FILE {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        for word in FORBIDDEN.iter().filter(|word| contains(&lower, word)) {
            let message = format!("`{word}` means nothing to a reader of the project");
            problems.push(Problem::new(Check::Word, file, index + 1, message).about(word));
        }
    }
    problems
}

/// A forbidden text counts where a word begins: `https://host/work/` and `canvas an air` are innocent.
fn contains(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let ends_in_letter = word.ends_with(|last: char| last.is_alphanumeric());
        let goes_on = ends_in_letter && after.is_some_and(char::is_alphanumeric);
        !before.is_some_and(char::is_alphanumeric) && !goes_on
    })
}
