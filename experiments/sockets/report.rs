//! Tables of the rows.

use std::path::Path;

use levada_harness::{Row, find, ratio_row, read_rows};

use super::experiment::{
    ALL, BREAKDOWN, CONNECTIONS, CONTENDED, CORES, Experiment, NAGLE, ONE_SIDED,
};
use super::targets::NOT_MEASURED;
use super::{apps, lines, remap, scripts, targets};
use crate::measuring::file;
use crate::table::{Table, filled, median};
use crate::threshold::Threshold;

/// Every table that the rows in `dir` allow.
pub fn tables(dir: &Path) -> anyhow::Result<Vec<Table>> {
    let mut tables = Vec::new();
    for experiment in ALL {
        let rows = read_rows(&file(dir, experiment.name))?;
        tables.push(table(experiment, &rows));
        if experiment.name == CONNECTIONS.name {
            tables.push(connects(&rows));
        }
        if experiment.name == BREAKDOWN.name {
            tables.push(lines::table(&rows));
        }
    }
    type Tabulate = fn(&[Row]) -> Table;
    let others: [(&str, Tabulate); 4] = [
        (scripts::FORK, |rows| scripts::table(scripts::FORK, rows)),
        (scripts::IDLE, |rows| scripts::table(scripts::IDLE, rows)),
        (remap::NAME, remap::table),
        (apps::NAME, apps::table),
    ];
    for (name, table) in others {
        tables.push(table(&read_rows(&file(dir, name))?));
    }
    tables.push(targets::table(dir)?);
    Ok(filled(tables))
}

/// connect(2) alone, over the exchanges after it.
fn connects(rows: &[Row]) -> Table {
    const RATIOS: [(&str, &str); 2] = [("tcp", "fast"), ("tcp", "fast/direct")];
    const CONNECT: Experiment = Experiment {
        title: "connect(2) alone, µs",
        metrics: &[("connect", "µs")],
        ratios: &RATIOS,
        ..CONNECTIONS
    };
    table(&CONNECT, rows)
}

/// The subjects' first metrics over the condition, and their ratios. Experiments on the parts of a
/// whole have a line for each metric.
pub fn table(experiment: &Experiment, rows: &[Row]) -> Table {
    let names: Vec<String> = experiment.subjects.iter().map(ToString::to_string).collect();
    let parts = [BREAKDOWN.name, ONE_SIDED.name, CONTENDED.name, NAGLE.name];
    let has_parts = parts.contains(&experiment.name);
    let conditions = has_parts.then_some("what").into_iter().chain([experiment.condition]);
    let head = conditions.map(str::to_owned).chain(names.iter().map(|name| format!("`{name}`")));
    let ratios = experiment.ratios.iter().map(|(a, b)| format!("`{a}` ÷ `{b}`"));
    let mut table = Table::new(experiment.title, head.chain(ratios));
    let shown = if has_parts { experiment.metrics.len() } else { 1 };
    for value in experiment.values {
        for (metric, unit) in &experiment.metrics[..shown] {
            let row = |subject: &str| find(rows, subject, metric, &experiment.at(*value));
            let value_of = |name: &String| row(name).map_or(String::new(), median);
            let ratio = |(a, b): &(&str, &str)| {
                let ratio = row(a).zip(row(b)).and_then(|(a, b)| ratio_row(a, b));
                ratio.map_or(String::new(), |ratio| Threshold::Any.evaluate(&ratio))
            };
            let values = names.iter().map(value_of);
            let mut cells: Vec<String> =
                values.chain(experiment.ratios.iter().map(ratio)).collect();
            if cells.iter().all(String::is_empty) {
                // Rows of some values are a quick run's, unless the others need more cores.
                if !rows.is_empty() && experiment.name != CORES.name {
                    continue;
                }
                cells[0] = NOT_MEASURED.into();
            }
            let first = has_parts.then(|| described(metric, unit)).into_iter();
            table.lines.push(first.chain([value.to_string()]).chain(cells).collect());
        }
    }
    table
}

/// A metric with its unit, unless the title of the table has that.
fn described(metric: &str, unit: &str) -> String {
    if ["ns", "1"].contains(&unit) { metric.to_owned() } else { format!("{metric}, {unit}") }
}
