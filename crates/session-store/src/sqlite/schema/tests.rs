//! The script and the constants say the same.

use super::{APPLICATION_ID, CREATE, SCHEMA_VERSION};

#[test]
fn the_script_sets_the_two_numbers() {
    assert!(CREATE.contains(&format!("PRAGMA application_id = {APPLICATION_ID};")));
    assert!(CREATE.contains(&format!("PRAGMA user_version = {SCHEMA_VERSION};")));
}
