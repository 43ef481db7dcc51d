//! Turns update objects into styled text. Pure: it knows no terminal, no time and no connection, and passes on no control
//! character of the agent.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::diff;
use super::tool::{Part, Status, Tool, block};
use crate::cli::term::{Palette, Role, clipped, one_line, visible};

/// Tool calls remembered at once; a turn with more forgets the oldest, which then only lose their title in later lines.
const MAX_TOOLS: usize = 1024;
/// Output shown for one tool call; the reader of a terminal wants to see that it works, the whole is in the session.
const MAX_OUTPUT_BYTES: usize = 8 * 1024;
/// Lines of output or of one diff shown for one tool call.
const MAX_OUTPUT_LINES: usize = 60;
/// Characters of a title.
const MAX_TITLE: usize = 300;
/// Entries of a plan.
const MAX_PLAN: usize = 100;

/// Where a piece of text belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The answer itself.
    Answer,
    /// Everything around it.
    Info,
}

/// Text for one target, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) target: Target,
    pub(crate) text: String,
}

/// What the last written text was part of.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Open {
    Nothing,
    Thought { at_line_start: bool },
    User { at_line_start: bool },
}

/// Turns the updates of one session, in order, into text.
#[derive(Debug)]
pub(crate) struct Renderer {
    palette: Palette,
    answers_to: Target,
    open: Open,
    answer: Answer,
    tools: HashMap<String, Entry>,
    order: VecDeque<String>,
    last_line_of: Option<String>,
    plan: Vec<Value>,
}

/// How the answer text stands.
#[derive(Debug, Default)]
struct Answer {
    /// The last character was not a line feed.
    is_line_open: bool,
    /// Something else was shown since.
    is_interrupted: bool,
    message: Option<String>,
}

#[derive(Debug, Default)]
struct Entry {
    tool: Tool,
    line: String,
    seen: String,
    partial: String,
    bytes: usize,
    lines: usize,
    hidden: usize,
    shown: HashSet<u64>,
}

impl Renderer {
    pub(crate) fn new(palette: Palette) -> Self {
        Self {
            palette,
            answers_to: Target::Answer,
            open: Open::Nothing,
            answer: Answer::default(),
            tools: HashMap::new(),
            order: VecDeque::new(),
            last_line_of: None,
            plan: Vec::new(),
        }
    }

    /// Sends answers where everything else goes, for what is history and not the answer to this prompt.
    pub(crate) fn answers_to(&mut self, target: Target) {
        self.answers_to = target;
        self.answer = Answer::default();
    }

    /// What is known about a tool call.
    pub(crate) fn tool(&self, id: &str) -> Option<&Tool> {
        self.tools.get(id).map(|entry| &entry.tool)
    }

    /// Notes that the changes a tool call proposes have been shown to a person already.
    pub(crate) fn shown(&mut self, id: &str, proposed: &Tool) {
        let Some(entry) = self.tools.get_mut(id) else { return };
        for part in proposed.parts() {
            if let Part::Diff { path, old, new } = part {
                entry.shown.insert(hash(&(path, old, new)));
            }
        }
    }

