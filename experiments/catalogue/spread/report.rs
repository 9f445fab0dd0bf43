//! The targets, computed from rows only.

use levada_harness::{Params, Row, find, ratio_row};

use super::super::levada;
use super::super::objects::Object;
use super::super::saturation::CONDITIONAL;
use super::super::sweep::Requests;
use super::conditions::{ENGINE, PUBLISHERS, SHARED, at};
use super::{faults, noticed, publishing, reads, start, verdaccio, visible};
use crate::table::Table;
use crate::threshold::Threshold::{self, Any, AtLeast, AtMost};

/// All figures that the rows allow.
pub fn table(rows: &[Row]) -> Table {
    let table = Table::new("A catalogue on several nodes", ["figure", "target", "here"]);
    let mut report = Report { rows, table };
    report.reads();
    report.nodes();
    report.publishing();
    report.start();
    report.faults();
    report.table
}

struct Report<'a> {
    rows: &'a [Row],
    table: Table,
}

impl Report<'_> {
    fn line(&mut self, what: impl Into<String>, threshold: Threshold, row: Option<Row>) {
        if let Some(row) = row {
            let value = threshold.evaluate(&row);
            self.table.lines.push(vec![what.into(), threshold.text(), value]);
        }
    }

    fn value(&self, subject: &str, metric: &str, at: &Params) -> Option<Row> {
        find(self.rows, subject, metric, at).cloned()
    }

    fn ratio(&self, metric: &str, subjects: (&str, &str), at: &Params) -> Option<Row> {
        let row = |subject| find(self.rows, subject, metric, at);
        ratio_row(row(subjects.0)?, row(subjects.1)?)
    }

    fn reads(&mut self) {
        for object in Object::ALL {
            for requests in Requests::ALL {
                let at = reads::reading(object, requests);
                let noun = if requests == Requests::One { "request" } else { "requests" };
                let what = format!("{}, {} {noun} per connection", object.name(), requests.name());
                let ratio = self.ratio(reads::RATE, (SHARED, levada::NAME), &at);
                let line = format!("reads, shared ÷ own store: {what}");
                self.line(line, AtLeast(0.97), ratio);
                let ratio = self.ratio(reads::RATE, (SHARED, verdaccio::NAME), &at);
                self.line(format!("reads, shared ÷ verdaccio: {what}"), Any, ratio);
                let both = [SHARED, levada::NAME].map(|name| format!("{name}{CONDITIONAL}"));
                let ratio = self.ratio(reads::RATE, (&both[0], &both[1]), &at);
                self.line("reads, shared ÷ own store: not modified (304)", AtLeast(0.97), ratio);
            }
        }
    }

    fn nodes(&mut self) {
        for (part, share) in reads::SHARES {
            let at = at(part, [("share", share.into())]);
            let how = if part == reads::BALANCED { "behind nginx" } else { "asked directly" };
            let percent = share * 100.0;
            for (count, threshold) in [(2, Any), (reads::MOST, AtLeast(2.7))] {
                let both = (reads::nodes(count), reads::nodes(1));
                let ratio = self.ratio(reads::RATE, (&both.0, &both.1), &at);
                let what =
                    format!("reads of {count} nodes ÷ one, {percent:.0} % of a core each, {how}");
                self.line(what, threshold, ratio);
            }
            let busy = self.value(&reads::nodes(reads::MOST), reads::BALANCER, &at);
            self.line("the balancer's part of its core with three nodes", AtMost(0.8), busy);
        }
    }

    fn publishing(&mut self) {
        for (load, p99) in visible::LOADS.into_iter().zip([20.0, 60.0]) {
            let at = visible::with(load);
            for (metric, threshold) in [(visible::P50, Any), (visible::P99, AtMost(p99))] {
                let what = format!("{metric}, {load}, ms");
                let value = self.value(SHARED, metric, &at);
                self.line(what, threshold, value);
            }
        }
        let at = at(publishing::PART, [("publishers", PUBLISHERS.into())]);
        let value = self.value(SHARED, publishing::RATE, &at);
        self.line("publications per second, three nodes, 16 publishers", Any, value);
        let ratio = self.ratio(publishing::RATE, (SHARED, ENGINE), &at);
        self.line("the same ÷ the engine's own messages", AtLeast(0.5), ratio);
        let syncs = self.value(ENGINE, publishing::SYNCS, &at);
        self.line("synced writes of 4 KiB to the disk per second, one after the other", Any, syncs);
    }

    fn start(&mut self) {
        let many = at(start::PART, [("descriptors", start::MANY.into())]);
        for (metric, threshold) in
            [(start::NEW, AtMost(8.0)), (start::SEARCH, Any), (start::AGAIN, Any)]
        {
            let value = self.value(SHARED, metric, &many);
            self.line(format!("100,000 descriptors: {metric}, s"), threshold, value);
        }
        let long = at(start::PACKAGE, [("bytes", start::LONG.into())]);
        for (metric, most) in [(start::UP, 8.0), (start::DOWN, 3.0)] {
            let value = self.value(SHARED, metric, &long);
            self.line(format!("256 MiB: {metric}, s"), AtMost(most), value);
        }
    }

    fn faults(&mut self) {
        for (part, metric, threshold) in [
            (faults::LEADER, faults::STOPPED, AtMost(10.0)),
            (faults::LEADER, faults::NEWS, AtMost(15.0)),
            (faults::LEADER, noticed::FAILED, AtMost(0.0)),
            (faults::LEADER, noticed::READS, Any),
            (faults::ALL, faults::REFUSED, AtMost(3.0)),
            (faults::ALL, noticed::FAILED, AtMost(0.0)),
            (faults::ALL, noticed::READS, Any),
            (faults::CUT, faults::REFUSED, AtMost(3.0)),
            (faults::CUT, faults::STOPPED, Any),
            (faults::CUT, faults::CAUGHT_UP, Any),
            (faults::CUT, noticed::FAILED, AtMost(0.0)),
            (faults::CUT, noticed::READS, Any),
        ] {
            let value = self.value(SHARED, metric, &at(part, []));
            let unit = if value.as_ref().is_some_and(|row| row.unit == "s") { ", s" } else { "" };
            self.line(format!("{part}: {metric}{unit}"), threshold, value);
        }
    }
}
