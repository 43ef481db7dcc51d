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
    tool::{ToolContent, ToolKind, show},
    turn::{Answer, Approval, ApprovalRequest, Approver, Asker, Standing},
};

use super::turn::TurnScene;
use crate::{
    client::{PeerAnswer, Question},
    encode,
};

/// Choices of one question, at most: more do not fit a dialog.
const MAX_CHOICES: usize = 32;

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

    async fn ask(&self, tool_call: PermissionToolCall<'_>, options: &[PermissionOption<'_>]) -> Reply {
        let _turn = self.turn_taking.lock().await;
        let clients = self.scene.pump.clients();
        let (sender, mut answers) = mpsc::channel(clients.len().max(1));
        let params = PermissionRequest { session_id: &self.scene.id, tool_call, options };
        // Dropping a question withdraws it, whether this future is dropped or another client answered first.
        let mut questions: Vec<Question> = Vec::with_capacity(clients.len());
        for client in &clients {
            if let Some(question) = client.ask(&self.scene.pump, sender.clone()) {
                question.send(method::REQUEST_PERMISSION, &params);
                questions.push(question);
            }
        }
        drop(sender);
        if questions.is_empty() {
            return Reply::Nobody("no client is there to ask");
        }
        let Ok(answer) = timeout(self.scene.server.settings.session_timeout, answers.recv()).await else {
            return Reply::Nobody("nobody answered in time");
        };
        for question in &mut questions {
            if !question.is_open() {
                question.settle();
            }
        }
        match answer {
            Some(PeerAnswer::Result(raw)) => match PermissionOutcome::parse(&raw) {
                Some(PermissionOutcome::Selected(option)) => Reply::Option(option),
                Some(PermissionOutcome::Cancelled) => Reply::Withdrawn,
                None => Reply::Nobody("the client's answer could not be understood"),
            },
            Some(PeerAnswer::Error) => Reply::Nobody("the client answered with an error"),
            None => Reply::Nobody("the client is gone"),
        }
    }
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

#[async_trait]
impl Asker for Talk {
    async fn ask(&self, call_id: &str, question: &str, choices: &[String]) -> Answer {
        if choices.is_empty() {
            return Answer::Unsupported("this client can only be asked with a list of choices".to_owned());
        }
        if choices.len() > MAX_CHOICES {
            return Answer::Unsupported(format!("a question has at most {MAX_CHOICES} choices"));
        }
        // What a model wrote is shown with its hidden characters visible; the answer is the choice as it was written.
        let names: Vec<String> = choices.iter().map(|choice| show::line(choice)).collect();
        let title = show::title(question);
        let ids: Vec<String> = (0..choices.len()).map(|index| format!("choice-{index}")).collect();
        let mut options: Vec<PermissionOption<'_>> = ids
            .iter()
            .zip(&names)
            .map(|(id, name)| PermissionOption { option_id: id, name, kind: PermissionOptionKind::AllowOnce })
            .collect();
        options.push(PermissionOption {
            option_id: "no-answer",
            name: "None of these",
            kind: PermissionOptionKind::RejectOnce,
        });
        let shown = [ToolContent::Text(show::text(question))];
        let tool_call = PermissionToolCall {
            tool_call_id: call_id,
            title: &title,
            name: "ask_user",
            kind: encode::kind(ToolKind::Other),
            status: CallStatus::Pending,
            content: &encode::content(&shown),
            locations: &[],
            raw_input: None,
        };
        match Talk::ask(self, tool_call, &options).await {
            Reply::Option(option) => match ids.iter().position(|id| *id == option).and_then(|index| choices.get(index))
            {
                Some(choice) => Answer::Choice(choice.clone()),
                None => Answer::None("the user chose none of these".to_owned()),
            },
            Reply::Withdrawn => Answer::None("the user closed the question".to_owned()),
            Reply::Nobody(why) => Answer::None(why.to_owned()),
        }
    }
}
