//! The tables, computed from rows only.

mod connections;
mod cpu;
mod node;
mod overhead;
mod times;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use levada_harness::{Row, processors, ratio_row, read_rows};

use crate::measuring::file;
use crate::table::{Table, filled};
use crate::threshold::Threshold;

/// The name of a processor whose `machine.jsonl` is missing.
const UNKNOWN: &str = "an unknown processor";

/// Every table that the rows in `folder` allow, and those of connections of each folder within it
/// that has rows of them.
pub fn tables(folder: &Path) -> anyhow::Result<Vec<Table>> {
    let rows = rows(folder)?;
    ensure!(!rows.is_empty(), "{} has no rows of contexts", folder.display());
    let mut tables = times::tables(&rows);
    tables.extend(node::tables(&rows));
    tables.extend([times::cache(&rows), cpu::bulk(&rows, 1), cpu::bulk(&rows, 0), cpu::web(&rows)]);
    tables.extend(overhead::tables(&rows));
    let mut measured = Vec::new();
    for folder in [vec![folder.to_owned()], folders(folder)?].concat() {
        let rows = if measured.is_empty() { rows.clone() } else { self::rows(&folder)? };
        let names = processors(&folder, super::connections::NAME)?;
        let name = if names.is_empty() { UNKNOWN.to_owned() } else { names.join(", ") };
        measured.push((name, rows));
    }
    tables.push(connections::by_processor(&measured));
    for (processor, rows) in &measured {
        tables.extend([false, true].map(|resumed| connections::table(rows, resumed, processor)));
    }
    tables.extend([times::beside_tls(&rows), targets(&rows)]);
    Ok(filled(tables))
}

/// All rows in a folder.
fn rows(folder: &Path) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for name in super::NAMES {
        rows.extend(read_rows(&file(folder, name))?);
    }
    Ok(rows)
}

/// The folders within a folder that have rows of connections, in alphabetical order.
fn folders(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        all.push(entry?.path());
    }
    all.retain(|path| file(path, super::connections::NAME).exists());
    all.sort();
    Ok(all)
}

/// The title of a table with the numbers of runs and samples of its rows:
/// `5 runs of 10 connections`.
fn title<'a>(what: &str, samples: &str, rows: impl IntoIterator<Item = &'a Row>) -> String {
    let mut counts: Vec<(usize, u64)> = Vec::new();
    for row in rows {
        let runs = row.runs.max(1);
        let count = (runs, row.samples.unwrap_or(0) / runs as u64);
        if !counts.contains(&count) {
            counts.push(count);
        }
    }
    counts.sort_unstable();
    let text = |(runs, each): &(usize, u64)| {
        let plural = if *runs == 1 { "" } else { "s" };
        match each {
            0 => format!("{runs} run{plural}"),
            1 => format!("{runs} run{plural} of 1 {}", samples.trim_end_matches('s')),
            _ => format!("{runs} run{plural} of {each} {samples}"),
        }
    };
    let counts: Vec<String> = counts.iter().map(text).collect();
    if counts.is_empty() { what.to_owned() } else { format!("{what} ({})", counts.join(" or ")) }
}

/// The standard deviation of the runs' medians.
pub fn deviation(row: &Row) -> f64 {
    let count = row.values.len().max(1) as f64;
    let mean = row.values.iter().sum::<f64>() / count;
    let squares: f64 = row.values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0).max(1.0)).sqrt()
}

/// The comparisons with thresholds.
pub fn targets(rows: &[Row]) -> Table {
    let mut table = Table::new("Comparison with rivals", ["comparison", "target", "result"]);
    times::compare(&mut table, rows);
    node::compare(&mut table, rows);
    cpu::compare(&mut table, rows);
    connections::compare(&mut table, rows);
    table
}

fn line(table: &mut Table, what: &str, limit: Threshold, pair: (Option<&Row>, Option<&Row>)) {
    if let (Some(rival), Some(own)) = pair
        && let Some(ratio) = ratio_row(rival, own)
    {
        table.lines.push(vec![what.to_owned(), limit.text(), limit.evaluate(&ratio)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_harness::Params;

    fn row(runs: usize, samples: Option<u64>) -> Row {
        Row {
            experiment: "t/e".into(),
            subject: "s".into(),
            params: Params::new(),
            metric: "m".into(),
            unit: "u".into(),
            median: 1.0,
            min: 1.0,
            max: 1.0,
            p50: 1.0,
            p99: 1.0,
            p999: None,
            samples,
            runs,
            values: vec![1.0; runs],
            flags: Vec::new(),
            call: None,
        }
    }

    #[test]
    fn a_title_has_the_numbers_of_runs_and_samples_of_its_rows() {
        let rows = [row(5, Some(50)), row(3, Some(3)), row(5, Some(50))];
        let found = title("T", "connections", &rows);
        assert_eq!(found, "T (3 runs of 1 connection or 5 runs of 10 connections)");
        assert_eq!(title("T", "connections", &[row(1, None)]), "T (1 run)");
        assert_eq!(title("T", "connections", &[]), "T");
    }
}
