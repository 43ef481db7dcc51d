//! How many commands a second are judged: those of the tables in `tests/data`, and one as long as is read at all.
//! `cargo xtask bench policy` runs it in release; each line of its output is a name, a number and a time in nanoseconds.
#![expect(clippy::print_stdout, clippy::expect_used, reason = "a developer program talks to the terminal")]

use std::{
    fs,
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use zeroclaw_policy::{
    Level, Root, RootKind, Ruleset,
    cases::{Base, decide_command},
    shell::MAX_SCRIPT,
};

/// How long each kind is measured at least.
const SPAN: Duration = Duration::from_secs(2);

fn main() {
    let mut rules = Ruleset::new(Level::Supervised);
    rules.home = Some("/home/u".into());
    rules.forbidden_paths = ["/etc/shadow", "/home/u/.ssh", "/home/u/.zeroclaw"].map(Into::into).to_vec();
    let base = Base { rules, roots: vec![Root::new("/home/u/proj".into(), RootKind::Session)] };
    let tables = commands();
    measure("commands of the tables", &base, &tables);
    measure("`git status`", &base, &["git status".to_owned()]);
    let mut long = "grep -rn 'fn main' src; ".repeat(MAX_SCRIPT / 24);
    long.truncate(MAX_SCRIPT);
    measure("the longest that is read", &base, &[long.trim_end_matches([' ', ';', '\'']).to_owned()]);
}

fn measure(name: &str, base: &Base, commands: &[String]) {
    let began = Instant::now();
    let mut count = 0_u64;
    while began.elapsed() < SPAN {
        for command in commands {
            black_box(decide_command(black_box(base), command).expect("there is a directory"));
        }
        count += commands.len() as u64;
    }
    println!("{name}\t{count}\t{}", began.elapsed().as_nanos());
}

/// The commands of every table that are written as they are.
fn commands() -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).expect("the tables") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a table");
        let words = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
        let plain = words.filter(|(word, _)| matches!(*word, "allow" | "ask" | "deny"));
        all.extend(plain.map(|(_, command)| command.trim().to_owned()));
    }
    all
}
