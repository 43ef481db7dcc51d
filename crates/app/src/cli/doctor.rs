//! `zeroclaw doctor`: looks at everything a server needs and says what is wrong with it. Changes nothing, asks no network,
//! and names where a key comes from, never the key.

use std::io::{self, Write};
use std::path::Path;

use zeroclaw_config::{Config, Family, Loaded, load};
use zeroclaw_runtime::sandbox::find;
use zeroclaw_session_store::{OpenError, SessionStore, SqliteStore};

use super::sessions::store_path;
use super::term::{Palette, Role, one_line};
use super::{Context, GlobalArgs, exit};
use crate::agents::{default_agent, key_variable};
use crate::wiring::{backend, check_rules};

/// How many ignored keys are named; more are counted.
const MAX_IGNORED: usize = 10;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Good,
    Doubtful,
    Broken,
}

/// Collects findings as lines.
struct Report<'a, W> {
    out: &'a mut W,
    palette: Palette,
    is_broken: bool,
}

impl<W: Write> Report<'_, W> {
    fn line(&mut self, health: Health, subject: &str, text: &str) -> io::Result<()> {
        let mark = match health {
            Health::Good => self.palette.paint(Role::Good, "ok  "),
            Health::Doubtful => self.palette.paint(Role::Warn, "note"),
            Health::Broken => self.palette.paint(Role::Bad, "FAIL"),
        };
        self.is_broken |= health == Health::Broken;
        writeln!(self.out, "{mark} {subject:<9} {}", one_line(text))
    }
}

pub(super) fn run(globals: &GlobalArgs, context: &Context, out: &mut impl Write) -> anyhow::Result<u8> {
    let palette = Palette::for_stream(context.streams.out_terminal, &context.env);
    let mut report = Report { out, palette, is_broken: false };
    report.line(Health::Good, "version", concat!("zeroclaw ", env!("CARGO_PKG_VERSION")))?;
    match context.paths(globals) {
        Err(error) => report.line(Health::Broken, "config", &format!("{error:#}"))?,
        Ok(paths) => match load(&paths, &context.env) {
            Err(error) => {
                report.line(Health::Broken, "config", &error.to_string())?;
                store(&mut report, &store_path(&paths.data_dir))?;
            }
            Ok(loaded) => {
                config(&mut report, &loaded)?;
                if let Err(error) = check_rules(&loaded) {
                    report.line(Health::Broken, "rules", &format!("{error:#}"))?;
                }
                if let Some(problem) = &loaded.keys_problem {
                    report.line(Health::Broken, "keys", problem)?;
                }
                agents(&mut report, &loaded.config, context)?;
                store(&mut report, &store_path(&loaded.paths.data_dir))?;
                sandbox(&mut report, &loaded.config)?;
            }
        },
    }
    report.line(Health::Good, "kernel", &kernel())?;
    let is_broken = report.is_broken;
    out.flush()?;
    Ok(if is_broken { exit::FAILED } else { exit::DONE })
}

fn config(report: &mut Report<'_, impl Write>, loaded: &Loaded) -> io::Result<()> {
    let file = loaded.paths.config_file.display();
    let text = match loaded.file_found {
        true => format!("{file}"),
        false => format!("{file} does not exist; defaults and environment are used"),
    };
    report.line(Health::Good, "config", &text)?;
    if !loaded.ignored.is_empty() {
        let mut names = loaded.ignored.iter().take(MAX_IGNORED).cloned().collect::<Vec<_>>().join(", ");
        if loaded.ignored.len() > MAX_IGNORED {
            names.push_str(&format!(" and {} more", loaded.ignored.len() - MAX_IGNORED));
        }
        report.line(Health::Doubtful, "config", &format!("not for this program and left alone: {names}"))?;
    }
    Ok(())
}

fn agents(report: &mut Report<'_, impl Write>, config: &Config, context: &Context) -> io::Result<()> {
    if config.agents.is_empty() {
        let agent = default_agent(&context.env);
        let model = agent.model.as_deref().unwrap_or("its own model");
        let text = match agent.key_variable {
            Some(variable) => {
                format!("none configured; `{}` uses {} with {model}, key from {variable}", agent.alias, agent.family)
            }
            None => format!("none configured and no vendor's key is set; `{}` uses the builtin provider", agent.alias),
        };
        let health = if agent.key_variable.is_some() { Health::Good } else { Health::Doubtful };
        report.line(health, "agent", &text)?;
        return match config.acp.default_agent.as_deref().filter(|alias| *alias != agent.alias) {
            Some(alias) => {
                let text = format!("acp.default_agent cannot be used: agent `{alias}` is not configured");
                report.line(Health::Broken, "default", &text)
            }
            None => Ok(()),
        };
    }
    for (alias, settings) in &config.agents {
        match config.agent_problem(alias) {
            Some(problem) if !settings.enabled => report.line(Health::Doubtful, "agent", &problem)?,
            Some(problem) => report.line(Health::Broken, "agent", &problem)?,
            None => {
                let (health, provider) = provider(config, alias, context);
                report.line(health, "agent", &format!("`{alias}` {provider}"))?;
            }
        }
    }
    let dispatchable = config.dispatchable();
    match (&config.acp.default_agent, dispatchable.as_slice()) {
        (Some(alias), usable) if usable.contains(&alias.as_str()) => {
            report.line(Health::Good, "default", &format!("`{alias}`, by acp.default_agent"))
        }
        (Some(alias), _) => {
            let problem = config.agent_problem(alias).unwrap_or_default();
            report.line(Health::Broken, "default", &format!("acp.default_agent cannot be used: {problem}"))
        }
        (None, [only]) => report.line(Health::Good, "default", &format!("`{only}`, the only usable agent")),
        (None, []) => report.line(Health::Broken, "default", "no configured agent can be used"),
        (None, usable) => {
            let text = format!(
                "none: a session has to name one of {}, or set acp.default_agent",
                usable.iter().map(|alias| format!("`{alias}`")).collect::<Vec<_>>().join(", ")
            );
            report.line(Health::Doubtful, "default", &text)
        }
    }
}

