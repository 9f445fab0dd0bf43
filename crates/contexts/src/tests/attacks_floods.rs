//! Floods of first flights: cheap checks come before public-key operations, and honest sessions go
//! on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_core::{SecretKey, SystemRandom};

use super::attacks_handshake::{forged_by, malformed, unexpected};
use super::chain::{Chain, Parties, frames};
use super::probe::take_operations;
use crate::Direction::{ToClient, ToServer};
use crate::Right::Read;
use crate::messages::Hello;
use crate::{Action, ContextError, HopSetup, Inspector, Path, PathConnection, Piece, Relay, frame};

/// How many first flights make a flood.
const FLOOD: usize = 200;

fn parties(hops: usize) -> Parties {
    Parties::new(&[&vec![Read; hops]])
}

/// PATH and ClientHello of a client, and what an attacker adds in place of the middleboxes: signed
/// with a key that no path names.
fn forged_flight(parties: &Parties) -> Vec<Vec<u8>> {
    let mut first = Vec::new();
    Chain::new(parties).client.transmit(&mut first);
    let mut flight = frames(&first);
    let key = SecretKey::generate(&SystemRandom).unwrap();
    for hop in 1..=parties.hops.len() as u8 {
        let mut out = Vec::new();
        let public = vec![hop; parties.path.kem.key_len()];
        Hello::signed(&key, hop, &[0; 32], &public).put(&mut out);
        frame::put(&mut out, frame::MBKEY, &[&[hop], &public]);
        flight.extend(frames(&out));
    }
    flight
}

/// What a server says to a flight, how many public-key operations that takes, and whether it sends
/// more than an ALERT.
fn at_server(parties: &Parties, flight: &[Vec<u8>]) -> (Result<(), ContextError>, usize, bool) {
    take_operations();
    let now = Instant::now();
    let mut server = PathConnection::server(parties.server.clone(), now);
    let found = server.receive(&mut flight.concat(), now);
    let found = found.map(|_| ()).map_err(|error| error.cause().clone());
    let mut out = Vec::new();
    server.transmit(&mut out);
    (found, take_operations(), frames(&out).iter().any(|one| one[0] != frame::ALERT))
}

#[test]
fn a_server_refuses_an_unlisted_middlebox_and_a_malformed_flight_without_a_public_key_operation() {
    let mut parties = parties(16);
    let flight = forged_flight(&parties);
    let refused = |text: &str| Err(ContextError::Refused(text.to_owned()));

    let honest = parties.server.policy.clone();
    let listed = parties.hops[..15].iter().map(|hop| hop.key.identity()).collect::<Vec<_>>();
    parties.server.policy = Arc::new(move |path: &Path| {
        let all = path.hops.iter().all(|hop| listed.contains(&hop.party.identity));
        if all { Ok(()) } else { Err("an unlisted middlebox".to_owned()) }
    });
    // Its signatures are wrong, too: the list comes first.
    let found = at_server(&parties, &flight);
    assert_eq!(found, (refused("an unlisted middlebox"), 0, false));
    parties.server.policy = honest;

    let changed = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut flight = flight.clone();
        change(&mut flight);
        at_server(&parties, &flight)
    };
    // All middleboxes but the last, with one of them twice, and in another order.
    assert_eq!(changed(&|flight| flight.truncate(2 + 2 * 15)), (Ok(()), 0, false));
    let order = unexpected("a MBHELLO of another middlebox");
    let found = changed(&|flight| {
        let twice = flight[2..4].to_vec();
        flight.splice(4..4, twice);
    });
    assert_eq!(found, (Err(order.clone()), 0, false));
    let found = changed(&|flight| {
        let hello = flight.remove(2);
        flight.insert(4, hello);
    });
    assert_eq!(found, (Err(unexpected("a MBKEY without its MBHELLO")), 0, false));
    assert_eq!(changed(&|flight| drop(flight.drain(2..4))), (Err(order), 0, false));
    // A key of a wrong length, and one that is not in its MBHELLO.
    let short = changed(&|flight| {
        let mut out = Vec::new();
        frame::put(&mut out, frame::MBKEY, &[&[1; 32]]);
        flight[3] = out;
    });
    assert_eq!(short, (Err(forged_by("a MBKEY", 1)), 0, false));
    let other = changed(&|flight| *flight[3].last_mut().unwrap() ^= 1);
    assert_eq!(other, (Err(forged_by("a MBKEY", 1)), 0, false));
    let malformed_hello = changed(&|flight| flight[2][6] = 3);
    assert_eq!(malformed_hello, (Err(malformed("a MBHELLO")), 0, false));
}

