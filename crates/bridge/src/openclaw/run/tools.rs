//! The tool calls of one run: announced once, shown while they run, ended once.
//! Several streams tell of each call, and after a lost connection only some of them; whichever comes first is enough.

use std::{
    borrow::Cow,
    collections::HashMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use zeroclaw_acp_protocol::{CallStatus, ContentBlock, Location, SessionUpdate, ToolCallContent, ToolKind};

use super::{
    Updates,
    display::{bounded, line, tail},
    encode,
};
use crate::openclaw::wire;

/// Calls of one run that are kept in mind, at most; further ones are not shown.
const MAX_CALLS: usize = 5000;

/// Changes of one call that are shown, at most.
const MAX_DIFFS: usize = 64;

/// Letters of a title.
const TITLE: usize = 160;

#[derive(Debug)]
struct Call {
    name: String,
    args: Value,
    /// A title that says what is done could be made from the arguments.
    titled: bool,
    ended: bool,
    /// The output that is shown.
    shown: String,
}

/// The calls of a run.
#[derive(Debug, Default)]
pub(super) struct Tools {
    calls: HashMap<String, Call>,
    order: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolEvent<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
    #[serde(borrow)]
    tool_call_id: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
    #[serde(borrow, default)]
    partial_result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemEvent<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
    #[serde(borrow, default)]
    item_id: Cow<'a, str>,
    #[serde(borrow, default)]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    title: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    status: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    error: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutputEvent<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
    #[serde(borrow)]
    tool_call_id: Cow<'a, str>,
    #[serde(borrow, default)]
    output: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolResult<'a> {
    #[serde(borrow)]
    content: Vec<super::super::history::Block<'a>>,
    #[serde(borrow)]
    details: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    status: Option<String>,
    cwd: Option<String>,
    patch: Option<String>,
    first_changed_line: Option<u32>,
}

/// A change of a file: where, what was there, what is.
struct Change {
    path: PathBuf,
    old: Option<String>,
    new: String,
    line: Option<u32>,
}

impl ToolResult<'_> {
    fn text(&self) -> String {
        self.content.iter().filter_map(|block| block.text.as_deref()).collect()
    }
}

