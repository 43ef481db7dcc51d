//! Writes a whole file. The content is kept to the byte; a file that changed between question and write is left alone.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroclaw_policy::{Replaces, RootedPath};

use crate::{
    jail::{EntryKind, Files, JailError, MAX_REPLACED, digest},
    model::ToolSpec,
    tool::{
        PreparedCall, Tool, ToolContext, ToolFailure, ToolKind,
        args::{locate, parse, reading, shown_path, spec},
        change::{Before, Change, Placed},
        text::strict,
        theirs,
    },
};

/// The largest content one call writes; a model never writes as much, a mistake may.
const MAX_CONTENT: usize = 8 * 1024 * 1024;

/// The largest old text that is kept for the diff.
const MAX_OLD_TEXT: usize = 4 * 1024 * 1024;

/// The tool `file_write`.
#[derive(Debug)]
pub(super) struct FileWrite {
    spec: ToolSpec,
}

impl FileWrite {
    pub(super) fn new() -> Self {
        let spec = spec(
            "file_write",
            "Creates a file or replaces its whole content. Missing directories are made. Prefer `file_edit` for changes.",
            json!({
                "path": { "type": "string", "description": "The file, relative to the working directory or absolute." },
                "content": { "type": "string", "description": "The whole new content." }
            }),
            &["path", "content"],
        );
        Self { spec }
    }
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(alias = "file_path")]
    path: String,
    content: String,
}

#[async_trait]
impl Tool for FileWrite {
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
        let arguments: Arguments = parse(arguments)?;
        if arguments.content.len() > MAX_CONTENT {
            return Err(ToolFailure::Arguments(format!(
                "the content has {} bytes, more than the limit of {MAX_CONTENT}",
                arguments.content.len()
            )));
        }
        let path = locate(context, &arguments.path)?;
        let shown = shown_path(context.jail.roots(), path.absolute());
        let asked = path.clone();
        let (before, replaces) = match theirs::before_change(context, &self.spec.name, &path).await? {
            Some(text) => replaced(text.as_bytes()),
            None => reading(context, move |files| before(files, &asked)).await?,
        };
        let verb = match replaces {
            Replaces::Nothing => "Create",
            Replaces::Content(_) => "Write",
        };
        let asked = path.clone();
        let pin = reading(context, move |files| Ok(files.pin_place(&asked)?)).await?;
        Ok(Box::new(Change::new(Placed { path, pin }, &format!("{verb} {shown}"), before, arguments.content, replaces)))
    }
}

fn before(files: &Files<'_>, path: &RootedPath) -> Result<(Before, Replaces), ToolFailure> {
    match files.metadata(path) {
        Ok(facts) => match facts.kind {
            EntryKind::File => {}
            EntryKind::Directory => return Err(JailError::Directory { path: path.absolute().to_owned() }.into()),
            EntryKind::Link | EntryKind::Special => {
                return Err(JailError::NotRegular { path: path.absolute().to_owned() }.into());
            }
        },
        Err(JailError::NotFound { .. }) => return Ok((Before::Nothing, Replaces::Nothing)),
        Err(error) => return Err(error.into()),
    }
    let bytes = files.read_bounded(path, MAX_REPLACED)?;
    Ok(replaced(&bytes))
}

fn replaced(bytes: &[u8]) -> (Before, Replaces) {
    let before = match strict(bytes) {
        Some(text) if bytes.len() <= MAX_OLD_TEXT => Before::Text(text.to_owned()),
        Some(_) | None => Before::Opaque { size: bytes.len() as u64 },
    };
    (before, Replaces::Content(digest(bytes)))
}
