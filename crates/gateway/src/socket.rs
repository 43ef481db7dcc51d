//! One WebSocket: text frames are lines, pings keep it alive, and everything that can go wrong has a close code.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{Sink as _, SinkExt as _, Stream, StreamExt as _, stream::SplitSink};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    time::{Instant, timeout, timeout_at},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message, Utf8Bytes,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};
use zeroclaw_acp_transport::{Connection, Outbox, OutboxReader};

use crate::{
    Gateway,
    auth::Identity,
    link::{self, Over},
    metrics::Metrics,
};

/// Bytes that are read at once. It stays allocated for the whole life of a connection, most of which are idle.
const READ_BUFFER: usize = 8 * 1024;
/// Bytes that are collected before they are written; it stays allocated too.
const WRITE_BUFFER: usize = 16 * 1024;
/// What is read and thrown away after a close, so that the peer gets to read why: as much as it may have sent before.
const DISCARDED: usize = 64 * 1024 * 1024;

/// Close code of a client whose token was revoked or has expired.
const REVOKED: u16 = 4401;
/// Close code of a client that nothing was heard of. It may come back, which 1008 would tell it not to.
const DEAD: u16 = 4408;
/// Close code of a client that does not read.
const STALLED: u16 = 4409;

/// What the peer is told; `None` where nobody would hear it.
fn close_of(over: Over) -> Option<CloseFrame> {
    let (code, reason) = match over {
        Over::Left => return None,
        Over::Dead => (CloseCode::Library(DEAD), "no answer to pings"),
        Over::Stalled => (CloseCode::Library(STALLED), "the client does not read"),
        Over::TooLarge => (CloseCode::Size, "the message is over the limit"),
        Over::NotText => (CloseCode::Invalid, "the message is not UTF-8"),
        Over::Protocol => (CloseCode::Protocol, "not WebSocket"),
        Over::Revoked => (CloseCode::Library(REVOKED), "the token is not valid any more"),
        Over::Ending => (CloseCode::Away, "the server ends"),
    };
    Some(CloseFrame { code, reason: reason.into() })
}

/// Says when something last went through a socket, each in milliseconds after `start`.
#[derive(Debug)]
struct Traffic {
    start: Instant,
    written: AtomicU64,
    heard: AtomicU64,
}

impl Traffic {
    fn note(&self, what: &AtomicU64) {
        let since = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        what.store(since, Ordering::Relaxed);
    }

    fn last_heard(&self) -> Instant {
        self.start + Duration::from_millis(self.heard.load(Ordering::Relaxed))
    }

    fn last_written(&self) -> Instant {
        self.start + Duration::from_millis(self.written.load(Ordering::Relaxed))
    }
}

/// A stream that keeps account.
struct Metered<I> {
    io: I,
    traffic: Arc<Traffic>,
}

impl<I: AsyncRead + Unpin> AsyncRead for Metered<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if read.is_ready() {
            self.traffic.note(&self.traffic.heard);
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Metered<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.traffic.note(&self.traffic.written);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

type Socket = WebSocketStream<Metered<TokioIo<Upgraded>>>;

/// Serves one client until either side ends it.
pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    upgraded: Upgraded,
    identity: Identity,
    id: String,
    agent: Option<String>,
) {
    let (settings, metrics) = (gateway.settings(), gateway.metrics());
    link::begin(gateway, &identity, &id);
    let traffic = Arc::new(Traffic { start: Instant::now(), written: AtomicU64::new(0), heard: AtomicU64::new(0) });
    let io = Metered { io: TokioIo::new(upgraded), traffic: Arc::clone(&traffic) };
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(Some(settings.limits.max_line))
        .max_frame_size(Some(settings.limits.max_line));
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (mut sink, mut stream) = socket.split();
    let (outbox, mut reader) = Outbox::new(settings.limits.outbox_high);
    let mut connection = gateway.acceptor().connect(outbox.clone(), agent);
    let over = tokio::select! {
        over = read(&mut stream, connection.as_mut(), &outbox, &traffic, settings.periods.dead, metrics) => over,
        over = write(&mut sink, &mut reader, &traffic, settings.periods.ping, settings.periods.stall, metrics) => over,
        over = link::ended(gateway, &identity) => over,
    };
    link::end(metrics, over, &id);
    // Before anything that takes time: whoever waits for this client to read goes on.
    drop(reader);
    // Whoever has not read for long gets as long again to read why.
    let patience = if over == Over::Stalled { settings.periods.stall } else { settings.periods.patience };
    let farewell = async {
        if let (Some(close), Ok(socket)) = (close_of(over), sink.reunite(stream)) {
            // A peer that does not listen is left.
            let _ = timeout(patience, say_goodbye(socket, close)).await;
        }
    };
    tokio::join!(farewell, connection.end());
}

