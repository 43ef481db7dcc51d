//! A program that is nothing but the launcher: `launcher <anything> -- <command…>`. The tests of this crate start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    zeroclaw_runtime::launch::launch(std::env::args_os().skip(3))
}
