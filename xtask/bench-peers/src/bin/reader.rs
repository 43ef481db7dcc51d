//! The floor of `cargo xtask bench stream`: reads the stream of `bench-model-server` with the HTTP client the server
//! itself uses, counts its events and prints `<events> <microseconds>`. It parses no JSON and keeps nothing.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

/// How the line of an event begins.
const EVENT: &[u8] = b"data: ";
/// An event longer than this did not come from our server.
const MAX_LINE: usize = 1024 * 1024;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), None) = (arguments.next(), arguments.next()) else {
        bail!("usage: bench-reader URL");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let began = Instant::now();
    let events = runtime.block_on(count(&url))?;
    let took = began.elapsed();
    writeln!(std::io::stdout(), "{events} {}", took.as_micros())?;
    Ok(())
}

async fn count(url: &str) -> Result<usize> {
    // A second installation fails and changes nothing; this process makes only this one.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().no_proxy().build()?;
    let body = r#"{"model":"bench","stream":true,"messages":[{"role":"user","content":"go"}]}"#;
    let mut response = client
        .post(url)
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await
        .with_context(|| format!("no answer from {url}"))?
        .error_for_status()?;
    let mut line = Vec::new();
    let mut events = 0;
    while let Some(bytes) = response.chunk().await? {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            ensure!(line.len() <= MAX_LINE, "a line of more than {MAX_LINE} bytes");
            if piece.ends_with(b"\n") {
                events += usize::from(line.starts_with(EVENT));
                line.clear();
            }
        }
    }
    Ok(events)
}
