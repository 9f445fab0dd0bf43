//! Experiments whose ends are processes of a script.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use levada_harness::{Case, Group, Measured, Options, Params, Row, find, params};

use super::fast;
use crate::measuring::Measuring;
use crate::table::{Table, ranged};

/// The experiments' names in rows.
pub const FORK: &str = "sockets/fork";
pub const IDLE: &str = "sockets/idle";

const TCP: &str = "tcp";
const FAST: &str = "fast";

/// The phases around the forks, and the figures of each.
pub const RATES: [&str; 5] = [
    "before",
    "the receiver has forked",
    "its child receives",
    "the sender has forked",
    "its child sends",
];
/// From each fork or change, until bytes come at half of the phase's rate.
pub const PAUSES: [&str; 4] = ["pause at T0", "pause at T1", "pause at T2", "pause at T3"];
const IDLES: [(&str, &str); 5] = [
    ("memory of rings, after 4 exchanges", "KiB"),
    ("after 700 kB each way", "KiB"),
    ("quiet since", "KiB"),
    ("other memory of both processes", "KiB"),
    ("wake-ups of the monitor", "1"),
];

/// The rate around a fork of the receiver, and of the sender.
pub fn fork(options: &Options) -> anyhow::Result<()> {
    let seconds = if options.quick { 0.3 } else { 0.5 };
    let run = move |is_fast| around_forks(&python(FORK_SCRIPT, &[seconds], is_fast)?);
    measure(FORK, params([]), &[TCP, FAST], options, run)
}

/// The memory of quiet connections.
pub fn idle(options: &Options) -> anyhow::Result<()> {
    let (count, seconds) = if options.quick { (100, 3.0) } else { (1000, 15.0) };
    let run = move |is_fast| {
        let values = python(IDLE_SCRIPT, &[f64::from(count), seconds], is_fast)?;
        ensure!(values.len() == IDLES.len(), "the script printed other figures");
        let named = IDLES.iter().zip(values);
        let value = |(&(metric, unit), value): (&(_, _), f64)| {
            Measured::new(metric, unit, if unit == "KiB" { value / 1024.0 } else { value })
        };
        Ok(named.map(value).collect())
    };
    measure(IDLE, params([("connections", count.into())]), &[FAST], options, run)
}

const FORK_SCRIPT: &str = include_str!("fork.py");
const IDLE_SCRIPT: &str = include_str!("idle.py");

fn measure(
    name: &'static str,
    at: Params,
    subjects: &[&str],
    options: &Options,
    run: impl Fn(bool) -> anyhow::Result<Vec<Measured>> + Copy,
) -> anyhow::Result<()> {
    let mut measuring = Measuring::new(name, options, 1)?;
    let names: Vec<String> = subjects.iter().map(ToString::to_string).collect();
    if measuring.needs(&at, &names) {
        let case = |subject: &&str| {
            let is_fast = *subject == FAST;
            Case::new(*subject, move || Ok(run(is_fast)?))
        };
        let cases = subjects.iter().map(case).collect();
        measuring.group(Group { experiment: name, params: at, cases, monitor: None })?;
    }
    measuring.finish().conclude(options, super::figures::draw, |rows| table(name, rows))
}

/// Runs a script, and reads the list that it prints.
fn python(script: &str, arguments: &[f64], is_fast: bool) -> anyhow::Result<Vec<f64>> {
    let mut command = if is_fast {
        let mut command = Command::new(fast::binary()?);
        command.args(["fast", "--", "python3"]);
        command
    } else {
        Command::new("python3")
    };
    command.args(["-c", script]).args(arguments.iter().map(ToString::to_string));
    let output = command.stderr(Stdio::inherit()).output().context("run python3")?;
    ensure!(output.status.success(), "the script ended with {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The rate of each phase in MB/s, and the pauses in ms, of the bytes in each millisecond.
fn around_forks(bytes: &[f64]) -> anyhow::Result<Vec<Measured>> {
    let length = bytes.len() / RATES.len();
    ensure!(length > 0, "the script printed no rates");
    let phases: Vec<&[f64]> = bytes.chunks_exact(length).collect();
    // A millisecond has one byte in a thousand of a second's.
    let rate = |phase: &&[f64]| phase.iter().sum::<f64>() / phase.len() as f64 / 1e3;
    let pause = |phase: &[f64]| {
        let half = phase.iter().sum::<f64>() / phase.len() as f64 / 2.0;
        phase.iter().position(|bytes| *bytes >= half).unwrap_or(phase.len()) as f64
    };
    let rates = RATES.iter().zip(phases.iter().map(rate));
    let pauses = PAUSES.iter().zip(phases[1..].iter().map(|phase| pause(phase)));
    let rates = rates.map(|(metric, value)| Measured::new(metric, "MB/s", value));
    Ok(rates.chain(pauses.map(|(metric, value)| Measured::new(metric, "ms", value))).collect())
}

/// A line for each figure.
pub fn table(name: &str, rows: &[Row]) -> Table {
    let title = if name == FORK { "Around a fork" } else { "Quiet connections, for each" };
    let subjects = [TCP, FAST].map(|subject| format!("`{subject}`"));
    let head = ["what".to_owned(), "unit".to_owned()].into_iter().chain(subjects);
    let mut table = Table::new(title, head);
    let mut metrics: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let one = (row.metric.as_str(), row.unit.as_str());
        if !metrics.contains(&one) {
            metrics.push(one);
        }
    }
    for (metric, unit) in metrics {
        let value = |subject| find(rows, subject, metric, &params([])).map(ranged);
        let cells = [TCP, FAST].map(|subject| value(subject).unwrap_or_default());
        table.lines.push([metric.into(), unit.into()].into_iter().chain(cells).collect());
    }
    table.compact()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_pauses_are_those_of_each_phase() {
        let mut bytes = vec![2e6; 50];
        // The second phase begins with three milliseconds without bytes.
        bytes[10..13].fill(0.0);
        let measured = around_forks(&bytes).unwrap();
        let values: Vec<f64> = measured.iter().map(|one| one.value).collect();
        assert_eq!(values, [2000.0, 1400.0, 2000.0, 2000.0, 2000.0, 3.0, 0.0, 0.0, 0.0]);
        assert!(around_forks(&[]).is_err());
    }
}
