//! Slash commands that are ours or the user's: `/model`, `/mode`, `/usage`, `/compact`, and one for each Markdown file in the project's
//! `.zeroclaw/commands` and in the agent's own `commands` directory. Commands of a model stay the model's business.

use std::path::Path;

use zeroclaw_policy::Ruleset;
use zeroclaw_runtime::jail::EntryKind;

use crate::{agents::AgentEntry, choices::Chosen, error::CallError, prompt::fits, workspace::Workspace};

/// Command files of one directory, at most.
const MAX_FILES: usize = 256;

/// Bytes of one command file, at most.
const MAX_FILE: u64 = 64 * 1024;

/// Bytes that a command is expanded to, at most. Counted before, so that a small file cannot ask for all memory.
const MAX_PROMPT: usize = 32 * 1024 * 1024;

/// Where the project keeps its commands, below the session's directory.
const PROJECT: &str = ".zeroclaw/commands";

/// Where the agent keeps its own, below its workspace.
const OWN: &str = "commands";

/// What stands for the words behind a command.
const ARGUMENTS: &str = "$ARGUMENTS";

/// The commands of every session: name, description, hint.
pub(crate) const SESSION_COMMANDS: [(&str, &str, &str); 4] = [
    ("model", "Show the models, or choose one", "[MODEL]"),
    ("mode", "Show the modes, or choose one", "[MODE]"),
    ("usage", "Show the tokens used in this session", ""),
    ("compact", "Replace the conversation that the model sees by a summary", "[WHAT MATTERS]"),
];

/// A command of the session itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionCommand {
    Model(Option<String>),
    Mode(Option<String>),
    Usage,
    /// With what the user wishes of the summary; empty for nothing.
    Compact(String),
}

impl SessionCommand {
    /// Reads a prompt that is one of these commands and nothing else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, rest) = split(text)?;
        let argument = Some(rest.trim()).filter(|rest| !rest.is_empty()).map(str::to_owned);
        match name {
            "model" => Some(Self::Model(argument)),
            "mode" => Some(Self::Mode(argument)),
            "usage" if argument.is_none() => Some(Self::Usage),
            "compact" => Some(Self::Compact(argument.unwrap_or_default())),
            _ => None,
        }
    }
}

/// A command that a file defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileCommand {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) hint: Option<String>,
    body: String,
}

impl FileCommand {
    fn parse(name: &str, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (head, body) = front_matter(text);
        let field = |key: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(':'));
            let found = lines.filter(|(name, _)| name.trim() == key).map(|(_, value)| unquote(value.trim())).next();
            found.filter(|value| !value.is_empty()).map(one_line)
        };
        let first = body.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        Self {
            name: name.to_owned(),
            description: field("description").unwrap_or_else(|| one_line(first)),
            hint: field("argument-hint"),
            body: body.trim().to_owned(),
        }
    }

    /// The prompt that the command stands for, as far as it fits into one.
    fn expand(&self, arguments: &str) -> Result<String, CallError> {
        let times = self.body.matches(ARGUMENTS).count().max(1);
        let length = arguments.len().saturating_mul(times).saturating_add(self.body.len());
        let text = if length > MAX_PROMPT {
            None
        } else if self.body.contains(ARGUMENTS) {
            Some(self.body.replace(ARGUMENTS, arguments))
        } else if arguments.is_empty() {
            Some(self.body.clone())
        } else {
            Some(format!("{}\n\n{arguments}", self.body))
        };
        text.filter(|text| fits(text)).ok_or_else(|| CallError::params("the command makes too long a prompt"))
    }
}

/// Reads the command files of a session; the project's come first and win. A command of the session or of its model is
/// never a file's. Blocking.
pub(crate) fn read(workspace: &Workspace, entry: &AgentEntry, chosen: &Chosen) -> Vec<FileCommand> {
    let model = chosen.model(entry).map_or(&[][..], |choice| &choice.commands);
    let mut commands: Vec<FileCommand> = Vec::new();
    for directory in [workspace.cwd.join(PROJECT), entry.workspace.join(OWN)] {
        for command in read_directory(workspace, &directory, &entry.rules) {
            let reserved = SESSION_COMMANDS.iter().any(|(name, _, _)| *name == command.name)
                || model.iter().any(|own| own.name == command.name);
            if !reserved && !commands.iter().any(|known| known.name == command.name) {
                commands.push(command);
            }
        }
    }
    commands
}

