//! File access: whatever a name looks like and whoever moves things meanwhile, a tool stays in the session's directories.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, initialize, new_session};
use zeroclaw_testkit::process::AgentProcess;

use crate::turns::{builtin, end_turn, files_below, last_update, statuses};

/// What must never be seen: it lies outside.
const SECRET: &str = "hunter2-outside";

/// A directory beside the project, with a secret in it.
fn outside(lab: &Lab) -> PathBuf {
    let outside = lab.project().parent().unwrap().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret"), SECRET).unwrap();
    outside
}

fn assert_untouched(outside: &Path) {
    assert_eq!(files_below(outside), ["secret"]);
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), SECRET);
}

/// The lines of one script: these tool calls in one answer, then a last word.
fn calls(calls: &[(&str, Value)]) -> Vec<Value> {
    let call = |(name, arguments): &(&str, Value)| json!({"type": "tool_call", "name": name, "arguments": arguments});
    let mut lines: Vec<Value> = calls.iter().map(call).collect();
    lines.extend([json!({"type": "stop"}), json!({"type": "text", "text": "done"}), json!({"type": "stop"})]);
    lines
}

/// Every tool that takes the name of a file, each on this path.
fn every_tool(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("file_read", json!({"path": path})),
        ("file_write", json!({"path": path, "content": "owned"})),
        ("file_edit", json!({"path": path, "old_text": "hunter2", "new_text": "owned"})),
        ("list_dir", json!({"path": path})),
        ("content_search", json!({"pattern": "hunter2", "path": path})),
        ("glob_search", json!({"pattern": "*", "path": path})),
        ("deliver_file", json!({"path": path})),
        ("shell", json!({"command": "cat secret; echo owned > secret", "cwd": path})),
    ]
}

/// Runs every tool on every path in one turn of an agent that asks for nothing, and returns how each call ended.
async fn ends(lab: &Lab) -> (Vec<String>, String) {
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "do it all").await;
    let ends = statuses(&turn.messages).into_values().filter_map(|mut steps| steps.pop()).collect();
    let results = zeroclaw_e2e::updates_of(&turn.messages, "tool_call_update");
    (ends, json!(results).to_string())
}

/// A link of the workspace led to a private key, which was read: where a path leads was worked out and never looked at.
#[tokio::test]
async fn fil_01_no_link_leads_out() {
    let paths = ["file", "dir", "dir/secret", "chain", "dirchain/secret", "parent/dir/secret", "dangling"];
    let all: Vec<_> = paths.iter().flat_map(|path| every_tool(path)).collect();
    let lab = Lab::scripted("full", &calls(&all));
    let outside = outside(&lab);
    let project = lab.project();
    symlink(outside.join("secret"), project.join("file")).unwrap();
    symlink("../outside", project.join("dir")).unwrap();
    symlink("file", project.join("chain")).unwrap();
    symlink("dir", project.join("dirchain")).unwrap();
    fs::create_dir(project.join("parent")).unwrap();
    symlink("../dir", project.join("parent/dir")).unwrap();
    symlink(outside.join("new"), project.join("dangling")).unwrap();
    let (ends, said) = ends(&lab).await;
    assert_eq!(ends, vec!["failed"; all.len()]);
    assert!(!said.contains(SECRET), "{said}");
    assert_untouched(&outside);
}

/// Names with two dots in them were refused, while `%2f` and the like climbed.
#[tokio::test]
async fn fil_03_only_a_whole_component_climbs() {
    let climbing = ["../outside/secret", "a/../../outside/secret", "~/x", "file:///etc/passwd"];
    let refused: Vec<_> = climbing.iter().flat_map(|path| every_tool(path)).collect();
    let lab = Lab::scripted("full", &calls(&refused));
    let outside = outside(&lab);
    let (ends, said) = ends(&lab).await;
    assert_eq!(ends, vec!["failed"; refused.len()]);
    assert!(files_below(&lab.project()).is_empty() && !said.contains(SECRET), "{said}");
    assert_untouched(&outside);

    let lab = builtin("full");
    lab.file("a..b.txt", "dots\n");
    let (mut agent, session) = lab.session().await;
    for prompt in ["/read a..b.txt", "/edit a..b.txt dots => more", "/write ...txt x", "/read ./...txt"] {
        let turn = end_turn(&mut agent, &session, prompt).await;
        assert_eq!(last_update(&turn.messages)["status"], "completed", "{prompt}");
    }
    // Nothing is decoded: this is a file that is not there, in a directory that is named so.
    let turn = end_turn(&mut agent, &session, "/read ..%2foutside/secret").await;
    assert_eq!(last_update(&turn.messages)["status"], "failed");
    end_turn(&mut agent, &session, "/write ..%2foutside/secret x").await;
    assert_eq!(files_below(&lab.project()), ["..%2foutside/secret", "...txt", "a..b.txt"]);
}

