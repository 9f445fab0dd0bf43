//! The targets of a catalogue, relative to nginx and absolute, computed from rows only. Ratios are
//! medians of pairs of runs of the same round.

use levada_harness::{Params, Row, find, params, ratio_row};

use super::large;
use super::load::RTTS;
use super::objects::Object;
use super::saturation::{CONDITIONAL, HALF, PART, PUBLICATIONS, PUBLISHED, PUBLISHING, at};
use super::sweep::{self, MOST, Requests};
use super::{levada, nginx, wrk};
use crate::table::Table;
use crate::threshold::Threshold::{self, AtLeast, AtMost};

/// The least share of the demanded publications for a valid measurement of reading meanwhile.
const DONE: f64 = 0.98;

/// All comparisons that the rows allow.
pub fn table(rows: &[Row]) -> Table {
    let head = ["comparison", "target", "loopback", "0.56 ms RTT"];
    let table = Table::new("Targets of a catalogue", head);
    let mut targets = Targets { rows, table };
    targets.saturation();
    targets.half();
    targets.conditional();
    targets.errors();
    targets.publishing();
    targets.large();
    targets.table
}

struct Targets<'a> {
    rows: &'a [Row],
    table: Table,
}

impl Targets<'_> {
    /// Adds a line, unless `value` returns `None` for all round trips.
    fn line(&mut self, what: &str, threshold: Threshold, value: impl Fn(u64) -> Option<Row>) {
        let cells = RTTS.map(|rtt| value(rtt).map(|row| threshold.evaluate(&row)));
        if cells.iter().any(Option::is_some) {
            let mut line = vec![what.to_owned(), threshold.text()];
            line.extend(cells.into_iter().map(Option::unwrap_or_default));
            self.table.lines.push(line);
        }
    }

    fn saturation(&mut self) {
        let rows = self.rows;
        for (object, requests, least) in [
            (Object::Descriptor, Requests::Many, 1.2),
            (Object::Descriptor, Requests::One, 0.95),
            (Object::Package, Requests::Many, 0.9),
            (Object::Package, Requests::One, 0.9),
        ] {
            for (metric, by) in [("response rate", ""), (wrk::RATE, ", by wrk")] {
                let what = words(&format!("highest answer rate{by}"), object, requests);
                self.line(&what, AtLeast(least), |rtt| {
                    let at = at(PART, rtt, object, requests);
                    pair(rows, metric, (levada::NAME, nginx::NAME), &at)
                });
            }
        }
    }

    fn half(&mut self) {
        let rows = self.rows;
        for object in Object::ALL {
            for requests in Requests::ALL {
                let what = words("p99 at half of nginx's saturation", object, requests);
                self.line(&what, AtMost(1.1), |rtt| {
                    let at = at(HALF, rtt, object, requests);
                    pair(rows, "response time p99", (levada::NAME, nginx::NAME), &at)
                });
            }
        }
    }

    fn conditional(&mut self) {
        let rows = self.rows;
        let what = "highest answer rate: not modified (304) ÷ descriptor";
        let conditional = levada::NAME.to_owned() + CONDITIONAL;
        self.line(what, AtLeast(1.0), |rtt| {
            let at = at(PART, rtt, Object::Descriptor, Requests::Many);
            pair(rows, "response rate", (&conditional, levada::NAME), &at)
        });
    }

    fn errors(&mut self) {
        let rows = self.rows;
        for object in Object::ALL {
            let what = format!(
                "errors in all runs up to {MOST} connections per second, {}",
                object.name()
            );
            self.line(&what, AtMost(0.0), |rtt| errors(rows, rtt, object));
        }
    }

    fn publishing(&mut self) {
        let rows = self.rows;
        let at = |rtt| at(PUBLISHING, rtt, Object::Descriptor, Requests::Many);
        let what = format!(
            "p99 of reading at half load: with {PUBLICATIONS} publications per second ÷ without"
        );
        self.line(&what, AtMost(1.5), |rtt| {
            pair(rows, "response time p99", (PUBLISHED, levada::NAME), &at(rtt))
        });
        let least = DONE * f64::from(PUBLICATIONS);
        self.line("publications per second", AtLeast(least), |rtt| {
            find(rows, PUBLISHED, "published", &at(rtt)).cloned()
        });
    }

    fn large(&mut self) {
        let rows = self.rows;
        // The targets are for this number: with fewer, as in a quick run, the constant overhead per
        // descriptor is greater.
        let count = large::MANY;
        let at = large::at(Some(large::MANY));
        for (what, metric, most) in [
            ("p99 of searches, ms", "response time p99", 10.0),
            ("start-up, s", "start-up", 5.0),
            (
                "memory per descriptor beyond its text, B",
                "memory per descriptor beyond its text",
                2048.0,
            ),
        ] {
            let what = format!("{count} descriptors: {what}");
            self.line(&what, AtMost(most), |rtt| {
                find(rows, levada::NAME, metric, &at).filter(|_| rtt == 0).cloned()
            });
        }
    }
}

