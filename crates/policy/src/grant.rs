//! What an "always" answer covers: a command by its words, a directory, a file, or exactly one script.
//!
//! A grant is worked out from one action and compared with later ones; both are pure. It refuses to cover a script that is
//! more than one plain command by anything but its exact text, and files whose names begin with a dot by their directory.

mod table;
mod words;

#[cfg(test)]
mod tests;

use std::path::{Component, Path, PathBuf};

use crate::{Action, RootedPath, shell::simple_command};

use self::table::Known;

/// The longest text of a rule, in bytes. "Always" is not offered for a longer command or path: nobody reads what it would cover.
pub const MAX_RULE: usize = 8 * 1024;

/// A tool and what of its doing is covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    tool: String,
    cover: Cover,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cover {
    /// Commands in this directory that begin with these words and have no further word that the table refuses; with the
    /// network only if it was said about such a one.
    Prefix { cwd: PathBuf, words: Vec<String>, network: bool },
    /// The command with exactly these words, in this directory.
    Words { cwd: PathBuf, words: Vec<String> },
    /// Exactly this script, in this directory.
    Script { cwd: PathBuf, script: String },
    /// Every file below this directory but those with a name or a directory in between that begins with a dot.
    Tree { path: PathBuf },
    /// This path.
    Path { path: PathBuf },
    /// This tool of this MCP server, with whatever arguments; another server of its name is another one.
    Call { server: String, origin_and_tool: [String; 2] },
    /// The whole tool: it touches nothing.
    Tool,
}

impl Grant {
    /// What "always" means when it is said about this action; `None` when it could not be said in one line or stored.
    #[must_use]
    pub fn propose(tool: &str, action: &Action) -> Option<Self> {
        let cover = match action {
            Action::Read { path } => Cover::Path { path: path.absolute().to_owned() },
            Action::Write { path, .. } => by_place(path),
            Action::Run { argv, cwd, network, .. } => match by_words(argv, cwd.absolute(), *network) {
                Cover::Prefix { cwd, words, network }
                    if !network || words.first().is_some_and(|name| name != "git") =>
                {
                    Cover::Prefix { cwd, words, network }
                }
                // The network is asked about each time but for builds of the table: the same words may send something else.
                _ if *network => return None,
                cover => cover,
            },
            Action::Call { server, origin, tool, .. } => {
                Cover::Call { server: server.clone(), origin_and_tool: [origin.clone(), tool.clone()] }
            }
            Action::Converse => Cover::Tool,
        };
        let grant = Self { tool: tool.to_owned(), cover };
        let text = grant.rule()?;
        (text.len() <= MAX_RULE && Self::parse(tool, &text).as_ref() == Some(&grant)).then_some(grant)
    }

    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Whether the action of the tool is covered.
    #[must_use]
    pub fn covers(&self, tool: &str, action: &Action) -> bool {
        let connected = matches!(action, Action::Run { network: true, .. });
        let may_connect = matches!(self.cover, Cover::Prefix { network: true, .. });
        self.tool == tool
            && (may_connect || !connected)
            && match (&self.cover, action) {
                (Cover::Prefix { cwd, words, .. }, Action::Run { argv, cwd: here, .. }) => {
                    here.absolute() == cwd
                        && command(argv).is_some_and(|given| {
                            table::find(&given).is_some_and(|known| {
                                given.get(..known.prefix) == Some(words.as_slice()) && known.is_harmless(&given)
                            })
                        })
                }
                (Cover::Words { cwd, words }, Action::Run { argv, cwd: here, .. }) => {
                    here.absolute() == cwd && command(argv).is_some_and(|given| given == *words)
                }
                (Cover::Script { cwd, script }, Action::Run { argv, cwd: here, .. }) => {
                    here.absolute() == cwd && text(argv) == Some(script)
                }
                (Cover::Tree { path: tree }, Action::Read { path } | Action::Write { path, .. }) => {
                    path.absolute().strip_prefix(tree).is_ok_and(|below| !has_dot(below) && below != Path::new(""))
                }
                (Cover::Path { path: covered }, Action::Read { path } | Action::Write { path, .. }) => {
                    path.absolute() == covered
                }
                (
                    Cover::Call { server, origin_and_tool: [origin, tool] },
                    Action::Call { server: of, origin: is, tool: called, .. },
                ) => (server, origin, tool) == (of, is, called),
                (Cover::Tool, Action::Converse) => true,
                (
                    Cover::Prefix { .. } | Cover::Words { .. } | Cover::Script { .. },
                    Action::Read { .. } | Action::Write { .. } | Action::Call { .. } | Action::Converse,
                )
                | (
                    Cover::Tree { .. } | Cover::Path { .. },
                    Action::Run { .. } | Action::Call { .. } | Action::Converse,
                )
                | (
                    Cover::Call { .. },
                    Action::Read { .. } | Action::Write { .. } | Action::Run { .. } | Action::Converse,
                )
                | (
                    Cover::Tool,
                    Action::Read { .. } | Action::Write { .. } | Action::Run { .. } | Action::Call { .. },
                ) => false,
            }
    }

