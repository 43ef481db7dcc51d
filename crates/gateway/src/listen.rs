//! Where connections come from, and how they all end: TCP or a Unix domain socket, one HTTP connection per client.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
};

use crate::{
    Gateway, GatewayError,
    auth::Peer,
    http,
    tls::{Tls, TlsFiles},
};

/// How long nothing is accepted after the system refused: it is out of file descriptors, and asking again at once would
/// only take its time.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// HTTP/2 streams of one client at once: its event streams, and requests beside them.
const MAX_STREAMS: u32 = 128;

/// Where the gateway listens.
#[derive(Debug)]
pub struct Listener {
    inner: Inner,
    tls: Option<Arc<Tls>>,
}

#[derive(Debug)]
enum Inner {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix {
        listener: tokio::net::UnixListener,
        path: PathBuf,
    },
}

impl Listener {
    /// Listens on a name or address and a port; 0 lets the system choose.
    ///
    /// # Errors
    /// The port is taken, or the name is unknown.
    pub async fn tcp(host: &str, port: u16) -> Result<Self, GatewayError> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let bound = TcpListener::bind((host, port)).await;
        let listener = bound.map_err(|source| GatewayError::Listen { place: format!("{host} port {port}"), source })?;
        Ok(Self { inner: Inner::Tcp(listener), tls: None })
    }

    /// Listens on a Unix domain socket that only this user can open. A socket that a dead process left is replaced.
    ///
    /// # Errors
    /// Something else is there, or the system refuses.
    #[cfg(unix)]
    pub async fn unix(path: &Path) -> Result<Self, GatewayError> {
        use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};

        let failed = |source| GatewayError::Listen { place: format!("`{}`", path.display()), source };
        if let Ok(metadata) = tokio::fs::symlink_metadata(path).await {
            let dead = metadata.file_type().is_socket() && tokio::net::UnixStream::connect(path).await.is_err();
            if !dead {
                return Err(GatewayError::SocketTaken { path: path.to_owned() });
            }
            tokio::fs::remove_file(path).await.map_err(failed)?;
        }
        let listener = tokio::net::UnixListener::bind(path).map_err(failed)?;
        tokio::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).await.map_err(failed)?;
        Ok(Self { inner: Inner::Unix { listener, path: path.to_owned() }, tls: None })
    }

    /// The same with TLS.
    ///
    /// # Errors
    /// The certificate cannot be used.
    pub async fn with_tls(self, files: TlsFiles) -> Result<Self, GatewayError> {
        let path = files.certificate.clone();
        let loaded = tokio::task::spawn_blocking(move || Tls::load(files)).await;
        let tls = loaded.map_err(|error| GatewayError::Certificate { path, why: error.to_string() })??;
        Ok(Self { tls: Some(Arc::new(tls)), ..self })
    }

    /// Whether clients speak TLS to it.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// The address, where it is one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.inner {
            Inner::Tcp(listener) => listener.local_addr().ok(),
            #[cfg(unix)]
            Inner::Unix { .. } => None,
        }
    }

    /// Whether only this machine can come in. A socket in the file system has permissions of its own.
    pub(crate) fn is_local(&self) -> bool {
        self.address().is_none_or(|address| address.ip().to_canonical().is_loopback())
    }

    /// Whether browsers can come in.
    pub(crate) fn is_loopback_address(&self) -> bool {
        self.address().is_some_and(|address| address.ip().to_canonical().is_loopback())
    }
}

/// Accepts until `stop` resolves; waits for `drain`, then closes every connection and returns when all are gone.
pub(crate) async fn run(
    gateway: &Arc<Gateway>,
    listener: Listener,
    stop: impl Future<Output = ()>,
    drain: impl Future<Output = ()>,
) {
    let router = http::router(gateway);
    let slots = Arc::new(Semaphore::new(gateway.settings().max_connections));
    // Every connection holds a sender; when the last is dropped, all are gone.
    let (alive, mut gone) = mpsc::channel::<()>(1);
    tokio::pin!(stop);
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&slots).acquire_owned() => permit,
            () = &mut stop => break,
        };
        let Ok(permit) = permit else { break };
        let accepted = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok(Accepted::Tcp(stream, address)) => {
                // Small messages go out at once.
                let _ = stream.set_nodelay(true);
                notice_silence(&stream, gateway.settings().periods.dead);
                let peer = Peer::of(address);
                let held = Held { closing: gateway.closing(), _permit: permit, _alive: alive.clone() };
                tokio::spawn(greet(listener.tls(), stream, peer, router.clone(), held));
            }
            #[cfg(unix)]
            Ok(Accepted::Unix(stream)) => {
                let held = Held { closing: gateway.closing(), _permit: permit, _alive: alive.clone() };
                tokio::spawn(greet(listener.tls(), stream, Peer::Local, router.clone(), held));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
        }
    }
    match listener.inner {
        Inner::Tcp(listener) => drop(listener),
        #[cfg(unix)]
        Inner::Unix { listener, path } => {
            drop(listener);
            // Whoever comes next replaces it anyway.
            let _ = tokio::fs::remove_file(path).await;
        }
    }
    drain.await;
    gateway.close();
    drop(alive);
    let all_gone = async {
        while gone.recv().await.is_some() {}
        gateway.emptied().await;
    };
    // Connections end by themselves in this time; one that does not must not hold up the end of the process.
    if tokio::time::timeout(4 * gateway.settings().periods.patience, all_gone).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
}

/// Has the system give up a connection whose peer acknowledges nothing for this long; by itself it takes a quarter of an
/// hour, in which an event stream to a peer that is gone would count as one that is read.
#[cfg(target_os = "linux")]
fn notice_silence(stream: &tokio::net::TcpStream, dead: Duration) {
    let millis = u32::try_from(dead.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(stream, millis) {
        tracing::debug!(%error, "a peer that is gone is noticed late");
    }
}

#[cfg(not(target_os = "linux"))]
fn notice_silence(_: &tokio::net::TcpStream, _: Duration) {}

enum Accepted {
    Tcp(tokio::net::TcpStream, IpAddr),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

async fn accept(listener: &Listener) -> io::Result<Accepted> {
    match &listener.inner {
        Inner::Tcp(listener) => {
            let (stream, address) = listener.accept().await?;
            Ok(Accepted::Tcp(stream, address.ip()))
        }
        #[cfg(unix)]
        Inner::Unix { listener, .. } => Ok(Accepted::Unix(listener.accept().await?.0)),
    }
}

/// What a connection has of the gateway's: given back when it is dropped.
struct Held {
    closing: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
    _alive: mpsc::Sender<()>,
}

/// Shakes hands where TLS is spoken, and serves.
async fn greet<I>(tls: Option<Arc<Tls>>, io: I, peer: Peer, router: Router, mut held: Held)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(tls) = tls else { return serve(io, peer, router, held).await };
    let shaken = tokio::select! {
        // Whoever connects and says nothing is gone after this.
        shaken = tokio::time::timeout(http::REQUEST_PATIENCE, tls.acceptor().accept(io)) => shaken,
        () = async { drop(held.closing.wait_for(|closing| *closing).await) } => return,
    };
    match shaken {
        Ok(Ok(io)) => serve(io, peer, router, held).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn serve<I>(io: I, peer: Peer, router: Router, mut held: Held)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let patience = http::REQUEST_PATIENCE;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Whoever connects and says nothing is gone after this.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(patience);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
    let service = TowerToHyperService::new(router.layer(axum::Extension(peer)));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = async { drop(held.closing.wait_for(|closing| *closing).await) } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}
