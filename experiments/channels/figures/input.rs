//! The figure of input latency, which Capone announces and lacks.

use levada_harness::{Axis, Figure, Panel, Row, Scale, Series, Stroke, find, params};

use super::measured;
use crate::channels::input::{CONGESTION, LEVADA, RATES, TCP};
use crate::channels::throughput::RTTS;

/// The distances within one condition between rates, and at each rate between subjects.
const STEP: f64 = 1.0 / 3.0;
const APART: f64 = 0.09;

/// p50, p99 and p99.9 under every condition, of Levada and TCP.
pub fn figure(rows: &[Row]) -> Figure {
    Figure {
        title: "Latency of input events on a link of 100 Mbit/s".into(),
        columns: 1,
        size: (1000, 290),
        panels: measured(rows, "rtt_ms", RTTS).map(|rtt| panel(rows, rtt)).collect(),
    }
}

fn panel(rows: &[Row], rtt: u64) -> Panel {
    let mut groups = Vec::new();
    let mut ticks = Vec::new();
    let names = ["Levada, one connection", "TCP, a connection each"];
    let mut subjects = [Marks::new(names[0], 0), Marks::new(names[1], 1)];
    let conditions = ["idle", "bulk"].map(|load| CONGESTION.map(|congestion| (load, congestion)));
    for (group, (load, congestion)) in conditions.into_iter().flatten().enumerate() {
        let words = if load == "idle" { "idle" } else { "beside bulk" };
        groups.push((group as f64, format!("{words}, {congestion}")));
        for (number, rate) in RATES.into_iter().enumerate() {
            let x = group as f64 + (number as f64 - 1.0) * STEP * 0.8;
            let link = [("rtt_ms", rtt.into()), ("congestion", congestion.into())];
            let [rtt, congestion] = link;
            let at = params([rtt, congestion, ("rate_hz", rate.into()), ("load", load.into())]);
            for (subject, name, side) in [(0, LEVADA, -0.5), (1, TCP, 0.5)] {
                let Some(row) = find(rows, name, "latency", &at) else { continue };
                subjects[subject].add(x + side * APART, row);
                if name == LEVADA {
                    ticks.push((x, format!("{rate} Hz")));
                }
            }
        }
    }
    let mut x = Axis::new("", Scale::Linear);
    x.range = Some((-0.5, 3.5));
    x.ticks = ticks;
    let mut series: Vec<Series> = subjects.into_iter().flat_map(|subject| subject.series).collect();
    let way = vec![(-0.5, rtt as f64 / 2.0), (3.5, rtt as f64 / 2.0)];
    let name = "the link's delay".to_owned();
    if rtt > 0 {
        series.insert(0, Series { name, colour: 0, stroke: Stroke::Limit, points: way });
    }
    let y = Axis::new("latency, ms", Scale::Log);
    Panel { title: format!("{rtt} ms RTT"), x, y, series, groups }
}

/// The marks of one subject.
pub struct Marks {
    /// The span, p50, p99 and p99.9.
    pub series: [Series; 4],
}

impl Marks {
    /// Marks without points.
    pub fn new(name: &str, colour: usize) -> Self {
        let series = |what: &str, stroke| {
            let name = if what.is_empty() { String::new() } else { format!("{name}: {what}") };
            Series { name, colour, stroke, points: Vec::new() }
        };
        let series = [
            series("", Stroke::Span),
            series("p50", Stroke::Disc),
            series("p99", Stroke::Triangle),
            series("p99.9", Stroke::Bar),
        ];
        Self { series }
    }

    /// Adds the marks of a row at `x`.
    pub fn add(&mut self, x: f64, row: &Row) {
        let high = row.p999.unwrap_or(row.p99);
        let [span, median, p99, p999] = &mut self.series;
        span.points.extend([(x, row.p50), (x, high)]);
        median.points.push((x, row.p50));
        p99.points.push((x, row.p99));
        p999.points.push((x, high));
    }
}
