//! One call: the request, its progress, its end by cancel or silence, and what of the result the model and the client get.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use rmcp::{
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ContentBlock, ResourceContents,
        ServerResult,
    },
    service::{PeerRequestOptions, RequestHandle, RoleClient, ServiceError},
};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until, timeout};
use zeroclaw_policy::Replaces;

use crate::{
    jail::{Files, JailError, Links, digest},
    mcp::server::{Link, Server},
    tool::{Progress, ToolContent, ToolContext, ToolFailure, ToolOutcome, output::bounded, show},
};

/// Bytes of one blob that are kept; the same as of a prompt's.
const MAX_BLOB: usize = 10 * 1024 * 1024;

/// Blobs of one result that are kept.
const MAX_BLOBS: usize = 16;

/// Bytes of one progress message that are shown.
const MAX_PROGRESS: usize = 1024;

/// Time for a server to take in that nobody waits for a call any more; one that does not read is not told.
const WITHDRAWAL: Duration = Duration::from_secs(5);

/// Runs a call to its end.
pub(super) async fn run(
    server: &Server,
    tool: String,
    arguments: &str,
    context: &ToolContext,
    progress: &dyn Progress,
) -> Result<ToolOutcome, ToolFailure> {
    let link = server.link().ok_or_else(|| ToolFailure::Failed(gone(server, None)))?;
    let arguments: Map<String, Value> =
        serde_json::from_str(arguments).map_err(|error| ToolFailure::Arguments(error.to_string()))?;
    let mut params = CallToolRequestParams::new(tool);
    params.arguments = Some(arguments);
    let result = request(server, &link, params, context, progress).await?;
    outcome(result, context).await
}

async fn request(
    server: &Server,
    link: &Link,
    params: CallToolRequestParams,
    context: &ToolContext,
    progress: &dyn Progress,
) -> Result<CallToolResult, ToolFailure> {
    let failed = |error: ServiceError| failure(server, &error);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let sent = link.peer.send_cancellable_request(request, PeerRequestOptions::no_options());
    let mut deadline = Instant::now() + server.call_timeout();
    let mut handle = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Err(ToolFailure::Cancelled),
        sent = sent => sent.map_err(failed)?,
        () = sleep_until(deadline) => return Err(silent(server)),
    };
    let mut reports = link.listener.subscribe(&handle.progress_token);
    let answer = loop {
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => {
                withdraw(handle, "cancelled by the user");
                return Err(ToolFailure::Cancelled);
            }
            answer = &mut handle.rx => break answer,
            Some(report) = reports.receiver.recv() => {
                deadline = Instant::now() + server.call_timeout();
                if let Some(message) = report.message {
                    let shown = show::line(bounded(&message, MAX_PROGRESS).trim());
                    progress.status(&shown);
                }
            }
            () = sleep_until(deadline) => {
                withdraw(handle, "no answer in time");
                return Err(silent(server));
            }
        }
    };
    match answer {
        Ok(Ok(ServerResult::CallToolResult(result))) => Ok(result),
        // Some servers answer with an empty object when there is nothing to say.
        Ok(Ok(ServerResult::EmptyResult(_))) => Ok(CallToolResult::default()),
        Ok(Ok(_)) => {
            Err(ToolFailure::Failed("the MCP server answered with something that is no tool result".to_owned()))
        }
        Ok(Err(ServiceError::TransportClosed)) | Err(_) => {
            link.lost();
            Err(ToolFailure::Failed(gone(server, Some(link))))
        }
        Ok(Err(error)) => Err(failed(error)),
    }
}

/// Tells the server that nobody waits any more. Telling a server that has stopped reading takes for ever, so the turn does
/// not wait for it.
fn withdraw(handle: RequestHandle<RoleClient>, reason: &'static str) {
    tokio::spawn(async move {
        let _ = timeout(WITHDRAWAL, handle.cancel(Some(reason.to_owned()))).await;
    });
}

fn silent(server: &Server) -> ToolFailure {
    let seconds = server.call_timeout().as_secs();
    ToolFailure::Failed(format!("the MCP server gave no sign of life for {seconds} s"))
}

fn failure(server: &Server, error: &ServiceError) -> ToolFailure {
    match error {
        ServiceError::McpError(error) => ToolFailure::Failed(server.redact(&error.message)),
        ServiceError::TransportClosed => ToolFailure::Failed(gone(server, None)),
        error => ToolFailure::Failed(server.redact(&format!("the MCP server could not be asked: {error}"))),
    }
}

fn gone(server: &Server, link: Option<&Link>) -> String {
    let name = show::line(server.name());
    match link.and_then(Link::fault) {
        Some(fault) => format!("the MCP server `{name}` was ended: {fault}"),
        None => format!("the MCP server `{name}` is not running"),
    }
}

/// A blob of a result.
struct Blob {
    mime_type: String,
    bytes: Vec<u8>,
    name: Option<String>,
}

