//! The stdio transport: the only place of the product that reads protocol from stdin and writes it to stdout.
//! Both are blocking files shared with whoever started the process, so each has a thread of its own and neither is switched
//! to non-blocking mode.

use std::{
    io::{self, Read, Write},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
};

use crate::{Connection, Limits, Line, LineDecoder, Outbox, OutboxReader};

/// Bytes read from stdin at once.
const READ_CHUNK: usize = 64 * 1024;

/// Chunks between the reading thread and the connection; with [`READ_CHUNK`] this bounds read-ahead to 256 KiB.
const READ_AHEAD: usize = 4;

/// How a served connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All output was written.
    Clean,
    /// The peer stopped reading; some output could not be written in time.
    OutputLost,
}

/// The standard streams of this process, for [`serve`]. Whoever takes them writes nothing else to them.
#[must_use]
pub fn standard() -> (io::Stdin, io::Stdout) {
    (io::stdin(), io::stdout())
}

/// Serves one connection over the given input and output until the input ends, the output cannot be written, or `stop`
/// resolves. Then the connection finishes and its output is written, both within `grace`.
///
/// # Errors
/// The operating system refuses a thread.
pub async fn serve<R, W>(
    input: R,
    output: W,
    limits: Limits,
    grace: Duration,
    connect: impl FnOnce(Outbox) -> Box<dyn Connection>,
    stop: impl Future<Output = ()>,
) -> io::Result<End>
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    let (outbox, reader) = Outbox::new(limits.outbox_high);
    let mut written = spawn_writer(output, reader)?;
    let (mut chunks, mut reading) = spawn_reader(input)?;
    let mut connection = connect(outbox.clone());
    tokio::pin!(stop);
    let mut decoder = LineDecoder::new(limits.max_line);
    let over = 'serving: loop {
        let chunk = tokio::select! {
            chunk = chunks.recv() => chunk,
            () = &mut stop => break Over::Stopped,
            // The writer ends by itself only when nobody can read any more.
            _ = &mut written => break Over::Unread,
        };
        let Some(chunk) = chunk else { break Over::Input };
        decoder.push(&chunk);
        loop {
            tokio::select! {
                biased;
                () = outbox.answerable() => {}
                () = &mut stop => break 'serving Over::Stopped,
                () = too_late(&mut reading, grace) => break 'serving Over::Held,
            }
            let Some(line) = decoder.next_line() else { break };
            let mut taken = std::pin::pin!(hand_over(connection.as_mut(), line));
            tokio::select! {
                biased;
                () = &mut taken => {}
                () = &mut stop => {
                    // A line that cannot be taken now will not be taken in time.
                    let _given_up = tokio::time::timeout(grace, taken).await;
                    break 'serving Over::Stopped;
                }
                () = too_late(&mut reading, grace) => break 'serving Over::Held,
            }
        }
    };
    // Half a line is a line only when the input has ended after it.
    if over == Over::Input
        && let Some(line) = decoder.finish()
    {
        let _given_up = tokio::time::timeout(grace, hand_over(connection.as_mut(), line)).await;
    }
    let finish = async {
        connection.end().await;
        outbox.close();
        over != Over::Unread && matches!(written.await, Ok(Ok(())))
    };
    match tokio::time::timeout(grace, finish).await {
        Ok(true) => Ok(End::Clean),
        Ok(false) | Err(_) => Ok(End::OutputLost),
    }
}

/// Resolves `grace` after the end of the input: what the peer's not reading has held up until then stays undone.
async fn too_late(reading: &mut watch::Receiver<()>, grace: Duration) {
    while reading.changed().await.is_ok() {}
    tokio::time::sleep(grace).await;
}

/// Why nothing is read any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// The input ended.
    Input,
    /// It was asked to end.
    Stopped,
    /// The output cannot be written.
    Unread,
    /// The input ended, and a line of it could not be taken in time.
    Held,
}

async fn hand_over(connection: &mut dyn Connection, line: Line<'_>) {
    match line {
        Line::Text(text) => connection.line(text).await,
        Line::Rejected(rejected) => connection.rejected(rejected).await,
    }
}

/// Starts the reading thread. The second receiver learns of the end of the input when the thread does, however much of it
/// still waits in the first.
fn spawn_reader<R: Read + Send + 'static>(mut input: R) -> io::Result<(mpsc::Receiver<Bytes>, watch::Receiver<()>)> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    let (alive, reading) = watch::channel(());
    std::thread::Builder::new().name("acp-stdin".to_owned()).spawn(move || {
        let _alive = alive;
        let mut buffer = vec![0; READ_CHUNK];
        loop {
            match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    let chunk = Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default());
                    if sender.blocking_send(chunk).is_err() {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "reading stdin failed");
                    break;
                }
            }
        }
    })?;
    Ok((receiver, reading))
}

