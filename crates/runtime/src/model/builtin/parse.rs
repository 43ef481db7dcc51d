//! The command language of the built-in agent: from a prompt to commands.
//!
//! Commands stand in the first paragraph of a prompt, so that attachments, which follow after a blank line, are never
//! taken for commands. Only a fenced block and the text of `/write` and `/edit` reach beyond it.

/// What a prompt is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// Commands, in order.
    Commands(Vec<Command>),
    /// It begins with a slash and a word that is no command.
    Unknown(String),
    /// Not a command.
    Other,
}

/// One command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// List the commands.
    Help,
    /// Show a file.
    Read {
        /// The file.
        path: String,
        /// First and last line, from 1.
        lines: Option<(u64, u64)>,
    },
    /// List a directory.
    List {
        /// The directory.
        path: String,
    },
    /// Find files.
    Find {
        /// A glob.
        pattern: String,
    },
    /// Search in files.
    Grep {
        /// A regular expression.
        pattern: String,
        /// Where.
        path: Option<String>,
    },
    /// Run a command.
    Run {
        /// The command line.
        command: String,
    },
    /// Write a file.
    Write {
        /// The file.
        path: String,
        /// Its text.
        content: String,
    },
    /// Replace text.
    Edit {
        /// The file.
        path: String,
        /// What is replaced.
        old: String,
        /// What replaces it.
        new: String,
    },
    /// Set the plan.
    Plan {
        /// Its steps.
        steps: Vec<String>,
    },
    /// Show a thought.
    Think(String),
    /// Ask the user.
    Ask {
        /// The question.
        question: String,
        /// The answers on offer.
        choices: Vec<String>,
    },
    /// Hand over a file.
    Deliver {
        /// The file.
        path: String,
    },
    /// Answer in chunks.
    Say(u64),
    /// A command that cannot be understood.
    Wrong {
        /// Its name.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
}

/// Reads a prompt.
pub(super) fn commands(prompt: &str) -> Parsed {
    let prompt = without_leading_attachments(prompt);
    let Some(first) = name_of(prompt.lines().next().unwrap_or_default()) else { return Parsed::Other };
    if !is_command(first) {
        return Parsed::Unknown(first.chars().take(MAX_SHOWN_NAME).collect());
    }
    Parsed::Commands(split(prompt).into_iter().map(Block::command).collect())
}

/// Prompts name attached documents and images in lines of their own; those before the text are skipped.
fn without_leading_attachments(prompt: &str) -> &str {
    let mut rest = prompt.trim_start();
    while rest.starts_with("[Document:") || rest.starts_with("[IMAGE:") {
        let (_, after) = rest.split_once('\n').unwrap_or((rest, ""));
        rest = after.trim_start();
    }
    rest
}

/// A command's line and the lines that belong to it.
struct Block<'a> {
    name: &'a str,
    rest: &'a str,
    /// Everything after the first line, fences included.
    body: &'a str,
}

/// Cuts the prompt into blocks: a new one begins with each command line that is not inside a fence.
fn split(prompt: &str) -> Vec<Block<'_>> {
    let mut starts = Vec::new();
    let (mut at, mut fenced, mut end) = (0, false, prompt.len());
    for line in prompt.split_inclusive('\n') {
        let trimmed = line.trim();
        if trimmed.starts_with(FENCE) {
            fenced = !fenced;
        } else if !fenced {
            if name_of(trimmed).is_some_and(is_command) {
                starts.push(at);
            } else if trimmed.is_empty() {
                // The rest of the prompt belongs to the last command if that one takes a text of any length.
                let open = starts.last().and_then(|start| prompt.get(*start..)).and_then(name_of);
                let takes_all = matches!(open, Some("write" | "edit"));
                end = if takes_all { prompt.len() } else { at };
                break;
            }
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).copied().chain([end]).collect::<Vec<_>>();
    starts.iter().zip(ends).filter_map(|(start, end)| prompt.get(*start..end)).map(Block::new).collect()
}

impl<'a> Block<'a> {
    fn new(text: &'a str) -> Self {
        let (line, body) = text.split_once('\n').unwrap_or((text, ""));
        let line = line.trim();
        let name = name_of(line).unwrap_or_default();
        let rest = line.strip_prefix('/').and_then(|line| line.strip_prefix(name)).unwrap_or_default();
        Self { name, rest: rest.trim_start(), body }
    }

    fn command(self) -> Command {
        let name = self.name.to_owned();
        self.read().unwrap_or_else(|problem| Command::Wrong { name, problem })
    }

