//! How well a lab keeps its word.

use std::time::Duration;

use serde::Serialize;

use crate::{LabError, Lateness};

/// A run whose p99 of lateness is above this is not to be trusted, in µs.
const LATE_US: u64 = 1000;

/// What [`crate::Lab::attest`] found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attestation {
    /// The nodes between which the round trip was measured.
    pub nodes: (String, String),
    /// The round trip that the links between them should have, in ms: delays, and the transmission of the small packet.
    pub configured_ms: f64,
    /// The median of the round trips, in ms.
    pub ping_ms: f64,
    /// The difference of the two: positive if too slow.
    pub error_ms: f64,
    /// Of all links of the backend `user`, since the last reset and before this attestation.
    pub lateness: Lateness,
    /// The share of all processors' time in which they were idle, since the last reset.
    pub idle: f64,
    /// The emulator was late: p99 above 1 ms.
    pub flagged: bool,
}

impl Attestation {
    pub(crate) fn new(
        (from, to): (&str, &str),
        configured: Duration,
        measured: Duration,
        lateness: Lateness,
        idle: f64,
    ) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Self {
            nodes: (from.to_owned(), to.to_owned()),
            configured_ms: ms(configured),
            ping_ms: ms(measured),
            error_ms: ms(measured) - ms(configured),
            lateness,
            idle,
            flagged: lateness.p99_us > LATE_US,
        }
    }
}

/// What the processors had done at a moment, in ticks since the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Processors {
    idle: u64,
    all: u64,
}

impl Processors {
    pub(crate) fn now() -> Result<Self, LabError> {
        let text =
            std::fs::read_to_string("/proc/stat").map_err(LabError::system("read /proc/stat"))?;
        Self::parse(&text)
            .ok_or_else(|| LabError::Invalid("/proc/stat has no line `cpu`".to_owned()))
    }

    /// The share of the time since then in which they were idle; 1 if no tick has passed.
    pub(crate) fn idle_since(&self, then: &Self) -> f64 {
        let all = self.all.saturating_sub(then.all);
        if all == 0 { 1.0 } else { self.idle.saturating_sub(then.idle) as f64 / all as f64 }
    }

    /// The first line is `cpu user nice system idle iowait irq softirq steal guest guest_nice` (proc_stat(5)); time of guests is
    /// counted in `user` and `nice` already.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        Some(Self { idle: ticks.get(3)? + ticks.get(4)?, all: ticks.iter().sum() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_share_is_of_all_processors() {
        let then = Processors::parse("cpu  10 0 10 70 10 0 0 0 5 5\ncpu0 1 2 3 4 5\n").unwrap();
        assert_eq!(then, Processors { idle: 80, all: 100 });
        let now = Processors { idle: 110, all: 200 };
        assert_eq!(now.idle_since(&then), 0.3);
        assert_eq!(then.idle_since(&then), 1.0);
        assert_eq!(Processors::parse("intr 5\n"), None);
    }
}
