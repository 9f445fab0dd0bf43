//! The connections of a client that wait for a server, with a process that is killed at any step.

use loom::sync::Arc;
use loom::thread;

use super::explore;
use crate::death;
use crate::queue::{Open, Queue, Waiting};

/// More points than a step of these tests has.
const POINTS: u32 = 5;
const SLOT: u8 = 1;

fn queue() -> Arc<Queue> {
    let queue = Arc::new(Queue::default());
    queue.open(SLOT, Open { mark: 0, backlog: 7 });
    queue
}

fn first(queue: &Queue) -> Option<Waiting> {
    queue.first(|_| true)
}

fn take(queue: &Queue) -> Option<u8> {
    first(queue).filter(|waiting| queue.take(*waiting, SLOT)).map(|waiting| waiting.segment)
}

/// As connect(2): true if it has connected.
fn connect(queue: &Queue) -> bool {
    let waiting = queue.push((1, 1), 0);
    queue.find(SLOT).is_some() || !queue.undo(waiting)
}

/// As close(2) of a listener.
fn close(queue: &Queue) -> Option<u8> {
    queue.close(SLOT);
    take(queue)
}

/// A connection is either taken or undone, whenever its client is killed.
#[test]
fn a_connection_that_is_undone_is_not_taken() {
    for point in 0..POINTS {
        explore(move || {
            let queue = queue();
            let theirs = Arc::clone(&queue);
            let client =
                thread::spawn(move || death::until(point, || theirs.undo(theirs.push((1, 1), 0))));
            let early = take(&queue);
            let undone = client.join().unwrap();
            let late = take(&queue);
            assert!(early.is_none() || late.is_none(), "taken twice");
            let is_taken = early.is_some() || late.is_some();
            assert!(undone.is_none_or(|undone| undone != is_taken));
        });
    }
}

/// Two processes of a listener take all connections, and none of them twice.
#[test]
fn two_processes_take_no_connection_twice() {
    explore(|| {
        let queue = queue();
        queue.push((0, 1), 0);
        queue.push((1, 1), 1);
        let theirs = Arc::clone(&queue);
        let other = thread::spawn(move || take(&theirs));
        let own = take(&queue);
        let taken = [other.join().unwrap(), own, take(&queue), take(&queue)];
        let mut all: Vec<u8> = taken.into_iter().flatten().collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1]);
    });
}

/// A client that has connected is seen by the server that closes its listener, which resets the
/// connection; else it connects by the kernel.
#[test]
fn a_client_sees_that_the_listener_was_closed() {
    explore(|| {
        let queue = queue();
        let theirs = Arc::clone(&queue);
        let client = thread::spawn(move || connect(&theirs));
        let is_reset = close(&queue).is_some();
        let is_connected = client.join().unwrap();
        assert_eq!(is_connected, is_reset || first(&queue).is_some());
        assert_eq!(first(&queue), None, "the client has seen that the listener was closed");
    });
}

/// A client that is killed while it connects leaves a connection or none, and the listener can be
/// closed.
#[test]
fn a_client_that_is_killed_leaves_nothing_half_done() {
    for point in 0..POINTS {
        explore(move || {
            let queue = queue();
            let theirs = Arc::clone(&queue);
            let client = thread::spawn(move || death::until(point, || connect(&theirs)));
            let closed = close(&queue);
            let is_connected = client.join().unwrap();
            let late = take(&queue);
            assert!(closed.is_none() || late.is_none());
            match is_connected {
                Some(is_connected) => assert_eq!(is_connected, closed.is_some()),
                None => assert!([None, Some(1)].contains(&closed.or(late))),
            }
        });
    }
}

/// A server that sleeps is told of a connection: one of the two sees what the other has written. If
/// the client is killed before it has rung, the connection waits for the next look.
#[test]
fn no_connection_is_missed_by_a_server_that_sleeps() {
    for point in 0..POINTS {
        explore(move || {
            let queue = queue();
            let theirs = Arc::clone(&queue);
            let client = thread::spawn(move || {
                death::until(point, || {
                    theirs.push((0, 1), 0);
                    theirs.take_bells(SLOT)
                })
            });
            queue.announce(SLOT, 2);
            // The server looks only at what was made since its last look.
            let is_found = queue.made() > 0 && first(&queue).is_some();
            match client.join().unwrap() {
                Some(bells) => assert!(is_found || bells == 1 << 2),
                // Before the second one, no connection has waited.
                None => assert_eq!(first(&queue).is_some(), point > 0),
            }
        });
    }
}

/// The next connection of a segment is not the one before: a thread that was stopped takes or
/// undoes nothing of it.
#[test]
fn a_late_step_concerns_its_own_connection_only() {
    explore(|| {
        let queue = queue();
        let old = queue.push((1, 1), 0);
        let theirs = Arc::clone(&queue);
        let late = thread::spawn(move || theirs.take(old, SLOT));
        let is_undone = queue.undo(old);
        let new = is_undone.then(|| queue.push((1, 2), 1));
        assert_eq!(late.join().unwrap(), !is_undone);
        assert!(new.is_none_or(|new| queue.take(new, SLOT)));
    });
}
