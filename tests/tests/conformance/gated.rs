//! The rules about what is sent only to clients that asked for it. Where this server never uses a feature, the client
//! asks for everything, and the conversation shows that it is not used.

use serde_json::{Value, json};

use super::conversation::{assert_rich, everything, kinds, methods, rich};

/// The forms and addresses that a client was asked with.
fn elicitations(messages: &[Value]) -> Vec<&Value> {
    let asked = messages.iter().filter(|message| message["method"] == "elicitation/create");
    asked.map(|message| &message["params"]).collect()
}

#[tokio::test]
async fn eli_1_no_mode_is_used_that_the_client_has_not_advertised() {
    for (capabilities, modes) in [
        (json!({}), [].as_slice()),
        (json!({"elicitation": {}}), &[]),
        (json!({"elicitation": {"form": null, "url": null}}), &[]),
        (json!({"elicitation": {"form": {}}}), &["form"]),
        (json!({"elicitation": {"url": {}}}), &["url"]),
    ] {
        let (_lab, seen) = rich(capabilities.clone()).await;
        assert_rich(&seen);
        for asked in elicitations(&seen) {
            assert!(asked["mode"].as_str().is_some_and(|mode| modes.contains(&mode)), "{capabilities}: {asked}");
        }
    }
}

#[tokio::test]
async fn eli_2_a_question_goes_to_the_connection_of_its_session_only() {
    let lab = crate::turns::builtin("supervised");
    let mut bystander = super::conversation::client(&lab, everything()).await;
    zeroclaw_e2e::new_session(&mut bystander, &lab.project()).await;
    let mut agent = super::conversation::client(&lab, everything()).await;
    let session = zeroclaw_e2e::new_session(&mut agent, &lab.project()).await;
    let (_, seen) = super::conversation::drive(&mut agent, &session, "/ask Which one? | left | right").await;
    let questions = |messages: &[Value]| {
        let asks = |method: &&str| matches!(*method, "elicitation/create" | "session/request_permission");
        methods(messages).into_iter().filter(asks).count()
    };
    assert_eq!(questions(&seen), 1, "{seen:?}");
    for message in seen.iter().filter(|message| message.get("id").is_some()) {
        let scope = &message["params"]["sessionId"];
        assert_eq!(*scope, json!(session), "{message}");
    }
    bystander.close_stdin();
    assert_eq!(questions(&bystander.drain().await), 0);
}

/// Addresses are not used at all, and with them goes all that the rules about addresses forbid.
async fn nothing_by_url() -> Vec<Value> {
    let (_lab, seen) = rich(everything()).await;
    assert_rich(&seen);
    assert!(elicitations(&seen).iter().all(|asked| asked["mode"] == "form"), "{seen:?}");
    assert!(!methods(&seen).contains(&"elicitation/complete"), "nothing is pending that could complete");
    seen
}

#[tokio::test]
async fn eli_3_no_form_asks_for_a_secret() {
    for asked in elicitations(&nothing_by_url().await) {
        let schema = asked["requestedSchema"].to_string().to_lowercase();
        for secret in ["password", "secret", "token", "api key", "api_key", "credential"] {
            assert!(!schema.contains(secret), "{asked}");
        }
    }
}

#[tokio::test]
async fn eli_4_no_credentials_come_back_over_the_protocol() {
    let seen = nothing_by_url().await;
    let all = Value::from(seen).to_string().to_lowercase();
    assert!(!all.contains("access_token") && !all.contains("bearer "), "{all}");
}

#[tokio::test]
async fn eli_6_no_elicitation_is_completed_that_was_not_begun() {
    let seen = nothing_by_url().await;
    assert!(elicitations(&seen).iter().all(|asked| asked.get("elicitationId").is_none()), "{seen:?}");
}

#[tokio::test]
async fn eli_7_no_address_is_handed_out() {
    let seen = nothing_by_url().await;
    assert!(elicitations(&seen).iter().all(|asked| asked.get("url").is_none()), "{seen:?}");
}

#[tokio::test]
async fn eli_8_nobody_can_finish_what_another_began() {
    let seen = nothing_by_url().await;
    // A form is answered on the connection it was asked on; there is no second way to finish it.
    let ids: Vec<&Value> =
        seen.iter().filter(|message| message["method"] == "elicitation/create").map(|message| &message["id"]).collect();
    let unique: std::collections::BTreeSet<String> = ids.iter().map(ToString::to_string).collect();
    assert_eq!(unique.len(), ids.len());
}

/// The kinds of updates of a rich conversation with a client without and with every capability.
async fn kinds_without_and_with() -> (Vec<String>, Vec<String>) {
    let owned = |messages: &[Value]| kinds(messages).into_iter().map(str::to_owned).collect();
    let (_lab, without) = rich(json!({})).await;
    let (_lab, with) = rich(everything()).await;
    assert_rich(&without);
    assert_rich(&with);
    (owned(&without), owned(&with))
}

#[tokio::test]
async fn not_1_no_notice_without_the_capability() {
    let (_lab, seen) = rich(json!({"session": {"notices": null}})).await;
    assert_rich(&seen);
    assert!(!kinds(&seen).contains(&"notice"), "{:?}", kinds(&seen));
}

#[tokio::test]
async fn com_1_no_compaction_update_without_the_capability() {
    let (without, _) = kinds_without_and_with().await;
    assert!(without.iter().all(|kind| !kind.starts_with("compaction")), "{without:?}");
}

#[tokio::test]
async fn plan_2_without_the_capability_a_plan_is_told_in_the_old_way() {
    let (without, with) = kinds_without_and_with().await;
    assert!(without.iter().all(|kind| kind != "plan_update" && kind != "plan_removed"), "{without:?}");
    assert!(without.iter().any(|kind| kind == "plan"), "{without:?}");
    assert!(with.iter().any(|kind| kind == "plan" || kind == "plan_update"), "{with:?}");
}

#[tokio::test]
async fn sub_1_no_child_session_speaks_before_it_is_announced() {
    let (without, with) = kinds_without_and_with().await;
    let is_child = |kind: &String| kind.starts_with("subagent") || kind.starts_with("session_message");
    assert!(!without.iter().any(is_child), "{without:?}");
    let first = with.iter().find(|kind| is_child(kind));
    assert!(first.is_none_or(|kind| kind == "subagent_update"), "{with:?}");
}
