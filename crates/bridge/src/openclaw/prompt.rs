//! A prompt of a client as one message for the gateway: text, pictures, and where the client works.
//! It refuses what the gateway cannot take, and says which part it is; nothing is left out silently.

use std::{borrow::Cow, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{ContentBlock, EmbeddedResource, PromptPart, ResourceBody};

use super::{run::bounded, wire::Attachment};

/// Bytes of text in one message. The gateway's frame limit is larger, but a model's window is not.
pub(super) const MAX_PROMPT: usize = 2 * 1024 * 1024;

/// Bytes of pictures in base64, at most: the gateway takes frames of 25 MiB.
const MAX_PICTURES: usize = 20 * 1024 * 1024;

/// What the prefix begins with.
const PREFIX: &str = "[Working directory: ";

/// What goes to the gateway.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    pub(super) text: String,
    pub(super) pictures: Vec<(String, String)>,
}

impl Outgoing {
    pub(super) fn attachments(&self) -> Vec<Attachment> {
        self.pictures
            .iter()
            .map(|(mime_type, content)| Attachment {
                r#type: "image",
                mime_type: mime_type.clone(),
                content: content.clone(),
            })
            .collect()
    }
}

/// `_meta` of a prompt, as far as it is used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PromptMeta {
    pub(super) thinking: Option<String>,
    thinking_level: Option<String>,
    pub(super) deliver: Option<bool>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) prefix_cwd: Option<bool>,
}

/// The `_meta` of parameters, read as what is wanted of it. What cannot be read is not there.
pub(super) fn meta_of<T: Default + DeserializeOwned>(params: Option<&RawValue>) -> T {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Params<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    let params: Params<'_> = params.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    params.meta.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

impl PromptMeta {
    /// Reads the `_meta` of parameters. What cannot be read is not there.
    pub(super) fn of(params: Option<&RawValue>) -> Self {
        let mut meta: Self = meta_of(params);
        meta.thinking = meta.thinking.or(meta.thinking_level.take());
        meta
    }
}

/// Puts the parts together.
///
/// # Errors
/// A sentence that names the part and what is wrong with it.
pub(super) fn assemble(parts: Vec<PromptPart>, place: Option<&str>) -> Result<Outgoing, String> {
    let mut texts: Vec<String> = Vec::with_capacity(parts.len());
    let mut pictures = Vec::new();
    let (mut length, mut weight) = (0, 0);
    for (index, part) in parts.into_iter().enumerate() {
        let text = match part {
            PromptPart::Text(text) => text,
            PromptPart::ResourceLink { uri, name, .. } => link(&uri, &name),
            PromptPart::Resource { uri, mime_type, body } => match body {
                ResourceBody::Text(text) => resource(&uri, &text),
                ResourceBody::Blob(blob) if mime_type.as_deref().is_some_and(|kind| kind.starts_with("image/")) => {
                    weight += blob.len();
                    pictures.push((mime_type.unwrap_or_default(), blob));
                    link(&uri, "")
                }
                ResourceBody::Blob(blob) => {
                    let bytes = STANDARD.decode(blob).map_err(|_| format!("part {index}: the blob is not base64"))?;
                    let text = String::from_utf8(bytes).map_err(|_| {
                        format!("part {index}: `{uri}` is no text, and OpenClaw takes text and pictures only")
                    })?;
                    resource(&uri, &text)
                }
            },
            PromptPart::Image { data, mime_type } => {
                if !is_base64(&data) {
                    return Err(format!("part {index}: the picture is not base64"));
                }
                weight += data.len();
                pictures.push((mime_type, data));
                if weight > MAX_PICTURES {
                    return Err(format!("the pictures are longer than {MAX_PICTURES} bytes together"));
                }
                continue;
            }
            PromptPart::Audio => return Err(format!("part {index}: OpenClaw takes no sound")),
            PromptPart::Unknown(kind) => {
                return Err(format!("part {index}: `{}` is not supported", kind.escape_debug()));
            }
        };
        length += text.len();
        if length > MAX_PROMPT {
            return Err(too_long());
        }
        texts.push(text);
    }
    if weight > MAX_PICTURES {
        return Err(format!("the pictures are longer than {MAX_PICTURES} bytes together"));
    }
    let mut text = texts.join("\n");
    if text.contains('\0') {
        return Err("the prompt holds a null character".to_owned());
    }
    if text.trim().is_empty() && pictures.is_empty() {
        return Err("the prompt is empty".to_owned());
    }
    if let Some(place) = place
        && !is_command(&text)
    {
        text = format!("{PREFIX}{place}]\n\n{text}");
    }
    if text.len() > MAX_PROMPT {
        return Err(too_long());
    }
    Ok(Outgoing { text, pictures })
}

/// The part as the ledger keeps it. Pictures are too large for a ledger; that there was one is kept.
pub(super) fn told(part: &PromptPart) -> Option<ContentBlock<'static>> {
    let owned = |text: &str| Cow::Owned(bounded(text).into_owned());
    Some(match part {
        PromptPart::Text(text) => ContentBlock::Text { text: owned(text) },
        PromptPart::ResourceLink { uri, name, mime_type } => ContentBlock::ResourceLink {
            uri: owned(uri),
            name: owned(name),
            mime_type: mime_type.as_deref().map(owned),
        },
        PromptPart::Resource { uri, mime_type, body: ResourceBody::Text(text) } => ContentBlock::Resource {
            resource: EmbeddedResource {
                uri: owned(uri),
                mime_type: mime_type.as_deref().map(owned),
                text: Some(owned(text)),
                blob: None,
            },
        },
        PromptPart::Resource { uri, mime_type, body: ResourceBody::Blob(_) } => {
            ContentBlock::ResourceLink { uri: owned(uri), name: owned(uri), mime_type: mime_type.as_deref().map(owned) }
        }
        PromptPart::Image { .. } => ContentBlock::text("[image]"),
        PromptPart::Audio | PromptPart::Unknown(_) => return None,
    })
}

