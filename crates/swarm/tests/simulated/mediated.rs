//! Shares in mediated mode.

use std::time::Duration;

use levada_swarm::mediated::{Placement, Settings};
use levada_swarm::mode::Mode;
use levada_swarm::simulator::{Outcome, PeerScenario, Scenario, run};

use super::faults::{check, troubled};
use super::{equal, geometry, seeds, up_to_a_hundred_peers};

fn mediated(mut scenario: Scenario, settings: Settings) -> Scenario {
    scenario.mode = Mode::Mediated(settings);
    scenario
}

/// All peers are there before chunks are distributed.
fn settings(peers: usize, cache: usize) -> Settings {
    Settings { wait: peers, cache, ..Settings::default() }
}

/// The time in which the coordinator alone sends the content to every peer.
fn uplink_bound(scenario: &Scenario) -> f64 {
    let bits = scenario.geometry.length() as f64 * 8.0;
    bits * scenario.peers.len() as f64 / scenario.source.up as f64
}

fn fetched(scenario: &Scenario, outcome: &Outcome) -> f64 {
    outcome.counters.fetches as f64 / f64::from(scenario.geometry.chunks())
}

#[test]
fn every_peer_receives_everything() {
    let shares = [(1, 0), (1, 1), (1, 50), (2, 7), (3, 200), (5, 100), (60, 30), (200, 20)];
    for (peers, chunks) in shares {
        for cache in [1, 2, 7, 64] {
            for placement in [Placement::Stripes, Placement::Blocks] {
                for wait in [0, peers] {
                    let settings = Settings { cache, wait, placement, ..Settings::default() };
                    let outcome = run(&mediated(equal(peers, chunks), settings));
                    let said = format!("{peers} {chunks} {settings:?} {outcome:?}");
                    assert_eq!((outcome.finished.len(), outcome.incomplete), (peers, 0), "{said}");
                    assert_eq!(
                        (outcome.chunks.duplicates, outcome.counters.source_reads),
                        (0, 0),
                        "{said}"
                    );
                    assert_eq!(outcome.counters.sent, u64::from(chunks) * peers as u64, "{said}");
                    assert_eq!(outcome.counters.loads, u64::from(chunks), "{said}");
                }
            }
        }
    }
}

/// Nothing is random in this mode but when peers join.
#[test]
fn up_to_a_hundred_peers_receive_everything_whenever_they_join() {
    for (peers, seed) in up_to_a_hundred_peers() {
        let mut scenario = mediated(equal(peers, 50), settings(1 + (seed as usize) % 2, 8));
        for (number, peer) in scenario.peers.iter_mut().enumerate() {
            let step = (number as u64 + 1).wrapping_mul(seed).wrapping_mul(0x9e37_79b9) % 500;
            peer.joins = Duration::from_millis(step);
        }
        let outcome = run(&scenario);
        assert_eq!((outcome.finished.len(), outcome.incomplete), (peers, 0), "{peers} {seed}");
        assert_eq!(outcome.counters.source_reads, 0, "{peers} {seed}");
    }
}

#[test]
fn each_chunk_is_fetched_once_and_the_uplink_is_never_idle() {
    for (peers, chunks) in [(3, 1000), (10, 1000), (50, 600)] {
        for cache in [32, 64, 100] {
            let scenario = mediated(equal(peers, chunks), settings(peers, cache));
            let outcome = run(&scenario);
            let first = outcome.finished[0];
            let last = outcome.finished[peers - 1];
            // Simulated time, which no machine changes.
            let time = last.as_secs_f64() / uplink_bound(&scenario);
            let fetched = fetched(&scenario, &outcome);
            assert!(fetched <= 1.1, "{peers} {cache}: {outcome:?}");
            assert!(time <= 1.08, "{peers} {cache}: {time}");
            assert!(first.as_secs_f64() >= 0.9 * last.as_secs_f64(), "{first:?} {last:?}");
        }
    }
}

#[test]
fn blocks_take_as_long_as_stripes_although_more_is_fetched() {
    let settings = Settings { placement: Placement::Blocks, ..settings(10, 64) };
    let scenario = mediated(equal(10, 1000), settings);
    let outcome = run(&scenario);
    assert!(outcome.finished[9].as_secs_f64() <= 1.08 * uplink_bound(&scenario), "{outcome:?}");
    assert_eq!((outcome.counters.loads, outcome.counters.source_reads), (1000, 0));
    assert!(outcome.counters.fetches >= 1000);
}

/// A scenario in which much goes wrong, with a cache and a placement from the seed.
fn troubled_mediated(seed: u64) -> Scenario {
    let mut scenario = troubled(seed);
    let stay = scenario.peers.iter().filter(|peer| peer.leaves.is_none() && peer.poison == 0.0);
    let wait = if seed.is_multiple_of(3) { stay.count() } else { 1 };
    let cache = [1, 2, 5, 16, 64][(seed / 3 % 5) as usize];
    let replicas = 1 + (seed / 15 % 3) as usize;
    let placement = if seed.is_multiple_of(4) { Placement::Blocks } else { Placement::Stripes };
    if seed.is_multiple_of(8) {
        // More than are served in step.
        scenario.geometry = geometry(12 * scenario.geometry.chunks());
    }
    if seed.is_multiple_of(7) {
        scenario.source.ends = Some(Duration::from_millis(seed % 500));
    }
    mediated(scenario, Settings { replicas, cache, wait, placement })
}

