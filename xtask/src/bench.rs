//! `cargo xtask bench`: the release build next to bare programs, interleaved in one run on one machine, because only
//! a ratio survives the change of machine. The server is driven over its pipes, as an editor drives it.

mod agent;
mod policy;
mod sandbox;
mod start;
mod stream;
mod table;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};

use crate::Verdict;
use crate::workspace::Workspace;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// From spawn to the answer of `initialize`, and the memory resident then.
    Start(StartOptions),
    /// Updates a second through one whole turn, and the turn over HTTP next to a bare reader.
    Stream(StreamOptions),
    /// Verdicts a second, and a confined command next to a bare one.
    Policy(PolicyOptions),
    /// A confined command next to the same without a sandbox, and to a bare spawn.
    Sandbox(SandboxOptions),
}

/// Options of `bench start`.
#[derive(Debug, Args)]
pub(crate) struct StartOptions {
    /// How often each program is started.
    #[arg(long, default_value_t = 40)]
    runs: usize,
    /// Exit with 1 when a target is missed.
    #[arg(long)]
    check: bool,
}

/// Options of `bench sandbox`.
#[derive(Debug, Args)]
pub(crate) struct SandboxOptions {
    /// How often the command is run in each way; the median counts.
    #[arg(long, default_value_t = 40)]
    runs: usize,
    /// Exit with 1 when a target is missed.
    #[arg(long)]
    check: bool,
}

/// Options of `bench policy`.
#[derive(Debug, Args)]
pub(crate) struct PolicyOptions {
    /// How often the command is run in each way; the median counts.
    #[arg(long, default_value_t = 40)]
    runs: usize,
    /// Exit with 1 when a target is missed.
    #[arg(long)]
    check: bool,
}

/// Options of `bench stream`.
#[derive(Debug, Args)]
pub(crate) struct StreamOptions {
    /// Text chunks in the turn.
    #[arg(long, default_value_t = 50_000)]
    chunks: usize,
    /// How often each turn is run; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Exit with 1 when a target is missed.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(workspace: &Workspace, command: &Bench) -> Result<Verdict> {
    let programs = Programs::build(workspace)?;
    match command {
        Bench::Start(options) => start::run(&programs, options),
        Bench::Stream(options) => stream::run(&programs, options),
        Bench::Policy(options) => policy::run(workspace, &programs, options),
        Bench::Sandbox(options) => sandbox::run(&programs, options),
    }
}

/// The folder of the release build.
struct Programs {
    folder: PathBuf,
}

impl Programs {
    fn build(workspace: &Workspace) -> Result<Self> {
        let mut cargo = workspace.cargo();
        let packages = ["-p", "zeroclaw", "-p", "zeroclaw-acp", "-p", "zeroclaw-bench-peers"];
        cargo.args(["build", "--release", "--locked"]).args(packages);
        ensure!(cargo.status().context("cannot run cargo")?.success(), "the release build failed");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.root.join("target"), PathBuf::from);
        Ok(Self { folder: workspace.root.join(target).join("release") })
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        ensure!(path.is_file(), "{} was not built", path.display());
        Ok(path)
    }
}

/// A folder for one benchmark, removed at the end.
struct Home {
    path: PathBuf,
}

impl Home {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("zeroclaw-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("project"))?;
        Ok(Self { path })
    }

    fn project(&self) -> PathBuf {
        self.path.join("project")
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("warning: {} stays behind: {error}", self.path.display());
        }
    }
}

/// A path as a TOML and JSON string; both escape a backslash and a quote the same way.
fn quoted(path: &Path) -> String {
    serde_json::Value::from(path.to_string_lossy().as_ref()).to_string()
}

/// The middle of the values; the mean of the two middle ones when their number is even. Zero for none.
fn median(values: &[Duration]) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    match (sorted.len() / 2, sorted.len() % 2) {
        (0, 0) => Duration::ZERO,
        (middle, 0) => (sorted[middle - 1] + sorted[middle]) / 2,
        (middle, _) => sorted[middle],
    }
}

fn ratio(ours: Duration, floor: Duration) -> f64 {
    ours.as_secs_f64() / floor.as_secs_f64().max(f64::MIN_POSITIVE)
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

fn mebibytes(kibibytes: u64) -> f64 {
    // A process here has megabytes, far below where the conversion loses anything.
    f64::from(u32::try_from(kibibytes).unwrap_or(u32::MAX)) / 1024.0
}

/// One figure that has to be on the right side of a number.
struct Target {
    what: &'static str,
    value: f64,
    limit: Limit,
}

enum Limit {
    Below(f64),
    Above(f64),
}

impl Target {
    fn is_met(&self) -> bool {
        match self.limit {
            Limit::Below(limit) => self.value < limit,
            Limit::Above(limit) => self.value > limit,
        }
    }
}

/// Prints the targets and turns them into a verdict when the caller asked for one.
fn judge(targets: &[Target], check: bool) -> Verdict {
    for target in targets {
        let (sign, limit) = match target.limit {
            Limit::Below(limit) => ("<", limit),
            Limit::Above(limit) => (">", limit),
        };
        let word = if target.is_met() { "met" } else { "MISSED" };
        println!("target {}: {:.2} {sign} {limit} {word}", target.what, target.value);
    }
    let missed = targets.iter().any(|target| !target.is_met());
    if check && missed { Verdict::Fail } else { Verdict::Pass }
}
