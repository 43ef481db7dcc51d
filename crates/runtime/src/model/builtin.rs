//! The model-less provider: a small command language that drives the real tools, and an honest answer to everything else.
//!
//! It keeps no state. What has been done is read from the conversation since the last user message, so a session
//! goes on after it was loaded. It refuses to pretend: it never answers in the place of a language model.

mod parse;
mod report;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use futures::StreamExt;
use serde_json::json;

use crate::model::{
    Message, ModelError, ModelInfo, ModelProvider, ModelRequest, ModelStop, ModelStream,
    replay::{Replay, Step, Template},
};

use parse::{Command, Parsed};

/// A command that clients may offer to their users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlashCommand {
    /// The name, without the slash.
    pub name: &'static str,
    /// One sentence.
    pub description: &'static str,
    /// What follows the name; empty when nothing does.
    pub hint: &'static str,
}

/// The commands of the built-in agent, to be advertised to clients.
#[must_use]
pub fn builtin_commands() -> &'static [SlashCommand] {
    COMMANDS
}

/// A provider without a model.
#[derive(Debug)]
pub struct BuiltinProvider {
    info: ModelInfo,
    found: Vec<String>,
}

impl BuiltinProvider {
    /// Makes the provider. `source` is what [`ModelInfo::source`] says, e.g. `builtin.default`; `found` names what on
    /// this machine could be used to connect a model, such as environment keys that are set, and never their values.
    #[must_use]
    pub fn new(source: &str, found: Vec<String>) -> Self {
        let info = ModelInfo {
            name: "builtin".to_owned(),
            source: source.to_owned(),
            // There is no window; a large number keeps the conversation from being shortened for nothing.
            context_window: 10_000_000,
        };
        Self { info, found }
    }

    fn answer(&self, request: &ModelRequest) -> Vec<Step> {
        let turn = CurrentTurn::of(&request.messages);
        let commands = match parse::commands(turn.prompt) {
            Parsed::Commands(commands) => commands,
            Parsed::Unknown(name) => {
                return vec![
                    text(&format!("There is no command /{name}.\n\n{}", report::help())),
                    Step::Stop(ModelStop::End),
                ];
            }
            Parsed::Other => return vec![text(&report::no_model(&self.found)), Step::Stop(ModelStop::End)],
        };
        let mut steps = Vec::new();
        let mut calls_seen = 0;
        for command in &commands {
            // A command whose call is already in the conversation is done, and so is everything before it.
            let step = match tool_call(command) {
                Some((tool, arguments)) => {
                    if !request.tools.iter().any(|spec| spec.name == tool) {
                        Some(Todo::Say(format!("The tool {tool} is not on offer in this session.\n")))
                    } else {
                        calls_seen += 1;
                        if calls_seen <= turn.calls {
                            steps.clear();
                            if calls_seen == turn.calls
                                && let Some((content, failed)) = turn.last_result
                            {
                                steps.push(text(&report::result(command, content, failed)));
                            }
                            None
                        } else {
                            Some(Todo::Call(tool, arguments))
                        }
                    }
                }
                None => Some(Todo::Inline),
            };
            match step {
                None => {}
                Some(Todo::Say(sentence)) => steps.push(text(&sentence)),
                Some(Todo::Inline) => steps.push(inline(command)),
                Some(Todo::Call(tool, arguments)) => {
                    let id = format!("builtin_{}", request.messages.len());
                    steps.push(Step::Call { id: Some(id), name: tool.to_owned(), arguments: arguments.to_string() });
                    break;
                }
            }
        }
        steps.push(Step::Stop(ModelStop::End));
        steps
    }
}

#[async_trait]
impl ModelProvider for BuiltinProvider {
    fn writes_summaries(&self) -> bool {
        false
    }

    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        let steps = self.answer(&request);
        Ok(Replay::new(steps.into(), String::new()).boxed())
    }
}

/// What the conversation says about the turn that is running.
struct CurrentTurn<'a> {
    prompt: &'a str,
    /// Tool calls made since the prompt.
    calls: usize,
    /// The text of the last result and whether it failed.
    last_result: Option<(&'a str, bool)>,
}

