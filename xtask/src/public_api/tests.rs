//! A removed, a changed and an added item are reported.

use super::*;

#[test]
fn a_removed_item_is_reported() {
    let recorded = include_str!("../../../crates/acp-protocol/public-api.txt");
    let gone = recorded.lines().find(|line| line.contains("Frame<'a>::parse")).unwrap();
    let now: String = recorded.lines().filter(|line| *line != gone).map(|line| format!("{line}\n")).collect();
    assert_eq!(differences(recorded, &now), [format!("- {gone}")]);
    assert_eq!(differences(recorded, recorded), [""; 0]);
}

#[test]
fn a_changed_item_is_a_removed_and_an_added_one() {
    assert_eq!(
        differences("pub fn a()\npub fn b()\n", "pub fn a()\npub fn b(u8)\n"),
        ["- pub fn b()", "+ pub fn b(u8)"]
    );
}
