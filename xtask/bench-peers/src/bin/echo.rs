//! The floor of `cargo xtask bench start`: reads one line, writes one fixed answer, waits for the end of input.
//! It knows nothing of the protocol, so what it needs is what the machine needs to start any program.

use std::io::{self, BufRead, Read, Write};

const ANSWER: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{},"#,
    r#""agentInfo":{"name":"bench-echo","version":"0"},"authMethods":[]}}"#,
    "\n"
);

fn main() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line)?;
    let mut output = io::stdout().lock();
    output.write_all(ANSWER.as_bytes())?;
    output.flush()?;
    // The memory of the process is read while it waits here.
    let mut rest = [0_u8; 256];
    while input.read(&mut rest)? > 0 {}
    Ok(())
}
