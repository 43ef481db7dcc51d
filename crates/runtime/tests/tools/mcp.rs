//! Calls of tools of MCP servers: one that stops reading holds up nobody.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use zeroclaw_runtime::{
    mcp::{McpHost, McpServerConfig, McpServers, McpTransport},
    model::vendor::HttpClients,
    sandbox::Confiner,
    tool::ToolFailure,
};

use crate::support::Bench;

/// A server that answers what comes before a call and reads nothing after that.
const DEAF: &str = r#"
read line
printf '%s\n' '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"deaf","version":"1"}}}'
read line
read line
printf '%s\n' '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"take","inputSchema":{"type":"object"}}]}}'
exec sleep 600
"#;

/// Longer than any test runs that does not hang.
const HANG: Duration = Duration::from_secs(60);

async fn deaf(bench: &Bench, call_timeout: Duration) -> McpServers {
    let host = McpHost {
        cwd: bench.inside.clone(),
        env: bench.context.settings.shell_env.clone(),
        launcher: None,
        sandbox: Arc::new(Confiner::unconfined()),
        jail: Arc::clone(&bench.context.jail),
        rules: Arc::clone(&bench.context.rules),
        http: HttpClients::new(None, std::time::SystemTime::now),
        version: "0.0.0",
    };
    let config = McpServerConfig {
        name: "deaf".to_owned(),
        transport: McpTransport::Stdio {
            command: "/bin/sh".into(),
            args: vec!["-c".to_owned(), DEAF.to_owned()],
            env: Vec::new(),
        },
        start_timeout: HANG,
        call_timeout,
    };
    let servers = McpServers::start(vec![config], &host);
    servers.settled().await;
    servers
}

/// Calls its tool with more than fits into a socket.
async fn call(bench: &Bench, servers: &McpServers) -> ToolFailure {
    let tools = servers.tools();
    let tool = tools.first().expect("the server has a tool");
    let call = tool.prepare(&json!({"text": "x".repeat(4 << 20)}), &bench.context).await.expect("prepared");
    let ended = tokio::time::timeout(HANG, bench.finish("deaf__take", call)).await;
    ended.expect("the call ends").expect_err("nobody answers")
}

/// The notification that takes a call back was waited for, and to a server that does not read it can never be written: the
/// time limit of the call ended nothing, and its prompt was never answered.
#[tokio::test]
async fn a_call_of_a_server_that_does_not_read_ends_in_its_time() {
    let bench = Bench::new();
    let servers = deaf(&bench, Duration::from_millis(200)).await;
    let failure = call(&bench, &servers).await.to_string();
    assert!(failure.contains("no sign of life"), "{failure}");
    servers.stop().await;
}

/// The same held up a cancel, until the turn dropped the call.
#[tokio::test]
async fn a_cancel_does_not_wait_for_a_server_that_does_not_read() {
    let bench = Bench::new();
    let servers = deaf(&bench, HANG * 10).await;
    let cancel = bench.context.cancel.clone();
    let (failure, ()) = tokio::join!(call(&bench, &servers), async {
        // The call is on its way: what does not fit into the socket is waited for.
        tokio::time::sleep(Duration::from_millis(300)).await;
        cancel.cancel();
    });
    assert!(matches!(failure, ToolFailure::Cancelled), "{failure}");
    servers.stop().await;
}
