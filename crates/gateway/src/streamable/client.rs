//! One client over streamable HTTP: what it posts goes to its connection in order, what the connection says goes to the
//! streams it reads. It lives from `initialize` until it is deleted, falls silent, does not read, or may not stay.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{sleep_until, timeout},
};
use zeroclaw_acp_transport::{Connection, Outbox, OutboxReader};

use super::streams::Streams;
use crate::{
    Gateway,
    auth::Identity,
    link::{self, Over},
    metrics::Metrics,
};

/// Messages that were taken and not yet handed over. The next one waits with its request; their bytes are bounded by
/// [`Client::room`].
const INBOX: usize = 16;

/// The unit in which bodies are counted: a semaphore counts no further than 2^29 on small machines.
const KIB: usize = 1024;

/// What a request brought.
#[derive(Debug)]
pub(super) enum Input {
    /// A message, and the room it takes.
    Message(Bytes, OwnedSemaphorePermit),
    /// The client is done.
    End,
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: String,
    identity: Identity,
    pub(super) streams: Arc<Streams>,
    pub(super) inbox: mpsc::Sender<Input>,
    /// KiB of bodies that may be in memory at once: the largest message twice, so that one can be read while the one
    /// before it is worked off.
    room: Arc<Semaphore>,
    room_kib: usize,
}

impl Client {
    /// Waits for the room that a body of this size takes. `None`: it is too large, or the client is gone.
    pub(super) async fn make_room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(KIB).min(self.room_kib)).ok()?;
        Arc::clone(&self.room).acquire_many_owned(kib.max(1)).await.ok()
    }
}

/// The clients that are there, by the ids of their connections.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<HashMap<String, Arc<Client>>>);

impl Clients {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client with this id, for whoever it belongs to: to others it does not exist.
    pub(super) fn find(&self, id: &str, identity: &Identity) -> Option<Arc<Client>> {
        self.lock().get(id).filter(|client| client.identity == *identity).cloned()
    }

    fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Lets a new client in; `slot` is its place among all.
    pub(super) fn enter(
        &self,
        gateway: &Arc<Gateway>,
        identity: Identity,
        agent: Option<String>,
        slot: OwnedSemaphorePermit,
    ) -> Arc<Client> {
        let limits = gateway.settings().limits;
        let (inbox, inputs) = mpsc::channel(INBOX);
        let room_kib = (2 * limits.max_line).div_ceil(KIB).min(Semaphore::MAX_PERMITS);
        let client = Arc::new(Client {
            id: gateway.new_id(),
            identity,
            streams: Arc::default(),
            inbox,
            room: Arc::new(Semaphore::new(room_kib)),
            room_kib,
        });
        let (outbox, reader) = Outbox::new(limits.outbox_high);
        let connection = gateway.acceptor().connect(outbox.clone(), agent);
        self.lock().insert(client.id.clone(), Arc::clone(&client));
        let parts = Parts { outbox, reader, connection, inputs, slot };
        tokio::spawn(serve(Arc::clone(gateway), Arc::clone(&client), parts));
        client
    }
}

/// What the task of a client owns.
struct Parts {
    outbox: Outbox,
    reader: OutboxReader,
    connection: Box<dyn Connection>,
    inputs: mpsc::Receiver<Input>,
    slot: OwnedSemaphorePermit,
}

async fn serve(gateway: Arc<Gateway>, client: Arc<Client>, parts: Parts) {
    let Parts { outbox, mut reader, mut connection, mut inputs, slot } = parts;
    let (settings, metrics) = (gateway.settings(), gateway.metrics());
    link::begin(&gateway, &client.identity, &client.id);
    let high = settings.limits.outbox_high;
    let streams = &client.streams;
    let over = tokio::select! {
        over = hand_over(&mut inputs, connection.as_mut(), &outbox, metrics) => over,
        over = distribute(&mut reader, streams, high, settings.periods.stall, metrics) => over,
        over = link::ended(&gateway, &client.identity) => over,
        over = silent(streams, settings.periods.dead) => over,
    };
    gateway.clients().forget(&client.id);
    link::end(metrics, over, &client.id);
    // Before anything that takes time: whoever waits for this client to read goes on.
    drop(reader);
    drop(inputs);
    streams.close(matches!(over, Over::Revoked));
    connection.end().await;
    drop(slot);
}

/// Hands every message to the connection, in the order they were taken in.
async fn hand_over(
    inputs: &mut mpsc::Receiver<Input>,
    connection: &mut dyn Connection,
    outbox: &Outbox,
    metrics: &Metrics,
) -> Over {
    while let Some(input) = inputs.recv().await {
        let Input::Message(text, room) = input else { return Over::Left };
        // A client that does not read its answers is not listened to any further.
        outbox.answerable().await;
        metrics.messages_in.one();
        metrics.bytes_in.add(text.len() as u64);
        link::hand_over(connection, &text).await;
        drop(room);
    }
    Over::Left
}

/// Puts every message on its stream; when more than `high` bytes wait there, the rest stays where it is.
async fn distribute(
    reader: &mut OutboxReader,
    streams: &Streams,
    high: usize,
    stall: Duration,
    metrics: &Metrics,
) -> Over {
    let mut batch = Vec::new();
    while reader.take(&mut batch).await {
        let mut count = 0;
        for line in batch.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            streams.put(line);
            count += 1;
        }
        metrics.messages_out.add(count);
        metrics.bytes_out.add(batch.len() as u64);
        while streams.progress().0 > high {
            if let Err(over) = progressing(streams, stall).await {
                return over;
            }
        }
    }
    Over::Ending
}

/// Waits until something more was read.
async fn progressing(streams: &Streams, stall: Duration) -> Result<(), Over> {
    let (_, before) = streams.progress();
    match timeout(stall, streams.taken.notified()).await {
        Ok(()) => Ok(()),
        Err(_) if streams.progress().1 == before => Err(Over::Stalled),
        Err(_) => Ok(()),
    }
}

/// Resolves when the client neither reads nor asks for too long: nothing else tells that it is gone.
async fn silent(streams: &Streams, dead: Duration) -> Over {
    loop {
        match streams.quiet_since() {
            None => streams.changed.notified().await,
            Some(since) => {
                tokio::select! {
                    () = sleep_until(since + dead) => {
                        if streams.quiet_since() == Some(since) {
                            return Over::Dead;
                        }
                    }
                    () = streams.changed.notified() => {}
                }
            }
        }
    }
}
