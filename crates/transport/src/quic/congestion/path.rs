//! What the acknowledgements say about a path: its round trip without queues, its delay, its rate
//! and its losses.

use std::time::{Duration, Instant};

/// The shortest round trip is that of the last three windows of this length.
const BASE_WINDOW: Duration = Duration::from_secs(10);
/// A round must have this many samples before its shortest round trip counts: single ones are late
/// when a thread waits for a processor.
const MIN_SAMPLES: u32 = 8;
/// The rate is the highest of so many rounds.
const RATE_ROUNDS: usize = 8;
/// The weight of a round in the share of lost bytes. About 16 rounds count, in which random loss of
/// 1 % stays below 2 % if a round has 20 packets.
const LOSS_WEIGHT: f64 = 1.0 / 8.0;
/// A queue is shorter than this share of the round trip without queues…
const TOLERATED_SHARE: u32 = 8;
/// …or than this, if it does not cause a delay of congestion.
const TOLERATED_LEAST: Duration = Duration::from_millis(1);
/// The share of lost bytes that is tolerated without a queue. BBR version 3 tolerates 2 % of each
/// round; this is of about 16.
const TOLERATED_LOSS: f64 = 0.03;
/// A round that loses more than this share, and at least [`HEAVY_PACKETS`], shows congestion at
/// once.
const HEAVY_LOSS: f64 = 0.15;
const HEAVY_PACKETS: f64 = 10.0;

/// The model of a path, updated once for each round trip.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// The shortest round trips of the current and the two earlier windows, and the beginning of
    /// the current one.
    bases: [Option<Duration>; 3],
    base_since: Option<Instant>,
    round: Round,
    /// The shortest round trip of the last round that had enough samples.
    last_rtt: Option<Duration>,
    /// Bytes per second in the last rounds, the current one's place being `next_rate`.
    rates: [f64; RATE_ROUNDS],
    next_rate: usize,
    /// The share of lost bytes, smoothed over rounds.
    loss: f64,
}

/// The round trip that has begun with the first packet sent after `since`.
#[derive(Clone, Debug, Default)]
struct Round {
    since: Option<Instant>,
    rtt: Option<Duration>,
    samples: u32,
    acked: f64,
    lost: f64,
    /// The sender ran out of data, so the round does not measure the path's rate.
    app_limited: bool,
}

/// Why a loss is one of congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Congestion {
    /// There is a queue.
    Queue,
    /// More is lost than is tolerated without a queue.
    Loss,
}

impl Path {
    pub(super) fn new() -> Self {
        Self {
            bases: [None; 3],
            base_since: None,
            round: Round::default(),
            last_rtt: None,
            rates: [0.0; RATE_ROUNDS],
            next_rate: 0,
            loss: 0.0,
        }
    }

    /// Adds an acknowledged packet of `bytes` bytes; true if a round has ended with it.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: f64,
        app_limited: bool,
    ) -> bool {
        let rtt = now.saturating_duration_since(sent);
        self.add_base(now, rtt);
        let since = *self.round.since.get_or_insert(now);
        let ended = sent >= since && now > since;
        if ended {
            self.end_round(now, now - since);
        }
        let round = &mut self.round;
        round.rtt = Some(round.rtt.map_or(rtt, |least| least.min(rtt)));
        round.samples += 1;
        round.acked += bytes;
        round.app_limited |= app_limited;
        ended
    }

    /// Adds lost bytes.
    pub(super) fn on_loss(&mut self, bytes: f64) {
        self.round.lost += bytes;
    }

    /// Why a loss now is one of congestion; `None` if the path loses packets at random.
    pub(super) fn congestion(&self, mtu: f64) -> Option<Congestion> {
        let lost = self.round.lost;
        let all = self.round.lost + self.round.acked;
        let heavy = lost > HEAVY_PACKETS * mtu && lost > HEAVY_LOSS * all;
        if self.has_queue() {
            Some(Congestion::Queue)
        } else {
            (heavy || self.loss > TOLERATED_LOSS).then_some(Congestion::Loss)
        }
    }

    /// Whether packets wait in a queue of the path for longer than is tolerated.
    pub(super) fn has_queue(&self) -> bool {
        let (Some(base), Some(rtt)) = (self.base(), self.rtt()) else { return false };
        rtt > base + (base / TOLERATED_SHARE).max(TOLERATED_LEAST)
    }

    /// The bytes in flight that fill the path without a queue; 0 if that is unknown.
    pub(super) fn capacity(&self) -> f64 {
        let rate = self.rates.iter().copied().fold(0.0, f64::max);
        rate * self.base().map_or(0.0, |base| base.as_secs_f64())
    }

    /// Whether the last round's rate exceeds that of the one before by less than a quarter.
    pub(super) fn is_full(&self) -> bool {
        let earlier = |back: usize| self.rates[(self.next_rate + RATE_ROUNDS - back) % RATE_ROUNDS];
        let last = earlier(1);
        let before = earlier(2);
        before > 0.0 && last < before * 1.25
    }

    /// The round trip without queues.
    fn base(&self) -> Option<Duration> {
        self.bases.iter().flatten().min().copied()
    }

    /// The shortest recent round trip.
    fn rtt(&self) -> Option<Duration> {
        if self.round.samples >= MIN_SAMPLES { self.round.rtt } else { self.last_rtt }
    }

    fn add_base(&mut self, now: Instant, rtt: Duration) {
        let since = *self.base_since.get_or_insert(now);
        if now.saturating_duration_since(since) > BASE_WINDOW {
            self.bases.rotate_right(1);
            self.bases[0] = None;
            self.base_since = Some(now);
        }
        self.bases[0] = Some(self.bases[0].map_or(rtt, |least| least.min(rtt)));
    }

    fn end_round(&mut self, now: Instant, length: Duration) {
        let round = std::mem::take(&mut self.round);
        self.round.since = Some(now);
        if round.samples >= MIN_SAMPLES || self.last_rtt.is_none() {
            self.last_rtt = round.rtt;
        }
        let all = round.acked + round.lost;
        if all > 0.0 {
            self.loss += (round.lost / all - self.loss) * LOSS_WEIGHT;
        }
        let rate = round.acked / length.as_secs_f64();
        // A sender that ran out of data shows a lower rate than the path has.
        let least = self.rates[(self.next_rate + RATE_ROUNDS - 1) % RATE_ROUNDS];
        let rate = if round.app_limited { rate.max(least) } else { rate };
        self.rates[self.next_rate] = rate;
        self.next_rate = (self.next_rate + 1) % RATE_ROUNDS;
    }
}
