//! The documents say what is there, and their examples work.

use futures::TryStreamExt;
use zeroclaw_runtime::model::{
    ModelError, ModelEvent, ModelProvider, ModelStop,
    builtin::builtin_commands,
    scripted::{ScriptedConfig, ScriptedProvider},
    vendor::Family,
};

use crate::support::request;

const DOCUMENT: &str = include_str!("../../../../docs/scripted-model.md");
const MODELS: &str = include_str!("../../../../docs/models.md");

#[test]
fn every_family_and_command_is_documented() {
    for family in [
        Family::Anthropic,
        Family::Openai,
        Family::Openrouter,
        Family::Gemini,
        Family::Ollama,
        Family::Llamacpp,
        Family::Lmstudio,
        Family::Vllm,
        Family::Custom,
    ] {
        let row = MODELS.lines().find(|line| line.starts_with(&format!("| `{}` |", family.as_str())));
        let row = row.unwrap_or_else(|| panic!("{} has a row", family.as_str()));
        let address = family.default_uri().map_or("`uri` is needed".to_owned(), |uri| format!("`{uri}`"));
        assert!(row.contains(&address), "{row}");
    }
    for command in builtin_commands() {
        let usage = format!("/{} {}", command.name, command.hint.replace('|', "\\|"));
        assert!(MODELS.contains(&format!("| `{}` |", usage.trim())), "{usage}");
    }
}

#[tokio::test]
async fn the_documented_example_plays() {
    let (_, after) = DOCUMENT.split_once("```jsonl\n").expect("an example");
    let (example, _) = after.split_once("```").expect("its end");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), example).unwrap();
    let provider = ScriptedProvider::new(ScriptedConfig {
        alias: "demo".to_owned(),
        script: file.path().to_owned(),
        model: None,
        context_window: None,
    });
    let mut ends = Vec::new();
    let mut calls = 0;
    for _ in 0..4 {
        let Ok(stream) = provider.stream(request(Vec::new())).await else {
            ends.push(None);
            continue;
        };
        let events: Result<Vec<ModelEvent>, ModelError> = stream.try_collect().await;
        for event in events.unwrap() {
            match event {
                ModelEvent::ToolCall(_) => calls += 1,
                ModelEvent::Stop(stop) => ends.push(Some(stop)),
                ModelEvent::Text(_) | ModelEvent::Thought(_) | ModelEvent::Signed(_) | ModelEvent::Usage(_) => {}
            }
        }
    }
    // Three calls, the second refused; the fourth is the first again.
    assert_eq!(ends, [Some(ModelStop::End), None, Some(ModelStop::End), Some(ModelStop::End)]);
    assert_eq!(calls, 2);
}
