//! Unified diffs as styled lines. Pure: text in, text out.

use std::fmt::Write as _;
use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use crate::cli::term::{Palette, Role, one_line, unmistakable};

/// After so long the comparison settles for a diff that is right but not the shortest.
const PATIENCE: Duration = Duration::from_millis(500);

/// Renders the change of one file; `old` is absent for a new file. At most `limit` lines are shown, the rest is counted.
pub(super) fn unified(palette: Palette, path: &str, old: Option<&str>, new: &str, limit: usize) -> String {
    let path = one_line(path);
    let mut shown = String::new();
    let from = if old.is_some() { path.as_ref() } else { "/dev/null" };
    push_line(&mut shown, &palette.paint(Role::Strong, &format!("--- {from}")));
    push_line(&mut shown, &palette.paint(Role::Strong, &format!("+++ {path}")));
    let old = old.unwrap_or_default();
    if old == new {
        push_line(&mut shown, &palette.paint(Role::Dim, "(no change)"));
        return shown;
    }
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
    let mut unified = diff.unified_diff();
    let unified = unified.context_radius(3);
    let (mut lines, mut hidden) = (0_usize, 0_usize);
    for hunk in unified.iter_hunks() {
        let header = hunk.header().to_string();
        take_line(&mut shown, &mut lines, &mut hidden, limit, || palette.paint(Role::Hunk, header.trim_end()));
        for change in hunk.iter_changes() {
            let (mark, role) = match change.tag() {
                ChangeTag::Delete => ('-', Some(Role::Removed)),
                ChangeTag::Insert => ('+', Some(Role::Added)),
                ChangeTag::Equal => (' ', None),
            };
            let value = change.value();
            let text = value.strip_suffix('\n').unwrap_or(value);
            take_line(&mut shown, &mut lines, &mut hidden, limit, || {
                let line = format!("{mark}{}", unmistakable(text).replace('\n', "␊"));
                role.map_or_else(|| line.clone(), |role| palette.paint(role, &line))
            });
            if change.missing_newline() {
                take_line(&mut shown, &mut lines, &mut hidden, limit, || {
                    palette.paint(Role::Dim, "\\ no newline at end of file")
                });
            }
        }
    }
    if hidden > 0 {
        push_line(&mut shown, &palette.paint(Role::Dim, &format!("… {hidden} more lines")));
    }
    shown
}

fn take_line(shown: &mut String, lines: &mut usize, hidden: &mut usize, limit: usize, line: impl FnOnce() -> String) {
    if *lines < limit {
        *lines += 1;
        push_line(shown, &line());
    } else {
        *hidden += 1;
    }
}

fn push_line(shown: &mut String, line: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(shown, "{line}");
}