impl<'a> CurrentTurn<'a> {
    fn of(messages: &'a [std::sync::Arc<Message>]) -> Self {
        let mut turn = Self { prompt: "", calls: 0, last_result: None };
        for message in messages {
            match message.as_ref() {
                Message::User { text } => turn = Self { prompt: text, calls: 0, last_result: None },
                Message::Assistant { tool_calls, .. } => turn.calls += tool_calls.len(),
                Message::Tool { content, failed, .. } => turn.last_result = Some((content, *failed)),
            }
        }
        turn
    }
}

enum Todo {
    Say(String),
    Inline,
    Call(&'static str, serde_json::Value),
}

fn text(text: &str) -> Step {
    Step::Text(Template::literal(text), 1)
}

/// The answer of a command that needs no tool.
fn inline(command: &Command) -> Step {
    match command {
        Command::Help => text(&report::help()),
        Command::Think(thought) => Step::Thought(Template::literal(thought), 1),
        Command::Say(count) => Step::Text(Template::new("chunk {n} "), *count),
        Command::Wrong { name, problem } => text(&report::wrong(name, problem)),
        Command::Read { .. }
        | Command::List { .. }
        | Command::Find { .. }
        | Command::Grep { .. }
        | Command::Run { .. }
        | Command::Write { .. }
        | Command::Edit { .. }
        | Command::Plan { .. }
        | Command::Ask { .. }
        | Command::Deliver { .. } => text(""),
    }
}

/// The tool and the arguments of a command that needs one.
fn tool_call(command: &Command) -> Option<(&'static str, serde_json::Value)> {
    let call = match command {
        Command::Help | Command::Think(_) | Command::Say(_) | Command::Wrong { .. } => return None,
        Command::Read { path, lines: None } => ("file_read", json!({ "path": path })),
        Command::Read { path, lines: Some((first, last)) } => (
            "file_read",
            json!({ "path": path, "offset": first, "limit": last.saturating_sub(*first).saturating_add(1) }),
        ),
        Command::List { path } => ("list_dir", json!({ "path": path })),
        Command::Find { pattern } => ("glob_search", json!({ "pattern": pattern })),
        Command::Grep { pattern, path: None } => ("content_search", json!({ "pattern": pattern })),
        Command::Grep { pattern, path: Some(path) } => ("content_search", json!({ "pattern": pattern, "path": path })),
        Command::Run { command } => ("shell", json!({ "command": command })),
        Command::Write { path, content } => ("file_write", json!({ "path": path, "content": content })),
        Command::Edit { path, old, new } => ("file_edit", json!({ "path": path, "old_text": old, "new_text": new })),
        Command::Plan { steps } => {
            let todos: Vec<_> = steps
                .iter()
                .map(|step| json!({ "content": step, "status": "pending", "priority": "medium" }))
                .collect();
            ("todo_write", json!({ "todos": todos }))
        }
        Command::Ask { question, choices } => ("ask_user", json!({ "question": question, "choices": choices })),
        Command::Deliver { path } => ("deliver_file", json!({ "path": path })),
    };
    Some(call)
}

const COMMANDS: &[SlashCommand] = &[
    SlashCommand { name: "help", description: "List the commands of the built-in agent", hint: "" },
    SlashCommand { name: "read", description: "Show a file, or some of its lines", hint: "PATH [FROM-TO]" },
    SlashCommand { name: "ls", description: "List a directory", hint: "[PATH]" },
    SlashCommand { name: "find", description: "Find files by name", hint: "GLOB" },
    SlashCommand { name: "grep", description: "Search in files", hint: "PATTERN [PATH]" },
    SlashCommand { name: "run", description: "Run a shell command", hint: "COMMAND" },
    SlashCommand { name: "write", description: "Write a file", hint: "PATH TEXT" },
    SlashCommand { name: "edit", description: "Replace text in a file", hint: "PATH OLD => NEW" },
    SlashCommand { name: "plan", description: "Set the plan", hint: "STEP; STEP; …" },
    SlashCommand { name: "think", description: "Show a thought", hint: "TEXT" },
    SlashCommand { name: "ask", description: "Ask the user a question", hint: "QUESTION | CHOICE | CHOICE" },
    SlashCommand { name: "deliver", description: "Hand over a file", hint: "PATH" },
    SlashCommand { name: "say", description: "Answer in so many chunks of text", hint: "N" },
];
