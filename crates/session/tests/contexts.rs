//! Sessions with middleboxes over transports in memory.

#![allow(clippy::unwrap_used)] // Helpers of tests, as in tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_channel::contexts::{
    Action, Context, Direction, Hop, HopSetup, HopTickets, Inspector, Kem, Party, Path, PathEvent,
    PathSessions, PathTickets, Piece, Purpose, Received, Relay, Right, ServerPaths,
};
use levada_core::{SecretKey, SystemRandom};
use levada_session::contexts::{PathError, PathSession, accept_path, connect_path, relay};
use levada_session::{ClientConfig, ServerConfig};
use tokio::io::duplex;

struct Upper;

impl Inspector for Upper {
    fn record(&mut self, piece: Piece<'_>) -> Action {
        match piece.direction {
            Direction::ToServer => Action::Replace(piece.data.to_ascii_uppercase()),
            Direction::ToClient => Action::Pass,
        }
    }
}

fn key() -> Arc<SecretKey> {
    Arc::new(SecretKey::generate(&SystemRandom).unwrap())
}

/// A client and a server with one middlebox that turns requests to upper case.
async fn connected() -> (PathSession, PathSession) {
    let (hop, server) = (key(), key());
    let party = |key: &SecretKey| Party { identity: key.identity(), address: "h:1".to_owned() };
    let context = |right| Context { purpose: Purpose::Other, pad: 0, rights: vec![right] };
    let path = Path {
        kem: Kem::X25519,
        server: party(&server),
        hops: vec![Hop { party: party(&hop), resume: None }],
        contexts: vec![context(Right::Write), context(Right::None)],
    };
    let setup = HopSetup {
        key: hop,
        tickets: Arc::new(HopTickets::new(Duration::from_secs(60))),
        policy: Arc::new(|_, _| Ok(())),
    };
    let paths = ServerPaths {
        config: Arc::new(ServerConfig::new(&server).unwrap()),
        key: server,
        sessions: Arc::new(PathSessions::default()),
        tickets: 2,
        policy: Arc::new(|_| Ok(())),
    };
    let client = ClientConfig::new(&key()).unwrap();
    let (near, hop_near) = duplex(64 * 1024);
    let (hop_far, far) = duplex(64 * 1024);
    let middle = Relay::new(setup, Box::new(Upper), Instant::now());
    tokio::spawn(relay(middle, Box::new(hop_near), Vec::new(), |_, _| async {
        Ok(Box::new(hop_far) as Box<_>)
    }));
    let (client, server) = tokio::join!(
        connect_path(Box::new(near), &client, Arc::new(PathTickets::default()), path),
        accept_path(Box::new(far), Vec::new(), paths),
    );
    let (client, server) = (client.unwrap(), server.unwrap());
    client.control(b"operation").unwrap();
    let event = server.next().await.unwrap();
    assert_eq!(event, Some(PathEvent::Received(Received::Control(b"operation".to_vec()))));
    server.start(true, None).unwrap();
    assert_eq!(client.next().await.unwrap(), Some(PathEvent::Ready));
    (client, server)
}

/// Everything of one exchange in a context.
async fn exchange(session: &PathSession, wanted: u8) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match session.next().await.unwrap().unwrap() {
            PathEvent::Received(Received::Data { context, data, .. }) if context == wanted => {
                all.extend_from_slice(&data);
            }
            PathEvent::Received(Received::Exchange { .. }) => return all,
            _ => {}
        }
    }
}

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
