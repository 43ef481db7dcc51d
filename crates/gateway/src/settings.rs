//! How the gateway behaves. There is no `Default`: whoever opens a gateway spells it out.

use std::{path::PathBuf, time::Duration};

use zeroclaw_acp_transport::Limits;

/// Settings of the gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Where tokens and pairing codes are kept: the configuration directory.
    pub directory: PathBuf,
    /// Whether a client needs a token.
    pub require_pairing: bool,
    /// Origins of web pages that may connect, beside the gateway's own.
    pub allowed_origins: Vec<String>,
    /// Names a gateway on the loopback may be asked for.
    pub allowed_hosts: Vec<String>,
    /// What stands before every path; empty or like `/zeroclaw`.
    pub path_prefix: String,
    /// Whether the last entry of `X-Forwarded-For` is the peer.
    pub trust_forwarded: bool,
    /// Connections that are open at once. One more is refused with 503.
    pub max_connections: usize,
    /// Limits of one connection.
    pub limits: Limits,
    /// Periods of one connection.
    pub periods: Periods,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Periods {
    /// Between two pings: below the minute after which proxies cut what is silent.
    pub ping: Duration,
    /// Without a byte from the peer, after which it counts as dead.
    pub dead: Duration,
    /// Without a byte that the peer takes while there is something to take, after which it is detached.
    pub stall: Duration,
    /// For a request to be sent, and for a close to be answered.
    pub patience: Duration,
    /// Between two looks at the file of tokens.
    pub watch: Duration,
}
