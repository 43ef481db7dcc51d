//! The plain values that go into and come out of a store.
//!
//! Every `Debug` here shows the size of a payload and never its content, because these values end up in logs.

use std::fmt::{self, Debug, Formatter};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

/// What the payload of an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The JSON bytes of one ACP `update` object, as sent to clients.
    Update,
    /// The JSON bytes of the `user_message_chunk` update object of a prompt.
    UserPrompt,
    /// An inbound event of a client: its JSON object.
    ClientEvent,
}

/// One entry of the event log of a session.
#[derive(Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// The place in the log of its session: dense, the first is 1.
    pub seq: u64,
    /// What the payload is.
    pub kind: EventKind,
    /// The turn the event belongs to; `None` outside of any turn.
    pub turn: Option<u64>,
    /// A JSON object on one line, kept exactly. Nothing else comes back from a store on a disk.
    pub payload: Bytes,
}

/// One message of the conversation as the model saw it.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageRecord {
    /// The place in the conversation: strictly increasing, not necessarily dense.
    pub position: u64,
    /// The turn that added the message.
    pub turn: u64,
    /// The JSON of the message, kept exactly.
    pub payload: Bytes,
}

/// The state of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnState {
    /// Begun and not ended.
    Running,
    /// Ended by itself.
    Completed,
    /// Ended by a client.
    Cancelled,
    /// Ended by an error.
    Failed,
    /// Its process died, or released the session, before the turn ended.
    Interrupted,
}

/// One turn of a session.
#[derive(Clone, PartialEq, Eq)]
pub struct TurnRecord {
    /// The number of the turn, strictly increasing in its session.
    pub turn: u64,
    /// The state.
    pub state: TurnState,
    /// The `params.prompt` JSON as it came.
    pub prompt: Bytes,
    /// The stop reason told to the client; `None` before the end and when there was none.
    pub stop_reason: Option<String>,
    /// When the turn began.
    pub started_at_ms: i64,
    /// When the turn ended; `None` until `end_turn` was called.
    pub ended_at_ms: Option<i64>,
    /// The last event of the session at the end of the turn; `None` until `end_turn` was called.
    /// An interrupted turn with `None` has not been repaired yet.
    pub last_seq: Option<u64>,
}

/// A session to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// The id, unique in the store.
    pub id: Arc<str>,
    /// The working directory.
    pub workspace: PathBuf,
    /// The name of the agent.
    pub agent: String,
    /// When it was created; also its first activity.
    pub created_at_ms: i64,
    /// Further roots the client gave.
    pub additional_directories: Vec<PathBuf>,
}

/// A stored session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// The id.
    pub id: Arc<str>,
    /// The working directory.
    pub workspace: PathBuf,
    /// The name of the agent.
    pub agent: String,
    /// The title; `None` when there is none.
    pub title: Option<String>,
    /// When it was created.
    pub created_at_ms: i64,
    /// When a turn last began or ended, or what a patch set.
    pub last_activity_ms: i64,
    /// Further roots the client gave.
    pub additional_directories: Vec<PathBuf>,
    /// The `seq` of the last event; 0 when there is none.
    pub last_seq: u64,
    /// The last turn; `None` before the first.
    pub last_turn: Option<TurnRecord>,
    /// Opaque JSON of mode and model; `None` until a patch sets it.
    pub config: Option<Bytes>,
}

/// What is stored together in one transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events, following on from the last stored one.
    pub events: Vec<EventRecord>,
    /// Messages, with positions above the last stored one.
    pub messages: Vec<MessageRecord>,
}

/// The beginning of a turn.
#[derive(Clone, PartialEq, Eq)]
pub struct TurnStart {
    /// The number, above that of every earlier turn.
    pub turn: u64,
    /// The `params.prompt` JSON as it came.
    pub prompt: Bytes,
    /// When it began.
    pub started_at_ms: i64,
    /// What to store with it.
    pub batch: Batch,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// The number of the turn.
    pub turn: u64,
    /// How it ended; `Running` is refused.
    pub state: TurnState,
    /// The stop reason told to the client.
    pub stop_reason: Option<String>,
    /// When it ended.
    pub ended_at_ms: i64,
    /// What to store with it.
    pub batch: Batch,
}

/// Changes to a session; `None` leaves a field as it is.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SessionPatch {
    /// The new title; `Some(None)` removes it.
    pub title: Option<Option<String>>,
    /// The new configuration.
    pub config: Option<Bytes>,
    /// The new time of the last activity.
    pub last_activity_ms: Option<i64>,
    /// The new further roots.
    pub additional_directories: Option<Vec<PathBuf>>,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only sessions of this working directory, compared exactly; `None` for all.
    pub workspace: Option<PathBuf>,
    /// Only sessions after this one in the order of the list; `None` from the beginning.
    pub before: Option<ListCursor>,
    /// At most so many.
    pub limit: u32,
}

/// A place in the list of sessions: the last one of the page before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCursor {
    /// Its last activity.
    pub last_activity_ms: i64,
    /// Its id.
    pub id: Arc<str>,
}

impl Batch {
    /// The bytes of all payloads.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        let events: usize = self.events.iter().map(|event| event.payload.len()).sum();
        let messages: usize = self.messages.iter().map(|message| message.payload.len()).sum();
        events.saturating_add(messages)
    }
}

impl Debug for EventRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecord")
            .field("seq", &self.seq)
            .field("kind", &self.kind)
            .field("turn", &self.turn)
            .field("payload_len", &self.payload.len())
            .finish()
    }
}

impl Debug for MessageRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRecord")
            .field("position", &self.position)
            .field("turn", &self.turn)
            .field("payload_len", &self.payload.len())
            .finish()
    }
}

impl Debug for TurnRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnRecord")
            .field("turn", &self.turn)
            .field("state", &self.state)
            .field("prompt_len", &self.prompt.len())
            .field("stop_reason", &self.stop_reason)
            .field("started_at_ms", &self.started_at_ms)
            .field("ended_at_ms", &self.ended_at_ms)
            .field("last_seq", &self.last_seq)
            .finish()
    }
}

impl Debug for SessionRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // The title is made from the first prompt, so it is content like the payloads.
        f.debug_struct("SessionRecord")
            .field("id", &self.id)
            .field("agent", &self.agent)
            .field("title_len", &self.title.as_ref().map(String::len))
            .field("created_at_ms", &self.created_at_ms)
            .field("last_activity_ms", &self.last_activity_ms)
            .field("last_seq", &self.last_seq)
            .field("last_turn", &self.last_turn)
            .field("config_len", &self.config.as_ref().map(Bytes::len))
            .finish_non_exhaustive()
    }
}

impl Debug for TurnStart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnStart")
            .field("turn", &self.turn)
            .field("prompt_len", &self.prompt.len())
            .field("started_at_ms", &self.started_at_ms)
            .field("batch", &self.batch)
            .finish()
    }
}

impl Debug for SessionPatch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPatch")
            .field("title", &self.title.is_some())
            .field("config_len", &self.config.as_ref().map(Bytes::len))
            .field("last_activity_ms", &self.last_activity_ms)
            .field("additional_directories", &self.additional_directories.as_ref().map(Vec::len))
            .finish()
    }
}
