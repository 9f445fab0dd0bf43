//! What stands in for `quic` in a build without the feature `udp`: the same types as far as other
//! crates name them. No socket can be bound, so no endpoint, listener or connection exists, and
//! their methods are never called.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Transport;

/// An endpoint, of which there is none.
#[derive(Clone)]
pub struct Endpoint(Infallible);

/// A listener, of which there is none.
pub struct QuicListener(Infallible);

/// One end of a QUIC connection, of which there is none.
pub struct Quic(Infallible);

/// The limits of an endpoint; without effect.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuicOptions {
    /// The number of handshakes that may be open.
    pub handshakes: usize,
}

/// Refuses to bind a UDP port.
///
/// # Errors
/// Always `Unsupported`.
pub fn bind(_: SocketAddr) -> io::Result<UdpSocket> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this build of levada has no UDP")
}

impl Endpoint {
    /// Refuses to make an endpoint.
    ///
    /// # Errors
    /// Always `Unsupported`.
    pub fn new(_: UdpSocket, _: QuicOptions) -> io::Result<(Self, QuicListener)> {
        Err(unsupported())
    }

    /// Connects to an address.
    ///
    /// # Errors
    /// None.
    pub async fn connect(&self, _: SocketAddr, _: Duration) -> io::Result<Quic> {
        match self.0 {}
    }
}

impl QuicListener {
    /// Accepts the next connection.
    pub async fn accept(&mut self) -> Option<(Quic, SocketAddr)> {
        match self.0 {}
    }
}

impl Transport for Quic {}

impl AsyncRead for Quic {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl AsyncWrite for Quic {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}
