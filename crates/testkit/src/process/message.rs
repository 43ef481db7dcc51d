//! The check of one output line.
//!
//! Owns what counts as a JSON-RPC 2.0 message. It refuses batches, unknown versions, and answers that are neither
//! result nor error.

use serde_json::Value;

/// The message of a line, or what is wrong with it.
pub(super) fn parse(line: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    let message: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let object = message.as_object().ok_or("not a JSON object")?;
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err("`jsonrpc` is not \"2.0\"".to_owned());
    }
    if let Some(method) = object.get("method") {
        if !method.is_string() {
            return Err("`method` is not a string".to_owned());
        }
        if object.contains_key("result") || object.contains_key("error") {
            return Err("a call with a result or an error".to_owned());
        }
        if object.get("params").is_some_and(|params| !params.is_object() && !params.is_array()) {
            return Err("`params` is neither an object nor an array".to_owned());
        }
    } else {
        if !object.contains_key("id") {
            return Err("neither a call nor a response".to_owned());
        }
        if object.contains_key("result") == object.contains_key("error") {
            return Err("a response needs either a result or an error".to_owned());
        }
        if let Some(error) = object.get("error")
            && !(error["code"].is_i64() && error["message"].is_string())
        {
            return Err("an error without a code and a message".to_owned());
        }
    }
    if object.get("id").is_some_and(|id| !id.is_string() && !id.is_number() && !id.is_null()) {
        return Err("`id` is neither a string nor a number nor null".to_owned());
    }
    Ok(message)
}

/// Whether a checked message answers a request.
pub(super) fn is_response(message: &Value) -> bool {
    message.get("method").is_none()
}
