//! Tests of the prompt client: tables for rendering and approvals, and whole prompts against an agent in memory.

mod approve;
mod flow;
mod render;

use super::stop_code;

#[test]
fn every_stop_reason_has_its_exit_code() {
    for (reason, code) in [
        ("end_turn", 0),
        ("cancelled", 130),
        ("refusal", 3),
        ("max_tokens", 4),
        ("max_turn_requests", 4),
        ("something_new", 1),
    ] {
        let (found, note) = stop_code(reason);
        assert_eq!(found, code, "{reason}");
        assert_eq!(note.is_none(), code == 0, "{reason}");
    }
}
