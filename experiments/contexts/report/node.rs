//! The table of times with whole programs.

use levada_harness::{Row, find, ratio_row};

use super::{deviation, line, title};
use crate::contexts::first_byte::cell;
use crate::contexts::latency::{Cell, HYBRID};
use crate::contexts::node::{LEVADA, MIDDLEBOXES, NEW, OPEN, RATES, conditions};
use crate::table::{Table, mark, median};
use crate::threshold::Threshold::Any;

/// A table for an open session, and one from nothing; the second also has the channel alone, as
/// `first-byte` has measured it.
pub fn tables(rows: &[Row]) -> [Table; 2] {
    let open = "ms to the first byte over an open session";
    [table(rows, open, OPEN, false), table(rows, "ms to the first byte, from nothing", NEW, true)]
}

/// The comparisons, of which none has a threshold.
pub fn compare(table: &mut Table, rows: &[Row]) {
    for rate in RATES {
        let at = conditions(rate, 1);
        let row = |subject: &str| find(rows, subject, OPEN, &at);
        let what = format!(
            "first byte with whole programs, one middlebox, {rate} Mbit/s, session open ÷ `e2e`"
        );
        line(table, &what, Any, (row(LEVADA), row("e2e")));
    }
}

fn table(rows: &[Row], what: &str, metric: &str, with_channel: bool) -> Table {
    let head = ["Mbit/s", "middleboxes", "measured", "plain", "e2e", "levada", "÷ `e2e`"];
    let mut table = Table::new("", head);
    let mut used = Vec::new();
    for rate in RATES {
        for middleboxes in MIDDLEBOXES {
            let node = conditions(rate, middleboxes);
            let channel = Cell { middleboxes, ..cell(rate) }.params();
            // Sessions of nodes have the hybrid key encapsulation, too.
            let own = HYBRID.to_string();
            let of_node = ("node", metric, LEVADA, &node);
            let of_channel = ("channel", "first byte", own.as_str(), &channel);
            let all = [Some(of_node), with_channel.then_some(of_channel)];
            for (measured, metric, own, at) in all.into_iter().flatten() {
                let found = ["plain", "e2e", own].map(|name| find(rows, name, metric, at));
                let [Some(plain), Some(e2e), Some(own)] = found else { continue };
                let mut line = vec![rate.to_string(), middleboxes.to_string(), measured.to_owned()];
                let time = |row: &Row| format!("{} ± {:.1}", median(row), deviation(row));
                line.extend([plain, e2e, own].map(time));
                let ratio =
                    ratio_row(own, e2e).map(|ratio| format!("{:.3}{}", ratio.median, mark(&ratio)));
                line.push(ratio.unwrap_or_default());
                table.lines.push(line);
                used.extend([plain, e2e, own]);
            }
        }
    }
    let is_of_node = |line: &Vec<String>| line[2] == "node";
    if !table.lines.iter().any(is_of_node) {
        table.lines.clear();
    }
    table.title = title(what, "connections", used);
    table
}
