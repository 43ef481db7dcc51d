//! Reads a part of a text file as numbered lines. Streams, so that the file's size does not matter; never alters it.

use std::io::{BufRead, BufReader, Cursor, Read};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use zeroclaw_policy::{Action, Permit, RootedPath};

use crate::{
    client::Lines,
    jail::{Files, JailError},
    model::ToolSpec,
    tool::{
        CallView, Location, PreparedCall, Progress, Tool, ToolContent, ToolContext, ToolFailure, ToolKind, ToolOutcome,
        args::{locate, parse, reading, shown_path, spec, wrong_permit},
        show,
        text::{Encoding, SNIFFED, decode_utf16, sniff},
        theirs,
    },
};

/// Lines shown when the call names no number.
const DEFAULT_LINES: u64 = 2000;

/// Bytes of one line that are shown; minified files have lines of megabytes.
const MAX_LINE: usize = 4096;

/// The largest UTF-16 file; it is decoded as a whole.
const MAX_UTF16: u64 = 16 * 1024 * 1024;

/// Lines between two looks at whether the turn was cancelled.
const LINES_PER_CHECK: u64 = 4096;

/// The tool `file_read`.
#[derive(Debug)]
pub(super) struct FileRead {
    spec: ToolSpec,
}

impl FileRead {
    pub(super) fn new() -> Self {
        let spec = spec(
            "file_read",
            "Reads a text file and returns numbered lines. Long files are returned in parts: continue with `offset`.",
            json!({
                "path": { "type": "string", "description": "The file, relative to the working directory or absolute." },
                "offset": { "type": "integer", "minimum": 1, "description": "First line, from 1." },
                "limit": { "type": "integer", "minimum": 1, "description": "Number of lines, 2000 by default." }
            }),
            &["path"],
        );
        Self { spec }
    }
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(alias = "file_path")]
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

#[async_trait]
impl Tool for FileRead {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn parallel_safe(&self) -> bool {
        true
    }

    async fn prepare(&self, arguments: &Value, context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        let arguments: Arguments = parse(arguments)?;
        let path = locate(context, &arguments.path)?;
        let title = show::title(&format!("Read {}", shown_path(context.jail.roots(), path.absolute())));
        let first = arguments.offset.unwrap_or(1).max(1);
        let count = arguments.limit.unwrap_or(DEFAULT_LINES).max(1);
        let asked = Lines { first: arguments.offset.map(of_client), count: arguments.limit.map(of_client) };
        Ok(Box::new(Call { path, title, window: Window { first, count }, asked }))
    }
}

/// The lines that are wanted.
#[derive(Clone, Copy)]
struct Window {
    first: u64,
    count: u64,
}

struct Call {
    path: RootedPath,
    title: String,
    window: Window,
    /// The same as the model said it: a client is asked for no more and no less.
    asked: Lines,
}

/// A line number or count as clients take it.
fn of_client(number: u64) -> u32 {
    u32::try_from(number.max(1)).unwrap_or(u32::MAX)
}

impl Call {
    fn location(&self) -> Location {
        Location { path: self.path.absolute().to_owned(), line: u32::try_from(self.window.first).ok() }
    }
}

#[async_trait]
impl PreparedCall for Call {
    fn action(&self) -> Action {
        Action::Read { path: self.path.clone() }
    }

    fn view(&self) -> CallView {
        CallView { title: self.title.clone(), locations: vec![self.location()], content: Vec::new() }
    }

    async fn run(
        self: Box<Self>,
        permit: Permit,
        context: &ToolContext,
        _progress: &dyn Progress,
    ) -> Result<ToolOutcome, ToolFailure> {
        let Action::Read { path } = permit.into_action() else {
            return Err(wrong_permit());
        };
        let (window, limit, cancel) = (self.window, context.settings.max_output_bytes, context.cancel.clone());
        let asked = self.asked;
        let text = match theirs::read(context, &path, asked).await? {
            Some(text) => reading(context, move |_| read_theirs(&text, asked, window, limit, &cancel)).await?,
            None => reading(context, move |files| read(files, &path, window, limit, &cancel)).await?,
        };
        Ok(ToolOutcome {
            content: vec![ToolContent::Text(show::fenced("", &text))],
            model_text: text,
            locations: Vec::new(),
            title: None,
            failed: false,
        })
    }
}

