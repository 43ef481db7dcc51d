//! Tool calls: their order and final states, what is shown of them, and the tools that talk to the user.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zeroclaw_e2e::{Lab, answer_text, new_session, text_prompt, updates_of};
use zeroclaw_testkit::{
    model_server::{ModelServer, Part, Reply},
    process::{Direction, Permission},
};

use crate::turns::{
    announced, asks, builtin, end_turn, files_below, last_update, question, runs, selected, session_with, statuses,
    texts,
};

/// A script of one answer with these tool calls, then a last word.
fn calls(calls: &[(&str, Value)]) -> Vec<Value> {
    let mut lines: Vec<Value> = calls
        .iter()
        .map(|(name, arguments)| json!({"type": "tool_call", "name": name, "arguments": arguments}))
        .collect();
    lines.push(json!({"type": "stop"}));
    lines.push(json!({"type": "text", "text": "done"}));
    lines.push(json!({"type": "stop"}));
    lines
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

// The last calls of a turn and every denied one stayed "in progress", and good ones ended as errors.
#[tokio::test]
async fn tlc_01_every_call_ends_exactly_once_before_the_answer() {
    let script = calls(&[
        ("file_read", json!({"path": "a.txt"})),
        ("file_read", json!({"path": "a.txt"})),
        ("file_read", json!({"path": "missing.txt"})),
        ("file_read", json!({"path": "b.txt"})),
        ("shell", json!({"command": "touch denied"})),
        ("shell", json!({"command": "sleep 600", "timeout_secs": 1})),
        ("shell", json!({"command": "exit 7"})),
        ("no_such_tool", json!({})),
        ("file_write", json!({"content": "no path"})),
        ("shell", json!({"command": "echo fine"})),
    ]);
    let ends = [
        "completed",
        "completed",
        "failed",
        "completed",
        "failed",
        "failed",
        "failed",
        "failed",
        "failed",
        "completed",
    ];
    let lab = Lab::scripted("supervised", &script);
    lab.file("a.txt", "a\n");
    lab.file("b.txt", "b\n");
    let (mut agent, session) = lab.session().await;
    agent.on_permission(|params| {
        let denied = params["toolCall"]["rawInput"]["command"] == "touch denied";
        Permission::Select(if denied { "reject-once" } else { "allow-once" }.to_owned())
    });
    let turn = end_turn(&mut agent, &session, "go").await;
    let calls = announced(&turn.messages);
    assert_eq!(calls.len(), ends.len());
    let statuses = statuses(&turn.messages);
    assert_eq!(statuses.len(), ends.len(), "ids repeat: {statuses:?}");
    for (call, end) in calls.iter().zip(ends) {
        let steps = &statuses[call["toolCallId"].as_str().unwrap()];
        assert_eq!(steps.first().map(String::as_str), Some("pending"), "{call}");
        let finals: Vec<&String> =
            steps.iter().filter(|step| ["completed", "failed"].contains(&step.as_str())).collect();
        assert_eq!(finals, [end], "{call}: {steps:?}");
        assert_eq!(steps.last().map(String::as_str), Some(end), "{call}: {steps:?}");
        assert!(call["title"].as_str().is_some_and(|title| !title.is_empty()), "{call}");
    }
    assert!(!lab.project().join("denied").exists());
}

// A question overtook the call it was about, so the editor had nothing to attach its dialog to.
#[tokio::test]
async fn a_call_is_announced_asked_about_run_and_ended_in_this_order() {
    let lab = builtin("supervised");
    let (mut agent, session) = lab.session().await;
    agent.auto_permit("allow-once");
    let turn = end_turn(&mut agent, &session, "/think first\n/run touch made\n/write a.txt text\n/say 1").await;
    let mut steps: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut order = Vec::new();
    for message in &turn.messages {
        let (id, step) = if asks(message) {
            (&message["params"]["toolCall"]["toolCallId"], json!("asked"))
        } else {
            let update = &message["params"]["update"];
            (&update["toolCallId"], update["status"].clone())
        };
        let (Some(id), Some(step)) = (id.as_str(), step.as_str()) else { continue };
        if !order.iter().any(|known| known == id) {
            order.push(id.to_owned());
        }
        let steps = steps.entry(id.to_owned()).or_default();
        if steps.last().is_none_or(|last| last != step) {
            steps.push(step.to_owned());
        }
    }
    assert_eq!(order.len(), 2);
    for id in &order {
        assert_eq!(steps[id], ["pending", "asked", "in_progress", "completed"]);
    }
    let place = |found: &dyn Fn(&Value) -> bool| turn.messages.iter().position(found).unwrap();
    let thought = place(&|message| message["params"]["update"]["sessionUpdate"] == "agent_thought_chunk");
    assert!(thought < place(&asks), "the question overtook the thought before it");
    let says = |message: &Value| message["params"]["update"]["content"]["text"] == "chunk 1 ";
    assert!(place(&says) > turn.messages.iter().rposition(runs).unwrap(), "the text overtook the call before it");
}

// Diffs and places named files without their directories, and editors could not open them.
#[tokio::test]
async fn tlc_03_diffs_and_places_have_absolute_paths() {
    let lab = builtin("full");
    let path = lab.file("src/a.rs", "fn a() {}\nfn b() {}\n");
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "/edit src/a.rs fn b => fn c").await;
    let call = announced(&turn.messages).pop().unwrap();
    let diff = call["content"].as_array().unwrap().iter().find(|item| item["type"] == "diff").unwrap();
    assert_eq!(diff["path"], json!(path));
    assert_eq!(diff["oldText"], "fn a() {}\nfn b() {}\n");
    assert_eq!(diff["newText"], "fn a() {}\nfn c() {}\n");
    assert_eq!(call["locations"], json!([{"path": path, "line": 2}]));
    assert_eq!(call["kind"], "edit");
    assert!(call["title"].as_str().unwrap().contains("src/a.rs"), "{call}");
    let new = end_turn(&mut agent, &session, "/write src/new/b.rs text").await;
    let call = announced(&new.messages).pop().unwrap();
    let made = lab.project().join("src/new/b.rs");
    assert_eq!(call["content"][0], json!({"type": "diff", "path": made, "oldText": null, "newText": "text"}));
    assert_eq!(call["locations"][0]["path"], json!(made));
    assert_eq!(fs::read_to_string(made).unwrap(), "text");
    for message in turn.messages.iter().chain(&new.messages) {
        let update = &message["params"]["update"];
        for place in update["locations"].as_array().into_iter().flatten() {
            assert!(std::path::Path::new(place["path"].as_str().unwrap()).is_absolute(), "{update}");
            assert!(place["line"].is_null() || place["line"].as_u64().unwrap() >= 1, "{update}");
        }
    }
}

