//! The stream, and its limits.

use std::time::Duration;

use levada_transport::Transport;
use levada_transport::quic::{Congestion, QuicOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{connecting, listening, pair, pattern, within};

#[tokio::test]
async fn bytes_arrive_in_order_both_ways() {
    let (near, mut far, _listener) = pair(QuicOptions::default()).await;
    far.limit_unread(None);
    let bytes = pattern(3_000_000);
    let echo = tokio::spawn(async move {
        let (mut read, mut write) = tokio::io::split(far);
        tokio::io::copy(&mut read, &mut write).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let (mut read, mut write) = tokio::io::split(near);
    let sent = bytes.clone();
    let send = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
        write
    });
    let mut received = Vec::new();
    within(read.read_to_end(&mut received)).await.unwrap();
    assert!(received == bytes);
    send.await.unwrap();
    echo.await.unwrap();
}

#[tokio::test]
async fn every_controller_carries_bytes() {
    use Congestion::{Bbr, Cubic, NewReno, Tolerant};
    for congestion in [Tolerant, Cubic, NewReno, Bbr] {
        let options = QuicOptions { congestion, ..QuicOptions::default() };
        let (mut near, mut far, _listener) = pair(options).await;
        let bytes = pattern(200_000);
        let sent = bytes.clone();
        let send = tokio::spawn(async move {
            near.write_all(&sent).await.unwrap();
            near.shutdown().await.unwrap();
        });
        let mut received = Vec::new();
        within(far.read_to_end(&mut received)).await.unwrap();
        assert!(received == bytes, "{congestion:?}");
        send.await.unwrap();
    }
}

#[tokio::test]
async fn a_peer_that_is_not_read_can_send_little() {
    let (mut near, mut far, _listener) = pair(QuicOptions::default()).await;
    // What the near end accepts beyond its limit on unsent bytes is in flight or at the far end.
    near.limit_unsent(Some(16 * 1024));
    let part = vec![0; 16 * 1024];
    let mut written = 0;
    while let Ok(length) = timeout(Duration::from_millis(500), near.write(&part)).await {
        written += length.unwrap();
        assert!(written < 1024 * 1024, "a peer sends without limit");
    }
    // The window of a peer that has proved more.
    far.limit_unread(None);
    let send = tokio::spawn(async move {
        near.write_all(&vec![0; 1024 * 1024]).await.unwrap();
        near
    });
    let mut left = written + 1024 * 1024;
    let mut buffer = vec![0; 64 * 1024];
    while left > 0 {
        left -= within(far.read(&mut buffer)).await.unwrap();
    }
    send.await.unwrap();
}

#[tokio::test]
async fn a_limited_rate_still_delivers() {
    let (mut near, mut far, _listener) = pair(QuicOptions::default()).await;
    near.limit_rate(Some(1_000_000));
    let send = tokio::spawn(async move {
        near.write_all(&vec![1; 100_000]).await.unwrap();
        near.limit_rate(None);
        near.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    within(far.read_to_end(&mut received)).await.unwrap();
    assert_eq!(received.len(), 100_000);
    send.await.unwrap();
}

#[tokio::test]
async fn one_endpoint_connects_and_accepts() {
    let (first, mut of_first, first_address) = listening(QuicOptions::default());
    let (second, mut of_second, second_address) = listening(QuicOptions::default());
    for (from, to, address) in
        [(&first, &mut of_second, second_address), (&second, &mut of_first, first_address)]
    {
        let mut near = within(from.connect(address, super::LIMIT)).await.unwrap();
        near.write_all(b"x").await.unwrap();
        let (mut far, source) = within(to.accept()).await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'x');
        assert_eq!(source, from.local_address().unwrap());
    }
}

#[tokio::test]
async fn a_listener_ends_with_its_endpoint() {
    let (endpoint, mut listener, address) = listening(QuicOptions::default());
    endpoint.close();
    assert!(within(listener.accept()).await.is_none());
    assert!(connecting().connect(address, Duration::from_millis(500)).await.is_err());
}
