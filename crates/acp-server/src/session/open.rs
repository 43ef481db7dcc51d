//! Opening sessions: new ones, and stored ones that come back.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64},
};

use zeroclaw_acp_protocol::{
    RequestId,
    params::{LoadSessionParams, NewSessionParams, SystemPrompt},
};
use zeroclaw_runtime::{
    model::Message,
    turn::{Gauge, Remembered},
};
use zeroclaw_session_store::{NewSession, SessionRecord, SessionStore, TurnRecord};

use bytes::Bytes;

use super::{
    Pump, copy,
    live::LiveSession,
    mcp::McpPlan,
    repair::repair,
    stored,
    turn::{FORGOTTEN, Presented, TurnScene},
};
use crate::{
    agents::AgentEntry,
    choices::Chosen,
    client::Client,
    error::CallError,
    server::{Shared, Slot},
    workspace::{Request, Workspace},
};

/// How a session comes to live. The request is answered when it does, or when it cannot.
#[derive(Debug)]
pub(crate) enum Opening {
    /// `session/new`
    New { client: Arc<Client>, id: RequestId, params: NewSessionParams, entry: Arc<AgentEntry>, slot: Slot },
    /// `session/fork`
    Fork { client: Arc<Client>, id: RequestId, params: LoadSessionParams, slot: Slot },
    /// `session/load` (with `replay`) and `session/resume`, once the session it was before has ended.
    Stored {
        client: Arc<Client>,
        id: RequestId,
        params: LoadSessionParams,
        replay: bool,
        after: Option<Arc<LiveSession>>,
    },
}

impl Opening {
    pub(super) fn client(&self) -> &Arc<Client> {
        match self {
            Self::New { client, .. } | Self::Fork { client, .. } | Self::Stored { client, .. } => client,
        }
    }

    pub(super) fn after(&self) -> Option<&Arc<LiveSession>> {
        match self {
            Self::Stored { after, .. } => after.as_ref(),
            Self::New { .. } | Self::Fork { .. } => None,
        }
    }

    pub(super) fn request(&self) -> &RequestId {
        match self {
            Self::New { id, .. } | Self::Fork { id, .. } | Self::Stored { id, .. } => id,
        }
    }
}

/// A session that is open.
pub(super) struct Opened {
    pub(super) scene: Arc<TurnScene>,
    pub(super) standing: Standing,
    pub(super) slot: Slot,
    /// Whoever is to be shown the session: client, request, whether with its log. A new session is answered already.
    pub(super) welcome: Option<(Arc<Client>, RequestId, bool)>,
}

/// Where a session stands when its actor starts.
#[derive(Debug, Default)]
pub(super) struct Standing {
    pub(super) history: Vec<Arc<Message>>,
    pub(super) next_turn: u64,
    pub(super) has_title: bool,
    /// Position of the next message in the store.
    pub(super) position: u64,
    /// What was chosen, as it was stored.
    config: Option<Bytes>,
}

/// Opens a session.
pub(super) async fn open(server: &Arc<Shared>, id: &Arc<str>, opening: Opening) -> Result<Opened, CallError> {
    match opening {
        Opening::New { client, id: request, params, entry, slot } => {
            let scene = create(server, id, &client, entry, params).await?;
            scene.present(&client, &request, Presented::New);
            let standing = Standing { next_turn: 1, ..Standing::default() };
            Ok(Opened { scene, standing, slot, welcome: None })
        }
        Opening::Fork { client, id: request, mut params, slot } => {
            copy::fork(server, &params.session_id, id).await?;
            params.session_id = id.to_string();
            let restored = restore(server, &client, params).await;
            if restored.is_err() {
                // Nobody knows the id of a copy that cannot be opened.
                copy::discard(server, id).await;
            }
            let (scene, standing) = restored?;
            scene.present(&client, &request, Presented::New);
            Ok(Opened { scene, standing, slot, welcome: None })
        }
        Opening::Stored { client, id: request, params, replay, after } => {
            if let Some(before) = after {
                before.ended().await;
            }
            let slot = server.reserve()?;
            let (scene, standing) = restore(server, &client, params).await?;
            Ok(Opened { scene, standing, slot, welcome: Some((client, request, replay)) })
        }
    }
}

