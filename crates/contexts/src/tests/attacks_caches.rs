//! Attacks on caches, and by them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use super::caches::{Stored, answer, parties, request, with_cache};
use super::chain::{Behaviour, Chain, Parties, data_of, events, frames, sender_of};
use super::insider::Insider;
use crate::Direction::{ToClient, ToServer};
use crate::Right::{None as No, Read, Write};
use crate::audit::{Counters, Kind};
use crate::record::{Head, Position};
use crate::{Action, AnswerPart, ContextError, PathEvent, Piece, Received, Relay, frame};

fn stored_answer() -> Arc<Mutex<Stored>> {
    let stored =
        Stored { answer: Some((b"old".to_vec(), b"stored".to_vec())), ..Stored::default() };
    Arc::new(Mutex::new(stored))
}

fn unexpected(what: &'static str) -> ContextError {
    ContextError::Unexpected(what)
}

/// An own answer of a middlebox that breaks the rules.
fn own_answer(chain: &mut Chain, data: &[u8]) {
    let mut out = Vec::new();
    let flow = chain.relays[0].flow(ToClient).unwrap();
    let head = AnswerPart { context: 2, data: b"own".to_vec(), end: true, last: false };
    let body = AnswerPart { context: 3, data: data.to_vec(), end: true, last: true };
    flow.answer(&head, &mut out).unwrap();
    flow.answer(&body, &mut out).unwrap();
    chain.inject(0, ToClient, &out);
}

/// A client and the link behind the cache work together: they have every key of the endpoints but
/// that of endorsements.
#[test]
fn an_answer_that_the_client_forged_is_not_stored() {
    for endorsed in [false, true] {
        let parties = parties(&[Write]);
        let stored = Arc::default();
        let mut chain = with_cache(&parties, 0, &stored);
        chain.open();
        request(&mut chain);
        let mut server = sender_of(chain.client.bound().unwrap(), ToClient);
        server.write(2, b"200").unwrap();
        server.write(3, b"false").unwrap();
        server.finish(&[]).unwrap();
        let mut forged = Vec::new();
        server.transmit(&mut forged);
        if endorsed {
            let mut frames = frames(&forged);
            let audit = frames.pop().unwrap();
            forged = frames.concat();
            frame::put(&mut forged, frame::AUDIT, &[&audit[5..], &[7; 16]]);
        }
        chain.inject(1, ToClient, &forged);
        if endorsed {
            chain.run().unwrap();
            // The client gets what it has made.
            assert_eq!(data_of(&events(&mut chain.client)).1, 1);
            assert_eq!(stored.lock().unwrap().endorsed, [false]);
        } else {
            assert_eq!(chain.run(), Err((1, ContextError::Malformed("an AUDIT"))));
        }
        assert!(stored.lock().unwrap().answer.is_none());
    }
}

#[test]
fn answers_to_requests_that_were_swapped_behind_the_cache_are_not_stored() {
    let parties = parties(&[Write, Write]);
    let stored = Arc::default();
    let swap: Behaviour = Box::new(|piece: &Piece<'_>| match piece.data {
        b"GET /a" => Action::Replace(b"GET /b".to_vec()),
        b"GET /b" => Action::Replace(b"GET /a".to_vec()),
        _ => Action::Pass,
    });
    let mut chain = Chain::with(&parties, vec![Box::new(|_| Action::Pass), swap]);
    chain.relays[0] = with_cache(&parties, 0, &stored).relays.remove(0);
    chain.open();
    for path in ["GET /a", "GET /b"] {
        chain.client.write(1, path.as_bytes()).unwrap();
        chain.client.finish().unwrap();
        chain.run().unwrap();
    }
    answer(&mut chain, b"b");
    answer(&mut chain, b"a");
    assert_eq!(stored.lock().unwrap().endorsed, [false, false]);
    assert!(stored.lock().unwrap().answer.is_none());
}

#[test]
fn answers_that_were_swapped_on_the_way_are_an_error() {
    for (right, party) in [(Write, 1), (No, 0)] {
        let mut chain = Chain::new(&parties(&[right]));
        chain.open();
        for _ in 0..2 {
            request(&mut chain);
        }
        chain.attack((1, ToClient), |mut frames| {
            let half = frames.len() / 2;
            frames.rotate_left(half);
            frames
        });
        for body in [b"1", b"2"] {
            chain.server.write(3, body).unwrap();
            chain.server.finish().unwrap();
        }
        let error = ContextError::Forged { what: "a record", hop: Some(0), context: Some(3) };
        assert_eq!(chain.run(), Err((party, error)));
    }
}

