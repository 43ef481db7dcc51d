//! The thought level of a session and the cost of its tokens, from the configuration to the vendor and to the client.

use serde_json::{Value, json};
use zeroclaw_e2e::{Lab, prompt, updates_of};
use zeroclaw_testkit::{
    model_server::{ModelServer, Part, Reply},
    process::AgentProcess,
};

fn option<'a>(options: &'a Value, id: &str) -> Option<&'a Value> {
    options.as_array().unwrap().iter().find(|option| option["id"] == id)
}

fn values(option: &Value) -> Vec<&str> {
    option["options"].as_array().unwrap().iter().map(|value| value["value"].as_str().unwrap()).collect()
}

async fn set(agent: &mut AgentProcess, session: &str, option: &str, value: &str) -> Value {
    let params = json!({"sessionId": session, "configId": option, "value": value});
    agent.call("session/set_config_option", params).await.unwrap()["configOptions"].clone()
}

/// A model that thinks as configured, one that does not think, and one that is known to.
fn lab(uri: &str) -> Lab {
    Lab::with_config(&format!(
        "[providers.models.custom.thinker]\nmodel = \"thinker\"\nmodels = [\"thinker-mini\", \"vendor/gpt-oss-20b\"]\n\
         uri = \"{uri}\"\napi_key = \"k\"\nthinking = \"medium\"\n\
         [agents.main]\nmodel_provider = \"custom.thinker\"\n"
    ))
}

