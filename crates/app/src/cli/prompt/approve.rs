//! Answers to permission requests: what the chosen mode decides by itself, and what a person is shown and asked.
//!
//! Nothing is shortened here: what is approved is what was shown.

use clap::ValueEnum;
use serde_json::{Value, json};

use super::diff;
use super::tool::{Part, Tool, unfenced};
use crate::cli::term::{Palette, Role, one_line, unmistakable};

/// Who answers permission requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApproveMode {
    /// Ask at the terminal
    Ask,
    /// Allow tools that only read or search, reject the others
    Reads,
    /// Allow everything, once each
    All,
    /// Reject everything, once each
    None,
}

/// One answer that the agent offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) kind: String,
}

/// What to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// A person decides.
    Ask,
    /// The option with this id.
    Select(String),
    /// None of the options.
    Cancel,
}

/// A permission request, read leniently.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) tool: Tool,
    pub(super) choices: Vec<Choice>,
    reasons: Vec<String>,
    is_reading: bool,
}

/// Options of one request; a request with more is refused as a whole, because a part of a question is another question.
const MAX_CHOICES: usize = 64;

/// Options that together are longer than this stand below each other.
const MAX_ONE_LINE: usize = 72;

impl Question {
    /// Reads the parameters of a request over what is known about the tool call; the error says what is wrong.
    pub(super) fn read(params: &Value, known: Option<&Tool>) -> Result<Self, String> {
        let call = &params["toolCall"];
        let options = params["options"].as_array().ok_or("`options` is missing")?;
        if options.is_empty() || options.len() > MAX_CHOICES {
            return Err(format!("expected 1 to {MAX_CHOICES} options, got {}", options.len()));
        }
        let choices = options.iter().map(choice).collect::<Option<Vec<_>>>().ok_or("an option has no `optionId`")?;
        let mut tool = known.cloned().unwrap_or_default();
        // Both descriptions have to agree that nothing is changed.
        let is_reading = reads(known.map(|tool| tool.kind.as_str())) && reads(call["kind"].as_str()) && {
            known.is_some_and(|tool| !tool.kind.is_empty()) || call["kind"].is_string()
        };
        tool.merge(call);
        let reasons = [&params["_meta"]["zeroclaw"]["reasons"], &call["_meta"]["zeroclaw"]["reasons"]]
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .filter_map(|reason| reason.as_str().or(reason["text"].as_str()))
            .map(str::to_owned)
            .collect();
        Ok(Self { tool, choices, reasons, is_reading })
    }

    /// Decides without a person where the mode allows that.
    pub(super) fn decide(&self, mode: ApproveMode) -> Decision {
        match mode {
            ApproveMode::Ask => Decision::Ask,
            ApproveMode::All => self.allow(),
            ApproveMode::Reads if self.is_reading => self.allow(),
            ApproveMode::Reads | ApproveMode::None => self.reject(),
        }
    }

    /// Allows once, when that is one clear option: with several the agent asks a question that no mode can answer, and
    /// a lasting permission is never given unasked.
    fn allow(&self) -> Decision {
        match self.of_kind("allow_once").as_slice() {
            [one] => Decision::Select(one.id.clone()),
            [] => self.reject(),
            _ => Decision::Cancel,
        }
    }

    /// Rejects once; without such an option the request is answered with none.
    pub(super) fn reject(&self) -> Decision {
        match self.of_kind("reject_once").as_slice() {
            [one] => Decision::Select(one.id.clone()),
            _ => Decision::Cancel,
        }
    }

    fn of_kind(&self, kind: &str) -> Vec<&Choice> {
        self.choices.iter().filter(|choice| choice.kind == kind).collect()
    }

    /// The keys of the options: letters when each option is a different plain answer, else numbers.
    pub(super) fn keys(&self) -> Vec<String> {
        let letters: Option<Vec<_>> = self
            .choices
            .iter()
            .map(|choice| letter(&choice.kind).filter(|_| self.of_kind(&choice.kind).len() == 1))
            .collect();
        match letters {
            Some(letters) => letters.into_iter().map(str::to_owned).collect(),
            None => (1..=self.choices.len()).map(|number| number.to_string()).collect(),
        }
    }

    /// Reads a typed answer; `None` when it names no option.
    pub(super) fn typed(&self, line: &str) -> Option<Decision> {
        let line = line.trim();
        let word = line.to_lowercase();
        let keys = self.keys();
        let is_lettered = keys.iter().all(|key| letter_word(key).is_some());
        let at = keys
            .iter()
            .position(|key| *key == word || (is_lettered && letter_word(key) == Some(word.as_str())))
            .or_else(|| self.choices.iter().position(|choice| choice.id == line && !line.is_empty()))?;
        Some(Decision::Select(self.choices.get(at)?.id.clone()))
    }

