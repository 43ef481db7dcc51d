//! What the jail lets through: nothing by a link, a race, a pipe or a device.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use serde_json::json;
use zeroclaw_policy::{Replaces, Root, RootKind};
use zeroclaw_runtime::jail::{EntryKind, Jail, JailError, Links, digest};

use crate::support::{Bench, fifo};

/// Workspace links were followed out of the workspace: a link to a private key was simply read.
#[tokio::test]
async fn links_that_lead_out_are_refused_by_every_tool() {
    let bench = Bench::new();
    let inside = &bench.inside;
    symlink(bench.outside.join("secret"), inside.join("file")).expect("link");
    symlink("../out/secret", inside.join("relative")).expect("link");
    symlink(&bench.outside, inside.join("dir")).expect("link");
    symlink("file", inside.join("chain")).expect("link");
    symlink("dir", inside.join("dirchain")).expect("link");
    symlink(bench.outside.join("missing"), inside.join("dangling")).expect("link");
    for path in ["file", "relative", "chain", "dir/secret", "dirchain/secret", "dangling"] {
        for (tool, arguments) in [
            ("file_read", json!({ "path": path })),
            ("file_write", json!({ "path": path, "content": "owned" })),
            ("file_edit", json!({ "path": path, "old_text": "not", "new_text": "please" })),
            ("content_search", json!({ "pattern": "touch", "path": path })),
            ("deliver_file", json!({ "path": path })),
        ] {
            let failure = bench.failure(tool, arguments).await;
            assert!(failure.contains("outside"), "{tool} {path}: {failure}");
        }
    }
    for path in ["dir", "dirchain"] {
        for (tool, arguments) in [
            ("list_dir", json!({ "path": path })),
            ("glob_search", json!({ "pattern": "*", "path": path })),
            ("content_search", json!({ "pattern": "touch", "path": path })),
            ("shell", json!({ "command": "echo x > secret", "cwd": path })),
        ] {
            let failure = bench.failure(tool, arguments).await;
            assert!(failure.contains("outside"), "{tool} {path}: {failure}");
        }
    }
    // A search from above neither follows the links nor names what is behind them.
    assert_eq!(bench.text("content_search", json!({ "pattern": "touch" })).await, "[no line matches]\n");
    assert_eq!(bench.text("glob_search", json!({ "pattern": "*" })).await, "[no file fits]\n");
    bench.secret_is_safe();
}

/// A refused write through a linked directory still created directories outside.
#[tokio::test]
async fn a_refused_write_makes_no_directories() {
    let bench = Bench::new();
    symlink(&bench.outside, bench.inside.join("link")).expect("link");
    symlink(bench.outside.join("gone"), bench.inside.join("dangling")).expect("link");
    for path in ["link/new/deep/file", "link/file", "dangling/new/file", "a/../link/new/file"] {
        bench.failure("file_write", json!({ "path": path, "content": "x" })).await;
    }
    bench.secret_is_safe();
    assert_eq!(fs::read_dir(&bench.inside).expect("ws").count(), 2, "and nothing inside");
}

#[tokio::test]
async fn links_within_the_root_work_and_stay_links() {
    let bench = Bench::new();
    let target = bench.write("real/a.txt", "old\n");
    symlink("real/a.txt", bench.inside.join("link")).expect("link");
    symlink("real", bench.inside.join("dir")).expect("link");
    assert!(bench.text("file_read", json!({ "path": "link" })).await.contains("old"));
    bench.call("file_write", json!({ "path": "link", "content": "one\n" })).await.expect("written");
    assert_eq!(fs::read_to_string(&target).expect("target"), "one\n");
    bench
        .call("file_edit", json!({ "path": "dir/a.txt", "old_text": "one", "new_text": "two" }))
        .await
        .expect("edited");
    assert_eq!(fs::read_to_string(&target).expect("target"), "two\n");
    assert!(bench.inside.join("link").is_symlink());
    symlink("missing", bench.inside.join("dangling")).expect("link");
    symlink("loop", bench.inside.join("loop")).expect("link");
    let failure = bench.failure("file_write", json!({ "path": "dangling", "content": "x" })).await;
    assert!(failure.contains("symbolic link"), "{failure}");
    bench.failure("file_write", json!({ "path": "loop", "content": "x" })).await;
    bench.failure("file_read", json!({ "path": "loop" })).await;
    assert!(!bench.inside.join("missing").exists());
}

