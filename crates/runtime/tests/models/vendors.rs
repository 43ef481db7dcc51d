//! What vendors are sent, what their refusals become, and Gemini.

use serde_json::{Value, json};
use zeroclaw_runtime::model::{
    ModelError, ModelProvider, ModelStop, Usage,
    vendor::{ApiKey, Family, HttpClients, VendorProvider},
};
use zeroclaw_testkit::model_server::{ModelServer, Part, Reply};

use crate::support::{BOTH, RawServer, ask, assistant, call, config, provider, raw, request, result, user};

#[tokio::test]
async fn a_long_session_of_another_vendor_is_accepted() {
    for family in BOTH {
        let server = ModelServer::start().await;
        server.push(Reply::text("ok"));
        let messages = vec![
            assistant("kept after compaction", "", &[]),
            user("  "),
            // The same ids again, ids no vendor would accept, a call that was interrupted, a result without a call.
            assistant("", "", &[("call#shell#0", "{}"), ("call#shell#1", "{}")]),
            result("call#shell#1", "two"),
            result("call#shell#0", "one"),
            result("never called", "lost"),
            assistant("  \n", "", &[("call#shell#0", "{}")]),
            assistant("cancelled", "", &[]),
            assistant("and again", "", &[]),
            user("go on"),
        ];
        let outcome = call(&provider(family, &server), request(messages)).await;
        assert_eq!((outcome.text.as_str(), server.violations()), ("ok", Vec::new()), "{family:?}");
        let body = server.requests()[0].body.to_string();
        assert!(body.find("\"one\"").unwrap() < body.find("\"two\"").unwrap(), "results in the order of calls: {body}");
        assert!(body.contains("interrupted before there was a result"), "{body}");
        assert!(!body.contains("lost"), "{body}");
    }
}

#[tokio::test]
async fn chat_completions_are_written_as_the_vendor_wants() {
    let server = ModelServer::start().await.require_key("sk-secret-test-key");
    server.push(Reply::text("ok"));
    server.push(Reply::text("ok"));
    let mut settings = config(Family::Openai, &server.base_url());
    settings.max_output_tokens = Some(100);
    settings.temperature = Some(0.5);
    let mut asked = request(vec![user("hi")]);
    asked.max_output_tokens = Some(200);
    call(&VendorProvider::new(settings.clone(), HttpClients::new(None, std::time::SystemTime::now)), asked.clone())
        .await;
    settings.family = Family::Vllm;
    settings.native_tools = false;
    settings.max_output_tokens = None;
    asked.messages.insert(0, assistant("", "", &[("a", "{\"command\":\"ls\"}")]).into());
    asked.messages.insert(1, result("a", "file.txt").into());
    call(&VendorProvider::new(settings, HttpClients::new(None, std::time::SystemTime::now)), asked).await;
    assert_eq!(server.violations(), Vec::<String>::new());
    let requests = server.requests();
    assert_eq!(
        requests[0].body,
        json!({
            "model": "test-model",
            "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {
                "name": "shell",
                "description": "Runs a command.",
                "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
            }}],
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_completion_tokens": 100,
            "temperature": 0.5,
        })
    );
    assert_eq!(requests[1].body["max_tokens"], json!(200));
    assert_eq!(requests[1].body.get("tools"), None, "a model without tool calls is told of none");
    let told: Vec<&str> = requests[1].body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["content"].as_str())
        .collect();
    assert!(told.contains(&"[call of shell with {\"command\":\"ls\"}]"), "{told:?}");
    assert!(told.contains(&"[result of shell]\nfile.txt"), "{told:?}");
}

