//! Questions that are not permissions: each client is asked in the way it can be, with a form or with options to choose
//! from, and what comes back is checked against what was asked.
//! It refuses the url mode and everything secret: a form is shown and answered in the client.

use async_trait::async_trait;
use zeroclaw_acp_protocol::{
    CallStatus, ElicitationAnswer, ElicitationField, ElicitationForm, ElicitationOption, ElicitationProperty,
    ElicitationRequest, ElicitationScope, ElicitationValue, PermissionOption, PermissionOptionKind, PermissionRequest,
    PermissionToolCall, client as method, params::PermissionOutcome,
};
use zeroclaw_runtime::{
    tool::{ToolContent, ToolKind, show},
    turn::{Answer, Asker},
};

use super::talk::{Got, Talk};
use crate::{
    client::{Client, PeerAnswer, Question},
    encode,
};

/// Choices of one question, at most: more do not fit a dialog.
const MAX_CHOICES: usize = 32;

/// Characters of a free answer, at most: more belongs into a prompt or a file.
const MAX_ANSWER: usize = 4000;

/// The form's only field.
const FIELD: &str = "answer";

/// The option that is none of the choices.
const NO_ANSWER: &str = "no-answer";

/// How a client is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `elicitation/create`
    Form,
    /// `session/request_permission`
    Options,
}

/// A question as it is shown: what a model wrote has its hidden characters visible.
struct Shown<'a> {
    session: &'a str,
    call_id: &'a str,
    text: String,
    title: String,
    /// The choices as they were written, which is what the model gets.
    choices: &'a [String],
    names: Vec<String>,
    ids: Vec<String>,
}

impl<'a> Shown<'a> {
    fn new(session: &'a str, call_id: &'a str, question: &str, choices: &'a [String]) -> Self {
        Self {
            session,
            call_id,
            text: show::text(question),
            title: show::title(question),
            choices,
            names: choices.iter().map(|choice| show::line(choice)).collect(),
            ids: (0..choices.len()).map(|index| format!("choice-{index}")).collect(),
        }
    }

    /// How a client can be asked: with a form where it takes one (ACP v1, `elicitation.form`), else with options where
    /// there are some.
    fn way(&self, client: &Client) -> Option<Way> {
        if client.capabilities().elicitation_form { Some(Way::Form) } else { self.plain_way() }
    }

    fn plain_way(&self) -> Option<Way> {
        (!self.choices.is_empty()).then_some(Way::Options)
    }

    fn send(&self, question: &Question, way: Way) {
        match way {
            Way::Form => self.send_form(question),
            Way::Options => self.send_options(question),
        }
    }

    fn send_form(&self, question: &Question) {
        let options: Vec<ElicitationOption<'_>> = self
            .ids
            .iter()
            .zip(&self.names)
            .map(|(value, title)| ElicitationOption { value, title, description: None })
            .collect();
        let free = self.choices.is_empty();
        let field = ElicitationField {
            name: FIELD,
            title: Some("Answer"),
            description: None,
            property: ElicitationProperty::String {
                min_length: free.then_some(1),
                max_length: free.then_some(MAX_ANSWER as u32),
                pattern: None,
                format: None,
                default: None,
                values: None,
                one_of: (!free).then_some(&options),
            },
        };
        let request = ElicitationRequest {
            scope: ElicitationScope::Session { session_id: self.session, tool_call_id: Some(self.call_id) },
            message: &self.text,
            requested_schema: ElicitationForm {
                title: None,
                description: None,
                properties: &[field],
                required: &[FIELD],
            },
        };
        question.send(method::ELICITATION_CREATE, &request);
    }

