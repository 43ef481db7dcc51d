//! The client's side of every bridge: standard input and output, whatever the gateway is. Lines arrive in order and are
//! bounded, lines that are none are answered here, and how the bridge ended is told once everything is written.
//! It refuses to know what the lines say.

use std::{io, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use zeroclaw_acp_protocol::{ErrorKind, ErrorObject, ErrorTable, encode_error};
use zeroclaw_acp_transport::{Connection, Flow, Limits, Outbox, Rejected, stdio};

use crate::relay::End;

/// Lines that wait while there is no gateway, at most; further ones stay in the pipe.
const MAX_WAITING: usize = 1024;

/// Something from the client.
#[derive(Debug)]
pub(crate) enum Input {
    Line(Bytes),
    /// There will be no more.
    End,
}

/// The client, as the side of the gateway sees it.
pub(crate) struct Editor {
    pub(crate) outbox: Outbox,
    pub(crate) lines: mpsc::Receiver<Input>,
    /// True when the process is asked to end.
    pub(crate) hurry: watch::Receiver<bool>,
}

/// Serves the client on standard input and output, with `join` on the other side, until `join` is over.
///
/// When the input has ended or `stop` has resolved, `join` has `grace` left.
///
/// # Errors
/// The operating system refuses a thread.
pub(crate) async fn serve<F>(
    limits: Limits,
    grace: Duration,
    errors: ErrorTable,
    stop: impl Future<Output = ()>,
    join: impl FnOnce(Editor) -> F,
) -> io::Result<End>
where
    F: Future<Output = End> + Send + 'static,
{
    let (hurry, told) = watch::channel(false);
    let (ended, over) = watch::channel(None);
    let connect = |outbox: Outbox| {
        let (sender, lines) = mpsc::channel(MAX_WAITING);
        let joined = join(Editor { outbox: outbox.clone(), lines, hurry: told });
        let running = tokio::spawn(async move {
            ended.send_replace(Some(joined.await));
        });
        Box::new(Lines { sender, outbox, errors, running }) as Box<dyn Connection>
    };
    let mut ending = over.clone();
    let stop = async {
        tokio::select! {
            () = stop => {
                hurry.send_replace(true);
            }
            // What is over has answered everything; what the client says now nobody hears.
            _ = ending.wait_for(Option::is_some) => {}
        }
    };
    let (input, output) = stdio::standard();
    stdio::serve(input, output, limits, grace, connect, stop).await?;
    let end = *over.borrow();
    Ok(end.unwrap_or(End::Done))
}

/// Hands lines on, one after the other.
struct Lines {
    sender: mpsc::Sender<Input>,
    outbox: Outbox,
    errors: ErrorTable,
    running: JoinHandle<()>,
}

#[async_trait]
impl Connection for Lines {
    async fn line(&mut self, line: &[u8]) {
        // It fails when everything is over, and then everything is answered that will be.
        let _over = self.sender.send(Input::Line(Bytes::copy_from_slice(line))).await;
    }

    async fn rejected(&mut self, rejected: Rejected) {
        let (id, why) = match &rejected {
            Rejected::TooLong { id, length } => (id, format!("the message has {length} bytes, which is too long")),
            Rejected::InvalidUtf8 { id } => (id, "the message is not valid UTF-8".to_owned()),
        };
        let error = ErrorObject::new(self.errors, ErrorKind::InvalidRequest, why);
        match self.outbox.append(|out| encode_error(out, id.as_ref(), &error)) {
            Flow::Ready | Flow::Full => {}
        }
    }

    async fn end(self: Box<Self>) {
        let _over = self.sender.send(Input::End).await;
        // A panic of the other side is in the log.
        let _panic = self.running.await;
    }
}
