//! The daemon: the agent server behind a gateway, until it is asked to end.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use async_trait::async_trait;
use zeroclaw_acp_server::{OnDisconnect, Server};
use zeroclaw_acp_transport::{Connection, Limits, Outbox};
use zeroclaw_config::{Env, Loaded};
use zeroclaw_gateway::{Acceptor, Gateway, GatewaySettings, Listener, Periods, TlsFiles, World};
use zeroclaw_session_store::MemoryStore;

use super::{
    OUTBOX_HIGH, ServeOptions, ambient, keep_to_itself, read_configuration, start, store, supervisor::Supervisor,
};

/// The periods of a connection. A ping in half a minute keeps links through proxies open, most of which cut after a
/// minute; two that nobody answered are a dead peer. Half a minute without taking a byte is no slow link.
const PERIODS: Periods = Periods {
    ping: Duration::from_secs(30),
    dead: Duration::from_secs(70),
    stall: Duration::from_secs(30),
    patience: Duration::from_secs(2),
    watch: Duration::from_secs(1),
};

/// How often it is looked whether turns still run while the daemon ends.
const DRAIN_STEP: Duration = Duration::from_millis(25);

/// How long sessions may take to end when the daemon does: commands get a moment to end by themselves.
const SHUT_DOWN: Duration = Duration::from_secs(5);

/// What the command line decides about a daemon.
#[derive(Debug, Clone, Default)]
pub struct DaemonOptions {
    /// What it decides about the server.
    pub serve: ServeOptions,
    /// Overrides `gateway.host`.
    pub host: Option<String>,
    /// Overrides `gateway.port`.
    pub port: Option<u16>,
}