/// A workspace link to `/dev/zero` made the original read without end, and a pipe hung the turn.
#[tokio::test]
async fn pipes_and_devices_are_never_opened() {
    let bench = Bench::new();
    fifo(&bench.inside.join("pipe"));
    symlink("pipe", bench.inside.join("to-pipe")).expect("link");
    symlink("/dev/zero", bench.inside.join("zero")).expect("link");
    let _socket = std::os::unix::net::UnixListener::bind(bench.inside.join("socket")).expect("socket");
    for (path, expected) in [
        ("pipe", "not a regular file"),
        ("to-pipe", "not a regular file"),
        ("socket", "not a regular file"),
        ("zero", "outside"),
    ] {
        for (tool, arguments) in [
            ("file_read", json!({ "path": path })),
            ("file_write", json!({ "path": path, "content": "x" })),
            ("file_edit", json!({ "path": path, "old_text": "a", "new_text": "b" })),
            ("content_search", json!({ "pattern": "x", "path": path })),
            ("deliver_file", json!({ "path": path })),
        ] {
            let failure = bench.failure(tool, arguments).await;
            assert!(failure.contains(expected), "{tool} {path}: {failure}");
        }
    }
    // Neither do they stop a search over everything, also when one pretends to be an ignore file.
    fifo(&bench.inside.join(".gitignore"));
    fs::create_dir(bench.inside.join("sub")).expect("sub");
    symlink("/dev/zero", bench.inside.join("sub/.gitignore")).expect("link");
    bench.write("sub/a.txt", "found\n");
    let text = bench.text("content_search", json!({ "pattern": "found" })).await;
    assert_eq!(text, format!("{}:1:found\n", bench.inside.join("sub/a.txt").display()));
}

/// Rules compared the literal path while the target of a link was read.
#[tokio::test]
async fn forbidden_places_are_forbidden_through_links() {
    let bench = Bench::with(|inside, (_, rules)| {
        fs::create_dir(inside.join("private")).expect("private");
        fs::write(inside.join("private/key"), "key").expect("key");
        fs::create_dir(inside.join("hidden")).expect("hidden");
        symlink(inside.join("hidden"), inside.parent().expect("parent").join("alias")).expect("link");
        // The second rule names its place by a link, as `/tmp` does on some systems.
        rules.forbidden_paths = vec![inside.join("private"), inside.parent().expect("parent").join("alias")];
    });
    fs::write(bench.inside.join("hidden/key"), "key").expect("key");
    symlink("private", bench.inside.join("dir")).expect("link");
    symlink("private/key", bench.inside.join("file")).expect("link");
    for path in ["private/key", "dir/key", "file", "hidden/key"] {
        for (tool, arguments) in [
            ("file_read", json!({ "path": path })),
            ("file_write", json!({ "path": path, "content": "x" })),
            ("file_edit", json!({ "path": path, "old_text": "key", "new_text": "x" })),
            ("content_search", json!({ "pattern": "key", "path": path })),
        ] {
            let failure = bench.failure(tool, arguments).await;
            assert!(failure.contains("forbidden"), "{tool} {path}: {failure}");
        }
    }
    for path in ["private", "dir", "hidden"] {
        let failure = bench.failure("list_dir", json!({ "path": path })).await;
        assert!(failure.contains("forbidden"), "{path}: {failure}");
        let failure = bench.failure("file_write", json!({ "path": format!("{path}/new/x"), "content": "x" })).await;
        assert!(failure.contains("forbidden"), "{path}: {failure}");
        let failure = bench.failure("shell", json!({ "command": "cat key", "cwd": path })).await;
        assert!(failure.contains("forbidden"), "{path}: {failure}");
    }
    assert_eq!(fs::read_dir(bench.inside.join("private")).expect("private").count(), 1);
    assert_eq!(bench.text("content_search", json!({ "pattern": "key" })).await, "[no line matches]\n");
    assert_eq!(bench.text("list_dir", json!({})).await, "dir@\nfile@\n");
}

