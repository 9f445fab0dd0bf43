//! Every order of the memory accesses of two ends, explored by loom. Rings have 2 and 4 bytes here.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p levada-ring --release --target-dir target/loom
//! ```

mod ends;
mod handover;
mod queue;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::control::Control;
use crate::layout::Region;
use crate::memory::RegionOf;
use crate::{Consumer, Memory, Producer, Waiter};

/// The words and the bytes of a ring; loom reports an access to a byte that another access does not
/// happen before.
struct Shared {
    control: Control,
    small: [UnsafeCell<u8>; 2],
    large: [UnsafeCell<u8>; 4],
}

impl Shared {
    fn byte(&self, region: Region, at: usize) -> &UnsafeCell<u8> {
        match region {
            Region::Small => &self.small[at],
            Region::Large => &self.large[at],
        }
    }
}

#[derive(Clone)]
struct Simulated(Arc<Shared>);

#[allow(unsafe_code)]
// SAFETY: loom checks the accesses to the cells.
unsafe impl Send for Simulated {}

#[allow(unsafe_code)]
impl Memory for Simulated {
    fn control(&self) -> &Control {
        &self.0.control
    }

    fn write(&self, RegionOf(region): RegionOf, offset: u64, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: loom checks that no other access is concurrent.
            self.0.byte(region, offset as usize + at).with_mut(|cell| unsafe { *cell = *byte });
        }
    }

    fn read(&self, RegionOf(region): RegionOf, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: as above.
            *byte = self.0.byte(region, offset as usize + at).with(|cell| unsafe { *cell });
        }
    }
}

fn simulated() -> Simulated {
    Simulated(Arc::new(Shared {
        control: Control::default(),
        small: std::array::from_fn(|_| UnsafeCell::new(0)),
        large: std::array::from_fn(|_| UnsafeCell::new(0)),
    }))
}

fn ring() -> (Producer<Simulated>, Consumer<Simulated>) {
    let shared = simulated();
    (Producer::new(shared.clone()), Consumer::new(shared))
}

/// A bell that remembers that it was rung, as an eventfd does.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self, waiter: Option<Waiter>) {
        if waiter.is_some() {
            *self.rung.lock().unwrap() = true;
            self.changed.notify_one();
        }
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

fn receive(
    consumer: &mut Consumer<Simulated>,
    mut expected: u8,
    until: u8,
    wait: impl Fn(),
    notify: impl Fn(Option<Waiter>),
) {
    while expected < until {
        let mut buffer = [0; 3];
        let (length, waiter) = consumer.read(&mut buffer).unwrap();
        notify(waiter);
        for byte in &buffer[..length] {
            assert_eq!(*byte, expected);
            expected += 1;
        }
        if length == 0 && consumer.prepare_sleep(Waiter::Bell { bell: 0, mark: 0 }).unwrap() {
            wait();
            let _ = consumer.awake(Waiter::Bell { bell: 0, mark: 0 });
        }
    }
}

/// Explores every schedule with at most four preemptions: seconds. Faults of orders and fences show
/// with three or four.
fn explore(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(test);
}

/// Neither end sleeps for ever, and bytes arrive once and in order, with more bytes than the ring
/// holds.
#[test]
fn no_wake_up_is_lost() {
    explore(|| {
        let (mut producer, mut consumer) = ring();
        let bells = Arc::new((Bell::default(), Bell::default()));
        let theirs = Arc::clone(&bells);
        let writer = thread::spawn(move || {
            let mut next = 1;
            while next <= 3 {
                let pushed = producer.push(&[next]).unwrap();
                next += pushed as u8;
                theirs.0.ring(producer.publish());
                if pushed == 0 && producer.prepare_sleep(Waiter::Bell { bell: 1, mark: 0 }).unwrap()
                {
                    theirs.1.wait();
                    let _ = producer.awake(Waiter::Bell { bell: 1, mark: 0 });
                }
            }
        });
        receive(&mut consumer, 1, 4, || bells.0.wait(), |waiter| bells.1.ring(waiter));
        writer.join().unwrap();
    });
}

/// The reader follows the change of region at its position, and reads no byte of the new one
/// before.
#[test]
fn a_change_of_region_is_followed_at_its_position() {
    explore(|| {
        let (mut producer, mut consumer) = ring();
        let bell = Arc::new(Bell::default());
        let theirs = Arc::clone(&bell);
        let writer = thread::spawn(move || {
            assert_eq!(producer.push(&[1]).unwrap(), 1);
            theirs.ring(producer.publish());
            assert!(producer.resize(true));
            assert_eq!(producer.push(&[2, 3]).unwrap(), 2);
            theirs.ring(producer.publish());
        });
        receive(&mut consumer, 1, 4, || bell.wait(), |_| ());
        writer.join().unwrap();
    });
}

/// A reader that has seen the end has seen, or can read, every byte before it.
#[test]
fn the_end_comes_after_the_last_byte() {
    explore(|| {
        let (mut producer, mut consumer) = ring();
        let writer = thread::spawn(move || {
            producer.push(&[1, 2]).unwrap();
            let _ = producer.finish();
        });
        if consumer.is_finished() {
            assert_eq!(consumer.readable().unwrap(), 2);
        }
        writer.join().unwrap();
    });
}
