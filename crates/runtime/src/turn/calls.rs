//! The tool calls of one model answer: each is announced, judged, perhaps asked about, run and reported, in order.
//! Only neighbours that change nothing and need no answer run side by side.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, PoisonError},
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use zeroclaw_policy::{Grant, Judgement, Pending, Permit, judge};

use crate::{
    model::Message,
    tool::{CallView, PreparedCall, Tool, ToolContext, ToolFailure, ToolKind},
    turn::{
        Always, Approval, ApprovalRequest, Standing, TurnEvent,
        exec::{CallResult, Ready, execute, fail, guarded},
        intake::Call,
        scene::Scene,
        standing::{covers, standing},
    },
};

/// Calls that run side by side; more wait. Reads beyond this only compete for one disk.
const MAX_PARALLEL: usize = 8;

/// How a call stands after it was judged.
enum Opened {
    /// Ended already.
    Closed(CallResult),
    /// May run.
    Granted(Box<Ready>),
    /// Needs an answer.
    Asks(Box<Question>),
}

/// An announced call that waits for an answer.
struct Question {
    index: usize,
    tool: Arc<dyn Tool>,
    view: CallView,
    prepared: Box<dyn PreparedCall>,
    pending: Pending,
    context: ToolContext,
}

/// Results in the calls' order, handed out as soon as all earlier ones are there.
struct Results {
    done: Vec<Option<CallResult>>,
    recorded: usize,
}

/// Runs the calls of one answer. Every call has its result in the history when this returns, cancelled or not.
pub(super) async fn run_calls(scene: &Scene<'_>, calls: Vec<Call>, history: &mut Vec<Arc<Message>>) {
    let mut results = Results { done: calls.iter().map(|_| None).collect(), recorded: 0 };
    let mut batch: Vec<Ready> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let tool = scene.agent.tools.find(&call.asked);
        let parallel = tool.is_some_and(|tool| tool.parallel_safe());
        if !parallel {
            // It may look at what the calls before it left behind, so they come first.
            flush(scene, &mut batch, &mut results).await;
            results.record(scene, &calls, history);
        }
        match open(scene, index, call, tool).await {
            Opened::Closed(result) => results.put(index, result),
            Opened::Granted(ready) => batch.push(*ready),
            Opened::Asks(question) => {
                flush(scene, &mut batch, &mut results).await;
                results.record(scene, &calls, history);
                match answer(scene, call, *question).await {
                    Opened::Closed(result) => results.put(index, result),
                    Opened::Granted(ready) => batch.push(*ready),
                    // `answer` has no further question.
                    Opened::Asks(_) => {}
                }
                flush(scene, &mut batch, &mut results).await;
            }
        }
        if !parallel {
            flush(scene, &mut batch, &mut results).await;
        }
        results.record(scene, &calls, history);
    }
    flush(scene, &mut batch, &mut results).await;
    results.record(scene, &calls, history);
}

async fn flush(scene: &Scene<'_>, batch: &mut Vec<Ready>, results: &mut Results) {
    let runs: Vec<BoxFuture<'_, (usize, CallResult)>> =
        batch.drain(..).map(|ready| execute(scene, ready).boxed()).collect();
    let mut runs = stream::iter(runs).buffer_unordered(MAX_PARALLEL);
    while let Some((index, result)) = runs.next().await {
        results.put(index, result);
    }
}

impl Results {
    fn put(&mut self, index: usize, result: CallResult) {
        if let Some(place) = self.done.get_mut(index) {
            *place = Some(result);
        }
    }

    fn record(&mut self, scene: &Scene<'_>, calls: &[Call], history: &mut Vec<Arc<Message>>) {
        while let Some(call) = calls.get(self.recorded)
            && let Some(result) = self.done.get_mut(self.recorded).and_then(Option::take)
        {
            let message = Arc::new(Message::Tool {
                call_id: call.vendor_id.clone(),
                content: result.content,
                failed: result.failed,
            });
            scene.sink.record(&message);
            history.push(message);
            self.recorded += 1;
        }
    }
}

