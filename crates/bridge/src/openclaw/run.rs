//! One run of the gateway's agent as updates of a session: text, thinking, tools, plan, tokens, and how it ended.
//! Live events and rows of the transcript tell the same story twice; this knows what the client has, and adds what is missing.
//! It refuses to know sessions, prompts and connections.

mod display;
mod text;
mod tools;

use std::{borrow::Cow, collections::HashSet};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{ContentBlock, PlanEntry, PlanPriority, PlanStatus, SessionUpdate, result::PromptUsage};

use super::{history::Row, wire};

pub(super) use display::{bounded, fenced, visible};
use text::Texts;
use tools::Tools;

/// Updates, encoded once: the same bytes go to the client and to the ledger.
pub(super) type Updates = Vec<Bytes>;

/// What the gateway puts in the place of an answer that failed before it began; the error says more.
const PLACEHOLDERS: [&str; 2] =
    ["The agent run failed before producing a reply.", "[assistant turn failed before producing content]"];

/// Steps of a plan that are shown, at most.
const MAX_STEPS: usize = 200;

/// Rows of one run that are told apart, at most; those of a longer run may be told twice after a lost connection.
const MAX_ROWS: usize = 20_000;

/// Writes an update.
pub(super) fn encode(update: &SessionUpdate<'_>) -> Bytes {
    // Our own types have string keys and plain values.
    serde_json::to_vec(update).map(Bytes::from).unwrap_or_default()
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The model is done.
    Done,
    /// The answer was cut at the model's limit.
    MaxTokens,
    /// Somebody stopped it.
    Cancelled,
    /// The model refuses.
    Refused(String),
    /// It failed; the gateway's words, and its name for the kind.
    Failed(String, Option<String>),
}

/// `chat`, of it what is used. Most of a delta is text that the client has already, so nothing of it is unescaped here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatEvent<'a> {
    #[serde(borrow)]
    pub(super) run_id: Cow<'a, str>,
    #[serde(borrow)]
    state: Cow<'a, str>,
    #[serde(borrow, default)]
    delta_text: Option<&'a RawValue>,
    #[serde(default)]
    replace: bool,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    error_message: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    error_kind: Option<Cow<'a, str>>,
}

/// `agent` and `session.tool`, of it what is used.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentEvent<'a> {
    #[serde(borrow)]
    pub(super) run_id: Cow<'a, str>,
    #[serde(borrow)]
    stream: Cow<'a, str>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct TextData<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(default)]
    replace: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Lifecycle<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
    #[serde(borrow)]
    stop_reason: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Plan<'a> {
    #[serde(borrow)]
    steps: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Step {
    step: Option<String>,
    content: Option<String>,
    text: Option<String>,
    status: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Compaction<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
    completed: bool,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageBlock<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}

/// What is known of one run.
#[derive(Debug)]
pub(super) struct Translator {
    texts: Texts,
    tools: Tools,
    /// Text comes in `agent` events, which lose nothing; `chat` says the same again.
    agent_speaks: bool,
    /// Rows whose thinking and tokens are told.
    rows: HashSet<String>,
    /// The model's own last words about why it stopped.
    stop: Option<String>,
    usage: Option<PromptUsage>,
    /// Tokens in the window after the last answer.
    window: Option<u64>,
    /// A row has come that ends the run: nothing more will.
    ended_by_row: bool,
    /// An agent works, in contrast to a command that the gateway answers itself.
    works: bool,
}

impl Translator {
    /// Begins a run. `name` begins the ids of its messages.
    pub(super) fn new(name: &str) -> Self {
        Self {
            texts: Texts::new(name),
            tools: Tools::default(),
            agent_speaks: false,
            rows: HashSet::new(),
            stop: None,
            usage: None,
            window: None,
            ended_by_row: false,
            works: false,
        }
    }

    /// The tokens of the turn, as far as rows told them.
    pub(super) fn usage(&self) -> Option<PromptUsage> {
        self.usage
    }

    /// Tokens in the window after the last answer.
    pub(super) fn window(&self) -> Option<u64> {
        self.window
    }

    /// Whether text comes in `agent` events.
    pub(super) fn has_spoken(&self) -> bool {
        self.agent_speaks
    }

    /// Whether the row that ends an agent's work has not come yet, although it will.
    pub(super) fn awaits_row(&self) -> bool {
        self.works && !self.ended_by_row
    }

    /// The tool call that asks to run this command, or failing that the last open one that runs commands.
    pub(super) fn call_for(&self, command: &str) -> Option<&str> {
        self.tools.for_command(command)
    }

    /// Whether the call is known and runs.
    pub(super) fn has_open_call(&self, id: &str) -> bool {
        self.tools.is_open(id)
    }

    /// Tells of a call that only an approval has told of.
    pub(super) fn announce(&mut self, id: &str, name: &str, args: &RawValue, out: &mut Updates) {
        self.tools.start(id, name, Some(args), None, out);
    }

