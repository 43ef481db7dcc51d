//! Runs one command with `/bin/sh`. What was shown is what runs; nothing is inherited but what the settings name.

pub(crate) mod lifeline;
mod members;
mod process;
mod terminal;

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zeroclaw_policy::{Action, Permit, Pin, Pinned, RootedPath, executed, wants_network};

use crate::{
    model::ToolSpec,
    sandbox::{Backend, Network, Purpose, Wrapped},
    tool::{
        CallView, Location, PreparedCall, Progress, Tool, ToolContent, ToolContext, ToolFailure, ToolKind, ToolOutcome,
        args::{locate, parse, reading, shown_path, spec, wrong_permit},
        shell::process::{Ended, Finished, Program, run},
        show,
    },
};

/// Bytes of a command: it is shown as a whole, and the system takes arguments of 128 KiB at most.
const MAX_COMMAND: usize = 64 * 1024;

/// What is said once in a session whose commands nothing confines.
const UNCONFINED: &str = "There is no sandbox on this system: the commands of this session run with all your rights, on all your \
files and the network. `zeroclaw doctor` says why.";

/// The tool `shell`.
#[derive(Debug)]
pub(super) struct Shell {
    spec: ToolSpec,
}

impl Shell {
    pub(super) fn new() -> Self {
        let spec = spec(
            "shell",
            "Runs a command with /bin/sh and returns its output and exit code. There is no terminal and no input; \
             background processes end with the command.",
            json!({
                "command": { "type": "string" },
                "network": {
                    "type": "boolean",
                    "description": "Whether it runs with network; the user is asked. Left out, common installs, downloads \
                        and git push do, and for all else every connection fails, also to this machine."
                },
                "timeout_secs": { "type": "integer", "minimum": 1, "description": "Ends the command after this time." },
                "cwd": { "type": "string", "description": "Where it starts; the working directory by default." }
            }),
            &["command"],
        );
        Self { spec }
    }
}

#[derive(Deserialize)]
struct Arguments {
    command: String,
    network: Option<bool>,
    timeout_secs: Option<u64>,
    cwd: Option<String>,
}

#[async_trait]
impl Tool for Shell {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Execute
    }

    fn parallel_safe(&self) -> bool {
        false
    }

    async fn prepare(&self, arguments: &Value, context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        let Arguments { command, network, timeout_secs, cwd } = parse(arguments)?;
        if command.trim().is_empty() {
            return Err(ToolFailure::Arguments("`command` is empty".to_owned()));
        }
        if command.len() > MAX_COMMAND {
            return Err(ToolFailure::Arguments(format!(
                "`command` has {} bytes, more than the limit of {MAX_COMMAND}; write a script file and run that",
                command.len()
            )));
        }
        if command.contains('\0') {
            return Err(ToolFailure::Arguments("`command` contains a NUL byte".to_owned()));
        }
        let cwd = locate(context, cwd.as_deref().unwrap_or("."))?;
        let argv = argv(&command);
        let mut pins = pins(context, &argv, &cwd).await?;
        pins.push(environment(context));
        let cap = context.settings.shell_timeout;
        let timeout = timeout_secs.map_or(cap, |secs| Duration::from_secs(secs.max(1)).min(cap));
        let place = shown_path(context.jail.roots(), cwd.absolute());
        let network = network
            .unwrap_or_else(|| wants_network(&context.rules, context.jail.roots(), &self.spec.name, &argv, &cwd));
        Ok(Box::new(Call { command, network, cwd, place, timeout, pins }))
    }
}

/// Prepares a command for the sandbox, on a thread that may block.
async fn confine(context: &ToolContext, argv: Vec<String>, network: Network) -> Result<Wrapped, ToolFailure> {
    let (jail, rules, settings) = (context.jail.clone(), context.rules.clone(), context.settings.clone());
    let argv = argv.into_iter().map(Into::into).collect();
    let purpose = Purpose::Command(network);
    let wrapped = tokio::task::spawn_blocking(move || settings.sandbox.wrap(&jail, &rules, argv, purpose)).await;
    let wrapped = wrapped.map_err(|_| ToolFailure::Failed("preparing the sandbox broke off".to_owned()))?;
    wrapped.map_err(|error| ToolFailure::Failed(error.to_string()))
}

