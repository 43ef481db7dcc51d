//! `zeroclaw prompt`: one prompt to an agent, driven over ACP exactly as an editor would do it.

mod approve;
mod connection;
mod diff;
mod flow;
mod keyboard;
pub(super) mod render;
mod screen;
pub(super) mod tool;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use tokio::sync::mpsc;

use self::approve::{ApproveMode, default_mode};
use self::connection::Agent;
use self::flow::{Flow, FlowError, Request};
use self::keyboard::Keyboard;
use self::screen::{Looks, Screen};
use super::term::{Palette, Role, Streams, is_capable, shell_word, visible};
use super::{Context, Failure, GlobalArgs, exit};

/// The largest prompt; the agent's own limit on a line is of this order.
const MAX_PROMPT_BYTES: u64 = 16 * 1024 * 1024;
/// Lines of the agent's standard error that explain its death.
const MAX_STDERR_LINES: usize = 20;

/// Arguments of `zeroclaw prompt`.
#[derive(Debug, Args)]
pub(super) struct PromptArgs {
    /// The prompt; several words are joined by spaces, `-` reads standard input
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    text: Vec<String>,
    /// Read the prompt from a file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Continue this session; the beginning of its id is enough where the agent lists its sessions
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Print the conversation so far before the answer
    #[arg(long, requires = "session")]
    show_history: bool,
    /// The working directory of the session [default: the current one, or that of the continued session]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The agent that the session is for, by its alias
    #[arg(long, value_name = "ALIAS", conflicts_with = "session")]
    agent: Option<String>,
    /// Who answers permission requests [default: ask at a terminal, none otherwise]
    #[arg(long, value_name = "MODE")]
    approve: Option<ApproveMode>,
    /// Print the updates as JSON, one a line, instead of the answer's text
    #[arg(long)]
    json: bool,
    /// Drive another ACP agent; takes the rest of the command line
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    agent_command: Vec<OsString>,
}

/// Runs the command; the number is the exit code.
pub(super) fn run(args: PromptArgs, globals: &GlobalArgs, context: &Context) -> Result<u8, Failure> {
    let streams = Streams::of_process();
    let reads_input = args.text.len() == 1 && args.text.first().is_some_and(|text| text == "-");
    let text = prompt_text(&args, reads_input)?;
    let is_cwd_chosen = args.cwd.is_some();
    let cwd = args.cwd.unwrap_or_else(|| PathBuf::from("."));
    let cwd = directory(&cwd).map_err(Failure::Usage)?;
    let command = if args.agent_command.is_empty() {
        own_agent(globals).map_err(Failure::Failed)?
    } else {
        args.agent_command.clone()
    };
    let continuation = continuation(globals, &args.agent_command);
    let request = Request {
        text,
        session: args.session,
        cwd: cwd.clone(),
        is_cwd_chosen,
        agent: args.agent,
        approve: args.approve.unwrap_or_else(|| default_mode(streams.in_terminal, streams.err_terminal)),
        json: args.json,
        show_history: args.show_history,
    };
    let screen = Screen::new(
        Box::new(io::stdout()),
        Box::new(io::stderr()),
        Looks {
            palette: Palette::for_stream(streams.err_terminal, &context.env),
            is_shared: streams.out_terminal && streams.err_terminal,
            has_spinner: streams.err_terminal && is_capable(&context.env) && !args.json,
        },
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(Failure::Failed)?;
    let code = runtime.block_on(drive(&command, &cwd, request, screen, &continuation)).map_err(Failure::Failed);
    // Nothing is left to wait for: the agent has ended or been killed.
    runtime.shutdown_background();
    code
}

/// Starts the agent, runs the prompt and sees the agent out.
async fn drive(
    command: &[OsString],
    cwd: &Path,
    request: Request,
    screen: Screen,
    continuation: &str,
) -> anyhow::Result<u8> {
    let (mut agent, connection) = Agent::start(command, cwd)?;
    let mut flow = Flow::new(connection, request, screen, Keyboard::terminal(), interrupts());
    let result = flow.run().await;
    let session = flow.session().map(str::to_owned);
    let mut screen = flow.into_screen();
    let code = match result {
        Ok(reason) => {
            agent.wait().await;
            let (code, note) = stop_code(&reason);
            if let Some(note) = note {
                screen.note(Role::Warn, &visible(&note))?;
            }
            code
        }
        Err(FlowError::Quit) => {
            agent.kill().await;
            exit::CANCELLED
        }
        Err(FlowError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            agent.kill().await;
            exit::FAILED
        }
        Err(error) => {
            let status = agent.wait().await;
            screen.note(Role::Bad, &format!("zeroclaw: error: {error}"))?;
            if let (FlowError::Gone, Some(status)) = (&error, status) {
                screen.note(Role::Bad, &format!("the agent's {status}"))?;
            }
            let tail = agent.stderr_tail().await;
            let lines: Vec<_> = tail.lines().collect();
            for line in &lines[lines.len().saturating_sub(MAX_STDERR_LINES)..] {
                screen.note(Role::Dim, &format!("  agent: {}", visible(line)))?;
            }
            exit::FAILED
        }
    };
    if let Some(session) = session {
        let session = shell_word(&session);
        screen
            .note(Role::Dim, &format!("session {session}; continue with: {continuation} --session {session} TEXT"))?;
    }
    Ok(code)
}

/// Forwards each Ctrl-C. When one waits already, nobody listens because a write is stuck, and only leaving helps: the
/// agent ends with its input.
fn interrupts() -> mpsc::Receiver<()> {
    let (sender, interrupts) = mpsc::channel(1);
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            if let Err(mpsc::error::TrySendError::Full(())) = sender.try_send(()) {
                std::process::exit(i32::from(exit::CANCELLED));
            }
        }
    });
    interrupts
}

