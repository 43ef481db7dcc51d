//! The bytes of scripted replies: every quirk produces what its name says, and only that.

use std::time::Duration;

use serde_json::{Value, json};
use zeroclaw_testkit::model_server::{Call, ModelServer, Part, Reply, signature_for};

use crate::client::{Client, Ended, JSON, Response, Sse, VERSION, anthropic, openai, parse_sse};

const TEXT: &str = "漢字🙂é";

fn ask() -> Value {
    json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]})
}

fn ask_anthropic() -> Value {
    json!({"model": "m", "stream": true, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]})
}

async fn openai_reply(reply: Reply) -> Response {
    let server = ModelServer::start().await;
    server.push(reply);
    let response = openai(&server, &ask()).await;
    assert_eq!(server.violations(), Vec::<String>::new());
    response
}

async fn anthropic_reply(reply: Reply) -> Response {
    let server = ModelServer::start().await;
    server.push(reply);
    let response = anthropic(&server, &ask_anthropic()).await;
    assert_eq!(server.violations(), Vec::<String>::new());
    response
}

/// The JSON of every event but `[DONE]`.
fn chunks(response: &Response) -> Vec<Value> {
    response.events().iter().filter(|event| event.data != "[DONE]").map(Sse::json).collect()
}

fn content(response: &Response) -> String {
    chunks(response).iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

#[tokio::test]
async fn openai_text_is_a_role_the_deltas_a_finish_reason_and_done() {
    let response = openai_reply(Reply::chunks(["a", TEXT])).await;
    assert_eq!((response.status, response.ended), (200, Ended::LastChunk));
    assert!(response.head.contains("Content-Type: text/event-stream"), "{}", response.head);
    let deltas: Vec<Value> = chunks(&response).into_iter().map(|mut chunk| chunk["choices"].take()).collect();
    assert_eq!(
        deltas,
        [
            json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]),
            json!([{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]),
            json!([{"index": 0, "delta": {"content": TEXT}, "finish_reason": null}]),
            json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
        ]
    );
    assert!(response.text().ends_with("\n\ndata: [DONE]\n\n"));
    assert_eq!(response.chunks.len(), 5, "one chunk for each event");
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let server = ModelServer::start().await;
    server.push(Reply::text("one"));
    server.push(Reply::text("two"));
    let mut client = Client::connect(&server).await;
    for expected in ["one", "two"] {
        client.send("POST", "/v1/chat/completions", &[JSON], &ask().to_string()).await;
        assert_eq!(content(&client.response().await), expected);
    }
    server.wait_for_completed(2).await;
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].header("content-type"), Some("application/json"));
    assert_eq!(requests[1].path, "/v1/chat/completions");
    assert_eq!(requests[1].body, ask());
}

#[tokio::test]
async fn line_ends_change_and_nothing_else() {
    let plain = openai_reply(Reply::text(TEXT).comments()).await;
    let crlf = openai_reply(Reply::text(TEXT).comments().crlf()).await;
    let cr = openai_reply(Reply::text(TEXT).comments().cr_only()).await;
    assert!(!plain.text().contains('\r'));
    assert_eq!(crlf.text(), plain.text().replace('\n', "\r\n"));
    assert_eq!(cr.text(), plain.text().replace('\n', "\r"));
    assert_eq!(crlf.events(), plain.events());
    assert_eq!(cr.events(), plain.events());
    assert_eq!(plain.text().matches(": keep-alive\n").count(), plain.events().len());
}

#[tokio::test]
async fn write_boundaries_change_and_nothing_else() {
    let plain = openai_reply(Reply::text(TEXT)).await;
    let bytes = openai_reply(Reply::text(TEXT).one_byte_writes()).await;
    let whole = openai_reply(Reply::text(TEXT).one_write()).await;
    let split = openai_reply(Reply::text(TEXT).split_utf8()).await;
    assert_eq!(bytes.body(), plain.body());
    assert_eq!(whole.body(), plain.body());
    assert_eq!(split.body(), plain.body());
    assert!(bytes.chunks.iter().all(|chunk| chunk.len() == 1));
    assert_eq!(whole.chunks.len(), 1);
    let leads = split.chunks.iter().filter(|chunk| chunk.last().is_some_and(|byte| *byte >= 0xC0));
    assert_eq!(leads.count(), TEXT.chars().count());
}

