//! A small MCP server for the tests, over standard input and output. It refuses what a strict server refuses: calls before
//! `initialize`, unknown methods, messages that are not JSON-RPC 2.0. Its arguments say how it misbehaves.
#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a test program aborts loudly")]

use std::{
    io::{BufRead, Write},
    path::Path,
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
        println_line(
            &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": child.unwrap().id()}}),
        );
    }
    let mut peer = Peer {
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
            "initialize" => answer(
                id,
                &json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": "mcp-peer", "version": "1"},
                }),
            ),
            "ping" => answer(id, &json!({})),
            _ if !self.initialized => refuse(id, -32600, "not initialized"),
            "tools/list" => self.list(id, params),
            "tools/call" => self.call(id, params),
            _ => refuse(id, -32601, "unknown method"),
        }
    }

    /// Two pages, so that a client has to follow the cursor.
    fn list(&self, id: &Value, params: &Value) {
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
            return answer(id, &json!({"tools": tools, "nextCursor": "2"}));
        }
        assert_eq!(params["cursor"], "2");
        let mut tools = vec![
            tool("crash", json!({"destructiveHint": true})),
            tool("progress", json!({})),
            tool("grow", json!({})),
            tool("flood", json!({})),
            tool("odd name.with/characters", json!({})),
        ];
        if self.extra {
            tools.push(tool("added", json!({})));
        }
        answer(id, &json!({"tools": tools}));
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        match params["name"].as_str().unwrap() {
            "echo" | "odd name.with/characters" => {
                answer(id, &text(params["arguments"]["text"].as_str().unwrap_or_default()))
            }
            "env" => {
                let mut names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                names.sort();
                answer(id, &text(&names.join("\n")));
            }
            "where" => answer(id, &text(std::env::current_dir().unwrap().to_str().unwrap())),
            "huge" => answer(id, &text(&"0123456789".repeat(300_000))),
            "image" => answer(
                id,
                &json!({"content": [
                    {"type": "text", "text": "a picture"},
                    {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
                    {"type": "resource", "resource": {"uri": "file:///x/notes.txt", "mimeType": "text/plain", "text": "inside"}},
                ]}),
            ),
            "fail" => answer(id, &json!({"isError": true, "content": [{"type": "text", "text": "it went wrong"}]})),
            "silent" => {}
            "crash" => {
                if let Some(file) = &self.once {
                    let first = !Path::new(file).exists();
                    std::fs::write(file, "crashed").unwrap();
                    if !first {
                        return answer(id, &text("did not crash"));
                    }
                }
                std::process::exit(7);
            }
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                for step in 1..=3 {
                    println_line(&json!({"jsonrpc": "2.0", "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": step, "total": 3, "message": format!("step {step}")}}));
                }
                // The reports are heard as they come, the answer later.
                std::thread::sleep(Duration::from_millis(50));
                answer(id, &text("done"));
            }
            "grow" => {
                self.extra = true;
                println_line(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                answer(id, &text("grown"));
            }
            "flood" => {
                for _ in 0..20_000 {
                    eprintln!("a line of complaint that nobody reads, again and again and again");
                }
                answer(id, &text("flooded"));
            }
            "added" => answer(id, &text("added works")),
            _ => refuse(id, -32602, "no such tool"),
        }
    }
}

fn answer(id: &Value, result: &Value) {
    println_line(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn refuse(id: &Value, code: i32, message: &str) {
    println_line(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}));
}

fn println_line(message: &Value) {
    println!("{message}");
    std::io::stdout().flush().unwrap();
}
