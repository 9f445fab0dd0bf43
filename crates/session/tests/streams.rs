//! Streams over a real handshake, in memory and over TCP.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::IpAddr;
use std::time::Duration;

use levada_core::{Framing, SecretKey, SystemRandom};
use levada_session::testing::{connections, pair};
use levada_session::{
    Budget, Class, ClientConfig, Options, ServerConfig, SessionError, StreamError, accept, connect,
    first_record,
};
use levada_transport::{Tcp, connect_tcp};
use tokio::net::TcpListener;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}

#[tokio::test]
async fn messages_of_every_length_keep_their_boundaries() {
    for framing in [Framing::Auto, Framing::Block(64), Framing::Block(4096)] {
        let options = Options { framing, ..Options::default() };
        let (client, server) = connections(options).await.unwrap();
        assert_eq!(server.framing(), framing);
        let mut near = client.open(Class::Interactive).unwrap();
        let lengths = [0, 1, 63, 64, 255, 4096, 16_384, 100_000, 3_000_000];
        let sender = tokio::spawn(async move {
            for length in lengths {
                near.send(&pattern(length)).await.unwrap();
            }
            near.finish().await.unwrap();
            near
        });
        let mut far = server.accept().await.unwrap();
        for length in lengths {
            assert_eq!(far.receive(4_000_000).await.unwrap(), Some(pattern(length)));
        }
        assert_eq!(far.receive(1).await.unwrap(), None);
        drop(sender.await.unwrap());
    }
}

/// Short messages fill records in runs, and the long one in the middle needs more credit than a
/// stream has at first.
#[tokio::test]
async fn send_all_keeps_the_order_and_the_boundaries() {
    let (mut near, mut far) = pair().await.unwrap();
    let messages: Vec<_> =
        (0..5000).map(|n| pattern(if n == 2500 { 1_000_000 } else { n % 300 })).collect();
    let sent = messages.clone();
    let sender = tokio::spawn(async move {
        near.send_all(&sent).await.unwrap();
        near.send_all::<&[u8]>(&[]).await.unwrap();
        near.finish().await.unwrap();
        near
    });
    for message in &messages {
        assert_eq!(far.receive(1_000_000).await.unwrap().as_ref(), Some(message));
    }
    assert_eq!(far.receive(1).await.unwrap(), None);
    drop(sender.await.unwrap());
}

