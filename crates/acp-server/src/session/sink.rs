//! Where a turn's events and messages go: into the session's pump, encoded.
//! What is news of now and no part of the conversation (a compaction, a model that takes over) is told and not logged.

use std::sync::{Arc, atomic::Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use zeroclaw_acp_protocol::{Change, CompactionStatus, ContentBlock, GatedUpdate, NoticeSeverity, UsageCost};
use zeroclaw_runtime::{
    model::Message,
    turn::{CallStatus, CompactionStep, Flow, TurnEvent, TurnSink},
};
use zeroclaw_session_store::{EventKind, MessageRecord};

use super::{Notice, stored, turn::TurnScene};
use crate::{
    agents::AgentEntry,
    client::{Client, lock},
    cost::Price,
    encode,
};

/// Writes a turn's events into the session's pump.
pub(super) struct Sink<'a> {
    pub(super) scene: &'a TurnScene,
    /// Who sent the prompt.
    pub(super) client: &'a Arc<Client>,
    pub(super) turn: u64,
    /// Of the model that the turn began with.
    pub(super) price: Option<Price>,
    /// The agent, for the prices of models that take over.
    pub(super) entry: Arc<AgentEntry>,
    /// Whether the client wants to see the reasoning.
    pub(super) thoughts: bool,
}

impl Sink<'_> {
    /// What the tokens of a model cost; `None` asks for the one that was chosen.
    fn price(&self, model: Option<&str>) -> Option<&Price> {
        match model {
            None => self.price.as_ref(),
            Some(id) => self.entry.models.iter().find(|choice| choice.id == id)?.price.as_ref(),
        }
    }

    /// Keeps in mind which calls are open.
    fn note_call(&self, event: &TurnEvent<'_>) {
        match event {
            TurnEvent::CallStarted { id, tool, .. } => {
                lock(&self.scene.open_calls).push(((*id).to_owned(), (*tool).to_owned()));
            }
            TurnEvent::CallChanged { id, status: Some(CallStatus::Completed | CallStatus::Failed), .. } => {
                lock(&self.scene.open_calls).retain(|(open, _)| open != id);
            }
            TurnEvent::CallChanged { .. }
            | TurnEvent::Text { .. }
            | TurnEvent::Thought { .. }
            | TurnEvent::Plan(_)
            | TurnEvent::Usage { .. }
            | TurnEvent::Compaction { .. }
            | TurnEvent::Fallback { .. } => {}
        }
    }

    fn compaction(&self, id: &str, step: CompactionStep<'_>, ordered: bool) {
        let text;
        let summary: [ContentBlock<'_>; 1];
        let (status, told, error) = match step {
            CompactionStep::Started => (CompactionStatus::InProgress, Change::Keep, Change::Keep),
            CompactionStep::Done { summary: written, .. } => {
                summary = [ContentBlock::text(written.unwrap_or(RESULTS_CUT))];
                (CompactionStatus::Completed, Change::Set(&summary[..]), Change::Keep)
            }
            CompactionStep::Failed { error } => (CompactionStatus::Failed, Change::Keep, Change::Set(error)),
            CompactionStep::Cancelled => (CompactionStatus::Cancelled, Change::Keep, Change::Keep),
        };
        let update = GatedUpdate::CompactionUpdate { compaction_id: id, status, summary: told, error };
        let (severity, title, description) = match step {
            CompactionStep::Done { summary, before, after } => {
                text =
                    format!("about {after} tokens of messages instead of {before}; nothing of it is lost on the disk");
                let title = if summary.is_some() {
                    "The older part of the conversation is replaced by a summary in what the model sees"
                } else {
                    RESULTS_CUT
                };
                (NoticeSeverity::Info, title, text.as_str())
            }
            CompactionStep::Failed { error } => {
                (NoticeSeverity::Warning, "The conversation is long and could not be summarised", error)
            }
            // Nothing that has to be said to a client that shows no progress of it.
            CompactionStep::Started | CompactionStep::Cancelled => {
                for client in self.scene.pump.clients() {
                    self.scene.pump.tell_gated(&client, &update);
                }
                return;
            }
        };
        let notice = Notice { id, severity, title, description: Some(description) };
        for client in self.scene.pump.clients() {
            // Who asked for it reads the answer.
            if !self.scene.pump.tell_gated(&client, &update) && !ordered {
                self.scene.pump.notice_to(&client, &notice);
            }
        }
    }
}

#[async_trait]
impl TurnSink for Sink<'_> {
    fn emit(&self, event: TurnEvent<'_>) -> Flow {
        if !self.thoughts && matches!(event, TurnEvent::Thought { .. }) {
            return Flow::Ready;
        }
        self.note_call(&event);
        let cost = match &event {
            TurnEvent::Usage { counted, model, .. } => {
                let price = self.price(*model);
                let mut spent = lock(&self.scene.spent);
                spent.add(counted, price);
                self.scene.keep(&spent);
                // A model without a price is no reason to be silent about what the others have cost.
                price.or(self.price.as_ref()).and_then(|price| spent.in_currency_of(price))
            }
            TurnEvent::Compaction { id, step, ordered } => {
                self.compaction(id, *step, *ordered);
                return Flow::Ready;
            }
            TurnEvent::Fallback { message, from, to, reason } => {
                let title = format!("The model {from} could not answer, {to} takes over for this turn");
                let severity = NoticeSeverity::Warning;
                self.scene.pump.notice(&Notice { id: message, severity, title: &title, description: Some(reason) });
                return Flow::Ready;
            }
            TurnEvent::Text { .. }
            | TurnEvent::Thought { .. }
            | TurnEvent::CallStarted { .. }
            | TurnEvent::CallChanged { .. }
            | TurnEvent::Plan(_) => None,
        };
        let cost = cost.as_ref().map(|(amount, currency)| UsageCost { amount, currency });
        let encode = |out: &mut Vec<u8>| encode::event(out, &event, cost);
        match encode::for_owner(&event) {
            Some(instead) => self.scene.pump.event_but(self.turn, self.client, instead, encode),
            None => self.scene.pump.event(EventKind::Update, Some(self.turn), encode),
        }
    }

    async fn drained(&self) {
        self.scene.pump.drained().await;
    }

    fn record(&self, message: &Arc<Message>) {
        self.keep(serde_json::to_vec(message.as_ref()));
    }

    fn compacted(&self, conversation: &[Arc<Message>], own: usize) {
        self.keep(stored::compacted(conversation, own));
    }
}

impl Sink<'_> {
    fn keep(&self, encoded: serde_json::Result<Vec<u8>>) {
        match encoded {
            Ok(json) => self.scene.pump.message(MessageRecord {
                position: self.scene.position.fetch_add(1, Ordering::Relaxed),
                turn: self.turn,
                payload: Bytes::from(json),
            }),
            Err(error) => tracing::error!(%error, "a message could not be encoded"),
        }
    }
}

/// Said of a compaction that needed no summary.
const RESULTS_CUT: &str = "Long results of older tool calls are cut in what the model sees";