#[tokio::test]
async fn a_link_makes_no_read_only_directory_writable() {
    let bench = Bench::with(|inside, (roots, _)| {
        fs::create_dir(inside.join("vendor")).expect("vendor");
        fs::write(inside.join("vendor/a.c"), "int a;\n").expect("file");
        roots.push(Root::new(inside.join("vendor"), RootKind::ReadOnly));
    });
    symlink("vendor", bench.inside.join("link")).expect("link");
    symlink("vendor/a.c", bench.inside.join("file")).expect("link");
    for path in ["vendor/a.c", "vendor/new.c", "link/a.c", "link/new/b.c", "file"] {
        let failure = bench.failure("file_write", json!({ "path": path, "content": "x" })).await;
        assert!(failure.contains("read-only"), "{path}: {failure}");
    }
    assert!(bench.text("file_read", json!({ "path": "link/a.c" })).await.contains("int a;"));
    assert_eq!(fs::read_dir(bench.inside.join("vendor")).expect("vendor").count(), 1);
}

#[test]
fn limits_hold_for_files_that_claim_and_files_that_grow() {
    let bench = Bench::new();
    let path = bench.write("big", "");
    fs::File::options().write(true).open(&path).expect("open").set_len(10 << 30).expect("sparse");
    let files = bench.context.jail.files(&bench.context.rules);
    let error = files.read_bounded(&bench.locate("big"), 1000).expect_err("too large");
    assert!(matches!(error, JailError::TooLarge { size, limit: 1000, .. } if size == 10 << 30), "{error}");
    bench.write("fits", vec![b'x'; 1000]);
    assert_eq!(files.read_bounded(&bench.locate("fits"), 1000).expect("read").len(), 1000);
    // Files of /proc say they have no bytes.
    let proc = Jail::open(vec![Root::new("/proc/sys/kernel".into(), RootKind::ReadOnly)]).expect("open");
    let path = proc.roots().locate("osrelease").expect("inside");
    let error = proc.files(&bench.context.rules).read_bounded(&path, 2).expect_err("grew");
    assert!(matches!(error, JailError::TooLarge { size: 3, limit: 2, .. }), "{error}");
}

#[test]
fn a_write_happens_only_to_what_it_was_prepared_for() {
    let bench = Bench::new();
    let files = bench.context.jail.files(&bench.context.rules);
    let path = bench.locate("a/b/file");
    let write = |content: &[u8], replaces| files.write_atomic(&path, content, replaces, Links::Follow);
    assert!(matches!(write(b"x", Replaces::Content(digest(b""))), Err(JailError::Changed { .. })));
    assert!(!bench.inside.join("a").exists(), "a refused write makes no directories");
    write(b"one", Replaces::Nothing).expect("a new file");
    assert!(matches!(write(b"x", Replaces::Nothing), Err(JailError::Changed { .. })));
    assert!(matches!(write(b"x", Replaces::Content(digest(b"two"))), Err(JailError::Changed { .. })));
    write(b"two", Replaces::Content(digest(b"one"))).expect("replaced");
    let real = bench.inside.join("a/b/file");
    for mode in [0o755, 0o640, 0o600] {
        fs::set_permissions(&real, fs::Permissions::from_mode(mode)).expect("mode");
        write(b"two", Replaces::Content(digest(b"two"))).expect("replaced");
        assert_eq!(fs::metadata(&real).expect("file").permissions().mode() & 0o7777, mode);
    }
    fs::set_permissions(&real, fs::Permissions::from_mode(0o444)).expect("mode");
    assert!(matches!(write(b"x", Replaces::Content(digest(b"two"))), Err(JailError::Protected { .. })));
    assert_eq!(fs::read(&real).expect("file"), b"two");
    assert_eq!(fs::read_dir(bench.inside.join("a/b")).expect("dir").count(), 1, "no temporary file is left");
    let directory = files.write_atomic(&bench.locate("a"), b"x", Replaces::Nothing, Links::Follow);
    assert!(matches!(directory, Err(JailError::Directory { .. })));
    assert!(files.write_atomic(&bench.locate("."), b"x", Replaces::Nothing, Links::Follow).is_err());
}

