//! In which directories a client may open sessions: the lists of the operator, over standard input and at the gateway, and
//! where links lead.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, new_session};

use crate::daemon::{Daemon, token};

/// Directories beside each other, and links between them.
struct Places {
    lab: Lab,
    base: PathBuf,
}

impl Places {
    fn new() -> Self {
        let lab = Lab::new();
        let base = lab.project().parent().unwrap().to_owned();
        for directory in ["src/one/deep", "src-other", "srv/two"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        symlink(base.join("src/one"), base.join("into")).unwrap();
        symlink(base.join("src-other"), base.join("src/out")).unwrap();
        // The list itself names one place by a link.
        symlink(base.join("srv"), base.join("srv-link")).unwrap();
        Self { lab, base }
    }

    fn of(&self, name: &str) -> String {
        self.base.join(name).display().to_string()
    }

    /// What may be opened where the list is `src` and `srv-link`, with the real name that the session then has, and what not.
    fn cases(&self) -> (Vec<(String, String)>, Vec<String>) {
        let open = [
            ("src", "src"),
            ("src/one", "src/one"),
            ("src/one/deep/", "src/one/deep"),
            ("src/one/../one/.", "src/one"),
            ("into", "src/one"),
            ("into/deep", "src/one/deep"),
            ("srv/two", "srv/two"),
            ("srv-link/two", "srv/two"),
        ];
        let closed = [
            "",
            "src-other",
            "src/out",
            "src/../src-other",
            "project",
            "home",
            "into/../../src-other",
            "src/one/../..",
        ];
        let open = open.iter().map(|(name, real)| (self.of(name), self.of(real))).collect();
        let closed = closed.iter().map(|name| self.of(name)).chain(["/".to_owned(), "/etc".to_owned()]).collect();
        (open, closed)
    }
}

/// A refusal says what it is, and nothing about what there is.
fn assert_refused(error: &Value, asked: &str) {
    assert_eq!(error["code"], -32602, "{asked}: {error}");
    let text = error.to_string();
    assert!(!text.contains('/') && !text.contains("src"), "{asked}: {text}");
}

#[tokio::test]
async fn only_listed_directories_are_opened_over_standard_input() {
    let places = Places::new();
    let list = json!([places.of("src"), places.of("srv-link")]);
    // The list of the gateway is another one.
    places.lab.write_config(&format!("[acp]\nallowed_cwd_roots = {list}\n[gateway]\nallowed_cwd_roots = [\"/\"]\n"));
    let mut agent = places.lab.agent().await;
    let (open, closed) = places.cases();
    for (cwd, real) in &open {
        let opened = agent.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await.unwrap();
        assert_eq!(opened["workspaceDir"], json!(real), "{cwd}");
        agent.call("session/close", json!({"sessionId": opened["sessionId"]})).await.unwrap();
    }
    let session = new_session(&mut agent, &places.base.join("src")).await;
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    for cwd in &closed {
        for member in ["cwd", "workspaceDir", "workspace_dir"] {
            let error = agent.call("session/new", json!({member: cwd, "mcpServers": []})).await.unwrap_err();
            assert_refused(&error, cwd);
        }
        let further = json!({"cwd": places.of("src"), "additionalDirectories": [cwd], "mcpServers": []});
        assert_refused(&agent.call("session/new", further).await.unwrap_err(), cwd);
        for method in ["session/load", "session/resume", "session/fork"] {
            let further = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
            assert_refused(&agent.call(method, further).await.unwrap_err(), cwd);
        }
    }
    // The agent's own directory is the operator's choice.
    assert!(agent.call("session/new", json!({"mcpServers": []})).await.is_ok());
}

#[tokio::test]
async fn the_gateway_has_a_list_of_its_own() {
    let places = Places::new();
    let list = json!([places.of("src"), places.of("srv-link")]);
    places.lab.write_config(&format!("[acp]\nallowed_cwd_roots = [\"/\"]\n[gateway]\nallowed_cwd_roots = {list}\n"));
    let daemon = Daemon::start(&places.lab, &[]).await;
    let token = token(&places.lab, "phone").await;
    let mut client = daemon.connect("/acp", &token).await.unwrap();
    client.call("initialize", json!({"protocolVersion": 1})).await.unwrap();
    let (open, closed) = places.cases();
    for (cwd, real) in &open {
        let opened = client.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await.unwrap();
        assert_eq!(opened["workspaceDir"], json!(real), "{cwd}");
        client.call("session/close", json!({"sessionId": opened["sessionId"]})).await.unwrap();
    }
    for cwd in &closed {
        assert_refused(&client.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await.unwrap_err(), cwd);
    }
    daemon.kill().await;
}

/// What an operator has closed for the editor is not open for the network because another key was left out.
#[tokio::test]
async fn without_a_list_of_its_own_the_gateway_has_the_other_one() {
    let places = Places::new();
    places.lab.write_config(&format!("[acp]\nallowed_cwd_roots = [{}]\n", json!(places.of("src"))));
    let daemon = Daemon::start(&places.lab, &[]).await;
    let token = token(&places.lab, "phone").await;
    let mut client = daemon.connect("/acp", &token).await.unwrap();
    client.call("initialize", json!({"protocolVersion": 1})).await.unwrap();
    assert!(client.call("session/new", json!({"cwd": places.of("into"), "mcpServers": []})).await.is_ok());
    let outside = places.of("srv");
    assert_refused(&client.call("session/new", json!({"cwd": outside, "mcpServers": []})).await.unwrap_err(), &outside);
    daemon.kill().await;
}

/// A rule whose examples show it to be another than was meant was loaded all the same.
#[tokio::test]
async fn a_rule_that_fails_its_examples_stops_the_start_with_file_and_line() {
    let rule = |name: &str, examples: &str| {
        format!(
            "[{name}]\nlevel = \"supervised\"\n\n[[{name}.commands]]\ncommand = \"cargo test *\"\ndecision = \"allow\"\n{examples}\n"
        )
    };
    for name in ["autonomy", "risk_profiles.default", "risk_profiles.unused"] {
        for (examples, message) in [
            ("match = [\"cargo test\", \"cargo build\"]", "the example `cargo build` should match and does not"),
            (
                "not_match = [\"cargo publish\", \"cargo test --lib\"]",
                "the example `cargo test --lib` should not match and does",
            ),
        ] {
            let lab = Lab::with_config(&rule(name, examples));
            let place = format!("{}:4:1: {message}", lab.config_dir().join("config.toml").display());
            let doctor = lab.command("zeroclaw").arg("doctor").output().await.unwrap();
            let said = String::from_utf8_lossy(&doctor.stdout).into_owned() + &String::from_utf8_lossy(&doctor.stderr);
            assert!(said.contains(&place) && !doctor.status.success(), "doctor, {name}: {said}");
            let start = lab.command("zeroclaw-acp").stdin(std::process::Stdio::null()).output().await.unwrap();
            let said = String::from_utf8_lossy(&start.stderr);
            assert!(said.contains(&place) && !start.status.success(), "start, {name}: {said}");
            assert!(start.stdout.is_empty());
            let check = lab.command("zeroclaw").args(["policy", "check", "--", "ls"]).output().await.unwrap();
            assert!(name == "risk_profiles.unused" || !check.status.success(), "check, {name}");
        }
    }
    let lab = Lab::with_config(&rule("autonomy", "match = [\"cargo test --lib\"]\nnot_match = [\"cargo publish\"]"));
    let doctor = lab.command("zeroclaw").arg("doctor").output().await.unwrap();
    assert!(!String::from_utf8_lossy(&doctor.stdout).contains("example"));
}
