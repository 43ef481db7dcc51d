//! Every check finds what it is for and leaves the innocent alone. The fixtures are text in this file.

use std::collections::BTreeMap;

use serde_json::json;

use super::exceptions::Exception;
use super::layers::{Row, State};
use super::*;
use crate::workspace::{Edge, Kind, Member, Packages};

const LIBRARY: &str = "crates/runtime/src/turn.rs";

/// The checks that fire on a Rust file, with their lines.
fn source(file: &str, text: &str) -> Vec<(Check, usize)> {
    check_source(file, text).0.into_iter().map(|problem| (problem.check, problem.line)).collect()
}

fn with_header(code: &str) -> String {
    format!("//! Owns a fixture.\n{code}")
}

#[test]
fn file_needs_a_module_comment_first() {
    assert_eq!(source(LIBRARY, "//! Owns this.\nfn f() {}\n"), []);
    for bad in ["fn f() {}\n", "", "//!\nfn f() {}\n", "// Owns this.\n", "\n//! Too late.\n", "use a::b;\n"] {
        assert_eq!(source(LIBRARY, bad), [(Check::ModuleComment, 1)], "{bad:?}");
    }
}

#[test]
fn file_size_depends_on_what_the_file_is() {
    let lines = |number: usize| with_header(&"// line\n".repeat(number - 1));
    let check = |file: &str, number: usize| source(file, &lines(number)).len();
    assert_eq!(check(LIBRARY, 800), 0);
    assert_eq!(check(LIBRARY, 801), 1);
    assert_eq!(check("crates/runtime/src/turn/tests.rs", 1500), 0);
    assert_eq!(check("crates/runtime/tests/turn.rs", 1500), 0);
    assert_eq!(check("crates/runtime/tests/turn.rs", 1501), 1);
    assert_eq!(check("bins/zeroclaw/src/main.rs", 60), 0);
    assert_eq!(check("bins/zeroclaw/src/main.rs", 61), 1);
}

#[test]
fn function_size_counts_from_fn_to_brace() {
    let body = |lines: usize| "    step();\n".repeat(lines - 2);
    let free = |lines| with_header(&format!("#[inline]\nfn long() {{\n{}}}\n", body(lines)));
    assert_eq!(source(LIBRARY, &free(100)), []);
    assert_eq!(source(LIBRARY, &free(101)), [(Check::FunctionSize, 3)]);

    let method = with_header(&format!("impl A {{\nasync fn long() {{\n{}}}\n}}\n", body(101)));
    assert_eq!(source(LIBRARY, &method), [(Check::FunctionSize, 3)]);
    let default = with_header(&format!("trait A {{\nfn long() {{\n{}}}\n}}\n", body(101)));
    assert_eq!(source(LIBRARY, &default), [(Check::FunctionSize, 3)]);
    let inner = with_header(&format!("fn short() {{ fn long() {{\n{}}} }}\n", body(101)));
    assert_eq!(source(LIBRARY, &inner), [(Check::FunctionSize, 2), (Check::FunctionSize, 2)]);

    let brace_in_text = with_header(&format!("fn long() {{\nlet _ = \"}}\"; // }}\n{}}}\n", body(101)));
    assert_eq!(source(LIBRARY, &brace_in_text), [(Check::FunctionSize, 2)]);
}

#[test]
fn unreadable_source_is_reported() {
    assert_eq!(source(LIBRARY, &with_header("fn f( {}\n")), [(Check::Parse, 2)]);
    assert_eq!(source(LIBRARY, &with_header("fn f() { let = 1; }\n")), [(Check::Parse, 2)]);
}

