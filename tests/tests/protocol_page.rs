//! `docs/protocol.md` is replayed: what it shows of a client is sent, what it shows of the agent is what the agent says.

use serde_json::Value;
use zeroclaw_e2e::Lab;

const PAGE: &str = include_str!("../../docs/protocol.md");

/// Whether a message is what the page shows; `SESSION` takes on its first value.
fn fits(shown: &Value, said: &Value, session: &mut Option<Value>) -> bool {
    match (shown, said) {
        (Value::String(text), said) if text == "SESSION" => session.get_or_insert_with(|| said.clone()) == said,
        (Value::String(text), said) if text == "…" => said.is_string(),
        (Value::Object(shown), Value::Object(said)) => {
            let open = shown.contains_key("…");
            let all = shown.iter().filter(|(name, _)| *name != "…");
            let known = all.clone().count();
            (open || said.len() == known)
                && all.into_iter().all(|(name, value)| said.get(name).is_some_and(|said| fits(value, said, session)))
        }
        (Value::Array(shown), Value::Array(said)) => {
            shown.len() == said.len() && shown.iter().zip(said).all(|(shown, said)| fits(shown, said, session))
        }
        (shown, said) => shown == said,
    }
}

#[tokio::test]
async fn the_server_says_what_the_page_shows() {
    let lab = Lab::new();
    let mut agent = lab.start();
    let mut session = None;
    let mut checked = 0;
    for piece in PAGE.split("```").skip(1).step_by(2) {
        let (info, text) = piece.split_once('\n').unwrap();
        let text = text.trim_end().replace("/project", &lab.project().display().to_string());
        match info {
            "json client" => {
                let id = session.as_ref().and_then(Value::as_str).unwrap_or("SESSION");
                agent.send(&text.replace("SESSION", id)).await;
            }
            "json agent" => {
                let shown: Value = serde_json::from_str(&text).unwrap();
                // An answer is the one with its id; of updates the page shows some, in their order.
                if shown.get("method").is_none() {
                    let said = agent.recv_until(|message| message.get("method").is_none()).await.pop().unwrap();
                    assert!(fits(&shown, &said, &mut session), "the page shows {shown}\nthe server says {said}");
                } else {
                    agent.recv_until(|message| fits(&shown, message, &mut session)).await;
                }
            }
            other => panic!("a block that nobody checks: `{other}`"),
        }
        checked += 1;
    }
    assert!(checked > 10 && session.is_some(), "{checked}");
}
