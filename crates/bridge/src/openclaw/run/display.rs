//! Foreign text made fit to be shown: bounded, and with nothing hidden in it.

use std::borrow::Cow;

/// The longest text in one field of an update: longer ones have made clients fail.
const MAX_FIELD: usize = 64 * 1024;

/// The text, or its beginning and how long it is.
pub(in crate::openclaw) fn bounded(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_FIELD {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(MAX_FIELD);
    Cow::Owned(format!("{}\n… ({} bytes in all)", text.get(..end).unwrap_or_default(), text.len()))
}

/// The text, or its end: of running output the end is what matters.
pub(super) fn tail(text: &str) -> Cow<'_, str> {
    const MAX_TAIL: usize = 16 * 1024;
    if text.len() <= MAX_TAIL {
        return Cow::Borrowed(text);
    }
    let start = text.ceil_char_boundary(text.len() - MAX_TAIL);
    Cow::Owned(format!("… ({} bytes before)\n{}", start, text.get(start..).unwrap_or_default()))
}

/// One line of bounded length.
pub(super) fn line(text: &str, letters: usize) -> String {
    let text = text.trim();
    let mut line: String =
        text.chars().take(letters).map(|letter| if letter.is_whitespace() { ' ' } else { letter }).collect();
    if text.chars().nth(letters).is_some() {
        line.push('…');
    }
    visible(&line).into_owned()
}

/// The text with everything in it to be seen: control characters and those that hide or turn around others are written as escapes.
pub(in crate::openclaw) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_hidden(letter) { shown.extend(letter.escape_unicode()) } else { shown.push(letter) }
    }
    Cow::Owned(shown)
}

fn is_hidden(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{fffc}' => true,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{e0000}'..='\u{e007f}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => true,
        letter => letter.is_control(),
    }
}

/// The text as a block of code that nothing in it can end.
pub(in crate::openclaw) fn fenced(text: &str) -> String {
    let text = visible(text);
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{text}\n{fence}")
}
