//! One file's change, as `file_write` and `file_edit` prepare it: judged, shown and performed as one value.

use std::path::Path;

use async_trait::async_trait;
use similar::TextDiff;
use zeroclaw_policy::{Action, Permit, Pin, Replaces, RootedPath};

use crate::{
    jail::Links,
    tool::{
        CallView, Location, PreparedCall, Progress, ToolContent, ToolContext, ToolFailure, ToolOutcome,
        args::{reading, writing, wrong_permit},
        output::bounded,
        show, theirs,
    },
};

/// Bytes of either side of a diff that is shown as a whole. Larger files are shown by their changed parts.
const MAX_DIFF: usize = 512 * 1024;

/// Bytes of the excerpt shown instead of a diff that is too large.
const MAX_EXCERPT: usize = 128 * 1024;

/// Bytes of a file above which two versions are not compared line by line: the comparison could take seconds.
const MAX_COMPARED: usize = 4 * 1024 * 1024;

/// What was there before.
pub(super) enum Before {
    /// No file.
    Nothing,
    /// Text.
    Text(String),
    /// Bytes that are no text, or too many to show.
    Opaque {
        /// How many.
        size: u64,
    },
}

/// A file, and where it lay when the change was prepared.
pub(super) struct Placed {
    pub(super) path: RootedPath,
    pub(super) pin: Pin,
}

/// A change that was prepared.
pub(super) struct Change {
    pub(super) action: Action,
    pub(super) view: CallView,
    pub(super) success: String,
}

impl Change {
    /// Puts the change and its presentation together.
    pub(super) fn new(place: Placed, title: &str, before: Before, new: String, replaces: Replaces) -> Self {
        let Placed { path, pin } = place;
        let line = match &before {
            Before::Nothing | Before::Opaque { .. } => 1,
            Before::Text(old) => first_difference(old, &new),
        };
        let location = Location { path: path.absolute().to_owned(), line: Some(line) };
        let content = content(path.absolute(), before, &new);
        let success = format!("Wrote {} bytes to `{}`.", new.len(), path.absolute().display());
        let action = Action::Write { path, content: new.into_bytes().into(), replaces, pins: vec![pin] };
        let view = CallView { title: show::title(title), locations: vec![location], content };
        Self { action, view, success }
    }
}

#[async_trait]
impl PreparedCall for Change {
    fn action(&self) -> Action {
        self.action.clone()
    }

    fn view(&self) -> CallView {
        self.view.clone()
    }

    async fn run(
        self: Box<Self>,
        permit: Permit,
        context: &ToolContext,
        _progress: &dyn Progress,
    ) -> Result<ToolOutcome, ToolFailure> {
        let Action::Write { path, content, replaces, pins } = permit.into_action() else {
            return Err(wrong_permit());
        };
        let held = pins.clone();
        reading(context, move |files| Ok(files.hold(&held, None)?)).await?;
        let written = match &context.client.writer {
            Some(writer) => theirs::write(context, writer.as_ref(), &path, &content, replaces).await?,
            None => false,
        };
        if !written {
            writing(context, move |files| {
                files.hold(&pins, None)?;
                Ok(files.write_atomic(&path, &content, replaces, Links::Follow)?)
            })
            .await?;
        }
        Ok(ToolOutcome {
            model_text: self.success,
            content: Vec::new(),
            locations: Vec::new(),
            title: None,
            failed: false,
        })
    }
}

fn content(path: &Path, before: Before, new: &str) -> Vec<ToolContent> {
    let mut content = Vec::new();
    match before {
        Before::Nothing if new.len() <= MAX_DIFF => {
            content.push(ToolContent::Diff { path: path.to_owned(), old: None, new: new.to_owned() });
        }
        Before::Nothing => content.push(excerpt("The new file", new)),
        Before::Text(old) if old.len() <= MAX_DIFF && new.len() <= MAX_DIFF => {
            content.push(ToolContent::Diff { path: path.to_owned(), old: Some(old), new: new.to_owned() });
        }
        Before::Text(old) if old.len() <= MAX_COMPARED && new.len() <= MAX_COMPARED => {
            let changes = bounded(&unified(&old, new), MAX_EXCERPT);
            content.push(ToolContent::Text(show::fenced("diff", &changes)));
        }
        Before::Text(_) => content.push(excerpt("The new content", new)),
        Before::Opaque { size } => {
            let note = format!("Replaces {size} bytes that are not shown because they are binary or too many.");
            content.push(ToolContent::Text(note));
            content.push(excerpt("The new content", new));
        }
    }
    content.extend(show::invisible_note(new).map(ToolContent::Text));
    content
}

fn excerpt(what: &str, text: &str) -> ToolContent {
    let shown = show::fenced("", &bounded(text, MAX_EXCERPT));
    ToolContent::Text(format!("{what}, {} bytes:\n\n{shown}", text.len()))
}

/// The changed parts of a text with three lines around them.
pub(super) fn unified(old: &str, new: &str) -> String {
    TextDiff::from_lines(old, new).unified_diff().context_radius(3).to_string()
}

/// The line, from 1, in which two texts begin to differ.
pub(super) fn first_difference(old: &str, new: &str) -> u32 {
    let same = old.split_inclusive('\n').zip(new.split_inclusive('\n')).take_while(|(a, b)| a == b).count();
    u32::try_from(same + 1).unwrap_or(u32::MAX)
}