#[test]
fn printing_is_for_the_terminal_commands() {
    for name in ["print", "println", "eprint", "eprintln", "dbg", "std::println"] {
        let code = with_header(&format!("fn f() {{\n    {name}!(\"x\");\n}}\n"));
        assert_eq!(source(LIBRARY, &code), [(Check::Print, 3)], "{name}");
        for place in ["xtask/src/ci.rs", "crates/app/src/cli/prompt.rs", "crates/runtime/tests/a.rs"] {
            assert_eq!(source(place, &code), [], "{name} in {place}");
        }
        assert_eq!(source("crates/app/src/wiring.rs", &code), [(Check::Print, 3)]);
    }
    let hidden = with_header("fn f() { select! { x = y => { println!(\"x\") } } }\n");
    assert_eq!(source(LIBRARY, &hidden), [(Check::Print, 2)], "macros do not hide a macro");
    let innocent =
        with_header("/// Calls println!(\"x\").\nfn f() { let _ = \"println!(x)\"; writeln!(f, \"x\"); a != (b); }\n");
    assert_eq!(source(LIBRARY, &innocent), []);
    let test_only = with_header("#[cfg(test)]\nmod tests {\n    fn f() { println!(\"x\"); }\n}\n");
    assert_eq!(source(LIBRARY, &test_only), []);
    let not_test = with_header("#[cfg(unix)]\nmod other {\n    fn f() { println!(\"x\"); }\n}\n");
    assert_eq!(source(LIBRARY, &not_test), [(Check::Print, 4)]);
}

#[test]
fn standard_output_has_two_owners() {
    let uses = [
        "fn f() { std::io::stdout(); }",
        "fn f() { tokio::io::stdout(); }",
        "fn f() { io::stdout().lock(); }",
        "use std::io::stdout;",
        "use std::{fs, io::{self, stdout}};",
        "use std::io::stdout as out;",
        "fn f() { command.stdout(Stdio::inherit()); }",
        "fn f() { go! { io::stdout() } }",
    ];
    for code in uses {
        let text = with_header(code);
        assert_eq!(source(LIBRARY, &text), [(Check::Stdout, 2)], "{code}");
        for place in ["crates/acp-transport/src/stdio.rs", "crates/app/src/cli.rs"] {
            assert_eq!(source(place, &text), [], "{code} in {place}");
        }
    }
    let innocent =
        with_header("fn f() { let stdout = child.stdout.take(); c.stdout(Stdio::piped()); io::stderr(); }\n");
    assert_eq!(source(LIBRARY, &innocent), []);
}

#[test]
fn ambient_world_is_a_parameter() {
    let uses = [
        "fn f() { std::env::var(\"HOME\"); }",
        "fn f() { env::current_dir(); }",
        "fn f() { SystemTime::now(); }",
        "fn f() { jiff::Timestamp::now(); }",
        "fn f() { getrandom::fill(&mut b); }",
        "use std::env::{temp_dir};",
    ];
    for code in uses {
        let text = with_header(code);
        assert_eq!(source(LIBRARY, &text), [(Check::Ambient, 2)], "{code}");
        assert_eq!(source("crates/app/src/world.rs", &text), [], "{code}");
        assert_eq!(source("crates/runtime/src/turn/tests.rs", &text), [], "{code}");
    }
    assert_eq!(source(LIBRARY, &with_header("fn f(now: SystemTime) { tokio::time::Instant::now(); }\n")), []);
}

#[test]
fn deciding_crates_do_not_act() {
    for code in ["use std::fs;", "use std::{io, thread::spawn};", "fn f() { std::process::exit(1); }"] {
        let text = with_header(code);
        assert_eq!(source("crates/policy/src/judge.rs", &text), [(Check::Pure, 2)], "{code}");
        assert_eq!(source(LIBRARY, &text), [], "{code}");
    }
    assert_eq!(
        source("crates/policy/src/judge.rs", &with_header("use std::path::Path;\nuse std::time::Duration;")),
        []
    );
}

#[test]
fn attributes_carry_a_reason() {
    let bad = [
        "#[allow(dead_code)] fn f() {}",
        "#[expect(dead_code)] fn f() {}",
        "#[ignore] #[test] fn f() {}",
        "#[ignore = \"slow\"] #[test] fn f() {}",
        "#[should_panic(expected = \"x\")] #[test] fn f() {}",
    ];
    for code in bad {
        assert_eq!(source(LIBRARY, &with_header(code)), [(Check::Attribute, 2)], "{code}");
    }
    assert_eq!(source(LIBRARY, "//! x\n#![allow(dead_code)]\n"), [(Check::Attribute, 2)]);
    assert_eq!(source(LIBRARY, &with_header("#[expect(dead_code, reason = \"why\")] #[must_use] fn f() {}")), []);
}

