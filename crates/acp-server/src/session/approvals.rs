//! "Always" answers beyond the session: kept for its agent and directory, read again before each turn.
//! What cannot be stored counts for the session alone, and the client is told.

use std::path::PathBuf;

use zeroclaw_acp_protocol::{ContentBlock, SessionUpdate};
use zeroclaw_policy::Grant;
use zeroclaw_runtime::turn::{Flow, Standing};
use zeroclaw_session_store::{ApprovalQuery, EventKind, NewApproval, Ruling, StoreError};

use super::turn::TurnScene;
use crate::{client::lock, encode};

impl TurnScene {
    /// Takes in which answers are kept now: others may have made or revoked some since the last turn.
    pub(super) async fn recall(&self) {
        let Some(store) = self.server.durable() else { return };
        let query = ApprovalQuery { agent: Some(self.entry().alias.clone()), workspace: Some(self.directory()) };
        match store.approvals(query).await {
            Ok(kept) => lock(&self.remembered).renew(kept.into_iter().filter_map(|record| {
                let standing = match record.approval.ruling {
                    Ruling::Allow => Standing::Allow,
                    Ruling::Reject => Standing::Reject,
                };
                let grant = Grant::parse(&record.approval.tool, &record.approval.rule);
                if grant.is_none() {
                    tracing::warn!(
                        event = "approval_unreadable",
                        id = record.id,
                        "an approval cannot be read and does not count"
                    );
                }
                Some((grant?, standing))
            })),
            Err(error) => {
                tracing::warn!(%error, "the approvals cannot be read; what was allowed is asked about again");
                lock(&self.remembered).distrust();
            }
        }
    }

    /// Keeps an answer before what it was given for runs.
    pub(super) async fn keep_approval(&self, call: &str, grant: &Grant, standing: Standing) {
        let Some(store) = self.server.durable() else { return };
        // A grant without a text is never offered.
        let Some(rule) = grant.rule() else { return };
        let new = NewApproval {
            agent: self.entry().alias.clone(),
            workspace: self.directory(),
            tool: grant.tool().to_owned(),
            rule,
            ruling: match standing {
                Standing::Allow => Ruling::Allow,
                Standing::Reject => Ruling::Reject,
            },
            session: self.id.clone(),
            created_at_ms: self.server.now_ms(),
        };
        match store.add_approval(new).await {
            Ok(_) => {
                // Without room it is remembered as the session's own, or asked about again.
                let _ = lock(&self.remembered).keep(grant.clone(), standing);
            }
            Err(error) => self.warn_unkept(call, &error),
        }
    }

    fn warn_unkept(&self, call: &str, error: &StoreError) {
        tracing::warn!(%error, "an approval could not be stored");
        let why = match error {
            StoreError::TooMany { limit } => format!(
                "there are {limit} already for this agent and directory; `zeroclaw approvals revoke` takes some back"
            ),
            _ => "the session store does not write".to_owned(),
        };
        let text = format!("\n\n[This answer counts for this session only and could not be saved: {why}.]\n\n");
        let message_id = format!("a-{call}");
        let update = SessionUpdate::AgentMessageChunk { content: ContentBlock::text(&text), message_id: &message_id };
        match self.pump.event(EventKind::Update, None, |out| encode::write(out, &update)) {
            Flow::Ready | Flow::Full => {}
        }
    }

    fn directory(&self) -> PathBuf {
        self.workspace.cwd.clone()
    }
}
