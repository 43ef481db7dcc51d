//! The one who looks at tokens and codes at the door, and later sees that a token is gone.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use tokio::sync::watch;

use super::{
    file::{StateError, StateFile},
    pairing::PairingDesk,
    secret::{Token, TokenDigest},
    throttle::{Peer, Throttle},
    tokens::{NewToken, TokenRecord, TokenStore},
};
use crate::World;

/// How exactly the last use of a token is kept: each note is a write to the disk.
const TOUCH_MS: i64 = 60_000;

/// Who was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Nobody was asked, because pairing is not required.
    Anyone,
    /// The operator of this machine, who can read the configuration directory.
    Operator,
    /// The holder of this token, by id.
    Token(String),
}

/// Why somebody was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No token, or none of ours.
    Unknown,
    /// Too many guesses; the next one is looked at after this many milliseconds.
    Later(i64),
    /// The tokens cannot be read.
    Broken,
}

/// What is known of the file of tokens, and of what state of the file.
#[derive(Debug, Default)]
struct Known {
    stamp: Option<(SystemTime, u64, u64)>,
    tokens: Vec<TokenRecord>,
}

#[derive(Debug)]
pub(crate) struct Gatekeeper {
    required: bool,
    store: TokenStore,
    desk: PairingDesk,
    operator: TokenDigest,
    world: World,
    known: Mutex<Known>,
    broken: AtomicBool,
    throttle: Mutex<Throttle>,
    /// Counts the states of the tokens, so that connections look again whether they may stay.
    changes: watch::Sender<u64>,
}

impl Gatekeeper {
    /// Reads the tokens and writes a new operator token. Blocks.
    pub(crate) fn open(required: bool, directory: &std::path::Path, world: World) -> Result<Arc<Self>, StateError> {
        let store = TokenStore::in_directory(directory);
        store.list()?;
        let token = Token::generate(&world);
        let file = StateFile::new(directory.join("acp-bridge-token"));
        let lock = file.lock()?;
        file.replace(token.expose().as_bytes())?;
        drop(lock);
        let keeper = Arc::new(Self {
            required,
            store,
            desk: PairingDesk::in_directory(directory),
            operator: token.digest(),
            world,
            known: Mutex::default(),
            broken: AtomicBool::new(false),
            throttle: Mutex::default(),
            changes: watch::Sender::new(0),
        });
        keeper.look();
        Ok(keeper)
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Judges what a peer presented.
    pub(crate) async fn admit(self: &Arc<Self>, peer: Peer, token: Option<&str>) -> Result<Identity, Denied> {
        if !self.required {
            return Ok(Identity::Anyone);
        }
        let now = (self.world.now_ms)();
        let wait = lock(&self.throttle).wait_ms(peer, now);
        if wait > 0 {
            return Err(Denied::Later(wait));
        }
        // Nothing was guessed where nothing was presented.
        let Some(token) = token.filter(|token| !token.is_empty()) else { return Err(Denied::Unknown) };
        self.refresh().await;
        if let Some(identity) = TokenDigest::of_presented(token).and_then(|digest| self.identify(&digest, now)) {
            lock(&self.throttle).succeeded(peer, now);
            return Ok(identity);
        }
        if self.broken.load(Ordering::Relaxed) {
            return Err(Denied::Broken);
        }
        lock(&self.throttle).failed(peer, now);
        Err(Denied::Unknown)
    }

    /// Exchanges a pairing code for a token.
    pub(crate) async fn pair(self: &Arc<Self>, peer: Peer, code: String) -> Result<NewToken, Denied> {
        let now = (self.world.now_ms)();
        let wait = lock(&self.throttle).wait_ms(peer, now);
        if wait > 0 {
            return Err(Denied::Later(wait));
        }
        let keeper = Arc::clone(self);
        let redeemed =
            tokio::task::spawn_blocking(move || keeper.desk.redeem(&code, &keeper.store, &keeper.world)).await;
        match redeemed {
            Ok(Ok(Some(paired))) => {
                lock(&self.throttle).succeeded(peer, now);
                self.refresh().await;
                Ok(paired)
            }
            Ok(Ok(None)) => {
                lock(&self.throttle).failed(peer, now);
                Err(Denied::Unknown)
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "pairing failed");
                Err(Denied::Broken)
            }
            Err(_) => Err(Denied::Broken),
        }
    }

    /// Whether somebody who was let in may stay.
    pub(crate) fn may_stay(&self, identity: &Identity) -> bool {
        match identity {
            Identity::Anyone | Identity::Operator => true,
            Identity::Token(id) => {
                let now = (self.world.now_ms)();
                lock(&self.known).tokens.iter().any(|token| token.id == *id && token.is_alive(now))
            }
        }
    }

    /// Notes the use of a token, now and then.
    pub(crate) fn used(self: &Arc<Self>, identity: &Identity) {
        let Identity::Token(id) = identity else { return };
        let now = (self.world.now_ms)();
        {
            let mut known = lock(&self.known);
            let Some(token) = known.tokens.iter_mut().find(|token| token.id == *id) else { return };
            if token.last_used_ms.is_some_and(|last| now - last < TOUCH_MS) {
                return;
            }
            token.last_used_ms = Some(now);
        }
        let (keeper, id) = (Arc::clone(self), id.clone());
        tokio::task::spawn_blocking(move || {
            if let Err(error) = keeper.store.touch(&id, now) {
                tracing::warn!(%error, "the last use of a token was not noted");
            }
        });
    }

    /// Looks whether the tokens have changed, on a blocking thread.
    pub(crate) async fn refresh(self: &Arc<Self>) {
        let keeper = Arc::clone(self);
        // A thread that could not be had leaves what was known.
        let _ = tokio::task::spawn_blocking(move || keeper.look()).await;
    }

    /// Tells the connections to look again: time alone ends tokens too.
    pub(crate) fn remind(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Reads the file when it is another than before. What cannot be read lets nobody in.
    fn look(&self) {
        let stamp = stamp(self.store.path().to_owned());
        {
            let known = lock(&self.known);
            if known.stamp == stamp && !self.broken.load(Ordering::Relaxed) {
                return;
            }
        }
        let tokens = match self.store.list() {
            Ok(tokens) => {
                self.broken.store(false, Ordering::Relaxed);
                tokens
            }
            Err(error) => {
                if !self.broken.swap(true, Ordering::Relaxed) {
                    tracing::error!(%error, "tokens cannot be read; nobody is let in");
                }
                Vec::new()
            }
        };
        *lock(&self.known) = Known { stamp, tokens };
        self.remind();
    }

    /// Compares with every token, also after one that fits.
    fn identify(&self, digest: &TokenDigest, now_ms: i64) -> Option<Identity> {
        let mut found = digest.matches(&self.operator).then_some(Identity::Operator);
        for token in &lock(&self.known).tokens {
            if digest.matches(&token.sha256) && token.is_alive(now_ms) {
                found = Some(Identity::Token(token.id.clone()));
            }
        }
        found
    }
}

/// What changes whenever the file is replaced.
fn stamp(path: PathBuf) -> Option<(SystemTime, u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let number = 0;
    Some((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len(), number))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
