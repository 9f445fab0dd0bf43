//! PING and PONG between neighbours.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::chain::{Chain, DIRECTIONS, Parties, data_of, events, frames};
use crate::Direction::{ToClient, ToServer};
use crate::Right::{Read, Write};
use crate::{ContextError, Direction, Role, frame};

const SECOND: Duration = Duration::from_secs(1);

/// A session with two middleboxes.
fn opened() -> Chain {
    let mut chain = Chain::new(&Parties::new(&[&[Read, Write]]));
    chain.open();
    chain
}

fn probe(kind: u8, token: [u8; 8]) -> Vec<u8> {
    let mut whole = Vec::new();
    frame::put(&mut whole, frame::PING, &[&[kind], &token]);
    whole
}

fn ping() -> Vec<u8> {
    probe(1, [9; 8])
}

/// The party that receives on a link: 0 is the client, 3 the server.
fn receiver(link: usize, direction: Direction) -> usize {
    match direction {
        Direction::ToServer => link + 1,
        Direction::ToClient => link,
    }
}

fn exchange(chain: &mut Chain) {
    chain.client.write(1, b"request").unwrap();
    chain.client.finish().unwrap();
    chain.run().unwrap();
    assert_eq!(data_of(&events(&mut chain.server)), (vec![(1, b"request".to_vec(), 0, true)], 1));
    chain.server.write(1, b"answer").unwrap();
    chain.server.finish().unwrap();
    chain.run().unwrap();
    assert_eq!(data_of(&events(&mut chain.client)), (vec![(1, b"answer".to_vec(), 0, true)], 1));
}

#[test]
fn a_session_without_traffic_stays_open_and_goes_on() {
    let mut chain = opened();
    for _ in 0..200 {
        chain.advance(15 * SECOND).unwrap();
        chain.run().unwrap();
    }
    exchange(&mut chain);
}

#[test]
fn only_a_silent_neighbour_gets_a_ping() {
    let mut chain = opened();
    let sent = |chain: &mut Chain| {
        let mut bytes = Vec::new();
        chain.client.transmit(&mut bytes);
        frames(&bytes)
    };
    // Nothing before 15 s, and then one PING.
    chain.advance(14 * SECOND).unwrap();
    assert_eq!(chain.client.timeout(), Some(chain.now + SECOND));
    assert!(sent(&mut chain).is_empty());
    chain.advance(SECOND).unwrap();
    let first = probe(1, 1u64.to_be_bytes());
    assert_eq!(sent(&mut chain), [first]);
    assert_eq!(chain.client.timeout(), Some(chain.now + 30 * SECOND));
    chain.advance(29 * SECOND).unwrap();
    assert!(sent(&mut chain).is_empty());
    // Everything that the neighbour sends shows that it is there.
    let mut chain = opened();
    for _ in 0..20 {
        chain.now += 10 * SECOND;
        exchange(&mut chain);
        chain.advance(Duration::ZERO).unwrap();
        assert!(sent(&mut chain).is_empty());
    }
}

#[test]
fn a_silent_middlebox_ends_the_session_at_both_sides() {
    let mut chain = opened();
    let late = chain.now + 45 * SECOND;
    let silent =
        |hop| ContextError::Timeout { what: "the answer to a PING", from: Role::Middlebox(hop) };
    for (end, hop) in [(&mut chain.client, 1), (&mut chain.server, 2)] {
        assert_eq!(end.handle_timeout(late - 30 * SECOND), Ok(()));
        assert_eq!(end.handle_timeout(late - SECOND), Ok(()));
        assert_eq!(end.timeout(), Some(late));
        assert_eq!(end.handle_timeout(late), Err(silent(hop)));
        assert_eq!(end.timeout(), None);
    }
    assert_eq!(silent(1).to_string(), "timed out: middlebox 1 did not send the answer to a PING");
}