/// What a prompt that calls a file's command stands for.
pub(crate) fn expand(text: &str, commands: &[FileCommand]) -> Result<Option<String>, CallError> {
    let Some((name, rest)) = split(text) else { return Ok(None) };
    let Some(command) = commands.iter().find(|command| command.name == name) else { return Ok(None) };
    command.expand(rest.trim()).map(Some)
}

/// Everything goes through the jail: a link in a repository must not turn a foreign file into a command.
fn read_directory(workspace: &Workspace, directory: &Path, rules: &Ruleset) -> Vec<FileCommand> {
    let roots = workspace.jail.roots();
    let files = workspace.jail.files(rules);
    let Some(located) = directory.to_str().and_then(|path| roots.locate(path).ok()) else { return Vec::new() };
    let Ok(listing) = files.read_dir(&located, MAX_FILES) else { return Vec::new() };
    let mut commands: Vec<FileCommand> = listing
        .entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::File)
        .filter_map(|entry| {
            let file = entry.name.to_str()?;
            let name = file.strip_suffix(".md").filter(|name| is_name(name))?;
            let path = roots.locate(directory.join(file).to_str()?).ok()?;
            let bytes = files.read_bounded(&path, MAX_FILE).ok()?;
            Some(FileCommand::parse(name, std::str::from_utf8(&bytes).ok()?))
        })
        .collect();
    commands.sort_by(|a, b| a.name.cmp(&b.name));
    commands
}

/// Splits `/name rest`; `None` when the text is no command.
fn split(text: &str) -> Option<(&str, &str)> {
    let call = text.strip_prefix('/')?;
    let end = call.find(char::is_whitespace).unwrap_or(call.len());
    let (name, rest) = call.split_at(end);
    is_name(name).then_some((name, rest))
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':'))
}

/// The lines between a leading and a closing `---`, and what follows.
fn front_matter(text: &str) -> (&str, &str) {
    let opened = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n"));
    let Some(rest) = opened else { return ("", text) };
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return (rest.get(..at).unwrap_or_default(), rest.get(at + line.len()..).unwrap_or_default());
        }
        at += line.len();
    }
    ("", text)
}

fn unquote(value: &str) -> &str {
    let stripped = |quote| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
    stripped('"').or_else(|| stripped('\'')).unwrap_or(value)
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::{ARGUMENTS, FileCommand, SessionCommand, split};

    #[test]
    fn a_file_says_what_its_command_is() {
        let text =
            "---\ndescription: \"Review a change\"\nargument-hint: [REV]\nother: x\n---\n\nReview $ARGUMENTS now.\n";
        let command = FileCommand::parse("review", text);
        assert_eq!(command.description, "Review a change");
        assert_eq!(command.hint.as_deref(), Some("[REV]"));
        assert_eq!(command.expand("HEAD~1").unwrap(), "Review HEAD~1 now.");

        let plain = FileCommand::parse("plain", "# Do it\n\nPlease.");
        assert_eq!((plain.description.as_str(), plain.hint.as_deref()), ("# Do it", None));
        assert_eq!(plain.expand("").unwrap(), "# Do it\n\nPlease.");
        assert_eq!(plain.expand("twice").unwrap(), "# Do it\n\nPlease.\n\ntwice");

        let open = FileCommand::parse("open", "---\nnot closed");
        assert_eq!(open.expand("").unwrap(), "---\nnot closed");

        let many = FileCommand::parse("many", &ARGUMENTS.repeat(5_000));
        assert!(many.expand(&"x".repeat(10_000)).is_err(), "a small file does not make a huge prompt");
    }

    #[test]
    fn only_whole_commands_are_commands() {
        assert_eq!(split("/a b\nc"), Some(("a", " b\nc")));
        assert_eq!(split("/etc/hosts is"), None);
        assert_eq!(split("a /b"), None);
        assert_eq!(SessionCommand::parse("/model"), Some(SessionCommand::Model(None)));
        assert_eq!(SessionCommand::parse("/mode full"), Some(SessionCommand::Mode(Some("full".into()))));
        assert_eq!(SessionCommand::parse("/usage"), Some(SessionCommand::Usage));
        assert_eq!(SessionCommand::parse("/usage of this"), None);
        assert_eq!(SessionCommand::parse("/models"), None);
    }
}
