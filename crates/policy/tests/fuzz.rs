//! Random commands against what must always hold: no panic, a deny never widens, quoting never changes a verdict, and a
//! second evaluator that knows the command's structure, and not its text, says the same.
//!
//! `cargo xtask fuzz --seconds N` runs this for longer.

use std::time::{Duration, Instant};

use zeroclaw_policy::{
    CommandRule, Decision, Level, Root, RootKind, Ruleset,
    cases::{Base, decide_command},
};

/// Rounds of an ordinary test run.
const ROUNDS: usize = 400;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or_default() % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

/// Calls `round` a fixed number of times, or for the time that is asked for.
fn rounds(seed: u64, mut round: impl FnMut(&mut Dice)) {
    let seconds: Option<u64> = std::env::var("POLICY_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let mut dice = Dice(seed);
    match seconds {
        None => (0..ROUNDS).for_each(|_| round(&mut dice)),
        Some(seconds) => {
            dice.0 ^= std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |now| u64::from(now.subsec_nanos()) | 1);
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(seconds) {
                (0..20).for_each(|_| round(&mut dice));
            }
        }
    }
}

fn base(level: Level) -> Base {
    let mut rules = Ruleset::new(level);
    rules.home = Some("/home/u".into());
    rules.forbidden_paths = vec!["/etc/shadow".into(), "/home/u/.ssh".into()];
    Base { rules, roots: vec![Root::new("/home/u/proj".into(), RootKind::Session)] }
}

#[expect(clippy::expect_used, reason = "a helper of tests, whose base has a directory")]
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

fn soup(dice: &mut Dice) -> String {
    let mut script = String::new();
    for _ in 0..=dice.roll(40) {
        script.push_str(dice.pick(PIECES));
        if dice.roll(4) > 0 {
            script.push(' ');
        }
    }
    script
}

#[test]
fn nothing_makes_it_fail_and_a_stricter_level_is_never_laxer() {
    let [readonly, supervised, full] = [Level::Readonly, Level::Supervised, Level::Full].map(base);
    rounds(0x1234_5678_9abc_def1, |dice| {
        let script = soup(dice);
        let found = [&readonly, &supervised, &full].map(|base| decision(base, &script));
        assert!(found[0] >= found[1] && found[1] >= found[2], "{script:?}: {found:?}");
        assert_ne!(found[0], Decision::Ask, "`readonly` does not ask: {script:?}");
    });
}

#[test]
fn a_rule_that_refuses_never_widens() {
    rounds(0x0bad_cafe_1234_5677, |dice| {
        let script = soup(dice);
        let level = [Level::Readonly, Level::Supervised, Level::Full][dice.roll(3)];
        let mut base = base(level);
        let before = decision(&base, &script);
        let name = dice.pick(&["ls", "rm", "git", "cat", "sh", "env", "sudo"]);
        let pattern = format!("{name} *");
        base.rules.commands.push(CommandRule::new(&pattern, Decision::Deny).expect("a pattern"));
        let denied = decision(&base, &script);
        assert!(denied >= before, "{script:?} with a rule against {name}: {before:?}, then {denied:?}");
        base.rules.forbidden_paths.push("/home/u/proj/src".into());
        let forbidden = decision(&base, &script);
        assert!(forbidden >= denied, "{script:?}: {denied:?}, then {forbidden:?}");
    });
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

fn tree(dice: &mut Dice, depth: usize) -> Tree {
    if depth == 0 {
        return Tree::Simple(SIMPLE[dice.roll(SIMPLE.len())].0.iter().map(|word| (*word).to_owned()).collect());
    }
    match dice.roll(6) {
        0 => Tree::Simple(SIMPLE[dice.roll(SIMPLE.len())].0.iter().map(|word| (*word).to_owned()).collect()),
        1 => Tree::Wrapped(WRAPPERS[dice.roll(WRAPPERS.len())], Box::new(tree(dice, 0))),
        2 => Tree::Script(Box::new(tree(dice, depth - 1))),
        3 | 4 => {
            let between = ["; ", " && ", " || ", " | ", "\n", " & "][dice.roll(6)];
            Tree::Both(Box::new(tree(dice, depth - 1)), between, Box::new(tree(dice, depth - 1)))
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
            ][dice.roll(7)];
            let inner = if before == "true && " { tree(dice, 0) } else { tree(dice, depth - 1) };
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

fn quoted(dice: &mut Dice, word: &str) -> String {
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
    match dice.roll(4) {
        0 if plain => word.to_owned(),
        1 => double(),
        2 => escaped(),
        _ => single(),
    }
}

fn render(dice: &mut Dice, tree: &Tree) -> String {
    match tree {
        Tree::Simple(words) => {
            let words: Vec<String> = words.iter().map(|word| quoted(dice, word)).collect();
            words.join(dice.pick(&[" ", "  ", "\t", " \\\n "]))
        }
        Tree::Wrapped(wrapper, inner) => {
            let words: Vec<String> = wrapper.iter().map(|word| quoted(dice, word)).collect();
            format!("{} {}", words.join(" "), render(dice, inner))
        }
        Tree::Script(inner) => {
            let script = render(dice, inner);
            format!("sh -c {}", quoted(dice, &script))
        }
        Tree::Both(left, between, right) => format!("{}{between}{}", render(dice, left), render(dice, right)),
        Tree::Around(before, inner, after) => format!("{before}{}{after}", render(dice, inner)),
    }
}

#[test]
fn a_slow_evaluator_says_the_same_and_quoting_changes_nothing() {
    let base = base(Level::Supervised);
    rounds(0x0dd0_beef_0001_0203, |dice| {
        let tree = tree(dice, 3);
        let expected = expected(&tree);
        for _ in 0..3 {
            let script = render(dice, &tree);
            let verdict = decide_command(&base, &script).expect("there is a directory");
            assert_eq!(verdict.decision, expected, "{script}\n{:#?}", verdict.reasons);
        }
    });
}