    /// Takes an `agent` event.
    pub(super) fn agent(&mut self, event: &AgentEvent<'_>, out: &mut Updates) {
        let Some(data) = event.data else { return };
        match event.stream.as_ref() {
            "assistant" => {
                let Some(said) = wire::read::<TextData<'_>>(data) else { return };
                self.agent_speaks = true;
                if let Some(text) = said.text {
                    self.texts.live(text, said.delta, said.replace, out);
                }
            }
            "tool" => {
                self.texts.interrupted();
                self.tools.tool_event(data, out);
            }
            "item" => {
                self.texts.interrupted();
                self.tools.item_event(data, out);
            }
            "command_output" => self.tools.output_event(data, out),
            "lifecycle" => {
                let Some(said) = wire::read::<Lifecycle<'_>>(data) else { return };
                self.works = true;
                if said.phase == "start" {
                    self.stop = None;
                } else if let Some(stop) = said.stop_reason {
                    self.stop = Some(stop.into_owned());
                }
            }
            "plan" => plan(data, out),
            "compaction" => {
                let Some(said) = wire::read::<Compaction<'_>>(data) else { return };
                match said.phase.as_ref() {
                    "start" => self.texts.think("The conversation is being compacted.", out),
                    "end" if said.completed => self.texts.think("The conversation was compacted.", out),
                    _ => {}
                }
            }
            // Streams that say nothing that a client shows, and those of newer gateways.
            _ => {}
        }
    }