    fn send_options(&self, question: &Question) {
        let option = |option_id, name, kind| PermissionOption { option_id, name, kind };
        let mut options: Vec<PermissionOption<'_>> = self
            .ids
            .iter()
            .zip(&self.names)
            .map(|(id, name)| option(id.as_str(), name.as_str(), PermissionOptionKind::AllowOnce))
            .collect();
        options.push(option(NO_ANSWER, "None of these", PermissionOptionKind::RejectOnce));
        let shown = [ToolContent::Text(self.text.clone())];
        let tool_call = PermissionToolCall {
            tool_call_id: self.call_id,
            title: &self.title,
            name: "ask_user",
            kind: encode::kind(ToolKind::Other),
            status: CallStatus::Pending,
            content: &encode::content(&shown),
            locations: &[],
            raw_input: None,
        };
        let request = PermissionRequest { session_id: self.session, tool_call, options: &options };
        question.send(method::REQUEST_PERMISSION, &request);
    }

    /// The choice with this id.
    fn choice(&self, id: &str) -> Option<Answer> {
        let index = self.ids.iter().position(|known| known == id)?;
        self.choices.get(index).map(|choice| Answer::Choice(choice.clone()))
    }

    /// What an answer means. A client's own check of the form is not relied on.
    fn read(&self, way: Way, answer: &PeerAnswer) -> Answer {
        let none = |why: &str| Answer::None(why.to_owned());
        let PeerAnswer::Result(raw) = answer else { return none("the client answered with an error") };
        match way {
            Way::Options => match PermissionOutcome::parse(raw) {
                Some(PermissionOutcome::Selected(id)) => {
                    self.choice(&id).unwrap_or_else(|| none("the user chose none of these"))
                }
                Some(PermissionOutcome::Cancelled) => none("the user closed the question"),
                None => none("the client's answer could not be understood"),
            },
            Way::Form => match ElicitationAnswer::parse(raw) {
                Some(ElicitationAnswer::Accept(content)) => match content.get(FIELD) {
                    Some(ElicitationValue::Text(text)) if !self.choices.is_empty() => {
                        self.choice(text).unwrap_or_else(|| none("the client's answer is none of the choices"))
                    }
                    Some(ElicitationValue::Text(text)) if text.trim().is_empty() => none("the answer is empty"),
                    Some(ElicitationValue::Text(text)) if text.chars().count() > MAX_ANSWER => {
                        Answer::None(format!("the answer is longer than {MAX_ANSWER} characters"))
                    }
                    Some(ElicitationValue::Text(text)) => Answer::Choice(text.clone()),
                    Some(
                        ElicitationValue::Integer(_)
                        | ElicitationValue::Number(_)
                        | ElicitationValue::Flag(_)
                        | ElicitationValue::Values(_),
                    )
                    | None => none("the client's answer does not fit the form"),
                },
                Some(ElicitationAnswer::Decline) => none("the user declined to answer"),
                Some(ElicitationAnswer::Cancel) => none("the user closed the question"),
                None => none("the client's answer could not be understood"),
            },
        }
    }
}

#[async_trait]
impl Asker for Talk {
    async fn ask(&self, call_id: &str, question: &str, choices: &[String]) -> Answer {
        if choices.len() > MAX_CHOICES {
            return Answer::Unsupported(format!("a question has at most {MAX_CHOICES} choices"));
        }
        let shown = Shown::new(self.session(), call_id, question, choices);
        let mut way_of = |client: &Client| shown.way(client);
        let mut got = self.first_answer(&mut way_of, |question, way| shown.send(question, *way)).await;
        // A client that offers forms and then fails on one may still know options (ACP v1, elicitation: fall back).
        if let (Got::Answer(Way::Form, PeerAnswer::Error(_)), Some(plain)) = (&got, shown.plain_way()) {
            got = self.first_answer(&mut |_| Some(plain), |question, way| shown.send(question, *way)).await;
        }
        match got {
            Got::Answer(way, answer) => shown.read(way, &answer),
            Got::Nobody if choices.is_empty() => {
                Answer::Unsupported("this client can only be asked with a list of choices".to_owned())
            }
            Got::Nobody => Answer::None("no client is there to ask".to_owned()),
            Got::Late => Answer::None("nobody answered in time".to_owned()),
            Got::Gone => Answer::None("the client is gone".to_owned()),
        }
    }
}
