use super::*;

const MS: u64 = 1_000_000;

fn shaper(link: &Link) -> Shaper {
    Shaper::new(link, 0, 0)
}

/// Which of `packets` packets, one per millisecond, are lost.
fn losses(link: &Link, stream: u64, packets: u64) -> Vec<bool> {
    let mut shaper = Shaper::new(link, stream, 0);
    (0..packets).map(|n| shaper.enqueue(n * MS, 100)[0].is_none()).collect()
}

/// The mean length of runs of losses.
fn burst(losses: &[bool]) -> f64 {
    let runs = losses.split(|lost| !lost).filter(|run| !run.is_empty());
    losses.iter().filter(|lost| **lost).count() as f64 / runs.count() as f64
}

#[test]
fn a_packet_arrives_after_its_transmission_and_the_delay() {
    let mut shaper = shaper(&Link::new().delay(Duration::from_millis(10)).rate(8_000_000));
    assert_eq!(shaper.enqueue(0, 1000), [Some(11 * MS), None]);
    assert_eq!(shaper.enqueue(0, 1000), [Some(12 * MS), None]);
    assert_eq!(shaper.enqueue(5 * MS, 1000), [Some(16 * MS), None]);
}

#[test]
fn packets_that_exceed_the_queue_are_dropped() {
    let mut shaper = shaper(&Link::new().rate(8_000_000).queue(3000));
    let arrived = (0..10).filter(|_| shaper.enqueue(0, 1000)[0].is_some()).count();
    assert_eq!(arrived, 3);
    assert_eq!(shaper.counters.dropped, 7);
    assert!(shaper.enqueue(MS, 1000)[0].is_some(), "one has left");
    let mut narrow = Shaper::new(&Link::new().rate(8000).queue(10), 0, 0);
    assert!(narrow.enqueue(0, 1000)[0].is_some(), "an idle link takes any packet");
}

#[test]
fn a_seed_determines_the_losses_and_directions_differ() {
    let link = Link::new().loss(Loss::Bernoulli(0.1)).seed(3);
    let first = losses(&link, 0, 20_000);
    assert_eq!(first, losses(&link.clone().duplicate(0.5).reorder(0.5), 0, 20_000));
    assert_ne!(first, losses(&link, 1, 20_000));
    assert_ne!(first, losses(&link.seed(4), 0, 20_000));
    let lost = first.iter().filter(|lost| **lost).count();
    assert!((1800..2200).contains(&lost), "{lost}");
}

#[test]
fn gilbert_elliott_loses_in_bursts() {
    let bursts = Loss::GilbertElliott { to_bad: 0.02, to_good: 0.2, loss_good: 0.0, loss_bad: 1.0 };
    let long = burst(&losses(&Link::new().loss(bursts), 0, 50_000));
    let short = burst(&losses(&Link::new().loss(Loss::Bernoulli(0.09)), 0, 50_000));
    assert!((4.0..6.0).contains(&long), "{long}");
    assert!((1.0..1.3).contains(&short), "{short}");
}

#[test]
fn packets_stay_in_order_unless_configured_otherwise() {
    let falls = Change { delay: Some(Duration::from_millis(1)), ..Change::default() };
    let link = Link::new().delay(Duration::from_millis(100));
    let mut falling = shaper(&link.clone().schedule(vec![(Duration::from_millis(10), falls)]));
    assert_eq!(falling.enqueue(9 * MS, 1), [Some(109 * MS), None]);
    assert_eq!(falling.enqueue(11 * MS, 1), [Some(109 * MS), None], "not before the one ahead");
    assert_eq!(falling.enqueue(200 * MS, 1), [Some(201 * MS), None]);
    falling.restart_schedule(300 * MS);
    falling.change(&Change { delay: Some(Duration::from_millis(50)), ..Change::default() });
    assert_eq!(falling.enqueue(300 * MS, 1), [Some(350 * MS), None]);
    assert_eq!(falling.enqueue(350 * MS, 1), [Some(351 * MS), None]);

    let mut early = shaper(&link.clone().reorder(1.0));
    assert_eq!(early.enqueue(5, 1), [Some(5), None]);
    assert_eq!(early.counters.reordered, 1);
    let mut twice = shaper(&link.clone().duplicate(1.0));
    assert_eq!(twice.enqueue(0, 1), [Some(100 * MS), Some(100 * MS)]);
    let mut wild = shaper(&link.jitter(Duration::from_millis(30)));
    let arrivals: Vec<u64> = (0..1000).filter_map(|n| wild.enqueue(n, 1)[0]).collect();
    assert!(arrivals.iter().all(|at| (70 * MS..=131 * MS).contains(at)));
    assert!(!arrivals.is_sorted());
}
