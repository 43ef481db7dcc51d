//! Finds the known name that a misspelt one was meant to be.

/// Returns the candidate that a name resembles: at most two edits away, one when the candidate is short.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .filter_map(|candidate| {
            // Two edits turn almost any four letters into any other four, which would refuse keys of other programs.
            let limit = if candidate.len() <= SHORT_NAME { 1 } else { MAX_EDITS };
            distance_within(name, candidate, limit).map(|distance| (distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Counts insertions, deletions, substitutions and swaps of neighbours; `None` when there are more than the limit.
fn distance_within(left: &str, right: &str, limit: usize) -> Option<usize> {
    // A name of any length can stand in a file; comparing is quadratic, so the lengths decide first.
    if left.len() > right.len() + 4 * limit || right.len() > left.len() + limit {
        return None;
    }
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut previous = None;
    for (row, letter) in left.chars().enumerate() {
        let mut current = vec![row + 1];
        let mut diagonal = row;
        let mut other_previous = None;
        for (column, &other) in right.iter().enumerate() {
            let above = last.get(column + 1).copied().unwrap_or(usize::MAX - 1);
            let beside = current.last().copied().unwrap_or(usize::MAX - 1);
            let mut cost = (diagonal + usize::from(letter != other)).min(above + 1).min(beside + 1);
            if previous == Some(other)
                && other_previous == Some(letter)
                && let Some(swapped) = column.checked_sub(1).and_then(|column| before.get(column))
            {
                cost = cost.min(swapped + 1);
            }
            current.push(cost);
            diagonal = above;
            other_previous = Some(other);
        }
        before = std::mem::replace(&mut last, current);
        previous = Some(letter);
    }
    last.last().copied().filter(|distance| *distance <= limit)
}

/// Beyond two edits a resemblance is chance.
const MAX_EDITS: usize = 2;

/// Names up to this length allow one edit only.
const SHORT_NAME: usize = 4;

#[cfg(test)]
mod tests;
