//! Middleboxes that answer in place of the server, and endorsements.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::chain::{Chain, Parties, data_of, events};
use crate::Right::{None as No, Read, Write};
use crate::{
    Action, AnswerPart, ContextError, Direction, Inspector, Piece, Purpose, Received, Relay,
};
use crate::{PathEvent, Right};

/// A cache of one answer: what it stored, and whether endorsements verified.
#[derive(Default)]
pub(crate) struct Stored {
    /// Head and body of a response that may be used again.
    pub(crate) answer: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) endorsed: Vec<bool>,
    pub(crate) realm: Option<[u8; 16]>,
    /// It does not want endorsements.
    pub(crate) ignores: bool,
}

pub(crate) struct Cache {
    pub(crate) stored: Arc<Mutex<Stored>>,
    passing: (Vec<u8>, Vec<u8>),
    /// What of the body was sent; None before the head.
    sent: Option<usize>,
}

/// Bytes of a part of an answer.
const PART: usize = 40_000;

impl Cache {
    pub(crate) fn new(stored: &Arc<Mutex<Stored>>) -> Self {
        Self { stored: stored.clone(), passing: Default::default(), sent: None }
    }
}

impl Inspector for Cache {
    fn wants_endorsements(&self) -> bool {
        !self.stored.lock().unwrap().ignores
    }

    fn started(&mut self, _: bool, realm: Option<[u8; 16]>) {
        self.stored.lock().unwrap().realm = realm;
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        let hit = self.stored.lock().unwrap().answer.is_some();
        match (piece.direction, piece.context) {
            (Direction::ToServer, _) if hit => return Action::Replace(Vec::new()),
            (Direction::ToServer, _) => {}
            (Direction::ToClient, 2) => self.passing.0.extend_from_slice(piece.data),
            (Direction::ToClient, _) => self.passing.1.extend_from_slice(piece.data),
        }
        Action::Pass
    }

    fn exchange(&mut self, direction: Direction, _: u64, endorsed: bool) {
        if direction == Direction::ToServer {
            return;
        }
        let passing = std::mem::take(&mut self.passing);
        let mut stored = self.stored.lock().unwrap();
        stored.endorsed.push(endorsed);
        if endorsed && !passing.0.is_empty() {
            stored.answer = Some(passing);
        }
    }

    fn answer(&mut self, _: u64) -> Option<AnswerPart> {
        let (head, body) = self.stored.lock().unwrap().answer.clone()?;
        let Some(sent) = self.sent else {
            self.sent = Some(0);
            return Some(AnswerPart { context: 2, data: head, end: true, last: false });
        };
        let until = body.len().min(sent + PART);
        let last = until == body.len();
        self.sent = (!last).then_some(until);
        let data = body[sent..until].to_vec();
        Some(AnswerPart { context: 3, data, end: last, last })
    }
}

/// Contexts: request head, response head, response body; `rights` of each middlebox in all three.
pub(crate) fn parties(rights: &[Right]) -> Parties {
    let mut parties = Parties::new(&[rights, rights, rights]);
    let purposes = [Purpose::RequestHead, Purpose::ResponseHead, Purpose::ResponseBody];
    for (context, purpose) in parties.path.contexts.iter_mut().zip(purposes) {
        context.purpose = purpose;
    }
    parties
}

/// A session in which middlebox `at` is a cache.
pub(crate) fn with_cache(parties: &Parties, at: usize, stored: &Arc<Mutex<Stored>>) -> Chain {
    let mut chain = Chain::new(parties);
    let cache = Box::new(Cache::new(stored));
    chain.relays[at] = Relay::new(parties.hops[at].clone(), cache, Instant::now());
    chain
}

pub(crate) fn request(chain: &mut Chain) {
    chain.client.write(1, b"GET /").unwrap();
    chain.client.finish().unwrap();
    chain.run().unwrap();
}

pub(crate) fn answer(chain: &mut Chain, body: &[u8]) {
    chain.server.write(2, b"200").unwrap();
    chain.server.end(2).unwrap();
    chain.server.write(3, body).unwrap();
    chain.server.finish().unwrap();
    chain.run().unwrap();
}

