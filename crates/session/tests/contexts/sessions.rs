//! Exchanges and ends.

use levada_session::contexts::{PathError, PathSession};

use crate::support::{connected, exchange};

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
