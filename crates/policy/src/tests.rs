//! Paths and verdicts, table by table.

use crate::{
    Action, Decision, Judgement, Level, PathError, Pin, Pinned, Replaces, Root, RootKind, Roots, Ruleset, judge,
};

fn roots() -> Roots {
    Roots::new(vec![
        Root::new("/w/proj".into(), RootKind::Session),
        Root::new("/data/agents/main".into(), RootKind::Agent),
        Root::new("/w/proj/vendor".into(), RootKind::ReadOnly),
    ])
}

#[test]
fn paths_inside_are_located() {
    let cases = [
        ("a..b.txt", "/w/proj/a..b.txt", 0),
        ("src/../b", "/w/proj/b", 0),
        ("/w/proj/.", "/w/proj", 0),
        (".", "/w/proj", 0),
        ("/w/proj/", "/w/proj", 0),
        ("vendor/x.c", "/w/proj/vendor/x.c", 2),
        ("/data/agents/main/IDENTITY.md", "/data/agents/main/IDENTITY.md", 1),
        ("..%2fx", "/w/proj/..%2fx", 0),
        ("~x", "/w/proj/~x", 0),
    ];
    for (text, absolute, root) in cases {
        let path = roots().locate(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((path.absolute().to_str(), path.root()), (Some(absolute), root), "{text}");
    }
}

#[test]
fn paths_outside_are_refused() {
    let outside = |text: &str| PathError::Outside(text.to_owned());
    let cases = [
        ("", PathError::Empty),
        ("a\0b", PathError::Nul),
        ("~/x", PathError::Home),
        ("~", PathError::Home),
        ("file:///etc/passwd", PathError::Uri),
        ("../x", outside("../x")),
        ("a/../../x", outside("a/../../x")),
        ("/w/proj-evil/x", outside("/w/proj-evil/x")),
        ("/etc/passwd", outside("/etc/passwd")),
        ("../../../../../../etc/passwd", outside("../../../../../../etc/passwd")),
    ];
    for (text, error) in cases {
        assert_eq!(roots().locate(text), Err(error), "{text}");
    }
    assert_eq!(roots().locate(&"x".repeat(5000)), Err(PathError::TooLong));
}

fn verdict(rules: &Ruleset, tool: &str, action: Action) -> &'static str {
    match judge(rules, &roots(), tool, action) {
        Judgement::Granted(_) => "allow",
        Judgement::Pending(_) => "ask",
        Judgement::Refused(_) => "deny",
    }
}

fn read(text: &str) -> Action {
    Action::Read { path: roots().locate(text).expect("a path inside") }
}

fn write(text: &str) -> Action {
    let path = roots().locate(text).expect("a path inside");
    Action::Write { path, content: b"x".as_slice().into(), replaces: Replaces::Nothing, pins: Vec::new() }
}

fn run() -> Action {
    Action::Run {
        argv: vec!["make".into()],
        cwd: roots().locate(".").expect("inside"),
        shown: "make".into(),
        network: false,
        pins: Vec::new(),
    }
}

#[test]
fn levels_decide() {
    let cases = [
        (Level::Readonly, ["allow", "deny", "deny", "allow"]),
        (Level::Supervised, ["allow", "ask", "ask", "allow"]),
        (Level::Full, ["allow", "allow", "allow", "allow"]),
    ];
    for (level, expected) in cases {
        let rules = Ruleset::new(level);
        let seen = [
            verdict(&rules, "file_read", read("a")),
            verdict(&rules, "file_write", write("a")),
            verdict(&rules, "shell", run()),
            verdict(&rules, "todo_write", Action::Converse),
        ];
        assert_eq!(seen, expected, "{level:?}");
    }
}

#[test]
fn the_strictest_rule_wins() {
    let mut rules = Ruleset::new(Level::Full);
    rules.forbidden_paths = vec!["/w/proj/secret".into()];
    rules.always_ask = vec!["shell".into()];
    rules.excluded_tools = vec!["file_write".into()];
    assert_eq!(verdict(&rules, "file_read", read("secret/key")), "deny");
    assert_eq!(verdict(&rules, "file_read", read("secrets")), "allow");
    assert_eq!(verdict(&rules, "shell", run()), "ask");
    assert_eq!(verdict(&rules, "file_write", write("a")), "deny");
    assert_eq!(verdict(&rules, "file_edit", write("vendor/a")), "deny");

    let mut rules = Ruleset::new(Level::Supervised);
    rules.auto_approve = vec!["shell".into()];
    assert_eq!(verdict(&rules, "shell", run()), "allow");
    rules.always_ask = vec!["*".into()];
    assert_eq!(verdict(&rules, "shell", run()), "ask");
    rules.level = Level::Readonly;
    assert_eq!(verdict(&rules, "shell", run()), "deny");
}

