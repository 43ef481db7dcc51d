//! Shell scripts as values: every simple command and redirection of a script, with quoting resolved.
//!
//! The grammar is that of a POSIX `sh`, since that is what runs the script; where shells disagree, the script is unclear.
//! This module says what a script contains, never whether that is allowed, and it expands nothing: a word whose value
//! only the running shell knows stays unknown.

mod limits;
mod walk;
mod word;

use thiserror::Error;

pub use limits::{MAX_NESTING, MAX_SCRIPT};

/// One word of a command, as far as it is known before the shell runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Exactly this text, quotes and escapes resolved.
    Literal(String),
    /// The home directory followed by this text, which is empty or starts with `/`.
    Home(String),
    /// A file name pattern; the shell replaces it with the names that match, or leaves it as it is.
    Pattern(String),
    /// Only the running shell knows; the text is as it was written.
    Unknown(String),
}

impl Word {
    /// The value, when it is known.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(text) => Some(text),
            Self::Home(_) | Self::Pattern(_) | Self::Unknown(_) => None,
        }
    }

    /// The word for people to read.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Literal(text) | Self::Pattern(text) | Self::Unknown(text) => text.clone(),
            Self::Home(rest) => format!("~{rest}"),
        }
    }
}

/// An assignment in front of a command, or one that stands alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The variable.
    pub name: String,
    /// What it is set to.
    pub value: Word,
}

/// One simple command: assignments and words, without the redirections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The assignments in front.
    pub assignments: Vec<Assignment>,
    /// The name and the arguments; empty when there are only assignments or redirections.
    pub words: Vec<Word>,
    /// Whether it stands in a loop, so that it can run more than once.
    pub repeated: bool,
    /// Whether something else than the terminal or nothing is its standard input: a pipe, a file or a document.
    pub fed: bool,
}

/// What a redirection does with its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Opens it for reading.
    Read,
    /// Creates, empties, extends or overwrites it.
    Write,
}

/// One redirection to or from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// What happens with the file.
    pub access: Access,
    /// The file.
    pub target: Word,
}

/// One thing that a script does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Runs a command.
    Command(Command),
    /// Opens a file.
    Redirect(Redirect),
}

/// A script taken apart. The steps are in the order of the text, those of nested commands included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Every simple command and every redirection.
    pub steps: Vec<Step>,
    /// What could not be understood without running it.
    pub unclear: Vec<Unclear>,
    /// Whether the script is exactly one simple command, with nothing around it.
    pub single: bool,
}

/// Why (a part of) a script cannot be understood without running it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unclear {
    /// The text is longer than [`MAX_SCRIPT`].
    #[error("the command is longer than {MAX_SCRIPT} bytes")]
    TooLong,
    /// Groups are nested deeper than [`MAX_NESTING`].
    #[error("the command is nested too deeply to be read")]
    TooDeep,
    /// A NUL byte or another control character.
    #[error("the command contains a control character")]
    Control,
    /// The grammar does not accept it.
    #[error("the command is not a plain shell script")]
    Grammar,
    /// `$name`, `$(…)` or another value that only the running shell knows.
    #[error("`{0}` is only known when the command runs")]
    Expansion(String),
    /// Shells disagree about what it means.
    #[error("shells disagree about `{0}`")]
    Dialect(String),
    /// A function changes what later names mean.
    #[error("`{0}` is defined as a function")]
    Function(String),
}

/// Takes a script apart. Never fails: what cannot be read is in [`Script::unclear`].
#[must_use]
pub fn parse(script: &str) -> Script {
    walk::parse(script, 0)
}

/// The words of a script that is exactly one simple command of literal words.
///
/// `None` for everything else: an expansion, a pattern, a redirection, an assignment, a list, a pipeline, a comment
/// with a command behind it, or text that cannot be read.
///
/// ```
/// use zeroclaw_policy::shell::simple_command;
///
/// assert_eq!(simple_command(r#"git commit -m "two words""#).expect("simple"), ["git", "commit", "-m", "two words"]);
/// assert_eq!(simple_command("ls; rm x"), None);
/// assert_eq!(simple_command("ls $HOME"), None);
/// ```
#[must_use]
pub fn simple_command(script: &str) -> Option<Vec<String>> {
    let script = parse(script);
    if !script.single || !script.unclear.is_empty() {
        return None;
    }
    match script.steps.as_slice() {
        [Step::Command(command)] if command.assignments.is_empty() && !command.words.is_empty() => {
            command.words.iter().map(|word| word.literal().map(str::to_owned)).collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
