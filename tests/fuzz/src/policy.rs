//! The judge of commands: no panic, a stricter level or another deny never widens, quoting never changes a verdict, and a
//! second evaluator that knows the command's structure, and not its text, says the same.

use std::sync::OnceLock;

use zeroclaw_policy::{
    Action, CommandRule, Decision, Grant, Level, Root, RootKind, Roots, Ruleset,
    cases::{Base, decide_command},
};

use crate::Input;

fn base(level: Level) -> &'static Base {
    static BASES: OnceLock<[Base; 3]> = OnceLock::new();
    let [readonly, supervised, full] = BASES.get_or_init(|| {
        [Level::Readonly, Level::Supervised, Level::Full].map(|level| {
            let mut rules = Ruleset::new(level);
            rules.home = Some("/home/u".into());
            rules.forbidden_paths = vec!["/etc/shadow".into(), "/home/u/.ssh".into()];
            Base { rules, roots: vec![Root::new("/home/u/proj".into(), RootKind::Session)] }
        })
    });
    match level {
        Level::Readonly => readonly,
        Level::Supervised => supervised,
        Level::Full => full,
    }
}

fn decision(base: &Base, command: &str) -> Decision {
    decide_command(base, command).expect("there is a directory").decision
}

/// Pieces that matter to the grammar or to the table of programs.
const PIECES: &[&str] = &[
    "ls",
    "rm",
    "-rf",
    "cat",
    "git",
    "status",
    "push",
    "env",
    "sh",
    "-c",
    "sudo",
    "find",
    "-exec",
    "-delete",
    "xargs",
    "timeout",
    "5",
    "/etc/shadow",
    "~/.ssh/x",
    "../x",
    "$HOME",
    "${x:-",
    "}",
    "$(",
    ")",
    "`",
    "'",
    "\"",
    "\\",
    "\n",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "(",
    "{",
    "}",
    "if",
    "then",
    "fi",
    "for",
    "in",
    "do",
    "done",
    "case",
    "esac",
    "while",
    "<<E",
    "E",
    ">",
    ">>",
    "<",
    "<>",
    "2>&1",
    "<<<",
    "<(",
    "$((",
    "))",
    "[[",
    "]]",
    "*",
    "?",
    "[a",
    "A=1",
    "LD_PRELOAD=x",
    "!",
    "#",
    "--",
    "-",
    "=",
    "{a,b}",
    "~",
    "\t",
    "\u{feff}",
    "é",
    "\u{202e}",
    "\0",
    "99999999999",
    "eval",
    "trap",
    "busybox",
    "cd",
    "..",
    "function",
    "f()",
    "time",
    "exec",
];

/// How many pieces a script is made of, at most: enough for every construct inside every other.
const MAX_PIECES: usize = 48;

fn soup(input: &mut Input<'_>) -> String {
    let mut script = String::new();
    for _ in 0..MAX_PIECES {
        if input.is_empty() {
            break;
        }
        script.push_str(input.pick(PIECES));
        if input.roll(4) > 0 {
            script.push(' ');
        }
    }
    script
}

/// A stricter level is never laxer, and `readonly` does not ask.
pub(crate) fn levels(bytes: &[u8]) {
    let script = soup(&mut Input::new(bytes));
    let found = [Level::Readonly, Level::Supervised, Level::Full].map(|level| decision(base(level), &script));
    assert!(found[0] >= found[1] && found[1] >= found[2], "{script:?}: {found:?}");
    assert_ne!(found[0], Decision::Ask, "`readonly` does not ask: {script:?}");
}

