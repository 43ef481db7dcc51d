//! Who gets in, and how the upgrade is answered.

use crate::lab::{Lab, refused, settings};
use futures::{SinkExt, StreamExt};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use zeroclaw_gateway::{GatewayError, Listener};

#[tokio::test]
async fn a_token_is_taken_from_header_subprotocol_or_address_in_this_order() {
    let lab = Lab::new().await;
    let token = lab.token("laptop");
    let (bearer, protocol, path) =
        (format!("Bearer {token}"), format!("bearer.{token}"), format!("/acp?token={token}"));
    for (path, headers, expect) in [
        ("/acp", vec![], 401),
        ("/acp", vec![("authorization", bearer.as_str())], 101),
        ("/acp", vec![("sec-websocket-protocol", &format!("{protocol}, zeroclaw.acp.v1"))], 101),
        (path.as_str(), vec![], 101),
        ("/acp?token=zc_wrong", vec![("authorization", bearer.as_str())], 101),
        ("/acp?token=zc_wrong", vec![("sec-websocket-protocol", &format!("zeroclaw.acp.v1, {protocol}"))], 101),
        (path.as_str(), vec![("authorization", "Bearer zc_wrong")], 401),
        (path.as_str(), vec![("authorization", "Basic eDp5")], 401),
        (path.as_str(), vec![("sec-websocket-protocol", "bearer.zc_wrong, zeroclaw.acp.v1")], 401),
        ("/acp?token=", vec![], 401),
    ] {
        assert_eq!(lab.status(path, &headers).await, expect, "{path} {headers:?}");
    }
    let operator = format!("Bearer {}", lab.operator_token());
    assert_eq!(lab.status("/acp", &[("authorization", &operator)]).await, 101);
    // Comes at last, because a refusal of a token that is only missing costs nothing.
    let (status, body) = lab.request("GET", "/acp", &[], "").await;
    assert_eq!((status, body.as_str()), (401, "unauthorized\n"));
}

#[tokio::test]
async fn the_upgrade_echoes_our_subprotocol_and_names_the_connection() {
    let lab = Lab::new().await;
    let token = lab.token("laptop");
    let bearer = format!("Bearer {token}");
    let protocols = format!("other, zeroclaw.acp.v1, bearer.{token}");
    let headers = [("authorization", bearer.as_str()), ("sec-websocket-protocol", protocols.as_str())];
    let (_client, response) = lab.try_connect("/acp?agent=coder%20two", &headers).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "zeroclaw.acp.v1");
    let first = response.headers()["acp-connection-id"].to_str().unwrap().to_owned();
    let (_other, response) = lab.try_connect("/acp", &headers[..1]).await.unwrap();
    let second = response.headers()["acp-connection-id"].to_str().unwrap().to_owned();
    assert_eq!((first.len(), first == second), (32, false));
    assert!(!response.headers().contains_key("sec-websocket-protocol"));
    assert_eq!(*lab.seen.agents.lock().unwrap(), [Some("coder two".to_owned()), None]);
}

