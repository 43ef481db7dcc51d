//! What the agent says in one run, as messages: each stretch between two tools is one.
//! The gateway tells a message again and again, longer each time, and once more as a row of the transcript; what is new of it is sent.
//! A text that was not continued but rewritten begins a new message, as nothing that was sent can be taken back.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{Updates, Voice, chunk};
use crate::openclaw::wire;

/// A message, as far as the client has it.
#[derive(Debug)]
struct Segment {
    id: String,
    text: String,
}

/// The messages of a run.
#[derive(Debug)]
pub(super) struct Texts {
    name: String,
    messages: u32,
    segments: Vec<Segment>,
    /// The message that live text continues.
    live: Option<usize>,
    /// A tool was used since, so that the next text begins another message.
    interrupted: bool,
    /// Live text may begin anywhere.
    resumed: bool,
    /// The length of the last live text as JSON, without its quotes. 0: the next one is compared letter by letter.
    raw_len: usize,
    /// In texts that hold the whole run: where the current message begins.
    base: usize,
    /// In texts that hold the whole run: the length of the last one.
    whole: usize,
    /// The message that the next row with text belongs to.
    next_row: usize,
    lacks: bool,
}

impl Texts {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            messages: 0,
            segments: Vec::new(),
            live: None,
            interrupted: false,
            resumed: false,
            raw_len: 0,
            base: 0,
            whole: 0,
            next_row: 0,
            lacks: false,
        }
    }

    pub(super) fn lacks(&self) -> bool {
        self.lacks
    }

    /// A tool is used.
    pub(super) fn interrupted(&mut self) {
        self.interrupted = true;
    }

    pub(super) fn resumed(&mut self) {
        self.resumed = true;
        self.live = None;
        self.raw_len = 0;
        self.interrupted = false;
    }

    pub(super) fn reread(&mut self) {
        self.next_row = 0;
    }

    /// Thinking is a message of its own.
    pub(super) fn think(&mut self, text: &str, out: &mut Updates) {
        let id = self.next_id();
        chunk(Voice::Thinks, text, &id, out);
    }

    /// Says something that is no text of the model.
    pub(super) fn say(&mut self, text: &str, out: &mut Updates) {
        let index = self.segments.len();
        self.open(index);
        self.add(index, text, out);
        self.raw_len = 0;
    }

    /// Takes the current message as it is now, and what is new of it.
    pub(super) fn live(&mut self, text: &RawValue, delta: Option<&RawValue>, replace: bool, out: &mut Updates) {
        if !self.interrupted && !replace && self.continued(text, delta, out) {
            return;
        }
        let raw_len = unquoted(text).len();
        let Some(text) = wire::read::<Cow<'_, str>>(text) else {
            // Half a character: the next text brings the other half.
            self.raw_len = 0;
            return;
        };
        self.now(&text, replace, out);
        let is_level =
            self.live.and_then(|index| self.segments.get(index)).is_some_and(|segment| segment.text == *text);
        self.raw_len = if is_level { raw_len } else { 0 };
    }

    /// Takes the text of the whole run as it is now, and what is new of it.
    pub(super) fn live_whole(&mut self, text: &RawValue, delta: Option<&RawValue>, replace: bool, out: &mut Updates) {
        if !self.interrupted && !replace && self.continued(text, delta, out) {
            self.whole += delta.and_then(wire::read::<Cow<'_, str>>).map_or(0, |delta| delta.len());
            return;
        }
        let raw_len = unquoted(text).len();
        let Some(text) = wire::read::<Cow<'_, str>>(text) else {
            self.raw_len = 0;
            return;
        };
        if self.interrupted && self.live.is_some() {
            self.base = self.whole;
        }
        let current = match text.get(self.base..) {
            Some(current) => current,
            // Shorter than what came before the last tool: all of it was rewritten.
            None => {
                self.base = 0;
                &text
            }
        };
        self.whole = text.len();
        self.now(current, replace, out);
        let is_level =
            self.live.and_then(|index| self.segments.get(index)).is_some_and(|segment| segment.text == current);
        self.raw_len = if is_level { raw_len } else { 0 };
    }

    /// The usual case, cheap however long the text is: it is the last one with the new part behind it.
    fn continued(&mut self, text: &RawValue, delta: Option<&RawValue>, out: &mut Updates) -> bool {
        let (Some(index), Some(delta)) = (self.live, delta) else { return false };
        if self.raw_len == 0 {
            return false;
        }
        let (whole, part) = (unquoted(text), unquoted(delta));
        if whole.len() != self.raw_len + part.len() || !whole.ends_with(part) {
            return false;
        }
        let Some(part) = wire::read::<Cow<'_, str>>(delta) else { return false };
        self.raw_len = whole.len();
        self.add(index, &part, out);
        true
    }

    fn now(&mut self, text: &str, replace: bool, out: &mut Updates) {
        let last = self.segments.len().checked_sub(1);
        let index = match (self.live, self.interrupted, last) {
            (Some(index), false, _) => index,
            (Some(index), true, _) => index + 1,
            (None, _, Some(last)) if self.resumed => {
                let goes_on = self.segments.get(last).is_some_and(|segment| related(&segment.text, text));
                if goes_on { last } else { last + 1 }
            }
            (None, _, _) => 0,
        };
        self.interrupted = false;
        self.live = Some(index);
        self.open(index);
        let Some(segment) = self.segments.get(index) else { return };
        if let Some(rest) = text.strip_prefix(segment.text.as_str()) {
            let rest = rest.to_owned();
            self.add(index, &rest, out);
        } else if replace {
            self.rewrite(index, text, out);
        } else if segment.text.starts_with(text) {
            // The row was there first, or the gateway trims what may go on.
        } else {
            // Another message without a tool between.
            self.live = Some(index + 1);
            self.open(index + 1);
            match self.segments.get(index + 1).map(|next| text.strip_prefix(next.text.as_str()).map(str::to_owned)) {
                Some(Some(rest)) => self.add(index + 1, &rest, out),
                Some(None) | None => self.rewrite(index + 1, text, out),
            }
        }
    }

    /// Takes a row's text: all of a message.
    pub(super) fn row(&mut self, text: &str, past: bool, out: &mut Updates) {
        let place = (self.next_row..self.segments.len())
            .find(|index| self.segments.get(*index).is_some_and(|segment| related(&segment.text, text)));
        let index = match place {
            Some(index) => index,
            None if self.next_row >= self.segments.len() => {
                let index = self.segments.len();
                self.open(index);
                index
            }
            // What was shown live differs from what is kept: directives to the gateway are only in the row.
            None if !past => {
                self.next_row += 1;
                return;
            }
            None => {
                let id = self.next_id();
                self.segments.insert(self.next_row, Segment { id, text: String::new() });
                self.live = self.live.map(|live| if live >= self.next_row { live + 1 } else { live });
                self.next_row
            }
        };
        self.next_row = index + 1;
        let is_last = index + 1 == self.segments.len();
        let Some(segment) = self.segments.get(index) else { return };
        let Some(rest) = text.strip_prefix(segment.text.as_str()).map(str::to_owned) else { return };
        if rest.is_empty() {
            return;
        }
        self.raw_len = 0;
        // White space at the end of a message that others follow already would only disturb them.
        if is_last || !rest.trim().is_empty() {
            self.add(index, &rest, out);
        } else if let Some(segment) = self.segments.get_mut(index) {
            segment.text = text.to_owned();
        }
    }

    /// The gateway's last word on all text of the run: says it where nothing was said, and notices what is missing.
    pub(super) fn ended_with(&mut self, text: &str, out: &mut Updates) {
        if self.segments.is_empty() {
            if !text.trim().is_empty() {
                self.say(text, out);
            }
            return;
        }
        let letters = |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).count();
        let said: usize = self.segments.iter().map(|segment| letters(&segment.text)).sum();
        self.lacks = said < letters(text);
    }

    fn next_id(&mut self) -> String {
        self.messages += 1;
        format!("{}-{}", self.name, self.messages)
    }

    /// Makes sure that there is a message at this place.
    fn open(&mut self, index: usize) {
        while self.segments.len() <= index {
            let id = self.next_id();
            self.segments.push(Segment { id, text: String::new() });
        }
    }

    fn add(&mut self, index: usize, part: &str, out: &mut Updates) {
        let Some(segment) = self.segments.get_mut(index) else { return };
        if part.is_empty() {
            return;
        }
        segment.text.push_str(part);
        chunk(Voice::Says, part, &segment.id, out);
    }

    fn rewrite(&mut self, index: usize, text: &str, out: &mut Updates) {
        let id = self.next_id();
        if let Some(segment) = self.segments.get_mut(index) {
            *segment = Segment { id, text: String::new() };
        }
        self.add(index, text, out);
    }
}

/// Whether one text is the beginning of the other, but for white space at the end.
fn related(one: &str, other: &str) -> bool {
    one.starts_with(other.trim_end()) || other.starts_with(one.trim_end())
}

fn unquoted(raw: &RawValue) -> &str {
    raw.get().strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default()
}