fn spawn_writer<W: Write + Send + 'static>(
    mut output: W,
    mut reader: OutboxReader,
) -> io::Result<oneshot::Receiver<io::Result<()>>> {
    let (done, written) = oneshot::channel();
    let runtime = Handle::current();
    std::thread::Builder::new().name("acp-stdout".to_owned()).spawn(move || {
        let mut buffer = Vec::new();
        let mut result = Ok(());
        // One write and one flush for everything that was queued meanwhile.
        while runtime.block_on(reader.take(&mut buffer)) {
            result = output.write_all(&buffer).and_then(|()| output.flush());
            if let Err(error) = &result {
                tracing::warn!(%error, "writing stdout failed");
                break;
            }
        }
        // Dropping the reader first releases every producer that waits for room.
        drop(reader);
        let _nobody_waits = done.send(result);
    })?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write, pipe},
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use async_trait::async_trait;

    use super::{End, serve};
    use crate::{Connection, Flow, Limits, Outbox, Rejected};

    const LIMITS: Limits = Limits { max_line: 1024, outbox_high: 16 * 1024 };
    const GRACE: Duration = Duration::from_secs(20);
    const ANSWER: usize = 64 * 1024;

    /// Answers every line with a long one.
    struct Talkative {
        outbox: Outbox,
        taken: Arc<AtomicUsize>,
    }

    #[async_trait]
    impl Connection for Talkative {
        async fn line(&mut self, _line: &[u8]) {
            self.taken.fetch_add(1, Ordering::SeqCst);
            match self.outbox.append(|out| out.resize(out.len() + ANSWER, b'x')) {
                Flow::Ready | Flow::Full => {}
            }
        }

        async fn rejected(&mut self, _rejected: Rejected) {}

        async fn end(self: Box<Self>) {}
    }

    fn talkative(taken: &Arc<AtomicUsize>) -> impl FnOnce(Outbox) -> Box<dyn Connection> + use<> {
        let taken = Arc::clone(taken);
        move |outbox| Box::new(Talkative { outbox, taken })
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_is_not_listened_to_without_end() {
        let (input, mut requests) = pipe().expect("a pipe");
        let (mut answers, output) = pipe().expect("a pipe");
        let taken = Arc::new(AtomicUsize::new(0));
        let lines = 1000;
        requests.write_all("x\n".repeat(lines).as_bytes()).expect("room in the pipe");
        let serving = tokio::spawn(serve(input, output, LIMITS, GRACE, talkative(&taken), std::future::pending()));
        // The first answers arrive, and then there is no more room: the pipe's, the writer's buffer, the outbox.
        let mut first = vec![0; 1];
        let answers = tokio::task::spawn_blocking(move || answers.read_exact(&mut first).map(|()| answers));
        let mut answers = answers.await.expect("a thread").expect("an answer");
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let most = 2 * 16 * LIMITS.outbox_high / ANSWER + 4;
        assert!(taken.load(Ordering::SeqCst) <= most, "{} of at most {most}", taken.load(Ordering::SeqCst));
        drop(requests);
        let read = tokio::task::spawn_blocking(move || std::io::copy(&mut answers, &mut std::io::sink()));
        assert_eq!(read.await.expect("a thread").expect("answers"), (lines * ANSWER - 1) as u64);
        assert_eq!(serving.await.expect("no panic").expect("served"), End::Clean);
    }

    #[tokio::test]
    async fn the_end_of_the_input_is_not_missed_while_nobody_reads() {
        let (input, mut requests) = pipe().expect("a pipe");
        let (_answers, output) = pipe().expect("a pipe");
        let taken = Arc::new(AtomicUsize::new(0));
        requests.write_all("x\n".repeat(1000).as_bytes()).expect("room in the pipe");
        drop(requests);
        let grace = Duration::from_millis(50);
        let served = serve(input, output, LIMITS, grace, talkative(&taken), std::future::pending()).await;
        assert_eq!(served.expect("served"), End::OutputLost);
    }

    #[tokio::test]
    async fn a_peer_that_closed_its_end_is_gone() {
        let (input, mut requests) = pipe().expect("a pipe");
        let (answers, output) = pipe().expect("a pipe");
        let taken = Arc::new(AtomicUsize::new(0));
        drop(answers);
        requests.write_all(b"x\n").expect("room in the pipe");
        let served = serve(input, output, LIMITS, GRACE, talkative(&taken), std::future::pending()).await;
        assert_eq!(served.expect("served"), End::OutputLost, "although the input is still open");
        assert_eq!(taken.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn half_a_line_counts_only_at_the_end_of_the_input() {
        for ends in [true, false] {
            let (input, mut requests) = pipe().expect("a pipe");
            let (_answers, output) = pipe().expect("a pipe");
            let taken = Arc::new(AtomicUsize::new(0));
            requests.write_all(b"x\nhalf").expect("room in the pipe");
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let (seen, connect) = (Arc::clone(&taken), talkative(&taken));
            let serving = tokio::spawn(serve(input, output, LIMITS, Duration::ZERO, connect, async move {
                let _dropped = stopped.await;
            }));
            while seen.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            // The reading thread of the second round stays with an open pipe, as it does in the product.
            let kept = if ends {
                drop(requests);
                None
            } else {
                drop(stop);
                Some(requests)
            };
            serving.await.expect("no panic").expect("served");
            assert_eq!(taken.load(Ordering::SeqCst), if ends { 2 } else { 1 });
            drop(kept);
        }
    }
}