#[tokio::test]
async fn addresses_are_taken_as_they_are_meant() {
    let server = ModelServer::start().await;
    let base = server.base_url();
    for uri in ["", "/", "/v1", "/v1/", "/v1/chat/completions", "/proxy/v1"] {
        server.push(Reply::text("ok"));
        let provider = VendorProvider::new(
            config(Family::Custom, &format!("{base}{uri}")),
            HttpClients::new(None, std::time::SystemTime::now),
        );
        assert_eq!(call(&provider, request(vec![user("x")])).await.text, "ok", "{uri}");
    }
    for uri in ["", "/v1/", "/v1/messages"] {
        server.push(Reply::text("ok"));
        let provider = VendorProvider::new(
            config(Family::Anthropic, &format!("{base}{uri}")),
            HttpClients::new(None, std::time::SystemTime::now),
        );
        assert_eq!(call(&provider, request(vec![user("x")])).await.text, "ok", "{uri}");
    }
    let paths: Vec<String> = server.requests().into_iter().map(|request| request.path).collect();
    let chat = "/v1/chat/completions";
    assert_eq!(paths[..6], [chat, chat, chat, chat, chat, "/proxy/v1/chat/completions"]);
    assert_eq!(paths[6..], ["/v1/messages"; 3]);
}

#[tokio::test]
async fn what_cannot_be_used_says_so_without_a_connection() {
    let mut missing = config(Family::Custom, "");
    missing.uri = None;
    let mut nameless = config(Family::Openai, "http://127.0.0.1:9");
    nameless.model = " ".to_owned();
    let wrong = ["ftp://x/v1", "no address", "http://"].map(|uri| config(Family::Custom, uri));
    for settings in [missing, nameless].into_iter().chain(wrong) {
        let error = call(
            &VendorProvider::new(settings.clone(), HttpClients::new(None, std::time::SystemTime::now)),
            request(vec![user("x")]),
        )
        .await
        .error;
        assert!(matches!(error, Some(ModelError::Config(_))), "{settings:?}: {error:?}");
    }
    let mut broken_key = config(Family::Openai, "http://127.0.0.1:9");
    broken_key.api_key = Some(ApiKey::new("a\nb"));
    let error = call(
        &VendorProvider::new(broken_key, HttpClients::new(None, std::time::SystemTime::now)),
        request(vec![user("x")]),
    )
    .await
    .error;
    assert!(matches!(error, Some(ModelError::Config(_))), "{error:?}");
}

#[tokio::test]
async fn refusals_become_their_kinds() {
    for family in BOTH {
        for status in [401, 403, 400, 404, 402, 301] {
            let error = ask(family, Reply::status(status)).await.error.unwrap();
            let expected = match status {
                401 | 403 => matches!(error, ModelError::Auth(_)),
                402 | 404 => matches!(error, ModelError::Unusable(_)),
                _ => matches!(error, ModelError::Request(_)),
            };
            assert!(expected, "{family:?} {status}: {error:?}");
        }
    }
    let server = ModelServer::start().await.require_key("another key");
    let error = call(&provider(Family::Custom, &server), request(vec![user("x")])).await.error;
    assert_eq!(error, Some(ModelError::Auth("incorrect api key (HTTP 401)".to_owned())));
}

#[tokio::test]
async fn a_vendor_that_is_not_there_is_worth_another_try() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    // With TLS too: the client can be built, and its failure is the vendor's, not ours.
    for address in [address.clone(), address.replace("http:", "https:")] {
        let mut settings = config(Family::Lmstudio, &address);
        settings.idle_timeout = std::time::Duration::MAX;
        let error = call(
            &VendorProvider::new(settings, HttpClients::new(None, std::time::SystemTime::now)),
            request(vec![user("x")]),
        )
        .await
        .error;
        assert!(matches!(error, Some(ModelError::Transient { .. })), "{address}: {error:?}");
    }
}

