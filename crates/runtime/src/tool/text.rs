//! What kind of text a file holds. Decides, never guesses: a file that is not certain to be text is said to be binary.

/// Bytes looked at to tell text from binary.
pub(super) const SNIFFED: usize = 8 * 1024;

/// How a file's bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// UTF-8, or anything that shares ASCII with it.
    Bytes,
    /// UTF-16 with the low byte first, as its byte order mark says.
    Utf16Le,
    /// UTF-16 with the high byte first, as its byte order mark says.
    Utf16Be,
    /// Not text.
    Binary,
}

/// Tells from a file's first bytes how it is read.
pub(super) fn sniff(start: &[u8]) -> Encoding {
    match start {
        // UTF-32 starts like UTF-16 and goes on with NUL bytes; nobody edits it.
        [0xff, 0xfe, 0, 0, ..] => Encoding::Binary,
        [0xff, 0xfe, ..] => Encoding::Utf16Le,
        [0xfe, 0xff, ..] => Encoding::Utf16Be,
        _ if start.contains(&0) => Encoding::Binary,
        _ => Encoding::Bytes,
    }
}

/// Decodes UTF-16 with its byte order mark; halves of characters become U+FFFD.
pub(super) fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let units = bytes.as_chunks::<2>().0.iter().skip(1).map(|pair| unit(*pair));
    let mut text: String = char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    if bytes.len() % 2 == 1 {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    text
}

/// The text of a file that can be edited: UTF-8 without NUL.
pub(super) fn strict(bytes: &[u8]) -> Option<&str> {
    if bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}
