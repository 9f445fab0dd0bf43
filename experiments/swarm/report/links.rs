//! The tables of one file to several clients.

use levada_harness::{Row, find, ratio_row};

use super::super::links::{LEVADA, LIBTORRENT, MEDIATED, TUNED};
use super::{line, real, unchanged};
use crate::table::{Table, ranged};
use crate::threshold::Threshold::{self, AtLeast, AtMost};

/// The time without a blackout.
const WHOLE: u64 = 0;

/// The medians and ranges, a line for each subject of a scenario.
pub(super) fn measured(rows: &[Row]) -> Table {
    let metrics = [
        "time",
        "time ÷ bound",
        "second group's time ÷ bound",
        "time ÷ uplink bound",
        "first ÷ last",
        "source ÷ file",
    ];
    let head = ["scenario", "subject"].into_iter().chain(metrics).map(str::to_owned);
    let mut table = Table::new("One file to ten clients, in seconds", head);
    for row in rows.iter().filter(|row| row.metric == "time") {
        let cell = |metric: &&str| {
            let found = find(rows, &row.subject, metric, &row.params);
            found.map(ranged).unwrap_or_default()
        };
        let first = [scenario(row), format!("`{}`", row.subject)];
        table.lines.push(first.into_iter().chain(metrics.iter().map(cell)).collect());
    }
    table
}

/// The comparisons, with thresholds.
pub fn links(rows: &[Row]) -> Table {
    let title = "One file to ten clients: targets";
    let mut table = Table::new(title, ["comparison", "target", "result"]);
    for own in rows.iter().filter(|row| row.metric == "time" && row.subject == LEVADA) {
        let mut add = |what: &str, limit: Threshold, ratio: Option<Row>| {
            line(&mut table, format!("{}: {what}", scenario(own)), limit, ratio);
        };
        let of = |metric: &str| find(rows, LEVADA, metric, &own.params).cloned();
        let rival = |name: &str| {
            let rival = find(rows, name, "time", &own.params);
            rival.and_then(|rival| ratio_row(own, rival))
        };
        let to_bound = of("time ÷ bound");
        match name(own).as_str() {
            "equal" => {
                add("time ÷ bound", AtMost(1.25), to_bound);
                let mediated = find(rows, MEDIATED, "time ÷ uplink bound", &own.params).cloned();
                add("mediated: time ÷ uplink bound", AtMost(1.08), mediated);
                for (name, limit) in [(LIBTORRENT, 0.55), (TUNED, 1.0)] {
                    add(&format!("time ÷ `{name}`"), AtMost(limit), rival(name));
                }
                add("source ÷ file", AtMost(1.1), of("source ÷ file"));
                add("first ÷ last", AtLeast(0.9), of("first ÷ last"));
            }
            "blackout" => {
                let blackout = own.number("blackout_s").unwrap_or_default();
                if let Some(delay) = delay(rows, own).filter(|_| blackout > 0.0) {
                    add("later than without, beyond the blackout, s", AtMost(4.0), Some(delay));
                }
            }
            name => {
                let limit = AtMost(if name == "unreachable" { 1.3 } else { 1.2 });
                add("time ÷ bound", limit, to_bound);
                let second = of("second group's time ÷ bound");
                add("second group's time ÷ bound", AtMost(1.2), second);
                for name in [LIBTORRENT, TUNED] {
                    add(&format!("time ÷ `{name}`"), AtMost(1.0), rival(name));
                }
            }
        }
    }
    table
}

/// How much later than without a blackout all have the file, beyond the length of the blackout.
fn delay(rows: &[Row], own: &Row) -> Option<Row> {
    let mut at = own.params.clone();
    at.insert("blackout_s".to_owned(), WHOLE.into());
    let without = find(rows, LEVADA, "time", &at)?.median + own.number("blackout_s")?;
    let values = own.values.iter().map(|time| time - without).collect();
    unchanged(&Row { values, ..own.clone() })
}

fn name(row: &Row) -> String {
    real::text(row.params.get("scenario"))
}

/// The scenario, and what it varies.
fn scenario(row: &Row) -> String {
    let varied =
        [("chunk_kib", "chunks of", "KiB"), ("seed", "seed", ""), ("blackout_s", "for", "s")];
    let more = varied.iter().filter_map(|(key, before, after)| {
        let value = row.params.get(*key)?;
        Some(format!(", {before} {value} {after}").trim_end().to_owned())
    });
    [name(row)].into_iter().chain(more).collect()
}