#[tokio::test]
async fn messages_of_vendors_are_bounded_and_lose_the_key() {
    let long = format!("bad key sk-secret-test-key\u{7}\n{}", "ü".repeat(5000));
    for body in [json!({"error": {"message": long}}), Value::String(long.clone()), json!({"error": long})] {
        let error = ask(Family::Custom, Reply::status(400).body(body)).await.error.unwrap().to_string();
        assert!(error.contains("bad key ***  üü") && !error.contains("sk-secret"), "{error}");
        assert!(error.len() < 1200, "{}", error.len());
    }
    let reply = Reply::error_mid_stream([], json!({"type": "x", "message": "no sk-secret-test-key"}));
    assert_eq!(ask(Family::Anthropic, reply).await.error, Some(ModelError::Stream("no ***".to_owned())));
    let shown = format!("{:?}", config(Family::Openai, "http://user:password@host/"));
    assert!(!shown.contains("sk-secret") && !shown.contains("password"), "{shown}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let thief = ModelServer::start().await;
    let location = format!("location: {}/chat/completions\r\n", thief.openai_url());
    let server = RawServer::start(vec![raw("307 Temporary Redirect", &location, "")]).await;
    let provider = VendorProvider::new(
        config(Family::Custom, &server.address),
        HttpClients::new(None, std::time::SystemTime::now),
    );
    let error = call(&provider, request(vec![user("x")])).await.error;
    assert!(matches!(error, Some(ModelError::Request(_))), "{error:?}");
    assert_eq!(thief.requests().len(), 0, "the key stays with the configured address");
}

#[tokio::test]
async fn ends_of_all_kinds() {
    for family in BOTH {
        for (reason, stop) in [
            ("stop", ModelStop::End),
            ("length", ModelStop::MaxTokens),
            ("content_filter", ModelStop::Refusal),
            ("something new", ModelStop::End),
        ] {
            let outcome = ask(family, Reply::turn([Part::text("a"), Part::stop(reason)])).await;
            assert_eq!(outcome.stop, Some(stop), "{family:?} {reason}");
        }
        let cut = Reply::turn([Part::tool_call("a", "shell", "{\"command\":\"rm -r"), Part::stop("length")]);
        let outcome = ask(family, cut).await;
        assert_eq!((outcome.calls, outcome.stop), (Vec::new(), Some(ModelStop::MaxTokens)), "half a call is not made");
    }
}

/// A new connection for each model call of a tool loop would cost a TLS handshake each.
#[tokio::test]
async fn connections_are_used_again() {
    let body = concat!(
        "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: [DONE]\n\n",
    );
    let response =
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let server = RawServer::connections(vec![vec![response.into_bytes(); 3]]).await;
    let provider = VendorProvider::new(
        config(Family::Custom, &server.address),
        HttpClients::new(None, std::time::SystemTime::now),
    );
    for _ in 0..3 {
        assert_eq!(call(&provider, request(vec![user("x")])).await.text, "ok");
        // The connection is put back beside the caller, who normally runs tools meanwhile.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn dropping_the_stream_ends_the_call() {
    for family in BOTH {
        let server = ModelServer::start().await;
        let (reply, gate) = Reply::chunks(["a", "b"]).gate(1);
        server.push(reply);
        let stream = provider(family, &server).stream(request(vec![user("x")])).await.unwrap();
        gate.reached().await;
        drop(stream);
        gate.client_gone().await;
    }
}

#[tokio::test]
async fn gemini_speaks_through_the_library() {
    let events = [
        r#"{"candidates":[{"content":{"role":"model","parts":[{"thought":true,"text":"hm"}]}}]}"#,
        r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]}}]}"#,
        r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"shell","args":{"command":"ls"}}}]}}]}"#,
        r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"shell","args":{"command":"pwd"}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4,"totalTokenCount":13}}"#,
    ];
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let cut: String = events[..2].iter().map(|event| format!("data: {event}\n\n")).collect();
    let sse = "content-type: text/event-stream\r\n";
    let quota =
        json!({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}).to_string();
    let server = RawServer::start(vec![
        raw("200 OK", sse, &body),
        raw("200 OK", sse, &cut),
        raw("503 Service Unavailable", "retry-after: 7\r\ncontent-type: application/json\r\n", &quota),
        raw("400 Bad Request", "", &json!({"error": {"code": 400, "message": "API key not valid."}}).to_string()),
    ])
    .await;
    let provider = VendorProvider::new(
        config(Family::Gemini, &server.address),
        HttpClients::new(None, std::time::SystemTime::now),
    );
    let messages = vec![user("one"), assistant("", "thought", &[("x", "{\"command\":\"ls\"}")]), result("x", "file")];
    let outcome = call(&provider, request(messages)).await;
    assert_eq!((outcome.text.as_str(), outcome.thought.as_str()), ("hi", "hm"), "{outcome:?}");
    let called: Vec<_> =
        outcome.calls.iter().map(|(id, name, args)| (id.as_str(), name.as_str(), args.as_str())).collect();
    assert_eq!(called, [("call_3_1", "shell", "{\"command\":\"ls\"}"), ("call_3_2", "shell", "{\"command\":\"pwd\"}")]);
    assert_eq!(
        (outcome.usage, outcome.stop),
        (Some(Usage { input: 9, output: 4, cached: 0, written: 0 }), Some(ModelStop::End))
    );
    let (head, body) = server.requests().remove(0);
    assert!(head.starts_with("post /v1beta/models/test-model:streamgeneratecontent?alt=sse "), "{head}");
    assert_eq!(body["contents"][1]["parts"][0]["functionCall"]["args"], json!({"command": "ls"}), "{body}");
    assert_eq!(body["contents"][2]["parts"][0]["functionResponse"]["name"], json!("shell"), "{body}");

    let outcome = call(&provider, request(vec![user("x")])).await;
    assert!(matches!(outcome.error, Some(ModelError::Stream(_))), "a cut answer: {outcome:?}");
    let error = call(&provider, request(vec![user("x")])).await.error;
    let wait = Some(std::time::Duration::from_secs(7));
    let message = "The model is overloaded. (HTTP 503)".to_owned();
    assert_eq!(error, Some(ModelError::Transient { message, retry_after: wait }));
    let error = call(&provider, request(vec![user("x")])).await.error;
    assert!(matches!(error, Some(ModelError::Auth(_))), "{error:?}");
}

