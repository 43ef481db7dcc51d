//! The two output streams of `prompt` and the spinner: keeps answer, information and spinner from writing over each other.

use std::io::{self, Write};

use super::render::{Piece, Target};
use crate::cli::term::{Palette, Role, json_line};

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Where everything is written.
pub(super) struct Screen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    pub(super) palette: Palette,
    /// Both streams end on one terminal, so that an open line of one is an open line of the other.
    is_shared: bool,
    has_spinner: bool,
    is_answer_open: bool,
    is_info_open: bool,
    is_spinning: bool,
    frame: usize,
}

/// What the streams are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looks {
    pub(super) palette: Palette,
    pub(super) is_shared: bool,
    pub(super) has_spinner: bool,
}

impl Screen {
    pub(super) fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>, looks: Looks) -> Self {
        Self {
            out,
            err,
            palette: looks.palette,
            is_shared: looks.is_shared,
            has_spinner: looks.has_spinner,
            is_answer_open: false,
            is_info_open: false,
            is_spinning: false,
            frame: 0,
        }
    }

    pub(super) fn has_spinner(&self) -> bool {
        self.has_spinner
    }

    /// Writes pieces in order; each is on its stream before the next one is.
    pub(super) fn write(&mut self, pieces: &[Piece]) -> io::Result<()> {
        for piece in pieces {
            match piece.target {
                Target::Answer => self.answer(&piece.text)?,
                Target::Info => self.info(&piece.text)?,
            }
        }
        Ok(())
    }

    /// Writes the last pieces of a turn. A line that was ended for both streams needs no second end.
    pub(super) fn write_last(&mut self, pieces: &[Piece]) -> io::Result<()> {
        let is_ended = self.is_shared && !self.is_answer_open;
        for piece in pieces {
            if !(is_ended && piece.target == Target::Answer && piece.text == "\n") {
                self.write(std::slice::from_ref(piece))?;
            }
        }
        Ok(())
    }

    /// Writes one JSON document as a line of standard output.
    pub(super) fn json(&mut self, raw: &str) -> io::Result<()> {
        self.clear_spinner()?;
        writeln!(self.out, "{}", json_line(raw))?;
        self.out.flush()
    }

    /// Writes a line of our own to standard error.
    pub(super) fn note(&mut self, role: Role, text: &str) -> io::Result<()> {
        let end = if self.is_info_open { "\n" } else { "" };
        let line = format!("{end}{}\n", self.palette.paint(role, text));
        self.info(&line)
    }

    fn answer(&mut self, text: &str) -> io::Result<()> {
        self.clear_spinner()?;
        if self.is_shared && self.is_info_open {
            self.err.write_all(b"\n")?;
            self.err.flush()?;
            self.is_info_open = false;
        }
        self.out.write_all(text.as_bytes())?;
        self.is_answer_open = !text.ends_with('\n');
        self.out.flush()
    }

    /// Writes harmless text to standard error, on a line of its own when an answer's line is open there.
    pub(super) fn info(&mut self, text: &str) -> io::Result<()> {
        self.clear_spinner()?;
        if self.is_shared && self.is_answer_open {
            self.err.write_all(b"\n")?;
            self.is_answer_open = false;
        }
        self.err.write_all(text.as_bytes())?;
        self.is_info_open = !text.ends_with('\n');
        self.err.flush()
    }

    /// The person typed a line, which ended the open one.
    pub(super) fn line_typed(&mut self) {
        self.is_info_open = false;
    }

    /// Shows the next frame of the spinner, unless a line is open that it would overwrite.
    pub(super) fn spin(&mut self, label: &str) -> io::Result<()> {
        if !self.has_spinner || self.is_info_open || (self.is_shared && self.is_answer_open) {
            return Ok(());
        }
        let frame = FRAMES.get(self.frame % FRAMES.len()).copied().unwrap_or_default();
        self.frame = self.frame.wrapping_add(1);
        let text = self.palette.paint(Role::Dim, &format!("{frame} {label}"));
        write!(self.err, "\r\x1b[K{text}")?;
        self.is_spinning = true;
        self.err.flush()
    }

    pub(super) fn clear_spinner(&mut self) -> io::Result<()> {
        if self.is_spinning {
            self.is_spinning = false;
            self.err.write_all(b"\r\x1b[K")?;
            self.err.flush()?;
        }
        Ok(())
    }
}
