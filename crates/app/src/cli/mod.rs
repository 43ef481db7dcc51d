//! The command line of the programs: arguments, what each command does, exit codes.
//!
//! The programs call [`zeroclaw`] or [`zeroclaw_acp`] and return what they return. Only here is anything written to a
//! terminal, and never while a protocol is served on standard output.

mod approvals;
mod completions;
mod config;
mod doctor;
mod gateway;
mod keyboard;
mod log;
mod login;
mod policy;
mod prompt;
mod service;
mod sessions;
mod term;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use zeroclaw_config::{Env, Loaded, Paths, load, resolve_paths};

use self::log::LogLevel;
use self::term::{Streams, visible};
use crate::wiring::{self, ServeOptions};

/// The exit codes that scripts rely on.
mod exit {
    pub(super) const DONE: u8 = 0;
    pub(super) const FAILED: u8 = 1;
    pub(super) const USAGE: u8 = 2;
    pub(super) const REFUSED: u8 = 3;
    pub(super) const LIMIT: u8 = 4;
    pub(super) const CANCELLED: u8 = 130;
}

/// An agent server for the Agent Client Protocol
#[derive(Debug, Parser)]
#[command(name = "zeroclaw", version, arg_required_else_help = true, subcommand_required = true)]
struct Zeroclaw {
    #[command(flatten)]
    globals: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

/// ZeroClaw ACP agent over stdio, for editors that start their agent themselves
#[derive(Debug, Parser)]
#[command(name = "zeroclaw-acp", version)]
struct ZeroclawAcp {
    #[command(flatten)]
    globals: GlobalArgs,
    #[command(flatten)]
    acp: AcpArgs,
}

#[derive(Debug, Clone, Default, Args)]
struct GlobalArgs {
    /// The configuration directory [default: $ZEROCLAW_CONFIG_DIR or ~/.zeroclaw]
    #[arg(long, value_name = "DIR", global = true)]
    config_dir: Option<PathBuf>,
    /// How much is logged [default: $RUST_LOG or warn]
    #[arg(long, value_name = "LEVEL", global = true, hide_possible_values = true)]
    #[arg(help = "How much is logged: off, error, warn, info, debug, trace [default: $RUST_LOG or warn]")]
    log_level: Option<LogLevel>,
    /// Append the log to this file instead of writing it to standard error
    #[arg(long, value_name = "FILE", global = true)]
    log_file: Option<PathBuf>,
}

impl GlobalArgs {
    /// The same options for a process that is started elsewhere.
    fn to_arguments(&self) -> io::Result<Vec<OsString>> {
        let mut arguments = Vec::new();
        if let Some(directory) = &self.config_dir {
            arguments.extend(["--config-dir".into(), std::path::absolute(directory)?.into_os_string()]);
        }
        if let Some(level) = self.log_level {
            arguments.extend(["--log-level".into(), level.as_str().into()]);
        }
        if let Some(file) = &self.log_file {
            arguments.extend(["--log-file".into(), std::path::absolute(file)?.into_os_string()]);
        }
        Ok(arguments)
    }
}

#[derive(Debug, Clone, Default, Args)]
struct AcpArgs {
    /// How many sessions may be active at once [default: acp.max_sessions]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_sessions: Option<u32>,
    /// After how long an idle session is closed [default: acp.session_timeout_secs]
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..))]
    session_timeout: Option<u64>,
    // Clients that log in through a terminal put these words behind the arguments that they start their agent with.
    #[command(subcommand)]
    account: Option<AccountCommand>,
}

#[derive(Debug, Clone, Subcommand)]
enum AccountCommand {
    /// Store the key of a model provider, after a test
    Login(login::LoginArgs),
    /// Remove stored keys
    Logout(login::LogoutArgs),
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve one client over standard input and output
    Acp(AcpArgs),
    /// Send a prompt to an agent and print the answer
    Prompt(Box<prompt::PromptArgs>),
    /// Read and change the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    #[command(flatten)]
    Account(AccountCommand),
    /// Ask the rules about commands
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Look at stored sessions
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// Look at and take back what was answered with "always"
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    #[command(flatten)]
    Gateway(gateway::GatewayCommand),
    /// Run the daemon as a service of this user's systemd
    #[command(subcommand)]
    Service(service::ServiceCommand),
    /// Check configuration, agents, store and machine
    Doctor,
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
}

/// Why a command could not do what it was asked to.
#[derive(Debug)]
enum Failure {
    /// The command line was wrong in a way that the parser cannot see.
    Usage(anyhow::Error),
    /// Anything else.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// What commands know about the process.
struct Context {
    env: Env,
    streams: Streams,
}

impl Context {
    fn of_process() -> Self {
        Self { env: Env::from_os_vars(std::env::vars_os()), streams: Streams::of_process() }
    }

