//! Answers of a middlebox in place of the server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use levada_contexts::{
    Action, AnswerPart, Context, Direction, Inspector, PathEvent, Piece, Purpose, Received, Right,
};
use levada_transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::time::sleep;

use crate::support::{Freezer, connected_with, exchange, links};

/// The response body.
const BODY: u8 = 3;
/// Parts of the middlebox's answer, of 16,000 bytes each.
const PARTS: usize = 200;
const PART: usize = 16_000;

/// Answers the first request itself.
#[derive(Default)]
struct Cache {
    requests: usize,
    given: usize,
}

impl Inspector for Cache {
    fn record(&mut self, piece: Piece<'_>) -> Action {
        match piece.direction {
            Direction::ToServer if self.requests == 0 => Action::Replace(Vec::new()),
            _ => Action::Pass,
        }
    }

    fn exchange(&mut self, direction: Direction, _: u64, _: bool) {
        self.requests += usize::from(direction == Direction::ToServer);
    }

    fn answer(&mut self, _: u64) -> Option<AnswerPart> {
        self.given += 1;
        Some(match self.given {
            1 => AnswerPart { context: 2, data: b"200".to_vec(), end: true, last: false },
            given => {
                let last = given > PARTS;
                AnswerPart { context: BODY, data: vec![7; PART], end: last, last }
            }
        })
    }
}

/// A transport that counts what is read from it.
struct Counting(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for Counting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.0).poll_read(cx, buffer);
        self.1.fetch_add(buffer.filled().len() - before, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Counting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Transport for Counting {}

/// Time is virtual: it advances when every task waits.
#[tokio::test(start_paused = true)]
async fn a_middlebox_reads_little_from_the_server_while_its_own_answer_waits_for_the_client() {
    let [near, _] = links();
    let (hop_far, far) = tokio::io::duplex(64 * 1024);
    let read = Arc::new(AtomicUsize::new(0));
    let far = [Box::new(Counting(hop_far, read.clone())) as _, Box::new(far) as _];
    let purposes = [Purpose::RequestHead, Purpose::ResponseHead, Purpose::ResponseBody];
    let context = |purpose| Context { purpose, pad: 0, rights: vec![Right::Write] };
    let middlebox = (purposes.map(context).to_vec(), Box::<Cache>::default() as _);
    let (client, server) = connected_with([near, far], middlebox, &Freezer::default(), true).await;
    for request in [b"GET /1", b"GET /2"] {
        client.write(1, request).await.unwrap();
        client.finish().unwrap();
    }
    let body: Vec<u8> = (0..4_000_000u32).map(|number| number as u8).collect();
    let sent = body.clone();
    let serving = tokio::spawn(async move {
        // The first request was emptied: the server's side answers it by itself.
        assert_eq!(exchange(&server, 1).await, b"GET /2");
        server.write(2, b"200").await.unwrap();
        server.write(BODY, &sent).await.unwrap();
        server.finish().unwrap();
        server
    });
    // The client takes two thirds of the first answer slowly: whenever it has taken something, the
    // middlebox has room for more.
    let mut taken = 0;
    while taken < PARTS * PART * 2 / 3 {
        sleep(Duration::from_secs(1)).await;
        if let Some(PathEvent::Received(Received::Data { data, .. })) = client.next().await.unwrap()
        {
            taken += data.len();
        }
    }
    let waiting = read.load(Ordering::Relaxed);
    assert!(waiting < 256 * 1024, "the middlebox holds {waiting} bytes of the server's");
    assert!(!serving.is_finished());
    // "200" stands in another context.
    let rest = exchange(&client, BODY).await.len();
    assert_eq!(taken + rest, PARTS * PART + 3);
    assert!(exchange(&client, BODY).await == body);
    serving.await.unwrap();
}