#[test]
fn a_party_whose_neighbour_is_dead_closes_the_other_side_too() {
    // The neighbour of middlebox 2 that sends in this direction, and the party on its other side.
    let cases = [(ToServer, Role::Middlebox(1), 3), (ToClient, Role::Server, 1)];
    for (from, dead, other) in cases {
        let mut chain = opened();
        let relay = &mut chain.relays[1];
        let late = chain.now + 45 * SECOND;
        relay.handle_timeout(late - 30 * SECOND).unwrap();
        // The neighbour on the other side answers.
        let alive = from.reverse();
        relay.receive(alive, &mut probe(2, 1u64.to_be_bytes()), late - 29 * SECOND).unwrap();
        let error = ContextError::Timeout { what: "the answer to a PING", from: dead };
        assert_eq!(relay.handle_timeout(late), Err(error));
        assert_eq!(relay.timeout(), None);
        let mut bytes = Vec::new();
        relay.transmit(alive, &mut Vec::new());
        relay.transmit(from, &mut bytes);
        let link = if from == ToServer { 2 } else { 1 };
        chain.inject(link, from, &bytes[bytes.len() - 7..]);
        assert_eq!(chain.run(), Err((other, ContextError::Alert { code: 4, hop: 2 })));
    }
}

#[test]
fn a_ping_is_answered_with_its_number_on_its_own_link_only() {
    for link in 0..3 {
        for direction in DIRECTIONS {
            let mut chain = opened();
            chain.inject(link, direction, &ping());
            // The answer arrives where no party has asked for it.
            let sender = receiver(link, direction.reverse());
            let error = ContextError::Unexpected("a PONG without a PING");
            assert_eq!(chain.run(), Err((sender, error)));
        }
    }
    // Each is answered if the one before was.
    let mut chain = opened();
    for number in 0..5 {
        chain.client.receive(&mut probe(1, [number; 8]), chain.now).unwrap();
        let mut bytes = Vec::new();
        chain.client.transmit(&mut bytes);
        assert_eq!(bytes, probe(2, [number; 8]));
    }
}

#[test]
fn what_breaks_the_rules_of_pings_is_fatal() {
    let second = ContextError::Unexpected("a second PING before the answer");
    let unasked = ContextError::Unexpected("a PONG without a PING");
    let malformed = ContextError::Malformed("a PING");
    let mut short = Vec::new();
    frame::put(&mut short, frame::PING, &[&[1; 8]]);
    let mut long = Vec::new();
    frame::put(&mut long, frame::PING, &[&[1; 10]]);
    let cases = [
        ([ping(), ping()].concat(), second),
        (probe(2, [0; 8]), unasked.clone()),
        (probe(2, 1u64.to_be_bytes()), unasked),
        (probe(0, [0; 8]), malformed.clone()),
        (probe(3, [1; 8]), malformed.clone()),
        (probe(4, [0; 8]), malformed.clone()),
        (short, malformed.clone()),
        (long, malformed),
    ];
    for link in 0..3 {
        for direction in DIRECTIONS {
            for (bytes, error) in &cases {
                let mut chain = opened();
                chain.inject(link, direction, bytes);
                assert_eq!(chain.run(), Err((receiver(link, direction), error.clone())));
            }
        }
    }
    // The answer to another PING than the one that was sent.
    let mut chain = opened();
    chain.client.handle_timeout(chain.now + 15 * SECOND).unwrap();
    let error = ContextError::Unexpected("a PONG without a PING");
    let found = chain.client.receive(&mut probe(2, 2u64.to_be_bytes()), chain.now).unwrap_err();
    assert_eq!(found.cause(), &error);
    let text = "out of order: a PONG without a PING (PING from middlebox 1)";
    assert_eq!(found.to_string(), text);
}

#[test]
fn a_ping_before_ready_is_fatal() {
    let server_handshake = "a frame of the server's handshake";
    // Where it is found after SBIND, when READY of the server has not come.
    let cases = [
        (0, ToClient, "a frame before every party is there"),
        (0, ToServer, "a PING before READY"),
        (1, ToClient, server_handshake),
        (1, ToServer, "a PING before READY"),
        (2, ToClient, server_handshake),
        (2, ToServer, "a PING before READY"),
    ];
    for (link, direction, what) in cases {
        let mut chain = Chain::new(&Parties::new(&[&[Read, Write]]));
        chain.run().unwrap();
        chain.inject(link, direction, &ping());
        let error = ContextError::Unexpected(what);
        assert_eq!(chain.run(), Err((receiver(link, direction), error)));
    }
    // Before the keys of this middlebox have come.
    let mut chain = Chain::new(&Parties::new(&[&[Read, Write]]));
    chain.attack((0, ToServer), |frames| [frames, vec![ping()]].concat());
    let error = ContextError::Unexpected("a frame of the client's handshake");
    assert_eq!(chain.run(), Err((1, error)));
}

