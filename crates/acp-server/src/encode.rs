//! From the runtime's values to wire bytes: the only place where both are named.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;
use serde_json::value::RawValue;
use zeroclaw_acp_protocol as wire;
use zeroclaw_acp_protocol::{ContentBlock, EmbeddedResource, GatedUpdate, SessionUpdate, ToolCallContent, UsageCost};
use zeroclaw_runtime::{
    tool::{Location, PlanEntry, PlanPriority, PlanStatus, ToolContent, ToolKind},
    turn::{CallStatus, StopReason, TurnEvent},
};

/// Writes one event as an `update` object; `cost` is what the session has cost so far, for the tokens of a call.
pub(crate) fn event(out: &mut Vec<u8>, event: &TurnEvent<'_>, cost: Option<UsageCost<'_>>) {
    match event {
        TurnEvent::Text { message, text } => {
            write(out, &SessionUpdate::AgentMessageChunk { content: ContentBlock::text(text), message_id: message });
        }
        TurnEvent::Thought { message, text } => {
            write(out, &SessionUpdate::AgentThoughtChunk { content: ContentBlock::text(text), message_id: message });
        }
        TurnEvent::CallStarted {
            id,
            tool,
            kind: call_kind,
            title,
            raw_input: input,
            locations: places,
            content: shown,
        } => {
            let update = SessionUpdate::ToolCall {
                tool_call_id: id,
                title,
                name: tool,
                kind: kind(*call_kind),
                status: wire::CallStatus::Pending,
                content: &content(shown),
                locations: &locations(places),
                raw_input: raw_input(input),
            };
            write(out, &update);
        }
        TurnEvent::CallChanged { id, tool, status: new, title, content: shown, locations: places, raw_output } => {
            let shown = shown.map(content);
            let places = places.map(locations);
            let update = SessionUpdate::ToolCallUpdate {
                tool_call_id: id,
                name: tool,
                status: new.map(status),
                title: *title,
                content: shown.as_deref(),
                locations: places.as_deref(),
                raw_output: *raw_output,
            };
            write(out, &update);
        }
        TurnEvent::Plan(steps) => write(out, &SessionUpdate::Plan { entries: &plan(steps) }),
        TurnEvent::Usage { used, size, counted: _, model: _ } => {
            write(out, &SessionUpdate::UsageUpdate { used: *used, size: *size, cost });
        }
        // Told to each client in the way that it understands, and no part of the log.
        TurnEvent::Compaction { .. } | TurnEvent::Fallback { .. } => {}
    }
}

/// The event as the client sees it that has the terminal its content names; `None` when it names none.
/// A terminal is named while its call runs. Then it is released and must not be named again: the client keeps showing it.
pub(crate) fn for_owner(event: &TurnEvent<'_>) -> Option<Vec<u8>> {
    let TurnEvent::CallChanged { id, tool, status: new, title, content: Some(shown), locations: places, raw_output } =
        event
    else {
        return None;
    };
    let terminal = shown.iter().find_map(|item| match item {
        ToolContent::Terminal { id, .. } => Some(id),
        ToolContent::Text(_) | ToolContent::Diff { .. } | ToolContent::Attachment { .. } => None,
    })?;
    let named = [ToolCallContent::Terminal { terminal_id: terminal }];
    let places = places.map(locations);
    let update = SessionUpdate::ToolCallUpdate {
        tool_call_id: id,
        name: tool,
        status: new.map(status),
        title: *title,
        content: (*new == Some(CallStatus::InProgress)).then_some(&named),
        locations: places.as_deref(),
        raw_output: *raw_output,
    };
    let mut out = Vec::new();
    write(&mut out, &update);
    Some(out)
}

/// Writes one update object. Everything in it has string keys and no foreign numbers, so writing into memory cannot fail.
pub(crate) fn write(out: &mut Vec<u8>, update: &SessionUpdate<'_>) {
    write_any(out, update);
}

