//! Streams: messages, flow control, back-pressure, scheduling, key updates.

use levada_core::Framing;
use std::time::Duration;

use super::pair::{Pair, record_lengths};
use crate::{Class, Error, Event, Options, Read, StreamError, StreamId};

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

#[test]
fn messages_of_every_size_arrive_whole_under_every_framing() {
    let sizes = [0, 1, 37, 38, 39, 40, 63, 64, 256, 4074, 16_380, 16_384, 70_000, 300_000];
    for framing in [
        Framing::Auto,
        Framing::Block(64),
        Framing::Block(65),
        Framing::Block(512),
        Framing::Block(4096),
    ] {
        let options = Options { framing, ..Options::default() };
        let mut pair = Pair::with(options, Options::default());
        pair.piece = 1000;
        let ids = pair.open(Class::Bulk);
        pair.transfer(ids, &sizes.map(data));
    }
}

#[test]
fn every_record_of_a_block_has_the_same_length() {
    for length in 64..=4096 {
        if length > 200 && length % 97 != 0 && length != 4096 {
            continue;
        }
        let framing = Framing::Block(length);
        let mut pair = Pair::with(Options { framing, ..Options::default() }, Options::default());
        assert_eq!(pair.server.connection.framing(), framing);
        assert_eq!(pair.server.connection.peer_framing(), Some(framing));
        let ids = pair.open(Class::Bulk);
        (pair.client.records, pair.server.records) = (vec![], vec![]);
        pair.client.connection.update_key();
        pair.transfer(ids, &[data(5), data(1000), vec![]]);
        pair.client.connection.close(0, "");
        pair.run();
        for records in [&pair.client.records, &pair.server.records] {
            assert!(!records.is_empty());
            assert!(records.iter().all(|&len| len == usize::from(length)), "{length}: {records:?}");
        }
    }
}

#[test]
fn small_messages_share_records() {
    let mut pair = Pair::connected();
    let (ours, _) = pair.open(Class::Bulk);
    for _ in 0..400 {
        assert_eq!(pair.client.connection.write(ours, &[1; 256], true), Ok(Some(256)));
    }
    let lengths = record_lengths(&pair.intercept());
    assert_eq!(lengths.len(), 7, "{lengths:?}");
}

#[test]
fn a_refused_writer_gets_a_writable_event() {
    let mut pair = Pair::connected();
    let (ours, theirs) = pair.open(Class::Bulk);
    let message = data(1 << 20);
    let mut first = 0;
    while let Some(len) = pair.client.connection.write(ours, &message[first..], true).unwrap() {
        first += len;
        pair.run();
    }
    assert!((200 << 10..=256 << 10).contains(&first), "{first}");
    pair.run();
    // The credit of the stream is used up; reading grants it again.
    assert_eq!(pair.client.take(|event| matches!(event, Event::Writable(_))), None);
    let read = pair.server.read_all(theirs);
    assert_eq!(read, [message[..first].to_vec()]);
    pair.run();
    assert_eq!(
        pair.client.take(|event| *event == Event::Writable(ours)),
        Some(Event::Writable(ours))
    );
    assert!(pair.client.connection.write(ours, &message[first..], true).unwrap().unwrap() > 0);
}

#[test]
fn credit_grows_with_the_bandwidth_delay_product_and_only_then() {
    let flight = |delay, slow: bool| {
        let mut pair = Pair::connected();
        pair.delay = Duration::from_millis(delay);
        let (ours, theirs) = pair.open(Class::Bulk);
        let mut most = 0;
        for _ in 0..60 {
            let mut sent = 0;
            while let Some(len) = pair.client.connection.write(ours, &[0; 16000], false).unwrap() {
                sent += len;
                if sent % (64 << 10) < 16000 {
                    pair.send();
                }
            }
            most = most.max(sent);
            pair.send();
            pair.now += pair.delay;
            pair.deliver();
            if slow {
                pair.now += 20 * pair.delay;
            }
            pair.server.read_all(theirs);
            pair.send();
            pair.now += pair.delay;
            pair.deliver();
        }
        assert_eq!((&pair.client.error, &pair.server.error), (&None, &None));
        most
    };
    assert!(flight(50, false) > 4 << 20, "a fast reader far away gets a large window");
    assert!(flight(50, true) <= 300 << 10, "a slow reader does not");
}

#[test]
fn unread_data_is_bounded() {
    let mut pair = Pair::connected();
    let mut accepted = 0;
    for _ in 0..100 {
        let (ours, _) = pair.open(Class::Bulk);
        while let Ok(Some(len)) = pair.client.connection.write(ours, &[0; 10_000], true) {
            accepted += len;
            pair.run();
        }
    }
    let bound = 12 << 20..=16 << 20;
    assert!(bound.contains(&accepted), "{accepted} bytes accepted without a read");
    assert_eq!(pair.server.error, None);
}

