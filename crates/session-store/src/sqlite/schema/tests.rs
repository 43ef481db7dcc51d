//! The script and the constants say the same.

use super::{APPLICATION_ID, CREATE, FROM_VERSION_1, SCHEMA_VERSION};

#[test]
fn the_script_sets_the_two_numbers() {
    assert!(CREATE.contains(&format!("PRAGMA application_id = {APPLICATION_ID};")));
    assert!(CREATE.contains(&format!("PRAGMA user_version = {SCHEMA_VERSION};")));
    assert!(FROM_VERSION_1.ends_with(&format!("PRAGMA user_version = {SCHEMA_VERSION};")));
}
