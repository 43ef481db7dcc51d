//! Finds the top-level `id` of a JSON-RPC message that is not kept: one pass, constant memory.
//! It reads lines that are too long or not UTF-8, so it assumes nothing and gives up silently.

use zeroclaw_acp_protocol::{Frame, RequestId};

/// The longest id that is kept, in bytes: real ones are short, and a hostile one must not be echoed at length.
const MAX_ID: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct IdScanner {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The string at depth 1 that was read last, for as long as it can be the key `id`.
    key: Vec<u8>,
    key_done: bool,
    /// The value after the key, once it began.
    value: Option<Vec<u8>>,
    found: Option<Vec<u8>>,
    dead: bool,
}

impl IdScanner {
    /// Reads on.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.found.is_some() || self.dead {
                return;
            }
            self.step(byte);
        }
    }

    /// The id, when there was one of a usable kind.
    pub(crate) fn finish(&self) -> Option<RequestId> {
        let text = std::str::from_utf8(self.found.as_ref()?).ok()?;
        // The envelope parser decides what a usable id is, so that there is one rule.
        let probe = format!(r#"{{"jsonrpc":"2.0","method":"m","id":{text}}}"#);
        match Frame::parse(probe.as_bytes()) {
            Ok(Frame::Request { id, .. }) => Some(id),
            Ok(Frame::Notification { .. } | Frame::Response { .. }) | Err(_) => None,
        }
    }

    fn step(&mut self, byte: u8) {
        if let Some(value) = &mut self.value {
            let ends = !self.in_string && matches!(byte, b',' | b'}' | b']');
            if ends {
                self.found = self.value.take();
                return;
            }
            if value.len() >= MAX_ID || (!self.in_string && matches!(byte, b'{' | b'[')) {
                self.dead = true;
                return;
            }
            value.push(byte);
            self.track_string(byte);
            return;
        }
        if self.in_string {
            if self.depth == 1 && byte != b'"' && self.key.len() < 3 {
                self.key.push(byte);
            }
            self.track_string(byte);
            if !self.in_string {
                self.key_done = self.depth == 1;
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.key.clear();
                self.key_done = false;
            }
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b':' if self.depth == 1 && self.key_done && self.key == b"id" => self.value = Some(Vec::new()),
            _ => {}
        }
    }

    fn track_string(&mut self, byte: u8) {
        if self.escaped {
            self.escaped = false;
        } else if self.in_string && byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_string = !self.in_string;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IdScanner;

    fn scan(text: &str) -> Option<String> {
        let mut scanner = IdScanner::default();
        for byte in text.as_bytes() {
            scanner.feed(&[*byte]);
        }
        scanner.finish().map(|id| id.as_json().to_owned())
    }

    #[test]
    fn finds_the_top_level_id_only() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":7,"params":{"id":8,"x":"#, Some("7")),
            (r#"{"params":{"id":8,"t":"\"id\":9}"},"id":"a-1"}"#, Some("\"a-1\"")),
            (r#"{"x":"id","id" : 10 }"#, Some("10")),
            (r#"{"idx":1,"xid":2}"#, None),
            (r#"{"id":{"a":1}}"#, None),
            (r#"{"id":true}"#, None),
            (r#"[{"id":1}]"#, None),
            (r#"{"id":12"#, None),
            ("garbage", None),
        ];
        for (text, expected) in cases {
            assert_eq!(scan(text).as_deref(), expected, "{text}");
        }
        assert_eq!(scan(&format!(r#"{{"id":"{}"}}"#, "x".repeat(10_000))), None);
    }
}
