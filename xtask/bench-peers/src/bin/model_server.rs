//! A model that costs nothing: a loopback HTTP server that answers every `POST` with a fixed number of chunks in the
//! streaming format of OpenAI chat completions, between one opening event and two closing ones. It prints its port, serves one thread per connection, and ends with
//! its standard input, so that it cannot outlive the benchmark that started it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};

/// A request body larger than this is not one of ours: the benchmark's prompts are a few hundred bytes.
const MAX_BODY: u64 = 16 * 1024 * 1024;
/// Events in one write when they are gathered, about 16 KiB, as a proxy in front of a model does.
const GATHERED: usize = 90;
/// The whole answer is held in memory, about 180 bytes a chunk; more than this is a mistyped number.
const MAX_CHUNKS: usize = 5_000_000;
/// A request head line beyond this ends the connection.
const MAX_HEAD_LINE: u64 = 64 * 1024;

fn main() -> Result<()> {
    let (chunks, events_per_write) = options_from(std::env::args().skip(1))?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no loopback port")?;
    let port = listener.local_addr()?.port();
    let mut output = io::stdout().lock();
    writeln!(output, "{port}")?;
    output.flush()?;
    drop(output);

    // Rendered once: what the server does while it streams is taken from the cores of what is measured.
    let answer = Arc::new(render(chunks, events_per_write)?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                // A client that hangs up early is the client's business: the next connection is served all the same.
                drop(serve(stream, &answer));
            });
        }
    });
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}

/// Reads how many chunks there are and how many events go into one write.
fn options_from(arguments: impl Iterator<Item = String>) -> Result<(usize, usize)> {
    let arguments: Vec<String> = arguments.collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (number, events_per_write) = match words.as_slice() {
        // A model sends each token when it has it.
        ["--chunks", number] => (number, 1),
        ["--chunks", number, "--gather"] => (number, GATHERED),
        _ => bail!("usage: bench-model-server --chunks N [--gather]"),
    };
    let chunks = number.parse().context("--chunks wants a number")?;
    ensure!(chunks <= MAX_CHUNKS, "--chunks is at most {MAX_CHUNKS}");
    Ok((chunks, events_per_write))
}

/// An answer from its status line to its last byte.
struct Answer {
    bytes: Vec<u8>,
    /// Where each write ends.
    ends: Vec<usize>,
}

/// Serves requests on one connection until the client closes it.
fn serve(mut stream: TcpStream, answer: &Answer) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    while let Some(is_post) = read_request(&mut input)? {
        if is_post {
            let mut begin = 0;
            for end in &answer.ends {
                stream.write_all(&answer.bytes[begin..*end])?;
                begin = *end;
            }
        } else {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
        }
    }
    Ok(())
}

/// Reads one request with its body. `None` is the end of the connection, otherwise whether it is a `POST`.
fn read_request(input: &mut impl BufRead) -> io::Result<Option<bool>> {
    let mut line = String::new();
    if input.by_ref().take(MAX_HEAD_LINE).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let is_post = line.starts_with("POST ");
    let mut length = 0_u64;
    loop {
        line.clear();
        if input.by_ref().take(MAX_HEAD_LINE).read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim_end().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    if length > MAX_BODY {
        return Err(io::Error::other("request body too large"));
    }
    io::copy(&mut input.take(length), &mut io::sink())?;
    Ok(Some(is_post))
}

fn render(chunks: usize, events_per_write: usize) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n");
    bytes.extend_from_slice(b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n");
    event(&mut bytes, &completion(r#"{"role":"assistant","content":""}"#, "null"))?;
    for number in 0..chunks {
        if number % events_per_write == 0 {
            ends.push(bytes.len());
        }
        let delta = format!(r#"{{"content":"word {number} "}}"#);
        event(&mut bytes, &completion(&delta, "null"))?;
    }
    event(&mut bytes, &completion("{}", r#""stop""#))?;
    event(&mut bytes, "[DONE]")?;
    bytes.extend_from_slice(b"0\r\n\r\n");
    ends.push(bytes.len());
    Ok(Answer { bytes, ends })
}

fn completion(delta: &str, finish_reason: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":0,"model":"bench","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish_reason}}}]}}"#
    )
}

/// Writes one server-sent event as one HTTP chunk.
fn event(output: &mut impl Write, data: &str) -> io::Result<()> {
    let length = "data: ".len() + data.len() + "\n\n".len();
    write!(output, "{length:x}\r\ndata: {data}\n\n\r\n")
}
