//! Limits on what a party makes others keep, and sizes at their edges.

use std::sync::{Arc, Mutex};

use super::caches;
use super::chain::{Behaviour, Chain, Parties, data_of, events, frames, sender_of};
use crate::Direction::ToServer;
use crate::Right::{None as No, Read, Write};
use crate::record::{self, Cipher, Head, Layout, Position, SealKeys};
use crate::{Action, ContextError, PathEvent, Received, frame};

#[test]
fn at_most_64_requests_are_open() {
    let parties = caches::parties(&[No]);
    let mut chain = Chain::new(&parties);
    chain.open();
    for _ in 0..64 {
        caches::request(&mut chain);
    }
    let error = || Err(ContextError::State("64 requests are without an answer"));
    assert!(!chain.client.is_writable());
    assert_eq!(chain.client.write(1, b"GET /"), error());
    assert_eq!(chain.client.finish(), error());
    caches::answer(&mut chain, b"answer");
    assert!(chain.client.is_writable());
    assert!(events(&mut chain.client).contains(&PathEvent::Writable));
    chain.client.write(1, b"GET /").unwrap();
    chain.client.finish().unwrap();
    chain.run().unwrap();
    assert_eq!(data_of(&events(&mut chain.server)).1, 65);
    // A client that does not count.
    let mut chain = Chain::new(&parties);
    chain.run().unwrap();
    let mut sender = sender_of(chain.client.bound().unwrap(), ToServer);
    for _ in 0..65 {
        sender.finish(&[]).unwrap();
    }
    let mut bytes = Vec::new();
    sender.transmit(&mut bytes);
    chain.inject(0, ToServer, &bytes);
    assert_eq!(chain.run(), Err((1, ContextError::Flood("requests without an answer"))));
}

/// Seals records of a client in the private context 1, without a mark.
fn without_audits(chain: &mut Chain, records: u64, data: &[u8]) -> Vec<u8> {
    let bound = chain.client.bound().unwrap();
    let keys = bound.keys.context(1);
    let mut cipher = Cipher::new(keys.record(1, ToServer), bound.keys.aes);
    let head = Head { context: 1, slot: true, mark: false, end: false, origin: 0 };
    let mut out = Vec::new();
    for n in 0..records {
        let keys = SealKeys { cipher: &mut cipher, writer: None, third: None };
        // The operation was the first record.
        let place = Position { n, g: n + 1, q: 0 };
        record::seal(keys, (head, place, Layout::new(&bound.keys.path, 1)), data, &mut out)
            .unwrap();
    }
    out
}

#[test]
fn a_receiver_keeps_little_that_no_audit_covers() {
    for (records, data, fits) in
        [(16, &[0; 16_383][..], true), (17, &[0; 16_383], false), (5000, &[], false)]
    {
        let mut chain = Chain::new(&Parties::new(&[&[No]]));
        chain.open();
        let bytes = without_audits(&mut chain, records, data);
        chain.inject(0, ToServer, &bytes);
        let flood = Err((2, ContextError::Flood("records without an audit")));
        assert_eq!(chain.run(), if fits { Ok(()) } else { flood });
        assert!(data_of(&events(&mut chain.server)).0.is_empty());
    }
}

#[test]
fn a_message_of_any_length_is_never_too_long_for_its_audits() {
    for right in [No, Read, Write] {
        let mut chain = Chain::new(&Parties::new(&[&[right]]));
        chain.open();
        let body = vec![7; 1_000_000];
        chain.client.write(1, &body).unwrap();
        chain.client.finish().unwrap();
        chain.run().unwrap();
        let (data, exchanges) = data_of(&events(&mut chain.server));
        assert!(data == [(1, body, 0, true)] && exchanges == 1);
    }
}

#[test]
fn a_server_reads_no_further_before_the_start_and_loses_nothing() {
    let mut chain = Chain::new(&Parties::new(&[&[Read]]));
    chain.run().unwrap();
    chain.client.control(b"operation").unwrap();
    let body: Vec<u8> = (0..300_000u32).map(|at| at as u8).collect();
    chain.client.write(1, &body).unwrap();
    chain.client.finish().unwrap();
    chain.run().unwrap();
    assert!(!chain.server.wants_input());
    let before = events(&mut chain.server);
    let operation = PathEvent::Received(Received::Control(b"operation".to_vec()));
    assert!(matches!(&before[..], [PathEvent::Bound { .. }, event] if *event == operation));
    assert_eq!(chain.server.receive(&mut [frame::RECORD, 1, 0x80, 0, 0], chain.now), Ok(0));
    chain.server.start(true, None, chain.now).unwrap();
    chain.run().unwrap();
    assert!(chain.server.wants_input());
    let (data, exchanges) = data_of(&events(&mut chain.server));
    assert!(data == [(1, body, 0, true)] && exchanges == 1);
}

#[test]
fn short_records_before_the_start_count_with_their_memory() {
    let mut chain = Chain::new(&Parties::new(&[&[No]]));
    chain.run().unwrap();
    for _ in 0..2000 {
        chain.client.write(1, b"1").unwrap();
        chain.client.flush().unwrap();
    }
    chain.run().unwrap();
    assert!(!chain.server.wants_input());
}