#[test]
fn a_permit_hands_out_the_action_that_was_judged() {
    let Judgement::Pending(pending) = judge(&Ruleset::new(Level::Supervised), &roots(), "shell", run()) else {
        panic!("supervised asks before a command runs");
    };
    assert_eq!(pending.reasons().len(), 1);
    assert_eq!(pending.approve().into_action(), run());
}

/// Nothing of an action can be exchanged without its digest telling.
#[test]
fn fingerprints_tell_actions_apart() {
    let pin = |what, path: &str, byte| Pin { what, path: path.into(), state: [byte; 32] };
    let run = |argv: &[&str], cwd: &str, network, pins: &[Pin]| Action::Run {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        cwd: roots().locate(cwd).expect("inside"),
        shown: "make".to_owned(),
        network,
        pins: pins.to_vec(),
    };
    let write = |path: &str, content: &[u8], replaces, pins: &[Pin]| Action::Write {
        path: roots().locate(path).expect("inside"),
        content: content.into(),
        replaces,
        pins: pins.to_vec(),
    };
    let call = |server: &str, tool: &str, arguments: &str| Action::Call {
        server: server.to_owned(),
        origin: "o".to_owned(),
        tool: tool.to_owned(),
        arguments: arguments.into(),
        hint: crate::CallHint::None,
    };
    let all = [
        run(&["make"], ".", false, &[]),
        run(&["make"], ".", true, &[]),
        run(&["make"], "src", false, &[]),
        run(&["make", ""], ".", false, &[]),
        run(&["ma", "ke"], ".", false, &[]),
        run(&["make"], ".", false, &[pin(Pinned::Directory, "/w", 0)]),
        run(&["make"], ".", false, &[pin(Pinned::Program, "/w", 0)]),
        run(&["make"], ".", false, &[pin(Pinned::Directory, "/w", 1)]),
        run(&["make"], ".", false, &[pin(Pinned::Directory, "/x", 0)]),
        run(&["make"], ".", false, &[pin(Pinned::Directory, "/w", 0), pin(Pinned::Environment, "", 0)]),
        write("a", b"x", Replaces::Nothing, &[]),
        write("a", b"y", Replaces::Nothing, &[]),
        write("b", b"x", Replaces::Nothing, &[]),
        write("a", b"x", Replaces::Content([0; 32]), &[]),
        write("a", b"x", Replaces::Content([1; 32]), &[]),
        write("a", b"x", Replaces::Nothing, &[pin(Pinned::Place, "/w/proj/a", 0)]),
        read("a"),
        read("b"),
        call("s", "t", "{}"),
        call("st", "", "{}"),
        call("s", "t", "{ }"),
        Action::Converse,
    ];
    for (at, one) in all.iter().enumerate() {
        for (other_at, other) in all.iter().enumerate() {
            assert_eq!(one.fingerprint() == other.fingerprint(), at == other_at, "{one:?} and {other:?}");
        }
    }
    let Judgement::Pending(pending) = judge(&Ruleset::new(Level::Supervised), &roots(), "shell", all[0].clone()) else {
        panic!("it asks");
    };
    assert_eq!(pending.approve().fingerprint(), all[0].fingerprint());
}

/// Which files a command runs, as far as its text tells.
#[test]
fn the_programs_of_a_command_are_found() {
    let found = |script: &str| {
        let argv: Vec<String> = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let here = roots().locate(".").expect("inside");
        let found = crate::executed(&Ruleset::new(Level::Supervised), &roots(), &argv, &here);
        found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
    };
    for (script, expected) in [
        ("ls src", &[][..]),
        ("./run.sh", &["/w/proj/run.sh"]),
        ("sh -x run.sh a b", &["/w/proj/run.sh"]),
        ("python3 -u tools/x.py data", &["/w/proj/tools/x.py"]),
        ("env A=1 node 'a b.js'", &["/w/proj/a b.js"]),
        (". ./env.sh; make", &["/w/proj/env.sh"]),
        ("x=$(target/debug/tool)", &["/w/proj/target/debug/tool"]),
        ("cd src && ./a", &["/w/proj/a", "/w/proj/src/a"]),
        ("/usr/bin/ls ./b", &[]),
        ("/tmp/x", &[]),
        ("$x/run", &[]),
    ] {
        assert_eq!(found(script), expected, "{script}");
    }
}

