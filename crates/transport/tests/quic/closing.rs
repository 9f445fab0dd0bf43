//! The end of a transport.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use levada_transport::quic::QuicOptions;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{LIMIT, connecting, connecting_with, listening, pair, pattern, socket, within};

#[tokio::test]
async fn what_was_written_arrives_after_the_transport_is_dropped() {
    let (mut near, mut far, _listener) = pair(QuicOptions::default()).await;
    let bytes = pattern(60_000);
    near.write_all(&bytes).await.unwrap();
    let started = poll_fn(|cx| Poll::Ready(Pin::new(&mut near).poll_shutdown(cx))).await;
    assert!(started.is_pending());
    drop(near);
    let mut received = Vec::new();
    within(far.read_to_end(&mut received)).await.unwrap();
    assert!(received == bytes);
}

#[tokio::test]
async fn bytes_are_readable_after_the_other_side_has_closed() {
    let (mut near, mut far, _listener) = pair(QuicOptions::default()).await;
    let bytes = pattern(50_000);
    near.write_all(&bytes).await.unwrap();
    // Complete when all bytes are acknowledged; the far end has not read them.
    within(near.shutdown()).await.unwrap();
    drop(near);
    // The far end has received the close when it can no longer write.
    while within(far.write(b"x")).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut received = Vec::new();
    within(far.read_to_end(&mut received)).await.unwrap();
    assert!(received == bytes);
}

#[tokio::test]
async fn a_dropped_transport_is_a_reset_and_not_an_end() {
    let (mut near, mut far, _listener) = pair(QuicOptions::default()).await;
    near.write_all(b"begun").await.unwrap();
    drop(near);
    let mut received = Vec::new();
    assert!(within(far.read_to_end(&mut received)).await.is_err());
    assert!(within(far.shutdown()).await.is_err());
}

#[tokio::test]
async fn shutting_down_twice_is_harmless() {
    let (mut near, mut far, _listener) = pair(QuicOptions::default()).await;
    within(near.shutdown()).await.unwrap();
    within(near.shutdown()).await.unwrap();
    assert_eq!(within(far.read(&mut [0; 8])).await.unwrap(), 0);
    assert!(near.write(b"late").await.is_err());
}

/// Passes datagrams between a client and `server` while `open`.
fn relay(server: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let near = socket();
    let far = socket();
    let address = near.local_addr().unwrap();
    far.connect(server).unwrap();
    let open = Arc::new(AtomicBool::new(true));
    let pass = {
        let open = open.clone();
        move |from: UdpSocket, send: &dyn Fn(&[u8])| {
            let mut buffer = [0; 2048];
            while let Ok(length) = from.recv(&mut buffer) {
                if !open.load(Ordering::Relaxed) {
                    return;
                }
                send(&buffer[..length]);
            }
        }
    };
    let client = Arc::new(std::sync::Mutex::new(None));
    let to_client = near.try_clone().unwrap();
    let back = far.try_clone().unwrap();
    let known = client.clone();
    let pass_back = pass.clone();
    std::thread::spawn(move || {
        pass_back(back, &|bytes| {
            let client: Option<SocketAddr> = *known.lock().unwrap();
            let _ = to_client.send_to(bytes, client.unwrap());
        });
    });
    std::thread::spawn(move || {
        let mut first = [0; 2048];
        let (length, from) = near.recv_from(&mut first).unwrap();
        *client.lock().unwrap() = Some(from);
        far.send(&first[..length]).unwrap();
        pass(near, &|bytes| {
            let _ = far.send(bytes);
        });
    });
    (address, open)
}

#[tokio::test]
async fn a_peer_that_vanishes_is_an_error_and_not_an_end() {
    let options = QuicOptions { idle_timeout: Duration::from_secs(1), ..QuicOptions::default() };
    let (_, mut listener, address) = listening(options);
    let (relayed, open) = relay(address);
    let mut near = within(connecting().connect(relayed, LIMIT)).await.unwrap();
    near.write_all(b"here").await.unwrap();
    let (mut far, _) = within(listener.accept()).await.unwrap();
    far.read_exact(&mut [0; 4]).await.unwrap();
    open.store(false, Ordering::Relaxed);
    let error = within(far.read(&mut [0; 8])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(within(far.shutdown()).await.is_err());
}

#[tokio::test]
async fn connecting_to_an_endpoint_that_accepts_nothing_times_out() {
    let silent = connecting_with(QuicOptions::default());
    let address = silent.local_address().unwrap();
    let error = connecting().connect(address, Duration::from_millis(500)).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}
