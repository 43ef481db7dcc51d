//! Judges what a command line does: every simple command of every construct, and every file it names.
//!
//! The result is a list of findings, never a decision: what a finding means is the business of level and rules.
//! Nothing here runs, opens or looks up anything; a path is judged by its name alone.

mod git;
mod network;
mod paths;
mod special;
mod table;
mod wrap;

use std::path::{Path, PathBuf};

use crate::{
    Forbidden, Roots, Ruleset,
    shell::{self, Access, Command, Step, Word},
};

pub(crate) use network::Reach;

use self::table::{Kind, is_harmless_variable, is_option, is_system_directory};

/// What one finding means for the level that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Risk {
    /// Reads inside the session's directories.
    Low,
    /// Changes something, or cannot be understood before it runs.
    Medium,
    /// Destroys in bulk or takes rights; `named` when a rule of the operator names the program.
    High { named: bool },
    /// Reaches over the network.
    Network,
    /// Reads outside the session's directories.
    Outside,
    /// A rule of the operator refuses it, whatever the level.
    Refused,
    /// A rule of the operator wants it asked about, whatever the level.
    Asked,
}

/// One thing that was found out about a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) risk: Risk,
    pub(crate) text: String,
}

/// What was found out about a whole command line.
#[derive(Clone, Debug)]
pub(crate) struct Examined {
    /// At least one.
    pub(crate) findings: Vec<Finding>,
    /// What it is after, as far as no rule of the operator has it run without.
    pub(crate) reach: Reach,
    /// Whether rules of the operator give the network to all of it that does more than read.
    pub(crate) granted: bool,
    /// Files inside the session's directories that are run.
    pub(crate) executed: Vec<PathBuf>,
}

/// How deep wrappers and nested scripts are followed; deeper ones are unclear.
const MAX_DEPTH: usize = 8;

/// How many commands are looked at, nested ones included.
const MAX_COMMANDS: usize = 4096;

/// How many working directories a script may have come through; more are unclear.
const MAX_DIRECTORIES: usize = 8;

/// How many files that are run are kept; a command that names more is not held to the rest.
const MAX_EXECUTED: usize = 32;

/// How many findings are kept. The first of each kind already decides.
const MAX_FINDINGS: usize = 64;

/// Finds out what a program with these arguments does when it starts in `cwd`.
pub(crate) fn examine(rules: &Ruleset, roots: &Roots, argv: &[String], cwd: &Path) -> Examined {
    let mut examiner = Examiner {
        rules,
        roots,
        forbidden: rules.forbidden(roots),
        directories: vec![cwd.to_path_buf()],
        findings: Vec::new(),
        depth: 0,
        left: MAX_COMMANDS,
        reach: Reach::None,
        granted: false,
        without: false,
        executed: Vec::new(),
    };
    let words = argv.iter().cloned().map(Word::Literal).collect();
    // The shell that the tool itself starts is no command of the model's, so no rule is about it.
    if let [program, flag, script] = argv
        && program == "/bin/sh"
        && flag == "-c"
    {
        examiner.script(script);
    } else {
        examiner.command(&Command { words, ..Command::default() });
    }
    let granted = examiner.granted && !examiner.without && examiner.findings.is_empty();
    if examiner.findings.is_empty() {
        examiner.find(Risk::Low, "it reads inside the session's directories");
    }
    Examined { findings: examiner.findings, reach: examiner.reach, granted, executed: examiner.executed }
}

struct Examiner<'a> {
    rules: &'a Ruleset,
    roots: &'a Roots,
    forbidden: Forbidden,
    /// Every directory that a command may find itself in.
    directories: Vec<PathBuf>,
    findings: Vec<Finding>,
    depth: usize,
    left: usize,
    reach: Reach,
    /// Whether a rule gave a command the network.
    granted: bool,
    /// Whether a rule allowed a command, and not the network.
    without: bool,
    executed: Vec<PathBuf>,
}

