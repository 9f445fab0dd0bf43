//! The queue of a listener, with a client or a thread of the listener that is killed at any step.

use loom::sync::Arc;
use loom::thread;

use super::explore;
use crate::death;
use crate::queue::{Entry, NoRoom, Words};

/// More points than a call has.
const POINTS: u32 = 5;

fn entry(client: u32) -> Entry {
    Entry { client, segment: 3 }
}

fn queue() -> Arc<Words> {
    let queue = Arc::new(Words::default());
    queue.open(7, 0);
    queue
}

/// All entries that wait, and then room for as many as a new queue has.
fn drain(queue: &Words) -> Vec<u32> {
    let all: Vec<u32> = std::iter::from_fn(|| queue.take()).map(|entry| entry.client).collect();
    for round in 0..2 {
        assert!(queue.push(entry(90)).is_ok() && queue.push(entry(91)).is_ok());
        assert_eq!(queue.push(entry(92)), Err(NoRoom::Full));
        assert_eq!([queue.take(), queue.take()], [Some(entry(90)), Some(entry(91))], "{round}");
        assert_eq!(queue.take(), None);
    }
    all
}

/// The entry of a client arrives, whatever another client was doing when it was killed.
#[test]
fn a_client_that_is_killed_keeps_no_other_from_the_listener() {
    for point in 0..POINTS {
        explore(move || {
            let queue = queue();
            let theirs = Arc::clone(&queue);
            let other = thread::spawn(move || {
                death::until(point, || theirs.push(entry(1)).is_ok()) == Some(true)
            });
            let is_in = queue.push(entry(2)).is_ok();
            assert!(is_in);
            let has_returned = other.join().unwrap();
            let all = drain(&queue);
            assert_eq!(all.iter().filter(|client| **client == 2).count(), 1);
            let of_other = all.iter().filter(|client| **client == 1).count();
            assert!(of_other == 1 || of_other == 0 && !has_returned);
        });
    }
}

/// No entry is taken twice, and none is lost but the one that a killed process has taken.
#[test]
fn a_thread_of_the_listener_that_is_killed_loses_its_own_entry_only() {
    for point in 0..POINTS {
        explore(move || {
            let queue = queue();
            queue.push(entry(1)).unwrap();
            queue.push(entry(2)).unwrap();
            let theirs = Arc::clone(&queue);
            let other = thread::spawn(move || death::until(point, || theirs.take()));
            let own = queue.take();
            let taken = other.join().unwrap();
            let mut all = drain(&queue);
            all.extend(own.into_iter().map(|entry| entry.client));
            all.extend(taken.flatten().map(|entry| entry.client));
            all.sort_unstable();
            match taken {
                Some(_) => assert_eq!(all, [1, 2]),
                None => assert!([&[1, 2][..], &[1], &[2]].contains(&&all[..]), "{all:?}"),
            }
        });
    }
}

/// An entry is either taken or taken back.
#[test]
fn an_entry_that_is_taken_back_is_not_taken() {
    for point in 0..POINTS {
        explore(move || {
            let queue = queue();
            let theirs = Arc::clone(&queue);
            let client = thread::spawn(move || {
                let undo = || theirs.push(entry(1)).map(|ticket| theirs.undo(ticket));
                death::until(point, undo)
            });
            let mut all: Vec<u32> = queue.take().map(|entry| entry.client).into_iter().collect();
            let undone = client.join().unwrap();
            all.extend(drain(&queue));
            match undone {
                Some(Ok(undone)) => assert_eq!(all.len(), usize::from(!undone)),
                _ => assert!(all.len() <= 1),
            }
        });
    }
}

/// A listener that was closed gives each entry to the listener, or leaves it to its client.
#[test]
fn a_client_sees_that_the_listener_was_closed() {
    explore(|| {
        let queue = queue();
        let theirs = Arc::clone(&queue);
        let client = thread::spawn(move || match theirs.push(entry(1)) {
            Ok(ticket) => theirs.is_open() || !theirs.undo(ticket),
            Err(_) => false,
        });
        queue.close();
        let drained = queue.take().is_some();
        let is_connected = client.join().unwrap();
        let left = queue.take().is_some();
        assert!(!(drained && left));
        assert_eq!(is_connected, drained || left, "drained {drained}, left {left}");
        assert!(!left, "the client has seen that the listener was closed");
    });
}

/// A listener that sleeps is told of an entry: one of the two sees what the other has written.
#[test]
fn no_entry_is_missed_by_a_listener_that_sleeps() {
    explore(|| {
        let queue = queue();
        let theirs = Arc::clone(&queue);
        let client = thread::spawn(move || {
            theirs.push(entry(1)).unwrap();
            theirs.take_bells().0
        });
        queue.announce(2);
        let found = queue.has_entry();
        let bells = client.join().unwrap();
        assert!(found || bells == 1 << 2);
    });
}