/// Prepares, announces and judges one call.
async fn open(scene: &Scene<'_>, index: usize, call: &Call, tool: Option<&Arc<dyn Tool>>) -> Opened {
    if scene.cancel.is_cancelled() {
        // Not announced, so nothing to take back; the model still needs a result.
        return Opened::Closed(CallResult { content: ToolFailure::Cancelled.to_string(), failed: true });
    }
    let Some(tool) = tool else {
        let reason = format!("there is no tool named `{}`", call.shown);
        return Opened::Closed(reject(scene, call, ToolKind::Other, &reason).await);
    };
    if scene.excluded(&call.asked) {
        let reason = format!("the tool `{}` is excluded by configuration", call.shown);
        return Opened::Closed(reject(scene, call, tool.kind(), &reason).await);
    }
    let arguments = match &call.arguments {
        Ok(arguments) => arguments,
        Err(problem) => {
            let reason = ToolFailure::Arguments(problem.clone()).to_string();
            return Opened::Closed(reject(scene, call, tool.kind(), &reason).await);
        }
    };
    let context = scene.context(&call.id);
    let preparing = guarded(async {
        let prepared = tool.prepare(arguments, &context).await?;
        let (action, view) = (prepared.action(), prepared.view());
        Ok((prepared, action, view))
    });
    let prepared = tokio::select! {
        biased;
        () = scene.cancel.cancelled() => Err(ToolFailure::Cancelled),
        prepared = preparing => prepared,
    };
    let (prepared, action, view) = match prepared {
        Ok(parts) => parts,
        Err(failure) => return Opened::Closed(reject(scene, call, tool.kind(), &failure.to_string()).await),
    };
    announce(scene, call, tool.kind(), &view).await;
    let said = standing(scene, &call.asked, &action).await;
    let permit = match (judge(&scene.rules, scene.jail.roots(), &call.asked, action), said) {
        (Judgement::Refused(refusal), _) => {
            let reason = format!("refused: {}", refusal.text());
            return Opened::Closed(fail(scene, &call.id, &call.shown, &view.content, &reason).await);
        }
        // Also where nobody would be asked now: who rejected it for good was not asked about the level.
        (Judgement::Granted(_) | Judgement::Pending(_), Some(Standing::Reject)) => {
            let reason = Rejection::Standing.to_string();
            return Opened::Closed(fail(scene, &call.id, &call.shown, &view.content, &reason).await);
        }
        (Judgement::Granted(permit), Some(Standing::Allow) | None) => permit,
        (Judgement::Pending(pending), Some(Standing::Allow)) => pending.approve(),
        (Judgement::Pending(pending), None) => {
            let tool = Arc::clone(tool);
            return Opened::Asks(Box::new(Question { index, tool, view, prepared, pending, context }));
        }
    };
    Opened::Granted(ready(index, call, view, prepared, permit, context))
}

fn ready(
    index: usize,
    call: &Call,
    view: CallView,
    prepared: Box<dyn PreparedCall>,
    permit: Permit,
    context: ToolContext,
) -> Box<Ready> {
    Box::new(Ready { index, id: Arc::clone(&call.id), tool: call.shown.clone(), view, prepared, permit, context })
}

/// Asks about one call. A cancel drops the question, and the call ends without having run.
async fn answer(scene: &Scene<'_>, call: &Call, question: Question) -> Opened {
    let Question { index, tool, view, prepared, pending, context } = question;
    let grant = Grant::propose(&call.asked, pending.action());
    let covers = grant.as_ref().map(|grant| covers(scene, grant));
    let asking = AssertUnwindSafe(scene.approver.approve(ApprovalRequest {
        call_id: &call.id,
        tool: &call.shown,
        kind: tool.kind(),
        title: &view.title,
        raw_input: &call.raw_input,
        locations: &view.locations,
        content: &view.content,
        reasons: pending.reasons(),
        always: grant.as_ref().zip(covers.as_deref()).map(|(grant, covers)| Always {
            grant,
            covers,
            may_allow: !scene.always_asks(&tool.spec().name),
        }),
    }))
    .catch_unwind();
    let approval = tokio::select! {
        biased;
        () = scene.cancel.cancelled() => Err(Rejection::Cancelled),
        approval = asking => Ok(approval.unwrap_or_else(|_| {
            Approval::NoDecision("the question could not be asked (internal error)".to_owned())
        })),
    };
    let remember = |standing| {
        let Some(grant) = grant else { return };
        let mut remembered = scene.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if !remembered.remember(grant, standing) {
            tracing::warn!(event = "remembered_full", call = &*call.id, "too many standing answers in one session");
        }
    };
    let rejection = match approval {
        Ok(Approval::AllowOnce) => None,
        Ok(Approval::AllowAlways) => {
            remember(Standing::Allow);
            None
        }
        Ok(Approval::RejectOnce) => Some(Rejection::Once),
        Ok(Approval::RejectAlways) => {
            remember(Standing::Reject);
            Some(Rejection::Always)
        }
        Ok(Approval::NoDecision(why)) => Some(Rejection::NoDecision(why)),
        Err(cancelled) => Some(cancelled),
    };
    match rejection {
        None => Opened::Granted(ready(index, call, view, prepared, pending.approve(), context)),
        Some(why) => Opened::Closed(fail(scene, &call.id, &call.shown, &view.content, &why.to_string()).await),
    }
}

/// Why a call that was asked about did not run; the text goes to the model and to the client.
#[derive(Debug, thiserror::Error)]
enum Rejection {
    #[error("the user rejected this call")]
    Once,
    #[error("the user rejected this call and every further one like it")]
    Always,
    #[error("the user rejected every call like this one before")]
    Standing,
    #[error("no decision: {0}")]
    NoDecision(String),
    #[error("cancelled")]
    Cancelled,
}

async fn announce(scene: &Scene<'_>, call: &Call, kind: ToolKind, view: &CallView) {
    scene
        .emit(TurnEvent::CallStarted {
            id: &call.id,
            tool: &call.shown,
            kind,
            title: &view.title,
            raw_input: &call.raw_input,
            locations: &view.locations,
            content: &view.content,
        })
        .await;
}

/// Announces a call that cannot run and ends it at once, so that the client sees what the model tried.
async fn reject(scene: &Scene<'_>, call: &Call, kind: ToolKind, reason: &str) -> CallResult {
    let view = CallView { title: call.shown.clone(), locations: Vec::new(), content: Vec::new() };
    announce(scene, call, kind, &view).await;
    fail(scene, &call.id, &call.shown, &view.content, reason).await
}
