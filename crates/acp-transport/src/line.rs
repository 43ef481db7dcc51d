//! Bytes to lines: LF ends a line and nothing else does, a trailing CR and a leading BOM are dropped, blank lines are skipped,
//! a line over the limit is skipped without being kept. Sans-IO: the caller reads, this decides.

use crate::{connection::Rejected, id_scan::IdScanner};

/// What the decoder found.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// One whole line, valid UTF-8, not blank.
    Text(&'a [u8]),
    /// A line that cannot be handed on.
    Rejected(Rejected),
}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// A buffer larger than this is given back after its line, so that one large message does not stay resident.
const KEEP_BUFFER: usize = 256 * 1024;

/// Splits a byte stream into lines.
#[derive(Debug)]
pub struct LineDecoder {
    max_line: usize,
    buffer: Vec<u8>,
    /// Everything before this index of `buffer` was handed out.
    start: usize,
    /// Everything before this index holds no unseen LF, so that a long line is searched once.
    searched: usize,
    skipping: Option<Skip>,
    at_start: bool,
}

#[derive(Debug, Default)]
struct Skip {
    scanner: IdScanner,
    length: u64,
}

impl LineDecoder {
    /// Makes a decoder that skips lines longer than `max_line` bytes.
    #[must_use]
    pub fn new(max_line: usize) -> Self {
        Self { max_line, buffer: Vec::new(), start: 0, searched: 0, skipping: None, at_start: true }
    }

