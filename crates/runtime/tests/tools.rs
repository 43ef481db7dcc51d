//! The tools from outside: real files, real processes, and the permit in between.
#![cfg(unix)]
#![expect(clippy::expect_used, clippy::panic, reason = "a test stops where something is not as it has to be")]

#[path = "tools/converse.rs"]
mod converse;
#[path = "tools/edit.rs"]
mod edit;
#[path = "tools/jail.rs"]
mod jail;
#[path = "tools/mcp.rs"]
mod mcp;
#[path = "tools/output.rs"]
mod output;
#[path = "tools/read.rs"]
mod read;
#[path = "tools/sandbox.rs"]
mod sandbox;
#[path = "tools/search.rs"]
mod search;
#[path = "tools/shell.rs"]
mod shell;
#[path = "tools/support.rs"]
mod support;
#[path = "tools/swapped.rs"]
mod swapped;
