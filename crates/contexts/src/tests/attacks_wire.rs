//! Attacks on records by parties on the links, who have no key.

use std::cell::RefCell;
use std::rc::Rc;

use super::chain::{Chain, Parties, data_of, events, sender_of};
use crate::Direction::{ToClient, ToServer};
use crate::Right::{None as No, Read, Write};
use crate::sender::CONTROL_FIN;
use crate::{ContextError, Right, frame};
use levada_channel::parts::DATA;

type Frames = Vec<Vec<u8>>;

/// Two contexts in which the only middlebox has this right.
fn open(right: Right) -> Chain {
    let mut chain = Chain::new(&Parties::new(&[&[right], &[right]]));
    chain.open();
    chain
}

/// Sends records in the contexts 1, 2, 1 (END) and 2 (END and MARK), and an audit.
fn request(chain: &mut Chain) {
    for (context, data) in [(1, b"one"), (2, b"two"), (1, b"six")] {
        chain.client.write(context, data).unwrap();
    }
    chain.client.finish().unwrap();
}

fn forged(context: u8) -> ContextError {
    ContextError::Forged { what: "a record", hop: Some(0), context: Some(context) }
}

fn unexpected(what: &'static str) -> ContextError {
    ContextError::Unexpected(what)
}

fn audit(hop: u8) -> ContextError {
    ContextError::forged_by("an AUDIT", hop)
}

/// What the [`request`] ends with after an attack on one link. Nothing of it is handed up.
fn attacked(
    chain: &mut Chain,
    link: usize,
    attack: impl FnMut(Frames) -> Frames + 'static,
) -> Result<(), (usize, ContextError)> {
    chain.attack((link, ToServer), attack);
    request(chain);
    let result = chain.run();
    assert_eq!(data_of(&events(&mut chain.server)), (vec![], 0));
    result
}

type Attack = fn(&mut Frames);

/// On link 0 a middlebox without rights is next, which finds nothing that the server does not find
/// too, but some things before it.
#[test]
fn a_record_cannot_be_dropped_reordered_doubled_moved_or_altered() {
    let after_end = || (1, unexpected("a record after the end of its message"));
    let cases: [(Attack, ContextError, (usize, ContextError)); 10] = [
        (|frames| drop(frames.remove(0)), forged(2), (2, forged(2))),
        (|frames| drop(frames.remove(1)), forged(1), (2, forged(1))),
        (|frames| frames.swap(0, 1), forged(2), (2, forged(2))),
        (|frames| frames.swap(0, 2), forged(1), after_end()),
        (|frames| frames.insert(1, frames[0].clone()), forged(1), (2, forged(1))),
        // Into another context.
        (|frames| frames[0][1] = 2, forged(2), (2, forged(2))),
        (|frames| frames[0][6] ^= 1, forged(1), (2, forged(1))),
        // A MARK is added; END is added; END is taken away.
        (|frames| frames[1][2] ^= 0x40, forged(2), (1, unexpected(AUDIT_PLACE))),
        (|frames| frames[0][2] ^= 0x20, forged(1), after_end()),
        (|frames| frames[2][2] ^= 0x20, forged(1), (2, forged(1))),
    ];
    for (number, (attack, error, keyless)) in cases.into_iter().enumerate() {
        let attack = move |mut frames| {
            attack(&mut frames);
            frames
        };
        for (right, link, party) in [(No, 1, 2), (Read, 0, 1), (Read, 1, 2), (Write, 0, 1)] {
            let found = attacked(&mut open(right), link, attack);
            assert_eq!(found, Err((party, error.clone())), "{right:?}, link {link}, {number}");
        }
        assert_eq!(attacked(&mut open(No), 0, attack), Err(keyless), "{number}");
    }
}

const AUDIT_PLACE: &str = "a record where an audit belongs";
const NO_MARK: &str = "an audit without a mark";

