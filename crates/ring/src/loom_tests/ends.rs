//! A segment that two connections use, one after the other.

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::thread;

use super::{Simulated, explore, simulated};
use crate::ends::{End, Ends, first_position, next};
use crate::{Consumer, ConsumerState, Memory, Producer, ProducerState, Side};

/// As `Leaked::begin`, for one direction.
fn begin(memory: &Simulated, ends: &Ends) -> u64 {
    let position = memory.control().position();
    let generation = next(ends.generation(), [position, position]);
    memory.control().reset(first_position(generation));
    ends.begin(generation);
    generation
}

fn producer(memory: &Simulated, generation: u64) -> Producer<Simulated> {
    Producer::restore(memory.clone(), ProducerState::of_generation(generation))
}

fn consumer(memory: &Simulated, generation: u64) -> Consumer<Simulated> {
    Consumer::restore(memory.clone(), ConsumerState::of_generation(generation))
}

/// The connector overwrites a segment only after the acceptor has let go of it: loom reports an
/// access to a byte that another access does not happen before.
#[test]
fn no_connection_gets_the_bytes_of_the_one_before() {
    explore(|| {
        let memory = simulated();
        let ends = Arc::new(Ends::default());
        let first = begin(&memory, &ends);
        let mut writer = producer(&memory, first);
        writer.push(&[1]).unwrap();
        let _ = writer.finish();
        let theirs = (memory.clone(), Arc::clone(&ends));
        let acceptor = thread::spawn(move || {
            let (memory, ends) = theirs;
            let mut buffer = [0; 2];
            let (length, _) = consumer(&memory, first).read(&mut buffer).unwrap();
            assert!(length == 0 || buffer[0] == 1);
            ends.end(Side::Acceptor, End::Closed);
            ends.acknowledge(Side::Acceptor, first);
            let second = ends.generation();
            if second != first {
                let (length, _) = consumer(&memory, second).read(&mut buffer).unwrap();
                assert!(length == 0 || buffer[..length] == [2, 2][..length]);
            }
        });
        ends.acknowledge(Side::Connector, first);
        if ends.is_free(first) {
            let second = begin(&memory, &ends);
            assert_eq!(ends.ended(Side::Acceptor), End::Open);
            let mut writer = producer(&memory, second);
            writer.push(&[2, 2]).unwrap();
            let _ = writer.publish();
        }
        acceptor.join().unwrap();
    });
}

/// An end of an earlier generation that writes its cursor late is refused.
#[test]
fn a_late_cursor_of_an_earlier_connection_is_refused() {
    explore(|| {
        let memory = simulated();
        let ends = Ends::default();
        let first = begin(&memory, &ends);
        let second = begin(&memory, &ends);
        let theirs = memory.clone();
        let late = thread::spawn(move || {
            let position = first_position(first) + 1;
            theirs.control().produced.head.store(position, Ordering::Release);
        });
        let mut reader = consumer(&memory, second);
        assert!(reader.readable().is_err() || reader.shown() == first_position(second));
        late.join().unwrap();
        assert!(reader.readable().is_err());
    });
}
