//! QUIC as a transport: two endpoints on loopback, and peers that do not keep to the protocol.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod closing;
mod hostile;
mod streams;

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use levada_transport::Quic;
use levada_transport::quic::{Endpoint, QuicListener, QuicOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// An endpoint that accepts connections.
fn listening(options: QuicOptions) -> (Endpoint, QuicListener, SocketAddr) {
    let (endpoint, listener) = Endpoint::new(socket(), options).unwrap();
    let address = endpoint.local_address().unwrap();
    (endpoint, listener, address)
}

/// An endpoint that only connects.
fn connecting() -> Endpoint {
    connecting_with(QuicOptions::default())
}

fn connecting_with(options: QuicOptions) -> Endpoint {
    Endpoint::new(socket(), QuicOptions { handshakes: 0, ..options }).unwrap().0
}

/// Both ends of a transport; the first byte was exchanged.
async fn pair(options: QuicOptions) -> (Quic, Quic, QuicListener) {
    let (_, mut listener, address) = listening(options);
    let mut near = connecting_with(options).connect(address, LIMIT).await.unwrap();
    near.write_all(b"!").await.unwrap();
    let (mut far, _) = within(listener.accept()).await.unwrap();
    assert_eq!(far.read_u8().await.unwrap(), b'!');
    (near, far, listener)
}

/// Waits for `future`, and fails the test instead of hanging.
async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future).await.expect("the test hangs")
}

/// Bytes that show a wrong order.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}
