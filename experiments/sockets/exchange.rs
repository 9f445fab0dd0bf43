//! Two threads, each on a core of its own, that exchange messages.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use levada_harness::{Measured, pin};

use super::subject::{End, Subject};

/// The figures of [`latency`], with their units.
pub const ROUND_TRIP: [(&str, &str); 3] =
    [("round trip", "µs"), ("round trip p1", "µs"), ("round trip p99", "µs")];
/// Those of [`throughput`].
pub const ONE_WAY: [(&str, &str); 2] = [("rate", "MB/s"), ("messages", "M/s")];

/// The bytes of the shortest message.
pub const MESSAGE: usize = 8;

/// Values with the names and units of their metrics, in the same order.
pub fn named(
    metrics: &[(&'static str, &'static str)],
    values: impl IntoIterator<Item = f64>,
) -> Vec<Measured> {
    let both = metrics.iter().zip(values);
    both.map(|(&(metric, unit), value)| Measured::new(metric, unit, value)).collect()
}

/// How long a run measures, after a tenth of it to warm up.
pub fn window(quick: bool) -> Duration {
    if quick { Duration::from_millis(200) } else { Duration::from_secs(1) }
}

/// The round trip of a message of `length` bytes that the other end sends back. Each end has a core
/// of its own.
pub fn latency(subject: Subject, length: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    round_trips(subject, length, [0, 1], quick)
}

/// The same, with the ends on these cores.
pub fn round_trips(
    subject: Subject,
    length: usize,
    cores: [usize; 2],
    quick: bool,
) -> anyhow::Result<Vec<Measured>> {
    let [near, mut far] = subject.connect()?;
    let echo = thread::spawn(move || {
        pin(cores[1])?;
        let mut message = vec![0; length];
        while receive_exactly(&mut *far, &mut message)? {
            far.send(&message)?;
        }
        anyhow::Ok(())
    });
    pin(cores[0])?;
    let measured = trips(near, length, quick)?;
    echo.join().ok().context("the other end panicked")??;
    Ok(measured)
}

/// The round trips of messages that the other end sends back.
pub fn trips(mut near: Box<dyn End>, length: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    let mut message = vec![7; length];
    let mut times = Histogram::<u64>::new(3)?;
    let start = Instant::now();
    let warm = window(quick) / 10;
    let end = window(quick) * 11 / 10;
    let mut sent = start.elapsed();
    while sent < end {
        near.send(&message)?;
        ensure!(receive_exactly(&mut *near, &mut message)?, "the other end has ended");
        let now = start.elapsed();
        if sent > warm {
            times.record(u64::try_from((now - sent).as_nanos())?.max(1))?;
        }
        sent = now;
    }
    near.finish()?;
    let micro = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    Ok(named(&ROUND_TRIP, [0.5, 0.01, 0.99].map(micro)))
}

/// Messages of `length` bytes in one direction, each sent by one call. The receiver's buffer has
/// 256 KiB, and at least a message.
pub fn throughput(subject: Subject, length: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    one_way(subject, length, [0, 1], quick, |_| ())
}

/// The same; the receiver reads each byte of what it has received.
pub fn read(subject: Subject, length: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    one_way(subject, length, [0, 1], quick, |bytes| {
        let add = |sum: u64, word: &[u8; 8]| sum.wrapping_add(u64::from_ne_bytes(*word));
        let (words, rest) = bytes.as_chunks();
        let sum = words.iter().fold(0, add);
        std::hint::black_box(rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte))));
    })
}

/// The same, with receiver and sender on these cores; `use_bytes` has what was received.
pub fn one_way(
    subject: Subject,
    length: usize,
    cores: [usize; 2],
    quick: bool,
    use_bytes: impl Fn(&[u8]),
) -> anyhow::Result<Vec<Measured>> {
    let [mut near, mut far] = subject.connect()?;
    let sender = thread::spawn(move || {
        pin(cores[1])?;
        let message = vec![7; length];
        let end = Instant::now() + window(quick) * 12 / 10;
        // A look at the clock takes longer than the shortest messages do.
        let batch = (1 << 14) / length + 1;
        while Instant::now() < end {
            for _ in 0..batch {
                far.send(&message)?;
            }
        }
        far.finish()
    });
    pin(cores[0])?;
    let mut buffer = vec![0; length.max(256 << 10)];
    let start = Instant::now();
    let warm = window(quick) / 10;
    let end = window(quick) * 11 / 10;
    let mut counted = 0;
    let mut first = None;
    let mut last = None;
    loop {
        let received = near.receive(&mut buffer)?;
        if received == 0 {
            break;
        }
        use_bytes(&buffer[..received]);
        let now = start.elapsed();
        if now >= warm && now < end {
            // The bytes that end the warm-up were sent in it.
            counted += first.map_or(0, |_| received as u64);
            first.get_or_insert(now);
            last = Some(now);
        }
    }
    sender.join().ok().context("the sender panicked")??;
    let seconds = first
        .zip(last)
        .map_or(0.0, |(first, last): (Duration, Duration)| (last - first).as_secs_f64());
    ensure!(seconds > 0.0, "nothing was received in the measured time");
    let bytes = counted as f64 / seconds;
    let values = [bytes / 1e6, bytes / length as f64 / 1e6];
    Ok(named(&ONE_WAY, values))
}

/// `false` if the connection has ended before the first byte.
pub fn receive_exactly(end: &mut dyn End, buffer: &mut [u8]) -> anyhow::Result<bool> {
    let mut done = 0;
    while done < buffer.len() {
        let received = end.receive(&mut buffer[done..])?;
        if received == 0 {
            ensure!(done == 0, "the connection has ended within a message");
            return Ok(false);
        }
        done += received;
    }
    Ok(true)
}
