//! `zeroclaw completions`: a script for a shell, made from the arguments themselves.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Zeroclaw, exit};

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs, out: &mut impl Write) -> anyhow::Result<u8> {
    let mut command = Zeroclaw::command();
    // The generator panics when it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "zeroclaw", &mut script);
    out.write_all(&script)?;
    out.flush()?;
    Ok(exit::DONE)
}