/// Rules that refuse, paths that are forbidden and tools that always ask only ever narrow. A rule that asks is none of these:
/// it names a program, and a dangerous one that is named is asked about instead of refused.
pub(crate) fn deny(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let level = [Level::Readonly, Level::Supervised, Level::Full][input.roll(3)];
    let name = input.pick(&["ls", "rm", "git", "cat", "sh", "env", "sudo", "cargo", "curl", "busybox"]);
    let allowed = input.pick(&["", "git *", "cargo *", "curl *", "rm *", "sh *"]);
    let with_network = [None, Some(true), Some(false)][input.roll(3)];
    let script = soup(&mut input);
    let mut base = base(level).clone();
    let rule = |pattern: &str, decision| CommandRule::new(pattern, decision).expect("a pattern");
    if !allowed.is_empty() {
        base.rules.commands.push(rule(allowed, Decision::Allow).with_network(with_network));
    }
    let mut before = decision(&base, &script);
    let mut narrower = |what: &str, base: &Base| {
        let after = decision(base, &script);
        assert!(after >= before, "{script:?} with {what}: {before:?}, then {after:?}");
        before = after;
    };
    base.rules.commands.push(rule(&format!("{name} *"), Decision::Deny));
    narrower("a rule that refuses", &base);
    base.rules.forbidden_paths.push("/home/u/proj/src".into());
    narrower("a forbidden path", &base);
    base.rules.always_ask.push("shell".to_owned());
    narrower("a tool that always asks", &base);
    base.rules.workspace_only = Some(true);
    narrower("nothing outside", &base);
}

/// A command whose structure is known because it was made from it.
enum Tree {
    /// Words, plain ones.
    Simple(Vec<String>),
    /// A program that runs the one behind it.
    Wrapped(&'static [&'static str], Box<Tree>),
    /// A shell that gets it as a script.
    Script(Box<Tree>),
    /// Two of them with something between.
    Both(Box<Tree>, &'static str, Box<Tree>),
    /// One with something around it.
    Around(&'static str, Box<Tree>, &'static str),
}

const SIMPLE: &[(&[&str], Decision)] = &[
    (&["ls", "-l"], Decision::Allow),
    (&["cat", "a b"], Decision::Allow),
    (&["git", "status"], Decision::Allow),
    (&["grep", "x;y", "src"], Decision::Allow),
    (&["find", ".", "-name", "*.rs"], Decision::Allow),
    (&["touch", "x"], Decision::Ask),
    (&["rm", "x"], Decision::Ask),
    (&["cargo", "test"], Decision::Ask),
    (&["./ls"], Decision::Ask),
    (&["cat", "/etc/passwd"], Decision::Ask),
    (&["git", "-c", "x=y", "status"], Decision::Ask),
    (&["sort", "-o", "x", "y"], Decision::Ask),
    (&["rm", "-rf", "x"], Decision::Deny),
    (&["sudo", "ls"], Decision::Deny),
    (&["find", ".", "-delete"], Decision::Deny),
    (&["git", "reset", "--hard"], Decision::Deny),
    (&["cat", "/etc/shadow"], Decision::Deny),
    (&["cat", "../.ssh/id"], Decision::Deny),
];

const WRAPPERS: &[&[&str]] = &[
    &["env"],
    &["nohup"],
    &["timeout", "5"],
    &["nice", "-n", "3"],
    &["command"],
    &["env", "-i", "LANG=C"],
    &["setsid"],
];

fn tree(input: &mut Input<'_>, depth: usize) -> Tree {
    if depth == 0 {
        return Tree::Simple(SIMPLE[input.roll(SIMPLE.len())].0.iter().map(|word| (*word).to_owned()).collect());
    }
    match input.roll(6) {
        0 => Tree::Simple(SIMPLE[input.roll(SIMPLE.len())].0.iter().map(|word| (*word).to_owned()).collect()),
        1 => Tree::Wrapped(WRAPPERS[input.roll(WRAPPERS.len())], Box::new(tree(input, 0))),
        2 => Tree::Script(Box::new(tree(input, depth - 1))),
        3 | 4 => {
            let between = ["; ", " && ", " || ", " | ", "\n", " & "][input.roll(6)];
            Tree::Both(Box::new(tree(input, depth - 1)), between, Box::new(tree(input, depth - 1)))
        }
        _ => {
            let (before, after) = [
                ("(", ")"),
                ("{ ", "\n}"),
                ("if ", "\nthen true; fi"),
                ("while ", "\ndo break; done"),
                ("for x in a; do ", "\ndone"),
                ("{ case x in x) ", "\n;; esac\n}"),
                ("true && ", ""),
            ][input.roll(7)];
            let inner = if before == "true && " { tree(input, 0) } else { tree(input, depth - 1) };
            Tree::Around(before, Box::new(inner), after)
        }
    }
}