/// R1: a cache that empties a request before the start must not answer it, and the server does not
/// answer for a session that it has refused.
#[test]
fn a_request_from_before_the_start_is_not_answered_by_a_cache() {
    for started in [true, false] {
        let parties = parties(&[Write]);
        let mut chain = with_cache(&parties, 0, &stored_answer());
        chain.run().unwrap();
        chain.client.control(b"operation").unwrap();
        request(&mut chain);
        chain.server.start(started, Some([7; 16]), chain.now).unwrap();
        if started {
            let error = ContextError::Truncated("a request that was emptied on the way");
            assert_eq!(chain.run(), Err((0, error)));
            assert!(data_of(&events(&mut chain.client)).0.is_empty());
            continue;
        }
        chain.attack((1, ToClient), |frames| {
            let mut records = frames.iter().filter(|frame| frame[0] == frame::RECORD);
            assert!(records.all(|record| record[1] == 0), "{frames:?}");
            frames
        });
        chain.server.control(b"refused").unwrap();
        let refused = Err(ContextError::State("the session is refused"));
        assert_eq!(chain.server.write(2, b"200"), refused);
        assert_eq!(chain.server.finish(), refused);
        chain.run().unwrap();
        let events = events(&mut chain.client);
        assert!(data_of(&events).0.is_empty());
        let refused = PathEvent::Received(Received::Control(b"refused".to_vec()));
        assert!(events.contains(&refused));
    }
}

/// A malicious server's refused session.
#[test]
fn a_middlebox_passes_on_only_context_0_of_a_refused_session() {
    let mut chain = Chain::new(&parties(&[No]));
    chain.run().unwrap();
    chain.server.start(false, None, chain.now).unwrap();
    let mut server = sender_of(chain.server.bound().unwrap(), ToClient);
    server.write(2, b"200").unwrap();
    server.finish(&[[0; 32]]).unwrap();
    chain.run().unwrap();
    let mut bytes = Vec::new();
    server.transmit(&mut bytes);
    chain.inject(1, ToClient, &bytes);
    let error = unexpected("a record of a session that was not started");
    assert_eq!(chain.run(), Err((1, error)));
}

#[test]
fn a_middlebox_without_write_in_all_contexts_of_a_message_cannot_answer() {
    let mut parties = parties(&[Write]);
    parties.path.contexts[2].rights[0] = Read;
    let empty: Behaviour = Box::new(|piece| match piece.direction {
        ToServer => Action::Replace(Vec::new()),
        ToClient => Action::Pass,
    });
    let mut chain = Chain::with(&parties, vec![empty]);
    struct Head(Behaviour);
    impl crate::Inspector for Head {
        fn record(&mut self, piece: Piece<'_>) -> Action {
            (self.0)(&piece)
        }
        fn answer(&mut self, _: u64) -> Option<AnswerPart> {
            Some(AnswerPart { context: 2, data: b"200".to_vec(), end: true, last: true })
        }
    }
    let empty: Behaviour = Box::new(|piece| match piece.direction {
        ToServer => Action::Replace(Vec::new()),
        ToClient => Action::Pass,
    });
    chain.relays[0] = Relay::new(parties.hops[0].clone(), Box::new(Head(empty)), chain.now);
    chain.open();
    chain.client.write(1, b"GET /").unwrap();
    chain.client.finish().unwrap();
    let error = ContextError::NoRight { hop: 1, context: 1, what: "answer a request" };
    assert_eq!(chain.run(), Err((0, error)));
    assert!(data_of(&events(&mut chain.client)).0.is_empty());
}

#[test]
fn an_answer_to_a_request_that_was_not_emptied_is_one_too_many() {
    let mut chain = Chain::new(&parties(&[Write]));
    chain.open();
    request(&mut chain);
    own_answer(&mut chain, b"own");
    chain.run().unwrap();
    let last = events(&mut chain.client).pop();
    assert_eq!(last, Some(PathEvent::Received(Received::Exchange { by: 1 })));
    chain.server.write(3, b"true").unwrap();
    chain.server.finish().unwrap();
    assert_eq!(chain.run(), Err((0, unexpected("two answers to one request"))));
    assert!(events(&mut chain.client).is_empty());
}