#[test]
fn an_endorsed_answer_is_stored_and_given_again_without_the_server() {
    let body = vec![b'b'; 700_000];
    for (at, rights) in [(0, [Write, No]), (1, [No, Write]), (1, [Write, Write])] {
        let parties = parties(&rights);
        let stored = Arc::default();
        let mut chain = with_cache(&parties, at, &stored);
        chain.open();
        assert_eq!(stored.lock().unwrap().realm, Some([7; 16]));
        request(&mut chain);
        assert_eq!(data_of(&events(&mut chain.server)).1, 1);
        answer(&mut chain, &body);
        let (data, exchanges) = data_of(&events(&mut chain.client));
        let expected = [(2, b"200".to_vec(), 0, true), (3, body.clone(), 0, true)];
        assert!(data == expected && exchanges == 1);
        assert_eq!(stored.lock().unwrap().endorsed, [true]);
        for _ in 0..3 {
            request(&mut chain);
            assert!(events(&mut chain.server).is_empty(), "the server sees no request");
            let events = events(&mut chain.client);
            let (data, _) = data_of(&events);
            let origin = at as u8 + 1;
            let expected = [(2, b"200".to_vec(), origin, false), (3, body.clone(), origin, false)];
            assert!(data == expected);
            assert_eq!(
                events.last(),
                Some(&PathEvent::Received(Received::Exchange { by: origin }))
            );
        }
        // The server's empty answers to what it did not see are not stored.
        assert_eq!(stored.lock().unwrap().endorsed.len(), 1 + 3);
    }
}

/// A client that does not read keeps a middlebox from making more of its answer; what comes from
/// behind waits, and nothing is lost.
#[test]
fn a_long_answer_is_made_as_the_client_takes_it() {
    let parties = parties(&[Write]);
    let stored = Arc::default();
    let mut chain = with_cache(&parties, 0, &stored);
    chain.open();
    let body: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    stored.lock().unwrap().answer = Some((b"200".to_vec(), body.clone()));
    chain.client.write(1, b"GET /").unwrap();
    chain.client.finish().unwrap();
    let mut bytes = Vec::new();
    chain.client.transmit(&mut bytes);
    chain.relays[0].receive(Direction::ToServer, &mut bytes, chain.now).unwrap();
    let made = chain.relays[0].pending(Direction::ToClient);
    assert!(chain.relays[0].is_answering() && made < 400_000, "{made} bytes");
    // The server's exchange for the emptied request arrives in the meantime.
    let mut bytes = Vec::new();
    chain.relays[0].transmit(Direction::ToServer, &mut bytes);
    chain.server.receive(&mut bytes, chain.now).unwrap();
    bytes.clear();
    chain.server.transmit(&mut bytes);
    assert!(!bytes.is_empty());
    assert_eq!(chain.relays[0].receive(Direction::ToClient, &mut bytes, chain.now), Ok(0));
    chain.inject(1, Direction::ToClient, &bytes);
    chain.run().unwrap();
    let (data, exchanges) = data_of(&events(&mut chain.client));
    assert!(data == [(2, b"200".to_vec(), 1, false), (3, body, 1, false)] && exchanges == 1);
    assert!(!chain.relays[0].is_answering());
}

/// A middlebox saves the hash of each plaintext then.
#[test]
fn no_answer_counts_as_endorsed_for_a_middlebox_that_does_not_ask() {
    for rights in [[Read, No], [Write, No]] {
        let stored: Arc<Mutex<Stored>> = Arc::default();
        stored.lock().unwrap().ignores = true;
        let mut chain = with_cache(&parties(&rights), 0, &stored);
        chain.open();
        request(&mut chain);
        answer(&mut chain, b"body");
        let (data, exchanges) = data_of(&events(&mut chain.client));
        assert_eq!((data.len(), exchanges), (2, 1));
        assert_eq!(stored.lock().unwrap().endorsed, [false]);
        assert!(stored.lock().unwrap().answer.is_none());
    }
}