    /// Renders one update; unknown ones give nothing.
    pub(crate) fn update(&mut self, update: &Value) -> Vec<Piece> {
        let mut pieces = Vec::new();
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => self.message(update, &mut pieces),
            "agent_thought_chunk" => self.thought(&update["content"], &mut pieces),
            "user_message_chunk" => self.user(&update["content"], &mut pieces),
            "tool_call" | "tool_call_update" => self.tool_update(update, &mut pieces),
            "plan" => self.plan(update, &mut pieces),
            "current_mode_update" => {
                let mode = update["currentModeId"].as_str().or(update["modeId"].as_str()).unwrap_or("?");
                let line = format!("mode: {}", one_line(mode));
                self.info_line(&self.palette.paint(Role::Dim, &line), &mut pieces);
            }
            "notice" => {
                let title = one_line(update["title"].as_str().unwrap_or_default()).into_owned();
                self.info_line(&self.palette.paint(Role::Warn, &title), &mut pieces);
            }
            _ => {}
        }
        pieces
    }

    /// Ends every open line, before something else is written or at the end of the turn.
    pub(crate) fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.close(&mut pieces);
        if self.answer.is_line_open {
            pieces.push(Piece { target: self.answers_to, text: "\n".to_owned() });
        }
        self.answer = Answer::default();
        self.last_line_of = None;
        pieces
    }

    /// Ends an open thought, and notes that the answer is interrupted, before foreign text is written.
    pub(crate) fn interrupt(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.close(&mut pieces);
        self.last_line_of = None;
        pieces
    }

    fn message(&mut self, update: &Value, pieces: &mut Vec<Piece>) {
        let text = match block(&update["content"]) {
            Some(Part::Text(text)) => visible(text).into_owned(),
            Some(Part::Other(kind, name)) => format!("[{} {}]\n", one_line(kind), one_line(name)),
            Some(Part::Diff { .. }) | None => return,
        };
        if text.is_empty() {
            return;
        }
        self.close_block(pieces);
        let message = update["messageId"].as_str().map(str::to_owned);
        let is_other = match (&message, &self.answer.message) {
            (Some(new), Some(old)) => new != old,
            (Some(_) | None, _) => self.answer.is_interrupted,
        };
        if self.answer.is_line_open && is_other {
            pieces.push(Piece { target: self.answers_to, text: "\n".to_owned() });
        }
        self.answer = Answer { is_line_open: !text.ends_with('\n'), is_interrupted: false, message };
        self.last_line_of = None;
        pieces.push(Piece { target: self.answers_to, text });
    }

    fn thought(&mut self, content: &Value, pieces: &mut Vec<Piece>) {
        let Some(Part::Text(text)) = block(content) else { return };
        let at_line_start = match self.open {
            Open::Thought { at_line_start } => at_line_start,
            Open::Nothing | Open::User { .. } => {
                self.close(pieces);
                true
            }
        };
        self.quoted(text, "· ", Some(Role::Dim), at_line_start, pieces);
        self.open = Open::Thought { at_line_start: ends_line(text, at_line_start) };
    }

    fn user(&mut self, content: &Value, pieces: &mut Vec<Piece>) {
        let name;
        let text = match block(content) {
            Some(Part::Text(text)) => text,
            Some(Part::Other(kind, label)) => {
                name = format!("[{kind} {label}]\n");
                &name
            }
            Some(Part::Diff { .. }) | None => return,
        };
        let at_line_start = match self.open {
            Open::User { at_line_start } => at_line_start,
            Open::Nothing | Open::Thought { .. } => {
                self.close(pieces);
                true
            }
        };
        self.quoted(text, "> ", Some(Role::Strong), at_line_start, pieces);
        self.open = Open::User { at_line_start: ends_line(text, at_line_start) };
    }

    fn quoted(&self, text: &str, mark: &str, role: Option<Role>, mut at_start: bool, pieces: &mut Vec<Piece>) {
        let mut shown = String::new();
        for line in visible(text).split_inclusive('\n') {
            let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
            let body = if at_start { format!("{mark}{body}") } else { body.to_owned() };
            shown.push_str(&role.map_or_else(|| body.clone(), |role| self.palette.paint(role, &body)));
            shown.push_str(end);
            at_start = !end.is_empty();
        }
        if !shown.is_empty() {
            pieces.push(Piece { target: Target::Info, text: shown });
        }
    }

    fn tool_update(&mut self, update: &Value, pieces: &mut Vec<Piece>) {
        let Some(id) = update["toolCallId"].as_str() else { return };
        let mut entry = self.tools.remove(id).unwrap_or_else(|| {
            self.order.push_back(id.to_owned());
            Entry::default()
        });
        let before = entry.tool.status;
        entry.tool.merge(update);
        let line = self.status_line(id, &entry.tool);
        let is_final = entry.tool.status.is_final();
        let is_changed = line != entry.line;
        let is_next_step = before == Status::Pending
            && entry.tool.status == Status::InProgress
            && self.last_line_of.as_deref() == Some(id)
            && entry.line.ends_with(&self.title(id, &entry.tool));
        if is_changed && !is_final && !is_next_step {
            self.info_line(&line, pieces);
        }
        // What a waiting call carries is a proposal: a permission request shows it, else it is shown once the call runs.
        let output = if entry.tool.status == Status::Pending {
            entry.seen = entry.tool.text();
            String::new()
        } else {
            self.output(&mut entry)
        };
        if !output.is_empty() {
            self.close(pieces);
            pieces.push(Piece { target: Target::Info, text: output });
        }
        if is_changed && is_final {
            self.info_line(&line, pieces);
        }
        if !pieces.is_empty() {
            self.last_line_of = Some(id.to_owned());
        }
        entry.line = line;
        if is_final {
            // Only an open call can still be asked about or grow.
            entry.tool.content = Vec::new();
            entry.tool.raw_output = None;
            entry.seen = String::new();
        }
        self.tools.insert(id.to_owned(), entry);
        while self.order.len() > MAX_TOOLS {
            if let Some(oldest) = self.order.pop_front() {
                self.tools.remove(&oldest);
            }
        }
    }

    fn title(&self, id: &str, tool: &Tool) -> String {
        let title = if tool.title.is_empty() { id } else { &tool.title };
        clipped(&one_line(title), MAX_TITLE).into_owned()
    }

    fn status_line(&self, id: &str, tool: &Tool) -> String {
        let mark = match tool.status {
            Status::Pending => self.palette.paint(Role::Dim, "○"),
            Status::InProgress => self.palette.paint(Role::Strong, "▶"),
            Status::Completed => self.palette.paint(Role::Good, "✓"),
            Status::Failed => self.palette.paint(Role::Bad, "✗"),
        };
        format!("{mark} {}", self.title(id, tool))
    }

    /// What is new in the output of a tool call, within its limits.
    fn output(&self, entry: &mut Entry) -> String {
        let mut shown = String::new();
        let is_final = entry.tool.status.is_final();
        let mut text = entry.tool.text();
        if text.is_empty() && is_final && entry.bytes == 0 && entry.tool.content.is_empty() {
            text = match &entry.tool.raw_output {
                Some(Value::String(output)) => output.clone(),
                Some(other) => other.to_string(),
                None => String::new(),
            };
        }
        if is_final && entry.bytes == 0 && entry.partial.is_empty() && text == entry.seen {
            // It never became anything else than the proposal.
            entry.seen.clear();
        }
        let fresh = text.strip_prefix(entry.seen.as_str()).map(str::to_owned).unwrap_or_else(|| {
            entry.partial.clear();
            text.clone()
        });
        // The line feed between the proposal and what follows it belongs to neither.
        let is_first = entry.bytes == 0 && entry.partial.is_empty();
        let fresh = if is_first { fresh.strip_prefix('\n').unwrap_or(&fresh) } else { &fresh };
        entry.partial.push_str(fresh);
        entry.seen = text;
        let mut waiting = std::mem::take(&mut entry.partial);
        while let Some(end) = waiting.find('\n') {
            let rest = waiting.split_off(end + 1);
            self.output_line(entry, &waiting[..end], &mut shown);
            waiting = rest;
        }
        // A line that does not end is shown at the end of the call, or when it is too long to wait for.
        if !waiting.is_empty() && (is_final || waiting.len() > MAX_OUTPUT_BYTES) {
            self.output_line(entry, &waiting, &mut shown);
            waiting.clear();
        }
        entry.partial = waiting;
        let mut others = String::new();
        for part in entry.tool.parts() {
            let (key, text) = match part {
                Part::Text(_) => continue,
                Part::Diff { path, old, new } => {
                    let key = hash(&(path, old, new));
                    if entry.shown.contains(&key) {
                        continue;
                    }
                    (key, diff::unified(self.palette, path, old, new, MAX_OUTPUT_LINES))
                }
                Part::Other(kind, name) => {
                    (hash(&(kind, name)), format!("[{} {}]\n", one_line(kind), clipped(&one_line(name), MAX_TITLE)))
                }
            };
            if entry.shown.len() < MAX_OUTPUT_LINES && entry.shown.insert(key) {
                others.push_str(&text);
            }
        }
        shown.extend(others.lines().map(|line| format!("  {line}\n")));
        if is_final && entry.hidden > 0 {
            let note = format!("  … {} more bytes", entry.hidden);
            shown.push_str(&self.palette.paint(Role::Dim, &note));
            shown.push('\n');
            entry.hidden = 0;
        }
        shown
    }

    fn output_line(&self, entry: &mut Entry, line: &str, shown: &mut String) {
        if entry.lines >= MAX_OUTPUT_LINES || entry.bytes >= MAX_OUTPUT_BYTES {
            entry.hidden = entry.hidden.saturating_add(line.len() + 1);
            return;
        }
        let room = MAX_OUTPUT_BYTES - entry.bytes;
        let cut = (0..=room.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        let line_text = line.strip_suffix('\r').unwrap_or(line);
        let text = visible(line_text.get(..cut).unwrap_or(line_text));
        shown.push_str(&self.palette.paint(Role::Dim, &format!("  │ {text}")));
        shown.push('\n');
        entry.hidden = entry.hidden.saturating_add(line.len() - cut);
        entry.bytes += cut + 1;
        entry.lines += 1;
    }

    fn plan(&mut self, update: &Value, pieces: &mut Vec<Piece>) {
        let Some(entries) = update["entries"].as_array() else { return };
        if *entries == self.plan {
            return;
        }
        self.plan.clone_from(entries);
        let mut text = self.palette.paint(Role::Strong, "plan");
        for entry in entries.iter().take(MAX_PLAN) {
            let step = clipped(&one_line(entry["content"].as_str().unwrap_or_default()), MAX_TITLE).into_owned();
            let line = match entry["status"].as_str().unwrap_or_default() {
                "completed" => self.palette.paint(Role::Dim, &format!("☑ {step}")),
                "in_progress" => self.palette.paint(Role::Strong, &format!("▶ {step}")),
                _ => format!("☐ {step}"),
            };
            text.push_str("\n  ");
            text.push_str(&line);
        }
        if entries.len() > MAX_PLAN {
            text.push_str(&format!("\n  … {} more", entries.len() - MAX_PLAN));
        }
        self.info_line(&text, pieces);
    }

    fn info_line(&mut self, line: &str, pieces: &mut Vec<Piece>) {
        self.close(pieces);
        self.last_line_of = None;
        pieces.push(Piece { target: Target::Info, text: format!("{line}\n") });
    }

    /// Ends an open thought or user message and notes that something other than the answer comes next.
    fn close(&mut self, pieces: &mut Vec<Piece>) {
        self.close_block(pieces);
        self.answer.is_interrupted = true;
    }

    fn close_block(&mut self, pieces: &mut Vec<Piece>) {
        if let Open::Thought { at_line_start: false } | Open::User { at_line_start: false } = self.open {
            pieces.push(Piece { target: Target::Info, text: "\n".to_owned() });
        }
        self.open = Open::Nothing;
    }
}

fn ends_line(text: &str, before: bool) -> bool {
    if text.is_empty() { before } else { text.ends_with('\n') }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
