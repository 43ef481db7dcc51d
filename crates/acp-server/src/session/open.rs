//! Opening sessions: new ones, and stored ones that come back.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64},
};

use zeroclaw_acp_protocol::params::{LoadSessionParams, NewSessionParams};
use zeroclaw_runtime::{model::Message, turn::Remembered};
use zeroclaw_session_store::{NewSession, SessionRecord, SessionStore};

use super::{Pump, actor, actor::LiveSession, repair::repair, turn::TurnScene};
use crate::{
    agents::AgentEntry,
    client::Client,
    error::CallError,
    server::Shared,
    workspace::{Request, Workspace},
};

/// Where a session stands when its actor starts.
#[derive(Debug, Default)]
pub(super) struct Standing {
    pub(super) history: Vec<Arc<Message>>,
    pub(super) next_turn: u64,
    pub(super) has_title: bool,
    /// Position of the next message in the store.
    pub(super) position: u64,
    /// A client knows the session already: it is new and not loaded.
    pub(super) welcomed: bool,
}

/// Makes a session for `session/new`.
pub(crate) async fn create(
    server: &Arc<Shared>,
    client: &Arc<Client>,
    connection_agent: Option<&str>,
    params: NewSessionParams,
) -> Result<Arc<LiveSession>, CallError> {
    let entry = server.agents.choose(params.agent.as_deref(), connection_agent)?;
    let slot = server.reserve()?;
    let workspace = open_workspace(server, &entry, params.cwd, params.additional_directories).await?;
    let id: Arc<str> = server.new_session_id().into();
    if let Some(store) = server.durable() {
        let new = NewSession {
            id: Arc::clone(&id),
            workspace: workspace.cwd.clone(),
            agent: entry.alias.clone(),
            created_at_ms: server.now_ms(),
            additional_directories: workspace.additional.clone(),
        };
        store.create_session(new).await?;
    }
    let pump = Pump::start(Arc::clone(&id), server.durable().cloned(), 0);
    pump.attach(Arc::clone(client));
    let scene = scene(server, &id, pump, entry, workspace, &Standing::default());
    Ok(actor::start(scene, Standing { next_turn: 1, welcomed: true, ..Standing::default() }, slot))
}

/// Brings a stored session back for `session/load` and `session/resume`.
pub(crate) async fn restore(
    server: &Arc<Shared>,
    client: &Arc<Client>,
    params: LoadSessionParams,
) -> Result<Arc<LiveSession>, CallError> {
    let id = params.session_id.as_str();
    let store = server.durable().ok_or_else(|| CallError::session_not_found(id))?;
    let known = store.session(id).await?.ok_or_else(|| CallError::session_not_found(id))?;
    let entry = server.agents.choose_stored(&known.agent)?;
    let slot = server.reserve()?;
    let stored_cwd = known.workspace.to_string_lossy().into_owned();
    let additional = params.additional_directories.unwrap_or_else(|| {
        known.additional_directories.iter().map(|path| path.to_string_lossy().into_owned()).collect()
    });
    if let Some(cwd) = &params.cwd {
        same_directory(server, &entry, cwd, &known).await?;
    }
    let workspace = open_workspace(server, &entry, Some(stored_cwd), additional).await?;
    store.claim(id).await.map_err(|error| CallError::from_claim(error, id))?;
    let restored = read(server, store, id).await;
    let (record, standing) = match restored {
        Ok(restored) => restored,
        Err(error) => {
            if let Err(error) = store.release(id).await {
                tracing::warn!(%error, "a session could not be released");
            }
            return Err(error);
        }
    };
    let pump = Pump::start(Arc::clone(&record.id), Some(Arc::clone(store)), record.last_seq);
    pump.attach(Arc::clone(client));
    let scene = scene(server, &record.id, pump, entry, workspace, &standing);
    Ok(actor::start(scene, standing, slot))
}

/// Reads what a claimed session needs, after repairing it.
async fn read(
    server: &Arc<Shared>,
    store: &Arc<dyn SessionStore>,
    id: &str,
) -> Result<(SessionRecord, Standing), CallError> {
    // Read again: claiming may have taken the session over from a dead process.
    let record = store.session(id).await?.ok_or_else(|| CallError::session_not_found(id))?;
    repair(store, &record, server.now_ms()).await?;
    let record = store.session(id).await?.ok_or_else(|| CallError::session_not_found(id))?;
    let turns = store.turns(id).await?;
    let refused: Vec<u64> =
        turns.iter().filter(|turn| turn.stop_reason.as_deref() == Some("refusal")).map(|turn| turn.turn).collect();
    let stored = store.messages(id).await?;
    let position = stored.last().map_or(0, |message| message.position + 1);
    let mut history = Vec::with_capacity(stored.len());
    // What the model declined is not shown to it again (ACP v1, stop reason `refusal`).
    for message in stored.iter().filter(|message| !refused.contains(&message.turn)) {
        match serde_json::from_slice::<Message>(&message.payload) {
            Ok(message) => history.push(Arc::new(message)),
            Err(error) => tracing::warn!(session = id, %error, "a stored message cannot be read and is left out"),
        }
    }
    let standing = Standing {
        history,
        next_turn: record.last_turn.as_ref().map_or(1, |turn| turn.turn + 1),
        has_title: record.title.is_some(),
        position,
        welcomed: false,
    };
    Ok((record, standing))
}

/// A `cwd` in a load must be the session's own: the conversation speaks of that directory's files.
async fn same_directory(
    server: &Arc<Shared>,
    entry: &Arc<AgentEntry>,
    cwd: &str,
    known: &SessionRecord,
) -> Result<(), CallError> {
    let given = open_workspace(server, entry, Some(cwd.to_owned()), Vec::new()).await?;
    // A placeholder means "wherever the session is".
    let placeholder = entry.workspace.canonicalize().is_ok_and(|own| own == given.cwd);
    if given.cwd == known.workspace || placeholder {
        Ok(())
    } else {
        Err(CallError::params("`cwd` is not the directory of this session"))
    }
}

async fn open_workspace(
    server: &Arc<Shared>,
    entry: &Arc<AgentEntry>,
    cwd: Option<String>,
    additional: Vec<String>,
) -> Result<Workspace, CallError> {
    let request = Request {
        cwd,
        additional,
        install_root: server.settings.install_root.clone(),
        process_dir: server.settings.process_dir.clone(),
    };
    let entry = Arc::clone(entry);
    tokio::task::spawn_blocking(move || Workspace::open(&request, &entry))
        .await
        .unwrap_or_else(|_| Err(CallError::params("the directory cannot be opened")))
}

fn scene(
    server: &Arc<Shared>,
    id: &Arc<str>,
    pump: Arc<Pump>,
    entry: Arc<AgentEntry>,
    workspace: Workspace,
    standing: &Standing,
) -> Arc<TurnScene> {
    Arc::new(TurnScene {
        id: Arc::clone(id),
        server: Arc::clone(server),
        pump,
        entry,
        workspace,
        remembered: Mutex::new(Remembered::new()),
        position: AtomicU64::new(standing.position),
        titled: AtomicBool::new(standing.has_title),
    })
}
