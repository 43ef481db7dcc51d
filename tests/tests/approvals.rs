//! "Always" answers: what they cover, how long they hold, for whom, and how they are taken back.

use std::process::{Output, Stdio};

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, initialize, new_session, text_prompt};
use zeroclaw_testkit::process::AgentProcess;

use crate::turns::{Turn, asks, end_turn, last_update, question, runs, selected, statuses};

async fn zeroclaw(lab: &Lab, arguments: &[&str]) -> Output {
    let mut command = lab.command("zeroclaw");
    command.args(arguments).current_dir(lab.project()).stdin(Stdio::null()).kill_on_drop(true);
    let limit = std::time::Duration::from_secs(60);
    tokio::time::timeout(limit, command.output()).await.expect("zeroclaw ends").expect("zeroclaw runs")
}

/// What `zeroclaw approvals list --json` says, with further arguments.
async fn listed(lab: &Lab, further: &[&str]) -> Vec<Value> {
    let arguments = [&["approvals", "list", "--json"], further].concat();
    let output = zeroclaw(lab, &arguments).await;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn questions(turn: &Turn) -> usize {
    turn.messages.iter().filter(|message| asks(message)).count()
}

/// Runs a prompt whose questions are all answered with this option; gives back how many there were.
async fn asked(agent: &mut AgentProcess, session: &str, text: &str, option: &str) -> usize {
    agent.auto_permit(option);
    questions(&end_turn(agent, session, text).await)
}

/// The names of the options of a question, by their ids.
fn name<'a>(question: &'a Value, id: &str) -> &'a str {
    let options = question["params"]["options"].as_array().unwrap();
    let option = options.iter().find(|option| option["optionId"] == id);
    option.unwrap_or_else(|| panic!("no {id} in {question}"))["name"].as_str().unwrap()
}

fn two_agents() -> Lab {
    Lab::with_config(
        "[acp]\ndefault_agent = \"main\"\n[providers.models.builtin.b]\n[agents.main]\nmodel_provider = \"builtin.b\"\n\
         [agents.other]\nmodel_provider = \"builtin.b\"\n[risk_profiles.default]\nlevel = \"supervised\"\n\
         commands = [{ command = \"git *\", decision = \"ask\" }]\n",
    )
}

/// An agent that asks about commands which would run without a question otherwise.
fn asking() -> Lab {
    Lab::with_config(
        "[autonomy]\nlevel = \"supervised\"\ncommands = [{ command = \"git *\", decision = \"ask\" }, \
         { command = \"sleep *\", decision = \"ask\" }]\n",
    )
}

#[tokio::test]
async fn an_always_holds_for_the_agent_and_the_directory_in_another_process_too() {
    let lab = two_agents();
    let (mut agent, session) = lab.session().await;
    let request = agent.request("session/prompt", text_prompt(&session, "/run git status")).await;
    let first = question(&mut agent).await;
    assert_eq!(name(&first, "allow-always"), "Always allow `git status` here");
    assert_eq!(name(&first, "reject-always"), "Always reject `git status` here");
    agent.reply(&first["id"], selected("allow-always")).await;
    agent.response(&request).await.unwrap();
    assert_eq!(asked(&mut agent, &session, "/run git status -s", "reject-once").await, 0, "the same session");
    let beside = new_session(&mut agent, &lab.project()).await;
    assert_eq!(asked(&mut agent, &beside, "/run git status -s", "reject-once").await, 0, "a session beside it");
    agent.close_stdin();
    assert!(agent.wait().await.success());

    let (mut agent, session) = lab.session().await;
    assert_eq!(asked(&mut agent, &session, "/run git status --short", "reject-once").await, 0, "another process");
    for script in [
        "git push",
        "git status; touch made",
        "git status && touch made",
        "git status > made",
        "git status \"$(touch made)\"",
        "git status `touch made`",
        "git status | tee made",
        "git -c core.fsmonitor=x status",
        "GIT_DIR=x git status",
    ] {
        let turn = asked(&mut agent, &session, &format!("/run {script}"), "reject-once").await;
        assert_eq!(turn, 1, "{script}");
    }
    assert!(!lab.project().join("made").exists());

    let sub = lab.project().join("sub");
    std::fs::create_dir(&sub).unwrap();
    let elsewhere = new_session(&mut agent, &sub).await;
    assert_eq!(asked(&mut agent, &elsewhere, "/run git status", "reject-once").await, 1, "another directory");
    let params = json!({"cwd": lab.project(), "mcpServers": [], "agentAlias": "other"});
    let other = agent.call("session/new", params).await.unwrap();
    let other = other["sessionId"].as_str().unwrap();
    assert_eq!(asked(&mut agent, other, "/run git status", "reject-once").await, 1, "another agent");
}

