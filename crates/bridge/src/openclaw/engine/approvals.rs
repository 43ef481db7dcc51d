//! Approvals: what the gateway's agent may do is asked of the client, and the client's answer is the gateway's.
//! Each is asked once, belongs to a tool call that the client knows, and is withdrawn when somebody else has decided.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Instant,
};

use serde::Deserialize;
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{
    CallStatus, ContentBlock, PermissionOption, PermissionOptionKind, PermissionRequest, PermissionToolCall, RequestId,
    ToolCallContent, ToolKind, Withdrawal, client, encode_notification, encode_request, params::PermissionOutcome,
};

use super::{Ask, Engine};
use crate::openclaw::{
    gateway::Repeat,
    run::{Translator, fenced, visible},
    wire::{self, Decide, GatewayError},
};

/// Approvals that are open at once, at most; a further one is denied.
const MAX_DIALOGS: usize = 256;

/// Which of the gateway's two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::openclaw) enum Kind {
    /// A command.
    Exec,
    /// Something that a plugin wants.
    Plugin,
}

impl Kind {
    fn resolve(self) -> &'static str {
        match self {
            Self::Exec => "exec.approval.resolve",
            Self::Plugin => "plugin.approval.resolve",
        }
    }
}

#[derive(Debug)]
enum State {
    /// The gateway is asked for the whole command.
    Described,
    /// The client is asked, with a request of this number.
    Asked(u64),
}

#[derive(Debug)]
struct Dialog {
    kind: Kind,
    session: String,
    request: Request,
    state: State,
    decisions: Vec<String>,
}

/// What is open.
#[derive(Debug, Default)]
pub(super) struct Dialogs {
    by_id: HashMap<String, Dialog>,
    by_request: BTreeMap<u64, String>,
    next: u64,
}

impl Dialogs {
    pub(super) fn forget(&mut self, id: &str) {
        if let Some(Dialog { state: State::Asked(number), .. }) = self.by_id.remove(id) {
            self.by_request.remove(&number);
        }
    }
}

