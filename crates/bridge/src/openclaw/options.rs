//! Which gateway, and what opens its door: arguments first, then the environment. Tokens are read from files each time
//! they are needed, and never stand in an address.

use std::{
    fmt, fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use thiserror::Error;
use zeroclaw_config::{Env, resolve_paths};

use super::{
    engine::{ProvenanceMode, Settings},
    gateway::Credentials,
    identity::Identity,
    ledger::Caps,
};

/// Where a gateway listens that nobody said otherwise about.
const USUAL_URL: &str = "ws://127.0.0.1:18789";

/// The longest secret that is read.
const MAX_SECRET: usize = 4096;

/// What a bridge wants to do at the gateway.
const SCOPES: [&str; 3] = ["operator.read", "operator.write", "operator.approvals"];

/// What besides is needed to reset sessions and change their settings.
const ADMIN: &str = "operator.admin";

/// What the command line says. The names are those of OpenClaw's own bridge where it has them.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// The gateway's address.
    pub url: Option<String>,
    /// A token in the open; a file is better.
    pub token: Option<Secret>,
    /// The file with the token.
    pub token_file: Option<PathBuf>,
    /// A password in the open.
    pub password: Option<Secret>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// The key of the gateway's session that every session is.
    pub session: Option<String>,
    /// Its label.
    pub session_label: Option<String>,
    /// The gateway's session must be there.
    pub require_existing: bool,
    /// Begin it anew.
    pub reset_session: bool,
    /// Say nothing about the working directory.
    pub no_prefix_cwd: bool,
    /// What is said about where messages come from.
    pub provenance: ProvenanceMode,
    /// Ask for an administrator's rights.
    pub admin: bool,
    /// The directory of the identity and the ledger.
    pub state_dir: Option<PathBuf>,
    /// The configuration directory that the usual state directory is in.
    pub config_dir: Option<PathBuf>,
    /// How long a gateway that is not there yet is waited for at start.
    pub wait: Duration,
    /// How long prompts wait for a gateway that was lost.
    pub grace: Duration,
    /// Sessions that may be created in ten seconds.
    pub create_limit: usize,
    /// What the ledger may take up.
    pub caps: Caps,
    /// Log what is going on.
    pub verbose: bool,
    /// Speak to a remote gateway in the clear.
    pub allow_insecure: bool,
    /// The directory that the bridge was started in.
    pub current_dir: Option<PathBuf>,
}

/// A text that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// What is wrong with the arguments.
#[derive(Debug, Error)]
pub enum OptionsError {
    /// One of both.
    #[error("`{0}` and `{1}` exclude each other")]
    Both(&'static str, &'static str),
    /// The address is none of a WebSocket.
    #[error("the gateway's address must begin with ws:// or wss://")]
    Scheme,
    /// A secret in an address ends up in logs.
    #[error("the gateway's address must not hold a token; use --token-file or OPENCLAW_GATEWAY_TOKEN")]
    SecretInUrl,
    /// Everybody on the way could read the token.
    #[error(
        "`{0}` is not on this machine or a private network, and ws:// is not encrypted; use wss://, a tunnel, or --allow-insecure"
    )]
    Insecure(String),
    /// A file with a secret is not usable.
    #[error("`{}` cannot be read as a token or password", .0.display())]
    SecretFile(PathBuf),
    /// Nowhere to keep the identity.
    #[error("there is no home directory; give --state-dir")]
    NoStateDir,
}

/// Where a secret is.
#[derive(Clone, Debug)]
enum Source {
    Nowhere,
    Given(Secret),
    File(PathBuf),
}

impl Source {
    fn read(&self) -> Result<Option<String>, OptionsError> {
        match self {
            Self::Nowhere => Ok(None),
            Self::Given(secret) => Ok(Some(secret.0.clone())),
            Self::File(path) => {
                let text = fs::read_to_string(path).ok().filter(|text| text.len() <= MAX_SECRET);
                let text = text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
                text.map(Some).ok_or_else(|| OptionsError::SecretFile(path.clone()))
            }
        }
    }
}

/// What opens the door, and how to find it.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) url: String,
    token: Source,
    password: Source,
    admin: bool,
}

/// Everything that is decided before the first connection.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) door: Door,
    pub(super) settings: Settings,
    pub(super) state_dir: PathBuf,
    pub(super) wait: Duration,
    pub(super) caps: Caps,
}