#[test]
fn a_raised_window_serves_a_stream_beside_many_unread_ones() {
    const STALLED: usize = 100;
    let mut pair = Pair::connected();
    pair.server.connection.raise_receive_window((16 << 20) + STALLED as u64 * (256 << 10));
    pair.server.connection.raise_receive_window(1);
    pair.run();
    for _ in 0..STALLED {
        let (ours, _) = pair.open(Class::Bulk);
        while let Ok(Some(_)) = pair.client.connection.write(ours, &[0; 10_000], true) {
            pair.run();
        }
    }
    let ids = pair.open(Class::Bulk);
    pair.transfer(ids, &[data(1 << 20)]);
    assert_eq!(pair.server.error, None);
}

#[test]
fn reset_code_returns_the_code_of_either_side() {
    let mut pair = Pair::connected();
    let (ours, theirs) = pair.open(Class::Bulk);
    pair.client.connection.finish(ours).unwrap();
    pair.run();
    assert_eq!(pair.server.connection.reset_code(theirs), None);
    pair.server.connection.reset(theirs, 7);
    pair.run();
    assert_eq!(pair.server.connection.reset_code(theirs), Some(7));
    assert_eq!(pair.client.connection.reset_code(ours), Some(7));
}

#[test]
fn a_reset_of_the_peer_is_reported_once_and_also_after_its_finish() {
    let mut pair = Pair::connected();
    let (ours, theirs) = pair.open(Class::Bulk);
    pair.server.connection.finish(theirs).unwrap();
    pair.run();
    assert_eq!(pair.client.take(|event| matches!(event, Event::Reset(_))), None);
    pair.server.connection.forget(theirs);
    pair.run();
    let reset = Some(Event::Reset(ours));
    assert_eq!(pair.client.take(|event| matches!(event, Event::Reset(_))), reset);
    assert_eq!(pair.client.take(|event| matches!(event, Event::Reset(_))), None);
    // The side that resets gets no event.
    let (ours, theirs) = pair.open(Class::Bulk);
    pair.client.connection.reset(ours, 3);
    pair.run();
    assert_eq!(pair.client.take(|event| matches!(event, Event::Reset(_))), None);
    let reset = Some(Event::Reset(theirs));
    assert_eq!(pair.server.take(|event| matches!(event, Event::Reset(_))), reset);
}

#[test]
fn empty_messages_use_credit() {
    let mut pair = Pair::connected();
    let (ours, theirs) = pair.open(Class::Interactive);
    let mut count = 0;
    while let Some(0) = pair.client.connection.write(ours, b"", true).unwrap() {
        count += 1;
        pair.run();
    }
    assert_eq!(count, (256 << 10) / 8);
    assert_eq!(pair.server.read_all(theirs).len(), count + 1);
    pair.run();
    assert_eq!(pair.client.connection.write(ours, b"", true), Ok(Some(0)));
}

#[test]
fn interactive_goes_before_bulk() {
    let mut pair = Pair::connected();
    let (bulk, _) = pair.open(Class::Bulk);
    let (interactive, _) = pair.open(Class::Interactive);
    let first = pair.client.connection.write(bulk, &data(1 << 20), true).unwrap().unwrap();
    assert!(first <= 48 << 10, "{first} bytes stand before the interactive stream");
    assert_eq!(pair.client.connection.write(bulk, b"x", true), Ok(None));
    assert!(pair.client.connection.write(interactive, &data(100_000), true).unwrap().is_some());
    while pair.client.connection.write(interactive, &data(100_000), true).unwrap().is_some() {}
    pair.send();
    let order: Vec<_> =
        pair.client.events.iter().filter(|e| matches!(e, Event::Writable(_))).collect();
    assert_eq!(order.last(), Some(&&Event::Writable(bulk)));
}

#[test]
fn bulk_streams_get_similar_shares() {
    let mut pair = Pair::connected();
    let ids: Vec<_> = (0..4).map(|_| pair.open(Class::Bulk)).collect();
    let mut sent = [0; 4];
    for _ in 0..40 {
        for (at, (ours, theirs)) in ids.iter().enumerate() {
            while let Some(len) = pair.client.connection.write(*ours, &[0; 9000], true).unwrap() {
                sent[at] += len;
            }
            pair.server.read_all(*theirs);
        }
        pair.run();
    }
    let least = sent.iter().min().unwrap();
    let most = sent.iter().max().unwrap();
    assert!(*least > 1 << 20 && most - least < most / 2, "{sent:?}");
}

