//! Exchanges and ends.

use levada_contexts::{ContextError, PathError, PathSession};

use tokio::time::{Duration, timeout};

use crate::support::{Freezer, connected, connected_over, exchange, links};

#[tokio::test]
async fn requests_and_long_answers_cross_a_middlebox_and_both_ends_close() {
    let (client, server) = connected().await;
    let body: Vec<u8> = (0..3_000_000u32).map(|number| number as u8).collect();
    for _ in 0..3 {
        client.write(1, b"request").await.unwrap();
        client.finish().unwrap();
        assert_eq!(exchange(&server, 1).await, b"REQUEST");
        let send = async {
            server.write(2, &body).await.unwrap();
            server.finish().unwrap();
        };
        let ((), received) = tokio::join!(send, exchange(&client, 2));
        assert!(received == body);
    }
    client.close().unwrap();
    server.close().unwrap();
    for end in [&client, &server] {
        while end.next().await.unwrap().is_some() {}
    }
}

#[tokio::test]
async fn both_directions_carry_bulk_at_the_same_time() {
    let (client, server) = connected().await;
    client.write(1, b"request").await.unwrap();
    client.finish().unwrap();
    assert_eq!(exchange(&server, 1).await, b"REQUEST");
    let body = vec![7; 2_000_000];
    let send = async |end: &PathSession| {
        end.write(2, &body).await.unwrap();
        end.finish().unwrap();
    };
    let ((), (), up, down) =
        tokio::join!(send(&client), send(&server), exchange(&server, 2), exchange(&client, 2));
    assert!(up == body && down == body);
}

#[tokio::test]
async fn an_end_that_vanishes_is_an_error_of_the_other() {
    let (client, server) = connected().await;
    drop(client);
    assert!(matches!(server.next().await, Err(PathError::Context(_))));
}

/// Time is virtual: it advances when every task waits.
#[tokio::test(start_paused = true)]
async fn a_request_beyond_the_limit_waits_for_an_answer() {
    let (client, server) = connected().await;
    for _ in 0..64 {
        client.write(1, b"request").await.unwrap();
        client.finish().unwrap();
    }
    let late = timeout(Duration::from_secs(10), client.write(1, b"request")).await;
    assert!(late.is_err());
    let answer = async {
        assert_eq!(exchange(&server, 1).await, b"REQUEST");
        server.write(2, b"answer").await.unwrap();
        server.finish().unwrap();
    };
    let (written, ()) = tokio::join!(client.write(1, b"request"), answer);
    written.unwrap();
    client.finish().unwrap();
    for _ in 0..64 {
        assert_eq!(exchange(&server, 1).await, b"REQUEST");
    }
}

#[tokio::test]
async fn a_middlebox_that_is_busy_ends_the_session_at_both_ends() {
    let (client, server) = connected_over(links(), &Freezer::default(), false).await;
    let busy = Err(PathError::Context(ContextError::Alert { code: 5, hop: 1 }));
    assert_eq!(tokio::join!(client.next(), server.next()), (busy.clone(), busy));
}
