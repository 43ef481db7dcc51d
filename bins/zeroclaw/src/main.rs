//! The program `zeroclaw`.

use std::process::ExitCode;

fn main() -> ExitCode {
    zeroclaw_app::launched().unwrap_or_else(zeroclaw_app::cli::zeroclaw)
}
