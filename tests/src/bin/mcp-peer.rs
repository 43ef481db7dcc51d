//! A small MCP server for the tests, over standard input and output or HTTP. It refuses what a strict server refuses: calls before
//! `initialize`, unknown methods, messages that are not JSON-RPC 2.0. Its arguments say how it misbehaves.
#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a test program aborts loudly")]

use std::{
    cell::RefCell,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    rc::Rc,
    time::Duration,
};

use serde_json::{Value, json};

fn main() {
    let flags: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    if has("--dead") {
        eprintln!("cannot start: the token {} is refused", std::env::var("PEER_TOKEN").unwrap_or_default());
        std::process::exit(3);
    }
    if let Some(file) = flags.iter().find_map(|flag| flag.strip_prefix("--http=")) {
        return serve_http(file);
    }
    if has("--mute") {
        // Reads and never answers.
        for line in std::io::stdin().lock().lines() {
            line.unwrap();
        }
        return;
    }
    if has("--stubborn") {
        // Leaves a process behind that outlives everything that asks politely.
        let child =
            std::process::Command::new("sh").args(["-c", "trap '' TERM HUP INT; while :; do sleep 1; done"]).spawn();
        write_line(
            &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": child.unwrap().id()}}),
        );
    }
    let mut peer = Peer {
        out: Box::new(write_line),
        initialized: false,
        extra: false,
        once: flags.iter().find_map(|flag| flag.strip_prefix("--once=")).map(str::to_owned),
    };
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(message["jsonrpc"], "2.0");
        peer.take(&message);
    }
}

struct Peer {
    /// Where messages go.
    out: Box<dyn FnMut(&Value)>,
    initialized: bool,
    /// Whether the tool `added` is there.
    extra: bool,
    /// A file that remembers, over a restart, that the peer has crashed.
    once: Option<String>,
}

impl Peer {
    fn take(&mut self, message: &Value) {
        let method = message["method"].as_str().unwrap_or_default();
        let Some(id) = message.get("id") else {
            self.initialized |= method == "notifications/initialized";
            return;
        };
        let params = &message["params"];
        match method {
            "initialize" => self.answer(
                id,
                &json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": "mcp-peer", "version": "1"},
                }),
            ),
            "ping" => self.answer(id, &json!({})),
            _ if !self.initialized => self.refuse(id, -32600, "not initialized"),
            "tools/list" => self.list(id, params),
            "tools/call" => self.call(id, params),
            _ => self.refuse(id, -32601, "unknown method"),
        }
    }

    /// Two pages, so that a client has to follow the cursor.
    fn list(&mut self, id: &Value, params: &Value) {
        let tool = |name: &str, annotations: Value| {
            json!({
                "name": name,
                "description": format!("The tool {name}."),
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
                "annotations": annotations,
            })
        };
        if params["cursor"].is_null() {
            let tools = ["echo", "env", "where", "huge", "image", "fail", "silent"]
                .map(|name| tool(name, json!({"readOnlyHint": true})));
            return self.answer(id, &json!({"tools": tools, "nextCursor": "2"}));
        }
        assert_eq!(params["cursor"], "2");
        let mut tools = vec![
            tool("crash", json!({"destructiveHint": true})),
            tool("progress", json!({})),
            tool("grow", json!({})),
            tool("flood", json!({})),
            tool("endless", json!({})),
            tool("touch", json!({})),
            tool("odd name.with/characters", json!({})),
        ];
        if self.extra {
            tools.push(tool("added", json!({})));
        }
        self.answer(id, &json!({"tools": tools}));
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        match params["name"].as_str().unwrap() {
            "echo" | "odd name.with/characters" => {
                self.answer(id, &text(params["arguments"]["text"].as_str().unwrap_or_default()))
            }
            "env" => {
                let mut names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                names.sort();
                self.answer(id, &text(&names.join("\n")));
            }
            "where" => self.answer(id, &text(std::env::current_dir().unwrap().to_str().unwrap())),
            "huge" => self.answer(id, &text(&"0123456789".repeat(300_000))),
            "image" => self.answer(
                id,
                &json!({"content": [
                    {"type": "text", "text": "a picture"},
                    {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
                    {"type": "resource", "resource": {"uri": "file:///x/notes.txt", "mimeType": "text/plain", "text": "inside"}},
                ]}),
            ),
            "fail" => {
                self.answer(id, &json!({"isError": true, "content": [{"type": "text", "text": "it went wrong"}]}))
            }
            "silent" => {}
            "crash" => {
                if let Some(file) = &self.once {
                    let first = !Path::new(file).exists();
                    std::fs::write(file, "crashed").unwrap();
                    if !first {
                        return self.answer(id, &text("did not crash"));
                    }
                }
                eprintln!("crashing with {}", std::env::var("PEER_TOKEN").unwrap_or_default());
                std::process::exit(7);
            }
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                for step in 1..=3 {
                    (self.out)(&json!({"jsonrpc": "2.0", "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": step, "total": 3, "message": format!("step {step}")}}));
                }
                // The reports are heard as they come, the answer later.
                std::thread::sleep(Duration::from_millis(50));
                self.answer(id, &text("done"));
            }
            "grow" => {
                self.extra = true;
                (self.out)(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                self.answer(id, &text("grown"));
            }
            "flood" => {
                for _ in 0..20_000 {
                    eprintln!("a line of complaint that nobody reads, again and again and again");
                }
                self.answer(id, &text("flooded"));
            }
            // One line of seventeen megabytes.
            "endless" => self.answer(id, &text(&"0123456789abcdef".repeat(17 * 64 * 1024))),
            "touch" => {
                std::fs::write(params["arguments"]["text"].as_str().unwrap(), "touched").unwrap();
                self.answer(id, &text("touched"));
            }
            "added" => self.answer(id, &text("added works")),
            _ => self.refuse(id, -32602, "no such tool"),
        }
    }

    fn answer(&mut self, id: &Value, result: &Value) {
        (self.out)(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn refuse(&mut self, id: &Value, code: i32, message: &str) {
        (self.out)(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}));
    }
}

