//! Which "always" answer counts for an action, and what one would cover.
//! An answer about a directory refuses to count for what a link leads to from there.

use std::{
    path::{Path, PathBuf},
    sync::PoisonError,
};

use zeroclaw_policy::{Action, Grant, RootedPath};

use crate::{
    tool::show,
    turn::{Standing, scene::Scene},
};

/// The "always" answer that counts for an action.
pub(super) async fn standing(scene: &Scene<'_>, tool: &str, action: &Action) -> Option<Standing> {
    let said = {
        let remembered = scene.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.said(tool, action)?
    };
    match said.standing {
        Standing::Reject => Some(Standing::Reject),
        // The operator wants each call of this tool asked about, whatever the person said before.
        Standing::Allow if scene.always_asks(tool) => None,
        Standing::Allow if said.about_directory && !lies_where_named(action).await => None,
        Standing::Allow => Some(Standing::Allow),
    }
}

/// What "always" would cover, in one line.
pub(super) fn covers(scene: &Scene<'_>, grant: &Grant) -> String {
    let here = scene.jail.roots().iter().next().map_or(Path::new(""), |root| root.path());
    grant.describe(here, |text| show::inline_code(&show::title(text)))
}

/// Whether no link leads from the name of the file to another place.
async fn lies_where_named(action: &Action) -> bool {
    let path = match action {
        Action::Read { path } | Action::Write { path, .. } => RootedPath::absolute(path).to_owned(),
        Action::Run { .. } | Action::Call { .. } | Action::Converse => return true,
    };
    tokio::task::spawn_blocking(move || is_its_own_place(path)).await.unwrap_or(false)
}

/// Compares the path with where it leads, as far as it exists.
fn is_its_own_place(mut path: PathBuf) -> bool {
    loop {
        // A link that leads nowhere exists, and cannot be followed.
        match std::fs::symlink_metadata(&path) {
            Ok(_) => return path.canonicalize().is_ok_and(|place| place == path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => return false,
        }
        if !path.pop() {
            return false;
        }
    }
}
