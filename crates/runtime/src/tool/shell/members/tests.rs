//! Lines of the process table as they are and as they could be.

use crate::tool::shell::members::{is_alive_in, member_of};

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

#[test]
fn members_of_a_session_are_told_by_their_line() {
    let cases = [
        ("12 (sh) S 1 13 77 0 -1", Some(12)),
        ("14 (a) b 77 (c)) R 1 15 77 0 -1", Some(14)),
        ("12 (sh) S 77 77 12 0 -1", None),
        ("12 (sh) S 1", None),
        ("garbage", None),
    ];
    for (stat, expected) in cases {
        assert_eq!(member_of(stat, 77).map(|pid| pid.as_raw_nonzero().get()), expected, "{stat}");
    }
}
