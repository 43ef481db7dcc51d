//! The HTTP clients, built when first needed, and the one request that every vendor's call is.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use futures::StreamExt;
use reqwest::{Client, Proxy, RequestBuilder, Response, Url, header::HeaderMap, redirect};
use tokio::{task::spawn_blocking, time::timeout};

use crate::model::{
    ModelError,
    vendor::{ApiKey, VendorConfig, failure},
};

/// The HTTP clients of the process. Cloning shares them. Nothing is set up before the first request.
#[derive(Clone, Debug)]
pub struct HttpClients {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    https_proxy: Option<String>,
    clock: fn() -> SystemTime,
    /// Knows no certificates, so that a local model works where there are none, and at once.
    plain: OnceLock<Client>,
    tls: OnceLock<Client>,
}

impl HttpClients {
    /// Makes the clients. The proxy is for `https` addresses that are not on this machine; plain `http`, which is what
    /// models on the local network speak, is never sent through one. The clock reads dates in `Retry-After`.
    #[must_use]
    pub fn new(https_proxy: Option<String>, clock: fn() -> SystemTime) -> Self {
        Self { shared: Arc::new(Shared { https_proxy, clock, plain: OnceLock::new(), tls: OnceLock::new() }) }
    }

    /// The client for this address.
    pub(crate) async fn client(&self, url: &Url) -> Result<Client, ModelError> {
        let tls = url.scheme() == "https";
        let proxied = tls && !is_local(url);
        let cell = if tls { &self.shared.tls } else { &self.shared.plain };
        if let Some(client) = cell.get() {
            return Ok(client.clone());
        }
        let proxy = self.shared.https_proxy.clone().filter(|_| proxied);
        // Reading the system's certificates takes a while.
        let built = spawn_blocking(move || build(tls, proxy)).await;
        let client =
            built.map_err(|_| ModelError::Config("setting up the HTTP client was interrupted".to_owned()))??;
        Ok(cell.get_or_init(|| client).clone())
    }

    /// Sends a JSON body and waits for the beginning of a good answer.
    pub(super) async fn post(
        &self,
        config: &VendorConfig,
        url: Url,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response, ModelError> {
        let client = self.client(&url).await?;
        self.send(config, client.post(url).headers(headers).header("content-type", "application/json").body(body)).await
    }

    /// Asks for something and waits for the beginning of a good answer.
    pub(super) async fn get(
        &self,
        config: &VendorConfig,
        url: Url,
        headers: HeaderMap,
    ) -> Result<Response, ModelError> {
        let client = self.client(&url).await?;
        self.send(config, client.get(url).headers(headers)).await
    }

    async fn send(&self, config: &VendorConfig, request: RequestBuilder) -> Result<Response, ModelError> {
        let key = config.api_key.as_ref();
        let sent = request.send();
        let idle = || ModelError::Idle(config.idle_timeout.as_secs());
        let response = timeout(config.idle_timeout, sent).await.map_err(|_| idle())?;
        let response = response.map_err(|error| failure::unreachable(error, key))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let wait = failure::retry_after(response.headers(), (self.shared.clock)());
        let text = timeout(config.idle_timeout, error_body(response)).await.unwrap_or_default();
        Err(failure::Said::parse(&text).after_status(status, wait, key))
    }

    /// The clock that dates are compared with.
    pub(super) fn now(&self) -> SystemTime {
        (self.shared.clock)()
    }
}

/// The configured address with this path at its end. What users write is taken as meant: with or without the final
/// slash, the version or the whole path of the call.
pub(super) fn address(config: &VendorConfig, version: &str, call: &str) -> Result<Url, ModelError> {
    let wrong =
        |problem: &str| ModelError::Config(format!("the uri of {}.{} {problem}", config.family.as_str(), config.alias));
    let text = config.uri.as_deref().or(config.family.default_uri()).ok_or_else(|| wrong("is missing"))?;
    let mut url = Url::parse(text.trim()).map_err(|_| wrong("is not an address"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong("is not an http or https address"));
    }
    let path = url.path().trim_end_matches('/');
    let base = path.strip_suffix(call).unwrap_or(path).trim_end_matches('/');
    let base = if base.is_empty() && !version.is_empty() { format!("/{version}") } else { base.to_owned() };
    url.set_path(&format!("{base}/{call}"));
    Ok(url)
}

/// Whether the address is this machine.
fn is_local(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

fn build(tls: bool, proxy: Option<String>) -> Result<Client, ModelError> {
    // Somebody else in the process may have installed one already; any will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let wrong = |error: reqwest::Error| {
        ModelError::Config(format!("the HTTP client cannot be set up: {}", failure::chain(&error.without_url(), None)))
    };
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .user_agent(concat!("zeroclaw-acp/", env!("CARGO_PKG_VERSION")));
    if let Some(proxy) = proxy {
        builder = builder.proxy(Proxy::https(&proxy).map_err(wrong)?);
    }
    if !tls {
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(wrong)
}

/// The beginning of an error's body.
async fn error_body(response: Response) -> Vec<u8> {
    let mut body = response.bytes_stream();
    let mut text = Vec::new();
    while let Some(Ok(bytes)) = body.next().await {
        let room = MAX_ERROR_BYTES - text.len();
        text.extend(bytes.iter().take(room));
        if text.len() == MAX_ERROR_BYTES {
            break;
        }
    }
    text
}

/// A header with a key in it; never shown by anything that prints headers.
pub(super) fn secret_header(value: &str) -> Result<reqwest::header::HeaderValue, ModelError> {
    let mut header = reqwest::header::HeaderValue::from_str(value)
        .map_err(|_| ModelError::Config("the api key has characters that no header can carry".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// `Authorization: Bearer`, when there is a key.
pub(super) fn bearer(key: Option<&ApiKey>) -> Result<HeaderMap, ModelError> {
    let mut headers = HeaderMap::new();
    if let Some(key) = key.map(|key| key.expose().trim()).filter(|key| !key.is_empty()) {
        headers.insert(reqwest::header::AUTHORIZATION, secret_header(&format!("Bearer {key}"))?);
    }
    Ok(headers)
}

/// An error's text is cut to a kilobyte later; JSON around it may be longer. The rest is not read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// A host that does not take a connection for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
