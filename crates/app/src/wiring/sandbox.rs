//! The settings of the sandbox from configuration and environment. Nothing is looked for here.

use std::path::PathBuf;

use zeroclaw_config::{Env, Loaded, SandboxBackend};
use zeroclaw_runtime::sandbox::{Backend, Limits, SandboxSettings, layout};

use super::environment::shell_env;

const MEGABYTE: u64 = 1024 * 1024;

/// What the sandbox of every agent lets through.
pub(super) fn sandbox_settings(loaded: &Loaded, env: &Env) -> SandboxSettings {
    let config = &loaded.config.sandbox;
    let home = env.home().map(PathBuf::from);
    // A relative path says nothing without a directory to start at.
    let paths = |list: &[String]| list.iter().map(PathBuf::from).filter(|path| path.is_absolute()).collect::<Vec<_>>();
    let commands = shell_env(env, &config.pass_env);
    let mut readable = layout::readable(home.as_deref(), &commands);
    readable.extend(paths(&config.readable));
    SandboxSettings {
        backend: backend(config.backend),
        readable,
        writable: paths(&config.writable),
        hidden: layout::hidden(home.as_deref(), &commands),
        caches: layout::caches(home.as_deref()),
        local_sockets: config.local_sockets,
        limits: Limits {
            cpu_secs: Some(config.max_cpu_secs),
            memory_bytes: config.max_memory_mb.map(|megabytes| megabytes.saturating_mul(MEGABYTE)),
            file_bytes: Some(config.max_file_mb.saturating_mul(MEGABYTE)),
            open_files: Some(config.max_open_files),
            processes: Some(config.max_processes),
        },
        temporary: env.get("TMPDIR").map_or_else(|| "/tmp".into(), PathBuf::from),
    }
}

/// The backend as the runtime calls it.
pub(crate) fn backend(configured: SandboxBackend) -> Backend {
    match configured {
        SandboxBackend::Auto => Backend::Auto,
        SandboxBackend::Landlock => Backend::Landlock,
        SandboxBackend::Seatbelt => Backend::Seatbelt,
        SandboxBackend::None => Backend::None,
    }
}
