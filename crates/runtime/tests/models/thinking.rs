//! What becomes of a thought level on the way to each vendor, and of signed thoughts on the way back.

use serde_json::{Value, json};
use zeroclaw_runtime::model::{
    Message, Thinking,
    vendor::{Family, HttpClients, VendorProvider},
};
use zeroclaw_testkit::model_server::{ModelServer, Part, Reply, signature_for};

use crate::support::{RawServer, call, config, raw, request, result, user};

/// The body that a family sends for a model at a level.
async fn body(family: Family, model: &str, level: Thinking, limit: Option<u32>) -> Value {
    let server = ModelServer::start().await;
    server.push(Reply::text("ok"));
    let mut settings = config(family, &server.openai_url());
    settings.model = model.to_owned();
    settings.temperature = Some(0.5);
    settings.max_output_tokens = limit;
    let mut asked = request(vec![user("hi")]);
    asked.thinking = Some(level);
    let provider = VendorProvider::new(settings, HttpClients::new(None, std::time::SystemTime::now));
    let outcome = call(&provider, asked).await;
    assert_eq!((outcome.text.as_str(), server.violations()), ("ok", Vec::new()), "{model} {level:?}");
    server.requests()[0].body.clone()
}

#[tokio::test]
async fn chat_completions_are_given_an_effort() {
    for (level, word) in
        [(Thinking::Off, "none"), (Thinking::Low, "low"), (Thinking::Medium, "medium"), (Thinking::High, "high")]
    {
        for family in [Family::Openai, Family::Vllm, Family::Custom] {
            let sent = body(family, "m", level, None).await;
            assert_eq!((&sent["reasoning_effort"], sent.get("reasoning")), (&json!(word), None), "{sent}");
        }
        let sent = body(Family::Openrouter, "m", level, None).await;
        assert_eq!((&sent["reasoning"], sent.get("reasoning_effort")), (&json!({"effort": word}), None), "{sent}");
    }
}

#[tokio::test]
async fn anthropic_is_given_a_budget_or_an_effort() {
    let low = body(Family::Anthropic, "claude-sonnet-4-5", Thinking::Low, None).await;
    assert_eq!(low["thinking"], json!({"type": "enabled", "budget_tokens": 2048}));
    assert_eq!(low["max_tokens"], json!(16_384 + 2048), "the answer keeps its room");
    assert_eq!(low.get("temperature"), None, "the vendor refuses it beside thinking");
    let limited = body(Family::Anthropic, "claude-sonnet-4-5", Thinking::High, Some(8000)).await;
    assert_eq!((&limited["thinking"]["budget_tokens"], &limited["max_tokens"]), (&json!(4000), &json!(8000)));
    let small = body(Family::Anthropic, "claude-sonnet-4-5", Thinking::High, Some(2000)).await;
    assert_eq!(small["thinking"], json!({"type": "disabled"}), "no budget fits into so few tokens");
    let new = body(Family::Anthropic, "claude-sonnet-5", Thinking::Medium, None).await;
    assert_eq!(new["thinking"], json!({"type": "adaptive", "display": "summarized"}));
    assert_eq!(new["output_config"], json!({"effort": "medium"}));
    let off = body(Family::Anthropic, "claude-sonnet-5", Thinking::Off, None).await;
    assert_eq!((&off["thinking"], &off["temperature"]), (&json!({"type": "disabled"}), &json!(0.5)));
}

#[tokio::test]
async fn gemini_and_ollama_are_given_their_own_words() {
    let answer = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"ok"}]},"finishReason":"STOP"}]}"#;
    for (model, level, expected) in [
        ("gemini-2.5-flash", Thinking::Off, json!({"thinkingBudget": 0})),
        ("gemini-2.5-flash", Thinking::Low, json!({"thinkingBudget": 1000, "includeThoughts": true})),
        ("gemini-3.5-flash", Thinking::High, json!({"thinkingLevel": "HIGH", "includeThoughts": true})),
    ] {
        let reply = raw("200 OK", "content-type: text/event-stream\r\n", &format!("data: {answer}\n\n"));
        let server = RawServer::start(vec![reply]).await;
        let mut settings = config(Family::Gemini, &server.address);
        settings.model = model.to_owned();
        let mut asked = request(vec![user("hi")]);
        asked.thinking = Some(level);
        let provider = VendorProvider::new(settings, HttpClients::new(None, std::time::SystemTime::now));
        assert_eq!(call(&provider, asked).await.text, "ok");
        let (_, sent) = server.requests().remove(0);
        assert_eq!(sent["generationConfig"]["thinkingConfig"], expected, "{sent}");
    }
    for (model, level, expected) in [
        ("qwen3:8b", Thinking::Off, json!(false)),
        ("qwen3:8b", Thinking::High, json!(true)),
        ("gpt-oss:20b", Thinking::Low, json!("low")),
    ] {
        let line = json!({"message": {"role": "assistant", "content": "ok"}, "done": true, "done_reason": "stop"});
        let server = RawServer::start(vec![raw("200 OK", "", &format!("{line}\n"))]).await;
        let mut settings = config(Family::Ollama, &server.address);
        settings.model = model.to_owned();
        let mut asked = request(vec![user("hi")]);
        asked.thinking = Some(level);
        let provider = VendorProvider::new(settings, HttpClients::new(None, std::time::SystemTime::now));
        assert_eq!(call(&provider, asked).await.text, "ok");
        assert_eq!(server.requests().remove(0).1["think"], expected, "{model}");
    }
}