#[test]
fn a_second_answer_to_one_request_is_an_error() {
    let mut chain = Chain::new(&parties(&[Write]));
    chain.open();
    request(&mut chain);
    own_answer(&mut chain, b"own");
    own_answer(&mut chain, b"own");
    assert_eq!(chain.run(), Err((0, unexpected("an answer without a request"))));
    let mut chain = Chain::new(&parties(&[Write]));
    chain.open();
    own_answer(&mut chain, b"own");
    assert_eq!(chain.run(), Err((0, unexpected("an answer without a request"))));
}

#[test]
fn an_answer_of_a_middlebox_within_that_of_the_server_is_an_error() {
    let mut chain = Chain::new(&parties(&[Write]));
    chain.open();
    request(&mut chain);
    chain.server.write(2, b"200").unwrap();
    chain.server.flush().unwrap();
    chain.run().unwrap();
    own_answer(&mut chain, b"own");
    let error = unexpected("an answer of a middlebox within another one");
    assert_eq!(chain.run(), Err((0, error)));
}

#[test]
fn an_answer_of_the_server_within_that_of_a_middlebox_is_an_error() {
    let mut chain = Chain::new(&parties(&[Write]));
    chain.open();
    request(&mut chain);
    let insider = Insider::of(&chain.relays[0]);
    let head = Head { context: 2, slot: false, mark: true, end: false, origin: 1 };
    let own = insider.seal(ToClient, head, Position::default(), b"own");
    let records = (&[][..], &[own.clone()][..]);
    let part = insider.audit(ToClient, Kind::OwnPart, records, Counters::default());
    chain.inject(0, ToClient, &[own.clone(), part].concat());
    chain.run().unwrap();
    chain.attack((0, ToClient), move |mut frames| {
        let arrived = [frames[0].clone()];
        let left = [own.clone(), frames[0].clone()];
        let counters = Counters { audits: 1, slots: 1, exchange: 0 };
        let audit = insider.audit(ToClient, Kind::Part, (&arrived, &left), counters);
        *frames.last_mut().unwrap() = audit;
        frames
    });
    chain.server.write(2, b"200").unwrap();
    chain.server.flush().unwrap();
    let error = unexpected("a record within an answer of a middlebox");
    assert_eq!(chain.run(), Err((0, error)));
}

#[test]
fn a_middlebox_may_change_the_answer_of_a_cache_behind_it() {
    let mut parties = Parties::new(&[&[Write, No, Write][..]; 3]);
    parties.path.contexts = super::caches::parties(&[Write, No, Write]).path.contexts;
    let pass = || -> Behaviour { Box::new(|_| Action::Pass) };
    let upper: Behaviour = Box::new(|piece| Action::Replace(piece.data.to_ascii_uppercase()));
    let mut chain = Chain::with(&parties, vec![upper, pass(), pass()]);
    chain.relays[2] = with_cache(&parties, 2, &stored_answer()).relays.remove(2);
    chain.open();
    request(&mut chain);
    let events = events(&mut chain.client);
    let expected = [(2, b"OLD".to_vec(), 1, false), (3, b"STORED".to_vec(), 1, false)];
    assert_eq!(data_of(&events).0, expected);
    assert_eq!(events.last(), Some(&PathEvent::Received(Received::Exchange { by: 3 })));
}

/// The answers of a cache come before the server's empty ones, for which every middlebox keeps the
/// request.
#[test]
fn a_cache_is_at_most_64_requests_ahead_of_the_server() {
    let parties = parties(&[Write]);
    let mut chain = with_cache(&parties, 0, &stored_answer());
    chain.open();
    let held = Rc::new(RefCell::new(Vec::new()));
    let hold = held.clone();
    chain.attack((1, ToServer), move |frames| {
        hold.borrow_mut().extend(frames);
        Vec::new()
    });
    for _ in 0..64 {
        request(&mut chain);
        assert_eq!(data_of(&events(&mut chain.client)).1, 1);
    }
    let too_many = ContextError::State("64 requests are without an answer");
    assert_eq!(chain.client.write(1, b"GET /"), Err(too_many));
    chain.attack = None;
    chain.inject(1, ToServer, &held.take().concat());
    chain.run().unwrap();
    assert_eq!(events(&mut chain.client), [PathEvent::Writable]);
    chain.client.write(1, b"GET /").unwrap();
    chain.client.finish().unwrap();
    chain.run().unwrap();
    assert_eq!(data_of(&events(&mut chain.client)).1, 1);
}