    /// Whether the grant names a directory, whose files it does not name: a link among them may lead elsewhere.
    #[must_use]
    pub fn is_tree(&self) -> bool {
        matches!(self.cover, Cover::Tree { .. })
    }

    /// What is covered, as the end of "Always allow …". `code` shows a text that a model may have written.
    /// Directories are named from `here`, the working directory of the session.
    #[must_use]
    pub fn describe(&self, here: &Path, code: impl Fn(&str) -> String) -> String {
        let place = |path: &Path| match path.strip_prefix(here) {
            Ok(below) if below == Path::new("") => None,
            Ok(below) => Some(below.display().to_string()),
            Err(_) => Some(path.display().to_string()),
        };
        let at = |cwd: &Path| place(cwd).map_or_else(|| "here".to_owned(), |place| format!("in {}", code(&place)));
        match &self.cover {
            Cover::Prefix { cwd, words, network } => {
                let connected = if *network { " with network" } else { "" };
                format!("{}{connected} {}", code(&words::joined(words)), at(cwd))
            }
            Cover::Words { cwd, words } => format!("exactly {} {}", code(&words::joined(words)), at(cwd)),
            Cover::Script { cwd, script } => format!("exactly {} {}", code(script), at(cwd)),
            Cover::Tree { path } => {
                let tool = code(&self.tool);
                match place(path) {
                    Some(place) => format!("{tool} in {}", code(&format!("{}/", place.trim_end_matches('/')))),
                    None => format!("{tool} anywhere in this directory"),
                }
            }
            Cover::Path { path } => {
                format!("{} of {}", code(&self.tool), code(&place(path).unwrap_or_else(|| ".".to_owned())))
            }
            Cover::Call { server, origin_and_tool: [_, tool] } => {
                format!("the tool {} of the MCP server {}", code(tool), code(server))
            }
            Cover::Tool => code(&self.tool),
        }
    }

    /// What is covered as a line of text, for [`Grant::parse`]; `None` for a path that is not Unicode.
    #[must_use]
    pub fn rule(&self) -> Option<String> {
        let (kind, path, rest): (&str, Option<&Path>, &[String]) = match &self.cover {
            Cover::Prefix { cwd, words, network: false } => ("prefix", Some(cwd), words),
            Cover::Prefix { cwd, words, network: true } => ("network", Some(cwd), words),
            Cover::Words { cwd, words } => ("words", Some(cwd), words),
            Cover::Script { cwd, script } => ("script", Some(cwd), std::slice::from_ref(script)),
            Cover::Tree { path } => ("tree", Some(path), &[]),
            Cover::Path { path } => ("path", Some(path), &[]),
            Cover::Call { server, origin_and_tool } => ("call", Some(Path::new(server)), origin_and_tool),
            Cover::Tool => ("tool", None, &[]),
        };
        let mut rule = kind.to_owned();
        let path = path.map(Path::to_str);
        for field in path.into_iter().map(|path| path.ok_or(())).chain(rest.iter().map(|word| Ok(word.as_str()))) {
            rule.push('\t');
            escape(field.ok()?, &mut rule);
        }
        Some(rule)
    }

