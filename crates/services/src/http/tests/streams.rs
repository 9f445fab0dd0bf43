//! The end of an exchange on a stream. A side that drops a stream before the other side's end has
//! come resets it, and the reset overtakes what it sent: the other side took complete exchanges for
//! ones that were cut off.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use levada_capability::SessionId;
use levada_client::Running;
use levada_service::Streams;
use levada_session::testing::connections;
use levada_session::{Class, Options, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;

use super::{LocalClient, local_origin, within};
use crate::http::client::Route;
use crate::http::message::tag;
use crate::http::origin::Origin;
use crate::http::serve;

/// Whether the other side has reset a stream, or has ended it early.
async fn is_reset(stream: &Stream) -> bool {
    let mut closed = pin!(stream.closed());
    poll_fn(|cx| Poll::Ready(closed.as_mut().poll(cx).is_ready())).await
}

fn message(tag: u8, text: &str) -> Vec<u8> {
    [&[tag], text.as_bytes()].concat()
}

async fn next(stream: &mut Stream) -> Option<Vec<u8>> {
    within(stream.receive(64 * 1024)).await.unwrap()
}

#[tokio::test]
async fn the_client_keeps_a_stream_until_the_server_has_ended_it() {
    let (opened, mut servers) = unbounded_channel();
    let open = move || {
        let opened = opened.clone();
        Box::pin(async move {
            let (client, server) = connections(Options::default()).await.unwrap();
            let mut stream = client.open(Class::Interactive).unwrap();
            stream.send(b"").await.unwrap();
            let control = server.accept().await.unwrap();
            opened.send((server, control)).unwrap();
            let streams = Streams::receiving(client.clone(), 1, 8);
            Ok((
                Running { session: SessionId::from_bytes([7; 16]), stream, connection: client },
                streams,
            ))
        }) as _
    };
    let mut client = LocalClient::connect(local_origin(Route::Streams(Box::new(open))).await).await;
    let (server, _control) = within(servers.recv()).await.unwrap();
    client.request("GET /1", "").await;
    let mut first = within(server.accept()).await.unwrap();
    // A complete response before anything of the request was read, and without the end of the
    // stream.
    first.send(&message(tag::HEAD_ONLY, "204\r\n")).await.unwrap();
    assert_eq!(client.status().await, "204");
    client.request("GET /2", "").await;
    let mut second = within(server.accept()).await.unwrap();
    next(&mut second).await.unwrap();
    next(&mut second).await.unwrap();
    assert!(!is_reset(&first).await);
    next(&mut first).await.unwrap();
    assert!(next(&mut first).await.unwrap().starts_with(&message(tag::HEAD_ONLY, "GET /1")));
    assert_eq!(next(&mut first).await, None);
}

/// Answers every request with 204.
async fn origin() -> Origin {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
            socket.write_all(answer).await.unwrap();
        }
    });
    Origin::new(authority, Default::default()).unwrap()
}

#[tokio::test]
async fn the_server_keeps_a_stream_until_the_client_has_ended_it() {
    let (client, server) = connections(Options::default()).await.unwrap();
    let mut control = client.open(Class::Interactive).unwrap();
    control.send(b"").await.unwrap();
    let mut far = server.accept().await.unwrap();
    far.receive(0).await.unwrap();
    let (streams, sender) = Streams::new(server.clone(), 1, 8);
    tokio::spawn(serve::streams(origin().await, streams, far));
    let incoming = server.clone();
    tokio::spawn(async move {
        while let Some(mut stream) = incoming.accept().await {
            // Attach.
            stream.receive(1024).await.unwrap();
            sender.deliver(stream).unwrap();
        }
    });
    let streams = Streams::receiving(client, 1, 8);
    let opener = streams.opener();
    let mut exchanged = Vec::new();
    for path in ["/1", "/2"] {
        let mut stream = opener.open(Class::Bulk).await.unwrap();
        let line = format!("GET {path}\r\n");
        // The request is complete, and the stream is not ended.
        stream.send(&message(tag::HEAD_ONLY, &line)).await.unwrap();
        assert!(next(&mut stream).await.unwrap().starts_with(&message(tag::HEAD_ONLY, "204")));
        assert_eq!(next(&mut stream).await, None);
        exchanged.push(stream);
    }
    assert!(!is_reset(&exchanged[0]).await);
    exchanged[0].finish().await.unwrap();
}
