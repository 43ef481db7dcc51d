//! The program `zeroclaw-acp-bridge`: a client on standard input and output, a gateway elsewhere.

mod openclaw;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use zeroclaw_bridge::{Arguments, run};

use crate::openclaw::Openclaw;

/// Joins an Agent Client Protocol client on standard input and output to a ZeroClaw gateway.
///
/// Exit codes: 0 done, 1 the gateway was lost, 2 wrong usage or configuration, 3 the gateway refuses, 4 the gateway was shut down.
#[derive(Parser)]
#[command(name = "zeroclaw-acp-bridge", version)]
struct Cli {
    /// The directory with config.toml [default: ~/.zeroclaw]
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,
    /// The gateway's address (ws:// or wss://) in place of the configured one
    #[arg(long)]
    url: Option<String>,
    /// The agent of new sessions that name none
    #[arg(long)]
    agent: Option<String>,
    /// The file with the gateway's token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Seconds that a lost gateway is looked for
    #[arg(long, value_name = "N", default_value_t = 60)]
    reconnect_secs: u64,
    /// Seconds that a gateway that is not there yet is waited for at start
    #[arg(long, value_name = "N", default_value_t = 0)]
    wait_secs: u64,
    #[command(subcommand)]
    gateway: Option<Gateway>,
}

#[derive(Subcommand)]
enum Gateway {
    Openclaw(Box<Openclaw>),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(Gateway::Openclaw(openclaw)) = cli.gateway {
        return openclaw.run(cli.config_dir);
    }
    let arguments = Arguments {
        config_dir: cli.config_dir,
        url: cli.url,
        agent: cli.agent,
        token_file: cli.token_file,
        reconnect: Duration::from_secs(cli.reconnect_secs),
        wait: Duration::from_secs(cli.wait_secs),
    };
    run(arguments, std::env::vars_os())
}
