//! The method table: every name an agent serves, with what its calls may overtake.

/// A method or notification that a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodKind {
    /// `initialize`
    Initialize,
    /// `session/new`
    SessionNew,
    /// `session/load`
    SessionLoad,
    /// `session/resume`
    SessionResume,
    /// `session/prompt`
    SessionPrompt,
    /// `session/cancel`: a notification; with an id, a request.
    SessionCancel,
    /// `session/close`
    SessionClose,
    /// `session/stop`, also `_zeroclaw/session/stop`
    SessionStop,
    /// `session/list`
    SessionList,
    /// `session/delete`
    SessionDelete,
    /// `session/fork`, unstable in ACP v1
    SessionFork,
    /// `session/set_mode`
    SetMode,
    /// `session/set_config_option`
    SetConfigOption,
    /// `session/update` towards the agent, also its older name `session/event`: custom event injection.
    SessionEvent,
    /// `authenticate`
    Authenticate,
    /// `logout`
    Logout,
    /// `$/cancel_request`
    CancelRequest,
    /// `_zeroclaw/session/attach`: joins a session, from a number in its log on.
    SessionAttach,
    /// `_zeroclaw/status`
    Status,
}

/// ZeroClaw's own requests, as they are advertised.
pub const EXTENSION_REQUESTS: &[&str] = &["_zeroclaw/session/attach", "_zeroclaw/session/stop", "_zeroclaw/status"];

impl MethodKind {
    /// Finds the method by its wire name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "initialize" => Self::Initialize,
            "session/new" => Self::SessionNew,
            "session/load" => Self::SessionLoad,
            "session/resume" => Self::SessionResume,
            "session/prompt" => Self::SessionPrompt,
            "session/cancel" => Self::SessionCancel,
            "session/close" => Self::SessionClose,
            "session/stop" | "_zeroclaw/session/stop" => Self::SessionStop,
            "session/list" => Self::SessionList,
            "session/delete" => Self::SessionDelete,
            "session/fork" => Self::SessionFork,
            "session/set_mode" => Self::SetMode,
            "session/set_config_option" => Self::SetConfigOption,
            "session/update" | "session/event" => Self::SessionEvent,
            "authenticate" => Self::Authenticate,
            "logout" => Self::Logout,
            "$/cancel_request" => Self::CancelRequest,
            "_zeroclaw/session/attach" => Self::SessionAttach,
            "_zeroclaw/status" => Self::Status,
            _ => return None,
        })
    }

    /// The name a client calls it by.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::SessionNew => "session/new",
            Self::SessionLoad => "session/load",
            Self::SessionResume => "session/resume",
            Self::SessionPrompt => "session/prompt",
            Self::SessionCancel => "session/cancel",
            Self::SessionClose => "session/close",
            Self::SessionStop => "session/stop",
            Self::SessionList => "session/list",
            Self::SessionDelete => "session/delete",
            Self::SessionFork => "session/fork",
            Self::SetMode => "session/set_mode",
            Self::SetConfigOption => "session/set_config_option",
            Self::SessionEvent => "session/update",
            Self::Authenticate => "authenticate",
            Self::Logout => "logout",
            Self::CancelRequest => "$/cancel_request",
            Self::SessionAttach => "_zeroclaw/session/attach",
            Self::Status => "_zeroclaw/status",
        }
    }
}

/// Names of what an agent sends.
pub mod client {
    /// Notification: progress of a session.
    pub const SESSION_UPDATE: &str = "session/update";
    /// Request: may this tool call run?
    pub const REQUEST_PERMISSION: &str = "session/request_permission";
    /// Request: a form for the user.
    pub const ELICITATION_CREATE: &str = "elicitation/create";
    /// Request: the text of a file, unsaved changes included.
    pub const READ_TEXT_FILE: &str = "fs/read_text_file";
    /// Request: replaces the text of a file.
    pub const WRITE_TEXT_FILE: &str = "fs/write_text_file";
    /// Request: runs a program in a new terminal.
    pub const TERMINAL_CREATE: &str = "terminal/create";
    /// Request: what a terminal has shown so far.
    pub const TERMINAL_OUTPUT: &str = "terminal/output";
    /// Request: answered when the program has ended.
    pub const TERMINAL_WAIT_FOR_EXIT: &str = "terminal/wait_for_exit";
    /// Request: ends the program; the terminal stays.
    pub const TERMINAL_KILL: &str = "terminal/kill";
    /// Request: gives the terminal up, and ends the program when it still runs.
    pub const TERMINAL_RELEASE: &str = "terminal/release";
    /// Notification: a request of ours is withdrawn.
    pub const CANCEL_REQUEST: &str = "$/cancel_request";
}
