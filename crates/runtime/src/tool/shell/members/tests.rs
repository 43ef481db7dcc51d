//! Lines of the process table as they are and as they could be.

use crate::tool::shell::members::is_alive_in;

#[test]
fn members_are_told_by_group_and_state() {
    let cases = [
        ("12 (sh) S 1 77 77 0 -1", true),
        ("12 (a) b (c)) R 1 77 77 0 -1", true),
        ("12 (sh) Z 1 77 77 0 -1", false),
        ("12 (sh) S 77 12 77 0 -1", false),
        ("garbage", false),
    ];
    for (stat, expected) in cases {
        assert_eq!(is_alive_in(stat, 77), expected, "{stat}");
    }
}
