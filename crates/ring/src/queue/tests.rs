use super::*;

const OPEN: Open = Open { name: 70, mark: 9, backlog: 5 };

fn any(_: u8) -> bool {
    true
}

fn segments(queue: &Queue, name: u32) -> Vec<u8> {
    let take = || {
        let waiting = queue.first(name, any)?;
        assert!(queue.take(waiting) && !queue.take(waiting) && !queue.undo(waiting));
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
            queue.push(70, (segment, generation), first.wrapping_add(order as u32));
        }
        assert_eq!(queue.count(70), 4);
        assert_eq!(segments(&queue, 70), [7, 127, 0, 3]);
        assert_eq!(queue.count(70), 0);
    }
    assert_eq!(queue.made(), 8);
}

#[test]
fn each_listener_has_its_own_connections() {
    let queue = Queue::default();
    // The same place in the page.
    let others = [OPEN.name + LISTENERS as u32, 1, NAMES - 1];
    for (name, segment) in [OPEN.name].into_iter().chain(others).zip(0..) {
        queue.push(name, (segment, 1), segment.into());
    }
    for (name, segment) in others.into_iter().zip(1..) {
        assert_eq!(segments(&queue, name), [segment]);
    }
    assert_eq!(segments(&queue, OPEN.name), [0]);
}

#[test]
fn a_listener_is_found_by_its_name_while_it_is_open() {
    let queue = Queue::default();
    assert_eq!(queue.find(OPEN.name), None);
    assert_eq!(queue.find(0), None);
    queue.open(OPEN);
    assert_eq!(queue.find(OPEN.name), Some(OPEN));
    let next = Open { name: OPEN.name + LISTENERS as u32, backlog: 0, ..OPEN };
    assert_eq!(queue.find(next.name), None);
    queue.open(next);
    assert_eq!(queue.find(OPEN.name), None, "its place has another one");
    assert_eq!(queue.find(next.name), Some(Open { backlog: 1, ..next }));
    queue.close(next.name);
    assert_eq!(queue.find(next.name), None);
}

#[test]
fn what_is_undone_or_in_use_is_not_taken() {
    let queue = Queue::default();
    let first = queue.push(1, (4, 1), 0);
    queue.push(1, (5, 1), 1);
    assert_eq!(queue.first(1, |segment| segment != 4).map(|one| one.segment), Some(5));
    assert!(queue.undo(first) && !queue.undo(first) && !queue.take(first));
    assert_eq!(segments(&queue, 1), [5]);
    // The next connection of the segment is another one.
    let second = queue.push(1, (4, 2), 2);
    assert!(!queue.undo(first) && !queue.take(first) && queue.take(second));
}

#[test]
fn bells_are_taken_once() {
    let queue = Queue::default();
    queue.announce(OPEN.name, 2);
    queue.announce(OPEN.name, 0);
    queue.announce(OPEN.name + 1, 1);
    assert_eq!(queue.take_bells(OPEN.name), 0b101);
    assert_eq!(queue.take_bells(OPEN.name), 0);
    assert_eq!(queue.take_bells(OPEN.name + 1), 0b10);
}

/// What a hostile process writes is a connection of some listener, or none.
#[test]
fn any_words_are_read() {
    bolero::check!().with_type::<(u64, u64, u32, u32)>().for_each(|&(word, open, order, name)| {
        let queue = Queue::default();
        queue.words[3].store(word, Ordering::Relaxed);
        queue.words[127].store(word.rotate_left(32), Ordering::Relaxed);
        queue.orders[3].store(order, Ordering::Relaxed);
        queue.listener(name).open.store(open, Ordering::Relaxed);
        let name = name % NAMES;
        for name in [name, awaited(word).unwrap_or(name)] {
            assert!(queue.count(name) <= 2 && segments(&queue, name).len() <= 2);
            assert!(queue.find(name).is_none_or(|found| found.name == name && found.backlog > 0));
        }
    });
}
