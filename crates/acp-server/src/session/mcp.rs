//! The MCP servers of a session: those of the operator and those of the client, checked and brought into one list.
//! It refuses to start them; that is the runtime's business.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use zeroclaw_acp_protocol::{McpServer, NameValue};
use zeroclaw_runtime::mcp::{
    CALL_TIMEOUT, MAX_SERVERS, McpHost, McpServerConfig, McpServers, McpTransport, START_TIMEOUT,
};

use crate::{agents::AgentEntry, client::lock, error::CallError, server::ClientMcp, workspace::Workspace};

/// The longest name of a server: it is part of the name of every tool.
const MAX_NAME: usize = 128;

/// What a session starts.
#[derive(Debug, Default)]
pub(super) struct McpPlan {
    servers: Vec<McpServerConfig>,
    /// Sentences about servers that are not started.
    problems: Vec<String>,
}

impl McpPlan {
    /// The operator's servers, then the client's; the operator's keep their names.
    pub(super) fn new(entry: &AgentEntry, client: Vec<McpServer>, allowed: ClientMcp) -> Result<Self, CallError> {
        let mut plan = Self { servers: entry.mcp.servers.clone(), problems: Vec::new() };
        if plan.servers.len() + client.len() > MAX_SERVERS {
            return Err(CallError::params(format!("a session has at most {MAX_SERVERS} MCP servers")));
        }
        for server in client {
            plan.add(server, allowed)?;
        }
        Ok(plan)
    }

    fn add(&mut self, server: McpServer, allowed: ClientMcp) -> Result<(), CallError> {
        let name = server.name().to_owned();
        if name.trim().is_empty() || name.len() > MAX_NAME {
            return Err(CallError::params(format!("the name of an MCP server has 1 to {MAX_NAME} bytes")));
        }
        if self.servers.iter().any(|known| known.name == name) {
            self.problems.push(format!("MCP server `{name}`: another server has this name; it is not started"));
            return Ok(());
        }
        let transport = match server {
            McpServer::Stdio { .. } if allowed != ClientMcp::All => {
                self.problems.push(format!("MCP server `{name}`: programs that a client names are not started here"));
                return Ok(());
            }
            McpServer::Http { .. } if allowed == ClientMcp::None => {
                self.problems.push(format!("MCP server `{name}`: servers that a client names are not used here"));
                return Ok(());
            }
            McpServer::Stdio { command, args, env, .. } => {
                McpTransport::Stdio { command: PathBuf::from(command), args, env: pairs(env) }
            }
            McpServer::Http { url, headers, .. } => McpTransport::Http { url, headers: pairs(headers) },
            McpServer::Other { transport, .. } => {
                self.problems.push(format!("MCP server `{name}`: the transport `{transport}` is not supported"));
                return Ok(());
            }
        };
        self.servers.push(McpServerConfig {
            name,
            transport,
            start_timeout: START_TIMEOUT,
            call_timeout: CALL_TIMEOUT,
        });
        Ok(())
    }

    /// Starts the servers in the session's directory.
    pub(super) fn start(self, entry: &AgentEntry, workspace: &Workspace) -> SessionMcp {
        let host = McpHost {
            cwd: workspace.cwd.clone(),
            env: entry.settings.shell_env.clone(),
            launcher: entry.settings.launcher.clone(),
            sandbox: Arc::clone(&entry.settings.sandbox),
            jail: Arc::clone(&workspace.jail),
            rules: Arc::clone(&entry.rules),
            http: entry.mcp.http.clone(),
            version: env!("CARGO_PKG_VERSION"),
        };
        SessionMcp { servers: McpServers::start(self.servers, &host), problems: Mutex::new(self.problems) }
    }
}

/// The servers of a live session.
#[derive(Debug)]
pub(super) struct SessionMcp {
    servers: McpServers,
    problems: Mutex<Vec<String>>,
}

impl SessionMcp {
    pub(super) fn servers(&self) -> &McpServers {
        &self.servers
    }

    /// What is to be told since this was asked last.
    pub(super) fn news(&self) -> Vec<String> {
        let mut news = std::mem::take(&mut *lock(&self.problems));
        news.extend(self.servers.news());
        news
    }
}

fn pairs(pairs: Vec<NameValue>) -> Vec<(String, String)> {
    pairs.into_iter().map(|pair| (pair.name, pair.value)).collect()
}
