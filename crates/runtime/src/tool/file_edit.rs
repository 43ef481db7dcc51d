//! Replaces exact pieces of a text file. A piece that is missing or ambiguous changes nothing at all.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroclaw_policy::Replaces;

use crate::{
    jail::{JailError, digest},
    model::ToolSpec,
    tool::{
        Location, PreparedCall, Tool, ToolContext, ToolFailure, ToolKind,
        args::{locate, parse, reading, shown_path, spec},
        change::{Before, Change, Placed, first_difference, unified},
        output::bounded,
        text::strict,
        theirs,
    },
};

/// The largest file that is edited; it is held in memory a few times over.
const MAX_FILE: u64 = 4 * 1024 * 1024;

/// Edits of one call.
const MAX_EDITS: usize = 100;

/// Bytes of the changed parts that the model is shown.
const MAX_ECHO: usize = 8 * 1024;

/// Matches counted and lines listed when a piece is ambiguous.
const MAX_COUNTED: usize = 1000;
const MAX_LISTED: usize = 5;

/// The tool `file_edit`.
#[derive(Debug)]
pub(super) struct FileEdit {
    spec: ToolSpec,
}

impl FileEdit {
    pub(super) fn new() -> Self {
        let spec = spec(
            "file_edit",
            "Replaces exact pieces of a text file. Each `old_text` must occur exactly once; include surrounding lines to make it unique. \
             Several edits are applied in order, all or none.",
            json!({
                "path": { "type": "string", "description": "The file, relative to the working directory or absolute." },
                "edits": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": { "old_text": { "type": "string" }, "new_text": { "type": "string" } },
                        "required": ["old_text", "new_text"]
                    },
                    "description": "The edits in order."
                },
                "old_text": { "type": "string", "description": "The piece to replace, for a single edit." },
                "new_text": { "type": "string", "description": "What replaces it, for a single edit." }
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
    edits: Option<Vec<Edit>>,
    #[serde(alias = "old_string")]
    old_text: Option<String>,
    #[serde(alias = "new_string")]
    new_text: Option<String>,
}

#[derive(Deserialize)]
struct Edit {
    #[serde(alias = "old_string")]
    old_text: String,
    #[serde(alias = "new_string")]
    new_text: String,
}

impl Arguments {
    fn edits(self) -> Result<(String, Vec<Edit>), ToolFailure> {
        let mut edits = self.edits.unwrap_or_default();
        match (self.old_text, self.new_text) {
            (Some(old_text), Some(new_text)) => edits.push(Edit { old_text, new_text }),
            (None, None) => {}
            (Some(_), None) => return Err(ToolFailure::Arguments("missing field `new_text`".to_owned())),
            (None, Some(_)) => return Err(ToolFailure::Arguments("missing field `old_text`".to_owned())),
        }
        match edits.len() {
            0 => Err(ToolFailure::Arguments("there is no edit; give `edits` or `old_text` and `new_text`".to_owned())),
            1..=MAX_EDITS => Ok((self.path, edits)),
            more => Err(ToolFailure::Arguments(format!("{more} edits are more than the limit of {MAX_EDITS}"))),
        }
    }
}

#[async_trait]
impl Tool for FileEdit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Edit
    }

    fn parallel_safe(&self) -> bool {
        false
    }

    async fn prepare(&self, arguments: &Value, context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        let (path, edits) = parse::<Arguments>(arguments)?.edits()?;
        let path = locate(context, &path)?;
        let shown = shown_path(context.jail.roots(), path.absolute());
        let title = match edits.len() {
            1 => format!("Edit {shown}"),
            count => format!("Edit {shown} ({count} changes)"),
        };
        let theirs = theirs::before_change(context, &self.spec.name, &path).await?;
        reading(context, move |files| {
            let bytes = match theirs {
                Some(text) if text.len() as u64 > MAX_FILE => {
                    let (path, size) = (path.absolute().to_owned(), text.len() as u64);
                    return Err(JailError::TooLarge { path, size, limit: MAX_FILE }.into());
                }
                Some(text) => text.into_bytes(),
                None => files.read_bounded(&path, MAX_FILE)?,
            };
            let Some(old) = strict(&bytes) else {
                let text = format!("`{}` is not UTF-8 text and cannot be edited in pieces", path.absolute().display());
                return Err(ToolFailure::Failed(text));
            };
            let edited = apply(old, &edits)?;
            if edited.text == old {
                return Err(ToolFailure::Failed("the edits change nothing".to_owned()));
            }
            let echo = bounded(&unified(old, &edited.text), MAX_ECHO);
            let replaces = Replaces::Content(digest(&bytes));
            let absolute = path.absolute().to_owned();
            let pin = files.pin_place(&path)?;
            let mut change =
                Change::new(Placed { path, pin }, &title, Before::Text(old.to_owned()), edited.text, replaces);
            change.view.locations =
                edited.lines.into_iter().map(|line| Location { path: absolute.clone(), line: Some(line) }).collect();
            change.success = format!("Edited `{}`.\n{echo}", absolute.display());
            Ok(Box::new(change) as Box<dyn PreparedCall>)
        })
        .await
    }
}

