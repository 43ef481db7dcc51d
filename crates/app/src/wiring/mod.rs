//! Puts the agent server together and serves it: the one place where configuration, store, models, tools and transport meet.

mod agents;
mod ambient;
mod daemon;
mod environment;
mod places;
pub(crate) mod rules;
mod sandbox;
mod store;
mod supervisor;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use zeroclaw_acp_protocol::ErrorTable;
use zeroclaw_acp_server::{Ambient, ClientMcp, ClientProfile, Logins, OnDisconnect, Server, ServerSettings};
use zeroclaw_acp_transport::{Limits, stdio};
use zeroclaw_config::{ClientMcpServers, Env, ErrorCodes, Loaded};
use zeroclaw_session_store::SessionStore;

pub use agents::{Trial, agent_table};
pub(crate) use ambient::session_id;
pub(crate) use daemon::world;
pub use daemon::{DaemonOptions, serve_daemon};
pub use places::absolute_places;
pub use rules::check_rules;
pub(crate) use sandbox::backend;

/// The session store, where there is one.
type Store = Option<Arc<dyn SessionStore>>;

/// Bytes of output that wait for the client before a turn is told to wait.
const OUTBOX_HIGH: usize = 1024 * 1024;

/// How long the end may take: an editor that closed the pipe waits for the process.
const GRACE: Duration = Duration::from_millis(1800);

/// Worker threads. The work of one client is encoding beside storing, so two are what it can use.
const WORKERS: usize = 2;

/// What the command line decides about a server.
#[derive(Debug, Clone, Default)]
pub struct ServeOptions {
    /// The configuration directory; absent means the usual place.
    pub config_dir: Option<PathBuf>,
    /// Overrides `acp.max_sessions`.
    pub max_sessions: Option<usize>,
    /// Overrides `acp.session_timeout_secs`.
    pub session_timeout_secs: Option<u64>,
}

/// Serves one client on standard input and output until the input ends.
///
/// # Errors
/// When the configuration cannot be used or the operating system refuses a thread.
pub fn serve_stdio(options: ServeOptions) -> anyhow::Result<ExitCode> {
    keep_to_itself();
    let env = Env::from_os_vars(std::env::vars_os());
    let loaded = read_configuration(&options, &env)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("acp-worker")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = runtime.block_on(serve(&options, &loaded, &env));
    // What still blocks (a file system that hangs) must not hold up the end.
    runtime.shutdown_background();
    code
}

fn read_configuration(options: &ServeOptions, env: &Env) -> anyhow::Result<Loaded> {
    let paths = zeroclaw_config::resolve_paths(options.config_dir.as_deref(), env)?;
    let loaded = zeroclaw_config::load(&paths, env)?;
    if !loaded.ignored.is_empty() {
        tracing::debug!(ignored = loaded.ignored.join(", "), "settings of other programs were left alone");
    }
    if let Some(problem) = &loaded.keys_problem {
        tracing::warn!(problem, "the stored keys cannot be read");
    }
    check_rules(&loaded)?;
    absolute_places(loaded)
}

/// Keeps other processes of the same user out of this one's memory and environment, where the vendor's key is: the commands
/// that the agent runs are such processes. It does not hold against the superuser.
fn keep_to_itself() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "this process cannot be closed to others; commands may read its environment");
    }
}

async fn serve(options: &ServeOptions, loaded: &Loaded, env: &Env) -> anyhow::Result<ExitCode> {
    let stop = stop_signal()?;
    let store = store::open(loaded).await;
    let server = start(options, loaded, env, store.clone())?;
    let limits = Limits { max_line: loaded.config.acp.max_line_bytes, outbox_high: OUTBOX_HIGH };
    let connect = |outbox| server.connect(outbox, None, OnDisconnect::End);
    let end = stdio::serve(std::io::stdin(), std::io::stdout(), limits, GRACE, connect, stop)
        .await
        .context("cannot serve standard input")?;
    if let Some(store) = store
        && let Err(error) = store.close().await
    {
        tracing::warn!(%error, "the session store could not be closed");
    }
    Ok(match end {
        stdio::End::Clean => ExitCode::SUCCESS,
        stdio::End::OutputLost => {
            tracing::warn!("the client stopped reading; some output was not written");
            ExitCode::SUCCESS
        }
    })
}

