//! `zeroclaw config`: shows and changes the configuration file, and never prints a secret.

use std::io::Write;

use anyhow::Context as _;
use clap::Subcommand;
use zeroclaw_config::{get, init, list, set};

use super::term::visible;
use super::{Context, GlobalArgs, exit};

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Print the effective value of a key
    Get {
        /// The key, for example acp.default_agent
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Change a key in the file; comments stay
    Set {
        /// The key, for example acp.default_agent
        #[arg(value_name = "KEY")]
        key: String,
        /// The new value
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: String,
    },
    /// Print every key with its effective value and where that came from
    List,
    /// Print where the configuration file is
    Path,
    /// Write a first configuration file with every key explained
    Init,
}

pub(super) fn run(
    command: &ConfigCommand,
    globals: &GlobalArgs,
    context: &Context,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    let paths = context.paths(globals)?;
    match command {
        ConfigCommand::Get { key } => {
            let entry = get(&paths, &context.env, key)?;
            let value = entry.value.with_context(|| format!("`{key}` is not set and has no default"))?;
            writeln!(out, "{}", visible(&value))?;
        }
        ConfigCommand::Set { key, value } => set(&paths, key, value)?,
        ConfigCommand::List => {
            for entry in list(&paths, &context.env)? {
                writeln!(out, "{entry}")?;
            }
        }
        ConfigCommand::Path => writeln!(out, "{}", paths.config_file.display())?,
        ConfigCommand::Init => {
            init(&paths)?;
            writeln!(out, "{}", paths.config_file.display())?;
        }
    }
    out.flush()?;
    Ok(exit::DONE)
}
