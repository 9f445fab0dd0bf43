//! Shares in which much goes wrong, in direct mode.
//!
//! Messages are neither dropped, nor duplicated, nor reordered on their own: both streams of a
//! connection, over TCP as over QUIC, are reliable and keep their order, and no message of the
//! swarm is a datagram. What a network does to packets reaches the state machines as delay that
//! keeps the order of a stream ([`Faults::jitter`], [`Faults::loss`]), as a connection that ends
//! with all that is on its way ([`Faults::breaks`]), or as a pause of all connections between two
//! groups ([`Faults::partitions`]). The two streams of a connection overtake each other.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_swarm::simulator::{
    Break, Faults, Jump, Outcome, Partition, PeerScenario, Scenario, run,
};

use super::{equal, geometry, seeds};

/// A sequence of numbers from a seed.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn millis(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }

    /// Any party but in one of `peers` + 1 cases the coordinator, which is None.
    fn party(&mut self, peers: u64) -> Option<usize> {
        usize::try_from(self.below(peers + 1)).unwrap().checked_sub(1)
    }
}

/// A scenario in which much goes wrong, from a seed.
pub fn troubled(seed: u64) -> Scenario {
    let mut numbers = Numbers::new(seed);
    let mut scenario = troubled_peers(seed, &mut numbers);
    scenario.faults = faults(scenario.peers.len() as u64, &mut numbers);
    if numbers.below(8) == 0 {
        scenario.source.ends = Some(numbers.millis(500));
    }
    // Clocks that jump back by up to ten minutes delay what is due by as much.
    scenario.limit = Duration::from_secs(3 * 3600);
    scenario
}

/// Peers that come and go, cannot be reached, are slow, or send wrong bytes.
fn troubled_peers(seed: u64, numbers: &mut Numbers) -> Scenario {
    let mut below = |end: u64| numbers.below(end);
    let millis = Duration::from_millis;
    let peers = (0..2 + below(12)).map(|_| {
        let joins = millis(if below(3) == 0 { below(400) } else { 0 });
        let leaves = (below(4) == 0).then(|| {
            let leaves = joins + millis(1 + below(200));
            (leaves, (below(3) > 0).then(|| leaves + millis(1 + below(300))))
        });
        let rate = if below(8) == 0 { 2_000_000 } else { 100_000_000 };
        let poison = if below(8) == 0 { 0.3 } else { 0.0 };
        PeerScenario { up: rate, down: rate, joins, leaves, reachable: below(10) >= 3, poison }
    });
    let peers = peers.collect();
    let mut scenario =
        Scenario::equal(geometry(below(40) as u32), 0, 100_000_000, millis(below(20)), seed);
    (scenario.peers, scenario.limit) = (peers, Duration::from_secs(600));
    scenario
}

/// Each kind of fault in about every third scenario.
fn faults(peers: u64, numbers: &mut Numbers) -> Faults {
    let mut faults = Faults::default();
    if numbers.below(3) == 0 {
        faults.jitter = numbers.millis(50);
    }
    if numbers.below(3) == 0 {
        faults.loss = 0.02;
    }
    if numbers.below(2) == 0 {
        faults.breaks = (0..1 + numbers.below(4)).map(|_| broken(peers, numbers)).collect();
    }
    if numbers.below(3) == 0 {
        faults.partitions = vec![partition(peers, numbers)];
    }
    if numbers.below(4) == 0 {
        faults.restarts = vec![(numbers.millis(600), numbers.millis(5000))];
    }
    if numbers.below(3) == 0 {
        faults.jumps = (0..1 + numbers.below(3)).flat_map(|_| jumps(peers, numbers)).collect();
    }
    faults
}

fn broken(peers: u64, numbers: &mut Numbers) -> Break {
    let at = numbers.millis(600);
    let noticed = if numbers.below(2) == 0 { numbers.millis(3000) } else { Duration::ZERO };
    Break { at, peer: numbers.below(peers) as usize, other: numbers.party(peers), noticed }
}

fn partition(peers: u64, numbers: &mut Numbers) -> Partition {
    let from = numbers.millis(500);
    // Half of them last longer than a connection.
    let long = if numbers.below(2) == 0 { 60_000 } else { 2_000 };
    let group: BTreeSet<usize> = (0..peers as usize).filter(|_| numbers.below(2) == 0).collect();
    Partition {
        from,
        to: from + numbers.millis(long),
        group,
        spares_coordinator: numbers.below(2) == 0,
    }
}

/// The clock of a party jumps ahead by minutes. In half of the cases, it was ahead before and jumps
/// back: further than the clock of the driver, which is monotonic, since the wall clock has no
/// effect on that.
fn jumps(peers: u64, numbers: &mut Numbers) -> Vec<Jump> {
    let party = numbers.party(peers);
    let at = numbers.millis(600);
    let by = Duration::from_secs(1 + numbers.below(600));
    let jump = |at, back| Jump { at, party, by, back };
    match numbers.below(2) {
        0 => vec![jump(at, false)],
        _ => vec![jump(Duration::ZERO, false), jump(at, true)],
    }
}

/// The peers that have everything in the end, unless it is lost: those that stay, or come back. One
/// that sends wrong bytes may be expelled before.
pub fn honest(scenario: &Scenario) -> usize {
    let stays = |peer: &&PeerScenario| {
        peer.poison == 0.0 && peer.leaves.is_none_or(|(_, back)| back.is_some())
    };
    scenario.peers.iter().filter(stays).count()
}

/// Every honest peer has everything in the end, or knows that the rest is lost, which is so only if
/// the source can no longer be read.
pub fn check(scenario: &Scenario) -> Outcome {
    let seed = scenario.seed;
    let outcome = run(scenario);
    let told = outcome.finished.len() + outcome.lost;
    assert!(told >= honest(scenario), "seed {seed}: {scenario:?} {outcome:?}");
    assert!(scenario.source.ends.is_some() || outcome.lost == 0, "seed {seed}: {outcome:?}");
    let innocent = outcome.expelled.iter().find(|peer| scenario.peers[**peer].poison == 0.0);
    assert_eq!(innocent, None, "seed {seed}: {outcome:?}");
    outcome
}

#[test]
fn every_honest_peer_finishes_whatever_happens() {
    let half = |first: u64| {
        (first..seeds()).step_by(2).map(|seed| check(&troubled(seed)).expelled.len()).sum()
    };
    let expelled: usize = std::thread::scope(|scope| {
        let other = scope.spawn(move || half(1));
        let own: usize = half(0);
        own + other.join().unwrap()
    });
    assert!(expelled > 0, "no scenario has shown that a peer is expelled");
}

/// Without delays, a message that is repeated without end stops the clock.
#[test]
fn two_peers_that_cannot_connect_are_not_introduced_without_end() {
    // A peer accuses the other, which stays beside the source.
    check(&troubled_peers(8814, &mut Numbers::new(8814)));
}

/// None can be reached by another, and the source ends when each has got some chunks. It learns
/// that at the request of one of them.
#[test]
fn peers_that_cannot_exchange_what_the_source_has_lost_say_so() {
    let mut scenario = equal(4, 40);
    scenario.peers.iter_mut().for_each(|peer| peer.reachable = false);
    scenario.source.ends = Some(Duration::from_millis(100));
    let outcome = check(&scenario);
    assert_eq!(outcome.lost, 4, "{outcome:?}");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..10 {
        assert_eq!(check(&troubled(seed)), check(&troubled(seed)));
    }
}
