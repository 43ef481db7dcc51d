//! The bare programs do what the benchmark believes they do: an answer per line, every event sent, every event counted.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

#[test]
fn echo_answers_one_line_and_ends_with_its_input() {
    let mut echo = Command::new(env!("CARGO_BIN_EXE_bench-echo"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bench-echo starts");
    let mut input = echo.stdin.take().expect("piped");
    input.write_all(b"{\"id\":1}\n").expect("echo reads");
    let mut answers = BufReader::new(echo.stdout.take().expect("piped")).lines();
    let answer = answers.next().expect("one line").expect("utf-8");
    assert!(answer.starts_with(r#"{"jsonrpc":"2.0","id":1,"result":{"#), "{answer}");
    drop(input);
    assert!(answers.next().is_none(), "nothing follows the answer");
    assert!(echo.wait().expect("ends").success());
}

#[test]
fn reader_counts_every_event_the_server_sends() {
    for gather in [None, Some("--gather")] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_bench-model-server"))
            .args(["--chunks", "1234"])
            .args(gather)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bench-model-server starts");
        let mut port = String::new();
        BufReader::new(server.stdout.take().expect("piped")).read_line(&mut port).expect("a port");
        let url = format!("http://127.0.0.1:{}/v1/chat/completions", port.trim());

        // The text, one event that opens the answer and two that close it; the second reading is as long as the first.
        for _ in 0..2 {
            let reader = Command::new(env!("CARGO_BIN_EXE_bench-reader")).arg(&url).output().expect("reader runs");
            let printed = String::from_utf8(reader.stdout).expect("utf-8");
            let (events, micros) = printed.trim().split_once(' ').expect("two numbers");
            assert_eq!(events, "1237", "stderr: {}", String::from_utf8_lossy(&reader.stderr));
            assert!(micros.parse::<u64>().is_ok(), "{printed}");
        }

        drop(server.stdin.take());
        assert!(server.wait().expect("ends").success());
    }
}
