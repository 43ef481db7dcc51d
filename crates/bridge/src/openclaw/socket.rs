//! One connection to an OpenClaw gateway: opened, read and written whole frames at a time.
//! Nothing secret is in its address or headers; what opens the door is in the first frame.

use std::time::Duration;

use futures::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use tokio::{net::TcpStream, sync::mpsc, task::JoinHandle, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{
        self, Message, Utf8Bytes,
        protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::{gateway::shown, wire::MAX_FRAME};

/// Time for a connection to be opened.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// Time for a frame to be written. A gateway that does not read for this long is gone.
const WRITE_LIMIT: Duration = Duration::from_secs(20);

/// Time for a goodbye.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// Frames that wait to be written, at most. A gateway that lets more of them pile up does not read any more.
const MAX_UNWRITTEN: usize = 1024;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    /// The code of the close frame; none when there was none.
    pub(super) code: Option<u16>,
    pub(super) reason: String,
}

impl Gone {
    fn lost(reason: impl Into<String>) -> Self {
        Self { code: None, reason: reason.into() }
    }

    /// One line for a person.
    pub(super) fn said(&self) -> String {
        match (self.code, self.reason.is_empty()) {
            (Some(code), true) => format!("closed with {code}"),
            (Some(code), false) => format!("closed with {code} ({})", self.reason),
            (None, _) => self.reason.clone(),
        }
    }
}

/// A connection.
pub(super) struct Link {
    reader: SplitStream<Socket>,
    writer: mpsc::Sender<Outgoing>,
    writing: JoinHandle<()>,
}

enum Outgoing {
    Frame(String),
    Close,
}

/// Opens a connection.
pub(super) async fn open(url: &str) -> Result<Link, Gone> {
    let config = WebSocketConfig::default().max_message_size(Some(MAX_FRAME)).max_frame_size(Some(MAX_FRAME));
    match timeout(OPEN_LIMIT, connect_async_with_config(url, Some(config), true)).await {
        Ok(Ok((socket, _response))) => {
            let (sink, reader) = socket.split();
            let (writer, frames) = mpsc::channel(MAX_UNWRITTEN);
            let writing = tokio::spawn(write(sink, frames));
            Ok(Link { reader, writer, writing })
        }
        Ok(Err(error)) => Err(Gone::lost(plain(&error))),
        Err(_) => Err(Gone::lost("it does not answer")),
    }
}

async fn write(mut sink: SplitSink<Socket, Message>, mut frames: mpsc::Receiver<Outgoing>) {
    while let Some(outgoing) = frames.recv().await {
        let written = match outgoing {
            Outgoing::Frame(text) => timeout(WRITE_LIMIT, sink.send(Message::text(text))).await,
            Outgoing::Close => {
                let frame = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::from_static("done") };
                let _gone_anyway = timeout(CLOSE_LIMIT, sink.send(Message::Close(Some(frame)))).await;
                return;
            }
        };
        // The reading half notices that the connection is gone.
        if !matches!(written, Ok(Ok(()))) {
            let _gone_anyway = timeout(CLOSE_LIMIT, sink.close()).await;
            return;
        }
    }
}

/// The error without what may hold an address.
fn plain(error: &tungstenite::Error) -> String {
    match error {
        tungstenite::Error::Io(error) => error.to_string(),
        tungstenite::Error::Url(error) => error.to_string(),
        tungstenite::Error::Tls(_) => "TLS failed".to_owned(),
        tungstenite::Error::Http(response) => format!("it answers {}", response.status()),
        tungstenite::Error::Capacity(_) => "it sent a frame that is too long".to_owned(),
        _ => "the connection broke".to_owned(),
    }
}

impl Link {
    /// The next frame. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Result<Utf8Bytes, Gone> {
        loop {
            match self.reader.next().await {
                Some(Ok(Message::Text(text))) => return Ok(text),
                Some(Ok(Message::Binary(bytes))) => match Utf8Bytes::try_from(bytes) {
                    Ok(text) => return Ok(text),
                    Err(_) => tracing::warn!("the gateway sent a binary frame that is no text"),
                },
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(frame))) => {
                    return Err(match frame {
                        Some(frame) => Gone { code: Some(u16::from(frame.code)), reason: shown(frame.reason.as_str()) },
                        None => Gone { code: None, reason: "closed without a reason".to_owned() },
                    });
                }
                Some(Err(error)) => return Err(Gone::lost(plain(&error))),
                None => return Err(Gone::lost("the connection ended")),
            }
        }
    }

    /// Has a frame written.
    pub(super) fn send(&self, frame: String) -> Result<(), Gone> {
        self.writer.try_send(Outgoing::Frame(frame)).map_err(|_| Gone::lost("it does not read"))
    }

    /// Writes what waits, and says goodbye.
    pub(super) async fn close(self) {
        let closing = async {
            if self.writer.send(Outgoing::Close).await.is_ok() {
                drop(self.writer);
                let _panic = self.writing.await;
            }
        };
        let _slow = timeout(CLOSE_LIMIT * 2, closing).await;
    }
}
