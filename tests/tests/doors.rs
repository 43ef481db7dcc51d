//! The doors of a daemon besides plain HTTP: TLS of its own, and a Unix domain socket.

use std::{fs, os::unix::fs::PermissionsExt as _};

use rustix::process::Signal;
use serde_json::json;
use tokio::net::UnixStream;
use tokio_tungstenite::{
    client_async,
    tungstenite::{Error, client::IntoClientRequest},
};
use zeroclaw_e2e::{Lab, answer_text, initialize, new_session, prompt};
use zeroclaw_testkit::process::AgentProcess;

use crate::daemon::{Daemon, token};

/// A pair for `localhost` that protects nothing.
const CERTIFICATE: [&str; 2] = [
    include_str!("../../crates/gateway/tests/gateway/certificates/one.crt.pem"),
    include_str!("../../crates/gateway/tests/gateway/certificates/one.key.pem"),
];
const OTHER: [&str; 2] = [
    include_str!("../../crates/gateway/tests/gateway/certificates/two.crt.pem"),
    include_str!("../../crates/gateway/tests/gateway/certificates/two.key.pem"),
];

fn write(lab: &Lab, [certificate, key]: [&str; 2]) {
    fs::write(lab.config_dir().join("crt.pem"), certificate).unwrap();
    fs::write(lab.config_dir().join("key.pem"), key).unwrap();
}

/// A lab whose daemon has a certificate of its own.
fn encrypted() -> Lab {
    let lab = Lab::new();
    let directory = lab.config_dir();
    lab.write_config(&format!(
        "[gateway]\ntls_certificate = \"{0}/crt.pem\"\ntls_key = \"{0}/key.pem\"\n",
        directory.display()
    ));
    write(&lab, CERTIFICATE);
    lab
}

/// A bridge over TLS that trusts this certificate and nothing else.
fn bridge(lab: &Lab, daemon: &Daemon, trusted: &str) -> AgentProcess {
    let port = daemon.address.rsplit(':').next().unwrap();
    let mut command = lab.command("zeroclaw-acp-bridge");
    command.args(["--url", &format!("wss://localhost:{port}/acp"), "--reconnect-secs", "1", "--wait-secs", "1"]);
    command.env("SSL_CERT_FILE", lab.file("trusted.pem", trusted));
    AgentProcess::spawn(command)
}

#[tokio::test]
async fn a_daemon_with_a_certificate_serves_websockets_over_tls_and_exchanges_it_on_a_hangup() {
    let lab = encrypted();
    let mut daemon = Daemon::start(&lab, &["--log-level", "info"]).await;
    let mut client = bridge(&lab, &daemon, CERTIFICATE[0]);
    initialize(&mut client).await;
    let session = new_session(&mut client, &lab.project()).await;
    assert_eq!(prompt(&mut client, &session, "/say 3").await["stopReason"], "end_turn");
    assert_eq!(answer_text(&client.received()), "chunk 1 chunk 2 chunk 3 ");
    write(&lab, OTHER);
    daemon.signal(Signal::HUP);
    daemon.logged("the certificate was read again").await;
    assert_eq!(prompt(&mut client, &session, "/say 1").await["stopReason"], "end_turn", "who is in stays in");
    let mut other = bridge(&lab, &daemon, OTHER[0]);
    initialize(&mut other).await;
    let mut distrusting = bridge(&lab, &daemon, CERTIFICATE[0]);
    let refused = distrusting.call("initialize", json!({"protocolVersion": 1})).await;
    assert!(refused.is_err(), "the first certificate is not in use any more");
    write(&lab, [OTHER[0], CERTIFICATE[1]]);
    daemon.signal(Signal::HUP);
    daemon.logged("the certificate stays as it was").await;
    initialize(&mut bridge(&lab, &daemon, OTHER[0])).await;
}

#[tokio::test]
async fn half_a_certificate_is_an_error() {
    let lab = Lab::with_config("[gateway]\ntls_certificate = \"/nowhere/crt.pem\"\n");
    let output = lab.command("zeroclaw").args(["daemon", "--port", "0"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("`gateway.tls_certificate` needs `gateway.tls_key`"), "{error}");
}

#[tokio::test]
async fn a_unix_domain_socket_is_for_its_owner_who_still_needs_a_token() {
    let lab = Lab::new();
    let path = lab.home().join("zc.sock");
    lab.write_config(&format!("[gateway]\nunix_socket = \"{}\"\n", path.display()));
    let daemon = Daemon::start(&lab, &[]).await;
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let connect = async |bearer: String| {
        let mut request = "ws://localhost/acp".into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {bearer}").parse().unwrap());
        client_async(request, UnixStream::connect(&path).await.unwrap()).await
    };
    let refused = connect("zc_wrong".to_owned()).await.expect_err("a wrong token");
    assert!(matches!(refused, Error::Http(response) if response.status() == 401));
    let operator = fs::read_to_string(lab.config_dir().join("acp-bridge-token")).unwrap();
    for bearer in [operator, token(&lab, "laptop").await] {
        connect(bearer).await.expect("a token of ours");
    }
    // One that was killed leaves its socket, and the next one takes its place.
    daemon.kill().await;
    assert!(path.exists());
    let again = Daemon::start(&lab, &[]).await;
    let operator = fs::read_to_string(lab.config_dir().join("acp-bridge-token")).unwrap();
    connect(operator).await.expect("the new one listens");
    again.signal(Signal::TERM);
    let gone = async {
        while path.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.expect("it takes its socket with it");
}