impl Tools {
    pub(super) fn tool_event(&mut self, data: &RawValue, out: &mut Updates) {
        let Some(event) = wire::read::<ToolEvent<'_>>(data) else { return };
        let id = event.tool_call_id.as_ref();
        let name = event.name.as_deref().unwrap_or("tool");
        match event.phase.as_ref() {
            "start" => self.start(id, name, event.args, None, out),
            "update" => {
                let partial = event.partial_result.and_then(wire::read::<ToolResult<'_>>).unwrap_or_default();
                self.start(id, name, event.args, None, out);
                self.output(id, &partial.text(), out);
            }
            "result" => {
                let result = event.result.and_then(wire::read::<ToolResult<'_>>).unwrap_or_default();
                self.finish(id, name, &result.text(), event.is_error, result.details, out);
            }
            _ => {}
        }
    }

    pub(super) fn item_event(&mut self, data: &RawValue, out: &mut Updates) {
        let Some(event) = wire::read::<ItemEvent<'_>>(data) else { return };
        // A command is an item besides the tool that runs it.
        if !event.item_id.starts_with("tool:") {
            return;
        }
        let Some(id) = event.tool_call_id.as_deref().or_else(|| event.item_id.strip_prefix("tool:")) else { return };
        let name = event.name.as_deref().unwrap_or("tool");
        match event.phase.as_ref() {
            "start" => self.start(id, name, None, event.title.as_deref(), out),
            "end" => {
                self.start(id, name, None, event.title.as_deref(), out);
                if !self.is_open(id) {
                    // Its result was there, and says more.
                    return;
                }
                if event.status.as_deref() == Some("failed") {
                    let words = event.error.as_deref().unwrap_or_default();
                    self.end(id, CallStatus::Failed, Some(words).filter(|words| !words.is_empty()), &[], out);
                } else {
                    self.end(id, CallStatus::Completed, None, &[], out);
                }
            }
            _ => {}
        }
    }

    pub(super) fn output_event(&mut self, data: &RawValue, out: &mut Updates) {
        let Some(event) = wire::read::<OutputEvent<'_>>(data) else { return };
        if event.phase == "delta"
            && let Some(output) = &event.output
        {
            self.output(&event.tool_call_id, output, out);
        }
    }

    /// The open call that runs this command, or the last open one that runs any.
    pub(super) fn for_command(&self, command: &str) -> Option<&str> {
        let open = |id: &&String| {
            self.calls.get(*id).is_some_and(|call| !call.ended && kind_of(&call.name) == ToolKind::Execute)
        };
        let runs = |id: &&String| {
            let args = self.calls.get(*id).map(|call| &call.args);
            args.and_then(|args| args.get("command")).and_then(Value::as_str) == Some(command)
        };
        let exact = self.order.iter().rev().filter(open).find(runs);
        exact.or_else(|| self.order.iter().rev().find(open)).map(String::as_str)
    }

    pub(super) fn is_open(&self, id: &str) -> bool {
        self.calls.get(id).is_some_and(|call| !call.ended)
    }

    /// Announces a call, or adds what is new about one.
    pub(super) fn start(
        &mut self,
        id: &str,
        name: &str,
        args: Option<&RawValue>,
        title: Option<&str>,
        out: &mut Updates,
    ) {
        let value = || args.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()).unwrap_or_default();
        if let Some(call) = self.calls.get_mut(id) {
            if call.args.is_null() {
                call.args = value();
            }
            let better = title_of(&call.name, &call.args).or_else(|| title.map(|title| line(title, TITLE)));
            if !call.titled
                && !call.ended
                && let Some(title) = better
            {
                call.titled = true;
                out.push(encode(&SessionUpdate::ToolCallUpdate {
                    tool_call_id: id,
                    name: &call.name,
                    status: None,
                    title: Some(&title),
                    content: None,
                    locations: None,
                    raw_output: None,
                }));
            }
            return;
        }
        if self.calls.len() >= MAX_CALLS {
            return;
        }
        let args_value = value();
        let made = title_of(name, &args_value);
        let titled = made.is_some() || title.is_some();
        let title =
            made.or_else(|| title.map(|title| line(title, TITLE))).unwrap_or_else(|| plain_title(name, &args_value));
        let paths = paths_of(&args_value, None);
        let locations: Vec<Location<'_>> =
            paths.iter().map(|path| Location { path, line: line_of(&args_value) }).collect();
        out.push(encode(&SessionUpdate::ToolCall {
            tool_call_id: id,
            title: &title,
            name,
            kind: kind_of(name),
            status: CallStatus::InProgress,
            content: &[],
            locations: &locations,
            raw_input: args.unwrap_or(no_arguments()),
        }));
        let call = Call { name: name.to_owned(), args: args_value, titled, ended: false, shown: String::new() };
        self.calls.insert(id.to_owned(), call);
        self.order.push(id.to_owned());
    }

    /// Shows output while the call runs.
    fn output(&mut self, id: &str, text: &str, out: &mut Updates) {
        let Some(call) = self.calls.get_mut(id) else { return };
        // Two streams bring the same output, one of them trimmed.
        if call.ended || text.trim().is_empty() || call.shown.trim() == text.trim() {
            return;
        }
        call.shown = text.to_owned();
        let content = [ToolCallContent::Content { content: ContentBlock::Text { text: tail(text) } }];
        out.push(encode(&SessionUpdate::ToolCallUpdate {
            tool_call_id: id,
            name: &call.name,
            status: Some(CallStatus::InProgress),
            title: None,
            content: Some(&content),
            locations: None,
            raw_output: None,
        }));
    }

    /// Ends a call with its result.
    pub(super) fn finish(
        &mut self,
        id: &str,
        name: &str,
        text: &str,
        is_error: bool,
        details: Option<&RawValue>,
        out: &mut Updates,
    ) {
        self.start(id, name, None, None, out);
        let details: Details = details.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let failed = is_error || matches!(details.status.as_deref(), Some("failed" | "error"));
        let changes = match self.calls.get(id) {
            Some(call) if !failed => changes_of(call, &details),
            Some(_) | None => Vec::new(),
        };
        let status = if failed { CallStatus::Failed } else { CallStatus::Completed };
        self.end(id, status, Some(text), &changes, out);
    }

    fn end(&mut self, id: &str, status: CallStatus, text: Option<&str>, changes: &[Change], out: &mut Updates) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let was_ended = std::mem::replace(&mut call.ended, true);
        // A result that comes behind the end adds what it says; the end itself is told once.
        if was_ended && (text.is_none_or(|text| text == call.shown) && changes.is_empty()) {
            return;
        }
        let mut content: Vec<ToolCallContent<'_>> = changes
            .iter()
            .map(|change| ToolCallContent::Diff {
                path: &change.path,
                old_text: change.old.as_deref(),
                new_text: &change.new,
            })
            .collect();
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            content.push(ToolCallContent::Content { content: ContentBlock::Text { text: bounded(text) } });
        }
        let locations: Vec<Location<'_>> =
            changes.iter().map(|change| Location { path: &change.path, line: change.line }).collect();
        let raw_output = text.map(bounded);
        out.push(encode(&SessionUpdate::ToolCallUpdate {
            tool_call_id: id,
            name: &call.name,
            status: (!was_ended).then_some(status),
            title: None,
            content: (!content.is_empty()).then_some(&content),
            locations: (!locations.is_empty()).then_some(&locations),
            raw_output: raw_output.as_deref(),
        }));
        if let Some(text) = text {
            call.shown = text.to_owned();
        }
    }

    /// Ends what is open: the run is over.
    pub(super) fn close(&mut self, out: &mut Updates) {
        for id in &self.order {
            let Some(call) = self.calls.get_mut(id).filter(|call| !call.ended) else { continue };
            call.ended = true;
            out.push(encode(&SessionUpdate::ToolCallUpdate {
                tool_call_id: id,
                name: &call.name,
                status: Some(CallStatus::Failed),
                title: None,
                content: None,
                locations: None,
                raw_output: None,
            }));
        }
    }
}