/// What was accepted of a cancelled call arrives; after a part of a message nothing may follow.
#[tokio::test]
async fn a_cancelled_send_all_ends_the_stream_only_within_a_message() {
    let (mut near, mut far) = pair().await.unwrap();
    let messages = [vec![1; 10], vec![2; 4_000_000]];
    tokio::select! {
        biased;
        sent = near.send_all(&messages) => panic!("{sent:?} without credit"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(far.receive(10).await.unwrap(), Some(vec![1; 10]));
    assert_eq!(near.send(b"next").await, Err(StreamError::Finished));
    assert!(matches!(far.receive(4_000_000).await, Err(StreamError::Reset(_))));
}

#[tokio::test]
async fn a_message_longer_than_allowed_is_refused() {
    let (mut near, mut far) = pair().await.unwrap();
    near.send(&[7; 100]).await.unwrap();
    assert_eq!(far.receive(99).await, Err(StreamError::TooLong(99)));
}

#[tokio::test]
async fn a_message_can_be_peeked_and_consumed_in_parts() {
    let (near, far) = pair().await.unwrap();
    let (mut send, _near) = near.split();
    let (_far, mut receive) = far.split();
    send.write(b"ab", false).await.unwrap();
    assert_eq!(receive.peek().await, Ok(Some((&b"ab"[..], false))));
    receive.consume(1);
    assert_eq!(receive.peek().await, Ok(Some((&b"b"[..], false))));
    receive.consume(1);
    send.write(b"", true).await.unwrap();
    assert_eq!(receive.peek().await, Ok(Some((&b""[..], true))));
    receive.consume(0);
    send.finish().await.unwrap();
    assert_eq!(receive.peek().await, Ok(None));
    // Consuming peeked bytes releases credit: more data passes than any window holds.
    let (near, far) = pair().await.unwrap();
    let (mut send, _near) = near.split();
    let (_far, mut receive) = far.split();
    let all = pattern(20_000_000);
    let write = async {
        send.send(&all).await.unwrap();
        send.finish().await.unwrap();
    };
    let read = async {
        let mut at = 0;
        while let Some((part, _)) = receive.peek().await.unwrap() {
            let length = part.len();
            assert!(*part == all[at..at + length]);
            receive.consume(length);
            at += length;
        }
        assert_eq!(at, all.len());
    };
    tokio::join!(write, read);
}

#[tokio::test]
async fn a_kept_value_is_dropped_with_both_halves_and_lost_reports_a_reset() {
    let (mut near, far) = pair().await.unwrap();
    let value = std::sync::Arc::new(());
    assert!(far.keep(value.clone()));
    assert!(!far.keep(()));
    let (mut send, receive) = far.split();
    send.finish().await.unwrap();
    drop(send);
    assert_eq!((std::sync::Arc::strong_count(&value), receive.lost()), (2, None));
    assert_eq!(near.receive(1).await, Ok(None));
    near.reset(5);
    let lost = tokio::time::timeout(Duration::from_secs(10), async {
        while receive.lost().is_none() {
            tokio::task::yield_now().await;
        }
    });
    lost.await.unwrap();
    assert_eq!(receive.lost(), Some(StreamError::Reset(5)));
    drop(receive);
    assert_eq!(std::sync::Arc::strong_count(&value), 1);
}

#[tokio::test]
async fn dropping_a_stream_resets_it() {
    let (mut near, far) = pair().await.unwrap();
    drop(far);
    assert!(matches!(near.receive(10).await, Err(StreamError::Reset(_))));
}

#[tokio::test]
async fn many_streams_carry_bulk_data_at_once() {
    let (client, server) = connections(Options::default()).await.unwrap();
    let echo = tokio::spawn(async move {
        while let Some(mut stream) = server.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 32 * 1024];
                while let Some((length, end)) = stream.read(&mut buffer).await.unwrap() {
                    stream.write(&buffer[..length], end).await.unwrap();
                }
                stream.finish().await.unwrap();
            });
        }
    });
    let mut tasks = Vec::new();
    for n in 0..20 {
        let stream =
            client.open(if n % 2 == 0 { Class::Bulk } else { Class::Interactive }).unwrap();
        tasks.push(tokio::spawn(async move {
            let (mut send, mut receive) = stream.split();
            let sender = tokio::spawn(async move {
                for round in 0..10 {
                    send.send(&pattern(100_000 + n + round)).await.unwrap();
                }
                send.finish().await.unwrap();
            });
            for round in 0..10 {
                assert_eq!(
                    receive.receive(200_000).await.unwrap(),
                    Some(pattern(100_000 + n + round))
                );
            }
            assert_eq!(receive.receive(1).await.unwrap(), None);
            sender.await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    client.close(7, "enough");
    echo.await.unwrap();
}

#[tokio::test]
async fn a_close_has_a_reason_and_a_cut_is_an_error() {
    let (client, server) = connections(Options::default()).await.unwrap();
    server.close(3, "go away");
    let closed = client.closed().await;
    assert_eq!(closed, SessionError::ClosedByPeer { code: 3, reason: "go away".into() });

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let keys = [(); 2].map(|()| SecretKey::generate(&SystemRandom).unwrap());
    let client_config = ClientConfig::new(&keys[0]).unwrap();
    let server_config = ServerConfig::new(&keys[1]).unwrap();
    let (cut, was_cut) = tokio::sync::oneshot::channel::<()>();
    // A relay forwards until the test makes it drop both connections.
    let middle = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let middle_address = middle.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut a, _) = middle.accept().await.unwrap();
        let mut b = tokio::net::TcpStream::connect(address).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut a, &mut b) => {}
            _ = was_cut => {}
        }
    });
    let accepted = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        accept(Box::new(Tcp::new(stream).unwrap()), &server_config, Options::default())
            .await
            .unwrap()
    });
    let transport = connect_tcp(&middle_address.to_string(), Duration::from_secs(5)).await.unwrap();
    let client =
        connect(Box::new(transport), &client_config, Some(keys[1].identity()), Options::default())
            .await
            .unwrap();
    let server = accepted.await.unwrap();
    assert_eq!((client.peer(), server.peer()), (keys[1].identity(), keys[0].identity()));
    cut.send(()).unwrap();
    for end in [client.closed().await, server.closed().await] {
        assert!(matches!(end, SessionError::Channel(_) | SessionError::Transport(_)), "{end:?}");
    }
}

