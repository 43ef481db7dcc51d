//! Drives the engine: standard input and output on one side, the gateway's socket on the other, the ledger and the time.
//! It decides when to connect again and when there is no point in it; everything else is the engine's.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep_until, timeout},
};
use tokio_tungstenite::tungstenite::Utf8Bytes;
use zeroclaw_acp_protocol::{ErrorKind, ErrorObject, ErrorTable, Frame, encode_error};
use zeroclaw_acp_transport::{Flow, Limits, Outbox};

use super::{
    engine::{self, Engine, World},
    gateway::{Credentials, Refusal, judge},
    identity::{DeviceToken, Identity},
    ledger::{self, Command, Found},
    options::{Door, Options},
    socket::{self, Gone, Link},
    wire::{GatewayError, Hello},
};
use crate::{
    End,
    editor::{self, Editor, Input},
};

/// The first wait before the gateway is looked for again; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// The longest wait between two looks while something is waited for.
const BUSY_WAIT: Duration = Duration::from_secs(2);

/// The longest wait between two looks.
const IDLE_WAIT: Duration = Duration::from_secs(15);

/// How long a gateway that says that it is starting is waited for, whatever else was said.
const STARTING: Duration = Duration::from_secs(20);

/// Time for what the client has asked for to be answered after its input has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Time for everything after the input has ended or the process was asked to end.
const GRACE: Duration = Duration::from_millis(1900);

/// Time for the client's first line to arrive, so that it is told why there is no gateway.
const FIRST_LINE: Duration = Duration::from_millis(250);

/// Serves the client on standard input and output.
///
/// # Errors
/// The operating system refuses a thread.
pub(super) async fn serve(
    options: Options,
    identity: Identity,
    world: World,
    limits: Limits,
    seed: u64,
    stop: impl Future<Output = ()>,
) -> io::Result<End> {
    let (ledger, found, keeping) = ledger::start(options.state_dir.join(super::LEDGER_DIR), options.caps)?;
    let identity = Arc::new(identity);
    let wait = options.wait;
    let engine = Engine::new(options.settings, world, Arc::clone(&identity), Instant::now());
    let door = Arc::new(options.door);
    let end = editor::serve(limits, GRACE, ErrorTable::Spec, stop, |Editor { outbox, lines, hurry }| {
        let driver = Driver {
            door,
            identity,
            engine,
            outbox,
            lines,
            hurry,
            ledger,
            found,
            place: Place::Nowhere,
            try_at: Some(Instant::now()),
            tries: 0,
            random: seed | 1,
            limit: Some(Instant::now() + wait),
            started: Instant::now(),
            served: false,
            full: false,
            with_device_token: false,
            used: Credentials::default(),
            input_over: None,
        };
        driver.run()
    })
    .await?;
    // The ledger's thread writes what it has and ends, as nobody sends any more.
    let joined = tokio::task::spawn_blocking(move || keeping.join().is_ok());
    let _slow = timeout(Duration::from_millis(500), joined).await;
    Ok(end)
}

/// Where the connection is.
enum Place {
    Nowhere,
    Opening(JoinHandle<Result<(Link, Credentials), Failure>>),
    There(Link),
}

/// Why there is no connection.
enum Failure {
    Gone(Gone),
    /// The token cannot be read; no other try helps until it can.
    Secret(String),
}

struct Driver {
    door: Arc<Door>,
    identity: Arc<Identity>,
    engine: Engine,
    outbox: Outbox,
    lines: mpsc::Receiver<Input>,
    hurry: watch::Receiver<bool>,
    ledger: mpsc::Sender<Command>,
    found: mpsc::Receiver<Found>,
    place: Place,
    /// When the gateway is looked for next.
    try_at: Option<Instant>,
    tries: u32,
    random: u64,
    /// Until when the first connection is tried for.
    limit: Option<Instant>,
    started: Instant,
    /// There was a hello, so that the client is listened to.
    served: bool,
    /// The client does not read as fast as the gateway tells.
    full: bool,
    with_device_token: bool,
    used: Credentials,
    /// Until when what was asked is waited for after the end of the input.
    input_over: Option<Instant>,
}

/// What has happened.
enum Happened {
    Hurried,
    Line(Option<Input>),
    Frame(Result<Utf8Bytes, Gone>),
    Opened(Result<(Link, Credentials), Failure>),
    Found(Found),
    Drained,
    Time,
}