impl Examiner<'_> {
    fn find(&mut self, risk: Risk, text: impl Into<String>) {
        let finding = Finding { risk, text: text.into() };
        if self.findings.contains(&finding) {
            return;
        }
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else if !self.findings.iter().any(|known| known.risk == risk) {
            // A new kind of risk must not be lost behind many of another.
            self.findings.push(finding);
        }
    }

    fn unclear(&mut self, text: impl Into<String>) {
        self.find(Risk::Medium, text);
    }

    /// Looks at everything that a script does.
    fn script(&mut self, text: &str) {
        let script = shell::parse(text);
        for unclear in &script.unclear {
            self.unclear(unclear.to_string());
        }
        if script.steps.is_empty() && script.unclear.is_empty() {
            return;
        }
        for step in &script.steps {
            match step {
                Step::Command(command) => self.command(command),
                Step::Redirect(redirect) => match redirect.access {
                    Access::Read => self.operand(&redirect.target, true),
                    Access::Write => self.written(&redirect.target),
                },
            }
        }
    }

    /// Runs `look` one level deeper, or says that it is too deep.
    fn deeper(&mut self, look: impl FnOnce(&mut Self)) {
        if self.depth >= MAX_DEPTH {
            self.unclear("commands run commands too deeply to be read");
            return;
        }
        self.depth += 1;
        look(self);
        self.depth -= 1;
    }

    /// Looks at one simple command.
    fn command(&mut self, command: &Command) {
        if self.left == 0 {
            self.unclear("the command has too many parts to be read");
            return;
        }
        self.left -= 1;
        for assignment in &command.assignments {
            if !is_harmless_variable(&assignment.name) {
                let name = printable(&assignment.name);
                self.unclear(format!("the variable `{name}` is set and can change what runs"));
            }
            self.mentioned(&assignment.value);
        }
        let Some((first, arguments)) = command.words.split_first() else { return };
        let Some(name) = first.literal() else {
            self.unclear(format!("the program `{}` is only known when it runs", printable(&first.shown())));
            self.arguments(arguments, true);
            return;
        };
        if name.is_empty() {
            self.unclear("the program has no name");
            return;
        }
        let program = self.program(name);
        if name.contains('/') && !program.trusted {
            self.runs(first);
        }
        let operand = |word: &&Word| word.literal().is_none_or(|text| !text.starts_with('-'));
        if interprets_files(&program.folded)
            && let Some(file) = arguments.iter().find(operand)
        {
            self.runs(file);
        }
        let allowed = self.by_rules(&program, command);
        let call = Call { program: &program, arguments, command };
        match table::kind(&program.folded) {
            Some(Kind::Wrapper(wrapper)) => self.wrapper(wrapper, &call),
            kind => {
                if allowed.is_none() {
                    self.plain(kind, &call);
                }
                let known = kind.filter(|_| program.trusted);
                self.reaches(network::reach(known, &program.folded, arguments), allowed);
                let opens = !matches!(
                    &*program.folded,
                    "echo" | "printf" | ":" | "true" | "false" | "seq" | "expr" | "basename" | "dirname"
                ) || kind.is_none();
                let skipped = usize::from(matches!(kind, Some(Kind::Special(table::Special::Grep))))
                    * special::pattern_position(arguments).map_or(0, |at| at + 1);
                self.located(arguments, opens, skipped.checked_sub(1));
                if recurses(&program.folded, arguments) {
                    self.recursion(arguments, &program.folded);
                }
            }
        }
    }

    /// Keeps what a command is after. A rule that allows the command decides about its network as well.
    fn reaches(&mut self, reach: Reach, allowed: Option<Allowed>) {
        let Some(Allowed { network }) = allowed else {
            self.reach = self.reach.max(reach);
            return;
        };
        // A rule about what is of no use without the network means it to be of use.
        if network.unwrap_or(reach == Reach::Needs) {
            self.granted = true;
            self.reach = self.reach.max(reach).max(Reach::Downloads);
        } else {
            self.without = true;
        }
    }

    /// Judges a program that is no wrapper by what is known about it.
    fn plain(&mut self, kind: Option<Kind>, call: &Call<'_>) {
        let shown = printable(&call.program.base);
        if let Some(Kind::Danger(what)) = kind {
            self.find(Risk::High { named: call.program.named }, format!("`{shown}` {what}"));
            return;
        }
        if !call.program.trusted {
            let what = "is a file, not a program of the system";
            self.unclear(format!("`{}` {what}", printable(&call.program.given)));
            // What is dangerous under its name stays so wherever it lies.
            if let Some(Kind::Special(special)) = kind {
                self.special(special, call);
            }
            return;
        }
        match kind {
            None => self.unclear(format!("`{shown}` is not a program that is known to be harmless")),
            Some(Kind::Plain) => {}
            Some(Kind::Except(options)) => {
                self.no_injection(call);
                let found = call.arguments.iter().filter_map(Word::literal).find_map(|argument| {
                    options.iter().find(|option| is_option(argument, option)).map(|option| (*option).to_owned())
                });
                if let Some(option) = found {
                    self.unclear(format!("`{shown}` with `{option}` writes or runs something"));
                }
            }
            Some(Kind::Special(special)) => self.special(special, call),
            Some(Kind::Changes(what)) => self.unclear(format!("`{shown}` {what}")),
            Some(Kind::Network) => self.find(Risk::Network, format!("`{shown}` uses the network")),
            Some(Kind::Interprets) => self.unclear(format!("`{shown}` runs a program that is not read here")),
            // Handled by the callers: above, and in `command`.
            Some(Kind::Danger(_) | Kind::Wrapper(_)) => {}
        }
    }

    /// A file name pattern can become an option, which matters where options do more than read.
    fn no_injection(&mut self, call: &Call<'_>) {
        let mut ended = false;
        for argument in call.arguments {
            match argument {
                Word::Literal(text) if text == "--" => ended = true,
                Word::Pattern(text) if !ended && text.starts_with(['*', '?', '[', '-']) => {
                    self.unclear(format!("`{}` can become an option", printable(text)));
                }
                Word::Literal(_) | Word::Home(_) | Word::Pattern(_) | Word::Unknown(_) => {}
            }
        }
    }

    /// What is called: its name without a system directory, and whether that can be believed.
    fn program(&mut self, name: &str) -> Program {
        let given = name.to_owned();
        let (directory, base) = name.rsplit_once('/').map_or((None, name), |(directory, base)| (Some(directory), base));
        let trusted = match directory {
            Some(directory) => is_system_directory(directory),
            None => {
                if let Some(searched) = self.rules.search_path.iter().find(|path| self.is_writable_place(path)) {
                    let searched = printable(&searched.display().to_string());
                    self.unclear(format!("programs are searched in `{searched}`, which the session can change"));
                }
                true
            }
        };
        let folded = base.strip_suffix(".exe").unwrap_or(base).to_lowercase();
        // Another letter case is the same program on some systems and an unknown one on others.
        let trusted = trusted && (folded == base || table::kind(&folded).is_none());
        let named = self.rules.names_command(&folded);
        Program { given, base: base.to_owned(), folded, trusted, named }
    }

    fn is_writable_place(&self, path: &Path) -> bool {
        !path.is_absolute() || self.roots.iter().any(|root| path.starts_with(root.path()))
    }

    /// Applies the operator's rules about commands; tells how one of them allows this one.
    fn by_rules(&mut self, program: &Program, command: &Command) -> Option<Allowed> {
        let shown = printable(&program.base);
        if !self.rules.permits_command(&program.folded) {
            self.find(Risk::Refused, format!("`{shown}` is not among the allowed commands"));
        }
        let mut allowed: Option<Allowed> = None;
        for rule in &self.rules.commands {
            if !rule.matches(program.trusted, &program.folded, &command.words) {
                continue;
            }
            let rule_text = printable(rule.pattern());
            match rule.decision() {
                crate::Decision::Allow => {
                    let before = allowed.and_then(|allowed| allowed.network);
                    allowed = Some(Allowed { network: before.max(rule.network()) });
                }
                crate::Decision::Ask => self.find(Risk::Asked, format!("the rule `{rule_text}` asks first")),
                crate::Decision::Deny => self.find(Risk::Refused, format!("the rule `{rule_text}` refuses it")),
            }
        }
        allowed
    }
}

