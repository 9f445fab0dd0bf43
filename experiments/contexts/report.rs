//! The tables, computed from rows only.

mod connections;
mod cpu;
mod times;

use std::path::Path;

use anyhow::ensure;
use levada_harness::{Row, ratio_row, read_rows};

use crate::measuring::file;
use crate::table::Table;
use crate::threshold::Threshold;

/// Prints every table that the rows in `folder` allow.
pub fn print(folder: &Path) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for name in super::NAMES {
        rows.extend(read_rows(&file(folder, name))?);
    }
    ensure!(!rows.is_empty(), "{} has no rows of contexts", folder.display());
    let mut tables = times::tables(&rows);
    tables.extend([times::cache(&rows), cpu::bulk(&rows), cpu::web(&rows)]);
    tables.extend([false, true].map(|resumed| connections::table(&rows, resumed)));
    tables.push(targets(&rows));
    for table in tables {
        if !table.lines.is_empty() {
            levada_harness::print(&table.compact().to_string())?;
        }
    }
    Ok(())
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
