//! What every tool does first: reads its arguments, finds paths, and leaves the async thread for file work.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use zeroclaw_policy::{RootedPath, Roots};

use crate::{
    jail::{Files, JailError},
    model::ToolSpec,
    tool::{ToolContext, ToolFailure, show},
};

/// Reads a call's arguments. Unknown members are ignored: models invent them, and they change nothing.
pub(super) fn parse<T: DeserializeOwned>(arguments: &Value) -> Result<T, ToolFailure> {
    T::deserialize(arguments).map_err(|error| ToolFailure::Arguments(error.to_string()))
}

/// Finds where a path lies.
pub(super) fn locate(context: &ToolContext, path: &str) -> Result<RootedPath, ToolFailure> {
    context.jail.roots().locate(path).map_err(|error| ToolFailure::Arguments(error.to_string()))
}

/// Reads files on a thread that may block, under the rules of the moment.
/// A cancelled turn does not wait for a file system that hangs.
pub(super) async fn reading<T, F>(context: &ToolContext, work: F) -> Result<T, ToolFailure>
where
    T: Send + 'static,
    F: FnOnce(&Files<'_>) -> Result<T, ToolFailure> + Send + 'static,
{
    tokio::select! {
        result = writing(context, work) => result,
        () = context.cancel.cancelled() => Err(ToolFailure::Cancelled),
    }
}

/// Changes files on a thread that may block, under the rules of the moment.
/// It is waited for in any case: nobody is told that a change did not happen while it still may.
pub(super) async fn writing<T, F>(context: &ToolContext, work: F) -> Result<T, ToolFailure>
where
    T: Send + 'static,
    F: FnOnce(&Files<'_>) -> Result<T, ToolFailure> + Send + 'static,
{
    let (jail, rules) = (context.jail.clone(), context.rules.clone());
    match tokio::task::spawn_blocking(move || work(&jail.files(&rules))).await {
        Ok(result) => result,
        Err(_) => Err(ToolFailure::Failed("the file work broke off".to_owned())),
    }
}

impl From<JailError> for ToolFailure {
    fn from(error: JailError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The failure of a tool that was handed a permit for something else.
pub(crate) fn wrong_permit() -> ToolFailure {
    ToolFailure::Failed("the permit is for another kind of action".to_owned())
}

/// A path as titles show it: relative to the working directory where it lies inside.
pub(super) fn shown_path(roots: &Roots, path: &Path) -> String {
    let base = roots.iter().next().map(zeroclaw_policy::Root::path);
    let short = base.and_then(|base| path.strip_prefix(base).ok()).unwrap_or(path);
    if short.as_os_str().is_empty() { ".".to_owned() } else { show::line(&short.display().to_string()) }
}

/// A tool's description with an object schema.
pub(super) fn spec(name: &str, description: &str, properties: Value, required: &[&str]) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: json!({ "type": "object", "properties": properties, "required": required }),
    }
}
