//! The bridge as a program: log, runtime, signals and exit code.

use std::{
    collections::hash_map::RandomState, ffi::OsString, future::poll_fn, hash::BuildHasher, io, process::ExitCode,
    task::Poll,
};

use tracing_subscriber::{
    EnvFilter, Layer as _, filter::filter_fn, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};
use zeroclaw_acp_transport::Limits;
use zeroclaw_config::Env;

use crate::{Arguments, End, discover, serve};

/// The longest line of a client; the gateway has a limit of its own.
pub(crate) const MAX_LINE: usize = 64 * 1024 * 1024;

/// Bytes that wait for a client that does not read before the gateway is not read either.
pub(crate) const OUTBOX_HIGH: usize = 256 * 1024;

/// The variable with log directives, as of the agent.
const LOG_VARIABLE: &str = "RUST_LOG";

/// Wrong usage or configuration.
pub(crate) const USAGE: u8 = 2;

/// Runs the bridge with these variables as its environment and returns its exit code.
#[must_use]
pub fn run(arguments: Arguments, variables: impl IntoIterator<Item = (OsString, OsString)>) -> ExitCode {
    let env = Env::from_os_vars(variables);
    log(&env, "warn");
    let options = match discover(arguments, &env, RandomState::new().hash_one(std::process::id())) {
        Ok(options) => options,
        Err(error) => {
            tracing::error!("{error}");
            return ExitCode::from(USAGE);
        }
    };
    let limits = Limits { max_line: MAX_LINE, outbox_high: OUTBOX_HIGH };
    block_on(async { serve(options, limits, stop_signal()?).await })
}

/// Sends everything that is no protocol to standard error: what the environment asks for, or else what `usual` names.
pub(crate) fn log(env: &Env, usual: &str) {
    let filter = env.get(LOG_VARIABLE).and_then(|directives| EnvFilter::try_new(directives).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(usual));
    // The WebSocket library writes whole messages and the request with the token, wherever its log is joined to this one;
    // no directive lets it speak.
    let heard = filter_fn(|event| !event.target().starts_with("tungstenite"));
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false).with_filter(heard);
    tracing_subscriber::registry().with(filter).with(layer).init();
}

/// Runs a bridge to its end and turns that into an exit code.
pub(crate) fn block_on(serving: impl Future<Output = io::Result<End>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime.and_then(|runtime| {
        let served = runtime.block_on(serving);
        // The thread that reads standard input may wait for a client that says nothing more.
        runtime.shutdown_background();
        served
    });
    match served {
        Ok(End::Done) => ExitCode::SUCCESS,
        Ok(End::Lost) => ExitCode::FAILURE,
        Ok(End::Refused) => ExitCode::from(3),
        Ok(End::ShutDown) => ExitCode::from(4),
        Err(error) => {
            tracing::error!(%error, "the bridge cannot run");
            ExitCode::FAILURE
        }
    }
}

/// Resolves when the process is asked to end.
#[cfg(unix)]
pub(crate) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let mut signals = kinds.into_iter().map(signal).collect::<io::Result<Vec<_>>>()?;
    Ok(poll_fn(move |context| {
        let asked = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if asked { Poll::Ready(()) } else { Poll::Pending }
    }))
}

/// Resolves when the process is asked to end.
#[cfg(not(unix))]
pub(crate) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        // An error means that there is no console to be interrupted from.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
