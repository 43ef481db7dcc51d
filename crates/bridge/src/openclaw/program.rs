//! The sub-command as a program: log, identity, runtime, signals and exit code.

use std::{
    collections::hash_map::RandomState, ffi::OsString, hash::BuildHasher as _, path::Path, process::ExitCode,
    time::SystemTime,
};

use ring::rand::{SecureRandom as _, SystemRandom};
use zeroclaw_acp_transport::Limits;
use zeroclaw_config::Env;

use super::{
    engine::World,
    identity::Identity,
    ledger::import,
    options::{Arguments, options},
    serve::serve,
};
use crate::program;

/// Runs the bridge to an OpenClaw gateway with these variables as its environment and this clock, and returns its exit code.
#[must_use]
pub fn run(
    arguments: Arguments,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    clock: fn() -> SystemTime,
) -> ExitCode {
    let env = Env::from_os_vars(variables);
    program::log(&env, if arguments.verbose { "zeroclaw_bridge=debug,warn" } else { "warn" });
    let options = match options(arguments, &env) {
        Ok(options) => options,
        Err(error) => return usage(&error),
    };
    let identity = match Identity::open(&options.state_dir, millis(clock)) {
        Ok(identity) => identity,
        Err(error) => return usage(&error),
    };
    let seed = RandomState::new().hash_one(std::process::id());
    let random = SystemRandom::new();
    let world = World {
        uuid: Box::new(move || {
            let mut bytes = [0; 16];
            if random.fill(&mut bytes).is_err() {
                // Without random numbers there was no key either; a hasher's seed is unique enough for an id.
                let (one, two) = (RandomState::new().hash_one(1_u8), RandomState::new().hash_one(2_u8));
                bytes = (u128::from(one) << 64 | u128::from(two)).to_be_bytes();
            }
            uuid(bytes)
        }),
        wall: Box::new(move || millis(clock)),
    };
    let limits = Limits { max_line: program::MAX_LINE, outbox_high: program::OUTBOX_HIGH };
    program::block_on(async { serve(options, identity, world, limits, seed, program::stop_signal()?).await })
}

/// Brings the ledger of OpenClaw's own bridge over and returns an exit code.
#[must_use]
pub fn run_import(
    arguments: Arguments,
    source: &Path,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> ExitCode {
    let env = Env::from_os_vars(variables);
    program::log(&env, "info");
    let options = match options(arguments, &env) {
        Ok(options) => options,
        Err(error) => return usage(&error),
    };
    match import(source, &options.state_dir.join(super::LEDGER_DIR), options.caps) {
        Ok(imported) => {
            let super::ledger::Imported { sessions, kept, events } = imported;
            tracing::info!(sessions, kept, events, "the ledger is brought over; its source is as it was");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage(error: &dyn std::error::Error) -> ExitCode {
    tracing::error!("{error}");
    ExitCode::from(program::USAGE)
}

fn millis(clock: fn() -> SystemTime) -> u64 {
    clock().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64)
}

/// Random bytes as a UUID of version 4.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range).unwrap_or_default().to_owned());
    parts.join("-")
}