/// A process of its own that goes on moving things, killed at the end.
struct Mover(Child);

impl Mover {
    fn start(directory: &Path, script: &str) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("while :; do {script}; done 2>/dev/null")]).current_dir(directory);
        Self(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Between the look and the write another process put a link where the file had been. The ten thousand writes of the same
/// race are in `crates/runtime/tests/tools/jail.rs`; these go all the way through the server.
#[tokio::test]
async fn fil_05_a_name_that_is_swapped_leads_nowhere_else() {
    let mut all = Vec::new();
    for number in 0..20 {
        for path in ["f", "d/secret", "d/new/deep"] {
            all.push(("file_write", json!({"path": path, "content": format!("inside {number}")})));
            all.push(("file_read", json!({"path": path})));
        }
    }
    let lab = Lab::scripted("full", &calls(&all));
    let outside = outside(&lab);
    fs::create_dir(lab.project().join("real")).unwrap();
    let out = outside.display();
    let script = format!(
        "ln -sfn '{out}/secret' l; mv -fT l f; rm -f f; echo x >f; ln -sfn '{out}' d; rm -f d; mv -T real d; mv -T d real"
    );
    let _mover = Mover::start(&lab.project(), &script);
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "race").await;
    let ended = statuses(&turn.messages).into_values().filter_map(|mut steps| steps.pop());
    let ended: Vec<String> = ended.collect();
    assert_eq!(ended.len(), all.len(), "{ended:?}");
    assert!(!json!(turn.messages).to_string().contains(SECRET), "what lies outside was read");
    assert_untouched(&outside);
}

/// Prefixes of names were compared, so a directory beside the workspace that began with its name was part of it.
#[tokio::test]
async fn fil_07_a_directory_with_a_longer_name_is_another_one() {
    let lab = builtin("full");
    let evil = PathBuf::from(format!("{}-evil", lab.project().display()));
    fs::create_dir(&evil).unwrap();
    fs::write(evil.join("secret"), SECRET).unwrap();
    lab.file("a.txt", "inside\n");
    let mut agent = lab.agent().await;
    for cwd in [
        format!("{}", lab.project().display()),
        format!("{}/", lab.project().display()),
        format!("{}/.", lab.project().display()),
        format!("{}/../project/", lab.project().display()),
    ] {
        let opened = agent.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await.unwrap();
        assert_eq!(opened["workspaceDir"], json!(lab.project()), "{cwd}");
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        for (path, status) in [
            ("a.txt".to_owned(), "completed"),
            (format!("{cwd}/a.txt"), "completed"),
            (evil.join("secret").display().to_string(), "failed"),
            ("../project-evil/secret".to_owned(), "failed"),
        ] {
            let turn = end_turn(&mut agent, &session, &format!("/read {path}")).await;
            assert_eq!(last_update(&turn.messages)["status"], status, "{cwd}: {path}");
            assert!(!json!(turn.messages).to_string().contains(SECRET), "{path}");
        }
    }
    assert_untouched(&evil);
}

/// Directories of the system and names of other systems were taken as workspaces. Here a name of another system is no
/// directory, and one of the system opens nothing that is forbidden.
#[tokio::test]
async fn fil_09_names_of_other_systems_are_no_directories() {
    let lab = builtin("full");
    let mut agent = lab.agent().await;
    for cwd in ["C:\\Windows", "C:/Windows", "\\\\server\\share", "//?/C:/Windows", "project\\..", "PROJEC~1"] {
        let error = agent.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{cwd}: {error}");
    }
    for cwd in ["/etc", "/"] {
        let session = new_session(&mut agent, Path::new(cwd)).await;
        let prompts = ["/read /etc/shadow", "/edit /etc/shadow root => toor", "/run cat /etc/shadow"];
        // The server's own environment, where keys are: no directory is wide enough for it.
        for prompt in prompts.into_iter().chain(["/read /proc/self/environ", "/read /proc/thread-self/environ"]) {
            let turn = end_turn(&mut agent, &session, prompt).await;
            assert_eq!(last_update(&turn.messages)["status"], "failed", "{cwd}: {prompt}");
            assert!(!json!(turn.messages).to_string().contains("HOME="), "{cwd}: {prompt}");
        }
    }
}