/// The same for an update that a client must have asked for.
pub(crate) fn write_gated(out: &mut Vec<u8>, update: &GatedUpdate<'_>) {
    write_any(out, update);
}

/// The mode under the protocol's name and under the one that some clients read.
pub(crate) fn write_twice_named_mode(out: &mut Vec<u8>, update: &SessionUpdate<'_>, mode: &str) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Named<'a> {
        #[serde(flatten)]
        update: &'a SessionUpdate<'a>,
        mode_id: &'a str,
    }
    write_any(out, &Named { update, mode_id: mode });
}

fn write_any(out: &mut Vec<u8>, update: &impl Serialize) {
    if let Err(error) = serde_json::to_writer(out, update) {
        tracing::error!(%error, "an update could not be encoded");
    }
}

/// The model's arguments as raw JSON; what is not JSON becomes null, because one bad byte would spoil the whole line.
pub(crate) fn raw_input(text: &str) -> &RawValue {
    serde_json::from_str(text).unwrap_or(RawValue::NULL)
}

pub(crate) fn kind(kind: ToolKind) -> wire::ToolKind {
    match kind {
        ToolKind::Read => wire::ToolKind::Read,
        ToolKind::Edit => wire::ToolKind::Edit,
        ToolKind::Search => wire::ToolKind::Search,
        ToolKind::Execute => wire::ToolKind::Execute,
        ToolKind::Think => wire::ToolKind::Think,
        ToolKind::Other => wire::ToolKind::Other,
    }
}

fn status(status: CallStatus) -> wire::CallStatus {
    match status {
        CallStatus::Pending => wire::CallStatus::Pending,
        CallStatus::InProgress => wire::CallStatus::InProgress,
        CallStatus::Completed => wire::CallStatus::Completed,
        CallStatus::Failed => wire::CallStatus::Failed,
    }
}

pub(crate) fn locations(places: &[Location]) -> Vec<wire::Location<'_>> {
    places.iter().map(|place| wire::Location { path: &place.path, line: place.line }).collect()
}

pub(crate) fn content(shown: &[ToolContent]) -> Vec<ToolCallContent<'_>> {
    shown
        .iter()
        .map(|item| match item {
            ToolContent::Text(text) => ToolCallContent::Content { content: ContentBlock::text(text) },
            ToolContent::Diff { path, old, new } => {
                ToolCallContent::Diff { path, old_text: old.as_deref(), new_text: new }
            }
            ToolContent::Terminal { id: _, text } => ToolCallContent::Content { content: ContentBlock::text(text) },
            ToolContent::Attachment { uri, mime_type, bytes } => ToolCallContent::Content {
                content: ContentBlock::Resource {
                    resource: EmbeddedResource {
                        uri: Cow::Borrowed(uri),
                        mime_type: Some(Cow::Borrowed(mime_type)),
                        text: None,
                        blob: Some(Cow::Owned(STANDARD.encode(bytes))),
                    },
                },
            },
        })
        .collect()
}

fn plan(steps: &[PlanEntry]) -> Vec<wire::PlanEntry<'_>> {
    steps
        .iter()
        .map(|step| wire::PlanEntry {
            content: &step.content,
            priority: match step.priority {
                PlanPriority::High => wire::PlanPriority::High,
                PlanPriority::Medium => wire::PlanPriority::Medium,
                PlanPriority::Low => wire::PlanPriority::Low,
            },
            status: match step.status {
                PlanStatus::Pending => wire::PlanStatus::Pending,
                PlanStatus::InProgress => wire::PlanStatus::InProgress,
                PlanStatus::Completed => wire::PlanStatus::Completed,
            },
        })
        .collect()
}

pub(crate) fn stop_reason(stop: StopReason) -> &'static str {
    match stop {
        StopReason::EndTurn => "end_turn",
        StopReason::MaxTokens => "max_tokens",
        StopReason::MaxTurnRequests => "max_turn_requests",
        StopReason::Refusal => "refusal",
        StopReason::Cancelled => "cancelled",
    }
}