#[tokio::test]
async fn the_thought_level_is_chosen_sent_kept_and_follows_the_model() {
    let server = ModelServer::start().await;
    let lab = lab(&server.openai_url());
    let mut agent = lab.agent().await;
    let new = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.unwrap();
    let session = new["sessionId"].as_str().unwrap().to_owned();
    let options = &new["configOptions"];
    assert_eq!(
        values(option(options, "model").unwrap()),
        ["custom.thinker", "custom.thinker/thinker-mini", "custom.thinker/vendor/gpt-oss-20b"]
    );
    let level = option(options, "thought_level").unwrap();
    assert_eq!((&level["category"], &level["currentValue"]), (&json!("thought_level"), &json!("medium")));
    assert_eq!(values(level), ["off", "low", "medium", "high"]);
    let ask = async |agent: &mut AgentProcess| {
        server.push(Reply::text("ok"));
        prompt(agent, &session, "hello").await;
        let body = server.requests().last().unwrap().body.clone();
        (body["model"].as_str().unwrap().to_owned(), body["reasoning_effort"].clone())
    };
    assert_eq!(ask(&mut agent).await, ("thinker".to_owned(), json!("medium")));

    let options = set(&mut agent, &session, "thought_level", "high").await;
    assert_eq!(option(&options, "thought_level").unwrap()["currentValue"], "high");
    assert_eq!(ask(&mut agent).await.1, json!("high"));

    // A model without levels loses the option, for every client, and nothing is sent.
    agent.collected();
    let options = set(&mut agent, &session, "model", "custom.thinker/thinker-mini").await;
    assert_eq!(option(&options, "thought_level"), None);
    assert_eq!(ask(&mut agent).await, ("thinker-mini".to_owned(), Value::Null));
    let wrong = json!({"sessionId": session, "configId": "thought_level", "value": "low"});
    assert_eq!(agent.call("session/set_config_option", wrong).await.unwrap_err()["code"], -32602);

    // A model with other levels has them, and what the client wanted is in force again.
    let options = set(&mut agent, &session, "model", "custom.thinker/vendor/gpt-oss-20b").await;
    let level = option(&options, "thought_level").unwrap();
    assert_eq!((values(level), &level["currentValue"]), (vec!["default", "low", "medium", "high"], &json!("high")));
    assert_eq!(ask(&mut agent).await, ("vendor/gpt-oss-20b".to_owned(), json!("high")));
    set(&mut agent, &session, "thought_level", "default").await;
    assert_eq!(ask(&mut agent).await.1, Value::Null);
    set(&mut agent, &session, "thought_level", "low").await;

    // A slash command changes the model for everybody, with the complete list.
    agent.collected();
    prompt(&mut agent, &session, "/model custom.thinker").await;
    let told = updates_of(&agent.collected(), "config_option_update");
    assert_eq!(option(&told[0]["configOptions"], "thought_level").unwrap()["currentValue"], "low");

    agent.kill9().await;
    let mut agent = lab.agent().await;
    let loaded = agent.call("session/load", json!({"sessionId": session, "cwd": lab.project()})).await.unwrap();
    assert_eq!(option(&loaded["configOptions"], "thought_level").unwrap()["currentValue"], "low");
    assert_eq!(ask(&mut agent).await, ("thinker".to_owned(), json!("low")));
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn the_cost_of_a_session_is_exact_and_survives_its_process() {
    let server = ModelServer::start().await;
    let lab = Lab::with_config(&format!(
        "[providers.models.anthropic.paid]\nmodel = \"test-model\"\nuri = \"{}\"\napi_key = \"k\"\n\
         [providers.models.anthropic.paid.price]\ninput = 0.1\noutput = 0.2\ncached = 0.01\ncurrency = \"EUR\"\n\
         [providers.models.custom.free]\nmodel = \"free\"\nuri = \"{}\"\n\
         [agents.main]\nmodel_provider = \"anthropic.paid\"\n[risk_profiles.default]\nlevel = \"full\"\n",
        server.anthropic_url(),
        server.openai_url()
    ));
    let (mut agent, session) = lab.session().await;
    server.push(Reply::turn([
        Part::tool_call("a", "list_dir", json!({"path": "."})),
        Part::Usage { input: 1_000_000, output: 0, cached: 0 },
    ]));
    server.push(Reply::turn([Part::text("done"), Part::Usage { input: 2_000_000, output: 5, cached: 1_000_000 }]));
    let result = prompt(&mut agent, &session, "look").await;
    assert_eq!(
        result["usage"],
        json!({"totalTokens": 3_000_005, "inputTokens": 3_000_000, "outputTokens": 5, "cachedReadTokens": 1_000_000})
    );
    // As text: a binary fraction would show.
    let lines: Vec<String> = agent.transcript().iter().map(|entry| entry.line.clone()).collect();
    let costs: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split_once(r#""cost":{"amount":"#))
        .map(|(_, rest)| rest.split('}').next().unwrap())
        .collect();
    assert_eq!(costs, [r#"0.1,"currency":"EUR""#, r#"0.210001,"currency":"EUR""#]);
    let used = updates_of(&agent.received(), "usage_update");
    assert_eq!((used.len(), &used[1]["used"]), (2, &json!(2_000_005)));

    // A model without a price adds tokens and no cost, and nothing is said of money while it is in force.
    set(&mut agent, &session, "model", "custom.free").await;
    server.push(Reply::turn([Part::text("for nothing"), Part::Usage { input: 7, output: 3, cached: 0 }]));
    agent.collected();
    prompt(&mut agent, &session, "again").await;
    assert_eq!(updates_of(&agent.collected(), "usage_update")[0].get("cost"), None);

    agent.kill9().await;
    let mut agent = lab.agent().await;
    agent.call("session/load", json!({"sessionId": session, "cwd": lab.project()})).await.unwrap();
    let shown = prompt(&mut agent, &session, "/usage").await;
    assert_eq!(
        shown["content"],
        "Tokens used in this session: 3000007 in (1000000 of them cached), 8 out.\n\
         Cost by the configured prices: 0.210001 EUR."
    );
    let forked = agent.call("session/fork", json!({"sessionId": session, "cwd": lab.project()})).await.unwrap();
    let copy = forked["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(option(&forked["configOptions"], "model").unwrap()["currentValue"], "custom.free");
    let shown = prompt(&mut agent, &copy, "/usage").await;
    assert_eq!(
        shown["content"], "Tokens used in this session: 0 in (0 of them cached), 0 out.",
        "a copy has spent nothing"
    );
    assert_eq!(server.violations(), Vec::<String>::new());
}