fn read(
    files: &Files<'_>,
    path: &RootedPath,
    window: Window,
    limit: usize,
    cancel: &CancellationToken,
) -> Result<String, ToolFailure> {
    let opened = files.open_read(path)?;
    let failed = |source| ToolFailure::from(JailError::Io { path: path.absolute().to_owned(), source });
    let mut start = Vec::with_capacity(SNIFFED);
    let mut file = opened.file;
    (&mut file).take(SNIFFED as u64).read_to_end(&mut start).map_err(failed)?;
    let binary = || {
        ToolFailure::Failed(format!(
            "`{}` is a binary file ({} bytes), not text",
            path.absolute().display(),
            opened.size
        ))
    };
    let unit = match sniff(&start) {
        Encoding::Binary => return Err(binary()),
        Encoding::Bytes => {
            let mut reader = BufReader::with_capacity(64 * 1024, Cursor::new(start).chain(file));
            let page = page(&mut reader, 0, window, limit, cancel).map_err(|stop| stop.failure(failed, binary))?;
            return Ok(page.render(window, ""));
        }
        Encoding::Utf16Le => u16::from_le_bytes,
        Encoding::Utf16Be => u16::from_be_bytes,
    };
    let size = opened.size;
    if size > MAX_UTF16 {
        return Err(JailError::TooLarge { path: path.absolute().to_owned(), size, limit: MAX_UTF16 }.into());
    }
    file.take(MAX_UTF16).read_to_end(&mut start).map_err(failed)?;
    let text = decode_utf16(&start, unit);
    let page = page(&mut text.as_bytes(), 0, window, limit, cancel).map_err(|stop| stop.failure(failed, binary))?;
    Ok(page.render(window, "[UTF-16 text, shown as UTF-8]\n"))
}

/// The lines that a client sent, numbered like those of the whole file.
fn read_theirs(
    text: &str,
    asked: Lines,
    window: Window,
    limit: usize,
    cancel: &CancellationToken,
) -> Result<String, ToolFailure> {
    let sent = text.lines().count() as u64;
    // Whoever sends more lines than it was asked for sent the file from its beginning.
    let whole = asked.count.is_some() && sent > window.count;
    let before = if whole { 0 } else { asked.first.map_or(0, |first| u64::from(first) - 1) };
    if text.is_empty() && before > 0 {
        return Ok(format!("[the file has fewer than {} lines]\n", window.first));
    }
    let failed = |source: std::io::Error| ToolFailure::Failed(source.to_string());
    let binary = || ToolFailure::Failed("the client sent something that is not text".to_owned());
    let page = page(&mut text.as_bytes(), before, window, limit, cancel);
    let page = page.map_err(|stop| stop.failure(failed, binary))?;
    let perhaps_more = !whole && !page.more && asked.count.is_some() && page.shown == window.count;
    let next = window.first + page.shown;
    let mut text = page.render(window, "");
    if perhaps_more {
        text.push_str(&format!("[more lines may follow; continue with offset {next}]\n"));
    }
    Ok(text)
}

/// Why reading lines ended early.
enum Stop {
    Io(std::io::Error),
    Cancelled,
    Binary,
}

impl Stop {
    fn failure(
        self,
        io: impl FnOnce(std::io::Error) -> ToolFailure,
        binary: impl FnOnce() -> ToolFailure,
    ) -> ToolFailure {
        match self {
            Self::Io(error) => io(error),
            Self::Cancelled => ToolFailure::Cancelled,
            Self::Binary => binary(),
        }
    }
}