#[test]
fn flags_tags_and_lengths_that_no_party_may_send_are_errors() {
    let malformed = ContextError::Malformed;
    let no_right = |hop| ContextError::NoRight { hop, context: 1, what: "write a record" };
    let tag = |what| ContextError::Forged { what, hop: Some(0), context: Some(1) };
    let short: Attack = |frames| {
        frames[0] =
            vec![frame::RECORD, 1, 0x80, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    };
    let cases: [(Attack, Right, usize, ContextError); 9] = [
        // Without SLOT.
        (|frames| frames[0][2] = 0, No, 1, malformed("the flags of a record")),
        (|frames| frames[0][2] |= 1, No, 2, no_right(1)),
        (|frames| frames[0][2] |= 1, No, 1, unexpected("a record of a middlebox behind this one")),
        (|frames| frames[0][2] |= 9, No, 2, malformed("a record of an unknown middlebox")),
        (|frames| frames[0][1] = 3, No, 1, malformed("a record of an unknown context")),
        (short, No, 1, malformed("a record of a wrong length")),
        // Of the cipher, of an endpoint, of a writer.
        (last_bit, No, 2, forged(1)),
        (last_bit, Read, 2, tag("a record, by another writer")),
        (writer_tag, Write, 1, tag("a record, by a party that may not write")),
    ];
    for (number, (attack, right, party, error)) in cases.into_iter().enumerate() {
        let attack = move |mut frames| {
            attack(&mut frames);
            frames
        };
        // The middlebox lets pass what the server finds.
        let link = if error == no_right(1) || party == 2 && number == 3 { 1 } else { 0 };
        assert_eq!(attacked(&mut open(right), link, attack), Err((party, error)), "{number}");
    }
}

fn last_bit(frames: &mut Frames) {
    *frames[0].last_mut().unwrap() ^= 1;
}

fn writer_tag(frames: &mut Frames) {
    let at = frames[0].len() - 17;
    frames[0][at] ^= 1;
}

#[test]
fn an_audit_cannot_be_dropped_doubled_moved_or_altered() {
    let cases: [(Attack, usize, (usize, ContextError)); 7] = [
        // Without MARK in its place, at once.
        (|frames| drop(frames.remove(3)), 0, (1, unexpected(NO_MARK))),
        (|frames| frames.push(frames[4].clone()), 0, (1, unexpected(NO_MARK))),
        (|frames| frames.swap(3, 4), 0, (1, unexpected(NO_MARK))),
        (|frames| *frames[4].last_mut().unwrap() ^= 1, 0, (2, audit(0))),
        (|frames| *frames[5].last_mut().unwrap() ^= 1, 1, (2, audit(1))),
        (|frames| frames.swap(4, 5), 1, (2, unexpected("an audit of another party or kind"))),
        (|frames| frames[4][6] = 0, 0, (2, audit(0))),
    ];
    for (number, (attack, link, error)) in cases.into_iter().enumerate() {
        let attack = move |mut frames| {
            attack(&mut frames);
            frames
        };
        assert_eq!(attacked(&mut open(No), link, attack), Err(error), "{number}");
    }
    // Nothing is handed up without it, and nothing can follow.
    for (link, party) in [(0, 1), (1, 2)] {
        let mut chain = open(Read);
        let found = attacked(&mut chain, link, |mut frames| {
            frames.truncate(4);
            frames
        });
        assert_eq!(found, Ok(()));
        chain.attack = None;
        request(&mut chain);
        assert_eq!(chain.run(), Err((party, unexpected(AUDIT_PLACE))));
    }
}

#[test]
fn a_whole_exchange_cannot_be_dropped_or_come_again() {
    for (right, party) in [(No, 2), (Read, 1)] {
        let mut chain = open(right);
        assert_eq!(attacked(&mut chain, 0, |_| Vec::new()), Ok(()));
        chain.attack = None;
        request(&mut chain);
        assert_eq!(chain.run(), Err((party, forged(1))));
        let mut chain = open(right);
        chain.attack((0, ToServer), |frames| [frames.clone(), frames].concat());
        request(&mut chain);
        assert_eq!(chain.run(), Err((party, forged(1))));
        let (data, exchanges) = data_of(&events(&mut chain.server));
        // The first one has arrived before.
        assert_eq!((data.len(), exchanges), if right == No { (4, 1) } else { (0, 0) });
    }
}

#[test]
fn a_record_of_another_session_or_direction_is_an_error() {
    let kept = Rc::new(RefCell::new(Frames::new()));
    for (right, party) in [(No, 2), (Read, 1)] {
        let mut other = open(right);
        let keep = kept.clone();
        other.attack((0, ToServer), move |frames| {
            keep.replace(frames.clone());
            frames
        });
        request(&mut other);
        other.run().unwrap();
        let replay = kept.take();
        assert_eq!(attacked(&mut open(right), 0, move |_| replay.clone()), Err((party, forged(1))));
    }
    for (right, link, party) in [(No, 1, 0), (Read, 1, 1), (Read, 0, 0)] {
        let mut chain = Chain::new(&Parties::new(&[&[right], &[right]]));
        chain.run().unwrap();
        chain.client.write(1, b"data").unwrap();
        chain.client.flush().unwrap();
        let mut frames = Vec::new();
        chain.client.transmit(&mut frames);
        chain.server.start(true, None, chain.now).unwrap();
        chain.run().unwrap();
        chain.inject(link, ToClient, &frames);
        assert_eq!(chain.run(), Err((party, forged(1))));
    }
}

#[test]
fn an_end_without_the_last_record_or_its_audit_is_an_error() {
    let cut = ContextError::Truncated("the transport has ended");
    let mut chain = open(Read);
    request(&mut chain);
    chain.run().unwrap();
    assert_eq!(chain.server.receive_end(), Err(cut.clone()));
    assert_eq!(chain.client.receive_end(), Err(cut));
    let early = ContextError::Truncated("a close before the last record");
    let without: [(Attack, usize, ContextError); 4] = [
        (|frames| frames.retain(|frame| frame[0] == DATA), 2, early.clone()),
        (|frames| frames.retain(|frame| frame[0] != frame::RECORD), 1, unexpected(NO_MARK)),
        (
            |frames| frames.retain(|frame| frame[0] != frame::AUDIT),
            1,
            unexpected("a frame in a session"),
        ),
        (|frames| drop(frames.pop()), 2, ContextError::Truncated("the transport has ended")),
    ];
    for (attack, party, error) in without {
        let mut chain = open(Read);
        chain.client.close().unwrap();
        chain.attack((0, ToServer), move |mut frames| {
            attack(&mut frames);
            frames
        });
        let found = chain.run();
        let found = found.and_then(|()| chain.server.receive_end().map_err(|error| (2, error)));
        assert_eq!(found, Err((party, error)));
    }
}

/// A malicious client ends with a message that has no end, or with other counts.
#[test]
fn the_last_record_must_count_every_record() {
    let counts = |counts: [u64; 2]| counts.map(u64::to_be_bytes).concat();
    for (write, sent) in [(false, counts([1, 0])), (true, counts([1, 0])), (false, vec![0; 15])] {
        let mut chain = Chain::new(&Parties::new(&[&[Read], &[No]]));
        chain.run().unwrap();
        let mut sender = sender_of(chain.client.bound().unwrap(), ToServer);
        if write {
            sender.write(1, b"data").unwrap();
        }
        sender.control(CONTROL_FIN, &sent).unwrap();
        let mut bytes = Vec::new();
        sender.transmit(&mut bytes);
        chain.inject(0, ToServer, &bytes);
        let error = ContextError::Truncated("the last record does not fit what arrived");
        assert_eq!(chain.run(), Err((2, error)));
    }
}