// Wherever a file was changed, the editor that follows along jumped to its first line.
#[tokio::test]
async fn tlc_05_the_place_is_the_changed_line() {
    let edits = json!([
        {"old_text": "line 400\n", "new_text": "line four hundred\n"},
        {"old_text": "line 2\nline 3\n", "new_text": "line 2\nline three\nmore\n"},
    ]);
    let script = calls(&[
        ("file_edit", json!({"path": "long.txt", "edits": edits})),
        ("file_read", json!({"path": "long.txt", "offset": 120, "limit": 2})),
    ]);
    let lab = Lab::scripted("full", &script);
    let text: String = (1..=500).map(|number| format!("line {number}\n")).collect();
    let path = lab.file("long.txt", text);
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "go").await;
    let calls = announced(&turn.messages);
    let lines: Vec<u64> =
        calls[0]["locations"].as_array().unwrap().iter().map(|place| place["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [401, 3], "the lines in the new text, in the order of the edits");
    assert_eq!(calls[1]["locations"], json!([{"path": path, "line": 120}]));
    let changed = fs::read_to_string(path).unwrap();
    assert_eq!(changed.lines().nth(400), Some("line four hundred"));
}

// When a command wrote to both streams, one of them was lost, and the exit code was never shown.
#[tokio::test]
async fn tlc_07_both_streams_and_the_exit_code_are_shown() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "/run echo out; echo err >&2; exit 3").await;
    let update = last_update(&turn.messages);
    assert_eq!(update["status"], "failed");
    for text in [update["rawOutput"].as_str().unwrap(), &texts(&update["content"])] {
        assert!(text.contains("out\n") && text.contains("err\n") && text.contains("[exit code 3]"), "{text}");
    }
    let turn = end_turn(&mut agent, &session, "/run echo err >&2").await;
    let update = last_update(&turn.messages);
    assert_eq!((&update["status"], &update["rawOutput"]), (&json!("completed"), &json!("err\n[exit code 0]")));
    let turn = end_turn(&mut agent, &session, "/run kill -9 $$").await;
    let update = last_update(&turn.messages);
    assert_eq!((&update["status"], &update["rawOutput"]), (&json!("failed"), &json!("[killed by signal 9]")));
}

