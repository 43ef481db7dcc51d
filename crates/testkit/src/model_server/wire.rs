//! From events to writes.
//!
//! Owns the text of the event stream (line ends, comments, spread data) and the plan of writes, pauses and cuts. It
//! refuses to know vendors: an event is a name and a JSON text.

use std::time::Duration;

use super::{
    render::Event,
    reply::{Gate, LineEnd, Quirks, Writes},
};

/// One thing the connection does; the whole reply is a list of these.
pub(super) enum Action {
    Write(Vec<u8>),
    Wait(Gate),
    Sleep(Duration),
}

/// The end of the body after the last action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// The body ends as HTTP wants it.
    Proper,
    /// The socket is closed at once.
    Cut,
    /// Nothing more comes and nothing is closed.
    Open,
}

/// Text of one event.
pub(super) fn encode(event: &Event, quirks: &Quirks) -> Vec<u8> {
    let end = match quirks.line_end {
        LineEnd::Lf => "\n",
        LineEnd::CrLf => "\r\n",
        LineEnd::Cr => "\r",
    };
    let mut out = String::new();
    if quirks.comments {
        out.push_str(&format!(": keep-alive{end}"));
    }
    if let Some(name) = event.name {
        out.push_str(&format!("event: {name}{end}"));
    }
    match &event.data {
        Some(value) if quirks.multi_line_data => {
            let pretty = serde_json::to_string_pretty(value).expect("a value is always serialisable");
            for line in pretty.lines() {
                out.push_str(&format!("data: {line}{end}"));
            }
        }
        Some(value) => out.push_str(&format!("data: {value}{end}")),
        None => out.push_str(&format!("data: [DONE]{end}")),
    }
    out.push_str(end);
    out.into_bytes()
}

/// The actions for a list of events. An event knows how many parts are complete before it, which is where gates open.
pub(super) fn plan(events: &[Event], quirks: &Quirks) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut pending = Vec::new();
    let mut gates = quirks.gates.iter().peekable();
    let mut budget = quirks.cut_bytes.unwrap_or(usize::MAX);
    for (index, event) in events.iter().enumerate() {
        while let Some((_, gate)) = gates.next_if(|(after, _)| *after <= event.parts_before || event.finish) {
            flush(&mut pending, quirks, &mut actions);
            actions.push(Action::Wait(gate.clone()));
        }
        if let Some(delay) = quirks.delay.filter(|_| index > 0) {
            flush(&mut pending, quirks, &mut actions);
            actions.push(Action::Sleep(delay));
        }
        let mut bytes = encode(event, quirks);
        bytes.truncate(budget);
        budget -= bytes.len();
        pending.extend(bytes);
        if !matches!(quirks.writes, Writes::Single) {
            flush(&mut pending, quirks, &mut actions);
        }
        if budget == 0 {
            break;
        }
    }
    flush(&mut pending, quirks, &mut actions);
    if budget > 0 {
        // A stream that ends without a finish reason still has to stop at its gates.
        actions.extend(gates.map(|(_, gate)| Action::Wait(gate.clone())));
    }
    actions
}

fn flush(pending: &mut Vec<u8>, quirks: &Quirks, actions: &mut Vec<Action>) {
    if pending.is_empty() {
        return;
    }
    let bytes = std::mem::take(pending);
    match quirks.writes {
        Writes::PerEvent | Writes::Single => actions.push(Action::Write(bytes)),
        Writes::PerByte => actions.extend(bytes.into_iter().map(|byte| Action::Write(vec![byte]))),
        Writes::SplitUtf8 => {
            let mut rest = bytes.as_slice();
            while let Some(lead) = rest.iter().position(|byte| *byte >= 0xC0) {
                let (head, tail) = rest.split_at(lead + 1);
                actions.push(Action::Write(head.to_vec()));
                rest = tail;
            }
            actions.push(Action::Write(rest.to_vec()));
        }
    }
}
