//! What the emulator measures about itself.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::LabError;

/// What became of the packets of one direction since the last reset. A super-packet (offload) counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets that came in.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Dropped because the queue was full, or could not be delivered.
    pub dropped: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Sent ahead of those under way.
    pub reordered: u64,
    /// Delivered; a packet sent twice counts twice.
    pub delivered: u64,
}

/// How much later than due packets were delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lateness {
    /// Half of the packets were at most this late, in µs.
    pub p50_us: u64,
    /// 99 of 100.
    pub p99_us: u64,
    /// The latest.
    pub max_us: u64,
    /// How many packets these figures are of.
    pub packets: u64,
}

/// What was measured on a link, or on all of a lab, since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Measures {
    /// From the first node of the link to the second.
    pub there: Counters,
    /// From the second to the first.
    pub back: Counters,
    /// Both directions together.
    pub lateness: Lateness,
}

impl Counters {
    pub(crate) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.dropped += other.dropped;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.delivered += other.delivered;
    }
}

/// Lateness in µs, up to ten seconds, with three digits.
#[derive(Clone)]
pub(crate) struct Late(Histogram<u64>);

impl Late {
    pub(crate) fn new() -> Result<Self, LabError> {
        const MOST: u64 = 10_000_000;
        let made = Histogram::new_with_bounds(1, MOST, 3);
        made.map(Self).map_err(|error| LabError::Invalid(format!("a histogram of µs: {error}")))
    }

    pub(crate) fn record(&mut self, late: Duration) {
        self.0.saturating_record(u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // Fails only if the other had wider bounds.
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn clear(&mut self) {
        // `clear` would keep the maximum.
        self.0.reset();
    }

    pub(crate) fn lateness(&self) -> Lateness {
        Lateness {
            p50_us: self.0.value_at_quantile(0.5),
            p99_us: self.0.value_at_quantile(0.99),
            max_us: self.0.max(),
            packets: self.0.len(),
        }
    }
}