#[test]
fn forbidden_words_are_found_at_word_borders() {
    for word in words::FORBIDDEN {
        let text = format!("fine\nsee ({}) there\n", word.to_uppercase());
        let found = words::check("docs/x.md", &text);
        assert_eq!(found.len(), 1, "{word}");
        assert_eq!((found[0].check, found[0].line), (Check::Word, 2));
    }
    let inside = format!("https://host{}x", words::FORBIDDEN[0]);
    assert_eq!(words::check("docs/x.md", &inside), [], "part of a longer path");
    assert_eq!(words::check("docs/x.md", "tissue #7 has an air gap"), []);
}

#[test]
fn lock_budget_counts_packages() {
    let lock = "version = 4\n\n[[package]]\nname = \"a\"\n\n[[package]]\nname = \"b\"\n";
    assert_eq!(lock::check_against("Cargo.lock", lock, 2), []);
    let over = lock::check_against("Cargo.lock", lock, 1);
    assert_eq!((over.len(), over[0].check, over[0].size), (1, Check::LockBudget, 2));
}

#[test]
fn manifests_keep_their_promises() {
    let good = "[package]\nname = \"a\"\n[lints]\nworkspace = true\n[dependencies]\nb = { workspace = true }\n";
    let check = |text: &str| manifests::check("Cargo.toml", text).len();
    assert_eq!(check(good), 0);
    assert_eq!(check("[package]\nname = \"a\"\n"), 1, "no lints");
    assert_eq!(check(&good.replace("workspace = true }", "version = \"1\" }")), 1);
    let profile = |panic: &str| format!("[profile.release]\npanic = \"{panic}\"\n");
    assert_eq!(check(&profile("unwind")), 0);
    assert_eq!(check(&profile("abort")), 1);
    let dependency = |rest: &str| format!("[workspace.dependencies]\na = {{ {rest} }}\n");
    assert_eq!(check(&dependency("version = \"1\", default-features = false")), 0);
    assert_eq!(check(&dependency("version = \"1\"")), 1);
    assert_eq!(check(&dependency("path = \"crates/a\", version = \"1\"")), 0);
}

fn known() -> Known {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Known {
        bins: set(&["zeroclaw", "zeroclaw-acp"]),
        packages: set(&["xtask", "zeroclaw"]),
        xtask: xtask_commands(),
        files: set(&["README.md", "docs/protocol.md", "crates/app/src/lib.rs"]),
        tests: set(&["a_cancel_is_never_lost"]),
    }
}

fn document(file: &str, text: &str) -> Vec<(Check, usize)> {
    docs::check(file, text, &known()).into_iter().map(|problem| (problem.check, problem.line)).collect()
}

#[test]
fn documents_name_commands_that_exist() {
    let good = [
        "cargo run --release --bin zeroclaw -- prompt \"/run git log\"",
        "cargo run --bin=zeroclaw-acp",
        "run `cargo xtask tidy` or `cargo xtask ci`, then push",
        "cargo xtask bench start --runs 10",
        "cargo test -p xtask",
        "cargo install something --bin unknown",
    ];
    for line in good {
        assert_eq!(document("docs/a.md", line), [], "{line}");
    }
    let bad = [
        "cargo run --release --bin zeroclav -- prompt",
        "cargo run --bin=zeroclav",
        "run `cargo xtask tiddy` first",
        "cargo xtask bench sprint",
        "cargo test -p missing",
        "cargo run --bin",
    ];
    for line in bad {
        assert_eq!(document("docs/a.md", &format!("\n{line}\n")), [(Check::Command, 2)], "{line}");
    }
}

#[test]
fn readme_shows_the_test_command() {
    assert_eq!(document("README.md", "# Title\n"), [(Check::Command, 0)]);
    assert_eq!(document("README.md", "cargo test --workspace\n"), []);
    assert_eq!(document("docs/a.md", "# Title\n"), []);
}

#[test]
fn links_lead_somewhere() {
    let good = [
        "[a](../README.md) and [b](protocol.md#any)",
        "[`code`](../crates/app/) [c](https://example.com/x) [d](mailto:a@example.com)",
        "[e](#life-of-a-prompt)\n## Life of a *prompt*",
        "`[not a link](nowhere.md)`",
        "```\n[not a link](nowhere.md)\n```",
        "[name]: protocol.md",
    ];
    for text in good {
        assert_eq!(document("docs/a.md", text), [], "{text}");
    }
    for text in ["[a](nowhere.md)", "[b](../../README.md)", "[c](#nothing)", "[name]: nowhere.md", "[d](../crates/ap)"]
    {
        assert_eq!(document("docs/a.md", text), [(Check::Link, 1)], "{text}");
    }
}

