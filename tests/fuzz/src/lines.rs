//! The line decoder: what comes out does not depend on how the input is cut, and after the worst line the next is read.

use zeroclaw_acp_transport::{Line, LineDecoder, Rejected};

use crate::Input;

/// The longest line in these inputs, so that lines beyond it are common.
const MAX_LINE: usize = 40;

const PIECES: &[&[u8]] = &[
    b"\n",
    b"\n",
    b"\n",
    b"\r\n",
    b"\r",
    b" ",
    b"{",
    b"}",
    b"\"id\":",
    b"7",
    b"\"a\"",
    b",",
    b"\"x\":",
    b"\xff",
    b"\xc3",
    b"\xa9",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"\xef",
    b"\xbb",
    b"\xf0\x9f\x99\x82",
    b"xxxxxxxxxxxxxxxxxxxx",
    b"\0",
    b"\\",
    b"\"",
];

/// One thing that came out.
#[derive(Debug, PartialEq, Eq)]
enum Out {
    Text(Vec<u8>),
    TooLong(u64, Option<String>),
    Invalid(Option<String>),
}

fn out(line: Line<'_>) -> Out {
    match line {
        Line::Text(text) => Out::Text(text.to_vec()),
        Line::Rejected(Rejected::TooLong { id, length }) => Out::TooLong(length, id.map(|id| id.as_json().to_owned())),
        Line::Rejected(Rejected::InvalidUtf8 { id }) => Out::Invalid(id.map(|id| id.as_json().to_owned())),
    }
}

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Out> {
    let mut decoder = LineDecoder::new(MAX_LINE);
    let mut found = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        while let Some(line) = decoder.next_line() {
            found.push(out(line));
        }
    }
    found.extend(decoder.finish().map(out));
    found
}

/// The slow reference: everything is there at once, and each line is looked at by itself.
fn reference(stream: &[u8]) -> Vec<(Vec<u8>, bool)> {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let lines = stream.split(|byte| *byte == b'\n').map(|line| (line.trim_ascii().to_vec(), line.len() > MAX_LINE));
    lines.filter(|(line, long)| *long || !line.is_empty()).collect()
}

/// See the module.
pub(crate) fn split(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut stream = Vec::new();
    while !input.is_empty() && stream.len() < 4096 {
        match input.roll(PIECES.len() + 4) {
            raw if raw >= PIECES.len() => stream.push(u8::try_from(input.roll(256)).unwrap_or_default()),
            at => stream.extend_from_slice(PIECES.get(at).copied().unwrap_or_default()),
        }
    }
    let whole = decode(std::iter::once(stream.as_slice()));
    assert_eq!(decode(stream.chunks(1)), whole, "byte by byte: {stream:?}");
    let step = 1 + bytes.first().map_or(0, |byte| usize::from(*byte % 60));
    assert_eq!(decode(stream.chunks(step)), whole, "in steps of {step}: {stream:?}");
    let expected = reference(&stream);
    assert_eq!(whole.len(), expected.len(), "{stream:?}: {whole:?}");
    for (found, (line, long)) in whole.iter().zip(&expected) {
        match found {
            Out::Text(text) => assert!(!long && text == line && std::str::from_utf8(line).is_ok(), "{stream:?}"),
            Out::TooLong(length, _) => assert!(*long && *length > MAX_LINE as u64, "{stream:?}"),
            Out::Invalid(_) => assert!(!long && std::str::from_utf8(line).is_err(), "{stream:?}"),
        }
    }
    // Whatever came before, a line of its own is read.
    let mut after = stream.clone();
    after.extend_from_slice(b"\n{\"id\":1}\n");
    assert_eq!(decode(after.chunks(3)).last(), Some(&Out::Text(b"{\"id\":1}".to_vec())), "{stream:?}");
}
