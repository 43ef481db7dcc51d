//! The relay: messages of the client to the gateway and back, and what happens when the gateway is lost.

use std::{io, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};
use zeroclaw_acp_protocol::ErrorTable;
use zeroclaw_acp_transport::{Flow, Limits, Outbox};

use crate::{
    Options,
    discover::advice,
    editor::{self, Editor, Input},
    ledger::{Ledger, Moves},
    link::{self, Gone, LinkError, Reader, Writer},
};

/// The first wait before a lost gateway is looked for; it doubles up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The longest wait between two looks.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// How the bridge ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client is done, and so is everything it asked for.
    Done,
    /// The gateway was shut down and did not come back.
    ShutDown,
    /// The gateway was lost and not found again.
    Lost,
    /// The gateway does not want this bridge.
    Refused,
}

/// Serves the client on standard input and output until it is done, `stop` resolves, or the gateway is given up.
///
/// # Errors
/// The operating system refuses a thread.
pub async fn serve(options: Options, limits: Limits, stop: impl Future<Output = ()>) -> io::Result<End> {
    editor::serve(limits, PATIENCE, ErrorTable::default(), stop, |Editor { outbox, lines, hurry }| {
        let random = options.seed | 1;
        Relay { options, ledger: Ledger::default(), outbox, lines, hurry, random }.run()
    })
    .await
}

/// Time for a goodbye when the process is asked to end.
const HURRY: Duration = Duration::from_millis(1500);

/// Time for what the client has asked for to be answered after its input has ended.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// What joins the client's side and the gateway's.
struct Relay {
    options: Options,
    ledger: Ledger,
    outbox: Outbox,
    lines: mpsc::Receiver<Input>,
    /// True when the process is asked to end.
    hurry: watch::Receiver<bool>,
    random: u64,
}

/// Why a connection is not used any more.
enum Stopped {
    /// The client is done.
    Done,
    /// The process is asked to end.
    Hurried,
    Gone(Gone),
}

/// Resolves when the process is asked to end.
async fn hurried(hurry: &mut watch::Receiver<bool>) {
    if hurry.wait_for(|hurry| *hurry).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Relay {
    async fn run(self) -> End {
        let mut hurry = self.hurry.clone();
        let late = async {
            hurried(&mut hurry).await;
            sleep(HURRY).await;
        };
        tokio::select! {
            end = self.run_to_the_end() => end,
            // Somebody does not read, and it is not waited for.
            () = late => End::Done,
        }
    }

    async fn run_to_the_end(mut self) -> End {
        let mut input_over = false;
        let mut limit = Instant::now() + self.options.wait;
        let mut closed = false;
        loop {
            let mut hurry = self.hurry.clone();
            let opened = tokio::select! {
                () = hurried(&mut hurry) => return End::Done,
                opened = self.open(limit) => opened,
            };
            let (reader, writer) = match opened {
                Ok(link) => link,
                Err(error) => {
                    let why = error.to_string();
                    match &error {
                        LinkError::Refused(_) => tracing::error!("{why}; {}", advice(&self.options.token)),
                        LinkError::Absent(_) | LinkError::Address(_) => tracing::error!("{why}"),
                    }
                    let moves = self.ledger.give_up(&why);
                    self.pass(moves).await;
                    self.refuse_the_rest(&why).await;
                    return match error {
                        LinkError::Refused(_) | LinkError::Address(_) => End::Refused,
                        LinkError::Absent(_) if closed => End::ShutDown,
                        LinkError::Absent(_) => End::Lost,
                    };
                }
            };
            tracing::debug!("connected to the gateway");
            match self.relay(reader, writer, &mut input_over).await {
                Stopped::Done | Stopped::Hurried => return End::Done,
                Stopped::Gone(gone) => {
                    closed = gone == Gone::Closed;
                    self.ledger.lost();
                    if input_over && self.ledger.is_idle() {
                        return End::Done;
                    }
                    tracing::warn!("the gateway is {}; looking for it", if closed { "shut down" } else { "lost" });
                    limit = Instant::now() + self.options.reconnect;
                }
            }
        }
    }

    /// Looks for the gateway until it is there, refuses, or the time is over. The first look is at once.
    async fn open(&mut self, limit: Instant) -> Result<(Reader, Writer), LinkError> {
        let mut wait = FIRST_WAIT;
        loop {
            // Read anew each time: a daemon that was started again has a new token.
            let token = self.token().await;
            let error = match link::open(&self.options.url, token.as_deref()).await {
                Ok(link) => return Ok(link),
                Err(error @ LinkError::Absent(_)) => error,
                // The token may have changed between its reading and this refusal.
                Err(LinkError::Refused(_)) if self.token().await != token => continue,
                Err(error) => return Err(error),
            };
            let pause = self.jittered(wait);
            if Instant::now() + pause > limit {
                return Err(error);
            }
            sleep(pause).await;
            wait = (wait * 2).min(LAST_WAIT);
        }
    }

    /// The token as it is now. Reading a file may take a while, which must not hold up the client's side.
    async fn token(&self) -> Option<String> {
        let source = self.options.token.clone();
        tokio::task::spawn_blocking(move || source.read()).await.ok().flatten()
    }

    /// Between half the time and the whole, so that many bridges do not come at once.
    fn jittered(&mut self, wait: Duration) -> Duration {
        // A xorshift is random enough to spread clients.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let half = wait / 2;
        half + half.mul_f64((self.random % 1000) as f64 / 1000.0)
    }

    async fn relay(&mut self, mut reader: Reader, mut writer: Writer, input_over: &mut bool) -> Stopped {
        let first = self.ledger.connected();
        if let Err(gone) = self.move_on(first, &mut writer).await {
            return Stopped::Gone(gone);
        }
        loop {
            if *input_over && self.ledger.is_idle() && !self.ledger.is_joining() {
                writer.close().await;
                return Stopped::Done;
            }
            let moves = tokio::select! {
                () = hurried(&mut self.hurry) => {
                    writer.close().await;
                    return Stopped::Hurried;
                }
                message = reader.next() => match message {
                    Ok(text) => self.ledger.gateway_says(text.as_bytes()),
                    Err(gone) => return Stopped::Gone(gone),
                },
                // What the client says while sessions are joined again waits: it must not overtake what is sent again.
                input = self.lines.recv(), if !*input_over && !self.ledger.is_joining() => match input {
                    Some(Input::Line(line)) => self.ledger.client_says(&line),
                    Some(Input::End) | None => {
                        *input_over = true;
                        self.ledger.input_over()
                    }
                },
            };
            if let Err(gone) = self.move_on(moves, &mut writer).await {
                return Stopped::Gone(gone);
            }
        }
    }

    async fn move_on(&mut self, mut moves: Moves, writer: &mut Writer) -> Result<(), Gone> {
        let to_gateway = std::mem::take(&mut moves.to_gateway);
        self.pass(moves).await;
        if to_gateway.is_empty() { Ok(()) } else { writer.send(to_gateway).await }
    }

    /// Hands lines to the client, as fast as it reads.
    async fn pass(&self, moves: Moves) {
        for line in moves.to_client {
            match self.outbox.append(|out| out.extend_from_slice(&line)) {
                Flow::Ready => {}
                Flow::Full => self.outbox.drained().await,
            }
        }
    }

    /// Answers what waits in line with an error: no gateway will.
    async fn refuse_the_rest(&mut self, why: &str) {
        self.lines.close();
        while let Some(input) = self.lines.recv().await {
            if let Input::Line(line) = input {
                drop(self.ledger.client_says(&line));
            }
        }
        let moves = self.ledger.give_up(why);
        self.pass(moves).await;
    }
}
