//! Malicious endpoints, in the handshake and with TLS after it.

use levada_core::label::derive;

use super::attacks_handshake::{dropped, forged_by, malformed, parties, unexpected};
use super::chain::Chain;
use crate::Error;
use crate::contexts::Direction::{ToClient, ToServer};
use crate::contexts::client::Bound;
use crate::contexts::messages::put_ready;
use crate::contexts::messages::{Start, put_client_share};
use crate::contexts::schedule::HopSecrets;
use crate::contexts::{ContextError, Direction, frame};
use crate::record::{ALERT, DATA, HANDSHAKE};

/// A malicious server and a middlebox have the secrets for a start as soon as SBIND has come.
#[test]
fn a_middlebox_refuses_a_start_before_the_clients_share() {
    let mut chain = Chain::new(&parties());
    chain.replace((0, ToClient), frame::SBIND, dropped);
    chain.run().unwrap();
    let bound = chain.relays[1].handshake().bound().unwrap();
    let tag = [1; 16];
    let aad = [&frame::header(frame::READY, 17 + 2 * 33)[..], &tag].concat();
    let start = Start { started: true, realm: [0; 16] };
    let start = start.seal(bound.secrets.z.as_ref().unwrap(), &bound.th2, &aad).unwrap();
    let mut ready = Vec::new();
    put_ready(&mut ready, 0, &tag, &[&[0; 33][..], &start].concat());
    chain.inject(2, ToClient, &ready);
    let error = unexpected("a READY of the server before the client's share");
    assert_eq!(chain.run(), Err((2, error)));
}

/// The client has a_i, but not z_i.
#[test]
fn a_client_cannot_send_ready_in_place_of_a_middlebox() {
    let mut chain = Chain::new(&parties());
    chain.replace((2, ToServer), frame::READY, |frame| match frame[5] {
        0 => vec![frame],
        _ => Vec::new(),
    });
    chain.run().unwrap();
    let bound = chain.client.bound().unwrap();
    let a = bound.hops[0].1.a.clone();
    assert!(bound.hops.iter().all(|(_, secrets)| secrets.z.is_none()));
    let secrets = HopSecrets { a: a.clone(), z: Some(a) };
    let mut ready = Vec::new();
    put_ready(&mut ready, 1, &secrets.ready(ToServer, &bound.th2).unwrap(), &[]);
    chain.inject(2, ToServer, &ready);
    assert_eq!(chain.run(), Err((3, forged_by("a READY", 1))));
}

/// A client that keeps its halves back, or gives others than the server's path says.
fn with_halves(change: impl Fn(&mut Vec<u8>)) -> Chain {
    let mut chain = Chain::new(&parties());
    chain.replace((0, ToServer), frame::CSHARE, dropped);
    chain.run().unwrap();
    let Bound { secret, classes, th2, .. } = chain.client.bound().unwrap();
    let mut shares = Vec::new();
    for hop in [1, 2] {
        let mut halves = secret.halves(classes, hop, derive::CLIENT_HALF).to_vec();
        if hop == 1 {
            change(&mut halves);
        }
        put_client_share(&mut shares, &secret.a(hop), th2, hop, &halves).unwrap();
    }
    chain.attack = None;
    chain.inject(0, ToServer, &shares);
    chain
}

#[test]
fn a_middlebox_refuses_halves_that_do_not_fit_its_rights() {
    assert_eq!(with_halves(|_| ()).run(), Ok(()));
    for length in [0, 31, 33, 64] {
        let error = with_halves(|halves| halves.resize(length, 0)).run();
        assert_eq!(error, Err((1, malformed("a CSHARE"))), "{length}");
    }
}

#[test]
fn a_client_that_gives_another_half_is_found_out_at_its_first_record() {
    let mut chain = with_halves(|halves| halves.fill(7));
    chain.run().unwrap();
    chain.client.write(1, b"data").unwrap();
    chain.client.flush().unwrap();
    let error = ContextError::Forged { what: "a record", hop: Some(0), context: Some(1) };
    assert_eq!(chain.run(), Err((1, error)));
}

/// NewSessionTicket (RFC 8446 section 4.6.1): lifetime, age, nonce, ticket, no extensions.
const TICKET: [u8; 19] = [4, 0, 0, 15, 0, 0, 0, 9, 0, 0, 0, 0, 1, 7, 0, 1, 7, 0, 0];

#[test]
fn nothing_stands_between_a_mark_and_its_audits() {
    for (link, party) in [(2, 2), (1, 1), (0, 0)] {
        let mut chain = Chain::new(&parties());
        chain.open();
        let mut ticket = Vec::new();
        chain.server.bound().unwrap().tail.put(&TICKET, HANDSHAKE, &mut ticket).unwrap();
        chain.attack((link, ToClient), move |mut frames| {
            frames.insert(1, ticket.clone());
            frames
        });
        chain.server.control(b"data").unwrap();
        assert_eq!(chain.run(), Err((party, unexpected("a frame in a session"))));
    }
}

#[test]
fn tls_carries_only_tickets_alerts_and_the_close_after_the_handshake() {
    let ticket = TICKET.to_vec();
    let other = || unexpected("a TLS record besides tickets and alerts");
    let update: &[u8] = &[24, 0, 0, 1, 0];
    let key_update = || unexpected("a TLS message besides tickets");
    let long = [&[4, 0, 0xff, 0xff][..], &[0; 16_000]].concat();
    let cases: [(Direction, u8, Vec<u8>, usize, ContextError); 8] = [
        (ToClient, HANDSHAKE, update.to_vec(), 1, key_update()),
        (ToServer, HANDSHAKE, update.to_vec(), 1, key_update()),
        (ToClient, DATA, b"data".to_vec(), 1, other()),
        (ToServer, DATA, b"data".to_vec(), 1, other()),
        (ToClient, ALERT, vec![2, 40], 1, ContextError::Tls(Error::Alert(40))),
        // Two have come with the handshake.
        (ToClient, HANDSHAKE, ticket.clone(), 7, ContextError::Flood("tickets")),
        (ToServer, HANDSHAKE, ticket, 1, Error::Record("a ticket from a client").into()),
        (ToClient, HANDSHAKE, long, 1, Error::Flood("a long message after the handshake").into()),
    ];
    for (direction, kind, content, times, error) in cases {
        let mut chain = Chain::new(&parties());
        chain.open();
        let (end, link, party) = match direction {
            ToServer => (&mut chain.client, 0, 3),
            ToClient => (&mut chain.server, 2, 0),
        };
        let mut bytes = Vec::new();
        for _ in 0..times {
            end.bound().unwrap().tail.put(&content, kind, &mut bytes).unwrap();
        }
        chain.inject(link, direction, &bytes);
        assert_eq!(chain.run(), Err((party, error)));
    }
}
