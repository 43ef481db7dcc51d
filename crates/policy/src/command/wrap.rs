//! Programs that run other programs: what they run is judged as if it stood alone.
//! An option that is not known makes the call unclear, because where the inner command begins is then a guess.

use crate::shell::{Assignment, Command, Word};

use super::{
    Call, Examiner, Risk, printable,
    table::{Wrapper, is_harmless_variable},
};

impl Examiner<'_> {
    pub(super) fn wrapper(&mut self, wrapper: Wrapper, call: &Call<'_>) {
        let shown = printable(&call.program.base);
        if !call.program.trusted {
            self.unclear(format!("`{}` is a file, not a program of the system", printable(&call.program.given)));
        }
        match wrapper {
            Wrapper::Prefix { flags, values, operands } => {
                if let Some(rest) = self.after_options(call, flags, values, operands) {
                    self.inner(rest, call);
                }
            }
            Wrapper::Command => {
                let looks =
                    call.arguments.first().and_then(Word::literal).is_some_and(|word| matches!(word, "-v" | "-V"));
                if looks {
                    self.arguments(call.arguments, false);
                } else if let Some(rest) = self.after_options(call, &["-p"], &[], 0) {
                    self.inner(rest, call);
                }
            }
            Wrapper::Env => self.env(call),
            Wrapper::Shell { posix } => self.shell(posix, call),
            Wrapper::Privilege => {
                self.find(
                    Risk::High { named: call.program.named },
                    format!("`{shown}` takes rights or places that the session does not have"),
                );
                self.arguments(call.arguments, true);
                // Where the inner command begins differs; the first word that is no option is the usual place.
                let start =
                    call.arguments.iter().position(|word| word.literal().is_none_or(|text| !text.starts_with('-')));
                let rest = start.and_then(|start| call.arguments.get(start..)).unwrap_or_default();
                self.inner(rest, call);
            }
            Wrapper::Xargs => self.xargs(call),
            Wrapper::Multicall => match call.arguments.first().and_then(Word::literal) {
                Some(name) if !name.starts_with('-') => self.inner(call.arguments, call),
                Some(_) | None => self.unclear(format!("what `{shown}` does is not known")),
            },
            Wrapper::Eval => self.eval(call),
            Wrapper::Trap => {
                self.unclear("`trap` runs something later");
                if let Some(script) = call.arguments.iter().filter_map(Word::literal).find(|word| *word != "--") {
                    let script = script.to_owned();
                    self.deeper(|examiner| examiner.script(&script));
                }
            }
        }
    }

    /// Looks at the command behind a wrapper.
    fn inner(&mut self, words: &[Word], call: &Call<'_>) {
        if words.is_empty() {
            return;
        }
        let inner = Command { words: words.to_vec(), assignments: Vec::new(), ..*call.command };
        self.deeper(|examiner| examiner.command(&inner));
    }

    /// The words behind a wrapper's options and `operands` further words.
    fn after_options<'a>(
        &mut self,
        call: &Call<'a>,
        flags: &[&str],
        values: &[&str],
        operands: usize,
    ) -> Option<&'a [Word]> {
        let mut words = call.arguments;
        loop {
            let (word, rest) = words.split_first()?;
            let Some(text) = word.literal() else {
                self.unclear(format!("what `{}` runs is only known when it runs", printable(&call.program.base)));
                return None;
            };
            if text == "--" {
                words = rest;
                break;
            }
            if !text.starts_with('-') || text.len() < 2 {
                break;
            }
            let name = text.split_once('=').map_or(text, |(name, _)| name);
            let numeric = text.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit());
            if flags.contains(&text) || numeric {
                words = rest;
            } else if values.contains(&text) {
                words = rest.get(1..).unwrap_or_default();
            } else if text.contains('=') && values.contains(&name)
                || values.iter().any(|value| value.len() == 2 && text.len() > 2 && text.starts_with(value))
            {
                words = rest;
            } else {
                let option = printable(text);
                self.unclear(format!("`{}` with `{option}` is not understood", printable(&call.program.base)));
                self.guess(call);
                return None;
            }
        }
        let rest = words.get(operands..).unwrap_or_default();
        self.arguments(words.get(..operands).unwrap_or_default(), true);
        Some(rest)
    }

    /// Where the inner command begins is not known: every word could be its name.
    fn guess(&mut self, call: &Call<'_>) {
        self.arguments(call.arguments, true);
        for start in 0..call.arguments.len().min(MAX_GUESSES) {
            let words = call.arguments.get(start..).unwrap_or_default();
            if words
                .first()
                .and_then(Word::literal)
                .is_some_and(|text| super::table::kind(&text.to_lowercase()).is_some())
            {
                self.inner(words, call);
                return;
            }
        }
    }

    fn env(&mut self, call: &Call<'_>) {
        let mut words = call.arguments;
        while let Some((word, rest)) = words.split_first() {
            let Some(text) = word.literal() else {
                self.unclear("what `env` runs is only known when it runs");
                return;
            };
            match text {
                "-i" | "-" | "--ignore-environment" | "-0" | "--null" | "-v" | "--debug" | "--" => words = rest,
                "-u" | "--unset" => words = rest.get(1..).unwrap_or_default(),
                "-C" | "--chdir" => {
                    if let Some(directory) = rest.first() {
                        self.enter(directory, call.command.repeated);
                        self.mentioned(directory);
                    }
                    words = rest.get(1..).unwrap_or_default();
                }
                _ if text.starts_with('-') => {
                    // `-S` splits a string into a command of its own.
                    self.unclear(format!("`env` with `{}` is not understood", printable(text)));
                    let glued = text.strip_prefix("-S").or_else(|| text.strip_prefix("--split-string="));
                    let script = match (text, glued) {
                        ("-S" | "--split-string", _) => rest.first().and_then(Word::literal),
                        (_, glued) => glued,
                    };
                    match script.map(str::to_owned) {
                        Some(script) => self.deeper(|examiner| examiner.script(&script)),
                        None => self.guess(call),
                    }
                    return;
                }
                _ => match text.split_once('=') {
                    Some((name, value)) => {
                        let assignment = Assignment { name: name.to_owned(), value: Word::Literal(value.to_owned()) };
                        if !is_harmless_variable(&assignment.name) {
                            let name = printable(name);
                            self.unclear(format!("the variable `{name}` is set and can change what runs"));
                        }
                        self.mentioned(&assignment.value);
                        words = rest;
                    }
                    None => break,
                },
            }
        }
        self.inner(words, call);
    }

    /// A shell: its script is read when it stands on the command line.
    fn shell(&mut self, posix: bool, call: &Call<'_>) {
        let shown = printable(&call.program.base);
        if !posix {
            self.unclear(format!("`{shown}` speaks a language that is not read here"));
        }
        let mut words = call.arguments;
        while let Some((word, rest)) = words.split_first() {
            let Some(text) = word.literal() else {
                self.unclear(format!("what `{shown}` runs is only known when it runs"));
                return;
            };
            if text == "--version" || text == "--help" {
                return;
            }
            if let Some(long) = text.strip_prefix("--") {
                if matches!(long, "posix" | "norc" | "noprofile" | "login" | "") {
                    words = rest;
                    continue;
                }
                self.unclear(format!("`{shown}` with `{}` is not understood", printable(text)));
                self.arguments(rest, true);
                return;
            }
            if text.len() > 1 && (text.starts_with('-') || text.starts_with('+')) {
                // `-l` and `-i` read start-up files, which are the user's own.
                let known = text
                    .bytes()
                    .skip(1)
                    .all(|b| matches!(b, b'c' | b'e' | b'u' | b'x' | b'l' | b'i' | b'n' | b'f' | b'v'));
                if !known {
                    self.unclear(format!("`{shown}` with `{}` is not understood", printable(text)));
                }
                if text.contains(['l', 'i']) {
                    self.unclear(format!("`{shown}` reads start-up files first"));
                }
                if text.starts_with('-') && text.contains('c') {
                    // Further options may stand between `-c` and the script.
                    let script =
                        rest.iter().find(|word| word.literal().is_none_or(|text| !text.starts_with(['-', '+'])));
                    match script {
                        Some(Word::Literal(script)) => self.deeper(|examiner| examiner.script(script)),
                        Some(_) | None => self.unclear(format!("what `{shown}` runs is only known when it runs")),
                    }
                    self.arguments(rest.get(1..).unwrap_or_default(), true);
                    return;
                }
                words = if text == "-o" || text == "+o" { rest.get(1..).unwrap_or_default() } else { rest };
                continue;
            }
            self.unclear(format!("`{shown}` runs a script file that is not read here"));
            self.runs(word);
            self.arguments(words, true);
            return;
        }
        if call.command.fed {
            self.find(Risk::High { named: call.program.named }, format!("`{shown}` runs whatever it is given"));
        } else {
            self.unclear(format!("`{shown}` waits for commands that are not known"));
        }
    }

    fn xargs(&mut self, call: &Call<'_>) {
        let flags =
            ["-0", "--null", "-r", "--no-run-if-empty", "-t", "--verbose", "-x", "--exit", "-o", "--open-tty", "-p"];
        let values = [
            "-a",
            "--arg-file",
            "-d",
            "--delimiter",
            "-E",
            "-I",
            "-i",
            "--replace",
            "-L",
            "--max-lines",
            "-n",
            "--max-args",
            "-P",
            "--max-procs",
            "-s",
            "--max-chars",
            "-l",
        ];
        let name = call.program.base.clone();
        if let Some(rest) = self.after_options(call, &flags, &values, 0) {
            self.found_then_run(&printable(&name), rest);
        } else {
            self.unclear(format!("`{}` runs another program on what it is given", printable(&name)));
        }
    }

    fn eval(&mut self, call: &Call<'_>) {
        self.unclear("`eval` runs a text as a command");
        let words: Option<Vec<&str>> = call.arguments.iter().map(Word::literal).collect();
        if let Some(words) = words {
            let script = words.join(" ");
            self.deeper(|examiner| examiner.script(&script));
        }
    }
}

/// How many places are tried where an unknown option hides the inner command.
const MAX_GUESSES: usize = 16;
