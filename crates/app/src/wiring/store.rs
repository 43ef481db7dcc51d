//! Opens the session store, or says once why sessions will not outlive the process.

use std::{sync::Arc, time::Duration};

use zeroclaw_config::{Loaded, SyncMode};
use zeroclaw_session_store::{self as session_store, SessionStore, SqliteOptions, SqliteStore};

/// How long a writer waits for another process's write.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The store, or `None` when it cannot be opened: then sessions live in memory, and the reason is on stderr, once.
pub(super) async fn open(loaded: &Loaded) -> Option<Arc<dyn SessionStore>> {
    let options = SqliteOptions {
        path: loaded.paths.data_dir.join("sessions").join("acp-sessions.db"),
        sync: match loaded.config.store.sync {
            SyncMode::Off => session_store::SyncMode::Off,
            SyncMode::Turn => session_store::SyncMode::Turn,
            SyncMode::Always => session_store::SyncMode::Always,
        },
        instance: super::ambient::session_id(),
        busy_timeout: BUSY_TIMEOUT,
    };
    match SqliteStore::open(options).await {
        Ok(store) => Some(Arc::new(store)),
        Err(error) => {
            tracing::error!(%error, "sessions will not be saved");
            None
        }
    }
}
