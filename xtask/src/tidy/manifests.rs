//! What every manifest promises: the workspace lints apply, a panic unwinds, registry crates come without defaults.

use super::{Check, Problem};

pub(super) fn check(file: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut section = "";
    let mut inherits_lints = false;
    for (index, raw) in text.lines().enumerate() {
        let line = raw.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') {
            section = line;
        }
        let words: String = line.split_whitespace().collect();
        inherits_lints |= section == "[lints]" && words == "workspace=true";
        if words == "panic=\"abort\"" {
            let message = "a panic has to end one turn, not the process: `panic = \"unwind\"` in every profile";
            problems.push(Problem::new(Check::Manifest, file, index + 1, message));
        }
        if section == "[workspace.dependencies]" && words.contains("=") && !words.contains("path=") {
            if !words.contains("default-features=false") {
                let message = "a registry dependency without `default-features = false`";
                problems.push(Problem::new(Check::Manifest, file, index + 1, message));
            }
        } else if is_dependency_table(section) && words.contains("version=") {
            let message = "a version outside `[workspace.dependencies]`; write `{ workspace = true }`";
            problems.push(Problem::new(Check::Manifest, file, index + 1, message));
        }
    }
    let is_member = text.lines().any(|line| line.trim() == "[package]");
    if is_member && !inherits_lints {
        let message = "no `[lints] workspace = true`: the lints of the workspace do not apply";
        problems.push(Problem::new(Check::Manifest, file, 0, message));
    }
    problems
}

fn is_dependency_table(section: &str) -> bool {
    section.starts_with('[') && section.contains("dependencies") && section != "[workspace.dependencies]"
}