/// Makes a session for `session/new`.
async fn create(
    server: &Arc<Shared>,
    id: &Arc<str>,
    client: &Arc<Client>,
    entry: Arc<AgentEntry>,
    params: NewSessionParams,
) -> Result<Arc<TurnScene>, CallError> {
    let mcp = McpPlan::new(&entry, params.mcp_servers, server.settings.client_mcp)?;
    let workspace = open_workspace(server, &entry, params.cwd, params.additional_directories).await?;
    if let Some(store) = server.log() {
        let new = NewSession {
            id: Arc::clone(id),
            workspace: workspace.cwd.clone(),
            agent: entry.alias.clone(),
            created_at_ms: server.now_ms(),
            additional_directories: workspace.additional.clone(),
        };
        store.create_session(new).await?;
    }
    let pump = Pump::start(Arc::clone(id), &workspace.cwd, server.log().cloned(), 0, &server.meters);
    pump.attach(client);
    let means = Means { workspace, mcp, system_prompt: params.system_prompt };
    Ok(scene(server, id, pump, entry, means, &Standing::default()))
}

/// Brings a stored session back for `session/load` and `session/resume`.
async fn restore(
    server: &Arc<Shared>,
    client: &Arc<Client>,
    params: LoadSessionParams,
) -> Result<(Arc<TurnScene>, Standing), CallError> {
    let id = params.session_id.as_str();
    let store = server.durable().ok_or_else(|| CallError::session_not_found(id))?;
    let known = store.session(id).await?.ok_or_else(|| CallError::session_not_found(id))?;
    let entry = server.agents().choose_stored(&known.agent)?;
    let mcp = McpPlan::new(&entry, params.mcp_servers, server.settings.client_mcp)?;
    let stored_cwd = known.workspace.to_string_lossy().into_owned();
    let additional = params.additional_directories.unwrap_or_else(|| {
        known.additional_directories.iter().map(|path| path.to_string_lossy().into_owned()).collect()
    });
    if let Some(cwd) = &params.cwd {
        same_directory(server, &entry, cwd, &known).await?;
    }
    if tokio::fs::metadata(&known.workspace).await.map_or(true, |found| !found.is_dir()) {
        return Err(CallError::params("the directory of this session does not exist any more"));
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
    let pump =
        Pump::start(Arc::clone(&record.id), &workspace.cwd, Some(Arc::clone(store)), record.last_seq, &server.meters);
    pump.attach(client);
    let means = Means { workspace, mcp, system_prompt: params.system_prompt };
    let scene = scene(server, &record.id, pump, entry, means, &standing);
    Ok((scene, standing))
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
    let refused: Vec<u64> = turns.iter().filter(|turn| is_left_out(turn)).map(|turn| turn.turn).collect();
    let messages = store.messages(id).await?;
    let position = messages.last().map_or(0, |message| message.position + 1);
    // What the model declined is not shown to it again (ACP v1, stop reason `refusal`).
    let history = stored::conversation(id, &messages, |turn| refused.contains(&turn));
    let standing = Standing {
        history,
        next_turn: record.last_turn.as_ref().map_or(1, |turn| turn.turn + 1),
        has_title: record.title.is_some(),
        position,
        config: record.config.clone(),
    };
    Ok((record, standing))
}

/// Whether a turn is no part of the conversation that the model sees.
fn is_left_out(turn: &TurnRecord) -> bool {
    matches!(turn.stop_reason.as_deref(), Some("refusal" | FORGOTTEN))
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
        allowed: server.settings.allowed_cwd_roots.clone(),
        process_dir: server.settings.process_dir.clone(),
    };
    let entry = Arc::clone(entry);
    tokio::task::spawn_blocking(move || Workspace::open(&request, &entry))
        .await
        .unwrap_or_else(|_| Err(CallError::params("the directory cannot be opened")))
}

/// What a session works with, as its request said.
struct Means {
    workspace: Workspace,
    mcp: McpPlan,
    system_prompt: Option<SystemPrompt>,
}

fn scene(
    server: &Arc<Shared>,
    id: &Arc<str>,
    pump: Arc<Pump>,
    entry: Arc<AgentEntry>,
    means: Means,
    standing: &Standing,
) -> Arc<TurnScene> {
    let Means { workspace, mcp, system_prompt } = means;
    let mcp = mcp.start(&entry, &workspace);
    let (chosen, spent) = Chosen::restore(&entry, standing.config.as_deref());
    Arc::new(TurnScene {
        id: Arc::clone(id),
        server: Arc::clone(server),
        pump,
        agents: Mutex::new(server.agents()),
        entry: Mutex::new(entry),
        workspace,
        mcp,
        chosen: Mutex::new(chosen),
        system_prompt,
        spent: Mutex::new(spent),
        remembered: Mutex::new(Remembered::new()),
        open_calls: Mutex::default(),
        gauge: Gauge::default(),
        position: AtomicU64::new(standing.position),
        titled: AtomicBool::new(standing.has_title),
    })
}
