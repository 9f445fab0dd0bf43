//! The life of a connection: identity, resumption, timeouts, keep-alive, close.

use levada_core::Framing;
use std::time::{Duration, Instant};

use super::pair::{Endpoints, Pair, key};
use crate::{Class, ClientConfig, Close, Connection, Error, Event, Options, Read, StreamError};

fn options(framing: Framing) -> Options {
    Options { framing, ..Options::default() }
}

#[test]
fn both_ends_prove_their_identity_and_export_the_same() {
    let endpoints = Endpoints::new();
    let mut pair = endpoints.pair(Options::default(), Options::default());
    assert_eq!(
        pair.client.connection.export("EXPORTER-x", b"", &mut [0; 32]),
        Err(Error::NotConnected)
    );
    pair.connect();
    assert_eq!(pair.client.connection.peer(), Some(endpoints.server_key.identity()));
    assert_eq!(pair.server.connection.peer(), Some(endpoints.client_key.identity()));
    assert_eq!(pair.server.connection.peer_framing(), Some(Framing::Auto));
    let export = |connection: &Connection, label, context| {
        let mut out = [0; 48];
        connection.export(label, context, &mut out).unwrap();
        out
    };
    let ours = export(&pair.client.connection, "EXPORTER-x", b"one");
    assert_eq!(ours, export(&pair.server.connection, "EXPORTER-x", b"one"));
    assert_ne!(ours, export(&pair.server.connection, "EXPORTER-x", b"two"));
    assert_ne!(ours, export(&pair.server.connection, "EXPORTER-y", b"one"));
    let long = "x".repeat(250);
    assert!(pair.client.connection.export(&long, b"", &mut [0; 32]).is_err());
    assert!(pair.client.connection.export("x", b"", &mut [0; 65536]).is_err());
    assert!(pair.client.connection.open(Class::Bulk).is_ok());
}

#[test]
fn data_travels_with_the_clients_first_flight() {
    let mut pair = Endpoints::new().pair(Options::default(), Options::default());
    while pair.client.connection.peer().is_none() {
        assert!(pair.step());
    }
    let id = pair.client.connection.open(Class::Interactive).unwrap();
    assert_eq!(pair.client.connection.write(id, b"early", true), Ok(Some(5)));
    assert!(pair.step());
    let id = pair.server.accept();
    assert_eq!(pair.server.read_all(id)[0], b"early");
}

#[test]
fn both_ends_know_the_round_trip_and_the_client_sends_no_packet_for_it() {
    let mut pair = Endpoints::new().pair(Options::default(), Options::default());
    while pair.server.connection.rtt().is_none() {
        assert!(pair.step());
    }
    let sent = pair.client.sent;
    pair.connect();
    assert_eq!(pair.client.sent, sent);
    for end in [&pair.client, &pair.server] {
        assert_eq!(end.connection.rtt(), Some(2 * pair.delay));
    }
}

#[test]
fn the_client_sends_nothing_of_itself_to_a_wrong_server() {
    let endpoints = Endpoints::new();
    let mut pair = endpoints.pair(Options::default(), Options::default());
    let expected = key().identity();
    let presented = endpoints.server_key.identity();
    let client =
        Connection::client(&endpoints.client, Some(expected), Options::default(), pair.now);
    pair.client.connection = client.unwrap();
    pair.run();
    assert_eq!(pair.client.error, Some(Error::WrongPeer { expected, presented }));
    assert_eq!(pair.client.connection.peer(), None);
    assert!(matches!(pair.server.error, Some(Error::Alert(_))), "{:?}", pair.server.error);
    assert_eq!(pair.server.connection.peer(), None);
    assert!(pair.client.connection.receive(pair.now, &mut []).is_err());
}

#[test]
fn a_client_without_an_expected_peer_accepts_any_and_never_resumes() {
    let endpoints = Endpoints::new();
    for _ in 0..2 {
        let mut pair = endpoints.pair(Options::default(), Options::default());
        let client = Connection::client(&endpoints.client, None, Options::default(), pair.now);
        pair.client.connection = client.unwrap();
        pair.connect();
        assert_eq!(pair.client.connection.peer(), Some(endpoints.server_key.identity()));
        assert!(!pair.client.connection.resumed());
    }
}