#[test]
fn an_answer_of_a_cache_waits_for_those_of_earlier_requests() {
    let parties = parties(&[Write]);
    let stored = Arc::default();
    let mut chain = with_cache(&parties, 0, &stored);
    chain.open();
    request(&mut chain);
    chain.client.write(1, b"GET /").unwrap();
    chain.client.finish().unwrap();
    stored.lock().unwrap().answer = Some((b"old".to_vec(), b"stored".to_vec()));
    chain.run().unwrap();
    assert!(data_of(&events(&mut chain.client)).0.is_empty());
    answer(&mut chain, b"first");
    let (data, exchanges) = data_of(&events(&mut chain.client));
    assert_eq!(exchanges, 2);
    let bodies: Vec<_> = data.iter().filter(|part| part.0 == 3).map(|part| &part.1[..]).collect();
    // The first answer was endorsed and is what the cache has by then.
    assert_eq!(bodies, [b"first", b"first"]);
}

/// An open session with a cache, and behind it a middlebox that replaces what stands in `context`.
fn with_replacement_behind(stored: &Arc<Mutex<Stored>>, context: u8, with: &'static [u8]) -> Chain {
    let parties = parties(&[Write, Write]);
    let replace = move |piece: &Piece<'_>| match piece.context == context {
        true => Action::Replace(with.to_vec()),
        false => Action::Pass,
    };
    let mut chain = Chain::with(&parties, vec![Box::new(|_| Action::Pass), Box::new(replace)]);
    let cache = Box::new(Cache::new(stored));
    chain.relays[0] = Relay::new(parties.hops[0].clone(), cache, Instant::now());
    chain.open();
    chain
}

#[test]
fn an_answer_that_a_middlebox_behind_has_changed_is_not_endorsed() {
    let stored = Arc::default();
    let mut chain = with_replacement_behind(&stored, 3, b"false");
    request(&mut chain);
    answer(&mut chain, b"true");
    assert_eq!(stored.lock().unwrap().endorsed, [false]);
}

/// R2: the endorsement covers the request as the server received it.
#[test]
fn an_answer_to_a_request_that_was_changed_behind_the_cache_is_not_endorsed() {
    let stored = Arc::default();
    let mut chain = with_replacement_behind(&stored, 1, b"GET /other");
    request(&mut chain);
    answer(&mut chain, b"other");
    let stored = stored.lock().unwrap();
    assert_eq!(stored.endorsed, [false]);
    assert!(stored.answer.is_none());
}

#[test]
fn a_request_that_is_emptied_and_not_answered_is_an_error_of_the_client() {
    let parties = parties(&[Write]);
    let empty = |piece: &Piece<'_>| match piece.direction {
        Direction::ToServer => Action::Replace(Vec::new()),
        Direction::ToClient => Action::Pass,
    };
    let mut chain = Chain::with(&parties, vec![Box::new(empty)]);
    chain.open();
    chain.client.write(1, b"GET /").unwrap();
    chain.client.finish().unwrap();
    let (party, error) = chain.run().unwrap_err();
    assert_eq!(party, 1, "{error}");
}

/// A middlebox cannot verify the audits of others. It passes them on only if all of them are of one
/// kind, so that no party on the path ends an exchange for it before the server does.
#[test]
fn an_audit_of_another_kind_does_not_make_half_an_answer_endorsed() {
    let parties = parties(&[Write, Write]);
    let stored = Arc::default();
    let mut chain = with_cache(&parties, 0, &stored);
    chain.open();
    request(&mut chain);
    answer(&mut chain, b"short");
    assert_eq!(stored.lock().unwrap().endorsed, [true]);
    stored.lock().unwrap().answer = None;
    chain.attack = Some(Box::new(|link, direction, mut frames| {
        for frame in &mut frames {
            let part = [frame[0], frame[5], *frame.get(6).unwrap_or(&9)] == [0x49, 2, 0];
            if link == 1 && direction == Direction::ToClient && part {
                frame[6] = 1;
            }
        }
        frames
    }));
    request(&mut chain);
    chain.server.write(2, b"200").unwrap();
    chain.server.end(2).unwrap();
    chain.server.write(3, &vec![1; 400_000]).unwrap();
    chain.server.finish().unwrap();
    let (party, error) = chain.run().unwrap_err();
    assert_eq!((party, error), (1, ContextError::Unexpected("an audit of another party or kind")));
    assert_eq!(stored.lock().unwrap().endorsed, [true]);
}
