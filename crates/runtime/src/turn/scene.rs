//! What every step of one turn may look at: the agent, the session's means, and the way out to the client.
//! Nothing here changes during the turn, so tools that run side by side share it.

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use zeroclaw_policy::Ruleset;

use crate::{
    client::ClientMeans,
    jail::Jail,
    tool::{ToolContext, ToolSettings},
    turn::{Agent, Approver, Asker, Flow, Remembered, TurnEvent, TurnSink, ids::Ids},
};

/// The unchanging surroundings of one turn.
pub(super) struct Scene<'a> {
    pub(super) agent: &'a Agent,
    pub(super) jail: Arc<Jail>,
    pub(super) rules: Arc<Ruleset>,
    pub(super) settings: Arc<ToolSettings>,
    pub(super) sink: &'a dyn TurnSink,
    pub(super) approver: &'a dyn Approver,
    pub(super) client: ClientMeans,
    pub(super) asker: Arc<dyn Asker>,
    pub(super) remembered: &'a Mutex<Remembered>,
    pub(super) cancel: CancellationToken,
    pub(super) ids: Ids,
}

impl Scene<'_> {
    /// Sends an event and, when the client is behind, waits for room. A cancelled turn waits for nothing.
    pub(super) async fn emit(&self, event: TurnEvent<'_>) {
        match self.sink.emit(event) {
            Flow::Ready => {}
            Flow::Full => {
                tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => {}
                    () = self.sink.drained() => {}
                }
            }
        }
    }

    /// What a tool is given for the call with this id.
    pub(super) fn context(&self, call_id: &Arc<str>) -> ToolContext {
        ToolContext {
            jail: Arc::clone(&self.jail),
            rules: Arc::clone(&self.rules),
            settings: Arc::clone(&self.settings),
            client: self.client.clone(),
            asker: Arc::clone(&self.asker),
            call_id: Arc::clone(call_id),
            // A child: a tool may give itself up, it cannot cancel the turn.
            cancel: self.cancel.child_token(),
        }
    }

    /// Whether the operator took the tool away from the agent.
    pub(super) fn excluded(&self, tool: &str) -> bool {
        listed(&self.rules.excluded_tools, tool)
    }

    /// Whether "always" answers do not count for the tool: the operator wants each call asked about.
    pub(super) fn always_asks(&self, tool: &str) -> bool {
        listed(&self.rules.always_ask, tool)
    }
}

fn listed(names: &[String], tool: &str) -> bool {
    names.iter().any(|name| name == tool || name == "*")
}