#[tokio::test]
async fn the_wrong_key_is_refused_by_the_client() {
    let keys = [(); 3].map(|()| SecretKey::generate(&SystemRandom).unwrap());
    let client = ClientConfig::new(&keys[0]).unwrap();
    let server = ServerConfig::new(&keys[1]).unwrap();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (client, server) = tokio::join!(
        connect(Box::new(near), &client, Some(keys[2].identity()), Options::default()),
        accept(Box::new(far), &server, Options::default()),
    );
    let expected =
        SessionError::WrongPeer { expected: keys[2].identity(), presented: keys[1].identity() };
    assert_eq!(client.err(), Some(expected));
    assert!(server.is_err());
}

#[tokio::test]
async fn exporters_agree_and_keys_are_updated_during_a_transfer() {
    let (client, server) = connections(Options::default()).await.unwrap();
    let [a, b]: [[u8; 32]; 2] = [client.export("x").unwrap(), server.export("x").unwrap()];
    assert_eq!(a, b);
    assert_ne!(a, client.export::<32>("y").unwrap());
    let mut near = client.open(Class::Bulk).unwrap();
    let sender = tokio::spawn(async move {
        for n in 0..50 {
            near.send(&pattern(20_000)).await.unwrap();
            if n % 10 == 0 {
                client.update_key();
            }
        }
        near.finish().await.unwrap();
        (near, client)
    });
    let mut far = server.accept().await.unwrap();
    for _ in 0..50 {
        assert_eq!(far.receive(20_000).await.unwrap().unwrap().len(), 20_000);
    }
    sender.await.unwrap();
}

/// The driver does not read from a peer without a right whose source exceeds its share, and closes
/// it after a while; other connections stay. A peer that has proved a right is not counted.
#[tokio::test]
async fn a_peer_that_waits_too_long_for_memory_is_closed() {
    let keys = [(); 2].map(|()| SecretKey::generate(&SystemRandom).unwrap());
    let configs = (ClientConfig::new(&keys[0]).unwrap(), ServerConfig::new(&keys[1]).unwrap());
    let budget = Budget::new(4 << 20, Duration::from_millis(50), 77);
    let source = IpAddr::from([192, 0, 2, 1]);
    let connect_bounded = async || {
        let (near, far) = tokio::io::duplex(1 << 20);
        let expected = Some(keys[1].identity());
        let (near, far) = tokio::join!(
            connect(Box::new(near), &configs.0, expected, Options::default()),
            async {
                let incoming = first_record(Box::new(far)).await.unwrap();
                incoming.bounded(&budget, source).accept(&configs.1, Options::default()).await
            },
        );
        (near.unwrap(), far.unwrap())
    };
    let (over_share, held) = connect_bounded().await;
    let (within_share, proved) = connect_bounded().await;
    assert!(held.is_bounded() && budget.used() > 0);
    proved.raise_credit();
    assert!(!proved.is_bounded());
    let mut streams: Vec<_> = (0..5).map(|_| over_share.open(Class::Bulk).unwrap()).collect();
    for stream in &mut streams {
        // Nearly the credit of a stream; it is not read.
        let _ = stream.write(&[0; 200_000], false).await;
    }
    assert!(matches!(over_share.closed().await, SessionError::ClosedByPeer { code: 77, .. }));
    assert_eq!(budget.closed(), 1);
    held.flushed().await;
    let mut near = within_share.open(Class::Bulk).unwrap();
    near.send(b"still here").await.unwrap();
    let mut far = proved.accept().await.unwrap();
    assert_eq!(far.receive(100).await.unwrap().unwrap(), b"still here");
    drop((streams, over_share, held));
    let given_back = async {
        while budget.used() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), given_back).await.unwrap();
}
