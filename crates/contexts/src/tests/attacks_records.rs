//! Attacks on records by middleboxes, with the keys that they have.

use super::chain::{Behaviour, Chain, Parties, data_of, events};
use super::insider::Insider;
use crate::Direction::{ToClient, ToServer};
use crate::Right::{None as No, Read, Write};
use crate::audit::{Counters, Kind};
use crate::record::{Head, Position};
use crate::{Action, ContextError, Direction, Piece, Right, frame};

/// Contexts: 1 with a reader and a writer, 2 with a writer and a reader, 3 with two writers, 4 with
/// readers only, 5 with a reader in front.
const RIGHTS: [&[Right]; 5] =
    [&[Read, Write], &[Write, Read], &[Write, Write], &[Read, Read], &[Read, No]];

fn forged(what: &'static str, origin: u8, context: u8) -> ContextError {
    ContextError::Forged { what, hop: Some(origin), context: Some(context) }
}

const NOT_A_WRITER: &str = "a record, by a party that may not write";
const OTHER_WRITER: &str = "a record, by another writer";

/// An open session; a request has arrived already if the attack is to be on the answer.
fn open(direction: Direction) -> Chain {
    let mut chain = Chain::new(&Parties::new(&RIGHTS));
    chain.open();
    if direction == ToClient {
        chain.client.write(1, b"request").unwrap();
        chain.client.finish().unwrap();
        chain.run().unwrap();
        events(&mut chain.server);
    }
    chain
}

/// What a message in this context ends with.
fn send(chain: &mut Chain, direction: Direction, context: u8) -> (usize, ContextError) {
    let end = match direction {
        ToServer => &mut chain.client,
        ToClient => &mut chain.server,
    };
    end.write(context, b"pay 1 euro").unwrap();
    end.finish().unwrap();
    let error = chain.run().unwrap_err();
    for end in [&mut chain.client, &mut chain.server] {
        assert!(data_of(&events(end)).0.is_empty());
    }
    error
}

/// The place of the first record of a context after [`open`]: the operation was one record of the
/// client.
fn first(direction: Direction) -> Position {
    Position { n: 0, g: u64::from(direction == ToServer), q: 0 }
}

/// Middlebox `hop` puts other data in a record's place, and names `origin` as its author.
fn rewrite((hop, direction): (usize, Direction), origin: u8, context: u8) -> (usize, ContextError) {
    let mut chain = open(direction);
    let insider = Insider::of(&chain.relays[hop - 1]);
    let link = if direction == ToServer { hop } else { hop - 1 };
    chain.replace((link, direction), frame::RECORD, move |whole| {
        let place = first(direction);
        let head = Head::of(&whole).unwrap();
        assert_eq!(insider.open(direction, &whole, (place.n, place.g)), b"pay 1 euro");
        vec![insider.seal(direction, Head { origin, ..head }, place, b"pay 1,000 euros")]
    });
    send(&mut chain, direction, context)
}

#[test]
fn a_reader_that_alters_data_is_found_out_by_the_next_writer_or_the_endpoint() {
    assert_eq!(rewrite((1, ToServer), 0, 1), (2, forged(NOT_A_WRITER, 0, 1)));
    assert_eq!(rewrite((1, ToClient), 0, 1), (0, forged(NOT_A_WRITER, 0, 1)));
    assert_eq!(rewrite((2, ToServer), 0, 2), (3, forged(NOT_A_WRITER, 0, 2)));
    assert_eq!(rewrite((2, ToClient), 0, 2), (1, forged(NOT_A_WRITER, 0, 2)));
}

#[test]
fn a_change_where_no_middlebox_may_write_is_found_out_by_the_endpoint() {
    // A reader behind the first one accepts it.
    for hop in [1, 2] {
        assert_eq!(rewrite((hop, ToServer), 0, 4), (3, forged(OTHER_WRITER, 0, 4)));
        assert_eq!(rewrite((hop, ToClient), 0, 4), (0, forged(OTHER_WRITER, 0, 4)));
    }
    assert_eq!(rewrite((1, ToServer), 0, 5), (3, forged(OTHER_WRITER, 0, 5)));
}