    fn paths(&self, globals: &GlobalArgs) -> anyhow::Result<Paths> {
        Ok(resolve_paths(globals.config_dir.as_deref(), &self.env)?)
    }

    fn load(&self, globals: &GlobalArgs) -> anyhow::Result<Loaded> {
        Ok(load(&self.paths(globals)?, &self.env)?)
    }
}

/// Runs the program `zeroclaw` with the arguments of the process.
pub fn zeroclaw() -> ExitCode {
    match Zeroclaw::try_parse() {
        Ok(parsed) => finish(run(parsed)),
        Err(error) => parse_end(&error),
    }
}

/// Runs the program `zeroclaw-acp` with the arguments of the process.
pub fn zeroclaw_acp() -> ExitCode {
    match ZeroclawAcp::try_parse() {
        Ok(parsed) => {
            let context = Context::of_process();
            finish(start_log(&parsed.globals, &context).and_then(|()| acp(parsed.globals, &parsed.acp, &context)))
        }
        Err(error) => parse_end(&error),
    }
}

fn run(parsed: Zeroclaw) -> Result<ExitCode, Failure> {
    let context = Context::of_process();
    let globals = parsed.globals;
    start_log(&globals, &context)?;
    let mut out = io::stdout();
    let code = match parsed.command {
        Command::Acp(args) => return acp(globals, &args, &context),
        Command::Account(command) => account(&command, &globals, &context)?,
        Command::Prompt(args) => prompt::run(*args, &globals, &context)?,
        Command::Config(command) => quiet(config::run(&command, &globals, &context, &mut out))?,
        Command::Policy(command) => quiet(policy::run(&command, &globals, &context, &mut out))?,
        Command::Sessions(command) => quiet(sessions::run(&command, &globals, &context, &mut out))?,
        Command::Approvals(command) => quiet(approvals::run(&command, &globals, &context, &mut out))?,
        Command::Gateway(command) => return run_gateway(command, &globals, &context),
        Command::Service(command) => quiet(service::run(&command, &globals, &context, &mut out))?,
        Command::Doctor => quiet(doctor::run(&globals, &context, &mut out))?,
        Command::Completions(args) => quiet(completions::run(&args, &mut out))?,
    };
    Ok(ExitCode::from(code))
}

fn run_gateway(command: gateway::GatewayCommand, globals: &GlobalArgs, context: &Context) -> Result<ExitCode, Failure> {
    let mut out = io::stdout();
    let code = match command {
        gateway::GatewayCommand::Daemon(args) => return Ok(gateway::daemon(args, globals)?),
        gateway::GatewayCommand::Pair(args) => quiet(gateway::pair(&args, globals, context, &mut out))?,
        gateway::GatewayCommand::Tokens(command) => quiet(gateway::tokens(&command, globals, context, &mut out))?,
    };
    Ok(ExitCode::from(code))
}

fn account(command: &AccountCommand, globals: &GlobalArgs, context: &Context) -> Result<u8, Failure> {
    let mut out = io::stdout();
    match command {
        AccountCommand::Login(args) => login::login(args, globals, context, &mut out),
        AccountCommand::Logout(args) => login::logout(args, globals, context, &mut out),
    }
}

fn acp(globals: GlobalArgs, args: &AcpArgs, context: &Context) -> Result<ExitCode, Failure> {
    if let Some(command) = &args.account {
        return account(command, &globals, context).map(ExitCode::from);
    }
    let options = ServeOptions {
        config_dir: globals.config_dir,
        max_sessions: args.max_sessions.and_then(|count| usize::try_from(count).ok()),
        session_timeout_secs: args.session_timeout,
    };
    Ok(wiring::serve_stdio(options)?)
}

fn start_log(globals: &GlobalArgs, context: &Context) -> Result<(), Failure> {
    log::start(globals.log_level, globals.log_file.as_deref(), &context.env, context.streams.err_terminal)
        .map_err(Failure::Usage)
}

/// A reader that had enough and went away is no failure.
fn quiet(result: anyhow::Result<u8>) -> anyhow::Result<u8> {
    match result {
        Err(error)
            if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) =>
        {
            Ok(exit::DONE)
        }
        other => other,
    }
}

/// Prints help and version, or what was wrong with the arguments.
fn parse_end(error: &clap::Error) -> ExitCode {
    // A closed stream leaves nobody to be told.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::DONE })
}

fn finish(result: Result<ExitCode, Failure>) -> ExitCode {
    let (code, error) = match result {
        Ok(code) => return code,
        Err(Failure::Usage(error)) => (exit::USAGE, error),
        Err(Failure::Failed(error)) => (exit::FAILED, error),
    };
    // A closed standard error leaves nobody to be told.
    let _ = writeln!(io::stderr(), "zeroclaw: error: {}", visible(&format!("{error:#}")));
    ExitCode::from(code)
}
