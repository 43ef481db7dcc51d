//! Judges a whole line of ours: the official types read it, write it back, and it is compared; then the JSON Schema
//! looks at it. Refuses methods that nobody knows, unless their name makes them extensions.

use std::{cell::RefCell, collections::BTreeSet};

use agent_client_protocol_schema::v1;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use zeroclaw_acp_protocol::{MethodKind, client};

#[cfg(feature = "newest")]
use crate::JsonSchema;
use crate::{DIFFERENCES, Difference, Why};

/// Whose type judges a message.
#[derive(Clone, Copy)]
enum Official {
    /// Reads the line and writes it back.
    Type(fn(&str) -> Result<Value, String>),
    /// Nobody's: the official protocol does not have it.
    Dialect,
}

/// Whose type judges the successful answer to a method. A method that is added to the table has to be entered here.
fn answer_to(kind: MethodKind) -> Official {
    match kind {
        MethodKind::Initialize => response::<v1::InitializeResponse>(),
        MethodKind::SessionNew => response::<v1::NewSessionResponse>(),
        MethodKind::SessionLoad => response::<v1::LoadSessionResponse>(),
        MethodKind::SessionResume => response::<v1::ResumeSessionResponse>(),
        MethodKind::SessionPrompt => response::<v1::PromptResponse>(),
        MethodKind::SessionClose => response::<v1::CloseSessionResponse>(),
        MethodKind::SessionList => response::<v1::ListSessionsResponse>(),
        MethodKind::SessionDelete => response::<v1::DeleteSessionResponse>(),
        MethodKind::SessionFork => response::<v1::ForkSessionResponse>(),
        MethodKind::SetMode => response::<v1::SetSessionModeResponse>(),
        MethodKind::SetConfigOption => response::<v1::SetSessionConfigOptionResponse>(),
        MethodKind::Authenticate => response::<v1::AuthenticateResponse>(),
        MethodKind::Logout => response::<v1::LogoutResponse>(),
        // Notifications; whoever sends one with an id gets an empty answer.
        MethodKind::SessionCancel | MethodKind::CancelRequest => Official::Dialect,
        // ZeroClaw's own methods, and its own use of a name.
        MethodKind::SessionStop | MethodKind::SessionAttach | MethodKind::Status | MethodKind::SessionEvent => {
            Official::Dialect
        }
    }
}

/// Whose type judges a request or notification of ours; `None` when nobody knows the method.
fn message_of(method: &str) -> Option<Official> {
    Some(match method {
        client::SESSION_UPDATE => notification::<v1::SessionNotification>(),
        client::CANCEL_REQUEST => notification::<v1::CancelRequestNotification>(),
        client::REQUEST_PERMISSION => request::<v1::RequestPermissionRequest>(),
        client::READ_TEXT_FILE => request::<v1::ReadTextFileRequest>(),
        client::WRITE_TEXT_FILE => request::<v1::WriteTextFileRequest>(),
        client::TERMINAL_CREATE => request::<v1::CreateTerminalRequest>(),
        client::TERMINAL_OUTPUT => request::<v1::TerminalOutputRequest>(),
        client::TERMINAL_WAIT_FOR_EXIT => request::<v1::WaitForTerminalExitRequest>(),
        client::TERMINAL_KILL => request::<v1::KillTerminalRequest>(),
        client::TERMINAL_RELEASE => request::<v1::ReleaseTerminalRequest>(),
        client::ELICITATION_CREATE => request::<v1::CreateElicitationRequest>(),
        // An extension, as the protocol allows them under such names.
        own if own.starts_with('_') => Official::Dialect,
        _ => return None,
    })
}

fn response<T: DeserializeOwned + Serialize>() -> Official {
    Official::Type(|line| {
        part::<T>(line, "result")?;
        whole::<v1::Response<T>>(line)
    })
}

fn request<T: DeserializeOwned + Serialize>() -> Official {
    Official::Type(|line| {
        part::<T>(line, "params")?;
        whole::<v1::Request<T>>(line)
    })
}

fn notification<T: DeserializeOwned + Serialize>() -> Official {
    Official::Type(|line| {
        part::<T>(line, "params")?;
        whole::<v1::Notification<T>>(line)
    })
}

fn whole<M: DeserializeOwned + Serialize>(line: &str) -> Result<Value, String> {
    let message: v1::JsonRpcMessage<M> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    serde_json::to_value(&message).map_err(|error| error.to_string())
}

/// Reads one member alone: the envelope's types are untagged and do not say what is wrong inside.
fn part<T: DeserializeOwned>(line: &str, member: &str) -> Result<(), String> {
    let message = parse(line)?;
    let inside = message.get(member).ok_or_else(|| format!("no `{member}`"))?;
    serde_json::from_str::<T>(&inside.to_string()).map(drop).map_err(|error| error.to_string())
}

fn parse(line: &str) -> Result<Value, String> {
    serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))
}

/// Judges lines and remembers which allowed differences it saw.
#[derive(Debug, Default)]
pub struct Judge {
    seen: RefCell<BTreeSet<usize>>,
}

