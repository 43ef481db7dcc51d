//! The program `zeroclaw`.

use std::process::ExitCode;

fn main() -> ExitCode {
    zeroclaw_app::cli::zeroclaw()
}
