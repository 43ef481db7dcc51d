//! Searches files for a regular expression, line by line. Binary files and ignored files are left out;
//! every file is opened through the jail, and a cancelled turn ends the search also within a file.

use std::{
    io::{self, Read},
    ops::ControlFlow,
    path::Path,
};

use async_trait::async_trait;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkFinish, SinkMatch,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use zeroclaw_policy::{Action, Permit, RootedPath, Roots};

use crate::{
    jail::{EntryKind, Files, OpenedFile},
    model::ToolSpec,
    tool::{
        CallView, Location, PreparedCall, Progress, Tool, ToolContent, ToolContext, ToolFailure, ToolKind, ToolOutcome,
        args::{locate, parse, reading, shown_path, spec, wrong_permit},
        output::bounded,
        pattern::{FilePattern, MAX_PATTERN},
        show,
        walk::{End, walk},
    },
};

/// Matching lines, unless the call asks for fewer or more.
const DEFAULT_RESULTS: usize = 200;
const MAX_RESULTS: usize = 2000;

/// Lines shown around a match.
const MAX_CONTEXT: usize = 10;

/// Bytes of one line that are shown.
const MAX_LINE: usize = 500;

/// Bytes of one line that are searched; a file with longer lines is left out from there on.
const MAX_LINE_HEAP: usize = 8 * 1024 * 1024;

/// Bytes a compiled expression may take.
const MAX_EXPRESSION: usize = 8 * 1024 * 1024;

/// Bytes collected before the search stops; the result is cut further for the model.
const MAX_TEXT: usize = 1024 * 1024;

/// Places told to the client.
const MAX_LOCATIONS: usize = 20;

/// The tool `content_search`.
#[derive(Debug)]
pub(super) struct ContentSearch {
    spec: ToolSpec,
}

impl ContentSearch {
    pub(super) fn new() -> Self {
        let spec = spec(
            "content_search",
            "Searches file contents for a regular expression (Rust syntax). Returns `path:line:text`. Files named by `.gitignore` and binary files are left out.",
            json!({
                "pattern": { "type": "string", "description": "The regular expression, matched line by line." },
                "path": { "type": "string", "description": "A directory or file; the working directory by default." },
                "glob": { "type": "string", "description": "Only files with names that fit, e.g. `*.rs`." },
                "case_insensitive": { "type": "boolean" },
                "context": { "type": "integer", "minimum": 0, "maximum": MAX_CONTEXT, "description": "Lines shown around each match." },
                "max_results": { "type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "description": "200 by default." }
            }),
            &["pattern"],
        );
        Self { spec }
    }
}

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    case_insensitive: Option<bool>,
    context: Option<usize>,
    max_results: Option<usize>,
}

#[async_trait]
impl Tool for ContentSearch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Search
    }

    fn parallel_safe(&self) -> bool {
        true
    }

    async fn prepare(&self, arguments: &Value, context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        let arguments: Arguments = parse(arguments)?;
        if arguments.pattern.is_empty() || arguments.pattern.len() > MAX_PATTERN {
            return Err(ToolFailure::Arguments(format!("a pattern has 1 to {MAX_PATTERN} bytes")));
        }
        let base = locate(context, arguments.path.as_deref().unwrap_or("."))?;
        let matcher = RegexMatcherBuilder::new()
            .case_insensitive(arguments.case_insensitive.unwrap_or(false))
            .line_terminator(Some(b'\n'))
            .size_limit(MAX_EXPRESSION)
            .dfa_size_limit(MAX_EXPRESSION)
            .build(&arguments.pattern)
            .map_err(|error| ToolFailure::Arguments(error.to_string()))?;
        let place = shown_path(context.jail.roots(), base.absolute());
        let title = show::title(&format!("Search {place} for {}", arguments.pattern));
        let search = Search {
            matcher,
            glob: arguments.glob.as_deref().map(FilePattern::new).transpose()?,
            context: arguments.context.unwrap_or(0).min(MAX_CONTEXT),
            most: arguments.max_results.unwrap_or(DEFAULT_RESULTS).clamp(1, MAX_RESULTS),
        };
        Ok(Box::new(Call { base, title, search }))
    }
}

struct Search {
    matcher: RegexMatcher,
    glob: Option<FilePattern>,
    context: usize,
    most: usize,
}

struct Call {
    base: RootedPath,
    title: String,
    search: Search,
}

#[async_trait]
impl PreparedCall for Call {
    fn action(&self) -> Action {
        Action::Read { path: self.base.clone() }
    }

