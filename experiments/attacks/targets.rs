//! The targets of an honest run under attack, computed from rows only.

use levada_harness::{Row, find, params, ratio_row};

use super::{ATTACKED, ATTACKS, IDLE};
use crate::table::{Table, median, short};
use crate::threshold::Threshold;

/// The highest ratio of a run's time under attack to its idle time.
const MOST: f64 = 3.0;

/// A line for each attack with rows.
pub fn table(rows: &[Row]) -> Table {
    let head = [
        "attack",
        "done",
        "run idle, ms",
        "run attacked, ms",
        "p99",
        "failed, %, wanted 0",
        "ratio, wanted ≤ 3",
        "healthz idle, ms",
        "healthz attacked, ms",
        "most memory, MiB",
        "idle",
        "memory afterwards, MiB",
        "log, kB",
    ];
    let mut table = Table::new("An honest run while the node is attacked", head);
    for (name, ..) in ATTACKS {
        let at = params([("attack", name.into())]);
        let row = |subject: &str, metric: &str| find(rows, subject, metric, &at);
        let (Some(idle), Some(attacked)) = (row(IDLE, "run"), row(ATTACKED, "run")) else {
            continue;
        };
        let cell = |subject, metric| row(subject, metric).map_or(String::new(), median);
        let ratio = ratio_row(attacked, idle);
        let verdict = ratio.map_or(String::new(), |ratio| Threshold::AtMost(MOST).evaluate(&ratio));
        table.lines.push(vec![
            format!("`{name}`"),
            cell(ATTACKED, "attack"),
            median(idle),
            median(attacked),
            short(attacked.p99),
            row(ATTACKED, "failed runs").map_or(String::new(), |row| short(mean(&row.values))),
            verdict,
            cell(IDLE, "healthz"),
            cell(ATTACKED, "healthz"),
            cell(ATTACKED, "most memory"),
            cell(IDLE, "most memory"),
            cell(ATTACKED, "memory afterwards"),
            cell(ATTACKED, "log"),
        ]);
    }
    table
}

/// The mean of all rounds: a median would hide a single failed run.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
