//! The table of the lab's accuracy, from the rows of `cargo xp lab --conformance`.

use std::path::Path;

use levada_harness::{Row, read_rows};

use crate::table::{Table, filled, median, short};

/// The table of the rows in a folder.
pub fn tables(folder: &Path) -> anyhow::Result<Vec<Table>> {
    let rows = read_rows(&folder.join("conformance.jsonl"))?;
    let head = ["backend", "figure", "condition", "median", "least", "greatest"];
    let mut table = Table::new("Accuracy of the lab", head);
    for row in rows {
        let figure = format!("{}, {}", row.metric, row.unit);
        let cells = [median(&row), short(row.min), short(row.max)];
        table.lines.push(
            [row.subject.clone(), figure, condition(&row)].into_iter().chain(cells).collect(),
        );
    }
    Ok(filled([table]))
}

fn condition(row: &Row) -> String {
    let words = [("hops", "hops"), ("mbit", "Mbit/s"), ("rtt_ms", "ms round trip")];
    let words = words.into_iter().chain([("delay_ms", "ms one way")]);
    let condition = |(name, unit)| Some(format!("{} {unit}", row.params.get(name)?));
    words.filter_map(condition).collect::<Vec<_>>().join(", ")
}
