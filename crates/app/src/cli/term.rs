//! What a terminal can do and what may be written to it: styles, and text of others made harmless.
//!
//! Nothing here writes by itself; whoever writes hands in a `std::io::Write`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};

use anstyle::{AnsiColor, Style};
use zeroclaw_config::Env;

/// What the two output streams of a terminal program are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Streams {
    /// Standard output is a terminal.
    pub(crate) out_terminal: bool,
    /// Standard error is a terminal.
    pub(crate) err_terminal: bool,
    /// Standard input is a terminal.
    pub(crate) in_terminal: bool,
}

impl Streams {
    pub(crate) fn of_process() -> Self {
        Self {
            out_terminal: io::stdout().is_terminal(),
            err_terminal: io::stderr().is_terminal(),
            in_terminal: io::stdin().is_terminal(),
        }
    }
}

/// The roles of text. With `plain` nothing is emphasised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Palette {
    coloured: bool,
}

/// What a piece of text is, so that the palette alone decides how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Added,
    Bad,
    Dim,
    Good,
    Hunk,
    Removed,
    Strong,
    Warn,
}

impl Palette {
    #[cfg(test)]
    pub(crate) fn coloured() -> Self {
        Self { coloured: true }
    }

    pub(crate) fn plain() -> Self {
        Self { coloured: false }
    }

    /// Decides about colour for one stream: `NO_COLOR` wins, then `CLICOLOR_FORCE`, then a capable terminal is needed
    /// that `CLICOLOR=0` does not switch off.
    pub(crate) fn for_stream(is_terminal: bool, env: &Env) -> Self {
        let forced = env.get("CLICOLOR_FORCE").is_some_and(|value| value != "0");
        let coloured = if env.get("NO_COLOR").is_some() {
            false
        } else {
            forced || (is_terminal && is_capable(env) && env.get("CLICOLOR") != Some("0"))
        };
        Self { coloured }
    }

    /// Wraps a text, which must be harmless already, in the escapes of its role.
    pub(crate) fn paint(self, role: Role, text: &str) -> String {
        if !self.coloured || text.is_empty() {
            return text.to_owned();
        }
        let style = match role {
            Role::Added | Role::Good => AnsiColor::Green.on_default(),
            Role::Bad | Role::Removed => AnsiColor::Red.on_default(),
            Role::Dim => Style::new().dimmed(),
            Role::Hunk => AnsiColor::Cyan.on_default(),
            Role::Strong => Style::new().bold(),
            Role::Warn => AnsiColor::Yellow.on_default().bold(),
        };
        format!("{style}{text}{style:#}")
    }
}

/// Whether the terminal understands cursor movement at all.
pub(crate) fn is_capable(env: &Env) -> bool {
    env.get("TERM") != Some("dumb")
}

/// Makes text of another program harmless: control characters become visible, so that no escape sequence is left.
/// Line feed and tab stay; a carriage return before a line feed is dropped.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    escape(text, is_control)
}

/// Like [`visible`], and also shows what reorders or hides characters. For text that a person decides by: what is
/// approved must be what is seen.
pub(crate) fn unmistakable(text: &str) -> Cow<'_, str> {
    escape(text, |character| is_control(character) || is_deceptive(character))
}

/// Like [`unmistakable`] on one line: a line feed or tab inside a title would fake a second line.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escape(text.trim(), |character| character.is_control() || is_deceptive(character))
}

/// Writes a word so that a shell takes it as one word, whatever is in it.
pub(crate) fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", one_line(word).replace('\'', "'\\''")))
}

/// Cuts a text to so many characters, with an ellipsis when something is gone.
pub(crate) fn clipped(text: &str, characters: usize) -> Cow<'_, str> {
    match text.char_indices().nth(characters) {
        Some((at, _)) => Cow::Owned(format!("{}…", &text[..at])),
        None => Cow::Borrowed(text),
    }
}

fn is_control(character: char) -> bool {
    character.is_control() && !matches!(character, '\n' | '\t')
}