#[test]
fn a_ticket_resumes_only_with_its_own_peer_and_key() {
    let endpoints = Endpoints::new();
    let server = endpoints.server_key.identity();
    let connect = |endpoints: &Endpoints| {
        let mut pair = endpoints.pair(Options::default(), Options::default());
        pair.connect();
        assert_eq!(pair.client.connection.peer(), Some(endpoints.server_key.identity()));
        assert_eq!(pair.server.connection.peer(), Some(endpoints.client_key.identity()));
        assert_eq!(pair.server.connection.resumed(), pair.client.connection.resumed());
        pair.client.connection.resumed()
    };
    assert!(!endpoints.client.has_ticket(&server));
    assert!(!connect(&endpoints));
    assert!(endpoints.client.has_ticket(&server));
    assert!(!endpoints.client.has_ticket(&endpoints.client_key.identity()));
    assert!(connect(&endpoints));
    assert!(connect(&endpoints));

    // A client with another key has no tickets.
    let other = ClientConfig::new(&key()).unwrap();
    let other = Endpoints { client: other, ..Endpoints::new() };
    assert!(!other.client.has_ticket(&server));

    endpoints.server.forget_sessions();
    assert!(!connect(&endpoints));
    assert!(connect(&endpoints));
}

#[test]
fn a_ticket_is_not_accepted_by_another_server() {
    let endpoints = Endpoints::new();
    let impostor = Endpoints::new();
    endpoints.pair(Options::default(), Options::default()).connect();
    let mut pair = endpoints.pair(Options::default(), Options::default());
    let server = Connection::server(&impostor.server, Options::default(), pair.now).unwrap();
    pair.server.connection = server;
    pair.run();
    let expected = endpoints.server_key.identity();
    let presented = impostor.server_key.identity();
    assert_eq!(pair.client.error, Some(Error::WrongPeer { expected, presented }));
}

#[test]
fn a_resumed_connection_carries_messages_and_exports() {
    let endpoints = Endpoints::new();
    endpoints.pair(Options::default(), Options::default()).connect();
    let mut pair = endpoints.pair(options(Framing::Block(512)), Options::default());
    pair.connect();
    assert!(pair.server.connection.resumed());
    let ids = pair.open(Class::Bulk);
    pair.transfer(ids, &[vec![7; 100_000], vec![]]);
    let mut ours = [0; 32];
    let mut theirs = [0; 32];
    pair.client.connection.export("EXPORTER-x", b"", &mut ours).unwrap();
    pair.server.connection.export("EXPORTER-x", b"", &mut theirs).unwrap();
    assert_eq!(ours, theirs);
}

#[test]
fn the_handshake_completes_under_any_fragmentation() {
    for piece in [1, 7, 100, 1000] {
        let mut pair = Endpoints::new().pair(Options::default(), Options::default());
        pair.piece = piece;
        pair.connect();
    }
}

#[test]
fn the_server_sends_frames_only_after_the_clients_hello() {
    let mut pair = Endpoints::new().pair(Options::default(), Options::default());
    pair.step();
    assert_eq!(pair.server.connection.open(Class::Bulk), Err(Error::NotConnected));
    while pair.client.connection.peer().is_none() {
        pair.step();
    }
    assert_eq!(pair.client.connection.peer_framing(), None);
    pair.connect();
    assert_eq!(pair.client.connection.peer_framing(), Some(Framing::Auto));
}

