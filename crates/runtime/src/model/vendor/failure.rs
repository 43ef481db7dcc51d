//! From what vendors say about failures to [`ModelError`]. Texts are bounded, and the key is taken out of them.

use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::model::{ModelError, vendor::ApiKey};

/// A failure in the vendor's words.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The human text.
    message: String,
    /// `type`, `code` and `status` members, in lower case, between spaces.
    codes: String,
    /// A code that is a number, as some gateways send inside a stream.
    number: Option<u16>,
}

impl Said {
    /// Reads the body of a failed response or an error object of a stream.
    pub(super) fn parse(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::from_value(&value),
            Err(_) => Self { message: String::from_utf8_lossy(body).trim().to_owned(), ..Self::default() },
        }
    }

    fn from_value(value: &Value) -> Self {
        // A list with one error is how one vendor answers to streaming requests.
        let value = value.get(0).unwrap_or(value);
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let text = |from: &Value, names: &[&str]| {
            names.iter().find_map(|name| from.get(name).and_then(Value::as_str)).map(str::to_owned)
        };
        let message = error
            .as_str()
            .map(str::to_owned)
            .or_else(|| text(error, &["message", "detail", "msg"]))
            .or_else(|| text(value, &["message", "detail", "msg"]))
            .unwrap_or_else(|| error.to_string());
        let mut codes = String::from(" ");
        for code in ["type", "code", "status"].iter().filter_map(|name| error.get(name).and_then(Value::as_str)) {
            codes.push_str(&code.to_ascii_lowercase());
            codes.push(' ');
        }
        let number = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        Self { message, codes, number }
    }

    /// The error that this is, after a response with this status.
    pub(super) fn after_status(self, status: u16, retry_after: Option<Duration>, key: Option<&ApiKey>) -> ModelError {
        let mut message = clean(&self.message, key);
        message = if message.is_empty() { format!("HTTP {status}") } else { format!("{message} (HTTP {status})") };
        self.classify(Some(status), message, retry_after)
    }

    /// The error that this is, inside a stream.
    pub(super) fn in_stream(self, key: Option<&ApiKey>) -> ModelError {
        let message = clean(&self.message, key);
        let number = self.number;
        self.classify(number, message, None)
    }

    fn classify(self, status: Option<u16>, message: String, retry_after: Option<Duration>) -> ModelError {
        let has = |codes: &[&str]| codes.iter().any(|code| self.codes.contains(&format!(" {code} ")));
        let lower = self.message.to_ascii_lowercase();
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| lower.contains(phrase));
        let size_is_possible = !matches!(status, Some(401 | 402 | 403 | 404 | 429 | 529));
        // A status below 500 knows better than a word in the body.
        let codes_count = status.is_none_or(|status| status >= 500);
        if has(QUOTA_CODES) || status == Some(402) || says(QUOTA_PHRASES) {
            ModelError::Unusable(message)
        } else if has(CONTEXT_CODES) || size_is_possible && says(CONTEXT_PHRASES) {
            ModelError::ContextOverflow(message)
        } else if matches!(status, Some(401 | 403)) || has(AUTH_CODES) || says(AUTH_PHRASES) {
            ModelError::Auth(message)
        } else if matches!(status, Some(408 | 425 | 429 | 500 | 502..=504 | 520..=524 | 529))
            || codes_count && has(TRANSIENT_CODES)
        {
            ModelError::Transient { message, retry_after }
        } else if status == Some(404) || has(NO_MODEL_CODES) {
            ModelError::Unusable(message)
        } else if status.is_some() || has(REQUEST_CODES) {
            ModelError::Request(message)
        } else {
            ModelError::Stream(message)
        }
    }
}

/// A request that did not get as far as an answer.
pub(super) fn unreachable(error: reqwest::Error, key: Option<&ApiKey>) -> ModelError {
    // The address may hold a key in its query.
    let error = error.without_url();
    if error.is_builder() {
        return ModelError::Config(format!("the request cannot be made: {}", chain(&error, key)));
    }
    ModelError::Transient { message: chain(&error, key), retry_after: None }
}

/// An error and its causes in one line.
pub(super) fn chain(error: &dyn std::error::Error, key: Option<&ApiKey>) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    clean(&text, key)
}

/// How long a vendor asks to wait: milliseconds, seconds or a date.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| *number >= 0.0);
    if let Some(milliseconds) = field("retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(milliseconds / 1000.0).ok();
    }
    let text = field("retry-after")?;
    if let Some(seconds) = number(text) {
        // What no duration can hold is longer than anybody waits.
        return Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    }
    let at = |text: &str| {
        let seconds = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_second();
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
    };
    // The vendor's own clock, where it shows it, is the one that the date belongs to.
    let now = field("date").and_then(at).unwrap_or(now);
    Some(at(text)?.duration_since(now).unwrap_or(Duration::ZERO))
}

/// Takes the key out, makes control characters spaces, and cuts.
pub(super) fn clean(text: &str, key: Option<&ApiKey>) -> String {
    let text = match key.map(ApiKey::expose).filter(|key| !key.is_empty()) {
        Some(key) => text.replace(key, "***"),
        None => text.to_owned(),
    };
    let mut text: String = text.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if text.len() > MAX_MESSAGE_BYTES {
        let mut end = MAX_MESSAGE_BYTES - "…".len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A vendor's text is shown to the user; what is longer is a web page.
const MAX_MESSAGE_BYTES: usize = 1024;

const CONTEXT_CODES: &[&str] = &["context_length_exceeded", "exceed_context_size_error", "string_above_max_length"];
const CONTEXT_PHRASES: &[&str] = &[
    "context length",
    "context window",
    "context size",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "too many tokens",
    "exceeds the maximum number of tokens",
    "reduce the length of the messages",
    "exceed context limit",
];
const QUOTA_CODES: &[&str] = &[
    "insufficient_quota",
    "usage_limit_reached",
    "usage_limit_exceeded",
    "billing_hard_limit_reached",
    "billing_error",
];
const QUOTA_PHRASES: &[&str] = &["usage limit", "credit balance is too low", "insufficient balance"];
const AUTH_CODES: &[&str] =
    &["authentication_error", "permission_error", "invalid_api_key", "unauthenticated", "permission_denied"];
const AUTH_PHRASES: &[&str] = &["api key not valid", "api_key_invalid"];
const TRANSIENT_CODES: &[&str] = &[
    "overloaded_error",
    "overloaded",
    "rate_limit_error",
    "rate_limit_exceeded",
    "api_error",
    "server_error",
    "internal_server_error",
    "internal_error",
    "timeout_error",
    "service_unavailable",
    "unavailable",
    "resource_exhausted",
    "engine_overloaded",
];
const NO_MODEL_CODES: &[&str] = &["not_found_error", "model_not_found"];
const REQUEST_CODES: &[&str] = &["invalid_request_error", "invalid_argument"];