impl Judge {
    /// Judges the successful answer to a method.
    ///
    /// # Errors
    /// Says what an official judge could not read, wrote differently or refuses.
    pub fn answer(&self, method: &str, line: &str) -> Result<(), String> {
        let kind = MethodKind::from_name(method).ok_or_else(|| format!("`{method}` is not served, but answered"))?;
        let official = answer_to(kind);
        self.by_type(method, official, line)?;
        #[cfg(feature = "newest")]
        {
            let schema = JsonSchema::official();
            // Unstable, so it is not in the schema; the official types have judged it above.
            let is_stable = matches!(official, Official::Type(_)) && kind != MethodKind::SessionFork;
            match (is_stable, schema.knows_answer(method)) {
                (true, _) => schema.answer(method, &parse(line)?["result"])?,
                (false, true) => return Err(format!("`{method}` is stable now: {line}")),
                (false, false) => {}
            }
        }
        Ok(())
    }

    /// Judges a request or notification of ours.
    ///
    /// # Errors
    /// Says what an official judge could not read, wrote differently or refuses, or that nobody knows the method.
    pub fn call(&self, line: &str) -> Result<(), String> {
        let message = parse(line)?;
        let method = message["method"].as_str().ok_or_else(|| format!("no method: {line}"))?;
        let official = message_of(method).ok_or_else(|| format!("nobody knows `{method}`: {line}"))?;
        let about = message["params"]["update"]["sessionUpdate"].as_str().unwrap_or(method);
        self.by_type(about, official, line)?;
        #[cfg(feature = "newest")]
        if matches!(official, Official::Type(_)) {
            JsonSchema::official().call(method, &message["params"])?;
        }
        Ok(())
    }

    /// Judges an error answer.
    ///
    /// # Errors
    /// Says what an official judge could not read, wrote differently or refuses.
    pub fn error(&self, line: &str) -> Result<(), String> {
        let official = Official::Type(|line| {
            part::<v1::Error>(line, "error")?;
            whole::<v1::Response<Value>>(line)
        });
        self.by_type("error", official, line)?;
        #[cfg(feature = "newest")]
        JsonSchema::official().error(&parse(line)?["error"])?;
        Ok(())
    }

    /// Judges a line by an official type. `about` selects the allowed differences.
    fn by_type(&self, about: &str, official: Official, line: &str) -> Result<(), String> {
        let Official::Type(round_trip) = official else { return Ok(()) };
        let theirs = round_trip(line).map_err(|error| format!("{about}: {error}\n{line}"))?;
        let ours = parse(line)?;
        let mut differing = Vec::new();
        compare(Some(&ours), Some(&theirs), &mut String::new(), &mut differing);
        for (path, ours, theirs) in differing {
            if !self.is_allowed(about, &path, ours, theirs) {
                let shown = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
                let (ours, theirs) = (shown(ours), shown(theirs));
                return Err(format!("{about}: at {path} ours has {ours}, the official type has {theirs}\n{line}"));
            }
        }
        Ok(())
    }

    fn is_allowed(&self, about: &str, path: &str, ours: Option<&Value>, theirs: Option<&Value>) -> bool {
        let is = |value: &Value, json: &str| serde_json::from_str(json).is_ok_and(|json: Value| json == *value);
        let found = DIFFERENCES.iter().position(|difference| {
            let fits = match (difference.why, ours, theirs) {
                (Why::Unknown, Some(_), None) => true,
                (Why::LeftOut(json), Some(ours), None) => is(ours, json),
                (Why::FilledIn(json), None, Some(theirs)) => is(theirs, json),
                (Why::Unknown | Why::LeftOut(_) | Why::FilledIn(_), _, _) => false,
            };
            fits && difference.applies() && difference.about.contains(&about) && difference.path == path
        });
        found.is_some_and(|index| {
            self.seen.borrow_mut().insert(index);
            true
        })
    }

    /// The allowed differences about these that were never seen: they are not needed any more.
    #[must_use]
    pub fn unseen(&self, about: &[&str]) -> Vec<&'static Difference> {
        let seen = self.seen.borrow();
        DIFFERENCES
            .iter()
            .enumerate()
            .filter(|(index, difference)| {
                difference.applies()
                    && difference.about.iter().any(|name| about.contains(name))
                    && !seen.contains(index)
            })
            .map(|(_, difference)| difference)
            .collect()
    }
}

/// A place, what ours has there, and what the official type has.
type Differing<'a> = (String, Option<&'a Value>, Option<&'a Value>);

fn compare<'a>(
    ours: Option<&'a Value>,
    theirs: Option<&'a Value>,
    path: &mut String,
    differing: &mut Vec<Differing<'a>>,
) {
    let length = path.len();
    match (ours, theirs) {
        (Some(Value::Object(ours)), Some(Value::Object(theirs))) => {
            let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for name in names {
                path.push('/');
                path.push_str(name);
                compare(ours.get(name), theirs.get(name), path, differing);
                path.truncate(length);
            }
        }
        (Some(Value::Array(ours)), Some(Value::Array(theirs))) if ours.len() == theirs.len() => {
            path.push_str("/*");
            for (ours, theirs) in ours.iter().zip(theirs) {
                compare(Some(ours), Some(theirs), path, differing);
            }
            path.truncate(length);
        }
        (ours, theirs) if ours == theirs => {}
        (ours, theirs) => differing.push((path.clone(), ours, theirs)),
    }
}