/// The exit code of a stop reason, and what to say about it.
fn stop_code(reason: &str) -> (u8, Option<String>) {
    match reason {
        "end_turn" => (exit::DONE, None),
        "cancelled" => (exit::CANCELLED, Some("cancelled".to_owned())),
        "refusal" => (exit::REFUSED, Some("the agent refused to go on".to_owned())),
        "max_tokens" => (exit::LIMIT, Some("the answer was cut off: it reached the most tokens".to_owned())),
        "max_turn_requests" => (exit::LIMIT, Some("the turn was cut off: it reached the most model calls".to_owned())),
        other => (exit::FAILED, Some(format!("the turn ended for an unknown reason: {other}"))),
    }
}

fn prompt_text(args: &PromptArgs, reads_input: bool) -> Result<String, Failure> {
    let text = match &args.file {
        Some(file) => {
            let opened = std::fs::File::open(file).with_context(|| format!("cannot open {}", file.display()));
            read_all(opened.map_err(Failure::Usage)?).with_context(|| format!("cannot read {}", file.display()))
        }
        None if reads_input => read_all(io::stdin().lock()).context("cannot read the prompt from standard input"),
        None => Ok(args.text.join(" ")),
    };
    let text = text.map_err(Failure::Usage)?;
    if text.trim().is_empty() {
        return Err(Failure::Usage(anyhow::anyhow!(
            "the prompt is empty; give it as an argument, with `--file FILE`, or `-` for standard input"
        )));
    }
    Ok(text)
}

fn read_all(source: impl Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    source.take(MAX_PROMPT_BYTES + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(bytes.len() as u64 <= MAX_PROMPT_BYTES, "it is larger than {MAX_PROMPT_BYTES} bytes");
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("it is not UTF-8 text"))
}

fn directory(path: &Path) -> anyhow::Result<PathBuf> {
    let absolute = std::fs::canonicalize(path).with_context(|| format!("cannot use {}", path.display()))?;
    anyhow::ensure!(absolute.is_dir(), "{} is not a directory", path.display());
    Ok(absolute)
}

/// This program as an agent, with the same configuration and logs.
fn own_agent(globals: &GlobalArgs) -> anyhow::Result<Vec<OsString>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = vec![program.into_os_string()];
    command.extend(globals.to_arguments()?);
    command.push("acp".into());
    Ok(command)
}

/// The command line that continues a session, as far as it can be told.
fn continuation(globals: &GlobalArgs, agent_command: &[OsString]) -> String {
    let mut line = "zeroclaw".to_owned();
    if let Some(directory) = &globals.config_dir {
        line.push_str(&format!(" --config-dir {}", shell_word(&directory.to_string_lossy())));
    }
    line.push_str(" prompt");
    if !agent_command.is_empty() {
        line.push_str(" [--agent-command …]");
    }
    line
}
