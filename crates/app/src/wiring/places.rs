//! Makes the directories of a configuration absolute, so that nothing below depends on the process's own directory.

use anyhow::Context as _;
use zeroclaw_config::Loaded;

/// Resolves the configuration and data directories against the working directory.
///
/// # Errors
/// The working directory is gone and a path needs it.
pub fn absolute_places(mut loaded: Loaded) -> anyhow::Result<Loaded> {
    for path in [&mut loaded.paths.config_dir, &mut loaded.paths.config_file, &mut loaded.paths.data_dir] {
        *path = std::path::absolute(&*path).context("the working directory is gone")?;
    }
    Ok(loaded)
}