/// FIL-05: another process swaps names between the look and the write. Ten thousand writes by the tools themselves, and not
/// one lands or reads outside.
#[tokio::test]
async fn fil_05_ten_thousand_writes_beside_a_process_that_swaps_names() {
    const WRITES: usize = 10_000;
    let bench = Bench::in_memory();
    fs::create_dir(bench.inside.join("real")).expect("real");
    let out = bench.outside.display();
    // Each `mv` is one rename: at any moment the name is a file, a link that leads out, or nothing.
    let script = format!(
        "while :; do ln -sfn '{out}/secret' l; mv -fT l f; rm -f f; echo x >f; ln -sfn '{out}' m; mv -T m d; rm -f d; \
         mv -T real d; mv -T d real; done 2>/dev/null"
    );
    let mut swapper = std::process::Command::new("/bin/sh");
    let mut swapper = swapper.args(["-c", &script]).current_dir(&bench.inside).spawn().expect("a shell");
    let (mut written, mut refused) = (0, 0);
    for round in 0..WRITES {
        let path = ["f", "d/secret", "d/new/deep", "f"].get(round % 4).expect("one of four");
        let content = round.to_string();
        match bench.call("file_write", json!({ "path": path, "content": content })).await {
            Ok(outcome) => written += usize::from(!outcome.failed),
            Err(_) => refused += 1,
        }
        if let Ok(read) = bench.call("file_read", json!({ "path": path })).await {
            assert!(!read.model_text.contains("do not touch"), "what lies outside was read: {}", read.model_text);
        }
    }
    swapper.kill().expect("killed");
    swapper.wait().expect("reaped");
    assert_eq!(written + refused, WRITES);
    assert!(written > 0 && refused > 0, "both sides of the race were seen: {written} written, {refused} refused");
    bench.secret_is_safe();
}

/// A hard link is one more name of a file, and nothing tells it from the first: a write replaces the name and leaves the
/// file that others reach alone. A command cannot make one to a file outside.
#[tokio::test]
async fn a_hard_link_to_a_file_outside_does_not_carry_a_write_out() {
    let bench = Bench::new();
    let hard = bench.inside.join("hard");
    fs::hard_link(bench.outside.join("secret"), &hard).expect("link");
    bench.call("file_write", json!({ "path": "hard", "content": "owned" })).await.expect("written");
    assert_eq!(fs::read_to_string(&hard).expect("hard"), "owned");
    bench.secret_is_safe();
    fs::remove_file(&hard).expect("removed");
    fs::hard_link(bench.outside.join("secret"), &hard).expect("link");
    bench.call("file_edit", json!({ "path": "hard", "old_text": "not", "new_text": "please" })).await.expect("edited");
    assert_eq!(fs::read_to_string(&hard).expect("hard"), "do please touch");
    bench.secret_is_safe();
}

/// Names that are no plain names, and places of the kernel that are no files: each tool refuses each of them.
#[tokio::test]
async fn names_and_places_that_are_no_files_are_refused_by_every_tool() {
    let bench = Bench::with(|_, (roots, _)| {
        // The widest session there is: nothing is kept out by its directory.
        roots.push(Root::new("/".into(), RootKind::Additional));
    });
    let component = "x".repeat(256);
    let long = format!("{}/f", "x/".repeat(2500));
    let deep = format!("{}f", "d/".repeat(2000));
    for path in [
        "/dev/zero",
        "/dev/null",
        "/dev/tty",
        "/proc/self/mem",
        "/proc/self/environ",
        "/proc/self/task/self/environ",
        "/proc/thread-self/environ",
        "/proc/1/environ",
        "/proc/self/root/etc/hostname",
        "/proc/self/fd/0",
        "/proc/self/fd/1",
        "/proc/self/cwd",
        "/proc/self/task/self",
        "a\0b",
        "f\0.txt",
        &component,
        &long,
        &deep,
    ] {
        for (tool, arguments) in [
            ("file_write", json!({ "path": path, "content": "x" })),
            ("file_edit", json!({ "path": path, "old_text": "a", "new_text": "b" })),
            ("file_read", json!({ "path": path })),
            ("content_search", json!({ "pattern": "x", "path": path })),
            ("deliver_file", json!({ "path": path })),
        ] {
            // Making two thousand directories is no escape, only odd: nothing of it exists for the others.
            if path == deep && tool == "file_write" {
                continue;
            }
            bench.failure(tool, arguments).await;
        }
    }
    // Nor by a link of the project, or by a search from above.
    symlink("/proc/self", bench.inside.join("me")).expect("link");
    bench.failure("file_read", json!({ "path": "me/environ" })).await;
    bench.failure("list_dir", json!({ "path": "/proc/self" })).await;
    let own = std::process::id().to_string();
    assert!(
        !bench.text("list_dir", json!({ "path": "/proc" })).await.lines().any(|line| line.trim_end_matches('/') == own)
    );
    bench.secret_is_safe();
}