#[test]
fn a_reader_cannot_name_itself_or_another_as_the_author() {
    let right = |hop, context| ContextError::NoRight { hop, context, what: "write a record" };
    let behind = ContextError::Unexpected("a record of a middlebox behind this one");
    // Itself.
    assert_eq!(rewrite((1, ToServer), 1, 1), (2, right(1, 1)));
    assert_eq!(rewrite((1, ToClient), 1, 1), (0, right(1, 1)));
    assert_eq!(rewrite((2, ToServer), 2, 4), (3, right(2, 4)));
    // A writer.
    assert_eq!(rewrite((1, ToServer), 2, 1), (2, behind));
    assert_eq!(rewrite((1, ToClient), 2, 1), (0, forged(NOT_A_WRITER, 2, 1)));
    assert_eq!(rewrite((2, ToServer), 1, 2), (3, forged(NOT_A_WRITER, 1, 2)));
    // One that does not exist.
    let unknown = ContextError::Malformed("a record of an unknown middlebox");
    assert_eq!(rewrite((1, ToClient), 3, 1), (0, unknown));
}

#[test]
fn a_writer_cannot_name_an_endpoint_or_another_writer_as_the_author() {
    assert_eq!(rewrite((1, ToClient), 0, 3), (0, forged(OTHER_WRITER, 0, 3)));
    assert_eq!(rewrite((1, ToClient), 2, 3), (0, forged(OTHER_WRITER, 2, 3)));
    assert_eq!(rewrite((2, ToServer), 0, 3), (3, forged(OTHER_WRITER, 0, 3)));
    assert_eq!(rewrite((2, ToServer), 1, 3), (3, forged(OTHER_WRITER, 1, 3)));
}

#[test]
fn a_middlebox_has_keys_only_for_what_it_was_granted() {
    let rights: [&[Right]; 5] =
        [&[Read, Write], &[Write, No], &[No, Read], &[No, No], &[Read, Write]];
    let mut chain = Chain::new(&Parties::new(&rights));
    chain.open();
    for hop in 0..2 {
        let insider = Insider::of(&chain.relays[hop]);
        for (row, keys) in rights.iter().zip(&insider.keys) {
            assert_eq!(keys.is_some(), row[hop] >= Read);
            assert_eq!(keys.as_ref().is_some_and(|keys| keys.write.is_some()), row[hop] == Write);
        }
        for direction in [ToServer, ToClient] {
            let flow = chain.relays[hop].flow(direction).unwrap();
            let granted: Vec<_> = rights.iter().map(|row| row[hop]).collect();
            assert_eq!(flow.rights_by_keys(), granted);
        }
    }
}

/// Box 1 may write in context 2 only; it drops a record of context 4, and seals one of context 2 in
/// its slot.
#[test]
fn a_slot_of_another_context_cannot_be_consumed() {
    for listed in [false, true] {
        let mut chain = open(ToServer);
        let insider = Insider::of(&chain.relays[0]);
        chain.attack((1, ToServer), move |frames| {
            let [record, audit, _] = &frames[..] else { panic!("{frames:?}") };
            let head = Head { context: 2, origin: 1, ..Head::of(record).unwrap() };
            let own = insider.seal(ToServer, head, first(ToServer), b"own");
            let left = if listed { own.clone() } else { record.clone() };
            let records = (std::slice::from_ref(record), &[left][..]);
            // The operation's audit came before.
            let counters = Counters { audits: 1, slots: 2, exchange: 0 };
            let forged = insider.audit(ToServer, Kind::Exchange, records, counters);
            vec![own, audit.clone(), forged]
        });
        let right = ContextError::NoRight { hop: 1, context: 4, what: "change records" };
        let error = if listed { right } else { ContextError::Audit(1) };
        assert_eq!(send(&mut chain, ToServer, 4), (3, error));
    }
}

/// A middlebox that says in its audit that it changed nothing.
#[test]
fn a_change_that_its_author_does_not_admit_is_found_by_the_audit() {
    let mut chain = open(ToServer);
    let insider = Insider::of(&chain.relays[0]);
    chain.attack((1, ToServer), move |frames| {
        let [record, audit, _] = &frames[..] else { panic!("{frames:?}") };
        let head = Head { origin: 1, ..Head::of(record).unwrap() };
        let own = insider.seal(ToServer, head, first(ToServer), b"own");
        let counters = Counters { audits: 1, slots: 2, exchange: 0 };
        let records = [own.clone()];
        let forged = insider.audit(ToServer, Kind::Exchange, (&records, &records), counters);
        vec![own, audit.clone(), forged]
    });
    // The endpoint's audit says what the record was.
    assert_eq!(send(&mut chain, ToServer, 2), (3, ContextError::Audit(0)));
}

