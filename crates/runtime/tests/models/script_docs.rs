//! The example of the documentation does what the documentation says.

use futures::TryStreamExt;
use zeroclaw_runtime::model::{
    ModelError, ModelEvent, ModelProvider, ModelStop,
    scripted::{ScriptedConfig, ScriptedProvider},
};

use crate::support::request;

const DOCUMENT: &str = include_str!("../../../../docs/scripted-model.md");

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
                ModelEvent::Text(_) | ModelEvent::Thought(_) | ModelEvent::Usage(_) => {}
            }
        }
    }
    // Three calls, the second refused; the fourth is the first again.
    assert_eq!(ends, [Some(ModelStop::End), None, Some(ModelStop::End), Some(ModelStop::End)]);
    assert_eq!(calls, 2);
}
