//! Reading, listing and handing over files.

use std::{fs, os::unix::fs::symlink};

use serde_json::json;
use zeroclaw_runtime::{
    jail::digest,
    tool::{Location, ToolContent, ToolFailure},
};

use crate::support::{Bench, shown_text};

#[tokio::test]
async fn lines_are_numbered_and_located() {
    let bench = Bench::new();
    let path = bench.write("src/a.rs", "one\ntwo\nthree\n");
    let view = bench.view("file_read", json!({ "path": "src/../src/a.rs", "offset": 2 })).await;
    assert_eq!(view.title, "Read src/a.rs");
    assert_eq!(view.locations, [Location { path: path.clone(), line: Some(2) }]);
    let cases = [
        (json!({ "path": "src/a.rs" }), "     1\tone\n     2\ttwo\n     3\tthree\n"),
        (json!({ "path": path }), "     1\tone\n     2\ttwo\n     3\tthree\n"),
        (
            json!({ "path": "src/a.rs", "offset": 2, "limit": 1 }),
            "     2\ttwo\n[more lines follow; continue with offset 3]\n",
        ),
        (json!({ "path": "src/a.rs", "offset": 3, "limit": 1 }), "     3\tthree\n"),
        (json!({ "path": "src/a.rs", "offset": 9, "limit": null }), "[the file has 3 lines]\n"),
    ];
    for (arguments, expected) in cases {
        assert_eq!(bench.text("file_read", arguments).await, expected);
    }
}

