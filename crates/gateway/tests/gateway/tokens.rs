//! Tokens: what is kept of them, and how they end.

use std::sync::atomic::Ordering;

use futures::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::{Message, protocol::frame::coding::CloseCode};
use zeroclaw_gateway::{GatewayError, Listener, StateError, TokenStore};

use crate::lab::{Client, LIMIT, Lab, refused, settings};

async fn close_code(client: &mut Client) -> CloseCode {
    loop {
        match tokio::time::timeout(LIMIT, client.next()).await.expect("the connection is cut") {
            Some(Ok(Message::Close(Some(frame)))) => return frame.code,
            Some(Ok(Message::Ping(_))) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until the use of the only token is in the file: nothing writes there then.
async fn noted(lab: &Lab) {
    let noted = async {
        while lab.tokens().list().unwrap()[0].last_used_ms != Some(1_000_000) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, noted).await.expect("noted");
}

#[tokio::test]
async fn a_revoked_token_cuts_its_connections_and_no_others() {
    let lab = Lab::new().await;
    let (gone, stays) = (lab.token("gone"), lab.token("stays"));
    let (mut cut, mut other) = (lab.connect(&gone).await, lab.connect(&stays).await);
    lab.tokens().revoke("gone").unwrap();
    assert_eq!(close_code(&mut cut).await, CloseCode::Library(4401));
    assert_eq!(lab.status("/acp", &[("authorization", &format!("Bearer {gone}"))]).await, 401);
    other.send(Message::text("here")).await.unwrap();
    assert_eq!(other.next().await.unwrap().unwrap(), Message::text("here"));
}

#[tokio::test]
async fn gwb_07_a_rotated_token_works_at_once_and_the_old_one_does_not() {
    let lab = Lab::new().await;
    let old = lab.token("laptop");
    let mut client = lab.connect(&old).await;
    let new = lab.tokens().rotate("laptop", &lab.world()).unwrap();
    assert_eq!(new.record.name, "laptop");
    assert_eq!(lab.status("/acp", &[("authorization", &format!("Bearer {}", new.token.expose()))]).await, 101);
    assert_eq!(lab.status("/acp", &[("authorization", &format!("Bearer {old}"))]).await, 401);
    assert_eq!(close_code(&mut client).await, CloseCode::Library(4401));
}

#[tokio::test]
async fn a_token_ends_in_time() {
    let lab = Lab::new().await;
    let now = lab.clock.load(Ordering::SeqCst);
    let token = lab.tokens().create("guest", Some(now + 1000), &lab.world()).unwrap().token;
    let mut client = lab.connect(token.expose()).await;
    lab.clock.fetch_add(1000, Ordering::SeqCst);
    assert_eq!(close_code(&mut client).await, CloseCode::Library(4401));
    assert_eq!(lab.status("/acp", &[("authorization", &format!("Bearer {}", token.expose()))]).await, 401);
}

#[tokio::test]
async fn only_digests_are_kept_and_nobody_else_can_read_them() {
    let lab = Lab::new().await;
    let token = lab.token("laptop");
    assert_eq!(token.len(), 3 + 43, "256 bits");
    drop(lab.connect(&token).await);
    noted(&lab).await;
    let mut text = String::new();
    for entry in std::fs::read_dir(lab.directory.path()).unwrap() {
        let path = entry.unwrap().path();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "{}", path.display());
        }
        text.push_str(&std::fs::read_to_string(&path).unwrap());
    }
    assert!(!text.contains(&token[3..]));
    assert!(!text.contains(&token));
    assert!(text.contains("sha256"));
    let record = &lab.tokens().list().unwrap()[0];
    let printed = format!("{record:?}");
    assert!(!printed.contains(&token) && printed.contains("***"), "{printed}");
}

#[tokio::test]
async fn the_last_use_is_kept() {
    let lab = Lab::new().await;
    let token = lab.token("laptop");
    let _client = lab.connect(&token).await;
    noted(&lab).await;
}

#[tokio::test]
async fn the_operators_token_is_new_at_each_start() {
    let first = Lab::new().await;
    let old = first.operator_token();
    let listener = Listener::tcp("127.0.0.1", 0).await.unwrap();
    let mut bad = settings(first.directory.path());
    bad.path_prefix = "bad".to_owned();
    refused(&listener, bad).await;
    assert_eq!(first.operator_token(), old, "a gateway that does not open changes nothing");
    let second = Lab::new().await;
    assert_ne!(second.operator_token(), old);
}

#[tokio::test]
async fn names_are_unique_and_an_id_is_as_good() {
    let lab = Lab::new().await;
    let store = lab.tokens();
    let first = store.create(" laptop ", None, &lab.world()).unwrap().record;
    assert_eq!(first.name, "laptop");
    assert!(matches!(store.create("laptop", None, &lab.world()), Err(StateError::NameTaken { .. })));
    for name in ["", "  ", "a\nb", &"x".repeat(65)] {
        assert!(matches!(store.create(name, None, &lab.world()), Err(StateError::BadName)), "{name:?}");
    }
    assert!(matches!(store.revoke("other"), Err(StateError::NotFound { .. })));
    assert_eq!(store.revoke(&first.id).unwrap().id, first.id);
    assert!(store.list().unwrap().is_empty());
}

#[tokio::test]
async fn a_damaged_file_is_named_and_kept_and_lets_nobody_in() {
    let lab = Lab::new().await;
    let token = lab.token("laptop");
    let mut client = lab.connect(&token).await;
    noted(&lab).await;
    let path = lab.directory.path().join("tokens.json");
    std::fs::write(&path, "{ \"tokens\": 3").unwrap();
    assert_eq!(close_code(&mut client).await, CloseCode::Library(4401));
    assert_eq!(lab.status("/acp", &[("authorization", &format!("Bearer {token}"))]).await, 503);
    let operator = format!("Bearer {}", lab.operator_token());
    assert_eq!(lab.status("/acp", &[("authorization", &operator)]).await, 101, "the operator can still come in");
    assert!(matches!(lab.tokens().create("x", None, &lab.world()), Err(StateError::Damaged { .. })));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{ \"tokens\": 3");
    let listener = Listener::tcp("127.0.0.1", 0).await.unwrap();
    let error = refused(&listener, settings(lab.directory.path())).await;
    assert!(matches!(error, GatewayError::State(StateError::Damaged { .. })));
    assert!(error.to_string().contains("tokens.json"), "{error}");
}

#[test]
fn writers_in_different_places_lose_nothing() {
    let directory = tempfile::TempDir::new().unwrap();
    let clock = std::sync::Arc::default();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let (path, clock) = (directory.path(), &clock);
            scope.spawn(move || {
                for number in 0..8 {
                    let store = TokenStore::in_directory(path);
                    store.create(&format!("{writer}-{number}"), None, &crate::lab::world(clock)).unwrap();
                }
            });
        }
    });
    assert_eq!(TokenStore::in_directory(directory.path()).list().unwrap().len(), 64);
}
