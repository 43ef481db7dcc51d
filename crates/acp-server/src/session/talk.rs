//! Questions to people: permissions and choices, asked of every attached client, the first answer wins.
//! A question goes through the session's pump, so it never overtakes the updates it belongs to.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::{
    sync::{Mutex, mpsc},
    time::timeout,
};
use zeroclaw_acp_protocol::{
    CallStatus, PermissionOption, PermissionOptionKind, PermissionRequest, PermissionToolCall, ToolCallContent,
    client as method, params::PermissionOutcome,
};
use zeroclaw_policy::Decision;
use zeroclaw_runtime::{
    tool::ToolContent,
    turn::{Approval, ApprovalRequest, Approver, Standing},
};

use super::{live::MAX_CLIENTS, turn::TurnScene};
use crate::{
    client::{Client, PeerAnswer, Question},
    encode,
};

/// The back-channel of one turn.
pub(super) struct Talk {
    scene: Arc<TurnScene>,
    /// Held while a question is open: people are asked one thing at a time, in order.
    turn_taking: Mutex<()>,
}

/// What came back from people.
enum Reply {
    Option(String),
    Withdrawn,
    Nobody(&'static str),
}

impl Talk {
    pub(super) fn new(scene: Arc<TurnScene>) -> Self {
        Self { scene, turn_taking: Mutex::new(()) }
    }

    pub(super) fn session(&self) -> &str {
        &self.scene.id
    }

    async fn ask(&self, tool_call: PermissionToolCall<'_>, options: &[PermissionOption<'_>]) -> Reply {
        let params = PermissionRequest { session_id: &self.scene.id, tool_call, options };
        let send = |question: &Question, (): &()| question.send(method::REQUEST_PERMISSION, &params);
        match self.first_answer(&mut |_| Some(()), send).await {
            Got::Answer((), PeerAnswer::Result(raw)) => match PermissionOutcome::parse(&raw) {
                Some(PermissionOutcome::Selected(option)) => Reply::Option(option),
                Some(PermissionOutcome::Cancelled) => Reply::Withdrawn,
                None => Reply::Nobody("the client's answer could not be understood"),
            },
            Got::Answer((), PeerAnswer::Error(_)) => Reply::Nobody("the client answered with an error"),
            Got::Nobody => Reply::Nobody("no client is there to ask"),
            Got::Late => Reply::Nobody("nobody answered in time"),
            Got::Gone => Reply::Nobody("the client is gone"),
        }
    }

    /// Asks every client that `way_of` knows a way for, and waits for the first answer; the other clients' questions are
    /// withdrawn. An error counts only when nobody is left who may answer.
    pub(super) async fn first_answer<W: Send + Sync>(
        &self,
        way_of: &mut (dyn FnMut(&Client) -> Option<W> + Send),
        send: impl Fn(&Question, &W) + Send,
    ) -> Got<W> {
        let _turn = self.turn_taking.lock().await;
        let _open = self.scene.server.meters.question();
        let pump = &self.scene.pump;
        // Clients that may come back are waited for, and asked when they do.
        let lingers = pump.lingers();
        let (sender, mut answers) = mpsc::channel(MAX_CLIENTS);
        let mut sender = Some(sender);
        let waiting = async move {
            // Dropping a question withdraws it, whether this future is dropped or another client answered first.
            let mut questions: Vec<(Question, W)> = Vec::new();
            let mut seen: Vec<Arc<Client>> = Vec::new();
            loop {
                let joined = pump.joined();
                tokio::pin!(joined);
                joined.as_mut().enable();
                questions.retain(|(question, _)| !question.is_lost());
                let clients = pump.clients();
                if let Some(sender) = &sender {
                    for client in &clients {
                        if !seen.iter().any(|known| Arc::ptr_eq(known, client))
                            && let Some(way) = way_of(client)
                            && let Some(question) = client.ask(pump, sender.clone())
                        {
                            send(&question, &way);
                            questions.push((question, way));
                        }
                    }
                }
                seen = clients;
                if questions.is_empty() && (!lingers || !seen.is_empty()) {
                    return Got::Nobody;
                }
                if !lingers {
                    sender = None;
                }
                let (number, answer) = tokio::select! {
                    answer = answers.recv() => match answer {
                        Some(answer) => answer,
                        None => return Got::Gone,
                    },
                    () = joined, if lingers => continue,
                };
                // Each client counts its questions by itself; the one that is answered is not open any more.
                let is_answered = |question: &Question| question.number() == number && !question.is_open();
                let at = questions.iter().position(|(question, _)| is_answered(question));
                let Some(at) = at else { continue };
                let (mut question, way) = questions.swap_remove(at);
                question.settle();
                if matches!(answer, PeerAnswer::Result(_)) || questions.is_empty() {
                    return Got::Answer(way, answer);
                }
            }
        };
        timeout(self.scene.server.settings.session_timeout, waiting).await.unwrap_or(Got::Late)
    }
}

