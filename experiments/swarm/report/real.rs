//! The tables of measurements with real sockets.

use levada_harness::{Row, exponent_row, find, ratio_row};
use serde_json::Value;

use super::super::mediated;
use super::{line, unchanged};
use crate::table::{Table, ranged};
use crate::threshold::Threshold::{self, AtMost};

/// The medians and ranges of all metrics, a line for each subject under the same conditions.
pub(super) fn medians(title: &str, keys: &[&str], rows: &[Row]) -> Table {
    let mut metrics: Vec<&str> = Vec::new();
    for row in rows {
        if !metrics.contains(&row.metric.as_str()) {
            metrics.push(&row.metric);
        }
    }
    let head = ["subject"].iter().chain(keys).chain(&metrics).map(|name| (*name).to_owned());
    let mut table = Table::new(title, head);
    for row in rows.iter().filter(|row| Some(&row.metric.as_str()) == metrics.first()) {
        let key = |key: &&str| text(row.params.get(*key));
        let value = |metric: &&str| {
            let found = find(rows, &row.subject, metric, &row.params);
            found.map(ranged).unwrap_or_default()
        };
        let cells = keys.iter().map(key).chain(metrics.iter().map(value));
        table.lines.push([row.subject.clone()].into_iter().chain(cells).collect());
    }
    table
}

/// A parameter as text.
pub(super) fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        other => other.map(ToString::to_string).unwrap_or_default(),
    }
}

/// Mediated mode over the number of peers.
pub fn mediated(rows: &[Row]) -> Table {
    let title = "Mediated mode, real sockets: targets";
    let mut table = Table::new(title, ["comparison", "target", "result"]);
    let of = |metric: &'static str| {
        let own = move |row: &&Row| row.subject == mediated::VERIFYING && row.metric == metric;
        rows.iter().filter(own).filter(|row| mediated::is_of_file(row))
    };
    for (metric, limit) in [("time", AtMost(1.05)), ("coordinator's CPU time", Threshold::Any)] {
        let row = exponent_row(&of(metric).collect::<Vec<_>>(), "peers");
        line(&mut table, format!("exponent of {metric} over peers"), limit, row);
    }
    for row in rows.iter().filter(|row| row.metric == "fetches ÷ chunks") {
        let [peers, bytes, cache] =
            ["peers", "bytes", "cache"].map(|key| row.number(key).unwrap_or_default());
        let what = format!("{peers} peers, {bytes} bytes, cache {cache}: fetches ÷ chunks");
        line(&mut table, what, AtMost(1.1), unchanged(row));
    }
    let times = |subject: &'static str| {
        rows.iter().filter(move |row| row.subject == subject && row.metric == "time")
    };
    for keeping in times(mediated::KEEPING) {
        let verifying = times(mediated::VERIFYING).find(|row| row.params == keeping.params);
        let ratio = verifying.and_then(|verifying| ratio_row(keeping, verifying));
        let peers = keeping.number("peers").unwrap_or_default();
        line(
            &mut table,
            format!("{peers} peers: time with files ÷ without"),
            Threshold::Any,
            ratio,
        );
    }
    table
}

/// The memory of both sides with a large file.
pub fn memory(rows: &[Row]) -> Table {
    let mut table = Table::new("Memory with a large file", ["comparison", "target", "result"]);
    for row in rows.iter().filter(|row| row.unit == "MiB") {
        let mode = row.params.get("mode").and_then(Value::as_str).unwrap_or_default();
        let gigabytes = row.number("bytes").unwrap_or_default() / 1e9;
        let what = format!("{mode}, {gigabytes} GB: {}, MiB", row.metric);
        line(&mut table, what, AtMost(64.0), unchanged(row));
    }
    table
}
