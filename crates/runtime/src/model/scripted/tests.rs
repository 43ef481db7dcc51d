//! Scripts, line by line, and how they are read.

use std::{path::PathBuf, time::Duration};

use futures::{StreamExt, TryStreamExt};
use tempfile::NamedTempFile;

use crate::model::{
    ModelError, ModelEvent, ModelProvider, ModelRequest, ModelStop, ToolCallRequest, Usage,
    scripted::{ScriptedConfig, ScriptedProvider, parse::parse},
};

fn provider(path: PathBuf) -> ScriptedProvider {
    ScriptedProvider::new(ScriptedConfig { alias: "demo".to_owned(), script: path, model: None, context_window: None })
}

fn script(text: &str) -> (ScriptedProvider, NamedTempFile) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    (provider(file.path().to_owned()), file)
}

fn request() -> ModelRequest {
    ModelRequest { system: "".into(), messages: Vec::new(), tools: [].into(), max_output_tokens: None, thinking: None }
}

async fn call(provider: &ScriptedProvider) -> Result<Vec<ModelEvent>, ModelError> {
    provider.stream(request()).await?.try_collect().await
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_line_becomes_its_event() {
    let (provider, _file) = script(
        r#"
{"type":"thought","text":"hm"}
{"type":"text","text":"a"}
{"type":"delay","ms":60000}
{"type":"text","text":"{n}/{n} ","repeat":2}
{"type":"tool_call","name":"shell","arguments":{"command":"ls", "n": 1e400}}
{"type":"tool_call","name":"list_dir","arguments":"{\"path\":","id":"mine"}
{"type":"usage","input":5,"output":6,"cached":2}
{"type":"stop","reason":"max_tokens"}
{"type":"stop"}
{"type":"stop","reason":"refusal"}
"#,
    );
    let text = |text: &str| ModelEvent::Text(text.to_owned());
    let tool = |id: &str, name: &str, arguments: &str| {
        ModelEvent::ToolCall(ToolCallRequest { id: id.into(), name: name.into(), arguments: arguments.into() })
    };
    assert_eq!(
        call(&provider).await.unwrap(),
        [
            ModelEvent::Thought("hm".to_owned()),
            text("a"),
            text("1/1 "),
            text("2/2 "),
            tool("scripted_1_5", "shell", r#"{"command":"ls", "n": 1e400}"#),
            tool("mine", "list_dir", r#"{"path":"#),
            ModelEvent::Usage(Usage { input: 5, output: 6, cached: 2, written: 0 }),
            ModelEvent::Stop(ModelStop::MaxTokens),
        ]
    );
    assert_eq!(call(&provider).await.unwrap(), [ModelEvent::Stop(ModelStop::End)]);
    assert_eq!(call(&provider).await.unwrap(), [ModelEvent::Stop(ModelStop::Refusal)]);
    let error = call(&provider).await.unwrap_err();
    assert!(matches!(&error, ModelError::Config(text) if text.contains("used up after 3 calls")), "{error}");
}

#[tokio::test]
async fn errors_come_before_or_after_the_first_event() {
    let (provider, _file) = script(
        r#"{"type":"error","kind":"transient","message":"busy","retry_after_secs":3}
{"type":"text","text":"a"}
{"type":"error","kind":"stream","message":"cut"}
{"type":"error","kind":"auth","message":"no"}
{"type":"error","kind":"context","message":"long"}
{"type":"error","kind":"request","message":"bad"}
"#,
    );
    let busy = ModelError::Transient { message: "busy".into(), retry_after: Some(Duration::from_secs(3)) };
    assert_eq!(provider.stream(request()).await.err(), Some(busy));
    let mut stream = provider.stream(request()).await.unwrap();
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("a".into()))));
    assert_eq!(stream.next().await, Some(Err(ModelError::Stream("cut".into()))));
    assert_eq!(stream.next().await, None);
    assert_eq!(call(&provider).await, Err(ModelError::Auth("no".into())));
    assert_eq!(call(&provider).await, Err(ModelError::ContextOverflow("long".into())));
    assert_eq!(call(&provider).await, Err(ModelError::Request("bad".into())));
}

