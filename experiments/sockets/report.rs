//! Tables of the rows.

use std::path::Path;

use levada_harness::{Row, find, ratio_row, read_rows};

use super::experiment::{ALL, BREAKDOWN, Experiment, ONE_SIDED};
use super::{apps, remap, scripts, targets};
use crate::measuring::file;
use crate::table::{Table, filled, median};
use crate::threshold::Threshold;

/// Every table that the rows in `dir` allow.
pub fn tables(dir: &Path) -> anyhow::Result<Vec<Table>> {
    let mut tables = Vec::new();
    for experiment in ALL {
        tables.push(table(experiment, &read_rows(&file(dir, experiment.name))?));
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

/// The subjects' first metrics over the condition, and their ratios. Experiments on the parts of a
/// whole have a line for each metric.
pub fn table(experiment: &Experiment, rows: &[Row]) -> Table {
    let names: Vec<String> = experiment.subjects.iter().map(ToString::to_string).collect();
    let has_parts = [BREAKDOWN.name, ONE_SIDED.name].contains(&experiment.name);
    let conditions = has_parts.then_some("what").into_iter().chain([experiment.condition]);
    let head = conditions.map(str::to_owned).chain(names.iter().map(|name| format!("`{name}`")));
    let ratios = experiment.ratios.iter().map(|(a, b)| format!("`{a}` ÷ `{b}`"));
    let mut table = Table::new(experiment.title, head.chain(ratios));
    let shown = if has_parts { experiment.metrics.len() } else { 1 };
    for value in experiment.values {
        for (metric, _) in &experiment.metrics[..shown] {
            let row = |subject: &str| find(rows, subject, metric, &experiment.at(*value));
            let value_of = |name: &String| row(name).map_or(String::new(), median);
            let ratio = |(a, b): &(&str, &str)| {
                let ratio = row(a).zip(row(b)).and_then(|(a, b)| ratio_row(a, b));
                ratio.map_or(String::new(), |ratio| Threshold::Any.evaluate(&ratio))
            };
            let values = names.iter().map(value_of);
            let cells: Vec<String> = values.chain(experiment.ratios.iter().map(ratio)).collect();
            let first = has_parts.then(|| (*metric).to_owned()).into_iter();
            if cells.iter().any(|cell| !cell.is_empty()) {
                table.lines.push(first.chain([value.to_string()]).chain(cells).collect());
            }
        }
    }
    table
}