fn is_deceptive(character: char) -> bool {
    matches!(character,
        '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        | '\u{e0000}'..='\u{e007f}')
}

fn escape(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\r' if rest.peek() == Some(&'\n') => {}
            hidden if !is_hidden(hidden) => shown.push(hidden),
            '\u{7f}' => shown.push('\u{2421}'),
            // The block of control pictures follows the order of the control characters.
            '\0'..='\u{1f}' => shown.extend(char::from_u32(0x2400 + u32::from(character))),
            other => {
                // Writing to a `String` cannot fail.
                let _ = write!(shown, "<U+{:04X}>", u32::from(other));
            }
        }
    }
    Cow::Owned(shown)
}

/// Writes the control characters that JSON allows to stand raw in its strings as JSON escapes: the value stays the same.
pub(crate) fn json_line(raw: &str) -> Cow<'_, str> {
    if !raw.chars().any(|character| character.is_control()) {
        return Cow::Borrowed(raw);
    }
    let mut line = String::with_capacity(raw.len() + 16);
    for character in raw.chars() {
        match character {
            // Below U+0020 a control character can only be white space between tokens.
            '\0'..='\u{1f}' => line.push(' '),
            control if control.is_control() => {
                let _ = write!(line, "\\u{:04x}", u32::from(control));
            }
            other => line.push(other),
        }
    }
    Cow::Owned(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible_and_nothing_else_changes() {
        for (given, shown) in [
            ("plain ünïcode 漢字 🙂\n\tindented", "plain ünïcode 漢字 🙂\n\tindented"),
            ("\u{1b}[31mred\u{1b}[0m", "␛[31mred␛[0m"),
            ("\u{1b}]0;title\u{7}", "␛]0;title␇"),
            ("one\r\ntwo\rthree", "one\ntwo␍three"),
            ("\u{9b}2J\u{7f}", "<U+009B>2J␡"),
            ("nul\0", "nul␀"),
            ("שלום \u{200f}rtl", "שלום \u{200f}rtl"),
        ] {
            assert_eq!(visible(given), shown, "{given:?}");
        }
    }

    #[test]
    fn what_a_person_decides_by_shows_reordering_too() {
        assert_eq!(unmistakable("rm \u{202e}txt.exe\n"), "rm <U+202E>txt.exe\n");
        assert_eq!(unmistakable("l\u{200b}s"), "l<U+200B>s");
        assert_eq!(one_line(" ls\n# fake\tline "), "ls␊# fake␉line");
    }

    #[test]
    fn every_control_character_is_gone_from_visible_text() {
        let all: String = (0..0xa0).filter_map(char::from_u32).collect();
        assert!(visible(&all).chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
        assert!(one_line(&all).chars().all(|c| !c.is_control()));
    }

    #[test]
    fn json_keeps_its_value_and_loses_its_raw_controls() {
        let raw = "{\"a\":\"\u{9b}2J\u{7f}\"}\r";
        let line = json_line(raw);
        assert!(!line.chars().any(char::is_control));
        let before: serde_json::Value = serde_json::from_str(raw).unwrap();
        let after: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn colour_follows_the_conventions() {
        for (terminal, variables, coloured) in [
            (true, &[][..], true),
            (false, &[], false),
            (true, &[("NO_COLOR", "1")], false),
            (true, &[("NO_COLOR", "")], true),
            (true, &[("TERM", "dumb")], false),
            (true, &[("CLICOLOR", "0")], false),
            (false, &[("CLICOLOR", "1")], false),
            (false, &[("CLICOLOR_FORCE", "1")], true),
            (false, &[("CLICOLOR_FORCE", "0")], false),
            (true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
        ] {
            let env: Env = variables.iter().copied().collect();
            let palette = Palette::for_stream(terminal, &env);
            assert_eq!(palette.coloured, coloured, "{terminal} {variables:?}");
        }
        assert_eq!(Palette::plain().paint(Role::Bad, "x"), "x");
        assert_eq!(Palette::coloured().paint(Role::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
    }

    #[test]
    fn words_for_a_shell_stay_one_word() {
        for (word, shown) in [
            ("s-01abc", "s-01abc"),
            ("a b", "'a b'"),
            ("x;rm -rf ~", "'x;rm -rf ~'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(word), shown);
        }
    }

    #[test]
    fn clipping_counts_characters() {
        assert_eq!(clipped("漢字漢字", 2), "漢字…");
        assert_eq!(clipped("漢字", 2), "漢字");
    }
}