/// The lines read, as text.
#[derive(Default)]
struct Page {
    text: String,
    shown: u64,
    lines_seen: u64,
    more: bool,
    lossy: bool,
    crlf: bool,
}

impl Page {
    fn render(self, window: Window, head: &str) -> String {
        let mut out = String::with_capacity(self.text.len() + 128);
        out.push_str(head);
        if self.lossy {
            out.push_str("[not valid UTF-8: bytes that are no characters are shown as \u{fffd}]\n");
        }
        if self.crlf {
            out.push_str("[lines end with CRLF]\n");
        }
        out.push_str(&self.text);
        if self.more {
            let next = window.first + self.shown;
            out.push_str(&format!("[more lines follow; continue with offset {next}]\n"));
        } else if self.lines_seen == 0 {
            out.push_str("[the file is empty]\n");
        } else if self.shown == 0 {
            out.push_str(&format!("[the file has {} lines]\n", self.lines_seen));
        }
        out
    }
}

/// Takes the wanted lines out of a text that `before` lines of its file precede.
fn page(
    reader: &mut impl BufRead,
    before: u64,
    window: Window,
    limit: usize,
    cancel: &CancellationToken,
) -> Result<Page, Stop> {
    let mut page = Page { lines_seen: before, ..Page::default() };
    let mut line = Vec::new();
    loop {
        if page.lines_seen.is_multiple_of(LINES_PER_CHECK) && cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        let wanted = page.lines_seen + 1 >= window.first;
        let length = next_line(reader, &mut line, if wanted { MAX_LINE } else { 0 }, cancel)?;
        if length == 0 {
            return Ok(page);
        }
        if wanted {
            if page.shown == window.count {
                page.more = true;
                return Ok(page);
            }
            let start = page.text.len();
            append(&mut page, &line, length)?;
            if page.text.len() > limit && page.shown > 1 {
                page.text.truncate(start);
                page.shown -= 1;
                page.more = true;
                return Ok(page);
            }
        }
        page.lines_seen += 1;
    }
}

fn append(page: &mut Page, line: &[u8], length: u64) -> Result<(), Stop> {
    if line.contains(&0) {
        return Err(Stop::Binary);
    }
    let number = page.lines_seen + 1;
    let cut = length > line.len() as u64;
    let mut bytes = line.strip_suffix(b"\n").unwrap_or(line);
    if !cut && let Some(stripped) = bytes.strip_suffix(b"\r") {
        page.crlf = true;
        bytes = stripped;
    }
    if number == 1 {
        bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        // A line that was cut may end inside a character, which says nothing about the file.
        Err(error) if cut && error.error_len().is_none() => {
            String::from_utf8_lossy(bytes.get(..error.valid_up_to()).unwrap_or(bytes))
        }
        Err(_) => {
            page.lossy = true;
            String::from_utf8_lossy(bytes)
        }
    };
    page.text.push_str(&format!("{number:>6}\t{text}"));
    if cut {
        page.text.push_str(&format!(" … [line cut, {length} bytes]"));
    }
    page.text.push('\n');
    page.shown += 1;
    Ok(())
}

/// Reads one line, keeps at most `keep` bytes of it, and returns its whole length; zero at the end of the file.
fn next_line(
    reader: &mut impl BufRead,
    line: &mut Vec<u8>,
    keep: usize,
    cancel: &CancellationToken,
) -> Result<u64, Stop> {
    line.clear();
    let mut length = 0;
    loop {
        let available = match reader.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Stop::Io(error)),
        };
        if available.is_empty() {
            return Ok(length);
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |end| end + 1);
        let kept = keep.saturating_sub(line.len()).min(taken);
        line.extend_from_slice(available.get(..kept).unwrap_or(available));
        reader.consume(taken);
        length += taken as u64;
        if end.is_some() {
            return Ok(length);
        }
        // Checked per buffer and not per line, so that a line of gigabytes can be left as well.
        if cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
    }
}
