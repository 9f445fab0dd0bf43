//! The controller on a simulated path with its own clock.

mod path;

use std::time::Duration;

use super::window::Window;
use path::{Cubic, Flow, SimulatedPath};

/// 100 Mbit/s: one packet in each step of [`path::STEP`].
const PACKETS_PER_SECOND: f64 = 8333.0;
/// The bandwidth-delay product at a round trip of 20 ms, in packets.
const PRODUCT: usize = 167;

fn path(queue: usize, loss: f64) -> SimulatedPath {
    SimulatedPath::new(Duration::from_millis(20), queue, loss)
}

fn tolerant() -> Flow {
    Flow::new(Box::new(Window::new(f64::from(path::MTU))))
}

fn cubic() -> Flow {
    Flow::new(Box::new(Cubic::new()))
}

/// The shares of the link that flows have in `seconds` after the first `skipped`.
fn shares(mut path: SimulatedPath, mut flows: Vec<Flow>, skipped: u64, seconds: u64) -> Vec<f64> {
    path.run(&mut flows, Duration::from_secs(skipped));
    let before: Vec<u64> = flows.iter().map(|flow| flow.delivered).collect();
    path.run(&mut flows, Duration::from_secs(seconds));
    let share = |(flow, before): (&Flow, u64)| {
        (flow.delivered - before) as f64 / PACKETS_PER_SECOND / seconds as f64
    };
    flows.iter().zip(before).map(share).collect()
}

#[test]
fn random_loss_of_one_percent_leaves_most_of_the_rate() {
    let tolerant = shares(path(4 * PRODUCT, 0.01), vec![tolerant()], 1, 20)[0];
    let cubic = shares(path(4 * PRODUCT, 0.01), vec![cubic()], 1, 20)[0];
    assert!(tolerant > 0.9, "{tolerant}");
    assert!(tolerant > 5.0 * cubic, "{tolerant} and {cubic}");
}

#[test]
fn it_shares_a_queue_with_cubic() {
    for queue in [PRODUCT / 2, PRODUCT, 2 * PRODUCT] {
        let shares = shares(path(queue, 0.0), vec![tolerant(), cubic()], 5, 60);
        assert!(shares.iter().all(|share| *share >= 0.3), "{shares:?} with a queue of {queue}");
    }
}

#[test]
fn two_flows_share_a_path_that_loses_packets() {
    let shares = shares(path(PRODUCT, 0.01), vec![tolerant(), tolerant()], 5, 60);
    assert!(shares.iter().all(|share| *share >= 0.25), "{shares:?}");
}

#[test]
fn alone_it_fills_a_path_with_a_short_queue() {
    for queue in [PRODUCT / 8, PRODUCT / 4, PRODUCT] {
        let share = shares(path(queue, 0.0), vec![tolerant()], 2, 30)[0];
        assert!(share > 0.85, "{share} with a queue of {queue}");
    }
}

#[test]
fn a_path_almost_without_a_queue_loses_little_more_than_is_tolerated() {
    let mut path = path(5, 0.0);
    let mut flows = vec![tolerant()];
    path.run(&mut flows, Duration::from_secs(30));
    let loss = flows[0].lost as f64 / (flows[0].lost + flows[0].delivered) as f64;
    assert!(loss < 0.05, "{loss}");
}

#[test]
fn a_sender_without_data_does_not_grow_its_window() {
    let mut path = path(PRODUCT, 0.0);
    let mut flow = tolerant();
    flow.most_in_flight = 5;
    let mut flows = vec![flow];
    path.run(&mut flows, Duration::from_secs(10));
    assert_eq!(flows[0].controller.window(), 10 * u64::from(path::MTU));
}

#[test]
fn a_path_that_became_slower_gets_no_standing_queue_of_losses() {
    let mut path = path(PRODUCT, 0.01);
    let mut flows = vec![tolerant()];
    path.run(&mut flows, Duration::from_secs(10));
    path.steps_per_packet = 10;
    path.run(&mut flows, Duration::from_secs(5));
    let lost = flows[0].lost;
    let delivered = flows[0].delivered;
    path.run(&mut flows, Duration::from_secs(20));
    let lost = flows[0].lost - lost;
    let delivered = flows[0].delivered - delivered;
    let share = delivered as f64 * 10.0 / PACKETS_PER_SECOND / 20.0;
    assert!(share > 0.8 && lost * 20 < delivered, "{lost} lost, {delivered} delivered");
}

#[test]
fn a_path_that_lost_all_for_a_time_starts_anew() {
    let now = std::time::Instant::now();
    let mut window = Window::new(1200.0);
    window.on_loss(now + Duration::from_secs(1), now, 12_000, true);
    assert_eq!(window.bytes(), 2400);
    assert_eq!(window.threshold(), Some(8400));
}
