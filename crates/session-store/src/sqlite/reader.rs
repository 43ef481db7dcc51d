//! The reading half: one task that owns one read-only connection.
//!
//! With a write-ahead log a reader never waits for the writer, so a replay does not hold up a running turn.

use std::collections::HashSet;
use std::sync::Arc;

use futures::TryStreamExt;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, Row};
use tokio::sync::{mpsc, oneshot};

use super::codec::{
    self, StoredSession, path_bytes, read_approval, read_event, read_message, read_session, read_turn, store_error,
};
use super::patience::{Patience, Since};
use crate::approval::{ApprovalQuery, ApprovalRecord};
use crate::error::StoreError;
use crate::record::{EventRecord, ListQuery, MessageRecord, SessionRecord, TurnRecord};
use crate::store::MAX_PAGE_BYTES;

/// Reads that may wait; beyond it callers wait for room.
pub(super) const QUEUE: usize = 256;

/// The most events in one page and sessions in one list, whatever the caller asks for.
const MAX_PAGE_ROWS: u32 = 100_000;
const MAX_LIST_ROWS: u32 = 1_000;

/// The events that a page reserves room for before it knows how many there are.
const PAGE_RESERVE: usize = 1_024;

/// The sessions that are remembered as damaged; beyond it all are forgotten, and told about once more.
const MAX_TOLD: usize = 1_024;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What can be read.
pub(super) enum Read {
    Session(Arc<str>, Reply<Option<StoredSession>>),
    Events { id: Arc<str>, after_seq: u64, limit: u32, reply: Reply<Vec<EventRecord>> },
    Messages(Arc<str>, Reply<Vec<MessageRecord>>),
    Turns(Arc<str>, Reply<Vec<TurnRecord>>),
    List(ListQuery, Reply<Vec<SessionRecord>>),
    Approvals(ApprovalQuery, Reply<Vec<ApprovalRecord>>),
    Close(oneshot::Sender<()>),
}

/// The columns of a session, its last event and its last turn, in the order that `codec::read_session` expects.
macro_rules! select_sessions {
    ($prompt:literal, $rest:literal) => {
        concat!(
            "SELECT s.id, s.workspace, s.agent, s.title, s.created_at_ms, s.last_activity_ms,
                s.additional_directories, s.config,
                (SELECT seq FROM events WHERE session = s.key ORDER BY seq DESC LIMIT 1),
                t.owner, t.turn, t.state, ",
            $prompt,
            ", t.stop_reason, t.started_at_ms, t.ended_at_ms, t.last_seq
            FROM sessions AS s LEFT JOIN turns AS t
                ON t.session = s.key AND t.turn = (SELECT MAX(turn) FROM turns WHERE session = s.key) ",
            $rest
        )
    };
}

const SESSION: &str = select_sessions!("t.prompt", "WHERE s.id = ?1");

const LIST: &str = select_sessions!(
    "x''",
    "WHERE s.last_activity_ms <= ?1 AND (s.last_activity_ms < ?1 OR s.id > ?2)
    ORDER BY s.last_activity_ms DESC, s.id LIMIT ?3"
);

const LIST_WORKSPACE: &str = select_sessions!(
    "x''",
    "WHERE s.workspace = ?4 AND s.last_activity_ms <= ?1 AND (s.last_activity_ms < ?1 OR s.id > ?2)
    ORDER BY s.last_activity_ms DESC, s.id LIMIT ?3"
);

const EVENTS: &str = "SELECT seq, kind, turn, payload FROM events
    WHERE session = (SELECT key FROM sessions WHERE id = ?1) AND seq > ?2 ORDER BY seq LIMIT ?3";

const MESSAGES: &str = "SELECT position, turn, payload FROM messages
    WHERE session = (SELECT key FROM sessions WHERE id = ?1) ORDER BY position";

const TURNS: &str = "SELECT turn, state, prompt, stop_reason, started_at_ms, ended_at_ms, last_seq FROM turns
    WHERE session = (SELECT key FROM sessions WHERE id = ?1) ORDER BY turn";

/// A read, and when it began to wait.
pub(super) struct Asked {
    pub(super) read: Read,
    pub(super) since: Since,
}

/// Answers reads until it is closed or the store is dropped.
pub(super) async fn run(mut connection: SqliteConnection, mut reads: mpsc::Receiver<Asked>, patience: Patience) {
    let mut closed = None;
    let mut damaged = Damaged::default();
    while let Some(Asked { read, since }) = reads.recv().await {
        let lost = patience.is_lost(since);
        match read {
            Read::Session(id, reply) => {
                answer(&patience, lost, reply, session(&mut connection, &id)).await;
            }
            Read::Events { id, after_seq, limit, reply } => {
                let page = events(&mut connection, &mut damaged, &id, after_seq, limit);
                answer(&patience, lost, reply, page).await;
            }
            Read::Messages(id, reply) => {
                answer(&patience, lost, reply, rows(&mut connection, MESSAGES, &id, read_message)).await;
            }
            Read::Turns(id, reply) => {
                let turns = rows(&mut connection, TURNS, &id, |row| read_turn(row, 0));
                answer(&patience, lost, reply, turns).await;
            }
            Read::List(query, reply) => {
                answer(&patience, lost, reply, list(&mut connection, query)).await;
            }
            Read::Approvals(query, reply) => {
                answer(&patience, lost, reply, approvals(&mut connection, query)).await;
            }
            Read::Close(reply) => {
                closed = Some(reply);
                break;
            }
        }
    }
    reads.close();
    if let Err(error) = connection.close().await {
        tracing::debug!(event = "reader_close_failed", %error);
    }
    if let Some(reply) = closed {
        let _ = reply.send(());
    }
}

