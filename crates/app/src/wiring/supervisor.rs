//! Tells a supervisor like systemd how the daemon is: a datagram of a few words to the socket that it names
//! (`sd_notify(3)`). Without such a socket nothing is told, and nothing that goes wrong here ends anything.

use std::time::Duration;

use zeroclaw_config::Env;

/// The supervisor, where there is one.
pub(super) struct Supervisor {
    #[cfg(unix)]
    socket: Option<(std::os::unix::net::UnixDatagram, std::os::unix::net::SocketAddr)>,
    /// How often it wants to hear of us.
    watchdog: Option<Duration>,
}

#[cfg(unix)]
impl Supervisor {
    pub(super) fn of(env: &Env) -> Self {
        let Some(name) = env.get("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self { socket: None, watchdog: None };
        };
        let socket = address(name).and_then(|address| {
            let socket = std::os::unix::net::UnixDatagram::unbound()?;
            // A supervisor that does not read must not stop what it supervises.
            socket.set_nonblocking(true)?;
            Ok((socket, address))
        });
        let socket = socket.inspect_err(|error| tracing::warn!(%error, "the supervisor cannot be told anything")).ok();
        Self { watchdog: watchdog(env).filter(|_| socket.is_some()), socket }
    }

    fn tell(&self, words: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(words.as_bytes(), address) {
            tracing::debug!(%error, "the supervisor was not told");
        }
    }
}

#[cfg(not(unix))]
impl Supervisor {
    pub(super) fn of(_: &Env) -> Self {
        Self { watchdog: None }
    }

    fn tell(&self, _: &str) {}
}

impl Supervisor {
    /// Clients can come.
    pub(super) fn ready(&self, place: &str) {
        self.tell(&format!("READY=1\nSTATUS=listening on {place}\n"));
    }

    /// The end has begun.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=waiting for turns that run\n");
    }

    /// Says now and then that this process still works something off; never ends.
    pub(super) async fn watch(&self) {
        let Some(period) = self.watchdog else { return std::future::pending().await };
        loop {
            self.tell("WATCHDOG=1\n");
            // Twice in the time in which it wants to hear once.
            tokio::time::sleep(period / 2).await;
        }
    }
}

#[cfg(unix)]
fn address(name: &str) -> std::io::Result<std::os::unix::net::SocketAddr> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some(name) = name.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt as _;

        return std::os::unix::net::SocketAddr::from_abstract_name(name);
    }
    std::os::unix::net::SocketAddr::from_pathname(name)
}

/// What the supervisor asks for, unless it asks another process.
#[cfg(unix)]
fn watchdog(env: &Env) -> Option<Duration> {
    let asked = env.get("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let micros = env.get("WATCHDOG_USEC")?.parse().ok().filter(|micros| *micros > 0)?;
    asked.then_some(Duration::from_micros(micros))
}
