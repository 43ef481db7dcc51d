//! How rows are split over the statements.

use super::{Inserts, MAX_STATEMENTS};

fn sizes(mut rows: usize) -> Vec<usize> {
    let inserts = Inserts::new();
    let mut sizes = Vec::new();
    while let Some((statement, size)) = inserts.events.best(rows) {
        assert_eq!(statement.matches('?').count(), size * 5);
        rows -= size;
        sizes.push(size);
    }
    sizes
}

#[test]
fn any_number_of_rows_needs_few_statements() {
    assert_eq!(sizes(0), [0_usize; 0]);
    assert_eq!(sizes(1), [1]);
    assert_eq!(sizes(63), [63]);
    assert_eq!(sizes(65), [64, 1]);
    assert_eq!(sizes(127), [64, 63]);
    assert_eq!(sizes(500), [256, 128, 64, 52]);
    assert_eq!(sizes(600), [256, 256, 64, 24]);
    assert_eq!(MAX_STATEMENTS, 132);
}
