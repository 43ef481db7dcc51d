//! Loads the configuration: the file, the environment over it, then the checks that need the whole.

use std::path::PathBuf;

use crate::credentials;
use crate::env::Env;
use crate::error::ConfigError;
use crate::file;
use crate::layer;
use crate::paths::Paths;
use crate::settings::{Settings, Source};
use crate::types::Config;

/// Holds a loaded configuration and what there is to say about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The configuration with every layer applied.
    pub config: Config,
    /// The places, with the data directory as it finally is.
    pub paths: Paths,
    /// Sections, keys and variables that are not ours and were left alone, for one line at debug level.
    pub ignored: Vec<String>,
    /// Whether there was a file; without one everything is default and environment.
    pub file_found: bool,
    /// Why the stored keys cannot be read; they are as good as absent then, and the file stays as it is.
    pub keys_problem: Option<String>,
}

impl Loaded {
    /// Returns the agent's own directory: the configured one, else `agents/<alias>/workspace` in the data directory.
    pub fn agent_workspace(&self, alias: &str) -> PathBuf {
        let configured = self.config.agents.get(alias).and_then(|agent| agent.workspace.clone());
        configured.unwrap_or_else(|| self.paths.data_dir.join("agents").join(alias).join("workspace"))
    }
}

/// Loads the configuration. No file is fine; a file that cannot be read or understood is not.
pub fn load(paths: &Paths, env: &Env) -> Result<Loaded, ConfigError> {
    let mut loaded = load_layers(paths, env)?.loaded;
    match credentials::read(&loaded.paths) {
        Ok(keys) => {
            for (reference, key) in keys {
                // What is configured wins, as whoever wrote it can see it.
                if let Some(model) = loaded.config.models.get_mut(&reference).filter(|model| model.api_key.is_none()) {
                    model.api_key = Some(key);
                    model.key_is_stored = true;
                }
            }
        }
        // A damaged file must not keep the program from starting.
        Err(error) => loaded.keys_problem = Some(error.to_string()),
    }
    Ok(loaded)
}

/// Keeps the layers beside the result, for those who tell where a value came from.
pub(crate) struct Layers {
    pub(crate) source: Source,
    pub(crate) settings: Settings,
    pub(crate) loaded: Loaded,
}

pub(crate) fn load_layers(paths: &Paths, env: &Env) -> Result<Layers, ConfigError> {
    let text = file::read(&paths.config_file)?;
    let file_found = text.is_some();
    layers(paths, env, text.unwrap_or_default(), file_found)
}

/// Layers the environment over a text that stands for the file.
pub(crate) fn layers(paths: &Paths, env: &Env, text: String, file_found: bool) -> Result<Layers, ConfigError> {
    let source = Source { path: paths.config_file.clone(), text };
    let mut settings = if file_found { file::collect(&source)? } else { Settings::default() };
    layer::apply_env(&mut settings, &source, env)?;
    let config = layer::build(&settings, &source, env);
    layer::check_references(&settings, &config, &source)?;
    let data_dir = config.data_dir.clone().unwrap_or_else(|| paths.data_dir.clone());
    let ignored = std::mem::take(&mut settings.ignored);
    let paths = Paths { data_dir, ..paths.clone() };
    Ok(Layers { source, settings, loaded: Loaded { config, paths, ignored, file_found, keys_problem: None } })
}