/// Arguments that are not known.
fn no_arguments() -> &'static RawValue {
    serde_json::from_str("{}").unwrap_or(RawValue::NULL)
}

fn kind_of(name: &str) -> ToolKind {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if has(&["write", "edit", "patch"]) {
        ToolKind::Edit
    } else if has(&["delete", "remove"]) {
        ToolKind::Delete
    } else if has(&["move", "rename"]) {
        ToolKind::Move
    } else if has(&["search", "find", "grep", "glob"]) {
        ToolKind::Search
    } else if has(&["fetch", "http", "browser"]) {
        ToolKind::Fetch
    } else if has(&["read", "list", "memory_get"]) || name == "ls" {
        ToolKind::Read
    } else if has(&["exec", "run", "bash", "shell", "process"]) {
        ToolKind::Execute
    } else if has(&["think"]) {
        ToolKind::Think
    } else {
        ToolKind::Other
    }
}

/// A title that says what is done, where the arguments say it.
fn title_of(name: &str, args: &Value) -> Option<String> {
    let word = |names: &[&str]| {
        names
            .iter()
            .find_map(|name| args.get(name)?.as_str())
            .filter(|text| !text.trim().is_empty())
            .map(|text| line(text, TITLE))
    };
    let path = || word(&["path", "file_path", "filePath", "targetPath"]);
    match kind_of(name) {
        ToolKind::Execute => word(&["command", "cmd"]),
        ToolKind::Read => path().map(|path| format!("Read {path}")),
        ToolKind::Edit => {
            let verb = if name.to_ascii_lowercase().contains("write") { "Write" } else { "Edit" };
            path().map(|path| format!("{verb} {path}"))
        }
        ToolKind::Search => word(&["query", "pattern"]).map(|query| format!("Search {query}")),
        ToolKind::Fetch => word(&["url"]).map(|url| format!("Fetch {url}")),
        ToolKind::Delete | ToolKind::Move | ToolKind::Think | ToolKind::Other => None,
    }
}

