//! Arguments of `zeroclaw-acp-bridge openclaw`; named as those of OpenClaw's own bridge.

use std::{path::PathBuf, process::ExitCode, time::Duration, time::SystemTime};

use clap::{Args, Subcommand, ValueEnum};
use zeroclaw_bridge::openclaw::{Arguments, Caps, ProvenanceMode, Secret, run, run_import};

/// Joins the client to an OpenClaw Gateway instead.
#[derive(Args)]
pub(crate) struct Openclaw {
    /// The gateway's address (ws:// or wss://) [env: OPENCLAW_GATEWAY_URL] [default: ws://127.0.0.1:18789]
    #[arg(long, visible_alias = "gateway-url", value_name = "URL")]
    url: Option<String>,
    /// The file with the gateway's token; read again for each connection
    #[arg(long, visible_alias = "gateway-token-file", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The gateway's token, visible to others on this machine; prefer --token-file
    #[arg(long, alias = "gateway-token", value_name = "TOKEN")]
    token: Option<String>,
    /// The file with the gateway's password
    #[arg(long, alias = "gateway-password-file", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The gateway's password, visible to others on this machine; prefer --password-file
    #[arg(long, alias = "gateway-password", value_name = "PASSWORD")]
    password: Option<String>,
    /// The gateway's session that every session is, by its key
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
    /// The gateway's session that every session is, by its label
    #[arg(long, value_name = "LABEL")]
    session_label: Option<String>,
    /// Fail when the gateway's session is not there yet
    #[arg(long)]
    require_existing: bool,
    /// Begin the gateway's session anew; needs --admin
    #[arg(long)]
    reset_session: bool,
    /// Do not tell the model the working directory
    #[arg(long)]
    no_prefix_cwd: bool,
    /// What is said about where messages come from; needs --admin
    #[arg(long, value_enum, default_value_t = Provenance::Off)]
    provenance: Provenance,
    /// Ask for an administrator's rights: resets, modes and options
    #[arg(long)]
    admin: bool,
    /// The directory of the device's identity and the ledger; may be OpenClaw's own [default: openclaw in the configuration directory]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Seconds that a gateway that is not there yet is waited for at start
    #[arg(long, value_name = "N", default_value_t = 0)]
    wait_secs: u64,
    /// Seconds that prompts wait for a gateway that was lost
    #[arg(long, value_name = "N", default_value_t = 30)]
    grace_secs: u64,
    /// Sessions that may be created in ten seconds
    #[arg(long, value_name = "N", default_value_t = 120)]
    create_limit: usize,
    /// Sessions in the ledger
    #[arg(long, value_name = "N", default_value_t = Caps::default().sessions)]
    ledger_sessions: usize,
    /// Updates of one session in the ledger
    #[arg(long, value_name = "N", default_value_t = Caps::default().events)]
    ledger_events: usize,
    /// Bytes of the whole ledger
    #[arg(long, value_name = "N", default_value_t = Caps::default().bytes)]
    ledger_bytes: u64,
    /// Speak to a gateway beyond private networks without encryption
    #[arg(long)]
    allow_insecure: bool,
    /// Log what is going on
    #[arg(short, long)]
    verbose: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Looks after the ledger of what clients were told
    #[command(subcommand)]
    Ledger(Ledger),
}

#[derive(Subcommand)]
enum Ledger {
    /// Brings the ledger of OpenClaw's own bridge over; its file stays as it is
    Import {
        /// event-ledger.json in the folder acp of OpenClaw's state directory
        file: PathBuf,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Provenance {
    Off,
    Meta,
    #[value(name = "meta+receipt")]
    MetaAndReceipt,
}

impl Openclaw {
    pub(crate) fn run(self, config_dir: Option<PathBuf>) -> ExitCode {
        let provenance = match self.provenance {
            Provenance::Off => ProvenanceMode::Off,
            Provenance::Meta => ProvenanceMode::Meta,
            Provenance::MetaAndReceipt => ProvenanceMode::MetaAndReceipt,
        };
        let caps = Caps { sessions: self.ledger_sessions, events: self.ledger_events, bytes: self.ledger_bytes };
        let arguments = Arguments {
            url: self.url,
            token: self.token.map(Secret),
            token_file: self.token_file,
            password: self.password.map(Secret),
            password_file: self.password_file,
            session: self.session,
            session_label: self.session_label,
            require_existing: self.require_existing,
            reset_session: self.reset_session,
            no_prefix_cwd: self.no_prefix_cwd,
            provenance,
            admin: self.admin,
            state_dir: self.state_dir,
            config_dir,
            wait: Duration::from_secs(self.wait_secs),
            grace: Duration::from_secs(self.grace_secs),
            create_limit: self.create_limit,
            caps,
            verbose: self.verbose,
            allow_insecure: self.allow_insecure,
            current_dir: std::env::current_dir().ok(),
        };
        match self.command {
            None => run(arguments, std::env::vars_os(), SystemTime::now),
            Some(Command::Ledger(Ledger::Import { file })) => run_import(arguments, &file, std::env::vars_os()),
        }
    }
}
