//! Frames as a gateway sends them (recorded from OpenClaw 2026.6.11).

use super::{ChatAck, Incoming, read};

fn error_of(text: &str) -> (String, String, String, String) {
    match Incoming::parse(text) {
        Some(Incoming::Response { outcome: Err(error), .. }) => (
            error.code.clone(),
            error.message.clone(),
            error.detail_code().to_owned(),
            error.details.and_then(|details| details.request_id).unwrap_or_default(),
        ),
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn what_a_gateway_sends_is_read() {
    let event = r#"{"type":"event","event":"tick","payload":{"ts":1796065293065},"seq":3}"#;
    assert!(matches!(
        Incoming::parse(event),
        Some(Incoming::Event { name, seq: Some(3), payload: Some(_) }) if name == "tick"
    ));
    let answer = r#"{"type":"res","id":"7","ok":true,"payload":{"runId":"r","status":"started"}}"#;
    let Some(Incoming::Response { id, outcome: Ok(Some(payload)) }) = Incoming::parse(answer) else {
        panic!("an answer")
    };
    let ack: ChatAck = read(payload).expect("an acknowledgement");
    assert_eq!((id.as_ref(), ack.run_id.as_deref(), ack.status.as_deref()), ("7", Some("r"), Some("started")));
    assert!(matches!(Incoming::parse(r#"{"type":"novelty","x":1}"#), Some(Incoming::Unknown)));
}

#[test]
fn what_is_no_frame_is_none() {
    for text in
        ["", "[]", "{}", "null", "{\"type\":7}", "{\"type\":\"event\"}", "{\"type\":\"res\",\"ok\":true}", "{\"type\""]
    {
        assert!(Incoming::parse(text).is_none(), "{text}");
    }
}

#[test]
fn errors_say_what_they_are() {
    let mismatch = r#"{"type":"res","id":"c","ok":false,"error":{"code":"INVALID_REQUEST","message":"unauthorized: gateway token mismatch","details":{"code":"AUTH_TOKEN_MISMATCH","authReason":"token_mismatch","canRetryWithDeviceToken":false,"recommendedNextStep":"update_auth_credentials"}}}"#;
    let expected = ("INVALID_REQUEST", "unauthorized: gateway token mismatch", "AUTH_TOKEN_MISMATCH", "");
    let (code, message, detail, request) = error_of(mismatch);
    assert_eq!((code.as_str(), message.as_str(), detail.as_str(), request.as_str()), expected);
    let failed = r#"{"type":"res","id":"9","ok":false,"payload":{"runId":"r","status":"error","summary":"it broke"}}"#;
    assert_eq!(error_of(failed).1, "it broke");
    assert_eq!(error_of(r#"{"type":"res","id":"9","ok":false}"#).1, "the gateway gives no reason");
}
