//! What the built-in agent says: help, results in a sentence, and how to connect a model.

use std::fmt::Write;

use crate::model::builtin::{COMMANDS, parse::Command};

/// The list of commands.
pub(super) fn help() -> String {
    let mut text = String::from("No language model is connected. These commands work, one per line:\n\n");
    for command in COMMANDS {
        let space = if command.hint.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- `/{}{space}{}`: {}", command.name, command.hint, command.description);
    }
    text.push_str(
        "\nWords with spaces are written in double quotes. The text of /write and the two texts of /edit may follow \
         on the next lines as fenced blocks.\n",
    );
    text
}

/// The answer to what is not a command.
pub(super) fn no_model(found: &[String]) -> String {
    let mut text = String::from(
        "No language model is connected, so I cannot answer that. I only run commands; /help lists them.\n\n\
         To connect a model:\n\n\
         ```\n\
         zeroclaw config set providers.models.anthropic.main.model MODEL\n\
         zeroclaw config set providers.models.anthropic.main.api_key KEY\n\
         zeroclaw config set agents.main.model_provider anthropic.main\n\
         zeroclaw config set acp.default_agent main\n\
         ```\n\n\
         The other families are openai, openrouter, gemini, ollama, llamacpp, lmstudio, vllm and custom.\n\n",
    );
    if found.is_empty() {
        text.push_str("Nothing that could be used was found on this machine.\n");
    } else {
        text.push_str("Found on this machine:\n\n");
        for name in found {
            let _ = writeln!(text, "- {name}");
        }
    }
    text
}

/// The answer to a command that lacks something.
pub(super) fn wrong(name: &str, problem: &str) -> String {
    let hint = COMMANDS.iter().find(|command| command.name == name).map_or("", |command| command.hint);
    format!("/{name}: {problem}. It is written `/{name} {hint}`.\n")
}

/// One or two sentences about how a call went. The result itself has been shown with the call.
pub(super) fn result(command: &Command, content: &str, failed: bool) -> String {
    // A command that ends with another code than zero counts as failed, but it did run.
    if let (Command::Run { .. }, Some(line)) = (command, exit_line(content)) {
        return format!("The command has ended ({line}); its output is above.\n");
    }
    if failed {
        let reason = first_line(content);
        let what = if is_denial(reason) { "was not allowed" } else { "did not work" };
        return format!("That {what}: {reason}\n");
    }
    match command {
        Command::Run { .. } => "The command has ended; its output is above.\n".to_owned(),
        Command::Read { path, .. } => format!("{path} is above.\n"),
        Command::List { path } => format!("The content of {path} is above.\n"),
        Command::Find { .. } | Command::Grep { .. } => "What was found is above.\n".to_owned(),
        Command::Write { path, .. } => format!("{path} is written.\n"),
        Command::Edit { path, .. } => format!("{path} is changed.\n"),
        Command::Plan { .. } => "The plan is set.\n".to_owned(),
        Command::Ask { .. } => format!("The answer: {}\n", first_line(content)),
        Command::Deliver { path } => format!("{path} is delivered.\n"),
        Command::Help | Command::Think(_) | Command::Say(_) | Command::Wrong { .. } => String::new(),
    }
}

/// The line of a command's result that tells the exit code; it stands at the beginning or at the end.
fn exit_line(content: &str) -> Option<&str> {
    let tells = |line: &&str| line.len() <= 100 && line.to_ascii_lowercase().contains("exit code");
    let first = content.lines().next().filter(tells);
    let line = first.or_else(|| content.lines().next_back().filter(tells))?;
    Some(line.trim_matches(['[', ']', '(', ')', ' ', '.']))
}

fn is_denial(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    DENIALS.iter().any(|word| reason.contains(word))
}

fn first_line(content: &str) -> &str {
    let line = content.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    match line.char_indices().nth(MAX_REASON_CHARS) {
        Some((end, _)) => line.get(..end).unwrap_or(line),
        None => line,
    }
}

/// Words by which the loop says that a person or a rule decided against a call.
const DENIALS: &[&str] = &["denied", "not allowed", "not permitted", "rejected", "refused", "forbidden", "no decision"];
/// A reason is a sentence; a longer line is output that is shown with the call anyway.
const MAX_REASON_CHARS: usize = 300;
