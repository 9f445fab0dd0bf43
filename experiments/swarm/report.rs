//! The tables, computed from rows only.

mod links;
mod model;
mod paper;
mod real;

use std::path::Path;

use anyhow::ensure;
use levada_harness::{Params, Row, exponent_row, find, ratio_row, read_rows};
use serde_json::Value;

use super::loss::{self, ORDERS};
use super::simulated::{CACHE, DIRECT, Experiment, LOAD, ORDER, SCALE, STRIPES, TIMERS};
use super::subject::{CONTROLLERS, Subject};
use super::{complete, crowd, mediated, memory, rtt, single};
use crate::measuring::file;
use crate::table::{Table, filled, median, ranged, short};
use crate::threshold::Threshold::{self, AtLeast, AtMost};
pub use links::links;
pub use paper::{completeness, round_trips, single};
pub use real::{mediated, memory};

/// Every table that the rows in `folder` allow.
pub fn tables(folder: &Path) -> anyhow::Result<Vec<Table>> {
    let rows = read_rows(&file(folder, loss::NAME))?;
    let of_links = read_rows(&file(folder, super::links::NAME))?;
    let of_crowd = read_rows(&file(folder, crowd::NAME))?;
    let of_mediated = read_rows(&file(folder, mediated::NAME))?;
    let of_memory = read_rows(&file(folder, memory::NAME))?;
    let of_rtt = read_rows(&file(folder, rtt::NAME))?;
    let of_complete = read_rows(&file(folder, complete::NAME))?;
    let of_single = read_rows(&file(folder, single::NAME))?;
    let simulations = [&SCALE, &LOAD, &CACHE, &ORDER, &TIMERS];
    let mut tables = Vec::new();
    for experiment in simulations {
        let rows = read_rows(&file(folder, experiment.name))?;
        tables.extend([points(experiment, &rows), simulated(&rows), model::model(&rows)]);
    }
    tables.extend([
        links::measured(&of_links),
        links(&of_links),
        crowd(&of_crowd),
        real::medians("Mediated mode, real sockets", &["peers", "bytes", "cache"], &of_mediated),
        mediated(&of_mediated),
        round_trips(&of_rtt),
        real::medians("Complete", &["control", "data", "peers"], &of_complete),
        completeness(&of_complete),
        real::medians("One peer", &["bytes"], &of_single),
        single(&of_single),
        real::medians("Memory", &["mode", "bytes", "fetched"], &of_memory),
        memory(&of_memory),
        goodput(&rows),
        shares(&rows),
        cpu(&rows),
        targets(&rows),
    ]);
    let tables = filled(tables);
    ensure!(!tables.is_empty(), "{} has no rows of the swarm", folder.display());
    Ok(tables)
}

/// Every point of a simulation, with the medians and ranges of its metrics.
fn points(experiment: &Experiment, rows: &[Row]) -> Table {
    let keys = ["peers", "chunks", "cache", "order", "loss", "control", "data"];
    let metrics = || experiment.metrics.iter().map(|(metric, _)| *metric);
    let head = ["subject"].into_iter().chain(keys).chain(metrics()).map(str::to_owned);
    let mut table = Table::new(experiment.name, head);
    for row in rows.iter().filter(|row| row.metric == "time") {
        let key = |key: &&str| real::text(row.params.get(*key));
        let value = |metric| {
            let found = find(rows, &row.subject, metric, &row.params);
            found.map(ranged).unwrap_or_default()
        };
        let cells = keys.iter().map(key).chain(metrics().map(value));
        table.lines.push([row.subject.clone()].into_iter().chain(cells).collect());
    }
    table
}

fn goodput(rows: &[Row]) -> Table {
    let mut table = Table::new("Goodput at 1 % loss, Mbit/s", ["subject", "median", "min", "max"]);
    let of_part = |row: &&Row| row.metric == "goodput" && row.params == loss::lossy();
    for row in rows.iter().filter(of_part) {
        let values = [median(row), short(row.min), short(row.max)];
        table.lines.push([format!("`{}`", row.subject)].into_iter().chain(values).collect());
    }
    table
}

/// What the simulator says, against the thresholds.
pub fn simulated(rows: &[Row]) -> Table {
    let name = rows.first().map_or("", |row| row.experiment.as_str());
    let title = format!("Targets of {name}");
    let mut table = Table::new(&title, ["comparison", "target", "result"]);
    let all = |subject: &'static str, metric: &'static str| {
        // Random order is for comparison only.
        let is_sequential = |row: &&Row| !row.params.contains_key("order");
        let own = move |row: &&Row| row.subject == subject && row.metric == metric;
        rows.iter().filter(own).filter(is_sequential)
    };
    let number = |row: &Row, key: &str| row.params.get(key).and_then(Value::as_u64).unwrap_or(0);
    for row in all(DIRECT, "time ÷ bound of trees").filter(|row| number(row, "chunks") == 10) {
        let what =
            format!("direct, {} peers, 10 chunks: time ÷ bound of trees", number(row, "peers"));
        line(&mut table, what, AtMost(1.5), unchanged(row));
    }
    let many = || all(DIRECT, "time").filter(|row| number(row, "chunks") == 1000);
    for (first, row) in many().take(1).flat_map(|first| many().skip(1).map(move |row| (first, row)))
    {
        let what =
            format!("direct, 1,000 chunks: time with {} peers ÷ with 10", number(row, "peers"));
        line(&mut table, what, AtMost(1.5), ratio_row(row, first));
    }
    for row in all(DIRECT, "memory per peer") {
        let what = format!(
            "{} peers, {} chunks: memory per peer, KiB",
            number(row, "peers"),
            number(row, "chunks")
        );
        line(&mut table, what, AtMost(64.0), unchanged(row));
    }
    let of_load = |row: &&Row| row.experiment == LOAD.name;
    let exponent = exponent_row(&all(STRIPES, "time").filter(of_load).collect::<Vec<_>>(), "peers");
    line(&mut table, "mediated: exponent of time over peers".into(), AtMost(1.05), exponent);
    for (metric, limit) in [("fetches ÷ chunks", 1.1), ("time ÷ uplink bound", 1.08)] {
        for row in all(STRIPES, metric) {
            let what = format!(
                "mediated, {} peers, cache {}: {metric}",
                number(row, "peers"),
                number(row, "cache")
            );
            line(&mut table, what, AtMost(limit), unchanged(row));
        }
    }
    table
}

