//! One test for each public fault of this kind; the names carry the numbers of the catalogue.

use std::{fmt::Write, time::Duration};

use serde_json::json;
use zeroclaw_runtime::model::{
    ModelError, ModelStop, Usage,
    vendor::{Family, HttpClients, VendorProvider},
};
use zeroclaw_testkit::model_server::{Call, ModelServer, Part, Reply};

use crate::support::{BOTH, RawServer, ask, assistant, call, config, provider, raw, request, result, user};

type Quirk = (&'static str, fn(Reply) -> Reply);

/// Every way in which the bytes of one and the same answer may arrive.
const ARRIVALS: [Quirk; 10] = [
    ("plain", |reply| reply),
    ("one write", Reply::one_write),
    ("one byte a write", Reply::one_byte_writes),
    ("split characters", Reply::split_utf8),
    ("cr lf", Reply::crlf),
    ("cr lf, one byte a write", |reply| reply.crlf().one_byte_writes()),
    ("cr", Reply::cr_only),
    ("cr, one byte a write", |reply| reply.cr_only().one_byte_writes()),
    ("comments", |reply| reply.comments().one_byte_writes()),
    ("data on many lines", |reply| reply.multi_line_data().one_byte_writes()),
];

/// Streams were parsed per network chunk: text and tool JSON were lost at the borders.
#[tokio::test]
async fn prv_01_event_cut_by_a_network_chunk() {
    for family in BOTH {
        for (name, quirk) in ARRIVALS {
            let reply = Reply::turn([
                Part::thought("ün 😀 denken"),
                Part::text("Grüße, 世界\n"),
                Part::text("\u{2028}data: x\r\n\r\n"),
                Part::tool_call("a1", "shell", json!({"command": "echo ü \"\\\""})),
                Part::Usage { input: 100, output: 7, cached: 40 },
            ]);
            let outcome = ask(family, quirk(reply.fragment_arguments(3))).await;
            let place = format!("{family:?}, {name}: {outcome:?}");
            assert_eq!(outcome.error, None, "{place}");
            assert_eq!(outcome.text, "Grüße, 世界\n\u{2028}data: x\r\n\r\n", "{place}");
            assert_eq!(outcome.thought, "ün 😀 denken", "{place}");
            let arguments = json!({"command": "echo ü \"\\\""}).to_string();
            assert_eq!(outcome.calls, [("a1".to_owned(), "shell".to_owned(), arguments)], "{place}");
            assert_eq!(outcome.usage, Some(Usage { input: 100, output: 7, cached: 40, written: 0 }), "{place}");
            assert_eq!(outcome.stop, Some(ModelStop::End), "{place}");
        }
    }
}

/// Turns hung on connections that vendors keep open, because the end was tied to the end of the connection.
#[tokio::test]
async fn prv_03_finish_reason_then_open_connection() {
    for family in BOTH {
        for reply in [
            Reply::text("hi").no_done().keep_open_after_finish(),
            Reply::text("hi").keep_open_after_finish(),
            Reply::text("hi").no_done(),
            Reply::text("hi").no_done().close_delimited(),
        ] {
            let shown = format!("{family:?} {reply:?}");
            let outcome = tokio::time::timeout(Duration::from_secs(20), ask(family, reply)).await.expect("it ends");
            assert_eq!((outcome.text.as_str(), outcome.stop), ("hi", Some(ModelStop::End)), "{shown}: {outcome:?}");
        }
    }
}

/// A cut stream counted as an answer.
#[tokio::test]
async fn prv_03_cut_before_the_end_is_an_error() {
    for family in BOTH {
        let parts = || [Part::text("hal"), Part::tool_call("a", "shell", "{\"command\":\"ls\"}")];
        for reply in [
            Reply::cut_after(parts()),
            Reply::cut_after(parts()).clean_cut(),
            Reply::cut_after(parts()).clean_cut().close_delimited(),
            Reply::turn(parts()).cut_after_bytes(700).clean_cut(),
        ] {
            let shown = format!("{family:?} {reply:?}");
            let outcome = ask(family, reply).await;
            assert!(matches!(outcome.error, Some(ModelError::Stream(_))), "{shown}: {outcome:?}");
            assert_eq!(outcome.calls, [], "a call of a cut answer is not made: {shown}");
        }
        // Nothing was shown yet: it is worth another try.
        let outcome = ask(family, Reply::cut_after([]).clean_cut()).await;
        assert!(matches!(outcome.error, Some(ModelError::Transient { .. })), "{family:?}: {outcome:?}");
    }
}

/// Usage-only and first filter chunks have no choices; index 0 was assumed.
#[tokio::test]
async fn prv_05_chunk_with_empty_choices() {
    for family in BOTH {
        let reply = Reply::turn([Part::text("hi"), Part::Usage { input: 9, output: 3, cached: 2 }]);
        let outcome = ask(family, reply.empty_choices_first().null_delta().usage_chunk()).await;
        assert_eq!(outcome.text, "hi", "{outcome:?}");
        assert_eq!(outcome.usage, Some(Usage { input: 9, output: 3, cached: 2, written: 0 }));
    }
    // What the fake vendor does not send: null and absent lists, in bytes.
    let mut body = String::new();
    for data in [
        r#"{"choices":null}"#,
        r#"{"id":"x"}"#,
        r#"{"choices":[{}]}"#,
        r#"{"choices":[{"delta":{"content":null,"tool_calls":null,"reasoning":null},"finish_reason":""}],"usage":null}"#,
        r#"{"choices":[{"delta":{"content":"hi"}},{"delta":{"content":"second choice"}}]}"#,
        r#"{"choices":[{"delta":null,"finish_reason":"stop"}],"error":null}"#,
        r#"{"choices":null,"usage":{"prompt_tokens":4.0,"completion_tokens":2,"prompt_tokens_details":null}}"#,
        "[DONE]",
    ] {
        write!(body, "data:{data}\n\n").unwrap();
    }
    let server = RawServer::start(vec![raw("200 OK", "", &body)]).await;
    let provider = VendorProvider::new(
        config(Family::Llamacpp, &server.address),
        HttpClients::new(None, std::time::SystemTime::now),
    );
    let outcome = call(&provider, request(vec![user("x")])).await;
    assert_eq!((outcome.text.as_str(), outcome.stop), ("hi", Some(ModelStop::End)), "{outcome:?}");
    assert_eq!(outcome.usage, Some(Usage { input: 4, output: 2, cached: 0, written: 0 }));
}

/// The last fragment repeats the name without an id; its closing brace became a call of its own.
#[tokio::test]
async fn prv_07_last_fragment_repeats_the_name() {
    for family in BOTH {
        let reply = Reply::tool_call("c1", "shell", "{}").fragment_arguments(1).repeat_name_without_id();
        let outcome = ask(family, reply).await;
        assert_eq!(outcome.calls, [("c1".to_owned(), "shell".to_owned(), "{}".to_owned())], "{outcome:?}");

        let calls = ["x", "y", "z"].map(|name| Call::new(format!("id-{name}"), "shell", json!({ "command": name })));
        let reply = Reply::turn([Part::ToolCalls(calls.to_vec(), true)]).fragment_arguments(2).repeat_name_without_id();
        let expected = ["x", "y", "z"]
            .map(|name| (format!("id-{name}"), "shell".to_owned(), json!({ "command": name }).to_string()));
        assert_eq!(ask(family, reply).await.calls, expected, "{family:?}: interleaved calls");
    }
}

/// Arguments that the model broke were sent back as they were, and the vendor refused every later request.
#[tokio::test]
async fn prv_09_own_malformed_arguments_are_normalised() {
    for family in BOTH {
        for broken in ["{\"command\":", "", "[1]", "nonsense", "null"] {
            let server = ModelServer::start().await;
            server.push(Reply::text("ok"));
            let messages = vec![user("go"), assistant("", "", &[("a", broken)]), result("a", "invalid arguments")];
            let outcome = call(&provider(family, &server), request(messages)).await;
            assert_eq!((outcome.text.as_str(), server.violations()), ("ok", Vec::new()), "{family:?} {broken:?}");
        }
    }
}

/// 529 and its form inside the stream fell through the list of what is worth another try.
#[tokio::test]
async fn prv_11_overload_in_both_shapes_is_transient() {
    for family in BOTH {
        for status in [408, 429, 500, 502, 503, 504, 529] {
            let outcome = ask(family, Reply::status(status)).await;
            assert!(matches!(outcome.error, Some(ModelError::Transient { .. })), "{family:?} {status}: {outcome:?}");
        }
        for kind in ["overloaded_error", "rate_limit_error", "server_error"] {
            let reply = Reply::error_mid_stream([], json!({"type": kind, "message": "Overloaded"}));
            let error = ask(family, reply).await.error;
            let expected = ModelError::Transient { message: "Overloaded".to_owned(), retry_after: None };
            assert_eq!(error, Some(expected), "{family:?} {kind}");
        }
        let reply = Reply::error_mid_stream([Part::text("a")], json!({"type": "weird", "message": "broke"}));
        let outcome = ask(family, reply).await;
        assert_eq!((outcome.text.as_str(), outcome.error), ("a", Some(ModelError::Stream("broke".to_owned()))));
    }
}

/// A vendor asked to wait for days, silently.
#[tokio::test]
async fn prv_13_retry_after_is_told() {
    let wait = |error: Option<ModelError>| match error {
        Some(ModelError::Transient { retry_after, .. }) => retry_after,
        other => panic!("not transient: {other:?}"),
    };
    for family in BOTH {
        let days = ask(family, Reply::status(429).retry_after("1382400")).await.error;
        assert_eq!(wait(days), Some(Duration::from_secs(1_382_400)));
        let half = ask(family, Reply::status(503).retry_after("0.5")).await.error;
        assert_eq!(wait(half), Some(Duration::from_millis(500)));
        let reply = Reply::status(429)
            .header("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
            .retry_after("Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(wait(ask(family, reply).await.error), Some(Duration::from_secs(30)));
        assert_eq!(wait(ask(family, Reply::status(429).retry_after("soon")).await.error), None);

        let body = json!({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}});
        let error = ask(family, Reply::status(429).body(body)).await.error;
        let expected = "You exceeded your current quota (HTTP 429)".to_owned();
        assert_eq!(error, Some(ModelError::Unusable(expected)), "quota does not come back by waiting");
    }
}

/// Thoughts of past turns were replayed; once a signature was stale, every request failed for good.
#[tokio::test]
async fn prv_15_past_thoughts_are_not_sent_back() {
    for family in BOTH {
        let server = ModelServer::start().await;
        server.push(Reply::text("ok"));
        let messages = vec![
            user("one"),
            assistant("first", "an old thought", &[]),
            user("two"),
            assistant("", "a new thought", &[("a", "{\"command\":\"ls\"}")]),
            result("a", "file"),
        ];
        let outcome = call(&provider(family, &server), request(messages)).await;
        assert_eq!((outcome.text.as_str(), server.violations()), ("ok", Vec::new()), "{family:?}");
        let body = server.requests()[0].body.to_string();
        assert!(!body.contains("old thought") && !body.contains("new thought"), "{body}");
    }
}

/// Strict servers refuse an empty text beside tool calls.
#[tokio::test]
async fn prv_17_empty_content_is_left_out() {
    for family in BOTH {
        let server = ModelServer::start().await;
        server.push(Reply::tool_call("a", "shell", json!({"command": "true"})).reject_empty_content());
        server.push(Reply::text("done").reject_empty_content());
        let provider = provider(family, &server);
        let first = call(&provider, request(vec![user("go")])).await;
        assert_eq!(first.calls.len(), 1, "{first:?}");
        let messages = vec![user("go"), assistant("", "", &[("a", "{\"command\":\"true\"}")]), result("a", "")];
        let second = call(&provider, request(messages)).await;
        assert_eq!((second.text.as_str(), server.violations()), ("done", Vec::new()), "{family:?}");
    }
}

/// A conversation that is too long was sent again and again.
#[tokio::test]
async fn prv_19_context_overflow_is_known() {
    let long = "This model's maximum context length is 8192 tokens.";
    let bodies = [
        json!({"error": {"message": long, "type": "invalid_request_error", "code": "context_length_exceeded"}}),
        json!({"error": {"message": long, "type": "invalid_request_error", "code": null}}),
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}),
        json!({"error": {"code": 400, "message": "the request exceeds the available context size", "type": "exceed_context_size_error"}}),
    ];
    for family in BOTH {
        for body in &bodies {
            let outcome = ask(family, Reply::status(400).body(body.clone())).await;
            assert!(matches!(outcome.error, Some(ModelError::ContextOverflow(_))), "{family:?} {body}: {outcome:?}");
        }
        let inner = bodies[0]["error"].clone();
        let outcome = ask(family, Reply::error_mid_stream([], inner)).await;
        assert_eq!(outcome.error, Some(ModelError::ContextOverflow(long.to_owned())), "in the stream");
    }
}

