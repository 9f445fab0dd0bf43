//! A session over QUIC, also where datagrams are lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use levada_core::{SecretKey, SystemRandom};
use levada_session::{
    Class, ClientConfig, Connection, Options, ServerConfig, SessionError, accept, connect,
};
use levada_transport::quic::{Endpoint, QuicListener, QuicOptions};
use tokio::time::timeout;

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// Two keys.
fn keys() -> (SecretKey, SecretKey) {
    (SecretKey::generate(&SystemRandom).unwrap(), SecretKey::generate(&SystemRandom).unwrap())
}

/// A listening endpoint and its address.
fn listening() -> (QuicListener, SocketAddr) {
    let (endpoint, listener) = Endpoint::new(socket(), QuicOptions::default()).unwrap();
    (listener, endpoint.local_address().unwrap())
}

/// Both ends of a session, whose client dials `address`.
async fn connections(listener: &mut QuicListener, address: SocketAddr) -> (Connection, Connection) {
    let (client, server) = keys();
    let near = async {
        let options = QuicOptions { handshakes: 0, ..QuicOptions::default() };
        let (endpoint, _) = Endpoint::new(socket(), options).unwrap();
        let quic = endpoint.connect(address, LIMIT).await.unwrap();
        let config = ClientConfig::new(&client).unwrap();
        connect(Box::new(quic), &config, Some(server.identity()), Options::default()).await
    };
    let far = async {
        let (quic, _) = listener.accept().await.unwrap();
        let config = ServerConfig::new(&server).unwrap();
        accept(Box::new(quic), &config, Options::default()).await
    };
    let (near, far) = timeout(LIMIT, async { tokio::join!(near, far) }).await.unwrap();
    let near = near.unwrap();
    let far = far.unwrap();
    assert_eq!((near.peer(), far.peer()), (server.identity(), client.identity()));
    (near, far)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// Sends `bytes` both ways, compares what arrives, and closes.
async fn exchange(client: Connection, server: Connection, bytes: usize) {
    let message = Arc::new(pattern(bytes));
    let near_message = message.clone();
    let near = async {
        let (mut send, mut receive) = client.open(Class::Bulk).unwrap().split();
        let sending = async {
            for part in near_message.chunks(64 * 1024) {
                send.send(part).await.unwrap();
            }
            send.finish().await.unwrap();
        };
        let receiving = async {
            let mut all = Vec::new();
            while let Some(part) = receive.receive(64 * 1024).await.unwrap() {
                all.extend(part);
            }
            all
        };
        tokio::join!(sending, receiving).1
    };
    let far = async {
        let (mut send, mut receive) = server.accept().await.unwrap().split();
        let mut all = Vec::new();
        while let Some(part) = receive.receive(64 * 1024).await.unwrap() {
            send.send(&part).await.unwrap();
            all.extend(part);
        }
        send.finish().await.unwrap();
        all
    };
    let (near, far) = timeout(LIMIT, async { tokio::join!(near, far) }).await.unwrap();
    assert!(near == *message && far == *message);
    client.close(7, "all done");
    let reason = timeout(LIMIT, server.closed()).await.unwrap();
    assert_eq!(reason, SessionError::ClosedByPeer { code: 7, reason: "all done".into() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_carries_ten_megabytes_both_ways() {
    let (mut listener, address) = listening();
    let (client, server) = connections(&mut listener, address).await;
    exchange(client, server, 10_000_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_survives_lost_and_repeated_datagrams() {
    let (mut listener, address) = listening();
    let relayed = lossy_relay(address);
    let (client, server) = connections(&mut listener, relayed).await;
    exchange(client, server, 1_000_000).await;
}

#[tokio::test]
async fn a_client_rejects_another_identity() {
    let (mut listener, address) = listening();
    let (client, server) = keys();
    let (expected, _) = keys();
    tokio::spawn(async move {
        let (quic, _) = listener.accept().await.unwrap();
        let config = ServerConfig::new(&server).unwrap();
        let _ = accept(Box::new(quic), &config, Options::default()).await;
    });
    let options = QuicOptions { handshakes: 0, ..QuicOptions::default() };
    let (endpoint, _) = Endpoint::new(socket(), options).unwrap();
    let quic = endpoint.connect(address, LIMIT).await.unwrap();
    let config = ClientConfig::new(&client).unwrap();
    let connecting =
        connect(Box::new(quic), &config, Some(expected.identity()), Options::default());
    let error = timeout(LIMIT, connecting).await.unwrap().err().unwrap();
    assert!(matches!(error, SessionError::WrongPeer { .. }), "{error}");
}

/// Passes datagrams on to `server`, and back; loses one of 50 and repeats one of 50.
fn lossy_relay(server: SocketAddr) -> SocketAddr {
    let near = socket();
    let far = socket();
    far.connect(server).unwrap();
    let address = near.local_addr().unwrap();
    let client: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
    let back = far.try_clone().unwrap();
    let to_client = near.try_clone().unwrap();
    let known = client.clone();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        let mut count = 0_u64;
        while let Ok(length) = back.recv(&mut buffer) {
            let Some(client) = *known.lock().unwrap() else { continue };
            count += 1;
            for _ in 0..copies(count) {
                let _ = to_client.send_to(&buffer[..length], client);
            }
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        let mut count = 0_u64;
        while let Ok((length, from)) = near.recv_from(&mut buffer) {
            *client.lock().unwrap() = Some(from);
            count += 1;
            for _ in 0..copies(count) {
                let _ = far.send(&buffer[..length]);
            }
        }
    });
    address
}

/// How often the datagram with this number is passed on.
fn copies(number: u64) -> usize {
    // The multiplier spreads the numbers, so that losses are not periodic.
    match number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 {
        hash if hash % 50 == 0 => 0,
        hash if hash % 50 == 1 => 2,
        _ => 1,
    }
}