/// The row as a ratio.
fn unchanged(row: &Row) -> Option<Row> {
    ratio_row(row, &Row { values: vec![1.0; row.values.len()], ..row.clone() })
}

/// The memory of a coordinator with registered connections, and how much later a peer is served.
pub fn crowd(rows: &[Row]) -> Table {
    let mut table = Table::new("A coordinator with many", ["comparison", "target", "result"]);
    let alone = find(rows, crowd::SUBJECT, "download", &crowd::conditions(0));
    for idle in [crowd::counts(true)[1], crowd::counts(false)[1]] {
        let of = |metric: &str| find(rows, crowd::SUBJECT, metric, &crowd::conditions(idle));
        let memory = of("memory").cloned();
        line(&mut table, format!("memory with {idle} connections, MiB"), AtMost(256.0), memory);
        let ratio = of("download").zip(alone).and_then(|(one, alone)| ratio_row(one, alone));
        line(&mut table, format!("download with {idle} connections ÷ alone"), AtMost(2.0), ratio);
    }
    table
}

/// The shares of the link beside TCP cubic, by the flow that starts first.
fn shares(rows: &[Row]) -> Table {
    let heads = ORDERS.iter().flat_map(|first| [format!("{first}: QUIC"), "TCP cubic".to_owned()]);
    let head = ["subject".to_owned()].into_iter().chain(heads);
    let mut table = Table::new("Shares of the link, by the flow that starts first", head);
    for subject in CONTROLLERS.map(Subject::ChannelQuic) {
        let cells = ORDERS.iter().flat_map(|first| {
            ["share", "TCP's share"].map(|metric| {
                let row = find(rows, &subject.to_string(), metric, &loss::shared(first));
                row.map(median).unwrap_or_default()
            })
        });
        table.lines.push([format!("`{subject}`")].into_iter().chain(cells).collect());
    }
    table.lines.retain(|line| line[1..].iter().any(|cell| !cell.is_empty()));
    table
}

fn cpu(rows: &[Row]) -> Table {
    let mut table = Table::new("On loopback", ["subject", "MB/s", "MB/cpu-s"]);
    let at = loss::loopback();
    for row in rows.iter().filter(|row| row.metric == "MB/cpu-s" && row.params == at) {
        let rate = find(rows, &row.subject, "MB/s", &at).map(median);
        table.lines.push(vec![format!("`{}`", row.subject), rate.unwrap_or_default(), median(row)]);
    }
    table
}

/// The comparisons with thresholds.
pub fn targets(rows: &[Row]) -> Table {
    let mut table = Table::new("Comparison with TCP", ["comparison", "target", "result"]);
    let lossy = loss::lossy();
    for subject in CONTROLLERS.map(Subject::ChannelQuic) {
        let name = subject.to_string();
        for (rival, limit) in [("tcp/cubic", AtLeast(5.0)), ("tcp/bbr", AtLeast(0.9))] {
            let of = |subject: &str| find(rows, subject, "goodput", &lossy);
            let ratio = of(&name).zip(of(rival)).and_then(|(own, rival)| ratio_row(own, rival));
            line(&mut table, format!("goodput, 1 % loss: `{name}` ÷ `{rival}`"), limit, ratio);
        }
        for first in ORDERS {
            let least = least_share(rows, &name, &loss::shared(first));
            let what = format!("the smaller share, `{name}` and `tcp/cubic`, first: {first}");
            line(&mut table, what, AtLeast(0.3), least);
        }
    }
    table
}

/// The smaller share of each run.
fn least_share(rows: &[Row], subject: &str, at: &Params) -> Option<Row> {
    let own = find(rows, subject, "share", at)?;
    let tcp = find(rows, subject, "TCP's share", at)?;
    let values = own.values.iter().zip(&tcp.values).map(|(own, tcp)| own.min(*tcp)).collect();
    let ones = Row { values: vec![1.0; own.values.len()], ..own.clone() };
    ratio_row(&Row { values, ..own.clone() }, &ones)
}

fn line(table: &mut Table, what: String, limit: Threshold, ratio: Option<Row>) {
    if let Some(ratio) = ratio {
        table.lines.push(vec![what, limit.text(), limit.evaluate(&ratio)]);
    }
}
