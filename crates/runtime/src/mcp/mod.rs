//! Tools of MCP servers: the servers of one session, started side by side, watched, and ended with it.
//!
//! A server that is slow, wrong or dead costs its tools and a sentence, never the session.
//! This module refuses everything of the protocol but tools: no sampling, no elicitation, no roots.

mod call;
mod names;
mod process;
mod server;
mod tool;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use futures::future::join_all;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use zeroclaw_policy::Ruleset;

use crate::{
    jail::Jail,
    model::vendor::HttpClients,
    sandbox::Confiner,
    tool::{Launcher, Tool},
};

use server::Server;

/// Servers of one session, at most: each is a process and its tools are in every request to the model.
pub const MAX_SERVERS: usize = 32;

/// Time for a server to answer `initialize` and to list its tools, unless configured otherwise.
pub const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Time without any sign of life from a running call, unless configured otherwise.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Time for the servers to end by themselves when their session ends; then they are killed.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// A program that speaks over its standard input and output.
    Stdio {
        /// The program.
        command: PathBuf,
        /// Its arguments.
        args: Vec<String>,
        /// Variables besides those of [`McpHost::env`].
        env: Vec<(String, String)>,
    },
    /// A streamable HTTP endpoint.
    Http {
        /// Its address.
        url: String,
        /// Headers of every request.
        headers: Vec<(String, String)>,
    },
}

impl McpTransport {
    /// Tells servers apart by what they are, whatever they are called: by program and arguments, or by address.
    /// Variables and headers are left out, where keys change.
    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        };
        match self {
            Self::Stdio { command, args, .. } => {
                add(b"stdio");
                add(command.as_os_str().as_encoded_bytes());
                args.iter().for_each(|argument| add(argument.as_bytes()));
            }
            Self::Http { url, .. } => {
                add(b"http");
                add(url.as_bytes());
            }
        }
        digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for McpTransport {
    // Arguments, variables, addresses and headers all carry keys in the field.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, .. } => {
                formatter.debug_struct("Stdio").field("command", command).finish_non_exhaustive()
            }
            Self::Http { .. } => formatter.debug_struct("Http").finish_non_exhaustive(),
        }
    }
}

/// One server to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServerConfig {
    /// What its tools are named after.
    pub name: String,
    /// How it is reached.
    pub transport: McpTransport,
    /// Time to start.
    pub start_timeout: Duration,
    /// Time without a sign of life while a call runs.
    pub call_timeout: Duration,
}

/// What servers run on.
#[derive(Clone, Debug)]
pub struct McpHost {
    /// Where programs start.
    pub cwd: PathBuf,
    /// Environment of programs, complete but for their own variables.
    pub env: Vec<(String, String)>,
    /// What starts programs. Without it they are started directly, and survive this process when it is killed.
    pub launcher: Option<Launcher>,
    /// What confines programs.
    pub sandbox: Arc<Confiner>,
    /// The session's directories.
    pub jail: Arc<Jail>,
    /// What is forbidden in them.
    pub rules: Arc<Ruleset>,
    /// For HTTP endpoints.
    pub http: HttpClients,
    /// The version this program introduces itself with.
    pub version: &'static str,
}

/// The servers of one session. Dropped, they end; [`McpServers::stop`] waits for it.
#[derive(Debug)]
pub struct McpServers {
    servers: Vec<Arc<Server>>,
    stop: CancellationToken,
}

impl McpServers {
    /// Starts the servers and returns at once. Of several servers with one name the first counts.
    #[must_use]
    pub fn start(configs: Vec<McpServerConfig>, host: &McpHost) -> Self {
        let stop = CancellationToken::new();
        let mut servers: Vec<Arc<Server>> = Vec::with_capacity(configs.len());
        for config in configs {
            if servers.iter().any(|server| server.name() == config.name) {
                tracing::warn!(event = "mcp_double", "two MCP servers have one name; the second is left out");
                continue;
            }
            servers.push(Server::start(config, host.clone(), stop.clone()));
        }
        Self { servers, stop }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Resolves when every server is ready or has failed; each has its own time for that.
    pub async fn settled(&self) {
        join_all(self.servers.iter().map(|server| server.settled())).await;
    }

    /// The tools of the servers that are ready now, in the order of the servers.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.servers.iter().flat_map(|server| server.tools()).collect()
    }

    /// What happened to servers since this was asked last, one sentence each, for the user.
    #[must_use]
    pub fn news(&self) -> Vec<String> {
        self.servers.iter().flat_map(|server| server.news()).collect()
    }

    /// Ends the servers and waits until they are gone.
    pub async fn stop(&self) {
        self.stop.cancel();
        let ended = join_all(self.servers.iter().map(|server| server.ended()));
        if tokio::time::timeout(STOP_LIMIT + process::STOP_LIMIT, ended).await.is_err() {
            tracing::warn!(event = "mcp_stuck", "an MCP server does not end");
        }
    }
}

impl Drop for McpServers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests;
