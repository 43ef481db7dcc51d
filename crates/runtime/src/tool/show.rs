//! How what a model wrote is shown to people: nothing invisible, nothing that leaves its place.
//! Only displays are changed; what runs stays exactly as it was written.

use std::fmt::Write;

/// Characters of a title; longer ones are cut, the content shows the whole.
const MAX_TITLE: usize = 200;

/// Makes one line out of a text: line breaks, control and invisible characters become escapes.
#[must_use]
pub fn line(text: &str) -> String {
    escape(text, Breaks::Escape)
}

/// A title: one line of bounded length.
#[must_use]
pub fn title(text: &str) -> String {
    let shown = line(text);
    match shown.char_indices().nth(MAX_TITLE) {
        Some((cut, _)) => format!("{}…", shown.get(..cut).unwrap_or_default()),
        None => shown,
    }
}

/// Text of several lines: line breaks and tabs stay, other invisible characters become escapes.
#[must_use]
pub fn text(text: &str) -> String {
    escape(text, Breaks::Keep)
}

/// Text as a code block: line breaks and tabs stay, other invisible characters become escapes.
/// The fence is longer than any run of backticks inside, so the text cannot close it.
pub(crate) fn code_block(language: &str, text: &str) -> String {
    fenced(language, &escape(text, Breaks::Keep))
}

/// Text as a code block, characters as they are.
pub(crate) fn fenced(language: &str, text: &str) -> String {
    let fence = "`".repeat((longest_backticks(text) + 1).max(3));
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}")
}

/// One line of text as code within a line; its backticks cannot end it.
pub(crate) fn inline_code(text: &str) -> String {
    let fence = "`".repeat(longest_backticks(text) + 1);
    // Markdown takes one space off each side, which keeps backticks at the edges apart from the fence.
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

fn longest_backticks(text: &str) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for byte in text.bytes() {
        run = if byte == b'`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// A warning about characters of a text that nobody sees, or nothing.
pub(crate) fn invisible_note(text: &str) -> Option<String> {
    const MOST: usize = 10;
    let mut found = Vec::new();
    let mut more = 0_usize;
    for (number, line) in text.lines().enumerate() {
        for character in line.chars().filter(|c| *c != '\t' && hides(*c) && !is_plain_space(*c)) {
            if found.len() < MOST {
                found.push(format!("U+{:04X} in line {}", u32::from(character), number + 1));
            } else {
                more += 1;
            }
        }
    }
    if found.is_empty() {
        return None;
    }
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!("The new text contains invisible characters: {}{rest}.", found.join(", ")))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Breaks {
    Keep,
    Escape,
}

fn escape(text: &str, breaks: Breaks) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        let shown = match breaks {
            Breaks::Keep => matches!(character, '\n' | '\t'),
            Breaks::Escape => false,
        };
        if shown || !hides(character) {
            out.push(character);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", character.escape_unicode());
        }
    }
    out
}

/// Spaces that look like a space and are common in prose.
fn is_plain_space(character: char) -> bool {
    matches!(character, '\u{a0}' | '\u{202f}' | '\u{3000}' | '\u{2000}'..='\u{200a}')
}

/// Whether a character is not seen as itself: control, format, bidirectional, zero-width, odd space, filler, variation or tag.
fn hides(character: char) -> bool {
    character.is_control()
        || (character != ' ' && character.is_whitespace())
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}
