//! Models that take over for one that cannot answer, and what the client is told of it.

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, answer_text, new_session, prompt, text_prompt, updates_of};
use zeroclaw_testkit::{
    model_server::{ModelServer, Part, Reply},
    process::AgentProcess,
};

/// A model with two names at one provider, and another provider behind it that has other prices.
fn lab(first: &ModelServer, second: &ModelServer) -> Lab {
    Lab::with_config(&format!(
        "[providers.models.custom.first]\nmodel = \"big\"\nuri = \"{}\"\n\
         fallback_models = [\"small\"]\nfallback = [\"groq.elsewhere\", \"anthropic.second\"]\n\
         [providers.models.custom.first.price]\ninput = 1\noutput = 1\n\
         [providers.models.anthropic.second]\nmodel = \"other\"\nuri = \"{}\"\napi_key = \"k\"\n\
         [providers.models.anthropic.second.price]\ninput = 100\noutput = 100\n\
         [agents.main]\nmodel_provider = \"custom.first\"\n[risk_profiles.default]\nlevel = \"full\"\n",
        first.openai_url(),
        second.anthropic_url()
    ))
}

async fn session(lab: &Lab, capabilities: Value) -> (AgentProcess, String) {
    let mut agent = lab.start();
    agent.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": capabilities})).await.unwrap();
    let session = new_session(&mut agent, &lab.project()).await;
    (agent, session)
}

fn models(server: &ModelServer) -> Vec<String> {
    server.requests().iter().map(|request| request.body["model"].as_str().unwrap().to_owned()).collect()
}

/// Users took the answers of a small model for those of the one that they had chosen.
#[tokio::test]
async fn the_client_is_told_which_model_answered_and_pays_its_price() {
    for notices in [true, false] {
        let (first, second) = (ModelServer::start().await, ModelServer::start().await);
        let lab = lab(&first, &second);
        let capabilities = if notices { json!({"session": {"notices": {}}}) } else { json!({}) };
        let (mut agent, session) = session(&lab, capabilities).await;
        first.push(Reply::status(401));
        first.push(Reply::status(503).retry_after("0"));
        first.push(Reply::status(503).retry_after("0"));
        let usage = Part::Usage { input: 900_000, output: 100_000, cached: 0 };
        second.push(Reply::turn([Part::text("from the other"), usage.clone()]));
        let result = prompt(&mut agent, &session, "hello").await;
        assert_eq!(result["content"], "from the other", "{result}");
        assert_eq!(result["_meta"]["zeroclaw"]["model"], "anthropic.second", "{result}");
        assert_eq!(models(&first), ["big", "small", "small"]);
        assert_eq!(models(&second), ["other"]);
        let told: Vec<String> = updates_of(&agent.received(), "notice")
            .iter()
            .map(|notice| notice["title"].as_str().unwrap().to_owned())
            .collect();
        let titles = [
            "The model big could not answer, small takes over for this turn",
            "The model small could not answer, other takes over for this turn",
        ];
        if notices {
            assert_eq!(told, titles);
            assert_eq!(answer_text(&agent.received()), "from the other");
        } else {
            assert_eq!(told, Vec::<String>::new());
            assert!(titles.iter().all(|title| answer_text(&agent.received()).contains(title)));
        }
        let cost = updates_of(&agent.received(), "usage_update").pop().unwrap()["cost"].clone();
        assert_eq!(cost, json!({"amount": 100, "currency": "USD"}), "a million tokens of the other");

        // The chosen model is asked first again, and nothing is said when it answers.
        first.push(Reply::turn([Part::text("back"), usage]));
        let result = prompt(&mut agent, &session, "again").await;
        assert_eq!((&result["content"], result.get("_meta")), (&json!("back"), None), "{result}");
        let cost = updates_of(&agent.received(), "usage_update").pop().unwrap()["cost"].clone();
        assert_eq!(cost["amount"], 101);
        assert_eq!((first.violations(), second.violations()), (Vec::new(), Vec::new()));
    }
}

/// Half of one answer and half of another is worse than an error.
#[tokio::test]
async fn nobody_takes_over_in_the_middle_of_an_answer() {
    let (first, second) = (ModelServer::start().await, ModelServer::start().await);
    let lab = lab(&first, &second);
    let (mut agent, session) = session(&lab, json!({})).await;
    first.push(Reply::cut_after([Part::text("half an ans")]));
    let error = agent.call("session/prompt", text_prompt(&session, "hello")).await.unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("broke off"), "{error}");
    assert_eq!((models(&first).len(), models(&second).len()), (1, 0));
    assert_eq!(answer_text(&agent.received()), "half an ans");
}
