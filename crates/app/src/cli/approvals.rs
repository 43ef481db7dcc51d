//! `zeroclaw approvals`: shows and takes back what was answered with "always", also while a server uses the store.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use zeroclaw_policy::Grant;
use zeroclaw_session_store::{
    ApprovalQuery, ApprovalRecord, OpenError, Ruling, SessionStore, SqliteOptions, SqliteStore, SyncMode,
};

use super::sessions::{store_path, time};
use super::term::{clipped, json_line, one_line};
use super::{Context, GlobalArgs, exit};
use crate::wiring;

/// How long a revocation waits for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Characters of one command in a list; `--json` shows the whole.
const MAX_SHOWN: usize = 200;

#[derive(Debug, Subcommand)]
pub(super) enum ApprovalsCommand {
    /// List what was answered with "always", the oldest first
    List {
        /// Print JSON, one approval a line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: Which,
    },
    /// Take approvals back; running sessions notice with their next prompt
    Revoke {
        /// The numbers that `zeroclaw approvals list` shows
        #[arg(value_name = "ID", required_unless_present = "all", conflicts_with_all = ["agent", "workspace"])]
        ids: Vec<u64>,
        /// All of them, or all of an agent or a directory
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, Args)]
pub(super) struct Which {
    /// Only those of this agent, by its alias
    #[arg(long, value_name = "ALIAS")]
    agent: Option<String>,
    /// Only those for sessions in this directory
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

impl Which {
    fn query(&self) -> ApprovalQuery {
        // The store compares exactly and has the canonical directory; one that is gone is named as it was.
        let workspace = self.workspace.as_ref().map(|path| {
            std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.clone())
        });
        ApprovalQuery { agent: self.agent.clone(), workspace }
    }
}

pub(super) fn run(
    command: &ApprovalsCommand,
    globals: &GlobalArgs,
    context: &Context,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    let loaded = context.load(globals)?;
    let path = store_path(&loaded.paths.data_dir);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        match command {
            ApprovalsCommand::List { json, which } => list(&path, which.query(), *json, out).await,
            ApprovalsCommand::Revoke { ids, which, all: _ } => revoke(&path, ids, which.query(), out).await,
        }
    })
}

async fn list(path: &Path, query: ApprovalQuery, json: bool, out: &mut impl Write) -> anyhow::Result<u8> {
    let store = match SqliteStore::open_read_only(path).await {
        Ok(store) => store,
        // No store yet holds no approvals.
        Err(OpenError::NotFound { .. }) => return Ok(exit::DONE),
        Err(error) => return Err(error.into()),
    };
    let approvals = store.approvals(query).await;
    store.close().await?;
    for record in &approvals? {
        if json {
            writeln!(out, "{}", json_line(&as_json(record).to_string()))?;
        } else {
            writeln!(out, "{}", as_line(record))?;
        }
    }
    out.flush()?;
    Ok(exit::DONE)
}

async fn revoke(path: &Path, ids: &[u64], query: ApprovalQuery, out: &mut impl Write) -> anyhow::Result<u8> {
    // Only looked at first: opening for writing would make a store, and move a foreign file aside.
    let store = match SqliteStore::open_read_only(path).await {
        Ok(store) => store,
        Err(OpenError::NotFound { .. }) if ids.is_empty() => return Ok(exit::DONE),
        Err(error) => return Err(error.into()),
    };
    let approvals = store.approvals(query).await;
    store.close().await?;
    let approvals = approvals?;
    let unknown: Vec<String> =
        ids.iter().filter(|id| !approvals.iter().any(|record| record.id == **id)).map(|id| format!("`{id}`")).collect();
    anyhow::ensure!(
        unknown.is_empty(),
        "there is no approval {}; nothing was revoked, `zeroclaw approvals list` shows all",
        unknown.join(", ")
    );
    let wanted: Vec<&ApprovalRecord> =
        approvals.iter().filter(|record| ids.is_empty() || ids.contains(&record.id)).collect();
    if wanted.is_empty() {
        return Ok(exit::DONE);
    }
    let options = SqliteOptions {
        path: path.to_owned(),
        sync: SyncMode::Turn,
        instance: wiring::session_id(),
        busy_timeout: BUSY_TIMEOUT,
    };
    let store = SqliteStore::open(options).await?;
    let mut result = Ok(());
    for record in wanted {
        match store.revoke_approval(record.id).await {
            // Somebody else was faster; it is gone all the same.
            Ok(_) => writeln!(out, "revoked {}", as_line(record))?,
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    let closed = store.close().await;
    result.and(closed)?;
    out.flush()?;
    Ok(exit::DONE)
}

fn as_line(record: &ApprovalRecord) -> String {
    let approval = &record.approval;
    format!(
        "{}  {}  {:<6}  {}  {}  {}: {}",
        record.id,
        time(approval.created_at_ms),
        word(approval.ruling),
        one_line(&approval.agent),
        one_line(&approval.workspace.to_string_lossy()),
        one_line(&approval.tool),
        covers(record),
    )
}

/// What is covered, as the question said it.
fn covers(record: &ApprovalRecord) -> String {
    let approval = &record.approval;
    Grant::parse(&approval.tool, &approval.rule).map_or_else(
        || "(cannot be read and does not count)".to_owned(),
        |grant| {
            let code = |text: &str| format!("`{}`", clipped(&one_line(text), MAX_SHOWN));
            grant.describe(&approval.workspace, code)
        },
    )
}

fn as_json(record: &ApprovalRecord) -> serde_json::Value {
    let approval = &record.approval;
    let grant = Grant::parse(&approval.tool, &approval.rule);
    json!({
        "id": record.id,
        "decision": word(approval.ruling),
        "agent": approval.agent,
        "workspace": approval.workspace,
        "tool": approval.tool,
        "covers": grant.map(|grant| grant.describe(&approval.workspace, |text| format!("`{text}`"))),
        "rule": approval.rule,
        "sessionId": &*approval.session,
        "createdAt": time(approval.created_at_ms),
    })
}

fn word(ruling: Ruling) -> &'static str {
    match ruling {
        Ruling::Allow => "allow",
        Ruling::Reject => "reject",
    }
}
