//! Programs whose arguments decide what they do.

use crate::shell::Word;

use super::{
    Call, Examiner, Risk, printable, recurses,
    table::{Special, is_option},
};

impl Examiner<'_> {
    pub(super) fn special(&mut self, special: Special, call: &Call<'_>) {
        let shown = printable(&call.program.base);
        match special {
            Special::Cd => self.cd(call),
            Special::Chmod => self.chmod(call),
            Special::Date => {
                self.no_injection(call);
                let sets = call.has("-s") || call.has("--set");
                let number = call.literals().any(|word| word.starts_with(|c: char| c.is_ascii_digit()));
                if sets || number {
                    self.find(Risk::High { named: call.program.named }, "`date` sets the clock");
                }
            }
            Special::Fd => {
                self.no_injection(call);
                let runs = ["-x", "-X", "--exec", "--exec-batch"];
                if let Some(at) = position(call.arguments, &runs) {
                    self.found_then_run(&shown, call.arguments.get(at + 1..).unwrap_or_default());
                }
            }
            Special::Find => self.find_program(call),
            Special::Git => self.git(call),
            Special::Grep => {}
            Special::Hostname => {
                self.no_injection(call);
                let harmless = |word: &str| matches!(word, "-f" | "-s" | "-d" | "-i" | "-I" | "--fqdn" | "--short");
                if !call.arguments.iter().all(|word| word.literal().is_some_and(harmless)) {
                    self.find(Risk::High { named: call.program.named }, "`hostname` changes the machine's name");
                }
            }
            Special::OneOperand => {
                self.no_injection(call);
                // `uniq in out` writes, and so does `xxd -r in out`.
                let operands = call.arguments.iter().filter(|word| match word {
                    Word::Literal(text) => !text.starts_with('-'),
                    Word::Home(_) | Word::Pattern(_) | Word::Unknown(_) => true,
                });
                let pattern = call.arguments.iter().any(|word| matches!(word, Word::Pattern(_)));
                if operands.count() > 1 || pattern || call.has("-r") || call.has("--revert") {
                    self.unclear(format!("`{shown}` with two files writes the second"));
                }
            }
            Special::Rm => self.rm(call),
            Special::Sed => self.sed(call),
            Special::Systemctl => {
                let reads =
                    |word: &str| matches!(word, "status" | "list-units" | "is-active" | "show" | "cat" | "list");
                if !call.literals().find(|word| !word.starts_with('-')).is_some_and(reads) {
                    self.find(Risk::High { named: call.program.named }, format!("`{shown}` changes the system"));
                }
            }
            Special::Tool => self.tool(call),
        }
    }

    fn cd(&mut self, call: &Call<'_>) {
        let mut targets =
            call.arguments.iter().filter(|word| !matches!(word.literal(), Some("--" | "-P" | "-L" | "-e" | "-@")));
        match (targets.next(), targets.next()) {
            (None, _) => self.enter(&Word::Home(String::new()), call.command.repeated),
            (Some(Word::Literal(text)), None) if text == "-" => {
                // Back to a directory that was looked at already.
            }
            (Some(word), None) => self.enter(word, call.command.repeated),
            (Some(_), Some(_)) => self.unclear("`cd` with several directories is not understood"),
        }
    }

    fn chmod(&mut self, call: &Call<'_>) {
        let privileged = |word: &str| {
            let digits = word.trim_start_matches('0');
            let number = digits.len() == 4 && digits.bytes().all(|b| (b'0'..=b'7').contains(&b));
            let letters = word.contains(['+', '=']) && !word.starts_with('-') && word.contains('s');
            number || letters
        };
        if call.literals().any(privileged) {
            self.find(Risk::High { named: call.program.named }, "`chmod` lets a program run with other rights");
        } else if call.has("-R") || call.has("--recursive") {
            self.find(Risk::High { named: call.program.named }, "`chmod` changes the rights of a whole directory");
        } else {
            self.unclear("`chmod` changes the rights of files");
        }
    }

    fn rm(&mut self, call: &Call<'_>) {
        let recursive = recurses("rm", call.arguments) || call.has("--dir") || call.has("--no-preserve-root");
        if recursive {
            self.find(Risk::High { named: call.program.named }, "`rm` deletes whole directories");
        } else {
            self.unclear("`rm` deletes files");
            self.no_injection(call);
        }
    }

    /// `find`: what it runs is judged with a file name nobody knows yet.
    fn find_program(&mut self, call: &Call<'_>) {
        self.no_injection(call);
        for (at, argument) in call.arguments.iter().enumerate() {
            let Some(word) = argument.literal() else { continue };
            match word {
                "-exec" | "-execdir" | "-ok" | "-okdir" => {
                    let rest = call.arguments.get(at + 1..).unwrap_or_default();
                    let end = rest.iter().position(|word| matches!(word.literal(), Some(";" | "+")));
                    self.found_then_run("find", rest.get(..end.unwrap_or(rest.len())).unwrap_or_default());
                    self.recursion(call.arguments, "find");
                }
                "-delete" => {
                    self.find(Risk::High { named: call.program.named }, "`find` deletes everything it finds");
                }
                "-fprint" | "-fprint0" | "-fprintf" | "-fls" => {
                    let target = call.arguments.get(at + 1).cloned();
                    self.written(&target.unwrap_or_else(|| Word::Unknown(String::new())));
                }
                "-files0-from" => self.unclear("`find` reads the names of its directories from a file"),
                _ => {}
            }
        }
    }

    /// A command that gets file names which are only known when it runs.
    pub(super) fn found_then_run(&mut self, program: &str, words: &[Word]) {
        let mut words = words.to_vec();
        words.push(Word::Unknown("{}".to_owned()));
        self.unclear(format!("`{program}` runs another program on what it finds"));
        self.deeper(|examiner| {
            examiner.command(&crate::shell::Command { words, ..crate::shell::Command::default() });
        });
    }

    /// `sed`: only scripts that print, delete and stop by line number are known to do nothing else.
    fn sed(&mut self, call: &Call<'_>) {
        self.no_injection(call);
        let harmless = |script: &str| {
            script
                .bytes()
                .all(|b| b.is_ascii_digit() || matches!(b, b',' | b'$' | b';' | b' ' | b'p' | b'd' | b'q' | b'='))
        };
        let mut script = None;
        for word in call.arguments {
            let Some(text) = word.literal() else {
                self.unclear("`sed` runs a script that is not read here");
                return;
            };
            match text {
                "-n" | "--quiet" | "--silent" | "-E" | "-r" | "--" => {}
                _ if text.starts_with('-') && text.len() > 1 => {
                    self.unclear(format!("`sed` with `{}` changes files or runs a script", printable(text)));
                    return;
                }
                _ => {
                    script = Some(text);
                    break;
                }
            }
        }
        if !script.is_some_and(harmless) {
            self.unclear("`sed` can write files and run programs");
        }
    }

    /// Compilers, package managers and interpreters: only asking for their version does nothing.
    fn tool(&mut self, call: &Call<'_>) {
        let shown = printable(&call.program.base);
        let only = match call.arguments {
            [only] => only.literal(),
            _ => None,
        };
        let asks = match &*call.program.folded {
            // A script of this name could be run.
            "npx" | "pnpx" | "bunx" | "uvx" | "code" => None,
            "go" => only.filter(|word| *word == "version"),
            _ => only.filter(|word| matches!(*word, "--version" | "-V")),
        };
        if asks.is_some() {
            return;
        }
        for word in call.arguments {
            if let Some(text) = word.literal() {
                self.embedded(text);
            }
        }
        self.unclear(format!("`{shown}` builds, tests, installs or runs code"));
    }
}

/// Where one of these options stands.
fn position(arguments: &[Word], options: &[&str]) -> Option<usize> {
    arguments
        .iter()
        .position(|word| word.literal().is_some_and(|text| options.iter().any(|option| is_option(text, option))))
}

/// Where the text that `grep` searches for stands, unless an option holds it.
pub(super) fn pattern_position(arguments: &[Word]) -> Option<usize> {
    let elsewhere = |word: &Word| {
        word.literal().is_some_and(|text| {
            is_option(text, "-e") || is_option(text, "-f") || text.starts_with("--r") || text.starts_with("--f")
        })
    };
    if arguments.iter().any(elsewhere) {
        return None;
    }
    arguments.iter().position(|word| !word.literal().is_some_and(|text| text.starts_with('-') && text.len() > 1))
}
