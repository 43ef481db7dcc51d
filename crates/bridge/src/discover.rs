//! Where the gateway is and who may say so: arguments, then the environment, then the daemon's own configuration.
//! It refuses to hold a token: it knows where one is, because a daemon that was started again has made a new one.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use thiserror::Error;
use zeroclaw_config::{ConfigError, Env, load, resolve_paths};

use crate::Options;

/// The variable with a token for this bridge.
const TOKEN_VARIABLE: &str = "ZEROCLAW_ACP_BRIDGE_TOKEN";

/// The file in the configuration directory that the daemon keeps for programs of its own user.
const TOKEN_FILE: &str = "acp-bridge-token";

/// The longest token that is read; a longer file is none.
const MAX_TOKEN: usize = 4096;

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// The configuration directory.
    pub config_dir: Option<PathBuf>,
    /// The gateway's address, in place of the configured one.
    pub url: Option<String>,
    /// The agent of new sessions that name none.
    pub agent: Option<String>,
    /// The file with the token.
    pub token_file: Option<PathBuf>,
    /// How long a lost gateway is looked for.
    pub reconnect: Duration,
    /// How long a gateway that is not there yet is waited for at start.
    pub wait: Duration,
}

/// Why the gateway cannot be named.
#[derive(Debug, Error)]
pub enum DiscoverError {
    /// The configuration cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The daemon listens where this bridge cannot go.
    #[error(
        "the daemon listens on a Unix socket, which this bridge does not speak to; configure `gateway.host` and `gateway.port`"
    )]
    UnixSocket,
    /// The address is not one of a WebSocket.
    #[error("the address must begin with ws:// or wss://")]
    Scheme,
    /// A token in an address ends up in logs.
    #[error("the address must not hold a token; use --token-file or {TOKEN_VARIABLE}")]
    TokenInUrl,
}

/// Where the token is.
#[derive(Clone, Default)]
pub(crate) enum TokenSource {
    #[default]
    Nowhere,
    Given(String),
    File(PathBuf),
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Nowhere => "Nowhere",
            Self::Given(_) => "Given",
            Self::File(_) => "File",
        })
    }
}

impl TokenSource {
    /// The token as it is now.
    pub(crate) fn read(&self) -> Option<String> {
        match self {
            Self::Nowhere => None,
            Self::Given(token) => Some(token.clone()),
            Self::File(path) => match fs::read_to_string(path) {
                Ok(text) if text.len() <= MAX_TOKEN => Some(text.trim().to_owned()).filter(|token| !token.is_empty()),
                Ok(_) | Err(_) => None,
            },
        }
    }
}

/// Works out how the gateway is reached. Without a configuration an address is enough.
///
/// # Errors
/// See [`DiscoverError`].
pub fn discover(arguments: Arguments, env: &Env, seed: u64) -> Result<Options, DiscoverError> {
    let paths = resolve_paths(arguments.config_dir.as_deref(), env);
    let url = match arguments.url {
        Some(url) => with_agent(checked(&url)?, arguments.agent.as_deref()),
        None => {
            let gateway = load(paths.as_ref().map_err(|_| ConfigError::NoConfigDir)?, env)?.config.gateway;
            if gateway.unix_socket.is_some() {
                return Err(DiscoverError::UnixSocket);
            }
            let host = match gateway.host.as_str() {
                // What listens everywhere is here too.
                "0.0.0.0" => "127.0.0.1".to_owned(),
                "::" | "[::]" => "[::1]".to_owned(),
                host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
                host => host.to_owned(),
            };
            let prefix = gateway.path_prefix.unwrap_or_default();
            let prefix = prefix.trim_matches('/');
            let slash = if prefix.is_empty() { "" } else { "/" };
            let scheme = if gateway.tls_certificate.is_some() { "wss" } else { "ws" };
            with_agent(&format!("{scheme}://{host}:{}{slash}{prefix}/acp", gateway.port), arguments.agent.as_deref())
        }
    };
    let token = match (arguments.token_file, env.get(TOKEN_VARIABLE).map(str::trim).filter(|token| !token.is_empty())) {
        (Some(file), _) => TokenSource::File(file),
        (None, Some(token)) => TokenSource::Given(token.to_owned()),
        (None, None) => {
            paths.map_or(TokenSource::Nowhere, |paths| TokenSource::File(paths.config_dir.join(TOKEN_FILE)))
        }
    };
    Ok(Options { url, token, reconnect: arguments.reconnect, wait: arguments.wait, seed })
}

fn checked(url: &str) -> Result<&str, DiscoverError> {
    if !url.starts_with("ws://") && !url.starts_with("wss://") {
        return Err(DiscoverError::Scheme);
    }
    let query = url.split_once('?').map_or("", |(_, query)| query);
    if query.split('&').any(|pair| pair == "token" || pair.starts_with("token=")) || url.contains('@') {
        return Err(DiscoverError::TokenInUrl);
    }
    Ok(url)
}

fn with_agent(url: &str, agent: Option<&str>) -> String {
    let Some(agent) = agent else { return url.to_owned() };
    let mut url = url.to_owned();
    url.push(if url.contains('?') { '&' } else { '?' });
    url.push_str("agent=");
    for byte in agent.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

/// The directory and file that a person is told about when there is no token.
pub(crate) fn advice(source: &TokenSource) -> String {
    let place = |path: &Path| path.display().to_string();
    match source {
        TokenSource::Nowhere => format!("give a token with --token-file or {TOKEN_VARIABLE}"),
        TokenSource::Given(_) => {
            format!("the token in {TOKEN_VARIABLE} is not accepted; make a new one with `zeroclaw tokens create`")
        }
        TokenSource::File(path) => {
            format!("the token in {} is missing or not accepted; the daemon writes it at its start", place(path))
        }
    }
}

#[cfg(test)]
mod tests;
