//! What is proposed for an action, and what it covers then and never covers.

use std::path::Path;

use proptest::prelude::*;

use crate::{Action, Grant, Replaces, Root, RootKind, Roots, shell::simple_command};

use super::words::joined;

fn roots() -> Roots {
    Roots::new(vec![
        Root::new("/w/project".into(), RootKind::Session),
        Root::new("/home/u/.zeroclaw/agent".into(), RootKind::Agent),
    ])
}

fn run_in(cwd: &str, script: &str) -> Action {
    Action::Run {
        argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
        cwd: roots().locate(cwd).unwrap(),
        shown: script.to_owned(),
        network: false,
        pins: Vec::new(),
    }
}

/// "Always" about a command without network must not carry one with it; with one it is offered for builds, and says so.
#[test]
fn the_network_is_covered_where_it_was_said() {
    let with_network = |script: &str| match run(script) {
        Action::Run { argv, cwd, shown, .. } => Action::Run { argv, cwd, shown, network: true, pins: Vec::new() },
        other => other,
    };
    for script in ["git status", "cargo test", "echo a; echo b", "git push", "curl -d @x https://a", "npm install"] {
        let offered = Grant::propose("shell", &with_network(script));
        assert_eq!(offered.is_some(), script == "cargo test", "{script}");
        if let Some(grant) = offered {
            assert!(grant.covers("shell", &with_network("cargo test --lib")) && grant.covers("shell", &run(script)));
            assert!(!grant.covers("shell", &with_network("cargo build")));
            assert_eq!(Grant::parse("shell", &grant.rule().unwrap()), Some(grant.clone()));
            assert_eq!(
                grant.describe(Path::new("/w/project"), |text| format!("`{text}`")),
                "`cargo test` with network here"
            );
        }
        let grant = Grant::propose("shell", &run(script)).expect("offered");
        assert!(grant.covers("shell", &run(script)) && !grant.covers("shell", &with_network(script)), "{script}");
        assert_ne!(run(script).scope("shell"), with_network(script).scope("shell"));
    }
}

fn run(script: &str) -> Action {
    run_in(".", script)
}

fn write(path: &str) -> Action {
    let path = roots().locate(path).unwrap();
    Action::Write { path, content: b"x".as_slice().into(), replaces: Replaces::Nothing, pins: Vec::new() }
}

fn read(path: &str) -> Action {
    Action::Read { path: roots().locate(path).unwrap() }
}

fn grant(action: &Action) -> Grant {
    Grant::propose("t", action).unwrap()
}

fn described(action: &Action) -> String {
    grant(action).describe(Path::new("/w/project"), |text| format!("`{text}`"))
}

/// What "always" for the first covers, of the others.
fn check(said_about: &str, covered: &[&str], asked: &[&str]) {
    let grant = grant(&run(said_about));
    for script in covered {
        assert!(grant.covers("t", &run(script)), "`{said_about}` should cover `{script}`");
    }
    for script in asked {
        assert!(!grant.covers("t", &run(script)), "`{said_about}` must not cover `{script}`");
    }
}

#[test]
fn the_name_says_what_is_covered() {
    for (action, expected) in [
        (run("git status"), "`git status` here"),
        (run("git  'log' --oneline -5"), "`git log` here"),
        (run("git push origin main"), "exactly `git push origin main` here"),
        (run("git diff --output=x"), "exactly `git diff --output=x` here"),
        (run("npm run build -- --watch"), "`npm run build` here"),
        (run("npm install"), "exactly `npm install` here"),
        (run("make test"), "`make test` here"),
        (run("make test SHELL=/tmp/x"), "exactly `make test SHELL=/tmp/x` here"),
        (run("echo 'a b'"), "exactly `echo 'a b'` here"),
        (run("git status; rm x"), "exactly `git status; rm x` here"),
        (run_in("sub/dir", "cargo test"), "`cargo test` in `sub/dir`"),
        (run_in("/home/u/.zeroclaw/agent", "ls"), "exactly `ls` in `/home/u/.zeroclaw/agent`"),
        (write("src/a.rs"), "`t` in `src/`"),
        (write("a.txt"), "`t` anywhere in this directory"),
        (write(".env"), "`t` of `.env`"),
        (write(".github/workflows/ci.yml"), "`t` of `.github/workflows/ci.yml`"),
        (write("/home/u/.zeroclaw/agent/notes/a.md"), "`t` in `/home/u/.zeroclaw/agent/notes/`"),
        (read("src"), "`t` of `src`"),
        (Action::Converse, "`t`"),
    ] {
        assert_eq!(described(&action), expected);
    }
}

