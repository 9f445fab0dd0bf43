//! When `closed` of a stream resolves, and when it does not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::future::Future;
use std::time::Duration;

use levada_session::testing::{connections, pair};
use levada_session::{Class, Connection, Options, SessionError, Stream, StreamError};
use tokio::time::{sleep, timeout};

/// Waits for `future` to be woken, and fails the test instead of hanging. `timeout` would poll it
/// once more at the end, and so hide a lost wake-up.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        () = sleep(Duration::from_secs(30)) => panic!("the future was not woken"),
        value = future => value,
    }
}

/// Polls `future` once, so that it is registered; true if it is pending.
async fn is_pending(future: &mut (impl Future<Output = StreamError> + Unpin)) -> bool {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())
    })
    .await
}

/// The two ends of a stream, and of its connection.
async fn connected_pair() -> ((Connection, Stream), (Connection, Stream)) {
    let (client, server) = connections(Options::default()).await.unwrap();
    let mut near = client.open(Class::Bulk).unwrap();
    near.send(b"").await.unwrap();
    let mut far = server.accept().await.unwrap();
    far.receive(0).await.unwrap();
    ((client, near), (server, far))
}

#[tokio::test]
async fn it_resolves_with_the_code_of_the_peers_reset_without_a_read() {
    let (near, mut far) = pair().await.unwrap();
    far.send(b"unread").await.unwrap();
    let mut closed = near.closed();
    assert!(is_pending(&mut closed).await);
    far.reset(42);
    assert_eq!(within(closed).await, StreamError::Reset(42));
    // Afterwards it resolves at once, for every half.
    assert_eq!(within(near.closed()).await, StreamError::Reset(42));
    let (send, receive) = near.split();
    assert_eq!(within(send.closed()).await, StreamError::Reset(42));
    assert_eq!(within(receive.closed()).await, StreamError::Reset(42));
}

#[tokio::test]
async fn it_resolves_when_the_peer_drops_a_stream_that_it_had_finished() {
    let ((client, mut near), (_server, mut far)) = connected_pair().await;
    far.send(b"last").await.unwrap();
    far.finish().await.unwrap();
    let mut closed = near.closed();
    assert!(is_pending(&mut closed).await);
    drop(far);
    assert_eq!(within(closed).await, StreamError::Reset(0));
    assert!(client.is_open());
    // What the peer had finished is complete, and still readable.
    assert_eq!(within(near.receive(10)).await, Ok(Some(b"last".to_vec())));
    assert_eq!(within(near.receive(10)).await, Ok(None));
}

#[tokio::test]
async fn it_resolves_while_a_write_waits_for_credit() {
    let (near, far) = pair().await.unwrap();
    let (mut send, _receive) = near.split();
    let closed = send.closed();
    let writer = tokio::spawn(async move { send.send(&vec![0; 4 << 20]).await });
    let waiter = tokio::spawn(closed);
    sleep(Duration::from_millis(20)).await;
    let (mut far_send, _far_receive) = far.split();
    far_send.reset(9);
    assert_eq!(within(waiter).await.unwrap(), StreamError::Reset(9));
    assert_eq!(within(writer).await.unwrap(), Err(StreamError::Reset(9)));
}

#[tokio::test]
async fn it_resolves_with_the_end_of_the_connection() {
    let ((client, near), (server, far)) = connected_pair().await;
    let mut near_closed = near.closed();
    let mut far_closed = far.closed();
    assert!(is_pending(&mut near_closed).await && is_pending(&mut far_closed).await);
    server.close(5, "done");
    let ended = SessionError::ClosedByPeer { code: 5, reason: "done".into() };
    assert_eq!(within(near_closed).await, StreamError::Connection(ended));
    assert_eq!(within(far_closed).await, StreamError::Connection(SessionError::Closed));
    assert!(!client.is_open());
}

#[tokio::test]
async fn it_stays_pending_while_both_halves_work_and_when_both_directions_finish() {
    let ((client, near), (_server, mut far)) = connected_pair().await;
    let mut closed = near.closed();
    let (mut send, mut receive) = near.split();
    for round in 0..50 {
        assert!(is_pending(&mut closed).await);
        send.send(&[round; 1000]).await.unwrap();
        let message = within(far.receive(1000)).await.unwrap().unwrap();
        far.send(&message).await.unwrap();
        assert_eq!(within(receive.receive(1000)).await, Ok(Some(vec![round; 1000])));
    }
    far.finish().await.unwrap();
    assert_eq!(within(receive.receive(0)).await, Ok(None));
    assert!(is_pending(&mut closed).await);
    send.finish().await.unwrap();
    assert_eq!(within(far.receive(0)).await, Ok(None));
    drop(far);
    assert!(is_pending(&mut closed).await);
    assert_eq!((receive.lost(), client.is_open()), (None, true));
    // The future does not keep the stream in use.
    drop((send, receive));
    assert_eq!(within(closed).await, StreamError::Finished);
    assert_eq!(client.streams(), 0);
}

#[tokio::test]
async fn it_resolves_when_this_side_resets() {
    let (near, _far) = pair().await.unwrap();
    let aborter = near.aborter();
    let closed = tokio::spawn(near.closed());
    tokio::task::yield_now().await;
    aborter.reset(3);
    assert_eq!(within(closed).await.unwrap(), StreamError::Reset(3));

    let (near, _far) = pair().await.unwrap();
    let (send, receive) = near.split();
    let closed = tokio::spawn(receive.closed());
    tokio::task::yield_now().await;
    drop(send);
    assert_eq!(within(closed).await.unwrap(), StreamError::Reset(0));
}

#[tokio::test]
async fn finishing_within_a_message_wakes_the_waiting_reader_and_closed() {
    let (near, _far) = pair().await.unwrap();
    let (mut send, mut receive) = near.split();
    let closed = tokio::spawn(send.closed());
    let reader = tokio::spawn(async move { receive.receive(10).await });
    send.write(b"half", false).await.unwrap();
    sleep(Duration::from_millis(20)).await;
    assert_eq!(send.finish().await, Err(StreamError::Reset(0)));
    assert_eq!(within(closed).await.unwrap(), StreamError::Reset(0));
    assert_eq!(within(reader).await.unwrap(), Err(StreamError::Reset(0)));
}

#[tokio::test]
async fn many_tasks_may_wait_and_a_cancelled_wait_can_be_repeated() {
    let (near, mut far) = pair().await.unwrap();
    for _ in 0..100 {
        let mut cancelled = near.closed();
        assert!(is_pending(&mut cancelled).await);
    }
    let tasks: Vec<_> = (0..20).map(|_| tokio::spawn(near.closed())).collect();
    let aborted = tokio::spawn(near.closed());
    tokio::task::yield_now().await;
    aborted.abort();
    assert!(timeout(Duration::from_millis(20), near.closed()).await.is_err());
    far.reset(1);
    for task in tasks {
        assert_eq!(within(task).await.unwrap(), StreamError::Reset(1));
    }
    assert_eq!(within(near.closed()).await, StreamError::Reset(1));
}

#[tokio::test]
async fn the_future_keeps_the_connection_no_longer_open() {
    let ((client, near), (server, far)) = connected_pair().await;
    let closed = near.closed();
    drop((near, client));
    within(server.closed()).await;
    assert!(matches!(within(closed).await, StreamError::Finished | StreamError::Connection(_)));
    drop(far);
}