/// Serves clients over the gateway until a signal ends it. `announce` is told where it listens.
///
/// # Errors
/// When the configuration cannot be used, or nothing can be listened on.
pub fn serve_daemon(mut options: DaemonOptions, announce: impl FnOnce(&str)) -> anyhow::Result<ExitCode> {
    keep_to_itself();
    let env = Env::from_os_vars(std::env::vars_os());
    let mut loaded = read_configuration(&options.serve, &env)?;
    let gateway = &mut loaded.config.gateway;
    gateway.host = options.host.take().unwrap_or_else(|| gateway.host.clone());
    gateway.port = options.port.unwrap_or(gateway.port);
    // Clients of a daemon may be elsewhere, so their directories can be others than those of an editor on this machine.
    if !gateway.allowed_cwd_roots.is_empty() {
        loaded.config.acp.allowed_cwd_roots = std::mem::take(&mut loaded.config.gateway.allowed_cwd_roots);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("zeroclaw-worker")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = runtime.block_on(serve(&options.serve, &loaded, &env, announce));
    // What still blocks (a file system that hangs) must not hold up the end.
    runtime.shutdown_background();
    code
}

/// Time and randomness for the gateway.
pub(crate) fn world() -> World {
    World { now_ms: Box::new(ambient::now_ms), random: Box::new(ambient::fill) }
}

async fn serve(
    options: &ServeOptions,
    loaded: &Loaded,
    env: &Env,
    announce: impl FnOnce(&str),
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    // First: a second daemon must not touch the store or the operator's token of the first.
    let listener = encrypted(listen(loaded).await?, loaded).await?;
    // Clients come back here, disk or not: what they have missed is kept in memory where it can be kept nowhere else.
    let store = store::open(loaded).await.unwrap_or_else(|| Arc::new(MemoryStore::new()));
    let server = start(options, loaded, env, Some(Arc::clone(&store)))?;
    let acceptor = Box::new(Clients(server.clone()));
    let gateway = Gateway::open(settings(loaded), &listener, world(), acceptor).await?;
    let supervisor = Supervisor::of(env);
    let place = place(loaded, &listener);
    announce(&place);
    supervisor.ready(&place);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (hurry, hurried) = tokio::sync::oneshot::channel::<()>();
    let drain_for = Duration::from_secs(loaded.config.gateway.drain_secs);
    let draining = server.clone();
    let serving = gateway.serve(
        listener,
        async {
            // Dropping the other end is the signal.
            let _dropped = stopped.await;
        },
        async {
            tokio::select! {
                () = drain(&draining, drain_for) => {}
                _ = hurried => tracing::warn!("ended at once; running turns are interrupted"),
            }
            // While the clients are still there: they are told how their turns ended.
            if tokio::time::timeout(SHUT_DOWN, draining.shut_down()).await.is_err() {
                tracing::warn!("some sessions did not end in time");
            }
        },
    );
    let steering = async {
        while signals.next().await == Signal::Reload {
            match server.reload().await {
                Ok(()) => tracing::info!("the configuration of the agents was read again"),
                Err(error) => tracing::warn!(error, "the configuration stays as it was"),
            }
            match gateway.reload_certificate().await {
                Ok(true) => tracing::info!("the certificate was read again"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the certificate stays as it was"),
            }
        }
        supervisor.stopping();
        drop(stop);
        // Whoever asks twice does not want to wait.
        while signals.next().await == Signal::Reload {}
        drop(hurry);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => {}
        () = steering => {}
        () = supervisor.watch() => {}
    }
    if let Err(error) = store.close().await {
        tracing::warn!(%error, "the session store could not be closed");
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until no turn runs, but not for ever.
async fn drain(server: &Server, limit: Duration) {
    let idle = async {
        while server.activity().prompts > 0 {
            tokio::time::sleep(DRAIN_STEP).await;
        }
    };
    if tokio::time::timeout(limit, idle).await.is_err() {
        tracing::warn!("some turns did not end in time and are interrupted");
    }
}

async fn encrypted(listener: Listener, loaded: &Loaded) -> anyhow::Result<Listener> {
    let gateway = &loaded.config.gateway;
    match (gateway.tls_certificate.clone(), gateway.tls_key.clone()) {
        (None, None) => Ok(listener),
        (Some(certificate), Some(key)) => Ok(listener.with_tls(TlsFiles { certificate, key }).await?),
        (Some(_), None) => anyhow::bail!("`gateway.tls_certificate` needs `gateway.tls_key`"),
        (None, Some(_)) => anyhow::bail!("`gateway.tls_key` needs `gateway.tls_certificate`"),
    }
}

async fn listen(loaded: &Loaded) -> anyhow::Result<Listener> {
    let gateway = &loaded.config.gateway;
    let Some(path) = &gateway.unix_socket else {
        return Ok(Listener::tcp(&gateway.host, gateway.port).await?);
    };
    #[cfg(unix)]
    return Ok(Listener::unix(path).await?);
    #[cfg(not(unix))]
    anyhow::bail!("`gateway.unix_socket` is `{}`, but this system has no such sockets", path.display());
}

/// Where clients connect to, as a person would type it.
fn place(loaded: &Loaded, listener: &Listener) -> String {
    let gateway = &loaded.config.gateway;
    let prefix = gateway.path_prefix.as_deref().unwrap_or_default();
    match (listener.address(), &gateway.unix_socket) {
        (Some(address), _) => {
            let scheme = if listener.is_encrypted() { "https" } else { "http" };
            format!("{scheme}://{address}{prefix}/acp")
        }
        (None, Some(path)) => format!("{prefix}/acp at the socket {}", path.display()),
        (None, None) => format!("{prefix}/acp"),
    }
}

fn settings(loaded: &Loaded) -> GatewaySettings {
    let gateway = &loaded.config.gateway;
    GatewaySettings {
        directory: loaded.paths.config_dir.clone(),
        require_pairing: gateway.require_pairing,
        allowed_origins: gateway.allowed_origins.clone(),
        allowed_hosts: gateway.allowed_hosts.clone(),
        path_prefix: gateway.path_prefix.clone().unwrap_or_default(),
        trust_forwarded: gateway.trust_forwarded_headers,
        max_connections: gateway.max_connections,
        limits: Limits { max_line: loaded.config.acp.max_line_bytes, outbox_high: OUTBOX_HIGH },
        periods: PERIODS,
    }
}

/// Hands the gateway's connections to the server.
struct Clients(Server);

#[async_trait]
impl Acceptor for Clients {
    fn connect(&self, outbox: Outbox, agent: Option<String>) -> Box<dyn Connection> {
        self.0.connect(outbox, agent, OnDisconnect::Detach)
    }

    async fn ready(&self) -> Result<(), String> {
        match self.0.lacks() {
            Some(lack) => Err(lack.to_owned()),
            None if !self.0.stores().await => Err("sessions cannot be stored".to_owned()),
            None => Ok(()),
        }
    }

    fn metrics(&self, text: &mut String) {
        self.0.write_metrics(text);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    End,
    Reload,
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
            hangup: signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::End,
            _ = self.interrupt.recv() => Signal::End,
            _ = self.hangup.recv() => Signal::Reload,
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Signal {
        // An error means that there is no console to be interrupted from.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::End
    }
}
