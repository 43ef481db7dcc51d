//! Writing and editing: exact content, exact places, and nothing when something does not fit.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;
use zeroclaw_policy::{Action, Replaces};
use zeroclaw_runtime::{
    jail::digest,
    tool::{Location, ToolContent},
};

use crate::support::{Bench, shown_text};

#[tokio::test]
async fn a_new_file_is_shown_and_written_exactly() {
    let bench = Bench::new();
    let content = "a\r\nb\n\tumlaut ä \u{feff}no newline";
    let call = bench.prepare("file_write", json!({ "path": "new/dir/a.txt", "content": content })).await.expect("ok");
    let path = bench.inside.join("new/dir/a.txt");
    assert!(!bench.inside.join("new").exists(), "nothing is made before it is permitted");
    let view = call.view();
    assert_eq!(view.title, "Create new/dir/a.txt");
    assert_eq!(view.locations, [Location { path: path.clone(), line: Some(1) }]);
    assert_eq!(view.content[0], ToolContent::Diff { path: path.clone(), old: None, new: content.to_owned() });
    assert!(shown_text(&view.content).contains("U+FEFF in line 3"), "{view:?}");
    let Action::Write { content: bytes, replaces, .. } = call.action() else { panic!("a write") };
    assert_eq!((&*bytes, replaces), (content.as_bytes(), Replaces::Nothing));
    let outcome = bench.finish("file_write", call).await.expect("written");
    assert!(outcome.content.is_empty() && !outcome.failed);
    assert_eq!(fs::read_to_string(path).expect("file"), content);
}