    fn view(&self) -> CallView {
        let location = Location { path: self.base.absolute().to_owned(), line: None };
        CallView { title: self.title.clone(), locations: vec![location], content: Vec::new() }
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
        let (jail, cancel, search) = (context.jail.clone(), context.cancel.clone(), self.search);
        let (results, end) = reading(context, move |files| search.run(files, jail.roots(), &path, &cancel)).await?;
        let mut text = results.text;
        if results.matches == 0 {
            text.push_str("[no line matches]\n");
        }
        match end {
            End::Complete => {}
            End::Stopped => {
                text.push_str(&format!("[stopped after {} matching lines; there may be more]\n", results.matches));
            }
            End::Limited => text.push_str("[the directory is too large; not everything was searched]\n"),
        }
        if results.skipped > 0 {
            text.push_str(&format!("[{} files could not be searched]\n", results.skipped));
        }
        let text = bounded(&text, context.settings.max_output_bytes);
        Ok(ToolOutcome {
            content: vec![ToolContent::Text(show::fenced("", &text))],
            model_text: text,
            locations: results.locations,
            title: None,
            failed: false,
        })
    }
}

#[derive(Default)]
struct Results {
    text: String,
    matches: usize,
    locations: Vec<Location>,
    skipped: usize,
}

impl Search {
    fn run(
        &self,
        files: &Files<'_>,
        roots: &Roots,
        base: &RootedPath,
        cancel: &CancellationToken,
    ) -> Result<(Results, End), ToolFailure> {
        let mut results = Results::default();
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .before_context(self.context)
            .after_context(self.context)
            .heap_limit(Some(MAX_LINE_HEAP))
            .binary_detection(BinaryDetection::quit(0))
            .build();
        if files.metadata(base)?.kind != EntryKind::Directory {
            let opened = files.open_read(base)?;
            self.file(&mut searcher, opened, base.absolute(), cancel, &mut results);
            let end = self.end(&results, cancel)?;
            return Ok((results, if end.is_break() { End::Stopped } else { End::Complete }));
        }
        let mut cancelled = Ok(());
        let end = walk(files, roots, base, cancel, |found| {
            if !self.glob.as_ref().is_none_or(|glob| glob.fits(found.relative)) {
                return ControlFlow::Continue(());
            }
            let located = found.path.to_str().and_then(|text| roots.locate(text).ok());
            match located.map(|located| files.open_read(&located)) {
                Some(Ok(opened)) => self.file(&mut searcher, opened, found.path, cancel, &mut results),
                Some(Err(_)) | None => results.skipped += 1,
            }
            match self.end(&results, cancel) {
                Ok(flow) => flow,
                Err(failure) => {
                    cancelled = Err(failure);
                    ControlFlow::Break(())
                }
            }
        })?;
        cancelled.map(|()| (results, end))
    }

    fn end(&self, results: &Results, cancel: &CancellationToken) -> Result<ControlFlow<()>, ToolFailure> {
        if cancel.is_cancelled() {
            return Err(ToolFailure::Cancelled);
        }
        let full = results.matches >= self.most || results.text.len() >= MAX_TEXT;
        Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn file(
        &self,
        searcher: &mut Searcher,
        opened: OpenedFile,
        path: &Path,
        cancel: &CancellationToken,
        results: &mut Results,
    ) {
        let (length, matches, locations) = (results.text.len(), results.matches, results.locations.len());
        let reader = Cancellable { inner: opened.file, cancel };
        let shown = show::line(&path.display().to_string());
        let mut sink = Lines { path, shown: &shown, most: self.most, results, binary: false };
        let searched = searcher.search_reader(&self.matcher, reader, &mut sink);
        if sink.binary {
            // What matched before the first NUL byte is not text either.
            results.text.truncate(length);
            results.matches = matches;
            results.locations.truncate(locations);
        }
        if searched.is_err() {
            results.skipped += 1;
        }
    }
}

/// A reader that ends with an error when the turn is cancelled.
struct Cancellable<'a, R> {
    inner: R,
    cancel: &'a CancellationToken,
}

impl<R: Read> Read for Cancellable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        self.inner.read(buffer)
    }
}

/// Collects the lines of one file.
struct Lines<'a> {
    path: &'a Path,
    shown: &'a str,
    most: usize,
    results: &'a mut Results,
    binary: bool,
}

impl Lines<'_> {
    fn push(&mut self, number: Option<u64>, mark: char, bytes: &[u8]) {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let shown = line.get(..MAX_LINE).unwrap_or(line);
        let text = String::from_utf8_lossy(shown);
        let cut = if shown.len() < line.len() { " …" } else { "" };
        let number = number.unwrap_or(0);
        self.results.text.push_str(&format!("{}{mark}{number}{mark}{text}{cut}\n", self.shown));
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.push(found.line_number(), ':', found.bytes());
        self.results.matches += 1;
        if self.results.locations.len() < MAX_LOCATIONS {
            let line = found.line_number().and_then(|line| u32::try_from(line).ok());
            self.results.locations.push(Location { path: self.path.to_owned(), line });
        }
        Ok(self.results.matches < self.most && self.results.text.len() < MAX_TEXT)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        match context.kind() {
            SinkContextKind::Before | SinkContextKind::After | SinkContextKind::Other => {
                self.push(context.line_number(), '-', context.bytes());
            }
        }
        Ok(true)
    }

    fn context_break(&mut self, _searcher: &Searcher) -> Result<bool, io::Error> {
        self.results.text.push_str("--\n");
        Ok(true)
    }

    fn finish(&mut self, _searcher: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}
