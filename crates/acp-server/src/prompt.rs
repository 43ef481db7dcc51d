//! Takes a prompt in: checks all of it before anything is written, stores attachments, and says in text what the model gets
//! and in blocks what a replay shows.

use std::{borrow::Cow, path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use zeroclaw_acp_protocol::{ContentBlock, EmbeddedResource, PromptPart, ResourceBody, parse_prompt};
use zeroclaw_policy::{Replaces, RootedPath, Ruleset};
use zeroclaw_runtime::jail::{Jail, JailError, Links};

use crate::error::CallError;

/// Parts of one prompt, at most: far more than an editor's mentions, far less than what fills the log with blocks.
const MAX_PARTS: usize = 256;

/// Bytes of text of one prompt, at most: more does not fit any model's window.
const MAX_TEXT: usize = 16 * 1024 * 1024;

/// Bytes of the same text as JSON, at most: an event of the log is written in one piece.
const MAX_ENCODED: usize = 40 * 1024 * 1024;

/// Decoded bytes of one attachment, at most (ZeroClaw dialect, `session/prompt`).
const MAX_BLOB: usize = 10 * 1024 * 1024;

/// Decoded bytes of all attachments of one prompt, at most.
const MAX_BLOBS: usize = 20 * 1024 * 1024;

/// A prompt that was taken in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TakenPrompt {
    /// What the model gets.
    pub(crate) text: String,
    /// What a replay shows, in order. Attachments are links to their stored copies.
    pub(crate) blocks: Vec<ContentBlock<'static>>,
}

/// A prompt that was checked and not stored yet.
#[derive(Debug)]
pub(crate) struct CheckedPrompt {
    parts: Vec<Checked>,
}

#[derive(Debug)]
enum Checked {
    Text(String),
    Link { uri: String, name: String, mime_type: Option<String> },
    Embedded { uri: String, mime_type: Option<String>, text: String },
    Blob { uri: String, mime_type: Option<String>, bytes: Vec<u8> },
}

/// Checks a prompt. Nothing is written.
pub(crate) fn check(raw: &RawValue) -> Result<CheckedPrompt, CallError> {
    let parts = parse_prompt(raw).map_err(CallError::params)?;
    if parts.is_empty() {
        return Err(CallError::params("the prompt is empty"));
    }
    if parts.len() > MAX_PARTS {
        return Err(CallError::params(format!("the prompt has more than {MAX_PARTS} parts")));
    }
    let mut checked = Vec::with_capacity(parts.len());
    let (mut text_bytes, mut encoded_bytes, mut blob_bytes) = (0, 0, 0);
    for (index, part) in parts.into_iter().enumerate() {
        let part = check_part(part).map_err(|what| CallError::params(format!("prompt part {index}: {what}")))?;
        match &part {
            Checked::Text(text) | Checked::Embedded { text, .. } => {
                text_bytes += text.len();
                encoded_bytes += encoded_len(text);
            }
            Checked::Blob { bytes, .. } => blob_bytes += bytes.len(),
            Checked::Link { .. } => {}
        }
        checked.push(part);
    }
    if text_bytes > MAX_TEXT || encoded_bytes > MAX_ENCODED {
        return Err(CallError::params(format!("the prompt has more than {MAX_TEXT} bytes of text")));
    }
    if blob_bytes > MAX_BLOBS {
        return Err(CallError::params(format!("the prompt has more than {MAX_BLOBS} bytes of attachments")));
    }
    if checked.iter().all(|part| matches!(part, Checked::Text(text) if text.trim().is_empty())) {
        return Err(CallError::params("the prompt is empty"));
    }
    Ok(CheckedPrompt { parts: checked })
}

/// Whether a text of the server's own making is no more than a client may send.
pub(crate) fn fits(text: &str) -> bool {
    text.len() <= MAX_TEXT && encoded_len(text) <= MAX_ENCODED
}

/// Bytes of a text inside of a JSON string.
pub(crate) fn encoded_len(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
            0..=31 => 6,
            _ => 1,
        })
        .sum()
}

fn check_part(part: PromptPart) -> Result<Checked, String> {
    match part {
        PromptPart::Text(text) => Ok(Checked::Text(text)),
        PromptPart::ResourceLink { uri, name, mime_type } => Ok(Checked::Link { uri, name, mime_type }),
        PromptPart::Resource { uri, mime_type, body: ResourceBody::Text(text) } => {
            Ok(Checked::Embedded { uri, mime_type, text })
        }
        PromptPart::Resource { uri, mime_type, body: ResourceBody::Blob(blob) } => {
            // Four base64 characters are three bytes, so the length is known before anything is decoded.
            if blob.len() / 4 > MAX_BLOB / 3 + 1 {
                return Err(format!("the blob is larger than {MAX_BLOB} bytes"));
            }
            let bytes = STANDARD.decode(blob.as_bytes()).map_err(|_| "the blob is not standard base64".to_owned())?;
            if bytes.len() > MAX_BLOB {
                return Err(format!("the blob is larger than {MAX_BLOB} bytes"));
            }
            Ok(Checked::Blob { uri, mime_type, bytes })
        }
        PromptPart::Image { .. } => Err("`image` is not supported by this agent".to_owned()),
        PromptPart::Audio => Err("`audio` is not supported by this agent".to_owned()),
        PromptPart::Unknown(kind) => Err(format!("`{}` is not a content type", kind.escape_debug())),
    }
}