#[tokio::test]
async fn what_is_no_handshake_is_answered_as_http_has_it() {
    let lab = Lab::with(|settings| settings.require_pairing = false).await;
    let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket")];
    assert_eq!(
        lab.request("GET", "/acp", &[], "").await.0,
        406,
        "neither a WebSocket nor an event stream is asked for"
    );
    let host = lab.address;
    for (rest, expect) in [
        ("sec-websocket-version: 8\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "426"),
        ("sec-websocket-version: 13\r\n", "400"),
        ("sec-websocket-version: 13\r\nsec-websocket-key: short\r\n", "400"),
    ] {
        let lines: String = upgrade.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("GET /acp HTTP/1.1\r\nhost: {host}\r\n{lines}{rest}\r\n");
        let request = request.replace("connection: Upgrade", "connection: close, Upgrade");
        let answer = lab.raw(&request).await;
        assert_eq!(answer.split(' ').nth(1), Some(expect), "{rest}");
    }
    assert_eq!(lab.request("GET", "/nothing", &[], "").await.0, 404);
    assert_eq!(lab.request("PUT", "/pair", &[], "").await.0, 405);
}

#[tokio::test]
async fn gwb_09_a_web_page_of_somebody_else_is_refused_with_a_valid_token() {
    let lab = Lab::with(|settings| settings.allowed_origins = vec!["https://app.example".to_owned()]).await;
    let bearer = format!("Bearer {}", lab.token("laptop"));
    let own = format!("http://{}", lab.address);
    for (origin, expect) in [
        ("https://evil.test", 403),
        ("null", 403),
        ("http://127.0.0.1:1", 403),
        ("https://app.example.evil.test", 403),
        (own.as_str(), 101),
        ("https://app.example", 101),
    ] {
        assert_eq!(lab.status("/acp", &[("authorization", &bearer), ("origin", origin)]).await, expect, "{origin}");
    }
    for (host, expect) in [("evil.test", 403), ("localhost", 101), ("app.example", 101)] {
        assert_eq!(lab.status("/acp", &[("authorization", &bearer), ("host", host)]).await, expect, "{host}");
    }
    for path in ["/health", "/ready", "/metrics"] {
        let headers = [("authorization", bearer.as_str()), ("host", "evil.test")];
        assert_eq!(lab.request("GET", path, &headers, "").await.0, 403, "{path}");
    }
    assert_eq!(lab.request("POST", "/pair", &[("origin", "https://evil.test")], "").await.0, 403);
}

#[tokio::test]
async fn a_browser_is_told_what_pages_of_an_allowed_origin_may_do_and_nothing_of_others() {
    let lab = Lab::with(|settings| settings.allowed_origins = vec!["https://app.example".to_owned()]).await;
    let ask = async |origin: &str| {
        let head =
            format!("OPTIONS /acp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\norigin: {origin}\r\n", lab.address);
        lab.raw(&format!("{head}access-control-request-method: POST\r\n\r\n")).await
    };
    let allowed = ask("https://app.example").await;
    assert!(allowed.starts_with("HTTP/1.1 204"), "{allowed}");
    for line in [
        "access-control-allow-origin: https://app.example",
        "access-control-allow-methods: GET, POST, DELETE",
        "access-control-expose-headers: acp-connection-id",
        "vary: origin",
    ] {
        assert!(allowed.lines().any(|found| found == line), "{line} in {allowed}");
    }
    assert!(allowed.contains("acp-session-id") && allowed.contains("authorization"), "{allowed}");
    let refused = ask("https://evil.test").await;
    assert!(refused.starts_with("HTTP/1.1 4") && !refused.contains("access-control"), "{refused}");
    let head = format!("GET /health HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", lab.address);
    let health = lab.raw(&format!("{head}origin: https://app.example\r\n\r\n")).await;
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("access-control-allow-origin: https://app.example"));
    let health = lab.raw(&format!("{head}\r\n")).await;
    assert!(!health.contains("access-control"), "{health}");
    // Told or not, a request needs its token.
    let call = format!("POST /acp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: 0\r\n", lab.address);
    let call = lab.raw(&format!("{call}origin: https://app.example\r\n\r\n")).await;
    assert!(call.starts_with("HTTP/1.1 401"), "{call}");
}

#[tokio::test]
async fn without_pairing_only_the_loopback_is_let_in() {
    let lab = Lab::with(|settings| settings.require_pairing = false).await;
    assert_eq!(lab.status("/acp", &[]).await, 101);
    assert_eq!(lab.status("/acp", &[("origin", "https://evil.test")]).await, 403);
    let listener = Listener::tcp("0.0.0.0", 0).await.unwrap();
    let mut open = settings(lab.directory.path());
    open.require_pairing = false;
    assert!(matches!(refused(&listener, open).await, GatewayError::OpenToStrangers { .. }));
}