// The output of one command made a frame that no client could take.
#[tokio::test]
async fn tlc_09_a_huge_output_is_cut_and_says_so() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "/run yes 漢字 | head -n 7500000").await;
    let update = last_update(&turn.messages);
    let output = update["rawOutput"].as_str().unwrap();
    assert!(output.len() <= 64 * 1024 + 64, "{}", output.len());
    assert!(output.contains("(52500000 bytes in all)"), "the whole size is not named");
    assert!(output.starts_with("漢字\n") && output.ends_with("漢字\n[exit code 0]"), "head and tail are not there");
    let mut total = 0;
    for entry in agent.transcript().iter().filter(|entry| entry.direction == Direction::Received) {
        assert!(entry.line.len() < 160 * 1024, "a frame of {} bytes", entry.line.len());
        assert!(!entry.line.contains('\u{fffd}'), "a character was cut");
        total += entry.line.len();
    }
    assert!(total < 1024 * 1024, "{total} bytes for one call");
}

// Terminals that were made in the client were never released. Unless it is configured otherwise commands run in the agent's
// own process, and no terminal is asked for, whatever the client offers, also on a cancel and on an error.
// Where it is configured, `client_terminal` shows that each is released once.
#[tokio::test]
async fn tlc_11_no_terminal_of_the_client_is_used_unasked() {
    let lab = builtin("full");
    let mut agent = lab.start();
    let capabilities = json!({"terminal": true, "fs": {"readTextFile": true, "writeTextFile": true}});
    agent.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": capabilities})).await.unwrap();
    let session = new_session(&mut agent, &lab.project()).await;
    let turn = end_turn(&mut agent, &session, "/run echo hi\n/run exit 1").await;
    assert!(texts(&last_update(&turn.messages)["content"]).contains("[exit code 1]"));
    let request = agent.request("session/prompt", text_prompt(&session, "/run sleep 600")).await;
    agent.recv_until(runs).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(agent.response(&request).await.unwrap()["stopReason"], "cancelled");
    for message in agent.received() {
        let method = message["method"].as_str().unwrap_or_default();
        assert!(!method.starts_with("terminal/") && !method.starts_with("fs/"), "{message}");
        assert!(!message.to_string().contains("\"terminalId\""), "{message}");
    }
}

// A command that waits for input hung until the time-out, because its input was the protocol's.
#[tokio::test]
async fn a_command_has_no_input() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, r#"/run cat; read x; echo "{\"id\":1}""#).await;
    let output = last_update(&turn.messages)["rawOutput"].as_str().unwrap().to_owned();
    assert_eq!(output, "{\"id\":1}\n[exit code 0]");
    end_turn(&mut agent, &session, "/say 1").await;
}

