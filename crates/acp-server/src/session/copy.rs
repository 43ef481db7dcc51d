//! Stored sessions as things: a copy with an id of its own, and the removal of one with all that belongs to it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use serde::Deserialize;
use zeroclaw_policy::{Root, RootKind};
use zeroclaw_runtime::{
    jail::{Jail, JailError},
    model::Message,
};
use zeroclaw_session_store::{
    Batch, ListCursor, ListQuery, NewSession, SessionPatch, SessionStore, StoreError, TurnEnd, TurnStart,
};

use crate::{choices::without_spent, error::CallError, prompt::file_uri, server::Shared};

/// Events read at once.
const PAGE: u32 = 512;

/// How the stored form of a prompt's block begins.
const PROMPT_PART: &[u8] = br#"{"sessionUpdate":"user_message_chunk""#;

/// Copies the conversation of `source` into a new session `id`, which nobody holds then.
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
    let config = known.config.and_then(|config| without_spent(&config)).map(Bytes::from);
    let patch = SessionPatch { title: Some(known.title), config, ..SessionPatch::default() };
    let result = match copied {
        Ok(()) => match store.update_session(id, patch).await {
            Ok(()) => store.release(id).await,
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        // Half a copy would look like the conversation and is not.
        discard(server, id).await;
        return Err(error.into());
    }
    Ok(())
}

/// Removes a copy that no client has got.
pub(super) async fn discard(server: &Arc<Shared>, id: &str) {
    let Some(store) = server.durable() else { return };
    if let Err(error) = store.delete(id).await {
        tracing::warn!(%error, "a copy could not be removed");
    }
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
        // A turn that nobody has ended is not ended here: giving the copy up interrupts it, and opening it puts it to rest.
        if turn.last_seq.is_none() {
            continue;
        }
        let end = TurnEnd {
            turn: turn.turn,
            state: turn.state,
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
    let mut names = stored_by(store, id, &uploads).await?;
    let mut before = None;
    while !names.is_empty() {
        let query = ListQuery { workspace: Some(known.workspace.clone()), before, limit: PAGE };
        let others = store.list(query).await?;
        let Some(last) = others.last() else { break };
        before = Some(ListCursor { last_activity_ms: last.last_activity_ms, id: Arc::clone(&last.id) });
        for other in others.iter().filter(|other| *other.id != *id) {
            for name in spoken_of(store, &other.id).await? {
                names.remove(&name);
            }
        }
    }
    match store.delete(id).await {
        Ok(true) => {}
        Ok(false) => return Ok(()),
        Err(StoreError::HeldElsewhere) => {
            return Err(CallError::params("the session is active in another process; it is closed there first"));
        }
        Err(error) => return Err(error.into()),
    }
    let names: Vec<PathBuf> = names.into_iter().collect();
    let workspace = known.workspace;
    // By handle: a link that a command put in the place of the directory must not lead to somebody else's files.
    let removed = tokio::task::spawn_blocking(move || {
        Jail::open(vec![Root::new(workspace, RootKind::Session)]).map(|jail| jail.remove_from("uploads", &names))
    });
    let failed = match removed.await {
        Ok(Ok(failed)) => failed,
        // Without its directory there is nothing to remove.
        Ok(Err(JailError::NotFound { .. })) | Err(_) => Vec::new(),
        Ok(Err(error)) => vec![error],
    };
    for error in failed {
        tracing::warn!(%error, "an attachment of a deleted session could not be removed");
    }
    Ok(())
}

/// A block of a stored prompt that may stand for an attachment.
#[derive(Deserialize)]
struct PromptBlock {
    content: BlockLink,
}

#[derive(Deserialize)]
struct BlockLink {
    uri: String,
}

/// The names of the attachments that the server stored for the prompts of a session: `<sha256>[.<ext>]` in its `uploads`.
/// What is merely spoken of is the user's own: a project may have such a directory, with such names, itself.
async fn stored_by(store: &Arc<dyn SessionStore>, id: &str, uploads: &Path) -> Result<BTreeSet<PathBuf>, StoreError> {
    // A link would lead out of the directory; nothing was stored through one.
    if tokio::fs::symlink_metadata(uploads).await.map_or(true, |metadata| !metadata.is_dir()) {
        return Ok(BTreeSet::new());
    }
    let mut told = BTreeSet::new();
    for message in store.messages(id).await? {
        let Ok(Message::User { text }) = serde_json::from_slice(&message.payload) else { continue };
        for line in text.lines() {
            let image = line.strip_prefix("[IMAGE:").and_then(|rest| rest.strip_suffix(']'));
            let document =
                line.strip_prefix("[Document: ").and_then(|rest| rest.rsplit_once("] ")).map(|(_, path)| path);
            let name = image.or(document).and_then(|path| Path::new(path).strip_prefix(uploads).ok());
            told.extend(name.and_then(Path::to_str).filter(|name| is_digest(name)).map(PathBuf::from));
        }
    }
    let mut linked = BTreeSet::new();
    let mut after = 0;
    while !told.is_empty() {
        let events = store.events(id, after, PAGE).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        for event in events.iter().filter(|event| event.payload.starts_with(PROMPT_PART)) {
            let Ok(block) = serde_json::from_slice::<PromptBlock>(&event.payload) else { continue };
            linked.insert(block.content.uri);
        }
    }
    told.retain(|name| linked.contains(&file_uri(&uploads.join(name))));
    Ok(told)
}

fn is_digest(name: &str) -> bool {
    let digest = name.split('.').next().unwrap_or_default();
    digest.len() == 64
        && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
}

/// The names of attachments that anything in a session's log speaks of.
async fn spoken_of(store: &Arc<dyn SessionStore>, id: &str) -> Result<BTreeSet<PathBuf>, StoreError> {
    let mut names = BTreeSet::new();
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
                if is_digest(name) {
                    names.insert(PathBuf::from(name));
                }
            }
        }
    }
}
