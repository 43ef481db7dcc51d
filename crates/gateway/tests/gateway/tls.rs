//! TLS: WebSockets through it, a certificate that is exchanged, and files that cannot be used.

use std::{fs, path::Path, sync::Arc};

use futures::{SinkExt, StreamExt};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest},
};
use zeroclaw_gateway::{GatewayError, Listener, TlsFiles};

use crate::lab::Lab;

const ONE: [&str; 2] = [include_str!("certificates/one.crt.pem"), include_str!("certificates/one.key.pem")];
const TWO: [&str; 2] = [include_str!("certificates/two.crt.pem"), include_str!("certificates/two.key.pem")];

fn files(directory: &Path) -> TlsFiles {
    TlsFiles { certificate: directory.join("crt.pem"), key: directory.join("key.pem") }
}

fn write(directory: &Path, [certificate, key]: [&str; 2]) {
    let files = files(directory);
    fs::write(files.certificate, certificate).unwrap();
    fs::write(files.key, key).unwrap();
}

async fn lab(directory: &Path) -> Lab {
    write(directory, ONE);
    let listener = Listener::tcp("127.0.0.1", 0).await.unwrap();
    assert!(!listener.is_encrypted());
    let listener = listener.with_tls(files(directory)).await.unwrap();
    assert!(listener.is_encrypted());
    Lab::on(listener, |_| {}).await
}

/// Shakes hands with a gateway whose certificate has to be this one.
async fn shaken(lab: &Lab, trusted: &str, protocols: &[&[u8]]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(lab.address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

async fn connected(lab: &Lab, trusted: &str, token: &str) -> WebSocketStream<TlsStream<TcpStream>> {
    let stream = shaken(lab, trusted, &[b"http/1.1"]).await.unwrap();
    let mut request = format!("wss://localhost:{}/acp", lab.address.port()).into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    client_async(request, stream).await.unwrap().0
}

async fn echoed(client: &mut WebSocketStream<TlsStream<TcpStream>>, text: &str) {
    client.send(Message::text(text)).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::text(text));
}

#[tokio::test]
async fn websockets_go_through_it_and_plain_words_do_not() {
    let directory = TempDir::new().unwrap();
    let lab = lab(directory.path()).await;
    let mut client = connected(&lab, ONE[0], &lab.token("laptop")).await;
    echoed(&mut client, "hello").await;
    // HTTP/2 is there for those who ask for it.
    let stream = shaken(&lab, ONE[0], &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut stream = shaken(&lab, ONE[0], &[]).await.unwrap();
    let request =
        format!("GET /health HTTP/1.1\r\nhost: localhost:{}\r\nconnection: close\r\n\r\n", lab.address.port());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // No answer in plain text, which somebody on the way could have written.
    let mut plain = TcpStream::connect(lab.address).await.unwrap();
    plain.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A reset is as good an end.
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test]
async fn a_certificate_is_exchanged_while_connections_go_on() {
    let directory = TempDir::new().unwrap();
    let lab = lab(directory.path()).await;
    let token = lab.token("laptop");
    let mut before = connected(&lab, ONE[0], &token).await;
    assert!(shaken(&lab, TWO[0], &[]).await.is_err(), "it is the first one");
    write(directory.path(), TWO);
    assert!(lab.gateway.reload_certificate().await.unwrap());
    let mut after = connected(&lab, TWO[0], &token).await;
    assert!(shaken(&lab, ONE[0], &[]).await.is_err(), "it is the second one");
    echoed(&mut before, "still here").await;
    echoed(&mut after, "here too").await;
    // The key of another: the one that works stays.
    write(directory.path(), [TWO[0], ONE[1]]);
    assert!(matches!(lab.gateway.reload_certificate().await, Err(GatewayError::Certificate { .. })));
    let mut again = connected(&lab, TWO[0], &token).await;
    echoed(&mut again, "as before").await;
    assert!(!Lab::new().await.gateway.reload_certificate().await.unwrap(), "there is none");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_and_not_repeated() {
    let directory = TempDir::new().unwrap();
    let secret = ONE[1].lines().nth(1).unwrap();
    for [certificate, key] in [["", ONE[1]], [ONE[1], ONE[1]], [ONE[0], ""], [ONE[0], ONE[0]], [ONE[0], TWO[1]]] {
        write(directory.path(), [certificate, key]);
        let listener = Listener::tcp("127.0.0.1", 0).await.unwrap();
        let error = listener.with_tls(files(directory.path())).await.expect_err("refused");
        let text = format!("{error} {error:?}");
        assert!(text.contains(".pem") && !text.contains(secret), "{text}");
    }
    let missing = TlsFiles { certificate: directory.path().join("none"), key: directory.path().join("key.pem") };
    let error = Listener::tcp("127.0.0.1", 0).await.unwrap().with_tls(missing).await.expect_err("refused");
    assert!(error.to_string().contains("none"), "{error}");
}
