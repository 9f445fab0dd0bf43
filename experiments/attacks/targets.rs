//! What an honest run may take under attack, and whether it does: computed from rows alone.

use levada_harness::{Row, find, params, ratio_row};

use super::{ATTACKED, ATTACKS, IDLE};
use crate::limit::Limit;
use crate::table::{Table, short};

/// A run under attack may take so many times its idle time.
const MOST: f64 = 3.0;

/// A line for each attack that there are rows of.
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
    for (name, _) in ATTACKS {
        let at = params([("attack", name.into())]);
        let row = |subject: &str, metric: &str| find(rows, subject, metric, &at);
        let (Some(idle), Some(attacked)) = (row(IDLE, "run"), row(ATTACKED, "run")) else {
            continue;
        };
        let cell =
            |subject, metric| row(subject, metric).map_or(String::new(), |row| short(row.median));
        let ratio = ratio_row(attacked, idle);
        let judged = ratio.map_or(String::new(), |ratio| Limit::AtMost(MOST).judge(&ratio));
        table.lines.push(vec![
            format!("`{name}`"),
            cell(ATTACKED, "attack"),
            short(idle.median),
            short(attacked.median),
            short(attacked.p99),
            row(ATTACKED, "failed runs").map_or(String::new(), |row| short(mean(&row.values))),
            judged,
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

/// Of all rounds: a median would hide that a run failed.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