#[tokio::test]
async fn spread_data_joins_to_the_same_json() {
    let plain = openai_reply(Reply::text("a\nb")).await;
    let spread = openai_reply(Reply::text("a\nb").multi_line_data()).await;
    assert!(spread.text().lines().filter(|line| line.starts_with("data: ")).count() > 3 * spread.events().len());
    assert_eq!(chunks(&spread), chunks(&plain));
}

#[tokio::test]
async fn odd_opening_chunks_are_sent() {
    let response = openai_reply(Reply::text("x").empty_choices_first().null_delta()).await;
    let chunks = chunks(&response);
    assert_eq!(chunks[0]["choices"], json!([]));
    assert_eq!(chunks[2]["choices"][0]["delta"], Value::Null);
    assert_eq!(chunks[3]["choices"][0]["delta"], json!({"content": null}));
    assert_eq!(content(&response), "x");
}

#[tokio::test]
async fn usage_comes_when_asked_for_or_forced() {
    let usage = Part::Usage { input: 7, output: 3, cached: 2 };
    let reply = || Reply::turn([Part::text("x"), usage.clone()]);
    let silent = openai_reply(reply()).await;
    assert!(chunks(&silent).iter().all(|chunk| chunk.get("usage").is_none()));
    let forced = openai_reply(reply().usage_chunk()).await;
    let server = ModelServer::start().await;
    server.push(reply());
    let mut body = ask();
    body["stream_options"] = json!({"include_usage": true});
    let asked = openai(&server, &body).await;
    for response in [forced, asked] {
        let last = chunks(&response).pop().expect("a last chunk");
        assert_eq!(last["choices"], json!([]));
        assert_eq!(
            last["usage"],
            json!({
                "prompt_tokens": 7,
                "completion_tokens": 3,
                "total_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 2},
            })
        );
    }
}

/// The `tool_calls` arrays of a stream.
fn tool_deltas(response: &Response) -> Vec<Vec<Value>> {
    let deltas =
        chunks(response).into_iter().filter_map(|mut chunk| match chunk["choices"][0]["delta"]["tool_calls"].take() {
            Value::Array(calls) => Some(calls),
            _ => None,
        });
    deltas.collect()
}

