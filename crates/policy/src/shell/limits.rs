//! How much of a script is read, checked before the grammar sees it: the parser recurses and tries again where it
//! failed, so depth and size are bounded by counting first.

use super::Unclear;

/// The longest script that is taken apart, in bytes: longer ones are programs, which nobody reads in a question either.
pub const MAX_SCRIPT: usize = 16 * 1024;

/// How many groups, substitutions and compound commands a script may have inside each other, counted without regard
/// to quotes and therefore rather too early: the parser needs a few kilobytes of stack for each and may read it twice.
pub const MAX_NESTING: usize = 8;

/// How many openers of any kind a script may have in all, so that the text cannot make the parser try again and again.
const MAX_OPENERS: usize = 256;

/// The longest name of a here-document: the parser compares it with the end of every line.
const MAX_TAG: usize = 64;

/// The most digits in a row before `<`, `>` or behind `~`: the parser turns them into a number that has to fit.
const MAX_DIGITS: usize = 8;

/// Refuses what the parser should not be given.
pub(super) fn check(script: &str) -> Result<(), Unclear> {
    if script.len() > MAX_SCRIPT {
        return Err(Unclear::TooLong);
    }
    if script.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(Unclear::Control);
    }
    nesting(script)?;
    digits(script)?;
    tags(script)
}

fn nesting(script: &str) -> Result<(), Unclear> {
    let mut depth = 0_usize;
    let mut openers = 0_usize;
    let mut ticks = 0_usize;
    for byte in script.bytes() {
        match byte {
            b'(' | b'{' => {
                depth += 1;
                openers += 1;
            }
            b')' | b'}' => depth = depth.saturating_sub(1),
            b'`' => {
                ticks += 1;
                openers += 1;
            }
            _ => continue,
        }
        if depth > MAX_NESTING || openers > MAX_OPENERS {
            return Err(Unclear::TooDeep);
        }
    }
    // A back-quoted command nests by escaping, which counting does not see: few of them are enough for everybody.
    if ticks > MAX_NESTING {
        return Err(Unclear::TooDeep);
    }
    let mut keywords = 0_usize;
    for word in script.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        match word {
            "if" | "while" | "until" | "for" | "case" | "do" => {
                keywords += 1;
            }
            "fi" | "done" | "esac" => keywords = keywords.saturating_sub(1),
            _ => continue,
        }
        // `while … do` counts twice until its `done`.
        if keywords > 2 * MAX_NESTING {
            return Err(Unclear::TooDeep);
        }
    }
    Ok(())
}

fn digits(script: &str) -> Result<(), Unclear> {
    let mut run = 0_usize;
    let mut after_tilde = false;
    let mut previous = b' ';
    for byte in script.bytes() {
        if byte.is_ascii_digit() {
            if run == 0 {
                after_tilde = matches!(previous, b'~' | b'+' | b'-');
            }
            run += 1;
        } else {
            if run > MAX_DIGITS && (after_tilde || matches!(byte, b'<' | b'>' | b'\\')) {
                return Err(Unclear::Dialect("a very large descriptor".to_owned()));
            }
            run = 0;
        }
        previous = byte;
    }
    if run > MAX_DIGITS && after_tilde {
        return Err(Unclear::Dialect("a very large number".to_owned()));
    }
    Ok(())
}

/// Lets only plain names of documents through, and none together with a substitution before the document begins: the
/// parser does not end on some of the others.
fn tags(script: &str) -> Result<(), Unclear> {
    let mut last = None;
    for (at, _) in script.match_indices("<<") {
        let rest = script.get(at + 2..).unwrap_or_default();
        let rest = rest.strip_prefix('-').unwrap_or(rest).trim_start_matches([' ', '\t']);
        let rest = rest.strip_prefix(['\\', '\'', '"']).unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let behind = rest.get(end..).unwrap_or_default();
        let behind = behind.strip_prefix(['\'', '"']).unwrap_or(behind);
        let ends = behind.is_empty() || behind.starts_with([' ', '\t', '\n', ';', '|', '&', '<', '>', ')']);
        if end == 0 || end > MAX_TAG || !ends {
            return Err(Unclear::Dialect("<<".to_owned()));
        }
        last = Some(at);
    }
    let Some(last) = last else { return Ok(()) };
    let line = script.get(last..).and_then(|rest| rest.find('\n')).map_or(script.len(), |end| last + end);
    let before = script.get(..line).unwrap_or_default();
    if ["$(", "${", "$[", "`"].iter().any(|opener| before.contains(opener)) {
        return Err(Unclear::Expansion("a document in a substitution".to_owned()));
    }
    Ok(())
}