/// Ollama cut prompts to its default context without a word.
#[tokio::test]
async fn prv_21_ollama_is_told_the_context_length() {
    let lines = concat!(
        "{\"message\":{\"role\":\"assistant\",\"thinking\":\"hm\"},\"done\":false}\n",
        "{\"message\":{\"content\":\"hi\"},\"done\":false}\n",
        "{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"shell\",\"arguments\":{\"command\":\"ls\"}}}]},\"done\":false}\n",
        "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":26,\"eval_count\":5}\n",
    );
    let server = RawServer::start(vec![raw("200 OK", "", lines); 3]).await;
    let mut settings = config(Family::Ollama, &server.address);
    let lengths = [(None, None, 32_768), (None, Some(50_000), 50_000), (Some(65_536), Some(50_000), 65_536)];
    for (num_ctx, window, expected) in lengths {
        settings.num_ctx = num_ctx;
        settings.context_window = window;
        let provider = VendorProvider::new(settings.clone(), HttpClients::new(None, std::time::SystemTime::now));
        let outcome = call(&provider, request(vec![user("hello")])).await;
        assert_eq!((outcome.text.as_str(), outcome.thought.as_str()), ("hi", "hm"), "{outcome:?}");
        assert_eq!(outcome.calls, [("call_1_1".to_owned(), "shell".to_owned(), "{\"command\":\"ls\"}".to_owned())]);
        assert_eq!(outcome.usage, Some(Usage { input: 26, output: 5, cached: 0, written: 0 }));
        let (head, body) = server.requests().pop().unwrap();
        assert!(head.starts_with("post /api/chat "), "{head}");
        assert_eq!(body["options"]["num_ctx"], json!(expected));
    }
}

/// A stream that said nothing hung for ever.
#[tokio::test]
async fn prv_23_silent_stream_ends_at_the_idle_limit() {
    for family in BOTH {
        let server = ModelServer::start().await;
        server.push(Reply::hang_after_headers());
        let mut settings = config(family, &server.openai_url());
        settings.idle_timeout = Duration::from_millis(300);
        let silent = VendorProvider::new(settings.clone(), HttpClients::new(None, std::time::SystemTime::now));
        let outcome = call(&silent, request(vec![user("x")])).await;
        assert_eq!(outcome.error, Some(ModelError::Idle(0)));
        server.wait_for_aborted(1).await;

        // Longer than the limit as a whole, but never silent for so long.
        settings.idle_timeout = Duration::from_secs(2);
        server.push(Reply::chunks(["a"; 10]).delay_between(Duration::from_millis(250)));
        let slow = VendorProvider::new(settings, HttpClients::new(None, std::time::SystemTime::now));
        let outcome = call(&slow, request(vec![user("x")])).await;
        assert_eq!((outcome.text.as_str(), outcome.stop), ("aaaaaaaaaa", Some(ModelStop::End)), "{outcome:?}");
    }
}
