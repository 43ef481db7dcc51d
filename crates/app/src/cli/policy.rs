//! `zeroclaw policy`: what the rules say about a command, and whether a table of commands comes out as written.
//! Nothing is run and nothing is opened but the table and the configuration.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use zeroclaw_policy::cases::{Base, MAX_TABLE, check, decide_command};
use zeroclaw_policy::{Decision, Level};

use super::term::{json_line, one_line};
use super::{Context, GlobalArgs, exit};
use crate::agents::default_agent;
use crate::wiring::{absolute_places, rules};

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Say what becomes of a command
    Check {
        #[command(flatten)]
        place: Place,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The command line as one string, as the shell tool would get it
        #[arg(value_name = "COMMAND", last = true, required = true)]
        command: String,
    },
    /// Check a table of commands and what is to become of them
    Test {
        #[command(flatten)]
        place: Place,
        /// The table
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Whose rules, and where.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// The agent whose rules apply [default: the agent of a session that names none]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// The level, instead of the one that is configured
    #[arg(long, value_name = "LEVEL")]
    level: Option<LevelArg>,
    /// The working directory of the session [default: this one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LevelArg {
    Readonly,
    Supervised,
    Full,
}

pub(super) fn run(
    command: &PolicyCommand,
    globals: &GlobalArgs,
    context: &Context,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    match command {
        PolicyCommand::Check { place, json, command } => {
            let verdict = decide_command(&base(place, globals, context)?, command)?;
            if *json {
                let reasons: Vec<&str> = verdict.reasons.iter().map(|reason| reason.text.as_str()).collect();
                let line = json!({"decision": word(verdict.decision), "reasons": reasons}).to_string();
                writeln!(out, "{}", json_line(&line))?;
            } else {
                writeln!(out, "{}", word(verdict.decision))?;
                for reason in &verdict.reasons {
                    writeln!(out, "  {:<6} {}", word(reason.decision), one_line(&reason.text))?;
                }
            }
            out.flush()?;
            Ok(exit::DONE)
        }
        PolicyCommand::Test { place, file } => {
            let shown = one_line(&file.display().to_string()).into_owned();
            let metadata = std::fs::metadata(file).with_context(|| format!("cannot open {shown}"))?;
            if !metadata.is_file() || metadata.len() > MAX_TABLE as u64 {
                bail!("{shown} is no file of at most {MAX_TABLE} bytes");
            }
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
            let outcome = match check(&text, &base(place, globals, context)?) {
                Ok(outcome) => outcome,
                Err(error) => bail!("{shown}:{}: {}", error.line, error.message),
            };
            for mismatch in &outcome.mismatches {
                writeln!(
                    out,
                    "{shown}:{}: expected {}, got {}: {}",
                    mismatch.line,
                    word(mismatch.expected),
                    word(mismatch.verdict.decision),
                    one_line(&mismatch.command)
                )?;
                for reason in &mismatch.verdict.reasons {
                    writeln!(out, "  {:<6} {}", word(reason.decision), one_line(&reason.text))?;
                }
            }
            writeln!(out, "{} commands, {} of them not as written", outcome.checked, outcome.mismatches.len())?;
            out.flush()?;
            Ok(if outcome.mismatches.is_empty() { exit::DONE } else { exit::FAILED })
        }
    }
}

fn base(place: &Place, globals: &GlobalArgs, context: &Context) -> anyhow::Result<Base> {
    let loaded = absolute_places(context.load(globals)?)?;
    let config = &loaded.config;
    let dispatchable = config.dispatchable();
    let alias = match (&place.agent, &config.acp.default_agent, config.agents.keys().next(), dispatchable.as_slice()) {
        (Some(alias), _, Some(_), _) if !config.agents.contains_key(alias) => {
            bail!("agent `{alias}` is not configured")
        }
        (Some(alias), ..) | (None, Some(alias), ..) => alias.clone(),
        (None, None, _, [only]) => (*only).to_owned(),
        (None, None, Some(_), _) => bail!("there are several agents; name one with --agent"),
        (None, None, None, _) => default_agent(&context.env).alias.to_owned(),
    };
    let profile = config.agents.get(&alias).map_or("default", |agent| agent.risk_profile.as_str());
    let risk = config.effective_risk_profile(profile);
    let mut rules = rules::ruleset(&loaded, &context.env, &alias, &risk).map_err(anyhow::Error::msg)?;
    if let Some(level) = place.level {
        rules.level = match level {
            LevelArg::Readonly => Level::Readonly,
            LevelArg::Supervised => Level::Supervised,
            LevelArg::Full => Level::Full,
        };
    }
    let cwd = match &place.cwd {
        Some(cwd) => std::path::absolute(cwd).context("the working directory is gone")?,
        None => std::env::current_dir().context("the working directory is gone")?,
    };
    // A session has the real name of its directory; one that is not there is taken by its name.
    let cwd = cwd.canonicalize().unwrap_or(cwd);
    Ok(Base { rules, roots: rules::session_roots(&loaded, &alias, &risk, &cwd) })
}

fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    }
}
