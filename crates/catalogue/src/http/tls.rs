//! HTTPS with the operator's certificate, read from PEM files.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

/// The maximum length of a file with certificates or a key, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// Why a certificate cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file does not have the expected PEM section.
    #[error("{} has no {what} in PEM: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The expected section.
        what: &'static str,
        /// The cause.
        source: pem::Error,
    },
    /// Certificate and key do not match, or are not supported.
    #[error("{} with {} cannot be used: {source}", certificate.display(), key.display())]
    Unusable {
        /// The file with the certificates.
        certificate: PathBuf,
        /// The file with the key.
        key: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

/// A certificate chain and its private key.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads a certificate chain, the server's own certificate first, and its private key. Only TLS
    /// 1.3 is offered.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let pem = |path: &Path, what| {
            let path = path.to_owned();
            move |source| TlsError::Pem { path, what, source }
        };
        let text = read(certificate)?;
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(&text).collect();
        let chain = chain.map_err(pem(certificate, "certificate"))?;
        if chain.is_empty() {
            return Err(pem(certificate, "certificate")(pem::Error::NoItemsFound));
        }
        let secret = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(pem(key, "private key"))?;
        let unusable = |source| {
            let certificate = certificate.to_owned();
            let key = key.to_owned();
            TlsError::Unusable { certificate, key, source }
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.0).into()
    }
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsError> {
    let failed = |source| TlsError::Io { path: path.to_owned(), source };
    let mut text = Zeroizing::new(Vec::with_capacity(16 * 1024));
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(failed(io::Error::other(format!("it has more than {MAX_FILE} bytes"))));
    }
    Ok(text)
}
