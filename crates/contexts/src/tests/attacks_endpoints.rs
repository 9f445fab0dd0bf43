//! Malicious endpoints, in the handshake and with TLS after it.

use levada_core::label::derive;

use super::attacks_handshake::{dropped, forged_by, malformed, parties, unexpected};
use super::chain::{Chain, Parties, data_of, events};
use crate::Direction::{ToClient, ToServer};
use crate::Right::None as No;
use crate::audit::{self, Counters, Digests, Kind};
use crate::messages::{Start, put_client_share, put_ready};
use crate::record::{self, Cipher, Head, Layout, Position, SealKeys};
use crate::schedule::{EndpointKeys, HopSecrets};
use crate::{ContextError, Direction, frame};
use levada_channel::Error;
use levada_channel::parts::{ALERT, DATA, HANDSHAKE};

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
    let EndpointKeys { hops, th2, .. } = &*bound.keys;
    let a = hops[0].a.clone();
    assert!(hops.iter().all(|secrets| secrets.z.is_none()));
    let secrets = HopSecrets { a: a.clone(), z: Some(a) };
    let mut ready = Vec::new();
    put_ready(&mut ready, 1, &secrets.ready(ToServer, th2).unwrap(), &[]);
    chain.inject(2, ToServer, &ready);
    assert_eq!(chain.run(), Err((3, forged_by("a READY", 1))));
}

/// A client that keeps its halves back, or gives others than the server's path says.
fn with_halves(change: impl Fn(&mut Vec<u8>)) -> Chain {
    let mut chain = Chain::new(&parties());
    chain.replace((0, ToServer), frame::CSHARE, dropped);
    chain.run().unwrap();
    let keys = chain.client.bound().unwrap().keys.clone();
    let EndpointKeys { secret, classes, th2, .. } = &*keys;
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

/// The head and the plaintext of a record.
type Record<'a> = (Head, &'a [u8]);

/// Records of a client, and the audit that ends an exchange.
fn exchange_of(chain: &mut Chain, records: &[Record<'_>]) -> Vec<u8> {
    let bound = chain.client.bound().unwrap();
    let mut digests = Digests::new(&bound.keys.path);
    let mut out = Vec::new();
    // The operation was the first record, and had the first audit.
    let mut slots = [1, 0, 0];
    for (head, data) in records {
        let secret = bound.keys.context(head.context);
        let mut cipher = Cipher::new(secret.record(head.context, ToServer), bound.keys.aes);
        let keys = SealKeys { cipher: &mut cipher, writer: None, third: None };
        let n = slots[usize::from(head.context)];
        let position = Position { n, g: slots.iter().sum(), q: 0 };
        let layout = Layout::new(&bound.keys.path, head.context);
        let written = record::seal(keys, (*head, position, layout), data, &mut out).unwrap();
        digests.add(head.context, &written.meta[..5], 0, &out[written.tags]);
        slots[usize::from(head.context)] += 1;
    }
    let key = bound.keys.secret.audit(ToServer, &bound.keys.th2);
    let counters = Counters { audits: 1, slots: slots.iter().sum(), exchange: 0 };
    audit::put(&mut out, (0, Kind::Exchange), (&digests, &digests), (&key, counters), &[]);
    out
}

/// A writer on the way could otherwise move what belongs together into another exchange.
#[test]
fn an_exchange_without_bytes_has_one_form() {
    let head = |context, end, mark| Head { context, slot: true, mark, end, origin: 0 };
    let other = || Err((2, malformed("an exchange without bytes, in another form")));
    let cases: [(&[Record<'_>], _); 5] = [
        (&[(head(1, true, true), &[])], Ok(())),
        (&[(head(2, true, true), &[])], other()),
        (&[(head(1, true, false), &[]), (head(2, true, true), &[])], other()),
        (&[(head(1, false, false), &[]), (head(1, true, true), &[])], other()),
        (&[(head(1, true, false), &[]), (head(0, false, true), &[0])], other()),
    ];
    for (records, expected) in cases {
        let mut chain = Chain::new(&Parties::new(&[&[No], &[No]]));
        chain.open();
        let bytes = exchange_of(&mut chain, records);
        chain.inject(0, ToServer, &bytes);
        let handed_up = usize::from(expected.is_ok());
        assert_eq!(chain.run(), expected, "{records:?}");
        assert_eq!(data_of(&events(&mut chain.server)).1, handed_up, "{records:?}");
    }
    // An endpoint sends no record for a message without bytes.
    let mut chain = Chain::new(&Parties::new(&[&[No], &[No]]));
    chain.open();
    for context in [2, 1] {
        chain.client.end(context).unwrap();
    }
    chain.client.finish().unwrap();
    chain.run().unwrap();
    assert_eq!(data_of(&events(&mut chain.server)), (vec![(1, Vec::new(), 0, true)], 1));
}
