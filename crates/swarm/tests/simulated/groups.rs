//! Getters that come when others have gone: the source's slots are open as these have left them.

use std::time::Duration;

use levada_swarm::simulator::{Outcome, Scenario, run};
use levada_swarm::{ChunkSize, Geometry};

use super::seeds;

/// `groups` groups of `count` peers, one after the other, and the shortest time of one.
fn groups(groups: u32, count: usize, one: Scenario) -> (Scenario, Duration) {
    let mut scenario =
        Scenario { peers: vec![one.peers[0].clone(); groups as usize * count], ..one };
    let one = Scenario { peers: scenario.peers[..count].to_vec(), ..scenario.clone() };
    let shortest = one.fluid_bound();
    // Each finishes in this time.
    let apart = shortest * 20 + scenario.delay * 200;
    for (number, peer) in scenario.peers.iter_mut().enumerate() {
        let group = (number / count) as u32;
        peer.joins = apart * group;
        peer.leaves = Some((apart * (group + 1) - Duration::from_nanos(1), None));
    }
    (scenario, shortest)
}

fn all_finish(scenario: &Scenario) -> Outcome {
    let outcome = run(scenario);
    let finished = (outcome.finished.len(), outcome.incomplete);
    assert_eq!(finished, (scenario.peers.len(), 0), "seed {}", scenario.seed);
    outcome
}

#[test]
fn each_group_of_ten_takes_nearly_the_shortest_time() {
    for chunk in [4, 16, 64, 256] {
        let geometry = Geometry::new(20_000_000, ChunkSize::new(chunk << 10).unwrap()).unwrap();
        let one = Scenario::equal(geometry, 1, 100_000_000, Duration::from_micros(100), 1);
        let (scenario, shortest) = groups(2, 10, one);
        let outcome = all_finish(&scenario);
        let ratio = outcome.finished[19].as_secs_f64() / shortest.as_secs_f64();
        assert!(ratio <= 1.2, "{chunk} KiB: {ratio}");
    }
}

/// Whatever the source's slots are when one has gone, the next one is sent each chunk once, without
/// a pause between them.
#[test]
fn one_getter_after_the_other_is_sent_each_chunk_once() {
    for seed in 0..seeds() {
        let chunk = ChunkSize::new(4096 << (seed % 7)).unwrap();
        let geometry = Geometry::new(u64::from(chunk.bytes()) * 300, chunk).unwrap();
        let delay = Duration::from_micros(10 + seed * seed % 5000);
        let rate = [100_000_000, 1_000_000_000, 16_000_000_000][seed as usize % 3];
        let (scenario, shortest) = groups(3, 1, Scenario::equal(geometry, 1, rate, delay, seed));
        let outcome = all_finish(&scenario);
        assert_eq!(outcome.source_bytes, 3 * geometry.length(), "seed {seed}");
        // The first one waits while the slots grow.
        let most = (shortest + delay * 40).mul_f64(1.5);
        assert!(outcome.finished[2] <= most, "seed {seed}: {:?} of {most:?}", outcome.finished);
    }
}
