//! The listener of the HTTP port, and its certificate.

use levada_catalogue::http::Tls;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;

use crate::error::UpError;
use levada_config::TlsFiles;

/// The listener of the port, and its certificate.
pub(crate) struct Port {
    pub listener: TcpListener,
    pub tls: Option<Certificate>,
}

/// A certificate with its files, which are read again on SIGHUP.
pub(crate) struct Certificate {
    pub(super) tls: Tls,
    pub(super) files: TlsFiles,
}

impl Certificate {
    /// Reads a certificate.
    ///
    /// # Errors
    /// [`UpError`] names the file.
    pub fn load(files: &TlsFiles) -> Result<Self, UpError> {
        let tls = Tls::load(&files.certificate, &files.key).map_err(UpError::of)?;
        Ok(Self { tls, files: files.clone() })
    }
}

/// Reads the files of a certificate again on each SIGHUP, and passes it to `replace`. Does not
/// return.
pub(super) async fn reload_on_hangup(files: Option<TlsFiles>, replace: impl Fn(Tls)) {
    let (Some(files), Ok(mut hangup)) = (files, signal(SignalKind::hangup())) else {
        return std::future::pending().await;
    };
    while hangup.recv().await.is_some() {
        let files = files.clone();
        let load = move || Tls::load(&files.certificate, &files.key);
        match spawn_blocking(load).await {
            Ok(Ok(tls)) => replace(tls),
            Ok(Err(error)) => {
                tracing::error!(%error, "could not read the certificate of the HTTP port again; the old one stays in use");
            }
            Err(error) => {
                tracing::error!(%error, "could not read the certificate of the HTTP port again")
            }
        }
    }
    std::future::pending().await
}
