//! What was shown is what runs: between the question and the answer somebody else moves files, links, programs and
//! directories, and each time nothing happens, or exactly what was shown.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use serde_json::{Value, json};
use zeroclaw_policy::{Judgement, judge};
use zeroclaw_runtime::tool::ToolFailure;

use crate::{shell::shell, support::Bench};

/// Prepares a call, lets somebody else act, and runs it.
async fn meanwhile(
    bench: &Bench,
    tool: &str,
    arguments: Value,
    act: impl FnOnce(&Path),
) -> Result<String, ToolFailure> {
    let call = bench.prepare(tool, arguments).await.expect("prepared");
    act(&bench.inside);
    bench.finish(tool, call).await.map(|outcome| outcome.model_text)
}

fn assert_refused(result: Result<String, ToolFailure>, what: &str) {
    let failure = result.expect_err(what).to_string();
    assert!(
        failure.contains("is not what it was when this was asked about") || failure.contains("changed since"),
        "{what}: {failure}"
    );
}

fn program(bench: &Bench, name: &str, text: &str) {
    let path = bench.write(name, format!("#!/bin/sh\necho {text}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("mode");
}

#[tokio::test]
async fn a_program_that_was_swapped_does_not_run() {
    for command in [
        "./tool",
        "sh ./tool",
        "env ./tool",
        "cd sub && ../tool",
        "timeout 5 ./tool x",
        "true; ./tool | cat",
        "sh -c './tool'",
        ". ./tool",
        "./alias",
    ] {
        let bench = Bench::new();
        program(&bench, "tool", "shown");
        fs::create_dir(bench.inside.join("sub")).expect("dir");
        symlink("tool", bench.inside.join("alias")).expect("link");
        let arguments = json!({ "command": command });
        let swap = |text: &'static str| {
            move |inside: &Path| {
                fs::write(inside.join("new"), format!("#!/bin/sh\ntouch owned; echo {text}\n")).expect("new");
                fs::set_permissions(inside.join("new"), fs::Permissions::from_mode(0o755)).expect("mode");
                fs::rename(inside.join("new"), inside.join("tool")).expect("swapped");
            }
        };
        assert_refused(meanwhile(&bench, "shell", arguments.clone(), swap("other")).await, command);
        // The same length in the same file, with the old time put back.
        let rewrite = |inside: &Path| {
            let path = inside.join("tool");
            let before = fs::metadata(&path).expect("file").modified().expect("time");
            let file = fs::File::options().write(true).open(&path).expect("open");
            std::io::Write::write_all(&mut &file, b"#!/bin/sh\ntouch owned; echo OTHER\n").expect("written");
            file.set_modified(before).expect("set");
        };
        assert_refused(meanwhile(&bench, "shell", arguments.clone(), rewrite).await, command);
        let remove = |inside: &Path| fs::remove_file(inside.join("tool")).expect("removed");
        assert_refused(meanwhile(&bench, "shell", arguments.clone(), remove).await, command);
        // And one that appears where there was none.
        assert_refused(meanwhile(&bench, "shell", arguments.clone(), swap("new")).await, command);
        assert!(!bench.inside.join("owned").exists(), "{command}");
        program(&bench, "tool", "shown");
        let text = meanwhile(&bench, "shell", arguments, |_| {}).await.expect("runs");
        assert!(text.starts_with("shown\n"), "{command}: {text}");
    }
}

#[tokio::test]
async fn a_link_that_was_turned_leads_to_nothing_else() {
    let bench = Bench::new();
    program(&bench, "one", "one");
    program(&bench, "two", "two");
    symlink("one", bench.inside.join("tool")).expect("link");
    let turn = |inside: &Path| {
        fs::remove_file(inside.join("tool")).expect("removed");
        symlink("two", inside.join("tool")).expect("link");
    };
    assert_refused(meanwhile(&bench, "shell", json!({ "command": "./tool" }), turn).await, "./tool");

    for name in ["a", "b"] {
        bench.write(&format!("{name}/file"), "same");
    }
    symlink("a", bench.inside.join("dir")).expect("link");
    let turn = |to: &'static str| {
        move |inside: &Path| {
            fs::remove_file(inside.join("dir")).expect("removed");
            symlink(to, inside.join("dir")).expect("link");
        }
    };
    // A new file, which has no content to compare, and one whose content is the same in both places.
    let call = json!({ "path": "dir/new/file", "content": "x" });
    assert_refused(meanwhile(&bench, "file_write", call, turn("b")).await, "a new file");
    let call = json!({ "path": "dir/file", "content": "x" });
    assert_refused(meanwhile(&bench, "file_write", call, turn("a")).await, "a file");
    let call = json!({ "path": "dir/file", "old_text": "same", "new_text": "x" });
    assert_refused(meanwhile(&bench, "file_edit", call, turn("b")).await, "an edit");
    for name in ["a", "b"] {
        assert_eq!(fs::read_dir(bench.inside.join(name)).expect("dir").count(), 1, "{name}");
        assert_eq!(fs::read_to_string(bench.inside.join(name).join("file")).expect("file"), "same");
    }
}

