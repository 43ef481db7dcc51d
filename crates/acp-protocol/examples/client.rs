//! One prompt to an agent over stdio: `cargo run --example client -- zeroclaw-acp "/run date"`.

use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde::Serialize;
use zeroclaw_acp_protocol::{
    ContentBlock, Frame, MethodKind, RequestId, ResponseOutcome, calls, encode_request, encode_result, reading,
};

type Answer<T> = Result<T, Box<dyn Error>>;

fn main() -> Answer<()> {
    let mut words = std::env::args().skip(1);
    let (program, text) = words.next().zip(words.next()).ok_or("usage: client PROGRAM TEXT")?;
    let mut agent = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (input, output) = agent.stdin.take().zip(agent.stdout.take()).ok_or("no pipes")?;
    let link = &mut (input, BufReader::new(output).lines());
    let hello = calls::Initialize { protocol_version: 1, client_capabilities: Default::default(), client_info: None };
    call::<reading::InitializeResult>(link, MethodKind::Initialize, &hello)?;
    let cwd = std::env::current_dir()?.display().to_string();
    let id = call::<reading::NewSessionResult>(link, MethodKind::SessionNew, &calls::NewSession::new(&cwd))?.session_id;
    let prompt = calls::Prompt { session_id: &id, prompt: &[ContentBlock::text(&text)] };
    let end: reading::PromptResult = call(link, MethodKind::SessionPrompt, &prompt)?;
    writeln!(std::io::stdout(), "\n{:?}", end.stop_reason)?;
    drop(agent.kill());
    Ok(agent.wait().map(drop)?)
}

/// Sends a request and serves the agent until the answer comes. One request is open at a time, so one id is enough.
fn call<T: serde::de::DeserializeOwned>(
    (input, output): &mut (ChildStdin, Lines<BufReader<ChildStdout>>),
    method: MethodKind,
    params: &impl Serialize,
) -> Answer<T> {
    let mut line = Vec::new();
    encode_request(&mut line, &RequestId::from_number(1), method.name(), params)?;
    input.write_all(&line)?;
    for read in output {
        match Frame::parse(read?.as_bytes()).map_err(|error| error.message)? {
            Frame::Response { outcome: ResponseOutcome::Result(result), .. } => return Ok(reading::read(result)?),
            Frame::Response { outcome: ResponseOutcome::Error(error), .. } => return Err(error.message.into()),
            Frame::Notification { method, params: Some(params) } if method == "session/update" => {
                if let reading::Update::AgentMessageChunk(chunk) =
                    reading::read::<reading::SessionNotification>(params)?.update
                {
                    write!(std::io::stdout(), "{}", chunk.text().unwrap_or_default())?;
                }
            }
            // The only question that this client's capabilities allow is for permission.
            Frame::Request { id, .. } => {
                line.clear();
                encode_result(&mut line, &id, &calls::PermissionAnswer::Selected("allow-once"))?;
                input.write_all(&line)?;
            }
            Frame::Notification { .. } => {}
        }
    }
    Err("the agent has ended".into())
}