async fn outcome(result: CallToolResult, context: &ToolContext) -> Result<ToolOutcome, ToolFailure> {
    let mut texts: Vec<String> = Vec::new();
    let mut content = Vec::new();
    let mut blobs = Vec::new();
    for block in result.content {
        match block {
            ContentBlock::Text(text) => texts.push(text.text),
            ContentBlock::Image(image) => blobs.push((image.mime_type, image.data, None)),
            ContentBlock::Audio(audio) => blobs.push((audio.mime_type, audio.data, None)),
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => {
                    texts.push(format!("[Resource: {}]\n{text}", show::line(&uri)));
                }
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                    let mime_type = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                    blobs.push((mime_type, blob, Some(uri)));
                }
                _ => texts.push("[a resource of an unknown form was left out]".to_owned()),
            },
            ContentBlock::ResourceLink(link) => {
                texts.push(format!("[Resource link: {} ({})]", show::line(&link.name), show::line(&link.uri)));
            }
            _ => texts.push("[a block of an unknown form was left out]".to_owned()),
        }
    }
    // Structured content repeats the text where there is text (MCP, "Structured Content").
    if texts.is_empty()
        && let Some(structured) = result.structured_content
    {
        texts.push(structured.to_string());
    }
    for (index, (mime_type, data, uri)) in blobs.into_iter().enumerate() {
        if index >= MAX_BLOBS {
            texts.push("[further attachments were left out]".to_owned());
            break;
        }
        match decode(mime_type, &data, uri) {
            Ok(blob) => {
                let (line, attachment) = keep(blob, context).await;
                texts.push(line);
                content.extend(attachment);
            }
            Err(why) => texts.push(why),
        }
    }
    let text = bounded(&texts.join("\n\n"), context.settings.max_output_bytes);
    if !text.is_empty() {
        content.insert(0, ToolContent::Text(show::fenced("", &text)));
    }
    Ok(ToolOutcome {
        model_text: text,
        content,
        locations: Vec::new(),
        title: None,
        failed: result.is_error.unwrap_or_default(),
    })
}

fn decode(mime_type: String, data: &str, uri: Option<String>) -> Result<Blob, String> {
    if data.len() / 4 * 3 > MAX_BLOB + 3 {
        return Err(format!("[an attachment of more than {MAX_BLOB} bytes was left out]"));
    }
    let bytes = STANDARD.decode(data).map_err(|_| "[an attachment that is no base64 was left out]".to_owned())?;
    let name = uri.and_then(|uri| uri.rsplit('/').next().map(str::to_owned)).filter(|name| !name.is_empty());
    Ok(Blob { mime_type: mime_type.to_ascii_lowercase(), bytes, name })
}

/// Stores a blob as a prompt's is stored, and shows it to the client.
async fn keep(blob: Blob, context: &ToolContext) -> (String, Option<ToolContent>) {
    let Blob { mime_type, bytes, name } = blob;
    let bytes = Bytes::from(bytes);
    let mut file: String = digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if let Some(extension) = extension(&mime_type, name.as_deref()) {
        file.push('.');
        file.push_str(&extension);
    }
    let attachment = ToolContent::Attachment {
        uri: format!("attachment://mcp/{file}"),
        mime_type: mime_type.clone(),
        bytes: bytes.clone(),
    };
    let (jail, rules) = (context.jail.clone(), context.rules.clone());
    let stored = tokio::task::spawn_blocking(move || store(&jail.files(&rules), jail.roots(), &file, &bytes)).await;
    let line = match stored {
        Ok(Ok(path)) if mime_type.starts_with("image/") => format!("[IMAGE:{path}]"),
        Ok(Ok(path)) => format!("[Document: {}] {path}", show::line(name.as_deref().unwrap_or(&mime_type))),
        Ok(Err(_)) | Err(_) => format!("[an attachment ({}) could not be stored]", show::line(&mime_type)),
    };
    (line, Some(attachment))
}

fn store(files: &Files<'_>, roots: &zeroclaw_policy::Roots, file: &str, bytes: &[u8]) -> Result<String, JailError> {
    let relative = format!("uploads/{file}");
    let Ok(path) = roots.locate(&relative) else { return Err(JailError::NotFound { path: relative.into() }) };
    match files.write_atomic(&path, bytes, Replaces::Nothing, Links::Refuse) {
        // The name says what is in it, so it is there already.
        Ok(()) | Err(JailError::Changed { .. }) => Ok(path.absolute().display().to_string()),
        Err(error) => Err(error),
    }
}

/// The extension of the file: the one it was given, else what its type is known by.
fn extension(mime_type: &str, name: Option<&str>) -> Option<String> {
    let given = name.and_then(|name| name.rsplit_once('.')).map(|(_, extension)| extension);
    let fits = |text: &&str| (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    given.filter(fits).map(str::to_ascii_lowercase).or_else(|| {
        let known = match mime_type {
            "image/png" => "png",
            "image/jpeg" => "jpg",
            "image/gif" => "gif",
            "image/webp" => "webp",
            "audio/wav" => "wav",
            "audio/mpeg" => "mp3",
            "application/pdf" => "pdf",
            "application/json" => "json",
            "text/plain" => "txt",
            _ => return None,
        };
        Some(known.to_owned())
    })
}