/// FIL-15: names that look alike are other names, except where the file system itself takes them for the same.
#[tokio::test]
async fn fil_15_lookalikes_are_other_names() {
    let arrange = |fold: bool| {
        move |inside: &Path, (_, rules): &mut (Vec<Root>, zeroclaw_policy::Ruleset)| {
            rules.fold_case = fold;
            rules.forbidden_paths = vec![inside.join(".zeroclaw/config.toml"), inside.join("\u{e9}t\u{e9}")];
        }
    };
    for fold in [false, true] {
        let bench = Bench::with(arrange(fold));
        for name in
            [".zeroclaw/config.toml", ".ZeroClaw/Config.toml", "\u{e9}t\u{e9}", "e\u{301}te\u{301}", "c\u{43e}nfig"]
        {
            bench.write(name, "kept");
        }
        for (path, forbidden) in [
            (".zeroclaw/config.toml", true),
            (".ZeroClaw/Config.toml", fold),
            ("\u{e9}t\u{e9}", true),
            ("\u{c9}T\u{c9}", fold),
            // Letters of another script, and another spelling of the same accent: other files on this system.
            (".zer\u{43e}claw/config.toml", false),
            ("c\u{43e}nfig", false),
            ("e\u{301}te\u{301}", false),
        ] {
            let call = bench.call("file_write", json!({ "path": path, "content": "new" })).await;
            let refused = call.as_ref().is_err_and(|failure| failure.to_string().contains("forbidden"));
            assert_eq!(refused, forbidden, "{path:?} with folding {fold}: {call:?}");
        }
        assert_eq!(fs::read_to_string(bench.inside.join(".zeroclaw/config.toml")).expect("file"), "kept");
    }
}

#[test]
fn roots_are_canonical_directories() {
    let bench = Bench::new();
    let link = bench.outside.parent().expect("base").join("link");
    symlink(&bench.inside, &link).expect("link");
    let open = |path: &Path| Jail::open(vec![Root::new(path.to_owned(), RootKind::Session)]);
    assert!(matches!(open(&link), Err(JailError::NotCanonical { .. })));
    assert!(matches!(open(&bench.inside.join("missing")), Err(JailError::NotFound { .. })));
    assert!(matches!(open(&bench.outside.join("secret")), Err(JailError::NotDirectory { .. })));
}

#[test]
fn a_path_of_other_roots_is_not_opened() {
    let bench = Bench::new();
    let other = Jail::open(vec![Root::new(bench.outside.clone(), RootKind::Session)]).expect("open");
    let path = other.roots().locate("secret").expect("inside the other");
    let files = bench.context.jail.files(&bench.context.rules);
    assert!(matches!(files.open_read(&path), Err(JailError::Outside { .. })));
}

