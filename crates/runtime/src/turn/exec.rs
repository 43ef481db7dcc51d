//! Runs one call that has its permit, from `in_progress` to exactly one final status.
//! Whatever the tool does (fail, panic, ignore the cancel) ends its own call and nothing else.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use zeroclaw_policy::Permit;

use crate::{
    tool::{CallView, PreparedCall, ToolContent, ToolContext, ToolFailure, ToolOutcome},
    turn::{CallStatus, TurnEvent, bound::shortened, progress::Reporter, scene::Scene},
};

/// How long a cancelled turn waits for a running tool. Tools end within about a second of their token;
/// one that does not is dropped, which ends what it awaits.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// What the model is told about a call.
#[derive(Debug)]
pub(super) struct CallResult {
    pub(super) content: String,
    pub(super) failed: bool,
}

/// A call that was announced, judged and let through.
pub(super) struct Ready {
    pub(super) index: usize,
    pub(super) id: Arc<str>,
    pub(super) tool: String,
    pub(super) view: CallView,
    pub(super) prepared: Box<dyn PreparedCall>,
    pub(super) permit: Permit,
    pub(super) context: ToolContext,
}

/// Runs the call; returns its place in the answer with its result.
pub(super) async fn execute(scene: &Scene<'_>, ready: Ready) -> (usize, CallResult) {
    let Ready { index, id, tool, view, prepared, permit, context } = ready;
    // What the tool would do now against what was judged and shown: one that changed its mind does nothing.
    let now = guarded(async { Ok(prepared.action().fingerprint()) }).await;
    if now != Ok(permit.fingerprint()) {
        let reason = "what would run is not what was asked about; nothing was done";
        return (index, fail(scene, &id, &tool, &view.content, reason).await);
    }
    if scene.cancel.is_cancelled() {
        return (index, fail(scene, &id, &tool, &view.content, &ToolFailure::Cancelled.to_string()).await);
    }
    scene
        .emit(TurnEvent::CallChanged {
            id: &id,
            tool: &tool,
            status: Some(CallStatus::InProgress),
            title: None,
            content: None,
            locations: None,
            raw_output: None,
        })
        .await;
    let reporter = Reporter::new(scene, &id, &tool);
    let overdue = async {
        scene.cancel.cancelled().await;
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    let outcome = tokio::select! {
        biased;
        outcome = guarded(prepared.run(permit, &context, &reporter)) => outcome,
        () = overdue => Err(ToolFailure::Cancelled),
        () = reporter.pump() => Err(ToolFailure::Failed("the progress report ended".to_owned())),
    };
    let result = match outcome {
        Ok(outcome) => finish(scene, &id, &tool, &view, outcome, reporter.showed_output()).await,
        Err(failure) => fail(scene, &id, &tool, &view.content, &failure.to_string()).await,
    };
    (index, result)
}

/// Turns a panic into a failure. The panic's text stays out: it may hold what the tool was working on.
pub(super) async fn guarded<T>(work: impl Future<Output = Result<T, ToolFailure>>) -> Result<T, ToolFailure> {
    // What a tool shares beyond its call it guards itself; the loop reads nothing the panic could have left half done.
    AssertUnwindSafe(work)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(ToolFailure::Failed("the tool broke down (internal error)".to_owned())))
}

async fn finish(
    scene: &Scene<'_>,
    id: &str,
    tool: &str,
    view: &CallView,
    outcome: ToolOutcome,
    showed_output: bool,
) -> CallResult {
    let text = shortened(outcome.model_text, text_limit(scene));
    // Output shown on the way replaced the view; without content of its own the outcome gives the view back.
    let content = match (outcome.content.is_empty(), showed_output) {
        (false, _) => Some(outcome.content.as_slice()),
        (true, true) => Some(view.content.as_slice()),
        (true, false) => None,
    };
    scene
        .emit(TurnEvent::CallChanged {
            id,
            tool,
            status: Some(if outcome.failed { CallStatus::Failed } else { CallStatus::Completed }),
            title: outcome.title.as_deref(),
            content,
            locations: Some(outcome.locations.as_slice()).filter(|locations| !locations.is_empty()),
            raw_output: Some(&text),
        })
        .await;
    CallResult { content: text, failed: outcome.failed }
}

/// Ends an announced call as failed, with the reason below what was shown of it.
pub(super) async fn fail(scene: &Scene<'_>, id: &str, tool: &str, shown: &[ToolContent], reason: &str) -> CallResult {
    let text = shortened(reason.to_owned(), text_limit(scene));
    let mut content = shown.to_vec();
    content.push(ToolContent::Text(text.clone()));
    scene
        .emit(TurnEvent::CallChanged {
            id,
            tool,
            status: Some(CallStatus::Failed),
            title: None,
            content: Some(&content),
            locations: None,
            raw_output: Some(&text),
        })
        .await;
    CallResult { content: text, failed: true }
}

/// Tools bound their own texts; this holds for one that does not. Twice the setting leaves room for the tools' marks.
fn text_limit(scene: &Scene<'_>) -> usize {
    scene.settings.max_output_bytes.saturating_mul(2).saturating_add(4096)
}
