//! The comparisons with thresholds, computed from rows only.

use std::path::Path;

use levada_harness::{Params, Row, find, params, ratio_row, read_rows};

use super::experiment::{
    CONNECTIONS, CONTENDED, Experiment, LATENCY, MANY, ONE_SIDED, READ, SHARING, THROUGHPUT,
};
use super::{apps, scripts};
use crate::measuring::file;
use crate::table::Table;
use crate::threshold::Threshold::{self, AtLeast, AtMost};

/// A ratio of two subjects at one length of messages.
type Ratio = (usize, &'static str, &'static str, Threshold);

const LATENCIES: [Ratio; 3] = [
    (8, "tcp", "fast/spinning", AtLeast(18.0)),
    (8, "tcp", "fast/sleeping", AtLeast(1.6)),
    (8, "fast/spinning", "ring/spinning", AtMost(1.4)),
];
const RATES: [Ratio; 8] = [
    (8, "fast", "tcp", AtLeast(6.0)),
    (8, "fast", "ring/spinning", AtLeast(0.5)),
    (8 << 10, "fast", "tcp", AtLeast(4.5)),
    (8 << 10, "fast", "ring/spinning", AtLeast(0.8)),
    (64 << 10, "fast", "tcp", AtLeast(2.4)),
    (64 << 10, "fast", "ring/spinning", AtLeast(0.8)),
    (1 << 20, "fast", "tcp", AtLeast(1.8)),
    (1 << 20, "fast", "ring/spinning", AtLeast(0.8)),
];

/// Every comparison that the rows in a folder allow.
pub fn table(folder: &Path) -> anyhow::Result<Table> {
    let mut table = Table::new("Targets", ["comparison", "target", "result"]);
    for (experiment, what, ratios) in
        [(&LATENCY, "round trip", &LATENCIES[..]), (&THROUGHPUT, "one direction", &RATES)]
    {
        let rows = read_rows(&file(folder, experiment.name))?;
        let metric = experiment.metrics[0].0;
        for (bytes, a, b, threshold) in ratios.iter().copied() {
            let ratio = ratio(&rows, metric, (a, b), &experiment.at(bytes));
            line(&mut table, format!("{what}, {bytes} B: `{a}` ÷ `{b}`"), threshold, ratio);
        }
    }
    for (experiment, limit) in [(&CONNECTIONS, 0.9), (&ONE_SIDED, 0.97)] {
        let rows = read_rows(&file(folder, experiment.name))?;
        let shown = if experiment.name == CONNECTIONS.name { 1 } else { experiment.metrics.len() };
        for (metric, _) in &experiment.metrics[..shown] {
            for value in experiment.values.iter().copied() {
                let ratio = ratio(&rows, metric, ("fast", "tcp"), &experiment.at(value));
                let condition = experiment.condition;
                let name = experiment.name.trim_start_matches("sockets/");
                let what = format!("{name}, {metric}, {condition} {value}: `fast` ÷ `tcp`");
                line(&mut table, what, AtLeast(limit), ratio);
            }
        }
    }
    others(&mut table, folder)?;
    idle(&mut table, &read_rows(&file(folder, scripts::IDLE))?);
    programs(&mut table, &read_rows(&file(folder, apps::NAME))?);
    Ok(table)
}

/// A ratio of two subjects in a metric, at one value of an experiment's condition.
type Other = (&'static Experiment, &'static str, usize, (&'static str, &'static str), Threshold);

const DIRECT: (&str, &str) = ("fast/direct", "tcp");
const SHARED: (&str, &str) = ("tcp", "fast");
const SPINS: (&str, &str) = ("fast", "fast/sleeping");

const OTHERS: [Other; 14] = [
    (&CONNECTIONS, "connections", 1, DIRECT, AtLeast(6.0)),
    // The ratio of times is that of TCP to the other.
    (&CONNECTIONS, "connect", 1, ("tcp", "fast/direct"), AtLeast(8.0)),
    (&MANY, "connections", 64, DIRECT, AtLeast(4.0)),
    (&CONNECTIONS, "connections", 2, DIRECT, AtLeast(5.0)),
    (&CONNECTIONS, "connections", 5, DIRECT, AtLeast(5.0)),
    (&CONNECTIONS, "connections", 10, DIRECT, AtLeast(5.0)),
    (&CONNECTIONS, "connections", 20, DIRECT, AtLeast(5.0)),
    (&SHARING, "round trip", 1, SHARED, AtLeast(5.0)),
    (&SHARING, "round trip", 8, SHARED, AtLeast(4.0)),
    (&CONTENDED, "round trip", 1, SPINS, AtMost(1.2)),
    (&CONTENDED, "round trip p99", 1, SPINS, AtMost(1.2)),
    (&CONTENDED, "share of the busy program", 1, SPINS, AtLeast(0.9)),
    (&READ, "rate", 1 << 20, ("fast", "tcp"), AtLeast(4.0)),
    (&READ, "rate", 1 << 20, ("fast", "tcp/sockmap"), Threshold::Any),
];

fn others(table: &mut Table, folder: &Path) -> anyhow::Result<()> {
    for (experiment, metric, value, (a, b), limit) in OTHERS {
        let rows = read_rows(&file(folder, experiment.name))?;
        let name = experiment.name.trim_start_matches("sockets/");
        let condition = experiment.condition;
        let what = format!("{name}, {metric}, {condition} {value}: `{a}` ÷ `{b}`");
        line(table, what, limit, ratio(&rows, metric, (a, b), &experiment.at(value)));
    }
    Ok(())
}

fn idle(table: &mut Table, rows: &[Row]) {
    for (metric, limit) in
        [("memory of rings, after 4 exchanges", 256.0), ("wake-ups of the monitor", 0.0)]
    {
        let row = find(rows, "fast", metric, &params([])).cloned();
        let unit = row.as_ref().filter(|row| row.unit == "KiB").map_or("", |_| ", KiB");
        line(table, format!("idle, {metric}{unit}"), AtMost(limit), row);
    }
}

fn programs(table: &mut Table, rows: &[Row]) {
    for (program, load, metric, (a, b), limit) in [
        ("nginx, wrk", "12 B, 1 connection", "p50", ("tcp", "fast"), 2.5),
        ("nginx, wrk", "12 B, 20 connections", "rate", ("fast", "tcp"), 1.3),
        ("redis", "GET, 1 client", "rate", ("fast", "tcp"), 3.0),
        ("nginx, wrk", apps::CLOSING_LOAD, "rate", DIRECT, 2.5),
        ("nginx in one process, wrk", apps::CLOSING_LOAD, "rate", DIRECT, 2.5),
    ] {
        let at = params([("program", program.into()), ("load", load.into())]);
        let what = format!("{program}, {load}, {metric}: `{a}` ÷ `{b}`");
        line(table, what, AtLeast(limit), ratio(rows, metric, (a, b), &at));
    }
}

fn ratio(rows: &[Row], metric: &str, (a, b): (&str, &str), at: &Params) -> Option<Row> {
    let row = |subject| find(rows, subject, metric, at);
    ratio_row(row(a)?, row(b)?)
}

/// A row that none of the files has.
pub const NOT_MEASURED: &str = "not measured";

fn line(table: &mut Table, what: String, limit: Threshold, row: Option<Row>) {
    let result = row.map_or(NOT_MEASURED.into(), |row| limit.evaluate(&row));
    table.lines.push(vec![what, limit.text(), result]);
}
