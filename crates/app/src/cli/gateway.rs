//! `zeroclaw daemon`, `pair` and `tokens`: the gateway, and who may come in through it.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use serde_json::json;
use zeroclaw_gateway::{NewToken, PairingDesk, TokenRecord, TokenStore};

use super::sessions::time;
use super::term::{json_line, one_line};
use super::{Context, GlobalArgs, exit};
use crate::wiring::{self, DaemonOptions, ServeOptions};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Subcommand)]
pub(super) enum GatewayCommand {
    /// Serve clients over WebSocket until it is stopped
    Daemon(DaemonArgs),
    /// Show a one-time code with which a client gets a token
    Pair(PairArgs),
    /// Look at, make and take back the tokens of clients
    #[command(subcommand)]
    Tokens(TokensCommand),
}

#[derive(Debug, Args)]
pub(super) struct DaemonArgs {
    /// The name or address that is listened on [default: gateway.host]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The port that is listened on; 0 lets the system choose [default: gateway.port]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

impl DaemonArgs {
    pub(super) fn options(self, globals: &GlobalArgs) -> DaemonOptions {
        let serve = ServeOptions { config_dir: globals.config_dir.clone(), ..ServeOptions::default() };
        DaemonOptions { serve, host: self.host, port: self.port }
    }
}

#[derive(Debug, Args)]
pub(super) struct PairArgs {
    /// What the token will be called
    #[arg(long, value_name = "NAME", default_value = "client")]
    name: String,
}

#[derive(Debug, Subcommand)]
pub(super) enum TokensCommand {
    /// List the tokens, the oldest first; not the tokens themselves, which nobody has but their clients
    List {
        /// Print JSON, one token a line
        #[arg(long)]
        json: bool,
    },
    /// Make a token and print it; it is never shown again
    Create {
        /// What it is called
        name: String,
        /// After how many days it ends [default: never]
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
        expires_days: Option<u32>,
    },
    /// End a token and every connection that was opened with it
    Revoke {
        /// Its name or id
        name: String,
    },
    /// End a token and print a new one of the same name
    Rotate {
        /// Its name or id
        name: String,
    },
}

/// Serves until the daemon is asked to end.
pub(super) fn daemon(args: DaemonArgs, globals: &GlobalArgs) -> anyhow::Result<std::process::ExitCode> {
    wiring::serve_daemon(args.options(globals), |place| {
        // A closed standard error leaves nobody to be told.
        let _ = writeln!(io::stderr(), "zeroclaw: listening on {place}");
    })
}

pub(super) fn pair(
    args: &PairArgs,
    globals: &GlobalArgs,
    context: &Context,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    let loaded = context.load(globals)?;
    let ttl = loaded.config.gateway.pairing_code_ttl_secs;
    let desk = PairingDesk::in_directory(&loaded.paths.config_dir);
    let code = desk.offer(&args.name, ttl, &wiring::world())?;
    writeln!(out, "{}", code.expose())?;
    out.flush()?;
    // Beside the code, so that a script can take it.
    let _ = writeln!(io::stderr(), "zeroclaw: the code works once, for {ttl} seconds; clients send it to /pair");
    Ok(exit::DONE)
}

pub(super) fn tokens(
    command: &TokensCommand,
    globals: &GlobalArgs,
    context: &Context,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    let store = TokenStore::in_directory(&context.paths(globals)?.config_dir);
    let world = wiring::world();
    match command {
        TokensCommand::List { json } => {
            for record in store.list()? {
                let line = if *json { json_line(&as_json(&record).to_string()).into_owned() } else { as_line(&record) };
                writeln!(out, "{line}")?;
            }
        }
        TokensCommand::Create { name, expires_days } => {
            let expires = expires_days.map(|days| (world.now_ms)().saturating_add(i64::from(days) * DAY_MS));
            show(&store.create(name, expires, &world)?, out)?;
        }
        TokensCommand::Revoke { name } => writeln!(out, "revoked {}", as_line(&store.revoke(name)?))?,
        TokensCommand::Rotate { name } => show(&store.rotate(name, &world)?, out)?,
    }
    out.flush()?;
    Ok(exit::DONE)
}

/// The one time that a token is shown: by itself, so that a script can take it.
fn show(made: &NewToken, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", made.token.expose())
}

fn as_line(record: &TokenRecord) -> String {
    let or = |at: Option<i64>, none: &str| at.map_or_else(|| none.to_owned(), time);
    format!(
        "{}  {}  made {}, used {}, ends {}",
        record.id,
        one_line(&record.name),
        time(record.created_ms),
        or(record.last_used_ms, "never"),
        or(record.expires_ms, "never"),
    )
}

fn as_json(record: &TokenRecord) -> serde_json::Value {
    json!({
        "id": record.id,
        "name": record.name,
        "createdAt": time(record.created_ms),
        "lastUsedAt": record.last_used_ms.map(time),
        "expiresAt": record.expires_ms.map(time),
    })
}
