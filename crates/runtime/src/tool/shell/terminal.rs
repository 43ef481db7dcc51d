//! Runs a command in a terminal of the client: outside of our sandbox, where the user watches it.
//! The terminal is released in every case, as it is given up when this ends, however it ends.

use std::{path::Path, time::Duration};

use tokio::time::timeout;

use crate::{
    client::{ClientError, ClientTerminal, ClientTerminals, TerminalExit, TerminalProgram},
    tool::{Progress, ToolContent, ToolContext, ToolFailure, ToolOutcome, output::bounded, show},
};

/// How long a program that ran out of time may take to end before its output is read anyway.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// A terminal looks like a person to programs; these keep them from waiting for one.
const ENV: &[(&str, &str)] = &[("PAGER", "cat"), ("GIT_PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0")];

/// What runs.
pub(super) struct Command<'a> {
    pub(super) argv: &'a [String],
    /// Without links.
    pub(super) cwd: &'a Path,
    pub(super) timeout: Duration,
}

/// How the program's run ended.
enum Ended {
    Exited(TerminalExit),
    TimedOut,
}

/// Runs the command; `None` means that the client is not there any more and nothing ran.
pub(super) async fn run(
    terminals: &dyn ClientTerminals,
    command: Command<'_>,
    context: &ToolContext,
    progress: &dyn Progress,
) -> Result<Option<ToolOutcome>, ToolFailure> {
    let limit = context.settings.max_output_bytes;
    let program = TerminalProgram { argv: command.argv, cwd: command.cwd, env: ENV, max_output_bytes: limit as u64 };
    let created = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Err(ToolFailure::Cancelled),
        created = terminals.create(program) => created,
    };
    let terminal = match created {
        Ok(terminal) => terminal,
        Err(ClientError::Absent) => return Ok(None),
        Err(error) => return Err(ToolFailure::Failed(format!("the command was not started: {error}"))),
    };
    progress.terminal(terminal.id());
    let ended = tokio::select! {
        biased;
        () = context.cancel.cancelled() => {
            terminal.kill();
            return Ok(Some(outcome(terminal.as_ref(), ToolFailure::Cancelled.to_string(), true)));
        }
        ended = wait(terminal.as_ref(), command.timeout) => ended,
    };
    let read = async {
        let ended = ended?;
        let shown = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Ok(None),
            shown = terminal.output() => shown?,
        };
        Ok::<_, ClientError>(Some((ended, shown)))
    };
    let (ended, shown) = match read.await {
        Ok(Some(read)) => read,
        Ok(None) => return Ok(Some(outcome(terminal.as_ref(), ToolFailure::Cancelled.to_string(), true))),
        Err(error) => {
            terminal.kill();
            return Err(ToolFailure::Failed(format!("the command's end is not known: {error}")));
        }
    };
    let mut text = String::new();
    if shown.cut {
        text.push_str("[the beginning of the output was cut by the client]\n");
    }
    text.push_str(&bounded(&shown.text, limit));
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let failed = !matches!(&ended, Ended::Exited(TerminalExit { code: Some(0), signal: None }));
    text.push_str(&match ended {
        Ended::TimedOut => format!("[timed out after {:?} and was ended]", command.timeout),
        Ended::Exited(TerminalExit { signal: Some(signal), .. }) => {
            format!("[killed by signal {}]", show::title(&signal))
        }
        Ended::Exited(TerminalExit { code: Some(code), signal: None }) => format!("[exit code {code}]"),
        Ended::Exited(TerminalExit { code: None, signal: None }) => "[ended without an exit code]".to_owned(),
    });
    Ok(Some(outcome(terminal.as_ref(), text, failed)))
}

async fn wait(terminal: &dyn ClientTerminal, limit: Duration) -> Result<Ended, ClientError> {
    let exited = terminal.exited();
    tokio::pin!(exited);
    match timeout(limit, &mut exited).await {
        Ok(exit) => exit.map(Ended::Exited),
        Err(_) => {
            terminal.kill();
            // However it ends now, it ended because its time was up; not every client can kill.
            let _ended = timeout(KILL_GRACE, exited).await;
            Ok(Ended::TimedOut)
        }
    }
}

fn outcome(terminal: &dyn ClientTerminal, text: String, failed: bool) -> ToolOutcome {
    let content = ToolContent::Terminal { id: terminal.id().to_owned(), text: show::fenced("console", &text) };
    ToolOutcome { content: vec![content], model_text: text, locations: Vec::new(), title: None, failed }
}
