//! Where events and panics of the process go: standard error or a file, never standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context as _;
use clap::ValueEnum;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};
use zeroclaw_config::Env;

use super::term::{Palette, is_capable};

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogLevel {
    /// Nothing
    Off,
    /// What failed
    Error,
    /// And what is doubtful
    Warn,
    /// And what happened
    Info,
    /// And how
    Debug,
    /// Everything
    Trace,
}

impl LogLevel {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Sends events to the file, or to standard error. The flag wins over `RUST_LOG`, which wins over `warn`.
pub(super) fn start(level: Option<LogLevel>, file: Option<&Path>, env: &Env, err_terminal: bool) -> anyhow::Result<()> {
    let (filter, complaint) = filter(level, env);
    match file {
        Some(path) => {
            let file = open(path).with_context(|| format!("cannot open the log file {}", path.display()))?;
            install(filter, Mutex::new(file), false);
        }
        None => {
            let is_plain = Palette::for_stream(err_terminal, env) == Palette::plain() || !is_capable(env);
            install(filter, io::stderr, !is_plain);
        }
    }
    let is_to_file = file.is_some();
    std::panic::set_hook(Box::new(move |panic| {
        // Standard error first: the log may be what panicked. If it is gone, nobody is there to be told.
        let _ = writeln!(io::stderr(), "zeroclaw: internal error: {panic}");
        if is_to_file {
            tracing::error!("internal error: {panic}");
        }
    }));
    if let Some(complaint) = complaint {
        tracing::warn!("RUST_LOG is ignored: {complaint}");
    }
    Ok(())
}

fn filter(level: Option<LogLevel>, env: &Env) -> (EnvFilter, Option<String>) {
    if let Some(level) = level {
        return (EnvFilter::new(level.as_str()), None);
    }
    match env.get("RUST_LOG").map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new("warn"), Some(error.to_string())),
        None => (EnvFilter::new("warn"), None),
    }
}

/// Libraries that write what they send, receive or read into the log: silent at every level, because a message body is
/// never logged. What goes wrong with an MCP server is told without the help of its library, whose errors repeat addresses and
/// answers, with keys in them. The last four are the targets of the shell grammar, which logs the command it reads.
/// No directive of the filter gets past this, however precise it is.
const SILENT: [&str; 6] = ["genai", "rmcp", "tokenize", "parse", "expansion", "arithmetic"];

/// Whether what is logged under this target stays out of every log.
fn is_silent(target: &str) -> bool {
    SILENT.iter().any(|name| target.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
}

fn install<W: for<'a> MakeWriter<'a> + Send + Sync + 'static>(filter: EnvFilter, writer: W, ansi: bool) {
    let heard = filter_fn(|event| !is_silent(event.target()));
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(ansi).with_filter(heard);
    let subscriber = tracing_subscriber::registry().with(filter).with(layer);
    // A second call in one process keeps the first subscriber, whose only user would be a test.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Opens the log for appending. Only its owner may read it, because it tells who works on what.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_variable_and_a_bad_variable_is_complained_about() {
        let none = Env::default();
        let info: Env = [("RUST_LOG", "info")].into_iter().collect();
        let bad: Env = [("RUST_LOG", "zeroclaw=notalevel")].into_iter().collect();
        assert_eq!(filter(None, &none).0.to_string(), "warn");
        assert_eq!(filter(None, &info).0.to_string(), "info");
        assert_eq!(filter(Some(LogLevel::Debug), &info).0.to_string(), "debug");
        let (filter, complaint) = filter(None, &bad);
        assert_eq!(filter.to_string(), "warn");
        assert!(complaint.is_some());
    }

    #[test]
    fn what_writes_bodies_is_silent_and_only_that() {
        for silent in ["rmcp", "rmcp::service", "genai::webc", "parse"] {
            assert!(is_silent(silent), "{silent}");
        }
        for heard in ["zeroclaw_runtime::mcp", "rmcp_like", "parser", "sqlx::query"] {
            assert!(!is_silent(heard), "{heard}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_log_file_is_appended_to_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        for text in ["one\n", "two\n"] {
            open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
