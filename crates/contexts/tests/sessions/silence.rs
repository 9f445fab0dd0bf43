//! Neighbours that are silent, and sides that are not read. Time is virtual: it advances when every
//! task waits.

use std::time::Duration;

use levada_contexts::{ContextError, PathError, Role};
use tokio::io::{copy_bidirectional, duplex};
use tokio::time::{pause, sleep};

use crate::support::{Freezer, connected, connected_over, exchange, links, tcp_link};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_middlebox_that_is_stopped_ends_the_session_at_both_ends() {
    let freezer = Freezer::default();
    let links = [tcp_link().await, tcp_link().await];
    let (client, server) = connected_over(links, &freezer, true).await;
    freezer.freeze();
    pause();
    let error = ContextError::Timeout { what: "the answer to a PING", from: Role::Middlebox(1) };
    let expected = Err(PathError::Context(error));
    assert_eq!(tokio::join!(client.next(), server.next()), (expected.clone(), expected));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_stopped_ends_the_session_at_the_client() {
    let freezer = Freezer::default();
    let [near, [hop_far, mut cable]] = links();
    let (mut other, far) = duplex(64 * 1024);
    freezer.spawn(async move {
        let _ = copy_bidirectional(&mut cable, &mut other).await;
    });
    let links = [near, [hop_far, Box::new(far)]];
    let (client, _server) = connected_over(links, &Freezer::default(), true).await;
    freezer.freeze();
    let error = ContextError::Alert { code: 4, hop: 1 };
    assert_eq!(client.next().await, Err(PathError::Context(error)));
}

#[tokio::test(start_paused = true)]
async fn a_session_without_traffic_stays_open() {
    let (client, server) = connected().await;
    sleep(HOUR).await;
    client.write(1, b"request").await.unwrap();
    client.finish().unwrap();
    assert_eq!(exchange(&server, 1).await, b"REQUEST");
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_application_reads_nothing_for_an_hour_stays_open() {
    let (client, server) = connected().await;
    client.write(1, b"request").await.unwrap();
    client.finish().unwrap();
    assert_eq!(exchange(&server, 1).await, b"REQUEST");
    let body: Vec<u8> = (0..3_000_000u32).map(|number| number as u8).collect();
    let send = async {
        server.write(2, &body).await.unwrap();
        server.finish().unwrap();
    };
    let receive = async {
        sleep(HOUR).await;
        exchange(&client, 2).await
    };
    let ((), received) = tokio::join!(send, receive);
    assert!(received == body);
}
