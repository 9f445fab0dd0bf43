//! Shares on a network that loses packets, and in the order and with the timers of the paper.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_swarm::mediated::{Placement, Settings};
use levada_swarm::mode::Mode;
use levada_swarm::simulator::{Outcome, Recovery, Scenario, run};
use levada_swarm::{ChunkSize, Geometry};

use super::{equal, up_to_a_hundred_peers};

/// Both transport swaps, and the fixed timers of the paper in place of UDP.
const STREAMS: [(Recovery, Recovery); 4] = [
    (Recovery::Quic, Recovery::Tcp),
    (Recovery::Tcp, Recovery::Quic),
    (Recovery::FixedTimers, Recovery::Tcp),
    (Recovery::Tcp, Recovery::FixedTimers),
];

fn mediated(peers: usize) -> Mode {
    Mode::Mediated(Settings { wait: peers, cache: 16, ..Settings::default() })
}

fn is_complete(scenario: &Scenario) -> Outcome {
    let outcome = run(scenario);
    let peers = scenario.peers.len();
    let said = format!("{:?} {:?} seed {}", scenario.control, scenario.data, scenario.seed);
    assert_eq!((outcome.finished.len(), outcome.incomplete), (peers, 0), "{said} {peers}");
    outcome
}

#[test]
fn with_lost_packets_every_peer_receives_everything() {
    for (peers, seed) in up_to_a_hundred_peers() {
        for mode in [Mode::Direct, mediated(peers)] {
            for (control, data) in STREAMS {
                let lossy = Scenario { seed, mode, loss: 0.02, control, data, ..equal(peers, 30) };
                is_complete(&lossy);
            }
        }
    }
}

/// The paper's file of 116 KB in chunks of 1 KiB, to five peers.
fn of_the_paper(placement: Placement) -> Scenario {
    let geometry = Geometry::new(116 << 10, ChunkSize::new(1 << 10).unwrap()).unwrap();
    let settings = Settings { wait: 5, cache: 100, placement, ..Settings::default() };
    let equal = Scenario::equal(geometry, 5, 100_000_000, Duration::from_millis(1), 3);
    Scenario { mode: Mode::Mediated(settings), trace: true, ..equal }
}

#[test]
fn fixed_timers_take_longer_than_those_of_transports() {
    let last = |recovery: Recovery| {
        let scenario = Scenario {
            loss: 0.01,
            control: recovery,
            data: recovery,
            ..of_the_paper(Placement::Blocks)
        };
        is_complete(&scenario).finished[4]
    };
    // Simulated time, which no machine changes: one lost packet takes five seconds.
    let fixed = last(Recovery::FixedTimers);
    assert!(fixed >= Duration::from_secs(5), "{fixed:?}");
    assert!([Recovery::Tcp, Recovery::Quic].into_iter().all(|one| last(one) < fixed));
}

/// A provider whose request is late is asked for the chunk that it waits for: the fetch goes
/// elsewhere when the request comes.
#[test]
fn a_late_request_does_not_hold_up_a_fetch() {
    for seed in 0..100 {
        for (control, data) in [(Recovery::Quic, Recovery::Tcp), (Recovery::Tcp, Recovery::Quic)] {
            let paper = of_the_paper(Placement::Blocks);
            let outcome = is_complete(&Scenario { seed, loss: 0.01, control, data, ..paper });
            // Simulated time. A fetch that is not answered takes three seconds.
            let last = outcome.finished[4];
            assert!(last < Duration::from_secs(3), "{control:?} {seed} {last:?}");
        }
    }
}

#[test]
fn every_chunk_has_a_round_trip_in_either_order() {
    for placement in [Placement::Stripes, Placement::Blocks] {
        for random_order in [false, true] {
            let scenario = Scenario { random_order, ..of_the_paper(placement) };
            let outcome = is_complete(&scenario);
            let all: BTreeSet<_> =
                outcome.round_trips.iter().map(|one| (one.peer, one.index)).collect();
            assert_eq!((all.len(), outcome.round_trips.len()), (5 * 116, 5 * 116));
            let round_trip = scenario.delay * 2;
            assert!(outcome.round_trips.iter().all(|one| one.took >= round_trip));
            let distributed = outcome.counters.distributed.unwrap();
            assert!(distributed < outcome.finished[4], "{distributed:?}");
        }
    }
}

#[test]
fn in_random_order_more_is_fetched_the_shorter_the_cache() {
    let fetches = |cache: usize, random_order: bool| {
        let mut scenario = Scenario { random_order, ..of_the_paper(Placement::Blocks) };
        let settings =
            Settings { wait: 5, cache, placement: Placement::Blocks, ..Settings::default() };
        scenario.mode = Mode::Mediated(settings);
        is_complete(&scenario).counters.fetches
    };
    let [long, short] = [100, 8].map(|cache| fetches(cache, true));
    assert!(short > long, "{short} {long}");
}
