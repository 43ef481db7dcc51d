//! What to make of a gateway that does not let the bridge in: wait, try otherwise, or say what a person has to do.

use std::time::Duration;

use crate::openclaw::wire::GatewayError;

/// The shortest and the longest wait for a gateway that is starting.
const STARTING: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// See [`judge`].
#[derive(Debug, PartialEq, Eq)]
pub(in crate::openclaw) enum Refusal {
    /// It is starting, or overloaded: the same again after this time.
    Later(Duration),
    /// The token is not the right one, but the device's own may be.
    DeviceToken,
    /// Nothing that this program does can help. One line for a person.
    Final(String),
}

/// Judges the error of a handshake.
pub(in crate::openclaw) fn judge(error: &GatewayError, used_device_token: bool) -> Refusal {
    let details = error.details.as_ref();
    let code = error.detail_code();
    if error.code == "UNAVAILABLE" || (error.retryable && code.is_empty()) {
        let wait = Duration::from_millis(error.retry_after_ms.unwrap_or(500));
        return Refusal::Later(wait.clamp(STARTING.0, STARTING.1));
    }
    if details.is_some_and(|details| details.can_retry_with_device_token) && !used_device_token {
        return Refusal::DeviceToken;
    }
    let advice = match code {
        "PAIRING_REQUIRED" => {
            let request = details.and_then(|details| details.request_id.as_deref()).filter(|id| is_plain(id));
            let command = match request {
                Some(id) => format!("openclaw devices approve {id}"),
                None => "openclaw devices list".to_owned(),
            };
            match error.detail_reason() {
                "scope-upgrade" => {
                    format!("this device wants more rights than it was approved for; approve with `{command}`")
                }
                _ => format!("this device is not paired yet; approve it on the gateway with `{command}`"),
            }
        }
        "AUTH_TOKEN_MISMATCH" | "AUTH_UNAUTHORIZED" => {
            "the token is not the gateway's; look into the file of --token-file".to_owned()
        }
        "AUTH_DEVICE_TOKEN_MISMATCH" => {
            "the gateway does not know this device's token any more; give its shared token with --token-file once"
                .to_owned()
        }
        "AUTH_TOKEN_MISSING" | "AUTH_REQUIRED" | "DEVICE_IDENTITY_REQUIRED" => {
            "the gateway wants a token; give it with --token-file or OPENCLAW_GATEWAY_TOKEN".to_owned()
        }
        "AUTH_PASSWORD_MISSING" => "the gateway wants a password; give it with --password-file".to_owned(),
        "AUTH_PASSWORD_MISMATCH" => "the password is not the gateway's".to_owned(),
        "AUTH_RATE_LIMITED" => "the gateway has seen too many wrong tokens; wait and start again".to_owned(),
        "AUTH_SCOPE_MISMATCH" => {
            "the device's token is not good for what is asked; remove the device and pair it anew".to_owned()
        }
        "PROTOCOL_MISMATCH" | "CLIENT_VERSION_MISMATCH" => {
            "the gateway speaks another version of its protocol than 4".to_owned()
        }
        "DEVICE_AUTH_SIGNATURE_EXPIRED" => "the gateway's clock jumped".to_owned(),
        _ => "start the gateway and the bridge with settings that fit each other".to_owned(),
    };
    Refusal::Final(format!("the gateway refuses the connection: {}; {advice}", shown(&error.message)))
}

/// Whether a word of the gateway may stand in a command that a person copies.
fn is_plain(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= 128
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_:.".contains(&byte))
}

/// A foreign text as one line of bounded length.
pub(in crate::openclaw) fn shown(text: &str) -> String {
    let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(500).collect();
    line.trim().to_owned()
}