struct Edited {
    text: String,
    /// The first changed line of each edit, in the new text.
    lines: Vec<u32>,
}

/// Where one edit put its text, and how many of its first lines are as before.
struct Place {
    at: usize,
    unchanged_lines: u32,
}

fn apply(old: &str, edits: &[Edit]) -> Result<Edited, ToolFailure> {
    let crlf = only_crlf(old);
    let mut text = old.to_owned();
    let mut places: Vec<Place> = Vec::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        let name = if edits.len() == 1 { String::new() } else { format!("edit {}: ", index + 1) };
        if edit.old_text.is_empty() {
            return Err(ToolFailure::Arguments(format!("{name}`old_text` is empty; use `file_write` for a new file")));
        }
        // What is shown of a CRLF file has plain line ends, so models write plain ones.
        let convert = crlf && !edit.old_text.contains('\r') && !edit.new_text.contains('\r');
        let wanted = if convert { edit.old_text.replace('\n', "\r\n") } else { edit.old_text.clone() };
        let new = if convert { edit.new_text.replace('\n', "\r\n") } else { edit.new_text.clone() };
        let at = find_once(&text, &wanted).map_err(|problem| ToolFailure::Failed(format!("{name}{problem}")))?;
        text.replace_range(at..at + wanted.len(), &new);
        if text.len() as u64 > 2 * MAX_FILE {
            return Err(ToolFailure::Failed(format!("{name}the file grows past {} bytes", 2 * MAX_FILE)));
        }
        for place in &mut places {
            if place.at >= at + wanted.len() {
                place.at = place.at - wanted.len() + new.len();
            }
        }
        places.push(Place { at, unchanged_lines: first_difference(&wanted, &new) - 1 });
    }
    let lines = places.iter().map(|place| line_at(&text, place.at).saturating_add(place.unchanged_lines)).collect();
    Ok(Edited { text, lines })
}

fn find_once(text: &str, wanted: &str) -> Result<usize, String> {
    let mut found = Vec::new();
    let mut from = 0;
    // Overlapping places count as well: "aa" in "aaa" is ambiguous.
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(wanted)) {
        found.push(from + at);
        if found.len() == MAX_COUNTED {
            break;
        }
        from = text.ceil_char_boundary(from + at + 1);
    }
    match found.as_slice() {
        [at] => Ok(*at),
        [] => Err(match loose_line(text, wanted) {
            Some(line) => format!(
                "`old_text` was not found; the text in line {line} differs only in white space, read it again and copy it exactly"
            ),
            None => "`old_text` was not found; read the file again and copy the text exactly".to_owned(),
        }),
        many => {
            let lines: Vec<String> = many.iter().take(MAX_LISTED).map(|at| line_at(text, *at).to_string()).collect();
            let more = if many.len() > MAX_LISTED { ", …" } else { "" };
            let count = if many.len() == MAX_COUNTED { "at least " } else { "" };
            Err(format!(
                "`old_text` occurs {count}{} times (lines {}{more}); include more surrounding lines to make it unique",
                many.len(),
                lines.join(", ")
            ))
        }
    }
}

/// The line where the wanted lines stand when white space at their ends is ignored.
fn loose_line(text: &str, wanted: &str) -> Option<usize> {
    let wanted: Vec<&str> = wanted.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let first = wanted.first()?;
    let lines: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty())
        .collect();
    lines
        .windows(wanted.len())
        .find(|window| {
            window.first().is_some_and(|(_, line)| line == first)
                && window.iter().zip(&wanted).all(|((_, line), wanted)| line == wanted)
        })
        .and_then(|window| window.first())
        .map(|(number, _)| *number)
}

fn line_at(text: &str, at: usize) -> u32 {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    let breaks = before.iter().filter(|byte| **byte == b'\n').count();
    u32::try_from(breaks + 1).unwrap_or(u32::MAX)
}

/// Whether a text has line ends and all of them are CRLF.
fn only_crlf(text: &str) -> bool {
    let breaks = text.matches('\n').count();
    breaks > 0 && breaks == text.matches("\r\n").count()
}
