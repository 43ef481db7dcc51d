//! The handle of a live session: what connections hold. Nothing here waits: inputs go into a bounded mailbox or come back,
//! and what must never be lost (cancel, the end) needs no mailbox at all.

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use zeroclaw_acp_protocol::{
    RequestId,
    params::{OptionValue, SessionEventParams},
};

use super::attach::LastTurn;
use crate::{
    client::{Client, lock},
    error::CallError,
    server::Slot,
};

/// Inputs that wait for the actor: room for every request that one client may have in flight, and as many events.
/// The actor takes each at once, so this only smooths bursts and a slow opening; what does not fit is refused.
const MAILBOX: usize = 2048;

/// Clients of one session, at most: every update is written once for each.
pub(super) const MAX_CLIENTS: usize = 16;

/// Several editors drop what comes for a session before they have handled the answer to `session/new`.
const COMMANDS_DELAY: Duration = Duration::from_millis(75);

/// Something for a session to do.
#[derive(Debug)]
pub(crate) enum Input {
    Prompt {
        client: Arc<Client>,
        id: RequestId,
        raw: Box<RawValue>,
        cancel: CancellationToken,
    },
    Close {
        client: Arc<Client>,
        id: RequestId,
    },
    Stop {
        client: Arc<Client>,
        id: RequestId,
    },
    Event {
        client: Arc<Client>,
        id: Option<RequestId>,
        params: SessionEventParams,
        raw: Box<RawValue>,
    },
    /// Replays the log to the client (load), then answers; or only answers (resume).
    Welcome {
        client: Arc<Client>,
        id: RequestId,
        replay: bool,
    },
    /// Sends what the client has not seen, then answers.
    Attach {
        client: Arc<Client>,
        id: RequestId,
        after: u64,
    },
    SetMode {
        client: Arc<Client>,
        id: RequestId,
        mode: String,
    },
    SetOption {
        client: Arc<Client>,
        id: RequestId,
        option: String,
        value: OptionValue,
    },
    /// A replay failed before any client had the session: it does not stay.
    Unshown {
        client: Arc<Client>,
        id: RequestId,
        error: CallError,
    },
    Commands,
}

impl Input {
    /// The request that it answers, if it does.
    pub(super) fn request(&self) -> Option<(&Arc<Client>, &RequestId)> {
        match self {
            Self::Prompt { client, id, .. }
            | Self::Close { client, id }
            | Self::Stop { client, id }
            | Self::Event { client, id: Some(id), .. }
            | Self::Welcome { client, id, .. }
            | Self::Attach { client, id, .. }
            | Self::SetMode { client, id, .. }
            | Self::SetOption { client, id, .. }
            | Self::Unshown { client, id, .. } => Some((client, id)),
            Self::Event { id: None, .. } | Self::Commands => None,
        }
    }
}

/// Why an input was not taken.
#[derive(Debug)]
pub(crate) enum Untaken {
    /// The session has ended or is ending.
    Ended(Input),
    /// Too many inputs wait.
    Full(Input),
}

/// A prompt that is not answered yet.
#[derive(Debug)]
struct Pending {
    id: RequestId,
    client: Arc<Client>,
    cancel: CancellationToken,
}

/// A session in the table of live sessions; it may still be opening.
#[derive(Debug)]
pub(crate) struct LiveSession {
    pub(crate) id: Arc<str>,
    inputs: mpsc::Sender<Input>,
    holders: Mutex<Vec<Arc<Client>>>,
    /// When a client left or a turn ended last.
    touched: Mutex<Instant>,
    /// Woken when clients come or go.
    changed: Notify,
    /// The place among the active sessions, once the session is open. Given back at its end, or passed on when it is given up.
    pub(super) slot: Mutex<Option<Slot>>,
    /// The last prompt and how it ended.
    pub(super) last_turn: Mutex<Option<LastTurn>>,
    /// Prompts that were handed over and are not answered, in order. A cancel reaches all that came before it.
    prompts: Mutex<Vec<Pending>>,
    /// A close, stop or delete was handed over: what opens the session again waits for its end.
    closing: AtomicBool,
    /// The session under the same id that this one waits for.
    before: Weak<LiveSession>,
    /// Cancelled when the session is to end.
    pub(super) shutdown: CancellationToken,
    /// Cancelled when it has ended: stored, released, out of the table.
    pub(super) ended: CancellationToken,
}

impl LiveSession {
    pub(super) fn new(
        id: Arc<str>,
        client: Arc<Client>,
        before: Option<&Arc<Self>>,
    ) -> (Arc<Self>, mpsc::Receiver<Input>) {
        let (inputs, receiver) = mpsc::channel(MAILBOX);
        let live = Self {
            // A copy of its own: its place in the memory tells this session from a later one with the same id.
            id: Arc::from(&*id),
            inputs,
            holders: Mutex::new(vec![client]),
            touched: Mutex::new(Instant::now()),
            changed: Notify::new(),
            slot: Mutex::default(),
            last_turn: Mutex::default(),
            prompts: Mutex::default(),
            closing: AtomicBool::new(false),
            before: before.map(Arc::downgrade).unwrap_or_default(),
            shutdown: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        (Arc::new(live), receiver)
    }

    /// Takes note that the session is to end by what was handed over.
    pub(crate) fn closes(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Whether it is, or has ended.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire) || self.inputs.is_closed()
    }

    /// Hands over an input, or gives it back.
    pub(crate) fn send(&self, input: Input) -> Result<(), Untaken> {
        if let Some((client, id)) = input.request() {
            client.hand_to(id, &self.id);
        }
        self.inputs.try_send(input).map_err(|error| match error {
            mpsc::error::TrySendError::Full(input) => Untaken::Full(input),
            mpsc::error::TrySendError::Closed(input) => Untaken::Ended(input),
        })
    }