/// The name and the arguments, for want of better.
fn plain_title(name: &str, args: &Value) -> String {
    let said = args.as_object().into_iter().flatten().map(|(key, value)| match value {
        Value::String(text) => format!("{key}: {}", line(text, 60)),
        other => format!("{key}: {}", line(&other.to_string(), 60)),
    });
    let said: Vec<String> = said.take(4).collect();
    let title = if said.is_empty() { name.to_owned() } else { format!("{name}: {}", said.join(", ")) };
    line(&title, TITLE)
}

/// The absolute paths among the arguments. Relative ones count from the directory that the tool ran in, where it is known.
fn paths_of(args: &Value, cwd: Option<&str>) -> Vec<PathBuf> {
    const NAMES: [&str; 9] =
        ["path", "file_path", "filePath", "targetPath", "oldPath", "newPath", "source", "destination", "file"];
    let mut paths: Vec<PathBuf> = Vec::new();
    for text in NAMES.iter().filter_map(|name| args.get(name)?.as_str()) {
        let path = match (Path::new(text), cwd) {
            (path, _) if path.is_absolute() => path.to_owned(),
            (path, Some(cwd)) if Path::new(cwd).is_absolute() => Path::new(cwd).join(path),
            _ => continue,
        };
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

fn line_of(args: &Value) -> Option<u32> {
    let line = ["line", "offset"].iter().find_map(|name| args.get(name)?.as_u64())?;
    u32::try_from(line).ok().filter(|line| *line > 0)
}

/// What an edit has changed: from the patch where there is one, else from what was asked for.
fn changes_of(call: &Call, details: &Details) -> Vec<Change> {
    if kind_of(&call.name) != ToolKind::Edit {
        return Vec::new();
    }
    let Some(path) = paths_of(&call.args, details.cwd.as_deref()).into_iter().next() else { return Vec::new() };
    if let Some(patch) = &details.patch {
        let mut changes = hunks(patch, &path);
        if let (Some(first), Some(line)) = (changes.first_mut(), details.first_changed_line) {
            first.line = Some(line);
        }
        if !changes.is_empty() {
            return changes;
        }
    }
    let text =
        |value: &Value, names: &[&str]| names.iter().find_map(|name| value.get(name)?.as_str()).map(str::to_owned);
    if let Some(content) = text(&call.args, &["content"]) {
        return vec![Change { path, old: None, new: bounded(&content).into_owned(), line: None }];
    }
    let one = [call.args.clone()];
    let edits = call.args.get("edits").and_then(Value::as_array).map_or(&one[..], Vec::as_slice);
    edits
        .iter()
        .take(MAX_DIFFS)
        .filter_map(|edit| {
            let old = text(edit, &["oldText", "old_string", "old_text"])?;
            let new = text(edit, &["newText", "new_string", "new_text"])?;
            let new = bounded(&new).into_owned();
            Some(Change {
                path: path.clone(),
                old: Some(bounded(&old).into_owned()),
                new,
                line: details.first_changed_line,
            })
        })
        .collect()
}

/// The hunks of a unified patch of one file, each with its lines before and after.
fn hunks(patch: &str, path: &Path) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for line in patch.split_inclusive('\n') {
        if let Some(head) = line.strip_prefix("@@ ") {
            if changes.len() == MAX_DIFFS {
                break;
            }
            let number = head.split_whitespace().find_map(|word| word.strip_prefix('+'));
            let number = number.and_then(|word| word.split(',').next()?.parse().ok());
            changes.push(Change { path: path.to_owned(), old: Some(String::new()), new: String::new(), line: number });
            continue;
        }
        let Some(change) = changes.last_mut() else { continue };
        let Some(old) = change.old.as_mut() else { continue };
        if let Some(text) = line.strip_prefix('-') {
            old.push_str(text);
        } else if let Some(text) = line.strip_prefix('+') {
            change.new.push_str(text);
        } else if let Some(text) = line.strip_prefix(' ') {
            old.push_str(text);
            change.new.push_str(text);
        }
    }
    changes
}
