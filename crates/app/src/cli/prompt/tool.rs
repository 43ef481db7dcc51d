//! What is known about one tool call: its announcement and the updates over it, read leniently from JSON.

use serde_json::Value;

/// How far a tool call is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Status {
    /// Announced, perhaps waiting for permission.
    #[default]
    Pending,
    /// Running.
    InProgress,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
}

impl Status {
    fn from_wire(name: &str) -> Option<Self> {
        match name {
            "pending" => Some(Self::Pending),
            "in_progress" => Some(Self::InProgress),
            "completed" => Some(Self::Completed),
            "failed" => Some(Self::Failed),
            _ => None,
        }
    }

    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// One piece of what a tool call produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// The change of a file.
    Diff {
        /// The file.
        path: &'a str,
        /// What it held; absent for a new file.
        old: Option<&'a str>,
        /// What it holds now.
        new: &'a str,
    },
    /// Text.
    Text(&'a str),
    /// Anything that a terminal cannot show: what it is and its name.
    Other(&'a str, &'a str),
}

/// One tool call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tool {
    pub(crate) title: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) content: Vec<Value>,
    pub(crate) raw_input: Option<Value>,
    pub(crate) raw_output: Option<Value>,
}

impl Tool {
    /// Lays an update over what is known; absent and null members leave it as it is.
    pub(crate) fn merge(&mut self, update: &Value) {
        if let Some(title) = update["title"].as_str() {
            title.clone_into(&mut self.title);
        }
        if let Some(kind) = update["kind"].as_str() {
            kind.clone_into(&mut self.kind);
        }
        if let Some(name) = update["name"].as_str() {
            name.clone_into(&mut self.name);
        }
        if let Some(status) = update["status"].as_str().and_then(Status::from_wire) {
            self.status = status;
        }
        if let Some(content) = update["content"].as_array() {
            self.content.clone_from(content);
        }
        if !update["rawInput"].is_null() {
            self.raw_input = Some(update["rawInput"].clone());
        }
        if !update["rawOutput"].is_null() {
            self.raw_output = Some(update["rawOutput"].clone());
        }
    }

    /// Goes through what the tool call produced.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.content.iter().filter_map(part)
    }

    /// All text it produced, one block after the other.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for part in self.parts() {
            if let Part::Text(block) = part {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(unfenced(block));
            }
        }
        text
    }
}

/// Takes a text out of the Markdown fence that is around the whole of it: fences are for clients that render Markdown.
pub(crate) fn unfenced(text: &str) -> &str {
    let body = text.trim_end();
    let ticks = body.len() - body.trim_start_matches('`').len();
    let unwrapped = (ticks >= 3)
        .then(|| body.split_once('\n'))
        .flatten()
        .filter(|(opening, _)| !opening[ticks..].contains('`'))
        .and_then(|(_, rest)| rest.strip_suffix(&body[..ticks]))
        // The closing fence stands on a line of its own; an empty block has nothing before it.
        .filter(|inside| inside.is_empty() || inside.ends_with('\n'))
        // A fence of the same length inside would make it two blocks.
        .filter(|inside| !inside.lines().any(|line| line.trim_end() == &body[..ticks]));
    unwrapped.unwrap_or(text)
}

fn part(entry: &Value) -> Option<Part<'_>> {
    match entry["type"].as_str()? {
        "diff" => Some(Part::Diff {
            path: entry["path"].as_str().unwrap_or("?"),
            old: entry["oldText"].as_str(),
            new: entry["newText"].as_str().unwrap_or_default(),
        }),
        "content" => block(&entry["content"]),
        "terminal" => Some(Part::Other("terminal", entry["terminalId"].as_str().unwrap_or("?"))),
        kind => Some(Part::Other(kind, "")),
    }
}

/// Reads one content block.
pub(crate) fn block(block: &Value) -> Option<Part<'_>> {
    match block["type"].as_str()? {
        "text" => Some(Part::Text(block["text"].as_str()?)),
        "resource_link" => Some(Part::Other("link", block["uri"].as_str().unwrap_or("?"))),
        "resource" => {
            let resource = &block["resource"];
            match resource["text"].as_str() {
                Some(text) => Some(Part::Text(text)),
                None => Some(Part::Other("file", resource["uri"].as_str().unwrap_or("?"))),
            }
        }
        kind @ ("image" | "audio") => Some(Part::Other(kind, block["mimeType"].as_str().unwrap_or("?"))),
        kind => Some(Part::Other(kind, "")),
    }
}
