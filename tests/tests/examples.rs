//! The two programs in the documentation of the protocol crate do what they say: the client drives its neighbour and the
//! built agent.

use std::{path::PathBuf, process::Output};

use zeroclaw_e2e::{Lab, binary};

use crate::turns::builtin;

/// A built example, which `cargo test --workspace` leaves beside the programs.
fn example(name: &str) -> PathBuf {
    let path =
        binary("zeroclaw-acp").with_file_name("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{} is not built: run `cargo build -p zeroclaw-acp-protocol --examples`", path.display());
    path
}

/// Runs the client in the project of a lab, against this agent.
async fn client(lab: &Lab, agent: PathBuf, text: &str) -> Output {
    let mut command = zeroclaw_testkit::process::hermetic(&example("client"), &lab.home());
    command.current_dir(lab.project()).arg(agent).arg(text);
    command.output().await.expect("the client runs")
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test]
async fn the_client_in_the_documentation_drives_the_agent_in_it() {
    let lab = Lab::new();
    let output = client(&lab, example("agent"), "hello \u{1F980}").await;
    assert_eq!(printed(&output), "hello \u{1F980}\nEndTurn\n");
}

#[tokio::test]
async fn the_client_in_the_documentation_drives_the_built_agent() {
    let lab = builtin("supervised");
    let output = client(&lab, binary("zeroclaw-acp"), "/write made.txt\nby the example\n").await;
    let text = printed(&output);
    assert!(text.contains("made.txt") && text.ends_with("\nEndTurn\n"), "{text}");
    assert_eq!(std::fs::read_to_string(lab.project().join("made.txt")).unwrap().trim_end(), "by the example");
}