#[tokio::test]
async fn a_directory_that_was_swapped_starts_nothing() {
    let bench = Bench::new();
    fs::create_dir_all(bench.inside.join("work")).expect("dir");
    fs::create_dir_all(bench.inside.join("other")).expect("dir");
    let call = json!({ "command": "touch ran", "cwd": "work" });
    let swap = |inside: &Path| {
        fs::rename(inside.join("work"), inside.join("old")).expect("moved");
        fs::rename(inside.join("other"), inside.join("work")).expect("moved");
    };
    assert_refused(meanwhile(&bench, "shell", call.clone(), swap).await, "a directory");
    let link = |inside: &Path| {
        fs::remove_dir(inside.join("work")).expect("removed");
        symlink("old", inside.join("work")).expect("link");
    };
    assert_refused(meanwhile(&bench, "shell", call, link).await, "a link");
    assert!(!bench.inside.join("old/ran").exists() && !bench.inside.join("work/ran").exists());
}

/// What changes without being what runs keeps nothing from running.
#[tokio::test]
async fn files_that_are_only_read_may_change() {
    let bench = Bench::new();
    bench.write("data", "old\n");
    let change = |inside: &Path| fs::write(inside.join("data"), "new\n").expect("written");
    let text = meanwhile(&bench, "shell", json!({ "command": "cat data" }), change).await.expect("runs");
    assert!(text.starts_with("new\n"), "{text}");
    assert_eq!(shell(&bench, "echo x >>data").await.0, "[exit code 0]");
}

/// The words of the question are the words of the permit, to the byte, and so is everything else of it.
#[tokio::test]
async fn a_permit_is_for_the_prepared_call_alone() {
    let bench = Bench::new();
    let one = bench.prepare("shell", json!({ "command": "echo one" })).await.expect("prepared");
    let two = bench.prepare("shell", json!({ "command": "echo two" })).await.expect("prepared");
    let Judgement::Granted(permit) = judge(&bench.context.rules, bench.context.jail.roots(), "shell", one.action())
    else {
        panic!("granted");
    };
    assert_eq!(permit.fingerprint(), one.action().fingerprint());
    assert_ne!(permit.fingerprint(), two.action().fingerprint());
    // A tool that is handed another permit does what the permit says and not what it had in mind.
    let outcome = two.run(permit, &bench.context, &bench.reports).await.expect("runs");
    assert_eq!(outcome.model_text, "one\n[exit code 0]");
    // One that is for other surroundings does nothing at all.
    let call = bench.prepare("shell", json!({ "command": "echo one" })).await.expect("prepared");
    let mut other = Bench::new();
    other.settings(|settings| settings.shell_env.push(("LD_PRELOAD".to_owned(), "x.so".to_owned())));
    let Judgement::Granted(permit) = judge(&bench.context.rules, bench.context.jail.roots(), "shell", call.action())
    else {
        panic!("granted");
    };
    let failure = call.run(permit, &other.context, &other.reports).await.expect_err("refused").to_string();
    assert!(failure.contains("the environment is not what it was"), "{failure}");
}
