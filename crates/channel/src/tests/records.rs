//! The record layer against modification, loss, replay, and peers that violate it.

use levada_core::Framing;

use super::pair::Endpoints;
use super::raw::{receive_all, take, tls_pair, write};
use crate::Error;
use crate::record::{ALERT, DATA, HANDSHAKE, MAX_CONTENT};
use crate::tls::Tls;

const UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// The server's result for one record of the client.
fn receive_one(kind: u8, content: &[u8]) -> Result<(Vec<u8>, bool), Error> {
    let (mut client, mut server) = tls_pair(&Endpoints::new());
    client.put_record(kind, content);
    receive_all(&mut server, &take(&mut client))
}

/// `count` separate records of the client, and the server.
fn records(count: u8) -> (Vec<Vec<u8>>, Tls) {
    let (mut client, server) = tls_pair(&Endpoints::new());
    let one = |byte| {
        write(&mut client, &[byte; 40]);
        take(&mut client)
    };
    ((0..count).map(one).collect(), server)
}

#[test]
fn every_flipped_bit_is_an_error() {
    let endpoints = Endpoints::new();
    for bit in 0..8 * (5 + 40 + 1 + 16) {
        let (mut client, mut server) = tls_pair(&endpoints);
        write(&mut client, &[9; 40]);
        let mut record = take(&mut client);
        assert_eq!(record.len(), 62);
        record[bit / 8] ^= 1 << (bit % 8);
        // With a greater length the server waits for more bytes, and fails when they arrive.
        record.extend_from_slice(&[0; 20_000]);
        assert!(receive_all(&mut server, &record).is_err(), "bit {bit}");
    }
}

#[test]
fn replayed_and_reordered_records_are_refused() {
    let (sent, mut server) = records(3);
    for record in &sent {
        receive_all(&mut server, record).unwrap();
    }
    let (sent, mut server) = records(2);
    assert_eq!(receive_all(&mut server, &sent[1]), Err(Error::Forged));
    let (sent, mut server) = records(2);
    receive_all(&mut server, &sent[0]).unwrap();
    assert_eq!(receive_all(&mut server, &sent[0]), Err(Error::Forged));
}

#[test]
fn an_incomplete_record_is_waited_for() {
    let (sent, mut server) = records(1);
    for cut in 0..sent[0].len() {
        assert_eq!(receive_all(&mut server, &sent[0][..cut]), Ok((vec![], false)));
    }
    assert_eq!(receive_all(&mut server, &sent[0]), Ok((vec![0; 40], false)));
}

#[test]
fn a_record_reflected_to_its_sender_is_refused() {
    let (mut client, _) = tls_pair(&Endpoints::new());
    write(&mut client, b"hello");
    let record = take(&mut client);
    assert_eq!(receive_all(&mut client, &record), Err(Error::Forged));
}

#[test]
fn plaintext_and_overlong_records_are_refused() {
    for kind in [20, 21, 22] {
        let (_, mut server) = tls_pair(&Endpoints::new());
        let result = receive_all(&mut server, &[kind, 3, 3, 0, 2, 1, 0]);
        assert!(matches!(result, Err(Error::Record(_))), "{result:?}");
    }
    let (_, mut server) = tls_pair(&Endpoints::new());
    assert!(matches!(receive_all(&mut server, &[23, 3, 3, 0x41, 1]), Err(Error::Record(_))));
    assert!(matches!(receive_all(&mut server, &[23, 2, 3, 0, 1, 0]), Err(Error::Record(_))));
    assert_eq!(receive_all(&mut server, &[23, 3, 3, 0, 0]), Err(Error::Forged));
    assert!(receive_one(DATA, &vec![1; MAX_CONTENT]).is_ok());
    assert!(matches!(receive_one(DATA, &vec![1; MAX_CONTENT + 1]), Err(Error::Record(_))));
    assert!(matches!(receive_one(0, &[0; 100]), Err(Error::Record(_))));
    assert!(matches!(receive_one(99, b"x"), Err(Error::Record(_))));
}

#[test]
fn alerts_become_their_errors() {
    assert_eq!(receive_one(ALERT, &[1, 0]), Ok((vec![], true)));
    assert_eq!(receive_one(ALERT, &[2, 40]), Err(Error::Alert(40)));
    assert_eq!(receive_one(ALERT, &[1, 90]), Err(Error::Alert(90)));
    assert!(matches!(receive_one(ALERT, &[]), Err(Error::Record(_))));
    assert!(matches!(receive_one(ALERT, &[1, 0, 0]), Err(Error::Record(_))));
    assert_eq!(
        Error::Alert(40).to_string(),
        "the peer ended the connection: TLS alert HandshakeFailure"
    );
    assert_eq!(Error::Alert(250).to_string(), "the peer ended the connection: TLS alert 250");
}