#[derive(Deserialize)]
struct Requested {
    id: String,
    #[serde(default)]
    request: Request,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Request {
    command: Option<String>,
    cwd: Option<String>,
    host: Option<String>,
    warning_text: Option<String>,
    command_analysis: Option<Analysis>,
    allowed_decisions: Option<Vec<String>>,
    session_key: Option<String>,
    title: Option<String>,
    description: Option<String>,
    tool_name: Option<String>,
    tool_call_id: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Analysis {
    warning_lines: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Described {
    command_text: Option<String>,
    allowed_decisions: Option<Vec<String>>,
}

/// The gateway's decisions as a client is offered them.
const OPTIONS: [PermissionOption<'static>; 3] = [
    PermissionOption { option_id: "allow-once", name: "Allow once", kind: PermissionOptionKind::AllowOnce },
    PermissionOption { option_id: "allow-always", name: "Always allow", kind: PermissionOptionKind::AllowAlways },
    PermissionOption { option_id: DENY, name: "Deny", kind: PermissionOptionKind::RejectOnce },
];

const DENY: &str = "deny";

impl Engine {
    /// The gateway wants to know.
    pub(super) fn requested(&mut self, kind: Kind, payload: &RawValue, now: Instant) {
        let Some(asked) = wire::read::<Requested>(payload) else { return };
        self.take_request(kind, asked, now);
    }

    fn take_request(&mut self, kind: Kind, asked: Requested, now: Instant) {
        let Requested { id, request } = asked;
        if self.dialogs.by_id.contains_key(&id) {
            return;
        }
        let Some(session) = request.session_key.as_deref().and_then(|key| self.session_for(key)) else { return };
        if self.dialogs.by_id.len() >= MAX_DIALOGS {
            tracing::warn!("too many approvals are open; one is denied");
            return self.decide(kind, &id, DENY, now);
        }
        let dialog = Dialog { kind, session, request, state: State::Described, decisions: Vec::new() };
        self.dialogs.by_id.insert(id.clone(), dialog);
        match kind {
            Kind::Exec => {
                self.ask("exec.approval.get", &wire::Id { id: &id }, Ask::Approval(id.clone()), Repeat::No, now)
            }
            Kind::Plugin => self.show(&id, Described::default()),
        }
    }

    /// The open session with this key, preferably one in which something runs.
    fn session_for(&self, key: &str) -> Option<String> {
        let with_key = || self.sessions.values().filter(|session| session.key.eq_ignore_ascii_case(key));
        let running = with_key().find(|session| session.run.is_some());
        running.or_else(|| with_key().next()).map(|session| session.id.clone())
    }

    /// The gateway has told the whole command, or that it is too late.
    pub(super) fn described(&mut self, id: &str, outcome: Result<Option<&RawValue>, GatewayError>, _now: Instant) {
        match outcome {
            Ok(payload) => self.show(id, payload.and_then(wire::read::<Described>).unwrap_or_default()),
            Err(error) if error.detail_reason() == "APPROVAL_NOT_FOUND" => self.dialogs.forget(id),
            // What the event said is enough to ask.
            Err(_) => self.show(id, Described::default()),
        }
    }

    fn show(&mut self, id: &str, described: Described) {
        let Some(dialog) = self.dialogs.by_id.get_mut(id) else { return };
        let (kind, session, request) = (dialog.kind, dialog.session.clone(), dialog.request.clone());
        let allowed = described.allowed_decisions.or_else(|| request.allowed_decisions.clone());
        let allowed = allowed.unwrap_or_else(|| vec!["allow-once".to_owned(), DENY.to_owned()]);
        let options: Vec<PermissionOption<'static>> =
            OPTIONS.into_iter().filter(|option| allowed.iter().any(|word| word == option.option_id)).collect();
        dialog.decisions = options.iter().map(|option| option.option_id.to_owned()).collect();
        self.dialogs.next += 1;
        let number = self.dialogs.next;
        dialog.state = State::Asked(number);
        self.dialogs.by_request.insert(number, id.to_owned());

        let command = described.command_text.or_else(|| request.command.clone()).unwrap_or_default();
        let call = self.call_of(&session, kind, id, &request, &command);
        let (title, name, tool_kind, text) = words(kind, &request, &command);
        let content = [ToolCallContent::Content { content: ContentBlock::text(&text) }];
        let asked = PermissionRequest {
            session_id: &session,
            tool_call: PermissionToolCall {
                tool_call_id: &call,
                title: &title,
                name: &name,
                kind: tool_kind,
                status: CallStatus::Pending,
                content: &content,
                locations: &[],
                raw_input: None,
            },
            options: &options,
        };
        // Our own types can be written.
        let _infallible =
            encode_request(&mut self.effects.to_client, &request_id(number), client::REQUEST_PERMISSION, &asked);
    }

    /// The tool call that the question is about; one is announced when there is none.
    fn call_of(&mut self, session: &str, kind: Kind, id: &str, request: &Request, command: &str) -> String {
        let run = self.sessions.get(session).and_then(|session| session.run.clone());
        let mut other = Translator::new(id);
        let translator = match run.and_then(|run| self.runs.get_mut(&run)) {
            Some(run) => &mut run.translator,
            None => &mut other,
        };
        let named = request.tool_call_id.as_deref().filter(|call| translator.has_open_call(call));
        let known = named.or_else(|| match kind {
            Kind::Exec => translator.call_for(command),
            Kind::Plugin => None,
        });
        if let Some(call) = known {
            return call.to_owned();
        }
        let call = request.tool_call_id.clone().unwrap_or_else(|| format!("approval:{id}"));
        let name = request.tool_name.as_deref().unwrap_or("exec");
        let args = serde_json::value::to_raw_value(&serde_json::json!({ "command": command }));
        let mut out = Vec::new();
        translator.announce(&call, name, args.as_deref().unwrap_or(RawValue::NULL), &mut out);
        self.tell(session, out);
        call
    }

    /// The client has answered a request of ours.
    pub(super) fn decided(&mut self, request: &RequestId, result: Option<&RawValue>, now: Instant) {
        let number = request.as_json().trim_matches('"').strip_prefix(PREFIX).and_then(|number| number.parse().ok());
        let Some(id) = number.and_then(|number: u64| self.dialogs.by_request.remove(&number)) else { return };
        let Some(dialog) = self.dialogs.by_id.remove(&id) else { return };
        // Whatever is no clear yes is a no.
        let decision = match result.and_then(PermissionOutcome::parse) {
            Some(PermissionOutcome::Selected(option)) if dialog.decisions.contains(&option) => option,
            Some(PermissionOutcome::Selected(_) | PermissionOutcome::Cancelled) | None => DENY.to_owned(),
        };
        self.decide(dialog.kind, &id, &decision, now);
    }

    fn decide(&mut self, kind: Kind, id: &str, decision: &str, now: Instant) {
        self.ask(kind.resolve(), &Decide { id, decision }, Ask::Decide, Repeat::Yes, now);
    }

    /// Somebody has decided; perhaps somebody else.
    pub(super) fn resolved(&mut self, payload: &RawValue) {
        #[derive(Deserialize)]
        struct Resolved {
            id: String,
        }
        if let Some(resolved) = wire::read::<Resolved>(payload) {
            self.withdraw(&resolved.id);
        }
    }

    /// Takes a question back.
    fn withdraw(&mut self, id: &str) {
        let Some(dialog) = self.dialogs.by_id.remove(id) else { return };
        let State::Asked(number) = dialog.state else { return };
        self.dialogs.by_request.remove(&number);
        let request = format!("{PREFIX}{number}");
        let withdrawal = Withdrawal { request_id: &request };
        let _infallible = encode_notification(&mut self.effects.to_client, client::CANCEL_REQUEST, &withdrawal);
    }

    /// Denies what a session is asked for: its turn is over.
    pub(super) fn deny_all(&mut self, session: &str, now: Instant) {
        let open: Vec<(String, Kind)> = self
            .dialogs
            .by_id
            .iter()
            .filter(|(_, dialog)| dialog.session == session)
            .map(|(id, dialog)| (id.clone(), dialog.kind))
            .collect();
        for (id, kind) in open {
            self.withdraw(&id);
            self.decide(kind, &id, DENY, now);
        }
    }

    /// After a lost connection: asks what is still wanted.
    pub(super) fn sync_approvals(&mut self, now: Instant) {
        if self.connection > 1 && (!self.runs.is_empty() || !self.dialogs.by_id.is_empty()) {
            self.ask("exec.approval.list", &wire::Nothing {}, Ask::Approvals(Kind::Exec), Repeat::No, now);
            self.ask("plugin.approval.list", &wire::Nothing {}, Ask::Approvals(Kind::Plugin), Repeat::No, now);
        }
    }

    /// What is wanted: new questions are asked, and those that nobody waits for any more are withdrawn.
    pub(super) fn pending(&mut self, kind: Kind, payload: Option<&RawValue>, now: Instant) {
        let Some(listed) = payload.and_then(wire::read::<Vec<Requested>>) else { return };
        let wanted: HashSet<&str> = listed.iter().map(|asked| asked.id.as_str()).collect();
        let gone: Vec<String> = self
            .dialogs
            .by_id
            .iter()
            .filter(|(id, dialog)| dialog.kind == kind && !wanted.contains(id.as_str()))
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            self.withdraw(&id);
        }
        for asked in listed {
            self.take_request(kind, asked, now);
        }
    }
}

/// What the ids of our requests begin with.
const PREFIX: &str = "oc-out-";

fn request_id(number: u64) -> RequestId {
    RequestId::from_plain_text(&format!("{PREFIX}{number}"))
}

/// Title, tool, kind and whole text of a question.
fn words(kind: Kind, request: &Request, command: &str) -> (String, String, ToolKind, String) {
    let first: String = visible(command.lines().next().unwrap_or_default()).chars().take(160).collect();
    let mut text = String::new();
    let (title, tool_kind) = match kind {
        Kind::Exec => {
            text.push_str(&fenced(command));
            (first, ToolKind::Execute)
        }
        Kind::Plugin => {
            let title = request.title.as_deref().unwrap_or("A plugin asks for approval");
            if let Some(description) = &request.description {
                text.push_str(&visible(description));
            }
            (visible(title).chars().take(160).collect(), ToolKind::Other)
        }
    };
    let mut add = |label: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("\n{label}{}", visible(value)));
        }
    };
    add("Directory: ", request.cwd.as_deref().unwrap_or_default());
    add("Host: ", request.host.as_deref().unwrap_or_default());
    add("", request.warning_text.as_deref().unwrap_or_default());
    for line in request.command_analysis.iter().flat_map(|analysis| &analysis.warning_lines).take(16) {
        add("", line);
    }
    let title = if title.trim().is_empty() { "Approval".to_owned() } else { title };
    (title, request.tool_name.clone().unwrap_or_else(|| "exec".to_owned()), tool_kind, text)
}
