//! Finding files and lines.

use std::fs;

use serde_json::json;
use zeroclaw_runtime::tool::{Location, ToolFailure};

use crate::support::Bench;

fn tree() -> Bench {
    let bench = Bench::new();
    bench.write(".gitignore", "target/\n*.log\n!keep.log\n");
    bench.write("src/a.rs", "fn needle() {}\n// two\n// three\nfn Needle() {}\n");
    bench.write("src/deep/b.rs", "needle\n");
    bench.write("src/deep/.gitignore", "c.rs\n");
    bench.write("src/deep/c.rs", "needle\n");
    bench.write("target/out.rs", "needle\n");
    bench.write("x.log", "needle\n");
    bench.write("keep.log", "needle\n");
    bench.write(".git/config.rs", "needle\n");
    bench.write(".github/ci.yml", "needle\n");
    bench.write("bin.rs", "needle\n\0\nneedle\n");
    bench.write("docs/a b.md", "nothing\n");
    bench
}

#[tokio::test]
async fn files_are_found_by_name() {
    let bench = tree();
    let cases: [(&str, Option<&str>, &[&str]); 6] = [
        ("*.rs", None, &["bin.rs", "src/a.rs", "src/deep/b.rs"]),
        ("src/*.rs", None, &["src/a.rs"]),
        ("./src/**/*.rs", None, &["src/a.rs", "src/deep/b.rs"]),
        ("*.log", None, &["keep.log"]),
        ("*", Some("src/deep"), &["src/deep/.gitignore", "src/deep/b.rs"]),
        ("*.{md,yml}", None, &[".github/ci.yml", "docs/a b.md"]),
    ];
    for (pattern, path, expected) in cases {
        let text = bench.text("glob_search", json!({ "pattern": pattern, "path": path })).await;
        let expected: String = expected.iter().map(|path| format!("{}\n", bench.inside.join(path).display())).collect();
        assert_eq!(text, expected, "{pattern}");
    }
    assert_eq!(bench.text("glob_search", json!({ "pattern": "*.nope" })).await, "[no file fits]\n");
    assert!(bench.failure("glob_search", json!({ "pattern": "a[" })).await.starts_with("invalid arguments"));
    assert!(bench.failure("glob_search", json!({ "pattern": "*", "path": "missing" })).await.contains("not exist"));
}

#[tokio::test]
async fn the_number_of_files_is_limited() {
    let bench = Bench::new();
    for number in 0..1200 {
        bench.write(&format!("d/{number:04}"), "");
    }
    let text = bench.text("glob_search", json!({ "pattern": "*" })).await;
    assert_eq!(text.lines().count(), 1001);
    assert!(text.ends_with("[more than 1000 files fit; use a narrower pattern]\n"));
}

#[tokio::test]
async fn lines_are_found() {
    let bench = tree();
    let at = |path: &str| bench.inside.join(path).display().to_string();
    let (a, b, ci, log) = (at("src/a.rs"), at("src/deep/b.rs"), at(".github/ci.yml"), at("keep.log"));
    let outcome = bench.call("content_search", json!({ "pattern": "needle" })).await.expect("searched");
    let expected = format!("{ci}:1:needle\n{log}:1:needle\n{a}:1:fn needle() {{}}\n{b}:1:needle\n");
    assert_eq!(outcome.model_text, expected);
    assert_eq!(outcome.locations[2], Location { path: bench.inside.join("src/a.rs"), line: Some(1) });

    let arguments = json!({ "pattern": "^fn NEEDLE", "case_insensitive": true, "glob": "*.rs", "context": 1 });
    let text = bench.text("content_search", arguments).await;
    assert_eq!(text, format!("{a}:1:fn needle() {{}}\n{a}-2-// two\n{a}-3-// three\n{a}:4:fn Needle() {{}}\n"));

    let text = bench.text("content_search", json!({ "pattern": "needle", "max_results": 2 })).await;
    let note = "[stopped after 2 matching lines; there may be more]\n";
    assert_eq!(text, format!("{ci}:1:needle\n{log}:1:needle\n{note}"));

    let text = bench.text("content_search", json!({ "pattern": "needle", "path": "src/deep" })).await;
    assert_eq!(text, format!("{b}:1:needle\n"));
    let text = bench.text("content_search", json!({ "pattern": "two", "path": "src/a.rs" })).await;
    assert_eq!(text, format!("{a}:2:// two\n"));
    assert!(bench.failure("content_search", json!({ "pattern": "(" })).await.starts_with("invalid arguments"));
}

#[tokio::test]
async fn long_lines_are_cut() {
    let bench = Bench::new();
    bench.write("min.js", "x".repeat(100_000) + "needle" + &"y".repeat(100_000) + "\n");
    let text = bench.text("content_search", json!({ "pattern": "needle" })).await;
    assert!(text.len() < 1000 && text.ends_with(" …\n"), "{text}");
}

#[tokio::test]
async fn a_cancelled_turn_ends_a_search() {
    let bench = tree();
    bench.context.cancel.cancel();
    for (tool, path) in [("content_search", "."), ("content_search", "src/a.rs"), ("glob_search", ".")] {
        let result = bench.call(tool, json!({ "pattern": "needle", "path": path })).await;
        assert_eq!(result, Err(ToolFailure::Cancelled), "{tool} {path}");
    }
}

#[tokio::test]
async fn a_deep_tree_ends() {
    let bench = Bench::new();
    let mut path = bench.inside.clone();
    for _ in 0..80 {
        path.push("d");
    }
    fs::create_dir_all(&path).expect("deep");
    let text = bench.text("glob_search", json!({ "pattern": "*" })).await;
    assert!(text.contains("not everything was searched"), "{text}");
}