#[tokio::test]
async fn a_taken_port_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = Listener::tcp("127.0.0.1", port).await.unwrap_err();
    assert!(matches!(error, GatewayError::Listen { .. }));
    assert!(error.to_string().contains(&port.to_string()), "{error}");
}

#[tokio::test]
async fn settings_that_mean_nothing_are_refused() {
    let lab = Lab::new().await;
    let listener = Listener::tcp("127.0.0.1", 0).await.unwrap();
    let mut bad = settings(lab.directory.path());
    bad.allowed_origins = vec!["app.example".to_owned()];
    assert!(matches!(refused(&listener, bad).await, GatewayError::BadOrigin { .. }));
    for prefix in ["x", "/x/", "/{x}", "/a//b", "/*"] {
        let mut bad = settings(lab.directory.path());
        bad.path_prefix = prefix.to_owned();
        assert!(matches!(refused(&listener, bad).await, GatewayError::BadPrefix { .. }), "{prefix}");
    }
}

#[tokio::test]
async fn paths_work_with_and_without_their_prefix() {
    let lab = Lab::with(|settings| settings.path_prefix = "/zc/one".to_owned()).await;
    let bearer = format!("Bearer {}", lab.token("laptop"));
    for path in ["/zc/one/acp", "/acp"] {
        assert_eq!(lab.status(path, &[("authorization", &bearer)]).await, 101, "{path}");
    }
    assert_eq!(lab.request("GET", "/zc/one/health", &[], "").await, (200, "{\"status\":\"ok\"}\n".to_owned()));
    assert_eq!(lab.request("GET", "/zc/health", &[], "").await.0, 404);
}

#[tokio::test]
async fn health_is_open_readiness_says_what_is_missing_and_metrics_need_a_token() {
    let lab = Lab::new().await;
    assert_eq!(lab.request("GET", "/health", &[], "").await, (200, "{\"status\":\"ok\"}\n".to_owned()));
    let (status, body) = lab.request("GET", "/ready", &[], "").await;
    assert_eq!((status, body.as_str()), (503, "{\"status\":\"not ready\",\"why\":\"no model\"}\n"));
    assert_eq!(lab.request("GET", "/metrics", &[], "").await.0, 401);
    let token = lab.token("prometheus");
    let mut client = lab.connect(&token).await;
    client.send(Message::text("{}")).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::text("{}"));
    let (status, text) = lab.request("GET", "/metrics", &[("authorization", &format!("Bearer {token}"))], "").await;
    assert_eq!(status, 200);
    for line in [
        "zeroclaw_gateway_connections 1",
        "zeroclaw_gateway_messages_received_total 1",
        "zeroclaw_gateway_messages_sent_total 1",
        "zeroclaw_gateway_auth_failures_total 1",
        "zeroclaw_echo 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert!(!text.contains("zc_"), "no token");
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_domain_socket_is_for_its_owner_and_survives_a_crash() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("zc.sock");
    let first = Listener::unix(&path).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(Listener::unix(&path).await.unwrap_err(), GatewayError::SocketTaken { .. }));
    drop(first);
    assert!(path.exists(), "as a process leaves it that was killed");
    Listener::unix(&path).await.unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    assert!(matches!(Listener::unix(&file).await.unwrap_err(), GatewayError::SocketTaken { .. }));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
}

#[tokio::test]
async fn connections_over_the_limit_are_refused_and_a_freed_place_is_given_again() {
    let lab = Lab::with(|settings| settings.max_connections = 2).await;
    let token = lab.token("laptop");
    let mut first = lab.connect(&token).await;
    let _second = lab.connect(&token).await;
    let bearer = format!("Bearer {token}");
    assert_eq!(lab.status("/acp", &[("authorization", &bearer)]).await, 503);
    first.close(None).await.unwrap();
    while first.next().await.is_some() {}
    lab.seen.wait_for_ends(1).await;
    // The place is free when the gateway has let go of it, right behind the end.
    while lab.status("/acp", &[("authorization", &bearer)]).await != 101 {
        tokio::task::yield_now().await;
    }
}