impl Driver {
    async fn run(mut self) -> End {
        loop {
            let happened = self.next().await;
            let now = Instant::now();
            let link = match happened {
                Happened::Hurried => return self.finish(End::Done).await,
                Happened::Line(Some(Input::Line(line))) => {
                    self.engine.line(&line, now);
                    engine::Link::Fine
                }
                Happened::Line(Some(Input::End) | None) => {
                    self.input_over = Some(now + LAST_ANSWERS);
                    engine::Link::Fine
                }
                Happened::Frame(Ok(text)) => self.engine.frame(text.as_str(), now),
                Happened::Frame(Err(gone)) => {
                    if let Some(end) = self.gone(&gone, now).await {
                        return end;
                    }
                    engine::Link::Fine
                }
                Happened::Opened(Ok((link, credentials))) => {
                    self.used = credentials.clone();
                    self.engine.opened(credentials, now);
                    self.place = Place::There(link);
                    engine::Link::Fine
                }
                Happened::Opened(Err(Failure::Gone(gone))) => {
                    if let Some(end) = self.gone(&gone, now).await {
                        return end;
                    }
                    engine::Link::Fine
                }
                Happened::Opened(Err(Failure::Secret(why))) => return self.refused(&why, End::Refused).await,
                Happened::Found(Found::Record { op, record }) => {
                    self.engine.found(op, record, now);
                    engine::Link::Fine
                }
                Happened::Found(Found::Places { op, places }) => {
                    self.engine.places(op, places, now);
                    engine::Link::Fine
                }
                Happened::Drained => {
                    self.full = false;
                    engine::Link::Fine
                }
                Happened::Time => self.time(now),
            };
            match link {
                engine::Link::Fine => {}
                engine::Link::Up(hello) => self.up(*hello, now),
                engine::Link::Drop(why) => {
                    if let Some(end) = self.gone(&Gone { code: None, reason: why }, now).await {
                        return end;
                    }
                }
                engine::Link::Refused(error) => {
                    if let Some(end) = self.turned_away(&error, now).await {
                        return end;
                    }
                }
            }
            if let Some(gone) = self.flush().await
                && let Some(end) = self.gone(&gone, now).await
            {
                return end;
            }
            let is_late = self.input_over.is_some_and(|until| now >= until);
            if self.input_over.is_some() && (is_late || self.engine.is_idle()) {
                return self.finish(End::Done).await;
            }
        }
    }

