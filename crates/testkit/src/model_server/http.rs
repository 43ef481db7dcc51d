//! The little HTTP/1.1 that the server needs, over a socket it can also watch for the peer's departure.
//!
//! Owns reading of requests and writing of heads and chunks. It refuses what a model client has no reason to send:
//! trailers, upgrades, and bodies without a length.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// Request line and header fields. Model clients send a dozen short fields.
const MAX_HEAD: usize = 64 * 1024;
/// A conversation with images fits; the limits of the vendors are between 20 and 32 MiB.
const MAX_BODY: usize = 64 * 1024 * 1024;

pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// One connection, read and written from a single task.
pub(super) struct Connection {
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    /// Bytes read and not consumed yet.
    input: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        // Without it the kernel would hold back small writes and merge them.
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        Ok(Self { reader, writer, input: Vec::new() })
    }

    /// The next request, or `None` when the client closed between two requests.
    pub(super) async fn request(&mut self) -> io::Result<Option<Request>> {
        let head_len = loop {
            if let Some(at) = find(&self.input, b"\r\n\r\n") {
                break at;
            }
            if self.input.len() > MAX_HEAD {
                return Err(invalid("request head over the limit"));
            }
            if self.fill().await? == 0 {
                return if self.input.is_empty() { Ok(None) } else { Err(invalid("end of stream in a request head")) };
            }
        };
        let head: Vec<u8> = self.input.drain(..head_len + 4).take(head_len).collect();
        let head = String::from_utf8(head).map_err(|_| invalid("request head is not UTF-8"))?;
        let mut lines = head.split("\r\n");
        let mut start = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(path), Some("HTTP/1.1"), None) =
            (start.next(), start.next(), start.next(), start.next())
        else {
            return Err(invalid("request line is not `METHOD TARGET HTTP/1.1`"));
        };
        let headers = lines
            .map(|line| {
                let (name, value) = line.split_once(':').ok_or_else(|| invalid("header field without a colon"))?;
                Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let mut request = Request { method: method.to_owned(), path: path.to_owned(), headers, body: Vec::new() };
        request.body = self.body(&request).await?;
        Ok(Some(request))
    }

    async fn body(&mut self, request: &Request) -> io::Result<Vec<u8>> {
        if request.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return self.chunked_body().await;
        }
        let Some(length) = request.header("content-length") else {
            return Ok(Vec::new());
        };
        let length: usize = length.parse().map_err(|_| invalid("content-length is not a number"))?;
        self.take(length).await
    }

    async fn chunked_body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| invalid("chunk size is not hexadecimal"))?;
            if body.len().saturating_add(size) > MAX_BODY {
                return Err(invalid("request body over the limit"));
            }
            body.extend(self.take(size).await?);
            if !self.line().await?.is_empty() {
                return Err(invalid("chunk without its final line end"));
            }
            if size == 0 {
                return Ok(body);
            }
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = find(&self.input, b"\r\n") {
                let line: Vec<u8> = self.input.drain(..at + 2).take(at).collect();
                return String::from_utf8(line).map_err(|_| invalid("chunk line is not UTF-8"));
            }
            if self.input.len() > MAX_HEAD || self.fill().await? == 0 {
                return Err(invalid("no end of a chunk line"));
            }
        }
    }

    async fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > MAX_BODY {
            return Err(invalid("request body over the limit"));
        }
        while self.input.len() < length {
            if self.fill().await? == 0 {
                return Err(invalid("end of stream in a request body"));
            }
        }
        Ok(self.input.drain(..length).collect())
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.reader.read_buf(&mut self.input).await
    }

    /// Returns when the client has closed its side. Pipelined bytes are kept.
    pub(super) async fn client_gone(&mut self) {
        while let Ok(count) = self.reader.read_buf(&mut self.input).await {
            if count == 0 || self.input.len() > MAX_HEAD {
                return;
            }
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).await?;
        self.writer.flush().await
    }
}

/// Status line and header fields, with the blank line.
pub(super) fn head(code: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {code} {}\r\n", reason(code));
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// One chunk of the chunked coding.
pub(super) fn chunk(data: &[u8]) -> Vec<u8> {
    let mut out = format!("{:x}\r\n", data.len()).into_bytes();
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
    out
}

/// The chunk that ends a body.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn reason(code: u16) -> &'static str {
    match code {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        529 => "Overloaded",
        _ => "Scripted",
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