/// Puts the server together.
fn start(options: &ServeOptions, loaded: &Loaded, env: &Env, store: Store) -> anyhow::Result<Server> {
    let settings = settings(options, loaded)?;
    let table = agent_table(loaded, env);
    let ambient = Ambient { now_ms: Box::new(ambient::now_ms), session_id: Box::new(session_id) };
    let logins = logins(options.config_dir.clone(), loaded.clone(), env.clone());
    Ok(Server::with_logins(settings, table, store, ambient, Some(logins)))
}

/// What a running server does about logins: reading the configuration again, and removing stored keys.
fn logins(config_dir: Option<PathBuf>, loaded: Loaded, env: Env) -> Logins {
    let (paths, known) = (loaded.paths.clone(), Mutex::new(loaded));
    let again = env.clone();
    let reload = move || {
        let env = &again;
        let read = || -> anyhow::Result<Loaded> {
            let paths = zeroclaw_config::resolve_paths(config_dir.as_deref(), env)?;
            absolute_places(zeroclaw_config::load(&paths, env)?)
        };
        let now = read().map_err(|error| {
            tracing::warn!(error = format!("{error:#}"), "the configuration cannot be read again");
            "the configuration cannot be used any more; `zeroclaw doctor` says why".to_owned()
        })?;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == now {
            return Ok(None);
        }
        let table = agent_table(&now, env);
        *known = now;
        Ok(Some(table))
    };
    let forget = move || match zeroclaw_config::remove_keys(&paths, |_| true) {
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "the stored keys cannot be removed");
            Err("the stored keys cannot be removed; the log says why".to_owned())
        }
    };
    Logins { reload: Box::new(reload), forget: Box::new(forget) }
}

fn settings(options: &ServeOptions, loaded: &Loaded) -> anyhow::Result<ServerSettings> {
    let acp = &loaded.config.acp;
    let timeout = options.session_timeout_secs.unwrap_or(acp.session_timeout_secs);
    Ok(ServerSettings {
        max_sessions: options.max_sessions.unwrap_or(acp.max_sessions),
        session_timeout: Duration::from_secs(timeout),
        detach_grace: Duration::from_secs(loaded.config.gateway.detach_grace_secs),
        errors: error_table(acp.error_codes),
        clients: acp
            .clients
            .iter()
            .map(|(name, client)| {
                let errors = client.error_codes.map(error_table);
                let profile = ClientProfile { errors, max_line: client.max_line_bytes, ..ClientProfile::default() };
                (name.clone(), profile)
            })
            .collect(),
        strict: acp.strict,
        install_root: loaded.paths.config_dir.clone(),
        allowed_cwd_roots: acp.allowed_cwd_roots.iter().map(PathBuf::from).collect(),
        process_dir: std::env::current_dir().context("the working directory is gone")?,
        client_mcp: match acp.client_mcp_servers {
            ClientMcpServers::All => ClientMcp::All,
            ClientMcpServers::Http => ClientMcp::Http,
            ClientMcpServers::None => ClientMcp::None,
        },
        client_terminal: acp.client_terminal,
        client_timeout: Duration::from_secs(acp.client_timeout_secs),
        version: env!("CARGO_PKG_VERSION"),
    })
}

fn error_table(codes: ErrorCodes) -> ErrorTable {
    match codes {
        ErrorCodes::Zeroclaw => ErrorTable::Zeroclaw,
        ErrorCodes::Spec => ErrorTable::Spec,
    }
}

/// Resolves when the process is asked to end.
#[cfg(unix)]
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    // A terminal or a connection that closes is an end like any other.
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("ended by SIGTERM"),
            _ = interrupt.recv() => tracing::info!("ended by SIGINT"),
            _ = hangup.recv() => tracing::info!("ended by SIGHUP"),
        }
    })
}

/// Resolves when the process is asked to end.
#[cfg(not(unix))]
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    Ok(async {
        // An error means that there is no console to be interrupted from.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
