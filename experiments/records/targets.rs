//! The times of the lists beside the wanted ones, computed from rows only.

use std::collections::BTreeSet;

use levada_harness::{Row, find, params};

use super::{ENTRIES, LISTS, SUBJECT};
use crate::table::{Table, short};

/// The longest wanted time of a list, in milliseconds.
const MOST: f64 = 100.0;

/// A line for each list with rows, and two columns for each number of entries.
pub fn table(rows: &[Row]) -> Table {
    let sizes: BTreeSet<u64> =
        rows.iter().filter_map(|row| row.params.get(ENTRIES)?.as_u64()).collect();
    let mut head = vec!["list".to_owned()];
    for size in &sizes {
        head.extend([format!("{size} entries, ms"), "p99, wanted ≤ 100".to_owned()]);
    }
    let mut table = Table::new("Lists over the number of entries in the audit log", head);
    for (name, _) in LISTS {
        let mut line = vec![format!("`{name}`")];
        for size in &sizes {
            let found = find(rows, SUBJECT, name, &params([(ENTRIES, (*size).into())]));
            line.extend(match found {
                Some(row) => {
                    let mark = if row.p99 <= MOST { "✓" } else { "✗" };
                    [short(row.median), format!("{} {mark}", short(row.p99))]
                }
                None => [String::new(), String::new()],
            });
        }
        table.lines.push(line);
    }
    table
}