#[test]
fn a_writer_makes_a_long_message_of_a_short_one() {
    let long: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
    let data = long.clone();
    let grow: Behaviour = Box::new(move |_| Action::Replace(data.clone()));
    let mut chain = Chain::with(&Parties::new(&[&[Write]]), vec![grow]);
    chain.open();
    chain.client.write(1, b"1").unwrap();
    chain.client.finish().unwrap();
    chain.run().unwrap();
    let (data, exchanges) = data_of(&events(&mut chain.server));
    assert!(data == [(1, long, 1, true)] && exchanges == 1);
}

/// Until records may have their full length.
fn send_first_records(chain: &mut Chain) {
    for _ in 0..4 {
        chain.client.write(1, b"1").unwrap();
        chain.client.flush().unwrap();
    }
    chain.client.finish().unwrap();
    chain.run().unwrap();
    events(&mut chain.server);
}

/// A middlebox passes on whole records, so the first ones fit into TCP's initial window together.
#[test]
fn the_first_records_of_a_session_are_short_and_handed_up_early() {
    let mut chain = Chain::new(&Parties::new(&[&[Write]]));
    chain.open();
    let lengths: Arc<Mutex<Vec<usize>>> = Arc::default();
    let sent = lengths.clone();
    let data = vec![b'a'; 40_000];
    chain.attack((0, ToServer), move |frames| {
        let records = frames.iter().filter(|frame| frame[0] == frame::RECORD);
        sent.lock().unwrap().extend(records.map(Vec::len));
        frames
    });
    chain.client.write(1, &data).unwrap();
    chain.run().unwrap();
    // Before the message has ended, and before an audit is due for other reasons.
    let early: usize = data_of(&events(&mut chain.server)).0.iter().map(|one| one.1.len()).sum();
    assert!((3 * 4095..data.len()).contains(&early), "{early}");
    chain.client.finish().unwrap();
    chain.run().unwrap();
    let lengths = lengths.lock().unwrap();
    assert!(lengths[..3].iter().sum::<usize>() < 14_480, "{lengths:?}");
    assert!(lengths.iter().any(|length| *length > 16_000), "{lengths:?}");
}

#[test]
fn a_record_is_filled_to_its_capacity() {
    for (pad, capacity) in [(0, 16_383), (1, 16_383), (16, 16_383), (255, 16_319)] {
        for right in [No, Write] {
            let mut parties = Parties::new(&[&[right]]);
            parties.path.contexts[0].pad = pad;
            assert_eq!(Layout::new(&parties.path, 1).capacity(), capacity);
            for (length, records) in [(capacity, 1), (capacity + 1, 2)] {
                let upper: Behaviour = Box::new(move |piece| match right {
                    Write => Action::Replace(piece.data.to_ascii_uppercase()),
                    _ => Action::Pass,
                });
                let mut chain = Chain::with(&parties, vec![upper]);
                chain.open();
                send_first_records(&mut chain);
                chain.attack((1, ToServer), move |frames| {
                    let sizes = frames.iter().filter(|frame| frame[0] == frame::RECORD);
                    assert_eq!(sizes.count(), records);
                    frames
                });
                chain.client.write(1, &vec![b'a'; length]).unwrap();
                chain.client.finish().unwrap();
                chain.run().unwrap();
                let (letter, origin) = if right == Write { (b'A', 1) } else { (b'a', 0) };
                let (data, _) = data_of(&events(&mut chain.server));
                assert!(data == [(1, vec![letter; length], origin, true)]);
            }
        }
    }
}

/// Every record is as long as its pad says, so its length tells less of the data's.
#[test]
fn padded_records_have_few_lengths() {
    let mut parties = Parties::new(&[&[No]]);
    parties.path.contexts[0].pad = 255;
    let mut chain = Chain::new(&parties);
    chain.open();
    for length in [0, 1, 100, 254] {
        chain.client.write(1, &vec![1; length]).unwrap();
        chain.client.finish().unwrap();
        let mut out = Vec::new();
        chain.client.transmit(&mut out);
        assert_eq!(frames(&out)[0].len(), 5 + 255 + 16);
        chain.inject(0, ToServer, &out);
        chain.run().unwrap();
        let (data, _) = data_of(&events(&mut chain.server));
        assert_eq!(data, [(1, vec![1; length], 0, true)]);
    }
}

/// In tests an epoch has 16 slots.
#[test]
fn keys_change_at_the_same_record_for_all_parties() {
    let parties = Parties::new(&[&[Read, Write], &[No, No]]);
    let half: Behaviour = Box::new(|piece| match piece.data {
        [number] if number % 2 == 0 => Action::Replace(vec![*number; 20_000]),
        _ => Action::Pass,
    });
    let mut chain = Chain::with(&parties, vec![Box::new(|_| Action::Pass), half]);
    chain.open();
    for number in 0..100u8 {
        for context in [1, 2] {
            chain.client.write(context, &[number]).unwrap();
            chain.client.flush().unwrap();
        }
        chain.run().unwrap();
        let (data, _) = data_of(&events(&mut chain.server));
        let first = if number % 2 == 0 {
            (1, vec![number; 20_000], 2, false)
        } else {
            (1, vec![number], 0, false)
        };
        assert!(data == [first, (2, vec![number], 0, false)], "{number}");
    }
    chain.client.finish().unwrap();
    chain.run().unwrap();
    let mut answer = Chain::new(&parties);
    answer.open();
    answer.client.finish().unwrap();
    answer.run().unwrap();
    answer.server.write(1, &vec![1; 1_000_000]).unwrap();
    answer.server.finish().unwrap();
    answer.run().unwrap();
    assert_eq!(data_of(&events(&mut answer.client)).0[0].1.len(), 1_000_000);
}