#[tokio::test]
async fn a_directory_is_covered_and_nothing_hidden_or_linked_in_it() {
    let lab = asking();
    let (mut agent, session) = lab.session().await;
    std::fs::create_dir_all(lab.project().join("src")).unwrap();
    let request = agent.request("session/prompt", text_prompt(&session, "/write src/a.txt one")).await;
    let first = question(&mut agent).await;
    assert_eq!(name(&first, "allow-always"), "Always allow `file_write` in `src/`");
    agent.reply(&first["id"], selected("allow-always")).await;
    agent.response(&request).await.unwrap();
    for path in ["src/b.txt", "src/deep/c.txt"] {
        assert_eq!(asked(&mut agent, &session, &format!("/write {path} x"), "reject-once").await, 0, "{path}");
        assert!(lab.project().join(path).exists(), "{path}");
    }
    std::fs::create_dir_all(lab.project().join(".git/hooks")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("../.git/hooks", lab.project().join("src/link")).unwrap();
    for path in ["a.txt", "src/.env", "src/.git/config", ".git/hooks/pre-commit", "src/link/pre-commit"] {
        assert_eq!(asked(&mut agent, &session, &format!("/write {path} x"), "reject-once").await, 1, "{path}");
    }
}

#[tokio::test]
async fn a_rejection_holds_and_wins() {
    let lab = asking();
    let (mut agent, session) = lab.session().await;
    assert_eq!(asked(&mut agent, &session, "/write src/a.txt x", "allow-always").await, 1);
    assert_eq!(asked(&mut agent, &session, "/write src/.deep x", "reject-always").await, 1);
    assert_eq!(asked(&mut agent, &session, "/run touch never", "reject-always").await, 1);
    agent.close_stdin();
    assert!(agent.wait().await.success());
    // In the level that asks for nothing as well.
    lab.write_config("[autonomy]\nlevel = \"full\"\n");
    let (mut agent, session) = lab.session().await;
    for prompt in ["/run touch never", "/write src/.deep x"] {
        let turn = end_turn(&mut agent, &session, prompt).await;
        let update = last_update(&turn.messages);
        assert_eq!((questions(&turn), &update["status"]), (0, &json!("failed")), "{prompt}");
        assert!(update["rawOutput"].as_str().unwrap().contains("rejected"), "{update}");
    }
    assert!(!lab.project().join("never").exists());
    assert_eq!(listed(&lab, &[]).await.len(), 3);
}

#[tokio::test]
async fn what_is_listed_can_be_revoked_and_counts_no_more_from_the_next_prompt_on() {
    let lab = two_agents();
    assert_eq!(listed(&lab, &[]).await, Vec::<Value>::new());
    let (mut agent, session) = lab.session().await;
    assert_eq!(asked(&mut agent, &session, "/run git status", "allow-always").await, 1);
    assert_eq!(asked(&mut agent, &session, "/run touch b", "reject-always").await, 1);
    let all = listed(&lab, &[]).await;
    let shown: Vec<[&str; 5]> = all
        .iter()
        .map(|one| ["decision", "agent", "tool", "covers", "sessionId"].map(|key| one[key].as_str().unwrap()))
        .collect();
    let expected = [
        ["allow", "main", "shell", "`git status` here", session.as_str()],
        ["reject", "main", "shell", "exactly `touch b` here", session.as_str()],
    ];
    assert_eq!(shown, expected);
    assert_eq!(all[0]["workspace"], json!(lab.project()));
    assert_eq!(listed(&lab, &["--workspace", "."]).await, all);
    assert_eq!(listed(&lab, &["--agent", "other"]).await, Vec::<Value>::new());
    let text = zeroclaw(&lab, &["approvals", "list"]).await;
    assert!(String::from_utf8(text.stdout).unwrap().contains("shell: `git status` here"));

    let first = all[0]["id"].to_string();
    let unknown = zeroclaw(&lab, &["approvals", "revoke", &first, "4711"]).await;
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("`4711`"));
    assert_eq!(listed(&lab, &[]).await, all, "nothing was revoked");
    for arguments in
        [&["approvals", "revoke"][..], &["approvals", "revoke", "--all", "1"], &["approvals", "revoke", "x"]]
    {
        assert_eq!(zeroclaw(&lab, arguments).await.status.code(), Some(2), "{arguments:?}");
    }
    assert!(zeroclaw(&lab, &["approvals", "revoke", &first]).await.status.success());
    assert_eq!(
        asked(&mut agent, &session, "/run git status", "reject-once").await,
        1,
        "the running session asks again"
    );
    assert_eq!(listed(&lab, &[]).await, all[1..]);
    assert!(zeroclaw(&lab, &["approvals", "revoke", "--all", "--agent", "other"]).await.status.success());
    assert_eq!(listed(&lab, &[]).await, all[1..]);
    assert!(zeroclaw(&lab, &["approvals", "revoke", "--all", "--workspace", "."]).await.status.success());
    assert_eq!(listed(&lab, &[]).await, Vec::<Value>::new());
    assert_eq!(asked(&mut agent, &session, "/run touch b", "reject-once").await, 1);
}

