//! Addresses, secrets and where they come from.

use std::{fs, path::PathBuf, time::Duration};

use zeroclaw_config::Env;

use super::{Arguments, Options, OptionsError, Secret, options};
use crate::openclaw::{Caps, ProvenanceMode, identity::Identity};

fn arguments() -> Arguments {
    Arguments {
        url: None,
        token: None,
        token_file: None,
        password: None,
        password_file: None,
        session: None,
        session_label: None,
        require_existing: false,
        reset_session: false,
        no_prefix_cwd: false,
        provenance: ProvenanceMode::Off,
        admin: false,
        state_dir: Some(PathBuf::from("/nowhere")),
        config_dir: None,
        wait: Duration::ZERO,
        grace: Duration::from_secs(30),
        create_limit: 120,
        caps: Caps::default(),
        verbose: false,
        allow_insecure: false,
        current_dir: None,
    }
}

fn env(pairs: &[(&str, &str)]) -> Env {
    Env::from_os_vars(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())))
}

fn url(url: &str) -> Result<Options, OptionsError> {
    options(Arguments { url: Some(url.to_owned()), ..arguments() }, &env(&[]))
}

#[test]
fn an_address_is_checked() {
    for fine in [
        "ws://127.0.0.1:18789",
        "wss://gateway.example/x",
        "ws://[::1]:1",
        "ws://10.1.2.3",
        "ws://box.local:1",
        "ws://100.64.0.1",
    ] {
        assert!(url(fine).is_ok(), "{fine}");
    }
    assert!(matches!(url("http://127.0.0.1"), Err(OptionsError::Scheme)));
    for secret in
        ["ws://127.0.0.1/?token=x", "ws://127.0.0.1/?a=b&Token=x", "ws://user:pw@127.0.0.1", "wss://h/?password=x"]
    {
        assert!(matches!(url(secret), Err(OptionsError::SecretInUrl)), "{secret}");
    }
}

#[test]
fn sec_13_a_token_does_not_go_in_the_clear_to_far_away() {
    for far in ["ws://gateway.example", "ws://8.8.8.8:18789", "ws://100.128.0.1", "ws://127.0.0.1.example"] {
        assert!(matches!(url(far), Err(OptionsError::Insecure(_))), "{far}");
    }
    let allowed = Arguments { url: Some("ws://gateway.example".to_owned()), allow_insecure: true, ..arguments() };
    assert!(options(allowed, &env(&[])).is_ok());
}

#[test]
fn a_secret_is_given_once() {
    let both = Arguments { token: Some(Secret("t".to_owned())), token_file: Some(PathBuf::from("f")), ..arguments() };
    assert!(matches!(options(both, &env(&[])), Err(OptionsError::Both("--token", "--token-file"))));
}

#[test]
fn gwb_07_a_changed_file_is_a_changed_token() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    fs::write(&file, "one\n").expect("written");
    let identity = Identity::open(dir.path(), 1).expect("made");
    let given = Arguments { token_file: Some(file.clone()), ..arguments() };
    let door = options(given, &env(&[("OPENCLAW_GATEWAY_TOKEN", "other")])).expect("fine").door;
    let token = || door.credentials(&identity, false).map(|credentials| credentials.token);
    assert_eq!(token().expect("read").as_deref(), Some("one"));
    fs::write(&file, "two").expect("written");
    assert_eq!(token().expect("read").as_deref(), Some("two"));
    fs::write(&file, "").expect("written");
    assert!(matches!(token(), Err(OptionsError::SecretFile(_))));
}

#[test]
fn secrets_of_one_gateway_do_not_go_to_another() {
    let dir = tempfile::tempdir().expect("a directory");
    let identity = Identity::open(dir.path(), 1).expect("made");
    let secrets = [("OPENCLAW_GATEWAY_TOKEN", "t")];
    let token = |arguments: Arguments| {
        let door = options(arguments, &env(&secrets)).expect("fine").door;
        door.credentials(&identity, false).expect("read").token
    };
    assert_eq!(token(arguments()).as_deref(), Some("t"));
    assert_eq!(token(Arguments { url: Some("ws://127.0.0.1:1".to_owned()), ..arguments() }), None);
}

#[test]
fn rights_are_asked_for_as_they_were_approved() {
    let dir = tempfile::tempdir().expect("a directory");
    let identity = Identity::open(dir.path(), 1).expect("made");
    let scopes = |admin: bool| {
        let door = options(Arguments { admin, ..arguments() }, &env(&[])).expect("fine").door;
        door.credentials(&identity, false).expect("read").scopes
    };
    assert_eq!(scopes(false), ["operator.read", "operator.write", "operator.approvals"]);
    assert_eq!(scopes(true), ["operator.read", "operator.write", "operator.approvals", "operator.admin"]);
    let kept =
        crate::openclaw::identity::DeviceToken { token: "d".to_owned(), scopes: vec!["operator.write".to_owned()] };
    identity.keep_token(&kept, 2).expect("kept");
    assert_eq!(scopes(false), ["operator.write"]);
    assert_eq!(scopes(true), ["operator.write", "operator.admin"]);
}

#[test]
fn nothing_secret_shows_in_debug_output() {
    let given = Arguments { token: Some(Secret("geheim".to_owned())), ..arguments() };
    let shown = format!("{given:?}");
    let made = options(given, &env(&[])).expect("fine");
    assert!(!format!("{shown}{made:?}").contains("geheim"));
}
