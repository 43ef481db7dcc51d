//! The smallest agent: says what it was told. `cargo run --example client -- target/debug/examples/agent hello`.

use std::error::Error;
use std::io::{self, BufRead, Write};

use serde_json::json;
use zeroclaw_acp_protocol::{
    ContentBlock, ErrorKind, ErrorObject, ErrorTable, Frame, MethodKind, PromptPart, SessionUpdate, UpdateFrame,
    encode_error, encode_result, params::PromptParams, parse_prompt,
};

fn main() -> Result<(), Box<dyn Error>> {
    for line in io::stdin().lock().lines() {
        let (line, mut out) = (line?, Vec::new());
        match Frame::parse(line.as_bytes()) {
            Ok(Frame::Request { id, method, params }) => match MethodKind::from_name(&method) {
                Some(MethodKind::Initialize) => encode_result(&mut out, &id, &json!({"protocolVersion": 1}))?,
                Some(MethodKind::SessionNew) => encode_result(&mut out, &id, &json!({"sessionId": "only"}))?,
                Some(MethodKind::SessionPrompt) => {
                    let params = PromptParams::parse(params)?;
                    for part in parse_prompt(params.prompt)? {
                        let PromptPart::Text(text) = part else { continue };
                        let content = ContentBlock::text(&text);
                        let update = SessionUpdate::AgentMessageChunk { content, message_id: "1" };
                        UpdateFrame::new(&params.session_id).write(&mut out, &serde_json::to_vec(&update)?, None);
                    }
                    encode_result(&mut out, &id, &json!({"stopReason": "end_turn"}))?;
                }
                _ => {
                    let error = ErrorObject::new(ErrorTable::Spec, ErrorKind::MethodNotFound, "not served here");
                    encode_error(&mut out, Some(&id), &error);
                }
            },
            Ok(Frame::Notification { .. } | Frame::Response { .. }) => {}
            Err(error) if error.silent => {}
            Err(error) => encode_error(&mut out, error.id.as_ref(), &error.to_error()),
        }
        io::stdout().write_all(&out)?;
    }
    Ok(())
}