fn words(what: &str, object: Object, requests: Requests) -> String {
    let connection = match requests {
        Requests::One => "one request per connection",
        Requests::Many => "keep-alive",
    };
    format!("{what}, {}, {connection}: `levada` ÷ `nginx`", object.name())
}

/// The ratios of two subjects' values, pair by pair.
fn pair(rows: &[Row], metric: &str, (a, b): (&str, &str), at: &Params) -> Option<Row> {
    ratio_row(find(rows, a, metric, at)?, find(rows, b, metric, at)?)
}

/// The errors of all runs of a sweep with one request per connection; each value is the sum at one
/// rate. `None` if the sweep did not reach [`MOST`].
fn errors(rows: &[Row], rtt_us: u64, object: Object) -> Option<Row> {
    let at = params([
        ("part", sweep::PART.into()),
        ("rtt_us", rtt_us.into()),
        ("object", object.name().into()),
        ("requests", Requests::One.name().into()),
    ]);
    let of_sweep = rows.iter().filter(|row| {
        row.subject == levada::NAME
            && row.metric == "errors"
            && at.iter().all(|(name, value)| row.params.get(name) == Some(value))
            && row.number("rate").is_some_and(|rate| rate <= f64::from(MOST))
    });
    let each: Vec<&Row> = of_sweep.collect();
    if !each.iter().any(|row| row.number("rate") == Some(f64::from(MOST))) {
        return None;
    }
    let sum = |row: &&Row| row.values.iter().sum::<f64>();
    let values: Vec<f64> = each.iter().map(sum).collect();
    let max = values.iter().copied().fold(0.0, f64::max);
    let median = values.iter().sum();
    each.first().map(|&row| Row { median, min: 0.0, max, values, ..row.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: &str, metric: &str, at: &Params, values: &[f64]) -> Row {
        let row = serde_json::json!({
            "experiment": "e", "subject": subject, "params": at, "metric": metric, "unit": "u",
            "median": values[0], "min": values[0], "max": values[0], "p50": 0.0, "p99": 0.0,
            "runs": values.len(), "values": values,
        });
        serde_json::from_value(row).unwrap()
    }

    fn line(rows: &[Row], beginning: &str) -> Vec<String> {
        let lines = table(rows).lines;
        lines.into_iter().find(|line| line[0].starts_with(beginning)).unwrap()[1..].to_vec()
    }

    #[test]
    fn rates_are_compared_pair_by_pair() {
        let at = at(PART, 0, Object::Descriptor, Requests::Many);
        let rows = [
            row("levada", "response rate", &at, &[130.0, 65.0]),
            row("nginx", "response rate", &at, &[100.0, 50.0]),
            row("levada/304", "response rate", &at, &[117.0, 58.5]),
        ];
        let line = |beginning: &str| line(&rows, beginning);
        let most = "highest answer rate";
        let descriptor = ["≥ 1.2", "1.30 ✓ (1.30 … 1.30)", ""];
        assert_eq!(line(&format!("{most}, descr")), descriptor);
        let conditional = ["≥ 1", "0.900 ✗ (0.900 … 0.900)", ""];
        assert_eq!(line(&format!("{most}: not")), conditional);
    }

    #[test]
    fn errors_up_to_4000_per_second_miss_the_target() {
        let at = |rate: u32| {
            params([
                ("part", "sweep".into()),
                ("rtt_us", 560.into()),
                ("object", "package".into()),
                ("requests", "one".into()),
                ("rate", rate.into()),
            ])
        };
        let mut rows = vec![
            row("levada", "errors", &at(4000), &[0.0, 0.0]),
            row("levada", "errors", &at(8000), &[9.0, 9.0]),
        ];
        let what = "errors in all runs up to 4000 connections per second, package";
        assert_eq!(line(&rows, what)[2], "0.000 ✓ (0.000 … 0.000)");
        rows.push(row("levada", "errors", &at(1000), &[0.0, 1.0]));
        assert_eq!(line(&rows, what)[2], "1.00 ✗ (0.000 … 1.00)");
        assert!(table(&rows[1..]).lines.is_empty(), "4000 was not measured");
    }

    #[test]
    fn too_few_publications_miss_the_target() {
        let at = at(PUBLISHING, 0, Object::Descriptor, Requests::Many);
        let rows = [row(PUBLISHED, "published", &at, &[30.0])];
        let expected = ["≥ 49", "30.0 ✗ (30.0 … 30.0)", ""];
        assert_eq!(line(&rows, "publications per second"), expected);
    }

    #[test]
    fn without_rows_the_table_is_empty() {
        assert!(table(&[]).lines.is_empty());
    }
}
