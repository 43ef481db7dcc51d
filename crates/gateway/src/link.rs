//! What every connection of a client has in common, whatever it is made of: how it begins, what it is handed, why it ends.

use zeroclaw_acp_transport::Connection;

use crate::{Gateway, auth::Identity, metrics::Metrics};

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The peer closed it, or is gone.
    Left,
    /// Nothing came from the peer for too long.
    Dead,
    /// The peer does not take what is sent.
    Stalled,
    /// A message was too large.
    TooLarge,
    /// A message was not UTF-8.
    NotText,
    /// The peer does not speak WebSocket.
    Protocol,
    /// The token is not valid any more.
    Revoked,
    /// The gateway ends.
    Ending,
}

/// Notes that a client has come.
pub(crate) fn begin(gateway: &Gateway, identity: &Identity, id: &str) {
    gateway.metrics().open.one();
    gateway.metrics().opened.one();
    gateway.keeper().used(identity);
    tracing::info!(connection = id, "a client connected");
}

/// Notes that a client has gone.
pub(crate) fn end(metrics: &Metrics, over: Over, id: &str) {
    match over {
        Over::Stalled => metrics.stalled.one(),
        Over::Dead => metrics.dead.one(),
        Over::TooLarge => metrics.too_large.one(),
        Over::Left | Over::NotText | Over::Protocol | Over::Revoked | Over::Ending => {}
    }
    metrics.open.less_one();
    tracing::info!(connection = id, why = ?over, "a client is gone");
}

/// Resolves when the client has to go: its token ended, or the gateway does.
pub(crate) async fn ended(gateway: &Gateway, identity: &Identity) -> Over {
    let mut changes = gateway.keeper().changes();
    let mut closing = gateway.closing();
    loop {
        if !gateway.keeper().may_stay(identity) {
            return Over::Revoked;
        }
        tokio::select! {
            () = async { drop(closing.wait_for(|closing| *closing).await) } => return Over::Ending,
            changed = changes.changed() => if changed.is_err() { return Over::Ending },
        }
    }
}

/// Hands a message to a connection as one line.
pub(crate) async fn hand_over(connection: &mut dyn Connection, text: &[u8]) {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii();
    if text.is_empty() {
        return;
    }
    if !text.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return connection.line(text).await;
    }
    // A message may be written over several lines, but what is kept of it goes out as one line. Between tokens a tab
    // means the same, and where a line break is not allowed a tab is not either.
    let line: Vec<u8> = text.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b'\t' } else { *byte }).collect();
    connection.line(&line).await;
}
