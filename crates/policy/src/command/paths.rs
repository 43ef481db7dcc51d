//! The files that a command line names: inside or outside the session's directories, forbidden or not.
//! A name is judged against every directory the command may find itself in. Links are not followed here.

use std::path::{Path, PathBuf};

use crate::{RootKind, path, shell::Word};

use super::{Examiner, MAX_DIRECTORIES, MAX_EXECUTED, Risk, printable};

/// How many readings of one argument are looked at.
const MAX_READINGS: usize = 16;

impl Examiner<'_> {
    /// Looks at arguments that may name files.
    pub(super) fn arguments(&mut self, arguments: &[Word], opens: bool) {
        self.located(arguments, opens, None);
    }

    /// The same, except that the argument at `skipped` is a text to search for and no file.
    pub(super) fn located(&mut self, arguments: &[Word], opens: bool, skipped: Option<usize>) {
        for (at, argument) in arguments.iter().enumerate() {
            self.operand(argument, opens && skipped != Some(at));
        }
    }

    /// A word that a program may open for reading.
    pub(super) fn operand(&mut self, word: &Word, opens: bool) {
        for reading in readings(word) {
            for path in self.resolve(&reading) {
                self.forbidden(&path);
                if opens && reading.is_path() && !self.is_inside(&path) && !is_stream(&path) {
                    let shown = printable(&word.shown());
                    self.find(Risk::Outside, format!("`{shown}` lies outside the session's directories"));
                }
            }
        }
        if let Word::Unknown(text) = word {
            self.embedded(&text.replace(['"', '\'', '\\'], ""));
        }
        if let Word::Home(_) = word
            && self.rules.home.is_none()
        {
            self.unclear("the home directory is not known");
        }
    }

    /// Keeps a file that is run, wherever in the session's directories its name may lead.
    pub(super) fn runs(&mut self, word: &Word) {
        let Some(reading) = readings(word).into_iter().next().filter(|_| word.literal().is_some()) else { return };
        for path in self.resolve(&reading) {
            if self.executed.len() < MAX_EXECUTED && self.is_inside(&path) && !self.executed.contains(&path) {
                self.executed.push(path);
            }
        }
    }

    /// A word that is not opened, and must not name what is forbidden either.
    pub(super) fn mentioned(&mut self, word: &Word) {
        self.operand(word, false);
    }

    /// A file that a redirection creates or changes.
    pub(super) fn written(&mut self, word: &Word) {
        let shown = printable(&word.shown());
        for reading in readings(word).into_iter().take(1) {
            for path in self.resolve(&reading) {
                if is_stream(&path) {
                    continue;
                }
                self.forbidden(&path);
                self.unclear(format!("it writes `{shown}`"));
                match self.roots.holder(&path) {
                    Some(root) if root.kind() == RootKind::ReadOnly => {
                        self.find(Risk::Refused, format!("`{shown}` lies in a read-only directory"));
                    }
                    Some(_) => {}
                    None => self.find(Risk::Outside, format!("`{shown}` lies outside the session's directories")),
                }
            }
        }
        if word.literal().is_none() {
            self.unclear(format!("the file `{shown}` is only known when the command runs"));
        }
    }

    /// A program that goes through whole directories must not come by a forbidden one.
    pub(super) fn recursion(&mut self, arguments: &[Word], program: &str) {
        let mut bases: Vec<PathBuf> =
            arguments.iter().flat_map(readings).flat_map(|reading| self.resolve(&reading)).collect();
        bases.extend(self.directories.clone());
        let reached =
            bases.iter().any(|base| self.forbidden.places().iter().any(|path| path != base && path.starts_with(base)));
        if reached {
            let program = printable(program);
            self.find(Risk::Refused, format!("`{program}` would go through a directory that holds a forbidden one"));
        }
    }

    /// A command that changes the directory of those after it.
    pub(super) fn enter(&mut self, word: &Word, repeated: bool) {
        let known = matches!(word, Word::Literal(_) | Word::Home(_));
        let target = readings(word).into_iter().next();
        let (Some(target), true, false) = (target, known, repeated) else {
            self.unclear("the working directory is only known when the command runs");
            return;
        };
        for path in self.resolve(&target) {
            if !self.is_inside(&path) {
                self.find(Risk::Outside, "the command leaves the session's directories");
            }
            if self.directories.contains(&path) {
                continue;
            }
            if self.directories.len() >= MAX_DIRECTORIES {
                self.unclear("the command changes its directory too often to be followed");
                return;
            }
            self.directories.push(path);
        }
    }

    /// Whether every directory a command may find itself in is one of the session's own, not one below.
    pub(super) fn is_in_root(&self) -> bool {
        self.directories.iter().all(|directory| self.roots.iter().any(|root| root.path() == directory))
    }

    fn is_inside(&self, path: &Path) -> bool {
        self.roots.holder(path).is_some()
    }

    fn forbidden(&mut self, path: &Path) {
        if self.forbidden.holds(path) {
            self.find(Risk::Refused, "it names a path that is forbidden");
        }
    }

    /// Every place that a reading may mean.
    fn resolve(&self, reading: &Reading) -> Vec<PathBuf> {
        match reading {
            Reading::Absolute(text) => path::normalize(Path::new(text)).into_iter().collect(),
            Reading::Home(rest) => {
                let home = self.rules.home.as_deref();
                home.and_then(|home| path::normalize(&home.join(rest.trim_start_matches('/')))).into_iter().collect()
            }
            Reading::Relative(text) => {
                let join = |directory: &PathBuf| {
                    // Climbing above the root directory ends there.
                    path::normalize(&directory.join(text)).unwrap_or_else(|| PathBuf::from("/"))
                };
                self.directories.iter().map(join).collect()
            }
            Reading::Pattern(text) => self.matches(text),
        }
    }

    /// The forbidden places that a pattern can come to name, and the place it starts from.
    fn matches(&self, pattern: &str) -> Vec<PathBuf> {
        let mut out = Vec::new();
        for directory in &self.directories {
            // A wildcard stands for one name, so `*/..` cancels out like any other name.
            let whole = path::normalize(&directory.join(pattern)).unwrap_or_else(|| PathBuf::from("/"));
            out.push(whole.iter().take_while(|part| !part.to_string_lossy().contains(['*', '?', '['])).collect());
            let matched = |forbidden: &&PathBuf| {
                forbidden.iter().count() <= whole.iter().count()
                    && forbidden
                        .iter()
                        .zip(whole.iter())
                        .all(|(name, part)| name == part || glob(&part.to_string_lossy(), &name.to_string_lossy()))
            };
            out.extend(self.forbidden.places().iter().filter(matched).cloned());
        }
        out
    }

    /// A text that is a program or only known later must not hold the name of a forbidden path anywhere.
    pub(super) fn embedded(&mut self, text: &str) {
        let home = self.rules.home.as_deref().and_then(Path::to_str);
        let found = self.forbidden.places().iter().filter_map(|path| path.to_str()).any(|path| {
            let below = home.and_then(|home| path.strip_prefix(home)).filter(|below| below.starts_with('/'));
            text.contains(path)
                || below.is_some_and(|below| {
                    ["~", "$HOME", "${HOME}"].iter().any(|name| text.contains(&format!("{name}{below}")))
                })
        });
        if found {
            self.find(Risk::Refused, "it names a path that is forbidden");
        }
    }
}

