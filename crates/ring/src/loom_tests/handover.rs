//! The moves of a stream from TCP to a ring, and back.

use std::collections::VecDeque;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Simulated, explore, ring};
use crate::{Consumer, Producer, Start};

/// A TCP connection: a queue, and a wait in the kernel.
#[derive(Default)]
struct Tcp {
    queue: Mutex<VecDeque<u8>>,
    changed: Condvar,
}

impl Tcp {
    fn send(&self, byte: u8) {
        self.queue.lock().unwrap().push_back(byte);
        self.changed.notify_one();
    }

    fn receive(&self) -> u8 {
        let mut queue = self.queue.lock().unwrap();
        loop {
            match queue.pop_front() {
                Some(byte) => return byte,
                None => queue = self.changed.wait(queue).unwrap(),
            }
        }
    }

    fn receive_now(&self) -> Option<u8> {
        self.queue.lock().unwrap().pop_front()
    }
}

/// As `preload` sends: by TCP until the reader is ready, then one more message by TCP, then by the
/// ring.
fn send(producer: &mut Producer<Simulated>, tcp: &Tcp, by_ring: &mut bool, byte: u8) {
    if *by_ring {
        assert_eq!(producer.push(&[byte]).unwrap(), 1);
        let _ = producer.publish();
        return;
    }
    let begins = producer.is_ready() && producer.begin_start();
    tcp.send(byte);
    if begins {
        producer.start_at(byte.into());
        *by_ring = true;
    }
}

/// As `preload` receives. `received` bytes have come so far.
fn receive(consumer: &mut Consumer<Simulated>, tcp: &Tcp, received: u8) -> u8 {
    loop {
        match consumer.start() {
            // A wait in the kernel, which no byte in the ring ends.
            Start::None => return tcp.receive(),
            Start::Pending => match tcp.receive_now() {
                Some(byte) => return byte,
                None => thread::yield_now(),
            },
            Start::At(position) if u64::from(received) < position => return tcp.receive(),
            Start::At(_) => {
                let mut byte = [0];
                if consumer.read(&mut byte).unwrap().0 == 1 {
                    return byte[0];
                }
                thread::yield_now();
            }
        }
    }
}

/// All bytes arrive once and in order, and no wait in the kernel is for a byte that is in the ring.
#[test]
fn a_stream_moves_to_the_ring_without_a_loss() {
    explore(|| {
        let (mut producer, mut consumer) = ring();
        let tcp = Arc::new(Tcp::default());
        let theirs = Arc::clone(&tcp);
        let writer = thread::spawn(move || {
            let mut by_ring = false;
            for byte in 1..=3 {
                send(&mut producer, &theirs, &mut by_ring, byte);
            }
        });
        assert!(consumer.set_ready(true));
        for received in 0..3 {
            assert_eq!(receive(&mut consumer, &tcp, received), received + 1);
        }
        writer.join().unwrap();
    });
}

/// A reader that may wait in the kernel again has prevented the start.
#[test]
fn a_start_and_a_readiness_that_is_taken_back_exclude_each_other() {
    explore(|| {
        let (producer, consumer) = ring();
        let writer = thread::spawn(move || {
            let begun = producer.begin_start();
            if begun {
                producer.start_at(0);
            }
            begun
        });
        consumer.set_ready(true);
        let taken_back = consumer.set_ready(false);
        let begun = writer.join().unwrap();
        assert!(!(begun && taken_back));
    });
}

/// What the reader has not read when it leaves, the writer can send again: nothing is lost, and
/// nothing comes twice.
#[test]
fn what_a_reader_leaves_is_sent_again() {
    explore(|| {
        let (mut producer, mut consumer) = ring();
        let writer = thread::spawn(move || {
            for byte in [1, 2] {
                if producer.is_left() {
                    return (producer, byte);
                }
                assert_eq!(producer.push(&[byte]).unwrap(), 1);
                let _ = producer.publish();
            }
            (producer, 3)
        });
        let mut bytes = [0];
        let read = consumer.read(&mut bytes).unwrap().0;
        assert!(consumer.leave());
        let (mut producer, next) = writer.join().unwrap();
        let mut rest = [0; 3];
        let again = producer.reclaim(0, &mut rest).unwrap();
        let all: Vec<u8> = bytes[..read].iter().chain(&rest[..again]).copied().collect();
        assert_eq!(all, (1..next).collect::<Vec<u8>>());
    });
}

/// A writer that ends and a reader that leaves agree who delivers the rest: the ring, or the writer
/// once more.
#[test]
fn an_end_and_a_reader_that_leaves_deliver_the_rest_once() {
    explore(|| {
        let (mut producer, mut consumer) = ring();
        assert_eq!(producer.push(&[1]).unwrap(), 1);
        let writer = thread::spawn(move || {
            let sends_again = !producer.keep_reader();
            let _ = producer.finish();
            (producer, sends_again)
        });
        let reads_on = !consumer.leave();
        let (mut producer, sends_again) = writer.join().unwrap();
        assert_ne!(reads_on, sends_again);
        let mut byte = [0];
        let length = if reads_on {
            consumer.read(&mut byte).unwrap().0
        } else {
            producer.reclaim(0, &mut byte).unwrap()
        };
        assert_eq!((length, byte), (1, [1]));
    });
}
