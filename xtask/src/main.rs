//! Developer commands of the workspace: `cargo xtask ci`, `tidy`, `fuzz`, `bench` and so on.
//! It links no crate of the product, so it builds and runs while the product does not.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer command talks to the terminal; no protocol runs on its standard output"
)]

mod bench;
mod ci;
mod fuzz;
mod public_api;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Developer commands of the workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything a change must pass: format, tidy, deny, clippy, documentation, tests.
    Ci,
    /// Check the rules of the house that no other tool knows: layers, sizes, comments, links.
    Tidy,
    /// Compare the public items of the protocol crate with their record.
    PublicApi(public_api::Options),
    /// Feed random input to the parsers, the policy and the stores, and check what must hold for whatever comes in.
    Fuzz(fuzz::Options),
    /// Measure the release build next to bare programs in the same run.
    #[command(subcommand)]
    Bench(bench::Bench),
}

/// How a command ended when nothing went wrong in the command itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Fail,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(Verdict::Pass) => ExitCode::SUCCESS,
        Ok(Verdict::Fail) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<Verdict> {
    let workspace = Workspace::here()?;
    match &cli.command {
        Command::Ci => ci::run(&workspace),
        Command::Tidy => tidy::run(&workspace),
        Command::PublicApi(options) => public_api::run(&workspace, *options),
        Command::Fuzz(options) => fuzz::run(&workspace, options),
        Command::Bench(command) => bench::run(&workspace, command),
    }
}
