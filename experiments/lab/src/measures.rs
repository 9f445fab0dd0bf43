//! The emulator's measurements of links and of itself.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::LabError;

/// The packet counters of one direction since the last reset. A super-packet (offload) counts as
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Received packets.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Packets lost by [`crate::Loss`].
    pub lost: u64,
    /// Packets dropped because the queue was full or delivery failed.
    pub dropped: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Sent ahead of packets in flight.
    pub reordered: u64,
    /// Delivered; a packet sent twice counts twice.
    pub delivered: u64,
}

/// The delay of deliveries after their due time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lateness {
    /// The median, in µs.
    pub p50_us: u64,
    /// The 99th percentile, in µs.
    pub p99_us: u64,
    /// The maximum, in µs.
    pub max_us: u64,
    /// The number of measured packets.
    pub packets: u64,
}

/// The measures of a link, or of all links of a lab, since the last reset.
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

/// Lateness in µs up to ten seconds, with three significant digits.
#[derive(Clone)]
pub(crate) struct LatenessHistogram(Histogram<u64>);

impl LatenessHistogram {
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