#[test]
fn witnesses_of_a_rule_exist() {
    let good = "Checked by: clippy `unwrap_used`; `a_cancel_is_never_lost` and tidy `print`.";
    assert_eq!(document("ARCHITECTURE.md", good), []);
    assert_eq!(document("ARCHITECTURE.md", "   Checked by: `a_cancel_is_often_lost`."), [(Check::Witness, 1)]);
    assert_eq!(document("ARCHITECTURE.md", "See `some_old_function`."), [], "only the witnesses of rules");
}

#[test]
fn test_functions_are_found_by_their_place() {
    let code = with_header("fn plain() {}\n#[cfg(test)]\nmod tests {\n    fn inner() {}\n}\n");
    assert_eq!(check_source(LIBRARY, &code).1, ["inner"]);
    assert_eq!(check_source("crates/runtime/tests/turn.rs", &code).1, ["plain", "inner"]);
}

fn edge(kind: Kind, to: &str) -> Edge {
    Edge { to: to.to_owned(), kind }
}

fn judged(from: &str, kind: Kind, to: &str) -> bool {
    let row = layers::TABLE.iter().find(|row| row.package == from).expect("a row");
    layers::edge_problem(row, &edge(kind, to), layers::TABLE).is_none()
}

#[test]
fn crates_look_only_down() {
    assert!(judged("zeroclaw-acp-server", Kind::Normal, "zeroclaw-session-store"));
    assert!(judged("zeroclaw", Kind::Normal, "zeroclaw-app"));
    assert!(judged("zeroclaw-app", Kind::Normal, "zeroclaw-gateway"));
    assert!(judged("zeroclaw-acp-bridge", Kind::Normal, "zeroclaw-bridge"));
    for (from, to) in [
        ("zeroclaw-session-store", "zeroclaw-acp-server"),
        ("zeroclaw-acp-protocol", "zeroclaw-policy"),
        ("zeroclaw-gateway", "zeroclaw-acp-server"),
        ("zeroclaw-bridge", "zeroclaw-runtime"),
        ("zeroclaw", "zeroclaw-acp-server"),
        ("xtask", "zeroclaw-acp-protocol"),
        ("zeroclaw-runtime", "zeroclaw-testkit"),
    ] {
        assert!(!judged(from, Kind::Normal, to), "{from} -> {to}");
        assert!(!judged(from, Kind::Build, to), "{from} -> {to}");
    }
}

#[test]
fn tests_may_look_sideways() {
    assert!(judged("zeroclaw-runtime", Kind::Dev, "zeroclaw-testkit"));
    assert!(judged("zeroclaw-runtime", Kind::Dev, "zeroclaw-session-store"));
    assert!(judged("zeroclaw-policy", Kind::Dev, "zeroclaw-acp-protocol"));
    assert!(!judged("zeroclaw-policy", Kind::Dev, "zeroclaw-session-store"));
    assert!(!judged("zeroclaw-runtime", Kind::Dev, "zeroclaw-app"));
    assert!(!judged("xtask", Kind::Dev, "zeroclaw-testkit"));
    assert!(!judged("xtask", Kind::Dev, "zeroclaw-acp-protocol"));
}

fn member(name: &str, edges: Vec<Edge>) -> Member {
    Member { name: name.to_owned(), edges, bins: Vec::new() }
}

#[test]
fn table_and_workspace_name_the_same_crates() {
    let row = |package, state| Row { package, layer: 0, state, uses: &[] };
    let table = [row("a", State::Present), row("b", State::Planned)];
    let packages = |names: &[&str]| Packages {
        members: names.iter().map(|name| member(name, Vec::new())).collect(),
        graph: BTreeMap::new(),
    };
    let places = |names: &[&str]| -> Vec<String> {
        layers::table_matches(&packages(names), &table).into_iter().map(|problem| problem.file).collect()
    };
    assert_eq!(places(&["a"]), [] as [&str; 0]);
    assert_eq!(places(&["a", "b"]), [] as [&str; 0]);
    assert_eq!(places(&["a", "c"]), ["c"], "a crate without a row");
    assert_eq!(places(&["b"]), ["a"], "a row without a crate");
}

