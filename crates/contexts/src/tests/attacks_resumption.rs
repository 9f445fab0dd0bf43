//! Attacks with the secrets of an earlier session.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_core::{Digest, Hasher, Identity};

use super::attacks_handshake::{forged, forged_by};
use super::chain::{Chain, Parties, events};
use crate::Direction::{ToClient, ToServer};
use crate::Right::{Read, Write};
use crate::messages::{self, Hello, Share};
use crate::schedule::Resume;
use crate::{ContextError, HopTickets, Path, PathEvent, ServerPaths, frame};
use levada_channel::ServerConfig;

/// Parties that have had a session.
fn parties() -> Parties {
    let parties = Parties::new(&[&[Read, Write]]);
    Chain::new(&parties).open();
    parties
}

/// What a client kept for the first middlebox beside its newest ticket.
fn kept(parties: &Parties) -> Resume {
    let server = parties.path.server.identity;
    let ticket = parties.tickets.take(&server).unwrap();
    let (id, psk) = ticket.of(&parties.path.hops[0].party.identity).unwrap();
    let kept = Resume { id, psk: psk.clone(), y: None };
    parties.tickets.insert(server, ticket);
    kept
}

/// Whether TLS, and each middlebox, have resumed.
fn resumed(chain: &mut Chain) -> (bool, Vec<bool>) {
    chain.run().unwrap();
    let bound = events(&mut chain.client).into_iter().next();
    let tls = matches!(bound, Some(PathEvent::Bound { resumed: true, .. }));
    (tls, chain.relays.iter().map(|relay| relay.is_resumed().unwrap()).collect())
}

/// The first flight at the server, its TLS records, and the share of the first middlebox.
#[derive(Default)]
struct Recorded {
    first: Vec<Vec<u8>>,
    flight: Hasher,
    share: Option<Vec<u8>>,
}

impl Recorded {
    fn th1(self) -> Digest {
        let mut transcript = messages::first_transcript(&self.first[0], &self.first[1]);
        for frame in self.first.iter().filter(|frame| frame[0] == frame::MBHELLO) {
            transcript = messages::next_transcript(&transcript, frame);
        }
        messages::th1(&transcript, &self.flight.finish())
    }
}

/// C1: the share is sealed under y, which the client does not have.
#[test]
fn a_resuming_client_cannot_open_the_share_of_a_middlebox() {
    let parties = parties();
    let psk = kept(&parties);
    // The middlebox's own secrets, to show that the transcript is the right one.
    let server = parties.path.server.identity;
    let now = Instant::now();
    let own = parties.hops[0].tickets.take(&server, &psk.id, now).unwrap();
    parties.hops[0].tickets.insert(server, own.clone(), now);
    let recorded = Rc::new(RefCell::new(Recorded::default()));
    let record = recorded.clone();
    let mut chain = Chain::new(&parties);
    chain.attack = Some(Box::new(move |link, direction, frames| {
        let mut recorded = record.borrow_mut();
        match (link, direction) {
            (2, ToServer) if recorded.first.is_empty() => recorded.first = frames.clone(),
            (1, ToClient) if recorded.share.is_none() => {
                let tls = frames.iter().take_while(|frame| frame[0] != frame::ECHO);
                tls.for_each(|frame| recorded.flight.update(frame));
                recorded.share = frames.iter().find(|frame| frame[0] == frame::SSHARE).cloned();
            }
            _ => {}
        }
        frames
    }));
    assert_eq!(resumed(&mut chain), (true, vec![true, true]));
    let mut recorded = recorded.take();
    let share = recorded.share.take().unwrap();
    let th1 = recorded.th1();
    assert!(Share::open_resumed(&own.y.unwrap(), 1, &th1, &share).is_ok());
    let error = Share::open_resumed(&psk.psk, 1, &th1, &share).err();
    assert_eq!(error, Some(forged("a server's share")));
}

/// C2: the client, or an attacker with its secrets, answers in place of the middlebox.
#[test]
fn a_client_cannot_play_a_resumed_middlebox_to_the_server() {
    let parties = parties();
    let psk = kept(&parties);
    let mut chain = Chain::new(&parties);
    chain.attack((1, ToServer), move |mut frames| {
        if frames[0][0] == frame::PATH {
            let before = messages::first_transcript(&frames[0], &frames[1]);
            let secrets = Resume { y: Some(psk.psk.clone()), ..psk.clone() };
            let mut own = Vec::new();
            Hello::resumed(&secrets, 1, &before, [3; 32]).unwrap().put(&mut own);
            frames[2] = own;
        }
        frames
    });
    assert_eq!(chain.run(), Err((3, forged_by("a MBHELLO", 1))));
}

