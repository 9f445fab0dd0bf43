//! The lab's conformance figures: the deviation from the configuration.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Attestation, Backend, Lab, LabError, Link, Options, throughput, throughput_at};

const RUNS: usize = 5;
const MS: fn(u64) -> Duration = Duration::from_millis;
/// The share of TCP payload in an IP packet of 1500 bytes: headers of 20 and 20 bytes and a time
/// stamp of 12 leave 1448.
const PAYLOAD: f64 = 1448.0 / 1500.0;

/// Prints a row for each figure.
pub(super) fn run() -> Result<(), LabError> {
    for rtt in [0, 4, 40, 160] {
        ping(rtt)?;
    }
    for backend in [Backend::User, Backend::Tbf] {
        for mbit in [8, 100, 1000] {
            rate(backend, mbit)?;
        }
    }
    star()?;
    for delay in [0, 2, 20] {
        unlimited(delay)?;
    }
    hops()
}

/// The deviation of the round trip.
fn ping(rtt: u64) -> Result<(), LabError> {
    let link = Link::new().delay(MS(rtt) / 2);
    let mut errors = Vec::new();
    let mut last = None;
    for _ in 0..RUNS {
        let mut lab = lab(Backend::User)?;
        let nodes = lab.chain(1, &link)?;
        lab.attest(&nodes[0], &nodes[1])?;
        let found = lab.attest(&nodes[0], &nodes[1])?;
        errors.push(found.error_ms);
        last = Some(found);
    }
    print("ping error", Backend::User, json!({ "rtt_ms": rtt }), "ms", errors, last)
}

/// The deviation of TCP's payload rate from that of the link.
fn rate(backend: Backend, mbit: u64) -> Result<(), LabError> {
    let link = Link::new().rate(mbit * 1_000_000);
    let link = if backend == Backend::User { link.delay(MS(1)) } else { link };
    let allowed = mbit as f64 * 1e6 * PAYLOAD;
    let (rates, last) = rates(backend, 1, &link)?;
    let errors = rates.into_iter().map(|rate| (rate / allowed - 1.0) * 100.0).collect();
    print("rate error", backend, json!({ "mbit": mbit }), "%", errors, last)
}

/// The deviation of TCP's payload rate from that of the links of a star.
fn star() -> Result<(), LabError> {
    let mut errors = Vec::new();
    for _ in 0..RUNS {
        let mut lab = Lab::new(Options::default())?;
        let a = lab.node("a")?;
        let b = lab.node("b")?;
        let star = lab.star(&[&a, &b], 100_000_000)?;
        let address = star.address(&b).ok_or(LabError::Gone)?;
        let rate = throughput_at(&a, (&b, address), MS(1000), MS(2000))?;
        errors.push((rate / (1e8 * PAYLOAD) - 1.0) * 100.0);
    }
    print("rate error", Backend::Tbf, json!({ "mbit": 100, "star": true }), "%", errors, None)
}

/// The TCP throughput of a link without a rate.
fn unlimited(delay: u64) -> Result<(), LabError> {
    let (rates, last) = rates(Backend::User, 1, &Link::new().delay(MS(delay)))?;
    let rates = rates.into_iter().map(|rate| rate / 1e9).collect();
    print("throughput", Backend::User, json!({ "delay_ms": delay }), "Gbit/s", rates, last)
}

/// The share of 100 Mbit/s after 16 hops.
fn hops() -> Result<(), LabError> {
    let link = Link::new().rate(100_000_000).delay(MS(1));
    let (rates, last) = rates(Backend::User, 16, &link)?;
    let shares = rates.into_iter().map(|rate| rate / (1e8 * PAYLOAD) * 100.0).collect();
    print("share of rate", Backend::User, json!({ "mbit": 100, "hops": 16 }), "%", shares, last)
}

/// The TCP payload rates over a chain in bits per second, one per run, each in a new lab.
fn rates(
    backend: Backend,
    hops: usize,
    link: &Link,
) -> Result<(Vec<f64>, Option<Attestation>), LabError> {
    let mut rates = Vec::new();
    let mut last = None;
    for _ in 0..RUNS {
        let mut lab = lab(backend)?;
        let nodes = lab.chain(hops, link)?;
        lab.reset_measures()?;
        rates.push(throughput(&nodes[0], &nodes[hops], MS(1000), MS(2000))?);
        last = Some(lab.attest(&nodes[0], &nodes[hops])?);
    }
    Ok((rates, last))
}

fn lab(backend: Backend) -> Result<Lab, LabError> {
    // Default buffers limit a connection with 20 ms delay to less than 1 Gbit/s.
    let sizes = Some([4096, 1 << 20, 128 << 20]);
    let tcp_wmem = sizes;
    let tcp_rmem = sizes;
    Lab::new(Options { backend: Some(backend), tcp_wmem, tcp_rmem, ..Options::default() })
}

fn print(
    metric: &str,
    backend: Backend,
    params: Value,
    unit: &str,
    mut figures: Vec<f64>,
    last: Option<Attestation>,
) -> Result<(), LabError> {
    figures.sort_by(f64::total_cmp);
    let runs = figures.len();
    let min = figures.first();
    let median = figures.get(runs / 2);
    let max = figures.last();
    let row = json!({
        "experiment": "lab/conformance", "subject": backend.to_string(), "params": params,
        "metric": metric, "unit": unit, "median": median, "min": min, "max": max, "p50": median,
        "p99": max, "runs": runs, "attestation": last,
    });
    writeln!(std::io::stdout(), "{row}").map_err(LabError::system("write to standard output"))
}
