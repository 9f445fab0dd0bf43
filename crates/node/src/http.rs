//! The HTTP port: `/healthz`, `/readyz`, `/metrics`, and the catalogue if the node keeps one. Read-only.

mod site;

use std::sync::Arc;

use levada_catalogue::http::Tls;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;

use crate::config::{self, TlsFiles};
use crate::error::UpError;
use crate::node::Node;

/// The port, and how it is served.
pub(crate) struct Port {
    pub listener: TcpListener,
    pub tls: Option<Certificate>,
}

/// A certificate, and where it was read from: that is read again on SIGHUP.
pub(crate) struct Certificate {
    tls: Tls,
    files: TlsFiles,
}

impl Certificate {
    /// Reads one.
    ///
    /// # Errors
    /// [`UpError`] names the file.
    pub fn load(files: &TlsFiles) -> Result<Self, UpError> {
        let tls = Tls::load(&files.certificate, &files.key).map_err(UpError::of)?;
        Ok(Self { tls, files: files.clone() })
    }
}

/// Answers until the node stops.
pub(crate) async fn serve(node: Arc<Node>, port: Port, catalogue: config::Catalogue) {
    let handle = node.catalogue.clone();
    site::serve(node, handle, port, catalogue).await;
}

/// Reads the files of a certificate again whenever the node is told to (SIGHUP), and gives `each` what is in them. Never
/// ends.
async fn follow(files: Option<TlsFiles>, each: impl Fn(Tls)) {
    let (Some(files), Ok(mut hangup)) = (files, signal(SignalKind::hangup())) else {
        return std::future::pending().await;
    };
    while hangup.recv().await.is_some() {
        let files = files.clone();
        let load = move || Tls::load(&files.certificate, &files.key);
        match spawn_blocking(load).await {
            Ok(Ok(tls)) => each(tls),
            Ok(Err(error)) => {
                tracing::error!(%error, "the HTTP port keeps the certificate that it has");
            }
            Err(error) => tracing::error!(%error, "the certificate was not read again"),
        }
    }
    std::future::pending().await
}