#[tokio::test]
async fn odd_files_are_read_as_marked_text_and_never_changed() {
    let bench = Bench::new();
    let utf16: Vec<u8> = [0xfeff_u16].into_iter().chain("grün\nx".encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let utf16be: Vec<u8> = [0xfeff_u16].into_iter().chain("grün\n".encode_utf16()).flat_map(u16::to_be_bytes).collect();
    let cases: [(&[u8], &str); 7] = [
        (b"", "[the file is empty]\n"),
        (b"no newline", "     1\tno newline\n"),
        (b"\xef\xbb\xbfbom\n", "     1\tbom\n"),
        (b"a\r\nb\r\n", "[lines end with CRLF]\n     1\ta\n     2\tb\n"),
        (b"caf\xe9\n", "[not valid UTF-8: bytes that are no characters are shown as \u{fffd}]\n     1\tcaf\u{fffd}\n"),
        (&utf16, "[UTF-16 text, shown as UTF-8]\n     1\tgrün\n     2\tx\n"),
        (&utf16be, "[UTF-16 text, shown as UTF-8]\n     1\tgrün\n"),
    ];
    for (bytes, expected) in cases {
        let path = bench.write("file", bytes);
        assert_eq!(bench.text("file_read", json!({ "path": "file" })).await, expected);
        assert_eq!(fs::read(path).expect("file"), bytes);
    }
    let mut late = b"text\n".repeat(5_000);
    late.extend_from_slice(b"x\0\n");
    for bytes in [b"\x7fELF\0\0".as_slice(), &late] {
        bench.write("file", bytes);
        let failure = bench.failure("file_read", json!({ "path": "file", "offset": 1, "limit": 20_000 })).await;
        assert!(failure.contains(&format!("binary file ({} bytes)", bytes.len())), "{failure}");
    }
}

#[tokio::test]
async fn a_huge_file_is_read_in_parts() {
    let mut bench = Bench::new();
    bench.settings(|settings| settings.max_output_bytes = 4000);
    let lines: String = (1..=100_000).map(|number| format!("line {number}\n")).collect();
    let path = bench.write("big", lines);
    fs::File::options().write(true).open(&path).expect("open").set_len(10 << 30).expect("a sparse tail");
    let text = bench.text("file_read", json!({ "path": "big", "offset": 50_000 })).await;
    assert!(text.len() < 4200 && text.starts_with(" 50000\tline 50000\n"), "{text}");
    let last = text.lines().last().expect("a note");
    let next: u64 = last.trim_end_matches(']').rsplit(' ').next().expect("a number").parse().expect("a number");
    let shown = text.lines().count() as u64 - 1;
    assert_eq!(next, 50_000 + shown);
}

#[tokio::test]
async fn one_endless_line_is_cut() {
    let bench = Bench::new();
    bench.write("min.js", "é".repeat(1 << 20) + "\nnext\n");
    let text = bench.text("file_read", json!({ "path": "min.js" })).await;
    assert!(text.len() < 5000 && text.ends_with("     2\tnext\n"), "{} bytes", text.len());
    assert!(text.contains(&format!("[line cut, {} bytes]", (2 << 20) + 1)), "{text}");
    assert!(!text.contains('\u{fffd}'));
}

#[tokio::test]
async fn a_cancelled_turn_does_not_read_on() {
    let bench = Bench::new();
    bench.write("a", "x\n");
    bench.context.cancel.cancel();
    assert_eq!(bench.call("file_read", json!({ "path": "a" })).await, Err(ToolFailure::Cancelled));
}

#[tokio::test]
async fn wrong_paths_are_told_apart() {
    let bench = Bench::new();
    fs::create_dir(bench.inside.join("dir")).expect("dir");
    bench.write("a..b.txt", "fine\n");
    let cases = [
        ("", "empty"),
        ("missing", "does not exist"),
        ("dir", "is a directory"),
        ("../out/secret", "outside"),
        ("a/../../out/secret", "outside"),
        ("..%2fx", "does not exist"),
        ("~/x", "`~` is not expanded"),
        ("file:///etc/passwd", "URI"),
        ("a..b.txt/x", "not a directory"),
    ];
    for (path, expected) in cases {
        let failure = bench.failure("file_read", json!({ "path": path })).await;
        assert!(failure.contains(expected), "{path}: {failure}");
    }
    assert_eq!(bench.text("file_read", json!({ "path": "a..b.txt" })).await, "     1\tfine\n");
    let failure = bench.failure("file_read", json!({ "offset": 1 })).await;
    assert_eq!(failure, "invalid arguments: missing field `path`");
}

#[tokio::test]
async fn directories_are_listed() {
    let bench = Bench::new();
    assert_eq!(bench.text("list_dir", json!({})).await, "[the directory is empty]\n");
    bench.write("b.txt", "12345");
    bench.write("a/x", "");
    symlink("b.txt", bench.inside.join("c")).expect("link");
    bench.write("evil\u{202e}\n", "");
    let text = bench.text("list_dir", json!({ "path": "." })).await;
    assert_eq!(text, "a/\nb.txt (5 bytes)\nc@\nevil\\u{202e}\\u{a} (0 bytes)\n");
    assert!(bench.failure("list_dir", json!({ "path": "b.txt" })).await.contains("not a directory"));
}

#[tokio::test]
async fn a_delivered_file_is_named_by_its_digest() {
    let bench = Bench::new();
    let bytes = b"a,b\n1,2\n";
    bench.write("report final.CSV", bytes);
    let name: String = digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let arguments = json!({ "path": "report final.CSV", "title": "The report" });
    for _ in 0..2 {
        let outcome = bench.call("deliver_file", arguments.clone()).await.expect("delivered");
        assert!(!outcome.failed);
        assert_eq!(outcome.title.as_deref(), Some("The report"));
        assert_eq!(outcome.model_text, "Delivered `The report` (8 bytes, text/csv).");
        let attachment = ToolContent::Attachment {
            uri: format!("attachment://deliver/{name}.csv"),
            mime_type: "text/csv".to_owned(),
            bytes: bytes.as_slice().into(),
        };
        assert_eq!(outcome.content, [ToolContent::Text(outcome.model_text.clone()), attachment]);
        assert_eq!(fs::read(bench.inside.join(format!("uploads/{name}.csv"))).expect("copy"), bytes);
    }
    let outcome = bench.call("deliver_file", json!({ "path": "report final.CSV", "mimeType": "Text/X-Odd" })).await;
    let outcome = outcome.expect("delivered");
    assert_eq!(outcome.title.as_deref(), Some("report final.CSV"));
    assert!(matches!(&outcome.content[1], ToolContent::Attachment { mime_type, .. } if mime_type == "text/x-odd"));
    for mime in ["", "text", "text/", "a b/c", "text/x\r\ny"] {
        let failure = bench.failure("deliver_file", json!({ "path": "report final.CSV", "mimeType": mime })).await;
        assert!(failure.contains("not a media type"), "{mime}: {failure}");
    }
}

#[tokio::test]
async fn a_copy_that_is_not_what_its_name_says_is_not_sent() {
    let bench = Bench::new();
    bench.write("a.txt", "real");
    let name: String = digest(b"real").iter().map(|byte| format!("{byte:02x}")).collect();
    bench.write(&format!("uploads/{name}.txt"), "planted");
    let outcome = bench.call("deliver_file", json!({ "path": "a.txt" })).await.expect("ran");
    assert!(outcome.failed && outcome.content.len() == 1, "{outcome:?}");
    assert!(shown_text(&outcome.content).contains("nothing was handed over"));
}

#[tokio::test]
async fn linked_uploads_and_large_files_are_refused() {
    let bench = Bench::new();
    bench.write("a.txt", "x");
    fs::create_dir(bench.inside.join("elsewhere")).expect("dir");
    for target in [bench.outside.clone(), "elsewhere".into()] {
        symlink(&target, bench.inside.join("uploads")).expect("link");
        let failure = bench.failure("deliver_file", json!({ "path": "a.txt" })).await;
        assert!(failure.contains("symbolic link"), "{failure}");
        fs::remove_file(bench.inside.join("uploads")).expect("unlink");
    }
    assert_eq!(fs::read_dir(bench.inside.join("elsewhere")).expect("dir").count(), 0);
    bench.secret_is_safe();
    let path = bench.write("large.bin", "");
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_len(10 * 1024 * 1024 + 1).expect("size");
    assert!(bench.failure("deliver_file", json!({ "path": "large.bin" })).await.contains("more than the limit"));
    file.set_len(10 * 1024 * 1024).expect("size");
    assert!(!bench.call("deliver_file", json!({ "path": "large.bin" })).await.expect("delivered").failed);
}
