//! The figures of the paper beside ours, and the comparisons without links.

use levada_harness::{Row, find, ratio_row};

use super::super::rtt::Variant;
use super::super::simulated::Swap;
use super::super::{complete, single as one_peer};
use super::real::text;
use super::{line, unchanged};
use crate::table::{Table, short};
use crate::threshold::Threshold::{Any, AtLeast};

/// The averages of the paper (section "RTT averages"). The times of section "Randomized Client
/// Request Sequence Benchmark" have no definition there, so the page alone has them.
fn of_paper(variant: Variant, metric: &str) -> Option<&'static str> {
    match (metric, variant.blocks, variant.random, variant.swap) {
        ("mean", true, false, Swap::ControlByUdp) => Some("33.423"),
        ("mean", true, false, Swap::ControlByTcp) => Some("21.011"),
        _ => None,
    }
}

/// The mean time of a chunk, and the time of all, beside the paper's. All in milliseconds.
pub fn round_trips(rows: &[Row]) -> Table {
    let head = ["control", "data", "placement", "order", "subject", "figure", "ms", "paper, ms"];
    let mut table = Table::new("Round trips: 116 chunks of 1 KiB, five clients", head);
    for variant in Variant::all() {
        let at = variant.conditions();
        let subject = variant.subject();
        for metric in ["mean", "time", "time after distribution"] {
            let Some(row) = find(rows, &subject, metric, &at) else { continue };
            let scale = if row.unit == "s" { 1e3 } else { 1.0 };
            let [median, min, max] = [row.median, row.min, row.max].map(|one| short(one * scale));
            let keys = ["control", "data", "placement", "order"].map(|key| text(at.get(key)));
            let paper = of_paper(variant, metric).unwrap_or_default().to_owned();
            let figure = if metric == "mean" { "mean of chunks" } else { metric };
            let value = format!("{median} ({min} … {max})");
            let cells = [subject.clone(), figure.to_owned(), value, paper];
            table.lines.push(keys.into_iter().chain(cells).collect());
        }
    }
    table
}

/// Whether all peers had the file in all runs: the least, so that one failure shows.
pub fn completeness(rows: &[Row]) -> Table {
    let mut table = Table::new("Completion", ["comparison", "target", "result"]);
    let of = |metric: &'static str| rows.iter().filter(move |row| row.metric == metric);
    let what = |row: &Row, figure: &str| {
        let [control, data, peers] =
            ["control", "data", "peers"].map(|key| text(row.params.get(key)));
        format!("{}, control {control}, data {data}, {peers} peers: {figure}", row.subject)
    };
    for row in of(complete::METRIC) {
        let least = Row { median: row.min, ..row.clone() };
        let least = unchanged(&least).map(|ratio| Row { median: row.min, ..ratio });
        line(&mut table, what(row, "complete, least"), AtLeast(1.0), least);
    }
    for row in of("first ÷ last") {
        // Equal links are only in the simulator.
        let is_simulated = complete::SIMULATED.contains(&row.subject.as_str());
        let limit = if is_simulated { AtLeast(0.9) } else { Any };
        line(&mut table, what(row, "first ÷ last"), limit, unchanged(row));
    }
    table
}

/// One peer, compared with scp and rsync.
pub fn single(rows: &[Row]) -> Table {
    let mut table = Table::new("One peer beside scp and rsync", ["comparison", "target", "result"]);
    for own in rows.iter().filter(|row| row.subject == one_peer::LEVADA && row.metric == "MB/s") {
        for name in [one_peer::SCP, one_peer::RSYNC] {
            let rival = find(rows, name, "MB/s", &own.params);
            let ratio = rival.and_then(|rival| ratio_row(own, rival));
            line(&mut table, format!("rate ÷ the rate of `{name}`"), AtLeast(1.0), ratio);
        }
    }
    table
}