/// One way to read an argument as the name of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reading {
    Absolute(String),
    Home(String),
    Relative(String),
    Pattern(String),
}

impl Reading {
    fn of(text: &str) -> Self {
        if text.starts_with('/') { Self::Absolute(text.to_owned()) } else { Self::Relative(text.to_owned()) }
    }

    /// Whether it looks like more than a plain name, so that it can lead out.
    fn is_path(&self) -> bool {
        match self {
            Self::Absolute(_) | Self::Home(_) | Self::Pattern(_) => true,
            Self::Relative(text) => (text.contains('/') || text == "..") && !text.contains("://"),
        }
    }
}

/// Every way in which programs read an argument: as it is, behind `=`, `:`, `@` or `,`, and glued to an option.
fn readings(word: &Word) -> Vec<Reading> {
    let text = match word {
        Word::Home(rest) => return vec![Reading::Home(rest.clone())],
        Word::Pattern(text) => {
            let mut out = vec![Reading::Pattern(text.clone())];
            out.extend(text.split_once('=').map(|(_, value)| Reading::Pattern(value.to_owned())));
            return out;
        }
        Word::Unknown(text) => {
            let text = text.replace(['"', '\'', '\\'], "");
            let rest = text.strip_prefix("$HOME").or_else(|| text.strip_prefix("${HOME}"));
            return match rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
                Some(rest) => vec![Reading::Home(rest.to_owned())],
                None => vec![Reading::Relative(text)],
            };
        }
        Word::Literal(text) => text,
    };
    let mut out = vec![Reading::of(text)];
    let mut add = |part: &str| {
        let reading = match part.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Reading::Home(rest.to_owned()),
            Some(_) | None => Reading::of(part),
        };
        if !part.is_empty() && out.len() < MAX_READINGS && !out.contains(&reading) {
            out.push(reading);
        }
    };
    if text.starts_with('~') {
        // Quoted, the shell leaves it; some programs then expand it themselves.
        add(text);
    }
    if text.starts_with('-') {
        // An option: its value may be glued to it.
        if let Some(at) = text.find(['/', '~']) {
            add(text.get(at..).unwrap_or_default());
        }
        if !text.starts_with("--") {
            add(text.get(2..).unwrap_or_default());
        }
    }
    match text.split_once("://") {
        Some((scheme, rest)) if scheme.ends_with("file") => add(rest),
        // An address names no file of this machine.
        Some(_) => {}
        None => text.split(['=', ':', '@', ',']).skip(1).for_each(add),
    }
    out
}

/// The files of the system that are no files: writing to them changes nothing, reading from them tells nothing.
fn is_stream(path: &Path) -> bool {
    matches!(path.to_str(), Some("/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr" | "/dev/zero" | "/dev/tty"))
}

/// Whether a pattern of one path component matches a name. A bracket is taken to match any character.
/// The work is bounded by the product of both lengths: only the last star is ever tried again.
fn glob(pattern: &str, name: &str) -> bool {
    // A wildcard never stands for the dot in front of a hidden name.
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let pattern = simplified(pattern);
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some('?') => {
                p += 1;
                n += 1;
            }
            Some(c) if Some(c) == name.get(n) => {
                p += 1;
                n += 1;
            }
            Some(_) | None => match retry {
                Some((star, from)) => {
                    p = star + 1;
                    n = from + 1;
                    retry = Some((star, n));
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

/// Replaces every bracket expression by the wildcard for one character.
fn simplified(pattern: &str) -> Vec<char> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '[' {
            out.push(c);
            continue;
        }
        let rest = chars.as_str();
        // The bracket closes at the first `]` that is not its first character.
        let first = rest.strip_prefix(['!', '^']).map_or(0, |_| 1) + 1;
        match rest.char_indices().skip(first).find(|(_, c)| *c == ']') {
            Some((end, _)) => {
                out.push('?');
                chars = rest.get(end + 1..).unwrap_or_default().chars();
            }
            None => out.push('['),
        }
    }
    out
}
