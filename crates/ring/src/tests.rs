//! Two ends in one process, and an end whose peer writes anything.

use std::thread;
use std::time::Duration;

use crate::atomic::Ordering;
use crate::{
    Consumer, ConsumerState, LARGE, Memory, OpenError, OwnedHalf, PIECE, Producer, ProducerState,
    SMALL, Segment, Side, Waiter,
};

const LONG: Duration = Duration::from_secs(60);

fn ring() -> (Producer<OwnedHalf>, Consumer<OwnedHalf>, OwnedHalf) {
    let (_, segment) = Segment::create().unwrap();
    let (producer, _) = segment.ends(Side::Connector);
    let (_, consumer) = segment.ends(Side::Acceptor);
    (producer, consumer, segment.half(0))
}

/// Bytes that differ at every position.
fn pattern(from: u64, length: usize) -> Vec<u8> {
    (from..from + length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
}

fn read<M: Memory>(consumer: &mut Consumer<M>, most: usize) -> Vec<u8> {
    let mut buffer = vec![0; most];
    let (length, _) = consumer.read(&mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

#[test]
fn bytes_arrive_in_order_over_many_rounds() {
    let (mut producer, mut consumer, _) = ring();
    let mut written = 0;
    let mut received = 0;
    for round in 0..200u64 {
        let length = (round * 7919 % 50_000) as usize;
        written += producer.push(&pattern(written, length)).unwrap() as u64;
        assert_eq!(producer.publish(), None);
        let bytes = read(&mut consumer, (round * 104_729 % 60_000) as usize);
        assert_eq!(bytes, pattern(received, bytes.len()));
        received += bytes.len() as u64;
    }
    let rest = read(&mut consumer, 1 << 20);
    assert_eq!(rest, pattern(received, rest.len()));
    assert_eq!(received + rest.len() as u64, written);
}

#[test]
fn a_full_ring_takes_nothing_until_bytes_are_read() {
    let (mut producer, mut consumer, _) = ring();
    assert_eq!(producer.push(&vec![1; 100_000]).unwrap() as u64, SMALL);
    assert_eq!(producer.push(&[2]).unwrap(), 0);
    assert_eq!(producer.publish(), None);
    assert_eq!(read(&mut consumer, 10).len(), 10);
    assert_eq!(producer.push(&[2; 100]).unwrap(), 10);
}

#[test]
fn bytes_are_invisible_until_they_are_published() {
    let (mut producer, mut consumer, _) = ring();
    producer.push(b"water").unwrap();
    assert_eq!(consumer.readable().unwrap(), 0);
    assert_eq!(producer.publish(), None);
    assert_eq!(consumer.readable().unwrap(), 5);
}

#[test]
fn a_long_message_is_shown_in_pieces() {
    let (mut producer, mut consumer, half) = ring();
    half.half.allocate_large().unwrap();
    assert!(producer.resize(true));
    let message = pattern(0, 3 * PIECE + 5);
    assert!(consumer.prepare_sleep(Waiter::Futex).unwrap());
    assert_eq!(producer.push(&message).unwrap(), message.len());
    assert!(consumer.awake(Waiter::Futex).is_some(), "the first piece has woken the reader");
    assert_eq!(consumer.readable().unwrap(), 3 * PIECE as u64, "all but the last");
    assert_eq!(producer.publish(), None);
    assert_eq!(read(&mut consumer, 1 << 20), message);

    let bell = Waiter::Bell { bell: 2, mark: 0 };
    assert!(consumer.prepare_sleep(bell).unwrap());
    assert_eq!(producer.push(&message).unwrap(), message.len());
    assert_eq!(producer.publish(), Some(bell), "only the caller can ring it");
    assert_eq!(read(&mut consumer, 1 << 20), message);
}

#[test]
fn peeking_leaves_the_bytes() {
    let (mut producer, mut consumer, _) = ring();
    producer.push(b"water").unwrap();
    assert_eq!(producer.publish(), None);
    let mut buffer = [0; 3];
    assert_eq!(consumer.peek(0, &mut buffer).unwrap(), 3);
    assert_eq!(consumer.peek(1, &mut [0; 8]).unwrap(), 4);
    assert_eq!(consumer.peek(9, &mut [0; 8]).unwrap(), 0);
    assert_eq!(&buffer, b"wat");
    assert_eq!(read(&mut consumer, 10), b"water");
}

#[test]
fn a_ring_grows_and_shrinks_between_bytes() {
    let (mut producer, mut consumer, half) = ring();
    let mut written = producer.push(&pattern(0, 60_000)).unwrap() as u64;
    half.half.allocate_large().unwrap();
    assert!(producer.resize(true));
    assert!(!producer.resize(false), "the consumer has not followed yet");
    written += producer.push(&pattern(written, 2 << 20)).unwrap() as u64;
    assert_eq!(written, 60_000 + LARGE);
    assert_eq!(producer.publish(), None);
    // Across the change in one call.
    let bytes = read(&mut consumer, 100_000);
    assert_eq!(bytes, pattern(0, 100_000));
    assert!(producer.resize(false));
    written += producer.push(&pattern(written, 1000)).unwrap() as u64;
    assert_eq!(producer.publish(), None);
    let rest = read(&mut consumer, 2 << 20);
    assert_eq!(rest, pattern(100_000, rest.len()));
    assert_eq!(100_000 + rest.len() as u64, written);
    half.half.free_large().unwrap();
    assert!(!producer.is_large());
}

#[test]
fn the_end_is_seen_after_the_last_byte() {
    let (mut producer, mut consumer, _) = ring();
    producer.push(b"last").unwrap();
    assert!(!consumer.is_finished());
    assert_eq!(producer.finish(), None);
    assert!(consumer.is_finished());
    assert_eq!(read(&mut consumer, 10), b"last");
    assert_eq!(consumer.abandon(), None);
    assert!(producer.is_abandoned());
}

#[test]
fn a_sleeping_end_is_woken_by_the_other() {
    let (mut producer, mut consumer, _) = ring();
    assert!(consumer.prepare_sleep(Waiter::Bell { bell: 7, mark: 0 }).unwrap());
    producer.push(b"x").unwrap();
    assert_eq!(producer.publish(), Some(Waiter::Bell { bell: 7, mark: 0 }));
    producer.push(b"x").unwrap();
    assert_eq!(producer.publish(), None, "one bell for each sleep");
    assert!(!consumer.prepare_sleep(Waiter::Futex).unwrap(), "there are bytes");

    producer.push(&vec![0; 100_000]).unwrap();
    assert_eq!(producer.publish(), None);
    assert!(producer.prepare_sleep(Waiter::Bell { bell: 3, mark: 0 }).unwrap());
    let (length, bell) = consumer.read(&mut [0; 10]).unwrap();
    assert_eq!((length, bell), (10, Some(Waiter::Bell { bell: 3, mark: 0 })));
}

#[test]
fn two_threads_exchange_bytes_by_futex() {
    let (mut producer, mut consumer, _) = ring();
    const LENGTH: u64 = 20 << 20;
    let writer = thread::spawn(move || {
        let mut at = 0;
        while at < LENGTH {
            let length = (at * 31 % 5000 + 1).min(LENGTH - at) as usize;
            let pushed = producer.push(&pattern(at, length)).unwrap() as u64;
            at += pushed;
            assert_ne!(producer.publish(), Some(Waiter::Bell { bell: 0, mark: 0 }));
            if pushed == 0 && producer.prepare_sleep(Waiter::Futex).unwrap() {
                producer.sleeper().sleep(LONG, true);
                producer.awake(Waiter::Futex);
            }
        }
        assert_ne!(producer.finish(), Some(Waiter::Bell { bell: 0, mark: 0 }));
    });
    let mut at = 0;
    let mut buffer = vec![0; 7000];
    loop {
        let finished = consumer.is_finished();
        let (length, _) = consumer.read(&mut buffer).unwrap();
        assert_eq!(buffer[..length], pattern(at, length));
        at += length as u64;
        if length == 0 {
            if finished {
                break;
            }
            if consumer.prepare_sleep(Waiter::Futex).unwrap() {
                consumer.sleeper().sleep(LONG, true);
                consumer.awake(Waiter::Futex);
            }
        }
    }
    assert_eq!(at, LENGTH);
    writer.join().unwrap();
}

#[test]
fn each_end_shows_its_processor() {
    let own = rustix::thread::sched_getaffinity(None).unwrap();
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|number| own.is_set(*number)).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set(first);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    let (_, segment) = Segment::create().unwrap();
    let shared = segment.leak();
    let mut producer = shared.producer(Side::Connector, ProducerState::default());
    let mut consumer = shared.consumer(Side::Acceptor, ConsumerState::default());
    assert_eq!(shared.peer_processors(Side::Acceptor), [0; 2]);
    producer.push(b"water").unwrap();
    assert_eq!(producer.publish(), None);
    let shown = first as u32 + 1;
    assert_eq!(shared.peer_processors(Side::Acceptor), [shown, 0]);
    assert_eq!(shared.peer_processors(Side::Connector), [0; 2]);
    assert_eq!(read(&mut consumer, 10), b"water");
    assert_eq!(shared.peer_processors(Side::Connector), [0, shown]);
}

#[test]
fn only_sealed_files_of_the_right_length_are_segments() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let open = |file: &std::os::fd::OwnedFd| Segment::open(file);
    let unsealed = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&unsealed, crate::SEGMENT_LENGTH).unwrap();
    assert!(matches!(open(&unsealed), Err(OpenError::NotASegment("its length is not sealed"))));
    let (file, _segment) = Segment::create().unwrap();
    assert!(ftruncate(&file, 100).is_err());
    assert!(open(&file).is_ok());
}

