//! The shortest whole turn, with nothing configured.

use serde_json::json;
use zeroclaw_e2e::{Lab, answer_text, prompt};

#[tokio::test]
async fn a_turn_without_any_configuration() {
    let lab = Lab::new();
    let (mut agent, session) = lab.session().await;
    let result = prompt(&mut agent, &session, "/say 3").await;
    assert_eq!(result["stopReason"], json!("end_turn"), "{result}");
    assert!(!answer_text(&agent.received()).is_empty());
    agent.close_stdin();
    assert!(agent.wait().await.success());
}
