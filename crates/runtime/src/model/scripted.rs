//! Replays model calls from a JSON Lines file, for demonstrations, benchmarks and tests of clients.
//!
//! The file is read on the first call, not before. The position belongs to the provider: all sessions that share one
//! share its script, each model call taking the next piece. It refuses to guess: an unknown line, an unknown member
//! or a last call without an end is an error that names file and line. The format is in `docs/scripted-model.md`.

mod parse;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use futures::StreamExt;
use tokio::{sync::OnceCell, task::spawn_blocking};

use crate::model::{
    ModelError, ModelInfo, ModelProvider, ModelRequest, ModelStream,
    replay::{Replay, Step},
};

use parse::Script;

/// What a scripted provider needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptedConfig {
    /// The alias in the configuration.
    pub alias: String,
    /// The script. A relative path is taken from the process's directory, so callers give an absolute one.
    pub script: PathBuf,
    /// What the model is called; `scripted` when absent.
    pub model: Option<String>,
    /// The window it claims to have; 128,000 tokens when absent.
    pub context_window: Option<u64>,
}

/// A provider that answers from a script.
#[derive(Debug)]
pub struct ScriptedProvider {
    info: ModelInfo,
    path: PathBuf,
    script: OnceCell<Arc<Script>>,
    position: Mutex<Position>,
}

/// Where the next model call begins.
#[derive(Debug, Default)]
struct Position {
    /// Index of the next call in the script.
    next: usize,
    /// Calls answered since the start, for ids that do not repeat when the script does.
    answered: u64,
}

impl ScriptedProvider {
    /// Makes the provider; the file is not touched yet.
    #[must_use]
    pub fn new(config: ScriptedConfig) -> Self {
        let info = ModelInfo {
            name: config.model.unwrap_or_else(|| "scripted".to_owned()),
            source: format!("scripted.{}", config.alias),
            context_window: config.context_window.unwrap_or(DEFAULT_CONTEXT_WINDOW),
        };
        Self { info, path: config.script, script: OnceCell::new(), position: Mutex::default() }
    }

    async fn script(&self) -> Result<&Arc<Script>, ModelError> {
        self.script
            .get_or_try_init(|| async {
                let path = self.path.clone();
                let read = spawn_blocking(move || load(&path)).await;
                read.map_err(|_| ModelError::Config("reading the model script was interrupted".to_owned()))?
                    .map(Arc::new)
            })
            .await
    }

    /// Takes the next call of the script and the number of the call.
    fn take(&self, script: &Script) -> Option<(Arc<[Step]>, u64)> {
        // A poisoned lock is harmless: the two numbers are always valid.
        let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        if position.next >= script.calls.len() && script.repeats {
            position.next = 0;
        }
        let call = script.calls.get(position.next)?;
        position.next += 1;
        position.answered += 1;
        Some((Arc::clone(call), position.answered))
    }
}

#[async_trait]
impl ModelProvider for ScriptedProvider {
    fn writes_summaries(&self) -> bool {
        false
    }

    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn stream(&self, _request: ModelRequest) -> Result<ModelStream, ModelError> {
        let script = self.script().await?;
        let Some((steps, number)) = self.take(script) else {
            return Err(ModelError::Config(format!(
                "the model script {} is used up after {} calls; end it with {{\"type\":\"loop\"}} to start again",
                self.path.display(),
                script.calls.len()
            )));
        };
        // What fails before its first event fails like a vendor that refuses the request.
        if let Some(Step::Fail(error)) = steps.first() {
            return Err(error.clone());
        }
        Ok(Replay::new(steps, format!("scripted_{number}")).boxed())
    }
}

fn load(path: &Path) -> Result<Script, ModelError> {
    let failed = |problem: &dyn std::fmt::Display| {
        ModelError::Config(format!("cannot read the model script {}: {problem}", path.display()))
    };
    let file = File::open(path).map_err(|error| failed(&error))?;
    if !file.metadata().map_err(|error| failed(&error))?.is_file() {
        return Err(failed(&"not a file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SCRIPT_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > MAX_SCRIPT_BYTES {
        return Err(failed(&format_args!("larger than {} MiB", MAX_SCRIPT_BYTES >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|_| failed(&"not UTF-8"))?;
    parse::parse(&text).map_err(|error| {
        ModelError::Config(format!("the model script {}:{}: {}", path.display(), error.line, error.problem))
    })
}

/// A script is held in memory whole. Beyond this it is refused; `repeat` makes long answers from short files.
const MAX_SCRIPT_BYTES: u64 = 64 << 20;
/// What most current models have at least.
const DEFAULT_CONTEXT_WINDOW: u64 = 128_000;