    /// Reads what [`Grant::rule`] wrote; `None` for anything else, which then covers nothing.
    #[must_use]
    pub fn parse(tool: &str, rule: &str) -> Option<Self> {
        let mut fields = rule.split('\t').map(unescape);
        let kind = fields.next()??;
        let fields: Vec<String> = fields.collect::<Option<_>>()?;
        let mut fields = fields.into_iter();
        let cover = match (kind.as_str(), fields.next().map(PathBuf::from)) {
            ("tool", None) => Cover::Tool,
            ("call", Some(server)) => {
                let server = server.into_os_string().into_string().ok()?;
                let origin_and_tool = <[String; 2]>::try_from(fields.collect::<Vec<_>>()).ok()?;
                Cover::Call { server, origin_and_tool }
            }
            (kind, Some(path)) if path.is_absolute() => {
                let words: Vec<String> = fields.collect();
                match (kind, words.as_slice()) {
                    ("tree", []) => Cover::Tree { path },
                    ("path", []) => Cover::Path { path },
                    ("script", [script]) => Cover::Script { cwd: path, script: script.clone() },
                    ("words", [_, ..]) => Cover::Words { cwd: path, words },
                    // A prefix that the table does not know any more would cover more than anybody is asked about now.
                    ("prefix" | "network", [_, ..])
                        if table::find(&words).is_some_and(|known| known.prefix == words.len()) =>
                    {
                        Cover::Prefix { cwd: path, words, network: kind == "network" }
                    }
                    (_, _) => return None,
                }
            }
            (_, _) => return None,
        };
        Some(Self { tool: tool.to_owned(), cover })
    }
}

fn by_place(path: &RootedPath) -> Cover {
    match path.absolute().parent() {
        Some(directory) if !has_dot(path.relative()) && path.relative() != Path::new("") => {
            Cover::Tree { path: directory.to_owned() }
        }
        Some(_) | None => Cover::Path { path: path.absolute().to_owned() },
    }
}

fn by_words(argv: &[String], cwd: &Path, network: bool) -> Cover {
    let cwd = cwd.to_owned();
    match (command(argv), text(argv)) {
        (Some(words), _) => match table::find(&words).filter(|known| known.is_harmless(&words)) {
            Some(Known { prefix, .. }) => {
                Cover::Prefix { cwd, words: words.into_iter().take(prefix).collect(), network }
            }
            None => Cover::Words { cwd, words },
        },
        (None, Some(script)) => Cover::Script { cwd, script: script.to_owned() },
        (None, None) => Cover::Words { cwd, words: argv.to_vec() },
    }
}

/// The script of a shell, when that is what is run.
fn text(argv: &[String]) -> Option<&str> {
    match argv {
        [shell, option, script] if shell == "/bin/sh" && option == "-c" => Some(script),
        _ => None,
    }
}

/// The words of the one plain command that is run.
fn command(argv: &[String]) -> Option<Vec<String>> {
    match text(argv) {
        Some(script) => simple_command(script),
        None => Some(argv.to_vec()),
    }
}

fn has_dot(path: &Path) -> bool {
    path.components().any(|component| match component {
        Component::Normal(name) => name.as_encoded_bytes().starts_with(b"."),
        Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => true,
    })
}

fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            other => out.push(other),
        }
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        out.push(match character {
            '\\' => match characters.next()? {
                '\\' => '\\',
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                '0' => '\0',
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}
