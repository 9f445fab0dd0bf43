//! Tables of the rows.

use std::path::Path;

use levada_harness::{Row, find, ratio_row, read_rows};

use super::subject::SUBJECTS;
use super::{LATENCY, THROUGHPUT, conditions, lengths};
use crate::measuring::file;
use crate::table::{Table, short};

/// Prints the tables of the rows in `dir`.
pub fn print(dir: &Path) -> anyhow::Result<()> {
    for (name, table) in [(LATENCY, latency as fn(&[Row]) -> Table), (THROUGHPUT, throughput)] {
        let path = file(dir, name);
        if path.exists() {
            levada_harness::print(&table(&read_rows(&path)?).to_string())?;
        }
    }
    Ok(())
}

/// Round trips, and those of TCP divided by those of fast sockets and of the ring.
pub fn latency(rows: &[Row]) -> Table {
    let pairs = [
        ("tcp", "fast"),
        ("tcp/spinning", "fast/spinning"),
        ("tcp", "fast/sleeping"),
        ("fast", "ring/spinning"),
        ("tcp", "ring/sleeping"),
    ];
    over_lengths(rows, "Round trip, µs", "round trip", &pairs)
}

/// Rates, and those of fast sockets divided by those of the others.
pub fn throughput(rows: &[Row]) -> Table {
    let pairs =
        [("fast", "tcp"), ("fast", "ring/spinning"), ("fast", "unix"), ("ring/spinning", "tcp")];
    over_lengths(rows, "One direction, MB/s", "rate", &pairs)
}

fn over_lengths(rows: &[Row], title: &str, metric: &str, pairs: &[(&str, &str)]) -> Table {
    let names = SUBJECTS.map(|subject| subject.to_string());
    let head = ["bytes".to_owned()].into_iter().chain(names.iter().map(|name| format!("`{name}`")));
    let mut table =
        Table::new(title, head.chain(pairs.iter().map(|(a, b)| format!("`{a}` ÷ `{b}`"))));
    for length in lengths(false) {
        let row = |subject: &str| find(rows, subject, metric, &conditions(length));
        let value = |name: &String| row(name).map_or(String::new(), |row| short(row.median));
        let ratio = |(a, b): &(&str, &str)| {
            let ratio = row(a).zip(row(b)).and_then(|(a, b)| ratio_row(a, b));
            ratio.map_or(String::new(), |ratio| {
                format!("{} ({} … {})", short(ratio.median), short(ratio.min), short(ratio.max))
            })
        };
        let cells: Vec<String> = names.iter().map(value).chain(pairs.iter().map(ratio)).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            table.lines.push([length.to_string()].into_iter().chain(cells).collect());
        }
    }
    table
}