fn write_line(message: &Value) {
    println!("{message}");
    std::io::stdout().flush().unwrap();
}

/// Serves streamable HTTP on a port that is written to the file: each answer is a stream of events.
fn serve_http(file: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    std::fs::write(file, listener.local_addr().unwrap().port().to_string()).unwrap();
    let heard = Rc::new(RefCell::new(Vec::new()));
    let sink = Rc::clone(&heard);
    let mut peer = Peer {
        out: Box::new(move |message| sink.borrow_mut().push(message.clone())),
        initialized: false,
        extra: false,
        once: None,
    };
    for stream in listener.incoming() {
        let mut stream = BufReader::new(stream.unwrap());
        if let Some((verb, headers, body)) = read_request(&mut stream) {
            let response = match verb.as_str() {
                _ if !headers.contains("x-peer: s3cret-header") => {
                    "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned()
                }
                "POST" => {
                    assert!(headers.contains("text/event-stream") && headers.contains("application/json"), "{headers}");
                    peer.take(&serde_json::from_str(&body).unwrap());
                    let events: String =
                        heard.take().iter().map(|message| format!("event: message\ndata: {message}\n\n")).collect();
                    if events.is_empty() {
                        "HTTP/1.1 202 Accepted\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned()
                    } else {
                        let length = events.len();
                        format!(
                            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\nmcp-session-id: peer-1\r\ncontent-length: {length}\r\n\r\n{events}"
                        )
                    }
                }
                "DELETE" => "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n".to_owned(),
                _ => "HTTP/1.1 405 Method Not Allowed\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned(),
            };
            stream.get_mut().write_all(response.as_bytes()).unwrap();
        }
    }
}

/// Reads one request: its verb, its headers in lower case, its body.
fn read_request(stream: &mut BufReader<TcpStream>) -> Option<(String, String, String)> {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let verb = head.split(' ').next()?.to_owned();
    let headers = head.to_ascii_lowercase();
    let length =
        headers.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.trim().parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((verb, headers, String::from_utf8(body).unwrap()))
}
