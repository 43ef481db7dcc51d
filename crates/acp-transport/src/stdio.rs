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
    sync::{mpsc, oneshot},
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

/// Serves one connection over the given input and output until the input ends or `stop` resolves.
/// Then the connection finishes and its output is written, both within `grace`.
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
    let written = spawn_writer(output, reader)?;
    let mut chunks = spawn_reader(input)?;
    let mut connection = connect(outbox.clone());
    tokio::pin!(stop);
    let mut decoder = LineDecoder::new(limits.max_line);
    loop {
        let chunk = tokio::select! {
            chunk = chunks.recv() => chunk,
            () = &mut stop => None,
        };
        let Some(chunk) = chunk else { break };
        decoder.push(&chunk);
        while let Some(line) = decoder.next_line() {
            hand_over(connection.as_mut(), line).await;
        }
        if outbox.is_gone() {
            break;
        }
    }
    if let Some(line) = decoder.finish() {
        hand_over(connection.as_mut(), line).await;
    }
    let finish = async {
        connection.end().await;
        outbox.close();
        matches!(written.await, Ok(Ok(())))
    };
    match tokio::time::timeout(grace, finish).await {
        Ok(true) => Ok(End::Clean),
        Ok(false) | Err(_) => Ok(End::OutputLost),
    }
}

async fn hand_over(connection: &mut dyn Connection, line: Line<'_>) {
    match line {
        Line::Text(text) => connection.line(text).await,
        Line::Rejected(rejected) => connection.rejected(rejected).await,
    }
}

fn spawn_reader<R: Read + Send + 'static>(mut input: R) -> io::Result<mpsc::Receiver<Bytes>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    std::thread::Builder::new().name("acp-stdin".to_owned()).spawn(move || {
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
    Ok(receiver)
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
