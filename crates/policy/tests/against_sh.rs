//! The shell itself is asked: whatever it tries to run must have been found when the script was taken apart.
//!
//! Scripts are put together at random from pieces that matter to a shell. Every name in them is one that no program has,
//! so the shell runs nothing and says for each that it was not found.
#![cfg(unix)]

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
};

use zeroclaw_policy::shell::{Step, Word, parse};

/// The pieces, joined with and without blanks.
const PIECES: &[&str] = &[
    "qa",
    "qb",
    "qc",
    "qd",
    "'qe'",
    "\"qf\"",
    "q\\g",
    "'q h'",
    "qi",
    "qj",
    "qk",
    ";",
    ";",
    "&",
    "&&",
    "||",
    "||",
    "|",
    "|",
    "\n",
    "\n",
    "(",
    ")",
    "{ ",
    " }",
    "; }",
    "! ",
    "if ",
    "; then ",
    "; else ",
    "; fi",
    "while ",
    "until ",
    "; do ",
    "; done",
    "for x in ",
    "case qa in qa) ",
    " ;; esac",
    "<<E\n",
    "\nE\n",
    "<<'E'\n",
    "<<-E\n",
    "\tE\n",
    "\\",
    "'",
    "\"",
    "#",
    " #",
    "A=1 ",
    "A='x y' ",
    "=",
    "\\\n",
    "\t",
    ">/dev/null",
    "2>&1",
    "</dev/null",
    "<&-",
    "qf() ",
    "{",
    "}",
    "~",
    "*",
    "[",
    "]",
    "-",
    "2",
    "E",
    "do",
    "done",
    "in",
    "then",
    "fi",
    "esac",
    "!",
    "<",
    ">",
    "<<",
    "$",
    "`",
    "$(",
    ";;",
    "\u{a0}",
    "é",
    "<>",
];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or_default() % sides
    }

    fn script(&mut self) -> String {
        let count = 1 + self.roll(14);
        let mut script = String::new();
        for _ in 0..count {
            script.push_str(PIECES[self.roll(PIECES.len())]);
            if self.roll(3) > 0 {
                script.push(' ');
            }
        }
        script
    }
}

/// The names that a shell tried to run, and those that a script was found to have; `None` when it is not understood.
fn found(script: &str) -> Option<BTreeSet<String>> {
    let parsed = parse(script);
    if !parsed.unclear.is_empty() {
        return None;
    }
    let mut names = BTreeSet::new();
    for step in parsed.steps {
        if let Step::Command(command) = step
            && let Some(first) = command.words.first()
        {
            match first {
                Word::Literal(name) => names.insert(name.clone()),
                // Such a name is asked about, whatever it becomes.
                Word::Home(_) | Word::Pattern(_) | Word::Unknown(_) => return None,
            };
        }
    }
    Some(names)
}

#[expect(clippy::expect_used, reason = "a helper of tests, which need a shell")]
fn tried(shell: &[&str], script: &str, directory: &Path) -> BTreeSet<String> {
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .args(["-c", script])
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/nonexistent")
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    errors
        .lines()
        .filter_map(|line| line.strip_suffix(": not found").or_else(|| line.strip_suffix(": command not found")))
        .filter_map(|line| line.rsplit_once(": ").map(|(_, name)| name.to_owned()))
        // Shells write other names in a notation of their own, and two that write at once mix their lines.
        .filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric()))
        .collect()
}

#[test]
fn whatever_a_shell_runs_was_found_before() {
    let directory = std::env::temp_dir().join(format!("zeroclaw-policy-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let mut shells = vec![vec!["/bin/sh"]];
    if Path::new("/bin/bash").exists() {
        shells.push(vec!["/bin/bash", "--posix"]);
        shells.push(vec!["/bin/bash"]);
    }
    let seed = std::env::var("POLICY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x9e37_79b9_7f4a_7c15);
    let wanted: usize = std::env::var("POLICY_SCRIPTS").ok().and_then(|count| count.parse().ok()).unwrap_or(300);
    let mut dice = Dice(seed);
    let mut understood = 0;
    while understood < wanted {
        let script = dice.script();
        // A loop whose condition is true and whose body fails would never end.
        if script.contains("until") || script.contains("while") || script.contains('>') && !script.contains("/dev/null")
        {
            continue;
        }
        let Some(found) = found(&script) else { continue };
        understood += 1;
        for shell in &shells {
            let tried = tried(shell, &script, &directory);
            let mut missed: BTreeSet<String> = tried.difference(&found).cloned().collect();
            for _ in 0..3 {
                // What is there by the chance of two lines at once is not there again.
                if !missed.is_empty() {
                    let again = self::tried(shell, &script, &directory);
                    missed.retain(|name| again.contains(name));
                }
            }
            assert!(missed.is_empty(), "{shell:?} ran {missed:?} of {script:?}, found {found:?}");
        }
    }
    std::fs::remove_dir_all(&directory).expect("the directory is ours");
}