// A command inherited the descriptors of its agent and could write into the protocol.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_has_no_descriptor_of_the_agent() {
    let targets = |pid: &str| -> BTreeMap<String, String> {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(Result::ok);
        let link =
            |entry: fs::DirEntry| Some((entry.file_name().into_string().ok()?, fs::read_link(entry.path()).ok()?));
        entries.filter_map(link).map(|(number, target)| (number, target.display().to_string())).collect()
    };
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    // What the test itself was started with, every process below it has.
    let common: BTreeSet<String> = targets("self").into_values().collect();
    let turn = end_turn(&mut agent, &session, "/run for f in /proc/$$/fd/*; do readlink $f; done").await;
    let output = last_update(&turn.messages)["rawOutput"].as_str().unwrap().to_owned();
    let own: BTreeSet<&str> = output.lines().collect();
    let mut checked = 0;
    for (number, target) in targets(&agent.pid().to_string()) {
        let stream = ["0", "1", "2"].contains(&number.as_str());
        // The agent's other pipes are the far ends of the command's own.
        if (stream || target.starts_with('/')) && !common.contains(&target) && target != "/dev/null" {
            assert!(!own.contains(target.as_str()), "descriptor {number} of the agent, {target}: {output}");
            checked += 1;
        }
    }
    assert!(checked >= 4, "three streams and the store");
}

// The name of a delivered file decided what it was called on the other side; here only its bytes do.
#[tokio::test]
async fn deliver_file_hands_over_the_bytes_under_their_digest() {
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let lab = Lab::scripted(
        "supervised",
        &calls(&[
            ("deliver_file", json!({"path": "out/Report final.PDF"})),
            (
                "deliver_file",
                json!({"path": "out/Report final.PDF", "title": "The report", "mimeType": "application/x-report"}),
            ),
            ("deliver_file", json!({"path": "notes"})),
        ]),
    );
    lab.file("out/Report final.PDF", &bytes);
    lab.file("notes", "no extension\n");
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "hand it over").await;
    assert!(!turn.messages.iter().any(asks), "reading inside of the project is not asked about");
    let updates: Vec<Value> = updates_of(&turn.messages, "tool_call_update")
        .into_iter()
        .filter(|update| update["status"] == "completed")
        .collect();
    let digest = hex(&bytes);
    let expected = [
        (format!("{digest}.pdf"), "application/pdf", "Report final.PDF", bytes.clone()),
        (format!("{digest}.pdf"), "application/x-report", "The report", bytes),
        (hex(b"no extension\n"), "application/octet-stream", "notes", b"no extension\n".to_vec()),
    ];
    assert_eq!(updates.len(), expected.len(), "{updates:#?}");
    for (update, (name, mime, title, bytes)) in updates.iter().zip(expected) {
        assert_eq!(update["title"], title);
        let text = update["rawOutput"].as_str().unwrap();
        assert!(text.contains(title) && text.len() < 400, "{text}");
        assert_eq!(update["content"][0]["content"]["text"], text);
        let resource = &update["content"][1]["content"]["resource"];
        assert_eq!(update["content"][1]["type"], "content");
        assert_eq!(update["content"][1]["content"]["type"], "resource");
        assert_eq!(resource["uri"], format!("attachment://deliver/{name}"));
        assert_eq!(resource["mimeType"], mime);
        assert!(STANDARD.decode(resource["blob"].as_str().unwrap()).unwrap() == bytes, "other bytes");
        assert!(fs::read(lab.project().join("uploads").join(&name)).unwrap() == bytes, "another copy");
    }
}

// What cannot be handed over is refused in words: too large, outside, not a file, a copy that was tampered with.
#[tokio::test]
async fn deliver_file_refuses_what_it_cannot_hand_over() {
    let lab = Lab::scripted(
        "full",
        &calls(&[
            ("deliver_file", json!({"path": "large.bin"})),
            ("deliver_file", json!({"path": "../home/secret.txt"})),
            ("deliver_file", json!({"path": "link.txt"})),
            ("deliver_file", json!({"path": "missing.txt"})),
            ("deliver_file", json!({"path": "."})),
            ("deliver_file", json!({"path": "tampered.txt"})),
            ("deliver_file", json!({"path": "a.txt", "mimeType": "no type"})),
        ]),
    );
    let large = fs::File::create(lab.project().join("large.bin")).unwrap();
    large.set_len(10 * 1024 * 1024 + 1).unwrap();
    let secret = lab.home().join("secret.txt");
    fs::write(&secret, "secret").unwrap();
    std::os::unix::fs::symlink(&secret, lab.project().join("link.txt")).unwrap();
    lab.file("a.txt", "a");
    lab.file("tampered.txt", "true");
    lab.file(&format!("uploads/{}.txt", hex(b"true")), "false");
    let before = files_below(&lab.project());
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "hand it over").await;
    let statuses = statuses(&turn.messages);
    assert_eq!(statuses.len(), 7);
    for steps in statuses.values() {
        assert_eq!(steps.last().map(String::as_str), Some("failed"), "{statuses:?}");
    }
    for message in &turn.messages {
        assert!(!message.to_string().contains("\"blob\""), "{message}");
        assert!(!message.to_string().contains("\"secret\""), "{message}");
    }
    assert_eq!(files_below(&lab.project()), before, "a refused file left a copy");
}