    /// Hands over a prompt; a cancel that comes later reaches it wherever it is by then.
    pub(crate) fn prompt(&self, client: Arc<Client>, id: RequestId, raw: Box<RawValue>) -> Result<(), Untaken> {
        let cancel = CancellationToken::new();
        let pending = Pending { id: id.clone(), client: Arc::clone(&client), cancel: cancel.clone() };
        lock(&self.prompts).push(pending);
        self.send(Input::Prompt { client: Arc::clone(&client), id: id.clone(), raw, cancel })
            .inspect_err(|_| self.answered(&client, &id))
    }

    /// It has panicked: everybody who waits for an answer of it gets one.
    pub(super) fn fail_all(&self, opener: Option<&Arc<Client>>) {
        let mut clients = lock(&self.holders).clone();
        clients.extend(opener.cloned());
        clients.extend(lock(&self.prompts).drain(..).map(|pending| pending.client));
        for client in clients {
            client.fail_all_of(&self.id);
        }
    }

    /// Takes note that a prompt is answered.
    pub(super) fn answered(&self, client: &Arc<Client>, id: &RequestId) {
        lock(&self.prompts).retain(|pending| pending.id != *id || !Arc::ptr_eq(&pending.client, client));
    }

    /// Cancels every prompt that was handed over until now. Answers to open questions that come behind the cancel do not count.
    pub(crate) fn cancel(&self) {
        for client in lock(&self.holders).iter() {
            client.void_questions(&self.id);
        }
        for pending in lock(&self.prompts).iter() {
            pending.cancel.cancel();
        }
        if let Some(before) = self.before.upgrade() {
            before.cancel();
        }
    }

    /// Cancels the prompt of one request.
    pub(crate) fn cancel_prompt(&self, client: &Arc<Client>, id: &RequestId) {
        for pending in lock(&self.prompts).iter() {
            if pending.id == *id && Arc::ptr_eq(&pending.client, client) {
                pending.cancel.cancel();
            }
        }
    }

    /// Asks the session to end: what runs is cancelled, what was handed over is still answered.
    pub(crate) fn shut_down(&self) {
        self.cancel();
        self.shutdown.cancel();
        if let Some(before) = self.before.upgrade() {
            before.shut_down();
        }
    }

    /// Resolves when the session has ended.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// How many prompts are not answered yet.
    pub(crate) fn open_prompts(&self) -> usize {
        lock(&self.prompts).len()
    }

    pub(crate) fn is_held_by(&self, client: &Arc<Client>) -> bool {
        lock(&self.holders).iter().any(|known| Arc::ptr_eq(known, client) && !known.is_detached())
    }

    /// Whether the client held it until it went.
    pub(crate) fn knows(&self, client: &Arc<Client>) -> bool {
        lock(&self.holders).iter().any(|known| Arc::ptr_eq(known, client))
    }

    /// Whether any client is there.
    pub(crate) fn has_holder(&self) -> bool {
        lock(&self.holders).iter().any(|known| !known.is_detached())
    }

    /// Whether it may be given up for another session: it is open, and nobody is there for it and no prompt.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.has_holder() && self.open_prompts() == 0 && !self.is_closing() && lock(&self.slot).is_some()
    }

    pub(crate) fn last_touched(&self) -> Instant {
        *lock(&self.touched)
    }

    /// Gives the session up and its place away, unless somebody has come for it.
    pub(crate) fn give_up(&self) -> Option<Slot> {
        // Held, so that nobody comes for it meanwhile.
        let holders = lock(&self.holders);
        if holders.iter().any(|known| !known.is_detached()) || self.open_prompts() > 0 || self.is_closing() {
            return None;
        }
        let slot = lock(&self.slot).take()?;
        self.closes();
        drop(holders);
        tracing::info!(session = %self.id, "a session without a client is closed for a new one");
        self.shut_down();
        Some(slot)
    }

    /// Gives the session to one more client.
    pub(crate) fn hold(&self, client: &Arc<Client>) -> Result<(), CallError> {
        let mut holders = lock(&self.holders);
        if self.is_closing() {
            return Err(CallError::session_not_found(&self.id));
        }
        if !holders.iter().any(|known| Arc::ptr_eq(known, client)) {
            if holders.len() >= MAX_CLIENTS {
                return Err(CallError::params(format!("at most {MAX_CLIENTS} clients share a session")));
            }
            holders.push(Arc::clone(client));
        }
        drop(holders);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Takes the session from a client.
    pub(crate) fn release(&self, client: &Arc<Client>) {
        lock(&self.holders).retain(|known| !Arc::ptr_eq(known, client));
        self.touch();
    }

    /// Begins to count anew how long nobody has used the session.
    pub(super) fn touch(&self) {
        *lock(&self.touched) = Instant::now();
        self.changed.notify_waiters();
    }

    /// Resolves when there has been no client for this long.
    pub(super) async fn alone_for(&self, limit: Duration) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.has_holder() {
                changed.await;
                continue;
            }
            let end = lock(&self.touched).checked_add(limit);
            tokio::select! {
                () = &mut changed => {}
                () = async {
                    match end {
                        Some(end) => tokio::time::sleep_until(end).await,
                        None => std::future::pending().await,
                    }
                } => return,
            }
        }
    }

    /// Sends the slash commands after a short while.
    pub(super) fn announce_later(self: &Arc<Self>) {
        let session = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(COMMANDS_DELAY).await;
            // A session that ended meanwhile has nothing to announce.
            drop(session.send(Input::Commands));
        });
    }
}
