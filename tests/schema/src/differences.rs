//! What the official types may leave out of our messages, as data: where, and why that is right.
//! Nothing may come back with another value, so there is no entry for that. An entry that no message needs fails its test.

/// One member of our messages that does not come back from the official types.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The messages: the method that is answered, the update's kind, or the method of a request of ours.
    pub about: &'static [&'static str],
    /// The place in the line; `*` stands for every element of a list.
    pub path: &'static str,
    /// Why it does not come back.
    pub why: Why,
    /// Only the older types lack it.
    pub only_older: bool,
    /// Why we send it.
    pub reason: &'static str,
}

/// Why a member does not come back.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    /// The official type does not know it, and ignores it as the protocol demands.
    Unknown,
    /// It is the default, and the official type leaves defaults out: this JSON, and nothing else.
    LeftOut(&'static str),
    /// We leave the default out, and the official type writes it: this JSON, and nothing else.
    FilledIn(&'static str),
}

impl Difference {
    /// Whether it concerns the official types that this build has.
    #[must_use]
    pub fn applies(&self) -> bool {
        !(self.only_older && cfg!(feature = "newest"))
    }
}

const fn differs(about: &'static [&'static str], path: &'static str, why: Why, reason: &'static str) -> Difference {
    Difference { about, path, why, only_older: false, reason }
}

const fn older(about: &'static [&'static str], path: &'static str, reason: &'static str) -> Difference {
    Difference { about, path, why: Why::Unknown, only_older: true, reason }
}

/// All allowed differences.
pub const DIFFERENCES: &[Difference] = &[
    differs(
        &["initialize"],
        "/result/agentCapabilities/auth",
        Why::FilledIn("{}"),
        "absent means that nothing about authentication is supported, and so does an empty object",
    ),
    older(
        &["initialize"],
        "/result/agentCapabilities/sessionCapabilities/systemPrompt",
        "stable since 1.20; clients that do not know it send no system prompt",
    ),
    differs(
        &["session/new", "session/fork"],
        "/result/workspaceDir",
        Why::Unknown,
        "documented by ZeroClaw, whose clients read it",
    ),
    differs(&["session/prompt"], "/result/sessionId", Why::Unknown, "documented by ZeroClaw, whose clients read it"),
    differs(&["session/prompt"], "/result/content", Why::Unknown, "documented by ZeroClaw, whose clients read it"),
    differs(
        &["tool_call"],
        "/params/update/status",
        Why::LeftOut("\"pending\""),
        "it is the default; written out because ZeroClaw documents it",
    ),
    differs(
        &["tool_call"],
        "/params/update/kind",
        Why::LeftOut("\"other\""),
        "it is the default; written out so that every client reads a kind",
    ),
    differs(
        &["tool_call"],
        "/params/update/rawInput",
        Why::LeftOut("null"),
        "a call whose arguments are no JSON has none to show",
    ),
    differs(
        &["session/request_permission"],
        "/params/toolCall/rawInput",
        Why::LeftOut("null"),
        "a call whose arguments are no JSON has none to show",
    ),
    differs(
        &["tool_call", "tool_call_update"],
        "/params/update/content/*/oldText",
        Why::LeftOut("null"),
        "null is how the protocol says that the file is new",
    ),
    differs(
        &["session/request_permission"],
        "/params/toolCall/content/*/oldText",
        Why::LeftOut("null"),
        "null is how the protocol says that the file is new",
    ),
    older(
        &["tool_call", "tool_call_update"],
        "/params/update/name",
        "stable since 1.8, and ZeroClaw's own before; clients that do not know it show the title",
    ),
    older(
        &["session/request_permission"],
        "/params/toolCall/name",
        "stable since 1.8, and ZeroClaw's own before; clients that do not know it show the title",
    ),
];