/// The slow evaluator: looks up whole commands and takes the strictest, without a grammar.
fn expected(tree: &Tree) -> Decision {
    match tree {
        Tree::Simple(words) => SIMPLE
            .iter()
            .find(|(known, _)| known.iter().eq(words.iter()))
            .map_or(Decision::Deny, |(_, decision)| *decision),
        Tree::Wrapped(_, inner) | Tree::Script(inner) | Tree::Around(_, inner, _) => expected(inner),
        Tree::Both(left, _, right) => expected(left).max(expected(right)),
    }
}

fn quoted(input: &mut Input<'_>, word: &str) -> String {
    let single = || format!("'{}'", word.replace('\'', "'\\''"));
    let double = || {
        let mut out = String::from("\"");
        for c in word.chars() {
            if matches!(c, '$' | '`' | '"' | '\\') {
                out.push('\\');
            }
            out.push(c);
        }
        out.push('"');
        out
    };
    let escaped =
        || word.chars().map(|c| if c == '\n' { "'\n'".to_owned() } else { format!("\\{c}") }).collect::<String>();
    let plain = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=".contains(&b));
    match input.roll(4) {
        0 if plain => word.to_owned(),
        1 => double(),
        2 => escaped(),
        _ => single(),
    }
}

fn render(input: &mut Input<'_>, tree: &Tree) -> String {
    match tree {
        Tree::Simple(words) => {
            let words: Vec<String> = words.iter().map(|word| quoted(input, word)).collect();
            words.join(input.pick(&[" ", "  ", "\t", " \\\n "]))
        }
        Tree::Wrapped(wrapper, inner) => {
            let words: Vec<String> = wrapper.iter().map(|word| quoted(input, word)).collect();
            format!("{} {}", words.join(" "), render(input, inner))
        }
        Tree::Script(inner) => {
            let script = render(input, inner);
            format!("sh -c {}", quoted(input, &script))
        }
        Tree::Both(left, between, right) => format!("{}{between}{}", render(input, left), render(input, right)),
        Tree::Around(before, inner, after) => format!("{before}{}{after}", render(input, inner)),
    }
}

/// A slow evaluator says the same, and quoting changes nothing.
pub(crate) fn evaluators(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let tree = tree(&mut input, 3);
    let expected = expected(&tree);
    for _ in 0..3 {
        let script = render(&mut input, &tree);
        let verdict = decide_command(base(Level::Supervised), &script).expect("there is a directory");
        assert_eq!(verdict.decision, expected, "{script}\n{:#?}", verdict.reasons);
    }
}

/// What an "always" covers it was said about, reads back as it was written, and covers nothing but one plain command.
pub(crate) fn grants(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let first = ["git status", "cargo test", "cargo build", "npm test", "git diff -p", "ls"][input.roll(6)];
    let script = format!("{first}{}{}", input.pick(&["", " ", " -s ", " --output=f ", "; "]), soup(&mut input));
    let roots = Roots::new(base(Level::Supervised).roots.clone());
    let run = |script: &str, network: bool| Action::Run {
        argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
        cwd: roots.locate(".").expect("a directory"),
        shown: script.to_owned(),
        network,
        pins: Vec::new(),
    };
    for network in [false, true] {
        let action = run(&script, network);
        let Some(grant) = Grant::propose("shell", &action) else { continue };
        assert!(grant.covers("shell", &action), "{script:?}");
        let rule = grant.rule().expect("a grant that is offered can be written");
        assert_eq!(Grant::parse("shell", &rule).as_ref(), Some(&grant), "{rule:?}");
        assert!(!grant.covers("file_write", &action), "{script:?}");
    }
    let grant = Grant::propose("shell", &run(first, false)).expect("a plain command");
    assert!(!grant.covers("shell", &run(&script, true)), "the network was not said: {script:?}");
    if grant.covers("shell", &run(&script, false)) {
        // A refusal still wins over it; what is covered is one command that begins as the one that was shown.
        let words = zeroclaw_policy::shell::simple_command(&script).expect("one plain command");
        assert!(words.join(" ").starts_with(first.trim_end_matches(" -p")), "{script:?}");
    }
}
