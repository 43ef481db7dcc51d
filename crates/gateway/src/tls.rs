//! TLS of the gateway's own: one certificate that can be exchanged while connections go on.
//! Nothing of it is set up unless files are named.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        version::{TLS12, TLS13},
    },
};

use crate::GatewayError;

/// What is spoken below TLS, the better first. A WebSocket asks for the second by itself.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Where the certificate is.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate and those between it and its authority, in this order, as PEM.
    pub certificate: PathBuf,
    /// The key, as PEM.
    pub key: PathBuf,
}

/// The certificate in use, and where a newer one would be.
pub(crate) struct Tls {
    files: TlsFiles,
    acceptor: Mutex<TlsAcceptor>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files. Blocks.
    pub(crate) fn load(files: TlsFiles) -> Result<Self, GatewayError> {
        let acceptor = Mutex::new(read(&files)?);
        Ok(Self { files, acceptor })
    }

    /// Reads the files again; what cannot be used leaves the certificate as it was. Blocks.
    pub(crate) fn reload(&self) -> Result<(), GatewayError> {
        let read = read(&self.files)?;
        *self.acceptor.lock().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    /// What takes the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(files: &TlsFiles) -> Result<TlsAcceptor, GatewayError> {
    let bad = |path: &Path, why: String| GatewayError::Certificate { path: path.to_owned(), why };
    let unreadable = |error: &dyn std::fmt::Display| bad(&files.certificate, error.to_string());
    let chain = CertificateDer::pem_file_iter(&files.certificate).map_err(|error| unreadable(&error))?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(|error| unreadable(&error))?;
    if chain.is_empty() {
        return Err(bad(&files.certificate, "there is no certificate in it".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad(&files.key, error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| unreadable(&error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unreadable(&error))?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(TlsAcceptor::from(Arc::new(config)))
}