// A directory for copies that leads out of the project is not written through.
#[tokio::test]
async fn deliver_file_does_not_follow_a_link_named_uploads() {
    let lab = builtin("full");
    lab.file("a.txt", "a");
    let elsewhere = lab.home().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let (mut agent, session) = lab.session().await;
    for target in [elsewhere.clone(), "real".into()] {
        fs::create_dir_all(lab.project().join("real")).unwrap();
        std::os::unix::fs::symlink(&target, lab.project().join("uploads")).unwrap();
        let turn = end_turn(&mut agent, &session, "/deliver a.txt").await;
        assert_eq!(last_update(&turn.messages)["status"], "failed", "{}", target.display());
        fs::remove_file(lab.project().join("uploads")).unwrap();
    }
    assert!(files_below(&elsewhere).is_empty());
    assert_eq!(files_below(&lab.project()), ["a.txt"]);
}

// The largest file that may be handed over arrives whole, in one line, and the turn is stored.
#[tokio::test]
async fn deliver_file_takes_ten_mebibytes() {
    let lab = builtin("full");
    let file = fs::File::create(lab.project().join("large.bin")).unwrap();
    file.set_len(10 * 1024 * 1024).unwrap();
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "/deliver large.bin").await;
    let update = last_update(&turn.messages);
    let blob = update["content"][1]["content"]["resource"]["blob"].as_str().unwrap();
    assert_eq!(blob.len(), (10 * 1024 * 1024_usize).div_ceil(3) * 4);
    assert_eq!(turn.result.get("_meta"), None, "the turn was not stored: {}", turn.result);
}

// A question with answers to choose from goes the way of permissions, but its answer is a word and not a permit.
#[tokio::test]
async fn ask_user_offers_its_choices_and_returns_the_chosen_one() {
    let lab = builtin("readonly");
    let (mut agent, session) = lab.session().await;
    let answers = [
        (selected("choice-1"), "The answer: The user answered: green\n"),
        (selected("no-answer"), "The answer: The user gave no answer"),
        (selected("choice-7"), "The answer: The user gave no answer"),
        (json!({"outcome": {"outcome": "cancelled"}}), "The answer: The user gave no answer"),
    ];
    for (answer, said) in answers {
        let request = agent.request("session/prompt", text_prompt(&session, "/ask Which colour? | red | green")).await;
        let mut messages = agent.recv_until(asks).await;
        let asked = messages.last().unwrap().clone();
        let call = announced(&messages).pop().unwrap();
        assert_eq!(asked["params"]["toolCall"]["toolCallId"], call["toolCallId"]);
        assert!(asked["params"]["toolCall"]["title"].as_str().unwrap().contains("Which colour?"));
        let options: Vec<(&str, &str)> = asked["params"]["options"]
            .as_array()
            .unwrap()
            .iter()
            .map(|option| (option["optionId"].as_str().unwrap(), option["name"].as_str().unwrap()))
            .collect();
        assert_eq!(options[..2], [("choice-0", "red"), ("choice-1", "green")]);
        agent.reply(&asked["id"], answer).await;
        let result = agent.response(&request).await.unwrap();
        messages.extend(agent.collected());
        assert_eq!(result["stopReason"], "end_turn");
        assert!(answer_text(&messages).starts_with(said), "{}", answer_text(&messages));
        assert_eq!(last_update(&messages)["status"], "completed");
    }
}