#[test]
fn an_incomplete_handshake_times_out() {
    let endpoints = Endpoints::new();
    let start = Instant::now();
    let seconds = |n| start + Duration::from_secs(n);
    let mut server = Connection::server(&endpoints.server, Options::default(), start).unwrap();
    assert_eq!(server.timeout(), Some(seconds(5)));
    assert_eq!(server.handle_timeout(seconds(4)), Ok(()));
    assert_eq!(server.handle_timeout(seconds(5)), Err(Error::HandshakeTimeout));
    assert_eq!(server.timeout(), None);

    let mut pair = endpoints.pair(Options::default(), Options::default());
    let hello = pair.intercept();
    pair.inject(&hello).unwrap();
    let now = pair.now;
    assert_eq!(pair.server.connection.handle_timeout(now + Duration::from_secs(9)), Ok(()));
    let late = pair.server.connection.handle_timeout(now + Duration::from_secs(10));
    assert_eq!(late, Err(Error::HandshakeTimeout));
    let late = pair.client.connection.handle_timeout(now + Duration::from_secs(5));
    assert_eq!(late, Err(Error::HandshakeTimeout));
}

#[test]
fn an_idle_connection_is_kept_alive_and_a_dead_one_times_out() {
    let mut pair = Pair::connected();
    let sent = pair.client.sent + pair.server.sent;
    pair.pass(Duration::from_secs(300));
    assert_eq!((&pair.client.error, &pair.server.error), (&None, &None));
    let spent = pair.client.sent + pair.server.sent - sent;
    assert!((500..5000).contains(&spent), "{spent} bytes in five minutes");

    // The link fails: what the client sends is lost.
    let deadline = pair.client.connection.timeout().unwrap();
    pair.client.connection.handle_timeout(deadline).unwrap();
    assert!(pair.client.connection.wants_transmit());
    pair.intercept();
    assert!(!pair.client.connection.wants_transmit());
    let deadline = pair.client.connection.timeout().unwrap();
    assert_eq!(pair.client.connection.handle_timeout(deadline), Err(Error::Idle));
}

#[test]
fn a_close_follows_accepted_data() {
    let mut pair = Pair::connected();
    let (ours, theirs) = pair.open(Class::Bulk);
    pair.client.connection.write(ours, b"last words", true).unwrap();
    pair.client.connection.close(17, "enough");
    pair.client.connection.close(18, "again");
    assert_eq!(pair.client.connection.write(ours, b"more", true), Err(StreamError::Closed));
    assert_eq!(pair.client.connection.open(Class::Bulk), Err(Error::Closed));
    pair.run();
    let close = |by_peer| Close { code: 17, reason: "enough".to_owned(), by_peer };
    assert_eq!(pair.server.events.pop_back(), Some(Event::Closed(close(true))));
    assert_eq!(pair.client.events.pop_back(), Some(Event::Closed(close(false))));
    let mut buf = [0; 100];
    let read = pair.server.connection.read(theirs, &mut buf);
    assert_eq!(read, Ok(Read::Data { len: 10, end: true }));
    assert_eq!(pair.server.connection.read(theirs, &mut buf), Err(StreamError::Closed));
    assert_eq!(pair.server.connection.receive_end(pair.now), Ok(()));
    assert_eq!(pair.client.connection.receive_end(pair.now), Ok(()));
    assert_eq!(pair.client.connection.timeout(), None);
    assert!(!pair.client.connection.wants_transmit() && !pair.server.connection.wants_transmit());
}

#[test]
fn a_long_reason_is_truncated() {
    for (framing, length) in [(Framing::Auto, 256), (Framing::Block(64), 31)] {
        let mut pair = Pair::with(options(framing), Options::default());
        pair.client.connection.close(u64::MAX, &"a".repeat(400));
        pair.run();
        match pair.server.events.pop_back() {
            Some(Event::Closed(close)) => assert_eq!(close.reason.len(), length),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_cut_link_is_an_error() {
    let mut pair = Pair::connected();
    assert_eq!(pair.server.connection.receive_end(pair.now), Err(Error::Truncated));
    let mut pair = Endpoints::new().pair(Options::default(), Options::default());
    assert_eq!(pair.client.connection.receive_end(pair.now), Err(Error::Truncated));
}

#[test]
fn closing_before_the_handshake_succeeds() {
    let mut pair = Endpoints::new().pair(Options::default(), Options::default());
    pair.server.connection.close(0, "not now");
    pair.run();
    assert_eq!(pair.server.connection.receive_end(pair.now), Ok(()));
}
