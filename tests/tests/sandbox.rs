//! The sandbox through the built server: on without being asked for, an error where it was asked for and is missing.

#![cfg(target_os = "linux")]

use serde_json::json;
use zeroclaw_e2e::{Lab, answer_text, initialize, prompt};

/// Whether anything can be confined here; where it must be, a system that cannot is a failure.
pub(crate) async fn confines() -> bool {
    let doctor = Lab::new().command("zeroclaw").arg("doctor").output().await.unwrap();
    if String::from_utf8_lossy(&doctor.stdout).contains("landlock ABI") {
        return true;
    }
    assert!(
        std::env::var_os("ZEROCLAW_REQUIRE_SANDBOX").is_none(),
        "ZEROCLAW_REQUIRE_SANDBOX is set, and there is none"
    );
    eprintln!("SKIPPED, AS NOTHING CAN BE CONFINED HERE");
    false
}

/// A sandbox that was configured and is missing silently became none.
#[tokio::test]
async fn a_configured_sandbox_that_is_missing_opens_no_session() {
    let lab = Lab::with_config("[sandbox]\nbackend = \"seatbelt\"\n");
    let mut agent = lab.start();
    initialize(&mut agent).await;
    let error = agent.call("session/new", json!({"cwd": lab.project(), "mcpServers": []})).await.unwrap_err();
    assert_eq!(error["code"], -32603);
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("the configured sandbox `seatbelt` cannot be used here"), "{message}");
}

/// At every level a command keeps off our own configuration, and what it leaves in its temporary directory goes with the session.
#[tokio::test]
async fn commands_are_confined_without_being_asked_to() {
    if !confines().await {
        return;
    }
    let config = "[autonomy]\nlevel = \"full\"\n";
    let lab = Lab::with_config(config);
    let (mut agent, session) = lab.session().await;
    // Named plainly the rules refuse the file; the kernel does not care how it is named.
    let command = "d=$(printf .zero; printf claw); touch $TMPDIR/left && echo $TMPDIR >place; \
                   cat ~/$d/config.toml; echo x >>~/$d/config.toml";
    prompt(&mut agent, &session, &format!("/run {command}")).await;
    let said = answer_text(&agent.received()) + &json!(agent.received()).to_string();
    assert!(said.contains("Permission denied") && !said.contains("level = "), "{said}");
    assert_eq!(std::fs::read_to_string(lab.config_dir().join("config.toml")).unwrap(), config);
    let place = std::fs::read_to_string(lab.project().join("place")).unwrap();
    assert!(std::path::Path::new(place.trim()).join("left").exists(), "{place}");
    agent.call("session/close", json!({"sessionId": session})).await.unwrap();
    assert!(!std::path::Path::new(place.trim()).exists(), "{place}");
}