/// Sixteen forged middleboxes cost the server its part of TLS and one verification, not sixteen.
#[test]
fn a_server_stops_at_the_first_forged_middlebox() {
    let parties = parties(16);
    let found = at_server(&parties, &forged_flight(&parties));
    assert_eq!(found, (Err(forged_by("a MBHELLO", 1)), 2, false));
}

struct Pass;

impl Inspector for Pass {
    fn record(&mut self, _: Piece<'_>) -> Action {
        Action::Pass
    }
}

fn relay(setup: &HopSetup) -> Relay {
    Relay::new(setup.clone(), Box::new(Pass), Instant::now())
}

/// As [`at_server`], at a middlebox; and what it sends on.
fn at_hop(setup: &HopSetup, flight: &[Vec<u8>]) -> (Result<(), ContextError>, usize, Vec<u8>) {
    take_operations();
    let mut relay = relay(setup);
    let found = relay.receive(ToServer, &mut flight.concat(), Instant::now());
    let found = found.map(|_| ()).map_err(|error| error.cause().clone());
    let mut out = Vec::new();
    relay.transmit(ToServer, &mut out);
    let kinds = frames(&out).iter().map(|one| one[0]).collect();
    (found, take_operations(), kinds)
}

#[test]
fn a_middlebox_refuses_an_unlisted_path_and_a_malformed_flight_without_a_public_key_operation() {
    let parties = parties(3);
    let flight = forged_flight(&parties);
    let [first, second, _] = &parties.hops[..] else { panic!() };
    let alert = vec![frame::ALERT];

    let mut unlisted = second.clone();
    unlisted.policy = Arc::new(|_, _| Err("not listed".to_owned()));
    let refused = |text: &str| Err(ContextError::Refused(text.to_owned()));
    assert_eq!(at_hop(&unlisted, &flight), (refused("not listed"), 0, alert.clone()));
    let mut other = second.clone();
    other.key = Arc::new(SecretKey::generate(&SystemRandom).unwrap());
    let found = at_hop(&other, &flight);
    assert_eq!(found, (refused("the path does not lead here"), 0, alert));

    // The second one does nothing of its own before the first one's message is complete.
    let waits = (Ok(()), 0, vec![frame::PATH, flight[1][0], frame::MBHELLO]);
    assert_eq!(at_hop(second, &flight[..3]), waits);
    let (found, operations, _) = at_hop(second, &[&flight[..2], &flight[3..4]].concat());
    let error = unexpected("a frame of the client's handshake");
    assert_eq!((found, operations), (Err(error), 0));
    // Its own part is one key and one signature, however often a forged one stands before it.
    assert_eq!(at_hop(second, &flight[..4]).1, 2);
    assert_eq!(at_hop(first, &flight[..2]).1, 2);
}

/// No flood uses up what the parties keep for others: sessions open, and later ones are resumed.
#[test]
fn sessions_open_and_resume_among_floods() {
    let parties = parties(2);
    let flight = forged_flight(&parties);
    let mut open: Vec<(Relay, PathConnection)> = Vec::new();
    for round in 0..FLOOD {
        let now = Instant::now();
        let mut server = PathConnection::server(parties.server.clone(), now);
        let mut middle = relay(&parties.hops[0]);
        assert!(server.receive(&mut flight.concat(), now).is_err());
        middle.receive(ToServer, &mut flight[..2].concat(), now).unwrap();
        // They stay open, as those of an attacker that waits for the time limit.
        let mut half = PathConnection::server(parties.server.clone(), now);
        half.receive(&mut flight[..5].concat(), now).unwrap();
        open.push((middle, half));
        if round % (FLOOD / 4) == 0 {
            let mut chain = Chain::new(&parties);
            assert_eq!(chain.whole_session(), Ok(()));
            assert_eq!(chain.relays[0].is_resumed(), Some(round > 0));
        }
    }
    // An open one costs no more than what arrived, and ends by itself.
    let sent: usize = flight.iter().map(Vec::len).sum();
    for (middle, half) in &mut open {
        assert!(half.memory() < 4 * sent, "{} of {sent}", half.memory());
        let late = Instant::now() + Duration::from_secs(11);
        assert!(half.handle_timeout(late).is_err() && middle.handle_timeout(late).is_err());
        assert!(middle.pending(ToClient) > 0);
    }
}