/// The tag for the client is made with what only the client and the middlebox keep of the earlier
/// session.
#[test]
fn a_client_accepts_no_resumed_middlebox_without_its_tag() {
    let parties = parties();
    let mut chain = Chain::new(&parties);
    chain.replace((0, ToClient), frame::ECHO, |mut whole| {
        // The tag for the client in the first message: header, header, number and form, nonce.
        whole[5 + 5 + 2 + 32] ^= 1;
        vec![whole]
    });
    assert_eq!(chain.run(), Err((0, forged_by("a MBHELLO", 1))));
}

#[test]
fn a_first_flight_that_comes_again_resumes_nothing() {
    let parties = parties();
    let server = parties.path.server.identity;
    let id = kept(&parties).id;
    let mut flight = Vec::new();
    let mut sessions = [Chain::new(&parties), Chain::new(&parties)];
    sessions[0].client.transmit(&mut flight);
    sessions[1].client.transmit(&mut Vec::new());
    for (chain, resumed) in sessions.iter_mut().zip([true, false]) {
        chain.inject(0, ToServer, &flight);
        // The client of the second session has not sent it.
        assert_eq!(chain.run().is_ok(), resumed);
        assert_eq!(chain.relays[0].is_resumed(), Some(resumed));
        assert!(parties.hops[0].tickets.take(&server, &id, Instant::now()).is_none());
    }
}

#[test]
fn a_middlebox_that_has_forgotten_signs_while_another_resumes() {
    let mut parties = parties();
    parties.hops[1].tickets = Arc::new(HopTickets::new(Duration::from_secs(3600)));
    let mut chain = Chain::new(&parties);
    assert_eq!(resumed(&mut chain), (true, vec![true, false]));
    // The next session finds tickets of both.
    chain.server.start(true, None, chain.now).unwrap();
    chain.run().unwrap();
    assert_eq!(resumed(&mut Chain::new(&parties)), (true, vec![true, true]));
}

#[test]
fn secrets_are_forgotten_after_their_lifetime_and_with_a_lifetime_of_zero_at_once() {
    let parties = parties();
    let server = parties.path.server.identity;
    let id = kept(&parties).id;
    let late = Instant::now() + HopTickets::MAX_LIFETIME;
    assert!(parties.hops[0].tickets.take(&server, &id, late).is_none());
    let none = HopTickets::new(Duration::ZERO);
    let resume = kept(&parties);
    none.insert(server, resume, Instant::now());
    assert!(none.take(&server, &id, Instant::now()).is_none());
}

/// The client may try again, without ids.
#[test]
fn a_server_that_has_forgotten_tells_so() {
    let mut parties = parties();
    parties.server.sessions.clear();
    let mut chain = Chain::new(&parties);
    let alert = ContextError::Alert { code: 3, hop: 0 };
    for party in [3, 2, 1, 0] {
        assert_eq!(chain.run(), Err((party, alert.clone())));
    }
    parties.tickets = Arc::default();
    assert_eq!(resumed(&mut Chain::new(&parties)), (false, vec![false, false]));
}

/// A middlebox keeps secrets by server: with the id of one, a session with another is not resumed.
#[test]
fn an_id_of_another_server_is_unknown() {
    let mut parties = parties();
    let first = parties.path.server.identity;
    let ticket = parties.tickets.take(&first).unwrap();
    let id = ticket.of(&parties.path.hops[0].party.identity).unwrap().0;
    let other = Parties::new(&[&[Read, Write]]);
    let server: Identity = other.path.server.identity;
    let config = Arc::new(ServerConfig::new(&other.server.key).unwrap());
    parties.server = ServerPaths { config, ..other.server.clone() };
    parties.path.server = other.path.server.clone();
    parties.tickets.insert(server, ticket);
    let mut chain = Chain::new(&parties);
    let named = Rc::new(RefCell::new(None));
    let name = named.clone();
    chain.replace((0, ToServer), frame::PATH, move |whole| {
        name.replace(Path::decode(&whole).unwrap().hops[0].resume);
        vec![whole]
    });
    assert_eq!(resumed(&mut chain), (false, vec![false, false]));
    assert_eq!(named.take(), Some(id));
}