/// A peer that writes anything into the words that it shares, between any calls of this end.
#[test]
fn a_peer_that_scribbles_causes_errors_and_nothing_else() {
    bolero::check!().with_type::<Vec<(u8, u64)>>().for_each(|writes| {
        let (mut producer, mut consumer, half) = ring();
        half.half.allocate_large().unwrap();
        let control = half.control();
        let mut buffer = vec![0; 70_000];
        for &(what, value) in writes {
            match what % 16 {
                0 => control.produced.head.store(value, Ordering::Relaxed),
                1 => control.produced.switch_at.store(value, Ordering::Relaxed),
                2 => control.produced.switches.store(value as u32, Ordering::Relaxed),
                3 => control.consumed.tail.store(value, Ordering::Relaxed),
                4 => control.consumed.entered.store(value as u32, Ordering::Relaxed),
                5 => control.consumer_sleep.waiter.store(value as u32, Ordering::Relaxed),
                6 => control.producer_sleep.waiter.store(value as u32, Ordering::Relaxed),
                7 => control.produced.head.store(value % 2_000_000, Ordering::Relaxed),
                8 => drop(producer.push(&buffer[..value as usize % 70_000])),
                9 => drop(producer.publish()),
                10 => drop(producer.resize(value % 2 == 0)),
                11 => drop(producer.room()),
                12 => drop(consumer.readable()),
                13 => control.produced.processor.store(value as u32, Ordering::Relaxed),
                14 => control.consumed.processor.store(value as u32, Ordering::Relaxed),
                _ => {
                    if let Ok((length, _)) = consumer.read(&mut buffer[..value as usize % 70_000]) {
                        assert!(length <= value as usize % 70_000);
                    }
                }
            }
        }
    });
}