    /// Adds input. Call [`Self::next_line`] until it has nothing more before adding again: that keeps the buffer small.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
            if self.buffer.is_empty() && self.buffer.capacity() > KEEP_BUFFER {
                self.buffer = Vec::new();
            }
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line, when a whole one is there.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        loop {
            if self.at_start && !self.drop_bom(false) {
                return None;
            }
            let found = self.buffer.get(self.searched..).and_then(|rest| memchr::memchr(b'\n', rest));
            let Some(offset) = found else {
                self.searched = self.buffer.len();
                self.skip_if_too_long();
                return None;
            };
            let end = self.searched + offset;
            let begin = std::mem::replace(&mut self.start, end + 1);
            self.searched = end + 1;
            if let Some(range) = self.take(begin, end) {
                return Some(self.classify(range));
            }
            if let Some(rejected) = self.finish_skip(begin, end) {
                return Some(Line::Rejected(rejected));
            }
        }
    }

    /// The input ended: what is left counts as a line.
    pub fn finish(&mut self) -> Option<Line<'_>> {
        if self.at_start {
            self.drop_bom(true);
        }
        let (begin, end) = (self.start, self.buffer.len());
        self.start = end;
        self.searched = end;
        if let Some(range) = self.take(begin, end) {
            return Some(self.classify(range));
        }
        self.finish_skip(begin, end).map(Line::Rejected)
    }

    /// Drops the BOM; false while it is not certain whether there is one.
    fn drop_bom(&mut self, ended: bool) -> bool {
        if self.buffer.starts_with(BOM) {
            self.start = BOM.len();
            self.searched = BOM.len();
        } else if !ended && self.buffer.len() < BOM.len() && BOM.starts_with(&self.buffer) {
            return false;
        }
        self.at_start = false;
        true
    }

    /// The trimmed bounds of a line that is to be handed out.
    fn take(&self, begin: usize, end: usize) -> Option<(usize, usize)> {
        if self.skipping.is_some() || end - begin > self.max_line {
            return None;
        }
        let line = self.buffer.get(begin..end)?;
        let trimmed = line.trim_ascii();
        let lead = line.len() - line.trim_ascii_start().len();
        (!trimmed.is_empty()).then_some((begin + lead, begin + lead + trimmed.len()))
    }

    fn classify(&self, (begin, end): (usize, usize)) -> Line<'_> {
        let line = self.buffer.get(begin..end).unwrap_or_default();
        if std::str::from_utf8(line).is_ok() {
            return Line::Text(line);
        }
        let mut scanner = IdScanner::default();
        scanner.feed(line);
        Line::Rejected(Rejected::InvalidUtf8 { id: scanner.finish() })
    }

    /// Starts or goes on skipping: what is buffered is scanned for its id and thrown away.
    fn skip_if_too_long(&mut self) {
        if self.skipping.is_none() && self.buffer.len() - self.start <= self.max_line {
            return;
        }
        let skip = self.skipping.get_or_insert_default();
        let rest = self.buffer.get(self.start..).unwrap_or_default();
        skip.scanner.feed(rest);
        skip.length += rest.len() as u64;
        self.buffer = Vec::new();
        self.start = 0;
        self.searched = 0;
    }

    /// Ends a skipped line; `None` when the line was not skipped but blank.
    fn finish_skip(&mut self, begin: usize, end: usize) -> Option<Rejected> {
        if self.skipping.is_none() && end - begin <= self.max_line {
            return None;
        }
        let mut skip = self.skipping.take().unwrap_or_default();
        let rest = self.buffer.get(begin..end).unwrap_or_default();
        skip.scanner.feed(rest);
        Some(Rejected::TooLong { id: skip.scanner.finish(), length: skip.length + rest.len() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, LineDecoder};
    use crate::Rejected;

    /// Decodes `input` cut into pieces of `step` bytes and writes down what comes out.
    fn decode(input: &[u8], step: usize, max: usize) -> Vec<String> {
        let mut decoder = LineDecoder::new(max);
        let mut out = Vec::new();
        let describe = |line: Line<'_>| match line {
            Line::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Line::Rejected(Rejected::TooLong { id, length }) => {
                format!("too long {length} {}", id.map_or("-".into(), |id| id.as_json().to_owned()))
            }
            Line::Rejected(Rejected::InvalidUtf8 { id }) => {
                format!("invalid utf-8 {}", id.map_or("-".into(), |id| id.as_json().to_owned()))
            }
        };
        for piece in input.chunks(step) {
            decoder.push(piece);
            while let Some(line) = decoder.next_line() {
                out.push(describe(line));
            }
        }
        out.extend(decoder.finish().map(describe));
        out
    }

    #[test]
    fn lines_do_not_depend_on_how_the_input_is_cut() {
        let cases: [(&[u8], Vec<&str>); 11] = [
            (b"a\nb\n", vec!["a", "b"]),
            (b"a\r\n\r\n \n\nb", vec!["a", "b"]),
            (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", vec!["a", "\u{feff}b"]),
            (b"\xef\xbb", vec!["invalid utf-8 -"]),
            (b"\xef\xbb\xbf", vec![]),
            ("x\u{2028}y\u{85}z\u{b}\u{c}w\n".as_bytes(), vec!["x\u{2028}y\u{85}z\u{b}\u{c}w"]),
            ("漢字🙂é\n".as_bytes(), vec!["漢字🙂é"]),
            (b"{\"id\":3,\"x\":\"\xff\"}\nok\n", vec!["invalid utf-8 3", "ok"]),
            (b"{\"id\":\"q\",\"pad\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxx\"}\nok\n", vec!["too long 46 \"q\"", "ok"]),
            (b"{\"pad\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\",\"id\":4}", vec!["too long 48 4"]),
            (b"", vec![]),
        ];
        for (input, expected) in cases {
            for step in [1, 2, 3, 7, 1000] {
                assert_eq!(
                    decode(input, step, 32),
                    expected,
                    "{:?} in steps of {step}",
                    String::from_utf8_lossy(input)
                );
            }
        }
    }

    #[test]
    fn a_line_at_the_limit_is_taken_and_one_byte_more_is_not() {
        let input = format!("{}\n{}\n", "a".repeat(32), "b".repeat(33));
        assert_eq!(decode(input.as_bytes(), 5, 32), vec!["a".repeat(32), "too long 33 -".to_owned()]);
    }

    #[test]
    fn an_endless_line_takes_no_memory() {
        let mut decoder = LineDecoder::new(1024);
        for _ in 0..10_000 {
            decoder.push(&[b'x'; 1000]);
            assert!(decoder.next_line().is_none());
            assert!(decoder.buffer.capacity() < 8192);
        }
        decoder.push(b"\nnext\n");
        assert!(matches!(decoder.next_line(), Some(Line::Rejected(Rejected::TooLong { length: 10_000_000, .. }))));
        assert_eq!(decoder.next_line(), Some(Line::Text(b"next")));
    }
}
