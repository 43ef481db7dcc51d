//! From the lines of a script to the steps of its calls. Strict: every member has one place where it is allowed.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::model::{
    ModelError, ModelStop, Usage,
    replay::{Step, Template},
};

/// A whole script.
#[derive(Debug, PartialEq)]
pub(super) struct Script {
    /// The calls in order; each ends in `Stop` or `Fail`.
    pub(super) calls: Vec<Arc<[Step]>>,
    /// Whether the first call follows the last.
    pub(super) repeats: bool,
}

/// A line that is not understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScriptError {
    /// The line, from 1.
    pub(super) line: usize,
    /// What is wrong with it.
    pub(super) problem: String,
}

/// One line with every member that any kind of line has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    repeat: Option<u64>,
    id: Option<String>,
    name: Option<String>,
    arguments: Option<Box<RawValue>>,
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
    ms: Option<u64>,
    #[serde(rename = "kind")]
    error: Option<String>,
    message: Option<String>,
    retry_after_secs: Option<u64>,
    reason: Option<String>,
}

/// Reads a script.
pub(super) fn parse(text: &str) -> Result<Script, ScriptError> {
    let mut calls: Vec<Arc<[Step]>> = Vec::new();
    let mut steps = Vec::new();
    let mut begun = 1;
    let mut loop_at = None;
    for (index, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
        let number = index + 1;
        if line.trim().is_empty() {
            continue;
        }
        let fail = |problem: String| ScriptError { line: number, problem };
        if let Some(at) = loop_at {
            return Err(fail(format!("`loop` in line {at} must be the last line")));
        }
        let line: Line = serde_json::from_str(line).map_err(|error| fail(plain(&error)))?;
        if line.kind == "loop" {
            line.only(&[]).map_err(fail)?;
            if !steps.is_empty() {
                return Err(fail(format!("the call that begins in line {begun} has no `stop` or `error`")));
            }
            if calls.is_empty() {
                return Err(fail("`loop` without a call before it".to_owned()));
            }
            loop_at = Some(number);
            continue;
        }
        if steps.is_empty() {
            begun = number;
        }
        let step = line.step().map_err(fail)?;
        let ends = matches!(step, Step::Stop(_) | Step::Fail(_));
        steps.push(step);
        if ends {
            calls.push(std::mem::take(&mut steps).into());
        }
    }
    if !steps.is_empty() {
        let problem = "the call that begins here has no `stop` or `error`".to_owned();
        return Err(ScriptError { line: begun, problem });
    }
    if calls.is_empty() {
        return Err(ScriptError { line: 1, problem: "the script has no call".to_owned() });
    }
    Ok(Script { calls, repeats: loop_at.is_some() })
}

impl Line {
    fn step(self) -> Result<Step, String> {
        match self.kind.as_str() {
            "text" => {
                self.only(&["text", "repeat"])?;
                Ok(Step::Text(Template::new(&needed(self.text, "text")?), self.repeat.unwrap_or(1)))
            }
            "thought" => {
                self.only(&["text", "repeat"])?;
                Ok(Step::Thought(Template::new(&needed(self.text, "text")?), self.repeat.unwrap_or(1)))
            }
            "tool_call" => {
                self.only(&["id", "name", "arguments"])?;
                let arguments = arguments(self.arguments.as_deref())?;
                Ok(Step::Call { id: self.id, name: needed(self.name, "name")?, arguments })
            }
            "usage" => {
                self.only(&["input", "output", "cached"])?;
                let (input, output) = (needed(self.input, "input")?, needed(self.output, "output")?);
                Ok(Step::Usage(Usage { input, output, cached: self.cached.unwrap_or(0), written: 0 }))
            }
            "delay" => {
                self.only(&["ms"])?;
                let time = needed(self.ms, "ms")?;
                if time > MAX_DELAY_MS {
                    return Err(format!("`ms` is over {MAX_DELAY_MS}"));
                }
                Ok(Step::Delay(Duration::from_millis(time)))
            }
            "stop" => {
                self.only(&["reason"])?;
                match self.reason.as_deref() {
                    None | Some("end") => Ok(Step::Stop(ModelStop::End)),
                    Some("max_tokens") => Ok(Step::Stop(ModelStop::MaxTokens)),
                    Some("refusal") => Ok(Step::Stop(ModelStop::Refusal)),
                    Some(other) => Err(format!("unknown reason `{other}`, expected end, max_tokens or refusal")),
                }
            }
            "error" => {
                self.only(&["kind", "message", "retry_after_secs"])?;
                self.failure().map(Step::Fail)
            }
            other => Err(format!(
                "unknown type `{other}`, expected text, thought, tool_call, usage, delay, error, stop or loop"
            )),
        }
    }

    fn failure(self) -> Result<ModelError, String> {
        let kind = needed(self.error, "kind")?;
        let message = needed(self.message, "message")?;
        if kind != "transient" && self.retry_after_secs.is_some() {
            return Err(format!("`retry_after_secs` does not belong to the kind `{kind}`"));
        }
        match kind.as_str() {
            "auth" => Ok(ModelError::Auth(message)),
            "transient" => {
                Ok(ModelError::Transient { message, retry_after: self.retry_after_secs.map(Duration::from_secs) })
            }
            "context" => Ok(ModelError::ContextOverflow(message)),
            "stream" => Ok(ModelError::Stream(message)),
            "request" => Ok(ModelError::Request(message)),
            other => Err(format!("unknown kind `{other}`, expected auth, transient, context, stream or request")),
        }
    }

    /// Refuses members that do not belong to this kind of line.
    fn only(&self, allowed: &[&str]) -> Result<(), String> {
        let present = [
            ("text", self.text.is_some()),
            ("repeat", self.repeat.is_some()),
            ("id", self.id.is_some()),
            ("name", self.name.is_some()),
            ("arguments", self.arguments.is_some()),
            ("input", self.input.is_some()),
            ("output", self.output.is_some()),
            ("cached", self.cached.is_some()),
            ("ms", self.ms.is_some()),
            ("kind", self.error.is_some()),
            ("message", self.message.is_some()),
            ("retry_after_secs", self.retry_after_secs.is_some()),
            ("reason", self.reason.is_some()),
        ];
        match present.iter().find(|(name, is)| *is && !allowed.contains(name)) {
            Some((name, _)) => Err(format!("`{name}` does not belong to the type `{}`", self.kind)),
            None => Ok(()),
        }
    }
}

fn needed<T>(value: Option<T>, name: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("`{name}` is missing"))
}

/// An object is kept as its text; a string is the text itself, so that a script can send arguments that are broken.
fn arguments(raw: Option<&RawValue>) -> Result<String, String> {
    let Some(raw) = raw.map(RawValue::get) else { return Ok("{}".to_owned()) };
    if raw.starts_with('{') {
        return Ok(raw.to_owned());
    }
    serde_json::from_str(raw).map_err(|_| "`arguments` is neither an object nor a string".to_owned())
}

/// The parser's message without its position: within one line of JSON Lines only the column means something.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    format!("{text} (column {})", error.column())
}

/// An hour; a longer pause is a mistake in the script.
const MAX_DELAY_MS: u64 = 3_600_000;