#[tokio::test]
async fn tool_arguments_come_in_fragments() {
    let arguments = json!({"path": TEXT});
    let response =
        openai_reply(Reply::tool_call("c1", "read", &arguments).fragment_arguments(3).repeat_name_without_id()).await;
    let deltas = tool_deltas(&response);
    assert_eq!(
        deltas[0],
        [json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "read", "arguments": ""}})]
    );
    let mut joined = String::new();
    for delta in &deltas[1..] {
        let [fragment] = delta.as_slice() else { panic!("one fragment in a delta") };
        assert_eq!(fragment.get("id"), None);
        assert_eq!(fragment["function"]["name"], "read");
        let piece = fragment["function"]["arguments"].as_str().expect("a piece");
        assert!(piece.len() <= 4 && piece.chars().count() <= 3, "{piece:?}");
        joined.push_str(piece);
    }
    assert_eq!(joined, arguments.to_string());
    assert!(response.text().contains(r#""finish_reason":"tool_calls""#));
}

#[tokio::test]
async fn parallel_calls_are_interleaved_and_serial_ones_are_not() {
    let calls = || vec![Call::new("a", "f", "{\"x\":1}"), Call::new("b", "g", "{\"y\":2}")];
    let indices = |response: &Response| -> Vec<Vec<u64>> {
        let index = |call: &Value| call["index"].as_u64().expect("an index");
        tool_deltas(response).iter().map(|calls| calls.iter().map(index).collect()).collect()
    };
    let parallel = openai_reply(Reply::turn([Part::ToolCalls(calls(), true)]).fragment_arguments(4)).await;
    assert_eq!(indices(&parallel), [vec![0, 1], vec![0], vec![1], vec![0], vec![1]]);
    let serial = openai_reply(Reply::turn([Part::ToolCalls(calls(), false)]).fragment_arguments(4)).await;
    assert_eq!(indices(&serial), [[0], [0], [0], [1], [1], [1]]);
}

#[tokio::test]
async fn anthropic_blocks_open_and_close_in_order() {
    let reply = Reply::turn([
        Part::thought("hm"),
        Part::thought("m"),
        Part::text("so"),
        Part::tool_call("t1", "read", json!({"p": 1})),
        Part::Usage { input: 7, output: 3, cached: 2 },
    ]);
    let response = anthropic_reply(reply.fragment_arguments(4)).await;
    let events = response.events();
    let deltas: Vec<(u64, Value)> = events
        .iter()
        .map(Sse::json)
        .filter(|event| event["type"] == "content_block_delta")
        .map(|mut event| (event["index"].as_u64().expect("an index"), event["delta"].take()))
        .collect();
    assert_eq!(
        deltas,
        [
            (0, json!({"type": "thinking_delta", "thinking": "hm"})),
            (0, json!({"type": "thinking_delta", "thinking": "m"})),
            (0, json!({"type": "signature_delta", "signature": signature_for("hmm")})),
            (1, json!({"type": "text_delta", "text": "so"})),
            (2, json!({"type": "input_json_delta", "partial_json": ""})),
            (2, json!({"type": "input_json_delta", "partial_json": "{\"p\""})),
            (2, json!({"type": "input_json_delta", "partial_json": ":1}"})),
        ]
    );
    assert!(events.iter().all(|event| event.json()["type"].as_str() == event.name.as_deref()));
    let names: Vec<&str> = events.iter().filter_map(|event| event.name.as_deref()).collect();
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert_eq!(names.iter().filter(|name| **name == "content_block_stop").count(), 3);
    let start = events[0].json();
    assert_eq!(start["message"]["usage"]["input_tokens"], 5);
    assert_eq!(start["message"]["usage"]["cache_read_input_tokens"], 2);
    let end = events[events.len() - 2].json();
    assert_eq!(end["delta"]["stop_reason"], "tool_use");
    assert_eq!(end["usage"]["output_tokens"], 3);
}

#[tokio::test]
async fn stop_reasons_are_spelt_as_the_vendor_does() {
    for (reason, anthropic_word) in [("length", "max_tokens"), ("content_filter", "refusal"), ("odd", "odd")] {
        let reply = || Reply::turn([Part::text("x"), Part::stop(reason)]);
        assert!(openai_reply(reply()).await.text().contains(&format!(r#""finish_reason":"{reason}""#)));
        assert!(anthropic_reply(reply()).await.text().contains(&format!(r#""stop_reason":"{anthropic_word}""#)));
    }
}

#[tokio::test]
async fn without_the_terminal_event_the_reason_is_the_last_thing() {
    let response = openai_reply(Reply::text("x").no_done()).await;
    assert_eq!(response.ended, Ended::LastChunk);
    assert_eq!(response.events().pop().expect("an event").json()["choices"][0]["finish_reason"], "stop");
    let response = anthropic_reply(Reply::text("x").no_done()).await;
    assert_eq!(response.events().pop().expect("an event").name.as_deref(), Some("message_delta"));
}

#[tokio::test]
async fn a_cut_shows_in_http_unless_it_is_clean() {
    let parts = || [Part::text("a"), Part::text("b")];
    let cut = openai_reply(Reply::cut_after(parts())).await;
    assert_eq!((cut.ended, content(&cut).as_str()), (Ended::Close, "ab"));
    assert!(!cut.text().contains("[DONE]") && !cut.text().contains("\"stop\""));
    let clean = openai_reply(Reply::cut_after(parts()).clean_cut()).await;
    assert_eq!((clean.ended, content(&clean).as_str()), (Ended::LastChunk, "ab"));
    assert!(!clean.text().contains("[DONE]"));
    let whole = openai_reply(Reply::turn(parts())).await.body();
    for length in [1, 7, whole.len() - 1] {
        let cut = openai_reply(Reply::turn(parts()).cut_after_bytes(length)).await;
        assert_eq!(cut.body(), whole[..length]);
        assert_eq!(cut.ended, Ended::Close);
    }
    let cut = anthropic_reply(Reply::cut_after(parts())).await;
    assert_eq!(cut.ended, Ended::Close);
    assert_eq!(cut.events().pop().expect("an event").name.as_deref(), Some("content_block_delta"));
}

#[tokio::test]
async fn a_body_without_chunks_ends_with_the_connection() {
    let plain = openai_reply(Reply::text(TEXT)).await;
    let closed = openai_reply(Reply::text(TEXT).close_delimited().one_byte_writes()).await;
    assert_eq!(closed.ended, Ended::Close);
    assert!(!closed.head.contains("chunked"));
    assert_eq!(closed.body(), plain.body());
}

#[tokio::test]
async fn an_error_can_come_in_the_stream() {
    let error = || json!({"type": "overloaded_error", "message": "Overloaded"});
    let response = openai_reply(Reply::error_mid_stream([Part::text("a")], error())).await;
    assert_eq!(response.events().pop().expect("an event").json(), json!({"error": error()}));
    assert_eq!(content(&response), "a");
    let response = anthropic_reply(Reply::error_mid_stream([Part::text("a")], error())).await;
    let last = response.events().pop().expect("an event");
    assert_eq!(last.name.as_deref(), Some("error"));
    assert_eq!(last.json(), json!({"type": "error", "error": error()}));
}

#[tokio::test]
async fn a_status_has_the_body_of_the_vendor_or_the_scripted_one() {
    let response = openai_reply(Reply::status(429).retry_after("2")).await;
    assert_eq!(response.status, 429);
    assert!(response.head.contains("Retry-After: 2\r\n"), "{}", response.head);
    assert_eq!(response.json()["error"]["code"], "rate_limit_exceeded");
    let response = anthropic_reply(Reply::status(529)).await;
    assert_eq!(response.json()["error"]["type"], "overloaded_error");
    let response = openai_reply(Reply::status(502).body("<html>bad gateway</html>")).await;
    assert_eq!((response.status, response.text().as_str()), (502, "<html>bad gateway</html>"));
    assert!(response.head.contains("text/plain"));
    let response = openai_reply(Reply::status(500).body(json!({"detail": 1}))).await;
    assert_eq!(response.json(), json!({"detail": 1}));
}

#[tokio::test]
async fn an_open_end_lasts_until_the_client_closes() {
    let server = ModelServer::start().await;
    for (count, reply) in
        [Reply::hang_after_headers(), Reply::text("x").no_done().keep_open_after_finish()].into_iter().enumerate()
    {
        let streams = count == 1;
        server.push(reply);
        let mut client = Client::connect(&server).await;
        client.send("POST", "/v1/chat/completions", &[JSON], &ask().to_string()).await;
        assert_eq!(client.head().await.0, 200);
        if streams {
            let mut text = String::new();
            while !text.contains(r#""finish_reason":"stop""#) {
                let chunk = client.chunk().await.expect("an open connection").expect("no last chunk");
                text.push_str(std::str::from_utf8(&chunk).expect("whole events"));
            }
            assert_eq!(parse_sse(&text).len(), 3);
        }
        drop(client);
        server.wait_for_aborted(count + 1).await;
    }
}

#[tokio::test]
async fn a_gate_holds_the_stream_between_two_parts() {
    let server = ModelServer::start().await;
    let (reply, first) = Reply::chunks(["a", "b", "c"]).gate(1);
    let (reply, before_finish) = reply.gate(3);
    server.push(reply);
    let mut client = Client::connect(&server).await;
    client.send("POST", "/v1/chat/completions", &[JSON], &ask().to_string()).await;
    client.head().await;
    first.reached().await;
    let mut events = Vec::new();
    for _ in 0..2 {
        events.extend(client.chunk().await.expect("an open connection").expect("no last chunk"));
    }
    assert!(String::from_utf8(events).expect("whole events").contains(r#""content":"a""#));
    first.release();
    before_finish.reached().await;
    for expected in ["b", "c"] {
        let chunk = client.chunk().await.expect("an open connection").expect("no last chunk");
        let chunk = String::from_utf8(chunk).expect("a whole event");
        assert!(chunk.contains(&format!(r#""content":"{expected}""#)), "{chunk}");
    }
    before_finish.release();
    let finish = client.chunk().await.expect("an open connection").expect("no last chunk");
    assert!(String::from_utf8(finish).expect("a whole event").contains("finish_reason\":\"stop"));
    server.wait_for_completed(1).await;
}

#[tokio::test]
async fn a_gate_tells_when_the_client_gives_up() {
    let server = ModelServer::start().await;
    let (reply, gate) = Reply::chunks(["a", "b"]).one_write().gate(1);
    server.push(reply);
    let mut client = Client::connect(&server).await;
    client.send("POST", "/v1/messages", &[JSON, VERSION], &ask_anthropic().to_string()).await;
    gate.reached().await;
    drop(client);
    gate.client_gone().await;
    server.wait_for_aborted(1).await;
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_delayed_stream_is_whole() {
    let plain = openai_reply(Reply::chunks(["a", "b"])).await;
    let slow = openai_reply(Reply::chunks(["a", "b"]).delay_between(Duration::from_millis(1)).one_write()).await;
    assert_eq!(slow.body(), plain.body());
    assert_eq!(slow.chunks.len(), plain.chunks.len(), "a delay divides even a single write");
}

#[tokio::test]
async fn models_are_listed_for_both_vendors() {
    let server = ModelServer::start().await;
    server.set_models(["one", "two"]);
    let mut client = Client::connect(&server).await;
    client.send("GET", "/v1/models", &[], "").await;
    let list = client.response().await.json();
    assert_eq!((list["object"].as_str(), list["data"][1]["id"].as_str()), (Some("list"), Some("two")));
    client.send("GET", "/v1/models", &[VERSION], "").await;
    let list = client.response().await.json();
    assert_eq!((list["data"][0]["type"].as_str(), list["last_id"].as_str()), (Some("model"), Some("two")));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn keys_are_checked_where_the_vendor_looks_for_them() {
    let server = ModelServer::start().await.require_key("sk-right");
    server.push(Reply::text("x"));
    server.push(Reply::text("x"));
    let mut client = Client::connect(&server).await;
    for (headers, status) in [
        (vec![JSON], 401),
        (vec![JSON, ("Authorization", "Bearer sk-wrong")], 401),
        (vec![JSON, ("x-api-key", "sk-right")], 401),
        (vec![JSON, ("Authorization", "Bearer sk-right")], 200),
    ] {
        client.send("POST", "/v1/chat/completions", &headers, &ask().to_string()).await;
        let response = client.response().await;
        assert_eq!(response.status, status);
        assert!(!response.text().contains("sk-"));
    }
    client.send("POST", "/v1/messages", &[JSON, VERSION], &ask_anthropic().to_string()).await;
    assert_eq!(client.response().await.json()["error"]["type"], "authentication_error");
    let headers = [JSON, VERSION, ("X-Api-Key", "sk-right")];
    client.send("POST", "/v1/messages", &headers, &ask_anthropic().to_string()).await;
    assert_eq!(client.response().await.status, 200);
    assert_eq!(server.unused_replies(), 0);
    server.wait_for_requests(6).await;
}

#[tokio::test]
async fn a_request_without_a_reply_is_a_violation() {
    let server = ModelServer::start().await;
    let response = openai(&server, &ask()).await;
    assert_eq!(response.status, 500);
    assert_eq!(response.json()["error"]["message"], "no reply scripted");
    assert_eq!(server.violations(), ["no reply scripted for a request"]);
}

#[tokio::test]
async fn a_chunked_request_body_is_read() {
    let server = ModelServer::start().await;
    server.push(Reply::text("x"));
    let body = ask().to_string();
    let (left, right) = body.split_at(10);
    let chunked = format!("{:x}\r\n{left}\r\n{:X};ext=1\r\n{right}\r\n0\r\n\r\n", left.len(), right.len());
    let mut client = Client::connect(&server).await;
    client.send_unframed("/v1/chat/completions", &[JSON, ("Transfer-Encoding", "chunked")], &chunked).await;
    assert_eq!(client.response().await.status, 200);
    assert_eq!(server.requests()[0].body, ask());
}

#[tokio::test]
async fn malformed_http_is_a_violation() {
    let server = ModelServer::start().await;
    let mut client = Client::connect(&server).await;
    client.send("POST", "/v1/ chat", &[], "").await;
    assert!(client.at_end().await);
    assert_eq!(server.violations(), ["malformed HTTP: request line is not `METHOD TARGET HTTP/1.1`"]);
}
