//! Puts a turn to rest whose process died: its open tool calls become failed, the interruption is said,
//! and what the model had said without its message being recorded becomes a message.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use zeroclaw_acp_protocol::{CallStatus, ContentBlock, SessionUpdate};
use zeroclaw_runtime::model::Message;
use zeroclaw_session_store::{
    Batch, EventKind, EventRecord, MessageRecord, SessionRecord, SessionStore, StoreError, TurnEnd, TurnRecord,
    TurnState,
};

use crate::encode;

/// What the user and the model read where a turn broke off.
pub(super) const INTERRUPTED: &str = "[This turn was interrupted: the agent's process ended before it was finished.]";

/// Events read at once.
const PAGE: u32 = 1024;

/// The little of an update that matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Seen<'a> {
    session_update: &'a str,
    #[serde(borrow, default)]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    status: Option<Cow<'a, str>>,
    #[serde(default)]
    content: Option<&'a serde_json::value::RawValue>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Default)]
struct Broken {
    /// Open calls: id and tool.
    open: BTreeMap<String, String>,
    text: String,
    last_seq: u64,
}

impl Broken {
    fn see(&mut self, event: &EventRecord) {
        self.last_seq = event.seq;
        let Ok(seen) = serde_json::from_slice::<Seen<'_>>(&event.payload) else { return };
        match (seen.session_update, seen.tool_call_id) {
            ("tool_call" | "tool_call_update", Some(id)) => {
                if matches!(seen.status.as_deref(), Some("completed" | "failed")) {
                    self.open.remove(id.as_ref());
                } else {
                    self.open.entry(id.into_owned()).or_insert_with(|| seen.name.unwrap_or_default().into_owned());
                }
            }
            // While a call is open it is a tool that speaks: the model has ended its answer before its calls begin.
            ("agent_message_chunk", _) if self.open.is_empty() => {
                let text = seen.content.and_then(|raw| serde_json::from_str::<Text>(raw.get()).ok());
                self.text.push_str(&text.map(|text| text.text).unwrap_or_default());
            }
            _ => {}
        }
    }
}

/// Repairs the last turn of a session when it needs it.
pub(super) async fn repair(
    store: &Arc<dyn SessionStore>,
    record: &SessionRecord,
    now_ms: i64,
) -> Result<(), StoreError> {
    let Some(turn) = &record.last_turn else { return Ok(()) };
    if turn.state != TurnState::Interrupted || turn.last_seq.is_some() {
        return Ok(());
    }
    let broken = read(store, record, turn).await?;
    let messages = messages(store, record, turn, &broken).await?;
    let mut seq = record.last_seq;
    let mut events = Vec::new();
    let mut push = |update: &SessionUpdate<'_>| {
        let mut payload = Vec::new();
        encode::write(&mut payload, update);
        seq += 1;
        events.push(EventRecord { seq, kind: EventKind::Update, turn: Some(turn.turn), payload: Bytes::from(payload) });
    };
    for (id, tool) in &broken.open {
        push(&SessionUpdate::ToolCallUpdate {
            tool_call_id: id,
            name: tool,
            status: Some(CallStatus::Failed),
            title: None,
            content: None,
            locations: None,
            raw_output: Some("interrupted: the agent's process ended"),
        });
    }
    let message_id = format!("i-{}", turn.turn);
    push(&SessionUpdate::AgentMessageChunk { content: ContentBlock::text(INTERRUPTED), message_id: &message_id });
    let end = TurnEnd {
        turn: turn.turn,
        state: TurnState::Interrupted,
        stop_reason: None,
        ended_at_ms: now_ms,
        batch: Batch { events, messages },
    };
    store.end_turn(&record.id, end).await
}

async fn read(store: &Arc<dyn SessionStore>, record: &SessionRecord, turn: &TurnRecord) -> Result<Broken, StoreError> {
    let mut broken = Broken::default();
    let mut after = 0;
    loop {
        let page = store.events(&record.id, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(broken) };
        after = last.seq;
        for event in page.iter().filter(|event| event.turn == Some(turn.turn)) {
            broken.see(event);
        }
    }
}

/// The messages that make the model's conversation whole again: what it had said, and a result for every call it had made.
async fn messages(
    store: &Arc<dyn SessionStore>,
    record: &SessionRecord,
    turn: &TurnRecord,
    broken: &Broken,
) -> Result<Vec<MessageRecord>, StoreError> {
    let stored = store.messages(&record.id).await?;
    let mut position = stored.last().map_or(0, |message| message.position + 1);
    let mut said = String::new();
    let mut waiting: Vec<String> = Vec::new();
    let mut any = false;
    for message in stored.iter().filter(|message| message.turn == turn.turn) {
        any = true;
        match serde_json::from_slice::<Message>(&message.payload) {
            Ok(Message::Assistant { text, tool_calls, .. }) => {
                said.push_str(&text);
                waiting.extend(tool_calls.into_iter().map(|call| call.id));
            }
            Ok(Message::Tool { call_id, .. }) => waiting.retain(|id| *id != call_id),
            Ok(Message::User { .. }) | Err(_) => {}
        }
    }
    if !any {
        return Ok(Vec::new());
    }
    let mut repaired: Vec<Message> = waiting
        .into_iter()
        .map(|call_id| Message::Tool {
            call_id,
            content: "interrupted: the agent's process ended before this call was done; it may have had effects"
                .to_owned(),
            failed: true,
        })
        .collect();
    let unrecorded = broken.text.strip_prefix(&said).unwrap_or_default().trim();
    let text = if unrecorded.is_empty() { INTERRUPTED.to_owned() } else { format!("{unrecorded}\n\n{INTERRUPTED}") };
    repaired.push(Message::Assistant { text, thought: String::new(), tool_calls: Vec::new(), signed: Vec::new() });
    let mut records = Vec::with_capacity(repaired.len());
    for message in repaired {
        if let Ok(json) = serde_json::to_vec(&message) {
            records.push(MessageRecord { position, turn: turn.turn, payload: Bytes::from(json) });
            position += 1;
        }
    }
    Ok(records)
}
