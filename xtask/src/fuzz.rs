//! `cargo xtask fuzz`: random input against the properties of `tests/fuzz`, on a stable compiler. What looks for input by
//! coverage is `cargo +nightly fuzz run TARGET`, with the same properties; see `fuzz/`.

use anyhow::{Context, Result};
use clap::Args;

use crate::Verdict;
use crate::workspace::Workspace;

/// Options of `cargo xtask fuzz`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long each target runs.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where the random input begins [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Run an input that broke a property once more.
    #[arg(long, value_name = "FILE")]
    replay: Option<std::path::PathBuf>,
    /// Build with optimisation: worth it from some minutes on.
    #[arg(long)]
    release: bool,
    /// The targets, by the beginning of their names [default: all]
    targets: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<Verdict> {
    let mut cargo = workspace.cargo();
    cargo.args(["run", "--quiet", "--locked", "-p", "zeroclaw-fuzz"]);
    if options.release {
        cargo.arg("--release");
    }
    cargo.args(["--", "--seconds", &options.seconds.to_string()]);
    if let Some(seed) = options.seed {
        cargo.args(["--seed", &seed.to_string()]);
    }
    if let Some(file) = &options.replay {
        cargo.arg("--replay").arg(std::path::absolute(file).context("the working directory is gone")?);
    }
    let status = cargo.args(&options.targets).status().context("cannot run cargo")?;
    Ok(if status.success() { Verdict::Pass } else { Verdict::Fail })
}