#[test]
fn streams_that_ended_on_both_sides_free_their_place() {
    let options = Options { max_streams: 2, ..Options::default() };
    let mut pair = Pair::with(options.clone(), options);
    for _ in 0..10 {
        let (ours, theirs) = pair.open(Class::Bulk);
        pair.open(Class::Bulk);
        let other = StreamId::clone(&ours);
        assert_eq!(pair.client.connection.open(Class::Bulk), Err(Error::TooManyStreams));
        pair.client.connection.write(ours, b"question", true).unwrap();
        pair.client.connection.finish(ours).unwrap();
        pair.client.connection.finish(other).unwrap();
        pair.run();
        assert_eq!(pair.server.read_all(theirs)[0], b"question");
        let mut buf = [0; 9];
        assert_eq!(pair.server.connection.read(theirs, &mut buf), Ok(Read::Finished));
        pair.server.connection.write(theirs, b"answer", true).unwrap();
        pair.server.connection.finish(theirs).unwrap();
        assert_eq!(pair.server.connection.write(theirs, b"x", true), Err(StreamError::Finished));
        // The answer arrives though the owner forgets the stream at once.
        pair.server.connection.forget(theirs);
        pair.run();
        assert_eq!(pair.client.read_all(ours)[0], b"answer");
        assert_eq!(pair.client.connection.read(ours, &mut buf), Ok(Read::Finished));
        pair.client.connection.forget(ours);
        assert_eq!(pair.client.connection.read(ours, &mut buf), Err(StreamError::Unknown));
        let rest: Vec<_> = pair.server.events.drain(..).collect();
        drop(rest);
        let (second, _) = pair.open(Class::Bulk);
        pair.client.connection.forget(second);
        pair.run();
        close_all(&mut pair);
    }
}

/// Forgets every stream at both ends.
fn close_all(pair: &mut Pair) {
    let ids: Vec<StreamId> = pair.client.connection.streams();
    ids.into_iter().for_each(|id| pair.client.connection.forget(id));
    let ids: Vec<StreamId> = pair.server.connection.streams();
    ids.into_iter().for_each(|id| pair.server.connection.forget(id));
    pair.run();
}

#[test]
fn a_reset_ends_both_directions_and_releases_the_credit() {
    let mut pair = Pair::connected();
    for code in 0..100 {
        let (ours, theirs) = pair.open(Class::Bulk);
        pair.client.connection.write(ours, &[0; 200_000], false).unwrap();
        pair.run();
        pair.server.connection.reset(theirs, code);
        // More data is in flight when the reset is sent.
        pair.client.connection.write(ours, &[0; 10_000], false).unwrap();
        pair.run();
        let mut buf = [0; 10];
        assert_eq!(pair.client.connection.write(ours, b"x", true), Err(StreamError::Reset(code)));
        assert_eq!(pair.client.connection.read(ours, &mut buf), Err(StreamError::Reset(code)));
        assert_eq!(pair.server.connection.read(theirs, &mut buf), Err(StreamError::Reset(code)));
        pair.client.connection.forget(ours);
        pair.server.connection.forget(theirs);
    }
    assert_eq!((&pair.client.error, &pair.server.error), (&None, &None));
}

#[test]
fn finishing_within_a_message_resets_the_stream() {
    let mut pair = Pair::connected();
    let (ours, theirs) = pair.open(Class::Bulk);
    pair.client.connection.write(ours, b"half", false).unwrap();
    assert_eq!(pair.client.connection.finish(ours), Err(StreamError::Reset(0)));
    pair.run();
    assert_eq!(pair.server.connection.read(theirs, &mut [0; 9]), Err(StreamError::Reset(0)));
}

#[test]
fn a_message_may_be_ended_by_an_empty_part() {
    let mut pair = Pair::connected();
    let (ours, theirs) = pair.open(Class::Bulk);
    pair.client.connection.write(ours, b"half", false).unwrap();
    pair.client.connection.write(ours, b"", true).unwrap();
    pair.client.connection.finish(ours).unwrap();
    pair.client.connection.finish(ours).unwrap();
    pair.run();
    assert_eq!(pair.server.read_all(theirs), [b"half".to_vec(), vec![]]);
}

#[test]
fn the_server_opens_streams_too() {
    let mut pair = Pair::connected();
    let theirs = pair.server.connection.open(Class::Interactive).unwrap();
    pair.server.connection.write(theirs, b"news", true).unwrap();
    pair.run();
    let ours = pair.client.accept();
    assert_eq!(pair.client.connection.class(ours), Some(Class::Interactive));
    assert_eq!(pair.client.read_all(ours)[0], b"news");
}