/// Holds the directory that a command starts in, and the files of the session that it runs as far as its text tells.
async fn pins(context: &ToolContext, argv: &[String], cwd: &RootedPath) -> Result<Vec<Pin>, ToolFailure> {
    let programs = executed(&context.rules, context.jail.roots(), argv, cwd);
    let (jail, cwd) = (context.jail.clone(), cwd.clone());
    reading(context, move |files| {
        let mut pins = vec![files.pin_directory(&cwd)?];
        let located = programs.iter().filter_map(|path| jail.roots().locate(path.to_str()?).ok());
        pins.extend(located.map(|path| files.pin_program(&path)));
        Ok(pins)
    })
    .await
}

/// Holds the variables that commands get.
fn environment(context: &ToolContext) -> Pin {
    let mut digest = Sha256::new();
    for (name, value) in &context.settings.shell_env {
        for text in [name, value] {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        }
    }
    Pin { what: Pinned::Environment, path: "environment".into(), state: digest.finalize().into() }
}

/// What runs a command.
fn argv(command: &str) -> Vec<String> {
    vec!["/bin/sh".to_owned(), "-c".to_owned(), command.to_owned()]
}

struct Call {
    command: String,
    network: bool,
    cwd: RootedPath,
    place: String,
    timeout: Duration,
    pins: Vec<Pin>,
}

#[async_trait]
impl PreparedCall for Call {
    fn action(&self) -> Action {
        Action::Run {
            argv: argv(&self.command),
            cwd: self.cwd.clone(),
            shown: self.command.clone(),
            network: self.network,
            pins: self.pins.clone(),
        }
    }

    fn view(&self) -> CallView {
        let title = show::inline_code(&show::title(self.command.trim()));
        let title = if self.network { format!("Run {title} with network") } else { format!("Run {title}") };
        let mut content = show::code_block("sh", &self.command);
        if self.place != "." {
            content.push_str(&format!("\n\nin {}", show::fenced("", &self.place)));
        }
        if self.network {
            content.push_str("\n\nruns with network");
        }
        CallView {
            title,
            locations: vec![Location { path: self.cwd.absolute().to_owned(), line: None }],
            content: vec![ToolContent::Text(content)],
        }
    }

    async fn run(
        self: Box<Self>,
        permit: Permit,
        context: &ToolContext,
        progress: &dyn Progress,
    ) -> Result<ToolOutcome, ToolFailure> {
        let Action::Run { argv, cwd, network, pins, .. } = permit.into_action() else {
            return Err(wrong_permit());
        };
        let given = environment(context);
        if pins.iter().any(|pin| pin.what == Pinned::Environment && *pin != given) {
            return Err(ToolFailure::Failed("the environment is not what it was when this was asked about".to_owned()));
        }
        let directory = reading(context, move |files| {
            let directory = files.open_dir(&cwd)?;
            files.hold(&pins, Some((&cwd, &directory)))?;
            Ok(directory)
        })
        .await?;
        if let Some(terminals) = &context.client.terminals {
            let command = terminal::Command { argv: &argv, cwd: &directory.real, timeout: self.timeout };
            if let Some(outcome) = terminal::run(terminals.as_ref(), command, context, progress).await? {
                return Ok(outcome);
            }
        }
        let wrapped = confine(context, argv, if network { Network::Open } else { Network::Closed }).await?;
        if !wrapped.confined
            && context.settings.sandbox.settings().backend == Backend::Auto
            && context.jail.tells_first()
        {
            progress.message(UNCONFINED);
        }
        let program = Program { wrapped, directory, timeout: self.timeout };
        let Finished { output, ended, background } = run(program, context, progress).await?;
        let mut notes = match ended {
            Ended::Exited(code) => format!("[exit code {code}]"),
            Ended::Signalled(signal) => format!("[killed by signal {signal}]"),
            Ended::TooMany => "[more processes than a command may have, all were killed]".to_owned(),
            Ended::TimedOut => format!("[timed out after {:?} and was ended]", self.timeout),
        };
        if background {
            notes.push_str("\n[background processes were ended]");
        }
        let line_end = if output.is_empty() || output.ends_with('\n') { "" } else { "\n" };
        let text = format!("{output}{line_end}{notes}");
        Ok(ToolOutcome {
            content: vec![ToolContent::Text(show::fenced("console", &text))],
            model_text: text,
            locations: Vec::new(),
            title: None,
            failed: ended != Ended::Exited(0),
        })
    }
}