// Without choices there is nothing a client could show: the call fails at once, with the reason.
#[tokio::test]
async fn ask_user_without_choices_fails_at_once() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "/ask What is your name?").await;
    assert!(!turn.messages.iter().any(asks));
    let update = last_update(&turn.messages);
    assert_eq!(update["status"], "failed");
    assert!(update["rawOutput"].as_str().unwrap().contains("choices"), "{update}");
}

// A question nobody answers ends by itself, and so does one that is cancelled.
#[tokio::test]
async fn ask_user_waits_neither_for_ever_nor_for_a_cancelled_turn() {
    let lab = builtin("full");
    let (mut agent, session) = session_with(&lab, &["--session-timeout", "1"]).await;
    let turn = end_turn(&mut agent, &session, "/ask Go on? | yes | no").await;
    assert!(answer_text(&turn.messages).contains("no answer"), "{}", answer_text(&turn.messages));
    assert!(turn.messages.iter().any(|message| message["method"] == "$/cancel_request"));
    drop(agent);
    let (mut agent, session) = lab.session().await;
    let request = agent.request("session/prompt", text_prompt(&session, "/ask Go on? | yes | no")).await;
    let asked = question(&mut agent).await;
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    let result = agent.response(&request).await.unwrap();
    assert_eq!(result["stopReason"], "cancelled");
    let messages = agent.collected();
    let withdrawn = messages.iter().find(|message| message["method"] == "$/cancel_request").unwrap();
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    assert_eq!(last_update(&messages)["status"], "failed");
}

// A call for a person is a message that cannot be missed; with `wait` the work goes on only after an answer.
#[tokio::test]
async fn escalate_to_human_speaks_up_and_waits_when_told_to() {
    let script = [
        json!({"type": "tool_call", "name": "escalate_to_human", "arguments": {"summary": "The disk is failing.", "urgency": "high"}}),
        json!({"type": "tool_call", "name": "escalate_to_human", "arguments": {"summary": "May I format it?", "urgency": "low", "wait": true}}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "done"}),
        json!({"type": "stop"}),
    ];
    let lab = Lab::scripted("supervised", &script);
    let (mut agent, session) = lab.session().await;
    let request = agent.request("session/prompt", text_prompt(&session, "go")).await;
    let mut messages = agent.recv_until(asks).await;
    let said = answer_text(&messages);
    let (first, second) = (said.find("The disk is failing.").unwrap(), said.find("May I format it?").unwrap());
    assert!(first < second && said.contains("high") && said.contains("low"), "{said}");
    let asked = messages.last().unwrap().clone();
    let options = asked["params"]["options"].as_array().unwrap();
    assert_eq!((&options[0]["optionId"], &options[0]["name"]), (&json!("choice-0"), &json!("Continue")));
    agent.reply(&asked["id"], selected("choice-1")).await;
    let result = agent.response(&request).await.unwrap();
    messages.extend(agent.collected());
    assert_eq!(result["stopReason"], "end_turn");
    assert_eq!(messages.iter().filter(|message| asks(message)).count(), 1, "only `wait` asks");
    assert!(last_update(&messages)["rawOutput"].as_str().unwrap().contains("Stop"));
    for steps in statuses(&messages).values() {
        assert_eq!(steps.last().map(String::as_str), Some("completed"));
    }
}

// A plan is always told whole, each time it changes.
#[tokio::test]
async fn the_plan_is_complete_in_every_update() {
    let todo = |content: &str, status: &str| json!({"content": content, "status": status, "priority": "high"});
    let first = json!({"todos": [todo("look", "in_progress"), todo("fix", "pending")]});
    let second = json!({"todos": [todo("look", "completed"), todo("fix", "in_progress"), {"content": "test", "status": "pending"}]});
    let lab = Lab::scripted("readonly", &calls(&[("todo_write", first), ("todo_write", second)]));
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "plan").await;
    let plans = updates_of(&turn.messages, "plan");
    let entries: Vec<Vec<(&str, &str, &str)>> = plans
        .iter()
        .map(|plan| {
            let entries = plan["entries"].as_array().unwrap().iter();
            entries
                .map(|entry| {
                    let text = |name: &str| entry[name].as_str().unwrap();
                    (text("content"), text("status"), text("priority"))
                })
                .collect()
        })
        .collect();
    assert_eq!(
        entries,
        [
            vec![("look", "in_progress", "high"), ("fix", "pending", "high")],
            vec![("look", "completed", "high"), ("fix", "in_progress", "high"), ("test", "pending", "medium")],
        ]
    );
    for steps in statuses(&turn.messages).values() {
        assert_eq!(steps.last().map(String::as_str), Some("completed"));
    }
}