/// How a question ended that clients were asked in one way or another.
pub(super) enum Got<W> {
    /// The first answer, and how it was asked for.
    Answer(W, PeerAnswer),
    /// There is no client that can be asked.
    Nobody,
    /// Time is up.
    Late,
    /// The last client that was asked has gone.
    Gone,
}

#[async_trait]
impl Approver for Talk {
    async fn approve(&self, request: ApprovalRequest<'_>) -> Approval {
        let mut shown = request.content.to_vec();
        let reasons: Vec<&str> = request
            .reasons
            .iter()
            .filter(|reason| reason.decision != Decision::Allow)
            .map(|reason| reason.text.as_str())
            .collect();
        if !reasons.is_empty() {
            shown.push(ToolContent::Text(format!("Asked because {}.", reasons.join("; "))));
        }
        let content: Vec<ToolCallContent<'_>> = encode::content(&shown);
        let locations = encode::locations(request.locations);
        let tool_call = PermissionToolCall {
            tool_call_id: request.call_id,
            title: request.title,
            name: request.tool,
            kind: encode::kind(request.kind),
            status: CallStatus::Pending,
            content: &content,
            locations: &locations,
            raw_input: Some(encode::raw_input(request.raw_input)),
        };
        let until = if self.scene.server.durable().is_some() { "" } else { ", in this session" };
        let name = |verb: &str| request.always.map(|always| format!("Always {verb} {}{until}", always.covers));
        let (allow, reject) = (name("allow"), name("reject"));
        let may_allow = request.always.is_some_and(|always| always.may_allow);
        let option = |option_id, name, kind| PermissionOption { option_id, name, kind };
        let mut options = vec![option("allow-once", "Allow once", PermissionOptionKind::AllowOnce)];
        if let Some(name) = allow.as_deref().filter(|_| may_allow) {
            options.push(option("allow-always", name, PermissionOptionKind::AllowAlways));
        }
        options.push(option("reject-once", "Reject", PermissionOptionKind::RejectOnce));
        if let Some(name) = &reject {
            options.push(option("reject-always", name, PermissionOptionKind::RejectAlways));
        }
        match self.ask(tool_call, &options).await {
            Reply::Option(option) => match (option.as_str(), request.always) {
                ("allow-once", _) => Approval::AllowOnce,
                ("allow-always", Some(always)) if may_allow => {
                    self.scene.keep_approval(request.call_id, always.grant, Standing::Allow).await;
                    Approval::AllowAlways
                }
                ("reject-once", _) => Approval::RejectOnce,
                ("reject-always", Some(always)) => {
                    self.scene.keep_approval(request.call_id, always.grant, Standing::Reject).await;
                    Approval::RejectAlways
                }
                _ => Approval::NoDecision("the client chose an option that was not offered".to_owned()),
            },
            Reply::Withdrawn => Approval::NoDecision("the client closed the question".to_owned()),
            Reply::Nobody(why) => Approval::NoDecision(why.to_owned()),
        }
    }
}