impl Door {
    /// The credentials as they are now. With a token or a password they are that; else the device's own token, if it has one.
    ///
    /// # Errors
    /// A file with a secret is not usable.
    pub(super) fn credentials(&self, identity: &Identity, use_device_token: bool) -> Result<Credentials, OptionsError> {
        let (token, password) = (self.token.read()?, self.password.read()?);
        let device = identity.token();
        // A device that asks for more than it was approved for is not let in, so what it has is what it asks for.
        let mut scopes = match &device {
            Some(device) if !device.scopes.is_empty() => device.scopes.clone(),
            Some(_) | None => SCOPES.iter().map(|scope| (*scope).to_owned()).collect(),
        };
        if self.admin && !scopes.iter().any(|scope| scope == ADMIN) {
            scopes.push(ADMIN.to_owned());
        }
        if use_device_token || (token.is_none() && password.is_none()) {
            let is_device_token = device.is_some();
            return Ok(Credentials {
                token: device.map(|device| device.token),
                password: None,
                scopes,
                is_device_token,
            });
        }
        Ok(Credentials { token, password, scopes, is_device_token: false })
    }
}

/// Works out what the arguments and the environment say.
///
/// # Errors
/// See [`OptionsError`].
pub(super) fn options(arguments: Arguments, env: &Env) -> Result<Options, OptionsError> {
    let variable = |name: &str| env.get(name).map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned);
    let given_url = arguments.url.clone().or_else(|| variable("OPENCLAW_GATEWAY_URL"));
    // Whoever names a gateway does not mean that the secrets of another one go there.
    let implicit = arguments.url.is_none();
    let url = given_url.unwrap_or_else(|| USUAL_URL.to_owned());
    check(&url, arguments.allow_insecure || variable("OPENCLAW_ALLOW_INSECURE_PRIVATE_WS").as_deref() == Some("1"))?;
    let source = |given: Option<Secret>, file: Option<PathBuf>, names: (&'static str, &'static str), name: &str| match (
        given, file,
    ) {
        (Some(_), Some(_)) => Err(OptionsError::Both(names.0, names.1)),
        (Some(secret), None) => {
            tracing::warn!("{} is visible to everybody on this machine; use {}", names.0, names.1);
            Ok(Source::Given(secret))
        }
        (None, Some(file)) => Ok(Source::File(file)),
        (None, None) => {
            Ok(variable(name).filter(|_| implicit).map_or(Source::Nowhere, |value| Source::Given(Secret(value))))
        }
    };
    let token = source(arguments.token, arguments.token_file, ("--token", "--token-file"), "OPENCLAW_GATEWAY_TOKEN")?;
    let password = source(
        arguments.password,
        arguments.password_file,
        ("--password", "--password-file"),
        "OPENCLAW_GATEWAY_PASSWORD",
    )?;
    let state_dir = match arguments.state_dir {
        Some(dir) => absolute(dir, arguments.current_dir.as_deref()),
        None => {
            let paths = resolve_paths(arguments.config_dir.as_deref(), env).map_err(|_| OptionsError::NoStateDir)?;
            paths.config_dir.join("openclaw")
        }
    };
    let settings = Settings {
        session: arguments.session,
        label: arguments.session_label,
        require_existing: arguments.require_existing,
        reset: arguments.reset_session,
        prefix_cwd: !arguments.no_prefix_cwd,
        provenance: arguments.provenance,
        grace: arguments.grace,
        create_limit: arguments.create_limit,
        create_window: Duration::from_secs(10),
        home: variable("HOME").or_else(|| variable("USERPROFILE")).map(PathBuf::from),
        host: variable("HOSTNAME").unwrap_or_else(|| "localhost".to_owned()),
        platform: platform().to_owned(),
    };
    let door = Door { url, token, password, admin: arguments.admin };
    Ok(Options { door, settings, state_dir, wait: arguments.wait, caps: arguments.caps })
}

fn absolute(path: PathBuf, current: Option<&Path>) -> PathBuf {
    match current {
        Some(current) if path.is_relative() => current.join(path),
        Some(_) | None => path,
    }
}

/// The system as Node names it, because gateways were made for clients that do.
fn platform() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    }
}

fn check(url: &str, allow_insecure: bool) -> Result<(), OptionsError> {
    let (is_clear, rest) = match (url.strip_prefix("ws://"), url.strip_prefix("wss://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err(OptionsError::Scheme),
    };
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let names_secret = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
        matches!(name.as_str(), "token" | "password" | "auth" | "access_token")
    };
    if authority.contains('@') || query.split('&').any(names_secret) {
        return Err(OptionsError::SecretInUrl);
    }
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    if is_clear && !allow_insecure && !is_near(host) {
        return Err(OptionsError::Insecure(host.to_owned()));
    }
    Ok(())
}

/// Whether a host is on this machine or a private network, where a gateway without encryption is usual.
fn is_near(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    if host == "localhost" || [".localhost", ".local", ".ts.net"].iter().any(|end| host.ends_with(end)) {
        return true;
    }
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            let [first, second, ..] = address.octets();
            let is_shared = first == 100 && (64..128).contains(&second);
            address.is_loopback() || address.is_private() || address.is_link_local() || is_shared
        }
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
