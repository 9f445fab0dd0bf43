//! What an operation, a message, a kilobyte and a connection cost, as in the paper's table.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

use anyhow::Context;
use levada_harness::{Measured, pin};

use super::connections;
use super::exchange::{MESSAGE, latency, named};
use super::subject::Subject;

/// What is measured.
pub const METRICS: [(&str, &str); 5] = [
    ("system call", "ns"),
    ("operation", "ns"),
    ("message", "ns"),
    ("kilobyte", "ns"),
    ("connection", "ns"),
];

/// Calls of one measurement.
const CALLS: u32 = 200_000;
/// The longer message of the two whose difference gives the time of a kilobyte.
const LONG: usize = 32 << 10;

/// Measures each. A message takes half of a round trip.
pub fn measure(subject: Subject, _: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    pin(0)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    // The kernel's own number of this process: a call that does nothing else than enter the kernel.
    let system_call = each(|| {
        let _ = rustix::process::getppid();
        Ok(())
    })?;
    let operation = each(|| Ok(uapi::fcntl_getfl(stream.as_raw_fd()).map(drop)?))?;
    let half = |length| anyhow::Ok(median(&latency(subject, length, quick)?)? * 1e3 / 2.0);
    let message = half(MESSAGE)?;
    let kilobyte = (half(LONG)? - message) / (LONG as f64 / 1024.0);
    let connections = connections::measure(subject, 1, quick)?;
    let connection = connections.last().context("no connection was measured")?.value * 1e3;
    let values = [system_call, operation, message, kilobyte, connection];
    Ok(named(&METRICS, values))
}

/// The time of one call, in nanoseconds.
fn each(mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    for _ in 0..CALLS {
        call()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(CALLS))
}

fn median(measured: &[Measured]) -> anyhow::Result<f64> {
    Ok(measured.first().context("no round trip was measured")?.value)
}