/// A program as it was called.
#[derive(Debug)]
struct Program {
    given: String,
    base: String,
    folded: String,
    /// Whether it is the system's program of that name.
    trusted: bool,
    /// Whether a rule of the operator names it.
    named: bool,
}

/// A rule of the operator that allows a command.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    /// What it says about the network; `None` leaves it to the command.
    network: Option<bool>,
}

/// A call that is looked at.
struct Call<'a> {
    program: &'a Program,
    arguments: &'a [Word],
    command: &'a Command,
}

impl Call<'_> {
    fn literals(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().filter_map(Word::literal)
    }

    fn has(&self, option: &str) -> bool {
        self.literals().any(|argument| is_option(argument, option))
    }
}

/// Whether a program goes through directories below the ones it is given and hands on what it finds.
fn recurses(name: &str, arguments: &[Word]) -> bool {
    let has = |options: &[&str]| {
        arguments
            .iter()
            .filter_map(Word::literal)
            .any(|argument| options.iter().any(|option| is_option(argument, option)))
    };
    match name {
        "grep" | "egrep" | "fgrep" | "zgrep" => {
            has(&["-r", "-R", "--recursive", "--dereference-recursive", "-d", "--directories"])
        }
        "cp" => has(&["-r", "-R", "-a", "--recursive", "--archive"]),
        "chmod" | "chown" | "chgrp" => has(&["-R", "--recursive"]),
        "rm" => has(&["-r", "-R", "--recursive"]),
        "scp" => has(&["-r"]),
        "rg" | "ripgrep" | "ag" | "tar" | "zip" | "7z" | "rsync" | "mv" | "cpio" | "pax" | "tokei" => true,
        "diff" => has(&["-r", "--recursive"]),
        _ => false,
    }
}

/// Whether the first operand of a program is a file that it runs.
fn interprets_files(name: &str) -> bool {
    let interpreters =
        ["python", "python3", "node", "ruby", "perl", "php", "lua", "tclsh", "rscript", "julia", "source", "."];
    interpreters.contains(&name)
}

/// How much of a word is shown in a reason.
const SHOWN: usize = 80;

/// A word for a reason: short, on one line, and unable to end the quotes around it.
fn printable(text: &str) -> String {
    let mut out: String =
        text.chars().take(SHOWN).map(|c| if c.is_control() || c == '`' { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() {
        out.push('…');
    }
    out
}
