//! Peers whose uplinks differ.

use std::time::Duration;

use levada_swarm::simulator::{Scenario, run};
use levada_swarm::{ChunkSize, Geometry};

/// Mbit/s: `exp(uniform(ln 5, ln 100))` by Python's `random.Random` with the seeds 1, 2 and 3.
const UPLINKS: [[f64; 8]; 3] = [
    [7.5, 63.3, 49.3, 10.7, 22.1, 19.2, 35.2, 53.1],
    [87.7, 85.5, 5.9, 6.4, 61.1, 45.3, 37.2, 12.6],
    [10.2, 25.5, 15.1, 30.5, 32.6, 6.1, 5.2, 61.5],
];

fn uneven(uplinks: &[f64], delay: Duration, seed: u64) -> Scenario {
    let geometry = Geometry::new(60_000_000, ChunkSize::DEFAULT).unwrap();
    let mut scenario = Scenario::equal(geometry, uplinks.len(), 100_000_000, delay, seed);
    for (peer, up) in scenario.peers.iter_mut().zip(uplinks) {
        peer.up = (up * 1e6) as u64;
    }
    scenario
}

/// All uplinks are busy to the end: the source gives out second copies while peers lack uplink, and
/// peers with slow uplinks get as much as others, although their answers are late.
#[test]
fn slow_uplinks_cost_no_more_than_they_lack() {
    for (millis, most) in [(0, 1.05), (10, 1.07), (50, 1.4)] {
        let delay = Duration::from_micros(100 + 1000 * millis);
        for (uplinks, seed) in UPLINKS.iter().zip([1, 2, 3]) {
            let scenario = uneven(uplinks, delay, seed);
            let outcome = run(&scenario);
            assert_eq!((outcome.finished.len(), outcome.chunks.duplicates), (uplinks.len(), 0));
            let last = outcome.finished[uplinks.len() - 1].as_secs_f64();
            let ratio = last / scenario.fluid_bound().as_secs_f64();
            assert!(ratio <= most, "{millis} ms, seed {seed}: {ratio}");
        }
    }
}