#[test]
fn keys_are_updated_automatically_and_on_request() {
    for records_per_key in [1, 2, 5] {
        let options = Options { records_per_key, ..Options::default() };
        let mut pair = Pair::with(options.clone(), options);
        let ids = pair.open(Class::Bulk);
        for _ in 0..10 {
            pair.client.connection.update_key();
            pair.server.connection.update_key();
            pair.transfer(ids, &[data(100_000), vec![]]);
        }
        assert_eq!((&pair.client.error, &pair.server.error), (&None, &None));
    }
}

#[test]
fn a_larger_initial_window_is_granted_at_the_start() {
    let wide = Options { stream_window: 700 << 10, ..Options::default() };
    let mut pair = Pair::with(Options::default(), wide);
    let (ours, _) = pair.open(Class::Bulk);
    let mut sent = 0;
    while let Some(len) = pair.client.connection.write(ours, &[0; 50_000], true).unwrap() {
        sent += len;
        pair.run();
    }
    assert!((690 << 10..700 << 10).contains(&sent), "{sent}");
}

#[test]
fn read_to_appends_at_most_max_bytes() {
    let mut pair = Pair::connected();
    let (ours, theirs) = pair.open(Class::Bulk);
    for message in [&b"hello"[..], b"", b"world"] {
        pair.client.connection.write(ours, message, true).unwrap();
    }
    pair.client.connection.finish(ours).unwrap();
    let mut buf = b"> ".to_vec();
    let mut read = |pair: &mut Pair, max| {
        let read = pair.server.connection.read_to(theirs, &mut buf, max);
        (read, String::from_utf8(buf.clone()).unwrap())
    };
    let data = |len, end| Ok(Read::Data { len, end });
    assert_eq!(read(&mut pair, 9), (Ok(Read::Blocked), "> ".to_owned()));
    pair.run();
    assert_eq!(read(&mut pair, 0), (data(0, false), "> ".to_owned()));
    assert_eq!(read(&mut pair, 3), (data(3, false), "> hel".to_owned()));
    assert_eq!(read(&mut pair, 100), (data(2, true), "> hello".to_owned()));
    assert_eq!(read(&mut pair, 0), (data(0, true), "> hello".to_owned()));
    assert_eq!(read(&mut pair, usize::MAX), (data(5, true), "> helloworld".to_owned()));
    assert_eq!(read(&mut pair, 9), (Ok(Read::Finished), "> helloworld".to_owned()));
    pair.server.connection.forget(theirs);
    assert_eq!(read(&mut pair, 9).0, Err(StreamError::Unknown));
}

/// Until its credit is raised, a peer has the protocol's initial credit: no window grows, however
/// fast the reader is, and only what was read is granted again.
#[test]
fn credit_stays_the_initial_one_until_it_is_raised() {
    const CONNECTION: usize = 1 << 20;
    let withheld = Options { initial_credit_only: true, ..Options::default() };
    let mut pair = Pair::with(Options::default(), withheld);
    let fast = pair.open(Class::Bulk);
    pair.transfer(fast, &vec![data(100_000); 40]);
    let ids: Vec<_> = (0..8).map(|_| pair.open(Class::Bulk)).collect();
    let sent = |pair: &mut Pair| -> usize {
        let mut sent = 0;
        for (ours, _) in &ids {
            while let Some(len) = pair.client.connection.write(*ours, &[1; 10_000], false).unwrap()
            {
                sent += len;
                pair.run();
            }
        }
        sent
    };
    let first = sent(&mut pair);
    assert!(first <= CONNECTION && first > CONNECTION * 7 / 8, "{first}");
    let memory = pair.server.connection.memory();
    assert!(memory >= first && memory < 3 * CONNECTION, "{memory}");

    pair.server.connection.raise_credit();
    pair.server.connection.raise_credit();
    pair.run();
    let all = first + sent(&mut pair);
    assert!(all > 8 * (256 << 10) * 7 / 8, "{all}");
}

/// Unread data of an abandoned connection takes no memory.
#[test]
fn an_abandoned_connection_frees_unread_data() {
    let mut pair = Pair::connected();
    let (ours, theirs) = pair.open(Class::Bulk);
    pair.client.connection.write(ours, &data(100_000), true).unwrap();
    pair.run();
    let before = pair.server.connection.memory();
    pair.server.connection.abandon(2, "too much");
    assert!(pair.server.connection.memory() + 100_000 <= before);
    assert_eq!(pair.server.connection.read(theirs, &mut [0; 10]), Err(StreamError::Reset(0)));
    pair.run();
    let closed = pair.client.take(|event| matches!(event, Event::Closed(close) if close.code == 2));
    assert!(closed.is_some());
    pair.server.connection.forget(theirs);
}
