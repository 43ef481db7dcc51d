//! How many packages the lock file may name. Growing is allowed and has to be seen: the number is raised by hand.

use super::{Check, Problem};

/// 352 packages when the budget was set, the official SDK that only tests use included; the rest is room for the
/// gateway (axum, tokio-tungstenite), PostgreSQL and the MCP client. The shell grammar of the policy brought 33 more, half
/// of them only while building.
const BUDGET: usize = 440;

pub(super) fn check(file: &str, text: &str) -> Vec<Problem> {
    check_against(file, text, BUDGET)
}

pub(super) fn check_against(file: &str, text: &str, budget: usize) -> Vec<Problem> {
    let packages = text.lines().filter(|line| *line == "[[package]]").count();
    if packages <= budget {
        return Vec::new();
    }
    let message = format!(
        "{packages} packages, budget {budget}: drop a dependency, or raise the budget with its reason in tidy/lock.rs"
    );
    vec![Problem::new(Check::LockBudget, file, 0, message).sized(packages)]
}