/// A rule was compared with the name of a link while its target was read.
#[tokio::test]
async fn fil_11_a_rule_holds_for_what_a_link_leads_to() {
    let lab = Lab::new();
    lab.write_config(
        "[autonomy]\nlevel = \"full\"\nforbidden_paths = [\"/etc\", \"secrets\"]\nallowed_roots = [\"/\"]\n",
    );
    lab.file("secrets/key", SECRET);
    symlink("/etc", lab.project().join("l")).unwrap();
    symlink("secrets", lab.project().join("s")).unwrap();
    let (mut agent, session) = lab.session().await;
    let name = fs::read_to_string("/etc/passwd").unwrap().lines().next().unwrap().to_owned();
    for prompt in [
        "/read l/passwd",
        "/read /etc/passwd",
        "/ls l",
        "/grep hunter2 s",
        "/read s/key",
        "/write s/key x",
        "/write l/zeroclaw-test x",
        "/run cat l/passwd",
        "/run cat /proc/self/root/etc/passwd",
        "/run cat s/key",
    ] {
        let turn = end_turn(&mut agent, &session, prompt).await;
        let said = json!(turn.messages).to_string();
        // The kernel cannot hide what programs need to start; that a command reads it by another name changes nothing there.
        let through_kernel = prompt.starts_with("/run cat") && prompt.contains("passwd");
        assert!(through_kernel || last_update(&turn.messages)["status"] == "failed", "{prompt}: {said}");
        assert!(through_kernel || (!said.contains(SECRET) && !said.contains(&name)), "{prompt}: {said}");
    }
    assert_eq!(fs::read_to_string(lab.project().join("secrets/key")).unwrap(), SECRET);
}

/// Patterns with slashes met names with backslashes and never fitted. A backslash is an ordinary character of a name here,
/// and a pattern with slashes fits directories and nothing else.
#[tokio::test]
async fn fil_13_a_pattern_fits_directories_by_their_slashes() {
    let lab = builtin("full");
    lab.file("src/a/b.rs", "one\n");
    lab.file("src\\a\\c.rs", "two\n");
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "/find src/**").await;
    let found = last_update(&turn.messages)["rawOutput"].as_str().unwrap().to_owned();
    assert!(found.contains("src/a/b.rs") && !found.contains("c.rs"), "{found}");
    let turn = end_turn(&mut agent, &session, "/find *.rs").await;
    let found = last_update(&turn.messages)["rawOutput"].as_str().unwrap().to_owned();
    assert!(found.contains("c.rs"), "{found}");
}

/// An entry `Git` of the list never met `git`, so operators opened the list wider. Names of commands are compared without
/// regard to case, those of files as the file system does: `crates/policy` tests the systems where that is folded.
#[tokio::test]
async fn fil_15_letter_case_means_what_the_system_means() {
    let lab = Lab::with_config(
        "[autonomy]\nlevel = \"supervised\"\nallowed_commands = [\"Git\"]\nforbidden_paths = [\"Secrets\"]\n",
    );
    lab.file("Secrets/key", SECRET);
    lab.file("secrets/key", "plain\n");
    let (mut agent, session) = lab.session().await;
    agent.auto_permit("reject-once");
    for (prompt, status) in [
        ("/run git --version", "completed"),
        ("/run ls", "failed"),
        ("/read Secrets/key", "failed"),
        ("/read secrets/key", "completed"),
    ] {
        let turn = end_turn(&mut agent, &session, prompt).await;
        assert_eq!(last_update(&turn.messages)["status"], status, "{prompt}");
        assert!(!json!(turn.messages).to_string().contains(SECRET), "{prompt}");
    }
    let mut agent: AgentProcess = lab.start();
    initialize(&mut agent).await;
    let cwd = lab.project().join("SECRETS");
    let error = agent.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await.unwrap_err();
    assert_eq!(error["code"], -32602, "there is no such directory here: {error}");
}
