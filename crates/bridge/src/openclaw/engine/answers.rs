//! What the gateway tells once and what is changed rarely: commands, levels of thinking, modes and options.

use std::{borrow::Cow, time::Instant};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{
    AvailableCommand, CommandInput, ErrorKind, RequestId, SessionUpdate,
    params::{OptionValue, SetConfigOptionParams, SetModeParams},
    result::{ConfigOptionsResult, Empty},
};

use super::{Ask, Engine};
use crate::openclaw::{
    choices::{self, Choices, Levels},
    gateway::Repeat,
    run::encode,
    wire::{self, GatewayError, ThinkingLevel},
};

/// Commands that are told, at most.
const MAX_COMMANDS: usize = 500;

/// A change of a session's record.
pub(super) struct Patching {
    request: RequestId,
    session: String,
    option: String,
    value: String,
    is_mode: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Commands<'a> {
    #[serde(borrow)]
    commands: Vec<Command<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Command<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    text_aliases: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    description: Cow<'a, str>,
    accepts_args: bool,
    #[serde(borrow)]
    args: Vec<Argument<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Argument<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Agents {
    default_id: Option<String>,
    agents: Vec<Agent>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Agent {
    id: String,
    thinking_levels: Vec<ThinkingLevel>,
    thinking_default: Option<String>,
}

impl Engine {
    /// The gateway's own commands.
    pub(super) fn commands_are(&mut self, payload: Option<&RawValue>) {
        let Some(told) = payload.and_then(wire::read::<Commands<'_>>) else { return };
        let hints: Vec<String> = told
            .commands
            .iter()
            .map(|command| {
                let names: Vec<&str> = command.args.iter().map(|argument| argument.name.as_ref()).collect();
                if names.is_empty() { "…".to_owned() } else { names.join(" ") }
            })
            .collect();
        let commands: Vec<AvailableCommand<'_>> = told
            .commands
            .iter()
            .zip(&hints)
            .filter_map(|(command, hint)| {
                let alias = command.text_aliases.iter().find_map(|alias| alias.strip_prefix('/'));
                let name = alias.unwrap_or(&command.name);
                let is_word = !name.is_empty() && name.len() <= 64 && !name.contains(char::is_whitespace);
                is_word.then(|| AvailableCommand {
                    name,
                    description: &command.description,
                    input: command.accepts_args.then_some(CommandInput { hint }),
                })
            })
            .take(MAX_COMMANDS)
            .collect();
        let update: Bytes = encode(&SessionUpdate::AvailableCommandsUpdate { available_commands: &commands });
        self.commands = Some(update);
        // Sessions that were announced before the gateway had answered.
        let announced: Vec<String> =
            self.sessions.values().filter(|session| session.announced).map(|session| session.id.clone()).collect();
        for session in announced {
            self.tell_commands(&session);
        }
    }

    fn tell_commands(&mut self, session: &str) {
        let (Some(open), Some(commands)) = (self.sessions.get(session), &self.commands) else { return };
        open.frame.write(&mut self.effects.to_client, commands, None);
    }

    pub(super) fn agents_are(&mut self, payload: Option<&RawValue>, now: Instant) {
        let told = payload.and_then(wire::read::<Agents>).unwrap_or_default();
        let default = told.default_id.as_deref().unwrap_or(&self.default_agent).to_owned();
        let agent = told.agents.into_iter().find(|agent| agent.id == default).unwrap_or_default();
        self.levels_known(Levels { all: agent.thinking_levels, usual: agent.thinking_default }, now);
    }

    /// Tells what a session can do and is called. A client that has read the answer to its request is ready for it.
    pub(super) fn announce(&mut self, id: &str) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.announced = true;
        let title = super::list::title_of(&session.row);
        let updated_at = session.row.updated_at;
        let usage = session.row.total_tokens.filter(|_| session.row.total_tokens_fresh).zip(session.row.context_tokens);
        self.tell_commands(id);
        if let (Some(title), Some(updated_at)) = (title, updated_at) {
            let updated_at = super::list::iso(updated_at);
            self.tell_state(id, &SessionUpdate::SessionInfoUpdate { title: &title, updated_at: &updated_at });
        }
        if let Some((used, size)) = usage {
            self.tell_state(id, &SessionUpdate::UsageUpdate { used: used.min(size), size, cost: None });
        }
    }

    pub(super) fn set_mode(&mut self, id: &RequestId, params: SetModeParams, now: Instant) {
        if params.mode_id.is_empty() && self.sessions.contains_key(&params.session_id) {
            return self.answer(id, &Empty {});
        }
        let value = OptionValue::Id(params.mode_id);
        self.patch(id, params.session_id, "thought_level", value, true, now);
    }

    pub(super) fn set_option(&mut self, id: &RequestId, params: SetConfigOptionParams, now: Instant) {
        self.patch(id, params.session_id, &params.config_id, params.value, false, now);
    }

    fn patch(
        &mut self,
        id: &RequestId,
        session: String,
        option: &str,
        value: OptionValue,
        is_mode: bool,
        now: Instant,
    ) {
        let Some(open) = self.sessions.get(&session) else { return self.no_session(id, &session) };
        let patch = match choices::patch(&open.key, option, &value) {
            Ok(patch) => patch,
            Err(why) => return self.fail(id, ErrorKind::InvalidParams, why),
        };
        if !self.admin {
            let why = "only an administrator may change a session's settings; start the bridge with --admin";
            return self.fail(id, ErrorKind::InvalidRequest, why);
        }
        let value = match value {
            OptionValue::Id(value) => value,
            OptionValue::Flag(_) => String::new(),
        };
        let op = self.next_op;
        self.next_op += 1;
        self.patching.insert(op, Patching { request: id.clone(), session, option: option.to_owned(), value, is_mode });
        match patch {
            Some(patch) => self.ask("sessions.patch", &patch, Ask::Patch(op), Repeat::No, now),
            None => self.patched(op, Ok(None)),
        }
    }

    pub(super) fn patched(&mut self, op: u64, outcome: Result<Option<&RawValue>, GatewayError>) {
        let Some(patching) = self.patching.remove(&op) else { return };
        if let Err(error) = outcome {
            let kind = if error.code == "INVALID_REQUEST" { ErrorKind::InvalidParams } else { ErrorKind::Internal };
            return self.fail(&patching.request, kind, error.message);
        }
        let Some(session) = self.sessions.get_mut(&patching.session) else {
            return self.no_session(&patching.request, &patching.session);
        };
        choices::note(&mut session.row, &patching.option, &patching.value);
        let none = Levels::default();
        let choices = Choices::new(&session.row, self.levels.as_ref().unwrap_or(&none));
        let out = &mut self.effects.to_client;
        let mode = SessionUpdate::CurrentModeUpdate { current_mode_id: choices.mode() };
        session.frame.write(out, &encode(&mode), None);
        choices.with(|_, options| {
            let update = SessionUpdate::ConfigOptionUpdate { config_options: options };
            session.frame.write(out, &encode(&update), None);
            // Results of ours can be written.
            let _infallible = if patching.is_mode {
                zeroclaw_acp_protocol::encode_result(out, &patching.request, &Empty {})
            } else {
                let result = ConfigOptionsResult { config_options: options };
                zeroclaw_acp_protocol::encode_result(out, &patching.request, &result)
            };
        });
    }
}