#[tokio::test]
async fn a_loop_starts_again_with_new_ids() {
    let (provider, _file) =
        script("{\"type\":\"tool_call\",\"name\":\"a\"}\n{\"type\":\"stop\"}\n{\"type\":\"loop\"}\n");
    let mut ids = Vec::new();
    for _ in 0..3 {
        for event in call(&provider).await.unwrap() {
            if let ModelEvent::ToolCall(call) = event {
                assert_eq!(call.arguments, "{}");
                ids.push(call.id);
            }
        }
    }
    assert_eq!(ids, ["scripted_1_1", "scripted_2_1", "scripted_3_1"]);
}

#[tokio::test]
async fn a_million_chunks_are_lazy() {
    let (provider, _file) = script("{\"type\":\"text\",\"text\":\"x\",\"repeat\":1000000}\n{\"type\":\"stop\"}\n");
    let count = provider.stream(request()).await.unwrap().fold(0, |count, event| async move {
        assert!(event.is_ok());
        count + 1
    });
    assert_eq!(count.await, 1_000_001);
}

#[tokio::test]
async fn a_long_answer_lets_others_run() {
    let (provider, _file) =
        script("{\"type\":\"text\",\"text\":\"x\",\"repeat\":18446744073709551615}\n{\"type\":\"stop\"}\n");
    let mut stream = provider.stream(request()).await.unwrap();
    // On one thread, the timer can only fire if the stream steps back.
    let drained = async { while stream.next().await.is_some() {} };
    assert!(tokio::time::timeout(Duration::from_millis(1), drained).await.is_err());
}

#[test]
fn mistakes_name_their_line() {
    for (text, line, problem) in [
        ("", 1, "no call"),
        ("{\"type\":\"text\",\"text\":\"a\"}", 1, "no `stop` or `error`"),
        ("{\"type\":\"stop\"}\n\n{\"type\":\"text\",\"text\":\"a\"}\n{\"type\":\"loop\"}", 4, "begins in line 3"),
        ("{\"type\":\"loop\"}", 1, "without a call"),
        ("{\"type\":\"stop\"}\n{\"type\":\"loop\"}\n{\"type\":\"stop\"}", 3, "must be the last line"),
        ("{\"type\":\"stop\"}\n{\"type\":\"shout\"}", 2, "unknown type `shout`"),
        ("{\"type\":\"text\"}", 1, "`text` is missing"),
        ("{\"type\":\"text\",\"text\":\"a\",\"ms\":3}", 1, "`ms` does not belong"),
        ("{\"type\":\"text\",\"txt\":\"a\"}", 1, "unknown field `txt`"),
        ("{\"type\":\"text\",\"text\":3}", 1, "invalid type"),
        ("nonsense", 1, "expected"),
        ("{\"type\":\"stop\",\"reason\":\"bored\"}", 1, "unknown reason `bored`"),
        ("{\"type\":\"error\",\"kind\":\"odd\",\"message\":\"\"}", 1, "unknown kind `odd`"),
        (
            "{\"type\":\"error\",\"kind\":\"auth\",\"message\":\"\",\"retry_after_secs\":1}",
            1,
            "does not belong to the kind",
        ),
        ("{\"type\":\"tool_call\",\"name\":\"a\",\"arguments\":[]}", 1, "neither an object nor a string"),
        ("{\"type\":\"delay\",\"ms\":3600001}", 1, "over 3600000"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.line == line && error.problem.contains(problem), "{text}: {error:?}");
    }
}

#[tokio::test]
async fn the_file_is_named_in_every_error() {
    let (broken, file) = script("{\"type\":\"stop\"}\n{}\n");
    let error = call(&broken).await.unwrap_err().to_string();
    assert!(error.contains(&format!("{}:2: missing field `type`", file.path().display())), "{error}");
    // A script that was repaired is read again.
    std::fs::write(file.path(), "{\"type\":\"stop\"}\n").unwrap();
    assert_eq!(call(&broken).await.unwrap(), [ModelEvent::Stop(ModelStop::End)]);

    let missing = provider(PathBuf::from("/no/such/script.jsonl"));
    assert!(call(&missing).await.unwrap_err().to_string().contains("/no/such/script.jsonl"));
    let directory = tempfile::tempdir().unwrap();
    let error = call(&provider(directory.path().to_owned())).await.unwrap_err().to_string();
    assert!(error.contains("not a file"), "{error}");
}

#[test]
fn the_provider_says_what_it_is() {
    let provider = provider(PathBuf::from("x"));
    assert_eq!((provider.info().name.as_str(), provider.info().source.as_str()), ("scripted", "scripted.demo"));
}