/// A writer that changes an exchange's kind in its own audit.
#[test]
fn all_audits_after_a_mark_are_of_one_kind() {
    let mut chain = open(ToServer);
    let insider = Insider::of(&chain.relays[1]);
    chain.attack((2, ToServer), move |frames| {
        let mut frames = frames;
        let counters = Counters { audits: 1, slots: 2, exchange: 0 };
        let records = frames[..1].to_vec();
        let own = insider.audit(ToServer, Kind::Part, (&records, &records), counters);
        *frames.last_mut().unwrap() = own;
        frames
    });
    let error = ContextError::Unexpected("an audit of another party or kind");
    assert_eq!(send(&mut chain, ToServer, 1), (3, error));
}

/// The change of a filter is undone on the link behind it.
#[test]
fn the_original_cannot_be_put_back_behind_a_writer() {
    let parties = Parties::new(&[&[Write]]);
    let filter = |_: &Piece<'_>| Action::Replace(b"filtered".to_vec());
    let mut chain = Chain::with(&parties, vec![Box::new(filter)]);
    chain.open();
    let mut original = None;
    chain.attack = Some(Box::new(move |link, direction, mut frames| {
        for frame in frames.iter_mut().filter(|frame| frame[0] == frame::RECORD) {
            match (link, direction) {
                (0, ToServer) => original = Some(frame.clone()),
                (1, ToServer) => *frame = original.take().unwrap(),
                _ => {}
            }
        }
        frames
    }));
    assert_eq!(send(&mut chain, ToServer, 1), (2, ContextError::Audit(1)));
}

/// A box with write on the head alone may not decide where the body ends.
#[test]
fn a_middlebox_cannot_end_or_prolong_a_message_of_another_context() {
    let mut chain = open(ToServer);
    chain.replace((2, ToServer), frame::RECORD, |mut whole| {
        whole[2] ^= 0x20;
        vec![whole]
    });
    assert_eq!(send(&mut chain, ToServer, 5), (3, forged("a record", 0, 5)));
}

#[test]
fn a_middlebox_inserts_at_most_64_records_between_two_audits() {
    for (records, fits) in [(64, true), (65, false)] {
        let grow: Behaviour = Box::new(move |_| Action::Replace(vec![1; records * 16_383 + 1]));
        let mut chain = Chain::with(&Parties::new(&[&[Write]]), vec![grow]);
        chain.open();
        chain.client.write(1, b"1").unwrap();
        chain.client.finish().unwrap();
        let flood = Err((1, ContextError::Flood("inserted records")));
        assert_eq!(chain.run(), if fits { Ok(()) } else { flood });
        let data = data_of(&events(&mut chain.server)).0;
        let length = data.first().map_or(0, |part| part.1.len());
        assert_eq!(length, if fits { records * 16_383 + 1 } else { 0 });
    }
}

#[test]
fn more_than_64_inserted_records_are_an_error_of_the_next_party() {
    // A middlebox behind it, or the server.
    for rights in [&[Write, No][..], &[Write, Write], &[Write]] {
        let mut chain = Chain::new(&Parties::new(&[rights]));
        chain.open();
        let insider = Insider::of(&chain.relays[0]);
        let head = Head { context: 1, slot: false, mark: false, end: false, origin: 1 };
        let place = |q| Position { n: 0, g: 1, q };
        let bytes: Vec<u8> =
            (0..65).flat_map(|q| insider.seal(ToServer, head, place(q), b"more")).collect();
        chain.inject(1, ToServer, &bytes);
        assert_eq!(chain.run(), Err((2, ContextError::Flood("inserted records"))));
    }
}

#[test]
fn the_counter_of_a_middlebox_only_grows() {
    let mut chain = Chain::new(&Parties::new(&[&[Write]]));
    chain.open();
    let insider = Insider::of(&chain.relays[0]);
    let head = Head { context: 1, slot: false, mark: false, end: false, origin: 1 };
    let own = [1, 0].map(|q| insider.seal(ToServer, head, Position { n: 0, g: 1, q }, b"more"));
    chain.inject(1, ToServer, &own.concat());
    let error = ContextError::forged_by("a record with an old counter", 1);
    assert_eq!(chain.run(), Err((2, error)));
}
