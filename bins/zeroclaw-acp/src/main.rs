//! The program `zeroclaw-acp`: the agent over stdio, for editors that start one program without arguments.

use std::process::ExitCode;

fn main() -> ExitCode {
    zeroclaw_app::launched().unwrap_or_else(zeroclaw_app::cli::zeroclaw_acp)
}