#[tokio::test]
async fn ollama_failures_and_cuts() {
    let server = RawServer::start(vec![
        raw("200 OK", "", "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"error\":\"model runner stopped\"}\n"),
        raw("200 OK", "", "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"mess"),
        raw("404 Not Found", "", "{\"error\":\"model 'x' not found\"}"),
    ])
    .await;
    let provider = VendorProvider::new(
        config(Family::Ollama, &format!("{}/v1/", server.address)),
        HttpClients::new(None, std::time::SystemTime::now),
    );
    let outcome = call(&provider, request(vec![user("x")])).await;
    assert_eq!(outcome.error, Some(ModelError::Stream("model runner stopped".to_owned())));
    let outcome = call(&provider, request(vec![user("x")])).await;
    assert!(matches!(outcome.error, Some(ModelError::Stream(_))), "{outcome:?}");
    let outcome = call(&provider, request(vec![user("x")])).await;
    assert_eq!(outcome.error, Some(ModelError::Unusable("model 'x' not found (HTTP 404)".to_owned())));
}

#[test]
fn the_window_is_known_or_configured() {
    let window = |model: &str, configured| {
        let mut settings = config(Family::Custom, "http://x");
        settings.model = model.to_owned();
        settings.context_window = configured;
        let provider = VendorProvider::new(settings, HttpClients::new(None, std::time::SystemTime::now));
        assert_eq!(provider.info().source, "custom.test");
        provider.info().context_window
    };
    assert_eq!(window("claude-sonnet-4-5", None), 200_000);
    assert_eq!(window("openai/gpt-4o-mini", None), 128_000);
    assert_eq!(window("whatever", None), 128_000);
    assert_eq!(window("claude-sonnet-4-5", Some(1_000_000)), 1_000_000);
}
