//! One process, and many threads of one.

use super::*;

fn entry(client: u32) -> Entry {
    Entry { client, segment: (client % 128) as u8 }
}

fn open(backlog: u32) -> Words {
    let queue = Words::default();
    queue.open(backlog, 7);
    queue
}

#[test]
fn entries_are_taken_in_their_order_for_many_laps() {
    let queue = open(5);
    for first in (0..3000).step_by(3) {
        (first..first + 3).for_each(|client| assert!(queue.push(entry(client)).is_ok()));
        (first..first + 3).for_each(|client| assert_eq!(queue.take(), Some(entry(client))));
        assert_eq!(queue.take(), None);
    }
}

#[test]
fn the_backlog_is_that_of_the_kernel() {
    for backlog in [0, 1, 5, 127, 128, 4096] {
        let queue = open(backlog);
        let room = (backlog + 1).min(SLOTS as u32);
        (0..room).for_each(|client| assert!(queue.push(entry(client)).is_ok()));
        assert_eq!(queue.push(entry(room)), Err(NoRoom::Full), "{backlog}");
        assert_eq!(queue.take(), Some(entry(0)));
        assert!(queue.push(entry(room)).is_ok());
    }
}

#[test]
fn entries_that_were_taken_back_are_passed_over() {
    let queue = open(9);
    let tickets: Vec<_> = (0..4).map(|client| queue.push(entry(client)).unwrap()).collect();
    assert!(queue.undo(tickets[0]) && queue.undo(tickets[2]));
    assert!(!queue.undo(tickets[2]));
    assert!(queue.has_entry());
    assert_eq!([queue.take(), queue.take()], [Some(entry(1)), Some(entry(3))]);
    assert!(!queue.undo(tickets[1]) && !queue.has_entry());
}

#[test]
fn a_closed_queue_takes_no_entries_and_gives_those_it_has() {
    let queue = open(9);
    queue.push(entry(1)).unwrap();
    queue.close();
    assert_eq!(queue.push(entry(2)), Err(NoRoom::Closed));
    assert_eq!([queue.take(), queue.take()], [Some(entry(1)), None]);
}

#[test]
fn each_bell_is_taken_once() {
    let queue = open(9);
    assert_eq!(queue.take_bells(), (0, 7));
    queue.announce(0);
    queue.announce(3);
    assert_eq!(queue.take_bells(), (0b1001, 7));
    assert_eq!(queue.take_bells().0, 0);
}

#[test]
fn words_stand_for_what_they_were_made_of() {
    for lap in [0, 1, (1 << LAP_BITS) - 1] {
        let waiting = Entry { client: u32::MAX, segment: u8::MAX };
        for slot in [Slot::Empty, Slot::Undone, Slot::Waiting(waiting), Slot::Waiting(entry(0))] {
            assert_eq!(decode(encode(lap, slot)), (lap, slot));
        }
    }
}

#[test]
fn any_memory_ends_each_call() {
    bolero::check!().with_type::<(u64, u64, u64, [u64; 4])>().for_each(|words| {
        let (backlog, head, tail, slots) = *words;
        let queue = Words::default();
        queue.backlog.store(backlog, Ordering::Relaxed);
        queue.head.0.store(head, Ordering::Relaxed);
        queue.tail.0.store(tail, Ordering::Relaxed);
        for (at, word) in queue.slots.iter().enumerate() {
            word.store(slots[at % slots.len()], Ordering::Relaxed);
        }
        if let Ok(ticket) = queue.push(entry(1)) {
            queue.undo(ticket);
        }
        let _ = (queue.has_entry(), queue.take());
    });
}

#[test]
fn each_entry_of_many_threads_is_taken_once() {
    const EACH: u32 = 5000;
    let queue = open(7);
    let mut taken = std::thread::scope(|scope| {
        for writer in 0..3 {
            let queue = &queue;
            scope.spawn(move || {
                for client in writer * EACH..(writer + 1) * EACH {
                    while queue.push(entry(client)).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut taken = Vec::new();
        while taken.len() < 3 * EACH as usize {
            match queue.take() {
                Some(entry) => taken.push(entry.client),
                None => std::thread::yield_now(),
            }
        }
        taken
    });
    for writer in 0..3 {
        let own = taken.iter().filter(|client| **client / EACH == writer);
        assert!(own.is_sorted(), "the entries of one client are in order");
    }
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..3 * EACH));
}
