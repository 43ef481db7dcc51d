//! The system prompt: who the agent is, where it works and what it may do.
//! It refuses to read anything itself; files come in as text.

use std::{fmt::Write as _, path::Path};

use zeroclaw_policy::{Level, RootKind, Roots, Ruleset};

use crate::model::ToolSpec;

/// Bytes one file of the agent or of the project may add to the system prompt. The rest is cut and the cut is marked;
/// whoever writes longer instructions is better served by a file that the agent reads when it needs it.
pub const MAX_PART: usize = 64 * 1024;

/// What the system prompt is made of.
#[derive(Clone, Debug)]
pub struct SystemParts<'a> {
    /// The agent's own files (`IDENTITY.md`, `SOUL.md`, …), name and text, in order.
    pub agent_files: Vec<(String, String)>,
    /// The project's `AGENTS.md`.
    pub project_instructions: Option<String>,
    /// The session's working directory.
    pub workspace: &'a Path,
    /// Every directory of the session.
    pub roots: &'a Roots,
    /// The rules.
    pub rules: &'a Ruleset,
    /// The tools on offer.
    pub tools: &'a [ToolSpec],
    /// Stands in place of the built-in instructions and the agent's own files; what the environment says stays.
    pub replacement: Option<&'a str>,
    /// A further text for this session.
    pub extra: Option<&'a str>,
}

/// Writes the system prompt. The same parts give the same text, so that vendors can cache it.
#[must_use]
pub fn system_prompt(parts: SystemParts<'_>) -> String {
    let mut out = String::new();
    if let Some(text) = parts.replacement {
        out.push_str(text.get(..text.floor_char_boundary(MAX_PART)).unwrap_or(text).trim());
        out.push('\n');
    } else {
        out.push_str(
            "You are a coding agent. You work in the user's project through your tools and answer in the user's language.\n",
        );
        for (name, text) in &parts.agent_files {
            section(&mut out, name, text);
        }
    }
    environment(&mut out, &parts);
    permissions(&mut out, parts.rules);
    tools(&mut out, parts.tools);
    if let Some(text) = &parts.project_instructions {
        section(&mut out, "Project instructions (AGENTS.md)", text);
    }
    if let Some(text) = parts.extra {
        section(&mut out, "Further instructions", text);
    }
    out
}

fn environment(out: &mut String, parts: &SystemParts<'_>) {
    // Writing to a string cannot fail; the results carry nothing.
    let _ = write!(out, "\n# Environment\n\nWorking directory: {}\n", line(&parts.workspace.display().to_string()));
    let others: Vec<String> = parts
        .roots
        .iter()
        .filter(|root| root.path() != parts.workspace)
        .map(|root| {
            let note = match root.kind() {
                RootKind::Session | RootKind::Additional => "",
                RootKind::Agent => " (your own workspace)",
                RootKind::ReadOnly => " (read only)",
            };
            format!("- {}{note}\n", line(&root.path().display().to_string()))
        })
        .collect();
    if !others.is_empty() {
        out.push_str("Further directories you can reach:\n");
        for other in others {
            out.push_str(&other);
        }
    }
    out.push_str("Paths outside of these directories are refused. Relative paths start at the working directory.\n");
}

fn permissions(out: &mut String, rules: &Ruleset) {
    let text = match rules.level {
        Level::Readonly => "You can read and search, but change nothing and run nothing: such calls are refused.",
        Level::Supervised => {
            "Changing files and running commands may need the user's approval. \
             When a call is rejected, do not repeat it; find another way or ask what the user wants."
        }
        Level::Full => "Your calls run without being asked about. Be careful with what cannot be undone.",
    };
    let _ = write!(out, "\n# Permissions\n\n{text}\n");
}

fn tools(out: &mut String, tools: &[ToolSpec]) {
    if tools.is_empty() {
        out.push_str("\n# Tools\n\nYou have no tools in this session.\n");
        return;
    }
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let _ = write!(
        out,
        "\n# Tools\n\nYour tools: {}. A failed call says why; read it before you try again.\n",
        names.join(", ")
    );
}

fn section(out: &mut String, title: &str, text: &str) {
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    let end = text.floor_char_boundary(MAX_PART);
    let kept = text.get(..end).unwrap_or(text);
    let _ = write!(out, "\n# {}\n\n{kept}\n", line(title));
    if end < text.len() {
        let _ = writeln!(out, "[cut: {} of {} bytes shown]", end, text.len());
    }
}

/// A name on one line: a directory called `x\n# Permissions` must not write a section of its own.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
