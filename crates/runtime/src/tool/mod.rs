//! What a tool is: a schema for the model, a call that is resolved to one exact action, and a run that needs that action's permit.

pub(crate) mod args;
mod change;
mod content_search;
mod converse;
mod deliver_file;
mod file_edit;
mod file_read;
mod file_write;
mod glob_search;
mod list_dir;
pub mod output;
mod pattern;
pub(crate) mod shell;
pub mod show;
mod text;
mod theirs;
mod walk;

use std::{fmt::Debug, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use zeroclaw_policy::{Action, Permit, Ruleset};

use crate::{client::ClientMeans, jail::Jail, model::ToolSpec, sandbox::Confiner, turn::Asker};

/// What editors show a call as; the names are ACP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolKind {
    /// Reads files.
    Read,
    /// Changes files.
    Edit,
    /// Searches.
    Search,
    /// Runs programs.
    Execute,
    /// Thinks or plans.
    Think,
    /// Anything else.
    Other,
}

/// A place a call touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Absolute path.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: Option<u32>,
}

/// Something shown with a call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolContent {
    /// Text, Markdown.
    Text(String),
    /// A file's change.
    Diff {
        /// Absolute path.
        path: PathBuf,
        /// `None` for a new file.
        old: Option<String>,
        /// The whole new text.
        new: String,
    },
    /// A terminal of the client.
    Terminal {
        /// What the client that has it calls it.
        id: String,
        /// What it shows, for everybody who does not have it.
        text: String,
    },
    /// A file handed to the client.
    Attachment {
        /// `attachment://deliver/<sha256>.<ext>`.
        uri: String,
        /// Media type.
        mime_type: String,
        /// The bytes.
        bytes: bytes::Bytes,
    },
}

/// How a call is presented before it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct CallView {
    /// One line that says what is done; control and invisible characters are shown as escapes.
    pub title: String,
    /// What it touches.
    pub locations: Vec<Location>,
    /// The whole command or diff, for the permission request.
    pub content: Vec<ToolContent>,
}

/// How a call went.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutcome {
    /// The text for the model, already bounded.
    pub model_text: String,
    /// What the client shows; replaces the view's content when not empty, already bounded.
    pub content: Vec<ToolContent>,
    /// Places found out by running, e.g. the edited lines; replaces the view's locations when not empty.
    pub locations: Vec<Location>,
    /// A title to show from now on.
    pub title: Option<String>,
    /// Whether it failed although it ran. A command fails by a time-out, a signal and every exit code but zero,
    /// so that an editor marks a failing test run; the text says which.
    pub failed: bool,
}

/// A call that was not possible. The text goes to the model and to the client.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ToolFailure {
    /// The arguments are not what the schema says.
    #[error("invalid arguments: {0}")]
    Arguments(String),
    /// It was tried and did not work.
    #[error("{0}")]
    Failed(String),
    /// The turn was cancelled while it ran.
    #[error("cancelled")]
    Cancelled,
}

/// The program that commands are started by; it takes care that nothing of them outlives the call or this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// A program that calls [`launch`](crate::launch::launch) with what follows `--` when it is started with `argument`.
    pub program: PathBuf,
    /// Its first argument.
    pub argument: String,
}

/// Limits and settings of tool runs in one session.
#[derive(Clone, Debug)]
pub struct ToolSettings {
    /// The longest a command may run.
    pub shell_timeout: Duration,
    /// Environment of commands, complete: nothing else is inherited.
    pub shell_env: Vec<(String, String)>,
    /// Bytes of output that go to the model and, separately, to the client; the middle is cut.
    pub max_output_bytes: usize,
    /// What starts commands. Without it they are started directly: they can leave their process group, and survive this
    /// process when it is killed.
    pub launcher: Option<Launcher>,
    /// What confines commands. A sandbox that needs the launcher starts nothing without one.
    pub sandbox: Arc<Confiner>,
}

/// What a tool is given to work with.
#[derive(Clone)]
pub struct ToolContext {
    /// Directory handles of the session's roots; the only way to files.
    pub jail: Arc<Jail>,
    /// Rules, for what a tool reads while it prepares.
    pub rules: Arc<Ruleset>,
    /// Settings.
    pub settings: Arc<ToolSettings>,
    /// What the client lends.
    pub client: ClientMeans,
    /// The client, for questions.
    pub asker: Arc<dyn Asker>,
    /// The call's id.
    pub call_id: Arc<str>,
    /// Cancelled with the turn.
    pub cancel: CancellationToken,
}

/// Where a running tool reports.
pub trait Progress: Send + Sync {
    /// Output so far grew by this text. May be dropped or merged; the outcome repeats what counts.
    fn output(&self, text: &str);
    /// What it is doing now, in one line; replaces the line before. May be dropped; the outcome replaces it.
    fn status(&self, text: &str);
    /// Its output is to be seen in this terminal of the client, which the tool gives up when it ends.
    fn terminal(&self, id: &str);
    /// The plan changed; the list is complete.
    fn plan(&self, entries: &[PlanEntry]);
    /// The agent says something to the user outside of the model's text.
    fn message(&self, text: &str);
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// `high`, `medium` or `low`.
    pub priority: PlanPriority,
    /// How far it is.
    pub status: PlanStatus,
}

/// How much a step matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanPriority {
    /// First.
    High,
    /// Then.
    Medium,
    /// Last.
    Low,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStatus {
    /// Not begun.
    Pending,
    /// Being done.
    InProgress,
    /// Done.
    Completed,
}

/// A tool on offer.
#[async_trait]
pub trait Tool: Send + Sync + Debug {
    /// Name, description and schema for the model.
    fn spec(&self) -> &ToolSpec;

    /// What editors show it as.
    fn kind(&self) -> ToolKind;

    /// Whether calls may run beside others of the same model answer: only for tools that change nothing.
    fn parallel_safe(&self) -> bool;

    /// Resolves a call to one exact action, without side effects. What it reads on the way is judged too.
    ///
    /// # Errors
    /// Arguments that do not fit, paths outside, files that are not what the call assumes.
    async fn prepare(
        &self,
        arguments: &serde_json::Value,
        context: &ToolContext,
    ) -> Result<Box<dyn PreparedCall>, ToolFailure>;
}

/// A call resolved to one exact action.
#[async_trait]
pub trait PreparedCall: Send + Sync {
    /// The action to be judged.
    fn action(&self) -> Action;

    /// How the call is presented.
    fn view(&self) -> CallView;

    /// Performs the permit's action.
    ///
    /// # Errors
    /// What went wrong while doing it; a failing file system, a time-out, a cancel.
    async fn run(
        self: Box<Self>,
        permit: Permit,
        context: &ToolContext,
        progress: &dyn Progress,
    ) -> Result<ToolOutcome, ToolFailure>;
}

/// The tools that every agent has, before its rules exclude some.
#[must_use]
pub fn standard_tools() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(file_read::FileRead::new()),
        Arc::new(file_write::FileWrite::new()),
        Arc::new(file_edit::FileEdit::new()),
        Arc::new(list_dir::ListDir::new()),
        Arc::new(glob_search::GlobSearch::new()),
        Arc::new(content_search::ContentSearch::new()),
        Arc::new(shell::Shell::new()),
        Arc::new(converse::TodoWrite::new()),
        Arc::new(converse::AskUser::new()),
        Arc::new(converse::EscalateToHuman::new()),
        Arc::new(deliver_file::DeliverFile::new()),
    ]
}
