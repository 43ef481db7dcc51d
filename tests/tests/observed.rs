//! What an operator sees of a running daemon: whether it can work, and numbers that agree with what was done.

use std::{collections::HashMap, fs};

use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use zeroclaw_e2e::{Lab, answer_text, text_prompt, updates_of};

use crate::daemon::{Client, Daemon, token};

/// The numbers of `/metrics`, by name with labels.
pub(crate) async fn metrics(daemon: &Daemon, token: &str) -> HashMap<String, f64> {
    let answer = daemon.get("/metrics", &format!("authorization: Bearer {token}")).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut numbers = HashMap::new();
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let number = value.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(numbers.insert(name.to_owned(), number), None, "{line} is there twice");
        // Labels that are written down: a name with a value of somebody else's would grow without end.
        let label = name.split_once('{').map(|(_, label)| label);
        assert!(label.is_none_or(|label| label.starts_with("le=\"") || label.starts_with("outcome=\"")), "{line}");
    }
    numbers
}

/// The answer to a prompt; permissions on the way are given.
async fn permitted(client: &mut Client, session: &str, text: &str) -> serde_json::Value {
    let id = client.send("session/prompt", text_prompt(session, text)).await;
    loop {
        let Some(Message::Text(line)) = client.message().await else { panic!("the turn goes on") };
        let message: serde_json::Value = serde_json::from_str(line.as_str()).unwrap();
        if message["method"] == "session/request_permission" {
            let outcome = json!({"outcome": {"outcome": "selected", "optionId": "allow-once"}});
            client.reply(&message["id"], outcome).await;
        } else if message.get("method").is_none() && message["id"] == id {
            return message["result"].clone();
        } else {
            client.notices.push(message);
        }
    }
}

#[tokio::test]
async fn metrics_agree_with_the_work_that_was_done() {
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, &[]).await;
    let token = token(&lab, "laptop").await;
    let mut client = daemon.connect("/acp", &token).await.unwrap();
    let before = metrics(&daemon, &token).await;
    let session = client.session(&lab).await;
    assert_eq!(permitted(&mut client, &session, "/say 50").await["stopReason"], "end_turn");
    assert_eq!(permitted(&mut client, &session, "/run touch made.txt").await["stopReason"], "end_turn");
    assert_eq!(answer_text(&client.notices).matches("chunk").count(), 50);
    let cancelled = client.send("session/prompt", text_prompt(&session, "/run touch never.txt")).await;
    while !client.notices.iter().any(|notice| notice["method"] == "session/request_permission") {
        client.hear().await;
    }
    client.send("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(client.answer(cancelled).await.unwrap()["stopReason"], "cancelled");

    assert!(daemon.get("/metrics", "authorization: Bearer zc_wrong").await.starts_with("HTTP/1.1 401"));
    let after = metrics(&daemon, &token).await;
    let grown = |name: &str| after[name] - before[name];
    assert_eq!((after["zeroclaw_sessions"], after["zeroclaw_prompts"]), (1.0, 0.0));
    assert_eq!(after["zeroclaw_gateway_connections"], 1.0);
    assert_eq!(grown("zeroclaw_turns_total{outcome=\"completed\"}"), 2.0);
    assert_eq!(grown("zeroclaw_turns_total{outcome=\"cancelled\"}"), 1.0);
    assert_eq!(grown("zeroclaw_turns_total{outcome=\"failed\"}"), 0.0);
    // Every update but those of now, which are not part of the conversation; and the user's own words, which the client
    // that said them is not sent.
    let of_now = updates_of(&client.notices, "available_commands_update").len();
    let heard: Vec<_> = client.notices.iter().filter(|notice| notice["method"] == "session/update").collect();
    assert_eq!(grown("zeroclaw_updates_total"), (heard.len() - of_now + 3) as f64);
    assert!(grown("zeroclaw_update_bytes_total") > 50.0 * 20.0);
    assert_eq!(after["zeroclaw_output_waiting_bytes"], 0.0);
    assert_eq!(grown("zeroclaw_question_wait_seconds_count"), 2.0);
    assert_eq!(after["zeroclaw_questions_open"], 0.0);
    // One call of the model for each turn, and one more behind each tool that ran.
    assert!(grown("zeroclaw_model_call_seconds_count") >= 3.0, "{after:?}");
    assert!(after["zeroclaw_model_first_event_seconds_sum"] <= after["zeroclaw_model_call_seconds_sum"]);
    // At least the beginning and the end of each turn.
    assert!(grown("zeroclaw_store_commit_seconds_count") >= 6.0, "{after:?}");
    assert!(grown("zeroclaw_store_commit_seconds_sum") > 0.0);
    assert_eq!(grown("zeroclaw_store_failures_total"), 0.0);
    assert_eq!(grown("zeroclaw_gateway_auth_failures_total"), 1.0);
    assert_eq!(grown("zeroclaw_gateway_messages_received_total"), client.sent as f64);
    // What commands there are is told a moment behind `session/new`, which may be now.
    let unread = grown("zeroclaw_gateway_messages_sent_total") - client.received as f64;
    assert!(unread == 0.0 || unread == 1.0, "{unread}");
    assert!(grown("zeroclaw_gateway_received_bytes_total") > 100.0);
    assert!(grown("zeroclaw_gateway_sent_bytes_total") > grown("zeroclaw_update_bytes_total") - 500.0);
}

#[tokio::test]
async fn it_is_ready_while_it_can_store_and_no_longer() {
    let lab = Lab::scripted("supervised", &[]);
    let daemon = Daemon::start(&lab, &[]).await;
    let ready = daemon.get("/ready", "").await;
    assert!(ready.starts_with("HTTP/1.1 200") && ready.ends_with("{\"status\":\"ready\"}\n"), "{ready}");
    // As when a volume goes away under it.
    fs::rename(lab.database(), lab.database().with_extension("gone")).unwrap();
    let unready = async {
        loop {
            let answer = daemon.get("/ready", "").await;
            if answer.starts_with("HTTP/1.1 503") {
                return answer;
            }
        }
    };
    let unready = tokio::time::timeout(std::time::Duration::from_secs(60), unready).await.expect("it notices");
    let body = "{\"status\":\"not ready\",\"why\":\"sessions cannot be stored\"}\n";
    assert!(unready.ends_with(body), "{unready}");
    assert!(daemon.get("/health", "").await.starts_with("HTTP/1.1 200"), "it lives all the same");
}

#[tokio::test]
async fn it_is_not_ready_without_a_store_or_a_model() {
    let lab = Lab::scripted("supervised", &[]);
    // A file where the directory of the sessions should be.
    fs::create_dir_all(lab.config_dir().join("data")).unwrap();
    fs::write(lab.config_dir().join("data/sessions"), "").unwrap();
    let daemon = Daemon::start(&lab, &[]).await;
    let answer = daemon.get("/ready", "").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("sessions cannot be stored"), "{answer}");
    let lab = Lab::with_config(
        "[providers.models.anthropic.x]\nmodel = \"m\"\n[agents.main]\nmodel_provider = \"anthropic.x\"\n",
    );
    let daemon = Daemon::start(&lab, &[]).await;
    let answer = daemon.get("/ready", "").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("the model has no key"), "{answer}");
}
