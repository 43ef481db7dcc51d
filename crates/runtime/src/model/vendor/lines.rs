//! Cuts a byte stream into lines, and lines into server-sent events. Sans-IO: bytes go in, slices come out.
//!
//! Lines end in LF, CR LF or CR, wherever the network cuts them. Nothing is allocated per event: an incomplete line and
//! an event's data are collected in buffers that are used again. Both are bounded.

use memchr::memchr2;

use crate::model::ModelError;

/// Cuts lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The line that has no end yet.
    partial: Vec<u8>,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
}

impl Lines {
    /// Takes bytes and hands out each line that they complete, without its end.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut line: impl FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr)
                && let Some(rest) = bytes.strip_prefix(b"\n")
            {
                bytes = rest;
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', bytes) else {
                if self.partial.len() + bytes.len() > MAX_LINE_BYTES {
                    return Err(too_long());
                }
                self.partial.extend_from_slice(bytes);
                return Ok(());
            };
            let (text, rest) = bytes.split_at(end);
            self.after_cr = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
            if self.partial.is_empty() {
                line(text)?;
            } else {
                if self.partial.len() + text.len() > MAX_LINE_BYTES {
                    return Err(too_long());
                }
                self.partial.extend_from_slice(text);
                let result = line(&self.partial);
                self.partial.clear();
                result?;
            }
        }
        Ok(())
    }

    /// Hands out what is left when the stream has ended.
    pub(super) fn finish(&mut self, mut line: impl FnMut(&[u8]) -> Result<(), ModelError>) -> Result<(), ModelError> {
        let partial = std::mem::take(&mut self.partial);
        if partial.is_empty() { Ok(()) } else { line(&partial) }
    }
}

/// Cuts server-sent events. Of an event only the data is handed out: every vendor names the kind inside it as well.
#[derive(Debug, Default)]
pub(super) struct Events {
    lines: Lines,
    data: Data,
}

/// The data of the event that is being read.
#[derive(Debug, Default)]
struct Data {
    bytes: Vec<u8>,
    /// There was a data line, if only an empty one.
    present: bool,
    /// The very first line has been seen; it may begin with a byte order mark.
    begun: bool,
}

impl Events {
    /// Takes bytes and hands out the data of each event that they complete.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut event: impl FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let data = &mut self.data;
        self.lines.feed(bytes, |line| data.line(line, &mut event))
    }

    /// Hands out an event whose end is missing when the stream has ended; vendors forget the last empty line.
    pub(super) fn finish(&mut self, mut event: impl FnMut(&[u8]) -> Result<(), ModelError>) -> Result<(), ModelError> {
        let data = &mut self.data;
        self.lines.finish(|line| data.line(line, &mut event))?;
        data.line(b"", &mut event)
    }
}

impl Data {
    fn line(
        &mut self,
        mut line: &[u8],
        event: &mut impl FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            if !std::mem::take(&mut self.present) {
                return Ok(());
            }
            let result = event(&self.bytes);
            self.bytes.clear();
            return result;
        }
        // Comments, names, ids and everything unknown are skipped.
        let value = match line.strip_prefix(b"data") {
            Some([b':', b' ', value @ ..]) => value,
            Some([b':', value @ ..]) => value,
            Some([]) => &[],
            Some(_) | None => return Ok(()),
        };
        if self.bytes.len() + value.len() > MAX_LINE_BYTES {
            return Err(too_long());
        }
        if std::mem::replace(&mut self.present, true) {
            self.bytes.push(b'\n');
        }
        self.bytes.extend_from_slice(value);
        Ok(())
    }
}

fn too_long() -> ModelError {
    ModelError::Stream(format!("an event was longer than {} MiB", MAX_LINE_BYTES >> 20))
}

/// Far more than any vendor puts into one event; an endless line ends here instead of in the memory's end.
const MAX_LINE_BYTES: usize = 16 << 20;
