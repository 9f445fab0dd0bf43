//! The attestation: a check of the emulation during a run.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::{LabError, Lateness};

/// A run is flagged if its p99 of lateness is above this, in µs.
const LATE_US: u64 = 1000;

/// The result of [`crate::Lab::attest`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attestation {
    /// The nodes between which the round trip was measured.
    pub nodes: (String, String),
    /// The configured round trip in ms: delays, and the transmission of the small packet.
    pub configured_ms: f64,
    /// The median of the round trips, in ms.
    pub ping_ms: f64,
    /// Measured minus configured round trip, in ms.
    pub error_ms: f64,
    /// The lateness of all links of the backend `user` since the last reset, this attestation's
    /// packets included.
    pub lateness: Lateness,
    /// The idle share of all processors, from the last reset to this attestation.
    pub idle: f64,
    /// Packets dropped since the last reset because the emulator read a device too late and its
    /// queue was full: losses that were not configured.
    pub overflowed: u64,
    /// Whether the run is not reliable: p99 of lateness is above 1 ms, or packets overflowed.
    pub flagged: bool,
}

impl Attestation {
    pub(crate) fn new(
        (from, to): (&str, &str),
        configured: Duration,
        measured: Duration,
        lateness: Lateness,
        idle: f64,
        overflowed: u64,
    ) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Self {
            nodes: (from.to_owned(), to.to_owned()),
            configured_ms: ms(configured),
            ping_ms: ms(measured),
            error_ms: ms(measured) - ms(configured),
            lateness,
            idle,
            overflowed,
            flagged: lateness.p99_us > LATE_US || overflowed > 0,
        }
    }
}

impl fmt::Display for Attestation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { configured_ms, ping_ms, error_ms, lateness, idle, overflowed, .. } = self;
        write!(
            f,
            "round trip {ping_ms:.3} ms, configured {configured_ms:.3} ms, error {error_ms:+.3} ms; \
             lateness p50 {} µs, p99 {} µs, max {} µs; processors {:.0} % idle; {overflowed} overflowed{}",
            lateness.p50_us,
            lateness.p99_us,
            lateness.max_us,
            idle * 100.0,
            if self.flagged { "; NOT RELIABLE" } else { "" },
        )
    }
}

/// The packets dropped by full queues of the links' devices in this namespace.
pub(crate) fn overflowed() -> Result<u64, LabError> {
    let path = "/proc/thread-self/net/dev";
    let text = std::fs::read_to_string(path).map_err(LabError::system(format!("read {path}")))?;
    Ok(overflowed_in(&text))
}

/// Lines are `name: ` and 16 numbers; the twelfth is the transmit drops. Devices of links are
/// called `l` and a number.
fn overflowed_in(text: &str) -> u64 {
    let dropped = |line: &str| {
        let (name, numbers) = line.trim_start().split_once(':')?;
        name.strip_prefix('l')?.parse::<usize>().ok()?;
        numbers.split_whitespace().nth(11)?.parse::<u64>().ok()
    };
    text.lines().filter_map(dropped).sum()
}

/// The processors' times since boot, in ticks.
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

    /// The idle share since `then`; 1 if no tick has passed.
    pub(crate) fn idle_since(&self, then: &Self) -> f64 {
        let all = self.all.saturating_sub(then.all);
        if all == 0 { 1.0 } else { self.idle.saturating_sub(then.idle) as f64 / all as f64 }
    }

    /// The first line is `cpu user nice system idle iowait irq softirq steal guest guest_nice`
    /// (proc_stat(5)); time of guests is counted in `user` and `nice` already.
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

    #[test]
    fn overflows_are_counted_for_links_only() {
        let text = "Inter-|   Receive | Transmit\n face |bytes packets\n    \
            lo: 1 2 3 4 5 6 7 8 9 10 11 1000 13 14 15 16\n    \
            l0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
            l12: 1 2 3 4 5 6 7 8 9 10 11 30 13 14 15 16\n";
        assert_eq!(overflowed_in(text), 42);
    }
}
