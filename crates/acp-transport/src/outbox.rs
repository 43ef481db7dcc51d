//! What waits to be written to one client: a byte queue that any number of producers append whole messages to, in order.
//! Appending never blocks; past the high mark producers are told to wait, and those that must not wait (responses) need not.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// How many times the high mark may wait before no further request is taken. Updates stop at the mark itself, so only a
/// peer that sends requests and does not read the answers gets here; without it that peer could fill the memory.
const ANSWERABLE: usize = 16;

/// Whether a producer may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a full outbox is waited for with `drained`"]
pub enum Flow {
    /// There is room.
    Ready,
    /// Wait for [`Outbox::drained`] before appending more.
    Full,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Woken when there is something to read, or nothing will come any more.
    readable: Notify,
    /// Woken when the reader took what there was, or is gone.
    drained: Notify,
    high: usize,
}

#[derive(Debug, Default)]
struct State {
    pending: Vec<u8>,
    closed: bool,
    reader_gone: bool,
}

/// The producers' side. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<Shared>);

/// The consumer's side; there is one.
#[derive(Debug)]
pub struct OutboxReader(Arc<Shared>);

impl Outbox {
    /// Makes a queue that counts as full above `high` bytes.
    #[must_use]
    pub fn new(high: usize) -> (Self, OutboxReader) {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            readable: Notify::new(),
            drained: Notify::new(),
            high,
        });
        (Self(Arc::clone(&shared)), OutboxReader(shared))
    }

    /// Appends what `write` writes: whole messages, each with its terminator. Nothing is written once either side is closed.
    pub fn append(&self, write: impl FnOnce(&mut Vec<u8>)) -> Flow {
        let mut state = self.0.lock();
        if state.closed || state.reader_gone {
            return Flow::Ready;
        }
        let before = state.pending.len();
        let was_empty = before == 0;
        // Half a message would take the next one with it.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| write(&mut state.pending))) {
            state.pending.truncate(before);
            drop(state);
            resume_unwind(panic);
        }
        let full = state.pending.len() > self.0.high;
        let wake = was_empty && !state.pending.is_empty();
        drop(state);
        if wake {
            self.0.readable.notify_one();
        }
        if full { Flow::Full } else { Flow::Ready }
    }

    /// Whether producers that can wait should.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let state = self.0.lock();
        state.pending.len() > self.0.high && !state.closed && !state.reader_gone
    }

    /// Resolves when there is room again, or the reader is gone.
    pub async fn drained(&self) {
        self.at_most(self.0.high).await;
    }

    /// Resolves when answers may be caused again: what is appended without waiting has a limit too, and it is kept by
    /// whoever reads the peer's requests.
    pub async fn answerable(&self) {
        self.at_most(self.0.high.saturating_mul(ANSWERABLE)).await;
    }

    async fn at_most(&self, bytes: usize) {
        loop {
            let notified = self.0.drained.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let state = self.0.lock();
                if state.pending.len() <= bytes || state.closed || state.reader_gone {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Nothing is appended any more; the reader gets what is left and then the end.
    pub fn close(&self) {
        self.0.lock().closed = true;
        self.0.readable.notify_one();
        self.0.drained.notify_waiters();
    }

    /// Whether the peer is gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.lock().reader_gone
    }
}

impl OutboxReader {
    /// Waits for output and swaps it into `buffer`, whose old content is thrown away. False: there will be no more.
    pub async fn take(&mut self, buffer: &mut Vec<u8>) -> bool {
        buffer.clear();
        // One huge burst must not keep its memory for the rest of the connection.
        if buffer.capacity() > 4 * self.0.high {
            *buffer = Vec::new();
        }
        loop {
            {
                let mut state = self.0.lock();
                if !state.pending.is_empty() {
                    std::mem::swap(&mut state.pending, buffer);
                    drop(state);
                    self.0.drained.notify_waiters();
                    return true;
                }
                if state.closed {
                    return false;
                }
            }
            self.0.readable.notified().await;
        }
    }
}

impl Drop for OutboxReader {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.reader_gone = true;
        state.pending = Vec::new();
        drop(state);
        self.0.drained.notify_waiters();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A producer that panicked while writing left whole or partial bytes; going on is what keeps the other sessions alive.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Flow, Outbox};

    #[tokio::test]
    async fn appends_are_taken_together_and_in_order() {
        let (outbox, mut reader) = Outbox::new(100);
        assert_eq!(outbox.append(|buffer| buffer.extend_from_slice(b"a\n")), Flow::Ready);
        assert_eq!(outbox.append(|buffer| buffer.extend_from_slice(b"b\n")), Flow::Ready);
        let mut taken = Vec::new();
        assert!(reader.take(&mut taken).await);
        assert_eq!(taken, b"a\nb\n");
        assert_eq!(outbox.append(|buffer| buffer.extend_from_slice(b"c\n")), Flow::Ready);
        outbox.close();
        assert_eq!(outbox.append(|buffer| buffer.extend_from_slice(b"late\n")), Flow::Ready);
        assert!(reader.take(&mut taken).await);
        assert_eq!(taken, b"c\n");
        assert!(!reader.take(&mut taken).await);
    }

    // Half a message stood in front of the next one, and the client could read neither.
    #[tokio::test]
    async fn a_panic_while_a_message_is_written_leaves_nothing_of_it() {
        let (outbox, mut reader) = Outbox::new(100);
        assert_eq!(outbox.append(|buffer| buffer.extend_from_slice(b"a\n")), Flow::Ready);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            outbox.append(|buffer| {
                buffer.extend_from_slice(b"half");
                panic!("a panic that this test wants");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(outbox.append(|buffer| buffer.extend_from_slice(b"b\n")), Flow::Ready);
        let mut taken = Vec::new();
        assert!(reader.take(&mut taken).await);
        assert_eq!(taken, b"a\nb\n");
    }

    #[tokio::test]
    async fn a_full_queue_is_waited_for_until_it_is_taken() {
        let (outbox, mut reader) = Outbox::new(4);
        assert_eq!(outbox.append(|buffer| buffer.extend_from_slice(b"12345")), Flow::Full);
        let waiting = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.drained().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let mut taken = Vec::new();
        assert!(reader.take(&mut taken).await);
        waiting.await.expect("drained");
    }

    #[tokio::test]
    async fn a_reader_that_is_gone_holds_nobody_up() {
        let (outbox, reader) = Outbox::new(4);
        assert_eq!(outbox.append(|buffer| buffer.extend_from_slice(b"12345")), Flow::Full);
        let waiting = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.drained().await }
        });
        tokio::task::yield_now().await;
        drop(reader);
        waiting.await.expect("released");
        assert!(outbox.is_gone());
        assert_eq!(outbox.append(|buffer| buffer.extend_from_slice(b"x")), Flow::Ready);
    }
}