/// Says which provider an agent uses and where its key comes from.
fn provider(config: &Config, alias: &str, context: &Context) -> (Health, String) {
    let Some((reference, model)) = config.model_of(alias) else {
        return (Health::Broken, "has no model".to_owned());
    };
    let name = model.model.as_deref().unwrap_or("its default model");
    let head = format!("uses {reference} with {name}");
    if model.key_is_stored {
        return (Health::Good, format!("{head}, key stored by `zeroclaw login`"));
    }
    if model.api_key.is_some() {
        return (Health::Good, format!("{head}, key from the configuration"));
    }
    match (reference.family, key_variable(reference.family)) {
        (Family::Builtin | Family::Scripted, _) => (Health::Good, format!("{head}, needs no key")),
        // The key of a vendor is never sent to another address than the vendor's own.
        (_, _) if model.uri.is_some() => (Health::Good, format!("{head} at its own address, without a key")),
        (_, Some(variable)) => match context.env.get(variable).is_some_and(|key| !key.trim().is_empty()) {
            true => (Health::Good, format!("{head}, key from {variable}")),
            false => (
                Health::Broken,
                format!("{head}, but has no key: run `zeroclaw login`, or set `api_key` or {variable}"),
            ),
        },
        (_, None) => (Health::Good, format!("{head}, without a key")),
    }
}

/// Asks the system what it can confine a command with, as the first command of a server does.
fn sandbox(report: &mut Report<'_, impl Write>, config: &Config) -> io::Result<()> {
    match find(backend(config.sandbox.backend)) {
        Ok(sandbox) if sandbox.confines() => report.line(Health::Good, "sandbox", &sandbox.description()),
        Ok(sandbox) => report.line(Health::Doubtful, "sandbox", &sandbox.description()),
        Err(error) => report.line(Health::Broken, "sandbox", &format!("{error}; no session can be opened")),
    }
}

fn store(report: &mut Report<'_, impl Write>, path: &Path) -> io::Result<()> {
    let place = path.display();
    match look_at_store(path) {
        Ok(()) => report.line(Health::Good, "store", &format!("{place}, its schema is understood"))?,
        Err(StoreProblem::Missing) => report.line(Health::Good, "store", &format!("{place}, made at first use"))?,
        Err(StoreProblem::Other(problem)) => report.line(Health::Broken, "store", &problem)?,
    }
    // The nearest thing that exists decides whether the rest can be made.
    let existing = path.ancestors().find(|place| place.exists()).unwrap_or(path);
    match check_writable(existing) {
        Ok(()) => report.line(Health::Good, "store", &format!("{} can be written", existing.display())),
        Err(error) => {
            let text = format!("{} cannot be written ({error}): sessions will not be kept", existing.display());
            report.line(Health::Broken, "store", &text)
        }
    }
}

enum StoreProblem {
    Missing,
    Other(String),
}

fn look_at_store(path: &Path) -> Result<(), StoreProblem> {
    let other = |text: String| StoreProblem::Other(text);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| other(error.to_string()))?;
    runtime.block_on(async {
        match SqliteStore::open_read_only(path).await {
            Ok(store) => {
                // Opened is what was to be found out.
                let _ = store.close().await;
                Ok(())
            }
            Err(OpenError::NotFound { .. }) => Err(StoreProblem::Missing),
            Err(error) => Err(other(error.to_string())),
        }
    })
}

#[cfg(unix)]
fn check_writable(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?)
}

#[cfg(not(unix))]
fn check_writable(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path)?.permissions().readonly() {
        true => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
        false => Ok(()),
    }
}

#[cfg(unix)]
fn kernel() -> String {
    let name = rustix::system::uname();
    format!(
        "{} {} on {}",
        name.sysname().to_string_lossy(),
        name.release().to_string_lossy(),
        name.machine().to_string_lossy()
    )
}

#[cfg(not(unix))]
fn kernel() -> String {
    format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH)
}
