//! A table for the terminal: the first column left, figures right.

/// Lays out rows under their headings.
pub(super) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    for row in std::iter::once(&headings).chain(rows) {
        let mut line = String::new();
        for (index, (width, cell)) in widths.iter().zip(row).enumerate() {
            if index == 0 {
                line.push_str(&format!("{cell:<width$}"));
            } else {
                line.push_str(&format!("  {cell:>width$}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