#[test]
fn a_ping_between_a_mark_and_the_last_audit_is_fatal() {
    let unexpected = || ContextError::Unexpected("a frame in a session");
    for (link, direction) in (0..3).flat_map(|link| DIRECTIONS.map(|direction| (link, direction))) {
        // Before the first audit on this link, and before each later one.
        let audits = if direction == ToServer { link + 1 } else { 3 - link };
        for at in 0..audits {
            let mut chain = opened();
            let mut passed = 0;
            chain.replace((link, direction), frame::AUDIT, move |audit| {
                passed += 1;
                if passed == at + 1 { vec![ping(), audit] } else { vec![audit] }
            });
            let end = if direction == ToServer { &mut chain.client } else { &mut chain.server };
            end.control(b"message").unwrap();
            assert_eq!(chain.run(), Err((receiver(link, direction), unexpected())));
        }
    }
}

#[test]
fn a_middlebox_sends_no_ping_between_a_mark_and_its_audit() {
    let mut chain = opened();
    // The audit of the client is under way.
    chain.client.control(b"message").unwrap();
    let mut bytes = Vec::new();
    chain.client.transmit(&mut bytes);
    let audit = frames(&bytes).pop().unwrap();
    chain.inject(0, ToServer, &bytes[..bytes.len() - audit.len()]);
    chain.run().unwrap();
    let sent = Rc::new(Cell::new(0));
    let counted = sent.clone();
    chain.replace((1, ToServer), frame::PING, move |ping| {
        counted.set(counted.get() + 1);
        vec![ping]
    });
    // Middlebox 1 owes its other neighbour an answer, and has heard nothing of it. The client is
    // not asked: it cannot answer now.
    chain.relays[0].set_reading(ToServer, false, chain.now);
    chain.now += 15 * SECOND;
    chain.relays[1].handle_timeout(chain.now).unwrap();
    chain.relays[0].handle_timeout(chain.now).unwrap();
    chain.run().unwrap();
    chain.relays[0].set_reading(ToServer, true, chain.now);
    chain.run().unwrap();
    assert_eq!(sent.get(), 0);
    chain.inject(0, ToServer, &audit);
    chain.run().unwrap();
    // Its PING and its PONG.
    assert_eq!(sent.get(), 2);
    for _ in 0..5 {
        chain.advance(15 * SECOND).unwrap();
        chain.run().unwrap();
    }
}

#[test]
fn a_party_that_reads_nothing_shows_that_it_is_there() {
    let mut chain = opened();
    chain.client.set_reading(false, chain.now);
    for _ in 0..100 {
        chain.now += 15 * SECOND;
        chain.client.handle_timeout(chain.now).unwrap();
        let mut bytes = Vec::new();
        chain.client.transmit(&mut bytes);
        assert_eq!(bytes, probe(3, [0; 8]));
        let relay = &mut chain.relays[0];
        relay.receive(ToServer, &mut bytes, chain.now).unwrap();
        // The other side of the middlebox answers as usual.
        relay.receive(ToClient, &mut probe(3, [0; 8]), chain.now).unwrap();
        relay.handle_timeout(chain.now).unwrap();
    }
    // When it reads again, silence counts from then on.
    chain.client.set_reading(true, chain.now);
    assert_eq!(chain.client.timeout(), Some(chain.now + 15 * SECOND));
    // A middlebox that does not read from one side, because the other one takes nothing.
    chain.relays[1].set_reading(ToClient, false, chain.now);
    for _ in 0..100 {
        chain.now += 15 * SECOND;
        let relay = &mut chain.relays[1];
        relay.receive(ToServer, &mut probe(3, [0; 8]), chain.now).unwrap();
        relay.handle_timeout(chain.now).unwrap();
        let mut bytes = Vec::new();
        relay.transmit(ToServer, &mut bytes);
        chain.server.receive(&mut bytes, chain.now).unwrap();
        chain.server.handle_timeout(chain.now).unwrap();
    }
}