#[test]
fn registry_crates_have_owners() {
    let count = |name: &str, kind, to: &str| layers::foreign(&member(name, vec![edge(kind, to)])).len();
    assert_eq!(count("zeroclaw-acp-protocol", Kind::Normal, "serde_json"), 0);
    assert_eq!(count("zeroclaw-acp-protocol", Kind::Normal, "thiserror"), 1);
    assert_eq!(count("zeroclaw-acp-protocol", Kind::Dev, "proptest"), 0);
    assert_eq!(count("zeroclaw-session-store", Kind::Normal, "sqlx"), 0);
    assert_eq!(count("zeroclaw-acp-server", Kind::Normal, "sqlx"), 1);
    assert_eq!(count("zeroclaw-runtime", Kind::Normal, "anyhow"), 1);
}

/// `policy` needs `small`; `small` needs `tokio` at run time only when asked to.
fn metadata(kind: serde_json::Value) -> serde_json::Value {
    let package = |id: &str, name: &str| json!({"id": id, "name": name, "dependencies": [], "targets": []});
    let node = |id: &str, deps: serde_json::Value| json!({"id": id, "deps": deps});
    json!({
        "workspace_members": ["p"],
        "packages": [
            {
                "id": "p", "name": "zeroclaw-policy",
                "dependencies": [{"name": "small", "kind": null}, {"name": "proptest", "kind": "dev"}],
                "targets": [{"name": "tool", "kind": ["bin"]}, {"name": "zeroclaw_policy", "kind": ["lib"]}],
            },
            package("s", "small"),
            package("t", "tokio"),
        ],
        "resolve": {"nodes": [
            node("p", json!([{"pkg": "s", "dep_kinds": [{"kind": null}]}])),
            node("s", json!([{"pkg": "t", "dep_kinds": [{"kind": kind}]}])),
            node("t", json!([])),
        ]},
    })
}

#[test]
fn metadata_gives_members_edges_and_bins() {
    let packages = Packages::from_metadata(&metadata(json!(null))).expect("well formed");
    assert_eq!(packages.bins(), ["tool"]);
    assert_eq!(packages.members[0].edges, [edge(Kind::Normal, "small"), edge(Kind::Dev, "proptest")]);
    assert!(Packages::from_metadata(&json!({})).is_err());
}

#[test]
fn forbidden_packages_are_found_however_deep() {
    let reached = |kind| {
        let packages = Packages::from_metadata(&metadata(kind)).expect("well formed");
        layers::reached(&packages, "zeroclaw-policy", &["tokio"])
    };
    let found = reached(json!(null));
    assert_eq!(found.len(), 1);
    assert!(found[0].message.ends_with("zeroclaw-policy -> small -> tokio"), "{}", found[0].message);
    assert_eq!(reached(json!("dev")), [], "what only tests need is not linked");
    assert_eq!(reached(json!("build")), [], "nor what only a build script needs");
}

#[test]
fn exceptions_are_exact_argued_and_needed() {
    let problem = |size| Problem::new(Check::FunctionSize, "a.rs", 3, "long").about("run").sized(size);
    let exception = |item, reason| Exception { check: Check::FunctionSize, file: "a.rs", item, up_to: 120, reason };
    let why = "one match over every method of the protocol";
    let checks = |problems, list: &[Exception]| -> Vec<Check> {
        exceptions::apply(problems, list).into_iter().map(|problem| problem.check).collect()
    };
    assert_eq!(checks(vec![problem(120)], &[exception("run", why)]), []);
    assert_eq!(checks(vec![problem(121)], &[exception("run", why)]), [Check::FunctionSize, Check::Exception]);
    assert_eq!(checks(vec![problem(120)], &[exception("walk", why)]), [Check::FunctionSize, Check::Exception]);
    assert_eq!(checks(Vec::new(), &[exception("run", why)]), [Check::Exception], "not needed");
    assert_eq!(checks(vec![problem(120)], &[exception("run", "because")]), [Check::Exception], "no reason");
}

#[test]
fn problem_reads_like_a_compiler_message() {
    let problem = Problem::new(Check::Print, "a.rs", 7, "no printing");
    assert_eq!(problem.to_string(), "print: a.rs:7: no printing");
    assert_eq!(Problem::new(Check::Layers, "a", 0, "up").to_string(), "layers: a: up");
}
