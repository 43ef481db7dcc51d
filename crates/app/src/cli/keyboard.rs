//! What a person types: lines, and keys that nobody looking on can read. Nothing is kept beyond what was asked for.

use std::io::{self, Read, Write};

/// The longest line; a key has a few hundred characters, and what is longer was pasted by mistake.
const MAX_LINE: usize = 16 * 1024;

/// Ended by the person: end of input, or an interrupt while a key was typed.
#[derive(Debug, thiserror::Error)]
#[error("cancelled")]
pub(super) struct Cancelled;

/// Reads a line without its end.
pub(super) fn line(input: &mut impl Read) -> anyhow::Result<String> {
    let mut line = Vec::new();
    loop {
        match byte(input)? {
            None if line.is_empty() => return Err(Cancelled.into()),
            None | Some(b'\n') => break,
            Some(byte) => line.push(byte),
        }
        if line.len() > MAX_LINE {
            anyhow::bail!("the line is too long");
        }
    }
    let text = String::from_utf8(line).map_err(|_| anyhow::anyhow!("the line is not UTF-8"))?;
    Ok(text.trim().to_owned())
}

/// One byte at a time, so that nothing is read ahead of the next question.
fn byte(input: &mut impl Read) -> io::Result<Option<u8>> {
    let mut one = [0];
    Ok(match input.read(&mut one)? {
        0 => None,
        _ => one.first().copied(),
    })
}

/// Asks for a key and reads it from the terminal on standard input without showing it.
#[cfg(unix)]
pub(super) fn secret(out: &mut impl Write, question: &str) -> anyhow::Result<String> {
    // Before the question: whoever answers at once is not shown either.
    let _silence = Silence::begin()?;
    write!(out, "{question}: ")?;
    out.flush()?;
    let key = typed(&mut io::stdin().lock());
    writeln!(out)?;
    key
}

#[cfg(not(unix))]
pub(super) fn secret(_out: &mut impl Write, _question: &str) -> anyhow::Result<String> {
    anyhow::bail!("a key cannot be typed unseen on this system; use --key-stdin")
}

/// Reads keystrokes up to the enter key. The terminal does nothing by itself meanwhile, so erasing is done here.
#[cfg(unix)]
fn typed(input: &mut impl Read) -> anyhow::Result<String> {
    let mut line = Vec::new();
    loop {
        match byte(input)? {
            Some(b'\r' | b'\n') => break,
            // End of input, interrupt, end of transmission.
            None | Some(3 | 4) => return Err(Cancelled.into()),
            // Backspace, in both forms; a key is ASCII.
            Some(8 | 127) => drop(line.pop()),
            // Line erase.
            Some(21) => line.clear(),
            Some(byte) => line.push(byte),
        }
        if line.len() > MAX_LINE {
            anyhow::bail!("the key is too long");
        }
    }
    let text = String::from_utf8(line).map_err(|_| anyhow::anyhow!("the key is not UTF-8"))?;
    Ok(text.trim().to_owned())
}

/// The terminal without echo; dropping it brings the terminal back, whatever happened.
#[cfg(unix)]
struct Silence(rustix::termios::Termios);

#[cfg(unix)]
impl Silence {
    fn begin() -> anyhow::Result<Self> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        // An interrupt in the middle must not leave the terminal silent, so it comes as a keystroke.
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Drain, &silent)?;
        Ok(Self(before))
    }
}

#[cfg(unix)]
impl Drop for Silence {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing any more.
        let _ = rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Drain, &self.0);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::{Cancelled, line, typed};

    #[test]
    fn keystrokes_become_a_key() {
        for (keys, expected) in [
            ("sk-1\r", Some("sk-1")),
            ("sk-2x\u{7f}\n", Some("sk-2")),
            ("wrong\u{15} sk-3 \r", Some("sk-3")),
            ("sk\u{3}", None),
            ("", None),
        ] {
            match typed(&mut keys.as_bytes()) {
                Ok(key) => assert_eq!(Some(key.as_str()), expected, "{keys:?}"),
                Err(error) => assert!(expected.is_none() && error.is::<Cancelled>(), "{keys:?}: {error}"),
            }
        }
    }

    #[test]
    fn a_line_ends_at_its_end_and_nothing_behind_is_read() {
        let mut input = "one\r\ntwo".as_bytes();
        assert_eq!(line(&mut input).unwrap(), "one");
        assert_eq!(line(&mut input).unwrap(), "two");
        assert!(line(&mut input).unwrap_err().is::<Cancelled>());
        assert!(line(&mut "x".repeat(20_000).as_bytes()).is_err());
    }
}