#[test]
fn scopes_tell_actions_apart() {
    let scopes =
        [read("a").scope("t"), write("a").scope("t"), write("b").scope("t"), run().scope("t"), run().scope("u")];
    let distinct: std::collections::BTreeSet<&String> = scopes.iter().collect();
    assert_eq!(distinct.len(), scopes.len());
}

/// Whoever approves a command has to be told that it may talk to others.
#[test]
fn the_network_asks_also_where_commands_do_not() {
    let run = |network| {
        let cwd = roots().locate(".").expect("inside");
        Action::Run { argv: vec!["ls".into()], cwd, shown: "ls".into(), network, pins: Vec::new() }
    };
    let rules = Ruleset { auto_approve: vec!["shell".into()], ..Ruleset::new(Level::Supervised) };
    assert!(matches!(judge(&rules, &roots(), "shell", run(false)), Judgement::Granted(_)));
    let Judgement::Pending(pending) = judge(&rules, &roots(), "shell", run(true)) else { panic!("it asks") };
    assert!(pending.reasons().iter().any(|reason| reason.text == "the command runs with network"));
    assert!(matches!(judge(&Ruleset::new(Level::Full), &roots(), "shell", run(true)), Judgement::Granted(_)));
    assert!(matches!(judge(&Ruleset::new(Level::Readonly), &roots(), "shell", run(true)), Judgement::Refused(_)));
}

/// A build was approved, and found no network; what is shown with network is what has it.
#[test]
fn the_policy_says_what_has_the_network() {
    let wants = |rules: &Ruleset, script: &str| {
        let argv: Vec<String> = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        crate::wants_network(rules, &roots(), "shell", &argv, &roots().locate(".").expect("inside"))
    };
    let supervised = Ruleset::new(Level::Supervised);
    for script in [
        "cargo build",
        "cd src && cargo build --release",
        "cargo +nightly install x",
        "npm ci",
        "yarn",
        "pnpm add x",
        "pip install -r r.txt",
        "python3 -m pip install x",
        "uv sync",
        "git fetch",
        "git -C . clone https://a/b",
        "git push",
        "git remote update",
        "curl https://a",
        "ls; curl https://a",
        "sh -c 'npm install'",
        "timeout 60 cargo build",
        "go mod download",
    ] {
        assert!(wants(&supervised, script), "{script}");
    }
    for script in [
        "ls",
        "cargo test",
        "cargo build --offline",
        "cargo build --frozen",
        "npm test",
        "npm run build",
        "yarn test",
        "pip list",
        "pip install --no-index x",
        "git status",
        "git commit -m push",
        "git remote -v",
        "echo curl",
        "make",
        "python3 x.py",
        "./curl x",
    ] {
        assert!(!wants(&supervised, script), "{script}");
    }
    let with = |network| Ruleset { network: Some(network), ..Ruleset::new(Level::Supervised) };
    assert!(
        !wants(&with(Decision::Deny), "curl https://a") && !wants(&Ruleset::new(Level::Readonly), "curl https://a")
    );
    assert!(wants(&with(Decision::Allow), "cargo build") && wants(&Ruleset::new(Level::Full), "cargo build"));
    // What is approved without a question does not ask for the sake of a download; what needs the network does.
    let approved = Ruleset { auto_approve: vec!["shell".into()], ..Ruleset::new(Level::Supervised) };
    assert!(!wants(&approved, "cargo build") && wants(&approved, "npm install"));
    let ruled = |network| {
        let rule = crate::CommandRule::new("cargo build *", Decision::Allow).expect("a rule").with_network(network);
        Ruleset { commands: vec![rule], ..Ruleset::new(Level::Supervised) }
    };
    assert!(!wants(&ruled(None), "cargo build") && wants(&ruled(Some(true)), "cargo build"));
    // A closed network stays closed, also for who asks for it by name.
    let cwd = roots().locate(".").expect("inside");
    let action = Action::Run { argv: vec!["ls".into()], cwd, shown: "ls".into(), network: true, pins: Vec::new() };
    for level in [Level::Readonly, Level::Supervised, Level::Full] {
        let rules = Ruleset { network: Some(Decision::Deny), ..Ruleset::new(level) };
        assert!(matches!(judge(&rules, &roots(), "shell", action.clone()), Judgement::Refused(_)), "{level:?}");
    }
}