#[test]
fn names_say_what_they_are() {
    let bench = Bench::new();
    bench.write("b", "12345");
    fs::create_dir(bench.inside.join("a")).expect("dir");
    symlink("b", bench.inside.join("c")).expect("link");
    fifo(&bench.inside.join("d"));
    let files = bench.context.jail.files(&bench.context.rules);
    let listing = files.read_dir(&bench.locate("."), 10).expect("listed");
    let seen: Vec<_> =
        listing.entries.iter().map(|entry| (entry.name.to_str().expect("utf-8"), entry.kind, entry.size)).collect();
    let expected = [
        ("a", EntryKind::Directory, 0),
        ("b", EntryKind::File, 5),
        ("c", EntryKind::Link, 0),
        ("d", EntryKind::Special, 0),
    ];
    assert_eq!((seen.as_slice(), listing.cut), (expected.as_slice(), false));
    let cut = files.read_dir(&bench.locate("."), 2).expect("listed");
    assert_eq!((cut.entries.len(), cut.cut), (2, true));
    assert_eq!(files.metadata(&bench.locate("c")).expect("facts").size, 5);
    assert!(files.exists(&bench.locate("a")).expect("exists"));
    assert!(!files.exists(&bench.locate("zzz")).expect("does not"));
}

/// A session that was deleted took files elsewhere along, once a command had put a link in the place of its attachments.
#[test]
fn attachments_are_removed_by_handle() {
    let bench = Bench::new();
    let names = ["a".into(), "link".into(), "missing".into(), "../f".into(), "sub/b".into()];
    for file in ["uploads/a", "uploads/kept", "uploads/sub/b", "f"] {
        bench.write(file, "x");
    }
    symlink(bench.outside.join("secret"), bench.inside.join("uploads/link")).expect("link");
    assert!(bench.context.jail.remove_from("uploads", &names).is_empty());
    for (file, is_there) in [("a", false), ("link", false), ("kept", true), ("sub/b", true), ("../f", true)] {
        assert_eq!(bench.inside.join("uploads").join(file).symlink_metadata().is_ok(), is_there, "{file}");
    }
    fs::rename(bench.inside.join("uploads"), bench.inside.join("moved")).expect("moved");
    assert!(bench.context.jail.remove_from("uploads", &names).is_empty(), "nothing there is nothing to do");
    symlink(&bench.outside, bench.inside.join("uploads")).expect("link");
    let failed = bench.context.jail.remove_from("uploads", &["secret".into()]);
    assert_eq!(failed.len(), 1);
    bench.secret_is_safe();
}

/// At a level that changes nothing, handing over a file left a copy of it in the project.
#[tokio::test]
async fn a_delivery_at_readonly_writes_nothing() {
    let bench = Bench::with(|_, (_, rules)| rules.level = zeroclaw_policy::Level::Readonly);
    bench.write("a.txt", "text");
    let outcome = bench.call("deliver_file", json!({ "path": "a.txt" })).await.expect("delivered");
    let bytes = outcome.content.iter().find_map(|content| match content {
        zeroclaw_runtime::tool::ToolContent::Attachment { bytes, .. } => Some(bytes.as_ref()),
        _ => None,
    });
    assert_eq!((outcome.failed, bytes), (false, Some(b"text".as_slice())));
    assert!(!bench.inside.join("uploads").exists());
}

/// FIL-03, FIL-07: names that only look like others, and names that no file has.
#[tokio::test]
async fn fil_03_fil_07_names_are_what_they_are() {
    let bench = Bench::new();
    fs::create_dir(bench.inside.parent().expect("base").join("ws-evil")).expect("sibling");
    fs::write(bench.inside.parent().expect("base").join("ws-evil/x"), "evil").expect("file");
    bench.write("a..b.txt", "dots");
    assert!(bench.text("file_read", json!({ "path": "a..b.txt" })).await.contains("dots"));
    for path in [format!("{}/a..b.txt", bench.inside.display()), format!("{}/./a..b.txt", bench.inside.display())] {
        assert!(bench.text("file_read", json!({ "path": path })).await.contains("dots"), "{path}");
    }
    let long = "x".repeat(5000);
    let sibling = format!("{}-evil/x", bench.inside.display());
    for path in [
        "../out/secret",
        "a/../../out/secret",
        "..%2fout%2fsecret",
        "~/x",
        "file:///etc/passwd",
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "\u{ff0e}\u{ff0e}/out/secret",
        ".\u{200b}./out/secret",
        "a\0b",
        "",
        &long,
        &sibling,
    ] {
        for tool in ["file_read", "deliver_file"] {
            bench.failure(tool, json!({ "path": path })).await;
        }
    }
    bench.secret_is_safe();
}