/// Reads and answers, or answers that the lock is taken when that was found out while the call waited.
async fn answer<T>(
    patience: &Patience,
    lost: bool,
    reply: Reply<T>,
    read: impl Future<Output = Result<T, StoreError>>,
) {
    let result = if lost { Err(StoreError::Busy) } else { read.await };
    if !lost && matches!(result, Err(StoreError::Busy)) {
        patience.lose();
    }
    // A caller that no longer waits has dropped its receiver; then the answer has nowhere to go, and that is all.
    let _ = reply.send(result);
}

async fn session(connection: &mut SqliteConnection, id: &str) -> Result<Option<StoredSession>, StoreError> {
    sqlx::query(SESSION)
        .bind(id)
        .fetch_optional(connection)
        .await
        .map_err(store_error)?
        .map(|row| read_session(&row))
        .transpose()
}

/// One page, without the events that are damaged.
async fn events(
    connection: &mut SqliteConnection,
    damaged: &mut Damaged,
    id: &Arc<str>,
    after_seq: u64,
    limit: u32,
) -> Result<Vec<EventRecord>, StoreError> {
    let limit = limit.min(MAX_PAGE_ROWS);
    let reserve = usize::try_from(limit).map_or(PAGE_RESERVE, |limit| limit.min(PAGE_RESERVE));
    let mut page = Vec::with_capacity(reserve);
    let mut after_seq = after_seq;
    loop {
        let Ok(after) = codec::to_column(after_seq) else {
            // No event has a number that the column cannot hold.
            return Ok(page);
        };
        let mut stream = sqlx::query(EVENTS).bind(&**id).bind(after).bind(i64::from(limit)).fetch(&mut *connection);
        let (mut rows, mut bytes) = (0_u32, 0_usize);
        while let Some(row) = stream.try_next().await.map_err(store_error)? {
            let event = read_event(&row)?;
            rows = rows.saturating_add(1);
            after_seq = event.seq;
            if !codec::is_event(&event.payload) {
                damaged.tell(id, event.seq);
                continue;
            }
            bytes = bytes.saturating_add(event.payload.len());
            if bytes > MAX_PAGE_BYTES && !page.is_empty() {
                break;
            }
            page.push(event);
        }
        // An empty page means the end of the log, so one with nothing but damage is followed by the next.
        if !page.is_empty() || rows == 0 || rows < limit {
            return Ok(page);
        }
    }
}

/// The sessions whose damage has been told: it is met again with every replay.
#[derive(Default)]
struct Damaged(HashSet<Arc<str>>);

impl Damaged {
    fn tell(&mut self, id: &Arc<str>, seq: u64) {
        if self.0.contains(id) {
            return;
        }
        if self.0.len() >= MAX_TOLD {
            self.0.clear();
        }
        self.0.insert(Arc::clone(id));
        tracing::warn!(event = "store_event_damaged", session = %id, seq);
    }
}

async fn rows<T>(
    connection: &mut SqliteConnection,
    statement: &'static str,
    id: &str,
    read: impl Fn(&SqliteRow) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut stream = sqlx::query(statement).bind(id).fetch(connection);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await.map_err(store_error)? {
        rows.push(read(&row)?);
    }
    Ok(rows)
}

async fn list(connection: &mut SqliteConnection, query: ListQuery) -> Result<Vec<SessionRecord>, StoreError> {
    let (time, id) = match &query.before {
        Some(cursor) => (cursor.last_activity_ms, &*cursor.id),
        // No id sorts before the empty text, so this is the place before every session.
        None => (i64::MAX, ""),
    };
    let limit = i64::from(query.limit.min(MAX_LIST_ROWS));
    let statement = match &query.workspace {
        Some(workspace) => sqlx::query(LIST_WORKSPACE).bind(time).bind(id).bind(limit).bind(path_bytes(workspace)?),
        None => sqlx::query(LIST).bind(time).bind(id).bind(limit),
    };
    let mut stream = statement.fetch(connection);
    let mut sessions = Vec::new();
    while let Some(row) = stream.try_next().await.map_err(store_error)? {
        sessions.push(read_session(&row)?.record);
    }
    Ok(sessions)
}

async fn approvals(connection: &mut SqliteConnection, query: ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError> {
    // A file of version 1 that is only looked at has none.
    let table = sqlx::query("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'approvals'");
    if table.fetch_optional(&mut *connection).await.map_err(store_error)?.is_none() {
        return Ok(Vec::new());
    }
    let workspace = query.workspace.as_deref().map(path_bytes).transpose()?;
    let mut stream = sqlx::query(
        "SELECT id, agent, workspace, tool, rule, ruling, session, created_at_ms FROM approvals
        WHERE (?1 IS NULL OR agent = ?1) AND (?2 IS NULL OR workspace = ?2) ORDER BY id",
    )
    .bind(query.agent)
    .bind(workspace)
    .fetch(connection);
    let mut approvals = Vec::new();
    while let Some(row) = stream.try_next().await.map_err(store_error)? {
        approvals.push(read_approval(&row)?);
    }
    Ok(approvals)
}

/// Checks that the file is ours and returns its schema version, `None` when it is not ours.
pub(super) async fn identify(
    connection: &mut SqliteConnection,
    application_id: u32,
) -> Result<Option<u32>, sqlx::Error> {
    let row = sqlx::query(
        "SELECT a.application_id, v.user_version FROM pragma_application_id AS a, pragma_user_version AS v",
    )
    .fetch_one(&mut *connection)
    .await?;
    let found: i64 = row.try_get(0)?;
    let version: i64 = row.try_get(1)?;
    // A negative version is nothing that this store writes: the file is not ours, whatever its mark.
    Ok((found == i64::from(application_id)).then(|| u32::try_from(version).ok()).flatten())
}
