//! Connections per second, each with some exchanges of a message.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use levada_harness::{Measured, pin};

use super::exchange::{MESSAGE, named, receive_exactly, window};
use super::peer::{Peer, Way};
use super::subject::Subject;

/// What is measured: connections in a row, from connect(2) to close(2), and connect(2) alone.
pub const METRICS: [(&str, &str); 4] =
    [("connections", "1/s"), ("connection", "µs"), ("connection p99", "µs"), ("connect", "µs")];
/// What is measured with many connections at a time.
pub const MANY: [(&str, &str); 2] = [("connections", "1/s"), ("connect", "µs")];

/// Connects, exchanges a message of 8 bytes as often as `exchanges` says, and closes, again and
/// again.
pub fn measure(subject: Subject, exchanges: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    pin(0)?;
    let peer = Peer::start(Way::Single, subject, MESSAGE)?;
    let series = Series::run(&peer, 1, exchanges, quick)?;
    let [middle, slow] = [0.5, 0.99].map(|quantile| micro(&series.times, quantile));
    let connect = micro(&series.connects, 0.5);
    Ok(named(&METRICS, [series.rate, middle, slow, connect]))
}

/// Opens as many connections as `count` says, exchanges a message on each, and closes all, again
/// and again.
pub fn many(subject: Subject, count: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    pin(0)?;
    let peer = Peer::start(Way::Many, subject, MESSAGE)?;
    let series = Series::run(&peer, count, 1, quick)?;
    Ok(named(&MANY, [series.rate, micro(&series.connects, 0.5)]))
}

fn micro(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1e3
}

/// Connections one after the other, or some at a time.
pub struct Series {
    /// All connections, also those before the measured time.
    pub count: u64,
    /// Connections per second.
    pub rate: f64,
    /// From connect(2) to close(2), in nanoseconds.
    pub times: Histogram<u64>,
    /// connect(2) alone.
    pub connects: Histogram<u64>,
}

impl Series {
    /// Makes them, `together` at a time.
    pub fn run(
        peer: &Peer,
        together: usize,
        exchanges: usize,
        quick: bool,
    ) -> anyhow::Result<Self> {
        let mut series =
            Self { count: 0, rate: 0.0, times: Histogram::new(3)?, connects: Histogram::new(3)? };
        let mut ends = Vec::with_capacity(together);
        let mut message = [7; MESSAGE];
        let start = Instant::now();
        let warm = window(quick) / 10;
        let end = window(quick) * 11 / 10;
        let mut begun = Duration::ZERO;
        let mut counted = 0;
        let mut first = None;
        while begun < end {
            let mut before = begun;
            for _ in 0..together {
                ends.push(peer.connect()?);
                let now = start.elapsed();
                if begun > warm {
                    series.connects.record(nanoseconds(now - before)?)?;
                }
                before = now;
            }
            for _ in 0..exchanges {
                ends.iter_mut().try_for_each(|end| end.send(&message))?;
                for end in &mut ends {
                    let received = receive_exactly(&mut **end, &mut message)?;
                    ensure!(received, "the other end has ended");
                }
            }
            ends.clear();
            let now = start.elapsed();
            if begun > warm {
                first.get_or_insert(begun);
                series.times.record(nanoseconds(now - begun)?)?;
                counted += together;
            }
            series.count += together as u64;
            begun = now;
        }
        let seconds = (begun - first.context("no connection was measured")?).as_secs_f64();
        series.rate = counted as f64 / seconds;
        Ok(series)
    }
}

fn nanoseconds(time: Duration) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.as_nanos())?.max(1))
}
