//! The arithmetic and the formats of the benchmarks; what they measure is measured by running them.

use super::agent::resident_from;
use super::stream::{reader_result, script};
use super::table::table;
use super::*;

fn ms(values: &[u64]) -> Vec<Duration> {
    values.iter().copied().map(Duration::from_millis).collect()
}

#[test]
fn median_is_the_middle() {
    assert_eq!(median(&ms(&[9, 1, 5])), Duration::from_millis(5));
    assert_eq!(median(&ms(&[4, 1, 9, 2])), Duration::from_millis(3));
    assert_eq!(median(&[]), Duration::ZERO);
}

#[test]
fn targets_know_their_side() {
    let below = |value| Target { what: "x", value, limit: Limit::Below(6.0) };
    let above = |value| Target { what: "y", value, limit: Limit::Above(10.0) };
    assert_eq!(judge(&[below(5.9), above(10.1)], true), Verdict::Pass);
    assert_eq!(judge(&[below(6.0), above(10.1)], true), Verdict::Fail);
    assert_eq!(judge(&[below(5.0), above(10.0)], true), Verdict::Fail);
    assert_eq!(judge(&[below(6.0)], false), Verdict::Pass, "without --check the figures are only shown");
}

#[test]
fn resident_memory_is_read_from_the_status() {
    assert_eq!(resident_from("Name:\tx\nVmRSS:\t    6304 kB\nThreads:\t1\n"), Some(6304));
    assert_eq!(resident_from("Name:\tx\n"), None);
}

#[test]
fn script_is_one_object_a_line() {
    let lines: Vec<serde_json::Value> =
        script(7).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["repeat"], 7);
    assert_eq!(lines[1], serde_json::json!({"type": "stop", "reason": "end"}));
}

#[test]
fn reader_prints_two_numbers() {
    assert_eq!(reader_result("50000 1500\n").expect("two numbers"), (50_000, Duration::from_micros(1500)));
    assert!(reader_result("50000\n").is_err());
}

#[test]
fn table_lines_up() {
    let rows = [vec!["long name".to_owned(), "1".to_owned()], vec!["x".to_owned(), "100 ms".to_owned()]];
    assert_eq!(table(&["what", "time"], &rows), "what         time\nlong name       1\nx          100 ms\n");
}

/// Runs a shell script in the place of an agent.
#[cfg(unix)]
fn scripted_agent(name: &str, script: &str) -> (Home, agent::Agent) {
    let home = Home::new(&format!("test-{name}")).expect("a folder");
    let agent = agent::Agent::spawn(Path::new("/bin/sh"), ["-c", script], &home.path).expect("a shell");
    (home, agent)
}

#[cfg(unix)]
#[test]
fn agent_counts_updates_until_the_answer() {
    let script = r#"
        read -r line
        echo '{"jsonrpc":"2.0","method":"session/update","params":{"n":1}}'
        echo '{"jsonrpc":"2.0","method":"other/note"}'
        echo '{"jsonrpc":"2.0","method":"session/update","params":{"n":2}}'
        echo '{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}'
        cat"#;
    let (_home, mut agent) = scripted_agent("counts", script);
    let answer = agent.prompt("s-1", "go").expect("an answer");
    assert_eq!(answer.updates, 2);
    agent.finish().expect("a good end");
}

#[cfg(unix)]
#[test]
fn agent_says_what_went_wrong() {
    let failure = |name: &str, script: &str| {
        let (_home, mut agent) = scripted_agent(name, script);
        agent.prompt("s-1", "go").err().expect("a failure").to_string()
    };
    let early = failure("early", "read -r line; echo 'no such file' >&2");
    assert!(early.contains("ended before it answered `session/prompt`"), "{early}");
    assert!(early.contains("no such file"), "{early}");
    let refused = failure("refused", r#"read -r line; echo '{"id":1,"error":{"code":-32603}}'; cat"#);
    assert!(refused.contains(r#"{"code":-32603}"#), "{refused}");
    let asked = failure("asked", r#"read -r line; echo '{"id":9,"method":"session/request_permission"}'; cat"#);
    assert!(asked.contains("session/request_permission"), "{asked}");
    let cut = failure("cut", r#"read -r line; echo '{"id":1,"result":{"stopReason":"max_tokens"}}'; cat"#);
    assert!(cut.contains("max_tokens"), "{cut}");
}
