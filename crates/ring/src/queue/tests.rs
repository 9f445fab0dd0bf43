use super::*;

const OPEN: Open = Open { mark: 9, backlog: 5 };

fn any(_: u8) -> bool {
    true
}

fn segments(queue: &Queue) -> Vec<u8> {
    let take = || {
        let waiting = queue.first(any)?;
        assert!(queue.take(waiting, 3) && !queue.take(waiting, 3) && !queue.undo(waiting));
        Some(waiting.segment)
    };
    std::iter::from_fn(take).collect()
}

#[test]
fn connections_are_taken_in_the_order_in_which_they_were_made() {
    let queue = Queue::default();
    for first in [0, u32::MAX - 1] {
        for (order, segment) in [7, 127, 0, 3].into_iter().enumerate() {
            let generation = u64::from(first) + 1;
            queue.push((segment, generation), first.wrapping_add(order as u32));
        }
        assert_eq!(queue.count(), 4);
        assert_eq!(segments(&queue), [7, 127, 0, 3]);
        assert_eq!(queue.count(), 0);
    }
    assert_eq!(queue.made(), 8);
}

#[test]
fn each_slot_says_how_its_process_takes_connections() {
    let queue = Queue::default();
    assert!(queue.is_closed() && queue.find(0).is_none() && !queue.is_known(0));
    queue.know(0);
    assert!(queue.is_known(0) && !queue.is_known(1));
    queue.open(0, OPEN);
    let shut = Open { mark: u16::MAX, backlog: 0 };
    queue.open(127, shut);
    assert_eq!((queue.find(0), queue.find(1), queue.find(127)), (Some(OPEN), None, Some(shut)));
    queue.close(0);
    assert!(queue.find(0).is_none() && !queue.is_closed());
    queue.close(127);
    assert!(queue.is_closed());
}

#[test]
fn a_word_says_which_slot_has_taken_a_connection() {
    let queue = Queue::default();
    for (generation, slot) in [(1, 0), (u64::MAX, 127), (1 << 47, 5)] {
        let waiting = queue.push((6, generation), 0);
        assert_eq!(queue.taker((6, generation)), None);
        assert!(queue.take(waiting, slot));
        assert_eq!(queue.taker((6, generation)), Some(slot));
        assert_eq!(queue.taker((6, generation ^ 1)), None);
        assert!(!queue.undo_waiting((6, generation)));
    }
}

#[test]
fn what_is_undone_or_in_use_is_not_taken() {
    let queue = Queue::default();
    let first = queue.push((4, 1), 0);
    queue.push((5, 1), 1);
    assert_eq!(queue.first(|segment| segment != 4).map(|one| one.segment), Some(5));
    assert!(queue.undo_waiting((4, 1)) && !queue.undo(first) && !queue.take(first, 0));
    assert_eq!(queue.taker((4, 1)), None);
    assert_eq!(segments(&queue), [5]);
    // The next connection of the segment is another one.
    let second = queue.push((4, 2), 2);
    assert!(!queue.undo(first) && !queue.take(first, 0) && queue.take(second, 0));
}

#[test]
fn bells_are_taken_once() {
    let queue = Queue::default();
    queue.announce(70, 2);
    queue.announce(70, 0);
    queue.announce(71, 1);
    assert_eq!(queue.take_bells(70), 0b101);
    assert_eq!(queue.take_bells(70), 0);
    assert_eq!(queue.take_bells(71), 0b10);
}

/// What a hostile process writes is a connection, or none.
#[test]
fn any_words_are_read() {
    bolero::check!().with_type::<(u64, u64, u32, u8)>().for_each(|&(word, open, order, slot)| {
        let queue = Queue::default();
        queue.words[3].store(word, Ordering::Relaxed);
        queue.words[127].store(word.rotate_left(32), Ordering::Relaxed);
        queue.orders[3].store(order, Ordering::Relaxed);
        queue.slot(slot).open.store(open, Ordering::Relaxed);
        assert!(queue.count() <= 2);
        let _ = (queue.find(slot), queue.taker((3, word >> GENERATION)));
        assert!(segments(&queue).len() <= 2);
        assert!(queue.first(any).is_none());
    });
}
