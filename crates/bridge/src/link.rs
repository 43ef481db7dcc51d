//! One connection to the gateway: opened with a token in its header, read and written whole messages at a time.
//! It refuses to try twice; that is the relay's business.

use std::time::Duration;

use bytes::Bytes;
use futures::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use thiserror::Error;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{
        self, Message, Utf8Bytes,
        client::IntoClientRequest as _,
        http::{HeaderValue, StatusCode, header::AUTHORIZATION},
        protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
    },
};

/// Time for a connection to be opened: the gateway is on this machine or near.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// Time for a close frame to be written.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// The longest message that is read: longer than any that the gateway writes.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// The subprotocol of the gateway (ZeroClaw dialect, "Gateway and bridge").
const SUBPROTOCOL: &str = "zeroclaw.acp.v1";

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Why there is no connection.
#[derive(Debug, Error)]
pub(crate) enum LinkError {
    /// Nobody is there now.
    #[error("the gateway is not there: {0}")]
    Absent(String),
    /// It does not want this bridge, and will not when asked again.
    #[error("the gateway refuses the connection ({0}); is the token right?")]
    Refused(StatusCode),
    /// The address is none.
    #[error("the gateway's address is not usable: {0}")]
    Address(String),
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// The gateway said goodbye.
    Closed,
    /// It is lost.
    Lost,
}

/// The reading half.
pub(crate) struct Reader(SplitStream<Socket>);

/// The writing half.
pub(crate) struct Writer(SplitSink<Socket, Message>);

/// Opens a connection.
pub(crate) async fn open(url: &str, token: Option<&str>) -> Result<(Reader, Writer), LinkError> {
    let mut request = url.into_client_request().map_err(|error| LinkError::Address(plain(&error)))?;
    let headers = request.headers_mut();
    headers.insert("Sec-WebSocket-Protocol", HeaderValue::from_static(SUBPROTOCOL));
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value =
            value.map_err(|_| LinkError::Address("the token holds a character that no header may".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    let opened = timeout(OPEN_LIMIT, connect_async_with_config(request, Some(config), true)).await;
    match opened {
        Ok(Ok((socket, _response))) => {
            let (writer, reader) = socket.split();
            Ok((Reader(reader), Writer(writer)))
        }
        Ok(Err(tungstenite::Error::Http(response))) => match response.status() {
            status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                Err(LinkError::Refused(status))
            }
            status => Err(LinkError::Absent(format!("it answers {status}"))),
        },
        Ok(Err(tungstenite::Error::Url(error))) => Err(LinkError::Address(error.to_string())),
        Ok(Err(error)) => Err(LinkError::Absent(plain(&error))),
        Err(_) => Err(LinkError::Absent("it does not answer".to_owned())),
    }
}

/// The error without what may hold an address with a token.
fn plain(error: &tungstenite::Error) -> String {
    match error {
        tungstenite::Error::Io(error) => error.to_string(),
        tungstenite::Error::Url(error) => error.to_string(),
        tungstenite::Error::Tls(_) => "TLS failed".to_owned(),
        _ => "the handshake failed".to_owned(),
    }
}

impl Reader {
    /// The next message.
    pub(crate) async fn next(&mut self) -> Result<Utf8Bytes, Gone> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Ok(text),
                Some(Ok(Message::Binary(bytes))) => match Utf8Bytes::try_from(bytes) {
                    Ok(text) => return Ok(text),
                    Err(_) => tracing::warn!("the gateway sent a binary message that is no text"),
                },
                // Pings are answered by the library with the next write or read.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(frame))) => {
                    let said = frame.map(|frame| frame.code);
                    tracing::info!(code = said.map(u16::from), "the gateway closed the connection");
                    return Err(match said {
                        Some(CloseCode::Normal | CloseCode::Away) => Gone::Closed,
                        Some(_) | None => Gone::Lost,
                    });
                }
                Some(Err(error)) => {
                    tracing::debug!(error = %plain(&error), "the connection broke");
                    return Err(Gone::Lost);
                }
                None => return Err(Gone::Lost),
            }
        }
    }
}

impl Writer {
    /// Writes messages; each of these lines is one.
    pub(crate) async fn send(&mut self, lines: Vec<Bytes>) -> Result<(), Gone> {
        for line in lines {
            let text = line.strip_suffix(b"\n").map_or(line.clone(), |text| line.slice_ref(text));
            let text = Utf8Bytes::try_from(text);
            let message = match text {
                Ok(text) => Message::Text(text),
                // What is no text is no message either; the gateway says so.
                Err(_) => Message::Binary(line),
            };
            self.0.feed(message).await.map_err(|_| Gone::Lost)?;
        }
        self.0.flush().await.map_err(|_| Gone::Lost)
    }

    /// Says goodbye.
    pub(crate) async fn close(mut self) {
        let frame = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::from_static("the client is done") };
        let _gone_anyway = timeout(CLOSE_LIMIT, self.0.send(Message::Close(Some(frame)))).await;
    }
}