    fn read(self) -> Result<Command, &'static str> {
        match self.name {
            "help" => Ok(Command::Help),
            "read" => {
                let (path, rest) = word(self.rest).ok_or(NO_PATH)?;
                let lines = if rest.is_empty() { None } else { Some(line_range(rest)?) };
                Ok(Command::Read { path, lines })
            }
            "ls" => match word(self.rest) {
                None => Ok(Command::List { path: ".".to_owned() }),
                Some((path, "")) => Ok(Command::List { path }),
                Some(_) => Err(TOO_MUCH),
            },
            "find" => Ok(Command::Find { pattern: only(self.rest, "a pattern is missing")? }),
            "grep" => {
                let (pattern, rest) = word(self.rest).ok_or("a pattern is missing")?;
                let path = if rest.is_empty() { None } else { Some(only(rest, TOO_MUCH)?) };
                Ok(Command::Grep { pattern, path })
            }
            "run" => Ok(Command::Run { command: needed(&self.whole(), "a command is missing")? }),
            "write" => self.write(),
            "edit" => self.edit(),
            "plan" => {
                let steps = parts(self.rest, ';');
                if steps.is_empty() { Err("a step is missing") } else { Ok(Command::Plan { steps }) }
            }
            "think" => Ok(Command::Think(needed(&self.whole(), "a text is missing")?)),
            "ask" => {
                let mut parts = parts(self.rest, '|').into_iter();
                let question = parts.next().ok_or("a question is missing")?;
                Ok(Command::Ask { question, choices: parts.collect() })
            }
            "deliver" => Ok(Command::Deliver { path: only(self.rest, NO_PATH)? }),
            "say" => match self.rest.parse() {
                Ok(count) if count <= MAX_CHUNKS => Ok(Command::Say(count)),
                Ok(_) => Err("the number is over 10,000,000"),
                Err(_) => Err("a number is missing"),
            },
            _ => Err("there is no such command"),
        }
    }

    /// The rest of the line and the lines that follow it.
    fn whole(&self) -> String {
        format!("{}\n{}", self.rest, self.body).trim().to_owned()
    }

    /// `/write PATH TEXT`, or the text on the next lines, as it is or as one fenced block.
    fn write(self) -> Result<Command, &'static str> {
        let (path, rest) = word(self.rest).ok_or(NO_PATH)?;
        let content = match (rest, fences(self.body).as_slice()) {
            ("", [only]) => (*only).to_owned(),
            ("", _) => self.body.to_owned(),
            (rest, _) if self.body.is_empty() => rest.to_owned(),
            (rest, _) => format!("{rest}\n{}", self.body),
        };
        Ok(Command::Write { path, content })
    }

    /// `/edit PATH OLD => NEW`, or two fenced blocks on the next lines.
    fn edit(self) -> Result<Command, &'static str> {
        let (path, rest) = word(self.rest).ok_or(NO_PATH)?;
        if rest.is_empty() {
            return match fences(self.body).as_slice() {
                [old, new] => Ok(Command::Edit { path, old: trim_line_end(old), new: trim_line_end(new) }),
                _ => Err("the texts are missing"),
            };
        }
        let (old, new) = rest.split_once("=>").ok_or("`=>` is missing")?;
        Ok(Command::Edit { path, old: needed(old.trim(), "the old text is missing")?, new: new.trim().to_owned() })
    }
}

/// The insides of the fenced blocks, when the text consists of nothing else. Each line keeps its end.
fn fences(body: &str) -> Vec<&str> {
    let mut blocks = Vec::new();
    let (mut at, mut open) = (0, None);
    for line in body.split_inclusive('\n') {
        let end = at + line.len();
        match (line.trim_start().starts_with(FENCE), open) {
            (true, None) => open = Some(end),
            (true, Some(start)) => {
                blocks.extend(body.get(start..at));
                open = None;
            }
            (false, None) if !line.trim().is_empty() => return Vec::new(),
            (false, _) => {}
        }
        at = end;
    }
    if open.is_some() { Vec::new() } else { blocks }
}

/// The word after the slash that opens a line.
fn name_of(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('/')?;
    let name = rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '-').next()?;
    // A path such as /etc/hosts is not a command.
    let follows = rest.get(name.len()..).and_then(|rest| rest.chars().next());
    (!name.is_empty() && follows.is_none_or(char::is_whitespace)).then_some(name)
}

fn is_command(name: &str) -> bool {
    super::COMMANDS.iter().any(|command| command.name == name)
}

/// The first word, or the first text in double quotes, and what follows it.
fn word(text: &str) -> Option<(String, &str)> {
    let text = text.trim();
    if let Some(quoted) = text.strip_prefix('"')
        && let Some((inside, rest)) = quoted.split_once('"')
        && !inside.is_empty()
    {
        return Some((inside.to_owned(), rest.trim_start()));
    }
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (!word.is_empty()).then(|| (word.to_owned(), rest.trim_start()))
}

fn only(text: &str, missing: &'static str) -> Result<String, &'static str> {
    match word(text) {
        None => Err(missing),
        Some((word, "")) => Ok(word),
        Some(_) => Err(TOO_MUCH),
    }
}

fn needed(text: &str, missing: &'static str) -> Result<String, &'static str> {
    if text.is_empty() { Err(missing) } else { Ok(text.to_owned()) }
}

fn parts(text: &str, separator: char) -> Vec<String> {
    text.split(separator).map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn line_range(text: &str) -> Result<(u64, u64), &'static str> {
    let problem = "lines are written FROM-TO";
    let (first, last) = text.trim().split_once('-').ok_or(problem)?;
    let (first, last) = (first.parse().map_err(|_| problem)?, last.parse().map_err(|_| problem)?);
    if first >= 1 && first <= last { Ok((first, last)) } else { Err(problem) }
}

/// A block in a fence ends with the line end before the closing fence; a replaced text need not.
fn trim_line_end(text: &str) -> String {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text).to_owned()
}

const FENCE: &str = "```";
const NO_PATH: &str = "a path is missing";
const TOO_MUCH: &str = "there is too much on the line; words with spaces are written in double quotes";
/// Ten times the largest benchmark; nothing is held for it.
const MAX_CHUNKS: u64 = 10_000_000;
/// An unknown name is repeated in the answer up to here.
const MAX_SHOWN_NAME: usize = 40;
