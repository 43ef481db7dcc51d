//! The programs whose first words say what a call is about, and the further words that make it about something else.
//!
//! A program or sub-command that is not in the table is covered by its exact words only. Words that let a harmless
//! sub-command run another program, write another file or work elsewhere are refused, also where an option may be
//! abbreviated; a word that is refused wrongly costs a question.

/// A program of the table, found for a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// How many words of the command are its prefix.
    pub(super) prefix: usize,
    rest: &'static Rest,
}

struct Program {
    name: &'static str,
    /// Sub-commands that are the second word of a prefix.
    commands: &'static [&'static str],
    /// Sub-commands whose prefix has a third word: what they run.
    runs: &'static [&'static str],
    /// Whether any second word is a prefix, which it is not as an option or assignment.
    targets: bool,
    rest: Rest,
}

/// Which words may follow a prefix.
#[derive(Debug)]
enum Rest {
    /// All but these: names of long options, which may be abbreviated and have one dash or two, and letters of short ones.
    But { names: &'static [&'static str], letters: &'static str, abbreviated: bool },
    /// Operands, and of the options in front of `--` only these.
    Operands { options: &'static [&'static str] },
    /// Only these.
    Only { options: &'static [&'static str] },
}

const SCRIPTS: Rest = Rest::Operands { options: &["-s", "--silent", "--if-present"] };

const PROGRAMS: &[Program] = &[
    Program {
        name: "git",
        commands: &[
            "blame",
            "branch",
            "describe",
            "diff",
            "log",
            "ls-files",
            "rev-parse",
            "shortlog",
            "show",
            "status",
        ],
        runs: &[],
        targets: false,
        rest: Rest::But {
            names: &[
                "contents",
                "copy",
                "create-reflog",
                "delete",
                "edit-description",
                "exec",
                "ext-diff",
                "force",
                "move",
                "no-index",
                "open-files-in-pager",
                "output",
                "parseopt",
                "set-upstream-to",
                "textconv",
                "track",
                "unset-upstream",
                "upload-pack",
            ],
            letters: "CDMOdfmotu",
            abbreviated: true,
        },
    },
    Program {
        name: "cargo",
        commands: &["bench", "build", "check", "clippy", "doc", "fmt", "test", "tree"],
        runs: &[],
        targets: false,
        rest: Rest::But {
            names: &[
                "allow-dirty",
                "allow-no-vcs",
                "allow-staged",
                "artifact-dir",
                "broken-code",
                "config",
                "config-path",
                "emit",
                "fix",
                "lockfile-path",
                "logfile",
                "manifest-path",
                "open",
                "out-dir",
                "target-dir",
            ],
            letters: "CZ",
            abbreviated: false,
        },
    },
    Program {
        name: "go",
        commands: &["build", "test", "vet"],
        runs: &[],
        targets: false,
        rest: Rest::But {
            names: &[
                "C",
                "asmflags",
                "blockprofile",
                "c",
                "coverprofile",
                "cpuprofile",
                "exec",
                "gccgoflags",
                "gcflags",
                "gocoverdir",
                "ldflags",
                "memprofile",
                "modfile",
                "mutexprofile",
                "o",
                "outputdir",
                "overlay",
                "pgo",
                "pkgdir",
                "testlogfile",
                "toolexec",
                "trace",
                "vettool",
                "work",
            ],
            letters: "",
            abbreviated: false,
        },
    },
    Program { name: "npm", commands: &["test"], runs: &["run", "run-script"], targets: false, rest: SCRIPTS },
    Program { name: "pnpm", commands: &["test"], runs: &["run"], targets: false, rest: SCRIPTS },
    Program { name: "yarn", commands: &["test"], runs: &["run"], targets: false, rest: SCRIPTS },
    Program {
        name: "make",
        commands: &[],
        runs: &[],
        targets: true,
        rest: Rest::Only { options: &["-k", "-s", "--keep-going", "--silent", "--no-print-directory"] },
    },
];

/// Finds the prefix of a command, without regard to what follows it.
pub(super) fn find(words: &[String]) -> Option<Known> {
    let mut words = words.iter().map(String::as_str);
    let (first, second, third) = (words.next()?, words.next()?, words.next());
    let program = PROGRAMS.iter().find(|program| program.name == first)?;
    let is_name = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/'))
    };
    let prefix = if program.runs.contains(&second) {
        third.filter(|third| is_name(third)).map(|_| 3)
    } else {
        (program.commands.contains(&second) || (program.targets && is_name(second))).then_some(2)
    };
    Some(Known { prefix: prefix?, rest: &program.rest })
}

impl Known {
    /// Whether nothing behind the prefix makes the command do something else.
    pub(super) fn is_harmless(self, words: &[String]) -> bool {
        let rest = words.iter().skip(self.prefix).map(String::as_str);
        match self.rest {
            Rest::But { names, letters, abbreviated } => {
                let mut rest = rest;
                rest.all(|word| !is_refused(word, names, letters, *abbreviated))
            }
            Rest::Operands { options } => {
                let mut rest = rest.take_while(|word| *word != "--");
                rest.all(|word| !word.starts_with('-') || options.contains(&word))
            }
            Rest::Only { options } => {
                let mut rest = rest;
                rest.all(|word| options.contains(&word))
            }
        }
    }
}

fn is_refused(word: &str, names: &[&str], letters: &str, abbreviated: bool) -> bool {
    let Some(option) = word.strip_prefix('-') else { return false };
    let long = option.strip_prefix('-');
    let name = long.unwrap_or(option);
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    // Go takes the options of a test with this in front as well.
    let name = name.strip_prefix("test.").unwrap_or(name);
    let named = |known: &&str| *known == name || (abbreviated && !name.is_empty() && known.starts_with(name));
    // Short options may stand together, and the value of one may follow it at once.
    let lettered = long.is_none() && option.chars().any(|letter| letters.contains(letter));
    (long.is_some() || letters.is_empty()) && names.iter().any(named) || lettered
}
