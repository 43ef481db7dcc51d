//! One word: quotes removed, and whatever only the running shell knows marked as unknown.

use brush_parser::word::{self, WordPiece, WordPieceWithSource};

use super::{Unclear, Word};
use crate::shell::walk::OPTIONS;

/// A word with the commands that are substituted into it.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) word: Word,
    pub(super) substitutions: Vec<String>,
    pub(super) unclear: Option<Unclear>,
}

/// How much of a word is shown in a reason.
const SHOWN: usize = 80;

/// Resolves a word as it stands in the script.
pub(super) fn resolve(raw: &str) -> Resolved {
    let plain = |word| Resolved { word, substitutions: Vec::new(), unclear: None };
    let pieces = match split(raw) {
        Ok(pieces) => pieces,
        Err(unclear) => {
            let substitutions = substitutions(raw);
            return Resolved { word: Word::Unknown(raw.to_owned()), substitutions, unclear: Some(unclear) };
        }
    };
    let text: String = pieces.iter().map(|(c, _)| *c).collect();
    let bare = |c: char| pieces.contains(&(c, false));
    if pieces.first() == Some(&('~', false)) {
        let end = text.find('/').unwrap_or(text.len());
        return match text.get(1..end) {
            Some("") if !bare('*') && !bare('?') && !bare('[') => {
                plain(Word::Home(text.get(1..).unwrap_or_default().to_owned()))
            }
            _ => unknown(raw, Unclear::Expansion(shorten(raw))),
        };
    }
    if braces(&pieces) {
        return unknown(raw, Unclear::Dialect(shorten(raw)));
    }
    // A bracket that is never closed stands for itself.
    if bare('*') || bare('?') || (bare('[') && bare(']')) {
        return plain(Word::Pattern(text));
    }
    plain(Word::Literal(text))
}

fn unknown(raw: &str, unclear: Unclear) -> Resolved {
    Resolved { word: Word::Unknown(raw.to_owned()), substitutions: Vec::new(), unclear: Some(unclear) }
}

/// Shortens a text for a reason.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The characters of a word, each with whether it was quoted; fails at the first thing that is expanded.
fn split(raw: &str) -> Result<Vec<(char, bool)>, Unclear> {
    let mut out = Vec::with_capacity(raw.len());
    let mut chars = raw.chars().peekable();
    let expansion = || Unclear::Expansion(shorten(raw));
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(c) => out.push((c, true)),
                None => out.push(('\\', true)),
            },
            '\'' => loop {
                match chars.next() {
                    Some('\'') => break,
                    Some(c) => out.push((c, true)),
                    None => return Err(Unclear::Grammar),
                }
            },
            '"' => loop {
                match chars.next() {
                    Some('"') => break,
                    Some('\\') => match chars.next() {
                        Some('\n') => {}
                        Some(c @ ('$' | '`' | '"' | '\\')) => out.push((c, true)),
                        Some(c) => out.extend([('\\', true), (c, true)]),
                        None => return Err(Unclear::Grammar),
                    },
                    // A dollar before a blank or the closing quote stands for itself in every shell.
                    Some('$') if matches!(chars.peek(), Some(' ' | '"' | '/' | '.' | ',')) => out.push(('$', true)),
                    Some('$' | '`') => return Err(expansion()),
                    Some(c) => out.push((c, true)),
                    None => return Err(Unclear::Grammar),
                }
            },
            '$' if chars.peek().is_none() => out.push(('$', true)),
            '$' if matches!(chars.peek(), Some('\'' | '"')) => return Err(Unclear::Dialect(shorten(raw))),
            '$' | '`' => return Err(expansion()),
            c => out.push((c, false)),
        }
    }
    Ok(out)
}

/// Whether a shell that knows brace expansion would make several words of this one.
fn braces(pieces: &[(char, bool)]) -> bool {
    let Some(open) = pieces.iter().position(|piece| *piece == ('{', false)) else { return false };
    let rest = pieces.get(open..).unwrap_or_default();
    rest.contains(&('}', false))
        && (rest.contains(&(',', false)) || rest.windows(2).any(|pair| pair == [('.', false), ('.', false)]))
}

/// The commands that the shell would run to learn a word, as far as the grammar finds them.
pub(super) fn substitutions(raw: &str) -> Vec<String> {
    let mut found = Vec::new();
    if let Ok(pieces) = word::parse(raw, &OPTIONS) {
        collect(&pieces, &mut found);
    }
    found
}

/// The same for the body of a here-document, where quotes are ordinary characters.
pub(super) fn document_substitutions(body: &str) -> Vec<String> {
    let mut found = Vec::new();
    if let Ok(pieces) = word::parse_heredoc(body, &OPTIONS) {
        collect(&pieces, &mut found);
    }
    found
}

fn collect(pieces: &[WordPieceWithSource], found: &mut Vec<String>) {
    for piece in pieces {
        match &piece.piece {
            WordPiece::CommandSubstitution(script) | WordPiece::BackquotedCommandSubstitution(script) => {
                found.push(script.clone());
            }
            WordPiece::DoubleQuotedSequence(inner) | WordPiece::GettextDoubleQuotedSequence(inner) => {
                collect(inner, found);
            }
            WordPiece::ArithmeticExpression(expression) => found.extend(substitutions(&expression.value)),
            WordPiece::ParameterExpansion(_)
            | WordPiece::Text(_)
            | WordPiece::SingleQuotedText(_)
            | WordPiece::AnsiCQuotedText(_)
            | WordPiece::TildeExpansion(_)
            | WordPiece::EscapeSequence(_) => {}
        }
    }
}
