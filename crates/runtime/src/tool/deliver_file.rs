//! Hands a file of the session to the client. What is handed over is named by the digest of its bytes and read back
//! before it is sent, so the name, the copy and the bytes cannot disagree.

use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroclaw_policy::{Action, Level, Permit, Replaces, RootedPath, Roots};

use crate::{
    jail::{Files, JailError, Links, digest},
    model::ToolSpec,
    tool::{
        CallView, Location, PreparedCall, Progress, Tool, ToolContent, ToolContext, ToolFailure, ToolKind, ToolOutcome,
        args::{locate, parse, shown_path, spec, writing, wrong_permit},
        show,
    },
};

/// The largest file handed over; clients get it in one message.
const MAX_FILE: u64 = 10 * 1024 * 1024;

/// Characters of a file name's extension that is kept.
const MAX_EXTENSION: usize = 16;

/// Bytes of a media type.
const MAX_MIME: usize = 127;

/// The directory of the copies, in the session's working directory.
const UPLOADS: &str = "uploads";

/// The tool `deliver_file`.
#[derive(Debug)]
pub(super) struct DeliverFile {
    spec: ToolSpec,
}

impl DeliverFile {
    pub(super) fn new() -> Self {
        let spec = spec(
            "deliver_file",
            "Hands a file to the user as an attachment, at most 10 MiB.",
            json!({
                "path": { "type": "string", "description": "The file, relative to the working directory or absolute." },
                "mimeType": { "type": "string", "description": "The media type; guessed from the name by default." },
                "title": { "type": "string", "description": "What the user sees; the file name by default." }
            }),
            &["path"],
        );
        Self { spec }
    }
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    #[serde(rename = "mimeType", alias = "mime_type")]
    mime_type: Option<String>,
    title: Option<String>,
}

#[async_trait]
impl Tool for DeliverFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn parallel_safe(&self) -> bool {
        false
    }

    async fn prepare(&self, arguments: &Value, context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        let arguments: Arguments = parse(arguments)?;
        let path = locate(context, &arguments.path)?;
        let extension = extension(path.absolute());
        let mime_type = match arguments.mime_type {
            Some(given) if is_mime(&given) => given.to_ascii_lowercase(),
            Some(given) => {
                return Err(ToolFailure::Arguments(format!("`{}` is not a media type", show::title(&given))));
            }
            None => guess(extension.as_deref().unwrap_or_default()).to_owned(),
        };
        let name = path.absolute().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let title = arguments.title.filter(|title| !title.trim().is_empty()).unwrap_or(name);
        let shown = shown_path(context.jail.roots(), path.absolute());
        let view_title = show::title(&format!("Deliver {shown}"));
        Ok(Box::new(Call { path, extension, mime_type, title: show::title(&title), view_title }))
    }
}

struct Call {
    path: RootedPath,
    extension: Option<String>,
    mime_type: String,
    title: String,
    view_title: String,
}

#[async_trait]
impl PreparedCall for Call {
    fn action(&self) -> Action {
        Action::Read { path: self.path.clone() }
    }

    fn view(&self) -> CallView {
        let location = Location { path: self.path.absolute().to_owned(), line: None };
        CallView { title: self.view_title.clone(), locations: vec![location], content: Vec::new() }
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
        let (jail, extension) = (context.jail.clone(), self.extension);
        let original = Location { path: path.absolute().to_owned(), line: None };
        let keeps = context.rules.level != Level::Readonly;
        let delivered =
            writing(context, move |files| deliver(files, jail.roots(), &path, extension.as_deref(), keeps)).await?;
        let Delivered { file, bytes } = delivered;
        let (text, attachment) = match bytes {
            Some(bytes) => {
                let text = format!("Delivered `{}` ({} bytes, {}).", self.title, bytes.len(), self.mime_type);
                let uri = format!("attachment://deliver/{file}");
                (text, Some(ToolContent::Attachment { uri, mime_type: self.mime_type, bytes }))
            }
            None => (format!("`{}` changed while it was delivered; nothing was handed over.", self.title), None),
        };
        // A client that cannot be sent the bytes is led to the copy, and without one to the file itself.
        let locations = if keeps { Vec::new() } else { vec![original] };
        let failed = attachment.is_none();
        let mut content = vec![ToolContent::Text(text.clone())];
        content.extend(attachment);
        Ok(ToolOutcome { model_text: text, content, locations, title: Some(self.title), failed })
    }
}

struct Delivered {
    /// The digest with the extension.
    file: String,
    /// The bytes, when the copy is what its name says.
    bytes: Option<Bytes>,
}

fn deliver(
    files: &Files<'_>,
    roots: &Roots,
    path: &RootedPath,
    extension: Option<&str>,
    keeps: bool,
) -> Result<Delivered, ToolFailure> {
    let bytes = files.read_bounded(path, MAX_FILE)?;
    let wanted = digest(&bytes);
    let mut file: String = wanted.iter().map(|byte| format!("{byte:02x}")).collect();
    if let Some(extension) = extension {
        file.push('.');
        file.push_str(extension);
    }
    if !keeps {
        // At a level that changes nothing there is no copy; the bytes are those that the digest names.
        return Ok(Delivered { file, bytes: Some(Bytes::from(bytes)) });
    }
    let base = roots.iter().next().map(|root| root.path().join(UPLOADS).join(&file));
    let copy = base
        .as_deref()
        .and_then(Path::to_str)
        .and_then(|text| roots.locate(text).ok())
        .ok_or_else(|| ToolFailure::Failed("the session has no working directory".to_owned()))?;
    match files.write_atomic(&copy, &bytes, Replaces::Nothing, Links::Refuse) {
        // A copy with this name is there from an earlier delivery; the check below says whether it is the same.
        Ok(()) | Err(JailError::Changed { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let stored = files.read_bounded(&copy, MAX_FILE)?;
    let bytes = (digest(&stored) == wanted).then(|| Bytes::from(stored));
    Ok(Delivered { file, bytes })
}

fn extension(path: &Path) -> Option<String> {
    let text = path.extension()?.to_str()?;
    let fits = (1..=MAX_EXTENSION).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    fits.then(|| text.to_ascii_lowercase())
}

fn is_mime(text: &str) -> bool {
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    text.len() <= MAX_MIME && text.split_once('/').is_some_and(|(kind, subtype)| token(kind) && token(subtype))
}

fn guess(extension: &str) -> &'static str {
    match extension {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "xml" => "application/xml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => "application/octet-stream",
    }
}