#[test]
fn every_honest_peer_finishes_whatever_happens() {
    let half = |first: u64| {
        (first..seeds()).step_by(2).map(|seed| check(&troubled_mediated(seed)).expelled.len()).sum()
    };
    let expelled: usize = std::thread::scope(|scope| {
        let other = scope.spawn(move || half(1));
        let own: usize = half(0);
        own + other.join().unwrap()
    });
    assert!(expelled > 0, "no scenario has shown that a peer is expelled");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..10 {
        assert_eq!(check(&troubled_mediated(seed)), check(&troubled_mediated(seed)));
    }
}

#[test]
fn the_source_is_not_read_again_when_a_provider_leaves() {
    for leaves in [2, 10, 30] {
        let mut scenario = mediated(equal(10, 600), settings(10, 64));
        scenario.peers[3].leaves = Some((Duration::from_secs(leaves), None));
        let outcome = run(&scenario);
        assert_eq!((outcome.finished.len(), outcome.incomplete), (9, 0));
        assert_eq!(outcome.counters.source_reads, 0, "{leaves} {outcome:?}");
    }
}

#[test]
fn peers_that_leave_one_after_another_leave_copies_behind() {
    let mut scenario = mediated(equal(10, 300), settings(10, 64));
    // All but three are there until each chunk has gone to two; one more goes every half second.
    for (number, peer) in scenario.peers.iter_mut().enumerate().take(7) {
        peer.leaves = Some((Duration::from_millis(10_000 + 500 * number as u64), None));
    }
    let late = PeerScenario { joins: Duration::from_secs(20), ..scenario.peers[9].clone() };
    scenario.peers.push(late);
    let outcome = run(&scenario);
    assert_eq!(outcome.incomplete, 0);
    assert_eq!(outcome.counters.source_reads, 0, "{outcome:?}");
}

#[test]
fn with_every_copy_gone_the_source_is_read_again_and_that_is_counted() {
    let mut scenario = mediated(equal(2, 100), settings(1, 1));
    scenario.peers[0].leaves = Some((Duration::from_secs(5), None));
    scenario.peers[1].joins = Duration::from_secs(6);
    let outcome = run(&scenario);
    assert_eq!((outcome.finished.len(), outcome.incomplete), (2, 0));
    // The last chunk is still in the cache.
    assert!(outcome.counters.source_reads >= 99, "{outcome:?}");
}

#[test]
fn late_joiners_join_the_running_scan() {
    let mut scenario = mediated(equal(12, 400), settings(10, 64));
    scenario.peers[10].joins = Duration::from_secs(8);
    scenario.peers[11].joins = Duration::from_secs(12);
    let outcome = run(&scenario);
    assert_eq!(outcome.finished.len(), 12);
    assert_eq!(outcome.counters.source_reads, 0);
    // Both share what is left of the others' scan, and of each other's next revolution.
    assert!(fetched(&scenario, &outcome) <= 1.9, "{outcome:?}");
}

#[test]
fn a_slow_peer_does_not_hold_up_the_others() {
    for (cache, most) in [(1, 1.2), (64, 1.1)] {
        let mut scenario = mediated(equal(10, 300), settings(10, cache));
        scenario.peers[4].up = 2_000_000;
        scenario.peers[4].down = 2_000_000;
        let outcome = run(&scenario);
        assert_eq!(outcome.finished.len(), 10);
        let time = outcome.finished[8].as_secs_f64() / uplink_bound(&scenario);
        assert!(time <= most, "{cache} {time} {outcome:?}");
    }
}

/// The first peer is alone until it has `alone` chunks, then there are two, and it leaves before
/// the other has those.
fn lone_provider(cache: usize, alone: u64) -> Outcome {
    let mut scenario = mediated(equal(2, 200), settings(1, cache));
    let chunk = scenario.geometry.length() * 8 / 200 * 1000 / scenario.source.up;
    scenario.peers[1].joins = Duration::from_millis(alone * chunk);
    scenario.peers[0].leaves = Some((Duration::from_millis(alone * chunk + 1500), None));
    let outcome = run(&scenario);
    assert_eq!(outcome.incomplete, 0, "{outcome:?}");
    outcome
}

#[test]
fn a_chunk_that_lacks_a_provider_stays_in_the_cache() {
    let outcome = lone_provider(64, 30);
    assert_eq!(outcome.counters.source_reads, 0, "{outcome:?}");
}

#[test]
fn nothing_stalls_with_a_cache_of_one_chunk_and_too_few_providers() {
    for (peers, replicas) in [(1, 2), (2, 3), (3, 16)] {
        for placement in [Placement::Stripes, Placement::Blocks] {
            let settings = Settings { replicas, placement, ..settings(peers, 1) };
            let scenario = mediated(equal(peers, 40), settings);
            let outcome = run(&scenario);
            assert_eq!(outcome.finished.len(), peers, "{settings:?} {outcome:?}");
            // A round trip for each chunk, and no timeout.
            assert!(
                outcome.finished[peers - 1] < Duration::from_secs(2),
                "{settings:?} {outcome:?}"
            );
        }
    }
}
