//! Cutting and escaping texts of strangers: tool results, tool names, titles.

/// Shortens a text to about `limit` bytes: its beginning, a mark that says how much is missing, its end.
/// A text within the limit is returned as it is.
pub(super) fn shorten(text: &str, limit: usize) -> Option<String> {
    if text.len() <= limit {
        return None;
    }
    let head_end = text.floor_char_boundary(limit - limit / 3);
    let tail_start = text.ceil_char_boundary(text.len() - limit / 3);
    let (head, tail) = (text.get(..head_end)?, text.get(tail_start..)?);
    Some(format!("{head}\n[… {} of {} bytes left out …]\n{tail}", tail_start - head_end, text.len()))
}

/// Same, for owned texts.
pub(super) fn shortened(text: String, limit: usize) -> String {
    shorten(&text, limit).unwrap_or(text)
}

/// A name on one short line: control and format characters become escapes, the rest is cut.
pub(super) fn one_line(text: &str, max_chars: usize) -> String {
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == max_chars {
            out.push('…');
            break;
        }
        if hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Characters that change how others look or cannot be seen themselves.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}