/// Stores the attachments of a checked prompt and writes it down. Blocking.
pub(crate) fn take(checked: CheckedPrompt, jail: &Arc<Jail>, rules: &Ruleset) -> Result<TakenPrompt, CallError> {
    let mut texts = Vec::with_capacity(checked.parts.len());
    let mut blocks = Vec::with_capacity(checked.parts.len());
    for part in checked.parts {
        match part {
            Checked::Text(text) => {
                texts.push(text.clone());
                blocks.push(ContentBlock::Text { text: Cow::Owned(text) });
            }
            Checked::Link { uri, name, mime_type } => {
                texts.push(format!("[Resource: {}] {}", one_line(&name), one_line(&uri)));
                blocks.push(ContentBlock::ResourceLink {
                    uri: Cow::Owned(uri),
                    name: Cow::Owned(name),
                    mime_type: mime_type.map(Cow::Owned),
                });
            }
            Checked::Embedded { uri, mime_type, text } => {
                let fence = fence(&text);
                texts.push(format!("[Resource: {}]\n{fence}\n{text}\n{fence}", one_line(&uri)));
                blocks.push(ContentBlock::Resource {
                    resource: EmbeddedResource {
                        uri: Cow::Owned(uri),
                        mime_type: mime_type.map(Cow::Owned),
                        text: Some(Cow::Owned(text)),
                        blob: None,
                    },
                });
            }
            Checked::Blob { uri, mime_type, bytes } => {
                let name = uri.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("attachment").to_owned();
                let stored = store_blob(jail, rules, &bytes, &uri)?;
                let path = stored.absolute().display();
                let is_image = mime_type.as_deref().is_some_and(|mime| mime.to_ascii_lowercase().starts_with("image/"));
                texts.push(if is_image {
                    format!("[IMAGE:{path}]")
                } else {
                    format!("[Document: {}] {path}", one_line(&name))
                });
                blocks.push(ContentBlock::ResourceLink {
                    uri: Cow::Owned(file_uri(stored.absolute())),
                    name: Cow::Owned(name),
                    mime_type: mime_type.map(Cow::Owned),
                });
            }
        }
    }
    Ok(TakenPrompt { text: texts.join("\n\n"), blocks })
}

/// Writes `uploads/<sha256>[.<ext>]` below the session's directory. The name comes from the bytes, so writing it twice is harmless.
fn store_blob(jail: &Arc<Jail>, rules: &Ruleset, bytes: &[u8], uri: &str) -> Result<RootedPath, CallError> {
    let mut name = String::from("uploads/");
    for byte in Sha256::digest(bytes) {
        name.push_str(&format!("{byte:02x}"));
    }
    if let Some(extension) = extension(uri) {
        name.push('.');
        name.push_str(&extension);
    }
    let located = jail.roots().locate(&name);
    let path = located.map_err(|error| CallError::params(format!("the attachment cannot be stored: {error}")))?;
    let files = jail.files(rules);
    match files.write_atomic(&path, bytes, Replaces::Nothing, Links::Refuse) {
        Ok(()) => Ok(path),
        // Something has the name already. It is the same attachment when it has the same bytes.
        Err(JailError::Changed { .. }) if files.read_bounded(&path, MAX_BLOB as u64).is_ok_and(|old| old == bytes) => {
            Ok(path)
        }
        Err(error) => Err(CallError::params(format!("the attachment cannot be stored: {error}"))),
    }
}

/// The uri of an absolute path, with everything escaped that is not plain in a uri's path.
pub(crate) fn file_uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(*byte)),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

/// The uri's extension, when it is one that a file name may carry.
fn extension(uri: &str) -> Option<String> {
    let path = uri.split(['?', '#']).next().unwrap_or(uri);
    let extension = Path::new(path).extension()?.to_str()?;
    let fits = (1..=16).contains(&extension.len()) && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
    fits.then(|| extension.to_ascii_lowercase())
}

/// A fence that the text cannot close.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat((longest + 1).max(3))
}

/// A peer's name or uri on one line, so that it cannot pretend to be more of the prompt.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::to_raw_value};

    use super::{check, extension, fence};

    #[test]
    fn bad_prompts_are_refused_before_anything_is_stored() {
        let blob = |blob: &str| json!([{"type": "resource", "resource": {"uri": "file:///x", "blob": blob}}]);
        let cases = [
            (json!(""), "empty"),
            (json!("  \n"), "empty"),
            (json!([]), "empty"),
            (json!([{"text": " "}, {"text": ""}]), "empty"),
            (json!([{"type": "image", "data": "", "mimeType": "image/png"}]), "image"),
            (json!([{"type": "audio"}]), "audio"),
            (json!([{"type": "hologram"}]), "hologram"),
            (blob("%%%"), "base64"),
            (blob("AAA"), "base64"),
            (blob("AA\nAA"), "base64"),
            (blob("data:text/plain;base64,AAAA"), "base64"),
            (blob(&"A".repeat(14 * 1024 * 1024)), "larger"),
            (json!(vec![json!({"text": "x"}); 257]), "parts"),
        ];
        for (prompt, expected) in cases {
            let error = check(&to_raw_value(&prompt).expect("JSON")).expect_err(expected);
            assert!(error.message.contains(expected), "{} does not say {expected}", error.message);
        }
        assert!(check(&to_raw_value(&blob("AAAA")).expect("JSON")).is_ok());
    }

    #[test]
    fn extensions_are_short_and_plain() {
        let cases = [
            ("file:///a/b.PDF", Some("pdf")),
            ("https://x/y.tar.gz?q=.exe", Some("gz")),
            ("x", None),
            ("x.", None),
            ("x.a-b", None),
            ("x.aaaaaaaaaaaaaaaaa", None),
        ];
        for (uri, expected) in cases {
            assert_eq!(extension(uri).as_deref(), expected, "{uri}");
        }
    }

    #[test]
    fn a_fence_is_longer_than_what_it_holds() {
        assert_eq!(fence("plain"), "```");
        assert_eq!(fence("a ```` b"), "`````");
    }
}
