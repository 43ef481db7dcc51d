//! Lines of the client: which method, and what it is answered at once.

use std::time::Instant;

use serde::Serialize;
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{
    ErrorKind, Frame, MethodKind, PROTOCOL_VERSION, RequestId, ResponseOutcome, encode_error,
    params::{
        CancelRequestParams, ListSessionsParams, PromptParams, SessionParams, SetConfigOptionParams, SetModeParams,
    },
    result::{Empty, Implementation, McpCapabilities, PromptCapabilities, SessionCapabilities},
};

use super::{Engine, Outcome, open::How};
use crate::openclaw::ledger;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Initialized {
    protocol_version: u16,
    agent_capabilities: Capabilities,
    agent_info: Implementation<'static>,
    auth_methods: [Empty; 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Capabilities {
    load_session: bool,
    prompt_capabilities: PromptCapabilities,
    mcp_capabilities: McpCapabilities,
    session_capabilities: SessionCapabilities,
}

impl Engine {
    /// Takes a line of the client.
    pub(in crate::openclaw) fn line(&mut self, line: &[u8], now: Instant) {
        self.now = now;
        let frame = Frame::parse(line);
        if !self.opening.is_empty()
            && let Ok(Frame::Request { params, .. } | Frame::Notification { params, .. }) = &frame
            && let Ok(named) = SessionParams::parse(*params)
            && self.defer(&named.session_id, line)
        {
            return;
        }
        match frame {
            Ok(Frame::Request { id, method, params }) => self.request(&id, &method, params, now),
            Ok(Frame::Notification { method, params }) => self.notification(&method, params, now),
            Ok(Frame::Response { id, outcome }) => match outcome {
                ResponseOutcome::Result(result) => self.decided(&id, Some(result), now),
                ResponseOutcome::Error(_) => self.decided(&id, None, now),
            },
            Err(error) if error.silent => {}
            Err(error) => encode_error(&mut self.effects.to_client, error.id.as_ref(), &error.to_error()),
        }
    }

    fn request(&mut self, id: &RequestId, method: &str, params: Option<&RawValue>, now: Instant) {
        let Some(kind) = MethodKind::from_name(method) else {
            return self.fail(id, ErrorKind::MethodNotFound, format!("there is no method `{}`", method.escape_debug()));
        };
        if !self.initialized && kind != MethodKind::Initialize {
            return self.fail(id, ErrorKind::InvalidRequest, "`initialize` comes first");
        }
        match kind {
            MethodKind::Initialize => self.initialize(id),
            MethodKind::Authenticate => self.answer(id, &Empty {}),
            MethodKind::SessionNew => self.open(id, How::New, params, now),
            MethodKind::SessionLoad => self.open(id, How::Load, params, now),
            MethodKind::SessionResume => self.open(id, How::Resume, params, now),
            MethodKind::SessionPrompt => self.prompt(id, params, now),
            MethodKind::SessionCancel => match SessionParams::parse(params) {
                Ok(params) => {
                    self.cancel_session(&params.session_id, now);
                    self.answer(id, &Empty {});
                }
                Err(error) => self.fail(id, ErrorKind::InvalidParams, error.to_string()),
            },
            MethodKind::SessionClose => match SessionParams::parse(params) {
                Ok(params) => self.close(id, &params.session_id, now),
                Err(error) => self.fail(id, ErrorKind::InvalidParams, error.to_string()),
            },
            MethodKind::SessionList => match ListSessionsParams::parse(params) {
                Ok(asked) => self.list(id, asked, params, now),
                Err(error) => self.fail(id, ErrorKind::InvalidParams, error.to_string()),
            },
            MethodKind::SetMode => match SetModeParams::parse(params) {
                Ok(params) => self.set_mode(id, params, now),
                Err(error) => self.fail(id, ErrorKind::InvalidParams, error.to_string()),
            },
            MethodKind::SetConfigOption => match SetConfigOptionParams::parse(params) {
                Ok(params) => self.set_option(id, params, now),
                Err(error) => self.fail(id, ErrorKind::InvalidParams, error.to_string()),
            },
            MethodKind::SessionStop
            | MethodKind::SessionDelete
            | MethodKind::SessionFork
            | MethodKind::SessionEvent
            | MethodKind::Logout
            | MethodKind::CancelRequest
            | MethodKind::SessionAttach
            | MethodKind::Status => {
                self.fail(id, ErrorKind::MethodNotFound, format!("an OpenClaw gateway has no `{}`", kind.name()));
            }
        }
    }

    fn notification(&mut self, method: &str, params: Option<&RawValue>, now: Instant) {
        match MethodKind::from_name(method) {
            Some(MethodKind::SessionCancel) => {
                if let Ok(params) = SessionParams::parse(params) {
                    self.cancel_session(&params.session_id, now);
                }
            }
            Some(MethodKind::CancelRequest) => {
                if let Ok(params) = CancelRequestParams::parse(params) {
                    self.cancel_request(params.request_id, now);
                }
            }
            // A notification is never answered, and no other one means anything here.
            Some(_) | None => tracing::debug!(method = %method.escape_debug(), "a notification of no meaning"),
        }
    }

    fn initialize(&mut self, id: &RequestId) {
        if self.initialized {
            return self.fail(id, ErrorKind::InvalidRequest, "`initialize` was there already");
        }
        self.initialized = true;
        let yes = Some(Empty {});
        let session_capabilities =
            SessionCapabilities { list: yes, resume: yes, close: yes, ..SessionCapabilities::default() };
        self.answer(
            id,
            &Initialized {
                protocol_version: PROTOCOL_VERSION,
                agent_capabilities: Capabilities {
                    load_session: true,
                    prompt_capabilities: PromptCapabilities { image: true, audio: false, embedded_context: true },
                    mcp_capabilities: McpCapabilities { http: false, sse: false },
                    session_capabilities,
                },
                agent_info: Implementation {
                    name: "zeroclaw-openclaw-bridge",
                    title: "OpenClaw (ZeroClaw ACP bridge)",
                    version: env!("CARGO_PKG_VERSION"),
                },
                auth_methods: [],
            },
        );
    }

    fn close(&mut self, id: &RequestId, session: &str, now: Instant) {
        if !self.sessions.contains_key(session) {
            return self.no_session(id, session);
        }
        self.drop_session(session, now);
        self.answer(id, &Empty {});
    }

    /// Stops what runs in a session and forgets it.
    pub(super) fn drop_session(&mut self, session: &str, now: Instant) {
        if let Some(run) = self.sessions.get(session).and_then(|session| session.run.clone()) {
            self.stop_run(&run, now);
            self.settle(&run, Outcome::Cancelled);
        }
        if let Some(session) = self.sessions.remove(session) {
            self.owners.remove(&session.key);
            self.effects.ledger.push(ledger::Command::Close(session.id));
        }
    }

    pub(super) fn no_session(&mut self, id: &RequestId, session: &str) {
        let error = zeroclaw_acp_protocol::ErrorObject::new(
            zeroclaw_acp_protocol::ErrorTable::Spec,
            ErrorKind::SessionNotFound,
            "there is no such session",
        );
        encode_error(&mut self.effects.to_client, Some(id), &error.with_session(session));
    }

    fn prompt(&mut self, id: &RequestId, params: Option<&RawValue>, now: Instant) {
        match PromptParams::parse(params) {
            Ok(asked) => self.take_prompt(id, &asked, params, now),
            Err(error) => self.fail(id, ErrorKind::InvalidParams, error.to_string()),
        }
    }
}
