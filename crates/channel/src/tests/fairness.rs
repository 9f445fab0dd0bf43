//! Fairness: no stream is starved by other streams, in either direction.

use std::time::Duration;

use super::pair::Pair;
use crate::{Class, Event, StreamId};

/// Writes until the stream is refused; returns how many bytes.
fn write_all(pair: &mut Pair, ours: StreamId) -> usize {
    let mut sent = 0;
    while let Some(len) = pair.client.connection.write(ours, &[0; 9000], true).unwrap() {
        sent += len;
    }
    sent
}

/// Writes until an unread stream has no credit left; returns how many bytes.
fn fill(pair: &mut Pair, ours: StreamId) -> usize {
    let mut sent = 0;
    while let Some(len) = pair.client.connection.write(ours, &[0; 10_000], true).unwrap() {
        sent += len;
        pair.run();
    }
    sent
}

/// Reads at full speed over a long round trip, so that the window of the stream grows.
fn grow(pair: &mut Pair, (ours, theirs): (StreamId, StreamId)) {
    for _ in 0..40 {
        for _ in 0..64 {
            write_all(pair, ours);
            pair.send();
        }
        pair.now += pair.delay;
        pair.deliver();
        pair.server.read_all(theirs);
        pair.send();
        pair.now += pair.delay;
        pair.deliver();
    }
}

#[test]
fn bulk_writers_that_wait_for_writable_events_get_equal_shares() {
    let mut pair = Pair::connected();
    pair.open(Class::Interactive);
    let ids: Vec<_> = (0..5).map(|_| pair.open(Class::Bulk)).collect();
    let mut sent: Vec<_> = ids.iter().map(|(ours, _)| write_all(&mut pair, *ours)).collect();
    for _ in 0..100 {
        pair.send();
        while let Some(Event::Writable(id)) = pair.client.take(|e| matches!(e, Event::Writable(_)))
        {
            let at = ids.iter().position(|(ours, _)| *ours == id).unwrap();
            sent[at] += write_all(&mut pair, id);
        }
        pair.run();
        ids.iter().for_each(|(_, theirs)| drop(pair.server.read_all(*theirs)));
    }
    let least = sent.iter().min().unwrap();
    let most = sent.iter().max().unwrap();
    assert!(*least > 200 << 10 && most - least <= 64 << 10, "{sent:?}");
}

#[test]
fn unread_streams_do_not_block_others() {
    let mut pair = Pair::connected();
    for _ in 0..8 {
        let (ours, _) = pair.open(Class::Bulk);
        let held = fill(&mut pair, ours);
        assert!(held > 240 << 10, "{held}");
    }
    let ids = pair.open(Class::Interactive);
    pair.transfer(ids, &vec![vec![7; 100_000]; 400]);
}

#[test]
fn full_large_windows_do_not_block_others() {
    let mut pair = Pair::connected();
    pair.delay = Duration::from_millis(50);
    let paused: Vec<_> = (0..4).map(|_| pair.open(Class::Bulk)).collect();
    // All readers are fast, and stop at the same time.
    for _ in 0..2 {
        paused.iter().for_each(|ids| grow(&mut pair, *ids));
    }
    let held = paused.iter().map(|(ours, _)| fill(&mut pair, *ours)).collect::<Vec<_>>();
    assert!(held[0] > 4 << 20, "{held:?}");
    assert!(held.iter().sum::<usize>() < 14 << 20, "{held:?}");
    let ids = pair.open(Class::Bulk);
    pair.transfer(ids, &vec![vec![7; 1 << 20]; 40]);
    // A reader that continues gets all unread data, and what was sent after it.
    assert!(!pair.server.read_all(paused[0].1).is_empty());
    pair.transfer(paused[0], &[vec![8; 10 << 20]]);
    assert_eq!((&pair.client.error, &pair.server.error), (&None, &None));
}

#[test]
fn an_ended_stream_releases_its_large_window() {
    let mut pair = Pair::connected();
    pair.delay = Duration::from_millis(50);
    for _ in 0..4 {
        let (ours, theirs) = pair.open(Class::Bulk);
        grow(&mut pair, (ours, theirs));
        let held = fill(&mut pair, ours);
        assert!(held > 4 << 20, "{held}");
        pair.server.connection.forget(theirs);
        pair.run();
        pair.client.connection.forget(ours);
    }
}
