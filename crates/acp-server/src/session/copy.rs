//! Stored sessions as things: a copy with an id of its own, and the removal of one with all that belongs to it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use zeroclaw_session_store::{
    Batch, ListQuery, NewSession, SessionPatch, SessionStore, StoreError, TurnEnd, TurnStart, TurnState,
};

use crate::{error::CallError, server::Shared};

/// Events read at once.
const PAGE: u32 = 512;

/// Copies the conversation of `source` into a new session `id`, which this process then holds.
/// A turn that runs in the source meanwhile is copied as interrupted.
pub(super) async fn fork(server: &Arc<Shared>, source: &str, id: &Arc<str>) -> Result<(), CallError> {
    let store = server.durable().ok_or_else(|| CallError::session_not_found(source))?;
    let known = store.session(source).await?.ok_or_else(|| CallError::session_not_found(source))?;
    let new = NewSession {
        id: Arc::clone(id),
        workspace: known.workspace,
        agent: known.agent,
        created_at_ms: server.now_ms(),
        additional_directories: known.additional_directories,
    };
    store.create_session(new).await?;
    let copied = copy(store, source, id).await;
    let patch = SessionPatch { title: Some(known.title), config: known.config, ..SessionPatch::default() };
    let result = match copied {
        Ok(()) => store.update_session(id, patch).await,
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        // Half a copy would look like the conversation and is not.
        if let Err(error) = store.delete(id).await {
            tracing::warn!(%error, "half a copy could not be removed");
        }
        return Err(error.into());
    }
    Ok(())
}

async fn copy(store: &Arc<dyn SessionStore>, source: &str, id: &str) -> Result<(), StoreError> {
    let turns = store.turns(source).await?;
    let mut messages = store.messages(source).await?;
    for turn in &turns {
        let start = TurnStart {
            turn: turn.turn,
            prompt: turn.prompt.clone(),
            started_at_ms: turn.started_at_ms,
            batch: Batch::default(),
        };
        store.begin_turn(id, start).await?;
        let (own, later) = messages.into_iter().partition(|message| message.turn == turn.turn);
        messages = later;
        store.append(id, Batch { events: Vec::new(), messages: own }).await?;
        let state = if turn.state == TurnState::Running { TurnState::Interrupted } else { turn.state };
        let end = TurnEnd {
            turn: turn.turn,
            state,
            stop_reason: turn.stop_reason.clone(),
            ended_at_ms: turn.ended_at_ms.unwrap_or(turn.started_at_ms),
            batch: Batch::default(),
        };
        store.end_turn(id, end).await?;
    }
    let mut after = 0;
    loop {
        let events = store.events(source, after, PAGE).await?;
        let Some(last) = events.last() else { return Ok(()) };
        after = last.seq;
        store.append(id, Batch { events, messages: Vec::new() }).await?;
    }
}

/// Removes a session, and the attachments that no other session of its directory speaks of.
pub(crate) async fn delete(server: &Arc<Shared>, id: &str) -> Result<(), CallError> {
    let Some(store) = server.durable() else { return Ok(()) };
    let Some(known) = store.session(id).await? else { return Ok(()) };
    let uploads = known.workspace.join("uploads");
    let mut names = attachments(store, id, &uploads).await?;
    if !names.is_empty() {
        let query = ListQuery { workspace: Some(known.workspace.clone()), before: None, limit: 1000 };
        for other in store.list(query).await? {
            if *other.id != *id {
                for name in attachments(store, &other.id, &uploads).await? {
                    names.remove(&name);
                }
            }
        }
    }
    if !store.delete(id).await? {
        return Ok(());
    }
    for name in names {
        let path = uploads.join(name);
        let removed = tokio::fs::remove_file(&path).await;
        if let Err(error) = removed
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "an attachment of a deleted session could not be removed");
        }
    }
    Ok(())
}

/// The names of the attachments that a session's log speaks of: `<sha256>[.<ext>]` in its `uploads`.
async fn attachments(store: &Arc<dyn SessionStore>, id: &str, uploads: &Path) -> Result<BTreeSet<PathBuf>, StoreError> {
    let mut names = BTreeSet::new();
    // A link would lead out of the directory; nothing was stored through one.
    if tokio::fs::symlink_metadata(uploads).await.map_or(true, |metadata| !metadata.is_dir()) {
        return Ok(names);
    }
    let mut after = 0;
    loop {
        let events = store.events(id, after, PAGE).await?;
        let Some(last) = events.last() else { return Ok(names) };
        after = last.seq;
        for event in &events {
            let Ok(text) = std::str::from_utf8(&event.payload) else { continue };
            for rest in text.split("/uploads/").skip(1) {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
                let name = rest.get(..end).unwrap_or_default();
                let digest = name.split('.').next().unwrap_or_default();
                if digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    names.insert(PathBuf::from(name));
                }
            }
        }
    }
}