    /// Takes a `chat` event; gives the outcome when it ends the run.
    pub(super) fn chat(&mut self, event: &ChatEvent<'_>, out: &mut Updates) -> Option<Outcome> {
        match event.state.as_ref() {
            "delta" => {
                if !self.agent_speaks
                    && let Some(text) = event.message.and_then(first_text)
                {
                    self.texts.live_whole(text, event.delta_text, event.replace, out);
                }
                None
            }
            "final" => {
                if let Some(text) = event.message.and_then(first_text).and_then(wire::read::<Cow<'_, str>>) {
                    self.texts.ended_with(&text, out);
                }
                let stop = event.stop_reason.as_deref().or(self.stop.as_deref()).unwrap_or_default();
                Some(if is_cut(stop) { Outcome::MaxTokens } else { Outcome::Done })
            }
            "aborted" => Some(Outcome::Cancelled),
            "error" => {
                if self.stop.as_deref().is_some_and(is_cut) {
                    return Some(Outcome::MaxTokens);
                }
                let words = event.error_message.as_deref().map(str::to_owned).or_else(|| {
                    let text = event.message.and_then(first_text).and_then(wire::read::<Cow<'_, str>>);
                    text.map(Cow::into_owned)
                });
                let words = words.unwrap_or_else(|| "the run failed, and the gateway gives no reason".to_owned());
                Some(match event.error_kind.as_deref() {
                    Some("refusal") => Outcome::Refused(words),
                    kind => Outcome::Failed(words, kind.map(str::to_owned)),
                })
            }
            _ => None,
        }
    }

    /// Whether the gateway's last word holds more text than was told: some of it is lost.
    pub(super) fn lacks_text(&self) -> bool {
        self.texts.lacks()
    }

    /// Takes a row as it is written.
    pub(super) fn live_row(&mut self, row: &Row<'_>, out: &mut Updates) {
        if row.id().is_some_and(|id| self.rows.contains(id)) || row.is_abort_note() {
            return;
        }
        self.row(row, false, out);
    }

    /// A connection or an event was lost: what comes next need not follow what came last.
    pub(super) fn resumed(&mut self) {
        self.texts.resumed();
    }

    /// Begins a reading of the run's rows from the first on.
    pub(super) fn reread(&mut self) {
        self.texts.reread();
    }

    /// Takes a row of the past.
    pub(super) fn past_row(&mut self, row: &Row<'_>, out: &mut Updates) {
        self.works = true;
        self.row(row, true, out);
    }

    fn row(&mut self, row: &Row<'_>, past: bool, out: &mut Updates) {
        match row.role.as_ref() {
            "assistant" => self.assistant_row(row, past, out),
            "toolResult" => {
                if let Some(id) = row.tool_call_id.as_deref() {
                    let name = row.tool_name.as_deref().unwrap_or("tool");
                    self.tools.finish(id, name, &row.text(), row.is_error, row.details, out);
                }
            }
            _ => {}
        }
    }

    fn assistant_row(&mut self, row: &Row<'_>, past: bool, out: &mut Updates) {
        let known = row.id().is_some_and(|id| self.rows.contains(id));
        if let Some(id) = row.id()
            && self.rows.len() < MAX_ROWS
        {
            self.rows.insert(id.to_owned());
        }
        let blocks = row.blocks();
        if !known {
            for thought in
                blocks.iter().filter_map(|block| block.thinking.as_deref()).filter(|text| !text.trim().is_empty())
            {
                self.texts.think(thought, out);
            }
            if let Some(usage) = row.usage {
                self.count(usage);
            }
        }
        let text: String =
            blocks.iter().filter(|block| block.r#type == "text").filter_map(|block| block.text.as_deref()).collect();
        if !text.is_empty() && !PLACEHOLDERS.contains(&text.trim()) {
            self.texts.row(&text, past, out);
        }
        for block in blocks.iter().filter(|block| block.r#type == "toolCall") {
            if let Some(id) = block.id.as_deref() {
                self.tools.start(id, block.name.as_deref().unwrap_or("tool"), block.arguments, None, out);
            }
        }
        match row.stop_reason.as_deref() {
            // A call follows, and after it another row.
            Some("toolUse") => {}
            stop => {
                self.ended_by_row = true;
                if let Some(stop) = stop {
                    self.stop = Some(stop.to_owned());
                }
            }
        }
    }

    fn count(&mut self, usage: super::history::RowUsage) {
        if usage.total_tokens == 0 {
            return;
        }
        self.window = Some(usage.total_tokens);
        let sum = self.usage.get_or_insert(PromptUsage {
            total_tokens: 0,
            input_tokens: 0,
            output_tokens: 0,
            cached_read_tokens: 0,
            cached_write_tokens: None,
        });
        sum.total_tokens = sum.total_tokens.saturating_add(usage.total_tokens);
        sum.input_tokens = sum.input_tokens.saturating_add(usage.input);
        sum.output_tokens = sum.output_tokens.saturating_add(usage.output);
        sum.cached_read_tokens = sum.cached_read_tokens.saturating_add(usage.cache_read);
        if usage.cache_write > 0 {
            let written = sum.cached_write_tokens.get_or_insert(0);
            *written = written.saturating_add(usage.cache_write);
        }
    }

    /// How a run ended whose rows are all there; `None` when the last of them does not end one.
    pub(super) fn outcome_of(&self, rows: &[Row<'_>]) -> Option<Outcome> {
        if rows.iter().any(Row::is_abort_note) {
            return Some(Outcome::Cancelled);
        }
        let last = rows.iter().rfind(|row| row.role == "assistant")?;
        Some(match last.stop_reason.as_deref()? {
            "toolUse" => return None,
            "aborted" => Outcome::Cancelled,
            "error" => {
                let words = last.error_message.as_deref().unwrap_or("the run failed, and the gateway gives no reason");
                Outcome::Failed(words.to_owned(), None)
            }
            stop if is_cut(stop) => Outcome::MaxTokens,
            _ => Outcome::Done,
        })
    }

    /// Ends what is open: no tool of an ended run goes on.
    pub(super) fn close_tools(&mut self, out: &mut Updates) {
        self.tools.close(out);
    }

    /// Says something in the agent's name.
    pub(super) fn say(&mut self, text: &str, out: &mut Updates) {
        self.texts.say(text, out);
    }
}

/// The model's limit ended the answer. Both names are in use.
fn is_cut(stop: &str) -> bool {
    matches!(stop, "length" | "max_tokens")
}

/// The text of a message's first block, still escaped.
fn first_text(message: &RawValue) -> Option<&RawValue> {
    let content = wire::read::<Message<'_>>(message)?.content?;
    if content.get().starts_with('"') {
        return Some(content);
    }
    let blocks: Vec<MessageBlock<'_>> = wire::read(content)?;
    blocks.into_iter().find_map(|block| block.text)
}

fn plan(data: &RawValue, out: &mut Updates) {
    let Some(plan) = wire::read::<Plan<'_>>(data) else { return };
    let read = |raw: &&RawValue| -> Option<(String, PlanStatus)> {
        if let Some(text) = wire::read::<String>(raw) {
            return Some((text, PlanStatus::Pending));
        }
        let step: Step = wire::read(raw)?;
        let status = match step.status.as_deref() {
            Some("completed" | "done") => PlanStatus::Completed,
            Some("inProgress" | "in_progress" | "running") => PlanStatus::InProgress,
            _ => PlanStatus::Pending,
        };
        Some((step.step.or(step.content).or(step.text)?, status))
    };
    let steps: Vec<(String, PlanStatus)> = plan.steps.iter().take(MAX_STEPS).filter_map(read).collect();
    if steps.is_empty() {
        return;
    }
    let entries: Vec<PlanEntry<'_>> = steps
        .iter()
        .map(|(content, status)| PlanEntry { content, priority: PlanPriority::Medium, status: *status })
        .collect();
    out.push(encode(&SessionUpdate::Plan { entries: &entries }));
}

/// A part of the agent's answer or thinking.
#[derive(Clone, Copy)]
enum Voice {
    Says,
    Thinks,
}

fn chunk(voice: Voice, text: &str, message_id: &str, out: &mut Updates) {
    let content = ContentBlock::text(text);
    out.push(encode(&match voice {
        Voice::Says => SessionUpdate::AgentMessageChunk { content, message_id },
        Voice::Thinks => SessionUpdate::AgentThoughtChunk { content, message_id },
    }));
}
