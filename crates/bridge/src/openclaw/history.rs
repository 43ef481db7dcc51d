//! Rows of a session's transcript, as the gateway keeps them: read from its history or live, one at a time.
//! They say more than events do: thinking, the whole text with its trailing white space, tokens, the results of tools.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{ContentBlock, SessionUpdate};

use super::{
    prompt::without_prefix,
    run::{Translator, encode},
    wire,
};

/// Rows that are read of a session's history, at most. The gateway gives the latest; a longer conversation is replayed from there.
pub(super) const MAX_ROWS: u32 = 20_000;

/// One row.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Row<'a> {
    #[serde(borrow)]
    pub(super) role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    pub(super) usage: Option<RowUsage>,
    #[serde(borrow)]
    pub(super) stop_reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) error_message: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) tool_call_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) tool_name: Option<Cow<'a, str>>,
    pub(super) is_error: bool,
    #[serde(borrow)]
    pub(super) details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) idempotency_key: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "__openclaw")]
    mark: Option<Mark<'a>>,
    #[serde(borrow)]
    openclaw_abort: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Mark<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
}

/// Tokens and price of one answer of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RowUsage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) total_tokens: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
}

/// Part of a row.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Block<'a> {
    #[serde(borrow)]
    pub(super) r#type: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) thinking: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

impl<'a> Row<'a> {
    /// What identifies the row in its session.
    pub(super) fn id(&self) -> Option<&str> {
        self.mark.as_ref()?.id.as_deref()
    }

    /// The run that the row begins: the row of a prompt names it.
    pub(super) fn begins(&self) -> Option<&str> {
        if self.role != "user" {
            return None;
        }
        self.idempotency_key.as_deref()?.strip_suffix(":user")
    }

    /// Whether the gateway put the row there because a run was stopped. The model's own row follows as a rule.
    pub(super) fn is_abort_note(&self) -> bool {
        self.openclaw_abort.is_some()
    }

    /// The parts; a row may also be just a text.
    pub(super) fn blocks(&self) -> Vec<Block<'a>> {
        let Some(raw) = self.content else { return Vec::new() };
        if raw.get().starts_with('"') {
            let text = wire::read::<Cow<'a, str>>(raw);
            return text
                .map(|text| Block { r#type: Cow::Borrowed("text"), text: Some(text), ..Block::default() })
                .into_iter()
                .collect();
        }
        wire::read(raw).unwrap_or_default()
    }

    /// All its text, one after the other.
    pub(super) fn text(&self) -> String {
        self.blocks().into_iter().filter(|block| block.r#type == "text").filter_map(|block| block.text).collect()
    }
}

/// The answer to `sessions.get`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct History<'a> {
    #[serde(borrow)]
    pub(super) messages: Vec<Row<'a>>,
}

impl<'a> History<'a> {
    /// The rows of one run: from its prompt on to the next one. `None` when its prompt is not there.
    pub(super) fn of_run(&self, run: &str) -> Option<&[Row<'a>]> {
        let start = self.messages.iter().rposition(|row| row.begins() == Some(run))? + 1;
        let rows = self.messages.get(start..)?;
        let end = rows.iter().position(|row| row.role == "user").unwrap_or(rows.len());
        rows.get(..end)
    }

    /// The whole conversation as updates.
    pub(super) fn replay(&self, session: &str) -> Vec<Bytes> {
        let mut out = Vec::new();
        let mut turn = Translator::new(&format!("{session}-h0"));
        let mut turns = 0;
        for row in &self.messages {
            if row.role == "user" {
                turn.close_tools(&mut out);
                turns += 1;
                turn = Translator::new(&format!("{session}-h{turns}"));
                let text = row.text();
                let text = without_prefix(&text);
                if !text.is_empty() {
                    let message_id = format!("{session}-u{turns}");
                    let content = ContentBlock::text(text);
                    out.push(encode(&SessionUpdate::UserMessageChunk { content, message_id: &message_id }));
                }
            } else if !row.is_abort_note() {
                turn.past_row(row, &mut out);
            }
        }
        turn.close_tools(&mut out);
        out
    }
}
