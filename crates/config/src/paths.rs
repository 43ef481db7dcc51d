//! Where the configuration and the data are. Nothing is created here and no file is looked at.

use std::path::{Path, PathBuf};

use crate::env::Env;
use crate::error::ConfigError;

/// Holds the resolved places of configuration and data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The configuration directory.
    pub config_dir: PathBuf,
    /// The configuration file in it.
    pub config_file: PathBuf,
    /// The data directory; final only in what loading returns, because the file may move it.
    pub data_dir: PathBuf,
}

/// Resolves the places: the flag, then `ZEROCLAW_CONFIG_DIR`, then `.zeroclaw` in the home directory.
pub fn resolve_paths(flag: Option<&Path>, env: &Env) -> Result<Paths, ConfigError> {
    let chosen = flag.or_else(|| env.get("ZEROCLAW_CONFIG_DIR").map(Path::new));
    let config_dir = match (chosen, env.home()) {
        (Some(chosen), _) if !chosen.as_os_str().is_empty() => expand_home(chosen, env),
        (None, Some(home)) => Path::new(home).join(".zeroclaw"),
        (Some(_), _) | (None, None) => return Err(ConfigError::NoConfigDir),
    };
    let config_file = config_dir.join("config.toml");
    let data_dir = data_dir_from_env(env).unwrap_or_else(|| config_dir.join("data"));
    Ok(Paths { config_dir, config_file, data_dir })
}

/// Returns the data directory that the environment names, the older variable last.
pub(crate) fn data_dir_from_env(env: &Env) -> Option<PathBuf> {
    ["ZEROCLAW_DATA_DIR", "ZEROCLAW_WORKSPACE"]
        .into_iter()
        .find_map(|name| env.get(name))
        .map(|text| expand_home(Path::new(text), env))
}

/// Replaces a leading `~`, because editors hand variables and arguments over without a shell.
pub(crate) fn expand_home(path: &Path, env: &Env) -> PathBuf {
    match (path.strip_prefix("~"), env.home()) {
        (Ok(rest), Some(home)) if rest.as_os_str().is_empty() => PathBuf::from(home),
        (Ok(rest), Some(home)) => Path::new(home).join(rest),
        (Ok(_) | Err(_), _) => path.to_path_buf(),
    }
}