// What a command printed was shown only when it had ended.
#[tokio::test]
async fn output_is_shown_while_the_command_runs() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let request = agent.request("session/prompt", text_prompt(&session, "/run echo early; sleep 600")).await;
    let messages = agent.recv_until(|message| texts(&message["params"]["update"]["content"]).contains("early\n")).await;
    assert_eq!(last_update(&messages)["status"], "in_progress");
    agent.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(agent.response(&request).await.unwrap()["stopReason"], "cancelled");
}

// Bytes that are no text broke the line they were put into.
#[tokio::test]
async fn output_that_is_no_text_stays_inside_its_line() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let command = r"/run printf 'a\377\376b\000c\033[31md\r\n\342\200\250e\360\237'";
    let turn = end_turn(&mut agent, &session, command).await;
    let output = last_update(&turn.messages)["rawOutput"].as_str().unwrap().to_owned();
    let shown = output.strip_suffix("\n[exit code 0]").unwrap();
    assert_eq!(shown, "a\u{fffd}\u{fffd}b\0c\u{1b}[31md\r\n\u{2028}e\u{fffd}");
}

// One call with broken arguments spoiled the turn, or the conversation for good.
#[tokio::test]
async fn broken_arguments_fail_their_call_and_nothing_else() {
    let model = ModelServer::start().await;
    let broken = ["{\"command\": \"touch made\"", "[]", "\"touch made\"", "", "{\"command\": 7}", "nonsense"];
    let calls = broken
        .iter()
        .enumerate()
        .map(|(number, arguments)| Part::tool_call(format!("call_{number}"), "shell", arguments));
    model.push(Reply::turn(calls.chain([Part::tool_call("call_9", "shell", json!({"command": "echo fine"}))])));
    model.push(Reply::text("ok"));
    model.push(Reply::text("next"));
    let lab = Lab::custom("full", &model.openai_url());
    let (mut agent, session) = lab.session().await;
    let turn = end_turn(&mut agent, &session, "go").await;
    let ends: Vec<String> = announced(&turn.messages)
        .iter()
        .map(|call| statuses(&turn.messages)[call["toolCallId"].as_str().unwrap()].last().unwrap().clone())
        .collect();
    assert_eq!(ends, [vec!["failed"; broken.len()], vec!["completed"]].concat());
    assert_eq!(end_turn(&mut agent, &session, "again").await.result["content"], "next");
    assert!(files_below(&lab.project()).is_empty());
    // The vendor's own check: arguments in the conversation are objects, each call has its result.
    assert_eq!(model.violations(), Vec::<String>::new());
}

// Ids began again after a restart, and editors updated the calls of an earlier turn.
#[tokio::test]
async fn call_ids_are_unique_over_turns_and_restarts() {
    let lab = builtin("full");
    let (mut agent, session) = lab.session().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let turn = end_turn(&mut agent, &session, "/run true\n/run true").await;
        ids.extend(announced(&turn.messages).into_iter().map(|call| call["toolCallId"].clone()));
    }
    agent.close_stdin();
    assert!(agent.wait().await.success());
    let mut agent = lab.agent().await;
    agent.call("session/load", json!({"sessionId": session, "cwd": lab.project(), "mcpServers": []})).await.unwrap();
    let turn = end_turn(&mut agent, &session, "/run true\n/run true").await;
    ids.extend(announced(&turn.messages).into_iter().map(|call| call["toolCallId"].clone()));
    let distinct: BTreeSet<String> = ids.iter().map(Value::to_string).collect();
    assert_eq!((ids.len(), distinct.len()), (6, 6), "{ids:?}");
}