#[test]
fn invalid_messages_after_the_handshake_are_refused() {
    let refused = |content: &[u8]| {
        let result = receive_one(HANDSHAKE, content);
        assert!(
            matches!(result, Err(Error::Record(_) | Error::Flood(_))),
            "{content:?}: {result:?}"
        );
    };
    refused(&[]);
    refused(&[24, 0, 0, 1, 2]);
    refused(&[24, 0, 0, 0]);
    refused(&[UPDATE, UPDATE].concat());
    refused(&[4, 0, 0, 1, 0]);
    refused(&[1, 0, 0, 0]);
    refused(&[24, 1, 0, 0]);
    assert!(receive_one(HANDSHAKE, &UPDATE[..3]).is_ok());
}

#[test]
fn a_message_may_span_records_without_interruption() {
    let (mut client, mut server) = tls_pair(&Endpoints::new());
    for byte in &UPDATE[..4] {
        client.put_record(HANDSHAKE, &[*byte]);
        receive_all(&mut server, &take(&mut client)).unwrap();
    }
    write(&mut client, b"between");
    assert!(matches!(receive_all(&mut server, &take(&mut client)), Err(Error::Record(_))));
}

#[test]
fn the_number_of_tickets_is_limited() {
    let (mut client, mut server) = tls_pair(&Endpoints::new());
    // Not a well-formed ticket.
    server.put_record(HANDSHAKE, &[4, 0, 0, 1, 0]);
    assert!(receive_all(&mut client, &take(&mut server)).is_err());
    let (mut client, mut server) = tls_pair(&Endpoints::new());
    // Lifetime 0, so that the client does not store it.
    let ticket = [4, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0];
    for _ in 0..14 {
        server.put_record(HANDSHAKE, &ticket);
    }
    receive_all(&mut client, &take(&mut server)).unwrap();
    server.put_record(HANDSHAKE, &ticket);
    assert_eq!(receive_all(&mut client, &take(&mut server)), Err(Error::Flood("tickets")));
}

#[test]
fn empty_records_and_key_updates_in_a_row_are_limited() {
    let (mut client, mut server) = tls_pair(&Endpoints::new());
    for _ in 0..2 {
        (0..32).for_each(|_| client.put_record(DATA, b""));
        receive_all(&mut server, &take(&mut client)).unwrap();
        write(&mut client, b"x");
        (0..32).for_each(|_| client.update_key(true));
        receive_all(&mut server, &take(&mut client)).unwrap();
        write(&mut client, b"x");
    }
    (0..33).for_each(|_| client.put_record(DATA, b""));
    assert_eq!(receive_all(&mut server, &take(&mut client)), Err(Error::Flood("empty records")));
    let (mut client, mut server) = tls_pair(&Endpoints::new());
    (0..33).for_each(|_| client.update_key(false));
    assert_eq!(receive_all(&mut server, &take(&mut client)), Err(Error::Flood("key updates")));
}

#[test]
fn many_requests_for_a_key_update_get_one_answer() {
    let (mut client, mut server) = tls_pair(&Endpoints::new());
    for _ in 0..1000 {
        client.update_key(true);
        write(&mut client, b"x");
    }
    receive_all(&mut server, &take(&mut client)).unwrap();
    assert!(server.wants_transmit());
    let answer = take(&mut server);
    assert_eq!(answer.len(), 5 + UPDATE.len() + 1 + 16);
    assert!(!server.wants_transmit());
    receive_all(&mut client, &answer).unwrap();
    write(&mut server, b"after");
    assert_eq!(receive_all(&mut client, &take(&mut server)).unwrap().0, b"after");
}

#[test]
fn blocks_are_padded_with_zeros() {
    let (mut client, mut server) = tls_pair(&Endpoints::new());
    for length in 64..=4096 {
        client.set_framing(Framing::Block(length));
        let data = vec![3; usize::from(length) - 22];
        for len in [1, data.len() / 2, data.len()] {
            write(&mut client, &data[..len]);
            let record = take(&mut client);
            assert_eq!(record.len(), usize::from(length));
            assert_eq!(receive_all(&mut server, &record).unwrap().0, data[..len]);
        }
    }
}

#[test]
fn arbitrary_bytes_never_complete_a_handshake() {
    let endpoints = std::panic::AssertUnwindSafe(Endpoints::new());
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let endpoints = &endpoints;
        let mut server = Tls::server(&endpoints.server).unwrap();
        let _ = receive_all(&mut server, bytes);
        let length = u16::try_from(bytes.len()).unwrap_or(0).to_be_bytes();
        let record = [&[22, 3, 1, length[0], length[1]], bytes.as_slice()].concat();
        let mut server = Tls::server(&endpoints.server).unwrap();
        let _ = receive_all(&mut server, &record);
        let mut client = Tls::client(&endpoints.client, None).unwrap();
        let _ = receive_all(&mut client, &record);
        assert!(!server.is_established() && !client.is_established());
    });
}
