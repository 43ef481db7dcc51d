//! Text that may be arbitrarily long, kept within a limit: the head and the tail stay, the middle is counted.
//! Every cut is on a character's edge and says how much there was.

/// Bytes of output that go to the model and, separately, to the client, unless configured otherwise.
pub const DEFAULT_MAX_OUTPUT: usize = 64 * 1024;

/// Room for the sentence that replaces the middle.
const NOTE: usize = 96;

/// Collects text, never more than twice its limit in memory.
#[derive(Debug)]
pub struct BoundedText {
    limit: usize,
    head: String,
    head_closed: bool,
    tail: String,
    total: u64,
}

impl BoundedText {
    /// Makes an empty collection that ends with at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, head: String::new(), head_closed: false, tail: String::new(), total: 0 }
    }

    /// Adds text at the end.
    pub fn push(&mut self, text: &str) {
        self.total += text.len() as u64;
        let mut rest = text;
        if !self.head_closed {
            let room = (self.limit / 2).saturating_sub(self.head.len());
            let cut = rest.floor_char_boundary(room);
            let (fits, beyond) = rest.split_at_checked(cut).unwrap_or((rest, ""));
            self.head.push_str(fits);
            self.head_closed = !beyond.is_empty();
            rest = beyond;
        }
        let keep = self.limit.saturating_sub(self.head.len());
        if rest.len() > keep {
            self.tail.clear();
        }
        self.tail.push_str(last_bytes(rest, keep));
        if self.tail.len() > 2 * keep {
            self.tail = last_bytes(&self.tail, keep).to_owned();
        }
    }

    /// Bytes added so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The text, or head and tail with a note between them.
    #[must_use]
    pub fn finish(self) -> String {
        let mut text = self.head;
        let keep = self.limit.saturating_sub(text.len());
        let tail = last_bytes(&self.tail, keep);
        if (text.len() + tail.len()) as u64 == self.total {
            text.push_str(tail);
            return text;
        }
        let tail = last_bytes(tail, keep.saturating_sub(NOTE));
        let cut = self.total - (text.len() + tail.len()) as u64;
        text.push_str(&format!("\n… {cut} bytes cut ({} bytes in all) …\n", self.total));
        text.push_str(tail);
        text
    }
}

/// Bounds a text that is complete already.
#[must_use]
pub fn bounded(text: &str, limit: usize) -> String {
    let mut out = BoundedText::new(limit);
    out.push(text);
    out.finish()
}

fn last_bytes(text: &str, count: usize) -> &str {
    let from = text.ceil_char_boundary(text.len().saturating_sub(count));
    text.get(from..).unwrap_or("")
}

/// Turns a stream of bytes into text, chunk by chunk, without breaking characters at the edges.
/// Bytes that are no UTF-8 become U+FFFD.
#[derive(Debug, Default)]
pub struct Utf8Stream {
    // INVARIANT partial: at most three bytes, the beginning of one character.
    partial: Vec<u8>,
}

impl Utf8Stream {
    /// Adds bytes and returns the text that is certain by now.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(bytes);
        let mut out = String::with_capacity(joined.len());
        let mut rest = joined.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    return out;
                }
                Err(error) => {
                    let (valid, invalid) = rest.split_at_checked(error.valid_up_to()).unwrap_or((rest, &[]));
                    out.push_str(&String::from_utf8_lossy(valid));
                    let Some(length) = error.error_len() else {
                        // INVARIANT partial: an incomplete character has at most three bytes.
                        self.partial = invalid.to_vec();
                        return out;
                    };
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = invalid.get(length..).unwrap_or(&[]);
                }
            }
        }
    }

    /// Ends the stream and returns what is left of it.
    #[must_use]
    pub fn finish(self) -> &'static str {
        if self.partial.is_empty() { "" } else { "\u{fffd}" }
    }
}
