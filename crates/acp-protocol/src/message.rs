//! Writing messages: each function appends one whole line, terminator included, to a buffer the caller reuses.

use serde::Serialize;

use crate::{ErrorObject, RequestId};

/// Appends a successful response.
///
/// # Errors
/// A result that cannot be JSON, such as a map with keys that are not strings.
pub fn encode_result<T: Serialize>(out: &mut Vec<u8>, id: &RequestId, result: &T) -> Result<(), serde_json::Error> {
    let start = out.len();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(b",\"result\":");
    serde_json::to_writer(&mut *out, result).inspect_err(|_| out.truncate(start))?;
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Appends an error response; `None` is the id null.
pub fn encode_error(out: &mut Vec<u8>, id: Option<&RequestId>, error: &ErrorObject) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.map_or("null", RequestId::as_json).as_bytes());
    out.extend_from_slice(b",\"error\":");
    // An `ErrorObject` has string keys and plain values only, so writing it into memory cannot fail.
    let _infallible = serde_json::to_writer(&mut *out, error);
    out.extend_from_slice(b"}\n");
}

/// Appends a request of ours.
///
/// # Errors
/// Parameters that cannot be JSON.
pub fn encode_request<T: Serialize>(
    out: &mut Vec<u8>,
    id: &RequestId,
    method: &str,
    params: &T,
) -> Result<(), serde_json::Error> {
    let start = out.len();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(b",\"method\":\"");
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(b"\",\"params\":");
    serde_json::to_writer(&mut *out, params).inspect_err(|_| out.truncate(start))?;
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Appends a notification.
///
/// # Errors
/// Parameters that cannot be JSON.
pub fn encode_notification<T: Serialize>(out: &mut Vec<u8>, method: &str, params: &T) -> Result<(), serde_json::Error> {
    let start = out.len();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"");
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(b"\",\"params\":");
    serde_json::to_writer(&mut *out, params).inspect_err(|_| out.truncate(start))?;
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// The frame around the updates of one session, made once: an update object's bytes are copied between its halves.
#[derive(Clone, Debug)]
pub struct UpdateFrame {
    head: Box<[u8]>,
}

impl UpdateFrame {
    /// Prepares the frame of a session.
    #[must_use]
    pub fn new(session_id: &str) -> Self {
        let mut head = b"{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":".to_vec();
        // Writing a string into memory cannot fail.
        let _infallible = serde_json::to_writer(&mut head, session_id);
        head.extend_from_slice(b",\"update\":");
        Self { head: head.into_boxed_slice() }
    }

    /// Appends the notification for one encoded update object, with its sequence number for clients that asked for it.
    pub fn write(&self, out: &mut Vec<u8>, update: &[u8], seq: Option<u64>) {
        out.reserve(self.head.len() + update.len() + 48);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(update);
        if let Some(seq) = seq {
            out.extend_from_slice(b",\"_meta\":{\"zeroclaw\":{\"seq\":");
            let _infallible = serde_json::to_writer(&mut *out, &seq);
            out.extend_from_slice(b"}}");
        }
        out.extend_from_slice(b"}}\n");
    }

    /// Bytes a written update takes, at most.
    #[must_use]
    pub fn written_len(&self, update: &[u8]) -> usize {
        self.head.len() + update.len() + 48
    }
}