    async fn next(&mut self) -> Happened {
        let at = [self.engine.deadline(), self.try_at, self.input_over].into_iter().flatten().min();
        let full = self.full;
        let listens = self.served && !full && self.input_over.is_none();
        let arrived = async {
            match &mut self.place {
                Place::Nowhere => std::future::pending().await,
                Place::Opening(opening) => match opening.await {
                    Ok(opened) => Happened::Opened(opened),
                    Err(_) => {
                        let gone = Gone { code: None, reason: "the connection could not be opened".to_owned() };
                        Happened::Opened(Err(Failure::Gone(gone)))
                    }
                },
                Place::There(_) if full => std::future::pending().await,
                Place::There(link) => Happened::Frame(link.next().await),
            }
        };
        let time = async {
            match at {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let hurried = async {
            if self.hurry.wait_for(|hurry| *hurry).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = hurried => Happened::Hurried,
            happened = arrived => happened,
            input = self.lines.recv(), if listens => Happened::Line(input),
            Some(found) = self.found.recv() => Happened::Found(found),
            () = self.outbox.drained(), if full => Happened::Drained,
            () = time => Happened::Time,
        }
    }

    fn time(&mut self, now: Instant) -> engine::Link {
        if self.try_at.is_some_and(|at| now >= at) {
            self.try_at = None;
            let (door, identity) = (Arc::clone(&self.door), Arc::clone(&self.identity));
            let with_device_token = self.with_device_token;
            self.place = Place::Opening(tokio::spawn(async move {
                // Reading a file may take a while.
                let url = door.url.clone();
                let read = tokio::task::spawn_blocking(move || door.credentials(&identity, with_device_token)).await;
                let credentials = match read {
                    Ok(Ok(credentials)) => credentials,
                    Ok(Err(error)) => return Err(Failure::Secret(error.to_string())),
                    Err(_) => return Err(Failure::Secret("the token cannot be read".to_owned())),
                };
                socket::open(&url).await.map(|link| (link, credentials)).map_err(Failure::Gone)
            }));
        }
        self.engine.due(now)
    }

    /// The gateway has let the bridge in.
    fn up(&mut self, hello: Hello, now: Instant) {
        tracing::info!(version = %hello.server.version, "connected to the gateway");
        self.served = true;
        self.tries = 0;
        self.limit = None;
        self.with_device_token = false;
        self.started = now;
        if let Some(token) = hello.auth.device_token {
            let token = DeviceToken { token, scopes: hello.auth.scopes };
            let (identity, wall) = (Arc::clone(&self.identity), self.engine.wall());
            tokio::task::spawn_blocking(move || {
                if identity.token().as_ref() != Some(&token)
                    && let Err(error) = identity.keep_token(&token, wall)
                {
                    tracing::warn!(%error, "the device's token cannot be kept");
                }
            });
        }
    }

    /// The connection is gone, or there is none. An end when it is not looked for any more.
    async fn gone(&mut self, gone: &Gone, now: Instant) -> Option<End> {
        let was_there = matches!(self.place, Place::There(_));
        self.place = Place::Nowhere;
        // Before hello only a handshake was sent, and a gateway that closes with this code does not want it.
        if !self.served && gone.code == Some(1008) {
            return Some(
                self.refused(&format!("the gateway refuses the connection: {}", gone.said()), End::Refused).await,
            );
        }
        if gone.code == Some(1009) {
            self.engine.too_large();
        }
        let why = gone.said();
        self.engine.lost(&why, now);
        if self.served && was_there {
            tracing::warn!("the gateway is lost: {why}; looking for it");
        }
        let pause = self.pause();
        if self.limit.is_some_and(|limit| now + pause > limit) {
            // A gateway that says nothing and closes is starting, once.
            let is_shy = was_there && gone.code == Some(1000) && self.tries == 1;
            if !is_shy {
                let url = &self.door.url;
                let advice = format!("no gateway at {url}: {why}; start it, or name another one with --url");
                return Some(self.refused(&advice, End::Lost).await);
            }
        }
        self.try_at = Some(now + pause);
        None
    }

    /// Between half the wait and the whole, so that many bridges do not come at once.
    fn pause(&mut self) -> Duration {
        let most = if self.engine.is_idle() && self.served { IDLE_WAIT } else { BUSY_WAIT };
        let wait = FIRST_WAIT.saturating_mul(1 << self.tries.min(10)).min(most);
        self.tries += 1;
        // A xorshift is random enough to spread clients.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        wait / 2 + (wait / 2).mul_f64((self.random % 1024) as f64 / 1024.0)
    }

    /// The handshake was refused.
    async fn turned_away(&mut self, error: &GatewayError, now: Instant) -> Option<End> {
        self.place = Place::Nowhere;
        self.engine.lost("the gateway does not let the bridge in", now);
        match judge(error, self.used.is_device_token) {
            Refusal::Later(wait) if self.limit.is_none_or(|limit| now < limit.max(self.started + STARTING)) => {
                self.try_at = Some(now + wait);
                None
            }
            Refusal::Later(_) => Some(self.refused("the gateway is still starting", End::Lost).await),
            Refusal::DeviceToken if !self.with_device_token => {
                self.with_device_token = true;
                self.try_at = Some(now + FIRST_WAIT);
                None
            }
            Refusal::DeviceToken => {
                let why =
                    "the gateway accepts neither the token nor this device's own; look into the file of --token-file";
                Some(self.refused(why, End::Refused).await)
            }
            Refusal::Final(why) => {
                let (door, identity, with) =
                    (Arc::clone(&self.door), Arc::clone(&self.identity), self.with_device_token);
                let read = tokio::task::spawn_blocking(move || door.credentials(&identity, with).ok()).await;
                // The token may have changed between its reading and this refusal.
                let is_other = read.ok().flatten().is_some_and(|credentials| credentials != self.used);
                let may_heal = error.detail_code() == "PAIRING_REQUIRED" && self.limit.is_some_and(|limit| now < limit);
                if may_heal && self.tries == 0 {
                    tracing::warn!("{why}");
                }
                if is_other || may_heal {
                    let pause = self.pause();
                    self.try_at = Some(now + pause);
                    return None;
                }
                Some(self.refused(&why, End::Refused).await)
            }
        }
    }

    /// Hands out what the engine has made.
    async fn flush(&mut self) -> Option<Gone> {
        let effects = self.engine.take_effects();
        if !effects.to_client.is_empty() {
            match self.outbox.append(|out| out.extend_from_slice(&effects.to_client)) {
                Flow::Ready => {}
                Flow::Full => self.full = true,
            }
        }
        for command in effects.ledger {
            // Without its thread there is no ledger, and the bridge goes on.
            let _gone = self.ledger.send(command).await;
        }
        let frames = self.engine.take_frames();
        let Place::There(link) = &self.place else { return None };
        frames.into_iter().find_map(|frame| link.send(frame).err())
    }

    /// There will be no gateway: says why, answers what was asked, and ends.
    async fn refused(&mut self, why: &str, end: End) -> End {
        tracing::error!("{why}");
        let now = Instant::now();
        self.engine.give_up(why, now);
        self.flush().await;
        let error = ErrorObject::new(ErrorTable::Spec, ErrorKind::Internal, why);
        let mut patience = if self.served { Duration::ZERO } else { FIRST_LINE };
        while let Ok(Some(Input::Line(line))) = timeout(patience, self.lines.recv()).await {
            if let Ok(Frame::Request { id, .. }) = Frame::parse(&line) {
                match self.outbox.append(|out| encode_error(out, Some(&id), &error)) {
                    Flow::Ready | Flow::Full => {}
                }
            }
            patience = Duration::ZERO;
        }
        self.lines.close();
        end
    }

    /// Stops what runs, says goodbye, and ends.
    async fn finish(mut self, end: End) -> End {
        self.engine.stop_all(Instant::now());
        self.flush().await;
        match std::mem::replace(&mut self.place, Place::Nowhere) {
            Place::There(link) => link.close().await,
            Place::Opening(opening) => opening.abort(),
            Place::Nowhere => {}
        }
        end
    }
}
