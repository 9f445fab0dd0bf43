//! Whole shares on a simulated network.

#![allow(clippy::unwrap_used)]

#[path = "simulated/faults.rs"]
mod faults;
#[path = "simulated/groups.rs"]
mod groups;
#[path = "simulated/loss.rs"]
mod loss;
#[path = "simulated/mediated.rs"]
mod mediated;
#[path = "simulated/uneven.rs"]
mod uneven;

use std::time::Duration;

use levada_swarm::simulator::{Scenario, run};
use levada_swarm::{ChunkSize, Geometry};

/// The number of seeds.
fn seeds() -> u64 {
    if std::env::var_os("LEVADA_TEST_FULL").is_some() { 10_000 } else { 100 }
}

fn geometry(chunks: u32) -> Geometry {
    Geometry::new(u64::from(chunks) << 16, ChunkSize::DEFAULT).unwrap()
}

fn equal(peers: usize, chunks: u32) -> Scenario {
    Scenario::equal(geometry(chunks), peers, 100_000_000, Duration::from_millis(1), 7)
}

#[test]
fn every_peer_receives_everything() {
    for (peers, chunks) in [(1, 0), (1, 1), (1, 50), (2, 7), (5, 100), (60, 30), (200, 20)] {
        let outcome = run(&equal(peers, chunks));
        assert_eq!((outcome.finished.len(), outcome.incomplete), (peers, 0), "{peers} {chunks}");
        assert_eq!(
            (outcome.chunks.duplicates, outcome.chunks.sent),
            (0, u64::from(chunks) * peers as u64)
        );
    }
}

/// Numbers of peers, and how many seeds for each: few unless `LEVADA_TEST_FULL` is set.
fn up_to_a_hundred_peers() -> impl Iterator<Item = (usize, u64)> {
    let count = if std::env::var_os("LEVADA_TEST_FULL").is_some() { 100 } else { 5 };
    let all = [2, 3, 10, 32, 100].into_iter();
    all.flat_map(move |peers| (0..count).map(move |seed| (peers, seed)))
}

#[test]
fn up_to_a_hundred_peers_receive_everything_with_any_seed() {
    for (peers, seed) in up_to_a_hundred_peers() {
        let outcome = run(&Scenario { seed, ..equal(peers, 50) });
        assert_eq!((outcome.finished.len(), outcome.incomplete), (peers, 0), "{peers} {seed}");
    }
}

#[test]
fn peers_carry_nearly_all_in_nearly_the_shortest_time() {
    let scenario = equal(10, 1000);
    let outcome = run(&scenario);
    let first = outcome.finished[0];
    let last = outcome.finished[9];
    // Simulated time, which no machine changes.
    assert!(last.as_secs_f64() <= 1.05 * scenario.fluid_bound().as_secs_f64(), "{last:?}");
    assert!(first.as_secs_f64() >= 0.9 * last.as_secs_f64(), "{first:?} {last:?}");
    assert!(outcome.source_bytes as f64 <= 1.1 * scenario.geometry.length() as f64);
}

/// An offer waits for its answer: more of them are under way the longer that takes.
#[test]
fn uplinks_are_busy_with_a_round_trip_of_four_chunks() {
    for (peers, most) in [(10, 1.05), (100, 1.15)] {
        // A chunk takes 5 ms.
        let scenario = Scenario { delay: Duration::from_millis(10), ..equal(peers, 1000) };
        let outcome = run(&scenario);
        assert_eq!(outcome.finished.len(), peers);
        let ratio =
            outcome.finished[peers - 1].as_secs_f64() / scenario.fluid_bound().as_secs_f64();
        assert!(ratio <= most, "{peers} {ratio}");
    }
}

#[test]
fn without_uplinks_of_peers_the_source_sends_all_copies() {
    let mut scenario = equal(5, 40);
    scenario.peers.iter_mut().for_each(|peer| peer.up = 1000);
    let outcome = run(&scenario);
    assert_eq!(outcome.finished.len(), 5);
    assert!(outcome.source_bytes >= 4 * scenario.geometry.length(), "{outcome:?}");
}

/// More than the source exchanges chunks with at a time; those that are complete stay.
#[test]
fn peers_of_which_none_can_be_reached_are_served_by_the_source() {
    let mut scenario = equal(80, 20);
    scenario.peers.iter_mut().for_each(|peer| peer.reachable = false);
    let outcome = run(&scenario);
    assert_eq!((outcome.finished.len(), outcome.incomplete), (80, 0));
    assert_eq!(outcome.source_bytes, 80 * scenario.geometry.length());
}

/// If the one that is told to connect cannot, the other one does so soon after.
#[test]
fn three_of_ten_that_cannot_be_reached_delay_the_others_by_little() {
    for seed in 0..seeds().min(100) {
        let mut scenario = Scenario { seed, ..equal(10, 1000) };
        let unreachable = (0..10).cycle().skip(seed as usize).take(3);
        unreachable.for_each(|number| scenario.peers[number].reachable = false);
        let outcome = run(&scenario);
        assert_eq!(outcome.finished.len(), 10, "seed {seed}");
        let last = outcome.finished[9].as_secs_f64() / scenario.fluid_bound().as_secs_f64();
        assert!(last <= 1.15, "seed {seed}: {last}");
    }
}

#[test]
fn few_chunks_reach_many_peers_nearly_as_fast_as_by_trees() {
    let ratio = |seed: u64| {
        let mut scenario = equal(200, 10);
        scenario.seed = seed;
        let outcome = run(&scenario);
        assert_eq!((outcome.finished.len(), outcome.chunks.duplicates), (200, 0));
        outcome.finished[199].as_secs_f64() / scenario.tree_bound().as_secs_f64()
    };
    let ratios: Vec<f64> = (0..5).map(ratio).collect();
    assert!(ratios.iter().all(|ratio| *ratio <= 1.7), "{ratios:?}");
}

/// In a chain, the time would grow with the number of peers rather than with its logarithm.
#[test]
fn the_mesh_has_short_ways() {
    let last = |peers: usize| {
        let outcome = run(&equal(peers, 1));
        assert_eq!(outcome.finished.len(), peers);
        outcome.finished[peers - 1].as_secs_f64()
    };
    let few = last(50);
    let many = last(800);
    assert!(many <= 1.8 * few, "{few} {many}");
}