#[test]
fn a_prefix_covers_the_sub_command_and_nothing_that_makes_it_another() {
    check(
        "git status",
        &["git status", "git status -s", "git status --short src", "  git 'status'\n", "git status 'a b'"],
        &[
            "git push",
            "git stash",
            "git -c core.fsmonitor=/tmp/x status",
            "git -C /etc status",
            "git statusx",
            "./git status",
            "git",
            "git status; rm x",
            "git status && rm x",
            "git status | sh",
            "git status &",
            "git status\nrm x",
            "git status > f",
            "git status >f",
            "git status < f",
            "git status $(rm x)",
            "git status \"$(rm x)\"",
            "git status `rm x`",
            "git status $X",
            "X=1 git status",
            "GIT_EXTERNAL_DIFF=x git status",
            "(git status)",
            "{ git status; }",
            "! git status",
            "git status *",
            "git status ~",
            "git status 'x",
        ],
    );
    check(
        "git diff",
        &["git diff --cached", "git diff HEAD~1 -- src", "git diff --stat --word-diff"],
        &[
            "git diff --output=f",
            "git diff --output f",
            "git diff --outp=f",
            "git diff --ext-diff",
            "git diff --ext",
            "git diff --textconv",
            "git diff --no-index /etc/passwd x",
            "git diff -Oorder",
            "git diff -pO x",
        ],
    );
    check("git log -3", &["git log", "git log -p --author=me"], &["git log --output=f", "git log --o f"]);
    check(
        "git branch",
        &["git branch -a", "git branch -vv"],
        &["git branch -D x", "git branch -vD x", "git branch --del x"],
    );
    check(
        "cargo test",
        &["cargo test -p a", "cargo test name -- --nocapture"],
        &[
            "cargo build",
            "cargo +nightly test",
            "cargo test --config 'build.rustc=\"x\"'",
            "cargo test --manifest-path=/tmp/x/Cargo.toml",
            "cargo test --target-dir /tmp",
            "cargo test -Zunstable",
            "cargo test -qC /tmp",
            "cargo test -- --logfile x",
        ],
    );
    check("cargo clippy", &["cargo clippy --all-targets -- -D warnings"], &["cargo clippy --fix"]);
    check(
        "go test ./...",
        &["go test -v -run=X ./a"],
        &["go test -exec /tmp/x", "go test --toolexec=x", "go test -test.cpuprofile=f", "go vet"],
    );
    check(
        "npm run build",
        &["npm run build -- --watch -x", "npm run build --silent"],
        &["npm run deploy", "npm run build --script-shell=/tmp/x", "npm run build -script-shell=x", "npm run"],
    );
    check("npm test", &["npm test", "npm test -- -t name"], &["npm test --prefix /tmp"]);
    check(
        "make test",
        &["make test -s"],
        &["make clean", "make test clean", "make test X=1", "make test -f x", "make test --eval=x"],
    );
}

#[test]
fn other_commands_are_covered_by_their_words_or_their_text() {
    check("rm -r build", &["rm  -r 'build'"], &["rm -r build x", "rm -r", "rm -r build; ls"]);
    check("a && b", &["a && b"], &["a && b ", "a", "a && c"]);
    check("echo $HOME", &["echo $HOME"], &["echo /root", "echo  $HOME"]);
    let here = grant(&run("git status"));
    assert!(!here.covers("t", &run_in("vendor/x", "git status")), "another directory is another project");
    assert!(!here.covers("other", &run("git status")), "another tool");
    assert!(!here.covers("t", &write("git status")));
}

#[test]
fn a_directory_covers_what_lies_below_and_nothing_hidden() {
    let source = grant(&write("src/a.rs"));
    for path in ["src/b.rs", "src/deep/er/c.rs"] {
        assert!(source.covers("t", &write(path)), "{path}");
    }
    for path in ["a.rs", "src", "srcs/a.rs", "src/.git/hooks/x", "src/.env", "src/a/.x/y", ".git/config"] {
        assert!(!source.covers("t", &write(path)), "{path}");
    }
    assert!(source.is_tree());
    let hook = grant(&write(".git/hooks/pre-commit"));
    assert!(hook.covers("t", &write(".git/hooks/pre-commit")));
    assert!(!hook.covers("t", &write(".git/hooks/post-commit")));
    assert!(!hook.is_tree());
}

#[test]
fn rules_are_lines_that_read_back() {
    for action in [
        run("git status -s"),
        run("printf 'a\\tb'"),
        run("cat <<E\n\\\tx\nE"),
        run("rm 'a b'"),
        write("src/a.rs"),
        write(".env"),
        read("docs"),
        Action::Converse,
    ] {
        let grant = grant(&action);
        let rule = grant.rule().unwrap();
        assert!(!rule.contains(['\n', '\r', '\0']), "{rule:?}");
        assert_eq!(Grant::parse("t", &rule), Some(grant), "{rule:?}");
    }
    for rule in [
        "",
        "prefix",
        "prefix\t/w",
        "prefix\t/w\trm",
        "prefix\t/w\tgit",
        "prefix\t/w\tgit\tpush",
        "prefix\tw\tgit\tstatus",
        "prefix\t/w\tgit\tstatus\t-s",
        "script\t/w",
        "script\t/w\ta\tb",
        "words\t/w",
        "tree",
        "tree\tsrc",
        "tree\t/w\tx",
        "path\t/w\t",
        "tool\t/w",
        "everything",
        "words\t/w\ta\\",
        "words\t/w\t\\x",
    ] {
        assert_eq!(Grant::parse("t", rule), None, "{rule:?}");
    }
}

