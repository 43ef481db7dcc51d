//! Every property on some inputs, so that each ordinary test run has them; `cargo xtask fuzz` is the long form.

/// Holds a property to some random inputs, always the same ones.
fn hold(name: &str, rounds: usize) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..rounds {
        let length = usize::try_from(next() % 160).expect("small") * usize::from(round > 0);
        let input: Vec<u8> = (0..length).map(|_| next().to_be_bytes()[0]).collect();
        crate::hold(name, &input);
    }
}

#[test]
fn nothing_makes_it_fail_and_a_stricter_level_is_never_laxer() {
    hold("policy_levels", 400);
}

#[test]
fn a_rule_that_refuses_never_widens() {
    hold("policy_deny", 400);
}

#[test]
fn a_slow_evaluator_says_the_same_and_quoting_changes_nothing() {
    hold("policy_evaluators", 400);
}

#[test]
fn an_always_covers_what_it_was_said_about() {
    hold("policy_grants", 400);
}

#[test]
fn lines_do_not_depend_on_how_they_are_cut() {
    hold("lines", 400);
}

#[test]
fn the_envelope_is_read_as_the_slow_reader_reads_it() {
    hold("message", 2000);
}

#[test]
fn parameters_do_not_depend_on_order_and_unknown_members() {
    hold("params", 400);
}

#[test]
fn a_log_comes_back_as_it_went_in() {
    hold("replay", 100);
}
