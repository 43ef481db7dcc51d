//! A configuration directory of its own for each test, and an environment that is a value.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zeroclaw_config::{ConfigError, Env, Loaded, Paths, load, resolve_paths};

pub(crate) struct Home {
    root: TempDir,
}

impl Home {
    pub(crate) fn empty() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn with(content: &str) -> Self {
        let home = Self::empty();
        fs::create_dir(home.dir()).unwrap();
        fs::write(home.file(), content).unwrap();
        home
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.root.path().join(".zeroclaw")
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir().join("config.toml")
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    pub(crate) fn env(&self, variables: &[(&str, &str)]) -> Env {
        let home = ("HOME", self.root.path().to_str().unwrap());
        [home].into_iter().chain(variables.iter().copied()).collect()
    }

    pub(crate) fn paths(&self) -> Paths {
        resolve_paths(None, &self.env(&[])).unwrap()
    }

    pub(crate) fn load(&self, variables: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
        let env = self.env(variables);
        load(&resolve_paths(None, &env)?, &env)
    }

    /// The message of the error, with the directory of the test cut out.
    pub(crate) fn message(&self, error: &ConfigError) -> String {
        error.to_string().replace(&format!("{}/", self.dir().display()), "")
    }
}