fn said(calls: &[&str], signed: Vec<String>) -> Message {
    let call = |id: &&str| zeroclaw_runtime::model::ToolCallRequest {
        id: (*id).to_owned(),
        name: "shell".to_owned(),
        arguments: "{\"command\":\"ls\"}".to_owned(),
    };
    Message::Assistant {
        text: String::new(),
        thought: "hm".to_owned(),
        tool_calls: calls.iter().map(call).collect(),
        signed,
    }
}

/// Signed thoughts go back while their turn runs and never later; a refusal of one does not end the session.
#[tokio::test]
async fn prv_15_signed_thoughts_live_as_long_as_their_turn() {
    let server = ModelServer::start().await;
    let provider = VendorProvider::new(
        config(Family::Anthropic, &server.anthropic_url()),
        HttpClients::new(None, std::time::SystemTime::now),
    );
    server.push(Reply::turn([
        Part::Thought("I should ".to_owned()),
        Part::Thought("look.".to_owned()),
        Part::tool_call("a", "shell", json!({"command": "ls"})),
    ]));
    let mut asked = request(vec![user("go")]);
    asked.thinking = Some(Thinking::Low);
    let first = call(&provider, asked.clone()).await;
    let block = json!({"type": "thinking", "thinking": "I should look.", "signature": signature_for("I should look.")});
    let signed: Vec<Value> = first.signed.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(signed, std::slice::from_ref(&block));

    server.push(Reply::text("done"));
    asked.messages.extend([said(&["a"], first.signed.clone()), result("a", "file")].map(Into::into));
    assert_eq!(call(&provider, asked.clone()).await.text, "done");
    let body = server.requests()[1].body.clone();
    assert_eq!((&body["messages"][1]["content"][0], &body["thinking"]["type"]), (&block, &json!("enabled")), "{body}");

    // The vendor does not know its signature any more: the same request goes out once more, without thoughts.
    let message = "messages.1.content.0: Invalid `signature` in `thinking` block";
    let refusal = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    server.push(Reply::status(400).body(refusal));
    server.push(Reply::text("done after all"));
    assert_eq!(call(&provider, asked.clone()).await.text, "done after all");
    let body = server.requests()[3].body.clone();
    assert_eq!(
        (&body["messages"][1]["content"][0]["type"], &body["thinking"]["type"]),
        (&json!("tool_use"), &json!("disabled"))
    );

    // The next turn begins without the thoughts of the last, and the model thinks again.
    server.push(Reply::text("next"));
    asked.messages.push(user("and now?").into());
    assert_eq!(call(&provider, asked).await.text, "next");
    let body = server.requests()[4].body.clone();
    assert!(!body["messages"].to_string().contains("signature"), "{body}");
    assert_eq!(body["thinking"]["type"], "enabled");
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// Without marks every call of a tool loop pays for the whole conversation again.
#[tokio::test]
async fn anthropic_is_told_what_to_cache() {
    let server = ModelServer::start().await;
    server.push(Reply::text("ok"));
    let provider = VendorProvider::new(
        config(Family::Anthropic, &server.anthropic_url()),
        HttpClients::new(None, std::time::SystemTime::now),
    );
    let messages = vec![user("go"), said(&["a", "b"], Vec::new()), result("a", "1"), result("b", "2")];
    call(&provider, request(messages)).await;
    let body = server.requests()[0].body.clone();
    let mark = json!({"type": "ephemeral"});
    assert_eq!(body["system"][0]["cache_control"], mark, "tools come before the system prompt, so this covers both");
    assert_eq!(body["messages"][2]["content"][1]["cache_control"], mark);
    assert_eq!(body.to_string().matches("cache_control").count(), 2);
    assert_eq!(server.violations(), Vec::<String>::new());
}