fn too_long() -> String {
    format!("the prompt exceeds the maximum allowed size of {MAX_PROMPT} bytes")
}

fn link(uri: &str, name: &str) -> String {
    let name = name.replace(['\n', '\r'], " ");
    let name = name.trim();
    if name.is_empty() { format!("[Resource link] {uri}") } else { format!("[Resource link ({name})] {uri}") }
}

fn resource(uri: &str, text: &str) -> String {
    format!("[Resource] {uri}\n{text}")
}

fn is_base64(data: &str) -> bool {
    !data.is_empty() && STANDARD.decode(data).is_ok()
}

/// The directory as the model is told it.
pub(super) fn shown_place(cwd: &str, home: Option<&Path>) -> String {
    let place = match home.and_then(|home| Path::new(cwd).strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => cwd.to_owned(),
    };
    // A directory's name must not end the line that it stands in.
    place.chars().map(|letter| if letter.is_control() || letter == ']' { '_' } else { letter }).collect()
}

/// What was said, without the line about the directory.
pub(super) fn without_prefix(text: &str) -> &str {
    let Some(rest) = text.strip_prefix(PREFIX) else { return text };
    match rest.split_once("]\n\n") {
        Some((place, said)) if !place.contains('\n') => said,
        Some(_) | None => text,
    }
}

/// The title of a session as the gateway derives it from the first message, without the directory.
pub(super) fn clean_title(title: &str) -> Option<String> {
    let rest = match title.strip_prefix(PREFIX) {
        Some(rest) => rest.split_once(']').map_or("", |(_, rest)| rest),
        None => title,
    };
    let rest = rest.trim().trim_matches('…').trim();
    if rest.is_empty() { None } else { Some(rest.to_owned()) }
}

/// A title made of what is said first.
pub(super) fn title_of(said: &str) -> Option<String> {
    const LETTERS: usize = 60;
    let line = said.lines().map(str::trim).find(|line| !line.is_empty())?;
    let mut title: String = line.chars().take(LETTERS).filter(|letter| !letter.is_control()).collect();
    if line.chars().nth(LETTERS).is_some() {
        title.push('…');
    }
    Some(title)
}

/// Whether the gateway itself answers: slash commands and words that stop the agent mean something only when they stand alone.
fn is_command(text: &str) -> bool {
    text.trim_start().starts_with('/') || is_stop_word(text)
}

/// Whether the gateway takes the text for a wish to stop.
pub(super) fn is_stop_word(text: &str) -> bool {
    const END: &[char] = &[
        '.', '!', '?', '！', '？', '…', ',', '，', '。', ';', '；', ':', '：', '\'', '"', '’', '”', ')', ']', '}', ' ',
    ];
    if text.len() > 64 {
        return false;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let said = words.join(" ").to_lowercase().replace(['’', '`'], "'");
    STOP_WORDS.contains(&said.trim_end_matches(END))
}

/// As the gateway of 2026.6.11 knows them. One that is missing here costs a line about the directory, no more.
const STOP_WORDS: &[&str] = &[
    "/stop",
    "abort",
    "anhalten",
    "arrete",
    "arrête",
    "aufhören",
    "deten",
    "detente",
    "detén",
    "do not do that",
    "esc",
    "exit",
    "halt",
    "hoer auf",
    "interrupt",
    "openclaw stop",
    "pare",
    "please stop",
    "stop",
    "stop action",
    "stop agent",
    "stop current action",
    "stop current run",
    "stop do not do anything",
    "stop doing anything",
    "stop don't do anything",
    "stop dont do anything",
    "stop openclaw",
    "stop please",
    "stop run",
    "stop the agent",
    "stopp",
    "wait",
    "останови",
    "остановись",
    "остановить",
    "прекрати",
    "стоп",
    "توقف",
    "रुको",
    "やめて",
    "停下来",
    "停止",
    "暂停",
    "止めて",
];

#[cfg(test)]
mod tests;
