//! Public faults of gateways and their tokens that must not happen here, on the built daemon.

use std::{fs, os::unix::fs::PermissionsExt as _};

use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use zeroclaw_e2e::Lab;

use crate::daemon::{Daemon, printed, token};

/// The status of an upgrade with these headers.
async fn upgrade(daemon: &Daemon, path: &str, headers: &[(&str, &str)]) -> u16 {
    let mut text = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        .to_owned();
    if !headers.iter().any(|(name, _)| *name == "host") {
        text.push_str(&format!("host: {}\r\n", daemon.address));
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    daemon.status_of(&format!("GET {path} HTTP/1.1\r\n{text}\r\n")).await
}

/// A token that was rotated or revoked stayed valid as long as the process lived.
#[tokio::test]
async fn gwb_07_a_rotated_token_counts_at_once_and_its_old_connections_are_cut() {
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, &[]).await;
    let old = token(&lab, "laptop").await;
    let mut client = daemon.connect("/acp", &old).await.unwrap();
    let new = printed(&lab, &["tokens", "rotate", "laptop"]).await;
    assert_ne!(new, old);
    assert_eq!(upgrade(&daemon, "/acp", &[("authorization", &format!("Bearer {new}"))]).await, 101);
    assert_eq!(upgrade(&daemon, "/acp", &[("authorization", &format!("Bearer {old}"))]).await, 401);
    assert_eq!(client.close_code().await, Some(CloseCode::Library(4401)));
}

/// A page of any site could drive the agent on the same machine, and a name of its own that points here got around `Origin`.
#[tokio::test]
async fn gwb_09_only_named_origins_and_hosts_come_in_and_only_with_a_token() {
    let lab = Lab::with_config("[gateway]\nallowed_origins = [\"https://app.example\"]\n");
    let daemon = Daemon::start(&lab, &[]).await;
    let bearer = format!("Bearer {}", token(&lab, "laptop").await);
    let authorized = ("authorization", bearer.as_str());
    assert_eq!(upgrade(&daemon, "/acp", &[authorized]).await, 101);
    assert_eq!(upgrade(&daemon, "/acp", &[]).await, 401);
    for origin in ["https://evil.test", "null", "http://127.0.0.1:1", "https://app.example.evil.test", "file://"] {
        assert_eq!(upgrade(&daemon, "/acp", &[authorized, ("origin", origin)]).await, 403, "{origin}");
    }
    assert_eq!(upgrade(&daemon, "/acp", &[authorized, ("origin", "https://app.example")]).await, 101);
    assert_eq!(upgrade(&daemon, "/acp", &[("origin", "https://app.example")]).await, 401, "an origin is no token");
    for host in ["evil.test", "127.0.0.1.evil.test", "192.168.0.1"] {
        assert_eq!(upgrade(&daemon, "/acp", &[authorized, ("host", host)]).await, 403, "{host}");
    }
    // What is refused costs nobody a wait: it was no guess.
    assert_eq!(upgrade(&daemon, "/acp", &[authorized]).await, 101);
}

/// Every device had the token that stood in the public source.
#[tokio::test]
async fn sec_15_a_fresh_installation_has_a_token_of_its_own_that_nobody_can_guess() {
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let lab = Lab::new();
        let daemon = Daemon::start(&lab, &[]).await;
        let path = lab.config_dir().join("acp-bridge-token");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let operator = fs::read_to_string(path).unwrap();
        // Base 64 without padding: 43 letters are 256 bits.
        let random = operator.strip_prefix("zc_").unwrap();
        assert_eq!(random.len(), 43);
        assert!(random.bytes().collect::<std::collections::BTreeSet<_>>().len() > 12, "not one letter again and again");
        for default in ["zeroclaw", "clawbox"] {
            assert_eq!(upgrade(&daemon, "/acp", &[("authorization", &format!("Bearer {default}"))]).await, 401);
        }
        assert_eq!(upgrade(&daemon, "/acp?token=changeme", &[]).await, 401);
        tokens.push(operator);
    }
    assert_ne!(tokens[0], tokens[1]);
}

/// Codes have eight letters: without delays and an end somebody tries them all.
#[tokio::test]
async fn a_code_is_not_found_by_trying_from_many_addresses() {
    let lab = Lab::with_config("[gateway]\ntrust_forwarded_headers = true\n");
    let daemon = Daemon::start(&lab, &[]).await;
    let pair = async |code: &str, peer: &str| {
        let head = format!("POST /pair HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", daemon.address);
        daemon
            .status_of(&format!("{head}x-pairing-code: {code}\r\nx-forwarded-for: {peer}\r\ncontent-length: 0\r\n\r\n"))
            .await
    };
    // From one address: four are free, then each makes the next one wait.
    let code = printed(&lab, &["pair"]).await;
    let tries: Vec<u16> = [pair("AAAAAAAA", "10.1.1.1").await, pair("AAAAAAAB", "10.1.1.1").await].into();
    assert_eq!(tries, [401, 401]);
    for number in 0..3 {
        assert_eq!(pair(&format!("AAAAAA2{number}"), "10.1.1.1").await, 401);
    }
    assert_eq!(pair(&code, "10.1.1.1").await, 429, "not even the right one is looked at");
    assert_eq!(pair(&code, "10.1.1.2").await, 200, "another address has its own count");
    // From many: ten wrong ones end a code, and everybody who was never let in is slowed down.
    let code = printed(&lab, &["pair"]).await;
    let mut slowed = false;
    for number in 0..200 {
        match pair("AAAAAAAA", &format!("10.2.{number}.1")).await {
            401 => {}
            429 => {
                slowed = true;
                break;
            }
            other => panic!("{other}"),
        }
    }
    assert!(slowed, "two hundred addresses guess at full speed");
    assert_eq!(pair(&code, "10.1.1.2").await, 401, "who was let in is looked at, but the code is void");
    let bearer = format!("Bearer {}", token(&lab, "laptop").await);
    let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", "10.1.1.2")];
    assert_eq!(upgrade(&daemon, "/acp", &headers).await, 101, "who was let in before comes in all the while");
}