    /// Shows all there is to decide by.
    pub(super) fn describe(&self, palette: Palette) -> String {
        let mut shown = String::new();
        let title = if self.tool.title.is_empty() { "a tool call" } else { &self.tool.title };
        let heading = format!("? {}", one_line(title));
        shown.push_str(&palette.paint(Role::Warn, &heading));
        if !self.tool.kind.is_empty() {
            shown.push_str(&palette.paint(Role::Dim, &format!(" [{}]", one_line(&self.tool.kind))));
        }
        shown.push('\n');
        // The input of a question to the person is the question itself, which follows.
        let mut command = None;
        if let Some(input) = self.tool.raw_input.as_ref().filter(|_| self.tool.name != "ask_user") {
            // A diff says the same as the raw texts it was made from, readably.
            let has_diff = self.tool.parts().any(|part| matches!(part, Part::Diff { .. }));
            command = input["command"].as_str();
            push_input(&mut shown, input, !has_diff);
        }
        for part in self.tool.parts() {
            match part {
                Part::Diff { path, old, new } => shown.push_str(&diff::unified(palette, path, old, new, usize::MAX)),
                Part::Text(text) => {
                    let text = unfenced(text);
                    let is_said = |said: &str| said.trim() == text.trim();
                    if !is_said(&self.tool.title) && !command.is_some_and(is_said) {
                        push_indented(&mut shown, text);
                    }
                }
                Part::Other(kind, name) => push_indented(&mut shown, &format!("[{kind} {name}]")),
            }
        }
        for reason in &self.reasons {
            shown.push_str(&palette.paint(Role::Dim, &format!("  why: {}", one_line(reason))));
            shown.push('\n');
        }
        shown
    }

    /// What asks, without a line feed at its end.
    pub(super) fn ask(&self) -> String {
        let options: Vec<_> = self
            .keys()
            .into_iter()
            .zip(&self.choices)
            .map(|(key, choice)| format!("{key} = {}", one_line(&choice.name)))
            .collect();
        let line = options.join(", ");
        if line.chars().count() > MAX_ONE_LINE {
            format!("  {}\n  > ", options.join("\n  "))
        } else {
            format!("  {line} > ")
        }
    }
}

/// The result of the request for a decision; `Ask` counts as none of the options.
pub(super) fn outcome(decision: &Decision) -> Value {
    match decision {
        Decision::Select(id) => json!({"outcome": {"outcome": "selected", "optionId": id}}),
        Decision::Ask | Decision::Cancel => json!({"outcome": {"outcome": "cancelled"}}),
    }
}

/// The mode when none was chosen: only a person who sees the question and can answer it is asked.
pub(crate) fn default_mode(in_terminal: bool, err_terminal: bool) -> ApproveMode {
    if in_terminal && err_terminal { ApproveMode::Ask } else { ApproveMode::None }
}

fn choice(option: &Value) -> Option<Choice> {
    let id = option["optionId"].as_str()?;
    Some(Choice {
        id: id.to_owned(),
        name: option["name"].as_str().unwrap_or(id).to_owned(),
        kind: option["kind"].as_str().unwrap_or_default().to_owned(),
    })
}

fn reads(kind: Option<&str>) -> bool {
    matches!(kind, None | Some("" | "read" | "search"))
}

fn letter(kind: &str) -> Option<&'static str> {
    match kind {
        "allow_once" => Some("y"),
        "allow_always" => Some("a"),
        "reject_once" => Some("n"),
        "reject_always" => Some("r"),
        _ => None,
    }
}

fn letter_word(key: &str) -> Option<&'static str> {
    match key {
        "y" => Some("yes"),
        "a" => Some("always"),
        "n" => Some("no"),
        "r" => Some("reject"),
        _ => None,
    }
}

fn push_input(shown: &mut String, input: &Value, with_rest: bool) {
    let command = match &input["command"] {
        Value::String(command) => Some(format!("$ {command}")),
        Value::Array(words) => Some(format!("$ {}", Value::Array(words.clone()))),
        _ => None,
    };
    if let Some(command) = &command {
        push_indented(shown, command);
    }
    let rest = match (input, &command) {
        (Value::Object(members), Some(_)) => {
            let mut members = members.clone();
            members.remove("command");
            (!members.is_empty()).then_some(Value::Object(members))
        }
        (other, _) => Some(other.clone()),
    };
    if let Some(rest) = rest.filter(|_| with_rest) {
        // A value that came from JSON can be written as JSON.
        push_indented(shown, &serde_json::to_string_pretty(&rest).unwrap_or_default());
    }
}

fn push_indented(shown: &mut String, text: &str) {
    for line in unmistakable(text).lines() {
        shown.push_str("  ");
        shown.push_str(line);
        shown.push('\n');
    }
}