#[tokio::test]
async fn a_replaced_file_shows_both_texts_and_keeps_its_mode() {
    let bench = Bench::new();
    let path = bench.write("run.sh", "#!/bin/sh\necho a\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
    let call =
        bench.prepare("file_write", json!({ "path": "run.sh", "content": "#!/bin/sh\necho b\n" })).await.expect("ok");
    let view = call.view();
    assert_eq!((view.title.as_str(), view.locations[0].line), ("Write run.sh", Some(2)));
    let diff = ToolContent::Diff {
        path: path.clone(),
        old: Some("#!/bin/sh\necho a\n".to_owned()),
        new: "#!/bin/sh\necho b\n".to_owned(),
    };
    assert_eq!(view.content, [diff]);
    bench.finish("file_write", call).await.expect("written");
    assert_eq!(fs::metadata(&path).expect("file").permissions().mode() & 0o777, 0o755);
}

#[tokio::test]
async fn a_file_that_changed_since_it_was_shown_is_left_alone() {
    let bench = Bench::new();
    let path = bench.write("a.txt", "one");
    let calls = [
        ("file_write", json!({ "path": "a.txt", "content": "x" })),
        ("file_edit", json!({ "path": "a.txt", "old_text": "one", "new_text": "x" })),
    ];
    for (tool, arguments) in calls {
        fs::write(&path, "one").expect("file");
        let call = bench.prepare(tool, arguments).await.expect("prepared");
        fs::write(&path, "two").expect("another writer");
        let failure = bench.finish(tool, call).await.expect_err("stale").to_string();
        assert!(failure.contains("changed since it was read"), "{failure}");
        assert_eq!(fs::read_to_string(&path).expect("file"), "two");
    }
    let call = bench.prepare("file_write", json!({ "path": "new", "content": "x" })).await.expect("prepared");
    bench.write("new", "appeared");
    assert!(bench.finish("file_write", call).await.is_err());
    assert_eq!(fs::read_to_string(bench.inside.join("new")).expect("file"), "appeared");
}

#[tokio::test]
async fn large_and_binary_files_are_replaced_with_a_note() {
    let bench = Bench::new();
    bench.write("bin", b"\0\x01\x02");
    let view = bench.view("file_write", json!({ "path": "bin", "content": "text" })).await;
    let text = shown_text(&view.content);
    assert!(text.contains("Replaces 3 bytes") && text.contains("```\ntext\n```"), "{text}");
    let old = "line\n".repeat(200_000);
    bench.write("big", &old);
    let view = bench.view("file_write", json!({ "path": "big", "content": format!("first\n{old}") })).await;
    let text = shown_text(&view.content);
    assert!(text.contains("+first") && text.len() < 10_000, "{text}");
    assert!(view.content.iter().all(|content| matches!(content, ToolContent::Text(_))));
    let failure = bench.failure("file_write", json!({ "path": "x", "content": "x".repeat(9 << 20) })).await;
    assert!(failure.contains("more than the limit"), "{failure}");
}

#[tokio::test]
async fn edits_are_located_and_applied_in_order() {
    let bench = Bench::new();
    let old: String = (1..=500).map(|number| format!("line {number}.\n")).collect();
    let path = bench.write("a.txt", &old);
    let call = bench
        .prepare(
            "file_edit",
            json!({ "path": "a.txt", "edits": [
                { "old_text": "line 399.\nline 400.\n", "new_text": "line 399.\nfour hundred\n" },
                { "old_text": "line 10.\n", "new_text": "ten\nand a half\n" },
                { "old_text": "and a half\n", "new_text": "and a bit\n" },
            ]}),
        )
        .await
        .expect("prepared");
    let view = call.view();
    assert_eq!(view.title, "Edit a.txt (3 changes)");
    let lines: Vec<Option<u32>> = view.locations.iter().map(|location| location.line).collect();
    assert_eq!(lines, [Some(401), Some(10), Some(11)], "lines of the new text");
    assert!(view.locations.iter().all(|location| location.path == path));
    let expected = old.replace("line 400.\n", "four hundred\n").replace("line 10.\n", "ten\nand a bit\n");
    assert_eq!(view.content, [ToolContent::Diff { path: path.clone(), old: Some(old), new: expected.clone() }]);
    let outcome = bench.finish("file_edit", call).await.expect("edited");
    assert!(outcome.model_text.contains("+four hundred"), "{}", outcome.model_text);
    assert_eq!(fs::read_to_string(path).expect("file"), expected);
}

#[tokio::test]
async fn an_edit_that_does_not_fit_exactly_once_changes_nothing() {
    let bench = Bench::new();
    let old = "fn a() {\n    x();\n}\nfn b() {\n    x();\n}\naaa\n";
    let path = bench.write("a.rs", old);
    let cases = [
        (json!([{ "old_text": "x();", "new_text": "y();" }]), "occurs 2 times (lines 2, 5)"),
        (json!([{ "old_text": "aa", "new_text": "b" }]), "occurs 2 times (lines 7, 7)"),
        (json!([{ "old_text": "nothing", "new_text": "y" }]), "was not found; read the file again"),
        (json!([{ "old_text": "fn b() {\n\tx();", "new_text": "y" }]), "line 4 differs only in white space"),
        (json!([{ "old_text": "", "new_text": "y" }]), "`old_text` is empty"),
        (json!([{ "old_text": "aaa", "new_text": "aaa" }]), "change nothing"),
        (
            json!([{ "old_text": "aaa", "new_text": "b" }, { "old_text": "aaa", "new_text": "c" }]),
            "edit 2: `old_text` was not found",
        ),
        (json!([]), "there is no edit"),
    ];
    for (edits, expected) in cases {
        let failure = bench.failure("file_edit", json!({ "path": "a.rs", "edits": edits })).await;
        assert!(failure.contains(expected), "{failure}");
        assert_eq!(fs::read_to_string(&path).expect("file"), old);
    }
    let failure = bench.failure("file_edit", json!({ "path": "a.rs", "old_text": "x" })).await;
    assert!(failure.contains("missing field `new_text`"), "{failure}");
}

#[tokio::test]
async fn line_ends_are_kept() {
    let bench = Bench::new();
    let path = bench.write("dos.txt", "one\r\ntwo\r\nthree\r\n");
    let edits = json!([
        { "old_text": "one\ntwo", "new_text": "1\n2" },
        { "old_text": "three", "new_text": "3\n4" },
    ]);
    bench.call("file_edit", json!({ "path": "dos.txt", "edits": edits })).await.expect("edited");
    assert_eq!(fs::read(&path).expect("file"), b"1\r\n2\r\n3\r\n4\r\n");
    bench
        .call("file_edit", json!({ "path": "dos.txt", "old_text": "1\r\n2", "new_text": "x\r\ny" }))
        .await
        .expect("edited");
    assert_eq!(fs::read(&path).expect("file"), b"x\r\ny\r\n3\r\n4\r\n");
    let mixed = bench.write("mixed.txt", "a\r\nb\nc\r\n");
    bench
        .call("file_edit", json!({ "path": "mixed.txt", "old_text": "b\n", "new_text": "B\n" }))
        .await
        .expect("edited");
    assert_eq!(fs::read(&mixed).expect("file"), b"a\r\nB\nc\r\n");
}

#[tokio::test]
async fn text_that_is_not_utf8_is_not_edited() {
    let bench = Bench::new();
    for bytes in [b"caf\xe9 x".as_slice(), b"x\0"] {
        let path = bench.write("a", bytes);
        let failure = bench.failure("file_edit", json!({ "path": "a", "old_text": "x", "new_text": "y" })).await;
        assert!(failure.contains("not UTF-8"), "{failure}");
        assert_eq!(fs::read(path).expect("file"), bytes);
    }
}

#[tokio::test]
async fn the_digest_in_the_action_is_the_old_contents() {
    let bench = Bench::new();
    bench.write("a.txt", "old");
    let call = bench.prepare("file_write", json!({ "path": "a.txt", "content": "new" })).await.expect("prepared");
    let Action::Write { replaces, path, .. } = call.action() else { panic!("a write") };
    assert_eq!(replaces, Replaces::Content(digest(b"old")));
    assert_eq!(path.absolute(), bench.inside.join("a.txt"));
}