#[tokio::test]
async fn a_deleted_session_takes_its_answers_along() {
    let lab = asking();
    let (mut agent, session) = lab.session().await;
    assert_eq!(asked(&mut agent, &session, "/run git status", "allow-always").await, 1);
    let other = new_session(&mut agent, &lab.project()).await;
    assert_eq!(asked(&mut agent, &other, "/run git diff", "allow-always").await, 1);
    assert_eq!(agent.call("session/delete", json!({"sessionId": session})).await.unwrap(), json!({}));
    let left = listed(&lab, &[]).await;
    assert_eq!((left.len(), &left[0]["covers"]), (1, &json!("`git diff` here")));
    assert_eq!(asked(&mut agent, &other, "/run git status", "reject-once").await, 1);
    assert_eq!(asked(&mut agent, &other, "/run git diff --stat", "reject-once").await, 0);
}

// The command may be what ends the machine, so the answer has to be on the disk before it runs.
#[tokio::test]
async fn an_answer_survives_a_kill_as_soon_as_the_call_runs() {
    let lab = asking();
    let (mut agent, session) = lab.session().await;
    let _request = agent.request("session/prompt", text_prompt(&session, "/run sleep 30")).await;
    let asked_about = question(&mut agent).await;
    agent.reply(&asked_about["id"], selected("allow-always")).await;
    agent.recv_until(runs).await;
    agent.kill9().await;
    let kept = listed(&lab, &[]).await;
    assert_eq!((kept.len(), &kept[0]["covers"]), (1, &json!("exactly `sleep 30` here")));
}

#[tokio::test]
async fn calls_are_asked_about_one_at_a_time_and_a_cancel_withdraws_the_question() {
    let call =
        |id: u32| json!({"type": "tool_call", "name": "shell", "arguments": {"command": format!("touch f{id}")}});
    let stop = json!({"type": "stop"});
    let lab = Lab::scripted(
        "supervised",
        &[call(1), call(2), call(3), stop.clone(), json!({"type": "text", "text": "x"}), stop],
    );
    let (mut agent, session) = lab.session().await;
    let request = agent.request("session/prompt", text_prompt(&session, "go")).await;
    let mut titles = Vec::new();
    for _ in 0..2 {
        let asked = question(&mut agent).await;
        titles.push(asked["params"]["toolCall"]["title"].as_str().unwrap().to_owned());
        // The next question waits for this answer: whatever is sent until a request of ours is answered is no question.
        agent.call("session/list", json!({})).await.unwrap();
        assert!(!agent.collected().iter().filter(|message| message["id"] != asked["id"]).any(asks), "two at once");
        agent.reply(&asked["id"], selected("allow-once")).await;
    }
    assert_eq!(titles, ["Run `touch f1`", "Run `touch f2`"]);
    let last = question(&mut agent).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let result = agent.response(&request).await.unwrap();
    assert_eq!(result["stopReason"], "cancelled");
    let messages = agent.received();
    let withdrawn = messages.iter().find(|message| message["method"] == "$/cancel_request").expect("it is withdrawn");
    assert_eq!(withdrawn["params"]["requestId"], last["id"]);
    assert!(
        statuses(&messages)
            .values()
            .all(|states| matches!(states.last().map(String::as_str), Some("completed" | "failed")))
    );
    assert!(!lab.project().join("f3").exists());
    // An answer that comes too late counts for nothing, and the session works on.
    agent.reply(&last["id"], selected("allow-always")).await;
    agent.call("session/list", json!({})).await.unwrap();
    assert_eq!(listed(&lab, &[]).await, Vec::<Value>::new());
}

#[tokio::test]
async fn without_a_store_the_option_promises_the_session_only() {
    let lab = asking();
    // A file where the directory of the store should be.
    std::fs::create_dir_all(lab.config_dir().join("data")).unwrap();
    std::fs::write(lab.config_dir().join("data/sessions"), "").unwrap();
    let mut agent = lab.start();
    initialize(&mut agent).await;
    let session = new_session(&mut agent, &lab.project()).await;
    let request = agent.request("session/prompt", text_prompt(&session, "/run git status")).await;
    let first = question(&mut agent).await;
    assert_eq!(name(&first, "allow-always"), "Always allow `git status` here, in this session");
    agent.reply(&first["id"], selected("allow-always")).await;
    agent.response(&request).await.unwrap();
    assert_eq!(asked(&mut agent, &session, "/run git status", "reject-once").await, 0);
    let other = new_session(&mut agent, &lab.project()).await;
    assert_eq!(asked(&mut agent, &other, "/run git status", "reject-once").await, 1);
}
