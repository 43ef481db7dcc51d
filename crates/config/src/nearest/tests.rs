//! The edit distance and its limits.

use super::nearest;

fn check(name: &str, candidates: &[&'static str], expect: Option<&str>) {
    assert_eq!(nearest(name, candidates.iter().copied()), expect, "{name} among {candidates:?}");
}

#[test]
fn finds_what_was_meant() {
    check("max_sessions", &["max_sessions"], Some("max_sessions"));
    check("max_sesions", &["default_agent", "max_sessions"], Some("max_sessions"));
    check("max_sessoins", &["max_sessions"], Some("max_sessions"));
    check("maxsesions", &["max_sessions"], Some("max_sessions"));
    check("max_session5s", &["max_sessions"], Some("max_sessions"));
    check("amx_sessinos", &["max_sessions"], Some("max_sessions"));
    check("url", &["uri"], Some("uri"));
    check("stirct", &["strict"], Some("strict"));
    check("ab", &["abcdef", "abcdefg"], None);
}

#[test]
fn takes_the_closest_of_several() {
    check("max_output_token", &["max_context_tokens", "max_output_tokens"], Some("max_output_tokens"));
    check("modelx", &["models", "model"], Some("models"));
    check("modls", &["model", "models"], Some("models"));
}

#[test]
fn leaves_strangers_alone() {
    check("axsesions", &["max_sessions"], None);
    check("api", &["uri"], None);
    check("", &["uri"], None);
    check("cost_per_hour", &["max_sessions", "strict"], None);
    check(&"x".repeat(100_000), &["max_sessions"], None);
    check("größe", &["model"], None);
    check("mödel", &["model"], Some("model"));
}