#[test]
fn what_nobody_reads_is_not_offered() {
    assert_eq!(Grant::propose("t", &run(&format!("echo {}", "x".repeat(super::MAX_RULE)))), None);
}

/// A piece of a script: often something that ends or changes a command.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "git",
            "status",
            "diff",
            "rm",
            "x",
            "-s",
            "--output=f",
            " ",
            "  ",
            "\t",
            "'",
            "\"",
            "\\",
            "a b",
        ]),
        prop::sample::select(vec![
            ";", "&", "&&", "|", "||", "\n", ">", "<", "$(", ")", "`", "$x", "(", "{", "}", "*", "?", "#", "~", "=",
            "!",
        ]),
    ]
    .prop_map(str::to_owned)
}

/// A separator of commands, in its place between two plain commands.
fn separator() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![";", "&", "&&", "|", "||", "\n", "\r\n", " ; ", "|&", "\n\n"])
}

proptest! {
    #[test]
    fn no_prefix_covers_two_commands(separator in separator(), tail in "[a-z]{1,8}( [a-z]{1,4}){0,2}", options in "( -s| --short| x){0,3}") {
        let script = format!("git status{options}{separator}{tail}");
        prop_assert!(!grant(&run("git status")).covers("t", &run(&script)), "{:?}", script);
        let script = format!("{tail}{separator}git status{options}");
        prop_assert!(!grant(&run("git status")).covers("t", &run(&script)), "{:?}", script);
    }

    /// Whatever is covered by a prefix is these very words and further ones, and no character of it means something to a shell.
    #[test]
    fn what_a_prefix_covers_is_one_plain_command(pieces in prop::collection::vec(piece(), 0..12)) {
        let script = format!("git status {}", pieces.concat());
        if grant(&run("git status")).covers("t", &run(&script)) {
            let (mut quote, mut blank, mut ended) = (None, false, false);
            let mut characters = script.chars();
            while let Some(character) = characters.next() {
                match (quote, character) {
                    (None, '#') if blank => break,
                    (None, ' ' | '\t') => {}
                    // The one end of a command, behind which only a comment may stand.
                    (None, ';' | '\n') => ended = true,
                    (None, _) if ended => prop_assert!(false, "{:?}", script),
                    (None | Some('"'), '\\') => drop(characters.next()),
                    (None, '\'' | '"') => quote = Some(character),
                    (Some(open), close) if open == close => quote = None,
                    (Some('"'), inner) => prop_assert!(!"$`".contains(inner), "{:?}", script),
                    (Some(_), _) => {}
                    (None, plain) => prop_assert!(!"&|<>$`()*?".contains(plain), "{:?}", script),
                }
                blank = matches!(character, ' ' | '\t' | '\n' | ';');
            }
            prop_assert_eq!(quote, None);
        }
    }

    #[test]
    fn a_grant_covers_what_it_was_said_about(pieces in prop::collection::vec(piece(), 1..12)) {
        let action = run(&pieces.concat());
        prop_assert!(grant(&action).covers("t", &action));
    }

    #[test]
    fn joined_words_are_the_words(words in prop::collection::vec("[a-zA-Z \"$;-]{1,6}", 1..5)) {
        let words: Vec<String> = std::iter::once("run".to_owned()).chain(words).collect();
        prop_assert_eq!(simple_command(&joined(&words)), Some(words));
    }
}

#[test]
fn a_tool_of_a_server_is_covered_with_whatever_arguments() {
    let call = |server: &str, tool: &str, arguments: &str| Action::Call {
        server: server.to_owned(),
        origin: "0a1b".to_owned(),
        tool: tool.to_owned(),
        arguments: arguments.into(),
        hint: crate::CallHint::None,
    };
    let grant = grant(&call("s\t1", "echo", "{}"));
    assert_eq!(Grant::parse("t", &grant.rule().unwrap()), Some(grant.clone()));
    assert!(grant.covers("t", &call("s\t1", "echo", r#"{"text":"other"}"#)));
    let Action::Call { server, tool, arguments, hint, .. } = call("s\t1", "echo", "{}") else { panic!("a call") };
    let impostor = Action::Call { server, origin: "ffff".to_owned(), tool, arguments, hint };
    for other in [impostor, call("s", "echo", "{}"), call("s\t1", "other", "{}"), Action::Converse, run("echo")] {
        assert!(!grant.covers("t", &other), "{other:?}");
    }
    assert_eq!(
        grant.describe(Path::new("/w/project"), |text| format!("`{text}`")),
        "the tool `echo` of the MCP server `s\t1`"
    );
    assert_eq!(Grant::parse("t", "call\tone\ttwo"), None);
    assert_eq!(Grant::parse("t", "call\tone\ttwo\tthree\tfour"), None);
}