/// Hands every message to the connection, in order.
async fn read(
    stream: &mut (impl Stream<Item = Result<Message, Error>> + Unpin),
    connection: &mut dyn Connection,
    outbox: &Outbox,
    traffic: &Traffic,
    dead: Duration,
    metrics: &Metrics,
) -> Over {
    loop {
        // A client that does not read its answers is not listened to any further.
        outbox.answerable().await;
        let message = match timeout_at(traffic.last_heard() + dead, stream.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(error))) => return over_of(&error),
            Ok(None) => return Over::Left,
            Err(_) if traffic.last_heard() + dead > Instant::now() => continue,
            Err(_) => return Over::Dead,
        };
        let text = match message {
            Message::Text(text) => Bytes::from(text),
            Message::Binary(bytes) if std::str::from_utf8(&bytes).is_ok() => bytes,
            Message::Binary(_) => return Over::NotText,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
            Message::Close(_) => return Over::Left,
        };
        metrics.messages_in.one();
        metrics.bytes_in.add(text.len() as u64);
        link::hand_over(connection, &text).await;
    }
}

fn over_of(error: &Error) -> Over {
    match error {
        Error::Capacity(_) => Over::TooLarge,
        Error::Utf8(_) => Over::NotText,
        Error::Protocol(reason) if is_hangup(reason) => Over::Left,
        Error::Protocol(_) | Error::AttackAttempt => Over::Protocol,
        _ => Over::Left,
    }
}

fn is_hangup(reason: &tokio_tungstenite::tungstenite::error::ProtocolError) -> bool {
    use tokio_tungstenite::tungstenite::error::ProtocolError;
    matches!(reason, ProtocolError::ResetWithoutClosingHandshake)
}

/// Sends what the connection says, and pings.
async fn write(
    sink: &mut SplitSink<Socket, Message>,
    reader: &mut OutboxReader,
    traffic: &Traffic,
    ping: Duration,
    stall: Duration,
    metrics: &Metrics,
) -> Over {
    let mut buffer = Vec::new();
    let mut next_ping = tokio::time::interval_at(Instant::now() + ping, ping);
    next_ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let sent = tokio::select! {
            more = reader.take(&mut buffer) => {
                if !more {
                    // The server lets go of a client for one reason only.
                    return Over::Stalled;
                }
                let batch = Bytes::from(std::mem::take(&mut buffer));
                progressing(traffic, stall, send(sink, &batch, metrics)).await
            }
            _ = next_ping.tick() => progressing(traffic, stall, sink.send(Message::Ping(Bytes::new()))).await,
        };
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Over::Left,
            Err(over) => return over,
        }
    }
}

/// Sends whole lines as frames without copying them apart, and flushes once.
async fn send(sink: &mut SplitSink<Socket, Message>, batch: &Bytes, metrics: &Metrics) -> Result<(), Error> {
    let mut rest = batch.clone();
    let mut count = 0;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let line = rest.split_to(end);
        // The line break itself.
        let _ = rest.split_to(rest.len().min(1));
        let text = Utf8Bytes::try_from(line).map_err(|error| Error::Utf8(error.to_string()))?;
        sink.feed(Message::Text(text)).await?;
        count += 1;
    }
    metrics.messages_out.add(count);
    metrics.bytes_out.add(batch.len() as u64);
    sink.flush().await
}

/// Waits for a write as long as the peer takes anything at all.
async fn progressing<T>(traffic: &Traffic, stall: Duration, work: impl Future<Output = T>) -> Result<T, Over> {
    let began = Instant::now();
    tokio::pin!(work);
    loop {
        let deadline = began.max(traffic.last_written()) + stall;
        match timeout_at(deadline, work.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(_) if began.max(traffic.last_written()) + stall > deadline => {}
            Err(_) => return Err(Over::Stalled),
        }
    }
}

/// Sends the close frame and waits until the peer has had the chance to read it: ending a connection with unread input
/// would take the frame out of the peer's hands again.
async fn say_goodbye(mut socket: Socket, close: CloseFrame) {
    // Errors mean that the peer is gone already.
    if poll_fn(|context| Pin::new(&mut socket).poll_ready(context)).await.is_err()
        || Pin::new(&mut socket).start_send(Message::Close(Some(close))).is_err()
        || socket.flush().await.is_err()
    {
        return;
    }
    let io = socket.get_mut();
    let mut left = DISCARDED;
    let mut thrown_away = vec![0; READ_BUFFER];
    while left > 0 {
        match io.read(&mut thrown_away).await {
            Ok(0) | Err(_) => return,
            Ok(count) => left = left.saturating_sub(count),
        }
    }
}
