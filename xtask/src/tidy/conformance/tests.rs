//! What is missing on either side is reported, and nothing else.

use super::*;

fn tests(names: &[&str]) -> Vec<Test> {
    let test = |name: &&str| Test { file: "tests/tests/cases_x.rs".to_owned(), name: (*name).to_owned() };
    names.iter().map(test).collect()
}

fn messages(text: &str, names: &[&str]) -> Vec<String> {
    check(text, &tests(names)).into_iter().map(|problem| problem.message).collect()
}

#[test]
fn a_page_that_agrees_is_silent() {
    let page = "| rule | demand | test |\n|---|---|---|\n| INIT-1 | a `word` | `init_1_a_b`, `init_1_c_d` |\n";
    assert_eq!(messages(page, &["init_1_a_b", "init_1_c_d", "a_helper_of_theirs", "without_1"]), [""; 0]);
}

#[test]
fn a_rule_without_a_test_and_a_test_without_a_rule_are_reported() {
    let page = "| INIT-1 | a `word` | |\n| INIT-2 | b | `init_2_gone` |\n| INIT-3 | c | `init_1_x` |\n| INIT-3 | c | `init_3_x` |\n";
    assert_eq!(
        messages(page, &["init_1_x", "init_3_x", "ses_04_y"]),
        [
            "`INIT-1` has no test",
            "there is no test `init_2_gone`",
            "`init_1_x` does not bear the id `INIT-3`",
            "`INIT-3` is listed twice",
            "`ses_04_y` is missing in docs/conformance.md",
        ]
    );
}

#[test]
fn only_two_kinds_of_files_have_tests_with_ids() {
    assert!(has_ids("tests/tests/conformance/basics.rs") && has_ids("tests/tests/cases_tools.rs"));
    assert!(!has_ids("tests/tests/conformance.rs") && !has_ids("crates/policy/src/tests.rs"));
}
