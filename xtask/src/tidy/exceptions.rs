//! The places where a rule of the house does not hold, each with its reason. An exception that nothing needs any more
//! is itself a problem, so the list only shrinks or is argued for.

use super::{Check, Problem};

/// One permitted deviation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exception {
    pub(super) check: Check,
    pub(super) file: &'static str,
    /// The function or path it is about; empty for the file as a whole.
    pub(super) item: &'static str,
    /// For the size checks: what it may grow to. 0 where size is not the matter.
    pub(super) up_to: usize,
    pub(super) reason: &'static str,
}

pub(super) const LIST: &[Exception] = &[Exception {
    check: Check::Stdout,
    file: "crates/runtime/src/launch.rs",
    item: "io::stdout",
    up_to: 0,
    reason: "a launcher hands its standard output on to its command as standard input and writes nothing to it",
}];

/// Removes what is permitted and adds what is wrong with the list.
pub(super) fn apply(problems: Vec<Problem>, list: &[Exception]) -> Vec<Problem> {
    let mut used = vec![false; list.len()];
    let mut left: Vec<Problem> = problems
        .into_iter()
        .filter(|problem| {
            let mut permitted = false;
            for (exception, used) in list.iter().zip(&mut used) {
                if covers(exception, problem) {
                    *used = true;
                    permitted = true;
                }
            }
            !permitted
        })
        .collect();
    for (exception, used) in list.iter().zip(used) {
        let about = format!("the exception from `{}` for `{}`", exception.check, exception.item);
        if !used {
            let message = format!("{about} is not needed any more; remove it");
            left.push(Problem::new(Check::Exception, exception.file, 0, message));
        }
        if exception.reason.split_whitespace().count() < 4 {
            let message = format!("{about} has no reason");
            left.push(Problem::new(Check::Exception, exception.file, 0, message));
        }
    }
    left
}

fn covers(exception: &Exception, problem: &Problem) -> bool {
    exception.check == problem.check
        && exception.file == problem.file
        && exception.item == problem.item
        && problem.size <= exception.up_to
}
